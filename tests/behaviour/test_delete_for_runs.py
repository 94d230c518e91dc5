"""`delete_for_runs` deletes what runs stored, in all threads, and leaves no gap in what stays."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.types import RESUME
from langgraph.types import Command

from tests.behaviour.helpers import (
    anywhere,
    checkpoint,
    config,
    get,
    ids_of,
    metadata,
    next_uuid,
    put,
    run_graph,
    state_of,
)
from tests.graphs.scenarios.interrupts import asks
from tests.graphs.scenarios.nodes import Log, parallel
from tests.stores import Client

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")

UID = UUID("12345678-1234-5678-1234-567812345678")


async def test_a_checkpoint_without_a_run_stays(client: Client) -> None:
    await put(client, next_uuid())
    await put(client, next_uuid(), meta=metadata(run_id=None))
    await put(client, next_uuid(), meta=metadata(run_id=""))
    await client.delete_for_runs(["None", "", "null"])
    assert len(await client.all(config())) == 3


async def test_the_run_id_may_come_from_the_config(client: Client) -> None:
    given: Any = {"configurable": {"thread_id": "thread", "checkpoint_ns": "", "run_id": "x"}}
    await client.put(given, checkpoint("1"), metadata(), {})
    given = {"configurable": {"thread_id": "thread", "checkpoint_ns": ""}, "metadata": {"run_id": "y"}}
    await client.put(given, checkpoint("2"), metadata(), {})
    await client.delete_for_runs(["x"])
    assert ids_of(await client.all(config())) == ["2"]
    await client.delete_for_runs(["y"])
    assert await client.all(config()) == []


async def test_a_uuid_works_like_its_text(client: Client) -> None:
    given: Any = [UID]
    for stored, asked in ((UID, [str(UID)]), (str(UID), given), (UID, given)):
        where = await put(client, "1", meta=metadata(run_id=stored))
        assert (await get(client, where)).metadata == metadata(run_id=stored)
        await client.delete_for_runs(asked)
        assert await client.get_tuple(where) is None


def in_run(where: RunnableConfig, run_id: Any, key: str = "metadata") -> RunnableConfig:
    """A config as a run passes it to put_writes."""
    given: Any = {"metadata": {}, **where}
    config_of_run: RunnableConfig = given | {key: given[key] | {"run_id": run_id}}
    return config_of_run


async def test_writes_of_a_run_to_another_runs_checkpoint_are_deleted(client: Client) -> None:
    """Such as the answer to an interrupt. The run need not have any checkpoints of its own."""
    where = await put(client, "1", meta=metadata(run_id="x"))
    later = config(checkpoint_id="2")
    for key, run in (("metadata", "x"), ("metadata", "y"), ("configurable", "z")):
        await client.put_writes(in_run(where, run, key), [("a", run), ("b", run)], f"task of {run}")
    await client.put_writes(in_run(later, "y"), [("a", 1)], "task")
    await client.put_writes(in_run(config("other", "1"), "y"), [("a", 1)], "task")
    await client.delete_for_runs(["y", "missing"])
    await put(client, "2", parent=where)
    await put(client, "1", thread_id="other")
    assert (await get(client, later)).pending_writes == []
    assert (await get(client, config("other", "1"))).pending_writes == []
    left = [(f"task of {run}", channel, run) for run in "xz" for channel in "ab"]
    assert (await get(client, where)).pending_writes == left
    await client.delete_for_runs(["z"])
    assert (await get(client, where)).pending_writes == left[:2]


async def test_a_write_belongs_to_the_run_that_stored_its_value(client: Client) -> None:
    """The first run for a regular write, the last one for a special write."""
    where = await put(client, "1")
    for run in ("x", "y"):
        await client.put_writes(in_run(where, run), [("a", run), (RESUME, run)], "task")
    await client.delete_for_runs(["x"])
    assert (await get(client, where)).pending_writes == [("task", RESUME, "y")]
    await client.delete_for_runs(["y"])
    assert (await get(client, where)).pending_writes == []


async def test_a_uuid_object_in_the_config_is_not_a_run(client: Client) -> None:
    """LangGraph merges text and numbers only."""
    where = await put(client, "1")
    await client.put_writes(in_run(where, UID), [("a", 1)], "a")
    await client.put_writes(in_run(where, ""), [("a", 2)], "b")
    await client.put_writes(in_run(where, 5), [("a", 3)], "c")
    await client.delete_for_runs([str(UID), "", "5"])
    assert (await get(client, where)).pending_writes == [("a", "a", 1), ("b", "a", 2)]


async def test_a_copy_keeps_what_each_run_wrote(client: Client) -> None:
    where = await put(client, "1")
    await client.put_writes(in_run(where, "x"), [("a", 1)], "task")
    await client.copy_thread("thread", "copy")
    await client.delete_for_runs(["x"])
    assert (await get(client, config("copy"))).pending_writes == []


@pytest.mark.parametrize("answers", [False, True])
async def test_an_interrupt_that_another_run_has_raised_again_stays(client: Client, *, answers: bool) -> None:
    graph = parallel(Log, ask=asks("name"), also=asks("town")).compile(checkpointer=client.saver)
    await run_graph(client, graph, {"log": []}, in_run(anywhere(), "x"))
    asked = (await state_of(client, graph, anywhere())).interrupts
    answer: Any = Command(resume={next(each.id for each in asked if each.value == "name"): "Ada"})
    await run_graph(client, graph, answer if answers else None, in_run(anywhere(), "y"))
    await client.delete_for_runs(["y"])
    left = {each.value for each in (await state_of(client, graph, anywhere())).interrupts}
    assert left == {"name", "town"}
