"""Ctrl-C at any moment, in any OS thread: no call hangs, and nothing that was acknowledged is lost."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.storm import INTERRUPTS, THREADS

# Seconds; it takes five.
TIMEOUT = 300


@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals to send to a thread")
def test_interrupts_at_random_moments_lose_nothing_on_a_sqlite_file(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.crash.storm"]
    done = subprocess.run(
        [*command, str(tmp_path / "checkpoints.db"), str(seed)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    stored, interrupted = map(int, done.stdout.split())
    assert stored > THREADS
    # On a busy machine, many come at the same moment, and count as one.
    assert interrupted > INTERRUPTS / 10
