"""What the golden stores contain: one of everything that a store can contain, the same each time it is written.

A released version's content is never changed. What a later version adds goes into a separate thread.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import ChannelVersions
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Interrupt, Send
from pydantic import BaseModel

from langgraph_checkpoint_custom import CheckpointSaver
from tests.behaviour.helpers import checkpoint, config, metadata
from tests.stores import Store

CIPHER = EncryptedSerializer.from_pycryptodome_aes(key=b"a golden key of ")

# Used in existing stores.
LONG = "long " * 100
# An id of the year 2024.
OLD = str(UUID("1ef0b3c2-7d5e-6000-8000-000000000001"))


class Colour(Enum):
    """An enum."""

    RED = "red"


@dataclass
class Point:
    """A dataclass."""

    x: int
    y: float


class Person(BaseModel):
    """A pydantic model."""

    name: str
    tags: set[str]


VALUES: dict[str, Any] = {
    "nothing": None,
    "truth": True,
    "number": -(2**63),
    "float": -0.0,
    "text": "a\0b\n\N{PILE OF POO}",
    "long": LONG,
    "bytes": b"\0\xff" * 300,
    "list": [1, [2.5, {"three": None}], "four"],
    "dict": {"a": {"b": [1]}, "1": 2},
    "set": {("a", 1), ("b", 2)},
    "deque": deque([1, 2]),
    "enum": Colour.RED,
    "dataclass": Point(1, 2.5),
    "model": Person(name="Ann", tags={"x"}),
    "time": datetime(2024, 5, 6, 7, 8, 9, 10, timezone.utc),
    "date": date(2024, 5, 6),
    "delta": timedelta(days=1, seconds=2),
    "uuid": UUID(int=7),
    "decimal": Decimal("1.50"),
    "messages": [HumanMessage("hello", id="1"), AIMessage("hi", id="2", tool_calls=[])],
    "sends": [Send("node", {"x": 1})],
    "interrupt": Interrupt(value="who?", id="3"),
}


def write_all(store: Store) -> None:
    """Fill a store: threads without a tenant, of a tenant, compressed ones, and encrypted ones."""
    with store.open(compress=False) as saver:
        saver.setup()
        for each in (saver, saver.for_tenant("acme")):
            write(each)
    with store.open(compress=True) as saver:
        write(saver.for_tenant("compressed"))
    with store.open(serde=CIPHER) as saver:
        write(saver.for_tenant("encrypted"))


def read_all(store: Store) -> dict[str, Any]:
    """Everything that callers can read from the store."""
    with store.open() as saver, store.open(serde=CIPHER) as encrypting:
        all_savers = {**savers(saver), "encrypted": encrypting.for_tenant("encrypted")}
        return {name: read(each) for name, each in all_savers.items()}


def savers(saver: CheckpointSaver) -> dict[str, CheckpointSaver]:
    """The savers without encryption."""
    return {
        "nobody": saver,
        "a tenant": saver.for_tenant("acme"),
        "compressed": saver.for_tenant("compressed"),
    }


def write(saver: CheckpointSaver) -> None:
    """Fill the threads."""
    _write_values(saver)
    _write_deltas(saver)
    _write_old_format(saver)
    _write_large(saver)
    saver.copy_thread("values", "copy")
    saver.label(config("values", "1"), "the first")
    saver.put(config("expiring"), checkpoint(OLD, {"a": 1}, {"a": "1"}), metadata(0), {"a": "1"})
    saver.set_ttl("expiring", timedelta(seconds=1))


def read(saver: CheckpointSaver) -> dict[str, Any]:
    """Everything that a caller can read from those threads."""
    return {
        "list": list(saver.list(None)),
        "filtered": list(saver.list(None, filter={"step": 1, "mine": "é"})),
        "hidden": [saver.get_tuple(config("deltas", str(step))) for step in range(5)],
        "labels": saver.labels("values"),
        "history": saver.get_delta_channel_history(config=config("deltas"), channels=["delta"]),
    }


def _write_values(saver: CheckpointSaver) -> None:
    versions: ChannelVersions = {channel: f"{1:032}.{number:016}" for number, channel in enumerate(VALUES)}
    meta = metadata(0, mine="é", nested={"nan": [float("inf")]}, run_id="run 1", thread_id="values")
    where = saver.put(config("values"), checkpoint("1", VALUES, versions), meta, versions)
    saver.put_writes(where, list(VALUES.items()), "task", "~__pregel_pull, node")
    saver.put_writes(where, [("__error__", "first"), ("__interrupt__", [VALUES["interrupt"]])], "task 2")
    saver.put_writes(where, [("__error__", "last")], "task 2")
    changed: ChannelVersions = {"list": f"{2:032}.0"}
    second = checkpoint("2", {**VALUES, "list": ["changed"]}, versions | changed)
    where = saver.put(where, second, metadata(1, mine="é", run_id="run 2"), changed)
    below = {"configurable": {**where["configurable"], "checkpoint_ns": "sub:task", "checkpoint_id": None}}
    saver.put(below, checkpoint("3", {"a": [1]}, {"a": 1}), metadata(1, parents={"": "2"}), {"a": 1})  # type: ignore[arg-type]


def _write_large(saver: CheckpointSaver) -> None:
    """Two versions of a value that grows, and so is in chunks."""
    where = config("large")
    value = [{"number": number, "text": f"text {number} " * 20} for number in range(100)]
    for step in range(2):
        versions: ChannelVersions = {"log": f"{step + 1:032}.1"}
        where = saver.put(where, checkpoint(str(step), {"log": value}, versions), metadata(step), versions)
        value = [*value, {"number": 100, "text": "the last"}]


def _write_deltas(saver: CheckpointSaver) -> None:
    """A pruned thread with hidden ancestors."""
    where = config("deltas")
    for step in range(5):
        values: dict[str, Any] = {"plain": [step]} | ({"delta": _DeltaSnapshot([step])} if step == 1 else {})
        versions: ChannelVersions = {"plain": f"{step + 1:032}.1", "delta": f"{step + 1:032}.2"}
        meta = metadata(step, **({} if step == 1 else {"counters_since_delta_snapshot": {"delta": [1, 1]}}))
        where = saver.put(where, checkpoint(str(step), values, versions), meta, versions)
        saver.put_writes(where, [("delta", step)], f"task {step}")
    saver.prune(["deltas"])


def _write_old_format(saver: CheckpointSaver) -> None:
    """Below format 4, the sends are in the parent's writes."""
    first = saver.put(config("old"), checkpoint("1", {"a": 1}, {"a": "1"}, v=3), metadata(0), {"a": "1"})
    saver.put_writes(first, [("__pregel_tasks", Send("node", 1)), ("__pregel_tasks", Send("node", 2))], "task")
    saver.put(first, checkpoint("2", {"a": 1}, {"a": "1"}, v=3), metadata(1), {})
