"""Failed, waiting, unfinished and done: the same word from real graphs in `threads`, `failures` and the inspector."""

from __future__ import annotations

import asyncio
import operator
import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.errors import GraphRecursionError, InvalidUpdateError
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from langgraph_checkpoint_custom import CheckpointSaver, ConfigError
from langgraph_checkpoint_custom.cli import reading
from langgraph_checkpoint_custom.operations import list_threads
from tests.cli.conftest import Cli
from tests.ui.conftest import names_in, pages_of


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    one: int
    delta: Annotated[list[str], DeltaChannel(lambda old, new: old + [each for one in new for each in one])]


class Broken(Exception):
    pass


def fails(state: Any) -> Any:
    raise Broken("the price list is empty")


def fails_after(is_stored: Callable[[], bool]) -> Callable[[Any], Any]:
    """A node that fails when something is stored: LangGraph does not store what another task writes after a failure."""

    def fails(state: Any) -> Any:
        deadline = time.monotonic() + 300
        while not is_stored():
            assert time.monotonic() < deadline
            time.sleep(0.05)  # Nothing announces what is stored.
        raise Broken("the price list is empty")

    return fails


def works(state: Any) -> Any:
    return {"log": ["x"], "delta": ["y"]}


def asks(state: Any) -> Any:
    return {"log": [interrupt("really?")]}


def run(saver: CheckpointSaver, name: str, *nodes: Callable[[Any], Any], then: bool = True, **options: Any) -> Any:
    """Run a graph whose nodes start together, and then one that comes after all; return the graph."""
    builder: Any = StateGraph(State)
    names = [f"{node.__name__}{number}" for number, node in enumerate(nodes)]
    for each, node in zip(names, nodes, strict=True):
        builder.add_node(each, node)
        builder.add_edge(START, each)
    if then:
        builder.add_node("last", works)
        builder.add_edge(names, "last")
    before = options.pop("interrupt_before", None)
    graph = builder.compile(checkpointer=saver, interrupt_before=before)
    with suppress(Broken, InvalidUpdateError):
        graph.invoke({"log": []}, of(name), **options)
    return graph


def of(name: str, **more: Any) -> Any:
    return {"configurable": {"thread_id": name}, **more}


def play(saver: CheckpointSaver) -> None:
    run(saver, "done", works, works)
    run(saver, "done at once", works, works, durability="exit")
    graph = run(saver, "answered", asks, works)
    graph.invoke(Command(resume="yes"), of("answered"))

    def works_is_stored() -> bool:
        found = saver.get_tuple(of("failed"))
        return any(channel == "log" for _, channel, _ in (found and found.pending_writes) or ())

    run(saver, "failed", works, fails_after(works_is_stored))
    waiting = "failed and waiting"
    run(saver, waiting, asks, fails_after(lambda: waiting in [one.thread_id for one in saver.interrupts()]))
    tries: list[int] = []

    def once(state: Any) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise Broken("at first")
        return {"log": ["at last"]}

    graph = run(saver, "retried beside a failed one", once, fails)
    with suppress(Broken):
        graph.invoke(None, of("retried beside a failed one"))
    sent: Any = StateGraph(State)
    sent.add_node("plan", works)
    sent.add_node("fails", fails)
    sent.add_edge(START, "plan")
    sent.add_conditional_edges("plan", lambda state: [Send("fails", {})], ["fails"])
    with suppress(Broken):
        sent.compile(checkpointer=saver).invoke({"log": []}, of("sent task"))

    fan: Any = StateGraph(State)
    fan.add_node("plan", works)
    fan.add_node("research", works)
    fan.add_edge(START, "plan")
    fan.add_conditional_edges("plan", lambda state: [Send("research", {})] * 3, ["research"])
    fan.compile(checkpointer=saver).invoke({"log": []}, of("fanned out", metadata={"user": "ann"}))

    run(saver, "waiting", asks, works)
    run(saver, "stopped before", works, works, interrupt_before=["last"])
    loop: Any = StateGraph(State)
    loop.add_node("works", works)
    loop.add_edge(START, "works")
    loop.add_conditional_edges("works", lambda state: "works")
    with suppress(GraphRecursionError):
        loop.compile(checkpointer=saver).invoke({"log": []}, of("limit", recursion_limit=3))
    run(saver, "conflict", lambda state: {"one": 1}, lambda state: {"one": 2}, then=False)

    asyncio.run(cancelled(saver))


async def cancelled(saver: CheckpointSaver) -> None:
    """A run that is cancelled while a node works."""
    began = asyncio.Event()

    async def hangs(state: Any) -> Any:
        began.set()
        await asyncio.Event().wait()

    builder: Any = StateGraph(State)
    builder.add_node("hangs", hangs)
    builder.add_edge(START, "hangs")
    task = asyncio.create_task(builder.compile(checkpointer=saver).ainvoke({"log": []}, of("cancelled")))
    await began.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


STATES = {
    "done": "done",
    "done at once": "done",
    "fanned out": "done",
    "answered": "done",
    "failed": "failed",
    "failed and waiting": "failed",
    "retried beside a failed one": "failed",
    "sent task": "failed",
    "waiting": "waiting",
    "stopped before": "unfinished",
    "limit": "unfinished",
    "conflict": "unfinished",
    "cancelled": "unfinished",
}


FAILED = {name for name, state in STATES.items() if state == "failed"}


async def listed(saver: CheckpointSaver, **options: Any) -> list[str]:
    return [one.thread_id async for one in saver.athreads(**options)]


