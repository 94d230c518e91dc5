"""The inbox: what waits for a human."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from langgraph_checkpoint_custom.model.namespaced_ids import kind_of, name_of
from langgraph_checkpoint_custom.tools.summary import question_of
from langgraph_checkpoint_custom.ui.inspector import Inspector

# Threads on a page.
PAGE = 30


def inbox(inspector: Inspector, request: Request) -> Response:
    """The threads that wait for a human, the one that has waited longest first."""
    store = inspector.store(request)
    prefix, at, before = (request.query_params.get(name, "") for name in ("prefix", "at", "before"))
    waiting, number = store.waiting(prefix, (at, before), PAGE + 1)
    rows = [
        {
            "thread_id": one.thread_id,
            "kind": kind_of(one.thread_id),
            "name": " / ".join(name_of(one.thread_id)),
            "since": one.since,
            "questions": [question_of(each) for each in one.interrupts],
        }
        for one in waiting[:PAGE]
    ]
    following = waiting[PAGE - 1] if len(waiting) > PAGE else None
    return inspector.page(
        request, "inbox.html", rows=rows, number=number, prefix=prefix, is_first=not at, following=following
    )
