"""Threads, their runs and their history can be listed without reading a value."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt
from ulid import ULID

from langgraph_checkpoint_custom import CheckpointRecord, ConfigError, ThreadRecord
from langgraph_checkpoint_custom import threads as module
from langgraph_checkpoint_custom.operations import list_threads as core_threads
from langgraph_checkpoint_custom.operations import pages
from tests.behaviour.helpers import (
    LONG,
    CountingSerializer,
    NextId,
    anywhere,
    config,
    get,
    id_of,
    metadata,
    next_uuid,
    put,
    put_chain,
    put_delta_chain,
    run_graph,
    states_of,
)
from tests.graphs.scenarios.nodes import AnyGraph, Log, chain, says
from tests.stores import Client, Store

DAY = timedelta(days=1)


def id_at(kind: str, time: datetime) -> str:
    """An id that says a time."""
    milliseconds = round(time.timestamp() * 1_000)
    if kind == "ulid":
        return str(ULID.from_timestamp(time.timestamp()))
    if kind == "lower ulid":
        return id_at("ulid", time).lower()
    if kind == "uuid7":
        return str(UUID(int=milliseconds << 80 | 7 << 76 | 2 << 62))
    ticks = (milliseconds + 12_219_292_800_000) * 10_000
    return str(UUID(int=ticks >> 12 << 80 | 6 << 76 | (ticks & 0xFFF) << 64 | 2 << 62))


def names(found: Any) -> list[str]:
    return [each.thread_id for each in found]


# Threads


async def test_threads_are_found_by_their_time(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is that of the id of their newest checkpoint, whatever kind of id that is. Pages, and all other conditions."""
    monkeypatch.setattr(module, "RECORDS", 2)
    monkeypatch.setattr(core_threads, "NEAR", 1)
    monkeypatch.setattr(pages, "REACH", 2)
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    kinds = ("uuid6", "ulid", "lower ulid", "uuid7")
    for day in range(5):
        for kind in kinds:
            thread_id = f"{kind} {day}"
            first = await put(client, id_at(kind, start - DAY), thread_id=thread_id, meta=metadata(day=day))
            await put(client, id_at(kind, start + day * DAY), parent=first, thread_id=thread_id, meta=metadata(day=day))
    for thread_id in ("0", "9", "z"):
        await put(client, thread_id, thread_id=f"no time {thread_id}")

    async def days(since: Any, until: Any, **more: Any) -> list[str]:
        found = await client.collect("threads", since=since, until=until, **more)
        assert all(one.time == start + int(one.thread_id[-1]) * DAY for one in found)
        assert [one.newest.checkpoint_id for one in found] == sorted(
            (one.newest.checkpoint_id for one in found), reverse=True
        )
        return sorted(names(found))

    def expected(*numbers: int) -> list[str]:
        return sorted(f"{kind} {day}" for kind in kinds for day in numbers)

    assert await days(start + DAY, start + 3 * DAY) == expected(1, 2)
    assert await days(start + timedelta(milliseconds=1), None) == expected(1, 2, 3, 4)
    for limit in range(1, 9):  # A page that is full only with rows of the next kind of ids.
        for number in range(1, 5):
            for more in ({"prefix": ""}, {"prefix": "u"}, {"filter": {"day": 0}}):
                until = start + number * DAY
                everything = await client.collect("threads", until=until, **more)
                assert await client.collect("threads", until=until, limit=limit, **more) == everything[:limit]
    assert await days(None, start + DAY) == expected(0)
    assert await days(start - DAY, start) == []  # Only the first checkpoints are of that time.
    assert await days(None, None, prefix="uuid6") == ["uuid6 0", "uuid6 1", "uuid6 2", "uuid6 3", "uuid6 4"]
    assert await days(start, start + 2 * DAY, filter={"day": 1}) == expected(1)
    assert await days(start, start + 2 * DAY, prefix="ulid") == ["ulid 0", "ulid 1"]
    assert await days(start, start + 2 * DAY, state="done") == expected(0, 1)
    found = await client.collect("threads", since=start + DAY, limit=4)
    rest = await client.collect("threads", since=start + DAY, before=found[-1])
    assert sorted(names([*found, *rest])) == expected(1, 2, 3, 4)
    assert [one.time for one in await client.collect("threads", prefix="no time")] == [None] * 3
    with pytest.raises(ConfigError, match="since must be a datetime with a zone"):
        await client.collect("threads", since=datetime(2026, 1, 1))


