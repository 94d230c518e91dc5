"""Programs written for LangGraph's savers run with a changed import, however they create the saver."""

from __future__ import annotations

import asyncio
import copy
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, closing
from pathlib import Path
from typing import Any

import aiosqlite
import psycopg
import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

import langgraph_checkpoint_custom
from langgraph_checkpoint_custom import (
    AsyncPostgresSaver,
    AsyncSqliteSaver,
    CheckpointSaver,
    ClosedError,
    ConfigError,
    PostgresSaver,
    SqliteSaver,
    StorageError,
)
from tests.stores import Store

THREAD: Any = {"configurable": {"thread_id": "1"}}

builder = StateGraph(dict)  # type: ignore[type-var]
builder.add_node("count", lambda state: {"number": state["number"] + 1})
builder.add_edge(START, "count")


def play(saver: CheckpointSaver) -> None:
    graph = builder.compile(checkpointer=saver)
    assert graph.invoke({"number": 1}, THREAD) == {"number": 2}
    assert graph.get_state(THREAD).values == {"number": 2}


async def aplay(saver: CheckpointSaver) -> None:
    graph = builder.compile(checkpointer=saver)
    assert await graph.ainvoke({"number": 1}, THREAD) == {"number": 2}
    assert (await graph.aget_state(THREAD)).values == {"number": 2}


class Counting(JsonPlusSerializer):
    """A serializer of the caller's that shows whether it is used."""

    used = 0

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        self.used += 1
        return super().dumps_typed(obj)


# PostgreSQL: every way in which a program creates LangGraph's savers, sync and async, with what it closes at the end.

AS_DOCUMENTED: Any = {"autocommit": True, "prepare_threshold": 0}


def _pg_conn(url: str, stack: ExitStack, **options: Any) -> psycopg.Connection[Any]:
    return stack.enter_context(psycopg.Connection.connect(url, **AS_DOCUMENTED | options))


def _in_a_pipeline(url: str, stack: ExitStack, **options: Any) -> Any:
    conn = _pg_conn(url, stack, **options)
    return PostgresSaver(conn, stack.enter_context(conn.pipeline()))


def _on_a_pool(url: str, stack: ExitStack) -> Any:
    return PostgresSaver(
        stack.enter_context(ConnectionPool(url, kwargs=AS_DOCUMENTED, min_size=1, max_size=3, open=True))
    )


POSTGRES: Sequence[Callable[[str, ExitStack], Any]] = [
    lambda url, stack: stack.enter_context(PostgresSaver.from_conn_string(url)),
    lambda url, stack: stack.enter_context(PostgresSaver.from_conn_string(url, pipeline=True)),
    lambda url, stack: PostgresSaver(_pg_conn(url, stack)),
    lambda url, stack: PostgresSaver(conn=_pg_conn(url, stack), pipe=None, serde=JsonPlusSerializer()),
    lambda url, stack: _in_a_pipeline(url, stack, row_factory=dict_row),
    lambda url, stack: _in_a_pipeline(url, stack, autocommit=False),
    _on_a_pool,
]


def test_postgres_saver(empty_postgres_url: str) -> None:
    for way in POSTGRES:
        with ExitStack() as stack:
            saver = way(empty_postgres_url, stack)
            saver.setup()
            play(saver)
        with PostgresSaver(empty_postgres_url) as later:
            assert builder.compile(checkpointer=later).get_state(THREAD).values == {"number": 2}
            later.delete_thread("1")


async def _apg_conn(url: str, stack: AsyncExitStack, **options: Any) -> psycopg.AsyncConnection[Any]:
    return await stack.enter_async_context(await psycopg.AsyncConnection.connect(url, **AS_DOCUMENTED | options))


async def _a_string(url: str, stack: AsyncExitStack) -> Any:
    return await stack.enter_async_context(AsyncPostgresSaver.from_conn_string(url, serde=JsonPlusSerializer()))


async def _a_string_with_a_pipeline(url: str, stack: AsyncExitStack) -> Any:
    return await stack.enter_async_context(AsyncPostgresSaver.from_conn_string(url, pipeline=True))


async def _a_connection(url: str, stack: AsyncExitStack) -> Any:
    return AsyncPostgresSaver(await _apg_conn(url, stack))


async def _a_connection_in_a_pipeline(url: str, stack: AsyncExitStack) -> Any:
    conn = await _apg_conn(url, stack, row_factory=dict_row)
    return AsyncPostgresSaver(conn=conn, pipe=await stack.enter_async_context(conn.pipeline()))


