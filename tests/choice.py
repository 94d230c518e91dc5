"""Which tests run, and in which order; the options that choose, and what does not run on distributed tables."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Generator, Mapping, Sequence
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from functools import cache
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import APIS, BACKENDS
from tests.needs import need

# Files and tests that run only with --long or --full, because they take seconds to minutes, and why they do.
LONG = {
    "behaviour/test_memory.py": "a process for each large value",
    "behaviour/test_claims.py::test_a_paused_owner_whose_claim_expired_stores_nothing": "paused processes",
    "behaviour/test_concurrent_writers.py::test_a_paused_worker_detects_that_another_has_continued": "paused processes",
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
    "ui/test_browser.py::test_everybody_can_use_every_page": "each page in a browser",
    "upstream/test_suites.py": "LangGraph's own tests",
}


# Of the many cases of these tests, one in so many runs without --full; the others on other days.
SAMPLED = {
    "behaviour/test_loops_without_sockets.py::*_without_sockets": 4,
    "migrations/test_two_versions.py::*": 2,
    "plans/test_deletions.py::*": 2,
    "plans/test_lists.py::test_lists_on_*": 2,
    "races/test_pairs.py::test_a_row_*": 6,
    "races/test_pairs.py::test_two_*": 6,
}

# Without --variants, the day chooses the variants, in UTC.
TODAY = datetime.now(timezone.utc).date().isoformat()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what chooses the tests.

    CI runs the long tests, and each test with sync or async: which one depends on the commit.
    """
    parser.addoption("--full", action="store_true", help="run all tests, the long ones and each of sync and async")
    parser.addoption("--long", action="store_true", help="run the long tests, too")
    parser.addoption("--variants", default="", metavar="TEXT", help="what chooses the variants, instead of the day")
    parser.addoption(
        "--citus",
        action="store_true",
        help="run the tests of distributed tables on the cluster in CHECKPOINT_CITUS_DSN",
    )


def _is_full(config: pytest.Config) -> bool:
    """Whether all tests run: with `--full`, or if files or folders are named without `--variants`."""
    if hasattr(config, "workerinput"):
        return bool(config.workerinput["full"])
    named = config.args_source is not config.ArgsSource.TESTPATHS and not config.getoption("--variants")
    return named or bool(config.getoption("--full"))


def _variants(config: pytest.Config) -> str:
    """The text that chooses the variants: it is the same in all processes, also at midnight."""
    if hasattr(config, "workerinput"):
        return str(config.workerinput["variants"])
    return str(config.getoption("--variants") or TODAY)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say how to run the same variants once more."""
    return [] if _is_full(config) else [f"variants: chosen by --variants={_variants(config)}"]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the choice to the processes of pytest-xdist, which are all given paths."""
    node.workerinput["full"] = _is_full(node.config)
    node.workerinput["variants"] = _variants(node.config)


# These use the saver's methods, which the other folders test on both databases. Without --full, each test runs on one.
ONE_DATABASE = "adapters/", "cli/", "graphs/", "moving/", "server/", "ui/test_browser", "upstream/"


def _path(item: pytest.Item) -> str:
    return _relative(item.path)


@cache
def _relative(path: Path) -> str:
    return path.relative_to(Path(__file__).parent).as_posix()


def _is_long(item: pytest.Item) -> bool:
    path = _path(item)
    return path in LONG or f"{path}::{item.name.partition('[')[0]}" in LONG


def _sampled(item: pytest.Item) -> int:
    """Of how many cases of a test one runs without `--full`."""
    name = f"{_path(item)}::{item.name.partition('[')[0]}"
    return next((number for pattern, number in SAMPLED.items() if fnmatchcase(name, pattern)), 1)


