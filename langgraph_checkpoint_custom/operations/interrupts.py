"""Finding open interrupts: of one thread, and of all threads.

Must not know: databases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple, PendingWrite
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME

from langgraph_checkpoint_custom.encoding.decode import Decoder
from langgraph_checkpoint_custom.encoding.extensions import Extension, stored_data, unpack_plain
from langgraph_checkpoint_custom.encoding.langgraph_private import NO_TASK, interrupt_id
from langgraph_checkpoint_custom.encoding.values import ValueCodec
from langgraph_checkpoint_custom.engine.operation import Row, Steps, offload, operation
from langgraph_checkpoint_custom.errors import StaleInterrupt
from langgraph_checkpoint_custom.model.keys import Key, TupleRow, right_above
from langgraph_checkpoint_custom.model.records import Interrupt, Question, WaitingThread, time_from
from langgraph_checkpoint_custom.operations.read import in_order
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# Threads for one round trip.
PAGE = 1_000
_BRANCH = "branch:to:"


class WaitingReply(NamedTuple):
    """Threads that wait, and the number of all threads whose newest checkpoint has a question, answered or not."""

    threads: Sequence[WaitingThread]
    asking: int


def open_interrupts(found: CheckpointTuple | None) -> dict[str, object]:
    """Return the values of the open interrupts of a checkpoint, by their ids."""
    if found is None:
        return {}
    return {interrupt.id: interrupt.value for interrupt in open_among(found.checkpoint, found.pending_writes or [])}


def open_among(checkpoint: Mapping[str, Any], writes: Sequence[PendingWrite]) -> list[Interrupt]:
    """Return the open interrupts among the writes of a checkpoint, of which it reads interrupts and answers only.

    The interrupt of a task stays stored after it was answered, until the superstep is over. A task that has written
    anything else is done.
    """
    done = {task_id for task_id, channel, _ in writes if channel not in WRITES_IDX_MAP}
    asked = [
        (task_id, interrupt)
        for task_id, channel, interrupts in writes
        if channel == INTERRUPT
        # Other frameworks' questions are stored as dicts.
        for interrupt in (Question(**each) if isinstance(each, dict) else each for each in interrupts)
    ]
    answers = {task_id: answer for task_id, channel, answer in writes if channel == RESUME}
    if answers and asked:
        failed = {task_id for task_id, channel, _ in writes if channel == ERROR}
        names = [name for name in checkpoint.get("channel_versions") or () if name.startswith(_BRANCH)]
        done |= {
            task_id
            for task_id, interrupt in asked
            if _is_answered(
                _id_of(interrupt),
                [f"{name.removeprefix(_BRANCH)}:{task_id}" for name in names],
                _as_list(answers.get(task_id, [])),
                _as_list(answers.get(NO_TASK, [])) if len(asked) == 1 else [],
                task_id in failed,
            )
        }
    return [interrupt for task_id, interrupt in asked if task_id not in done]


def _is_answered(
    asked_id: str | None, namespaces: Iterable[str], used: Sequence[object], given: Sequence[object], has_failed: bool
) -> bool:
    """Whether the answer to a question is stored: its node has failed since, or has not run again.

    A question's id is made of the namespace of the task, and the number of answers that the task had used before. If
    the task fails, the answers that it has used so far are stored with the error. `Command(resume=…)` stores an answer
    before any task uses it: that is `given`, if there is only one question. A subgraph stores what it has used in a
    namespace of its own, so that nothing is certain about its questions: they are open until the node is done.
    """
    for namespace in namespaces:
        if has_failed and asked_id and asked_id in {interrupt_id(namespace, number) for number in range(len(used))}:
            return True
        if given and asked_id and asked_id == interrupt_id(namespace, len(used)):
            return not used or not _may_be_equal(used[-1], given[-1])
    return False


def _id_of(interrupt: object) -> str | None:
    if isinstance(interrupt, Extension):  # It was read raw.
        with suppress(ValueError, TypeError):
            stored = stored_data(*unpack_plain(interrupt.data))
            return stored.get("id") if isinstance(stored, dict) else None
    return getattr(interrupt, "id", None)


def _as_list(answer: Any) -> list[Any]:
    return answer if isinstance(answer, list) else [answer]


def _may_be_equal(one: object, other: object) -> bool:
    try:
        return bool(one == other)
    except Exception:  # Objects of the user's classes, such as arrays, may refuse.
        return True


@operation("read")
def waiting_threads(
    d: SqlDialect, codec: ValueCodec, prefix: str, after: tuple[str, str] = ("", ""), limit: int | None = None
) -> Steps[WaitingReply]:
    """Return the threads whose newest root checkpoint has an open interrupt; the one that waits longest is first.

    `after` is the checkpoint id and the id of the last thread of an earlier page.

    Round trips: two for each thousand threads that have a stored interrupt, open or not, and two for each thousand, or
        `limit`, of those whose newest checkpoint has one, until the page is full.
    Rows: the keys of these threads' newest checkpoints; of the page, also the interrupts, the writes and the documents.
    Snapshot: one read snapshot for each statement.
    Raises: CorruptCheckpoint.
    """
    places: list[tuple[str, str]] = []
    ranges = [*d.ranges(prefix)]
    while ranges:
        within, *ranges = ranges
        (stored,) = yield d.ask("select_interrupting", **within._asdict(), limit=PAGE)
        thread_ids = [d.own_thread_id(row[0]) for row in stored]
        if len(stored) == PAGE:
            ranges.insert(0, within._replace(bottom=right_above(stored[-1][0])))
        asking = (yield d.ask_each("select_asking", [{"thread_id": each} for each in thread_ids])) if thread_ids else []
        places += [(row[0], thread_id) for thread_id, rows in zip(thread_ids, asking, strict=True) for row in rows]
    todo = sorted(place for place in places if place > after)
    size = PAGE if limit is None else min(PAGE, limit)
    found: list[WaitingThread] = []
    while todo and (limit is None or len(found) < limit):
        some, todo = todo[:size], todo[size:]
        keys = [Key(thread_id, "", checkpoint_id)._asdict() for checkpoint_id, thread_id in some]
        writes = yield d.ask_each("select_questions", keys)
        documents = yield d.ask_each("select_document", keys)
        bytes_ = sum(len(row[6] or b"") for rows in writes for row in rows)
        bytes_ += sum(len(row[1]) for rows in documents for row in rows)
        found += yield from offload(bytes_, waiting, codec, some, writes, documents)
    return WaitingReply(found[:limit], len(places))


def waiting(
    codec: ValueCodec,
    places: Iterable[tuple[str, str]],
    replies: Iterable[Sequence[Row]],
    documents: Iterable[Sequence[Row]],
) -> list[WaitingThread]:
    """Return the threads with an open interrupt, given the writes and the document of each checkpoint."""
    found = []
    for (checkpoint_id, thread_id), rows, stored in zip(places, replies, documents, strict=True):
        if not stored:  # The checkpoint was deleted in the meantime.
            continue
        decoder = Decoder(codec, thread_id, "", checkpoint_id)
        writes = [
            (row.key or "", row.name or "", decoder.write(row) if row.name in (INTERRUPT, RESUME) else None)
            for row in in_order(
                [TupleRow._make(("write", thread_id, "", *row, None, None, None, None)) for row in rows]
            )
        ]
        if not any(questions for _, channel, questions in writes if channel == INTERRUPT):
            continue
        document = decoder.document_without_objects(*stored[0])
        if interrupts := open_among(document, writes):
            found.append(WaitingThread(thread_id, checkpoint_id, time_from(document.get("ts")), tuple(interrupts)))
    return found


def check_open(found: CheckpointTuple | None, interrupt_id: str) -> None:
    """Raise `StaleInterrupt` unless a checkpoint has this open interrupt."""
    waiting = open_interrupts(found)
    if interrupt_id not in waiting:
        raise StaleInterrupt(
            f"interrupt {interrupt_id!r} is no longer open: "
            + (f"now {', '.join(map(repr, waiting))} is" if waiting else "the thread is not waiting for an answer")
            + "; show the open question again before you resume"
        )
