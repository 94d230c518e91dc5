"""What CubeLoop's own tests do not say: exact values, what the inbox shows, old versions, damage, names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cubeloop.checkpointer.base import CheckpointData, Checkpointer
from cubeloop.checkpointer.exceptions import (
    CheckpointCorruptionError,
    CheckpointerLockTimeoutError,
    RunAlreadyCompletedError,
    ThreadAlreadyExistsError,
)
from cubeloop.hitl.types import ApproveRequest, AskRequest, HitlRequest, Question
from cubeloop.providers.base import (
    AssistantMessage,
    ImageContent,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)

from langgraph_checkpoint_custom import CheckpointSaver, ConfigError, CorruptCheckpoint, StorageError
from langgraph_checkpoint_custom.adapters.cubeloop import VERSIONS, CubeLoopCheckpointer, stored
from langgraph_checkpoint_custom.adapters.documents import Version
from tests.adapters.helpers import refusing
from tests.behaviour.helpers import Database
from tests.conftest import needs_error_codes
from tests.stores import Store


@pytest.fixture
async def checkpointer(store: Store) -> AsyncIterator[Checkpointer]:
    async with store.open() as saver:
        yield CubeLoopCheckpointer(saver)


def user(text: str, run_id: str | None = None) -> Message:
    return UserMessage(content=[TextContent(text=text)], run_id=run_id)


def request(question_id: str) -> HitlRequest:
    payload = ApproveRequest(tool_name="shell", tool_call_id=question_id, args={"command": "ls", "times": 2**70})
    return HitlRequest(question_id=question_id, thread_id="thread", payload=payload, created_at=1.5)


def texts(messages: list[Message]) -> list[str]:
    return [block.text for message in messages for block in message.content if isinstance(block, TextContent)]


async def loaded(checkpointer: Checkpointer, thread_id: str = "thread") -> CheckpointData:
    found = await checkpointer.load(thread_id)
    assert found is not None
    return found


async def run(checkpointer: Checkpointer, run_id: str, thread_id: str = "thread") -> None:
    """A complete run of one message."""
    await checkpointer.claim_run(thread_id, run_id)
    await checkpointer.append(thread_id, [user(run_id, run_id)])
    await checkpointer.mark_run_complete(thread_id, run_id)


MESSAGES: list[Message] = [
    UserMessage(
        content=[TextContent(text="Grüße 🎉 \x00"), ImageContent(source="AAAA", media_type="image/png")],
        metadata={"large": 2**70, "floats": [0.1, float("inf")], "none": None, "deep": [{"a": [True, {"b": ""}]}]},
        timestamp=1.25,
    ),
    AssistantMessage(
        content=[
            ThinkingContent(thinking="hm"),
            TextContent(text="x" * 5000),
            ToolCall(id="call", name="tool", arguments={"a": {"b": [1, 2.5, None]}}),
        ],
        usage=Usage(input_tokens=3, output_tokens=4),
        stop_reason="tool_use",
        run_id="run",
    ),
    ToolResultMessage(
        tool_call_id="call",
        tool_name="tool",
        content=[TextContent(text="")],
        details={"of": [1, {"a": None}]},
        is_error=True,
        run_id="run",
    ),
]


def test_the_checkpointer_implements_the_complete_protocol() -> None:
    assert issubclass(CubeLoopCheckpointer, Checkpointer)


async def test_messages_are_loaded_as_they_were_appended(checkpointer: Checkpointer) -> None:
    assert await checkpointer.load("thread") is None
    await checkpointer.append("thread", MESSAGES[:1])
    await checkpointer.append("thread", MESSAGES[1:])
    assert await checkpointer.load("thread") == CheckpointData(MESSAGES, {}, None)
    assert await checkpointer.load("another") is None


async def test_a_pending_request_is_listed_until_it_is_answered(store: Store) -> None:
    async with store.open() as saver:
        checkpointer = CubeLoopCheckpointer(saver)
        questions = [Question(key="a", prompt="Which?"), Question(key="b", prompt="How many?")]
        asks = HitlRequest(question_id="q", thread_id=None, payload=AskRequest(questions=questions), created_at=1)
        await checkpointer.save_pending_request("thread", asks, run_id="run")
        await checkpointer.save_pending_request("other", request("call"))
        await checkpointer.append("thread", [user("hello")])  # The next version still has the request.
        found = {one.thread_id: one.interrupts[0] for one in await saver.ainterrupts()}
        assert {thread: one.id for thread, one in found.items()} == {stored("thread"): "q", stored("other"): "call"}
        assert found[stored("thread")].value["question"] == "Which? How many?"
        assert found[stored("thread")].value["run"] == "run"
        assert found[stored("other")].value["question"] == "May shell be called?"
        assert HitlRequest.model_validate_json(found[stored("thread")].value["request"]) == asks
        await checkpointer.save_pending_request("thread", None)
        assert [one.thread_id for one in await saver.ainterrupts()] == [stored("other")]


async def test_a_deleted_thread_is_gone(saver: CheckpointSaver) -> None:
    checkpointer = CubeLoopCheckpointer(saver)
    for thread_id in ("thread", "other"):
        await checkpointer.append(thread_id, [user("hello")])
        await checkpointer.save_pending_request(thread_id, request("question"))
    await checkpointer.delete("thread")
    await checkpointer.delete("thread")
    assert await checkpointer.load("thread") is None
    assert [one.thread_id for one in saver.threads()] == [stored("other")]
    assert len(await saver.ainterrupts()) == 1


async def test_a_change_beside_a_deletion_does_not_bring_the_thread_back(
    saver: CheckpointSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread is deleted or erased after the change has read it."""
    checkpointer = CubeLoopCheckpointer(saver)
    put = checkpointer._documents.aput
    deletions = [lambda: checkpointer.delete("thread"), lambda: saver.aerase({"source": "update"})]

    async def delete_and_put(*arguments: Any) -> None:
        if left:
            await left.pop()()
        await put(*arguments)

    for deletion in deletions:
        left: list[Any] = []
        monkeypatch.setattr(checkpointer._documents, "aput", delete_and_put)
        await run(checkpointer, "run")
        await checkpointer.save_pending_request("thread", request("question"))
        left.append(deletion)
        await checkpointer.save_extra("thread", {"a": 1})
        assert await loaded(checkpointer) == CheckpointData([], {"a": 1}, None)
        assert await saver.ainterrupts() == []
        await checkpointer.claim_run("thread", "run")  # Nothing is known of its runs.
        await checkpointer.delete("thread")


