"""Files that any supported database can be written to and filled from: `export_file` and `import_file`.

A file holds JSON lines, compressed with Zstandard:

    {"langgraph-checkpoint-custom":1}
    {"thread":"1"}
    {"checkpoint":{…}} {"blob":{…}} {"write":{…}} {"label":{…}} …
    {"end":"1","rows":7,"sha256":"…"}
    …
    {"threads":1}

The rows of a thread are the columns of the tables, with bytes as base64. All rows of a thread are of one point in time.
`sha256` is the hash of their lines, each with its line feed. If the threads of all tenants were exported, `tenant` in
the lines `thread` and `end` names the tenant of the thread. After a thread, a Zstandard frame may end and the next one
begin. Values stay as they are stored, compressed or encrypted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from shutil import copyfileobj
from tempfile import SpooledTemporaryFile
from typing import IO, Any, BinaryIO

from zstandard import FLUSH_FRAME, ZstdCompressor, ZstdDecompressor, ZstdError

from langgraph_checkpoint_custom.errors import (
    CheckpointError,
    CheckpointNotFound,
    ConfigError,
    NameTooLong,
    ThreadBusy,
    ThreadExists,
)
from langgraph_checkpoint_custom.model.keys import flag, thread_text
from langgraph_checkpoint_custom.operations.export_rows import (
    ImportedRow,
    digest_thread,
    export_thread,
    import_thread,
    next_thread,
    read_row,
)
from langgraph_checkpoint_custom.saver import CheckpointSaver

FORMAT = "langgraph-checkpoint-custom"
VERSION = 1
END = b'{"end":'
# A frame ends with the first thread that brings its lines to this many bytes. A resumed export writes at most this and
# one thread again. Smaller frames compress less.
FRAME = 4_000_000
LEVEL = 3
# Bytes of a thread that are held in memory until all of it is read; a larger one goes to a temporary file.
SPOOL = 32_000_000
# The largest row of a file, in bytes. A few compressed bytes can unpack to any number, so there must be a limit.
LARGEST_ROW = 256_000_000
# If one of these is raised for a thread, the other threads are stored nevertheless.
REFUSALS = (NameTooLong, ThreadExists, ThreadBusy)

# Called after each thread with the number of threads that are done.
Progress = Callable[[int], None]


@dataclass
class ExchangeReport:
    """What an export, an import or a transfer has done.

    Attributes:
        threads: Threads that were written, or stored and checked.
        rows: The rows of these threads.
        problems: By thread id, why a thread was not stored.
    """

    threads: int = 0
    rows: int = 0
    problems: dict[str, str] = field(default_factory=dict)


class BrokenExport(CheckpointError):
    """A file was not written by an export, is damaged, or is not complete."""


def export_file(
    saver: CheckpointSaver,
    path: str | Path,
    *,
    threads: Collection[str] | None = None,
    progress: Progress = lambda threads: None,
    tenants: bool = True,
) -> ExchangeReport:
    """Write all threads of a saver to a file; runs may continue during the export.

    Until the file is complete, its name ends with `.part`. If an export of all threads was killed, the next call
    continues where that file ends.

    Args:
        saver: The saver whose threads are written. The saver of a tenant exports that tenant's threads, and the file
            does not name the tenant.
        path: The file, which must not exist.
        threads: The ids of the threads to write; by default all.
        progress: Called after each thread with the number of threads that are done.
        tenants: Whether to include the threads of all tenants.

    Returns:
        What was written.

    Raises:
        ConfigError: The file exists.
        CheckpointNotFound: One of `threads` does not exist.
    """
    flag("tenants", tenants)
    path = Path(path)
    if path.exists():
        raise ConfigError(f"{path} already exists; move it away, or choose another name")
    found = _threads(saver, tenants, threads)
    part = path.with_name(f"{path.name}.part")
    if threads is not None:  # What is there may have been exported of others.
        part.unlink(missing_ok=True)
    last, done = _complete_threads(part)
    with (
        part.open("ab") as out,
        ZstdCompressor(level=LEVEL).stream_writer(out, closefd=False) as packed,
        SpooledTemporaryFile(SPOOL) as spool,
    ):
        size = 0
        if last is None:
            packed.write(_line({FORMAT: VERSION}))
        for own, thread_id in found(last or ("", "")):
            end = _write_thread(own, thread_id, spool)
            size += spool.tell()
            spool.seek(0)
            # The export of a tenant's saver does not name the tenant, so that another tenant can import it.
            tenant = {} if saver is own else {"tenant": own.backend.dialect.tenant}
            packed.write(_line({"thread": thread_id, **tenant}))
            copyfileobj(spool, packed)
            packed.write(_line(end | tenant))
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
    threads: Collection[str] | None = None,
    progress: Progress = lambda threads: None,
    largest_row: int = LARGEST_ROW,
) -> ExchangeReport:
    """Store the threads of a file; each is checked, and stored completely or not at all.

    If the import was killed, call it again. A thread that has other rows in the target, or that is claimed there,
    stays as it is and is in `problems`. A thread that the file assigns to a tenant is stored for that tenant; the saver
    of another tenant does not store it, and it is in `problems`.

    Args:
        saver: The saver to store to.
        path: The file.
        threads: The ids of the threads to store; by default all.
        progress: Called after each thread with the number of threads that are done.
        largest_row: The largest number of bytes that a row of the file may have. A small file can unpack to any number
            of bytes.

    Returns:
        What was stored.

    Raises:
        BrokenExport: The file is of another kind or of a later version, has a line that no export writes, or is not
            complete. The threads before that point are stored.
        CheckpointNotFound: The file does not have one of `threads`; the others are stored.
    """
    done = ExchangeReport()
    skipped, wanted = 0, set(threads or ())
    lines = _Lines(Path(path), largest_row)
    head = lines.parse(next(lines, b"null"))
    if FORMAT not in head:
        raise BrokenExport(f"{path} is not an export of {FORMAT}")
    if head[FORMAT] != VERSION:
        raise BrokenExport(f"{path} has format {head[FORMAT]!r}, which this version does not know; upgrade {FORMAT}")
    for line in lines:
        what = lines.parse(line)
        if "threads" in what:
            if what["threads"] != done.threads + len(done.problems) + skipped:
                raise BrokenExport(f"{path} lacks some of its {what['threads']} threads")
            if wanted:
                raise CheckpointNotFound(f"{path} has no thread {min(wanted)!r}")
            return done
        tenant = what.get("tenant") or ""
        try:
            thread_id = thread_text(what.get("thread"))
            own = saver.for_tenant(tenant) if tenant else saver
        except ConfigError as error:
            raise lines.broken(lines.number, error) from error
        if threads is not None and thread_id not in threads:
            skipped += 1
            next(line for line in lines if line.startswith(END))
            continue
        wanted.discard(thread_id)
        if saver.backend.dialect.tenant and tenant not in ("", saver.backend.dialect.tenant):
            done.problems[_named(thread_id, tenant)] = (
                f"it belongs to tenant {tenant!r}; import it with a saver without a tenant"
            )
            next(line for line in lines if line.startswith(END))
            continue
        try:
            done.rows += _import(own, thread_id, lines, lines.broken, lines.number)
            done.threads += 1
        except REFUSALS as error:
            done.problems[_named(thread_id, tenant)] = str(error)
        progress(done.threads)
    raise BrokenExport(f"{path} ends too early; export again, which continues where a .part file ends")


def count_exported(path: str | Path) -> int:
    """Return the number of threads in a file; reads the file to its end."""
    return sum(line.startswith(b'{"thread":') for line in _Lines(Path(path), LARGEST_ROW))


def transfer(
    source: CheckpointSaver,
    target: CheckpointSaver,
    *,
    threads: Collection[str] | None = None,
    progress: Progress = lambda threads: None,
    tenants: bool = True,
) -> ExchangeReport:
    """Store the threads of one saver with another, on any database; each completely or not at all.

    You may run it next to live traffic on the source and run it again. Then it compares digests of each thread on both
    sides. A thread that has changed is stored again; what was written or labelled in its copy is deleted. A thread that
    has checkpoints of its own in the target, or is claimed there, stays as it is and is in `problems`.

    Args:
        source: The saver to read from. The saver of a tenant transfers that tenant's threads.
        target: The saver to store to. Threads from the saver of a tenant become those of the target's tenant, if it has
            one.
        threads: The ids of the threads to store; by default all.
        progress: Called after each thread with the number of threads that are done.
        tenants: Whether to include the threads of all tenants, which keep their tenant.

    Returns:
        What was stored.

    Raises:
        ConfigError: The target is the saver of one tenant, and the source has threads of tenants.
        CheckpointNotFound: One of `threads` does not exist; nothing was stored.
    """
    done = ExchangeReport()
    flag("tenants", tenants)
    _check_targets(source, target, tenants)
    with SpooledTemporaryFile(SPOOL) as spool:
        for own, thread_id in _threads(source, tenants, threads)(("", "")):
            tenant = "" if own is source else own.backend.dialect.tenant
            to = target.for_tenant(tenant) if tenant else target
            if (same := _same(own, to, thread_id)) is not None:
                done.threads += 1
                done.rows += same
                progress(done.threads)
                continue
            end = _write_thread(own, thread_id, spool)
            try:
                _store(to, thread_id, end, lambda: _rows(spool), replace=True)
                done.threads += 1
                done.rows += end["rows"]
            except REFUSALS as error:
                done.problems[_named(thread_id, tenant)] = str(error)
            progress(done.threads)
    return done


def _same(source: CheckpointSaver, target: CheckpointSaver, thread_id: str) -> int | None:
    """Return the number of rows of a thread that is the same on both sides; None if it differs."""
    ours = target.backend.driver.run(digest_thread(target.backend.dialect, thread_id))
    if not ours.rows:
        return None
    theirs = source.backend.driver.run(digest_thread(source.backend.dialect, thread_id))
    return ours.rows if ours == theirs else None


def _check_targets(source: CheckpointSaver, target: CheckpointSaver, tenants: bool) -> None:
    if target.backend.dialect.tenant and tenants and not source.backend.dialect.tenant and (names := source.tenants()):
        raise ConfigError(
            f"the source has threads of {len(names)} tenants, and the target belongs to one; move those of one tenant "
            "(source.for_tenant(…)), or those without one (tenants=False)"
        )


def _threads(
    saver: CheckpointSaver, tenants: bool, threads: Collection[str] | None
) -> Callable[[tuple[str, str]], Iterator[tuple[CheckpointSaver, str]]]:
    """Return a function that yields the threads after a tenant and thread id, each with the saver of its tenant.

    Args:
        saver: The saver, which is also yielded for threads without a tenant.
        tenants: Whether to include the threads of all tenants.
        threads: The ids of the threads; None for all.

    Raises:
        CheckpointNotFound: One of the threads does not exist.
    """
    names = sorted(saver.tenants()) if tenants and not saver.backend.dialect.tenant else []
    savers = {name: saver.for_tenant(name) if name else saver for name in ["", *names]}
    chosen = None if threads is None else sorted(set(threads))
    for thread_id in chosen or ():
        if not any(own.thread_exists(thread_id) for own in savers.values()):
            raise CheckpointNotFound(f"there is no thread {thread_id!r}")

    def after(last: tuple[str, str]) -> Iterator[tuple[CheckpointSaver, str]]:
        for name, own in savers.items():
            if chosen is not None:
                yield from ((own, each) for each in chosen if own.thread_exists(each))
            elif name >= last[0]:
                thread_id: str | None = last[1] if name == last[0] else ""
                d = own.backend.dialect
                while (thread_id := own.backend.driver.run(next_thread(d, thread_id or ""))) is not None:
                    yield own, thread_id

    return after


def _named(thread_id: str, tenant: str) -> str:
    """Return how a report names a thread: with its tenant, if it has one."""
    return f"{thread_id} (tenant {tenant})" if tenant else thread_id


def _import(
    saver: CheckpointSaver,
    thread_id: str,
    lines: Iterator[bytes],
    broken: Callable[[int, Exception], BrokenExport],
    number: int,
) -> int:
    """Store the thread whose lines come next; return the number of its rows.

    `number` is the number of the line before them.
    """
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
        if line not in (_line(end), _line({**end, "tenant": saver.backend.dialect.tenant})):
            for _ in _rows(spool, broken, number):  # Raises an error with the line's number if a line cannot be read.
                pass
            raise BrokenExport(f"the lines of thread {thread_id!r} differ from those that were exported")
        _store(saver, thread_id, end, lambda: _rows(spool, broken, number))
        return rows


def _store(
    saver: CheckpointSaver,
    thread_id: str,
    end: Mapping[str, Any],
    rows: Callable[[], Iterator[ImportedRow]],
    replace: bool = False,
) -> None:
    saver.backend.driver.run(import_thread(saver.backend.dialect, thread_id, end["sha256"], rows, replace))


def _broken_row(number: int, error: Exception) -> BrokenExport:
    return BrokenExport(f"row {number}: {error}")


def _rows(
    spool: IO[bytes], broken: Callable[[int, Exception], BrokenExport] = _broken_row, number: int = 0
) -> Iterator[ImportedRow]:
    """Yield the rows of a thread; `number` is the number of the line before the first."""
    spool.seek(0)
    for line_number, line in enumerate(spool, number + 1):
        try:
            yield read_row(line)
        except (ValueError, RecursionError) as error:
            raise broken(line_number, error) from error


def _line(what: dict[str, Any]) -> bytes:
    return json.dumps(what, separators=(",", ":")).encode() + b"\n"


def _end(thread_id: str, rows: int, digest: str) -> dict[str, Any]:
    return {"end": thread_id, "rows": rows, "sha256": digest}


def _write_thread(saver: CheckpointSaver, thread_id: str, out: IO[bytes]) -> dict[str, Any]:
    """Write the lines of a thread's rows to `out`, which is emptied first; return the thread's last line."""
    rows = 0
    digest = sha256()

    def begin() -> Callable[[str], None]:
        nonlocal rows, digest
        rows, digest = 0, sha256()
        out.seek(0)
        out.truncate()
        return add

    def add(text: str) -> None:
        nonlocal rows
        line = text.encode() + b"\n"
        rows += 1
        digest.update(line)
        out.write(line)

    saver.backend.driver.run(export_thread(saver.backend.dialect, thread_id, begin))
    return _end(thread_id, rows, digest.hexdigest())


class _Lines:
    """Iterates over the lines of a file; `number` is the number of the last line it returned, counted from 1."""

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

    def parse(self, line: bytes) -> dict[str, Any]:
        """Return the content of a line that is not a row."""
        try:
            what = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self.broken(self.number, error) from error
        return what if isinstance(what, dict) else {}

    def broken(self, number: int, error: Exception) -> BrokenExport:
        """Return the error for a line that no export writes."""
        return BrokenExport(f"{self._path}, line {number}: {error or type(error).__name__}")

    def _read(self) -> Iterator[bytes]:
        pieces: list[bytes] = []
        size = 0
        with self._path.open("rb") as file, ZstdDecompressor().stream_reader(file, read_across_frames=True) as unpacked:
            while chunk := _chunk(unpacked, self._path):
                for index, piece in enumerate(chunk.split(b"\n")):
                    if index:
                        yield b"".join((*pieces, b"\n"))
                        pieces, size = [], 0
                    pieces.append(piece)
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
        raise BrokenExport(f"{path} is not compressed with Zstandard, or it is damaged: {error}") from error


def _complete_threads(part: Path) -> tuple[tuple[str, str] | None, ExchangeReport]:
    """Truncate a file after its last complete frame; return the last tenant and thread in it, and the counts."""
    done = ExchangeReport()
    last: tuple[str, str] | None = None
    if not part.exists():
        return None, done
    complete = 0
    with part.open("r+b") as file:
        while True:
            frame = _frame(file)
            if frame is None:
                break
            complete = file.tell()
            last = last or ("", "")
            for line in frame.splitlines():
                if line.startswith(END):
                    end = json.loads(line)
                    last = end.get("tenant", ""), end["end"]
                    done.threads += 1
                    done.rows += end["rows"]
        file.truncate(complete)
    return last, done


def _frame(file: BinaryIO) -> bytes | None:
    """Read the frame that begins at the file's position and move to its end; return None if it is not complete."""
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
