"""Files of exports, and what they contain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from zstandard import ZstdCompressor, ZstdDecompressor

from langgraph_checkpoint_custom import CheckpointSaver
from langgraph_checkpoint_custom.tools.exchange import export_file
from tests.moving.official import step


def export_rows(path: Path) -> int:
    """The rows in a file."""
    return sum(line["rows"] for line in lines_of(path) if "end" in line)


def fill_large(saver: CheckpointSaver) -> None:
    """A thread that takes an import more than one batch, with labels."""
    location = None
    for number in range(60):
        location = step(saver, "t", location, a=[f"{number}" * 400])
        saver.label(location, f"label {number}")


def exported(saver: CheckpointSaver, threads: int, folder: Path) -> Path:
    """A file with that many threads of one checkpoint."""
    for number in range(threads):
        step(saver, f"t{number}", None, a=[number])
    path = folder / "all.zst"
    export_file(saver, path)
    return path


def unpacked(path: Path) -> bytes:
    with path.open("rb") as file:
        return ZstdDecompressor().stream_reader(file, read_across_frames=True).read()


def lines_of(path: Path) -> list[dict[str, Any]]:
    return list(map(json.loads, unpacked(path).splitlines()))


def packed(path: Path, text: bytes) -> Path:
    path.write_bytes(ZstdCompressor().compress(text))
    return path
