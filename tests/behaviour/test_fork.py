"""A fork starts from a checkpoint of another thread, with everything that it needs and nothing newer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.types import Command

from langgraph_checkpoint_custom import CheckpointNotFound, ConfigError, Contention, PostgresSaver, ThreadExists
from langgraph_checkpoint_custom.engine.operation import Operation, Steps, through
from langgraph_checkpoint_custom.operations.copies import FROM_CHECKPOINT, FROM_THREAD, copy_thread, fork_thread
from tests.behaviour.helpers import (
    LONG,
    Database,
    NextId,
    anywhere,
    checkpoint,
    config,
    default_walk,
    get,
    id_of,
    ids_of,
    metadata,
    next_uuid,
    put,
    put_chain,
    run_graph,
    state_of,
    states_of,
)
from tests.behaviour.test_rollback import Notes
from tests.graphs.scenarios.interrupts import asks
from tests.graphs.scenarios.nodes import Log, chain, says
from tests.graphs.scenarios.subgraphs import Outer, counts
from tests.stores import Client, Store

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")


@pytest.mark.parametrize("schema", [Log, Notes], ids=["plain", "delta"])
async def test_a_fork_is_the_thread_at_that_point(client: Client, schema: type) -> None:
    graph = chain(schema, one=says("one"), two=says("two")).compile(checkpointer=client.saver)
    for turn in range(3):
        await run_graph(client, graph, {"log": [f"turn {turn}"]}, anywhere())
    source = await client.all(anywhere())
    states = await states_of(client, graph, anywhere())
    for number, state in enumerate(states):
        target = f"fork {number}"
        made = await client.do("fork_thread", "thread", target, checkpoint_id=id_of(state.config))
        assert made == config(target, id_of(state.config))
        forked = await state_of(client, graph, anywhere(target))
        assert (forked.config, forked.values, forked.next) == (made, state.values, state.next)
        assert ids_of(await client.all(anywhere(target))) == [id_of(state.config)]
        assert (await get(client, made)).pending_writes == []
        if number % 3 == 0:
            continue
        await run_graph(client, graph, None if state.next else {"log": ["more"]}, anywhere(target))
        turns = [word for word in state.values.get("log", []) if "turn" in word]
        turns += [f"turn {len(turns)}"] if state.next == ("__start__",) else [] if state.next else ["more"]
        found = (await state_of(client, graph, anywhere(target))).values["log"]
        assert found == [word for turn in turns for word in (turn, "one", "two")]
        await client.prune([target])
        assert (await state_of(client, graph, anywhere(target))).values["log"] == found
    assert await client.all(anywhere()) == source
    await client.delete_thread("thread")
    for number, state in list(enumerate(states))[::3]:
        assert (await state_of(client, graph, anywhere(f"fork {number}"))).values == state.values


async def test_the_metadata_names_the_source_of_a_fork(client: Client, next_id: NextId) -> None:
    meta = metadata(3, run_id="run", user="u", thread_id="thread", about="x" * 300)
    where = await put(client, next_id(), meta=meta)
    other = await put(client, next_id(), meta=metadata(4, thread_id="another"), parent=where)
    origin = {FROM_THREAD: "thread", FROM_CHECKPOINT: id_of(where)}
    forked = await client.do("fork_thread", "thread", "fork", run_id="run")
    assert (await get(client, forked)).metadata == {**meta, "thread_id": "fork", **origin}
    assert (await get(client, where)).metadata == meta
    for filter in (
        origin,
        {"thread_id": "fork"},
        {FROM_THREAD: "thread"},
        {"about": "x" * 300, **origin},
    ):
        assert ids_of(await client.all(anywhere("fork"), filter=filter)) == ids_of([where])
        assert [found.thread_id for found in await client.collect("threads", filter=filter)] == ["fork"]
    made = await client.do("fork_thread", "thread", "other", checkpoint_id=id_of(other))
    assert (await get(client, made)).metadata["thread_id"] == "another"  # type: ignore[typeddict-item]
    again = await client.do("fork_thread", "fork", "again")
    assert (await get(client, again)).metadata == {**meta, "thread_id": "again", **origin, FROM_THREAD: "fork"}


async def test_with_encryption_the_source_of_a_fork_is_encrypted_too(
    store: Store, api: str, database: Database
) -> None:
    with store.open(serde=EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")) as saver:
        saver.setup()
        client = Client(saver, api)
        where = await put(client, next_uuid(), {"v": [LONG]}, thread_id="source")
        found = await get(client, await client.do("fork_thread", "source", "fork"))
        assert found.metadata[FROM_CHECKPOINT] == id_of(where)  # type: ignore[literal-required]
        assert found.checkpoint["channel_values"] == {"v": [LONG]}
        assert not any(FROM_THREAD.encode() in cell for cell in database.cells())


async def test_a_fork_may_start_from_the_last_checkpoint_of_a_run(client: Client, next_id: NextId) -> None:
    runs = ["one", "one", "two", "one", "three"]
    configs = [await put(client, next_id(), meta=metadata(step, run_id=run)) for step, run in enumerate(runs)]
    for run, position in (("one", 3), ("two", 2), (None, 4)):
        made = await client.do("fork_thread", "thread", f"of {run}", run_id=run)
        assert id_of(made) == id_of(configs[position])
    with pytest.raises(CheckpointNotFound, match="run 'four' has no checkpoint in thread 'thread'"):
        await client.do("fork_thread", "thread", "of four", run_id="four")
    with pytest.raises(ConfigError, match="not both"):
        await client.do("fork_thread", "thread", "x", run_id="one", checkpoint_id=id_of(configs[0]))
    assert await client.do("count_threads") == 4


@pytest.mark.leaves_writes("of a run that has stored no checkpoint yet")
async def test_a_target_where_a_run_has_begun_is_refused(client: Client, database: Database, next_id: NextId) -> None:
    """The write comes before its checkpoint. In the fork, it would be one of a copied checkpoint."""
    (first,) = await put_chain(client, next_id, 1, values={"v": [1]})
    await client.put_writes(first, [("v", 2)], "task")
    begun: RunnableConfig = {"configurable": {**first["configurable"], "thread_id": "fork"}}
    await client.put_writes(begun, [("v", 3)], "task")
    before = sorted(database.cells())
    with pytest.raises(ThreadExists, match=f"'fork' has checkpoints or writes of its own, such as '{id_of(first)}'"):
        await client.do("fork_thread", "thread", "fork")
    assert sorted(database.cells()) == before


async def test_a_target_with_checkpoints_is_refused(client: Client, database: Database, next_id: NextId) -> None:
    configs = await put_chain(client, next_id, 3, values={"v": [1]})
    await put(client, next_id(), thread_id="sub", ns="inner")
    made = await client.do("fork_thread", "thread", "fork", checkpoint_id=id_of(configs[1]))
    before = sorted(database.cells())
    # Again, as after a lost reply.
    assert await client.do("fork_thread", "thread", "fork", checkpoint_id=id_of(configs[1])) == made
    for target, checkpoint_id in (("fork", id_of(configs[2])), ("thread", id_of(configs[1])), ("sub", None)):
        with pytest.raises(ThreadExists, match=f"'{target}' has checkpoints or writes of its own"):
            await client.do("fork_thread", "thread", target, checkpoint_id=checkpoint_id)
    for source, point in (("missing", None), ("thread", "nothing"), ("sub", None)):
        with pytest.raises(CheckpointNotFound, match=f"thread '{source}' has no checkpoint"):
            await client.do("fork_thread", source, "new", checkpoint_id=point)
    assert sorted(database.cells()) == before
    await put(client, next_id(), thread_id="fork", parent=made)
    with pytest.raises(ThreadExists):
        await client.do("fork_thread", "thread", "fork", checkpoint_id=id_of(configs[1]))


async def test_an_open_interrupt_waits_in_the_fork_too(client: Client) -> None:
    call = chain(Log, low=says("low"), ask=asks("name")).compile()
    graph = chain(Outer, call=call, end=says("end")).compile(checkpointer=client.saver)
    await run_graph(client, graph, {"log": ["in"]}, anywhere())
    asking = await state_of(client, graph, anywhere(), subgraphs=True)
    await client.do("fork_thread", "thread", "fork")
    forked = await state_of(client, graph, anywhere("fork"), subgraphs=True)
    assert (forked.interrupts, forked.next, forked.values) == (asking.interrupts, asking.next, asking.values)
    assert forked.tasks[0].state.values == asking.tasks[0].state.values  # type: ignore[union-attr]
    for thread_id, name in (("fork", "Ada"), ("thread", "Bo")):
        await run_graph(client, graph, Command(resume=name), anywhere(thread_id))
        values = (await state_of(client, graph, anywhere(thread_id))).values
        assert values["log"][-3:] == ["low", f"name: {name}", "end"]
    # From before the answer, the interrupt is raised again.
    await client.do("fork_thread", "thread", "unanswered", checkpoint_id=id_of(asking.config))
    assert [found.config["configurable"]["checkpoint_ns"] for found in await client.all(anywhere("unanswered"))] == [""]
    assert (await state_of(client, graph, anywhere("unanswered"))).interrupts == ()
    await run_graph(client, graph, None, anywhere("unanswered"))
    (question,) = (await state_of(client, graph, anywhere("unanswered"))).interrupts
    assert question.value == "name"
    await run_graph(client, graph, Command(resume="Cy"), anywhere("unanswered"))
    assert (await state_of(client, graph, anywhere("unanswered"))).values["log"][-2:] == ["name: Cy", "end"]


async def test_a_fork_has_the_memory_of_a_subgraph_at_that_point(client: Client) -> None:
    memory = chain(Notes, one=says("one")).compile(checkpointer=True)
    counting = chain(Log, count=counts("count")).compile(checkpointer=True)
    builder = chain(Outer, memory=memory, counting=counting, end=says("end"))
    graph = builder.compile(checkpointer=client.saver)
    for turn in range(3):
        await run_graph(client, graph, {"log": [f"turn {turn}"]}, anywhere())
    (point,) = [state for state in (await states_of(client, graph, anywhere()))[5:10] if state.next == ("counting",)]
    await client.do("fork_thread", "thread", "fork", checkpoint_id=id_of(point.config))
    assert (await get(client, config("fork", ns="counting"))).checkpoint["channel_values"]["last"] == 1
    # The same as in a thread that stopped there.
    await run_graph(client, graph, {"log": ["turn 0"]}, anywhere("stopped"))
    await run_graph(client, graph, {"log": ["turn 1"]}, anywhere("stopped"), interrupt_before=["counting"])
    found = []
    for thread_id in ("fork", "stopped"):
        for value in (None, {"log": ["on"]}):
            await run_graph(client, graph, value, anywhere(thread_id))
        inside = await get(client, config(thread_id, ns="counting"))
        words = await client.history(config(thread_id, ns="memory"), ["log"])
        assert words == await default_walk(client, config(thread_id, ns="memory"), ["log"])
        outside = await state_of(client, graph, anywhere(thread_id))
        written = [value for _, _, value in words["log"]["writes"]]
        found.append((outside.values, inside.checkpoint["channel_values"], written))
    assert found[0] == found[1]
    assert found[0][1]["last"] == 2


def makings(saver: PostgresSaver) -> dict[str, Operation[Any]]:
    """What makes a thread from the thread "thread"."""
    d, codec = saver.backend.dialect, saver.backend.values
    return {
        "fork": fork_thread(d, codec, "thread", "new", None, None),
        "fork of a run": fork_thread(d, codec, "thread", "new", None, "run"),
        "copy": copy_thread(d, "thread", "new"),
    }


def interrupted(op: Operation[Any], *meanwhile: Callable[[], Any]) -> Operation[Any]:
    """The operation, with a call before the second round trip of each attempt: the first has read the outline."""
    calls = iter(meanwhile)

    def start() -> Steps[Any]:
        trips = 0

        def between(request: Any) -> Steps[Any]:
            nonlocal trips
            trips += 1
            if trips == 2 and (call := next(calls, None)):
                call()
            return (yield request)

        return through(op.start(), between)

    return replace(op, start=start)


@pytest.mark.parametrize("what", ["fork", "fork of a run", "copy"])
def test_what_is_made_during_a_run_is_one_consistent_state(postgres_url: str, what: str) -> None:
    """With its own writes: those of the previous checkpoint belong to a superstep that has ended.

    On SQLite, the transaction of the fork holds the file.
    """
    with PostgresSaver(postgres_url) as saver:
        where = saver.put(config(), checkpoint("1"), metadata(run_id="run"), {})
        saver.put_writes(where, [("a", 1)], "task")

        def step() -> None:
            then = saver.put(where, checkpoint("2"), metadata(run_id="run"), {})
            saver.put_writes(then, [("a", 2)], "task")

        saver.backend.driver.run(interrupted(makings(saver)[what], step))
        found = saver.get_tuple(config("new"))
        assert found is not None
        assert found.checkpoint["id"] == "2"
        assert found.pending_writes == [("task", "a", 2)]


@pytest.mark.parametrize("what", ["fork", "fork of a run", "copy"])
def test_nothing_is_made_if_a_run_goes_on_during_each_attempt(postgres_url: str, what: str) -> None:
    """In a transaction of the caller there is one attempt."""
    with PostgresSaver(postgres_url) as saver, psycopg.connect(postgres_url) as connection:
        where = saver.put(config(), checkpoint("1"), metadata(run_id="run"), {})
        mine = PostgresSaver(connection)
        op = interrupted(makings(mine)[what], lambda: saver.put(where, checkpoint("2"), metadata(run_id="run"), {}))
        with pytest.raises(Contention, match=r"a run stored checkpoints in thread 'thread' during each attempt"):
            mine.backend.driver.run(op)
        connection.commit()
        assert saver.get_tuple(config("new")) is None
