"""The inbox: which threads wait for a human, since when, and for what."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from langgraph.checkpoint.serde.types import INTERRUPT
from langgraph.types import Command, Interrupt, interrupt

from langgraph_checkpoint_custom import ConfigError, CorruptCheckpoint, WaitingThread
from langgraph_checkpoint_custom.operations.thread_states import open_among
from tests.behaviour.helpers import (
    Database,
    NextId,
    anywhere,
    config,
    get,
    id_of,
    next_uuid,
    put,
    run_graph,
    state_of,
    states_of,
)
from tests.graphs.scenarios.interrupts import asks
from tests.graphs.scenarios.nodes import Log, chain, parallel, says
from tests.graphs.scenarios.subgraphs import Outer
from tests.stores import Client


def asked(found: list[WaitingThread]) -> dict[str, list[Any]]:
    return {waiting.thread_id: [interrupt.value for interrupt in waiting.interrupts] for waiting in found}


async def test_threads_wait_until_they_are_answered(client: Client) -> None:
    graph = chain(Log, one=says("one"), ask=asks("name", "age"), end=says("end")).compile(checkpointer=client.saver)
    assert await client.do("interrupts") == []
    began = datetime.now(timezone.utc)
    for thread_id in ("a", "b"):
        await run_graph(client, graph, {"log": []}, anywhere(thread_id))
    quiet = chain(Log, one=says("one")).compile(checkpointer=client.saver)
    await run_graph(client, quiet, {"log": []}, anywhere("quiet"))
    found = await client.do("interrupts")
    assert asked(found) == {"a": ["name"], "b": ["name"]}
    assert list(asked(found)) == ["a", "b"]  # The one that has waited longest comes first.
    for waiting in found:
        state = await state_of(client, graph, waiting.config)
        assert waiting.interrupts == state.interrupts
        assert waiting.checkpoint_id == id_of(state.config)
        assert began - timedelta(seconds=1) < waiting.since < datetime.now(timezone.utc)
        assert type(waiting.interrupts[0]) is Interrupt
    # An answer that leads to the next interrupt of the same task.
    first = found[0]
    await run_graph(client, graph, Command(resume={first.interrupts[0].id: "Ada"}), first.config)
    assert asked(await client.do("interrupts")) == {"a": ["age"], "b": ["name"]}
    await run_graph(client, graph, Command(resume=36), anywhere("a"))
    assert asked(await client.do("interrupts")) == {"b": ["name"]}
    await client.delete_thread("b")
    assert await client.do("interrupts") == []


async def test_only_tasks_that_still_wait_are_listed(client: Client) -> None:
    builder = parallel(Log, left=asks("left"), right=asks("right"), quiet=says("quiet"))
    graph = builder.compile(checkpointer=client.saver)
    await run_graph(client, graph, {"log": []}, anywhere())
    (waiting,) = await client.do("interrupts")
    by_value = {interrupt.value: interrupt.id for interrupt in waiting.interrupts}
    assert sorted(by_value) == ["left", "right"]
    await run_graph(client, graph, Command(resume={by_value["left"]: 1}), anywhere())
    (waiting,) = await client.do("interrupts")
    assert [interrupt.value for interrupt in waiting.interrupts] == ["right"]
    assert waiting.interrupts == (await state_of(client, graph, anywhere())).interrupts


async def test_an_interrupt_of_a_subgraph_is_listed_with_the_root(client: Client) -> None:
    inner = chain(Log, low=says("low"), ask=asks("deep")).compile()
    graph = chain(Outer, inner=inner, end=says("end")).compile(checkpointer=client.saver)
    await run_graph(client, graph, {"log": []}, anywhere())
    assert asked(await client.do("interrupts")) == {"thread": ["deep"]}
    await run_graph(client, graph, Command(resume=1), anywhere())
    assert await client.do("interrupts") == []


async def test_an_interrupt_of_an_older_checkpoint_is_not_listed(client: Client) -> None:
    graph = chain(Log, one=says("one"), ask=asks("name")).compile(checkpointer=client.saver)
    await run_graph(client, graph, {"log": []}, anywhere())
    asking, before = (await states_of(client, graph, anywhere()))[:2]
    await client.do("fork_thread", "thread", "fork")
    assert asked(await client.do("interrupts")) == {"thread": ["name"], "fork": ["name"]}
    await client.do("rollback", "thread", id_of(before.config))
    assert asked(await client.do("interrupts")) == {"fork": ["name"]}
    await client.do("label", config("fork"), "asking")
    await run_graph(client, graph, {"log": ["other"]}, anywhere("fork"), interrupt_before=["one"])
    assert await client.do("interrupts") == []  # A run that was stopped does not ask.
    assert asking.interrupts


class Failing:
    """A node that asks two questions, and fails after an answer if it is told to."""

    def __init__(self) -> None:
        self.fails = False

    def __call__(self, state: Log) -> dict[str, Any]:
        answers = []
        for question in ("name", "age"):
            answers.append(interrupt(question))
            if self.fails:
                raise ValueError("no answer is good enough")
        return {"log": list(map(str, answers))}


@pytest.mark.parametrize("depth", ["root graph", "subgraph"])
async def test_a_question_whose_answer_is_stored_is_not_open(client: Client, depth: str) -> None:
    """Only of the root graph is that certain: a question of a subgraph is open until the node is done."""
    node = Failing()
    node_or_graph: Any = node if depth == "root graph" else chain(Log, ask=node).compile()
    graph = chain(Log, one=says("one"), ask=node_or_graph, end=says("end")).compile(checkpointer=client.saver)

    async def waits_for() -> list[str]:
        found = asked(await client.do("interrupts")).get("thread", [])
        state = await get(client, anywhere())
        assert [each.value for each in open_among(state.checkpoint, state.pending_writes or [])] == found
        return found

    async def answer(given: Any, *, fails: bool = False) -> list[str]:
        node.fails = fails
        if fails:
            with pytest.raises(ValueError, match="good enough"):
                await run_graph(client, graph, given, anywhere())
        else:
            await run_graph(client, graph, given, anywhere())
        return await waits_for()

    is_certain = depth == "root graph"
    assert await answer({"log": []}) == ["name"]
    assert await answer(Command(resume="Ada"), fails=True) == ([] if is_certain else ["name"])
    assert await answer(None, fails=True) == ([] if is_certain else ["name"])
    assert await answer(None) == []  # LangGraph gives the same answer to both questions then.
    assert await answer({"log": []}) == ["name"]
    assert await answer(Command(resume="Eve")) == ["age"]  # It is open, although an answer is stored.
    assert await answer(Command(resume=36), fails=True) == ([] if is_certain else ["age"])
    assert await answer(None) == []
    if is_certain:
        log = (await state_of(client, graph, anywhere())).values["log"]
        assert log == ["one", "Ada", "Ada", "end", "one", "Eve", "36", "end"]


async def test_the_inbox_has_pages(client: Client, next_id: NextId) -> None:
    for number in range(7):
        where = await put(client, next_id(), thread_id=f"{number}")
        await client.put_writes(where, [(INTERRUPT, (Interrupt(number, id=f"{number}"),))], "task")
        if number in (2, 5):
            await client.put_writes(where, [("log", "done")], "task")
    found = await client.do("interrupts")
    assert list(asked(found)) == ["0", "1", "3", "4", "6"]
    for limit in (0, 1, 2, 5, 9):
        assert await client.do("interrupts", limit=limit) == found[:limit]
    pages: list[WaitingThread] = []
    while page := await client.do("interrupts", after=pages[-1] if pages else None, limit=2):
        pages += page
    assert pages == found
    assert await client.do("interrupts", after=found[2]) == found[3:]


@pytest.mark.parametrize("page", [1, 3, 1_000])
async def test_a_prefix_limits_the_list_to_threads_that_begin_with_it(
    client: Client, next_id: NextId, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("langgraph_checkpoint_custom.operations.thread_states.PAGE", page)
    acme = Client(client.saver.for_tenant("acme"), client.api)  # type: ignore[attr-defined]
    names = ["a", "a\x01", "a:1", "a:2", "b", "%", "_", "\x02", "ä", "a" + "\U0010ffff" * 2, "x" * 1000]
    for number, thread_id in enumerate(names):
        for own in (client, acme):
            where = await put(own, next_id(), thread_id=thread_id)
            await own.put_writes(where, [(INTERRUPT, (Interrupt(number, id=f"{number}"),))], "task")
    for own in (client, acme):
        for prefix in ("", "a", "a:", "a:1", "b", "%", "_", "\x02", "ä", "x" * 1000, "nothing"):
            found = await own.do("interrupts", prefix=prefix)
            assert [waiting.thread_id for waiting in found] == [name for name in names if name.startswith(prefix)]
    for wrong in ("\x1facme", 1.5, "a\0"):
        with pytest.raises(ConfigError, match="prefix"):
            await client.do("interrupts", prefix=wrong)


@pytest.mark.leaves_damage("a value is broken")
async def test_an_interrupt_that_cannot_be_read_is_reported(client: Client, database: Database) -> None:
    where = await put(client, next_uuid())
    await client.put_writes(where, [(INTERRUPT, (Interrupt(1, id="1"),)), ("other", "unread")], "task")
    database.run("UPDATE writes SET value = :value WHERE channel = 'other'", value=b"\xc1")
    await client.put_writes(where, [(INTERRUPT, (Interrupt(2, id="2"),))], "another task")
    found = await client.do("interrupts")
    assert asked(found) == {"thread": [2]}  # The first task is done; its write is not read.
    database.run("UPDATE writes SET value = :value WHERE channel = :channel", value=b"\xc1", channel=INTERRUPT)
    with pytest.raises(CorruptCheckpoint, match="'thread'"):
        await client.do("interrupts")
