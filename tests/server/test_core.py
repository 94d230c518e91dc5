"""What the production server's core requests over gRPC: complete threads and runs, in its own format.

The core itself has no source to install; the service that answers it, and the client for it, are the real ones.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from tests.behaviour.helpers import anywhere
from tests.conftest import BACKENDS
from tests.invariants import check_invariants
from tests.server import graphs
from tests.server.conftest import Servers
from tests.server.processes import CONFIG, environment, free_port
from tests.stores import Store


@pytest.fixture(params=BACKENDS)
def core(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> Iterator[tuple[Store, int]]:
    """A store, and the port of the service on it."""
    store, port = servers.store(request.param, tmp_path), free_port()
    variables = {
        "DATABASE_URI": ":memory:",
        "LANGGRAPH_CHECKPOINTER": json.dumps(CONFIG["checkpointer"]),
        "LANGGRAPH_RUNTIME_EDITION": "inmem",
        "MIGRATIONS_PATH": "__inmem",
        "REDIS_URI": "fake",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "tests.server.core", str(port)],
        cwd=tmp_path,
        env=environment(store) | variables,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert "ready\n" in iter(process.stdout.readline, "")
            yield store, port
        finally:
            process.kill()
    check_invariants(store)


async def ids(saver: BaseCheckpointSaver[str], thread_id: str) -> list[str]:
    return [each.config["configurable"]["checkpoint_id"] async for each in saver.alist(anywhere(thread_id))]


async def test_the_service_answers_every_request_of_the_core(core: tuple[Store, int]) -> None:
    import grpc.aio
    from langgraph_grpc_common.checkpointer import GrpcCheckpointer
    from langgraph_grpc_common.proto.checkpointer_pb2_grpc import CheckpointerStub

    store, port = core
    alone: Any = graphs.deltas.builder.compile(checkpointer=InMemorySaver())
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel, store.open() as saver:

        async def stub() -> Any:
            return CheckpointerStub(channel)

        asks: Any = GrpcCheckpointer(get_stub=stub)
        graph: Any = graphs.deltas.builder.compile(checkpointer=asks)
        config: RunnableConfig = anywhere("source")

        async def turn(word: str) -> Any:
            expected = await alone.ainvoke({"log": [word]}, config | {"run_id": word_id(word)})
            given = await graph.ainvoke({"log": [word]}, config | {"run_id": word_id(word)})
            assert given == expected
            return expected

        state = [await turn(word) for word in "abc"][-1]

        # A run that is rolled back is deleted two or three times; once is enough, and twice does no harm.
        await turn("d")
        for _ in range(3):
            await asks.adelete_for_runs([word_id("d")])
        assert (await graph.aget_state(config)).values == state
        assert len(await ids(asks, "source")) == 12

        await asks.acopy_thread("source", "target")
        assert await ids(asks, "target") == await ids(asks, "source")
        await asks.aprune(["source"], strategy="keep_latest")
        assert len(await ids(asks, "source")) == 1
        for thread_id in ("source", "target"):
            assert (await graph.aget_state(anywhere(thread_id))).values == state
            # Our saver, which uses a query instead of a walk, finds the same.
            ours: Any = graphs.deltas.builder.compile(checkpointer=saver)
            assert (await ours.aget_state(anywhere(thread_id))).values == state

        await asks.aprune(["source"], strategy="delete_all")
        assert await ids(asks, "source") == []
        assert len(await ids(asks, "target")) == 12
        await asks.adelete_thread("target")
        assert [each async for each in saver.alist(None)] == []


def word_id(word: str) -> str:
    """The id of the run that adds a word."""
    return f"00000000-0000-0000-0000-{ord(word):012}"
