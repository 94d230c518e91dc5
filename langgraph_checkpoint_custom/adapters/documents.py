"""Documents and logs, of which the adapters' operations are composed.

Must not know: SQL, connections, the clock.

A document is the channel values of the newest checkpoint of a namespace. The older checkpoints are its earlier
versions; a prune deletes them. A log is one checkpoint. Its writes are the log's entries, so the cost of appending
depends only on what is appended. Both are in threads of other frameworks; see `model/namespaced_ids.py`. Only
"exclusive" operations change them, so what an operation has read is still the newest version when it stores the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.serde.types import INTERRUPT

from langgraph_checkpoint_custom.encoding.chunks import NO_BLOBS, KnownBlobs
from langgraph_checkpoint_custom.encoding.encode import encode_checkpoint, encode_rows
from langgraph_checkpoint_custom.encoding.objects import error_text
from langgraph_checkpoint_custom.encoding.values import Values
from langgraph_checkpoint_custom.engine.operation import Offload, RoundTrip, Steps, operation, through, work_out
from langgraph_checkpoint_custom.errors import CorruptCheckpoint
from langgraph_checkpoint_custom.model.keys import AFTER_ALL, Key
from langgraph_checkpoint_custom.model.outline import FORMAT_WITH_SENDS
from langgraph_checkpoint_custom.model.pages import first_page
from langgraph_checkpoint_custom.model.records import RECORDS, Question, ThreadPage, ThreadRecord
from langgraph_checkpoint_custom.operations.list_threads import history_page, threads_page
from langgraph_checkpoint_custom.operations.read import checkpoints_of_threads, get_tuple
from langgraph_checkpoint_custom.operations.write import put, put_writes
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

T = TypeVar("T")

# The channel of a log's entries.
ENTRY = "entry"


class Document(NamedTuple):
    """One version of a document.

    Attributes:
        key: The checkpoint of this version.
        step: The number of versions before it.
        values: Its content by channel, decoded for this call; changing it in place does not change what is stored.
        metadata: The adapter's metadata, and LangGraph's `source` and `step`.
        entries: The entries, in order, if it is a log.
        versions: The channel versions.
        known: How the values are stored, so that the next version can share what does not change.
    """

    key: Key
    step: int
    values: Mapping[str, Any]
    metadata: Mapping[str, Any]
    entries: Sequence[Any]
    versions: Mapping[str, Any]
    known: KnownBlobs


@dataclass
class Attempt(Generic[T]):
    """One change, which may be tried more than once: it can be stored although the reply to it was lost.

    Attributes:
        checkpoint_id: A new checkpoint id, made from the current time.
        at: That time in ISO 8601.
        stored: The first checkpoint that an attempt stored.
        result: What that attempt returned.
    """

    checkpoint_id: str
    at: str
    stored: Key | None = None
    result: T | None = None


def once(d: SqlDialect, attempt: Attempt[T], steps: Steps[T]) -> Steps[T]:
    """Run `steps`, unless an earlier attempt stored the change; return their result, or that attempt's.

    Round trips: those of `steps`, and 1 more if an earlier attempt may have stored the change.
    """
    if attempt.stored is not None:
        (rows,) = yield d.select_document(attempt.stored)
        if rows:
            steps.close()
            return attempt.result  # type: ignore[return-value]  # It is what the steps returned, so of type T.
        attempt.stored = None
    attempt.result = yield from steps
    return attempt.result


def read_document(
    d: SqlDialect, codec: Values, thread_id: str, name: str = "", checkpoint_id: str | None = None
) -> Steps[Document | None]:
    """Return the newest version of a document, or the one with `checkpoint_id`; None if there is none.

    Round trips: 1.

    Raises:
        CorruptCheckpoint: A stored value cannot be decoded.
    """
    known = NO_BLOBS

    def remember(thread_id: str, checkpoint_ns: str, checkpoint_id: str, values: KnownBlobs | None) -> None:
        nonlocal known
        known = values or NO_BLOBS

    found = yield from get_tuple(d, codec, no_version, remember, Key(thread_id, name, checkpoint_id)).start()
    if found is None:
        return None
    return Document(
        Key(thread_id, name, found.checkpoint["id"]),
        found.metadata.get("step", 0),
        found.checkpoint["channel_values"],
        found.metadata,
        [value for _, _, value in found.pending_writes or ()],
        found.checkpoint["channel_versions"],
        known,
    )


def replaced_document(d: SqlDialect, codec: Values, thread_id: str) -> Steps[Document | None]:
    """Return the newest version of a document that is about to be replaced completely; None if there is none.

    Its values are left out, so that a document whose values cannot be read can be replaced too.

    Round trips: 1, or 3 if it cannot be read.
    """
    try:
        before = yield from _caught(read_document(d, codec, thread_id))
        return before and before._replace(values={}, versions={})
    except Exception:  # CorruptCheckpoint, or any error of the user's serializer.
        (locations,) = yield from checkpoints_of_threads(d, [thread_id]).start()
        ids = [row[1] for row in locations if row[0] == ""]
        newest = first_page(thread_id, "", max(ids), None, 1)
        try:
            (record,) = (yield from _caught(history_page(d, codec, newest, ()).start())).records
            metadata = record.metadata
        except Exception:  # Its metadata cannot be read either, so the next version starts with new metadata.
            metadata = {}
        return Document(
            Key(thread_id, "", max(ids)), metadata.get("step", len(ids) - 1), {}, metadata, (), {}, NO_BLOBS
        )


def _caught(steps: Steps[T]) -> Steps[T]:
    """Run `steps` so that an error in an `Offload` is raised here, and a caller can catch it.

    Otherwise the driver gets the error of a worker, and the operation does not see it.
    """

    def answer(request: RoundTrip | Offload) -> Steps[Any]:
        if not isinstance(request, Offload):
            return (yield request)
        reply = yield Offload(request.size, partial(_outcome, request.work))
        if isinstance(reply, _Failed):
            raise reply.error
        return reply

    return through(steps, answer)


class _Failed(NamedTuple):
    error: Exception


def _outcome(work: Callable[[], T]) -> T | _Failed:
    try:
        return work()
    except Exception as error:
        return _Failed(error)


def store_document(
    d: SqlDialect,
    codec: Values,
    attempt: Attempt[Any],
    location: tuple[str, str],
    before: Document | None,
    changed: Mapping[str, Any],
    metadata: Mapping[str, Any] | None = None,
    question: Question | None = None,
) -> Steps[Key]:
    """Store the next version of a document, with some of its values changed; return its key.

    Round trips: 1, or 2 with a question.

    Args:
        d: The dialect.
        codec: Encodes the values.
        attempt: The change that this is a part of.
        location: The thread and the namespace.
        before: The version before, read by the same operation.
        changed: The new values by channel; the other channels stay as they are.
        metadata: The adapter's metadata for this version.
        question: What waits for a human as of this version. It is stored where LangGraph stores an interrupt, so
            `interrupts()` lists it until a later version has no question.
    """
    checkpoint_id = _id_after(attempt.checkpoint_id, before)
    key = Key(*location, checkpoint_id)
    new: ChannelVersions = dict.fromkeys(changed, checkpoint_id)  # The id is new, so no channel had this version.
    checkpoint = Checkpoint(
        v=FORMAT_WITH_SENDS,
        id=checkpoint_id,
        ts=attempt.at,
        channel_values={**before.values, **changed} if before else dict(changed),
        channel_versions={**before.versions, **new} if before else dict(new),
        versions_seen={},
        updated_channels=sorted(new),
    )
    complete: dict[str, Any] = {**(metadata or {}), "source": "update", "step": before.step + 1 if before else 0}
    parent = before.key.checkpoint_id if before else None
    config: RunnableConfig = {"configurable": dict(zip(_LOCATION, location, strict=True))}
    if parent:
        config["configurable"]["checkpoint_id"] = parent
    encoded = encode_checkpoint(
        codec,
        Key(*location, parent),
        config,
        checkpoint,
        CheckpointMetadata(**complete),  # type: ignore[typeddict-item]  # The type does not list the adapter's keys.
        new,
        before.known if before else None,
    )
    # Encode here and not in a worker: a transaction is open.
    if isinstance(encoded, Offload):
        encoded = encoded.work()
    yield from put(d, encoded).start()
    if question is not None:
        rows = work_out(encode_rows(codec, key, [(INTERRUPT, [question._asdict()])], "question", "", None))
        yield from put_writes(d, *rows).start()
    attempt.stored = attempt.stored or key
    return key


@operation("snapshot")
def threads_under(d: SqlDialect, codec: Values, prefix: str) -> Steps[list[ThreadRecord]]:
    """Return the threads whose ids start with `prefix`, as of one point in time, the last changed one first.

    Round trips: 1 for 200 threads.
    """
    found: list[ThreadRecord] = []
    page: ThreadPage | None = ThreadPage(AFTER_ALL, "", (), RECORDS, prefix)
    while page is not None:
        reply = yield from threads_page(d, codec, page, ()).start()
        found += reply.threads
        page = reply.after
    return found


def misshapen(key: Key, channel: str, error: Exception) -> CorruptCheckpoint:
    """Return the error for a value that can be decoded, but does not have the form that the adapter stores."""
    return CorruptCheckpoint(
        f"the stored value does not have the expected form ({error_text(error)})",
        thread_id=key.thread_id,
        checkpoint_ns=key.checkpoint_ns,
        checkpoint_id=key.checkpoint_id or "",
        channel=channel,
        type=None,
    )


def append_entries(d: SqlDialect, codec: Values, log: Key, batch: int, entries: Sequence[Any]) -> Steps[None]:
    """Append entries to a log, as batch number `batch`.

    Reads return the batches in the order of their numbers. A number must not be used twice.

    Round trips: 1.
    """
    writes = [(ENTRY, entry) for entry in entries]
    yield from put_writes(d, *work_out(encode_rows(codec, log, writes, f"{batch:020d}", "", None))).start()


_LOCATION = "thread_id", "checkpoint_ns"


def _id_after(fresh: str, before: Document | None) -> str:
    """Return an id that sorts after all others of a document.

    That is `fresh`, which comes from the clock. If the newest version's id is higher, because the clock of another
    machine is ahead, it is that id plus one.
    """
    newest = before.key.checkpoint_id if before else None
    if newest is None or fresh > newest:
        return fresh
    return str(UUID(int=UUID(newest).int + 1))


def no_version(current: None, channel: None) -> str:
    """Raise AssertionError. Reads need a function that makes versions for pending sends; documents have no sends."""
    raise AssertionError("a document holds no sends")
