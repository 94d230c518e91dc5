"""Sessions of applications. Each session is a thread, and each save of a session is a new version in it.

The methods are the simple ones of the TypeScript package `deepagentsdk`: save, load, list, delete, exists.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, NamedTuple, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from langgraph_checkpoint_custom.adapters.documents import (
    Before,
    Documents,
    Version,
    json_copy,
    misshapen,
    next_version,
)
from langgraph_checkpoint_custom.errors import CheckpointNotFound, ConfigError
from langgraph_checkpoint_custom.model.keys import MAX_ID, config_of, text, thread_of
from langgraph_checkpoint_custom.model.records import CheckpointRecord, Question
from langgraph_checkpoint_custom.pairs import shared_docstrings
from langgraph_checkpoint_custom.saver import CheckpointSaver

_KIND = "session"
_STATE = "state/"


@dataclass
class SessionCheckpoint:
    """The state of a session.

    Attributes:
        thread_id: The session.
        step: The step that its agent has reached.
        messages: The conversation.
        state: Other data of the agent, by name, such as `todos` and `files`.
        interrupt: The request that waits for a human, if there is one.
        created_at: When the session was first saved. If it is None then, the current time is stored. ISO 8601 text is
            accepted.
        updated_at: When the session was last saved; a value that you pass in is not stored.
    """

    thread_id: str
    step: int
    messages: list[dict[str, Any]]
    state: dict[str, Any] = field(default_factory=lambda: {"todos": [], "files": {}})
    interrupt: dict[str, Any] | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the session in the form of `deepagentsdk`, with its names."""
        found = {
            "threadId": self.thread_id,
            "step": self.step,
            "messages": self.messages,
            "state": self.state,
            "interrupt": self.interrupt,
            "createdAt": _moment("created_at", self.created_at),
            "updatedAt": _moment("updated_at", self.updated_at),
        }
        # In the original, these are left out if there are none.
        optional = ("interrupt", "createdAt", "updatedAt")
        return {name: value for name, value in found.items() if value is not None or name not in optional}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> SessionCheckpoint:
        """Return the session of a dict in the form of `deepagentsdk`.

        Raises:
            ConfigError: The dict has not that form.
        """
        missing = [name for name in ("threadId", "step", "messages") if name not in found]
        if missing:
            raise ConfigError(f"a session needs threadId, step and messages; this one has no {', '.join(missing)}")
        unknown = set(found) - {"threadId", "step", "messages", "state", "interrupt", "createdAt", "updatedAt"}
        if unknown:
            raise ConfigError(f"a session has no {', '.join(sorted(unknown))}; put other data into its state")
        session = cls(found["threadId"], found["step"], found["messages"], interrupt=found.get("interrupt"))
        session.state = found.get("state", session.state)
        session.created_at = _time("createdAt", found.get("createdAt"))
        session.updated_at = _time("updatedAt", found.get("updatedAt"))
        return session

    def to_json(self) -> str:
        """Return the session as the JSON text that `deepagentsdk` writes to its files, in one line."""
        return json.dumps(json_copy("a session", self.to_dict()), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> SessionCheckpoint:
        """Return the session of such a JSON text.

        Raises:
            ConfigError: The text is not JSON, or has not that form.
        """
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"a session cannot be read, since it is not JSON: {error}") from error
        if not isinstance(found, dict):
            raise ConfigError(f"a session is a JSON object, not a {type(found).__name__}")
        return cls.from_dict(found)


class SessionVersion(NamedTuple):
    """A version of a session, without its content.

    Attributes:
        version: The version's id, for `load` and `restore`.
        step: The step that the agent had reached.
        messages: The number of messages.
        interrupted: Whether a request waited for a human.
        updated_at: When the version was saved.
    """

    version: str
    step: int
    messages: int
    interrupted: bool
    updated_at: datetime


