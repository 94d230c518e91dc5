"""The pages: the list of threads, those that wait, what takes room; a thread, its checkpoints, what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any, get_args

from starlette.requests import Request
from starlette.responses import Response

from langgraph_checkpoint_custom.errors import CheckpointNotFound, ConfigError, CorruptCheckpoint
from langgraph_checkpoint_custom.model.id_times import time_of
from langgraph_checkpoint_custom.model.keys import AFTER_ALL, KIND_MARK, Key, config_of, key_of, label_text, thread_text
from langgraph_checkpoint_custom.model.records import CheckpointRecord, ThreadPage, ThreadRecord
from langgraph_checkpoint_custom.operations.inspector import (
    ThreadCounts,
    label_names,
    thread_counts,
    threads_with_label,
)
from langgraph_checkpoint_custom.operations.list_threads import ThreadsReply
from langgraph_checkpoint_custom.operations.sizes import MOST, sizes_of_store, sizes_of_thread, sizes_of_threads
from langgraph_checkpoint_custom.operations.thread_states import State as ThreadState
from langgraph_checkpoint_custom.operations.thread_states import waiting_threads
from langgraph_checkpoint_custom.tools.changes import changes
from langgraph_checkpoint_custom.tools.display import json_of, size, up_to
from langgraph_checkpoint_custom.tools.finding import labels_by_checkpoint, pairs_in, thread_ids, wanted_of
from langgraph_checkpoint_custom.tools.states import Summary, summary_of
from langgraph_checkpoint_custom.tools.timeline import Picture, Spot, lines_of, picture_of, sends_of
from langgraph_checkpoint_custom.ui.inspector import Data, Inspector
from langgraph_checkpoint_custom.ui.reading import State, Store
from langgraph_checkpoint_custom.ui.values import line, marked

# Threads on a page.
PAGE = 30
# Characters of what was said last in a thread.
LINE = 160
# Threads, namespaces and channels that are shown with their sizes, the largest ones.
LARGEST = 40
# Checkpoints that a search by metadata goes through at first. With a million threads, that took a tenth of a second.
REACH = 5_000
# Metadata keys of LangGraph's own, which say nothing about whose thread it is.
_PLUMBING = {"source", "step", "parents", "run_id", "thread_id", "counters_since_delta_snapshot", "checkpoint_ns"}
# Labels and metadata keys that the search suggests.
SUGGESTED = 100
# Checkpoints in the list below the picture.
LISTED = 50
# Checkpoints of a namespace to compare with: the newest ones.
CHOICES = 300
# Channels of a checkpoint that its page shows, unless all are asked for.
CHANNELS = 200


def threads(inspector: Inspector, request: Request) -> Response:
    """A page of threads, the newest first: all, or those that fulfil all conditions of a search.

    Threads that are searched for by label, or only by the beginning of their id, come in the order of their ids, since
    many may match.
    """
    store = inspector.store(request)
    asked = {name: request.query_params.get(name, "").strip() for name in ("prefix", "where", "label", "state", "kind")}
    before = request.query_params.get("before")
    at = request.query_params.get("at")
    everything = request.query_params.get("all") == "1"
    problem = ""
    try:
        page = _found(store, asked, (at, before or "") if at else None, None if everything else REACH)
    except ConfigError as error:
        page, problem = ThreadsReply([], None), str(error)
    same = {name: text or None for name, text in asked.items()}
    following = None
    if page.after is not None:
        place = {"at": page.after.before, "before": page.after.thread_below}
        following = {**same, **place, "all": 1 if everything else None}
    return inspector.page(
        request,
        "threads.html",
        rows=[(one, _tags(one)) for one in page.threads],
        asked=asked,
        same=same,
        states=get_args(ThreadState),
        following=following,
        is_first=at is None,
        searched=any(asked.values()),
        problem=problem,
        reach=None if page.complete else REACH,
    )


def _found(store: Store, asked: dict[str, str], before: tuple[str, str] | None, reach: int | None) -> ThreadsReply:
    """The threads that a search finds, and where the next page begins."""
    prefix = f"{KIND_MARK}{asked['kind']}/{asked['prefix']}" if asked["kind"] else asked["prefix"]
    wanted = wanted_of(pairs_in(asked["where"]))
    if asked["state"] and asked["state"] not in get_args(ThreadState):
        raise ConfigError(f"there is no state {asked['state']!r}")
    state: Any = asked["state"] or None
    if not asked["label"] and (wanted or state or not prefix):
        return store.threads(prefix=prefix, filter=wanted, state=state, before=before, limit=PAGE, reach=reach)
    after = before[1] if before else ""
    found: list[ThreadRecord] = []
    while True:
        if asked["label"]:
            op = threads_with_label(store.saver.backend.dialect, label_text(asked["label"]), after, PAGE)
            names = store.run(op)
        else:
            names = thread_ids(store.saver, prefix, after, PAGE)
        for after in names:
            with suppress(CheckpointNotFound):
                record = ThreadRecord(after, store.newest(after))
                if after.startswith(prefix) and store.fits(record, wanted, state):
                    found.append(record)
            if len(found) == PAGE:
                return ThreadsReply(found, ThreadPage("-", after, (), PAGE))
        if len(names) < PAGE:
            return ThreadsReply(found, None)


def _tags(record: ThreadRecord) -> list[tuple[str, str]]:
    """What the metadata says about a thread: the first few values that an application has set."""
    metadata = record.newest.metadata
    shown = [(str(key), value) for key, value in metadata.items() if key not in _PLUMBING]
    return [(key, str(value)) for key, value in shown if isinstance(value, (str, int, float, bool)) and value != ""][:4]


def summary(inspector: Inspector, request: Request) -> Response:
    """What the list shows of one thread after the page has been painted: its last message, state and size."""
    store = inspector.store(request)
    thread_id = request.query_params.get("thread", "")
    try:
        last = summary_of(store.saver, store.newest(thread_id), LINE)
    except CheckpointNotFound:
        last = Summary("deleted")
    if last.state == "deleted":
        return Data({"gone": True}, 404)
    counts = store.run(sizes_of_threads(store.saver.backend.dialect, [thread_text(thread_id)], MOST))
    counted, complete = counts[thread_id]
    return Data(
        {
            "state": last.state,
            "role": last.who,
            "text": marked(last.text),
            "checkpoints": up_to(MOST, counted.checkpoints),
            "hidden": counted.hidden,
            "size": size(counted.bytes) if complete else f"> {size(counted.bytes)}",
        }
    )


def suggestions(inspector: Inspector, request: Request) -> Response:
    """What the search suggests once a field is used: metadata keys of the newest threads, or names of all labels."""
    store = inspector.store(request)
    if request.query_params.get("of") == "keys":
        newest = store.threads(before=None, limit=SUGGESTED).threads
        found = sorted(f"{key}=" for key in {str(key) for one in newest for key in one.newest.metadata} - _PLUMBING)
    else:
        found = store.run(label_names(store.saver.backend.dialect, SUGGESTED))
    return Data({"suggestions": [marked(text) for text in found[:SUGGESTED]]})


def inbox(inspector: Inspector, request: Request) -> Response:
    """The threads that wait for a human, the one that has waited longest first."""
    store = inspector.store(request)
    prefix, at, before = (request.query_params.get(name, "") for name in ("prefix", "at", "before"))
    d, _, codec = store.saver.backend
    waiting, number = store.run(waiting_threads(d, codec, thread_text(prefix, "prefix"), (at, before), PAGE + 1))
    following = waiting[PAGE - 1] if len(waiting) > PAGE else None
    return inspector.page(
        request, "inbox.html", rows=waiting[:PAGE], number=number, prefix=prefix, is_first=not at, following=following
    )


def space(inspector: Inspector, request: Request) -> Response:
    """What takes room: in the store by thread and channel, or in a thread by namespace and channel.

    Counting a whole store reads all rows. So the page comes first, and the browser asks for the figures after that.
    """
    store = inspector.store(request)
    d, thread_id = store.saver.backend.dialect, request.query_params.get("thread")
    sizes = None
    if thread_id:
        sizes = store.run(sizes_of_thread(d, thread_text(thread_id), LARGEST))
    elif request.query_params.get("count") == "1":
        sizes = store.run(sizes_of_store(d, LARGEST))
    return inspector.page(request, "space.html", thread_id=thread_id, sizes=sizes)


def tenants(inspector: Inspector, request: Request) -> Response:
    """The tenants that have threads."""
    return inspector.page(request, "tenants.html", tenants=inspector.saver.tenants())


# A thread with its timeline, one of its checkpoints, and what differs between two


def _state_asked(store: Store, request: Request) -> State:
    """The checkpoint that a request names; by default, the newest one."""
    thread_id, checkpoint_ns, checkpoint_id = (request.query_params.get(name, "") for name in ("thread", "ns", "id"))
    if not checkpoint_id:
        return store.state(key_of(store.newest(thread_id).config))
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
    state = _state_asked(store, request)
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
    return inspector.page(request, "checkpoint.html", **_shown(store, _state_asked(store, request), request))


def timeline(inspector: Inspector, request: Request) -> Response:
    """The timeline as data for the picture; only whether there is news if `since` is still right."""
    store = inspector.store(request)
    thread_id = request.query_params.get("thread", "")
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

    def listed(spot: Spot) -> list[Any]:
        record = spot.record
        time = time_of(record.checkpoint_id)
        return [
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

    strips = [
        {
            "ns": strip.checkpoint_ns,
            "name": short(" / ".join(part.partition(":")[0] for part in strip.checkpoint_ns.split("|"))),
            "root": strip.root,
            "spots": [listed(spot) for spot in strip.spots],
        }
        for strip in picture.strips
    ]
    return {
        "spots": [listed(spot) for spot in picture.spots],
        "strips": strips,
        "columns": picture.columns,
        "rows": picture.rows,
    }


def checkpoints(inspector: Inspector, request: Request) -> Response:
    """The checkpoints of a thread as a list, for those who do not see the picture."""
    store = inspector.store(request)
    thread_id = request.query_params.get("thread", "")
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
    after = _state_asked(store, request)
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
    state = _state_asked(store, request)
    name = request.query_params.get("channel", "")
    for channel in state.channels:
        if channel.name == name and channel.readable:
            headers = {"Content-Disposition": 'attachment; filename="value.json"'}
            return Data(json_of(channel.value), headers=headers)
    raise CheckpointNotFound(f"the checkpoint has no value in the channel {name!r} that can be read")
