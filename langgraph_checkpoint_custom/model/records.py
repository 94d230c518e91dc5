"""Threads, runs and checkpoints as records, without their values.

Must not know: SQL, connections, serializers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

from langchain_core.runnables import RunnableConfig

from langgraph_checkpoint_custom.model.id_times import time_of
from langgraph_checkpoint_custom.model.keys import Range, config_of, kind_of, name_of

# The number of records in memory at a time. Without values, each has some hundred bytes.
RECORDS = 200


class CheckpointRecord(NamedTuple):
    """A checkpoint without its values; `metadata` is the same as in a `CheckpointTuple`."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str | None
    run_id: str | None
    metadata: Mapping[str, Any]

    @property
    def time(self) -> datetime | None:
        """When it was made, as its id says; None if that is not a UUIDv6, a UUIDv7 or a ULID."""
        return time_of(self.checkpoint_id)

    @property
    def config(self) -> RunnableConfig:
        """The config that names this checkpoint."""
        return config_of(self.thread_id, self.checkpoint_ns, self.checkpoint_id)

    @property
    def parent_config(self) -> RunnableConfig | None:
        """The config that names the parent checkpoint, or None if it has none."""
        return config_of(self.thread_id, self.checkpoint_ns, self.parent_id) if self.parent_id else None


class ThreadRecord(NamedTuple):
    """A thread; `newest` is the newest checkpoint of its root graph."""

    thread_id: str
    newest: CheckpointRecord

    @property
    def time(self) -> datetime | None:
        """When its newest checkpoint was made, as that one's id says."""
        return self.newest.time

    @property
    def kind(self) -> str | None:
        """The framework that the thread belongs to; None for LangGraph."""
        return kind_of(self.thread_id)

    @property
    def name(self) -> tuple[str, ...]:
        """The name of the thread in that framework; for LangGraph, its id."""
        return name_of(self.thread_id)


class RunRecord(NamedTuple):
    """A run, by the checkpoints of the root graph that it has stored.

    Attributes:
        run_id: The run; None for checkpoints whose metadata names no run.
        first_id: The id of its first checkpoint.
        last_id: The id of its last checkpoint.
        checkpoints: The number of its checkpoints.
        finished: Whether nothing is left to do after the last one. False for a run that continues, waits for a human,
            has failed, or was killed.
    """

    run_id: str | None
    first_id: str
    last_id: str
    checkpoints: int
    finished: bool


class Interrupt(Protocol):
    """LangGraph's `Interrupt`, which is not imported here, because that would import all of `langgraph`."""

    @property
    def id(self) -> str: ...
    @property
    def value(self) -> Any: ...


class Question(NamedTuple):
    """What another framework's thread asks a human; it has the attributes of LangGraph's `Interrupt`."""

    id: str
    value: Any


class WaitingThread(NamedTuple):
    """A thread that waits for a human.

    Attributes:
        thread_id: The thread.
        checkpoint_id: The id of its newest checkpoint.
        since: When that checkpoint was made, which is when the superstep with the interrupts began; None if the
            checkpoint has no time.
        interrupts: The open interrupts, as LangGraph's `Interrupt`s; each has an `id` for the answer and a `value`.
            Those of other frameworks' threads are `Question`s, with the same attributes.
    """

    thread_id: str
    checkpoint_id: str
    since: datetime | None
    interrupts: tuple[Interrupt, ...]

    @property
    def config(self) -> RunnableConfig:
        """The config to answer with: `graph.invoke(Command(resume={id: …}), waiting.config)`."""
        return {"configurable": {"thread_id": self.thread_id}}


@dataclass
class Swept:
    """What a sweep has deleted, or what a dry run would delete.

    Attributes:
        threads: Threads that were examined: those that were due or had grown, and that the filter matches.
        deleted_threads: Threads that were deleted.
        deleted_checkpoints: Checkpoints that were deleted, or are now hidden because others need them. Those of deleted
            threads are included.
        freed_bytes: Bytes of the values that were deleted. A dry run counts only those of threads that would be
            deleted.
        kept_bytes: Bytes of the remaining threads. They are counted only with `max_bytes`.
        would_delete: Of a dry run, the tenant and the id of each thread that would be deleted.
        complete: Whether all threads were visited that were due; False if `max_threads` or `max_seconds` ended it, or
            if a timeout of the database role kept it from changing a thread.
    """

    threads: int = 0
    deleted_threads: int = 0
    deleted_checkpoints: int = 0
    freed_bytes: int = 0
    kept_bytes: int = 0
    would_delete: list[tuple[str, str]] = field(default_factory=list, compare=False)
    complete: bool = True

    def add(self, other: Swept) -> None:
        """Add the figures of a sweep of other threads."""
        self.complete = self.complete and other.complete
        for name in vars(self).keys() - {"complete"}:
            value = getattr(self, name)
            value += getattr(other, name)  # Threads are added one by one, so a list has to grow in place.
            setattr(self, name, value)


class SweepStatus(NamedTuple):
    """What sweeps have done for the threads without a tenant, or for those of one.

    Attributes:
        finished_at: When the last sweep ended that was not stopped before; None if there was none.
        overdue: The number of threads that a sweep should look at by now, up to 10,000.
        lag: How long the first of these has been due.
    """

    finished_at: datetime | None
    overdue: int
    lag: timedelta


class ThreadPage(NamedTuple):
    """The request for one page of threads: those whose newest checkpoint is below (`before`, `thread_below`).

    `prefix` is the start of their ids, `limit` the number of threads, `filter` what `narrowing` in `filter.py` returns.
    With `marked`, "failed" or "waiting", only threads to whose newest checkpoint a task has written an error or an
    interrupt. With a `period`, only threads whose newest checkpoint was made from one time up to but not including
    another: its id is not below `floor`, and the list goes on with the ranges of ids `below`.
    """

    before: str
    thread_below: str
    filter: Sequence[Mapping[str, Any]]
    limit: int
    prefix: str = ""
    marked: str = ""
    floor: str = ""
    below: Sequence[Range] = ()
    period: tuple[datetime, datetime] | None = None

    def params(self) -> dict[str, Any]:
        """Return the parameters of statements that read the page."""
        return self._asdict() | {"filter": json.dumps(self.filter)}

    def next_range(self) -> ThreadPage | None:
        """Return the page that begins with the next range of ids; None if this was the last one."""
        if not self.below:
            return None
        (floor, top), *rest = self.below
        page = self._replace(before=top, thread_below="", floor=floor, below=rest)
        return page if self.before > top else page.clipped(self.before, self.thread_below)

    def clipped(self, before: str, thread_below: str) -> ThreadPage | None:
        """Return the page below a thread; None if nothing is there."""
        page = self._replace(before=before, thread_below=thread_below)
        return page if before >= page.floor else page.next_range()


def time_from(text: object) -> datetime | None:
    """Return the time of a checkpoint from the text that LangGraph writes, in ISO format; None if it is not a time."""
    try:
        return datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
