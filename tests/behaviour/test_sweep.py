"""A sweep deletes what a retention does not keep, and the remaining threads continue as if nothing had happened."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import closing
from copy import copy
from datetime import datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from langgraph_checkpoint_custom import (
    CheckpointSaver,
    ClosedError,
    ConfigError,
    CorruptCheckpoint,
    OperationEvent,
    PostgresSaver,
    Retention,
    Swept,
)
from langgraph_checkpoint_custom.engine.operation import Operation
from tests.behaviour.helpers import LONG, Database, checkpoint, config, metadata
from tests.behaviour.sweeps import Sweeps
from tests.conftest import APIS
from tests.stores import Client, Store

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")

DAY = timedelta(days=1)


def put(
    saver: CheckpointSaver, thread_id: str, number: int, *, days: float = 0, ns: str = "", **more: Any
) -> RunnableConfig:
    """A checkpoint that was created `days` ago, with its own value."""
    made = datetime.now(timezone.utc) - days * DAY
    found = {**checkpoint(f"{number:06}", {"a": f"{LONG} {number}"}), "ts": made.isoformat()}
    parent = None if number == 1 else f"{number - 1:06}"
    return saver.put(config(thread_id, parent, ns), found, metadata(**more), {"a": str(number)})  # type: ignore[arg-type]


def ids(saver: CheckpointSaver, thread_id: str, ns: str = "") -> list[str]:
    return sorted(found.checkpoint["id"] for found in saver.list(config(thread_id, None, ns)))


def swept(saver: CheckpointSaver, api: str, keep: Retention, *, dry_run: bool = False) -> Swept:
    if api == "sync":
        return saver.sweep(keep, dry_run=dry_run)
    return asyncio.run(saver.asweep(keep, dry_run=dry_run))


@pytest.mark.parametrize("api", APIS)
def test_idle_threads_are_deleted_completely(saver: CheckpointSaver, api: str) -> None:
    for name, days in (("old", 40), ("new", 20)):
        for number in (1, 2):
            last = put(saver, name, number, days=days)
        saver.put_writes(last, [("a", LONG)], "task")
    put(saver, "active", 1, days=40)
    put(saver, "active", 2, days=0)
    keep = Retention(older_than=30 * DAY)
    expected = swept(saver, api, keep, dry_run=True)
    assert ids(saver, "old") == ["000001", "000002"]
    done = swept(saver, api, keep)
    assert done == expected
    assert (done.threads, done.deleted_threads, done.deleted_checkpoints) == (3, 1, 2)
    assert done.freed_bytes > 0
    assert (ids(saver, "old"), len(ids(saver, "new")), len(ids(saver, "active"))) == ([], 2, 2)
    assert swept(saver, api, keep).deleted_threads == 0


def test_a_subgraph_counts_as_activity(saver: CheckpointSaver) -> None:
    put(saver, "t", 1, days=40)
    put(saver, "t", 2, days=1, ns="child:1", parents={"": "000001"})
    assert saver.sweep(Retention(older_than=30 * DAY)).deleted_threads == 0
    assert saver.sweep(Retention(older_than=DAY / 2)).deleted_threads == 1


@pytest.mark.parametrize("api", APIS)
def test_the_newest_checkpoints_stay(saver: CheckpointSaver, api: str) -> None:
    for number in range(1, 8):
        put(saver, "t", number)
    for number in (1, 2):
        put(saver, "short", number)
    keep = Retention(keep_last=3)
    assert swept(saver, api, keep, dry_run=True).deleted_checkpoints == 4
    done = swept(saver, api, keep)
    assert (done.deleted_threads, done.deleted_checkpoints) == (0, 4)
    assert ids(saver, "t") == ["000005", "000006", "000007"]
    assert ids(saver, "short") == ["000001", "000002"]
    for number in (5, 6, 7):
        found = saver.get_tuple(config("t", f"{number:06}"))
        assert found is not None
        assert found.checkpoint["channel_values"] == {"a": f"{LONG} {number}"}


def test_a_dry_run_counts_the_subgraph_calls_that_a_sweep_deletes(saver: CheckpointSaver) -> None:
    for number in (1, 2, 3):
        put(saver, "t", number)
        put(saver, "t", number, ns=f"call:{number}", parents={"": f"{number:06}"})
        put(saver, "t", number, ns="memory", parents={"": f"{number:06}"})
    tried = [saver.sweep(Retention(keep_last=keep), dry_run=True).deleted_checkpoints for keep in (3, 2, 1)]
    done = [saver.sweep(Retention(keep_last=keep)).deleted_checkpoints for keep in (3, 2, 1)]
    assert tried == [sum(done[:end]) for end in (1, 2, 3)]
    assert done[2] > 2  # The call with its root checkpoint, and the memory of that.


def test_a_labelled_checkpoint_and_its_thread_stay(saver: CheckpointSaver) -> None:
    for number in range(1, 6):
        put(saver, "t", number, days=40)
    saver.label(config("t", "000002"), "mine")
    assert saver.sweep(Retention(older_than=30 * DAY, max_bytes=0)).deleted_threads == 0
    assert ids(saver, "t") == ["000002", "000005"]
    saver.unlabel("t", "mine")
    assert saver.sweep(Retention(older_than=30 * DAY)).deleted_threads == 1


@pytest.mark.parametrize("api", APIS)
def test_the_store_stays_below_a_size(saver: CheckpointSaver, api: str) -> None:
    for number in range(1, 6):
        put(saver, f"t{number}", number)
    complete = swept(saver, api, Retention(max_bytes=10**9))
    assert complete.deleted_threads == 0
    limit = complete.kept_bytes * 3 // 5 + 20
    done = swept(saver, api, Retention(max_bytes=limit))
    assert done.deleted_threads == 2
    assert done.kept_bytes <= limit
    # The threads whose newest checkpoints are the newest.
    assert [name for name in ("t1", "t2", "t3", "t4", "t5") if ids(saver, name)] == ["t3", "t4", "t5"]


def test_a_thread_that_is_too_large_is_deleted_and_older_ones_stay(saver: CheckpointSaver) -> None:
    put(saver, "old", 1)
    limit = saver.sweep(Retention(max_bytes=10**9)).kept_bytes + 1
    for step in range(2, 5):
        put(saver, "large", step)
    assert saver.sweep(Retention(max_bytes=limit)).deleted_threads == 1
    assert (ids(saver, "old"), ids(saver, "large")) == (["000001"], [])


def test_a_filter_limits_a_sweep(saver: CheckpointSaver) -> None:
    for name, user in (("a", "Ada"), ("b", "Bo")):
        put(saver, name, 1, days=40, user=user)
    done = saver.sweep(Retention(older_than=DAY, filter={"user": "Ada"}))
    assert (done.threads, done.deleted_threads) == (1, 1)
    assert (ids(saver, "a"), ids(saver, "b")) == ([], ["000001"])


def test_a_tenant_sweeps_its_own_threads(saver: CheckpointSaver) -> None:
    acme = saver.for_tenant("acme")
    for one in (saver, acme):
        put(one, "t", 1, days=40)
    assert acme.sweep(Retention(older_than=DAY)).deleted_threads == 1
    assert (ids(acme, "t"), ids(saver, "t")) == ([], ["000001"])
    put(acme, "t", 1, days=40)
    assert saver.sweep(Retention(older_than=DAY), tenants=False).deleted_threads == 1
    assert (ids(acme, "t"), ids(saver, "t")) == (["000001"], [])


@pytest.mark.parametrize("api", ["sync", "async"])
def test_a_sweep_covers_the_threads_of_all_tenants(saver: CheckpointSaver, api: str) -> None:
    """With `max_bytes`, each tenant has that many."""
    all_tenants = [saver, *map(saver.for_tenant, ("acme", "other"))]
    for one in all_tenants:
        for step in range(1, 4):
            put(one, "t", step)
            put(one, "u", step)
    client = Client(saver, api)
    tried = asyncio.run(client.do("sweep", Retention(keep_last=1), dry_run=True))
    assert (tried.threads, tried.deleted_checkpoints) == (6, 12)
    swept = asyncio.run(client.do("sweep", Retention(keep_last=1)))
    assert (swept.threads, swept.deleted_threads, swept.deleted_checkpoints) == (6, 0, 12)
    assert [ids(one, name) for one in all_tenants for name in "tu"] == [["000003"]] * 6
    bytes_of_all = saver.sweep(Retention(max_bytes=10**6)).kept_bytes
    too_large = saver.sweep(Retention(max_bytes=bytes_of_all // 4), dry_run=True).would_delete
    assert too_large == [("", "t"), ("acme", "t"), ("other", "t")]
    assert saver.sweep(Retention(max_bytes=bytes_of_all // 4)).deleted_threads == 3
    assert [ids(one, "u") for one in all_tenants] == [["000003"]] * 3


def test_a_thread_that_changes_during_a_sweep_stays(saver: CheckpointSaver) -> None:
    """A run stores a checkpoint, or somebody sets a label, after the sweep has found the thread."""

    def goes_on() -> None:
        put(saver, "t", 2)

    def labels() -> None:
        saver.label(config("u", "000001"), "mine")

    meanwhile: dict[str, Callable[[], None]] = {"t": goes_on, "u": labels}
    for name in meanwhile:
        put(saver, name, 1, days=40)

    def changes(op: Operation[Any]) -> None:
        if op.name == "sweep_thread":
            meanwhile[op.arguments["thread_id"]]()

    done = Sweeps(saver, Retention(older_than=DAY))(before=changes)
    assert done.deleted_threads == 0
    assert ids(saver, "t") == ["000001", "000002"]
    assert ids(saver, "u") == ["000001"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"older_than": timedelta()}, "older_than"),
        ({"keep_last": 0}, "keep_last must be an int of 1"),
        ({"max_bytes": -1}, "max_bytes"),
        ({"keep_last": 1, "every": 0}, "every"),
        ({"keep_last": 1, "every": float("inf")}, "every"),
        ({"keep_last": 1.5}, "keep_last must be an int of 1"),
        ({"keep_last": True}, "keep_last must be an int of 1"),
        ({"older_than": 30}, "older_than must be a positive timedelta"),
        ({"max_bytes": "1 GB"}, "max_bytes"),
        ({"keep_last": 3, "filter": "x"}, "filter"),
    ],
)
def test_a_retention_without_effect_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Retention(**options)


def wait_until_swept(is_done: Callable[[], bool]) -> None:
    """Wait for a sweep on its own OS thread, which tells nobody that it has ended."""
    deadline = time.monotonic() + 150
    while not is_done():
        assert time.monotonic() < deadline
        time.sleep(0.01)  # The database is asked again; there is nothing to wait on.


def sweepers() -> set[threading.Thread]:
    """The OS threads of sweeps; one of another test may be among them."""
    return {worker for worker in threading.enumerate() if worker.name == "checkpoint-sweep"}


def test_automatic_sweeps_cover_all_tenants_and_only_one_runs_at_a_time(store: Store) -> None:
    before = sweepers()
    keep = Retention(older_than=DAY, every=0.05)
    with store.open() as saver:
        saver.setup()
        both = saver, saver.for_tenant("acme")
        for each in both:
            put(each, "t", 1, days=2)
        with store.open(retention=keep), store.open(retention=keep):
            wait_until_swept(lambda: not any(ids(each, "t") for each in both))
        assert sweepers() <= before
        assert saver.sweep(keep).threads == 0


def test_an_ending_loop_without_workers_closes_a_saver_that_sweeps(store: Store) -> None:
    before = sweepers()
    saver = store.open(retention=Retention(older_than=DAY))
    with closing(asyncio.new_event_loop()) as loop:
        assert loop.run_until_complete(saver.aget_tuple(config())) is None
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.run_until_complete(saver.aclose())
    with pytest.raises(ClosedError):
        saver.get_tuple(config())
    wait_until_swept(lambda: sweepers() <= before)


def test_only_one_process_sweeps_at_a_time(store: Store) -> None:
    with store.open() as saver:
        saver.setup()
        put(saver, "t", 1, days=2)
        from langgraph_checkpoint_custom import retention
        from langgraph_checkpoint_custom.operations.writers import release_claim, take_claim

        saver.backend.driver.run(take_claim(saver.backend.dialect, retention._SWEEPER, "another", "sweep", 600.0))
        with store.open(retention=Retention(older_than=DAY, every=0.02)):
            time.sleep(0.5)  # Time for some sweeps, if they were allowed.
            assert ids(saver, "t") == ["000001"]
        assert saver.backend.driver.run(release_claim(saver.backend.dialect, retention._SWEEPER, "another"))


def test_a_sweep_renews_its_claim_between_two_threads(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of long threads may take longer than the claim lasts."""
    monkeypatch.setattr("langgraph_checkpoint_custom.retention.SWEEPER_TTL", 0.0)
    names: list[str] = []
    with store.open() as saver:
        saver.setup()
        for number in range(3):
            put(saver, f"t{number}", 1, days=2)
        keep = Retention(older_than=DAY, every=1e-6)
        with store.open(retention=keep, on_operation=lambda event: names.append(event.name)):
            wait_until_swept(lambda: not saver.count_threads())
    first = names.index("sweep_thread")
    assert names[first : first + 5] == ["sweep_thread", *["renew_claim", "sweep_thread"] * 2]


