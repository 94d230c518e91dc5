"""A thread may have a time to live, after which a sweep deletes it; a run revives it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME
from langgraph.types import Interrupt

from langgraph_checkpoint_custom import CheckpointNotFound, ConfigError, Retention
from langgraph_checkpoint_custom.encoding.langgraph_private import NO_TASK, interrupt_id
from tests.behaviour.helpers import Database, checkpoint, config, metadata, next_uuid
from tests.behaviour.sweeps import DAY, Sweeps, now, put, threads
from tests.stores import Client, Store


async def test_a_time_to_live_deletes_a_thread(client: Client) -> None:
    """Instead of `older_than`, whatever the filter, and although a checkpoint has a label."""
    saver: Any = client.saver
    for name, days in (("hour", 2.0), ("year", 50.0), ("plain", 50.0), ("taken back", 2.0)):
        last = put(saver, name, days=days)
        saver.label(last, "mine")
    await client.do("set_ttl", "hour", timedelta(hours=1))
    await client.do("set_ttl", "year", 365 * DAY)
    await client.do("set_ttl", "taken back", timedelta(hours=1))
    await client.do("set_ttl", "taken back", None)
    assert (await client.do("sweep", Retention(filter={"user": "Ada"}), dry_run=True)).deleted_threads == 1
    swept = await client.do("sweep", Retention(filter={"user": "Ada"}))
    assert (swept.threads, swept.deleted_threads) == (2, 1)
    saver.unlabel("plain", "mine")
    saver.unlabel("year", "mine")
    await client.do("sweep", Retention(older_than=30 * DAY))
    assert threads(saver) == ["taken back", "year"]


async def test_a_run_revives_an_expired_thread(client: Client) -> None:
    saver: Any = client.saver
    first = put(saver, "t", days=2)
    await client.do("set_ttl", "t", DAY)
    assert await client.get_tuple(config("t"))
    last = put(saver, "t", after=first)
    await client.do("sweep", Retention())
    assert threads(saver) == ["t"]
    assert Sweeps(saver, Retention())(now() + 0.9 * DAY).deleted_threads == 0
    put(saver, "t", after=last, days=-1)
    assert Sweeps(saver, Retention())(now() + 1.5 * DAY).deleted_threads == 0
    assert Sweeps(saver, Retention())(now() + 2.6 * DAY).deleted_threads == 1


async def test_a_time_to_live_can_keep_the_latest(client: Client) -> None:
    saver: Any = client.saver
    put(saver, "t", after=put(saver, "t", days=3), days=2)
    await client.do("set_ttl", "t", DAY, strategy="keep_latest")
    assert (await client.do("sweep", Retention())).deleted_checkpoints == 1
    assert len(await client.all(config("t"))) == 1


@pytest.mark.parametrize("keep_waiting", [True, False])
async def test_a_thread_that_waits_for_a_human_outlives_its_time(client: Client, keep_waiting: bool) -> None:
    saver: Any = client.saver
    last = put(saver, "t", days=2)
    await client.put_writes(last, [(INTERRUPT, [Interrupt("sure?", id="1")])], "task")
    await client.do("set_ttl", "t", DAY)
    sweeps = Sweeps(saver, Retention(keep_waiting=keep_waiting))
    assert sweeps().deleted_threads == (not keep_waiting)
    if keep_waiting:
        await client.put_writes(last, [("a", 1)], "task")  # It was answered.
        assert sweeps(now() + 1.1 * DAY).deleted_threads == 1


@pytest.mark.parametrize("how_it_ends", ["a", ERROR])
async def test_a_thread_whose_answer_is_acted_on_outlives_its_time(client: Client, how_it_ends: str) -> None:
    """Otherwise a sweep would delete what the run continues from, as soon as a human has answered."""
    saver: Any = client.saver
    question = Interrupt("sure?", id=str(interrupt_id("ask:task", 0)))
    document = checkpoint(next_uuid(), {"branch:to:ask": None})
    document["ts"] = (now() - 2 * DAY).isoformat()
    versions = document["channel_versions"]
    last = await client.put(config("t"), document, metadata(), versions)
    await client.put_writes(last, [(INTERRUPT, [question])], "task")
    await client.do("set_ttl", "t", DAY)
    await client.put_writes(last, [(RESUME, "yes")], NO_TASK)
    assert await client.do("interrupts") == []
    sweeps = Sweeps(saver, Retention())
    assert sweeps().deleted_threads == 0
    await client.put_writes(last, [(how_it_ends, 1)], "task")
    assert sweeps(now() + 1.1 * DAY).deleted_threads == 1


@pytest.mark.leaves_damage("a value is damaged")
async def test_no_value_decides_whether_a_thread_waits(client: Client, database: Database) -> None:
    saver: Any = client.saver
    put(saver, "t", days=2)
    document = checkpoint(next_uuid(), {"a": ["x" * 100_000]})
    document["ts"] = (now() - 2 * DAY).isoformat()
    await client.put(config("t"), document, metadata(), {"a": document["channel_versions"]["a"]})
    await client.do("set_ttl", "t", DAY)
    database.run("UPDATE blobs SET value = :data", data=b"\xc1")
    assert (await client.do("sweep", Retention())).deleted_threads == 1


@pytest.mark.leaves_damage("an interrupt is damaged")
async def test_a_thread_that_nobody_can_tell_to_wait_stays_and_stops_no_sweep(
    client: Client, database: Database
) -> None:
    saver: Any = client.saver
    for name in ("a", "b", "c"):
        last = put(saver, name, days=2)
        await client.put_writes(last, [(INTERRUPT, [Interrupt("sure?", id="1")])] if name == "b" else [], "task")
        await client.do("set_ttl", name, DAY)
    database.run("UPDATE writes SET value = :data", data=b"\xc1")
    assert (await client.do("sweep", Retention(), dry_run=True)).deleted_threads == 2
    assert (await client.do("sweep", Retention())).deleted_threads == 2
    assert threads(saver) == ["b"]


async def test_only_a_thread_that_exists_gets_a_time_to_live(client: Client, database: Database) -> None:
    saver: Any = client.saver
    put(saver, "t")
    with pytest.raises(CheckpointNotFound, match="after its first run"):
        await client.do("set_ttl", "other", DAY)
    for bad in (5, timedelta(), -DAY):
        with pytest.raises(ConfigError, match="positive timedelta"):
            await client.do("set_ttl", "t", bad)
    with pytest.raises(ConfigError, match="'delete' or 'keep_latest'"):
        await client.do("set_ttl", "t", DAY, strategy="delete_all")
    assert database.run("SELECT thread_id, ttl_seconds FROM threads") == [("t", None)]


async def test_a_time_to_live_without_a_sweep_is_said_once(
    store: Store, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    saver: Any = client.saver
    put(saver, "t")
    for _ in range(2):
        await client.do("set_ttl", "t", DAY)
        saver.for_tenant("acme").for_tenant("other")
    assert [record.levelname for record in caplog.records if "set_ttl" in record.message] == ["WARNING"]
    caplog.clear()
    with store.open() as other:
        other.sweep(Retention())
        await Client(other, client.api).do("set_ttl", "t", DAY)
    assert caplog.records == []
