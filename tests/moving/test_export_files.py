"""A file is imported only if it is an export, and complete."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from zstandard import ZstdCompressor

from langgraph_checkpoint_custom import CheckpointSaver, ConfigError
from langgraph_checkpoint_custom.tools.exchange import (
    BrokenExport,
    ExchangeReport,
    count_exported,
    export_file,
    import_file,
    transfer,
)
from tests.behaviour.helpers import peak
from tests.moving.files import exported, packed, unpacked
from tests.moving.official import step

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")


def test_an_incomplete_export_is_refused(saver: CheckpointSaver, other: CheckpointSaver, tmp_path: Path) -> None:
    for name in "tu":
        step(saver, name, None, a=[name * 4000])
    export_file(saver, tmp_path / "all.zst")
    full = unpacked(tmp_path / "all.zst")
    lines = full.splitlines(keepends=True)
    cases = {
        "not an export": b"[1]\n",
        "is not an export of": b"",
        "format 2": lines[0].replace(b":1}", b":2}") + b"".join(lines[1:]),
        "ends too early": b"".join(lines[:-1]),
        "in the middle of thread 't'": b"".join(lines[:3]),
        "differ from those that were exported": full.replace(b'"value":"', b'"value":"AAAA', 1),
        "lacks some": b"".join(lines[: lines.index(b'{"thread":"u"}\n')]) + lines[-1],
    }
    for number, (words, text) in enumerate(cases.items()):
        with pytest.raises(BrokenExport, match=words):
            import_file(other, packed(tmp_path / f"{number}.zst", text))
    with pytest.raises(BrokenExport, match="in the middle of thread 't'"):  # Also if that is not asked for.
        import_file(other, packed(tmp_path / "cut.zst", b"".join(lines[:3])), threads=["u"])
    (tmp_path / "text").write_bytes(full)
    with pytest.raises(BrokenExport, match="Zstandard"):
        import_file(other, tmp_path / "text")
    with pytest.raises(ConfigError, match="already exists"):
        export_file(saver, tmp_path / "all.zst")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says how much memory a process takes")
def test_a_line_that_unpacks_to_gigabytes_is_refused_before_it_is_in_memory(
    other: CheckpointSaver, tmp_path: Path
) -> None:
    path = tmp_path / "bomb.zst"
    with path.open("wb") as file, ZstdCompressor().stream_writer(file) as packed_file:
        packed_file.write(b'{"langgraph-checkpoint-custom":1}\n{"thread":"')
        for _ in range(1024):
            packed_file.write(bytes(1 << 20))
    assert path.stat().st_size < 1_000_000

    def refused() -> None:
        with pytest.raises(BrokenExport, match=r"line 2: it unpacks to more than 256,000,000 bytes.*largest_row"):
            import_file(other, path)

    assert peak(refused) < 600_000_000
    assert peak(lambda: count_exported(path)) < 600_000_000
    assert list(other.threads()) == []


def test_the_size_limit_of_a_row_can_be_set(
    saver: CheckpointSaver, other: CheckpointSaver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transfer has none."""
    step(saver, "t", None, a=[[hashlib.sha256(bytes([n])).hexdigest() for n in range(200)]])
    export_file(saver, tmp_path / "all.zst")
    with pytest.raises(BrokenExport, match="more than 1,000 bytes"):
        import_file(other, tmp_path / "all.zst", largest_row=1000)
    assert import_file(other, tmp_path / "all.zst", largest_row=1_000_000).threads == 1
    defaults: Any = import_file.__kwdefaults__
    monkeypatch.setitem(defaults, "largest_row", 1000)
    with pytest.raises(BrokenExport, match="more than 1,000 bytes"):
        import_file(other, tmp_path / "all.zst")
    assert transfer(saver, other).threads == 1