@pytest.mark.filterwarnings("ignore:unclosed saver:ResourceWarning")
def test_automatic_sweeps_do_not_keep_a_saver_alive(store: Store) -> None:
    before = sweepers()
    saver = store.open(retention=Retention(older_than=DAY, every=0.02))
    known = weakref.ref(saver)
    del saver
    deadline = time.monotonic() + 150
    while known() is not None or sweepers() - before:
        assert time.monotonic() < deadline
        gc.collect()
        time.sleep(0.02)  # Until its OS thread has noticed.


@pytest.mark.filterwarnings("ignore:unclosed saver:ResourceWarning")
def test_automatic_sweeps_go_on_as_long_as_a_copy_of_the_saver_lives(store: Store) -> None:
    before = sweepers()
    with store.open() as saver:
        saver.setup()
        put(saver.for_tenant("acme"), "t", 1, days=2)
    copied = copy(store.open(retention=Retention(older_than=DAY, every=0.02)).for_tenant("acme"))
    gc.collect()
    deadline = time.monotonic() + 150
    while ids(copied, "t"):
        assert time.monotonic() < deadline
        assert sweepers() - before
        time.sleep(0.02)  # Until it is deleted.
    del copied
    while sweepers() - before:
        assert time.monotonic() < deadline
        gc.collect()
        time.sleep(0.02)  # Until its OS thread, which looks from time to time, finds no copy of the saver.


