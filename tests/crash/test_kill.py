"""The writing process is killed at any moment: what was acknowledged is stored, and nothing is half-stored."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import replace
from itertools import count
from pathlib import Path

import psycopg
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Durability

from tests.behaviour.helpers import anywhere
from tests.conftest import APIS
from tests.crash import agent
from tests.crash.processes import Process
from tests.crash.programs import advance, after, seen, set_up, unfinished, write, write_many
from tests.invariants import check_invariants, read_tables
from tests.stores import Client, Store

# More kills than a run needs to finish.
MANY = 100
# Kills of writers, of processes that create the tables, and of runs in each durability.
KILLS, SETUP_KILLS, RUN_KILLS = 24, 6, 6
# Threads that are written at the same time.
TOGETHER = 16


@pytest.fixture
def randomly() -> random.Random:
    """Random numbers; the seed is printed if the test fails."""
    seed = random.SystemRandom().randrange(10**9)
    print(f"seed: {seed}")
    return random.Random(seed)


@pytest.mark.leaves_writes("a process may be killed after the writes of a checkpoint and before it")
def test_what_was_acknowledged_survives_a_kill_and_nothing_is_half_stored(
    store: Store, randomly: random.Random
) -> None:
    done: dict[str, int] = {}
    for kill in range(KILLS):
        thread_id = f"thread {kill}"
        with Process(write, store, APIS[kill % 2], thread_id) as writer:
            writer.receive()
            time.sleep(randomly.uniform(0.005, 0.060))  # The kill comes at a random moment.
            assert writer.kill()
            number = done[thread_id] = [1, *writer.received()][-1]
        with store.open() as saver:
            # The operation in progress may be stored, or not.
            assert seen(saver, thread_id) in (after(number), after(number + 1)), f"{thread_id}: {number} were done"

    # The saver must not return writes that came before their checkpoint.
    early = {location for thread_id, number in done.items() for location in unfinished(thread_id, number)}
    tables = check_invariants(store, early_writes=early)
    rows = Counter((write.thread_id, write.checkpoint_id, write.task_id) for write in tables.writes)
    assert set(rows.values()) == {3}

    with store.open() as saver:
        for thread_id, number in done.items():
            asyncio.run(advance(Client(saver, "sync"), thread_id, number, number + 2))
            assert seen(saver, thread_id) == after(number + 2), f"{thread_id}: {number} were done"


@pytest.mark.leaves_writes("a process may be killed after the writes of a checkpoint and before it")
def test_what_was_acknowledged_to_concurrent_callers_survives_a_kill(own_store: Store, randomly: random.Random) -> None:
    """A batch stores the writes of each caller separately."""
    done = dict.fromkeys(range(TOGETHER), 0)
    with own_store.open() as saver:
        saver.setup()
    with Process(write_many, own_store, TOGETHER) as writer:
        messages = [writer.receive() for _ in range(TOGETHER + 1)]
        time.sleep(randomly.uniform(0, 0.4))  # The kill comes at a random moment.
        messages += writer.received()
        assert writer.kill()
        done |= dict([*messages, *writer.received()])
    assert sum(done.values()) > TOGETHER
    with own_store.open() as saver:
        for thread, number in done.items():
            assert seen(saver, f"thread {thread}") in (after(number), after(number + 1)), f"{number} were done"


def test_a_kill_while_the_tables_are_created_does_no_harm(
    own_store: Store, randomly: random.Random, tmp_path: Path
) -> None:
    for kill in range(SETUP_KILLS):
        store = own_store
        if store.kind == "sqlite":
            store = replace(store, url=f"sqlite:///{tmp_path / f'{kill}.db'}")
        else:
            with psycopg.connect(store.url) as server:
                server.execute("DROP SCHEMA langgraph_checkpoint CASCADE")
        with Process(set_up, store) as process:
            process.receive()
            time.sleep(randomly.uniform(0, 0.030))  # As above.
            process.kill()
        with store.open() as saver:
            saver.setup()
            asyncio.run(advance(Client(saver, "async"), "thread", 0, 3))
            assert seen(saver, "thread") == after(3)


@pytest.mark.leaves_writes("a run may be killed after the writes of a checkpoint and before it")
@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_killed_run_ends_as_usual_and_stored_tasks_never_run_again(
    store: Store, durability: Durability, randomly: random.Random, tmp_path: Path
) -> None:
    complete = agent.build(InMemorySaver(), tmp_path / "complete").invoke({"done": []}, anywhere())
    kills = 0
    for number in count():
        thread_id, journal = f"thread {number}", tmp_path / f"journal {number}"
        kills_here = killed_until_it_ends(store, durability, thread_id, journal, randomly)
        ran = journal.read_text().splitlines()
        with store.open() as saver:
            state = agent.build(saver, journal).get_state(anywhere(thread_id))
        assert (state.values, state.next) == (complete, ())
        assert set(ran) == set(complete["done"])
        assert max(Counter(ran).values()) <= 1 + kills_here
        if durability == "sync":
            # A superstep begins when the checkpoint of the previous one is stored, which then never runs again.
            assert ran == sorted(ran, key=lambda name: int(name.split()[0]))
        kills += kills_here
        if kills >= RUN_KILLS:
            break
    # A killed run may leave the writes of a step whose checkpoint was to be stored next.
    check_invariants(store, early_writes={write[:3] for write in read_tables(store).writes})


def killed_until_it_ends(
    store: Store, durability: Durability, thread_id: str, journal: Path, randomly: random.Random
) -> int:
    """Run a graph in one process after another, each killed unless it ends first; returns how many were killed."""
    journal.touch()
    done: set[str] = set()
    for kills in range(MANY):
        before = len(journal.read_text().splitlines())
        with Process(agent.run, store, randomly.choice(APIS), durability, thread_id, journal) as process:
            process.receive()
            # Longer each time, since a step may take longer than that on a busy machine.
            time.sleep(randomly.uniform(0, 0.080) * 1.05**kills)
            killed = process.kill()
            acknowledged: list[agent.Stored] = process.received()
        ran = journal.read_text().splitlines()[before:]
        assert not done.intersection(ran), "tasks whose writes were stored have run again"
        if not killed:
            return kills
        with store.open() as saver:
            found = saver.get_tuple(anywhere(thread_id))
        newest, done = "", set()
        if found is not None:
            newest = found.checkpoint["id"]
            writes = [value for _, channel, value in found.pending_writes or () if channel == "done"]
            done = set(sum(writes, found.checkpoint["channel_values"].get("done", [])))
        for stored in acknowledged:
            if stored.done is None:
                assert stored.checkpoint_id <= newest, "a checkpoint is lost"
            elif stored.checkpoint_id <= newest:  # Otherwise the task will run again, from the previous checkpoint.
                assert done.issuperset(stored.done), "writes are lost"
    raise AssertionError("the run makes no progress")
