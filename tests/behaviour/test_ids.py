"""Ids become text at the edge of the API, and an impossible id is refused before anything is written."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from itertools import product
from typing import Any
from uuid import UUID

import pytest

from langgraph_checkpoint_custom import ConfigError
from langgraph_checkpoint_custom.model.keys import MAX_ID, MAX_NAME, MAX_THREAD_ID
from langgraph_checkpoint_custom.threads import ThreadMethods
from tests.behaviour.helpers import LONG, SURELY_FIT, Database, checkpoint, config, get, ids_of, metadata, noise, put
from tests.stores import Client

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")

BAD_THREAD_IDS: dict[str, Any] = {
    "dict": {"a": 1},
    "empty dict": {},
    "list": ["a"],
    "tuple": ("a",),
    "none": None,
    "true": True,
    "false": False,
    "float": 1.5,
    "bytes": b"a",
    "object": object(),
    "nul": "a\0b",
    "only nul": "\0",
    "lone surrogate": "\ud800",
    "long": "x" * (MAX_THREAD_ID + 1),
    "long in bytes": "é" * (MAX_THREAD_ID // 2 + 1),
}
BAD_KEYS: dict[str, Any] = {"dict": {"a": 1}, "list": ["a"], "true": True, "float": 1.5, "bytes": b"a", "nul": "a\0b"}

METHODS: dict[str, Callable[[Client, Any], Awaitable[object]]] = {
    "put": lambda client, bad: client.put(config(bad), checkpoint("1", {"a": [1]}), metadata(), {"a": "1"}),
    "put_writes": lambda client, bad: client.put_writes(config(bad, "1"), [("a", 1)], "task"),
    "put_writes of nothing": lambda client, bad: client.put_writes(config(bad, "1"), [], "task"),
    "get_tuple": lambda client, bad: client.get_tuple(config(bad)),
    "check_interrupt": lambda client, bad: client.do("check_interrupt", config(bad), "id"),
    "list": lambda client, bad: client.all(config(bad)),
    "history": lambda client, bad: client.history(config(bad), ["a"]),
    "delete_thread": lambda client, bad: client.delete_thread(bad),
    "copy_thread from": lambda client, bad: client.copy_thread(bad, "copy"),
    "copy_thread to": lambda client, bad: client.copy_thread("thread", bad),
    "prune": lambda client, bad: client.prune(["thread", bad]),
    "prune delete": lambda client, bad: client.prune(["thread", bad], strategy="delete"),
    "thread_exists": lambda client, bad: client.do("thread_exists", bad),
    "runs": lambda client, bad: client.do("runs", bad),
    "history of records": lambda client, bad: client.collect("history", config(bad)),
    "set_ttl": lambda client, bad: client.do("set_ttl", bad, timedelta(days=1)),
    "label": lambda client, bad: client.do("label", config(bad), "name"),
    "unlabel": lambda client, bad: client.do("unlabel", bad, "name"),
    "labels": lambda client, bad: client.do("labels", bad),
    "fork_thread from": lambda client, bad: client.do("fork_thread", bad, "fork", checkpoint_id="1"),
    "fork_thread to": lambda client, bad: client.do("fork_thread", "thread", bad, checkpoint_id="1"),
    "delete_checkpoint": lambda client, bad: client.do("delete_checkpoint", config(bad, "1")),
    "rollback": lambda client, bad: client.do("rollback", bad, "1"),
}
# They take no thread id, or only a prefix of one.
WITHOUT_THREAD = {"acount_threads", "aerase", "ainterrupts", "areencrypt", "asweep", "asweep_status", "atenants"}


NO_TEXT: list[Any] = [None, 5, 1.5, True, b"a", ("a",)]
BAD_VERSIONS: list[Any] = [b"1", 1j, {1}, Decimal(1), datetime(2026, 1, 1), object()]
BAD_FORMATS: list[Any] = ["4", b"4", None, True, 3.5, math.nan, math.inf, -1, 2**31, 2**70]
NO_THREAD: list[Any] = [{}, {"configurable": None}, {"configurable": {}}, {"configurable": {"user": "a"}}]
VALUES: list[Any] = [1, ["small"], [LONG]]


async def refused(call: Awaitable[object], words: str, what: Any) -> None:
    with pytest.raises(ConfigError, match=words):
        pytest.fail(f"{what!r}: {await call!r}")


async def test_an_impossible_thread_id_is_refused_before_anything_is_written(
    client: Client, database: Database
) -> None:
    first = await put(client, "1", {"a": [1]})
    await put(client, "2", {"a": [2]}, parent=first)
    before = database.cells()
    for (method, call), (kind, bad) in product(METHODS.items(), BAD_THREAD_IDS.items()):
        await refused(call(client, bad), "thread_id", (method, kind))
    assert database.cells() == before


async def test_other_impossible_ids_are_refused_before_anything_is_written(client: Client, database: Database) -> None:
    await put(client, "1", {"a": [1]})
    before = database.cells()
    document = checkpoint("2", {"a": [1]})
    for kind, bad in BAD_KEYS.items():
        calls: dict[str, Awaitable[object]] = {
            "checkpoint_ns": client.put(config(ns=bad), document, metadata(), {}),
            "checkpoint_id": client.put(config(checkpoint_id=bad), document, metadata(), {}),
            "checkpoint id": client.put(config(), checkpoint(bad), metadata(), {}),
            "version": client.put(config(), checkpoint("2", {"a": [1]}, {"a": "nul\0"}), metadata(), {"a": "nul\0"}),
            "task_id": client.put_writes(config(checkpoint_id="1"), [("a", 1)], bad),
            "task_path": client.put_writes(config(checkpoint_id="1"), [("a", 1)], "task", bad),
            "run_id": client.delete_for_runs([bad]),
            "checkpoint_id of before": client.all(config(), before=config(checkpoint_id=bad)),
            "checkpoint_ns of a list": client.all(config(ns=bad)),
            "checkpoint_id of a get": client.get_tuple(config(checkpoint_id=bad)),
        }
        for name, call in calls.items():
            await refused(call, name.split(" of ")[0], (name, kind))
    assert database.cells() == before


async def test_an_impossible_channel_is_refused_before_anything_is_written(client: Client, database: Database) -> None:
    where = await put(client, "1")
    before = database.cells()
    for bad in ("nul\0", "\ud800", "x" * (MAX_NAME + 1)):
        for value in ("small", [LONG]):
            await refused(put(client, "2", {bad: value}), "channel", bad[:9])
        await refused(client.put_writes(where, [("fine", 1), (bad, 1)], "task"), "channel", bad[:9])
        await refused(client.history(where, [bad]), "channel", bad[:9])
    for bad, value in product(NO_TEXT, VALUES):
        counted = metadata(counters_since_delta_snapshot={bad: (1, 1), "other": (1, 1)})
        for call in (
            put(client, "2", {bad: value}),
            put(client, "2", {"other": value, bad: value}, parent=where),
            put(client, "2", {"other": value}, versions={"other": "1", bad: "1"}, meta=counted),
            client.put_writes(where, [("other", value), (bad, value)], "task"),
        ):
            await refused(call, "channel must be text, not", bad)
    assert database.cells() == before


async def test_an_impossible_version_is_refused_before_anything_is_written(client: Client, database: Database) -> None:
    where = await put(client, "1")
    before = database.cells()
    for bad, value in product(BAD_VERSIONS, VALUES):
        versions = {"b": "1", "a": bad}
        for new in (versions, {"b": "1"}):
            call = put(client, "2", {"a": value}, parent=where, versions=versions, new=new)
            await refused(call, "channel version must be text or a number, not", bad)
    assert database.cells() == before


async def test_an_impossible_format_is_refused_before_anything_is_written(client: Client, database: Database) -> None:
    where = await put(client, "1")
    before = database.cells()
    for bad, value in product(BAD_FORMATS, (1, [LONG])):
        await refused(put(client, "2", {"a": value}, parent=where, v=bad), "the checkpoint's v", bad)
    assert database.cells() == before
    for good in (0, 4, 2**31 - 1):
        where = await put(client, f"{3 + good}", {"a": 1}, parent=where, v=good)
        assert (await get(client, where)).checkpoint["v"] == good


async def test_a_config_without_a_thread_is_refused(client: Client, database: Database) -> None:
    for bad in NO_THREAD:
        await refused(client.put(bad, checkpoint("1"), metadata(), {}), "thread_id|configurable", bad)
        await refused(client.put_writes(bad, [("a", 1)], "task"), "thread_id|configurable", bad)
        await refused(client.get_tuple(bad), "thread_id|configurable", bad)
        await refused(client.history(bad, ["a"]), "thread_id|configurable", bad)
        if bad:  # An empty config stands for all threads.
            await refused(client.all(bad), "thread_id|configurable", bad)
    assert database.counts() == {"checkpoints": 0, "writes": 0, "blobs": 0}


async def test_a_single_id_instead_of_a_list_is_refused(client: Client, database: Database) -> None:
    """Text is a sequence of letters, so it would be taken for ids of one letter each."""
    for thread_id in ("thread", "t", "h"):
        await put(client, "1", thread_id=thread_id, meta=metadata(run_id=thread_id))
    before = sorted(database.cells())
    given: list[Any] = ["thread", b"thread"]
    for one in given:
        for strategy in ("keep_latest", "delete"):
            await refused(client.prune(one, strategy=strategy), "sequence", one)
        await refused(client.delete_for_runs(one), "sequence", one)
    assert sorted(database.cells()) == before


class Name(str, Enum):
    ONE = "one"


UID = UUID("12345678-1234-5678-1234-567812345678")


async def test_thread_ids_are_text(client: Client) -> None:
    given: list[Any] = [5, -1, UID, Name.ONE, "", " a ", "5", "🙂"]
    for thread_id, stored in zip(given, ["5", "-1", str(UID), "one", "", " a ", "5", "🙂"], strict=True):
        await client.delete_thread(thread_id)
        where = await client.put(config(thread_id), checkpoint("1", {"a": [1]}), metadata(), {"a": "1"})
        await client.put_writes(config(thread_id, "1"), [("a", 1)], "task")
        for asked in (where, config(thread_id), config(stored), config(thread_id, "1")):
            found = await get(client, asked)
            assert found.config == where == config(stored, "1")
            assert found.pending_writes == [("task", "a", 1)]
            assert type(found.config["configurable"]["thread_id"]) is str
            assert ids_of(await client.all(asked)) == ["1"]


async def test_every_method_takes_an_int_as_thread_id(client: Client) -> None:
    first = await put(client, "1", {"a": [1]}, thread_id="5")
    await put(client, "2", parent=first, thread_id="5")
    number: Any = 5
    copy: Any = 6
    assert (await client.history(config(number), ["a"]))["a"].get("seed") == [1]
    await client.copy_thread(number, copy)
    await client.prune([number])
    assert ids_of(await client.all(config("5"))) == ["2"]
    assert ids_of(await client.all(config("6"))) == ["2", "1"]
    await client.delete_thread(number)
    assert await client.all(config("5")) == []


async def test_the_longest_ids_of_all_types_fit_together(client: Client) -> None:
    """Every index entry of the tables has room for them, with names that PostgreSQL is not asked about."""
    thread_id, ns = noise(MAX_THREAD_ID), noise(1000)
    channel, version, task_id = noise(SURELY_FIT - MAX_THREAD_ID - 1000), noise(MAX_ID), noise(MAX_ID)
    run_id = noise(MAX_ID)
    await client.put(
        config(thread_id, ns=ns),
        checkpoint("a" + noise(MAX_ID - 1), {channel: [LONG]}, {channel: version}),
        metadata(run_id=run_id),
        {channel: version},
    )
    where = config(thread_id, "b" + noise(MAX_ID - 1), ns)
    parent = config(thread_id, "a" + noise(MAX_ID - 1), ns)
    await client.put(
        parent,
        checkpoint("b" + noise(MAX_ID - 1), {channel: [LONG]}, {channel: version}),
        metadata(run_id=run_id),
        {},
    )
    await client.put_writes(where, [(channel, 1)], task_id, noise(10_000))
    found = await get(client, where)
    assert found.checkpoint["channel_values"] == {channel: [LONG]}
    assert found.parent_config == parent
    assert found.pending_writes == [(task_id, channel, 1)]
    await client.copy_thread(thread_id, noise(MAX_THREAD_ID - 1))
    await client.prune([thread_id])
    assert len(await client.all(config(thread_id, ns=ns))) == 1
    await client.delete_for_runs([run_id])
    assert await client.all(None) == []


async def test_an_impossible_run_id_does_not_fail_a_superstep(client: Client) -> None:
    for number, run_id in enumerate(["x" * (MAX_ID + 1), "nul\0", {"a": 1}, 1.5, True]):
        where = await put(client, str(number), meta=metadata(run_id=run_id))
        assert (await get(client, where)).metadata == metadata(run_id=run_id)


def test_every_method_of_a_saver_is_in_this_list() -> None:
    tried = {name.split()[0] for name in METHODS}
    assert {name for name, _ in inspect.getmembers(Client, inspect.iscoroutinefunction)} - tried == {
        "_call",
        "all",
        "collect",
        "delete_for_runs",
        "do",
    }
    ours = {name for name, method in vars(ThreadMethods).items() if inspect.iscoroutinefunction(method)}
    assert {name for name in ours - WITHOUT_THREAD if name[0] != "_" and name.removeprefix("a") not in tried} == set()