def _quick(config: pytest.Config, items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """What runs without `--full`: of each test one database and one of sync and async; long tests with `--long`.

    With `--long`, the folders that are not in `ONE_DATABASE` use both databases.
    """
    is_long = config.getoption("--long")
    chance = _variants(config)
    one_database = ONE_DATABASE if is_long else ("",)
    groups: dict[str, dict[str, dict[str, list[pytest.Item]]]] = {}
    for item in items:
        if is_long or not _is_long(item):
            name, _, parameters = item.name.partition("[")
            backend, parameters = _cut_out(BACKENDS, parameters)
            api, parameters = _cut_out(APIS, parameters)
            test = f"{chance}{_path(item)}{name}{parameters}"
            if _number(f"sample {test}") % _sampled(item) == 0:
                groups.setdefault(test, {}).setdefault(backend, {}).setdefault(api, []).append(item)
    chosen: set[pytest.Item] = set()
    for test, backends in groups.items():
        first = next(iter(next(iter(backends.values())).values()))[0]
        for backend in _one_of(backends, test) if _path(first).startswith(one_database) else backends:
            apis = backends[backend]
            chosen.update(*(apis[api] for api in _one_of(apis, test + backend)))
    return chosen


def _cut_out(words: Sequence[str], parameters: str) -> tuple[str, str]:
    """The first of some words in the parameters of a test, and the parameters without it."""
    found = re.search(rf"\b({'|'.join(words)})\b", parameters)
    if found is None:
        return "", parameters
    return found[1], parameters[: found.start()] + parameters[found.end() :]


def _one_of(alternatives: Mapping[str, object], test: str) -> list[str]:
    """One alternative; the name of the test decides which one, so that each runs an equal part of the tests."""
    names = sorted(alternatives)
    return [names[_number(test) % len(names)]]


def _number(text: str) -> int:
    """A number that looks random; those of two texts are unrelated, unlike their CRCs."""
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big")


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


def _keep(config: pytest.Config, items: list[pytest.Item], chosen: set[pytest.Item]) -> None:
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose which tests run. Each process starts with its longest tests, since otherwise all would wait for them.

    Each file of long tests is for one process, which makes what they share; a process that is done takes over others.
    LangGraph's suites share nothing and take longest: they come first, spread over the processes.
    """
    if config.getoption("--citus"):
        _keep(config, items, {item for item in items if _is_distributed(item)})
        for item in items:
            name = getattr(item, "originalname", item.name)
            if reason := NOT_DISTRIBUTED.get(name) or NOT_DISTRIBUTED.get(item.path.name):
                item.add_marker(pytest.mark.skip(reason=f"not with distributed tables: {reason}"))
    if not _is_full(config):
        _keep(config, items, _quick(config, items))
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    first: list[list[pytest.Item]] = [[] for _ in range(processes)]
    files: dict[str, int] = {}  # Which process has a file of long tests, or a suite.
    rest = []
    for item in sorted(items, key=lambda item: (not _path(item).startswith(SUITES), LONGEST not in item.name)):
        if _path(item).startswith(SHARED_STORES):
            first[0].append(item)
        elif _is_long(item):
            file = item.nodeid if _path(item).startswith(SUITES) else _path(item)
            first[files.setdefault(file, len(files) % processes)].append(item)
        else:
            rest.append(item)
    size, others = len(items) // processes, iter(rest)
    items[:] = [item for own in first for item in (*own, *islice(others, max(0, size - len(own))))]
    items += others


# The tests of a folder whose stores take long to fill, and are filled in each process that runs one of them.
SHARED_STORES = "plans/"

# LangGraph's suites, and the longest of them.
SUITES = "upstream/test_suites"
LONGEST = "[langgraph with "


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


# Tests, and files of tests, of what distributed tables do not have, with the reason. docs/postgres.md says the same.
NOT_DISTRIBUTED = {
    "test_a_policy_that_was_weakened_is_drift": "there is no row-level security",
    "test_a_role_of_one_tenant_cannot_reach_another_whatever_it_sets": "there is no row-level security",
    "test_raw_sql_sees_no_tenants_rows_without_its_name": "there is no row-level security",
    "test_the_tenant_is_not_left_set_in_a_callers_transaction": "there is no row-level security",
    "test_a_tenant_that_the_caller_has_set_stays_set": "there is no row-level security",
    "test_a_callers_session_is_not_changed": "the compiler is off on the cluster",
    "test_through_a_pooler_no_large_statement_is_jit_compiled": "the compiler is off on the cluster",
    "test_a_name_that_does_not_fit_is_refused_once": "the message does not name the channel of a value",
    "test_it_does_not_affect_the_other_calls_of_its_batch": "there are no batches",
    "test_each_operation_takes_as_many_round_trips_as_designed": "get_tuple, put and copies take others",
    "test_a_claim_that_is_cancelled_while_it_is_taken_is_released": "the lock is taken where the rows are",
    "test_a_sweep_leaves_a_thread_whose_lock_is_held_for_too_long": "the lock is taken where the rows are",
    "test_the_round_trips_of_operations_on_a_whole_store": "an export reads thread by thread",
    "test_small_threads_are_imported_in_batches": "an import stores thread by thread",
    "test_an_import_does_not_wait_for_one_thread_with_the_locks_of_others": "an import stores thread by thread",
    "test_an_ordinary_call_runs_few_of_our_functions": "no call is a form there",
    "test_statements_are_prepared_on_direct_connections_only": "no call is a form there",
    "test_a_sweep_writes_the_row_of_a_thread_that_stays_at_most_twice": "Citus refuses the test's triggers",
    "test_all_threads_of_a_person_are_deleted_and_reported": "Citus refuses the test's change of a thread id",
    "test_removing_a_label_takes_the_rows_in_the_order_of_a_deletion": "Citus refuses the test's locks of all rows",
    "test_a_sweep_waits_for_the_lock_of_a_thread_whose_label_was_removed": "the wait is on another server",
    "test_another_schema": "Citus creates a schema only on the coordinator",
    "test_batching.py": "there are no batches",
    "test_batching_faults.py": "there are no batches",
    "test_readable.py": "there is no view",
}
