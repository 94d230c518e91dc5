"""What is true of the tables after every operation, read without any code of the package.

`check_invariants(store)` reads the tables in one snapshot and raises an `AssertionError` that names each row that
breaks a rule. The same is checked after every test that uses the fixture `store` or `own_store`; a mark of the test
says what may be left (`tests/conftest.py`). The rules:

- every blob that a checkpoint names exists, with its chunks, and a channel is either in the document or a blob
- every blob is named by a checkpoint of its thread and namespace, or is a chunk of one that is
- a hidden checkpoint is needed by a visible one: a channel that is a `DeltaChannel` in this namespace and has no value
  there is rebuilt from it, or it is the parent that holds the sends of a checkpoint older than format 4
- a label names a checkpoint that is not hidden
- what sweeps know of a thread is known of a thread with checkpoints
- writes belong to a checkpoint, except those whose checkpoint is not stored yet or was deleted, which the caller names
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import psycopg
from psycopg import sql

from tests.stores import Store

Location = tuple[str, str]
"""A thread and a namespace."""

FORMAT_WITH_SENDS = 4
TASKS = "__pregel_tasks"


class CheckpointRow(NamedTuple):
    """What the rules need of a row of `checkpoints`. Lists have the same type for both databases."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str | None
    format: int
    hidden: bool
    inline_channels: Sequence[str]
    delta_channels: Sequence[str]
    blob_channels: Sequence[str]
    blob_versions: Sequence[str]

    @property
    def populated(self) -> set[str]:
        """The channels that have a value here."""
        return {*self.inline_channels, *self.blob_channels}


class BlobKey(NamedTuple):
    """The key of a row of `blobs`."""

    thread_id: str
    checkpoint_ns: str
    channel: str
    version: str


