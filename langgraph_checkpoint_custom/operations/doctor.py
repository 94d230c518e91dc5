"""Finding problems in the tables, one page of threads at a time, and repairing some of them during live traffic.

Must not know: SQL, connections, serializers: nothing here reads a value.

A finding is not always damage. A run that outlives the deletion of its thread, or of the checkpoint that it started
from, stores what it has. Only a claim prevents that. Writes of a thread without checkpoints belong to a run that has
just begun, or to one that was killed at that point; the rows do not show which. A value that no checkpoint names is
left over when a checkpoint is stored again under its id with other versions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from langgraph_checkpoint_custom.encoding.chunks import NAME_MARK
from langgraph_checkpoint_custom.engine.operation import Row, Steps, offload, one_trip, operation
from langgraph_checkpoint_custom.model.id_times import time_of
from langgraph_checkpoint_custom.model.keys import Range
from langgraph_checkpoint_custom.operations.sizes import PAGE, page_of_threads
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# What is read of a range of threads: the keys of the rows, and what they name.
TABLES = "doctor_checkpoints", "doctor_blobs", "doctor_labels", "doctor_writes"
# Checking a row takes about as long as decoding this number of bytes.
BYTES = 100
# A write may be stored before its checkpoint, and that after a newer one: another run goes on meanwhile, or has a clock
# that is ahead. With durability="exit", the time in an id is that at which its superstep began.
OVERTAKEN = timedelta(days=1)


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
    Check("unused chunk", "a chunk that no value in use refers to; --fix deletes it", repairable=True),
    Check(
        "dangling label",
        "a label whose checkpoint does not exist; --fix deletes it",
        repairable=True,
    ),
    Check(
        "late write",
        "writes to a checkpoint that does not exist, a day older than the newest one: they were stored after it was "
        "deleted; --fix deletes them",
        repairable=True,
    ),
    Check(
        "write without a checkpoint",
        "writes of a thread that has no checkpoint: its run has just started, or died; if it died, delete the thread",
        wrong=False,
    ),
)
BY_NAME = {check.name: check for check in CHECKS}


class Finding(NamedTuple):
    """A row with a problem.

    Attributes:
        check: The name of the check.
        thread_id: The thread.
        checkpoint_ns: The namespace.
        names: What else names the row, and what it names.
    """

    check: str
    thread_id: str
    checkpoint_ns: str
    names: Sequence[str]


class DoctorPage(NamedTuple):
    """The findings in a page of threads, the number of the threads with a checkpoint, and the other threads to check.

    `remaining` is None if there are none.
    """

    findings: Sequence[Finding]
    threads: int
    remaining: Range | None


@operation("snapshot")
def look(d: SqlDialect, within: Range, checkpoints: int = PAGE) -> Steps[DoctorPage]:
    """Check the first page of a range of threads.

    Round trips: 2.
    Rows: all rows of the threads of the page, without values.
    Snapshot: one read snapshot.
    """
    page, remaining = yield from page_of_threads(d, within, checkpoints)
    replies = yield d.ask(*TABLES, **page._asdict())
    findings = yield from offload(sum(map(len, replies)) * BYTES, problems, d, *replies)
    return DoctorPage(findings, len({row[0] for row in replies[0]}), remaining)


def problems(
    d: SqlDialect, checkpoints: Sequence[Row], blobs: Sequence[Row], labels: Sequence[Row], writes: Sequence[Row]
) -> list[Finding]:
    """Return what is wrong in complete threads, given the rows of the doctor_ statements."""
    found: list[Finding] = []

    def add(check: str, stored: str, checkpoint_ns: str, *names: Any) -> None:
        found.append(Finding(check, d.own_thread_id(stored), checkpoint_ns, [str(name) for name in names]))

    places = {tuple(row[:3]) for row in checkpoints}
    threads = {row[0] for row in checkpoints}
    newest: dict[tuple[str, ...], str] = {}
    parents = set()
    values = {tuple(row[:4]) for row in blobs}
    used = set()
    for *space, checkpoint_id, parent_id, hidden, channels, versions in checkpoints:
        for blob in zip(d.names(channels), d.names(versions), strict=True):
            used.add((*space, *blob))
            if (*space, *blob) not in values:
                add("missing value", *space, checkpoint_id, *blob)
        parents.add((*space, parent_id))
        if not hidden:
            newest[tuple(space)] = max(checkpoint_id, newest.get(tuple(space), ""))
        if parent_id is not None and not hidden and (*space, parent_id) not in places:
            add("deleted parent", *space, checkpoint_id, parent_id)
        if parent_id is not None and parent_id > checkpoint_id:
            add("id before its parent", *space, checkpoint_id, parent_id)
    for *channel, version, chunks in blobs:
        for name in json.loads(chunks or "[]"):
            if (*channel, name) not in values:
                add("missing chunk", *channel, version, name)
            if (*channel, version) in used:
                used.add((*channel, name))
    for unused in sorted(values - used):
        add("unused chunk" if unused[3].startswith(NAME_MARK) else "unused value", *unused)
    for *place, name in labels:
        if tuple(place) not in places:
            add("dangling label", *place, name)
    needed = places | parents  # A checkpoint in an old format has sends in the writes to its parent.
    for stored, checkpoint_ns, checkpoint_id in writes:
        if (stored, checkpoint_ns, checkpoint_id) in needed:
            continue
        if stored not in threads:
            add("write without a checkpoint", stored, checkpoint_ns, checkpoint_id)
        # A later one may still be stored: of a subgraph call, until the root graph has gone on.
        elif _is_late(checkpoint_id, newest.get((stored, checkpoint_ns), newest.get((stored, ""), ""))):
            add("late write", stored, checkpoint_ns, checkpoint_id)
    return found


def _is_late(checkpoint_id: str, newest: str) -> bool:
    """Whether a checkpoint would be stored by now, by the times in its id and in that of the newest one."""
    made, made_last = time_of(checkpoint_id), time_of(newest)
    return made is not None and made_last is not None and made + OVERTAKEN <= made_last


@operation("transaction")
def repair(d: SqlDialect, thread_id: str) -> Steps[int]:
    """Delete the values, chunks and labels of a thread that are unused, and late writes.

    Returns their number; writes to one checkpoint count once.

    Round trips: 1, or 2 if there are any.
    Idempotent: yes.
    """
    replies = yield d.ask(*TABLES, lock="exclusive", thread_id=thread_id, **d.only(thread_id)._asdict())
    found = problems(d, *replies)
    blobs = [
        (one.checkpoint_ns, channel, version)
        for one in found
        if one.check in ("unused value", "unused chunk")
        for channel, version in [one.names]
    ]
    labels = [one.names[-1] for one in found if one.check == "dangling label"]
    late = [(one.checkpoint_ns, *one.names) for one in found if one.check == "late write"]
    if blobs or labels or late:
        unlabelled = d.ask_each("delete_label", [{"name": name} for name in labels], thread_id=thread_id)
        written = d.ask_keys("delete_writes", thread_id, late)
        yield one_trip([d.delete_blobs(thread_id, blobs), unlabelled, written])
    return len(blobs) + len(labels) + len(late)