@shared_docstrings
class SessionStore:
    """Stores sessions by thread id; every save is a new version.

    Older versions stay until the thread is pruned, for example by the saver's retention. Every method has a sync and an
    async version.

    Args:
        saver: The saver to store with; it stays yours to close.
        namespace: The owner of the sessions. Other namespaces cannot read, list or delete them.
    """

    def __init__(self, saver: CheckpointSaver, namespace: str = "default") -> None:
        self._saver = saver
        self._documents = Documents(saver)
        self._namespace = namespace
        self._prefix = thread_of(_KIND, namespace, "")

    def save(self, checkpoint: SessionCheckpoint) -> None:
        """Save a session as a new version; `created_at` stays that of the first save."""
        thread_id, content = self._thread_id(checkpoint.thread_id), _encoded(checkpoint)
        version = _version_of(thread_id, self._documents.newest(thread_id), *content)
        self._documents.put(version, _question(version))

    async def asave(self, checkpoint: SessionCheckpoint) -> None:
        """Async version of `save`."""
        thread_id, content = self._thread_id(checkpoint.thread_id), _encoded(checkpoint)
        version = _version_of(thread_id, await self._documents.anewest(thread_id), *content)
        await self._documents.aput(version, _question(version))

    def load(self, thread_id: str, version: str | None = None) -> SessionCheckpoint | None:
        """Return a session as it was last saved, or one of its versions; None if there is none."""
        found = self._documents.read(self._thread_id(thread_id), version and _version(version))
        return found and _decoded(thread_id, found)

    async def aload(self, thread_id: str, version: str | None = None) -> SessionCheckpoint | None:
        """Async version of `load`."""
        found = await self._documents.aread(self._thread_id(thread_id), version and _version(version))
        return found and _decoded(thread_id, found)

    def list(self) -> Sequence[str]:
        """Return the thread ids of all sessions, the one that was saved last first, without reading the sessions."""
        found = self._saver._run(self._documents.threads(self._prefix))
        return [each.name[-1] for each in found.threads]

    async def alist(self) -> Sequence[str]:
        """Async version of `list`."""
        found = await self._saver._arun(self._documents.threads(self._prefix))
        return [each.name[-1] for each in found.threads]

    def delete(self, thread_id: str) -> None:
        """Delete a session with all its versions."""
        self._saver.delete_thread(self._thread_id(thread_id))

    async def adelete(self, thread_id: str) -> None:
        """Async version of `delete`."""
        await self._saver.adelete_thread(self._thread_id(thread_id))

    def exists(self, thread_id: str) -> bool:
        """Return whether a session exists, without reading it."""
        return self._saver.thread_exists(self._thread_id(thread_id))

    async def aexists(self, thread_id: str) -> bool:
        """Async version of `exists`."""
        return await self._saver.athread_exists(self._thread_id(thread_id))

    def history(self, thread_id: str) -> Sequence[SessionVersion]:
        """Return the versions of a session, newest first, without reading their content."""
        return [_session_version(found) for found in self._saver.history(self._config(thread_id))]

    async def ahistory(self, thread_id: str) -> Sequence[SessionVersion]:
        """Async version of `history`."""
        return [_session_version(found) async for found in self._saver.ahistory(self._config(thread_id))]

    def restore(self, thread_id: str, version: str) -> SessionCheckpoint:
        """Save the content of a version as the newest version.

        Raises:
            CheckpointNotFound: The session does not have this version.
        """
        stored_id = self._thread_id(thread_id)
        old = _existing(thread_id, version, self._documents.read(stored_id, _version(version)))
        restored = _restored(stored_id, self._documents.newest(stored_id), old)
        self._documents.put(restored, _question(restored))
        return _decoded(thread_id, old._replace(metadata=restored.metadata))

    async def arestore(self, thread_id: str, version: str) -> SessionCheckpoint:
        """Async version of `restore`."""
        stored_id = self._thread_id(thread_id)
        old = _existing(thread_id, version, await self._documents.aread(stored_id, _version(version)))
        restored = _restored(stored_id, await self._documents.anewest(stored_id), old)
        await self._documents.aput(restored, _question(restored))
        return _decoded(thread_id, old._replace(metadata=restored.metadata))

    def _thread_id(self, thread_id: str) -> str:
        return thread_of(_KIND, self._namespace, thread_id)

    def _config(self, thread_id: str) -> RunnableConfig:
        return config_of(self._thread_id(thread_id), "", "")


