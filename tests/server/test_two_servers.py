"""Two servers on one database, one of which is killed: both see what was stored, and can continue the runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from langgraph_sdk import get_client

from tests.invariants import check_invariants
from tests.server.conftest import need_server
from tests.server.processes import TIMEOUT, Server
from tests.server.threads import ALL, NO_GATE, Gate, Threads
from tests.stores import Store

Pair = tuple[Server, Server]


@asynccontextmanager
async def clients(*servers: Server) -> AsyncIterator[list[Threads]]:
    """The threads of each server."""
    made = [get_client(url=server.url) for server in servers]
    try:
        yield [Threads(client) for client in made]
    finally:
        for client in made:
            await client.aclose()


def test_a_server_with_an_impossible_option_does_not_start(tmp_path: Path) -> None:
    need_server()
    store = Store("sqlite", f"sqlite:///{tmp_path / 'checkpoints.db'}")
    server = Server(store, tmp_path, isolated=False, variables={"CHECKPOINT_STRICT": "maybe"})
    try:
        assert server.process.wait(TIMEOUT) != 0
    finally:
        server.kill()
    assert "ConfigError: CHECKPOINT_STRICT must be true or false, not 'maybe'" in server.log.read_text()


async def test_two_servers_share_threads_and_survive_a_kill(pair: Pair, tmp_path: Path) -> None:
    """One test, since a start takes seconds: the two started at the same time on an empty database."""
    one, other = pair
    async with clients(one, other) as (here, there):
        # One server sees what the other has done, and continues from there.
        thread = await here.new("steps")
        await thread.wait({"done": []})
        elsewhere = await there.new("steps", thread.thread_id)
        assert await elsewhere.state() == await thread.state()
        await elsewhere.wait({"done": ["there"]})
        assert (await thread.state())["values"]["done"] == [*ALL, "there", *ALL]

        # Both at the same time, on separate threads.
        threads = [await each.new("many") for each in (here, there) for _ in range(8)]
        given = await asyncio.gather(*(each.wait({"branches": 12}) for each in threads))
        assert given == [{"branches": 12, "sums": 66}] * len(threads)

        # Both on one thread, without knowing of each other: the later run wins, and the other one gets an error.
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
        # The other server continues half of them; the state is that before the running node or, without
        # durability="sync", one before that.
        for number, (thread, _) in enumerate(flying[:2]):
            taken = await there.new("steps", thread.thread_id)
            state = await taken.state()
            assert state["values"].get("done", []) in ([ALL[:1]] if number % 2 else [ALL[:1], []])
            assert (await taken.wait())["done"] == ALL
        unknown = await there.new("steps")
        await unknown.wait({"done": []})
    one.start()
    one.wait()
    async with clients(one) as (again,):
        # A thread that the server does not know, as if it had lost its own store. Without the name of the graph, the
        # state looks empty.
        at_server, lost = again.client.threads, unknown.thread_id
        await at_server.create(thread_id=lost, if_exists="do_nothing")
        await at_server.create(thread_id=lost, graph_id="steps", if_exists="do_nothing")  # It exists by now.
        assert (await at_server.get_state(lost))["values"] == {}
        await at_server.update(lost, metadata={"graph_id": "steps"})
        found: Any = await at_server.get_state(lost)
        assert found["values"]["done"] == ALL
        # The killed server continues the others once it is back, and sees what was done meanwhile.
        # Its own run of the first thread, which it still has, may have begun again.
        seen = await (await again.new("steps", flying[0][0].thread_id)).state()
        assert seen["values"]["done"][: len(ALL)] == ALL
        for thread, _ in flying[2:]:
            assert (await (await again.new("steps", thread.thread_id)).wait())["done"] == ALL
    assert [one.stop(), other.stop()] == [0, 0]
    check_invariants(one.store)
