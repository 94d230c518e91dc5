"""With `concurrent_writers="reject"`, one of two concurrent runs on a thread succeeds and the other raises."""

from __future__ import annotations

import asyncio
import copy
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

from langgraph_checkpoint_custom import CheckpointConflict
from langgraph_checkpoint_custom.operations import writers as starts
from tests.behaviour.helpers import Database, config, ids_of, next_uuid, put, run_graph, running
from tests.conftest import APIS
from tests.graphs.scenarios.nodes import Log, chain, says
from tests.stores import Client, Store

DURABILITIES = ["sync", "async", "exit"]
THREAD: Any = {"configurable": {"thread_id": "thread"}}


class InContext(Client):
    """A client that makes sync calls in the caller's context, as a run does."""

    async def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if self.api == "sync":
            return getattr(self.saver, name)(*args, **kwargs)
        return await super()._call(name, *args, **kwargs)


@pytest.fixture(params=APIS)
def rejecting(request: pytest.FixtureRequest, store: Store) -> Iterator[Client]:
    with store.open(concurrent_writers="reject") as saver:
        yield InContext(saver, request.param)


async def run(client: Client, graph: Any, given: Any, where: Any = THREAD, **options: Any) -> Any:
    return await run_graph(client, graph, given, where, **options)


def meeting(saver: BaseCheckpointSaver[str]) -> Any:
    """A graph whose next two runs continue only when both have read their checkpoint."""
    barrier = threading.Barrier(2)
    waiting = [None, None]
    together = copy.copy(saver)

    def meet() -> None:
        if waiting:
            waiting.pop()
            barrier.wait(150)

    def get_tuple(config: RunnableConfig) -> Any:
        found = saver.get_tuple(config)
        meet()
        return found

    async def aget_tuple(config: RunnableConfig) -> Any:
        found = await saver.aget_tuple(config)
        await asyncio.to_thread(meet)
        return found

    together.get_tuple, together.aget_tuple = get_tuple, aget_tuple  # type: ignore[method-assign]
    return chain(Log, one=says("one"), two=says("two")).compile(checkpointer=together)


@pytest.mark.leaves_writes("those of the loser for checkpoints that were refused")
@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("begun", [True, False], ids=["a thread with a past", "a new thread"])
async def test_one_of_two_concurrent_runs_wins(rejecting: Client, durability: str, begun: bool) -> None:
    alone = chain(Log, one=says("one")).compile(checkpointer=rejecting.saver)
    past = (await run(rejecting, alone, {"log": ["past"]}))["log"] if begun else []
    graph = meeting(rejecting.saver)
    given = [{"log": [name]} for name in "ab"]
    results = await asyncio.gather(
        *(run(rejecting, graph, each, durability=durability) for each in given), return_exceptions=True
    )
    won = [result for result in results if isinstance(result, dict)]
    lost = [result for result in results if not isinstance(result, dict)]
    assert len(won) == 1
    assert [type(error) for error in lost] == [CheckpointConflict]
    assert "Run again" in str(lost[0])
    assert won[0]["log"] in [[*past, name, "one", "two"] for name in "ab"]
    state = await rejecting.get_tuple(THREAD)
    assert state is not None
    assert state.checkpoint["channel_values"]["log"] == won[0]["log"]
    again = await run(rejecting, alone, {"log": ["again"]})
    assert again["log"] == [*won[0]["log"], "again", "one"]


async def test_a_stream_may_run_each_step_in_its_own_context(rejecting: Client) -> None:
    """What a run with an id has read in its first step is known in the next one, whoever asks for that."""
    graph: Any = chain(Log, one=says("one"), two=says("two"), three=says("three")).compile(checkpointer=rejecting.saver)
    where: Any = {"configurable": {"thread_id": "thread", "run_id": "a run"}}

    async def streamed(where: Any, between: Any = None) -> list[Any]:
        stream = graph.astream if rejecting.api == "async" else graph.stream
        steps = stream({"log": ["streamed"]}, where, durability="sync", stream_mode="updates")

        async def ask() -> Any:
            if rejecting.api == "async":
                return await asyncio.create_task(anext(steps, None))
            return await asyncio.to_thread(next, steps, None)

        done = [await ask()]
        if between:
            await asyncio.create_task(between)
        while step := await ask():
            done.append(step)
        return [name for step in done for name in step]

    assert await streamed(where) == ["one", "two", "three"]
    another = run(rejecting, graph, {"log": ["meanwhile"]})
    with pytest.raises(CheckpointConflict):
        await streamed({"configurable": where["configurable"] | {"run_id": "a loser"}}, another)
    past = [state async for state in graph.aget_state_history(THREAD)][-2]
    again = {"configurable": past.config["configurable"] | {"run_id": "a fork"}}
    assert await streamed(again) == ["one", "two", "three"]


async def test_by_default_both_succeed_and_one_result_disappears(client: Client) -> None:
    graph = meeting(client.saver)
    results = await asyncio.gather(*(run(client, graph, {"log": [name]}, durability="exit") for name in "ab"))
    assert sorted(result["log"] for result in results) == [[name, "one", "two"] for name in "ab"]
    assert len(await client.all(THREAD)) == 2


async def test_time_travel_does_not_conflict(rejecting: Client) -> None:
    graph = chain(Log, one=says("one"), two=says("two")).compile(checkpointer=rejecting.saver)
    for turn in range(2):
        await run(rejecting, graph, {"log": [f"turn {turn}"]})
    history = [state async for state in graph.aget_state_history(THREAD)]
    for past in history:
        where = past.config
        await run(rejecting, graph, None, where)
        where = await graph.aupdate_state(past.config, {"log": ["changed"]}, "one")
        assert (await run(rejecting, graph, None, where))["log"][-1] == "two"
        if past.next:
            await graph.aupdate_state(past.config, None, "__copy__")
            await run(rejecting, graph, None)
    await run(rejecting, graph, {"log": ["on"]})


