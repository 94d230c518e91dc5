"""The list of threads, and of tenants."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from langgraph_checkpoint_custom.errors import CheckpointNotFound
from langgraph_checkpoint_custom.model.keys import KIND_MARK, label_text
from langgraph_checkpoint_custom.model.records import ThreadRecord
from langgraph_checkpoint_custom.operations.inspector import threads_with_label
from langgraph_checkpoint_custom.operations.sizes import MOST
from langgraph_checkpoint_custom.tools.display import size, time_of, up_to
from langgraph_checkpoint_custom.ui.inspector import Data, Inspector
from langgraph_checkpoint_custom.ui.reading import Store, ThreadList, thread_record
from langgraph_checkpoint_custom.ui.texts import marked

# Threads on a page.
PAGE = 30
# Checkpoints that a search by metadata goes through at first. With a million threads, that took a tenth of a second.
REACH = 5_000
# Metadata keys of LangGraph's own, which say nothing about whose thread it is.
_PLUMBING = ("source", "step", "parents", "run_id", "thread_id", "counters_since_delta_snapshot", "checkpoint_ns")


def threads(inspector: Inspector, request: Request) -> Response:
    """A page of threads, the newest first: all, or those that a search finds.

    Threads that are searched for by label or by the beginning of their id come in the order of their ids, since many
    may match. Those that wait come in the order of the inbox.
    """
    store = inspector.store(request)
    asked = {name: request.query_params.get(name, "") for name in ("prefix", "where", "label", "waits", "kind")}
    before = request.query_params.get("before")
    at = request.query_params.get("at")
    everything = request.query_params.get("all") == "1"
    found, after, complete = _found(store, asked, (at, before or "") if at else None, None if everything else REACH)
    rows = [{"record": one, "time": time_of(one.newest.checkpoint_id), "tags": _tags(one)} for one in found]
    following = None
    if after is not None:
        same = {name: text or None for name, text in asked.items()} | {"all": 1 if everything else None}
        following = {**same, "at": after[0], "before": after[1]}
    searched = any(asked.values())
    return inspector.page(
        request,
        "threads.html",
        rows=rows,
        asked=asked,
        following=following,
        is_first=at is None,
        searched=searched,
        reach=None if complete else REACH,
    )


def _found(store: Store, asked: dict[str, str], before: tuple[str, str] | None, reach: int | None) -> ThreadList:
    """The threads that a search finds, and where the next page begins."""
    prefix = asked["prefix"].strip()
    if asked["kind"]:
        prefix = f"{KIND_MARK}{asked['kind']}"
    if asked["label"]:
        after = before[1] if before else ""
        names = store.run(threads_with_label(store.saver.backend.dialect, label_text(asked["label"]), after, PAGE + 1))
        return _records(store, [name for name in names if name.startswith(prefix)])
    if asked["waits"]:
        waiting = [one.thread_id for one in store.saver.interrupts(prefix=prefix)]
        begin = waiting.index(before[1]) + 1 if before and before[1] in waiting else 0
        return _records(store, waiting[begin : begin + PAGE + 1])
    if prefix and not asked["where"]:
        return _records(store, store.thread_ids(prefix, before[1] if before else "", PAGE + 1))
    return store.threads(prefix=prefix, filter=wanted_of(asked["where"]), before=before, limit=PAGE, reach=reach)


def _records(store: Store, names: list[str]) -> ThreadList:
    records = [record for name in names[:PAGE] if (record := thread_record(store, name))]
    return ThreadList(records, ("-", names[PAGE - 1]) if len(names) > PAGE else None)


def wanted_of(text: str) -> dict[str, Any] | None:
    """Return the filter in a text such as `user=ada, step=3`; a value is JSON, otherwise text."""
    wanted = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not key.strip():
            continue
        try:
            wanted[key.strip()] = json.loads(value) if equals else None
        except ValueError:
            wanted[key.strip()] = value.strip()
    return wanted or None


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


def tenants(inspector: Inspector, request: Request) -> Response:
    """The tenants that have threads."""
    return inspector.page(request, "tenants.html", tenants=inspector.saver.tenants())
