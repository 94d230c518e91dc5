"""pydantic-deep's checkpoints: correct under concurrency, separate for each session; real agents in two processes."""

# ruff: noqa: E402 (what is imported last may be missing)

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from importlib.util import find_spec
from typing import Any

import pytest

from langgraph_checkpoint_custom import CheckpointSaver, ConfigError, Retention, StorageError
from langgraph_checkpoint_custom.encoding.chunks import NAME_MARK
from langgraph_checkpoint_custom.errors import CheckpointLabelled, CorruptCheckpoint
from langgraph_checkpoint_custom.model.keys import thread_of
from tests.adapters.helpers import HOSTILE, damage, put_document, refusing
from tests.crash.processes import Process
from tests.invariants import read_tables
from tests.needs import need
from tests.stores import Store

need(find_spec("pydantic_deep"), "the extra pydantic-deep")

from pydantic_ai.messages import (
    BinaryContent,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.test import TestModel
from pydantic_deep import create_deep_agent
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.features.checkpointing import (
    CheckpointMiddleware,
    CheckpointStore,
    CheckpointToolset,
    fork_from_checkpoint,
)

from langgraph_checkpoint_custom.adapters.pydantic_deep import (
    DeepCheckpointStore,
)
from tests.adapters.deep_programs import Context, Turn, checkpoint, messages, serve

THREAD = thread_of("pydantic-deep", "a")


@pytest.fixture
def deep(saver: CheckpointSaver) -> DeepCheckpointStore:
    return DeepCheckpointStore(saver, "a")


class Workers:
    """Processes that run programs concurrently."""

    def __init__(self, processes: Sequence[Process]) -> None:
        self._processes = processes

    def run(self, number: int, program: str, *arguments: Any) -> list[Any]:
        for process in self._processes[:number]:
            process.send((program, arguments))
        return [process.receive() for process in self._processes[:number]]

    def run_in(self, process: int, program: str, *arguments: Any) -> Any:
        self._processes[process].send((program, arguments))
        return self._processes[process].receive()


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with ExitStack() as stack:
        yield Workers([stack.enter_context(Process(serve)) for _ in range(4)])


async def labels(deep: DeepCheckpointStore) -> list[str]:
    return [found.label for found in await deep.list_all()]


async def test_a_saved_checkpoint_is_read_unchanged(deep: DeepCheckpointStore) -> None:
    own = replace(
        checkpoint("turn-1", last_tool="write_file", more={"a": [1, None, 1.5]}),
        messages=[
            ModelRequest(
                parts=[
                    SystemPromptPart("be kind"),
                    UserPromptPart(["look", BinaryContent(b"\x00\xff", media_type="image/png")]),
                ],
                instructions="do it",
            ),
            ModelResponse(
                parts=[ThinkingPart("hm"), TextPart("yes"), ToolCallPart("write", {"path": "/a"}, tool_call_id="1")],
                model_name="a model",
            ),
            ModelRequest(
                parts=[
                    ToolReturnPart("write", {"ok": True, "number": 2**70}, tool_call_id="1"),
                    UserPromptPart("NUL \x00"),
                ]
            ),
        ],
    )
    assert isinstance(deep, CheckpointStore)
    await deep.save(own)
    # pydantic-ai reads an image from JSON as a `BinaryImage`.
    expected = replace(
        own, messages=ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(own.messages))
    )
    assert await deep.get(own.id) == expected
    assert await deep.get_by_label("turn-1") == expected
    assert await deep.list_all() == [expected]
    assert (await deep.get("none"), await deep.get_by_label("none")) == (None, None)


async def test_checkpoints_are_ordered_by_time(deep: DeepCheckpointStore) -> None:
    """Checkpoints with the same time are ordered by their first save. Saving one again does not move it."""
    at = datetime(2025, 1, 1, tzinfo=timezone.utc)
    times = [at, at - timedelta(1), at, at.replace(tzinfo=None) + timedelta(1), at]
    own = [replace(checkpoint(f"{number % 2}"), created_at=time) for number, time in enumerate(times)]
    for one in own:
        await deep.save(one)
    await deep.save(own[0])
    ordered = [own[number] for number in (1, 0, 2, 4, 3)]
    assert await deep.list_all() == ordered
    assert await deep.get_by_label("0") == own[0]
    await deep.save(replace(own[2], label="new"))
    assert [one.id for one in await deep.list_all()] == [one.id for one in ordered]
    assert await deep.get_by_label("0") == own[0]
    assert await deep.count() == 5
    for left in (4, 3, 2, 1, 0):
        assert await deep.remove_oldest()
        assert [one.id for one in await deep.list_all()] == [one.id for one in ordered[5 - left :]]
    assert not await deep.remove_oldest()


