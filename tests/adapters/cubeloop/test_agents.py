"""CubeLoop's agents, each in its own process."""

from __future__ import annotations

from cubeloop.checkpointer.exceptions import RunAlreadyCompletedError

from langgraph_checkpoint_custom import CheckpointSaver
from langgraph_checkpoint_custom.adapters.cubeloop import CubeLoopCheckpointer
from tests.adapters.cubeloop.programs import approve, ask, said, talk
from tests.crash.processes import Process
from tests.stores import Store


async def test_another_process_continues_a_thread(store: Store, saver: CheckpointSaver) -> None:
    checkpointer = CubeLoopCheckpointer(saver)
    with Process(talk, store, [("add", "first")]) as process:
        roles = [("user", "first"), ("assistant", "first"), ("tool_result", "first"), ("assistant", "first")]
        first = process.receive()
        assert [(role, run_id) for role, _, run_id in first] == roles
        assert (first[0][1], first[2][1][:5], first[3][1]) == ("add", "5 by ", "it is 5")
    with Process(talk, store, [("again", "second")]) as process:
        second = process.receive()
        assert second[:4] == first
        assert [run_id for _, _, run_id in second[4:]] == ["second"] * 4
        assert second[4][1] == "again"
    with Process(talk, store, [("again", "second")]) as process:
        assert process.receive() == RunAlreadyCompletedError.__name__
    found = await checkpointer.load("thread")
    assert found is not None
    assert said(found.messages) == second
    await checkpointer.fork("thread", "fork", after_run_id="first")
    fork = await checkpointer.load("fork")
    assert fork is not None
    assert (said(fork.messages), fork.parent_thread_id) == (first, "thread")


async def test_an_approval_outlives_the_process_that_asks(store: Store, saver: CheckpointSaver) -> None:
    checkpointer = CubeLoopCheckpointer(saver)
    with Process(ask, store) as asking:
        question_id = asking.receive()
        assert asking.kill()
    pending = await checkpointer.load_pending("thread")
    assert pending is not None
    assert (pending[0].question_id, pending[1]) == (question_id, "run")
    with Process(approve, store) as process:
        answered = process.receive()
    assert [role for role, _, _ in answered] == ["user", "assistant", "tool_result", "assistant"]
    assert answered[-1] == ("assistant", "it is 5", "run")
    found = await checkpointer.load("thread")
    assert found is not None
    assert said(found.messages) == answered
    assert await checkpointer.load_pending("thread") is None
    assert said(await checkpointer.snapshot("thread", after_run_id="run")) == answered
