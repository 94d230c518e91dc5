"""Threads of unusual shape, and short ones.

A thread is a block of checkpoints that a saver stores itself. Its rows are copied with other ids, which are the only
texts that begin with a block's label. So this code does not depend on any saver's tables.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, empty_checkpoint

from benchmarks.states import prose

Saver = BaseCheckpointSaver[Any]


def label(block: int) -> str:
    """What the ids of a block begin with, as those of LangGraph do."""
    return f"1f{block:06}"


class Step(NamedTuple):
    """A checkpoint of a block; its parent is the step before in its namespace. `root` is the step that called it."""

    new: Mapping[str, Any]
    ns: str = ""
    root: int | None = None
    writes: tuple[tuple[str, Any], ...] = ()
    delta: str | None = None


def long() -> Iterator[Step]:
    """A chat: one namespace; a blob changes every twentieth step."""
    for n in range(100):
        new = {"count": n, "log": prose(60), **({"doc": prose(5_000)} if n % 20 == 0 else {})}
        yield Step(new, writes=(("count", n), ("log", f"entry {n}")))


def five() -> Iterator[Step]:
    """A root graph, and four subgraphs that keep their memory."""
    for n in range(100):
        yield Step({"count": n, "log": prose(60)}, f"memory {n % 5}" if n % 5 else "", 5 * (n // 5) if n % 5 else None)


def spaces() -> Iterator[Step]:
    """A root checkpoint that starts 500 subgraph calls of two checkpoints."""
    yield Step({"count": 0})
    for call, step in itertools.product(range(500), range(2)):
        yield Step({"x": step}, f"child:{{}}-{call:04}", 0)


def agent() -> Iterator[Step]:
    """Five root checkpoints, two of which start a subgraph call of three."""
    numbers = itertools.count()
    for turn in range(5):
        root = next(numbers)
        new = {"count": turn} | ({"messages": prose(5_000)} if turn == 0 else {})
        yield Step(new, writes=(("count", turn),))
        if turn in (1, 3):
            for step in range(3):
                next(numbers)
                yield Step({"x": step, "found": prose(300)}, f"tools:{{}}-{turn}", root)


def delta() -> Iterator[Step]:
    """Steps of a DeltaChannel without a snapshot."""
    for n in range(100):
        yield Step({}, delta="log", writes=(("log", f"entry {n}"),))


def wide() -> Iterator[Step]:
    """2,000 channels, 20 of which change in each step."""
    names = [f"channel_{n:04}" for n in range(2_000)]
    text = prose(400)
    for n in range(50):
        changed = [names[(n * 20 + k) % 2_000] for k in range(20)] if n else names
        yield Step({name: f"{text}{name}{n}" for name in changed})


def short(steps: int) -> Iterator[Step]:
    """One of many threads."""
    for n in range(steps):
        yield Step({"count": n, "text": prose(500)}, writes=(("count", n),))


SHAPES: Mapping[str, tuple[Callable[[], Iterator[Step]], int]] = {
    "long": (long, 500),
    "five": (five, 500),
    "spaces": (spaces, 40),
    "agent": (agent, 5_000),
    "delta": (delta, 200),
    "wide": (wide, 0),  # Not repeated: a step has most of the values of all steps before.
}
"""The threads of store C: a block, and its number at scale 1."""


class Thread:
    """Puts the steps of blocks on a thread of a saver, one after the other."""

    def __init__(self, saver: Saver, thread_id: str, found: CheckpointTuple | None = None) -> None:
        self._saver = saver
        self._thread_id = thread_id
        self._last: dict[str, str] = {}
        self._values: dict[str, dict[str, Any]] = {}
        self._versions: dict[str, dict[str, Any]] = {}
        if found:  # It goes on with the root graph.
            self._last[""] = found.config["configurable"]["checkpoint_id"]
            self._values[""] = found.checkpoint["channel_values"]
            self._versions[""] = dict(found.checkpoint["channel_versions"])

    def put_block(self, number: int, steps: Iterable[Step], **more: Any) -> None:
        """Store the steps of a block, with more metadata."""
        for n, step in enumerate(steps):
            self.put(number, n, step, **more)

    def put(self, block: int, number: int, step: Step, **more: Any) -> None:
        """Store a step."""
        ids = f"{label(block)}-{{:04}}-6000-8000-000000000000"
        checkpoint_id, ns = ids.format(number), step.ns.format(label(block))
        new = dict.fromkeys([*step.new, *([step.delta] if step.delta else [])], f"{label(block)}-{number:04}")
        values = self._values[ns] = {**self._values.get(ns, {}), **step.new}
        versions = self._versions[ns] = self._versions.get(ns, {}) | new
        document = {
            **empty_checkpoint(),
            "v": 4,
            "id": checkpoint_id,
            "channel_values": values,
            "channel_versions": versions,
        }
        metadata: dict[str, Any] = {"source": "loop", "step": number, "run_id": f"{label(block)} run {number // 10}"}
        where: dict[str, Any] = {"thread_id": self._thread_id, "checkpoint_ns": ns, "checkpoint_id": self._last.get(ns)}
        if step.root is not None:
            metadata["parents"] = where["checkpoint_map"] = {"": ids.format(step.root)}
        if step.delta:
            metadata["counters_since_delta_snapshot"] = {step.delta: (1, 1)}
        config = self._saver.put({"configurable": where}, document, metadata | more, new)  # type: ignore[arg-type]
        self._last[ns] = checkpoint_id
        if step.writes:
            self._saver.put_writes(config, step.writes, "task")


def relabelled(cell: Any, block: int, number: int) -> Any:
    """A cell of a row of a block, or the row as text, in another block; what names the block before, too."""
    for old, new in ((label(block), label(number)), (label(block - 1), label(number - 1))):
        if isinstance(cell, str):
            cell = cell.replace(old, new)
        elif isinstance(cell, bytes):
            cell = cell.replace(old.encode(), new.encode())
            cell = cell.replace(old.encode().hex().encode(), new.encode().hex().encode())
    return cell
