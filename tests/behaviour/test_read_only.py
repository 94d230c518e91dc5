"""`read_only=True`: a saver that changes nothing, which the database enforces as well."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from langgraph_checkpoint_custom import (
    CheckpointSaver,
    ConfigError,
    PostgresSaver,
    Retention,
    SchemaMissing,
    SqliteSaver,
    StorageError,
    open_saver,
)
from langgraph_checkpoint_custom.model.keys import Key, WriteRow
from langgraph_checkpoint_custom.operations.delete import delete_thread
from tests.behaviour.helpers import config, id_of, next_uuid, put_chain
from tests.conftest import APIS
from tests.proxy import proxied
from tests.stores import Client, Store

NOWHERE = "postgresql://nobody@localhost:1/nothing"


@pytest.fixture(params=APIS)
def reader(request: pytest.FixtureRequest, saver: CheckpointSaver, store: Store) -> Any:
    """The methods of a saver that only reads, on a store with tables."""
    saver.setup()
    with store.open(read_only=True) as opened:
        yield Client(opened, request.param)


async def test_a_read_only_saver_reads_what_others_store(reader: Client, saver: CheckpointSaver, next_id: Any) -> None:
    chain = await put_chain(Client(saver, reader.api), next_id, 3)
    found = await reader.get_tuple(config("thread"))
    assert found is not None
    assert found.config == chain[-1]
    assert len(await reader.all(config("thread"))) == 3
    assert [one.thread_id for one in await reader.collect("threads")] == ["thread"]


async def test_every_write_is_refused_and_named(reader: Client, saver: CheckpointSaver, next_id: Any) -> None:
    chain = await put_chain(Client(saver, reader.api), next_id, 1)
    for call in (
        reader.do("setup"),
        reader.put_writes(chain[0], [("a", 1)], "task"),
        reader.delete_thread("thread"),
        reader.prune(["thread"]),
        reader.copy_thread("thread", "other"),
        reader.delete_for_runs(["run"]),
        reader.do("label", chain[0], "name"),
        reader.do("rollback", "thread", chain[0]["configurable"]["checkpoint_id"]),
    ):
        with pytest.raises(ConfigError, match="read_only=True"):
            await call
    with pytest.raises(ConfigError, match=r"^put: "):
        await put_chain(reader, next_id, 1)
    assert await reader.do("sweep", Retention(older_than=timedelta(days=1)), dry_run=True)
    with saver.claim("thread"), pytest.raises(ConfigError, match="read_only"), reader.saver.claim("thread"):  # type: ignore[attr-defined]
        pass


@pytest.mark.parametrize("pooled", [False, True])
async def test_the_database_refuses_writes_too(store: Store, api: str, pooled: bool) -> None:
    """Those that claim to be reads. Through a pooler, whose sessions are shared, each transaction is read-only."""
    if pooled and store.kind == "sqlite":
        pytest.skip("SQLite has no pooler")
    with ExitStack() as stack:
        saver = stack.enter_context(store.open())
        saver.setup()
        (where,) = await put_chain(Client(saver, api), next_uuid, 1)
        url = stack.enter_context(proxied(store.url, other_pid=True)).url if pooled else store.url
        reader = stack.enter_context(open_saver(url, read_only=True))
        d, driver = reader.backend.dialect, reader.backend.driver
        deletes = replace(delete_thread(d, "thread"), access="read")
        row = WriteRow("task", "", None, 0, "a", "msgpack", b"\xc0")
        form = d.writes_form([row])
        assert form
        given = replace(form, access="read"), d.writes_params(Key("thread", "", id_of(where)), [row])
        for _ in range(2):  # At first, the connection is opened.
            for run, arun, args in ((driver.run, driver.arun, [deletes]), (driver.send, driver.asend, given)):
                with pytest.raises(StorageError, match=r"read-?only|not writable") as refused:
                    await (arun(*args) if api == "async" else asyncio.to_thread(run, *args))
                assert refused.value.sqlstate in ("25006", "SQLITE_READONLY", None)
        found = reader.get_tuple(where)
        assert found
        assert found.pending_writes == []


def test_a_read_only_saver_creates_no_file_and_no_tables(tmp_path: Path, empty_postgres_url: str) -> None:
    path = tmp_path / "none.db"
    with SqliteSaver(str(path), read_only=True) as saver, pytest.raises(StorageError, match="cannot be opened"):
        list(saver.threads())
    assert not path.exists()
    path.touch()
    for url in (f"sqlite:///{path}", empty_postgres_url):
        with open_saver(url, read_only=True) as saver, pytest.raises(SchemaMissing):
            list(saver.threads())
    assert path.stat().st_size == 0


def test_read_only_is_refused_for_memory_retention_and_a_callers_pool() -> None:
    with pytest.raises(ConfigError, match="read_only needs a file"):
        SqliteSaver(":memory:", read_only=True)
    with pytest.raises(ConfigError, match="leave out retention"):
        open_saver(NOWHERE, read_only=True, retention=Retention(keep_last=1))
    from psycopg_pool import ConnectionPool

    with pytest.raises(ConfigError, match="read_only needs a connection string"):
        PostgresSaver(ConnectionPool(NOWHERE, open=False), read_only=True)
