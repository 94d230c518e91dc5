"""A server that restarts during a run: the run continues, and each step is stored once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from langgraph_checkpoint_custom import PostgresSaver
from langgraph_checkpoint_custom.drivers import postgres_pools
from tests.behaviour.helpers import config
from tests.conftest import APIS
from tests.faults.cluster import Cluster, running_cluster
from tests.graphs.scenarios.nodes import Log, chain, says
from tests.stores import Client

DURABILITIES = ["sync", "async", "exit"]
THREAD: Any = {"configurable": {"thread_id": "thread"}}


@pytest.fixture(scope="module")
def cluster(postgres_programs: None) -> Iterator[Cluster]:
    """A server with the tables in it."""
    with running_cluster() as made:
        with PostgresSaver(made.url()) as saver:
            saver.setup()
        yield made


def restart(cluster: Cluster) -> None:
    """As `systemctl restart` does: sessions end at once, and what was acknowledged is on the disk."""
    cluster.run("pg_ctl", "stop", "-m", "fast", "-D", str(cluster.data))
    cluster.start()


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("api", APIS)
async def test_a_run_continues_when_the_server_restarts(cluster: Cluster, api: str, durability: Any) -> None:
    where: Any = {"configurable": {"thread_id": f"{api} {durability}"}}

    def restarts(state: Log) -> Any:
        restart(cluster)
        return {"log": ["restarted"]}

    async with PostgresSaver(cluster.url()) as saver:
        graph = chain(Log, one=says("one"), restarts=restarts, two=says("two")).compile(checkpointer=saver)
        for turn in range(2):
            given = {"log": [f"turn {turn}"]}
            if api == "async":
                state = await graph.ainvoke(given, where, durability=durability)
            else:
                state = await asyncio.to_thread(graph.invoke, given, where, durability=durability)
            assert state["log"][-4:] == [f"turn {turn}", "one", "restarted", "two"]
        assert (await graph.aget_state(where)).values == state
        stored = [found async for found in graph.aget_state_history(where)]
        assert len(stored) == (2 if durability == "exit" else 10)


@pytest.mark.parametrize("api", APIS)
async def test_many_runs_continue_when_the_server_restarts(cluster: Cluster, api: str) -> None:
    begun = threading.Event()

    def waits(state: Log) -> Any:
        begun.set()
        return {"log": ["waited"]}

    async with PostgresSaver(cluster.url(), max_size=4) as saver:
        graph = chain(Log, one=says("one"), waits=waits, two=says("two")).compile(checkpointer=saver)

        async def run(number: int) -> Any:
            where: Any = {"configurable": {"thread_id": f"{api} {number}"}}
            for turn in range(5):
                if api == "async":
                    state = await graph.ainvoke({"log": [turn]}, where)
                else:
                    state = await asyncio.to_thread(graph.invoke, {"log": [turn]}, where)
            return state["log"]

        runs = [asyncio.create_task(run(number)) for number in range(8)]
        await asyncio.to_thread(begun.wait, 30)
        await asyncio.to_thread(restart, cluster)
        expected = [each for turn in range(5) for each in (turn, "one", "waited", "two")]
        assert await asyncio.gather(*runs) == [expected] * 8
        with psycopg.connect(cluster.url()) as server:
            counted = server.execute(
                "SELECT count(*) FROM langgraph_checkpoint.checkpoints WHERE thread_id ~ %s", [f"^{api} [0-9]$"]
            ).fetchone()
        assert counted == (8 * 5 * 5,)


@pytest.mark.parametrize("api", APIS)
async def test_a_waiting_call_succeeds_when_the_server_is_back_after_the_pool_gave_up(
    cluster: Cluster, api: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(postgres_pools, "RECONNECT_TIMEOUT", 0.5)
    where = config(f"{api} after an outage", "id")
    async with PostgresSaver(cluster.url()) as saver:
        client = Client(saver, api)
        await client.get_tuple(where)
        cluster.run("pg_ctl", "stop", "-m", "fast", "-D", str(cluster.data))
        try:
            waiting = asyncio.ensure_future(client.put_writes(where, [("a", 1)], "task"))
            # The pool tries again for each connection that it had.
            while caplog.text.count("reconnection attempt in pool") < 4:
                assert not waiting.done(), caplog.text
                await asyncio.sleep(0.01)  # The pool reports this only in the log.
        finally:
            cluster.start()
        await waiting