async def test_threads_come_with_their_newest_checkpoints_newest_first(client: Client, next_id: NextId) -> None:
    a = await put_chain(client, next_id, 3, thread_id="a")
    await put_chain(client, next_id, 2, thread_id="b")
    await put(client, next_id(), thread_id="a", ns="sub:1")
    where = await put(client, next_id(), {"v": [LONG]}, thread_id="ä", meta=metadata(7, run_id="run", user="u"))
    found = await client.collect("threads")
    assert names(found) == ["ä", "b", "a"]
    assert found[0] == ThreadRecord(
        "ä",
        CheckpointRecord(
            "ä",
            "",
            id_of(where),
            None,
            "run",
            {"source": "loop", "step": 7, "parents": {}, "run_id": "run", "user": "u"},
        ),
    )
    assert found[2].newest.config == a[-1]
    assert found[2].newest.parent_config == a[-2]
    assert found[0].newest.parent_config is None


@pytest.mark.parametrize("reach", [1000, 1], ids=["at once", "one by one"])
async def test_the_pages_of_threads_have_each_thread_once(
    client: Client, next_id: NextId, monkeypatch: pytest.MonkeyPatch, reach: int
) -> None:
    monkeypatch.setattr(module, "RECORDS", 3)
    for name in ("FARTHEST", "FILTERED", "MATCHES", "THREADS"):
        monkeypatch.setattr(core_threads, name, reach)
    monkeypatch.setattr(pages, "REACH", reach)
    for number in range(10):
        for thread_id in (f"t{number}", f"t{(number * 7) % 10}"):
            await put(client, next_id(), thread_id=thread_id, meta=metadata(number, even=number % 2 == 0))
    await client.copy_thread("t3", "copy")  # Has the same newest id.
    expected = names(await client.collect("threads"))
    assert len(expected) == len(set(expected)) == 11
    by_age = sorted(
        ((id_of(found), found.config["configurable"]["thread_id"]) for found in await client.all(None)), reverse=True
    )
    assert expected == list(dict.fromkeys(thread_id for _, thread_id in by_age))
    for filter in (None, {"source": "loop"}):
        assert names(await client.collect("threads", filter=filter)) == expected
        assert names(await client.collect("threads", filter=filter, limit=4)) == expected[:4]
        seen: list[ThreadRecord] = []
        while page := await client.collect("threads", filter=filter, limit=2, before=seen[-1] if seen else None):
            seen += page
        assert names(seen) == expected
    assert await client.collect("threads", limit=0) == []
    newest = by_age[0][0]  # Of two.
    assert names(await client.collect("threads", before=config(checkpoint_id=newest))) == expected[2:]


async def test_a_filter_applies_to_the_newest_checkpoint(client: Client, next_id: NextId) -> None:
    for thread_id, users in {"a": ["x", "y"], "b": ["y", "x"], "c": ["x" * 300]}.items():
        for user in users:
            await put(client, next_id(), thread_id=thread_id, meta=metadata(user=user))
    await put(client, next_id(), thread_id="d", ns="", meta=metadata())
    for filter, expected in (
        ({"user": "x"}, ["b"]),
        ({"user": "y"}, ["a"]),
        ({"user": "x" * 300}, ["c"]),  # Too long for the columns.
        ({"user": None}, ["d"]),
        ({"user": "x", "source": "loop"}, ["b"]),
        ({"user": "z"}, []),
        ({}, ["d", "c", "b", "a"]),
    ):
        assert names(await client.collect("threads", filter=filter)) == expected
        assert await client.do("count_threads", filter=filter) == len(expected)
    assert await client.do("count_threads") == 4
    with pytest.raises(ConfigError, match="'user'"):
        await client.collect("threads", filter={"user": object()})


async def test_threads_with_only_subgraphs_or_hidden_checkpoints_are_listed_correctly(
    client: Client, next_id: NextId
) -> None:
    await put(client, next_id(), thread_id="low", ns="a")
    await put(client, next_id(), thread_id="low", ns="b")
    await put_delta_chain(client, next_id, 4, {1})
    await client.prune(["thread"])
    found = await client.collect("threads")
    assert [(each.thread_id, each.newest.checkpoint_ns) for each in found] == [("thread", ""), ("low", "a")]
    assert names(await client.collect("threads", filter={"source": "loop"})) == ["thread", "low"]
    assert await client.do("count_threads") == 2


async def test_a_thread_exists_or_not(client: Client, next_id: NextId) -> None:
    await put(client, next_id(), thread_id="5")
    await client.put_writes(config("only writes", next_id()), [], "task")
    assert await client.do("thread_exists", 5) is True
    assert await client.do("thread_exists", "only writes") is False
    await client.delete_thread("5")
    assert await client.do("thread_exists", "5") is False
    with pytest.raises(ConfigError, match="thread_id"):
        await client.do("thread_exists", ["5"])


async def test_no_value_is_read(store: Store, api: str) -> None:
    serde = CountingSerializer()
    with store.open(serde=serde) as saver:
        client = Client(saver, api)
        for thread_id in "abc":
            for _ in range(4):
                await put(client, next_uuid(), {"large": [LONG]}, thread_id=thread_id, meta=metadata(run_id="run"))
        serde.loaded = 0
        assert len(await client.collect("threads")) == 3
        assert len(await client.collect("history", anywhere("a"))) == 4
        assert serde.loaded == 7  # The metadata of each.
        assert await client.do("count_threads") == 3
        assert serde.loaded == 7
        assert await client.do("count_threads", filter={"run_id": "run"}) == 3
        assert serde.loaded == 10


