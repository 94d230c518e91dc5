"""What a thread is in: failed, waiting, unfinished or done; and the lists of the threads that are in a state.

Must not know: SQL, connections.

A thread is in the state of its newest checkpoint, which may be read with objects or raw.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple, PendingWrite
from langgraph.checkpoint.serde.types import ERROR, TASKS

from langgraph_checkpoint_custom.encoding.extensions import Extension
from langgraph_checkpoint_custom.encoding.raw import object_of, plain
from langgraph_checkpoint_custom.encoding.values import ValueCodec
from langgraph_checkpoint_custom.engine.operation import Steps, operation
from langgraph_checkpoint_custom.errors import CorruptCheckpoint
from langgraph_checkpoint_custom.model.filter import Condition
from langgraph_checkpoint_custom.model.keys import Key
from langgraph_checkpoint_custom.model.records import ThreadPage, ThreadRecord
from langgraph_checkpoint_custom.operations.interrupts import open_among
from langgraph_checkpoint_custom.operations.list_threads import ThreadsReply, starts, threads_page
from langgraph_checkpoint_custom.operations.read import get_tuple
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

State = Literal["failed", "waiting", "unfinished", "done"]

_LOG = logging.getLogger("langgraph_checkpoint_custom")

# Channels of LangGraph's own, which say what runs next.
_BRANCH, _JOIN, _START = "branch:to:", "join:", "__start__"


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


def _is_next(channel: str, value: Any) -> bool:
    return channel == _START or channel.startswith(_BRANCH) or starts(channel, _content(value))


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
            read = yield from get_tuple(d, codec, lambda *_: "1", None, key).start()
        except CorruptCheckpoint as error:
            _LOG.warning("the state of thread %r is not known, so it is left out: %s", record.thread_id, error)
            continue
        if read is not None and state_of(read) == state:
            found.append(record)
    return reply._replace(threads=found)
