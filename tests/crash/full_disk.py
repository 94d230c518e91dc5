"""A small disk, and work until it is full."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from langgraph_checkpoint_custom import StorageError
from tests.crash.programs import advance
from tests.needs import need
from tests.stores import Client


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A disk in memory, mounted on a folder for the duration of a block."""
    command = ["mount", "-t", "tmpfs", "-o", options, "checkpoint-test", str(folder)]
    mounts = os.geteuid() == 0 and subprocess.run(command, capture_output=True).returncode == 0
    need(mounts, "the right to mount a small disk: root has it")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


async def work_until(match: str, client: Client) -> tuple[int, StorageError]:
    """Write until an error refuses it; returns the number of completed operations, and the error."""
    done = 0

    async def work() -> None:
        nonlocal done
        while True:
            await advance(client, "thread", done, done + 1)
            done += 1

    with pytest.raises(StorageError, match=match) as caught:
        await work()
    assert caught.value.operation in ("put", "put_writes")
    return done, caught.value
