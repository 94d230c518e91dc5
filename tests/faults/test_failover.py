"""The primary fails under load and its standby takes over: runs continue, and what was acknowledged is stored."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.conformance.test_utils import generate_checkpoint, generate_config, generate_metadata

from langgraph_checkpoint_custom import PostgresSaver
from tests.conftest import APIS
from tests.faults.bouncer import bounced
from tests.faults.cluster import Cluster, running_cluster, running_standby
from tests.stores import Client

RUNS = 8


@pytest.fixture
def pair(postgres_programs: None) -> Iterator[tuple[Cluster, Cluster]]:
    """A primary, and a standby that has everything that the primary acknowledges."""
    with running_cluster() as primary:
        with PostgresSaver(primary.url()) as saver:
            saver.setup()
        with running_standby(primary) as standby:
            with psycopg.connect(primary.url(), autocommit=True) as owner:
                owner.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
                owner.execute("SELECT pg_reload_conf()")
            yield primary, standby


def take_over(primary: Cluster, standby: Cluster, how: str) -> None:
    primary.run("pg_ctl", "stop", "-m", how, "-D", str(primary.data))
    standby.run("pg_ctl", "promote", "-w", "-D", str(standby.data))
    with psycopg.connect(standby.url(), autocommit=True) as owner:
        owner.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
        owner.execute("SELECT pg_reload_conf()")


class Load:
    """Runs that store and read, step after step, until they are stopped."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stopped = False
        self.acknowledged: defaultdict[str, list[Checkpoint]] = defaultdict(list)

    async def run(self, thread_id: str) -> None:
        config = generate_config(thread_id)
        step = 0
        while not self._stopped:
            checkpoint = generate_checkpoint(channel_values={"a": [step]}, channel_versions={"a": f"{step}"})
            config = await self._client.put(config, checkpoint, generate_metadata(step=step), {"a": f"{step}"})
            await self._client.put_writes(config, [("a", step)], "task")
            self.acknowledged[thread_id].append(checkpoint)
            found = await self._client.get_tuple(config)
            assert found is not None
            assert (found.checkpoint, found.pending_writes) == (checkpoint, [("task", "a", step)])
            step += 1

    async def under(self, what: Any) -> None:
        """Call `what` on a worker during the runs, and check what is stored at the end."""
        runs = [asyncio.create_task(self.run(f"thread {number}")) for number in range(RUNS)]
        await self._more(runs)
        await asyncio.to_thread(what)
        await self._more(runs)
        self._stopped = True
        await asyncio.gather(*runs)
        for thread_id, expected in self.acknowledged.items():
            stored = await self._client.all(generate_config(thread_id))
            assert [found.checkpoint for found in reversed(stored)] == expected

    async def _more(self, runs: list[asyncio.Task[None]]) -> None:
        before = {f"thread {number}": len(self.acknowledged[f"thread {number}"]) for number in range(RUNS)}
        while any(len(self.acknowledged[thread_id]) < count + 10 for thread_id, count in before.items()):
            for run in runs:
                if run.done():
                    run.result()  # It has failed.
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("how", ["fast", "immediate"])
async def test_runs_continue_when_the_standby_takes_over(pair: tuple[Cluster, Cluster], how: str, api: str) -> None:
    primary, standby = pair
    url = f"postgresql://postgres@/postgres?host={primary.folder},{standby.folder}&target_session_attrs=read-write"
    with ThreadPoolExecutor(2 * RUNS) as workers:
        asyncio.get_running_loop().set_default_executor(workers)
        async with PostgresSaver(url, max_size=6) as saver:
            await Load(Client(saver, api)).under(lambda: take_over(primary, standby, how))


@pytest.mark.parametrize("api", APIS)
async def test_runs_continue_through_a_pooler_when_the_server_restarts(postgres_programs: None, api: str) -> None:
    def restart() -> None:
        cluster.run("pg_ctl", "stop", "-m", "immediate", "-D", str(cluster.data))
        cluster.start()

    with running_cluster() as cluster, ThreadPoolExecutor(2 * RUNS) as workers:
        with PostgresSaver(cluster.url()) as saver:
            saver.setup()
        asyncio.get_running_loop().set_default_executor(workers)
        with bounced(cluster.url(), settings={"pool_mode": "transaction", "server_login_retry": "1"}) as url:
            async with PostgresSaver(url, max_size=6) as saver:
                await Load(Client(saver, api)).under(restart)