async def test_a_session_cannot_reach_the_checkpoints_of_another(saver: CheckpointSaver) -> None:
    sessions = {session_id: DeepCheckpointStore(saver, session_id) for session_id in HOSTILE}
    own = checkpoint()
    for session_id, deep in sessions.items():
        await deep.save(replace(own, id="../a", label=session_id))
    for session_id, deep in sessions.items():
        assert await labels(deep) == [session_id]
        for hostile in (*HOSTILE, "../b/../a", "x\0", "\ud800", "x" * 5000):
            assert await deep.get(hostile) is None
            assert not await deep.remove(hostile)
    await sessions["../etc"].clear()
    assert await sessions["a"].remove("../a")
    assert [len(await deep.list_all()) for deep in sessions.values()].count(0) == 2


async def test_invalid_input_is_refused_before_anything_is_stored(saver: CheckpointSaver) -> None:
    deep = DeepCheckpointStore(saver, "a")
    for wrong in (
        replace(checkpoint(), id="x" * 300),
        replace(checkpoint(), id="x\0"),
        replace(checkpoint(), id=None),
        checkpoint(at=datetime.now(timezone.utc)),
        checkpoint(more=(1, 2)),
        replace(checkpoint(), messages=[ModelRequest(parts=[UserPromptPart("\ud800")])]),
    ):
        with pytest.raises(ConfigError):
            await deep.save(wrong)
    for session_id in ("x" * 1000, 5):
        with pytest.raises(ConfigError):
            DeepCheckpointStore(saver, session_id)  # type: ignore[arg-type]
    assert list(saver.threads()) == []


async def test_checkpoints_share_messages_and_are_removed_one_by_one(store: Store, deep: DeepCheckpointStore) -> None:
    grown = messages(80, size=500)
    own = [replace(checkpoint(f"turn-{n}"), messages=grown[: 60 + 4 * n]) for n in range(6)]
    for one in own:
        await deep.save(one)
    # The conversation is stored about once: a chunk has 6 kB, and each version may begin a new one.
    assert len([blob for blob in read_tables(store).blobs if blob.version.startswith(NAME_MARK)]) < 20
    await deep.save(replace(own[5], label="again"))
    own[5] = replace(own[5], label="again")
    for removed in (2, 5, 0):
        assert await deep.remove(own[removed].id)
        assert not await deep.remove(own[removed].id)
        own[removed] = None
        assert await deep.list_all() == [one for one in own if one]
    await deep.clear()
    assert (await deep.list_all(), await deep.count()) == ([], 0)


@pytest.mark.leaves_damage("the messages cannot be read")
async def test_counting_and_removing_read_no_message(store: Store, deep: DeepCheckpointStore) -> None:
    first, second = checkpoint("1"), checkpoint("2")
    await deep.save(first)
    await deep.save(second)
    damage(store)
    assert await deep.count() == 2
    assert await deep.remove(first.id)
    with pytest.raises(CorruptCheckpoint) as raised:
        await deep.get(second.id)
    assert (raised.value.thread_id, raised.value.channel) == (THREAD, "checkpoint")
    assert await deep.remove_oldest()


async def test_after_a_count_no_more_checkpoints_are_removed_than_were_counted(
    saver: CheckpointSaver, deep: DeepCheckpointStore
) -> None:
    own = [checkpoint(label) for label in "1234"]
    for one in own:
        await deep.save(one)

    async def other() -> None:
        assert await deep.remove_oldest()

    assert await deep.count() == 4
    await asyncio.create_task(other())
    assert not await deep.remove_oldest()
    assert await deep.remove_oldest()  # Not counted again.
    assert await deep.count() == 2
    assert await deep.remove(own[2].id)
    assert await deep.remove_oldest()  # The store itself has changed something since the count.


