"""SQLite while others read and lock the file, on a full or read-only disk, and after a power cut."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from langgraph_checkpoint_custom import SqliteSaver, StorageError
from tests.behaviour.helpers import anywhere, id_of
from tests.conftest import APIS, needs_error_codes, unprivileged_folder
from tests.crash.full_disk import mounted, work_until
from tests.crash.processes import Process
from tests.crash.programs import Operation, advance, after, hold_lock, hold_snapshot, number_of, seen, unfinished, write
from tests.invariants import check_invariants
from tests.stores import Client, Store

CUTS = 15
MANY = 300
# The number of pages after which SQLite tries to move the WAL into the file, and the bytes of a page.
WAL_PAGES, PAGE = 1000, 4096
BALLAST = 3_000_000
NOT_WRITABLE = "not writable for this user|that this user may write there"


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints.db"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 8 MB. With the ballast on it, there is no space to move a WAL of 1000 pages into the file."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with mounted(folder, "size=8m"):
        yield folder


def store_of(path: Path) -> Store:
    return Store("sqlite", f"sqlite:///{path}")


def check(path: Path, number: int) -> None:
    """The file is sound, and has the results of `number` operations."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with SqliteSaver(path) as saver:
        assert seen(saver, "thread") == after(number)
    # The last of them may be writes that wait for their checkpoint.
    check_invariants(store_of(path), early_writes=unfinished("thread", number))


async def test_a_read_transaction_that_never_ends_delays_no_write_and_no_close(path: Path, api: str) -> None:
    wal = Path(f"{path}-wal")
    async with SqliteSaver(path, busy_timeout=0) as saver:
        client = Client(saver, api)
        await advance(client, "thread", 0, 3)
        with Process(hold_snapshot, str(path)) as reader:
            assert reader.receive() == 1
            await advance(client, "thread", 3, MANY)
            # So many that SQLite has tried to empty the WAL, which the reader prevents.
            assert wal.stat().st_size > WAL_PAGES * PAGE
            reader.send("again")
            assert reader.receive() == 1
            async with SqliteSaver(path, busy_timeout=0) as another:
                assert seen(another, "thread") == after(MANY)
        # When the reader has ended, the WAL starts again and does not grow further.
        await advance(client, "thread", MANY, MANY + 1)
        size = wal.stat().st_size
        await advance(client, "thread", MANY + 1, MANY + 30)
        assert wal.stat().st_size == size
    check(path, MANY + 30)


async def test_the_first_read_of_a_saver_does_not_wait_for_a_process_that_locks_the_file(path: Path, api: str) -> None:
    async with SqliteSaver(path) as saver:
        await advance(Client(saver, api), "thread", 0, 3)
    with Process(hold_lock, str(path), 600.0) as other:
        assert other.receive() == "locked"
        async with SqliteSaver(path, busy_timeout=0.1) as saver:
            assert [id_of(found) for found in await Client(saver, api).all(anywhere())] == [Operation(0).checkpoint_id]


async def test_a_process_that_is_killed_with_the_lock_leaves_neither_lock_nor_change(path: Path, api: str) -> None:
    async with SqliteSaver(path) as saver:
        client = Client(saver, api)
        await advance(client, "thread", 0, 3)
        with Process(hold_lock, str(path), 600.0) as other:
            assert other.receive() == "locked"
            waiting = asyncio.ensure_future(advance(client, "thread", 3, 6))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            assert other.kill()
            await waiting
    check(path, 6)


async def fill(client: Client) -> int:
    """Write until the disk is full; returns the number of completed operations."""
    done, error = await work_until("disk is full; nothing of this operation was stored", client)
    assert error.sqlstate == "SQLITE_FULL"
    return done


@needs_error_codes
async def test_a_full_disk_raises_and_loses_nothing_and_more_space_is_enough(disk: Path, api: str) -> None:
    path = disk / "checkpoints.db"
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(BALLAST))
    async with SqliteSaver(path) as saver:
        client = Client(saver, api)
        number = await fill(client)
        for _ in range(3):
            with pytest.raises(StorageError, match="disk is full"):
                await advance(client, "thread", number, number + 1)
            assert seen(saver, "thread") == after(number)
        ballast.unlink()
        await advance(client, "thread", number, number + 2)
        assert seen(saver, "thread") == after(number + 2)
    check(path, number + 2)


@needs_error_codes
async def test_closing_a_saver_on_a_full_disk_loses_nothing(disk: Path, api: str) -> None:
    path = disk / "checkpoints.db"
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(BALLAST))
    async with SqliteSaver(path) as saver:
        number = await fill(Client(saver, api))
    ballast.unlink()
    check(path, number)


@needs_error_codes
async def test_a_folder_that_is_not_writable_raises_and_works_when_it_is(api: str) -> None:
    with unprivileged_folder() as folder:
        path = folder / "checkpoints.db"
        async with SqliteSaver(path) as saver:
            await advance(Client(saver, api), "thread", 0, 3)
        folder.chmod(0o500)
        async with SqliteSaver(path) as saver:
            client = Client(saver, api)
            with pytest.raises(StorageError, match=NOT_WRITABLE):
                await advance(client, "thread", 3, 4)
            folder.chmod(0o700)
            await advance(client, "thread", 3, 6)
        check(path, 6)


def test_a_power_cut_loses_nothing_that_was_acknowledged_and_leaves_a_sound_file(tmp_path: Path, api: str) -> None:
    seed = random.SystemRandom().randrange(10**9)
    print(f"seed: {seed}")
    randomly = random.Random(seed)
    path = tmp_path / "checkpoints.db"
    done = 0
    cuts: list[tuple[Path, int]] = []
    with Process(write, store_of(path), api, "thread") as writer:
        done = writer.receive()
        for cut in range(CUTS):
            copy = tmp_path / f"{cut}.db"
            # The file and the WAL are not copied at the same moment. A reader makes sure that they belong together:
            # while it reads, nothing newer gets into the file, and the WAL does not start again.
            with Process(hold_snapshot, str(path)) as reader:
                reader.receive()
                done = [done, *writer.received()][-1]
                durable = Path(f"{path}-wal").stat().st_size
                time.sleep(randomly.uniform(0, 0.020))
                shutil.copyfile(path, copy)
                wal = Path(f"{path}-wal").read_bytes()
            # What was not synced may be missing, or anything.
            torn = wal[: randomly.randint(durable, len(wal))] + randomly.randbytes(randomly.choice([0, 5_000]))
            Path(f"{copy}-wal").write_bytes(torn)
            cuts.append((copy, done))

    for copy, done in cuts:
        with SqliteSaver(copy) as saver:
            number = number_of(seen(saver, "thread"))
        assert number >= number_of(after(done)), f"{done} were done"
        check(copy, number)
