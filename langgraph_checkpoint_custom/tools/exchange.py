"""Files that any of our databases can be written to and filled from: `export_file` and `import_file`.

Such a file holds JSON lines, compressed with Zstandard:

    {"langgraph-checkpoint-custom":2}
    {"thread":"1"}
    {"checkpoint":{…}} {"blob":{…}} {"write":{…}} {"label":{…}} …
    {"end":"1","rows":7,"sha256":"…"}
    …
    {"threads":1}

The rows of a thread are the columns of the tables, bytes as base64; all are of one point in time. `sha256` is that of
their lines, each with its line feed. Where the threads of all tenants were exported, `tenant` in the lines `thread` and
`end` says whose they are; version 1 had no such threads. After a thread a frame of Zstandard may end, and the next one
begin. Values stay as they are stored, compressed or encrypted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from shutil import copyfileobj
from tempfile import SpooledTemporaryFile
from typing import IO, Any, BinaryIO

from zstandard import FLUSH_FRAME, ZstdCompressor, ZstdDecompressor, ZstdError

from langgraph_checkpoint_custom.errors import CheckpointError, ConfigError, ThreadBusy, ThreadExists
from langgraph_checkpoint_custom.model.keys import flag, thread_text
from langgraph_checkpoint_custom.operations.export_rows import (
    ImportedRow,
    export_thread,
    import_thread,
    next_thread,
    read_row,
)
from langgraph_checkpoint_custom.saver import CheckpointSaver

FORMAT = "langgraph-checkpoint-custom"
VERSION = 2
READABLE = (1, 2)
END = b'{"end":'
# Bytes of lines after which a frame ends with its thread: what a resumed export has to write again at most, but for the
# thread. Smaller frames compress less.
FRAME = 4_000_000
LEVEL = 3
# Bytes of a thread that are in memory until all of it is read; more goes to a temporary file.
SPOOL = 32_000_000
# Bytes of a row in a file that are read; larger ones have to be expected, since a few bytes can unpack to any number.
LARGEST_ROW = 256_000_000
# Why a thread may not be stored while the others are.
REFUSALS = (ThreadExists, ThreadBusy)

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


def export_file(
    saver: CheckpointSaver,
    path: str | Path,
    *,
    progress: Progress = lambda threads: None,
    tenants: bool = True,
) -> Exchanged:
    """Write all threads of a saver to a file, while runs go on.

    Until it is complete the file's name ends with `.part`. An export that was killed goes on where that ends.

    Args:
        saver: Whose threads; those of its tenant, if it has one, who is not named in the file then.
        path: The file, which must not be there yet.
        progress: Told after each thread.
        tenants: Whether the threads of all tenants go along.
    """
    flag("tenants", tenants)
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
        for own, thread_id in _threads(saver, tenants, last or ("", "")):
            end = _told(own, thread_id, spool)
            size += spool.tell()
            spool.seek(0)
            # A tenant's saver does not tell whose they are: they may become another one's.
            whose = {} if saver is own else {"tenant": own._dialect._tenant}
            packed.write(_line({"thread": thread_id, **whose}))
            copyfileobj(spool, packed)
            packed.write(_line(end | whose))
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


def import_file(
    saver: CheckpointSaver,
    path: str | Path,
    *,
    progress: Progress = lambda threads: None,
    largest_row: int = LARGEST_ROW,
) -> Exchanged:
    """Store the threads of a file, each whole and checked, or not at all; one that was killed may be started again.

    A thread that has other rows than the file has, or that somebody has claimed, is a problem, and stays as it is. What
    the file says to be a tenant's becomes that tenant's, and is a problem for the saver of a tenant.

    Args:
        saver: Where to.
        path: The file.
        progress: Told after each thread.
        largest_row: How many bytes a row of the file may have. A small file can unpack to any number of them.

    Raises:
        BrokenExport: The file is of another kind or of a later version, it has a line that no export writes, or its end
            is missing; the threads before that are stored.
    """
    done = Exchanged()
    lines = _Lines(Path(path), largest_row)
    head = lines.told(next(lines, b"null"))
    if FORMAT not in head:
        raise BrokenExport(f"{path} is no export of {FORMAT}")
    if head[FORMAT] not in READABLE:
        raise BrokenExport(f"{path} has form {head[FORMAT]!r}, which this version does not know; upgrade {FORMAT}")
    for line in lines:
        what = lines.told(line)
        if "threads" in what:
            if what["threads"] != done.threads + len(done.problems):
                raise BrokenExport(f"{path} has lost some of its {what['threads']} threads")
            return done
        tenant = what.get("tenant") or ""
        try:
            thread_id = thread_text(what.get("thread"))
            own = saver.for_tenant(tenant) if tenant else saver
        except ConfigError as error:
            raise lines.broken(lines.number, error) from error
        if saver._dialect._tenant and tenant not in ("", saver._dialect._tenant):
            done.problems[_named(thread_id, tenant)] = f"it is of tenant {tenant!r}; import with the saver of none"
            next(line for line in lines if line.startswith(END))
            continue
        try:
            done.rows += _import(own, thread_id, lines, lines.broken, lines.number)
            done.threads += 1
        except REFUSALS as error:
            done.problems[_named(thread_id, tenant)] = str(error)
        progress(done.threads)
    raise BrokenExport(f"{path} ends too early; export again, which goes on where a .part file ends")


def count_exported(path: str | Path) -> int:
    """The number of threads in a file, which is read for that to its end."""
    return sum(line.startswith(b'{"thread":') for line in _Lines(Path(path), LARGEST_ROW))


def transfer(
    source: CheckpointSaver,
    target: CheckpointSaver,
    *,
    progress: Progress = lambda threads: None,
    tenants: bool = True,
) -> Exchanged:
    """Store the threads of a saver with another one, of whatever database, each whole and checked, or not at all.

    May run beside live traffic on the source and be started again: a thread that has changed since is stored anew, and
    what was written or labelled in the target goes. One that has checkpoints of its own in the target, or is claimed
    there, is a problem, and stays as it is.

    Args:
        source: Where from. Of a tenant's saver, that tenant's threads.
        target: Where to. What a tenant's saver gives becomes whosever the target is.
        progress: Told after each thread.
        tenants: Whether the threads of all tenants go along, to the same tenants.

    Raises:
        ConfigError: The threads of several tenants would become one tenant's.
    """
    done = Exchanged()
    flag("tenants", tenants)
    _check_targets(source, target, tenants)
    with SpooledTemporaryFile(SPOOL) as spool:
        for own, thread_id in _threads(source, tenants):
            tenant = "" if own is source else own._dialect._tenant
            to = target.for_tenant(tenant) if tenant else target
            end = _told(own, thread_id, spool)
            try:
                _store(to, thread_id, end, lambda: _rows(spool), replace=True)
                done.threads += 1
                done.rows += end["rows"]
            except REFUSALS as error:
                done.problems[_named(thread_id, tenant)] = str(error)
            progress(done.threads)
    return done


def _check_targets(source: CheckpointSaver, target: CheckpointSaver, tenants: bool) -> None:
    if target._dialect._tenant and tenants and not source._dialect._tenant and (names := source.tenants()):
        raise ConfigError(
            f"the source has threads of {len(names)} tenants, and the target is one tenant's; move those of one "
            "(source.for_tenant(…)), or those without one (tenants=False)"
        )


def _threads(
    saver: CheckpointSaver, tenants: bool, after: tuple[str, str] = ("", "")
) -> Iterator[tuple[CheckpointSaver, str]]:
    """All threads, each with the saver of its tenant or, without one, the saver; those behind a tenant and thread."""
    names = sorted(saver.tenants()) if tenants and not saver._dialect._tenant else []
    for name in ["", *names]:
        if name >= after[0]:
            own = saver.for_tenant(name) if name else saver
            thread_id: str | None = after[1] if name == after[0] else ""
            while (thread_id := own._driver.run(next_thread(own._dialect, thread_id or ""))) is not None:
                yield own, thread_id


def _named(thread_id: str, tenant: str) -> str:
    """What to call a thread among those of all tenants."""
    return f"{thread_id} (tenant {tenant})" if tenant else thread_id


def _import(
    saver: CheckpointSaver,
    thread_id: str,
    lines: Iterator[bytes],
    broken: Callable[[int, Exception], BrokenExport],
    number: int = 0,
) -> int:
    """Store the thread whose lines come until its end; the number of its rows. `number` is that of the line before."""
    with SpooledTemporaryFile(SPOOL) as spool:
        rows, digest = 0, sha256()
        for line in lines:
            if line.startswith(END):
                break
            rows += 1
            digest.update(line)
            spool.write(line)
        else:
            raise BrokenExport(f"the file ends in the middle of thread {thread_id!r}")
        end = _end(thread_id, rows, digest.hexdigest())
        if line not in (_line(end), _line({**end, "tenant": saver._dialect._tenant})):
            for _ in _rows(spool, broken, number):  # It may be one of them that nobody can read.
                pass
            raise BrokenExport(f"the lines of thread {thread_id!r} are not those that were exported")
        _store(saver, thread_id, end, lambda: _rows(spool, broken, number))
        return rows


def _store(
    saver: CheckpointSaver,
    thread_id: str,
    end: Mapping[str, Any],
    rows: Callable[[], Iterator[ImportedRow]],
    replace: bool = False,
) -> None:
    saver._driver.run(import_thread(saver._dialect, thread_id, end["sha256"], rows, replace))


def _broken_row(number: int, error: Exception) -> BrokenExport:
    return BrokenExport(f"row {number}: {error}")


def _rows(
    spool: IO[bytes], broken: Callable[[int, Exception], BrokenExport] = _broken_row, number: int = 0
) -> Iterator[ImportedRow]:
    """The rows of a thread, from its first line on."""
    spool.seek(0)
    for place, line in enumerate(spool, number + 1):
        try:
            yield read_row(line)
        except (ValueError, RecursionError) as error:
            raise broken(place, error) from error


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


class _Lines:
    """The lines of a file; `number` is that of the last one, from 1."""

    def __init__(self, path: Path, largest: int) -> None:
        self.number = 0
        self._path = path
        self._largest = largest
        self._lines = self._read()

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> bytes:
        line = next(self._lines)
        self.number += 1
        return line

    def told(self, line: bytes) -> dict[str, Any]:
        """What a line between threads says."""
        try:
            what = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self.broken(self.number, error) from error
        return what if isinstance(what, dict) else {}

    def broken(self, number: int, error: Exception) -> BrokenExport:
        """The error for a line that no export has written."""
        return BrokenExport(f"{self._path}, line {number}: {error or type(error).__name__}")

    def _read(self) -> Iterator[bytes]:
        begun: list[bytes] = []
        size = 0
        with self._path.open("rb") as file, ZstdDecompressor().stream_reader(file, read_across_frames=True) as unpacked:
            while chunk := _chunk(unpacked, self._path):
                for place, piece in enumerate(chunk.split(b"\n")):
                    if place:
                        yield b"".join((*begun, b"\n"))
                        begun, size = [], 0
                    begun.append(piece)
                    size += len(piece)
                    if size > self._largest:
                        raise BrokenExport(
                            f"{self._path}, line {self.number + 1}: it unpacks to more than {self._largest:,} bytes; "
                            "if you trust the file, call import_file with a higher largest_row"
                        )


def _chunk(unpacked: BinaryIO, path: Path) -> bytes:
    try:
        return unpacked.read(1 << 20)
    except ZstdError as error:
        raise BrokenExport(f"{path} is not compressed with Zstandard, or damaged: {error}") from error


def _whole_threads(part: Path) -> tuple[tuple[str, str] | None, Exchanged]:
    """Cut a file behind its last whole frame; the last tenant and thread before that, and what there is."""
    done = Exchanged()
    last: tuple[str, str] | None = None
    if not part.exists():
        return None, done
    whole = 0
    with part.open("r+b") as file:
        while True:
            frame = _frame(file)
            if frame is None:
                break
            whole = file.tell()
            last = last or ("", "")
            for line in frame.splitlines():
                if line.startswith(END):
                    end = json.loads(line)
                    last = end.get("tenant", ""), end["end"]
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
