"""Two servers on one database, and a server that is killed: what was stored is everybody's, and runs go on from it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from langgraph_sdk import get_client

from tests.invariants import check_invariants
from tests.server.conftest import HAS_SERVER
from tests.server.processes import PATIENCE, Server
from tests.server.threads import ALL, NO_GATE, Gate, Threads
from tests.stores import Store

Pair = tuple[Server, Server]


@asynccontextmanager
async def clients(*servers: Server) -> AsyncIterator[list[Threads]]:
    """The threads of servers, by themselves."""
    made = [get_client(url=server.url) for server in servers]
    try:
        yield [Threads(client) for client in made]
    finally:
        for client in made:
            await client.aclose()


@pytest.mark.skipif(not HAS_SERVER, reason="no Agent Server: install the extra `server`")
def test_a_server_does_not_start_with_what_cannot_be_meant(tmp_path: Path) -> None:
    store = Store("sqlite", f"sqlite:///{tmp_path / 'checkpoints.db'}")
    server = Server(store, tmp_path, isolated=False, variables={"CHECKPOINT_STRICT": "maybe"})
    try:
        assert server.process.wait(PATIENCE) != 0
    finally:
        server.kill()
    assert "ConfigError: CHECKPOINT_STRICT must be true or false, not 'maybe'" in server.log.read_text()


async def test_two_servers_and_one_that_is_killed(pair: Pair, tmp_path: Path) -> None:
    """One test, since a start takes seconds: the two began at once on an empty database."""
    one, other = pair
    async with clients(one, other) as (here, there):
        # What one has done the other sees, and goes on from.
        thread = await here.new("steps")
        await thread.wait({"done": []})
        elsewhere = await there.new("steps", thread.thread_id)
        assert await elsewhere.state() == await thread.state()
        await elsewhere.wait({"done": ["there"]})
        assert (await thread.state())["values"]["done"] == [*ALL, "there", *ALL]

        # Both at work at the same time, on threads of their own.
        threads = [await each.new("many") for each in (here, there) for _ in range(8)]
        given = await asyncio.gather(*(each.wait({"branches": 12}) for each in threads))
        assert given == [{"branches": 12, "sums": 66}] * len(threads)

        # Both on one thread, which neither knows of the other: the one that began later wins, and the other is told.
        loser, gate = await here.new("steps"), Gate(tmp_path)
        late = await loser.begin(gate.input(), durability="sync")
        await gate.reached()
        winner = await there.new("steps", loser.thread_id)
        assert (await winner.wait(NO_GATE))["done"] == ["first", *ALL]
        gate.open()
        await loser.join(late)
        assert await loser.status(late) == "error"
        assert (await loser.state())["values"]["done"] == ["first", *ALL]

        # Runs in flight when the server is killed.
        flying = [(await here.new("steps"), Gate(tmp_path, f"gate {number}")) for number in range(4)]
        for number, (thread, gate) in enumerate(flying):
            await thread.begin(gate.input(), durability="sync" if number % 2 else "async")
        for _, gate in flying:
            await gate.reached()
        one.kill()
        for _, gate in flying:
            gate.open()
        # The other server goes on with half of them; the state is that before the node that was running, or, without
        # durability="sync", one before that.
        for number, (thread, _) in enumerate(flying[:2]):
            taken = await there.new("steps", thread.thread_id)
            state = await taken.state()
            assert state["values"].get("done", []) in ([ALL[:1]] if number % 2 else [ALL[:1], []])
            assert (await taken.wait())["done"] == ALL
    one.start()
    one.wait()
    async with clients(one) as (again,):
        # The killed one goes on with the others once it is back, and sees what was done without it.
        assert (await (await again.new("steps", flying[0][0].thread_id)).state())["values"]["done"] == ALL
        for thread, _ in flying[2:]:
            assert (await (await again.new("steps", thread.thread_id)).wait())["done"] == ALL
    assert [one.stop(), other.stop()] == [0, 0]
    check_invariants(one.store)