async def test_a_run_that_starts_from_the_newest_checkpoint_conflicts_with_a_newer_one(rejecting: Client) -> None:
    first = await put(rejecting, "1")
    assert await rejecting.get_tuple(first) is not None  # In this test's context, as a run reads it.
    await asyncio.create_task(put_by_another(rejecting, "2", first))
    await rejecting.put_writes(first, [("a", 1)], "task")
    with pytest.raises(CheckpointConflict, match="'2'"):
        await put(rejecting, "3", parent=first)
    assert ids_of(await rejecting.all(config())) == ["2", "1"]


async def put_by_another(client: Client, checkpoint_id: str, parent: Any) -> None:
    await client.get_tuple(config())
    await put(client, checkpoint_id, parent=parent)


async def test_a_refused_call_stores_nothing(rejecting: Client, database: Database) -> None:
    first = await put(rejecting, "1", {"a": ["x"]})
    await rejecting.get_tuple(config())
    await asyncio.create_task(put_by_another(rejecting, "2", first))
    before = sorted(database.cells())
    with pytest.raises(CheckpointConflict):
        await put(rejecting, "3", {"a": ["y"], "b": ["z"]}, parent=first)
    assert sorted(database.cells()) == before


async def test_consecutive_runs_and_repeats_do_not_conflict(rejecting: Client) -> None:
    parent = None
    for number in range(6):
        if number % 2 == 0:
            await rejecting.get_tuple(config())
        where = await put(rejecting, str(number), parent=parent)
        assert await put(rejecting, str(number), parent=parent) == where
        parent = where
    assert len(await rejecting.all(config())) == 6


async def test_threads_and_namespaces_do_not_conflict_with_each_other(rejecting: Client) -> None:
    for thread_id, ns in (("t", ""), ("u", ""), ("t", "sub"), ("t", "sub:1")):
        await rejecting.get_tuple(config(thread_id, ns=ns))
    for thread_id, ns in (("t", ""), ("u", ""), ("t", "sub"), ("t", "sub:1")):
        first = await put(rejecting, next_uuid(), thread_id=thread_id, ns=ns)
        await put(rejecting, next_uuid(), thread_id=thread_id, ns=ns, parent=first)


async def test_a_program_that_never_reads_is_not_refused(rejecting: Client) -> None:
    first = await put(rejecting, "1")
    await put(rejecting, "2", parent=first)
    await put(rejecting, "3", parent=first)
    assert ids_of(await rejecting.all(config())) == ["3", "2", "1"]


async def test_what_one_saver_has_read_does_not_count_for_the_next_one(rejecting: Client, store: Store) -> None:
    """Even if the first one was deleted, and the next one is at its address in memory."""
    first = await put(rejecting, "1")
    await put(rejecting, "2", parent=first)
    for _ in range(20):
        with store.open(concurrent_writers="reject") as saver:
            assert saver.get_tuple(THREAD) is not None
    for number in range(20):
        with store.open(concurrent_writers="reject") as saver:
            await put(InContext(saver, rejecting.api), f"3 {number}", parent=first)


async def test_a_worker_may_serve_any_number_of_threads_in_one_context(
    rejecting: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starts, "SCOPES", 5)
    for number in range(50):
        await rejecting.get_tuple(config(f"thread {number}"))
        assert len(starts._FORKS.get({})) <= 5
        await put(rejecting, "1", thread_id=f"thread {number}")
    first = await rejecting.get_tuple(config("thread 46"))
    assert first is not None
    await put(rejecting, "2", thread_id="thread 46", parent=first.config)
    with pytest.raises(CheckpointConflict):
        await put(rejecting, "3", thread_id="thread 46", parent=first.config)


PAUSED = """
import os, signal, sys, time
from langgraph_checkpoint_custom import CheckpointConflict, open_saver
from tests.graphs.scenarios.nodes import Log, chain, says

def pause(state):
    time.sleep(0.3)  # What is being stored meanwhile is stored before the pause: on SQLite it holds the write lock.
    print("here", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    return {"log": ["late"]}

with open_saver(sys.argv[1], concurrent_writers="reject") as saver:
    graph = chain(Log, one=says("one"), pause=pause).compile(checkpointer=saver)
    try:
        graph.invoke({"log": ["slow"]}, {"configurable": {"thread_id": "thread"}}, durability="async")
    except CheckpointConflict as error:
        print("conflict", error, flush=True)
"""


def test_a_paused_worker_detects_that_another_has_continued(store: Store) -> None:
    with store.open(concurrent_writers="reject") as saver:
        graph = chain(Log, one=says("one"), pause=says("quick")).compile(checkpointer=saver)
        graph.invoke({"log": ["past"]}, THREAD)
        with running(PAUSED, store.url) as worker:
            assert worker.stdout is not None
            os.waitid(os.P_PID, worker.pid, os.WSTOPPED | os.WNOWAIT)
            state = graph.invoke({"log": ["fast"]}, THREAD)
            os.kill(worker.pid, signal.SIGCONT)
            said = worker.stdout.read()
        assert said.startswith("conflict")
        assert state["log"][-3:] == ["fast", "one", "quick"]
        assert graph.get_state(THREAD).values == state
