"""What is left to do in a thread: its state, its open interrupts, its runs; and the threads in a state, or that wait.

Must not know: SQL, connections.

A thread is in the state of its newest checkpoint, which may be read with objects or raw: failed, waiting, unfinished or
done. The last checkpoint of a run shows whether the run is finished.

For each task that is still to be started, LangGraph leaves a value in a channel: `branch:to:…` for a node, `__start__`
for the input, `__pregel_tasks` for sends, `join:…` for a node whose predecessors are all done. Of the last two kinds,
the value decides. A graph that is made of `Pregel` itself, with channels of other names, always looks finished.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple, PendingWrite
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, TASKS

from langgraph_checkpoint_custom.encoding.decode import Decoder
from langgraph_checkpoint_custom.encoding.extensions import Extension, stored_data, unpack_plain
from langgraph_checkpoint_custom.encoding.langgraph_private import NO_TASK, interrupt_id
from langgraph_checkpoint_custom.encoding.raw import object_of, plain
from langgraph_checkpoint_custom.encoding.values import ValueCodec
from langgraph_checkpoint_custom.engine.operation import Row, Steps, offload, operation
from langgraph_checkpoint_custom.errors import CorruptCheckpoint, StaleInterrupt
from langgraph_checkpoint_custom.model.filter import Condition
from langgraph_checkpoint_custom.model.keys import Key, TupleRow, right_above
from langgraph_checkpoint_custom.model.outline import FORMAT_WITH_SENDS
from langgraph_checkpoint_custom.model.records import (
    Interrupt,
    Question,
    RunRecord,
    ThreadPage,
    ThreadRecord,
    WaitingThread,
    time_from,
)
from langgraph_checkpoint_custom.operations.list_threads import ThreadsReply, threads_page
from langgraph_checkpoint_custom.operations.read import get_tuple, in_order
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

State = Literal["failed", "waiting", "unfinished", "done"]

_LOG = logging.getLogger("langgraph_checkpoint_custom")

# Threads for one round trip.
PAGE = 1_000
_BRANCH_TO = "branch:to:"
_BRANCH, _JOIN, _START = "branch:", "join:", "__start__"


def state_of(found: CheckpointTuple) -> State:
    """Return the state of a thread from its newest checkpoint.

    - failed: a task has failed, and not succeeded since. It outranks the others.
    - waiting: a question to a human is open.
    - unfinished: something is still to be started, or a superstep has begun and not ended. Whether a run works on it,
      the store does not know.
    - done: nothing is left to do.
    """
    writes = found.pending_writes or []
    if failures_of(found):
        return "failed"
    if open_among(found.checkpoint, writes):
        return "waiting"
    is_left = any(_is_next(name, value) for name, value in found.checkpoint["channel_values"].items())
    return "unfinished" if _finished(writes) or is_left else "done"


def failures_of(found: CheckpointTuple) -> list[tuple[str, str]]:
    """Return the tasks that have failed and not succeeded since, each with its error as a text."""
    writes = found.pending_writes or []
    finished = _finished(writes)
    return [
        (task_id, str(plain(error)))
        for task_id, channel, error in writes
        if channel == ERROR and task_id not in finished
    ]


def _finished(writes: Sequence[PendingWrite]) -> set[str]:
    return {task_id for task_id, channel, _ in writes if channel not in WRITES_IDX_MAP}


def _starts_a_node(channel: str) -> bool:
    """Whether any value of a channel shows that a task is still to be started."""
    return channel == _START or channel.startswith(_BRANCH)


def _decides(channel: str) -> bool:
    """Whether the value of a channel shows if a task is still to be started."""
    return channel == TASKS or channel.startswith(_JOIN)


def _starts(channel: str, value: Any) -> bool:
    """Return whether the value of a channel for sends or predecessors shows that a task is still to be started."""
    if channel == TASKS:
        return bool(value)
    # The value of `join:a+b:c` lists the predecessors that are done. Once all are, their joined names are as long as
    # `a+b`.
    names = channel.removeprefix(_JOIN).rpartition(":")[0] if channel.startswith(_JOIN) else None
    return (
        names is not None
        and isinstance(value, (set, frozenset, list, tuple))
        and len("+".join(map(str, value))) == len(names)
    )


def _is_next(channel: str, value: Any) -> bool:
    return _starts_a_node(channel) or _starts(channel, _content(value))


def next_nodes(values: Mapping[str, Any]) -> list[str]:
    """Return the nodes that start next, as far as the channel values say, which are read raw."""
    found = [name for name, value in values.items() if name != TASKS and _is_next(name, value)]
    return [*(name.rpartition(":")[2] for name in found), *(node for node in sent_to(values) if node)]


def sent_to(values: Mapping[str, Any]) -> list[str]:
    """Return the node of each `Send` in the channel values, in their order; empty if it is not known."""
    sends = plain(values.get(TASKS))
    contents = [_content(send) for send in sends] if isinstance(sends, list) else []
    return [str(content[0]) if isinstance(content, list) and content else "" for content in contents]


def _content(value: Any) -> Any:
    """Return what a stored object is created from; other values as they are."""
    stored = object_of(value) if type(value := plain(value)) is Extension else None
    return value if stored is None else stored.content


@operation("read")
def threads_in_state(
    d: SqlDialect,
    codec: ValueCodec,
    page: ThreadPage,
    wanted: Sequence[Condition],
    state: State,
    *,
    even_unreadable: bool = False,
    reach: int | None = None,
) -> Steps[ThreadsReply]:
    """Return the threads of a page that are in a state, but none that cannot be read. An index finds two of the states.

    Round trips: 1 for "failed" and "waiting", else those of `threads_page`; and one for each thread of the page.
    Rows: the errors or interrupts of all threads, and those of the newest checkpoints of the page, with their values.
    Snapshot: one for each round trip.
    Raises: CorruptCheckpoint for metadata, unless `even_unreadable`.
    """
    marked = state if state in ("failed", "waiting") else ""
    op = threads_page(d, codec, page._replace(marked=marked), wanted, even_unreadable=even_unreadable, reach=reach)
    reply = yield from op.start()
    found: list[ThreadRecord] = []
    for record in reply.threads:
        newest = record.newest
        key = Key(record.thread_id, newest.checkpoint_ns, newest.checkpoint_id)
        try:
            read = yield from get_tuple(d, codec, None, key).start()
        except CorruptCheckpoint as error:
            _LOG.warning("the state of thread %r is not known, so it is left out: %s", record.thread_id, error)
            continue
        if read is not None and state_of(read) == state:
            found.append(record)
    return reply._replace(threads=found)


@operation("snapshot")
def runs_of_thread(d: SqlDialect, codec: ValueCodec, thread_id: str) -> Steps[list[RunRecord]]:
    """Return the runs of a thread; the one that began last is first.

    Round trips: 1, and one more if values show whether a run is finished; one more for each last checkpoint with such a
        value in a blob, or older than format 4.
    Rows: the checkpoints of the root graph, and the last one of each run.
    Snapshot: one read snapshot.
    Raises: CorruptCheckpoint.
    """
    (rows,) = yield d.ask("select_runs", thread_id=thread_id)
    waiting, in_documents, anywhere = set(), [], []
    for _, _, last_id, _, format_, *lists in rows:
        inline, blobs = map(d.names, lists)
        key = Key(thread_id, "", last_id)
        if any(_starts_a_node(channel) for channel in (*inline, *blobs)):
            waiting.add(last_id)
        elif format_ < FORMAT_WITH_SENDS or any(map(_decides, blobs)):
            anywhere.append(key)
        elif any(map(_decides, inline)):
            in_documents.append(key)
    documents = (yield d.ask_each("select_document", map(Key._asdict, in_documents))) if in_documents else []
    for key, stored in zip(in_documents, documents, strict=True):
        decoder = Decoder(codec, thread_id, "", key.checkpoint_id or "")
        for type_, data in stored:  # Nothing if it was deleted since, which a transaction of the caller's may see.
            document = yield from offload(len(data), decoder.document, type_, data)
            if any(_starts(*each) for each in document["channel_values"].items()):
                waiting.add(key.checkpoint_id or "")
    for key in anywhere:
        found = yield from get_tuple(d, codec, None, key).start()
        if found and any(_starts(*each) for each in found.checkpoint["channel_values"].items()):
            waiting.add(key.checkpoint_id or "")
    runs = [RunRecord(run_id, first, last, number, last not in waiting) for run_id, first, last, number, *_ in rows]
    return sorted(runs, key=lambda run: run.first_id, reverse=True)


# Open interrupts


class WaitingReply(NamedTuple):
    """Threads that wait, and the number of all threads whose newest checkpoint has a question, answered or not."""

    threads: Sequence[WaitingThread]
    asking: int


def open_among(checkpoint: Mapping[str, Any], writes: Sequence[PendingWrite]) -> list[Interrupt]:
    """Return the open interrupts among the writes of a checkpoint, of which it reads interrupts and answers only.

    The interrupt of a task stays stored after it was answered, until the superstep is over. A task that has written
    anything else is done.
    """
    done = _finished(writes)
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
        names = [name for name in checkpoint.get("channel_versions") or () if name.startswith(_BRANCH_TO)]
        done |= {
            task_id
            for task_id, interrupt in asked
            if _is_answered(
                _id_of(interrupt),
                [f"{name.removeprefix(_BRANCH_TO)}:{task_id}" for name in names],
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


@operation("read")
def check_interrupt(d: SqlDialect, codec: ValueCodec, key: Key, interrupt_id: str) -> Steps[None]:
    """Raise an error unless a checkpoint has this open interrupt.

    Round trips: 1.
    Raises: StaleInterrupt, CorruptCheckpoint.
    """
    found = yield from get_tuple(d, codec, None, key).start()
    waiting = [each.id for each in open_among(found.checkpoint, found.pending_writes or [])] if found else []
    if interrupt_id not in waiting:
        raise StaleInterrupt(
            f"interrupt {interrupt_id!r} is no longer open: "
            + (f"now {', '.join(map(repr, waiting))} is" if waiting else "the thread is not waiting for an answer")
            + "; show the open question again before you resume"
        )
