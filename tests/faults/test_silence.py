"""A server that accepts a connection, or a request, and then says nothing."""

from __future__ import annotations

import asyncio

import pytest

from langgraph_checkpoint_custom import PostgresSaver, StorageError
from tests.behaviour.helpers import config
from tests.conftest import COLOURS
from tests.faults.faulty import faulty
from tests.faults.workload import fill, put_one
from tests.stores import Face


@pytest.mark.parametrize("colour", COLOURS)
async def test_a_server_that_accepts_and_says_nothing_is_given_up_and_tried_again(
    postgres_url: str, colour: str
) -> None:
    with faulty(postgres_url) as proxy:
        proxy.deaf_to_come = 1
        async with PostgresSaver(proxy.url, connect_timeout=2) as saver:
            await asyncio.wait_for(fill(Face(saver, colour), "t"), 30)
        assert proxy.deaf_to_come == 0
        assert proxy.connections > 2


@pytest.mark.parametrize("colour", COLOURS)
async def test_a_session_that_falls_silent_holds_up_nobody_else_for_longer_than_the_pool_timeout(
    postgres_url: str, colour: str
) -> None:
    """Its own operation waits for as long as the network says nothing; then it is done once."""
    with faulty(postgres_url) as proxy:
        async with PostgresSaver(proxy.url, max_size=1, pool_timeout=0.5) as saver:
            face = Face(saver, colour)
            await fill(face, "t")
            proxy.hush()
            trips = proxy.trips
            waiting = asyncio.ensure_future(put_one(face, "t"))
            while proxy.trips == trips:
                await asyncio.sleep(0.01)
            with pytest.raises(StorageError, match="raise max_size or pool_timeout"):
                await asyncio.wait_for(face.get_tuple(config("t")), 30)
            proxy.cut()
            await asyncio.wait_for(waiting, 30)
            assert len(await face.all(config("t"))) == 4
