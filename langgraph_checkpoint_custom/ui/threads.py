"""The list of threads, those that wait for a human, what takes room, and the tenants."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, get_args

from starlette.requests import Request
from starlette.responses import Response

from langgraph_checkpoint_custom.errors import CheckpointNotFound, ConfigError
from langgraph_checkpoint_custom.model.keys import KIND_MARK, label_text, thread_text
from langgraph_checkpoint_custom.model.records import ThreadPage, ThreadRecord
from langgraph_checkpoint_custom.operations.inspector import label_names, threads_with_label
from langgraph_checkpoint_custom.operations.list_threads import ThreadsReply
from langgraph_checkpoint_custom.operations.sizes import MOST, sizes_of_store, sizes_of_thread, sizes_of_threads
from langgraph_checkpoint_custom.operations.thread_states import State, waiting_threads
from langgraph_checkpoint_custom.tools.display import size, up_to
from langgraph_checkpoint_custom.tools.finding import pairs_in, thread_ids, wanted_of
from langgraph_checkpoint_custom.tools.states import Summary, summary_of
from langgraph_checkpoint_custom.ui.inspector import Data, Inspector
from langgraph_checkpoint_custom.ui.reading import Store
from langgraph_checkpoint_custom.ui.values import marked

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
        states=get_args(State),
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
    if asked["state"] and asked["state"] not in get_args(State):
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
