"""PostgreSQL on a full disk: one clear error, nothing half-stored, and it works again when there is space."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from langgraph_checkpoint_custom import ConnectionLost, PostgresSaver, StorageError
from tests.conftest import APIS
from tests.crash.full_disk import mounted, work_until
from tests.crash.programs import advance, after, seen, unfinished
from tests.faults.cluster import USER, Cluster, folder_of_user, running_cluster
from tests.invariants import check_invariants
from tests.stores import Client, Store

MEGABYTE = 1_000_000


@pytest.fixture
def disk(postgres_programs: None) -> Iterator[Path]:
    """A disk of 100 MB that belongs to the server's user."""
    with folder_of_user() as folder:
        options = f"size=100m,uid={USER.pw_uid},gid={USER.pw_gid},mode=0700"
        with mounted(folder, options):
            yield folder


def fill_up(disk: Path, *, leave: int) -> Path:
    """A file that leaves at most `leave` bytes on a disk while a server writes to it."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        while (space := os.statvfs(disk)).f_bavail * space.f_frsize > leave:
            file.write(bytes(MEGABYTE))
    return ballast


@pytest.mark.parametrize("api", APIS)
async def test_a_full_disk_for_tables_is_one_clear_error_and_more_space_is_enough(disk: Path, api: str) -> None:
    with running_cluster() as cluster:
        with psycopg.connect(cluster.url(), autocommit=True) as server:
            server.execute(f"CREATE TABLESPACE small LOCATION '{disk}'")
            server.execute("CREATE DATABASE on_small TABLESPACE small")
            server.execute("CHECKPOINT")  # or its files would keep growing: they are created sparse
        url = cluster.url("on_small")
        async with PostgresSaver(url, max_size=2) as saver:
            saver.setup()
            client = Client(saver, api)
            ballast = fill_up(disk, leave=3 * MEGABYTE)
            number, _ = await work_until("disk is full; nothing of this operation was stored", client)
            for _ in range(3):
                with pytest.raises(StorageError, match="disk is full") as caught:
                    await advance(client, "thread", number, number + 1)
                assert caught.value.sqlstate == "53100"
                assert seen(saver, "thread") == after(number)
            ballast.unlink()
            await advance(client, "thread", number, number + 5)
            assert seen(saver, "thread") == after(number + 5)
        check_invariants(Store("postgres", url), early_writes=unfinished("thread", number + 5))


@pytest.mark.parametrize("api", APIS)
async def test_a_full_disk_for_the_log_stops_the_server_and_loses_nothing_acknowledged(disk: Path, api: str) -> None:
    """PostgreSQL stops if it cannot write its log, which is on this disk with everything else."""
    cluster = Cluster(disk)
    cluster.make()
    cluster.start()
    try:
        async with PostgresSaver(cluster.url(), max_size=2, pool_timeout=0.3) as saver:
            saver.setup()
            client = Client(saver, api)
            ballast = fill_up(disk, leave=3 * MEGABYTE)
            number, _ = await work_until("disk is full|connection", client)
            cluster.stop()
            with pytest.raises(ConnectionLost):
                await client.get_tuple({"configurable": {"thread_id": "thread"}})
            ballast.unlink()
            cluster.start()
            # The reply to the last one may have been lost.
            assert seen(saver, "thread") in (after(number), after(number + 1))
            await advance(client, "thread", number, number + 5)
            assert seen(saver, "thread") == after(number + 5)
        check_invariants(Store("postgres", cluster.url()), early_writes=unfinished("thread", number + 5))
    finally:
        cluster.stop()