async def _a_pool(url: str, stack: AsyncExitStack) -> Any:
    pool: Any = AsyncConnectionPool(url, kwargs=AS_DOCUMENTED, min_size=1, max_size=3, open=False)
    return AsyncPostgresSaver(conn=await stack.enter_async_context(pool))


async def test_async_postgres_saver(empty_postgres_url: str) -> None:
    for way in (_a_string, _a_string_with_a_pipeline, _a_connection, _a_connection_in_a_pipeline, _a_pool):
        async with AsyncExitStack() as stack:
            saver = await way(empty_postgres_url, stack)
            await saver.setup()
            await aplay(saver)
        async with AsyncPostgresSaver.from_conn_string(empty_postgres_url) as later:
            await later.setup()
            assert (await builder.compile(checkpointer=later).aget_state(THREAD)).values == {"number": 2}
            await later.adelete_thread("1")


# SQLite, sync.


def counted(path: Path | str) -> int:
    with closing(sqlite3.connect(path)) as probe, probe:
        number: int = probe.execute("SELECT count(*) FROM checkpoints").fetchone()[0]
    probe.close()
    return number


def test_sqlite_saver_from_a_string(tmp_path: Path) -> None:
    with SqliteSaver.from_conn_string(str(tmp_path / "a.db")) as saver:
        saver.setup()
        play(saver)
    assert counted(tmp_path / "a.db") == 3
    with SqliteSaver.from_conn_string(":memory:") as saver:
        play(saver)


@pytest.mark.parametrize("options", [{"check_same_thread": False}, {}, {"isolation_level": None}])
def test_sqlite_saver_on_a_connection_to_a_file(tmp_path: Path, options: Any) -> None:
    conn = sqlite3.connect(tmp_path / "a.db", **options)
    conn.row_factory = sqlite3.Row
    saver = SqliteSaver(conn=conn, serde=JsonPlusSerializer())
    assert saver.conn is conn
    saver.setup()
    play(saver)
    assert counted(tmp_path / "a.db") == 3
    saver.close()
    assert conn.execute("SELECT count(*) AS n FROM checkpoints").fetchone()["n"] == 3  # It stays the caller's.
    conn.close()


@pytest.mark.parametrize(
    ("name", "row_factory", "options"),
    [
        (":memory:", None, {}),
        ("", sqlite3.Row, {"isolation_level": None}),
        (":memory:", lambda cursor, row: {"n": row[0]}, {"autocommit": False}),
        ("", None, {"autocommit": True}),
    ],
)
def test_sqlite_saver_on_a_connection_to_memory(name: str, row_factory: Any, options: Any) -> None:
    if "autocommit" in options and sys.version_info < (3, 12):
        pytest.skip("sqlite3 knows autocommit since Python 3.12")
    conn = sqlite3.connect(name, check_same_thread=False, **options)
    conn.row_factory = row_factory
    saver = SqliteSaver(conn)
    play(saver)
    asyncio.run(aplay(saver))
    conn.row_factory = None
    assert conn.execute("SELECT count(*) FROM checkpoints").fetchone() == (6,)
    again = SqliteSaver(conn)
    assert builder.compile(checkpointer=again).get_state(THREAD).values == {"number": 2}
    again.close()
    saver.close()
    assert conn.execute("SELECT count(*) FROM checkpoints").fetchone() == (6,)
    conn.close()


def deserialized(data: bytes) -> sqlite3.Connection:
    conn = sqlite3.connect(":memory:", check_same_thread=False)
    conn.deserialize(data)  # type: ignore[attr-defined]  # Python 3.10 has none.
    return conn


def shared_by_name(data: bytes) -> sqlite3.Connection:
    conn = sqlite3.connect(f"file:{Path.cwd()}/shared.db?vfs=memdb", uri=True, check_same_thread=False)
    with closing(deserialized(data)) as source:
        source.backup(conn)
    return conn


@pytest.mark.skipif(sys.version_info < (3, 11), reason="sqlite3 knows deserialize since Python 3.11")
@pytest.mark.parametrize("connect", [deserialized, shared_by_name])
def test_a_database_in_memory_that_has_a_name_is_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connect: Callable[[bytes], sqlite3.Connection]
) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as first:
        play(SqliteSaver(first))
        data = first.serialize()  # type: ignore[attr-defined]
    with closing(connect(data)) as conn:
        saver = SqliteSaver(conn)
        assert builder.compile(checkpointer=saver).get_state(THREAD).values == {"number": 2}
        play(saver)
        assert conn.execute("SELECT count(*) FROM checkpoints").fetchone() == (6,)
    assert list(tmp_path.iterdir()) == []