def _version_of(thread_id: str, before: Before, values: Mapping[str, Any], metadata: Mapping[str, Any]) -> Version:
    """Return the version of a session with these values and no others."""
    now = datetime.now(timezone.utc).isoformat()
    created_at = before.metadata.get("created_at") or metadata["created_at"] or now
    return next_version(thread_id, before, values, {**metadata, "created_at": created_at, "updated_at": now})


def _existing(thread_id: str, version: str, found: CheckpointTuple | None) -> CheckpointTuple:
    """Return a version that was found, and can be read."""
    if found is None:
        raise CheckpointNotFound(f"session {thread_id!r} has no version {version!r}, or it was pruned; see history()")
    _decoded(thread_id, found)
    return found


def _restored(thread_id: str, before: Before, old: CheckpointTuple) -> Version:
    return _version_of(thread_id, before, old.checkpoint["channel_values"], cast("Mapping[str, Any]", old.metadata))


def _question(version: Version) -> Question | None:
    """Return the request that waits; its id is that of its call of a tool, if it is about one."""
    interrupt = version.checkpoint["channel_values"]["interrupt"]
    if interrupt is None:
        return None
    call = interrupt.get("toolCall") if isinstance(interrupt, dict) else None
    return Question(str(call.get("toolCallId", "interrupt")) if isinstance(call, dict) else "interrupt", interrupt)


def _encoded(checkpoint: SessionCheckpoint) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values of a session by channel, and its metadata."""
    messages = json_copy("a session's messages", checkpoint.messages)
    state = json_copy("a session's state", checkpoint.state)
    interrupt = json_copy("a session's interrupt", checkpoint.interrupt)
    values = {"messages": messages, "interrupt": interrupt, **{_STATE + name: value for name, value in state.items()}}
    return values, {
        "at_step": json_copy("a session's step", checkpoint.step),
        "messages": len(messages),
        "interrupted": interrupt is not None,
        "created_at": _moment("created_at", checkpoint.created_at),
    }


def _decoded(thread_id: str, found: CheckpointTuple) -> SessionCheckpoint:
    values, metadata = found.checkpoint["channel_values"], cast("Mapping[str, Any]", found.metadata)
    try:
        return SessionCheckpoint(
            thread_id,
            metadata["at_step"],
            values["messages"],
            {name[len(_STATE) :]: value for name, value in values.items() if name.startswith(_STATE)},
            values["interrupt"],
            datetime.fromisoformat(metadata["created_at"]),
            datetime.fromisoformat(metadata["updated_at"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise misshapen(found.config, "checkpoint", error) from error


def _session_version(found: CheckpointRecord) -> SessionVersion:
    metadata = found.metadata
    try:
        return SessionVersion(
            found.checkpoint_id,
            metadata["at_step"],
            metadata["messages"],
            metadata["interrupted"],
            datetime.fromisoformat(metadata["updated_at"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise misshapen(found.config, "metadata", error) from error


def _version(version: str) -> str:
    return text("version", version, MAX_ID)


def _time(name: str, time: datetime | str | None) -> datetime | None:
    """Return a time, which may be ISO 8601 text: a session from JSON has it as such."""
    if isinstance(time, str):
        with suppress(ValueError):  # Python 3.10 cannot parse the Z.
            return datetime.fromisoformat(re.sub("[Zz]$", "+00:00", time))
    elif time is None or isinstance(time, datetime):
        return time
    raise ConfigError(f"{name} must be a datetime or its ISO 8601 text, not {time!r}")


def _moment(name: str, time: datetime | str | None) -> str | None:
    """Return a time as ISO 8601 text."""
    time = _time(name, time)
    return None if time is None else time.isoformat()
