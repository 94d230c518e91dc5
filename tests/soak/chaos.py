"""One soak: its processes, the faults, and what must be true at the end."""

from __future__ import annotations

import random
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

import psycopg

from langgraph_checkpoint_custom import CheckpointError, CheckpointSaver
from tests.behaviour.helpers import anywhere
from tests.crash.processes import Process
from tests.invariants import check_invariants, read_tables
from tests.proxy import Proxy
from tests.soak.graph import between_rounds, build, expected, plain
from tests.soak.worker import Holds, work
from tests.stores import Store

# Each with one API; the first half is killed again and again, the others run from beginning to end.
WORKERS = ("sync", "async", "sync", "async")
# How much more a process may hold at the end than after warming up: MB, and threads and files of pools that happen to
# be larger at that moment.
GROWTH = Holds(64.0, 24, 24)


class Outcome(NamedTuple):
    """What has happened, and what was wrong at the end."""

    database: str
    graphs: int
    seconds: float
    rounds: int
    done: Counter[str]
    errors: Counter[str]
    held: dict[str, tuple[Holds, Holds]]
    sessions: tuple[int, int]
    problems: list[str]


class CuttingProxy(Proxy):
    """A proxy that can break one connection."""

    def cut_one(self, randomly: random.Random) -> bool:
        """Break one connection, if there is one."""
        with self._lock:
            sockets = sorted(self._sockets, key=id)
        if sockets:
            with suppress(OSError):
                randomly.choice(sockets).shutdown(socket.SHUT_RDWR)
        return bool(sockets)


@contextmanager
def reached(store: Store) -> Iterator[tuple[Store, CuttingProxy | None]]:
    """The store as the processes see it."""
    if store.kind == "sqlite":
        yield store, None
        return
    proxy = CuttingProxy(store.url)
    try:
        yield Store("postgres", proxy.url), proxy
    finally:
        proxy.close()


def soak(store: Store, *, seconds: float, graphs: int, seed: int) -> Outcome:
    """Run graphs for `seconds`, then let them end their rounds and compare."""
    randomly = random.Random(seed)
    names = [f"graph {number:03}" for number in range(graphs)]
    shares = [names[number :: len(WORKERS)] for number in range(len(WORKERS))]
    done: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    held: dict[str, tuple[Holds, Holds]] = {}
    problems: list[str] = []
    with store.open() as saver:
        saver.setup()
    begun = remaining_sessions(store, 0)
    with ExitStack() as stack:
        far, proxy = stack.enter_context(reached(store))
        saver = stack.enter_context(store.open())
        workers = [Process(work, far, api, share) for api, share in zip(WORKERS, shares, strict=True)]
        stack.callback(end_all, workers)
        ends, warm = time.monotonic() + seconds, time.monotonic() + seconds / 4
        lasting = range(len(WORKERS) // 2, len(WORKERS))
        at_warm: dict[int, Holds] = {}
        while time.monotonic() < ends:
            time.sleep(randomly.uniform(0, 0.2))  # The moments are random.
            harm(store, saver, proxy, randomly, names, done)
            if randomly.random() < 0.05:
                number = randomly.randrange(lasting.start)
                done["processes killed"] += workers[number].kill()
                workers[number].__exit__(None, None, None)
                workers[number] = Process(work, far, WORKERS[number], shares[number])
            if not at_warm and time.monotonic() > warm:
                for number in lasting:
                    workers[number].send("holds")
                    at_warm[number] = workers[number].receive()
        for worker in workers:
            worker.send("stop")
        for number, worker in enumerate(workers):
            at_end: Holds = worker.receive()
            before, after, reported = worker.receive()
            errors += reported
            if number in lasting and number in at_warm:
                held[f"process {number} ({WORKERS[number]}), warm and at the end"] = (at_warm[number], at_end)
                problems += more_than(GROWTH, at_warm[number], at_end, f"process {number} has grown")
            held[f"process {number} ({WORKERS[number]}), before and after"] = (before, after)
            # No threads and files are left.
            problems += more_than(Holds(1e9, 0, 0), before, after, f"process {number} has not released its resources")
            if code := worker.wait():
                problems.append(f"process {number} has ended with {code}")
        rounds = compare(saver, names, problems)
        saver.prune(names)
        saver.close()
    ended = remaining_sessions(store, begun)
    if ended > begun:
        problems.append(f"{ended} sessions are open, of {begun} before")
    try:
        # A killed run may leave the writes of a step whose checkpoint was to be stored next.
        check_invariants(store, early_writes={write[:3] for write in read_tables(store).writes})
    except AssertionError as error:
        problems.append(str(error))
    return Outcome(store.kind, graphs, seconds, rounds, done, errors, held, (begun, ended), problems)


def end_all(workers: list[Process]) -> None:
    """Kill those that have not ended."""
    for worker in workers:
        worker.__exit__(None, None, None)


def harm(
    store: Store,
    saver: CheckpointSaver,
    proxy: CuttingProxy | None,
    randomly: random.Random,
    names: list[str],
    done: Counter[str],
) -> None:
    """Prune a thread, and perhaps break a connection from either side."""
    try:
        saver.prune([randomly.choice(names)])
        done["prunes"] += 1
    except CheckpointError:
        done["prunes that failed"] += 1
    if proxy is None:
        return
    if randomly.random() < 0.3:
        done["connections cut"] += proxy.cut_one(randomly)
    if randomly.random() < 0.3:
        with psycopg.connect(store.url, autocommit=True) as server:
            row = server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1"
            ).fetchone()
            done["backends terminated"] += row is not None


