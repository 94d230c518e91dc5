"""Concurrent calls on PostgreSQL share trips, and none of them notices: what it gives or raises is its own."""

from __future__ import annotations

import asyncio
import ctypes
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.base import ChannelVersions, Checkpoint
from langgraph.checkpoint.conformance.test_utils import generate_checkpoint, generate_metadata
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from langgraph_checkpoint_custom import ClosedError, PostgresSaver, StorageError
from langgraph_checkpoint_custom.core.operation import Merged, Share, Trip
from langgraph_checkpoint_custom.core.sharing import GROUP_BYTES, GROUPS
from langgraph_checkpoint_custom.drivers import postgres_sharing
from langgraph_checkpoint_custom.drivers.postgres import PostgresDriver
from tests.behaviour.helpers import config
from tests.conftest import COLOURS
from tests.proxy import proxied
from tests.stores import Face

Calls = Sequence[Callable[[], Awaitable[Any]]]
# Names that mean something in the text of an array.
ODD = ["", '"', "\\", "{a,b}", "NULL", " x ", "é\n\t", "a\\\"b'"]
WAITING = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    " AND pid <> pg_backend_pid()"
)


@pytest.fixture(autouse=True)
async def room_for_many() -> AsyncIterator[None]:
    """Sync calls run on the loop's workers, which are few on a small machine."""
    with ThreadPoolExecutor(64) as workers:
        asyncio.get_running_loop().set_default_executor(workers)
        yield


def a_checkpoint(number: int, parent: Checkpoint | None = None) -> Checkpoint:
    """A checkpoint with a value of its own and, behind a parent, one that it keeps."""
    made = generate_checkpoint(
        channel_values={"own": [number], "kept": ["kept"]},
        channel_versions={"own": f"{number}", "kept": "1"},
    )
    return made if parent is None else {**made, "channel_values": made["channel_values"] | {"kept": ["kept"]}}


NEW: ChannelVersions = {"own": "1", "kept": "1"}


def driver_of(saver: Any) -> PostgresDriver:
    """What runs a saver's calls."""
    driver = saver._driver
    assert isinstance(driver, PostgresDriver)
    return driver


def waiting(saver: Any) -> int:
    """Calls that wait for others."""
    driver = driver_of(saver)
    sharings: list[Any] = [driver._worker_sharing, *driver._loops_sharing.values()]
    return sum(len(lane.waiting) for sharing in sharings for lane in list(sharing._lanes._lanes.values()))


@contextmanager
def jammed(url: str) -> Iterator[psycopg.Connection[Any]]:
    """While it lasts, every statement waits for its lock."""
    with psycopg.connect(url) as blocker:
        blocker.execute(
            "LOCK TABLE langgraph_checkpoint.checkpoints, langgraph_checkpoint.writes, langgraph_checkpoint.blobs"
            " IN ACCESS EXCLUSIVE MODE"
        )
        yield blocker


@asynccontextmanager
async def in_a_group(
    face: Face, url: str, first: Callable[[int], Awaitable[Any]], calls: Calls
) -> AsyncIterator[list[asyncio.Future[Any]]]:
    """Calls that wait behind `first`s of their kind, and go together at the end of the block, or when those end."""
    with jammed(url) as blocker, psycopg.connect(url, autocommit=True) as watcher:
        ahead: list[asyncio.Future[Any]] = []
        for number in range(GROUPS):
            ahead.append(asyncio.ensure_future(first(number)))
            while len(watcher.execute(WAITING).fetchall()) <= number:
                await asyncio.sleep(0.005)  # Nobody is told when a session begins to wait.
        behind: list[asyncio.Future[Any]] = []
        for number, call in enumerate(calls, 1):
            behind.append(asyncio.ensure_future(call()))
            while waiting(face.saver) < number:
                await asyncio.sleep(0.001)  # In the order of the calls, on OS threads as well.
        yield [*behind, *ahead]
        blocker.rollback()
    await asyncio.gather(*behind, *ahead, return_exceptions=True)


def outcome(call: asyncio.Future[Any]) -> Any:
    """What a call gave, or the kind of its error."""
    if call.cancelled():
        return "cancelled"
    error = call.exception()
    return call.result() if error is None else type(error)


