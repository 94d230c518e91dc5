"""Ctrl-C at any moment, in any OS thread: nobody hangs, and nothing that was acknowledged is lost."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.storm import INTERRUPTS, THREADS

# Seconds; it takes five.
PATIENCE = 300


@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals to send to a thread")
@pytest.mark.parametrize("who", ["main", "all"])
def test_a_storm_of_interrupts_on_a_sqlite_file(tmp_path: Path, who: str) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.crash.storm"]
    done = subprocess.run(
        [*command, str(tmp_path / "checkpoints.db"), str(seed), who],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    stored, interrupted = map(int, done.stdout.split())
    assert stored > THREADS
    # Beside other work, many come in the same moment, and count as one.
    assert interrupted > INTERRUPTS / 10
