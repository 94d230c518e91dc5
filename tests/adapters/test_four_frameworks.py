"""Four frameworks in one database: a graph that waits, an agent and its fork, one that was rewound, and a session.

Each runs in its own process. Then all are listed, moved to another database, found there, and deleted one by one.
"""

# ruff: noqa: E402 (what is imported last may be missing)

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from tests.needs import need

need(find_spec("cubeloop"), "the extra cubeloop")
need(find_spec("pydantic_deep"), "the extra pydantic-deep")

from langgraph_checkpoint_custom import CheckpointSaver, open_saver
from langgraph_checkpoint_custom.adapters.cubeloop import CubeLoopCheckpointer
from langgraph_checkpoint_custom.adapters.pydantic_deep import DeepCheckpointStore
from langgraph_checkpoint_custom.adapters.sessions import SessionCheckpoint, SessionStore
from langgraph_checkpoint_custom.cli import main
from tests.adapters import deep_programs
from tests.adapters.cubeloop import programs
from tests.crash.processes import Process
from tests.stores import Store

GRAPH: Any = {"configurable": {"thread_id": "a graph"}}
LISTED = {
    "a graph": None,
    r"\x1ecubeloop/thread": "cubeloop",
    r"\x1ecubeloop/fork": "cubeloop",
    r"\x1epydantic-deep/work": "pydantic-deep",
    r"\x1esession/acme/chat": "session",
}


def graph_on(saver: CheckpointSaver) -> Any:
    """A graph that asks before it does something."""
    builder: Any = StateGraph(dict)
    builder.add_node("ask", lambda state: {"said": interrupt("really?")})
    builder.add_edge(START, "ask")
    return builder.compile(checkpointer=saver)


async def alive(saver: CheckpointSaver) -> set[str]:
    """The threads whose content is unchanged."""
    loops, deep = CubeLoopCheckpointer(saver), DeepCheckpointStore(saver, "work")
    sessions = SessionStore(saver, "acme")
    found = set()
    state = await graph_on(saver).aget_state(GRAPH)
    if [one.value for one in state.interrupts] == ["really?"]:
        found.add("a graph")
    for name, parent in (("thread", None), ("fork", "thread")):
        loaded = await loops.load(name)
        if loaded and len(loaded.messages) == 4 and loaded.parent_thread_id == parent:
            found.add(rf"\x1ecubeloop/{name}")
    if "good" in [one.label for one in await deep.list_all()]:
        found.add(r"\x1epydantic-deep/work")
    session = await sessions.aload("chat")
    if session and session.interrupt == {"tool": "rm"} and len(await sessions.ahistory("chat")) == 2:
        found.add(r"\x1esession/acme/chat")
    return found


async def test_four_frameworks_share_a_database(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def cli(*argv: str) -> Any:
        capsys.readouterr()
        assert main([*argv, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    async with store.open() as saver:
        await saver.asetup()
        await graph_on(saver).ainvoke({"said": ""}, GRAPH)
        with Process(programs.talk, store, [("add", "first")]) as process:
            assert len(process.receive()) == 4
        await CubeLoopCheckpointer(saver).fork("thread", "fork", after_run_id="first")
        with Process(deep_programs.serve) as process:
            process.send(("work", (store, "work")))
            assert process.receive() == "wrong"
            process.send(("rewind", (store, "work")))
            assert process.receive()[1] == "good"
        sessions = SessionStore(saver, "acme")
        await sessions.asave(SessionCheckpoint("chat", 1, [{"role": "user", "content": "hello"}]))
        await sessions.asave(SessionCheckpoint("chat", 2, [], interrupt={"tool": "rm"}))
        assert [found.config["configurable"]["thread_id"] async for found in saver.alist(None)] == ["a graph"] * 2
        assert await alive(saver) == LISTED.keys()

    url = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    cli("export", str(tmp_path / "all.zst"), "--url", store.url)
    cli("import", str(tmp_path / "all.zst"), "--url", url)
    listed = {one["thread_id"]: one["kind"] for one in cli("threads", "--url", url)["threads"]}
    assert listed == {key.replace(r"\x1e", "\x1e"): kind for key, kind in LISTED.items()}

    async with open_saver(url) as saver:
        assert await alive(saver) == LISTED.keys()
        left = set(LISTED)
        for thread in (r"\x1ecubeloop/thread", r"\x1epydantic-deep/work", r"\x1esession/acme/chat"):
            cli("delete", thread, "--yes", "--url", url)
            left.remove(thread)
            assert await alive(saver) == left
        assert (await graph_on(saver).ainvoke(Command(resume="yes"), GRAPH))["said"] == "yes"
        assert await alive(saver) == {r"\x1ecubeloop/fork"}
    assert len(cli("threads", "--url", store.url)["threads"]) == len(LISTED)
