"""What the state machine draws: names, values, filters and ids; and the calls that it makes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata, CheckpointTuple
from langgraph.checkpoint.base.id import UUID
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, SCHEDULED
from ulid import ULID

from langgraph_checkpoint_custom import CheckpointSaver

NAMESPACES = ("", "child", "call:1", "call:1|deep:2")
# A graph has its delta channels from its first checkpoint on.
DELTA = {"": ("log",), "child": ("log", "tally"), "call:1": (), "call:1|deep:2": ("tally",)}
GROWING = "alpha"
PLAIN = (GROWING, "beta", "Größe")
UNVERSIONED = "loose"
STRATEGIES = ("delete", "keep_latest")
SPECIAL = (ERROR, INTERRUPT, RESUME, SCHEDULED)

small = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.floats(allow_nan=False, width=16),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.sampled_from(["ä" * 256, b"\0" * 256, "a\0b", "", 2**63 - 1]),
)
elements = st.lists(st.sampled_from(["a", "bb", 1, None, [2]]), min_size=3, max_size=9)
large = st.one_of(
    st.sampled_from(["ä" * 257, b"\0" * 257]),
    st.lists(small, max_size=3),
    elements,
    st.dictionaries(st.text(max_size=3), small, max_size=2),
)
value = st.one_of(small, large)
label = st.sampled_from([True, 1, 1.0, "1", None, [1, 2], (1, 2), {"b": [1], "a": None}, "x" * 300, "a\0b"])

FILTERS: Sequence[dict[str, Any]] = (
    {"source": "loop"},
    {"label": True},
    {"label": 1},
    {"label": "1"},
    {"label": None},
    {"label": [1, 2]},
    {"label": {"a": None, "b": [1.0]}},
    {"label": "x" * 300},
    {"label": "a\0b", "source": "input"},
    {"missing": None, "source": "loop"},
    {"missing": False},
    {"tenant": "t"},
    {'odd "key" % * $.a': 1},
    {"langgraph_request_id": None},
)


def checkpoint_id_at(kind: str, moment: int) -> str:
    """An id for a moment; among ids of one type, that of a later moment is greater."""
    if kind == "ulid":
        return str(ULID.from_int((1_700_000_000_000 + moment) << 80))
    timestamp = 0x1EF_0000_0000_0000 + moment
    return str(UUID(int=(timestamp >> 12) << 80 | (timestamp & 0xFFF) << 64, version=6))


EXTRAS = {
    "tenant": "t",
    "a number": 1.5,
    "nul": "a\0b",
    "langgraph_auth_user": "secret",
    "langgraph_request_id": "request",
    "__private": "p",
    "an object": {"not": "taken"},
}


class Calls:
    """A saver's methods with one api, called from sync code."""

    def __init__(self, saver: CheckpointSaver, loop: asyncio.AbstractEventLoop | None) -> None:
        self._saver = saver
        self._loop = loop

    def __call__(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if self._loop is None:
            return getattr(self._saver, name)(*args, **kwargs)
        return self._loop.run_until_complete(getattr(self._saver, f"a{name}")(*args, **kwargs))

    def list(self, config: RunnableConfig | None, **kwargs: Any) -> Sequence[CheckpointTuple]:
        if self._loop is None:
            return list(self._saver.list(config, **kwargs))

        async def collect() -> Sequence[CheckpointTuple]:
            return [found async for found in self._saver.alist(config, **kwargs)]

        return self._loop.run_until_complete(collect())


class PutCall(NamedTuple):
    """The arguments of a put."""

    config: RunnableConfig
    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    new_versions: ChannelVersions


class WritesCall(NamedTuple):
    """The arguments of a put_writes."""

    config: RunnableConfig
    writes: Sequence[tuple[str, Any]]
    task_id: str
    task_path: str
