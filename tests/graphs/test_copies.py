"""A copy of a thread that waits is independent of the thread."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.types import Command

from tests.graphs.plain import plain_checkpoints, plain_state
from tests.graphs.running import Builder, Durability, Reopened, check_walks, in_memory
from tests.graphs.scenarios.deltas import Deltas, writes
from tests.graphs.scenarios.interrupts import asks, questions
from tests.graphs.scenarios.nodes import Log, chain, says
from tests.stores import Store


def nested(schema: type, checkpointer: Any) -> Builder:
    """A graph with a subgraph that asks."""
    say = writes if schema is Deltas else says
    inner = chain(schema, one=say("one"), ask=asks("name"), two=say("two")).compile(checkpointer=checkpointer)
    return chain(schema, before=say("before"), inner=inner, after=say("after"))


@pytest.mark.parametrize(("schema", "checkpointer"), [(Log, None), (Deltas, True)], ids=["called", "with_memory"])
async def test_a_thread_and_its_copy_take_different_answers_to_a_question_in_a_subgraph(
    store: Store, api: str, durability: Durability, schema: type, checkpointer: Any
) -> None:
    builder = nested(schema, checkpointer)
    expected = {}
    for answer in ("Ada", "Bo"):
        twin = in_memory(api, durability).graph(builder)
        await twin.invoke({"log": ["in"]})
        await twin.invoke(Command(resume=answer))
        expected[answer] = plain_state(await twin.invoke({"log": ["again"]}), full=False)

    async with Reopened(store, api, durability) as thread:
        graph = thread.graph(builder)
        await graph.invoke({"log": ["in"]})
        first, second = thread.thread_id, f"{thread.thread_id} copied"
        await thread.client.copy_thread(first, second)
        await thread.pause()
        for thread_id, other, answer in ((second, first, "Ada"), (first, second, "Bo")):
            thread.thread_id = other
            untouched = plain_checkpoints(await thread.client.all(thread.config))
            thread.thread_id = thread_id
            assert list(questions(await graph.state())) == ["name"]
            state = await graph.invoke(Command(resume=answer))
            assert [word for word in state.values["log"] if "name" in word] == [f"name: {answer}"]
            state = await graph.invoke({"log": ["again"]})
            assert plain_state(state, full=False) == expected[answer]
            await check_walks(thread.client, await thread.client.all(thread.config))
            thread.thread_id = other
            assert plain_checkpoints(await thread.client.all(thread.config)) == untouched
            await thread.pause()
