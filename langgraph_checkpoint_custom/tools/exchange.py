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
the lines `thread` and `end` names the tenant of the thread. Values stay as they are stored, compressed or encrypted.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from io import BufferedReader
from pathlib import Path
from shutil import copyfileobj
from tempfile import SpooledTemporaryFile, TemporaryDirectory
from typing import IO, Any, NamedTuple

from zstandard import ZstdCompressor, ZstdDecompressor, ZstdError

from langgraph_checkpoint_custom.errors import (
    CheckpointError,
    CheckpointNotFound,
    ConfigError,
    ConnectionLost,
    NameTooLong,
    StorageError,
    ThreadBusy,
    ThreadExists,
)
from langgraph_checkpoint_custom.model.keys import MAX_THREAD_ID, flag, texts, thread_text
from langgraph_checkpoint_custom.operations.export_rows import (
    ExportStart,
    ImportedRow,
    ImportedThread,
    export_page,
    export_thread,
    import_threads,
    read_row,
)
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.tools.finding import savers_of

FORMAT = "langgraph-checkpoint-custom"
VERSION = 1
END = b'{"end":'
LEVEL = 3
# Bytes of a thread that are held in memory until all of it is read; a larger one goes to a temporary file.
SPOOL = 32_000_000
# Rows of the threads that are stored in one transaction, and bytes of their lines, which are in memory until its end.
# 400 rows take about 50 ms. That long, SQLite has no other writer, and PostgreSQL no other change of these threads.
BATCH_ROWS, BATCH_BYTES = 400, 4_000_000
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
        unchanged: How many of these threads the target had already, with the same rows.
    """

    threads: int = 0
    rows: int = 0
    problems: dict[str, str] = field(default_factory=dict)
    unchanged: int = 0


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

    Until the file is complete, its name ends with `.part`.

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
        ConfigError: The file exists, or another export to it has begun meanwhile.
        CheckpointNotFound: One of `threads` does not exist.
    """
    flag("tenants", tenants)
    path = Path(path)
    if path.exists():
        raise ConfigError(f"{path} already exists; move it away, or choose another name")
    done = ExchangeReport()
    found = _threads(saver, tenants, threads)
    part = path.with_name(f"{path.name}.part")
    # Of an export that was killed. One that still runs notices at its end that its file is gone.
    part.unlink(missing_ok=True)
    with (
        part.open("xb") as out,
        ZstdCompressor(level=LEVEL).stream_writer(out, closefd=False) as packed,
        SpooledTemporaryFile(SPOOL) as spool,
    ):
        made = os.fstat(out.fileno())
        packed.write(_line({FORMAT: VERSION}))
        for own, thread_id, lines in found:
            end = _write_thread(own, thread_id, lines, spool)
            if not end["rows"]:  # It was deleted.
                continue
            spool.seek(0)
            # The export of a tenant's saver does not name the tenant, so that another tenant can import it.
            tenant = {} if saver is own else {"tenant": own.backend.dialect.tenant}
            packed.write(_line({"thread": thread_id, **tenant}))
            copyfileobj(spool, packed)
            packed.write(_line(end | tenant))
            done.threads += 1
            done.rows += end["rows"]
            progress(done.threads)
        packed.write(_line({"threads": done.threads}))
    if not part.exists() or not os.path.samestat(part.stat(), made):
        raise ConfigError(f"another export to {path} has begun meanwhile; this one was given up")
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
    replace: bool = False,
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
        replace: Whether to replace a thread of the target whose checkpoints are all in the file, too.

    Returns:
        What was stored.

    Raises:
        BrokenExport: The file is of another kind or of a later version, has a line that no export writes, or is not
            complete. The threads before that point are stored.
        CheckpointNotFound: The file does not have one of `threads`; the others are stored.
    """
    done = ExchangeReport()
    seen, wanted = 0, set(texts("thread", () if threads is None else threads, MAX_THREAD_ID))
    # Also after an error, the threads that were read before it are stored.
    with _opened(Path(path), largest_row) as lines, _Import(done, replace, progress) as importing:
        head = lines.parse(next(lines, b"null"))
        if FORMAT not in head:
            raise BrokenExport(f"{path} is not an export of {FORMAT}")
        if head[FORMAT] != VERSION:
            raise BrokenExport(
                f"{path} has format {head[FORMAT]!r}, which this version does not know; upgrade {FORMAT}"
            )
        for line in lines:
            what = lines.parse(line)
            if "threads" in what:
                if what["threads"] != seen:
                    raise BrokenExport(f"{path} lacks some of its {what['threads']} threads")
                if next(lines, None) is not None:
                    raise BrokenExport(f"{path} goes on after the end of an export; import each export by itself")
                if wanted:
                    raise CheckpointNotFound(f"{path} has no thread {min(wanted)!r}")
                return done
            seen += 1
            tenant = what.get("tenant") or ""
            try:
                thread_id = thread_text(what.get("thread"))
                own = saver.for_tenant(tenant) if tenant else saver
            except ConfigError as error:
                raise lines.broken(lines.number, error) from error
            wanted.discard(thread_id)
            is_chosen = threads is None or thread_id in threads
            if not is_chosen or (saver.backend.dialect.tenant and tenant not in ("", saver.backend.dialect.tenant)):
                for _ in lines.of_thread(thread_id):
                    pass
                if is_chosen:
                    done.problems[_named(thread_id, tenant)] = (
                        f"it belongs to tenant {tenant!r}; import it with a saver without a tenant"
                    )
                continue
            importing.add(_read(own, thread_id, _named(thread_id, tenant), lines))
    raise BrokenExport(f"{path} ends too early; export again")


def count_exported(path: str | Path) -> int:
    """Return the number of threads in a file, of a damaged one in its readable part; reads the file to its end."""
    found = 0
    with suppress(BrokenExport), _opened(Path(path), LARGEST_ROW) as lines:
        for line in lines:
            found += line.startswith(b'{"thread":')
    return found


def transfer(
    source: CheckpointSaver,
    target: CheckpointSaver,
    *,
    threads: Collection[str] | None = None,
    progress: Progress = lambda threads: None,
    tenants: bool = True,
) -> ExchangeReport:
    """Store the threads of one saver with another, on any database: an export to a temporary file, and its import.

    You may run it next to live traffic on the source and run it again. Then a thread that has changed is stored again;
    what was written or labelled in its copy is deleted. A thread that has checkpoints of its own in the target, or is
    claimed there, stays as it is and is in `problems`.

    Args:
        source: The saver to read from. The saver of a tenant transfers that tenant's threads.
        target: The saver to store to. Threads from the saver of a tenant become those of the target's tenant, if it has
            one. The saver of a tenant does not store the threads of other tenants: they are in `problems`.
        threads: The ids of the threads to store; by default all.
        progress: Called after each thread with the number of threads that are done.
        tenants: Whether to include the threads of all tenants, which keep their tenant.

    Returns:
        What was stored.

    Raises:
        CheckpointNotFound: One of `threads` does not exist; nothing was stored.
    """
    with TemporaryDirectory() as folder:
        file = Path(folder) / "threads.zst"
        export_file(source, file, threads=threads, tenants=tenants)
        # The file is trusted. One byte more than the limit is read, and that number has to be at most sys.maxsize.
        return import_file(target, file, progress=progress, largest_row=sys.maxsize - 1, replace=True)


def _threads(
    saver: CheckpointSaver, tenants: bool, threads: Collection[str] | None
) -> Iterator[tuple[CheckpointSaver, str, Sequence[str] | None]]:
    """Return the threads, each with the saver of its tenant, and with its lines if they were read already.

    Args:
        saver: The saver, which is also returned for threads without a tenant.
        tenants: Whether to include the threads of all tenants.
        threads: The ids of the threads; None for all.

    Raises:
        CheckpointNotFound: One of the threads does not exist.
    """
    savers = savers_of(saver, tenants)
    if threads is None:
        return (each for own in savers for each in _all_threads(own))
    named = sorted(set(texts("thread", threads, MAX_THREAD_ID)))
    found = [(own, each, None) for own in savers for each in named if own.thread_exists(each)]
    if missing := set(named).difference(thread_id for _, thread_id, _ in found):
        raise CheckpointNotFound(f"there is no thread {min(missing)!r}")
    return iter(found)


def _all_threads(saver: CheckpointSaver) -> Iterator[tuple[CheckpointSaver, str, Sequence[str] | None]]:
    d, driver, _ = saver.backend
    for within in d.ranges():
        start: ExportStart | None = ExportStart(within)
        while start is not None:
            threads, start = driver.run(export_page(d, start))
            yield from ((saver, thread_id, lines) for thread_id, lines in threads)


def _named(thread_id: str, tenant: str) -> str:
    """Return how a report names a thread: with its tenant, if it has one."""
    return f"{thread_id} (tenant {tenant})" if tenant else thread_id


class _Read(NamedTuple):
    """A thread of a file, of which all lines are in `spool`, the saver that stores it, and its name in a report."""

    saver: CheckpointSaver
    name: str
    thread: ImportedThread
    rows: int
    spool: IO[bytes]


class _Import:
    """Stores the threads that are added, in batches of one transaction each; the last one at the end of the block.

    If a batch fails, each of its threads is stored alone, so that none fails because of another one.
    """

    def __init__(self, done: ExchangeReport, replace: bool, progress: Progress) -> None:
        self._done = done
        self._replace = replace
        self._progress = progress
        self._batch: list[_Read] = []
        self._rows = self._bytes = 0

    def __enter__(self) -> _Import:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, (BrokenExport, CheckpointNotFound)):
            self._store()
        for read in self._batch:
            read.spool.close()

    def add(self, read: _Read) -> None:
        """Store a thread with those before it, or with those that follow."""
        size = read.spool.tell()
        try:
            if self._batch and not self._fits(read, size):
                self._store()
        finally:  # So that its file is closed in any case.
            self._batch.append(read)
        self._rows += read.rows
        self._bytes += size

    def _fits(self, read: _Read, size: int) -> bool:
        tenant = self._batch[0].saver.backend.dialect.tenant
        return (
            self._rows + read.rows <= BATCH_ROWS
            and self._bytes + size <= BATCH_BYTES
            and read.saver.backend.dialect.tenant == tenant
            and all(read.thread.thread_id != each.thread.thread_id for each in self._batch)
        )

    def _store(self) -> None:
        batch, self._batch, self._rows, self._bytes = self._batch, [], 0, 0
        with ExitStack() as spools:
            for read in batch:
                spools.enter_context(read.spool)
            stored = self._store_together(batch) if len(batch) > 1 else None
            for number, read in enumerate(batch):
                try:
                    is_stored = stored[number] if stored else self._store_alone(read)
                    self._done.rows += read.rows
                    self._done.threads += 1
                    self._done.unchanged += not is_stored
                except REFUSALS as error:
                    self._done.problems[read.name] = str(error)
                self._progress(self._done.threads)

    def _store_together(self, batch: Sequence[_Read]) -> Sequence[bool] | None:
        """Return for each thread whether it was stored, or None if each has to be stored alone."""
        d, driver, _ = batch[0].saver.backend
        try:
            return driver.run(import_threads(d, [each.thread for each in batch], self._replace))
        except ConnectionLost:
            raise
        except (*REFUSALS, BrokenExport, StorageError):
            return None

    def _store_alone(self, read: _Read) -> bool:
        d, driver, _ = read.saver.backend
        try:
            return bool(driver.run(import_threads(d, [read.thread], self._replace)) == [True])
        except StorageError as error:
            error.args = (f"thread {read.name}: {error}",)
            raise


def _read(saver: CheckpointSaver, thread_id: str, name: str, lines: _Lines) -> _Read:
    """Read the rows of the thread whose lines come next."""
    number, tenant = lines.number, saver.backend.dialect.tenant
    spool = SpooledTemporaryFile(SPOOL)  # noqa: SIM115  # It is closed when the thread is stored.
    try:
        rows, digest = 0, sha256()
        for line in lines.of_thread(thread_id):
            if not line.startswith(END):
                rows += 1
                digest.update(line)
                spool.write(line)
        end = _end(thread_id, rows, digest.hexdigest())
        if line not in (_line(end), _line({**end, "tenant": tenant})):
            for _ in _rows(spool, lines, number):  # Raises an error with its number if a line cannot be read.
                pass
            raise BrokenExport(f"the lines of thread {thread_id!r} differ from those that were exported")
    except BaseException:
        spool.close()
        raise
    thread = ImportedThread(thread_id, end["sha256"], partial(_rows, spool, lines, number))
    return _Read(saver, name, thread, rows, spool)


def _rows(spool: IO[bytes], lines: _Lines, number: int) -> Iterator[ImportedRow]:
    """Yield the rows of a thread; `number` is the number of the line before the first."""
    spool.seek(0)
    for line_number, line in enumerate(spool, number + 1):
        try:
            yield read_row(line)
        except (ValueError, RecursionError) as error:
            raise lines.broken(line_number, error) from error


def _line(what: dict[str, Any]) -> bytes:
    return json.dumps(what, separators=(",", ":")).encode() + b"\n"


def _end(thread_id: str, rows: int, digest: str) -> dict[str, Any]:
    return {"end": thread_id, "rows": rows, "sha256": digest}


def _write_thread(
    saver: CheckpointSaver, thread_id: str, lines: Sequence[str] | None, out: IO[bytes]
) -> dict[str, Any]:
    """Write the lines of a thread to `out`, which is emptied first; return its last line. Reads them if need be."""
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

    if lines is None:
        saver.backend.driver.run(export_thread(saver.backend.dialect, thread_id, begin))
    else:
        write_line = begin()
        for line in lines:
            write_line(line)
    return _end(thread_id, rows, digest.hexdigest())


@contextmanager
def _opened(path: Path, largest: int) -> Iterator[_Lines]:
    with path.open("rb") as file, ZstdDecompressor().stream_reader(file, read_across_frames=True) as unpacked:
        yield _Lines(path, BufferedReader(unpacked, 1 << 20), largest)


class _Lines:
    """Iterates over the lines of a file; `number` is the number of the last line it returned, counted from 1."""

    def __init__(self, path: Path, unpacked: BufferedReader, largest: int) -> None:
        self.number = 0
        self._path = path
        self._unpacked = unpacked
        self._largest = largest

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> bytes:
        try:
            line = self._unpacked.readline(self._largest + 1)
        except ZstdError as error:
            raise BrokenExport(f"{self._path} is not compressed with Zstandard, or it is damaged: {error}") from error
        self.number += 1
        if len(line) > self._largest:
            raise BrokenExport(
                f"{self._path}, line {self.number}: it unpacks to more than {self._largest:,} bytes; "
                "if you trust the file, call import_file with a higher largest_row"
            )
        if not line.endswith(b"\n"):  # The file ends here.
            raise StopIteration
        return line

    def of_thread(self, thread_id: str) -> Iterator[bytes]:
        """Yield the lines of a thread, which come next, with that of its end."""
        for line in self:
            yield line
            if line.startswith(END):
                return
        raise BrokenExport(f"the file ends in the middle of thread {thread_id!r}")

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
