"""A server that restarts during a run: the run continues, and each step is stored once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from langgraph_checkpoint_custom import PostgresSaver
from langgraph_checkpoint_custom.drivers import postgres_pools
from tests.behaviour.helpers import config
from tests.conftest import APIS
from tests.faults.cluster import Cluster, running_cluster
from tests.stores import Client


@pytest.fixture(scope="module")
def cluster(postgres_programs: None) -> Iterator[Cluster]:
    """A server with the tables in it."""
    with running_cluster() as made:
        with PostgresSaver(made.url()) as saver:
            saver.setup()
        yield made


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