def test_a_callers_transaction_on_a_memory_database_stays_open() -> None:
    conn = sqlite3.connect(":memory:", check_same_thread=False)
    saver = SqliteSaver(conn)
    play(saver)
    conn.execute("CREATE TABLE mine (what)")
    conn.execute("INSERT INTO mine VALUES ('uncommitted')")
    builder.compile(checkpointer=saver).invoke({"number": 5}, THREAD)
    assert conn.in_transaction
    with pytest.raises(StorageError):  # A failed call rolls back nothing of the caller's.
        saver.backend.driver.run(_refused(saver))
    assert conn.execute("SELECT what FROM mine").fetchall() == [("uncommitted",)]
    conn.rollback()
    assert builder.compile(checkpointer=saver).get_state(THREAD).values == {"number": 2}
    conn.close()
    with pytest.raises(StorageError, match="closed database"):
        saver.get_tuple(THREAD)


def _refused(saver: CheckpointSaver) -> Any:
    from langgraph_checkpoint_custom.engine.operation import RoundTrip, Statement, operation

    @operation("write")
    def fail() -> Any:
        yield RoundTrip((Statement("nothing", "INSERT INTO nothing VALUES (1)", {}),))

    return fail()


def test_a_connection_to_memory_that_belongs_to_one_os_thread_is_refused() -> None:
    conn = sqlite3.connect(":memory:")
    with pytest.raises(ConfigError, match="check_same_thread=False"):
        SqliteSaver(conn)
    conn.close()
    with pytest.raises(ConfigError, match="closed"):
        SqliteSaver(conn)


# SQLite, async.


async def test_async_sqlite_saver_from_a_string(tmp_path: Path) -> None:
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "a.db")) as saver:
        await saver.setup()
        await aplay(saver)
    assert counted(tmp_path / "a.db") == 3
    async with AsyncSqliteSaver.from_conn_string(":memory:") as saver:
        await aplay(saver)


@pytest.mark.parametrize("name", ["a.db", ":memory:"])
@pytest.mark.parametrize("awaited", [True, False])
async def test_async_sqlite_saver_on_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, awaited: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    conn = await aiosqlite.connect(name) if awaited else aiosqlite.connect(name)
    if awaited:
        conn.row_factory = sqlite3.Row
    saver = AsyncSqliteSaver(conn)
    await saver.setup()
    await aplay(saver)
    assert await asyncio.to_thread(saver.get_tuple, THREAD) == saver.get_tuple(THREAD)
    await saver.aclose()
    (row,) = await conn.execute_fetchall("SELECT count(*) AS n FROM checkpoints")
    assert row["n" if awaited else 0] == 3
    await conn.close()
    if name == ":memory:":
        with pytest.raises(ConfigError, match="cannot be used"):
            AsyncSqliteSaver(conn)


@pytest.mark.parametrize("name", ["a.db", ":memory:"])
@pytest.mark.parametrize("kind", ["sqlite3", "aiosqlite"])
async def test_a_connection_that_returns_text_as_bytes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    conn: Any = sqlite3.connect(name, check_same_thread=False)
    if kind == "aiosqlite":
        conn.close()
        conn = await aiosqlite.connect(name)
    conn.text_factory = bytes
    with pytest.raises(ConfigError, match="returns text as something other than str"):
        AsyncSqliteSaver(conn)
    await conn.close() if kind == "aiosqlite" else conn.close()


# What is the same for all.


def test_the_callers_serde_is_used(tmp_path: Path, empty_postgres_url: str) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db", check_same_thread=False)) as conn:
        for saver in (
            SqliteSaver(conn, serde=(serde := Counting())),
            PostgresSaver(empty_postgres_url, None, (other := Counting())),
        ):
            saver.setup()
            play(saver)
            saver.close()
    assert serde.used
    assert other.used


def test_the_serde_of_a_subclass_is_used(tmp_path: Path) -> None:
    class Encrypting(SqliteSaver):
        serde = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")

    for strict in (False, True):
        path = tmp_path / f"{strict}.db"
        with Encrypting(path, strict=strict) as saver:
            play(saver)
        with closing(sqlite3.connect(path)) as probe:
            assert [*probe.execute("SELECT DISTINCT checkpoint_type FROM checkpoints")] == [("msgpack+aes|b",)]