class WriteKey(NamedTuple):
    """What the rules need of a row of `writes`."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    task_id: str
    idx: int
    channel: str


class LabelRow(NamedTuple):
    """A row of `labels`."""

    thread_id: str
    name: str
    checkpoint_ns: str
    checkpoint_id: str


class Tables(NamedTuple):
    """All rows of a store, without values."""

    checkpoints: Sequence[CheckpointRow]
    blobs: Sequence[BlobKey]
    chunks: Mapping[BlobKey, Sequence[str]]
    writes: Sequence[WriteKey]
    labels: Sequence[LabelRow]
    threads: Mapping[str, str | None]
    """What is done with each thread after its time to live."""


def check_invariants(
    store: Store,
    *,
    early_writes: Collection[tuple[str, str, str]] = (),
    stored_again: bool = False,
    schema: str = "langgraph_checkpoint",
) -> Tables:
    """Check the rules while no operation is running. Returns the rows for further checks.

    Args:
        store: A SQLite file or a PostgreSQL database with the tables in it.
        early_writes: Thread, namespace and checkpoint id of writes that may be without their checkpoint.
        stored_again: Whether a version may have been stored twice, which leaves the chunks of the first time.
        schema: The schema on PostgreSQL.
    """
    tables = read_tables(store, schema=schema)
    if stored_again:
        tables = without_old_chunks(tables)
    broken = list(violations(tables, early_writes))
    assert not broken, "\n".join(["the tables are broken:", *broken])
    return tables


def violations(tables: Tables, early_writes: Collection[tuple[str, str, str]] = ()) -> Iterable[str]:
    """A line for each row that breaks a rule."""
    for row in tables.checkpoints:
        name = f"checkpoint {row[:3]}"
        if len(row.blob_channels) != len(row.blob_versions):
            yield f"{name} has {len(row.blob_channels)} blobs and {len(row.blob_versions)} versions"
        channels = [*row.inline_channels, *row.blob_channels]
        if len(channels) != len(set(channels)):
            yield f"{name} has two values for a channel: {sorted(channels)}"

    named = named_blobs(tables)
    stored = set(tables.blobs)
    for blob in sorted(named - stored):
        yield f"a checkpoint names a blob that is missing: {tuple(blob)}"
    for blob in sorted(stored - named):
        yield f"no checkpoint names the blob {tuple(blob)}"

    for thread_id, checkpoint_ns, checkpoint_id in sorted(
        {row[:3] for row in tables.checkpoints if row.hidden} - needed(tables)
    ):
        yield f"checkpoint {(thread_id, checkpoint_ns, checkpoint_id)} is hidden but nothing needs it"

    visible = {row[:3] for row in tables.checkpoints if not row.hidden}
    for label in tables.labels:
        if (label.thread_id, *label[2:]) not in visible:
            yield f"the label {tuple(label)} names no checkpoint that can be seen"

    for thread_id in sorted(set(tables.threads) - {row.thread_id for row in tables.checkpoints}):
        yield f"the thread {thread_id!r} has a row, and no checkpoint"

    there = {row[:3] for row in tables.checkpoints}
    for location in sorted({write[:3] for write in tables.writes} - there - set(early_writes)):
        yield f"writes of a checkpoint that is not there: {location}"


def without_old_chunks(tables: Tables) -> Tables:
    """Remove the chunks that no version names, which a version that was stored again leaves."""
    named = named_blobs(tables)
    return tables._replace(blobs=[each for each in tables.blobs if each in named or not each.version.startswith("#/")])


def named_blobs(tables: Tables) -> set[BlobKey]:
    """The blobs that checkpoints name, with their chunks, whether they exist or not."""
    named = {
        BlobKey(row.thread_id, row.checkpoint_ns, channel, version)
        for row in tables.checkpoints
        for channel, version in zip(row.blob_channels, row.blob_versions, strict=False)
    }
    return named | {blob._replace(version=name) for blob in named for name in tables.chunks.get(blob, ())}


def needed(tables: Tables) -> set[tuple[str, str, str]]:
    """The checkpoints that a visible one needs, found by following the parents of each."""
    rows = {row[:3]: row for row in tables.checkpoints}
    delta: defaultdict[Location, set[str]] = defaultdict(set)
    for row in tables.checkpoints:
        delta[row[:2]].update(row.delta_channels)
    with_sends = {write[:3] for write in tables.writes if write.channel == TASKS}

    found: set[tuple[str, str, str]] = set()
    for row in tables.checkpoints:
        if row.hidden:
            continue
        readers = [row]
        missing = delta[row[:2]] - row.populated
        while missing and (parent := rows.get((*row[:2], readers[-1].parent_id or ""))) not in (None, *readers):
            assert parent is not None
            readers.append(parent)
            missing = missing - parent.populated
        found.update(reader[:3] for reader in readers[1:])
        while readers:
            reader = readers.pop()
            holder = (*row[:2], reader.parent_id or "")
            if reader.format < FORMAT_WITH_SENDS and holder in with_sends & rows.keys() - found:
                found.add(holder)
                readers.append(rows[holder])
    return found


def read_tables(store: Store, *, schema: str = "langgraph_checkpoint") -> Tables:
    """All rows of a store, from one read snapshot."""
    found = find_tables(store, schema=schema)
    assert found is not None, "there are no tables"
    return found


def find_tables(store: Store, *, schema: str = "langgraph_checkpoint") -> Tables | None:
    """All rows of a store, from one read snapshot; None before the tables exist, as in a new file."""
    if store.kind == "sqlite":
        path = Path(unquote(store.url.removeprefix("sqlite:///")))
        if not path.exists():
            return None
        with closing(sqlite3.connect(path, isolation_level=None)) as file:
            file.execute("BEGIN")
            if file.execute("SELECT 1 FROM sqlite_schema WHERE name = 'checkpoints'").fetchone() is None:
                return None
            found = [file.execute(query.format("")).fetchall() for query in _QUERIES]
    else:
        prefix = sql.Identifier(schema) + sql.SQL(".")
        with psycopg.connect(store.url) as server:
            server.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            if server.execute("SELECT to_regclass(%s)", [f'"{schema}".checkpoints']).fetchone() == (None,):
                return None
            found = [server.execute(sql.SQL(query).format(prefix)).fetchall() for query in _QUERIES]
    checkpoints, blobs, writes, labels, threads = found
    return Tables(
        [CheckpointRow._make([*row[:5], bool(row[5]), *map(_names, row[6:])]) for row in checkpoints],
        [BlobKey(*row[:4]) for row in blobs],
        {BlobKey(*row[:4]): json.loads(row[4]) for row in blobs if row[4] is not None},
        [WriteKey(*row) for row in writes],
        [LabelRow(*row) for row in labels],
        dict(threads),
    )


_QUERIES = (
    "SELECT thread_id, checkpoint_ns, checkpoint_id, parent_id, format, hidden, "
    "inline_channels, delta_channels, blob_channels, blob_versions FROM {}checkpoints",
    "SELECT thread_id, checkpoint_ns, channel, version, chunks FROM {}blobs",
    "SELECT thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel FROM {}writes",
    "SELECT thread_id, name, checkpoint_ns, checkpoint_id FROM {}labels",
    "SELECT thread_id, strategy FROM {}threads",
)


def _names(value: Any) -> list[str]:
    """A list of texts: an array on PostgreSQL, JSON on SQLite."""
    return json.loads(value) if isinstance(value, str) else list(value)