async def a_life(face: Face, thread_id: str) -> None:
    """Everything that can share a trip, with what has to come of it."""
    parent = a_checkpoint(1)
    first = await face.put(config(thread_id), parent, generate_metadata(), NEW)
    await face.put_writes(first, [(channel, [thread_id]) for channel in ODD], "task")
    found = await face.get_tuple(config(thread_id))
    assert found is not None
    assert (found.config, found.checkpoint) == (first, parent)
    assert found.pending_writes == [("task", channel, [thread_id]) for channel in ODD]
    child = a_checkpoint(2)
    second = await face.put(first, child, generate_metadata(run_id=thread_id), {"own": "2"})
    exact, newest = await asyncio.gather(face.get_tuple(first), face.get_tuple(config(thread_id)))
    assert exact is not None
    assert newest is not None
    assert (exact.checkpoint, exact.pending_writes) == (parent, found.pending_writes)
    assert (newest.checkpoint, newest.parent_config, newest.config) == (child, first, second)
    assert newest.metadata["run_id"] == thread_id


@pytest.mark.parametrize("colour", COLOURS)
async def test_many_threads_at_once_are_all_stored_and_read_in_few_trips(postgres_url: str, colour: str) -> None:
    with proxied(postgres_url) as proxy:
        async with PostgresSaver(proxy.url) as saver:
            face = Face(saver, colour)
            await a_life(face, "first")
            before = proxy.trips
            await asyncio.gather(*(a_life(face, f"t{number}") for number in range(60)))
            # Of 360 calls. A new session takes a few trips; OS threads come one after the other, and so do tasks on a
            # machine that is busy.
            assert proxy.trips - before < (200 if colour == "async" else 300)


@pytest.mark.parametrize("colour", COLOURS)
async def test_names_with_any_characters_come_back(postgres_url: str, colour: str) -> None:
    async with PostgresSaver(postgres_url) as saver:
        face = Face(saver, colour)
        values = {name: [name] for name in ODD}
        parent = generate_checkpoint(channel_values=dict(values), channel_versions={name: f"v{name}" for name in ODD})
        child = generate_checkpoint(channel_values=dict(values), channel_versions={name: f"v{name}" for name in ODD})

        def put(thread: str, checkpoint: Checkpoint, before: Any, versions: Any) -> Callable[[], Awaitable[Any]]:
            return lambda: face.put(before, checkpoint, generate_metadata(), versions)

        threads = [f"t{name}" for name in ODD]
        async with in_a_group(
            face,
            postgres_url,
            lambda n: face.put(config(f"first {n}"), a_checkpoint(1), {}, NEW),
            [put(thread, parent, config(thread), parent["channel_versions"]) for thread in threads],
        ) as parents:
            pass
        async with in_a_group(
            face,
            postgres_url,
            lambda n: face.put(config(f"first {n}"), a_checkpoint(1), {}, NEW),
            [put(thread, child, one.result(), {}) for thread, one in zip(threads, parents, strict=False)],
        ) as children:
            pass
        for each in children[: len(threads)]:
            found = await face.get_tuple(outcome(each))
            assert found is not None
            assert found.checkpoint == child


BROKEN: dict[str, tuple[str, Callable[[Face, str], Awaitable[Any]]]] = {
    "put": ("checkpoints", lambda face, thread: face.put(config(thread), a_checkpoint(1), generate_metadata(), NEW)),
    "put, a value": (
        "blobs",
        lambda face, thread: face.put(config(thread), a_checkpoint(1), generate_metadata(), NEW),
    ),
    "put_writes": ("writes", lambda face, thread: face.put_writes(config(thread, "id"), [("a", thread)], "task")),
}


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("what", BROKEN)
async def test_one_that_fails_takes_nobody_along(postgres_url: str, what: str, colour: str) -> None:
    table, call = BROKEN[what]
    with psycopg.connect(postgres_url, autocommit=True) as watcher:
        watcher.execute(f"ALTER TABLE langgraph_checkpoint.{table} ADD CONSTRAINT no CHECK (thread_id <> 't3')")
        async with PostgresSaver(postgres_url) as saver:
            face = Face(saver, colour)
            threads = [f"t{number}" for number in range(8)]
            async with in_a_group(
                face,
                postgres_url,
                lambda n: call(face, f"first {n}"),
                [partial(call, face, thread) for thread in threads],
            ) as calls:
                pass
            assert [each.exception() is None for each in calls[:8]] == [thread != "t3" for thread in threads]
            error = calls[3].exception()
            assert isinstance(error, StorageError)
            assert (error.operation, error.sqlstate) == (what.split(",")[0], "23514")
            stored = watcher.execute(
                f"SELECT DISTINCT thread_id FROM langgraph_checkpoint.{table} WHERE thread_id LIKE 't%%' ORDER BY 1"
            )
            assert [thread for (thread,) in stored] == [thread for thread in threads if thread != "t3"]


