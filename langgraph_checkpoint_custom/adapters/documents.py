"""What the operations of adapters are made of: documents that are stored in versions, and logs that grow.

Must not know: SQL, connections, the clock.

A document is what the newest checkpoint of a namespace holds in its channels; the older ones are its earlier versions,
which a prune takes away. A log is one checkpoint whose writes are its entries, so that to append costs what is
appended. Both belong to threads of other frameworks, see `kinds`, and are changed by "exclusive" operations only: what
has been read is still the newest when the next version is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.serde.base import CipherProtocol

from langgraph_checkpoint_custom.encoding.encode import encode_checkpoint, encode_rows
from langgraph_checkpoint_custom.encoding.known import NOTHING_KNOWN, KnownValues
from langgraph_checkpoint_custom.encoding.objects import said_by
from langgraph_checkpoint_custom.encoding.values import Values
from langgraph_checkpoint_custom.engine.operation import Offload, Steps, done, operation
from langgraph_checkpoint_custom.errors import CorruptCheckpoint
from langgraph_checkpoint_custom.model.keys import AFTER_ALL, Key, config_of
from langgraph_checkpoint_custom.model.records import RECORDS, ThreadPage, ThreadRecord
from langgraph_checkpoint_custom.operations.list_threads import history_page, threads_page
from langgraph_checkpoint_custom.operations.read import FORMAT_WITH_SENDS, get_tuple, threads_places
from langgraph_checkpoint_custom.operations.write import put, put_writes
from langgraph_checkpoint_custom.sql.dialect import SqlDialect, first_page

T = TypeVar("T")

# The channel of a log's entries.
ENTRY = "entry"


class Document(NamedTuple):
    """One version of a document.

    Attributes:
        key: The checkpoint that holds it.
        step: How many versions came before.
        values: What it holds, by channel; of a serializer's own, so that a change in place changes nothing stored.
        metadata: What is told about it, with LangGraph's `source` and `step`.
        entries: Of a log, in order.
        versions: The channel versions.
        known: What is known of the stored values.
    """

    key: Key
    step: int
    values: Mapping[str, Any]
    metadata: Mapping[str, Any]
    entries: Sequence[Any]
    versions: Mapping[str, Any]
    known: KnownValues


@dataclass
class Attempt(Generic[T]):
    """One change, which may be tried twice: the answer to the first try can be lost after it was stored.

    Args:
        checkpoint_id: A new id, by the clock.
        at: When that was, in ISO 8601.
    """

    checkpoint_id: str
    at: str
    stored: Key | None = None
    result: T | None = None


def once(d: SqlDialect, attempt: Attempt[T], steps: Steps[T]) -> Steps[T]:
    """Do what `steps` do, unless an earlier attempt has."""
    if attempt.stored is not None:
        (rows,) = yield d.select_document(attempt.stored)
        if rows:
            steps.close()
            return attempt.result  # type: ignore[return-value]  # Whatever the steps returned.
        attempt.stored = None
    attempt.result = yield from steps
    return attempt.result


def read_document(
    d: SqlDialect, codec: Values, thread_id: str, name: str = "", checkpoint_id: str | None = None
) -> Steps[Document | None]:
    """The newest version of a document, or another one; None if there is none.

    Trips: 1.
    Raises: CorruptCheckpoint.
    """
    known = NOTHING_KNOWN

    def note(key: Key, cipher: CipherProtocol | None, values: KnownValues) -> None:
        nonlocal known
        known = values

    found = yield from get_tuple(d, codec, no_version, note, Key(thread_id, name, checkpoint_id)).start()
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
    """The newest version of a document that is replaced whole, without its values: whether they can be read or not.

    Trips: 1, or 3 if it cannot be read.
    """
    try:
        before = yield from _caught(read_document(d, codec, thread_id))
        return before and before._replace(values={}, versions={})
    except Exception:  # CorruptCheckpoint, or whatever a serializer of the user's says.
        (locations,) = yield from threads_places(d, [thread_id]).start()
        ids = [row[1] for row in locations if row[0] == ""]
        newest = first_page(thread_id, "", max(ids), None, {}, 1)
        try:
            (record,) = (yield from _caught(history_page(d, codec, newest, {}).start())).records
            metadata = record.metadata
        except Exception:  # Its metadata cannot be read either: what replaces it begins anew.
            metadata = {}
        return Document(
            Key(thread_id, "", max(ids)), metadata.get("step", len(ids) - 1), {}, metadata, (), {}, NOTHING_KNOWN
        )


def _caught(steps: Steps[T]) -> Steps[T]:
    """The same steps, which raise what is wrong with a stored value even if that is found by a worker."""
    try:
        reply = None
        while True:
            try:
                request = steps.send(reply)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]  # StopIteration is not generic.
            if isinstance(request, Offload):
                reply = yield Offload(request.size, partial(_outcome, request.work))
                if isinstance(reply, _Failed):
                    raise reply.error
            else:
                reply = yield request
    finally:
        steps.close()


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
) -> Steps[Key]:
    """Store the next version of a document, with some of its values changed; returns where it is.

    Trips: 1.

    Args:
        d: The dialect.
        codec: What encodes values.
        attempt: The change that this is a part of.
        location: The thread and the namespace.
        before: The version before, as it was read by the same operation.
        changed: The values that are new, by channel; the others stay as they are.
        metadata: What is told about this version.
    """
    checkpoint_id = _behind(attempt.checkpoint_id, before)
    key = Key(*location, checkpoint_id)
    new: ChannelVersions = dict.fromkeys(changed, checkpoint_id)  # Never a version that was used before.
    checkpoint = Checkpoint(
        v=FORMAT_WITH_SENDS,
        id=checkpoint_id,
        ts=attempt.at,
        channel_values={**before.values, **changed} if before else dict(changed),
        channel_versions={**before.versions, **new} if before else dict(new),
        versions_seen={},
        updated_channels=sorted(new),
    )
    told: dict[str, Any] = {**(metadata or {}), "source": "update", "step": before.step + 1 if before else 0}
    parent = before.key.checkpoint_id if before else None
    config = config_of(*location, parent) if parent else {"configurable": dict(zip(_PLACE, location, strict=True))}
    encoded = encode_checkpoint(
        codec,
        Key(*location, parent),
        config,
        checkpoint,
        CheckpointMetadata(**told),  # type: ignore[typeddict-item]  # It takes more keys than it names.
        new,
        before.known if before else None,
    )
    # Done here and not left to a worker: this is in the middle of a transaction.
    yield from put(d, done(encoded)).start()
    attempt.stored = attempt.stored or key
    return key


@operation("snapshot")
def threads_under(d: SqlDialect, codec: Values, prefix: str) -> Steps[list[ThreadRecord]]:
    """The threads whose ids begin so, at one point in time, the one that was changed last first.

    Trips: 1 for 200 threads.
    """
    found: list[ThreadRecord] = []
    page: ThreadPage | None = ThreadPage(AFTER_ALL, "", {}, RECORDS, prefix)
    while page is not None:
        reply = yield from threads_page(d, codec, page, {}).start()
        found += reply.threads
        page = reply.after
    return found


def misshapen(key: Key, channel: str, error: Exception) -> CorruptCheckpoint:
    """The error for what can be decoded, but is not what the adapter has stored."""
    return CorruptCheckpoint(
        f"the stored value is not what it should be ({said_by(error)})",
        thread_id=key.thread_id,
        checkpoint_ns=key.checkpoint_ns,
        checkpoint_id=key.checkpoint_id or "",
        channel=channel,
        type=None,
    )


def append_entries(d: SqlDialect, codec: Values, log: Key, batch: int, entries: Sequence[Any]) -> Steps[None]:
    """Append to a log; batches are in the order of their numbers, of which each is used once.

    Trips: 1.
    """
    writes = [(ENTRY, entry) for entry in entries]
    yield from put_writes(d, *done(encode_rows(codec, log, writes, f"{batch:020d}", "", None))).start()


_PLACE = "thread_id", "checkpoint_ns"


def _behind(fresh: str, before: Document | None) -> str:
    """An id behind all others of a document: by the clock, or, where another machine's is ahead, right behind."""
    newest = before.key.checkpoint_id if before else None
    if newest is None or fresh > newest:
        return fresh
    return str(UUID(int=UUID(newest).int + 1))


def no_version(current: None, channel: None) -> str:
    """What reads of documents are given for the versions of sends."""
    raise AssertionError("a document holds no sends")
