"""Finding problems in the tables, one page of rows at a time, and repairing some of them during live traffic.

Must not know: SQL, connections, serializers: nothing here reads a value.

A finding is not always damage. A run that outlives the deletion of its thread, or of the checkpoint that it started
from, stores what it has. Only a claim prevents that. Writes of a thread without checkpoints belong to a run that has
just begun, or to one that was killed at that point; the rows do not show which. A value that no checkpoint names is
left over when a checkpoint is stored again under its id with other versions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from langgraph_checkpoint_custom.engine.operation import Steps, operation
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# Rows of a page. More rows: the other rows of its threads are read less often. Fewer rows: a statement ends sooner.
PAGE = 2000


class Check(NamedTuple):
    """A problem that a check can find.

    Attributes:
        name: Its name.
        means: What it means, and what to do.
        wrong: Whether it is certainly wrong. Otherwise it is a notice.
        repairable: Whether `repair` deletes it.
    """

    name: str
    means: str
    wrong: bool = True
    repairable: bool = False


CHECKS = (
    Check(
        "missing value",
        "a checkpoint refers to a value that does not exist, and cannot be read: restore a backup, or delete it",
    ),
    Check(
        "missing chunk",
        "a value refers to a chunk that does not exist, and cannot be read: restore a backup, or delete it",
    ),
    Check(
        "deleted parent",
        "a checkpoint's parent was deleted while a run continued from it; the checkpoint is complete, and its history "
        "ends there",
        wrong=False,
    ),
    Check(
        "id before its parent",
        "an id sorts before its parent's: the newest checkpoint may be another one",
    ),
    Check("unused value", "a value that no checkpoint refers to; --fix deletes it", repairable=True),
    Check("unused chunk", "a chunk that no value refers to; --fix deletes it", repairable=True),
    Check(
        "dangling label",
        "a label whose checkpoint does not exist; --fix deletes it",
        repairable=True,
    ),
    Check(
        "write without a checkpoint",
        "writes of a thread that has no checkpoint: its run has just started, or died; if it died, delete the thread",
        wrong=False,
    ),
)
BY_NAME = {check.name: check for check in CHECKS}


class Table(NamedTuple):
    """A table to check: its name in the statements, and a key that sorts before every row's key."""

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
    """A row with a problem.

    Attributes:
        check: The name of the check.
        stored: The thread id as it is stored, with the tenant.
        thread_id: The thread id as the caller knows it.
        checkpoint_ns: The namespace.
        names: The other columns that name the row.
    """

    check: str
    stored: str
    thread_id: str
    checkpoint_ns: str
    names: Sequence[str]


class Looked(NamedTuple):
    """The findings of a page, the number of its rows, and the key after which the next page starts; None at the end."""

    findings: Sequence[Finding]
    rows: int
    after: Mapping[str, Any] | None


class Bloat(NamedTuple):
    """Disk space that holds no data: dead rows on PostgreSQL, free pages on SQLite."""

    name: str
    used: int
    wasted: int

    @property
    def is_large(self) -> bool:
        """Whether more than a quarter is wasted, and at least 1,000 rows or pages. Autovacuum starts at a fifth."""
        return self.wasted >= 1000 and self.wasted > 0.25 * (self.used + self.wasted)


@operation("read")
def look(d: SqlDialect, table: Table, after: Mapping[str, Any], limit: int = PAGE) -> Steps[Looked]:
    """Check one page of a table.

    Round trips: 1.
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
            texts = [str(name) for name in (*names, number) if name is not None]
            findings.append(Finding(what, stored, d.own_thread_id(stored), ns, texts))
    return Looked(findings, count, end if count == limit else None)


@operation("write")
def repair(d: SqlDialect, findings: Sequence[Finding]) -> Steps[int]:
    """Delete the values, chunks and labels among the findings that are still unused; returns the number of rows.

    Round trips: 1 for each thread.
    Idempotent: yes.
    """
    deleted = 0
    for thread_id in sorted({one.thread_id for one in findings if BY_NAME[one.check].repairable}):
        own = [one for one in findings if one.thread_id == thread_id]
        blobs = [[one.checkpoint_ns, *one.names[:2]] for one in own if one.check in ("unused value", "unused chunk")]
        labels = [one.names[1] for one in own if one.check == "dangling label"]
        replies = yield d.repair(thread_id, json.dumps(blobs), json.dumps(labels))
        deleted += sum(map(len, replies))
    return deleted


@operation("read")
def bloat(d: SqlDialect) -> Steps[Sequence[Bloat]]:
    """Return how much disk space holds no data.

    Round trips: 1.
    """
    (rows,) = yield d.doctor_bloat()
    return [Bloat(*row) for row in rows]
