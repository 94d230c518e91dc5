"""A thread with its timeline, one of its checkpoints, and what differs between two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from langgraph_checkpoint_custom.errors import CheckpointNotFound, CorruptCheckpoint
from langgraph_checkpoint_custom.model.id_times import time_of
from langgraph_checkpoint_custom.model.keys import AFTER_ALL, Key, config_of
from langgraph_checkpoint_custom.model.records import CheckpointRecord
from langgraph_checkpoint_custom.operations.inspector import ThreadCounts, thread_counts
from langgraph_checkpoint_custom.operations.sizes import MOST
from langgraph_checkpoint_custom.tools.changes import changes
from langgraph_checkpoint_custom.tools.display import json_of
from langgraph_checkpoint_custom.tools.finding import labels_by_checkpoint
from langgraph_checkpoint_custom.tools.timeline import Picture, Spot, lines_of, picture_of, sends_of
from langgraph_checkpoint_custom.ui.inspector import Data, Inspector
from langgraph_checkpoint_custom.ui.reading import State, Store
from langgraph_checkpoint_custom.ui.values import line, marked

# Checkpoints in the list below the picture.
LISTED = 50
# Checkpoints of a namespace to compare with: the newest ones.
CHOICES = 300
# Channels of a checkpoint that its page shows, unless all are asked for.
CHANNELS = 200


def _asked(request: Request) -> tuple[str, str, str]:
    found = (request.query_params.get(name, "") for name in ("thread", "ns", "id"))
    thread_id, checkpoint_ns, checkpoint_id = found
    return thread_id, checkpoint_ns, checkpoint_id


def state_asked(store: Store, request: Request) -> State:
    """The checkpoint that a request names; by default, the newest one."""
    thread_id, checkpoint_ns, checkpoint_id = _asked(request)
    if not checkpoint_id:
        newest = store.newest(thread_id)
        checkpoint_ns, checkpoint_id = newest.checkpoint_ns, newest.checkpoint_id
    return store.state(Key(thread_id, checkpoint_ns, checkpoint_id))


def _shown(store: Store, state: State, request: Request) -> dict[str, Any]:
    """What the template of a checkpoint needs."""
    most = None if request.query_params.get("all") == "1" else CHANNELS
    channels = [channel for channel in state.channels if not channel.inner]
    labels = labels_by_checkpoint(store.saver, state.key.thread_id)
    tasks: dict[str, list[Any]] = {}
    for write in state.writes:
        tasks.setdefault(write.stored.task_id, []).append(write)
    return {
        "state": state,
        "channels": channels[:most],
        "left_out": len(channels) - len(channels[:most]),
        "sizes": state.sizes.values[:most],
        "sizes_left_out": len(state.sizes.values) - len(state.sizes.values[:most]),
        "labels": labels.get((state.key.checkpoint_ns, state.key.checkpoint_id or ""), []),
        "tasks": tasks,
    }


def thread(inspector: Inspector, request: Request) -> Response:
    """A thread: its timeline, which the browser draws, and the checkpoint that is chosen in it."""
    store = inspector.store(request)
    state = state_asked(store, request)
    thread_id = state.key.thread_id
    counts: ThreadCounts = store.run(thread_counts(store.saver.backend.dialect, thread_id))
    return inspector.page(
        request,
        "thread.html",
        thread_id=thread_id,
        counts=counts,
        most=MOST,
        **_shown(store, state, request),
    )


def checkpoint(inspector: Inspector, request: Request) -> Response:
    """The part of the page that shows a checkpoint."""
    store = inspector.store(request)
    return inspector.page(request, "checkpoint.html", **_shown(store, state_asked(store, request), request))


def timeline(inspector: Inspector, request: Request) -> Response:
    """The timeline as data for the picture; only whether there is news if `since` is still right."""
    store = inspector.store(request)
    thread_id = _asked(request)[0]
    counts: ThreadCounts = store.run(thread_counts(store.saver.backend.dialect, thread_id))
    state = "-".join(map(str, counts))
    if request.query_params.get("since") == state:
        return Data({"state": state})
    records = store.timeline(thread_id)
    if not records:
        raise CheckpointNotFound(f"thread {thread_id!r} has no checkpoint")
    shown = [one for one in records if not one.hidden] if request.query_params.get("hidden") != "1" else records
    more = counts.checkpoints > len(records)
    labels = labels_by_checkpoint(store.saver, thread_id)
    picture = drawn(picture_of(shown, sends_of(store.saver, thread_id, shown)), labels)
    ids = {one.checkpoint_id for one in records}
    pruned = not more and any(one.parent_id not in ids for one in records if one.parent_id)
    return Data({"state": state, **picture, "more": more, "hidden": len(records) - len(shown), "pruned": pruned})


def drawn(picture: Picture, labels: Mapping[tuple[str, str], Sequence[str]]) -> dict[str, Any]:
    """Return a picture in a short form for the browser; texts are marked.

    Each spot is a list: id, parent, column, row, marks, step, source, run, time in milliseconds, what made it, labels.
    """
    short = cache(partial(line, limit=60))

    def spots_of(spots: Sequence[Spot]) -> list[list[Any]]:
        found = []
        for spot in spots:
            record = spot.record
            time = time_of(record.checkpoint_id)
            found.append(
                [
                    record.checkpoint_id,
                    spot.parent,
                    spot.column,
                    spot.row,
                    spot.marks,
                    record.step if isinstance(record.step, int) else None,
                    short(str(record.source or "")),
                    short(record.run_id or ""),
                    int(time.timestamp() * 1000) if time else None,
                    short(", ".join(spot.nodes)),
                    [marked(name) for name in labels.get((record.checkpoint_ns, record.checkpoint_id), ())],
                ]
            )
        return found

    strips = [
        {
            "ns": strip.checkpoint_ns,
            "name": short(" / ".join(part.partition(":")[0] for part in strip.checkpoint_ns.split("|"))),
            "root": strip.root,
            "spots": spots_of(strip.spots),
        }
        for strip in picture.strips
    ]
    return {
        "spots": spots_of(picture.spots),
        "strips": strips,
        "columns": picture.columns,
        "rows": picture.rows,
    }


def checkpoints(inspector: Inspector, request: Request) -> Response:
    """The checkpoints of a thread as a list, for those who do not see the picture."""
    store = inspector.store(request)
    thread_id = _asked(request)[0]
    before = request.query_params.get("before")
    records = store.timeline(thread_id, before or AFTER_ALL, 2 * LISTED)  # Also the parents of those that are listed.
    spots = lines_of(records, sends_of(store.saver, thread_id, records[:LISTED]), whole=before is None)
    below = [*(one.record.checkpoint_id for one in spots[1:]), None]
    rows = list(zip(spots[:LISTED], below, strict=False))
    more = records[LISTED - 1].checkpoint_id if len(records) > LISTED else None
    labels = labels_by_checkpoint(store.saver, thread_id)
    return inspector.page(request, "checkpoints.html", thread_id=thread_id, rows=rows, more=more, labels=labels)


def difference(inspector: Inspector, request: Request) -> Response:
    """What differs from one checkpoint to another; by default, what a superstep changed."""
    store = inspector.store(request)
    after = state_asked(store, request)
    thread_id, checkpoint_ns, checkpoint_id = after.key
    other = request.query_params.get("from") or after.sizes.parent_id
    before = store.state(Key(thread_id, checkpoint_ns, other)) if other else None
    found, same = changes(before.channels if before else (), after.channels)
    choices: list[CheckpointRecord] = []
    with suppress(CorruptCheckpoint):  # Metadata that cannot be read: then there is no choice.
        newest = store.saver.history(config_of(thread_id, checkpoint_ns, ""), limit=CHOICES)
        choices += (one for one in newest if one.checkpoint_id != checkpoint_id)
    return inspector.page(
        request, "difference.html", before=before, after=after, changes=found, same=same, choices=choices
    )


def value(inspector: Inspector, request: Request) -> Response:
    """The whole value of a channel as JSON, to be saved."""
    store = inspector.store(request)
    state = state_asked(store, request)
    name = request.query_params.get("channel", "")
    for channel in state.channels:
        if channel.name == name and channel.readable:
            headers = {"Content-Disposition": 'attachment; filename="value.json"'}
            return Data(json_of(channel.value), headers=headers)
    raise CheckpointNotFound(f"the checkpoint has no value in the channel {name!r} that can be read")
