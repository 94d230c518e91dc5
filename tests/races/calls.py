"""Calls of a saver: what is called, how it is done sync and async, and what is kept of its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from langgraph_checkpoint_custom import CheckpointError, CheckpointSaver, CorruptCheckpoint, Retention, StorageError
from langgraph_checkpoint_custom.lease import Lease
from langgraph_checkpoint_custom.tools.exchange import import_file
from tests.model.oracle import exact

Answer = tuple[str, Any]
"""("ok", what was returned), ("error", the name of the class), or ("none", why) if nothing was called."""

READS = frozenset({"get_tuple", "list", "history", "get_delta_channel_history", "labels", "thread_exists"})

NOTHING = ("none", "there is no claim")
"""The answer where a claim was refused, and so nothing is written with it."""

# Seconds that a claim lasts: longer than any round.
TTL = 3600.0


@dataclass(frozen=True)
class Call:
    """One call of a method that savers have, and mostly the oracle, too.

    Attributes:
        name: The method; "claim" and "release" enter and leave the block of a claim, "import_file" is `exchange`'s.
        args: Its arguments.
        kwargs: Those by name.
        owner: Whose claim is taken or given back, or is to cover the write.
        alone: Whether it stores a row that is whole by itself, so that it need not lock anything.
        after: Seconds to wait before it.
        hold: Seconds for which the transaction is held open behind it, on PostgreSQL.
    """

    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    owner: str | None = None
    alone: bool = False
    after: float = 0.0
    hold: float = 0.0

    def __str__(self) -> str:
        shown = [_shown(each) for each in self.args] + [f"{name}={_shown(each)}" for name, each in self.kwargs.items()]
        if self.owner:
            shown.append(f"claim of {self.owner}")
        held = f", held open for {self.hold * 1000:.1f} ms" if self.hold else ""
        return f"{self.name}({', '.join(shown)}){held}"


@dataclass(frozen=True)
class Done:
    """A call that has ended: who made it, when it began and ended by the monotonic clock in ns, and its answer."""

    caller: str
    call: Call
    start: int
    end: int
    answer: Answer


Leases = MutableMapping[str, Lease]


def do(saver: CheckpointSaver, call: Call, leases: Leases) -> Answer:
    """Make a call sync."""
    found: Any
    try:
        if call.name == "claim":
            leases[_owner(call)] = saver.claim(call.args[0], owner=call.owner, ttl_seconds=TTL)
            leases[_owner(call)].__enter__()
            return "ok", None
        if call.name == "release":
            lease = leases.pop(_owner(call), None)
            if lease is None:
                return NOTHING
            lease.__exit__(None, None, None)
            return "ok", None
        args = _with_claim(call, leases)
        if args is None:
            return NOTHING
        if call.name == "import_file":
            return "ok", sorted(import_file(saver, *args).problems)
        found = getattr(saver, call.name)(*args, **call.kwargs)
        return "ok", told(call, list(found) if call.name in ("list", "history") else found)
    except Exception as error:  # What is no error of ours is no right answer either.
        return refused(call, error, leases)


async def ado(saver: CheckpointSaver, call: Call, leases: Leases) -> Answer:
    """Make a call async."""
    found: Any
    try:
        if call.name == "claim":
            leases[_owner(call)] = saver.claim(call.args[0], owner=call.owner, ttl_seconds=TTL)
            await leases[_owner(call)].__aenter__()
            return "ok", None
        if call.name == "release":
            lease = leases.pop(_owner(call), None)
            if lease is None:
                return NOTHING
            await lease.__aexit__(None, None, None)
            return "ok", None
        args = _with_claim(call, leases)
        if args is None:
            return NOTHING
        if call.name == "import_file":
            return await asyncio.to_thread(do, saver, call, leases)
        if call.name in ("list", "history"):
            return "ok", told(call, [each async for each in getattr(saver, f"a{call.name}")(*args, **call.kwargs)])
        found = await getattr(saver, f"a{call.name}")(*args, **call.kwargs)
        return "ok", told(call, found)
    except Exception as error:  # What is no error of ours is no right answer either.
        return refused(call, error, leases)


def refused(call: Call, error: Exception, leases: Leases) -> Answer:
    """The answer that an error is; only what a call may be refused for has no more than a name."""
    if call.name == "claim":
        leases.pop(_owner(call), None)
    if isinstance(error, CheckpointError) and not isinstance(error, (StorageError, CorruptCheckpoint)):
        return "error", type(error).__name__
    return "error", f"{type(error).__name__}: {error}"


def told(call: Call, found: Any) -> Any:
    """What is compared of what a call has returned."""
    if call.name in ("sweep", "reencrypt"):
        return None  # Counts, of a moment that nobody knows.
    if call.name == "history":
        return [record_of(each) for each in found]
    return exact(found)


def record_of(found: Any) -> Any:
    """What a record and a checkpoint have in common."""
    if isinstance(found, CheckpointTuple):
        part = found.config["configurable"]
        parent = found.parent_config["configurable"]["checkpoint_id"] if found.parent_config else None
        return exact([part["thread_id"], part["checkpoint_ns"], part["checkpoint_id"], parent, found.metadata])
    location = [found.thread_id, found.checkpoint_ns, found.checkpoint_id, found.parent_id]
    return exact([*location, dict(found.metadata)])


def retention(keep_last: int | None = None, *, older_than: bool = False) -> Retention:
    """What a sweep keeps; all checkpoints that a round begins with are old."""
    return Retention(keep_last=keep_last, older_than=timedelta(days=1) if older_than else None)


def _owner(call: Call) -> str:
    assert call.owner is not None
    return call.owner


def _with_claim(call: Call, leases: Leases) -> tuple[Any, ...] | None:
    """The arguments, with the claim that is to cover a write; None if it was refused."""
    if call.owner is None:
        return call.args
    lease = leases.get(call.owner)
    if lease is None:
        return None
    config, *others = call.args
    return ({**config, "configurable": {**lease.config["configurable"], **config["configurable"]}}, *others)


def _shown(value: Any) -> str:
    """A value for people: what is long is cut."""
    if isinstance(value, Retention):
        return f"keep_last={value.keep_last}, older_than={value.older_than}"
    if isinstance(value, Mapping):
        if set(value) >= {"configurable"}:
            part = value["configurable"]
            return f"<{part.get('thread_id')} {part.get('checkpoint_ns')!r} {part.get('checkpoint_id')}>"
        return "{" + ", ".join(f"{key!r}: {_shown(each)}" for key, each in value.items()) + "}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:40]}… ({len(text)})"
