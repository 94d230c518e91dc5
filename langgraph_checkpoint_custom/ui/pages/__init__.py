"""The pages, a module for each subject. A view takes what the pages share and a request, and returns a response."""

from __future__ import annotations

from collections.abc import Mapping

from langgraph_checkpoint_custom.ui.inspector import View
from langgraph_checkpoint_custom.ui.pages import difference, inbox, space, thread, threads

ROUTES: Mapping[str, View] = {
    "/": threads.threads,
    "/summary": threads.summary,
    "/suggestions": threads.suggestions,
    "/tenants": threads.tenants,
    "/thread": thread.thread,
    "/checkpoint": thread.checkpoint,
    "/checkpoints": thread.checkpoints,
    "/timeline": thread.timeline,
    "/value": thread.value,
    "/difference": difference.difference,
    "/inbox": inbox.inbox,
    "/space": space.space,
    "/sweep": space.sweep,
}
