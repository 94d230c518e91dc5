"""The agent framework CubeLoop, or cubepi, its name until 0.13: its `Checkpointer` protocol, in the store of a saver.

A thread of CubeLoop is a document with these channels, each from its first use on:

- `messages`: an entry for each message, with its run
- `extra`: the values of `save_extra`, by key
- `parent`: the thread that this one is a fork of
- `claimed`, `completed`: the ids of the runs that were begun but not completed, and of the completed ones in the order
  of their completion
- `pending`: the request that waits for an answer, with its question and its run, or None
- `answers`: the answers, by run and question

The framework's objects are stored as text: the JSON of pydantic's `to_jsonable_python`. JSON has integers of any size,
and msgpack does not.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, TypeAdapter
from pydantic_core import from_json, to_jsonable_python
from typing_extensions import Self

from langgraph_checkpoint_custom.adapters.documents import Before, Documents, next_version
from langgraph_checkpoint_custom.errors import (
    CheckpointConflict,
    CheckpointError,
    ConfigError,
    Contention,
    CorruptCheckpoint,
)
from langgraph_checkpoint_custom.model.keys import name_of, thread_of
from langgraph_checkpoint_custom.model.records import Question
from langgraph_checkpoint_custom.operations.delete import prune_thread
from langgraph_checkpoint_custom.saver import CheckpointSaver

if TYPE_CHECKING:
    from cubeloop.checkpointer import base, exceptions
    from cubeloop.hitl.types import HitlRequest
    from cubeloop.providers.base import Message
    from cubeloop.types import JsonObject, StructuredValue
else:  # Both names have the same modules.
    _name = next(filter(find_spec, ("cubeloop", "cubepi")), None)
    if _name is None:
        raise ConfigError("CubeLoop is missing: install langgraph-checkpoint-custom[cubeloop]")
    base = import_module(f"{_name}.checkpointer.base")
    exceptions = import_module(f"{_name}.checkpointer.exceptions")
    HitlRequest = import_module(f"{_name}.hitl.types").HitlRequest
    Message = import_module(f"{_name}.providers.base").Message

Channels = Mapping[str, Any]
# Takes the channels of a thread and returns those that change; None if nothing is to be stored.
Revise = Callable[[Channels], Channels | None]

KIND = "cubeloop"
# The number of versions of a thread that stay when the others are deleted, and of changes between two such deletions.
# After a lost reply, the version that was stored is looked for. It is still there: 100 other changes of the thread take
# longer than the first attempts to reconnect.
VERSIONS = 100

_LOG = logging.getLogger("langgraph_checkpoint_custom")
_SURROGATE = re.compile("[\ud800-\udfff]")
_MESSAGE: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="role")])


class CubeLoopCheckpointer:
    """A `Checkpointer` for CubeLoop's agents that stores with a saver.

    It does nothing before the first call. Its owner sets up and closes the saver: `async with` on the checkpointer is
    not needed, and closes nothing.

    Args:
        saver: The saver to store with. `saver.for_tenant(…)` has threads of its own.
    """

    def __init__(self, saver: CheckpointSaver) -> None:
        self._saver = saver
        self._documents = Documents(saver, only_newest=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Do nothing: entering opened nothing."""

    async def load(self, thread_id: str) -> base.CheckpointData | None:
        """Return the messages and the extra of a thread; None if it has neither."""
        channels = await self._read(thread_id)
        if channels is None or channels.keys().isdisjoint(("extra", "messages")):
            return None
        extra = {key: _read(text) for key, text in channels.get("extra", {}).items()}
        messages = _messages(thread_id, channels.get("messages", ()))
        return base.CheckpointData(messages, extra, channels.get("parent"))

    async def delete(self, thread_id: str) -> None:
        """Delete a thread with everything that was stored for it. Not in the protocol."""
        await self._saver.adelete_thread(stored(thread_id))

    async def append(self, thread_id: str, messages: list[Message]) -> None:
        """Append messages, all or none; raise an error if one belongs to a completed run."""
        runs: list[str | None] = [getattr(message, "run_id", None) for message in messages]
        entries = [{"run": run, "message": _json(message)} for run, message in zip(runs, messages, strict=True)]

        def check(channels: Channels) -> Channels:
            for run_id in channels.get("completed", ()):
                if run_id in runs:
                    raise _is_completed(thread_id, run_id)
            return {"messages": [*channels.get("messages", ()), *entries]}

        if entries:
            await self._change(thread_id, check)

    async def save_extra(self, thread_id: str, extra: JsonObject) -> None:
        """Merge values into the extra of a thread."""
        new = _by_key(extra)
        await self._change(thread_id, lambda channels: {"extra": {**channels.get("extra", {}), **new}})

    async def save_pending_request(
        self, thread_id: str, request: HitlRequest | None, *, run_id: str | None = None
    ) -> None:
        """Store a request with its run in place of the pending one; None removes the pending one."""
        pending = request and {"question": request.question_id, "run": run_id, "request": _json(request)}
        await self._change(
            thread_id, lambda channels: {"pending": pending} if pending or channels.get("pending") else None
        )

    async def load_pending(self, thread_id: str) -> tuple[HitlRequest, str | None] | None:
        """Return the pending request and its run."""
        pending = (await self._read(thread_id) or {}).get("pending")
        if pending is None:
            return None
        try:
            return HitlRequest.model_validate(_read(pending["request"])), pending["run"]
        except ValueError as error:
            raise _corrupt(thread_id, "the pending request", error) from error

    async def load_pending_request(self, thread_id: str) -> HitlRequest | None:
        """Return the pending request."""
        pending = await self.load_pending(thread_id)
        return pending and pending[0]

    async def load_pending_run_id(self, thread_id: str) -> str | None:
        """Return the run of the pending request. Not in the protocol, but in each of the framework's own stores."""
        pending = await self.load_pending(thread_id)
        return pending and pending[1]

    async def clear_pending_request_if_matches(self, thread_id: str, *, question_id: str, run_id: str) -> bool:
        """Remove the pending request if it is this one; return whether it was."""

        def clear(channels: Channels) -> Channels | None:
            pending = channels.get("pending")
            matches = pending and (pending["question"], pending["run"]) == (question_id, run_id)
            return {"pending": None} if matches else None

        return await self._change(thread_id, clear)

    async def save_hitl_answer(
        self, thread_id: str, question_id: str, answer: StructuredValue, *, run_id: str | None = None
    ) -> None:
        """Store the answer to a question of a run."""
        new, run = _json(answer), run_id or ""

        def add(channels: Channels) -> Channels:
            answers = channels.get("answers", {})
            return {"answers": {**answers, run: {**answers.get(run, {}), question_id: new}}}

        await self._change(thread_id, add)

    async def load_hitl_answer(
        self, thread_id: str, question_id: str, *, run_id: str | None = None
    ) -> StructuredValue | None:
        """Return the stored answer, or None."""
        answers = (await self._read(thread_id) or {}).get("answers", {})
        answer: StructuredValue = _read(answers.get(run_id or "", {}).get(question_id, "null"))
        return answer

    async def clear_hitl_answers(
        self, thread_id: str, question_ids: Iterable[str] | None = None, *, run_id: str | None = None
    ) -> None:
        """Delete the answers to some questions of a run, or to all."""
        chosen, run = None if question_ids is None else set(question_ids), run_id or ""

        def forget(channels: Channels) -> Channels | None:
            answers = channels.get("answers", {})
            before = answers.get(run, {})
            left = {key: answer for key, answer in before.items() if chosen is not None and key not in chosen}
            if len(left) == len(before):
                return None
            others = {key: value for key, value in answers.items() if key != run}
            return {"answers": {**others, run: left} if left else others}

        if chosen is None or chosen:
            await self._change(thread_id, forget)

    async def claim_run(self, thread_id: str, run_id: str) -> None:
        """Begin a run; raise an error if it was begun before."""
        _check_run(run_id)

        def claim(channels: Channels) -> Channels:
            claimed = channels.get("claimed", ())
            if run_id in channels.get("completed", ()):
                raise _is_completed(thread_id, run_id)
            if run_id in claimed:
                raise exceptions.RunAlreadyClaimedError(
                    f"run {run_id!r} of thread {thread_id!r} is running elsewhere or was abandoned; "
                    "begin a run with another id"
                )
            return {"claimed": [*claimed, run_id]}

        await self._change(thread_id, claim)

    async def mark_run_complete(self, thread_id: str, run_id: str) -> None:
        """End a run; a run that has ended stays as it is."""
        _check_run(run_id)

        def complete(channels: Channels) -> Channels | None:
            claimed, completed = channels.get("claimed", ()), channels.get("completed", ())
            if run_id in completed:
                return None
            if run_id not in claimed:
                raise exceptions.RunNotClaimedError(
                    f"run {run_id!r} of thread {thread_id!r} cannot be completed: it is not claimed"
                )
            return {"claimed": [other for other in claimed if other != run_id], "completed": [*completed, run_id]}

        await self._change(thread_id, complete)

    async def snapshot(self, thread_id: str, *, after_run_id: str) -> list[Message]:
        """Return the messages of the runs that were completed up to this run, and those of no run."""
        channels = await self._read(thread_id)
        if channels is None:
            raise _not_found(thread_id)
        return _messages(thread_id, _of_runs(_completed_until(thread_id, channels, after_run_id), channels))

    async def fork(
        self, src_thread_id: str, new_thread_id: str, *, after_run_id: str, metadata: JsonObject | None = None
    ) -> None:
        """Start a new thread with the messages that `snapshot` returns, the extra and the runs."""
        extra = {} if metadata is None else _by_key({"fork": metadata})
        source = await self._read(src_thread_id)
        if source is None:
            raise _not_found(src_thread_id)
        runs = _completed_until(src_thread_id, source, after_run_id)
        copied = {"extra": {**source.get("extra", {}), **extra}, "parent": src_thread_id, "completed": runs}
        if entries := _of_runs(runs, source):
            copied["messages"] = entries

        def begin(channels: Channels) -> Channels:
            if channels:
                raise exceptions.ThreadAlreadyExistsError(
                    f"thread {new_thread_id!r} already exists; nothing was copied to it"
                )
            return copied

        await self._change(new_thread_id, begin)

    async def _read(self, thread_id: str) -> Channels | None:
        """Return the channels of a thread; None if there is no such thread."""
        with _as_frameworks_errors():
            found = await self._documents.aread(stored(thread_id))
        return None if found is None else found.checkpoint["channel_values"]

    async def _change(self, thread_id: str, revise: Revise) -> bool:
        """Store what `revise` makes of a thread's channels; return whether it changed something.

        If somebody else changes the thread at the same time, `revise` is called again with the new channels.
        """
        stored_id = stored(thread_id)
        with _as_frameworks_errors():
            while True:
                found = await self._documents.aread(stored_id)
                before = Before.of(found)
                changed = revise(before.values)
                if changed is None:
                    return False
                version = next_version(stored_id, before, changed)
                pending = version.checkpoint["channel_values"].get("pending")
                question = Question(str(pending["question"]), _asked(pending)) if pending else None
                try:
                    await self._documents.aput(version, question)
                except CheckpointConflict:
                    # It may have been stored, and the reply was lost, and then somebody else went on from there.
                    if not [one async for one in self._saver.ahistory(version.own_config)]:
                        continue
                break
        if (step := version.metadata["step"]) and step % VERSIONS == 0:
            dialect, driver, _ = self._saver.backend
            try:
                await driver.arun(prune_thread(dialect, stored_id, VERSIONS))
            except CheckpointError as error:  # The change is stored; the next prune deletes these versions, too.
                _LOG.warning("old versions of thread %r were not deleted: %s", stored_id, error)
        return True


