"""What is wrong in the tables, a page of rows at a time, and what of it can be mended beside live runs.

Must not know: SQL, connections, serializers: nothing here reads a value.

What the checks find is not always damage. A run that outlives the deletion of its thread, or of the checkpoint that it
goes on from, stores what it has: nothing forbids it, unless it has a claim. Writes of a thread without checkpoints may
be those of a run that has just begun, or one that was killed there; nothing tells. A value that nobody names is left
when a checkpoint was stored again under its id with other versions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from langgraph_checkpoint_custom.engine.operation import Steps, operation
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# Rows of a page. What belongs to its threads is looked at once for each page, and a statement is to end in time.
PAGE = 2000


class Check(NamedTuple):
    """Something that can be wrong.

    Attributes:
        name: Its name in the statements and in what is told.
        means: What it means, and what to do.
        wrong: Whether it is surely wrong; a notice otherwise.
        mended: Whether `mend` deletes it.
    """

    name: str
    means: str
    wrong: bool = True
    mended: bool = False


CHECKS = (
    Check(
        "value gone", "a checkpoint names a value that is not there; it cannot be read: restore a backup, or delete it"
    ),
    Check("part gone", "a value names a part that is not there; it cannot be read: restore a backup, or delete it"),
    Check("half deleted", "a checkpoint that a deletion has marked and left, which no code of this package does"),
    Check(
        "parent gone",
        "a checkpoint's parent was deleted while a run went on from it; it is whole, and its history ends there",
        wrong=False,
    ),
    Check("id before its parent", "an id that sorts before its parent's: the newest checkpoint may be another one"),
    Check("value of nobody", "a value that no checkpoint names; --fix deletes it", mended=True),
    Check("part of nobody", "a part that no value names; --fix deletes it", mended=True),
    Check("label of nothing", "a label whose checkpoint is not there; --fix deletes it", mended=True),
    Check(
        "write without a thread",
        "writes of a thread that has no checkpoint: its run has just begun, or died there; delete the thread if so",
        wrong=False,
    ),
)
NAMES = {check.name: check for check in CHECKS}


class Table(NamedTuple):
    """A table to look through: its name in the statements, and a key that comes before every row's."""

    name: str
    first: Mapping[str, Any]


_CHECKPOINT = {"thread_id": "", "checkpoint_ns": "", "checkpoint_id": ""}
TABLES = (
    Table("checkpoints", _CHECKPOINT),
    Table("blobs", {"thread_id": "", "checkpoint_ns": "", "channel": "", "version": ""}),
    Table("writes", {**_CHECKPOINT, "task_id": "", "idx": -(2**31)}),
    Table("labels", {"thread_id": "", "name": ""}),
)


class Finding(NamedTuple):
    """Something that is wrong: the check's name, the thread as it is stored and shown, and what names the row there."""

    check: str
    stored: str
    thread_id: str
    checkpoint_ns: str
    names: Sequence[str]


class Looked(NamedTuple):
    """What was found in a page, its rows, and the key to go on behind, or None if it was the last."""

    findings: Sequence[Finding]
    rows: int
    after: Mapping[str, Any] | None


class Bloat(NamedTuple):
    """Room that is taken by nothing: dead rows on PostgreSQL, free pages on SQLite."""

    name: str
    used: int
    wasted: int

    @property
    def is_large(self) -> bool:
        """Whether it is a fifth, and enough to be worth the while: autovacuum lets a fifth be."""
        return self.wasted >= 1000 and self.wasted > 0.25 * (self.used + self.wasted)


@operation("read")
def look(d: SqlDialect, table: Table, after: Mapping[str, Any], limit: int = PAGE) -> Steps[Looked]:
    """Look through a page of a table.

    Trips: 1.
    Snapshot: one read snapshot.
    """
    (rows,) = yield d.doctor_page(table.name, after, limit)
    findings = []
    end: Mapping[str, Any] | None = None
    count = 0
    for what, stored, *key, number in rows:
        if what == "end":
            count = number
            values = dict(zip(table.first, (d.own_thread_id(stored), *key), strict=False))
            end = values | ({"idx": int(values["idx"])} if "idx" in values else {})
        else:
            ns, *names = key
            told = [str(name) for name in (*names, number) if name is not None]
            findings.append(Finding(what, stored, d.own_thread_id(stored), ns, told))
    return Looked(findings, count, end if count == limit else None)


@operation("write")
def repair(d: SqlDialect, findings: Sequence[Finding]) -> Steps[int]:
    """Delete values, parts and labels that are still nobody's; returns how many rows went.

    Trips: 1 for each thread.
    Idempotent: yes.
    """
    mended = 0
    for thread_id in sorted({one.thread_id for one in findings if NAMES[one.check].mended}):
        own = [one for one in findings if one.thread_id == thread_id]
        blobs = [
            [one.checkpoint_ns, *one.names[:2]] for one in own if one.check in ("value of nobody", "part of nobody")
        ]
        labels = [one.names[1] for one in own if one.check == "label of nothing"]
        replies = yield d.repair(thread_id, json.dumps(blobs), json.dumps(labels))
        mended += sum(map(len, replies))
    return mended


@operation("read")
def bloat(d: SqlDialect) -> Steps[Sequence[Bloat]]:
    """How much room is taken by nothing.

    Trips: 1.
    """
    (rows,) = yield d.doctor_bloat()
    return [Bloat(*row) for row in rows]
