"""Sweeps of a saver at any time, and threads with checkpoints of any age."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from datetime import datetime, timedelta, timezone
from typing import Any, cast

from langchain_core.runnables import RunnableConfig

from langgraph_checkpoint_custom import CheckpointSaver, Retention, Swept
from langgraph_checkpoint_custom.engine.operation import Operation
from langgraph_checkpoint_custom.retention import sweep_operations
from tests.behaviour.helpers import checkpoint, config, metadata, next_uuid

DAY = timedelta(days=1)


def now() -> datetime:
    return datetime.now(timezone.utc)


def put(
    saver: CheckpointSaver,
    thread_id: str,
    *,
    after: RunnableConfig | None = None,
    days: float = 0,
    checkpoint_id: str = "",
    **more: Any,
) -> RunnableConfig:
    """A checkpoint with an id of LangGraph's, if none is given, whose time is `days` ago."""
    document = checkpoint(checkpoint_id or next_uuid(), {"a": thread_id})
    document["ts"] = (now() - days * DAY).isoformat()
    return saver.put(after or config(thread_id), document, metadata(**more), {"a": "1"})


def threads(saver: CheckpointSaver) -> list[str]:
    return sorted(found.thread_id for found in saver.threads())


class Sweeps:
    """Sweeps a saver at any time, and counts the operations of the last sweep."""

    def __init__(self, saver: CheckpointSaver, keep: Retention) -> None:
        self.saver = saver
        self.keep = keep
        self.ran: Counter[str] = Counter()
        self.visits = 0
        self.named: set[str] = set()

    def regular(self, at: datetime) -> Swept:
        """Sweep as a saver that does so at regular intervals."""
        return self(at, named=self.named)

    def steps(
        self, at: datetime | None = None, *, dry_run: bool = False, named: set[str] | None = None
    ) -> Generator[Operation[Any], None, Swept]:
        """Sweep operation by operation: each is run when the next one is asked for; without a time, now."""
        self.ran.clear()
        self.visits = 0
        d, _, codec = self.saver.backend
        moment = (at or now()).timestamp()
        operations = sweep_operations(d, codec, self.keep, moment, dry_run=dry_run, tenants=True, named=named)
        answer = None
        while True:
            try:
                op = operations.send(answer)
            except StopIteration as end:
                return cast(Swept, end.value)
            if isinstance(op, Operation):
                yield op
                self.ran[op.name] += 1
                if op.name == "kept_threads":  # Each thread that is visited is among them first.
                    self.visits += len(op.arguments["thread_ids"])
            answer = self.saver._run(op)

    def __call__(
        self,
        at: datetime | None = None,
        *,
        dry_run: bool = False,
        named: set[str] | None = None,
        before: Callable[[Operation[Any]], None] | None = None,
    ) -> Swept:
        """Sweep; `before` is called before each operation."""
        steps = self.steps(at, dry_run=dry_run, named=named)
        while True:
            try:
                op = next(steps)
            except StopIteration as end:
                return cast(Swept, end.value)
            if before is not None:
                before(op)