def test_writes_without_a_checkpoint_are_deleted_with_their_thread(saver: CheckpointSaver, database: Database) -> None:
    """And no writes of a thread whose id fits the deleted one as a pattern of SQL's LIKE."""
    new = put(saver, "n", 1)
    saver.put_writes(new, [("a", LONG)], "task")
    for name in ("old", "%", "_"):
        put(saver, name, 1, days=40)
        saver.put_writes(config(name, "000002"), [("a", LONG)], "task")
    assert saver.sweep(Retention(older_than=30 * DAY)).deleted_threads == 3
    assert database.run("SELECT DISTINCT thread_id FROM writes") == [("n",)]
    saver.delete_thread("n")
    assert set(database.counts().values()) == {0}


def test_an_unreadable_thread_does_not_stop_a_sweep(store: Store) -> None:
    key = [EncryptedSerializer.from_pycryptodome_aes(key=bytes([number]) * 16) for number in range(2)]
    for number, name in enumerate(("a", "b", "c")):
        with store.open(serde=key[number % 2]) as saver:
            put(saver, name, 1, days=40)
    with store.open(serde=key[0]) as saver:
        done = saver.sweep(Retention(older_than=30 * DAY))
        assert (done.threads, done.deleted_threads) == (3, 2)
        assert [saver.thread_exists(name) for name in "abc"] == [False, True, False]
        assert saver.sweep(Retention(max_bytes=0)).deleted_threads == 1


