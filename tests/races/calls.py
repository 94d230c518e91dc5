"""Calls of a saver: what is called, how it is called sync and async, and what is compared of its result."""

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
from tests.model.storing import exact

Answer = tuple[str, Any]
"""("ok", what was returned), ("error", the name of the class), or ("none", why) if nothing was called."""

READS = frozenset({"get_tuple", "list", "history", "get_delta_channel_history", "labels", "thread_exists"})

NOTHING = ("none", "there is no claim")
"""The answer where a claim was refused, and so nothing is written with it."""

# Seconds that a claim lasts: longer than any round.
TTL = 3600.0


@dataclass(frozen=True)
class Call:
    """One call of a method that savers have, and in most cases the oracle too.

    Attributes:
        name: The method; "claim" and "release" enter and leave the block of a claim, "import_file" is the function.
        args: Its arguments.
        kwargs: Its keyword arguments.
        owner: Whose claim is taken or released, or must cover the write.
        single_row: Whether it stores a single row that is complete in itself, and so need not lock anything.
        after: Seconds to wait before the call.
        hold: Seconds for which the transaction stays open after the call, on PostgreSQL.
    """

    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    owner: str | None = None
    single_row: bool = False
    after: float = 0.0
    hold: float = 0.0

    def __str__(self) -> str:
        texts = [_short(each) for each in self.args] + [f"{name}={_short(each)}" for name, each in self.kwargs.items()]
        if self.owner:
            texts.append(f"claim of {self.owner}")
        held = f", held open for {self.hold * 1000:.1f} ms" if self.hold else ""
        return f"{self.name}({', '.join(texts)}){held}"


@dataclass(frozen=True)
class Done:
    """A call that has ended: who made it, when it began and ended by the monotonic clock in ns, and its result."""

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
        return "ok", comparable(call, list(found) if call.name in ("list", "history") else found)
    except Exception as error:  # An error that is not ours is not a correct result either.
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
            return "ok", comparable(
                call, [each async for each in getattr(saver, f"a{call.name}")(*args, **call.kwargs)]
            )
        found = await getattr(saver, f"a{call.name}")(*args, **call.kwargs)
        return "ok", comparable(call, found)
    except Exception as error:  # An error that is not ours is not a correct result either.
        return refused(call, error, leases)


def refused(call: Call, error: Exception, leases: Leases) -> Answer:
    """The result for an error; only an expected refusal is reduced to its name."""
    if call.name == "claim":
        leases.pop(_owner(call), None)
    if isinstance(error, CheckpointError) and not isinstance(error, (StorageError, CorruptCheckpoint)):
        return "error", type(error).__name__
    return "error", f"{type(error).__name__}: {error}"


def comparable(call: Call, found: Any) -> Any:
    """What is compared of the value that a call has returned."""
    if call.name in ("sweep", "reencrypt"):
        return None  # Counts, of an unknown moment.
    if call.name == "history":
        return [record_of(each) for each in found]
    return exact(found)


def record_of(found: Any) -> Any:
    """What a record and a checkpoint have in common."""
    if isinstance(found, CheckpointTuple):
        location = found.config["configurable"]
        parent = found.parent_config["configurable"]["checkpoint_id"] if found.parent_config else None
        return exact(
            [location["thread_id"], location["checkpoint_ns"], location["checkpoint_id"], parent, found.metadata]
        )
    key = [found.thread_id, found.checkpoint_ns, found.checkpoint_id, found.parent_id]
    return exact([*key, dict(found.metadata)])


def retention(keep_last: int | None = None, *, older_than: bool = False) -> Retention:
    """What a sweep keeps; all checkpoints at the beginning of a round are old."""
    return Retention(keep_last=keep_last, older_than=timedelta(days=1) if older_than else None, keep_waiting=False)


def _owner(call: Call) -> str:
    assert call.owner is not None
    return call.owner


def _with_claim(call: Call, leases: Leases) -> tuple[Any, ...] | None:
    """The arguments, with the claim that must cover a write; None if the claim was refused."""
    if call.owner is None:
        return call.args
    lease = leases.get(call.owner)
    if lease is None:
        return None
    config, *others = call.args
    return ({**config, "configurable": {**lease.config["configurable"], **config["configurable"]}}, *others)


def _short(value: Any) -> str:
    """A value for people, with long texts cut."""
    if isinstance(value, Retention):
        return f"keep_last={value.keep_last}, older_than={value.older_than}"
    if isinstance(value, Mapping):
        if set(value) >= {"configurable"}:
            location = value["configurable"]
            return f"<{location.get('thread_id')} {location.get('checkpoint_ns')!r} {location.get('checkpoint_id')}>"
        return "{" + ", ".join(f"{key!r}: {_short(each)}" for key, each in value.items()) + "}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:40]}… ({len(text)})"
