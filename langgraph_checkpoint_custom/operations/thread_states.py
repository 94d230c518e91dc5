"""What is left to do in a thread: its state, the lists of the threads that are in a state, and its runs.

Must not know: SQL, connections.

A thread is in the state of its newest checkpoint, which may be read with objects or raw: failed, waiting, unfinished or
done. The last checkpoint of a run shows whether the run is finished.

For each task that is still to be started, LangGraph leaves a value in a channel: `branch:to:…` for a node, `__start__`
for the input, `__pregel_tasks` for sends, `join:…` for a node whose predecessors are all done. Of the last two kinds,
the value decides. A graph that is made of `Pregel` itself, with channels of other names, always looks finished.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple, PendingWrite
from langgraph.checkpoint.serde.types import ERROR, TASKS

from langgraph_checkpoint_custom.encoding.decode import Decoder
from langgraph_checkpoint_custom.encoding.extensions import Extension
from langgraph_checkpoint_custom.encoding.raw import object_of, plain
from langgraph_checkpoint_custom.encoding.values import ValueCodec
from langgraph_checkpoint_custom.engine.operation import Steps, offload, operation
from langgraph_checkpoint_custom.errors import CorruptCheckpoint
from langgraph_checkpoint_custom.model.filter import Condition
from langgraph_checkpoint_custom.model.keys import Key
from langgraph_checkpoint_custom.model.outline import FORMAT_WITH_SENDS
from langgraph_checkpoint_custom.model.records import RunRecord, ThreadPage, ThreadRecord
from langgraph_checkpoint_custom.operations.interrupts import open_among
from langgraph_checkpoint_custom.operations.list_threads import ThreadsReply, threads_page
from langgraph_checkpoint_custom.operations.read import get_tuple
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

State = Literal["failed", "waiting", "unfinished", "done"]

_LOG = logging.getLogger("langgraph_checkpoint_custom")

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


def _no_version(*_: None) -> str:
    """Return a version for sends that are read from a parent's writes; nobody looks at it."""
    return "1"


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
            read = yield from get_tuple(d, codec, _no_version, None, key).start()
        except CorruptCheckpoint as error:
            _LOG.warning("the state of thread %r is not known, so it is left out: %s", record.thread_id, error)
            continue
        if read is not None and state_of(read) == state:
            found.append(record)
    return reply._replace(threads=found)


class _Last(NamedTuple):
    """A row of `select_runs`: a run, and what the row of its last checkpoint says."""

    run_id: str | None
    first_id: str
    last_id: str
    checkpoints: int
    format: int
    inline_channels: Any
    blob_channels: Any


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
    lasts = [_Last._make(row) for row in rows]
    waiting, in_documents, anywhere = set(), [], []
    for last in lasts:
        inline, blobs = d.names(last.inline_channels), d.names(last.blob_channels)
        key = Key(thread_id, "", last.last_id)
        if any(_starts_a_node(channel) for channel in (*inline, *blobs)):
            waiting.add(last.last_id)
        elif last.format < FORMAT_WITH_SENDS or any(map(_decides, blobs)):
            anywhere.append(key)
        elif any(map(_decides, inline)):
            in_documents.append(key)
    documents = (yield d.ask_each("select_document", map(Key._asdict, in_documents))) if in_documents else []
    for key, ((type_, data),) in zip(in_documents, documents, strict=True):
        decoder = Decoder(codec, thread_id, "", key.checkpoint_id or "")
        document = yield from offload(len(data), decoder.document, type_, data)
        if any(_starts(*each) for each in document["channel_values"].items()):
            waiting.add(key.checkpoint_id or "")
    for key in anywhere:
        found = yield from get_tuple(d, codec, _no_version, None, key).start()
        if found and any(_starts(*each) for each in found.checkpoint["channel_values"].items()):
            waiting.add(key.checkpoint_id or "")
    runs = [RunRecord(*last[:4], last.last_id not in waiting) for last in lasts]
    return sorted(runs, key=lambda run: run.first_id, reverse=True)