MALFORMED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "not an object with 1": lambda row: [1],
    "not an object with 1 ": lambda row: {"blob": 1, "write": 2},
    "'table' is not a kind of row": lambda row: {"table": {}},
    "not an object with 6": lambda row: {"blob": []},
    "the blob is not an object": lambda row: {"blob": {"channel": "a"}},
    "does not have the columns": lambda row: {"blob": {**_without(row["blob"], "value"), "worth": ""}},
    "column channel": lambda row: {"blob": row["blob"] | {"channel": 5}},
    "column version": lambda row: {"blob": row["blob"] | {"version": None}},
    "column checkpoint_ns": lambda row: {"blob": row["blob"] | {"checkpoint_ns": "a\0b"}},
    "surrogates": lambda row: {"blob": row["blob"] | {"type": "\ud800"}},
    "base64|padding|characters|data": lambda row: {"blob": row["blob"] | {"value": "€"}},
    "padding|multiple": lambda row: {"blob": row["blob"] | {"value": "AAA"}},
    "Expecting value": lambda row: {"blob": row["blob"] | {"chunks": "no JSON"}},
    "column chunks": lambda row: {"blob": row["blob"] | {"chunks": "[1]"}},
    "column chunks ": lambda row: {"blob": row["blob"] | {"chunks": '{"a":1}'}},
}


def _without(row: dict[str, Any], column: str) -> dict[str, Any]:
    return {name: cell for name, cell in row.items() if name != column}


def test_an_invalid_row_is_refused_with_its_line_number(
    saver: CheckpointSaver, other: CheckpointSaver, tmp_path: Path
) -> None:
    step(saver, "s", None, a=["s" * 4000])
    step(saver, "t", None, a=["t" * 4000])
    step(other, "s", None, a=["there"])  # One is compared first.
    export_file(saver, tmp_path / "all.zst")
    lines = unpacked(tmp_path / "all.zst").splitlines(keepends=True)
    blob_lines = [number for number, line in enumerate(lines) if line.startswith(b'{"blob":')]
    for at in (blob_lines[0], blob_lines[-1]):
        for words, change in MALFORMED.items():
            line = json.dumps(change(json.loads(lines[at]))).encode() + b"\n"
            text = b"".join([*lines[:at], line, *lines[at + 1 :]])
            with pytest.raises(BrokenExport, match=rf"line {at + 1}: .*({words.strip()})"):
                import_file(other, packed(tmp_path / "one.zst", text))
            assert [thread.thread_id for thread in other.threads()] == ["s"]
    for at, line in (
        (1, b"no JSON\n"),
        (1, b'{"thread":["t"]}\n'),
        (1, b"[" * 100_000 + b"\n"),
        (2, b"no JSON\n"),
        (2, b'{"write":' * 100_000 + b"\n"),
        (2, b"\xff\n"),
    ):
        text = b"".join([*lines[:at], line, *lines[at + 1 :]])
        with pytest.raises(BrokenExport, match=f"line {at + 1}: "):
            import_file(other, packed(tmp_path / "one.zst", text))


def test_joined_exports_are_not_imported_in_part(
    saver: CheckpointSaver, other: CheckpointSaver, tmp_path: Path
) -> None:
    one = exported(saver, 1, tmp_path).read_bytes()
    (tmp_path / "joined.zst").write_bytes(one + one)
    with pytest.raises(BrokenExport, match="goes on after the end"):
        import_file(other, tmp_path / "joined.zst")


def test_of_two_exports_to_one_file_the_later_one_is_complete(
    saver: CheckpointSaver, other: CheckpointSaver, tmp_path: Path
) -> None:
    for number in range(20):
        step(saver, f"t{number}", None, a=[f"{number}" * 100_000])
    path = tmp_path / "all.zst"
    later: list[ExchangeReport] = []

    def begin_another(threads: int) -> None:
        if threads == 10:
            step(saver, "new", None, a=["later"])
            later.append(export_file(saver, path))

    with pytest.raises(ConfigError, match="has begun meanwhile"):
        export_file(saver, path, progress=begin_another)
    assert import_file(other, path) == later[0]
    assert [file.name for file in tmp_path.glob("all*")] == ["all.zst"]
