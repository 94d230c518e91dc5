"""What differs between two checkpoints of a thread; by default, what a superstep changed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from langgraph_checkpoint_custom.errors import CorruptCheckpoint
from langgraph_checkpoint_custom.model.id_times import time_of
from langgraph_checkpoint_custom.model.keys import Key
from langgraph_checkpoint_custom.model.records import CheckpointRecord
from langgraph_checkpoint_custom.tools.changes import changes
from langgraph_checkpoint_custom.ui.inspector import Inspector
from langgraph_checkpoint_custom.ui.pages.thread import state_asked

# Checkpoints to choose from: the newest ones of the namespace.
CHOICES = 300
# Ends of other branches that are offered: the newest ones.
ENDS = 5


def difference(inspector: Inspector, request: Request) -> Response:
    """The differences from one checkpoint to another."""
    store = inspector.store(request)
    after = state_asked(store, request)
    thread_id, checkpoint_ns, checkpoint_id = after.key
    other = request.query_params.get("from") or after.parent_id
    before = store.state(Key(thread_id, checkpoint_ns, other)) if other else None
    found, same = changes(before.channels if before else (), after.channels)
    where: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": checkpoint_ns}}
    own: list[CheckpointRecord] = []
    with suppress(CorruptCheckpoint):  # Metadata that cannot be read: then there is no choice.
        own += store.saver.history(where, limit=CHOICES)
    others = other_ends(own, checkpoint_id or "")
    choices = [
        {
            "id": one.checkpoint_id,
            "time": time_of(one.checkpoint_id),
            "step": one.metadata.get("step"),
            "is_end": one.checkpoint_id in others,
        }
        for one in own
        if one.checkpoint_id != checkpoint_id
    ]
    ends = [one for one in choices if one["is_end"] and one["id"] != other][:ENDS]
    return inspector.page(
        request, "difference.html", before=before, after=after, changes=found, same=same, choices=choices, ends=ends
    )


def other_ends(records: Sequence[CheckpointRecord], checkpoint_id: str) -> set[str]:
    """Return the last checkpoints of the branches that a checkpoint is not part of."""
    parents = {one.checkpoint_id: one.parent_id for one in records}

    def comes_from(end: str, other: str) -> bool:
        at: str | None = end
        for _ in parents:  # Parents may loop.
            if at == other or at is None:
                break
            at = parents.get(at)
        return at == other

    ends = parents.keys() - set(parents.values())
    return {end for end in ends if not comes_from(end, checkpoint_id)}
