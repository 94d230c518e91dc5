"""The list of threads, and of tenants."""

from __future__ import annotations

from typing import Any, get_args

from starlette.requests import Request
from starlette.responses import Response

from langgraph_checkpoint_custom.errors import CheckpointNotFound, ConfigError
from langgraph_checkpoint_custom.model.id_times import time_of
from langgraph_checkpoint_custom.model.keys import KIND_MARK, label_text
from langgraph_checkpoint_custom.model.records import ThreadRecord
from langgraph_checkpoint_custom.operations.inspector import label_names, threads_with_label
from langgraph_checkpoint_custom.operations.sizes import MOST
from langgraph_checkpoint_custom.operations.thread_states import State
from langgraph_checkpoint_custom.tools.display import size, up_to
from langgraph_checkpoint_custom.tools.finding import pairs_in, thread_ids, wanted_of
from langgraph_checkpoint_custom.ui.inspector import Data, Inspector
from langgraph_checkpoint_custom.ui.reading import Store, ThreadList, thread_record
from langgraph_checkpoint_custom.ui.texts import marked

# Threads on a page.
PAGE = 30
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
        page, problem = ThreadList([], None), str(error)
    rows = [{"record": one, "time": time_of(one.newest.checkpoint_id), "tags": _tags(one)} for one in page.threads]
    same = {name: text or None for name, text in asked.items()}
    following = None
    if page.after is not None:
        following = {**same, "all": 1 if everything else None, "at": page.after[0], "before": page.after[1]}
    return inspector.page(
        request,
        "threads.html",
        rows=rows,
        asked=asked,
        same=same,
        states=get_args(State),
        following=following,
        is_first=at is None,
        searched=any(asked.values()),
        problem=problem,
        reach=None if page.complete else REACH,
    )


def _found(store: Store, asked: dict[str, str], before: tuple[str, str] | None, reach: int | None) -> ThreadList:
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
            record = thread_record(store, after) if after.startswith(prefix) else None
            if record is not None and store.fits(record, wanted, state):
                found.append(record)
            if len(found) == PAGE:
                return ThreadList(found, ("-", after))
        if len(names) < PAGE:
            return ThreadList(found, None)


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
        found = store.summary(thread_id)
    except CheckpointNotFound:
        return Data({"gone": True}, 404)
    counted, complete = found.counted
    return Data(
        {
            "state": found.state,
            "role": found.role,
            "text": marked(found.text),
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


def tenants(inspector: Inspector, request: Request) -> Response:
    """The tenants that have threads."""
    return inspector.page(request, "tenants.html", tenants=inspector.saver.tenants())
