"""A change takes effect once, even if PostgreSQL's answer was lost and the change was retried."""

from __future__ import annotations

from collections.abc import Coroutine
from itertools import count
from typing import Any

from cubeloop.hitl.types import ConfirmRequest, HitlRequest
from cubeloop.providers.base import Message, TextContent, UserMessage

from langgraph_checkpoint_custom import open_saver
from langgraph_checkpoint_custom.adapters.cubeloop import CubeLoopCheckpointer
from tests.faults.faulty import FaultyProxy, faulty

NEVER = 10**9


async def test_a_change_whose_answer_is_lost_is_made_once(postgres_url: str) -> None:
    """Cut the connection before the first answer of each change, then before the second, and so on."""
    with faulty(postgres_url) as proxy:
        async with open_saver(proxy.url) as saver:
            checkpointer = CubeLoopCheckpointer(saver)
            for number in count():
                if not await cuts(checkpointer, proxy, number):
                    break
    assert number > 4  # Lock, read, store and commit: four answers.


async def cuts(checkpointer: CubeLoopCheckpointer, proxy: FaultyProxy, number: int) -> int:
    """Make the changes that must take effect once, each with a cut; returns the number of changes that were cut."""
    thread_id, fork_id = f"thread {number}", f"fork {number}"
    question = HitlRequest(question_id="q", thread_id=None, payload=ConfirmRequest(prompt="?"), created_at=0.0)
    messages: list[Message] = [
        UserMessage(content=[TextContent(text=f"{position}")], run_id="run") for position in range(4)
    ]
    made = 0

    async def cut(change: Coroutine[Any, Any, Any]) -> Any:
        nonlocal made
        proxy.cut_next("before the answer", after=number)
        result = await change
        made += not proxy.armed
        proxy.cut_next("before the answer", after=NEVER)
        return result

    # An error or another result would come from a retry that found the effect of the first attempt.
    await cut(checkpointer.claim_run(thread_id, "run"))
    await cut(checkpointer.append(thread_id, messages))
    await checkpointer.save_pending_request(thread_id, question, run_id="run")
    assert await cut(checkpointer.clear_pending_request_if_matches(thread_id, question_id="q", run_id="run"))
    await checkpointer.mark_run_complete(thread_id, "run")
    await cut(checkpointer.fork(thread_id, fork_id, after_run_id="run"))
    for name in (thread_id, fork_id):
        assert await checkpointer.snapshot(name, after_run_id="run") == messages
    return made