@pytest.mark.parametrize("colour", COLOURS)
async def test_writes_of_one_task_keep_their_order(postgres_url: str, colour: str) -> None:
    """A regular write keeps the first value, a special one the last."""
    async with PostgresSaver(postgres_url) as saver:
        face = Face(saver, colour)
        place = await face.put(config("t"), a_checkpoint(1), generate_metadata(), NEW)
        async with in_a_group(
            face,
            postgres_url,
            lambda n: face.put_writes(config(f"first {n}", "id"), [("a", 1)], "task"),
            [partial(face.put_writes, place, [("a", number), ("__error__", number)], "task") for number in range(5)],
        ) as calls:
            pass
        assert [outcome(each) for each in calls[:5]] == [None] * 5
        found = await face.get_tuple(place)
        assert found is not None
        assert found.pending_writes is not None
        values = {channel: value for _, channel, value in found.pending_writes}
        assert values["a"] == 0
        assert values["__error__"] == 4


@pytest.mark.parametrize("colour", COLOURS)
async def test_checkpoints_of_one_namespace_at_once(postgres_url: str, colour: str) -> None:
    """Twice the same, two of one parent, and one whose parent is stored just now; all have a value in common."""
    async with PostgresSaver(postgres_url) as saver:
        face = Face(saver, colour)
        parent, child, other = a_checkpoint(1), a_checkpoint(2), a_checkpoint(3)
        behind = config("t", parent["id"])
        async with in_a_group(
            face,
            postgres_url,
            lambda n: face.put(config(f"first {n}"), a_checkpoint(1), {}, NEW),
            [
                lambda: face.put(config("t"), parent, generate_metadata(), NEW),
                lambda: face.put(behind, child, generate_metadata(), {"own": "2"}),
                lambda: face.put(behind, other, generate_metadata(), {"own": "3"}),
                lambda: face.put(behind, child, generate_metadata(again=True), {"own": "2"}),
            ],
        ) as calls:
            pass
        assert [outcome(each) for each in calls[:4]] == [
            config("t", each["id"]) for each in (parent, child, other, child)
        ]
        found = {each.checkpoint["id"]: each for each in await face.all(config("t"))}
        assert {checkpoint["id"]: checkpoint for checkpoint in (parent, child, other)} == {
            checkpoint_id: each.checkpoint for checkpoint_id, each in found.items()
        }


@pytest.mark.parametrize("colour", COLOURS)
async def test_readers_of_one_checkpoint_have_objects_of_their_own(postgres_url: str, colour: str) -> None:
    async with PostgresSaver(postgres_url) as saver:
        face = Face(saver, colour)
        old = await face.put(config("t"), a_checkpoint(1), generate_metadata(), NEW)
        new = await face.put(old, a_checkpoint(2), generate_metadata(), {"own": "2"})
        for places in ([config("t")] * 3 + [config("nobody")], [old, new, old, config("t", "none")]):
            async with in_a_group(
                face,
                postgres_url,
                lambda n, places=places: face.get_tuple(places[n]),  # type: ignore[misc]
                [partial(face.get_tuple, place) for place in places],
            ) as calls:
                pass
            alone = [await face.get_tuple(place) for place in places]
            assert [outcome(each) for each in calls[:4]] == alone
            assert (
                calls[0].result().checkpoint["channel_values"]["own"]
                is not calls[2].result().checkpoint["channel_values"]["own"]
            )


@pytest.mark.parametrize("when", ["waiting", "on the way"])
async def test_a_cancelled_one_takes_nobody_along(postgres_url: str, when: str) -> None:
    async with PostgresSaver(postgres_url) as saver:
        face = Face(saver, "async")
        calls: Calls = [
            partial(face.put, config(f"t{number}"), a_checkpoint(1), generate_metadata(), NEW) for number in range(4)
        ]
        async with in_a_group(
            face, postgres_url, lambda n: face.put(config(f"first {n}"), a_checkpoint(1), {}, NEW), calls
        ) as futures:
            if when == "on the way":
                futures[-1].cancel()
                while waiting(saver):
                    await asyncio.sleep(0.001)
            futures[1].cancel()
        assert outcome(futures.pop(1)) == "cancelled"
        if when == "waiting":
            assert await face.get_tuple(config("t1")) is None
        else:
            assert outcome(futures.pop()) == "cancelled"
        for each in futures:
            assert await face.get_tuple(outcome(each)) is not None
        await a_life(face, "after")


