"""Servers that the tests share: one for each database."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph_sdk import get_client
from xdist.scheduler import LoadScopeScheduling

from langgraph_checkpoint_custom import CheckpointSaver
from tests import citus
from tests.conftest import BACKENDS, made_database, running_postgres
from tests.invariants import check_invariants
from tests.needs import need
from tests.server.processes import LOOK, TIMEOUT, Server, running
from tests.server.threads import Threads
from tests.stores import Store

# What the tests share; the two servers of `pair` have both types of event loop on one database.
SERVERS = [("sqlite", "isolated"), ("postgres", "shared")]
OPTIONS = {
    "CHECKPOINT_CONCURRENT_WRITERS": "reject",
    "CHECKPOINT_ENCRYPTION_KEYS": "A_KEY",
    "CHECKPOINT_STRICT": "true",
    "A_KEY": "0123456789abcdef0123456789abcdef",
}


def need_server() -> None:
    """Skip the test if the Agent Server is not installed."""
    need(find_spec("langgraph_api"), "the extra server")


class ByServer(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types.
    """Gives all tests of a server to one test process, so that it is started once.

    `xdist_group` would do the same, but pytest-xdist 3.8 does not see it with pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("[")[2] or nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByServer:
    """Called by xdist if only these tests are run."""
    return ByServer(config, log)


class Servers:
    """The servers of this test process, started on first use."""

    def __init__(self, folders: pytest.TempPathFactory, stack: ExitStack, *, is_citus: bool) -> None:
        self._folders = folders
        self._stack = stack
        self._is_citus = is_citus
        self._dsn: str | None = None
        self._servers: dict[tuple[str, str], Server] = {}

    def server(self, backend: str, loops: str) -> Server:
        """The one server for a database and a type of loops."""
        found = self._servers.get((backend, loops))
        if found is None:
            folder = self._folders.mktemp(f"{backend}-{loops}")
            found = Server(self.store(backend, folder), folder, isolated=loops == "isolated")
            self._servers[backend, loops] = found
            self._stack.enter_context(running(found))
            self._stack.callback(check_the_end, found)
        return found

    def store(self, backend: str, folder: Path) -> Store:
        """An empty database, without tables; on a cluster, with empty tables."""
        if backend == "sqlite":
            return Store(backend, f"sqlite:///{folder / 'checkpoints.db'}")
        if self._is_citus:
            urls = self._stack.enter_context(citus.made_cluster_database(citus.given_dsn() or ""))
            citus.distributed(urls[0])
            return Store(backend, urls[-1])
        if self._dsn is None:  # Not that of the fixture, which may end before the tests here that use it.
            self._dsn = self._stack.enter_context(running_postgres())
        return Store(backend, self._stack.enter_context(made_database(self._dsn))[1])


def check_the_end(server: Server) -> None:
    """Stop a server and check what it leaves: no process, no connection, and sound tables."""
    assert server.stop() == 0
    check_invariants(server.store)
    # The server leaves tasks of its own; its log must not mention ours.
    said = [line for line in server.log.read_text().splitlines() if "was destroyed" in line or "was never" in line]
    assert [line for line in said if "langgraph_checkpoint_custom" in line or "psycopg" in line] == []
    check_no_session(server.store)


def check_no_session(store: Store) -> None:
    """Check that a database has no sessions any more, if it has sessions at all."""
    if store.kind == "sqlite":
        return
    deadline = time.monotonic() + TIMEOUT
    with psycopg.connect(store.url, autocommit=True) as connection:
        while others := connection.execute(
            "SELECT application_name FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            " AND application_name NOT LIKE 'citus_%'"
        ).fetchall():
            assert time.monotonic() < deadline, others
            time.sleep(LOOK)  # PostgreSQL ends a session some milliseconds after its connection.


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory, is_citus: bool) -> Iterator[Servers]:
    """The servers of this test process."""
    need_server()
    with ExitStack() as stack:
        yield Servers(tmp_path_factory, stack, is_citus=is_citus)


@pytest.fixture(
    params=SERVERS,
    ids=lambda param: "-".join(param),
)
def server(request: pytest.FixtureRequest, servers: Servers) -> Server:
    """A running server, once for each database."""
    return servers.server(*request.param)


@pytest.fixture(params=BACKENDS)
def pair(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """Two servers on one empty database, started at the same time, with options; the test may kill them."""
    store = servers.store(request.param, tmp_path)
    two = []
    for name, isolated in (("one", False), ("other", True)):
        (tmp_path / name).mkdir()
        two.append(Server(store, tmp_path / name, isolated=isolated, variables=OPTIONS))
    with running(*two):
        yield two[0], two[1]


@pytest.fixture
async def threads(server: Server) -> AsyncIterator[Threads]:
    """The threads of a server, as tests use them."""
    async with get_client(url=server.url) as client:
        yield Threads(client)


@pytest.fixture
async def saver(server: Server) -> AsyncIterator[CheckpointSaver]:
    """A separate saver on the server's database."""
    async with server.store.open() as opened:
        yield opened