def test_the_async_names_are_the_same_savers(store: Store) -> None:
    """With clones, tenants and sync calls; only `setup` has to be awaited."""
    kind: Any = AsyncSqliteSaver if store.kind == "sqlite" else AsyncPostgresSaver
    saver = kind.from_conn_string(store.url.removeprefix("sqlite:///"))
    with saver:
        asyncio.run(saver.setup())
        play(saver)
        for clone in (copy.copy(saver), saver.for_tenant("acme")):
            assert type(clone) is kind
        assert saver.for_tenant("acme").get_tuple(THREAD) is None


def test_the_error_about_conn_without_a_callers_connection_says_so(tmp_path: Path) -> None:
    with SqliteSaver(tmp_path / "a.db") as saver:
        assert not hasattr(saver, "conn")
        with pytest.raises(AttributeError, match=r"opens its own connections.*aclose"):
            _ = saver.conn


@pytest.mark.parametrize("source", [None, 5, ["a.db"]])
def test_something_other_than_a_database_is_refused_with_a_clear_error(source: Any) -> None:
    with pytest.raises(ConfigError, match="SqliteSaver takes the path of a file, or a connection"):
        SqliteSaver(source)
    with pytest.raises(ConfigError, match="PostgresSaver takes a connection string"):
        PostgresSaver(source)


@pytest.mark.parametrize(
    ("saver", "source", "words"),
    [
        (
            SqliteSaver,
            "sqlite:///a.db",
            r"takes the path of a file, not a URL \(sqlite://\); for a URL, use open_saver",
        ),
        (SqliteSaver, "postgresql://u:topsecret@h/d", r"not a URL \(postgresql://\); for a URL, use open_saver"),
        (PostgresSaver, "sqlite:///a.db", "begins with postgresql://, not sqlite://; open_saver takes"),
        (PostgresSaver, "mysql://u:topsecret@h/d", "begins with postgresql://, not mysql://"),
    ],
)
def test_the_url_of_the_other_database_is_refused_with_a_clear_error(
    saver: type[CheckpointSaver], source: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        saver(source)  # type: ignore[call-arg, arg-type]
    assert "topsecret" not in str(raised.value)


def test_a_sqlite_connection_is_refused_by_the_postgresql_saver() -> None:
    with closing(sqlite3.connect(":memory:")) as given, pytest.raises(ConfigError, match="that is for SqliteSaver"):
        PostgresSaver(given)  # type: ignore[arg-type]


async def test_the_error_about_an_unopened_pool_says_so(postgres_dsn: str) -> None:
    pool = ConnectionPool(postgres_dsn, open=False)
    with PostgresSaver(pool) as saver, pytest.raises(ClosedError, match="your pool is not open yet"):
        saver.thread_exists("1")
    async with PostgresSaver(AsyncConnectionPool(postgres_dsn, open=False)) as saver:
        with pytest.raises(ClosedError, match="your pool is not open yet"):
            await saver.athread_exists("1")


def test_the_error_about_a_shallow_saver_names_the_replacement() -> None:
    with pytest.raises(ImportError, match=r"use PostgresSaver with retention=Retention\(keep_last=1\)"):
        from langgraph_checkpoint_custom import ShallowPostgresSaver  # noqa: F401
    with pytest.raises(ImportError, match=r"use AsyncPostgresSaver with retention=Retention\(keep_last=1\)"):
        from langgraph_checkpoint_custom import AsyncShallowPostgresSaver  # noqa: F401


# Names.


def test_every_public_name_can_be_imported() -> None:
    public = {*langgraph_checkpoint_custom.__all__}
    assert {"PostgresSaver", "AsyncPostgresSaver"} <= public <= {*dir(langgraph_checkpoint_custom)}
    names: dict[str, Any] = {}
    exec("from langgraph_checkpoint_custom import *", names)
    assert public <= names.keys()


WITHOUT_PSYCOPG = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0].startswith("psycopg"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name.startswith("psycopg") else real(name, *rest)
sys.meta_path.insert(0, Hidden())
from langgraph_checkpoint_custom import *
import langgraph_checkpoint_custom
assert "PostgresSaver" not in dir(langgraph_checkpoint_custom)
with SqliteSaver(":memory:") as saver:
    saver.setup()
for name in ("AsyncPostgresSaver", "PostgresSaver"):
    try:
        exec(f"from langgraph_checkpoint_custom import {name}")
    except ImportError as error:
        assert "install langgraph-checkpoint-custom[postgres]" in str(error), error
    else:
        raise AssertionError(name)
"""


def test_import_star_works_without_psycopg() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_PSYCOPG], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