@pytest.mark.parametrize("colour", COLOURS)
async def test_a_connection_that_is_lost_with_a_group_on_it(postgres_url: str, colour: str) -> None:
    """Each of them tries again by its own count, and each is stored once."""
    async with PostgresSaver(postgres_url) as saver:
        face = Face(saver, colour)
        calls: Calls = [
            partial(face.put_writes, config(f"t{number}", "id"), [("a", number)], "task") for number in range(8)
        ]
        with psycopg.connect(postgres_url, autocommit=True) as watcher:
            with jammed(postgres_url) as blocker:
                futures = [asyncio.ensure_future(call()) for call in calls]
                for group in range(3):  # Those who came first, then the others together.
                    while not (pids := watcher.execute(WAITING).fetchall()) or (group == 0 and len(pids) < GROUPS):
                        await asyncio.sleep(0.002)
                    for (pid,) in pids:
                        watcher.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
                blocker.rollback()
            assert await asyncio.gather(*futures) == [None] * 8
            rows = watcher.execute("SELECT thread_id FROM langgraph_checkpoint.writes ORDER BY 1").fetchall()
            assert rows == [(f"t{number}",) for number in range(8)]


@pytest.mark.parametrize("colour", COLOURS)
async def test_closing_ends_a_queue(postgres_url: str, colour: str) -> None:
    saver = PostgresSaver(postgres_url)
    face = Face(saver, colour)
    async with in_a_group(
        face,
        postgres_url,
        lambda n: face.put_writes(config(f"first {n}", "id"), [("a", 1)], "task"),
        [lambda: face.put_writes(config("t", "id"), [("a", 1)], "task")] * 3,
    ) as calls:
        driver_of(saver)._closed = True  # As `close()` begins; it waits for its pool then.
    assert [outcome(each) for each in calls[:3]] == [ClosedError] * 3
    assert len({id(each.exception()) for each in calls[:3]}) == 3
    await saver.aclose()


def test_a_loop_that_ends_with_a_queue_leaves_nothing_behind(postgres_url: str) -> None:
    with PostgresSaver(postgres_url) as saver:
        face = Face(saver, "async")

        async def cut_short() -> None:
            await saver.aget_tuple(config("t"))
            with jammed(postgres_url):
                calls = [asyncio.ensure_future(a_life(face, f"t{number}")) for number in range(10)]
                while waiting(saver) < 10 - GROUPS:
                    await asyncio.sleep(0.001)
                for call in calls[:2]:
                    call.cancel()
                await asyncio.sleep(0.02)

        async def whole() -> None:
            await asyncio.gather(*(a_life(face, f"after {number}") for number in range(10)))

        asyncio.run(cut_short())
        asyncio.run(whole())
        assert len(driver_of(saver)._loops_sharing) == 1


