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
    prefix = request.query_params.get("prefix", "")
    waiting = store.saver.interrupts(prefix=prefix)
    at = request.query_params.get("at", "")
    begin = int(at) if at.isdecimal() and len(at) < 12 else 0
    rows = [
        {
            "thread_id": one.thread_id,
            "kind": kind_of(one.thread_id),
            "name": " / ".join(name_of(one.thread_id)),
            "since": one.since,
            "questions": [question_of(each) for each in one.interrupts],
        }
        for one in waiting[begin : begin + PAGE]
    ]
    following = begin + PAGE if len(waiting) > begin + PAGE else None
    return inspector.page(
        request, "inbox.html", rows=rows, number=len(waiting), prefix=prefix, begin=begin, following=following
    )
