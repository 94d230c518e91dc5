"""Write public.txt: `python -m tests.public`. A line that goes needs a major version."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.public.listing import FILE, listing

with tempfile.TemporaryDirectory() as folder:
    FILE.write_text("".join(f"{line}\n" for line in listing(Path(folder))), "utf-8")
