"""Files that any of our databases can be written to and filled from: `export_file` and `import_file`.

Such a file holds JSON lines, compressed with Zstandard:

    {"langgraph-checkpoint-custom":1}
    {"thread":"1"}
    {"checkpoint":{…}} {"blob":{…}} {"write":{…}} {"label":{…}} …
    {"end":"1","rows":7,"sha256":"…"}
    …
    {"threads":1}

The rows of a thread are the columns of the tables, bytes as base64; all are of one point in time. `sha256` is that of
their lines, each with its line feed. After a thread a frame of Zstandard may end, and the next one begin. Values stay
as they are stored, compressed or encrypted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from shutil import copyfileobj
from tempfile import SpooledTemporaryFile
from typing import IO, Any, BinaryIO

from zstandard import FLUSH_FRAME, ZstdCompressor, ZstdDecompressor, ZstdError

from langgraph_checkpoint_custom.core.exchange import (
    PAGE,
    export_thread,
    import_rows,
    key_of_checkpoint,
    kind_of,
    next_thread,
)
from langgraph_checkpoint_custom.core.model import thread_text
from langgraph_checkpoint_custom.core.read import thread_places
from langgraph_checkpoint_custom.errors import CheckpointError, ClaimLost, ConfigError, ThreadBusy, ThreadExists
from langgraph_checkpoint_custom.saver import CheckpointSaver

FORMAT = "langgraph-checkpoint-custom"
VERSION = 1
# Bytes of lines after which a frame ends with its thread: what a resumed export has to write again at most, but for the
# thread. Smaller frames compress less.
FRAME = 4_000_000
LEVEL = 3
# Bytes of a thread that are in memory until all of it is read; more goes to a temporary file.
SPOOL = 32_000_000
# Bytes of a thread's rows that wait to be stored together.
BATCH = 4_000_000
# Who claims a thread that is imported.
IMPORTER = "an import"
# Why a thread may not be stored while the others are.
REFUSALS = (ThreadExists, ThreadBusy, ClaimLost)

# Told after each thread how many are done.
Progress = Callable[[int], None]


@dataclass
class Exchanged:
    """What an export or an import has done.

    Attributes:
        threads: Threads that were written or stored, and checked.
        rows: Their rows.
        problems: By thread, why it was not stored.
    """

    threads: int = 0
    rows: int = 0
    problems: dict[str, str] = field(default_factory=dict)


class BrokenExport(CheckpointError):
    """A file is not what an export has written, or not all of it."""


def export_file(saver: CheckpointSaver, path: str | Path, *, progress: Progress = lambda threads: None) -> Exchanged:
    """Write all threads of a saver to a file, while runs go on.

    Until it is complete the file's name ends with `.part`. An export that was killed goes on where that ends.

    Args:
        saver: Whose threads; those of its tenant, if it has one.
        path: The file, which must not be there yet.
        progress: Told after each thread.
    """
    path = Path(path)
    if path.exists():
        raise ConfigError(f"{path} is there already; move it away, or choose another name")
    part = path.with_name(f"{path.name}.part")
    last, done = _whole_threads(part)
    with (
        part.open("ab") as out,
        ZstdCompressor(level=LEVEL).stream_writer(out, closefd=False) as packed,
        SpooledTemporaryFile(SPOOL) as spool,
    ):
        size = 0
        if last is None:
            packed.write(_line({FORMAT: VERSION}))
        thread_id = last or ""
        while (found := saver._driver.run(next_thread(saver._dialect, thread_id))) is not None:
            thread_id = found
            end = _told(saver, thread_id, spool)
            size += spool.tell()
            spool.seek(0)
            packed.write(_line({"thread": thread_id}))
            copyfileobj(spool, packed)
            packed.write(_line(end))
            if size >= FRAME:
                packed.flush(FLUSH_FRAME)
                size = 0
            done.threads += 1
            done.rows += end["rows"]
            progress(done.threads)
        packed.write(_line({"threads": done.threads}))
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.rename(path)
    return done


def import_file(saver: CheckpointSaver, path: str | Path, *, progress: Progress = lambda threads: None) -> Exchanged:
    """Store the threads of a file, each checked after it was stored; one that was killed may be started again.

    A thread that has other checkpoints than the file has is a problem, and stays as it is.

    Raises:
        BrokenExport: The file is of another kind or of a later version, or its end is missing; the threads before that
            are stored.
    """
    done = Exchanged()
    lines = _read(Path(path))
    head = json.loads(next(lines, b"null"))
    if not isinstance(head, dict) or FORMAT not in head:
        raise BrokenExport(f"{path} is no export of {FORMAT}")
    if head[FORMAT] != VERSION:
        raise BrokenExport(f"{path} has form {head[FORMAT]!r}, which this version does not know; upgrade {FORMAT}")
    for line in lines:
        what = json.loads(line)
        if "threads" in what:
            if what["threads"] != done.threads + len(done.problems):
                raise BrokenExport(f"{path} has lost some of its {what['threads']} threads")
            return done
        thread_id = thread_text(what["thread"])
        try:
            done.rows += _Import(saver, thread_id).run(lines)
            done.threads += 1
        except REFUSALS as error:
            done.problems[thread_id] = str(error)
        progress(done.threads)
    raise BrokenExport(f"{path} ends too early; export again, which goes on where a .part file ends")


def count_exported(path: str | Path) -> int:
    """The number of threads in a file, which is read for that to its end."""
    return sum(line.startswith(b'{"thread":') for line in _read(Path(path)))


def transfer(
    source: CheckpointSaver, target: CheckpointSaver, *, progress: Progress = lambda threads: None
) -> Exchanged:
    """Store the threads of a saver with another one, of whatever database, each checked after it was stored.

    May run beside live traffic on the source and be started again: a thread that has changed since is stored anew. One
    that has checkpoints of its own in the target is a problem, and stays as it is.
    """
    done = Exchanged()
    thread_id = ""
    with SpooledTemporaryFile(SPOOL) as spool:
        while (found := source._driver.run(next_thread(source._dialect, thread_id))) is not None:
            thread_id = found
            end = _told(source, thread_id, spool)
            if _told(target, thread_id) != end:
                spool.write(_line(end))
                spool.seek(0)
                try:
                    _Import(target, thread_id, anew=True).run(iter(spool))
                except REFUSALS as error:
                    done.problems[thread_id] = str(error)
            if thread_id not in done.problems:
                done.threads += 1
                done.rows += end["rows"]
            progress(done.threads)
    return done


class _Import:
    """One thread on its way into the tables: blobs and writes first, so that no checkpoint lacks any.

    A thread that takes more than one batch is claimed meanwhile, so that `doctor --fix` leaves its values alone.

    Args:
        saver: Where to.
        thread_id: Which thread.
        anew: Whether to delete what is there, if all its checkpoints come again.
    """

    def __init__(self, saver: CheckpointSaver, thread_id: str, *, anew: bool = False) -> None:
        self._anew = anew
        self._saver = saver
        self._thread_id = thread_id
        self._checkpoints: list[bytes] = []
        self._batch: list[bytes] = []
        self._size = 0
        self._held = ExitStack()
        self._is_claimed = False
        self._busy: ThreadBusy | None = None
        rows = saver._driver.run(thread_places(saver._dialect, thread_id))
        self._there = {(row[0], row[1]) for row in rows}

    def run(self, lines: Iterator[bytes]) -> int:
        """Store what comes until the end of the thread; the number of its rows."""
        with self._held:
            return self._run(lines)

    def _run(self, lines: Iterator[bytes]) -> int:
        try:
            end = self._take(lines)
        except BrokenExport:
            if not self._there:
                self._saver.delete_thread(self._thread_id)
            raise
        for line in self._checkpoints:
            self._store(line)
        self._flush()
        if self._busy:
            raise self._busy
        if self._is_refused:
            raise ThreadExists(f"thread {self._thread_id!r} was not imported: it has checkpoints of its own")
        if _told(self._saver, self._thread_id) != end:
            raise ThreadExists(
                f"thread {self._thread_id!r} has other rows now than the file, since it was there before"
            )
        count: int = end["rows"]
        return count

    def _take(self, lines: Iterator[bytes]) -> Any:
        """Read the lines of the thread, which have its checkpoints first, and store all but these; gives its end."""
        digest = sha256()
        count = 0
        for line in lines:
            if line.startswith(b'{"end":'):
                end = json.loads(line)
                if end != _end(self._thread_id, count, digest.hexdigest()):
                    raise BrokenExport(f"the lines of thread {self._thread_id!r} are not those that were exported")
                return end
            count += 1  # noqa: SIM113  # Not the end.
            digest.update(line)
            if kind_of(line.decode()) == "checkpoint":
                self._checkpoints.append(line)
            else:
                self._store(line)
        raise BrokenExport(f"the file ends in the middle of thread {self._thread_id!r}")

    @cached_property
    def _is_refused(self) -> bool:
        """Whether the thread has checkpoints that the file has not; asked once these are known."""
        refused = bool(self._there - {key_of_checkpoint(line.decode()) for line in self._checkpoints})
        if self._anew and not refused:
            self._saver.delete_thread(self._thread_id)
        return refused

    def _store(self, line: bytes) -> None:
        self._batch.append(line)
        self._size += len(line)
        if len(self._batch) == PAGE or self._size >= BATCH:
            if not self._is_claimed and not self._busy:
                self._claim()
            self._flush()

    def _claim(self) -> None:
        try:
            self._held.enter_context(self._saver.claim(self._thread_id, owner=IMPORTER))
            self._is_claimed = True
        except ThreadBusy as error:
            # That of an import that was killed does as well, until it expires.
            if error.owner != IMPORTER:
                self._busy = error  # For the end: until then its lines are to be read.

    def _flush(self) -> None:
        if self._batch and not self._busy and not self._is_refused:
            rows = [line.decode() for line in self._batch]
            self._saver._driver.run(import_rows(self._saver._dialect, self._thread_id, rows))
        self._batch = []
        self._size = 0


def _line(what: dict[str, Any]) -> bytes:
    return json.dumps(what, separators=(",", ":")).encode() + b"\n"


def _end(thread_id: str, rows: int, digest: str) -> dict[str, Any]:
    return {"end": thread_id, "rows": rows, "sha256": digest}


def _told(saver: CheckpointSaver, thread_id: str, out: IO[bytes] | None = None) -> dict[str, Any]:
    """Read a thread, and write its lines to `out`; what ends them."""
    rows = 0
    digest = sha256()

    def begin() -> Callable[[str], None]:
        nonlocal rows, digest
        rows, digest = 0, sha256()
        if out is not None:
            out.seek(0)
            out.truncate()
        return tell

    def tell(text: str) -> None:
        nonlocal rows
        line = text.encode() + b"\n"
        rows += 1
        digest.update(line)
        if out is not None:
            out.write(line)

    saver._driver.run(export_thread(saver._dialect, thread_id, begin))
    return _end(thread_id, rows, digest.hexdigest())


def _read(path: Path) -> Iterator[bytes]:
    """The lines of a file."""
    rest = b""
    with path.open("rb") as file, ZstdDecompressor().stream_reader(file, read_across_frames=True) as unpacked:
        while chunk := _chunk(unpacked, path):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line + b"\n"


def _chunk(unpacked: BinaryIO, path: Path) -> bytes:
    try:
        return unpacked.read(1 << 20)
    except ZstdError as error:
        raise BrokenExport(f"{path} is not compressed with Zstandard, or damaged: {error}") from error


def _whole_threads(part: Path) -> tuple[str | None, Exchanged]:
    """Cut a file behind its last whole frame; the last thread before that, and what there is."""
    done = Exchanged()
    last: str | None = None
    if not part.exists():
        return None, done
    whole = 0
    with part.open("r+b") as file:
        while True:
            frame = _frame(file)
            if frame is None:
                break
            whole = file.tell()
            last = last or ""
            for line in frame.splitlines():
                if line.startswith(b'{"end":'):
                    end = json.loads(line)
                    last = end["end"]
                    done.threads += 1
                    done.rows += end["rows"]
        file.truncate(whole)
    return last, done


def _frame(file: BinaryIO) -> bytes | None:
    """The content of the frame that begins here, or None if it is not whole; the file is behind it then."""
    unpacker = ZstdDecompressor().decompressobj()
    content = []
    try:
        while chunk := file.read(1 << 16):
            content.append(unpacker.decompress(chunk))
            if unpacker.eof:
                file.seek(-len(unpacker.unused_data), os.SEEK_CUR)
                return b"".join(content)
    except ZstdError:
        pass
    return None
