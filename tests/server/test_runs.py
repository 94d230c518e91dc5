"""Runs, states and histories on a server are the same as those of the graph alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver

from langgraph_checkpoint_custom import CheckpointSaver
from tests.behaviour.helpers import anywhere
from tests.server import graphs
from tests.server.processes import Server
from tests.server.threads import ALL, NO_GATE, Gate, Threads


def test_the_server_reports_no_missing_method_of_the_saver(server: Server) -> None:
    """At its start, it logs what will not work because of each missing method."""
    said = {str(each["event"]) for each in server.wait().events()}
    kind = "SqliteSaver" if server.store.kind == "sqlite" else "PostgresSaver"
    about = {event for event in said if event.startswith(("Using custom checkpointer", "Custom checkpointer"))}
    assert about == {f"Using custom checkpointer: {kind}"}


async def test_a_run_may_be_awaited_streamed_or_in_the_background(threads: Threads) -> None:
    thread = await threads.new("steps")
    assert await thread.wait({"done": []}) == {"done": ALL}
    events = [event async for event in thread.stream({"done": ["again"]}, stream_mode=["updates", "values"])]
    updates = [list(event.data) for event in events if event.event == "updates"]
    assert updates == [["first"], ["second"], ["third"]]
    assert [event.data for event in events if event.event == "values"][-1] == {"done": [*ALL, "again", *ALL]}
    assert await thread.join(await thread.begin({"done": []})) == {"done": [*ALL, "again", *ALL, *ALL]}
    assert (await thread.state())["values"] == {"done": [*ALL, "again", *ALL, *ALL]}


async def test_a_run_without_a_thread_leaves_nothing(threads: Threads, saver: CheckpointSaver) -> None:
    runs = threads.client.runs
    given: Any = await runs.wait(None, "many", input={"branches": 4}, metadata={"who": "ann"})
    assert given == {"branches": 4, "sums": 6}
    assert [each async for each in saver.alist(None, filter={"who": "ann"})] == []


async def test_the_history_takes_limit_before_and_metadata(threads: Threads) -> None:
    thread = await threads.new("steps")
    await thread.wait({"done": []})
    await thread.wait({"done": ["again"]})
    complete = await thread.history(limit=100)
    assert [each["metadata"]["step"] for each in complete] == [8, 7, 6, 5, 4, 3, 2, 1, 0, -1]
    assert [each["values"].get("done", [])[4:] for each in complete[:4]] == [ALL, ALL[:2], ALL[:1], []]
    assert await thread.history(limit=3) == complete[:3]
    assert await thread.history(limit=3, before=complete[2]["checkpoint"]) == complete[3:6]
    assert await thread.history(limit=2, before=complete[4]["checkpoint"]) == complete[5:7]
    assert await thread.history(metadata={"source": "input"}) == [complete[4], complete[9]]
    assert await thread.history(metadata={"source": "loop", "step": 2}) == [complete[6]]
    assert await thread.history(metadata={"step": 77}) == []
    for each in complete:
        assert await thread.state(each["checkpoint_id"]) == each


async def test_a_run_may_start_from_an_old_checkpoint(threads: Threads) -> None:
    """The fork starts at the given checkpoint, and the old branch stays."""
    thread = await threads.new("steps")
    await thread.wait({"done": []})
    before = await thread.history()
    past = next(each for each in before if each["next"] == ["third"])
    await thread.update({"done": ["forked"]}, checkpoint_id=past["checkpoint_id"])
    assert await thread.wait() == {"done": ["first", "second", "forked", "third"]}
    again = await thread.wait(checkpoint_id=past["checkpoint_id"])
    assert again == {"done": ALL}
    after = {each["checkpoint_id"]: each for each in await thread.history(limit=100)}
    assert [after[each["checkpoint_id"]] for each in before] == before
    assert {each["parent_checkpoint_id"] for each in after.values()} >= {past["checkpoint_id"]}


async def test_interrupts_are_answered_one_by_one_and_together(threads: Threads) -> None:
    thread = await threads.new("questions")
    asked = {each["value"]: each["id"] for each in (await thread.wait({}))["__interrupt__"]}
    assert set(asked) == {"age", "name", "town"}
    assert {each["value"] for each in (await thread.state())["interrupts"]} == set(asked)
    left = await thread.wait(command={"resume": {asked["name"]: "Ada"}})
    assert {each["value"] for each in left["__interrupt__"]} == {"age", "town"}
    done = await thread.wait(command={"resume": {asked["age"]: 36, asked["town"]: "London"}})
    assert done == {"log": ["age: 36", "name: Ada", "town: London"]}
    state = await thread.state()
    assert (state["next"], state["interrupts"]) == ([], [])


async def test_a_subgraph_works(threads: Threads) -> None:
    thread = await threads.new("family")
    assert [each["value"] for each in (await thread.wait({}))["__interrupt__"]] == ["child"]
    (task,) = (await thread.state(subgraphs=True))["tasks"]
    assert task["state"]["next"] == ["ask"]
    inner = task["state"]["checkpoint"]
    assert inner["checkpoint_ns"].startswith("child:")
    (history, *_) = await thread.history(checkpoint=inner)
    assert history["next"] == ["ask"]
    assert await thread.wait(command={"resume": "answers"}) == {"log": ["child: answers", "thanks", "parent"]}


async def test_a_failed_run_continues_where_it_failed(threads: Threads) -> None:
    thread = await threads.new("failing")
    failed = await thread.wait({}, config={"configurable": {"fail": True}}, raise_error=False)
    assert failed["__error__"]["message"] == "it was made to fail"
    state = await thread.state()
    assert (state["values"], state["next"]) == ({"done": ["begin"]}, ["fails"])
    assert "it was made to fail" in state["tasks"][0]["error"]
    assert await thread.wait() == {"done": ["begin", "in the end"]}


async def test_values_of_every_type_are_read_unchanged(threads: Threads) -> None:
    thread = await threads.new("values")
    await thread.wait({})
    assert (await thread.wait(command={"resume": True}))["different"] == []


async def test_a_second_run_may_roll_back_the_first(threads: Threads, saver: CheckpointSaver, tmp_path: Path) -> None:
    thread, gate = await threads.new("steps"), Gate(tmp_path)
    await thread.wait({"done": []})
    held = await thread.begin(gate.input())
    await gate.reached()
    state = await thread.wait(NO_GATE, multitask_strategy="rollback")
    assert state["done"] == ALL * 2
    assert held not in await thread.runs()
    assert [each async for each in saver.alist(anywhere(thread.thread_id), filter={"run_id": held})] == []


async def test_a_cancelled_run_can_be_rolled_back(threads: Threads, saver: CheckpointSaver, tmp_path: Path) -> None:
    thread, gate = await threads.new("steps"), Gate(tmp_path)
    await thread.wait({"done": []})
    before = await thread.state()
    held = await thread.begin(gate.input())
    await gate.reached()
    await threads.client.runs.cancel(thread.thread_id, held, wait=True, action="rollback")
    assert await thread.state() == before
    assert [each async for each in saver.alist(anywhere(thread.thread_id), filter={"run_id": held})] == []
    assert (await thread.wait({"done": []}))["done"] == ALL * 2


async def test_a_cancelled_run_can_be_continued(threads: Threads, tmp_path: Path) -> None:
    thread, gate = await threads.new("steps"), Gate(tmp_path)
    held = await thread.begin(gate.input(), durability="sync")
    await gate.reached()
    await threads.client.runs.cancel(thread.thread_id, held, wait=True, action="interrupt")
    state = await thread.state()
    assert (state["values"]["done"], state["next"]) == (["first"], ["second"])
    gate.open()
    assert (await thread.wait())["done"] == ALL


async def test_the_servers_own_walk_rebuilds_a_delta_channel(threads: Threads, saver: CheckpointSaver) -> None:
    """The server uses no history method, so states are rebuilt checkpoint by checkpoint. Before and after a copy and a
    prune, they are the same as in memory.
    """
    alone: Any = graphs.deltas.builder.compile(checkpointer=InMemorySaver())
    config = anywhere("alone")
    thread = await threads.new("deltas")
    for turn in range(4):
        expected = await alone.ainvoke({"log": [f"turn {turn}"]}, config)
        assert await thread.wait({"log": [f"turn {turn}"]}) == expected
    copy = await thread.copied()
    past = [each["values"] for each in await thread.history(limit=100)]
    assert past == [each.values async for each in alone.aget_state_history(config)]
    assert [each["values"] for each in await copy.history(limit=100)] == past
    await saver.aprune([thread.thread_id])
    assert len(await thread.history(limit=100)) == 1
    assert (await thread.state())["values"] == (await copy.state())["values"] == expected
    expected = await alone.ainvoke({"log": ["last"]}, config)
    assert await thread.wait({"log": ["last"]}) == await copy.wait({"log": ["last"]}) == expected