async def test_labels_set_by_hand_can_be_pinned(saver: CheckpointSaver) -> None:
    deep = DeepCheckpointStore(saver, "a", pin_labels=True)
    middleware = CheckpointMiddleware(store=deep, frequency="every_turn", max_checkpoints=2)
    toolset = CheckpointToolset(store=deep)
    context: Any = Context()
    for turn in range(4):
        await middleware.before_model_request(context, Turn())
        if turn < 2:
            assert "saved" in await toolset.tools["save_checkpoint"].function(context, f"hand {turn}")
    for _ in range(3):
        await middleware.before_model_request(context, Turn())
    assert await labels(deep) == ["hand 0", "hand 1", "turn-6", "turn-7"]
    assert (await deep.count(), await DeepCheckpointStore(saver, "a").count()) == (2, 4)
    middleware.max_checkpoints = 0
    await middleware.before_model_request(context, Turn())
    assert await labels(deep) == ["hand 0", "hand 1"]
    assert not await deep.remove_oldest()
    assert await DeepCheckpointStore(saver, "a").remove_oldest()
    await deep.save(await deep.get_by_label("hand 1"))
    assert await deep.count() == 0
    assert await deep.remove((await deep.list_all())[0].id)


async def test_a_retention_spares_what_is_pinned(saver: CheckpointSaver) -> None:
    deep = DeepCheckpointStore(saver, "a", pin_labels=True)
    for number in range(6):
        await deep.save(named(str(number)))
    for number in (1, 2):
        await deep.save(named(str(number), "by hand"))
    await deep.save(named("1", "by hand again"))  # A pin moves to the new version with this id.
    saver.sweep(Retention(keep_last=1))
    assert {one.id for one in await deep.list_all()} == {"1", "2"}  # 1 was also saved last.
    saver.sweep(Retention(older_than=timedelta(microseconds=1)))
    saver.prune([THREAD])
    assert {one.id for one in await deep.list_all()} == {"1", "2"}
    assert (await deep.count(), await DeepCheckpointStore(saver, "a").count()) == (0, 2)
    assert await deep.remove("1")
    assert len(saver.labels(THREAD)) == 1
    assert await DeepCheckpointStore(saver, "a").remove_oldest()
    assert saver.labels(THREAD) == {}
    await deep.save(named("9"))
    await deep.save(named("9", "by hand"))
    await deep.clear()
    assert list(saver.threads()) == []


async def test_of_two_saves_of_one_id_at_once_one_checkpoint_remains(
    saver: CheckpointSaver, deep: DeepCheckpointStore
) -> None:
    """And its place in the order, and that it was labelled by hand."""

    class Late(DeepCheckpointStore):
        """Looks at what is stored before another worker saves, and stores after that."""

        async def _stored(self) -> Any:
            found = await super()._stored()
            if others:
                await deep.save(others.pop())
            return found

    others = [named("same", "by hand"), named("other")]
    late = Late(saver, "a", pin_labels=True)
    for _ in (1, 2):
        await late.save(named("same"))
    assert [one.id for one in await deep.list_all()] == ["other", "same"]
    assert len(list(saver.history({"configurable": {"thread_id": THREAD}}))) == 2
    assert await late.count() == 1
    assert await late.remove("same")
    assert list(saver.labels(THREAD)) == []


async def test_workers_save_one_id(
    store: Store, saver: CheckpointSaver, deep: DeepCheckpointStore, workers: Workers
) -> None:
    await asyncio.to_thread(workers.run, 4, "save_again", store, "a", "same", 5)
    assert await labels(deep) == ["turn-4"]
    assert len(list(saver.history({"configurable": {"thread_id": THREAD}}))) == 1


async def test_a_deleted_session_is_gone(saver: CheckpointSaver, deep: DeepCheckpointStore) -> None:
    other = DeepCheckpointStore(saver, "b")
    for store in (deep, other):
        await store.save(named("1"))
    await deep.delete("b")
    assert (await deep.count(), await other.count()) == (1, 0)
    await deep.delete("a")
    assert await deep.list_all() == []


def named(checkpoint_id: str, label: str = "turn") -> Any:
    return replace(checkpoint(label), id=checkpoint_id)


async def test_a_checkpoint_with_a_label_of_the_saver_is_not_evicted(
    saver: CheckpointSaver, deep: DeepCheckpointStore
) -> None:
    for number in range(3):
        await deep.save(named(str(number)))
    thread = thread_of("pydantic-deep", "a")
    oldest = list(saver.list({"configurable": {"thread_id": thread}}))[-1]
    saver.label(oldest.config, "keep")
    while await deep.count() > 1:  # As the middleware does.
        assert await deep.remove_oldest()
    assert [found.id for found in await deep.list_all()] == ["0", "2"]
    with pytest.raises(CheckpointLabelled):
        await deep.remove("0")
    await deep.save(named("0", "again"))  # The label stays at the checkpoint with the id.
    assert [found.label for found in await deep.list_all() if found.id == "0"] == ["again"]
    assert list(saver.labels(thread)) == ["keep"]
    assert await deep.count() == 1
    saver.unlabel(thread, "keep")
    assert await deep.count() == 2
    assert await deep.remove("0")


