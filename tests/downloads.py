"""What tests download: packages that are not in an extra, and the tests of other projects."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

from tests.needs import need

# Since Python 3.11.4.
_SAFELY: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def pip(command: str, wanted: str, folder: Path, *options: str) -> None:
    """Get a release into a folder by `pip install` or `pip download`; skips the test without a network."""
    place = {"install": "--target", "download": "--dest"}[command]
    arguments = ["--quiet", "--retries=1", "--no-deps", *options, place, str(folder), wanted]
    done = subprocess.run(
        [sys.executable, "-m", "pip", command, *arguments], check=False, capture_output=True, text=True
    )
    said = done.stderr.strip().rpartition("\n")[2]
    need(done.returncode == 0, f"a package index that has {wanted}: {said}")


def suite_of(wanted: str, folder: Path) -> Path:
    """The tests of a release, from its source distribution; without its code, which would hide the installed one."""
    # Its metadata needs hatchling, which is installed here.
    pip("download", wanted, folder, "--no-build-isolation", "--no-binary=:all:")
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        members = [member for member in source if re.match(r"[^/]+/(tests/|pyproject\.toml$)", member.name)]
        source.extractall(folder, members, **_SAFELY)
    return folder / archive.name.removesuffix(".tar.gz")
