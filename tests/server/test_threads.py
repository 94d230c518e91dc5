"""What a server does with complete threads: copies, prunes and deletes them; and the metadata that it stores."""

from __future__ import annotations

from typing import Any

from langgraph_checkpoint_custom import CheckpointSaver
from tests.behaviour.helpers import anywhere
from tests.server.auth import SECRET
from tests.server.threads import ALL, Thread, Threads


async def stored(saver: CheckpointSaver, thread: Thread) -> list[Any]:
    """The metadata of all checkpoints of a thread."""
    return [each.metadata async for each in saver.alist(anywhere(thread.thread_id))]


async def test_a_copy_is_a_separate_thread(threads: Threads, saver: CheckpointSaver) -> None:
    thread = await threads.new("questions")
    (question, *_) = (await thread.wait({}))["__interrupt__"]
    before = await stored(saver, thread)
    copy = await thread.copied()
    found = await stored(saver, copy)
    assert {each["thread_id"] for each in found} == {copy.thread_id}
    assert found == [{**each, "thread_id": copy.thread_id} for each in before]
    # An open interrupt is open there, too, and answering it changes nothing here.
    await copy.wait(command={"resume": {question["id"]: "copied"}})
    assert len((await copy.state())["interrupts"]) == 2
    assert len((await thread.state())["interrupts"]) == 3
    assert await stored(saver, thread) == before


async def test_a_deleted_thread_leaves_nothing(threads: Threads, saver: CheckpointSaver) -> None:
    thread, pruned, other = [await threads.new("steps") for _ in range(3)]
    for each in (thread, pruned, other):
        await each.wait({"done": []})
    await threads.client.threads.delete(thread.thread_id)
    assert await threads.client.threads.prune([pruned.thread_id], strategy="delete") == {"pruned_count": 1}
    assert await stored(saver, thread) == await stored(saver, pruned) == []
    assert (await other.state())["values"] == {"done": ALL}


async def test_a_deleted_run_leaves_nothing(threads: Threads, saver: CheckpointSaver) -> None:
    thread = await threads.new("steps")
    await thread.wait({"done": []})
    run_id = await thread.begin({"done": []})
    await thread.join(run_id)
    await threads.client.runs.delete(thread.thread_id, run_id)
    assert run_id not in {each["run_id"] for each in await stored(saver, thread)}
    assert (await thread.state())["values"] == {"done": ALL}


async def test_the_data_of_a_request_is_not_stored(threads: Threads, saver: CheckpointSaver) -> None:
    """The server adds the user, the permissions and an id of the request to the config."""
    thread = await threads.new("family")
    await thread.wait({}, config={"configurable": {"mine": 1}}, metadata={"ours": 2})
    await thread.wait(command={"resume": "answer"})
    await thread.update({"log": ["by hand"]})
    found = await stored(saver, thread)
    assert {each["source"] for each in found} == {"input", "loop", "update"}
    assert found[-1]["mine"] == 1
    assert found[-1]["ours"] == 2
    for each in found:
        assert [key for key in each if key.startswith(("langgraph_auth_", "langgraph_request_id"))] == []
        assert SECRET not in repr(each)