async def test_a_label_moves_with_the_save_or_stays(own_store: Store) -> None:
    async with own_store.open() as saver:
        await saver.asetup()
        deep = DeepCheckpointStore(saver, "a", pin_labels=True)
        await deep.save(named("1"))
        await deep.save(named("1", "by hand"))  # Pinned.
        (before,) = saver.history({"configurable": {"thread_id": THREAD}})
        saver.label(before.config, "keep")
        held = saver.labels(THREAD)
        assert len(held) == 2
        with refusing(own_store, "labels", "INSERT", "UPDATE", "DELETE"), pytest.raises(StorageError, match="refused"):
            await deep.save(named("1", "again"))
        assert [one.config for one in saver.history({"configurable": {"thread_id": THREAD}})] == [before.config]
        assert await labels(deep) == ["by hand"]
        assert saver.labels(THREAD) == held
        with refusing(own_store, "checkpoints", "DELETE"), pytest.raises(StorageError, match="refused"):
            await deep.save(named("1", "again"))  # The former checkpoint remains.
        new, old = saver.history({"configurable": {"thread_id": THREAD}})
        assert old.config == before.config
        assert saver.labels(THREAD) == dict.fromkeys(held, new.config)
        assert await labels(deep) == ["again"]


async def test_a_label_of_a_former_save_protects_the_checkpoint(
    saver: CheckpointSaver, deep: DeepCheckpointStore
) -> None:
    """A save was replaced, and then its row got a label instead of being deleted."""
    await deep.save(named("1"))
    (old,) = saver.history({"configurable": {"thread_id": THREAD}})
    saver.label(old.config, "keep")
    put_document(saver, THREAD, {"messages": []}, {**old.metadata, "label": "new"})
    assert await deep.count() == 0
    assert not await deep.remove_oldest()
    with pytest.raises(CheckpointLabelled):
        await deep.remove("1")
    assert await labels(deep) == ["new"]
    await deep.save(named("1", "newer"))
    (new,) = saver.history({"configurable": {"thread_id": THREAD}})
    assert saver.labels(THREAD) == {"keep": new.config}


@pytest.mark.leaves_damage("the messages cannot be read")
async def test_an_unreadable_newest_checkpoint_does_not_block_saves(store: Store, deep: DeepCheckpointStore) -> None:
    await deep.save(named("0"))
    damage(store)
    with pytest.raises(CorruptCheckpoint):
        await deep.get("0")
    await deep.save(named("1"))
    await deep.save(named("0"))
    assert sorted(found.id for found in await deep.list_all()) == ["0", "1"]


async def test_agents_in_two_processes_rewind(store: Store, deep: DeepCheckpointStore, workers: Workers) -> None:
    run = workers.run_in
    assert await asyncio.to_thread(run, 0, "work", store, "a") == "wrong"
    assert await labels(deep) == ["good", "tool-2-save_checkpoint", "tool-3-write_todos"]
    good = await deep.get_by_label("good")
    assert good is not None
    assert good.metadata == {"last_tool": "write_todos"}
    found = await asyncio.to_thread(run, 1, "rewind", store, "a")
    assert found == (good.id, "good", ["write_todos"], "after 1")
    fork = DeepCheckpointStore(deep._saver, "fork")
    history = await fork_from_checkpoint(deep, good.id)
    assert history == good.messages
    agent: Any = create_deep_agent(
        model=TestModel(call_tools=[], custom_output_text="from there"),
        include_subagents=False,
        include_skills=False,
        cost_tracking=False,
        context_manager=False,
        include_checkpoints=True,
        checkpoint_store=fork,
        checkpoint_frequency="every_turn",
        web_search=False,
        web_fetch=False,
    )
    result = await agent.run("elsewhere", deps=DeepAgentDeps(), message_history=history)
    assert result.output == "from there"
    assert await labels(fork) == ["turn-1"]
    assert (await fork.list_all())[0].messages[: len(history)] == history
    assert len(await deep.list_all()) == 4  # And that of `list_checkpoints`.


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "langgraph_checkpoint_custom.adapters.pydantic_deep"
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pydantic_deep.features.checkpointing", None)
    with pytest.raises(ConfigError, match=r"install langgraph-checkpoint-custom\[pydantic-deep\]"):
        importlib.import_module(name)
