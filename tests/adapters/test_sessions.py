"""Sessions: saved, loaded, listed, deleted, and with a history; in separate namespaces."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from langgraph_checkpoint_custom import CheckpointSaver, ConfigError, OperationEvent, StorageError
from langgraph_checkpoint_custom.adapters.sessions import (
    SessionCheckpoint,
    SessionStore,
)
from langgraph_checkpoint_custom.errors import CheckpointNotFound, CorruptCheckpoint
from langgraph_checkpoint_custom.model.keys import thread_of
from tests.adapters.helpers import HOSTILE, Calls, put_document, refusing
from tests.behaviour.helpers import Database
from tests.conftest import APIS
from tests.stores import Store

PLAN = [{"id": "1", "content": "write", "status": "pending"}]


@pytest.fixture(params=APIS)
def sessions(request: pytest.FixtureRequest, saver: CheckpointSaver) -> Calls:
    return Calls(SessionStore(saver), request.param)


def session(thread_id: str = "a", step: int = 1, messages: int = 2, **more: Any) -> SessionCheckpoint:
    return SessionCheckpoint(thread_id, step, [{"role": "user", "content": f"{n}"} for n in range(messages)], **more)


async def test_a_saved_session_is_loaded_unchanged(sessions: Calls) -> None:
    interrupt = {"toolCall": {"toolCallId": "1", "toolName": "rm", "args": {"path": "/"}}, "step": 3}
    state = {"todos": PLAN, "files": {"/a.md": {"content": ["x\0y"]}}, "more": [1, 1.5, None, True]}
    begun = datetime.now(timezone.utc)
    await sessions.save(session("a", 3, state=state, interrupt=interrupt))
    found = await sessions.load("a")
    assert (found.thread_id, found.step, found.state, found.interrupt) == ("a", 3, state, interrupt)
    assert found.messages == session().messages
    assert begun <= found.created_at == found.updated_at <= datetime.now(timezone.utc)
    assert await sessions.load("b") is None


async def test_a_save_replaces_everything_but_the_creation_time(sessions: Calls) -> None:
    created_at = datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=timezone(timedelta(hours=2)))
    state: dict[str, Any] = {"todos": [], "files": {"/a": {}}, "old": 1}
    await sessions.save(session("a", 1, state=state, interrupt={"step": 1}, created_at=created_at))
    await sessions.save(session("a", 2, messages=0, state={"todos": PLAN}, created_at=datetime.now(timezone.utc)))
    found = await sessions.load("a")
    assert (found.step, found.messages, found.state, found.interrupt) == (2, [], {"todos": PLAN}, None)
    assert found.created_at == created_at
    assert found.updated_at > datetime(2025, 1, 1, tzinfo=timezone.utc)


async def test_sessions_are_listed_and_deleted(sessions: Calls) -> None:
    assert await sessions.list() == []
    for thread_id in ("a", "b", "a/b"):
        await sessions.save(session(thread_id))
    await sessions.save(session("a", 2))
    assert await sessions.list() == ["a", "a/b", "b"]
    await sessions.delete("a")
    await sessions.delete("a")
    assert await sessions.list() == ["a/b", "b"]
    assert [await sessions.exists(thread_id) for thread_id in ("a", "b", "a/b", "c")] == [False, True, True, False]
    assert await sessions.load("a") is None


@pytest.mark.parametrize("api", APIS)
async def test_a_session_that_is_saved_during_a_list_is_in_it(store: Store, saver: CheckpointSaver, api: str) -> None:
    writing, names = SessionStore(saver), [f"{number:03}" for number in range(210)]
    for name in names:
        writing.save(session(name, messages=0))

    def save_the_oldest(event: OperationEvent) -> None:
        writing.save(session(names[0]))

    with store.open(on_operation=save_the_oldest) as other:
        assert await Calls(SessionStore(other), api).list() == names[::-1]


async def test_a_session_has_a_history_and_can_be_restored(sessions: Calls) -> None:
    assert await sessions.history("a") == []
    await sessions.save(session("a", 1, messages=1, state={"todos": PLAN, "files": {"/a": 1}}))
    await sessions.save(session("a", 2, messages=5, state={"todos": []}, interrupt={"step": 2}))
    second, first = await sessions.history("a")
    assert (second.step, second.messages, second.interrupted) == (2, 5, True)
    assert (first.step, first.messages, first.interrupted) == (1, 1, False)
    assert (await sessions.load("a", first.version)).step == 1
    restored = await sessions.restore("a", first.version)
    assert restored == await sessions.load("a")
    assert (restored.step, restored.state, restored.interrupt) == (1, {"todos": PLAN, "files": {"/a": 1}}, None)
    assert restored.created_at == first.updated_at < second.updated_at < restored.updated_at
    assert [one.step for one in await sessions.history("a")] == [1, 2, 1]
    with pytest.raises(CheckpointNotFound, match=r"'a' has no version 'none'"):
        await sessions.restore("a", "none")
    await sessions.save(session("b"))
    with pytest.raises(CheckpointNotFound):
        await sessions.restore("b", first.version)


def test_namespaces_are_separate(saver: CheckpointSaver) -> None:
    stores = {namespace: SessionStore(saver, namespace) for namespace in HOSTILE}
    for number, (namespace, store) in enumerate(stores.items()):
        for thread_id in HOSTILE:
            store.save(session(thread_id, number, messages=0))
        assert sorted(store.list()) == sorted(HOSTILE), namespace
    for number, store in enumerate(stores.values()):
        assert all((found := store.load(thread_id)) and found.step == number for thread_id in HOSTILE)
    for thread_id in HOSTILE:
        stores["a"].delete(thread_id)
    assert stores["a"].list() == []
    assert all(len(stores[namespace].list()) == len(HOSTILE) for namespace in HOSTILE if namespace != "a")
    assert SessionStore(saver.for_tenant("a/b"), "a/b").list() == []


def test_invalid_input_is_refused_before_anything_is_stored(saver: CheckpointSaver) -> None:
    store = SessionStore(saver)
    with pytest.raises(ConfigError, match="limit"):
        store.save(session("x" * 2000))
    with pytest.raises(ConfigError, match="must be text"):
        SessionStore(saver, 5)  # type: ignore[arg-type]
    for wrong in ({"todos": {1: 2}}, {"todos": (1, 2)}, {"todos": {1, 2}}, {"todos": float("nan")}, {"todos": b"x"}):
        with pytest.raises(ConfigError, match="state cannot be stored"):
            store.save(session(state=wrong))
    assert store.list() == []


def test_a_corrupt_session_raises(store: Store, saver: CheckpointSaver) -> None:
    sessions = SessionStore(saver)
    thread_id = thread_of("session", "default", "a")
    put_document(saver, thread_id, {"messages": []}, {})
    assert sessions.list() == ["a"]
    assert sessions.exists("a")
    for read in (sessions.load, sessions.history):
        with pytest.raises(CorruptCheckpoint, match="session/default/a"):
            read("a")
    sessions.save(session())
    newest, corrupt = saver.history({"configurable": {"thread_id": thread_id}})
    with pytest.raises(CorruptCheckpoint):
        sessions.restore("a", corrupt.checkpoint_id)
    assert sessions.load("a", newest.checkpoint_id) == sessions.load("a")


@pytest.mark.parametrize("what", ["values", "metadata"])
async def test_a_newest_version_that_cannot_be_read_is_replaced(
    store: Store, saver: CheckpointSaver, sessions: Calls, what: str
) -> None:
    created_at = datetime(2020, 1, 2, tzinfo=timezone.utc)
    await sessions.save(session("a", 1, messages=3, created_at=created_at))
    version = (await sessions.history("a"))[0].version
    await sessions.save(session("a", 2))
    column = "checkpoint" if what == "values" else "metadata"
    Database(store).run(f"UPDATE checkpoints SET {column} = :none WHERE checkpoint_id > :id", none=b"\xc1", id=version)
    with pytest.raises(CorruptCheckpoint):
        await sessions.load("a")
    restored = await sessions.restore("a", version)
    assert (await sessions.load("a")) == restored
    assert (restored.step, len(restored.messages), restored.created_at) == (1, 3, created_at)
    Database(store).run("UPDATE checkpoints SET checkpoint = :none", none=b"\xc1")
    await sessions.save(session("a", 4))
    found = await sessions.load("a")
    assert found.step == 4
    assert found.created_at == created_at


async def test_a_session_that_waits_is_listed_with_its_question(sessions: Calls, saver: CheckpointSaver) -> None:
    request = {"toolCall": {"toolCallId": "call-1", "toolName": "rm", "args": {"path": "/"}}, "step": 3}
    await sessions.save(session("a", interrupt=request))
    await sessions.save(session("b", interrupt={"question": "Really?"}))
    await sessions.save(session("c"))
    first, second = saver.interrupts()
    assert (first.thread_id, second.thread_id) == tuple(thread_of("session", "default", name) for name in "ab")
    assert [(one.id, one.value) for one in first.interrupts] == [("call-1", request)]
    assert [(one.id, one.value) for one in second.interrupts] == [("interrupt", {"question": "Really?"})]
    assert first.since is not None
    await sessions.save(session("a", 2))
    assert [one.thread_id for one in saver.interrupts()] == [second.thread_id]
    asked, answered = reversed(await sessions.history("a"))
    assert (asked.interrupted, answered.interrupted) == (True, False)
    assert (await sessions.restore("a", asked.version)).interrupt == request
    assert len(saver.interrupts()) == 2
    saver.prune([first.thread_id])
    assert len(saver.interrupts()) == 2
    await sessions.delete("a")
    assert [one.thread_id for one in saver.interrupts()] == [second.thread_id]


@pytest.mark.parametrize("api", APIS)
async def test_a_save_that_raises_leaves_nothing(own_store: Store, api: str) -> None:
    with own_store.open() as saver:
        saver.setup()
        sessions = Calls(SessionStore(saver), api)
        for table in ("writes", "checkpoints"):
            with refusing(own_store, table, "INSERT"), pytest.raises(StorageError, match="refused"):
                await sessions.save(session("a", interrupt={"question": "Really?"}))
            assert set(Database(own_store).counts().values()) == {0}
        await sessions.save(session("a", interrupt={"question": "Really?"}))
        assert len(saver.interrupts()) == 1


# What deepagentsdk 0.x's FileSaver writes: `JSON.stringify(checkpoint, null, 2)`.
ORIGINAL = """{
  "threadId": "chat-1",
  "step": 3,
  "messages": [{"role": "user", "content": "hällo"}],
  "state": {"todos": [{"id": "1", "content": "write", "status": "pending"}], "files": {}},
  "interrupt": {"toolCall": {"toolCallId": "1", "toolName": "rm", "args": {"path": "/"}}, "step": 3},
  "createdAt": "2025-12-13T09:35:00.123Z",
  "updatedAt": "2025-12-13T09:36:00.456Z"
}"""


def test_a_session_has_the_dict_and_json_form_of_the_original(saver: CheckpointSaver) -> None:
    made = SessionCheckpoint.from_json(ORIGINAL)
    assert (made.thread_id, made.step, made.messages) == ("chat-1", 3, [{"role": "user", "content": "hällo"}])
    assert made.created_at == datetime(2025, 12, 13, 9, 35, 0, 123_000, timezone.utc)
    assert made == SessionCheckpoint.from_dict(made.to_dict()) == SessionCheckpoint.from_json(made.to_json())
    assert made.to_dict() == {
        **json.loads(ORIGINAL),
        "createdAt": "2025-12-13T09:35:00.123000+00:00",
        "updatedAt": "2025-12-13T09:36:00.456000+00:00",
    }
    sessions = SessionStore(saver)
    sessions.save(made)
    found = sessions.load("chat-1")
    assert found is not None
    assert replace(found, updated_at=made.updated_at) == made
    assert found.to_dict()["interrupt"] == made.interrupt
    new = session("a").to_dict()
    assert set(new) == {"threadId", "step", "messages", "state"}
    assert SessionCheckpoint.from_dict(new) == session("a")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[]", "a JSON object"),
        ('{"threadId": "a", "step": 1}', "no messages"),
        ('{"thread_id": "a", "step": 1, "messages": []}', "no threadId"),
        ('{"threadId": "a", "step": 1, "messages": [], "more": 1}', "has no more"),
        ('{"threadId": "a", "step": 1, "messages": [], "createdAt": "soon"}', "createdAt must be"),
        ('{"threadId": "a", "step": 1, "messages": [], "updatedAt": 5}', "updatedAt must be"),
    ],
)
def test_another_form_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        SessionCheckpoint.from_json(text)