# By kind of database: what is set in a row of a thread.
DAMAGE = {
    "shorter": {"postgres": "checkpoints SET blob_versions = '{}'", "sqlite": "checkpoints SET blob_versions = '[]'"},
    "no texts": {
        "postgres": "checkpoints SET blob_versions = '{NULL}'",
        "sqlite": "checkpoints SET blob_versions = '[[]]'",
    },
    "no list": {"postgres": "blobs SET chunks = '7'", "sqlite": "checkpoints SET blob_versions = '7'"},
    "no JSON": {"postgres": "blobs SET chunks = '['", "sqlite": "blobs SET chunks = '['"},
}


@pytest.mark.leaves_damage("lists of names are changed by hand")
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_thread_does_not_stop_a_sweep(
    saver: CheckpointSaver, database: Database, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    """A prune says what is damaged; a sweep that prunes leaves the thread, says so, and goes on with the others.

    What is expired is deleted, as `delete_thread` does.
    """
    for name in ("a", "b", "c", "d"):
        for number in (1, 2):
            put(saver, name, number, days=1 if name == "d" else 40)
    database.run(f"UPDATE {DAMAGE[damage][database.kind]} WHERE thread_id = 'b'")
    with pytest.raises(CorruptCheckpoint, match=r"thread 'b': .* is damaged|is not a list of names"):
        saver.prune(["b"])
    done = saver.sweep(Retention(keep_last=1))
    assert (done.threads, done.deleted_checkpoints, done.complete) == (3, 3, True)
    assert "leaves thread 'b' as it is" in caplog.text
    caplog.clear()
    done = saver.sweep(Retention(older_than=30 * DAY))
    assert (done.threads, done.deleted_threads, done.complete) == (4, 3, True)
    assert "leaves thread" not in caplog.text
    assert [saver.thread_exists(name) for name in "abcd"] == [False, False, False, True]


async def test_a_saver_is_closed_on_the_loop_that_its_sweep_waits_for(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection belongs to the loop, which stands still while it closes the saver."""
    waits = threading.Event()
    schedule = asyncio.run_coroutine_threadsafe

    def scheduled(*args: Any) -> Any:
        waits.set()
        return schedule(*args)

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", scheduled)
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as connection:
        saver = PostgresSaver(connection)
        await saver.asetup()
        before = sweepers()
        waiting = PostgresSaver(connection, retention=Retention(older_than=DAY, every=0.001))
        (worker,) = sweepers() - before
        assert waits.wait(300)  # The loop stands still.
        waiting.close()
        await asyncio.to_thread(worker.join)


def test_a_hook_may_close_the_saver_that_sweeps(store: Store) -> None:
    """It then runs on the OS thread of the sweep."""
    closed = threading.Event()

    def close(event: OperationEvent) -> None:
        if threading.current_thread().name == "checkpoint-sweep":
            saver.close()
            closed.set()

    before = sweepers()
    saver = store.open(retention=Retention(older_than=DAY, every=0.1), on_operation=close)
    (worker,) = sweepers() - before
    assert closed.wait(300)
    worker.join()