async def test_a_change_that_raises_has_changed_nothing(own_store: Store) -> None:
    async with own_store.open() as saver:
        await saver.asetup()
        checkpointer = CubeLoopCheckpointer(saver)
        await checkpointer.append("thread", [user("a")])
        with refusing(own_store, "writes", "INSERT"):
            with pytest.raises(StorageError, match="refused"):
                await checkpointer.save_pending_request("thread", request("question"))
            assert await checkpointer.load_pending("thread") is None
        await checkpointer.save_pending_request("thread", request("question"))
        with refusing(own_store, "writes", "INSERT"):
            for _ in range(2):
                with pytest.raises(StorageError, match="refused"):
                    await checkpointer.append("thread", [user("b")])
                with pytest.raises(StorageError, match="refused"):
                    await checkpointer.claim_run("thread", "run")
        assert texts((await loaded(checkpointer)).messages) == ["a"]
        assert len(await saver.ainterrupts()) == 1
        await checkpointer.append("thread", [user("b")])
        await checkpointer.claim_run("thread", "run")
        assert texts((await loaded(checkpointer)).messages) == ["a", "b"]
        assert len(await saver.ainterrupts()) == 1


async def test_a_change_does_not_depend_on_the_deletion_of_old_versions(
    own_store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("langgraph_checkpoint_custom.adapters.cubeloop.VERSIONS", 2)
    async with own_store.open() as saver:
        await saver.asetup()
        checkpointer = CubeLoopCheckpointer(saver)
        with refusing(own_store, "checkpoints", "DELETE"):
            for number in range(4):
                await checkpointer.append("thread", [user(f"{number}")])
        assert "old versions of thread" in caplog.text
        assert texts((await loaded(checkpointer)).messages) == ["0", "1", "2", "3"]
        await checkpointer.append("thread", [user("4")])
        assert len(list(saver.history({"configurable": {"thread_id": stored("thread")}}))) == 2


async def test_only_old_versions_are_deleted(saver: CheckpointSaver) -> None:
    checkpointer, thread_id = CubeLoopCheckpointer(saver), stored("thread")
    await run(checkpointer, "run")
    await checkpointer.append("thread", MESSAGES[:1])
    await checkpointer.save_extra("thread", {"large": "x" * 2000})
    for number in range(2 * VERSIONS):
        await checkpointer.append("thread", [user(f"{number}")])
    history = list(saver.history({"configurable": {"thread_id": thread_id}}))
    assert VERSIONS <= len(history) < 2 * VERSIONS
    found = await loaded(checkpointer)
    assert found.messages == [user("run", "run"), MESSAGES[0], *(user(f"{n}") for n in range(2 * VERSIONS))]
    assert found.extra == {"large": "x" * 2000}
    with pytest.raises(RunAlreadyCompletedError):
        await checkpointer.claim_run("thread", "run")
    saver.prune([thread_id])
    assert await loaded(checkpointer) == found
    await checkpointer.append("thread", [user("last")])
    assert texts((await loaded(checkpointer)).messages)[-2:] == [f"{2 * VERSIONS - 1}", "last"]


async def test_a_change_whose_answer_was_lost_is_made_once(
    saver: CheckpointSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stored, somebody else went on from there, and then it is tried again."""
    checkpointer, other = CubeLoopCheckpointer(saver), CubeLoopCheckpointer(saver)
    put = checkpointer._documents.aput
    stored_versions: list[Version] = []

    async def put_and_again(version: Version, *more: Any) -> None:
        stored_versions.append(version)
        await put(version, *more)
        await other.append("thread", [user(f"other {len(stored_versions)}")])
        await put(version, *more)

    monkeypatch.setattr(checkpointer._documents, "aput", put_and_again)
    await checkpointer.claim_run("thread", "run")
    await checkpointer.append("thread", [user("mine", "run")])
    await checkpointer.mark_run_complete("thread", "run")
    assert len(stored_versions) == 3
    assert texts((await loaded(checkpointer)).messages) == ["other 1", "mine", "other 2", "other 3"]
    monkeypatch.undo()
    await checkpointer.fork("thread", "fork", after_run_id="run")
    with pytest.raises(ThreadAlreadyExistsError):
        await other.fork("thread", "fork", after_run_id="run")


async def test_many_changes_at_once_lose_nothing(saver: CheckpointSaver) -> None:
    checkpointers = [CubeLoopCheckpointer(saver) for _ in range(8)]
    await asyncio.gather(
        *(one.append("thread", [user(f"{n} a"), user(f"{n} b")]) for n, one in enumerate(checkpointers)),
        *(one.save_extra("thread", {f"{n}": n}) for n, one in enumerate(checkpointers)),
    )
    claims = await asyncio.gather(*(one.claim_run("thread", "run") for one in checkpointers), return_exceptions=True)
    assert claims.count(None) == 1
    found = await loaded(checkpointers[0])
    assert found.extra == {f"{n}": n for n in range(8)}
    said = texts(found.messages)
    assert sorted(said) == sorted(f"{n} {half}" for n in range(8) for half in "ab")
    assert [one.replace("a", "b") for one in said[::2]] == said[1::2]


@needs_error_codes
async def test_a_busy_database_raises_cubeloops_error(tmp_path: Path) -> None:
    store = Store("sqlite", f"sqlite:///{tmp_path / 'checkpoints.db'}")
    async with store.open(busy_timeout=0) as saver:
        checkpointer = CubeLoopCheckpointer(saver)
        await checkpointer.append("thread", [user("a")])
        with closing(Database(store).connect()) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(CheckpointerLockTimeoutError, match="busy_timeout"):
                await checkpointer.append("thread", [user("b")])
            assert texts((await loaded(checkpointer)).messages) == ["a"]


async def test_an_invalid_message_raises_with_its_location(saver: CheckpointSaver) -> None:
    checkpointer = CubeLoopCheckpointer(saver)
    alien: Any = {"role": "alien"}
    await checkpointer.append("thread", [user("a"), alien])
    with pytest.raises(CheckpointCorruptionError, match=r"(?s)thread 'thread' .*message 1\): .*'alien'") as caught:
        await checkpointer.load("thread")
    assert (caught.value.thread_id, caught.value.row_ref) == ("thread", "message 1")
    assert isinstance(caught.value.__cause__, ValueError)
    pending = {"question": "a", "run": None, "request": "{}"}
    await checkpointer._change("thread", lambda channels: {"pending": pending})
    with pytest.raises(CheckpointCorruptionError, match=r"thread 'thread' .*the pending request"):
        await checkpointer.load_pending("thread")


async def test_damaged_bytes_raise_with_their_location(store: Store, saver: CheckpointSaver) -> None:
    checkpointer = CubeLoopCheckpointer(saver)
    await checkpointer.append("thread", [user("a" * 20_000)])
    await checkpointer.save_extra("other", {"a": "x" * 20_000})
    Database(store).run("UPDATE blobs SET value = :data", data=b"\xc1")
    with pytest.raises(CheckpointCorruptionError, match=r"thread 'thread' .*channel 'messages'") as caught:
        await checkpointer.load("thread")
    assert (caught.value.thread_id, type(caught.value.__cause__)) == ("thread", CorruptCheckpoint)
    with pytest.raises(CheckpointCorruptionError, match=r"thread 'other' .*channel 'extra'"):
        await checkpointer.save_extra("other", {})


async def test_a_run_needs_an_id(checkpointer: Checkpointer) -> None:
    no_id: Any = None
    for call in (checkpointer.claim_run, checkpointer.mark_run_complete):
        with pytest.raises(ConfigError, match="run_id must be text, not NoneType"):
            await call("thread", no_id)
    await checkpointer.append("thread", [user("without a run")])
    assert await checkpointer.load("thread")


async def test_half_a_surrogate_pair_is_retained(checkpointer: Checkpointer) -> None:
    """CubeLoop's own stores retain it, too: models stream text in pieces."""
    text = "half \ud83d, whole \U0001f600, ü, and as it is written: \\ud83d"
    await checkpointer.append("thread", [user(text)])
    await checkpointer.save_extra("thread", {"text": text, "more": [text, float("inf"), 10**30]})
    await checkpointer.save_hitl_answer("thread", "question", {"text": text}, run_id="run")
    found = await checkpointer.load("thread")
    assert found is not None
    assert found.messages == [user(text)]
    assert found.extra == {"text": text, "more": [text, float("inf"), 10**30]}
    assert await checkpointer.load_hitl_answer("thread", "question", run_id="run") == {"text": text}