def test_several_loops_and_workers_at_once(postgres_url: str) -> None:
    with PostgresSaver(postgres_url) as saver:
        failures: list[BaseException] = []

        def run(name: str, colour: str) -> None:
            async def lives() -> None:
                await asyncio.gather(*(a_life(Face(saver, colour), f"{name} {number}") for number in range(10)))

            try:
                asyncio.run(lives())
            except BaseException as error:
                failures.append(error)

        threads = [
            threading.Thread(target=run, args=(f"{colour} {number}", colour))
            for number in range(3)
            for colour in COLOURS
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []


@pytest.mark.parametrize("colour", COLOURS)
async def test_tenants_share_trips_with_nobody_else(postgres_url: str, colour: str) -> None:
    async with PostgresSaver(postgres_url) as saver:
        faces = [Face(each, colour) for each in (saver, saver.for_tenant("a"), saver.for_tenant("b"))]
        await asyncio.gather(*(a_life(face, f"t{number}") for face in faces for number in range(12)))
        for face in faces:
            assert len(await face.all(None)) == 24


@pytest.mark.parametrize("colour", COLOURS)
async def test_who_has_waited_too_long_goes_by_itself(
    postgres_url: str, colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a lock that somebody holds on one thread's rows others hear nothing."""
    monkeypatch.setattr(postgres_sharing, "PATIENCE", 0.05)
    async with PostgresSaver(postgres_url) as saver:
        face = Face(saver, colour)
        places = [
            await face.put(config(f"t{number}"), a_checkpoint(1), generate_metadata(), NEW) for number in range(GROUPS)
        ]
        with psycopg.connect(postgres_url) as blocker:
            blocker.execute("SELECT FROM langgraph_checkpoint.checkpoints FOR UPDATE")
            stuck = [
                asyncio.ensure_future(face.put(place, a_checkpoint(2), generate_metadata(), {"own": "2"}))
                for place in places
            ]
            await asyncio.sleep(0.05)
            started = time.monotonic()
            await face.put(config("free"), a_checkpoint(1), generate_metadata(), NEW)
            assert time.monotonic() - started < 5
            assert not any(each.done() for each in stuck)
            blocker.rollback()
        await asyncio.gather(*stuck)


@pytest.mark.parametrize("colour", COLOURS)
async def test_large_values_go_by_themselves(postgres_url: str, colour: str) -> None:
    async with PostgresSaver(postgres_url) as saver:
        face = Face(saver, colour)
        await face.get_tuple(config("t"))
        big = bytes(range(256)) * (GROUP_BYTES // 256) + b"!"
        with jammed(postgres_url) as blocker, psycopg.connect(postgres_url, autocommit=True) as watcher:
            calls = [
                asyncio.ensure_future(face.put_writes(config(f"t{number}", "id"), [("a", big * 8)], "task"))
                for number in range(GROUPS + 2)
            ]
            while len(watcher.execute(WAITING).fetchall()) < GROUPS + 2:
                await asyncio.sleep(0.005)
            blocker.rollback()
        await asyncio.gather(*calls)


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("autocommit", [True, False])
async def test_a_callers_pool_is_shared_too(postgres_url: str, colour: str, autocommit: bool) -> None:
    kwargs = {"autocommit": autocommit}
    if colour == "sync":
        with ConnectionPool(postgres_url, kwargs=kwargs, max_size=4, open=True) as pool:
            face = Face(PostgresSaver(pool), colour)
            await asyncio.gather(*(a_life(face, f"t{number}") for number in range(20)))
    else:
        async with AsyncConnectionPool(postgres_url, kwargs=kwargs, max_size=4, open=False) as apool:
            face = Face(PostgresSaver(apool), colour)
            await asyncio.gather(*(a_life(face, f"t{number}") for number in range(20)))


@pytest.mark.parametrize("leads", [False, True])
def test_a_worker_that_is_interrupted_in_the_queue_takes_nobody_along(
    leads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by Ctrl-C in the main thread: while it waits, or when it is its turn to make the trip for all."""
    monkeypatch.setattr(postgres_sharing, "PATIENCE", 10 if leads else 0.2)
    gate = threading.Event()
    made: list[int] = []

    def perform(name: str, statements: Any, trip: Any) -> Any:
        assert gate.wait(10)
        made.append(len(trip.statements))
        return list(trip.statements)

    def merge(parts: Sequence[Any]) -> Merged:
        return Merged(Trip(parts), lambda reply: [[part] for part in reply])

    answers: dict[int, Any] = {}

    def call(number: int) -> None:
        trip: Any = Trip([number])  # type: ignore[list-item]  # A part is as good as a statement here.
        try:
            answers[number] = sharing.send("name", trip, Share("kind", number, 1, number, merge))
        except KeyboardInterrupt:
            answers[number] = "interrupted"

    sharing = postgres_sharing.WorkerSharing(perform)
    lanes = sharing._lanes._lanes
    threads = []
    for number in range(GROUPS + 3):
        threads.append(threading.Thread(target=call, args=[number]))
        threads[-1].start()
        while not lanes or lanes["name", "kind"].going + len(lanes["name", "kind"].waiting) <= number:
            time.sleep(0.001)  # Nobody is told when another OS thread begins to wait.
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(threads[GROUPS].ident or 0), ctypes.py_object(KeyboardInterrupt)
    )
    if not leads:
        while len(lanes["name", "kind"].waiting) == 3:
            time.sleep(0.001)  # Nor when it gives up.
    gate.set()
    for thread in threads:
        thread.join()
    assert answers == {number: "interrupted" if number == GROUPS else [number] for number in range(GROUPS + 3)}
    assert not lanes
