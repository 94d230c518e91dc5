"""Install packages that a test needs and that are missing here."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest


def pip(*arguments: str) -> None:
    """Run pip; skips the test if that fails, as it does without a network."""
    command = [sys.executable, "-m", "pip", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        reason = f"pip {' '.join(arguments)}: {done.stderr.strip()}"
        warnings.warn(f"a test with another package is skipped: {reason}", stacklevel=1)
        pytest.skip(f"NOT TESTED: {reason}")