# History


async def test_the_history_is_the_list_without_values(
    client: Client, next_id: NextId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RECORDS", 2)
    chains = [await put_chain(client, next_id, 3, thread_id="thread", ns=ns) for ns in ("", "sub")]
    await put_chain(client, next_id, 2, thread_id="other")
    await put(client, next_id(), meta=metadata(9, run_id="run"), parent=chains[0][-1])
    for where in (None, anywhere(), config(), config(ns="sub"), chains[0][1]):
        for options in (
            {},
            {"limit": 3},
            {"limit": 0},
            {"before": chains[1][1]},
            {"filter": {"step": 1}},
            {"filter": {"run_id": "run"}},
        ):
            listed = await client.all(where, **options)
            records = await client.collect("history", where, **options)
            assert [record.config for record in records] == [found.config for found in listed]
            assert [record.parent_config for record in records] == [found.parent_config for found in listed]
            assert [record.metadata for record in records] == [found.metadata for found in listed]
            assert [record.run_id for record in records] == [found.metadata.get("run_id") for found in listed]


# Runs


async def test_runs_are_grouped_by_their_ids(client: Client, next_id: NextId) -> None:
    chained = [
        await put(client, next_id(), meta=metadata(step, **({"run_id": run} if run else {})))
        for step, run in enumerate(["one", "one", "two", None, "two", "three"])
    ]
    await put(client, next_id(), ns="sub:1", meta=metadata(run_id="three"))
    ids = [id_of(where) for where in chained]
    found = await client.do("runs", "thread")
    assert [tuple(run) for run in found] == [
        ("three", ids[5], ids[5], 1, True),
        (None, ids[3], ids[3], 1, True),
        ("two", ids[2], ids[4], 2, True),
        ("one", ids[0], ids[1], 2, True),
    ]
    assert await client.do("runs", "missing") == []


def asking() -> AnyGraph:
    """Two parallel nodes before a third one, which asks and then sends."""

    def ask(state: Log) -> Any:
        return Command(goto=[Send("sent", {"log": []})] * 2, update={"log": [interrupt("sure?")]})

    builder: AnyGraph = StateGraph(Log)
    for name in ("left", "right", "sent"):
        builder.add_node(name, says(name))
    builder.add_node("ask", ask, destinations=("sent",))
    builder.add_edge(START, "left")
    builder.add_edge(START, "right")
    builder.add_edge(["left", "right"], "ask")
    builder.add_edge("sent", END)
    return builder


async def invoke(
    client: Client, graph: Any, value: Any, run_id: str, thread_id: str = "thread", **options: Any
) -> None:
    where = {"configurable": {"thread_id": thread_id}, "metadata": {"run_id": run_id}}
    await run_graph(client, graph, value, where, **options)


async def test_a_run_is_finished_once_nothing_is_left_to_do(client: Client) -> None:
    graph = asking().compile(checkpointer=client.saver)
    await invoke(client, graph, {"log": []}, "asks")
    assert [(run.run_id, run.finished) for run in await client.do("runs", "thread")] == [("asks", False)]
    await invoke(client, graph, Command(resume="yes"), "answers")
    runs = await client.do("runs", "thread")
    assert [(run.run_id, run.finished) for run in runs] == [("answers", True), ("asks", False)]
    # Wherever a run is stopped, it has something left to do; only at the end it does not.
    states = await states_of(client, graph, anywhere())
    assert len(states) > 4
    for number, state in enumerate(states):
        found = await get(client, state.config)
        where = config(f"stopped {number}")
        versions = found.checkpoint["channel_versions"]
        await client.put(where, found.checkpoint, metadata(run_id="stopped"), versions)
        (run,) = await client.do("runs", f"stopped {number}")
        assert run.finished is (state.next == ())


async def test_a_run_that_fails_or_stops_before_a_node_is_not_finished(client: Client) -> None:
    def fails(state: Log) -> Any:
        raise ValueError("no")

    graph = chain(Log, one=says("one"), two=fails).compile(checkpointer=client.saver)
    with pytest.raises(ValueError, match="no"):
        await invoke(client, graph, {"log": []}, "fails", "fails")
    assert [run.finished for run in await client.do("runs", "fails")] == [False]
    graph = chain(Log, one=says("one"), two=says("two")).compile(checkpointer=client.saver)
    await invoke(client, graph, {"log": []}, "stops", "stops", interrupt_before=["two"])
    assert [run.finished for run in await client.do("runs", "stops")] == [False]
    await invoke(client, graph, None, "goes on", "stops")
    assert [run.finished for run in await client.do("runs", "stops")] == [True, False]
