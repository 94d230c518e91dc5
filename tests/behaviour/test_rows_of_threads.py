"""A thread has a row of its own from its first checkpoint to its deletion."""

from __future__ import annotations

from typing import Any

from langgraph_checkpoint_custom import CheckpointSaver, Retention
from langgraph_checkpoint_custom.tools.exchange import export_file, import_file
from tests.behaviour.helpers import Database, checkpoint, config, metadata, next_uuid
from tests.behaviour.sweeps import DAY, Sweeps, put
from tests.stores import Client, Store


def test_a_thread_that_is_deleted_while_it_is_visited_gets_no_row(saver: CheckpointSaver, database: Database) -> None:
    for name in "tu":
        put(saver, name)
    steps = Sweeps(saver, Retention()).steps()
    for op in steps:
        if op.name == "rearm_threads":
            saver.delete_thread("t")
    assert [thread_id for (thread_id,) in database.run("SELECT thread_id FROM threads")] == ["u"]


async def test_every_way_to_make_a_thread_gives_it_a_row(
    client: Client, database: Database, store: Store, tmp_path: Any
) -> None:
    saver: Any = client.saver
    first = put(saver, "put")
    document = checkpoint(next_uuid(), {"a": "x" * 100_000})
    await client.put(config("large"), document, metadata(), {"a": "1"})
    await client.copy_thread("put", "copy")
    await client.do("fork_thread", "put", "fork")
    export_file(saver, tmp_path / "file")
    await client.delete_thread("put")
    assert database.run("SELECT thread_id FROM threads ORDER BY 1") == [("copy",), ("fork",), ("large",)]
    import_file(saver, tmp_path / "file")
    acme = saver.for_tenant("acme")
    put(acme, "put")
    rows = database.run("SELECT thread_id, tenant, due_at FROM threads ORDER BY 2, 1")
    assert rows == [(name, "", 0) for name in ("copy", "fork", "large", "put")] + [("\x1facme\x1fput", "acme", 0)]
    database.run("UPDATE threads SET due_at = 5")
    put(saver, "put", after=first)  # No other put touches the row.
    assert database.run("SELECT DISTINCT due_at FROM threads") == [(5,)]


async def test_a_deleted_thread_has_no_row(client: Client, database: Database) -> None:
    saver: Any = client.saver
    for name in ("run", "checkpoint"):
        last = put(saver, name, run_id="r")
        await client.do("set_ttl", name, DAY)
    await client.do("delete_checkpoint", last)
    assert database.run("SELECT thread_id FROM threads") == [("run",)]
    await client.delete_for_runs(["r"])
    assert database.run("SELECT count(*) FROM threads") == [(0,)]
    for name in ("swept", "deleted", "too large"):
        put(saver, name, days=0 if name == "too large" else 2)
    await client.delete_thread("deleted")
    await client.do("sweep", Retention(older_than=DAY))
    assert database.run("SELECT thread_id FROM threads") == [("too large",)]
    await client.do("sweep", Retention(max_bytes=0))
    assert database.run("SELECT count(*) FROM threads") == [(0,)]