def compare(saver: CheckpointSaver, names: list[str], problems: list[str]) -> int:
    """Compare each thread with the same graph in memory; returns the number of rounds of all."""
    graph = build(saver)
    states = {name: graph.get_state(anywhere(name)) for name in names}
    rounds = {name: state.values.get("round", 0) for name, state in states.items()}
    in_memory = expected(max(rounds.values()))
    for name, state in states.items():
        if not between_rounds(state):
            problems.append(f"{name} has not ended its round {rounds[name]}")
        elif plain(state, name) != in_memory[rounds[name]]:
            found, wanted = plain(state, name), in_memory[rounds[name]]
            problems.append(f"{name} differs after {rounds[name]} rounds: {difference(found, wanted)}")
        if not rounds[name]:
            problems.append(f"{name} has not got through a single round")
    return sum(rounds.values())


def difference(found: str, wanted: str) -> str:
    """The first words that differ, without the digest, which differs whenever something else does."""
    pairs = zip(found.split(", "), wanted.split(", "), strict=False)
    differing = [f"{a[:80]} and not {b[:80]}" for a, b in pairs if a != b and not re.search("[0-9a-f]{64}", a)]
    return differing[0] if differing else "only in the digest, so an earlier round was different"


def more_than(limit: Holds, before: Holds, after: Holds, what: str) -> list[str]:
    """A line for each quantity that has grown too much."""
    return [
        f"{what}: {field} {first:.0f} → {then:.0f}"
        for field, first, then, most in zip(Holds._fields, before, after, limit, strict=True)
        if then - first > most
    ]


def sessions(store: Store) -> int:
    """The number of sessions on a PostgreSQL server for this database, without the one that asks."""
    if store.kind == "sqlite":
        return 0
    with psycopg.connect(store.url, autocommit=True) as server:
        row = server.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        ).fetchone()
        assert row is not None
        return int(row[0])


def remaining_sessions(store: Store, wanted: int) -> int:
    """The number of sessions once the ending ones have ended."""
    pause = threading.Event()
    for _ in range(50):
        if (found := sessions(store)) <= wanted:
            return found
        pause.wait(0.1)
    return found