def test_the_state_of_threads_of_real_graphs(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with cli.store.open() as saver:
        play(saver)
        assert {one["thread_id"]: one["state"] for one in cli.json("threads")["threads"]} == STATES
        pages = pages_of(saver)
        assert {name: pages.data("/summary", thread=name)["state"] for name in STATES} == STATES
        found = pages.data("/summary", thread="failed")
        assert (found["role"], found["text"]) == ("failed", "Broken('the price list is empty')")
        assert [one.thread_id for one in saver.interrupts()] == ["failed and waiting", "waiting"]
        for state in ("failed", "waiting", "unfinished", "done"):
            names = [one.thread_id for one in saver.threads() if STATES[one.thread_id] == state]
            assert [one.thread_id for one in saver.threads(state=state)] == names
            assert asyncio.run(listed(saver, state=state)) == names
            assert [one.thread_id for one in saver.threads(state=state, prefix="f")] == [
                name for name in names if name.startswith("f")
            ]
            for threads in (1, 2, 3):  # Of a statement.
                with monkeypatch.context() as patch:
                    patch.setattr(list_threads, "MARKED", threads)
                    assert [one.thread_id for one in saver.threads(state=state)] == names
            assert names_in(pages.page("/", state=state)) == names
            paged: list[Any] = []
            while page := [*saver.threads(state=state, limit=1, before=paged[-1] if paged else None)]:
                paged += page
            assert [one.thread_id for one in paged] == names
        assert [one.thread_id for one in saver.threads(state="done", filter={"user": "ann"})] == ["fanned out"]
        assert [*saver.threads(state="failed", filter={"user": "ann"})] == []
        with pytest.raises(ConfigError, match="the states are failed, waiting"):
            next(saver.threads(state="broken"))  # type: ignore[arg-type]
        saver.prune(list(STATES))
        assert {one.thread_id: one for one in saver.threads(state="failed")}.keys() == FAILED
        saver.delete_thread("waiting")
        assert [*saver.threads(state="waiting")] == []
        run(saver, "waiting", asks, works)
    for state in ("failed", "waiting", "unfinished", "done"):
        expected = {name for name, own in STATES.items() if own == state}
        assert {one["thread_id"] for one in cli.json("threads", "--state", state)["threads"]} == expected
    (row,) = (line for line in cli("threads", "--state", "waiting").splitlines() if "really?" in line)
    assert row.split()[:2] == ["waiting", "waiting"]
    assert "failed: Broken('the price list is empty')" in cli("threads", "--state", "failed")
    assert "'broken'" in cli.fail("threads", "--state", "broken", code=2)
    # Page by page, until all threads were looked at.
    monkeypatch.setattr(reading, "REACH", 2)
    seen: list[str] = []
    page = cli.json("threads", "--state", "unfinished", "--limit", "1")
    while True:
        seen += [one["thread_id"] for one in page["threads"]]
        if page["next"] is None:
            break
        page = cli.json("threads", "--state", "unfinished", "--limit", "1", "--before", page["next"])
    assert sorted(seen) == ["cancelled", "conflict", "limit", "stopped before"]
    assert "Threads are searched page by page, 2 at a time. More with --before " in cli("threads", "--state", "done")


def test_failures_and_histories_name_the_nodes(cli: Cli) -> None:
    with cli.store.open() as saver:
        play(saver)
    error = "Broken('the price list is empty')"
    found = {(one["thread_id"], one["node"], one["error"]) for one in cli.json("failures")["failures"]}
    assert found == {
        ("failed", "fails1", error),
        ("failed and waiting", "fails1", error),
        ("retried beside a failed one", "fails1", error),
        ("sent task", "fails", error),
    }
    for newer in ("1h", "2001-01-31", "2001-01-31T18:30+02:00", "2001-01-31T18:30:00Z"):
        assert cli.json("failures", "--since", newer) == cli.json("failures")
        assert cli.json("failures", "--until", newer)["failures"] == []
        assert len(cli.json("threads", "--since", newer)["threads"]) == len(cli.json("threads")["threads"])
    for wrong in ("yesterday", "24", "2001-31-01", "h", "", "999999999999w"):
        assert f"{wrong!r} is not a time" in cli.fail("failures", "--since", wrong, code=2)
    assert cli.json("failures", "--limit", "1")["next"] is not None
    (line,) = (line for line in cli("failures").splitlines() if line.startswith(" sent task"))
    assert line.split()[-6:] == ["fails", "Broken('the", "price", "list", "is", "empty')"]
    text = cli("show", "failed")
    assert "fails1   __error__" in text
    assert "works0   log" in text
    assert {one["node"] for one in cli.json("show", "failed")["writes"]} == {"works0", "fails1"}
    assert cli("show", "stopped before").endswith("Next: last\n")
    # The history tells what ran, what failed and how long it took.
    newest = cli.json("history", "fanned out")["checkpoints"][0]
    assert (newest["made_by"], newest["state"]) == ("research ×3", [])
    assert newest["seconds"] > 0
    assert "research ×3" in cli("history", "fanned out")
    assert cli.json("history", "failed")["checkpoints"][0]["state"] == ["failed"]
    assert cli.json("history", "waiting")["checkpoints"][0]["state"] == ["waiting"]
    assert [one["made_by"] for one in cli.json("history", "limit")["checkpoints"][-2:]] == ["__start__", "input"]
    with cli.store.open() as saver:
        pages = pages_of(saver)
        assert "research ×3" in [spot[9] for spot in pages.data("/timeline", thread="fanned out")["spots"]]
        html = pages.page("/checkpoints", thread="fanned out")
        assert re.search(r"<td>research ×3</td>.*<td>input</td>", html, re.DOTALL)
