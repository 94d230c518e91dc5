"""A thread of CubeLoop is a document and a log.

Must not know: SQL, connections, the clock.

The log has an entry for each message, with its run. The document has these channels, each from its first use on:

- `extra`: the values of `save_extra`, by key
- `parent`: the thread that this one is a fork of
- `claimed`, `completed`: the ids of the runs that were begun but not completed, and of the completed ones in the order
  of their completion
- `pending`: the request that waits for an answer, with its question and its run, or None
- `answers`: the answers, by run and question
- `log`: the id of the log's checkpoint; a batch in the log has as its number the step of the document that was stored
  with it

The framework's objects are stored as text: the JSON of pydantic's `to_jsonable_python`. JSON has integers of any size,
and msgpack does not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langgraph_checkpoint_custom.adapters.cubeloop.framework import exceptions
from langgraph_checkpoint_custom.adapters.documents import (
    Attempt,
    Document,
    append_entries,
    once,
    read_document,
    store_document,
)
from langgraph_checkpoint_custom.encoding.values import Values
from langgraph_checkpoint_custom.engine.operation import Steps, operation
from langgraph_checkpoint_custom.model.keys import Key
from langgraph_checkpoint_custom.model.namespaced_ids import name_of, thread_of
from langgraph_checkpoint_custom.model.records import Question
from langgraph_checkpoint_custom.operations.delete import prune_thread
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

Channels = Mapping[str, Any]
# Takes the channels of a document and returns those that change; None if nothing is to be stored.
Revise = Callable[[Channels], Channels | None]

KIND = "cubeloop"
LOG = "messages"
# The number of versions of a document that stay when the others are deleted, and of changes between two such deletions.
# After a lost reply, `once` looks for the version that the change stored. It is still there: 100 other changes of the
# thread take longer than the first attempts to reconnect.
VERSIONS = 100


@operation("read")
def read_thread(d: SqlDialect, codec: Values, thread_id: str) -> Steps[Channels]:
    """Return the channels of a thread's document.

    Round trips: 1.
    """
    found = yield from read_document(d, codec, thread_id)
    return found.values if found else {}


@operation("snapshot")
def read_messages(d: SqlDialect, codec: Values, thread_id: str) -> Steps[tuple[Channels, Sequence[Any]] | None]:
    """Return the channels of a thread's document and the entries of its log; None if there is no such thread.

    Round trips: 2, or 1 without messages.
    """
    found = yield from read_document(d, codec, thread_id)
    return (found.values, (yield from _entries(d, codec, thread_id, found.values))) if found else None


@operation("exclusive", locks=["thread_id"])
def change_thread(
    d: SqlDialect, codec: Values, change: Attempt[bool], thread_id: str, revise: Revise, entries: Sequence[Any] = ()
) -> Steps[bool]:
    """Change a thread's document and append to its log; return whether `revise` changed something.

    Round trips: 3, one more with entries, one more for the first entries, one more while a request is pending, and one
    more every `VERSIONS` changes.
    """

    def steps() -> Steps[bool]:
        before = yield from read_document(d, codec, thread_id)
        changed = revise(before.values if before else {})
        if changed is not None:
            yield from _store(d, codec, change, thread_id, before, changed, entries)
        return changed is not None

    return (yield from once(d, change, steps()))


@operation("exclusive", locks=["source", "target"])
def fork_thread(
    d: SqlDialect, codec: Values, change: Attempt[None], source: str, target: str, until: str, extra: Channels
) -> Steps[None]:
    """Copy a thread as it was when the run `until` was completed to a new thread, and add `extra` to its extra.

    Round trips: 4, or 7 with messages.
    """

    def steps() -> Steps[None]:
        found = yield from read_document(d, codec, source)
        if found is None:
            raise not_found(name(source))
        if (yield from read_document(d, codec, target)) is not None:
            raise exceptions.ThreadAlreadyExistsError(
                f"thread {name(target)!r} already exists; nothing was copied to it"
            )
        runs = completed_until(name(source), found.values, until)
        entries = of_runs(runs, (yield from _entries(d, codec, source, found.values)))
        copied = {"extra": {**found.values.get("extra", {}), **extra}, "parent": name(source), "completed": runs}
        yield from _store(d, codec, change, target, None, copied, entries)

    yield from once(d, change, steps())


def _store(
    d: SqlDialect,
    codec: Values,
    change: Attempt[Any],
    thread_id: str,
    before: Document | None,
    changed: Channels,
    entries: Sequence[Any],
) -> Steps[None]:
    """Store the next version of a thread's document, and append entries to its log."""
    step = before.step + 1 if before else 0
    log = before.values.get("log") if before else None
    if entries and log is None:
        log = (yield from store_document(d, codec, change, (thread_id, LOG), None, {})).checkpoint_id
        changed = {**changed, "log": log}
    pending = {**(before.values if before else {}), **changed}.get("pending")
    question = Question(str(pending["question"]), _asked(pending)) if pending else None
    yield from store_document(d, codec, change, (thread_id, ""), before, changed, question=question)
    if entries:
        yield from append_entries(d, codec, Key(thread_id, LOG, log), step, entries)
    if step and step % VERSIONS == 0:
        yield from prune_thread(d, thread_id, VERSIONS).start()


def _asked(pending: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a pending request asks, for people; the request itself stays JSON text."""
    asked: dict[str, Any] = {"request": pending["request"], "run": pending["run"]}
    try:
        payload = json.loads(pending["request"])["payload"]
        prompts = [payload.get("prompt"), *(each["prompt"] for each in payload.get("questions") or ())]
        question = " ".join(filter(None, prompts)) or f"May {payload['tool_name']} be called?"
    except (KeyError, TypeError, ValueError, AttributeError):  # A request of a later version of the framework.
        return asked
    return {"question": question, **asked}


def _entries(d: SqlDialect, codec: Values, thread_id: str, channels: Channels) -> Steps[Sequence[Any]]:
    """Return the entries of a thread's log."""
    if "log" not in channels:
        return ()
    log = yield from read_document(d, codec, thread_id, LOG, channels["log"])
    if log is None:
        raise corrupt(name(thread_id), "the messages", LookupError("they are missing"))
    return log.entries


def completed_until(thread_id: str, channels: Channels, until: str) -> list[str]:
    """Return the runs that were completed up to one, in the order of their completion."""
    completed: list[str] = channels.get("completed", [])
    if until not in completed:
        raise exceptions.RunNotCompletedError(f"run {until!r} of thread {thread_id!r} is not completed")
    return completed[: completed.index(until) + 1]


def of_runs(runs: Sequence[str], entries: Sequence[Any]) -> list[Any]:
    """Return the entries of some runs, and those without a run."""
    chosen = {None, *runs}
    return [entry for entry in entries if entry["run"] in chosen]


def not_found(thread_id: str) -> exceptions.ThreadNotFoundError:
    """Return the error for a thread that does not exist."""
    return exceptions.ThreadNotFoundError(f"there is no thread {thread_id!r}")


def corrupt(thread_id: str, where: str, cause: Exception) -> exceptions.CheckpointCorruptionError:
    """Return the error for a part of a thread that cannot be read."""
    return exceptions.CheckpointCorruptionError(
        thread_id=thread_id, backend="langgraph_checkpoint_custom", row_ref=where, cause=cause
    )


def stored(thread_id: str) -> str:
    """Return the id under which a thread is stored."""
    return thread_of(KIND, thread_id)


def name(thread_id: str) -> str:
    """Return CubeLoop's id of a stored thread."""
    return name_of(thread_id)[0]