@contextmanager
def _as_frameworks_errors() -> Iterator[None]:
    """Raise our errors as the framework's, where that has such an error."""
    try:
        yield
    except Contention as error:
        raise exceptions.CheckpointerLockTimeoutError(str(error)) from error
    except CorruptCheckpoint as error:
        if error.thread_id is None:
            raise
        where = f"namespace {error.checkpoint_ns!r}, checkpoint {error.checkpoint_id!r}, channel {error.channel!r}"
        raise _corrupt(name_of(error.thread_id)[0], where, error) from error


def _messages(thread_id: str, entries: Sequence[Any]) -> list[Message]:
    messages = []
    for index, entry in enumerate(entries):
        try:
            # Not `validate_json`: it makes a model without fields of a dict in a tool's details.
            messages.append(_MESSAGE.validate_python(_read(entry["message"])))
        except ValueError as error:
            raise _corrupt(thread_id, f"message {index}", error) from error
    return messages


def _check_run(run_id: object) -> None:
    if not isinstance(run_id, str):  # Messages without a run have None.
        raise ConfigError(f"run_id must be text, not {type(run_id).__name__}; begin a run with an id of its own")


def _json(value: object) -> str:
    plain = to_jsonable_python(value)  # `to_json` would turn infinity into null.
    text = json.dumps(plain, ensure_ascii=False)
    # A lone surrogate, which models can stream, is valid in JSON text only if it is escaped.
    return text if text.isascii() or not _SURROGATE.search(text) else json.dumps(plain)


def _read(text: str) -> Any:
    return json.loads(text) if "\\ud" in text else from_json(text)  # `from_json` rejects lone surrogates.


def _by_key(extra: Channels) -> dict[str, str]:
    return {key: _json(value) for key, value in extra.items()}


def _is_completed(thread_id: str, run_id: str) -> exceptions.RunAlreadyCompletedError:
    return exceptions.RunAlreadyCompletedError(
        f"run {run_id!r} of thread {thread_id!r} is completed; nothing was stored. Begin a run with another id"
    )


def _asked(pending: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a pending request asks, for people; the request itself stays JSON text."""
    asked: dict[str, Any] = {"request": pending["request"], "run": pending["run"]}
    try:
        payload = json.loads(pending["request"])["payload"]
        prompts = [payload.get("prompt"), *(each["prompt"] for each in payload.get("questions") or ())]
        question = " ".join(filter(None, prompts)) or f"May {payload['tool_name']} be called?"
    except (KeyError, TypeError, ValueError, AttributeError):  # A request of a later version of the framework.
        return asked
    return {"question": question, **asked}


def _completed_until(thread_id: str, channels: Channels, until: str) -> list[str]:
    """Return the runs that were completed up to one, in the order of their completion."""
    completed: list[str] = channels.get("completed", [])
    if until not in completed:
        raise exceptions.RunNotCompletedError(f"run {until!r} of thread {thread_id!r} is not completed")
    return completed[: completed.index(until) + 1]


def _of_runs(runs: Sequence[str], channels: Channels) -> list[Any]:
    """Return the entries of some runs, and those without a run."""
    chosen = {None, *runs}
    return [entry for entry in channels.get("messages", ()) if entry["run"] in chosen]


def _not_found(thread_id: str) -> exceptions.ThreadNotFoundError:
    return exceptions.ThreadNotFoundError(f"there is no thread {thread_id!r}")


def _corrupt(thread_id: str, where: str, cause: Exception) -> exceptions.CheckpointCorruptionError:
    return exceptions.CheckpointCorruptionError(
        thread_id=thread_id, backend="langgraph_checkpoint_custom", row_ref=where, cause=cause
    )


def stored(thread_id: str) -> str:
    """Return the id under which a thread is stored."""
    return thread_of(KIND, thread_id)
