"""The states that are stored: calls of a saver, made before the clock starts, so that all contestants get the same.

What changes between two steps is as in a graph: a new list with the messages of the previous one and some
more, a new dict with the files of the previous one and a new one. Texts are words, which compress as prose does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.types import _DeltaSnapshot

_RANDOM = random.Random(4)
_WORDS = ["".join(_RANDOM.choices("etaoinshrdlucmfwyp", k=_RANDOM.randint(2, 10))) for _ in range(5000)]
# As in prose, a few words are frequent; otherwise it would compress less than any text does.
_WEIGHTS = list(accumulate(1 / rank for rank in range(1, len(_WORDS) + 1)))


def prose(size: int) -> str:
    """Words with `size` characters in total."""
    return " ".join(_RANDOM.choices(_WORDS, cum_weights=_WEIGHTS, k=size // 2))[:size]


class Put(NamedTuple):
    """A call of `put`, on any thread."""

    parent_id: str | None
    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    new_versions: dict[str, Any]
    # The least that any saver has to store for it: the document without large values, and what is new.
    least: Any


class Writes(NamedTuple):
    """A call of `put_writes`, on any thread."""

    checkpoint_id: str
    writes: Sequence[tuple[str, Any]]
    task_id: str


class Script:
    """The calls of one thread, step after step."""

    def __init__(self) -> None:
        self.last: str | None = None
        self._values: dict[str, Any] = {}
        self._versions: dict[str, str] = {}
        self._step = -2

    def put(self, changed: Mapping[str, Any], least: Mapping[str, Any] | None = None, **metadata: Any) -> Put:
        """The next checkpoint; `least` is what is new in the changed values, if that is not everything."""
        self._values = {**self._values, **changed}
        return self.put_versions(list(changed), changed if least is None else least, **metadata)

    def put_versions(self, channels: Sequence[str], least: Any, *, parent: str | None = None, **metadata: Any) -> Put:
        """The next checkpoint, with new versions of these channels; `parent` if it is not the last one."""
        self._step += 1
        new = {channel: f"{self._step + 2:032d}.{_RANDOM.randrange(10**16):016d}" for channel in channels}
        self._versions = {**self._versions, **new}
        parent, self.last = parent or self.last, str(uuid6(clock_seq=-1))
        checkpoint = Checkpoint(
            v=4,
            id=self.last,
            ts="2026-05-04T06:32:42.235444+00:00",
            channel_values=dict(self._values),
            channel_versions=dict(self._versions),
            versions_seen={"__input__": {}, "agent": dict(self._versions)},
            updated_channels=sorted(new),
        )
        complete = cast("CheckpointMetadata", {"source": "loop", "step": self._step, "parents": {}, **metadata})
        document = {**checkpoint, "channel_values": {}}
        return Put(parent, checkpoint, complete, dict(new), [document, complete, least])

    def writes(self, number: int = 1, size: int = 200, task_id: str = "") -> Writes:
        """The writes of a task at the last checkpoint."""
        assert self.last
        task_id = task_id or str(uuid6(clock_seq=-1))
        return Writes(self.last, [(f"channel {n % 5}", {"text": prose(size)}) for n in range(number)], task_id)

    @property
    def values(self) -> dict[str, Any]:
        """The values after the last checkpoint."""
        return dict(self._values)


State = Callable[[], Iterator[Put]]


def small() -> Iterator[Put]:
    """Ten tiny channels, three of which change in a step."""
    script = Script()
    first = {f"text {n}": prose(20) for n in range(5)} | {"count": 0, "ratio": 0.5, "done": False}
    yield script.put(first | {"tags": ["a", "b"], "place": {"city": "Bern", "zip": 3000}})
    step = 0
    while True:
        step += 1
        yield script.put({"count": step, "text 1": prose(20), "tags": ["a", str(step)]})


def agent() -> Iterator[Put]:
    """The state of an agent during its work: a few messages, a plan, notes; two of them change in a step."""
    script = Script()
    messages = [message(number) for number in range(6)]
    plan = [{"step": n, "what": prose(80), "done": False} for n in range(5)]
    yield script.put({"messages": messages, "plan": plan, "notes": {"user": prose(200)}, "turn": 0})
    turn = 0
    while True:
        turn += 1
        new = [message(len(messages))]
        messages = [*messages, *new]
        yield script.put({"messages": messages, "turn": turn}, {"messages": new, "turn": turn})


def message(number: int) -> BaseMessage:
    """A question, or an answer with the data that models return with it; 1 KB either way."""
    message_id = str(uuid6(clock_seq=-1))
    if number % 2:
        return HumanMessage(prose(1000), id=message_id)
    tokens = {"prompt_tokens": 300 * number, "completion_tokens": 150, "total_tokens": 300 * number + 150}
    return AIMessage(
        prose(600),
        id=message_id,
        response_metadata={
            "token_usage": {**tokens, "prompt_tokens_details": {"audio_tokens": 0, "cached_tokens": 0}},
            "model_name": "gpt-4o-2024-08-06",
            "system_fingerprint": "fp_f9f4fb6dbf",
            "finish_reason": "stop",
            "logprobs": None,
        },
        usage_metadata=UsageMetadata(
            input_tokens=tokens["prompt_tokens"],
            output_tokens=150,
            total_tokens=tokens["total_tokens"],
            input_token_details={"audio": 0, "cache_read": 0},
            output_token_details={"audio": 0, "reasoning": 0},
        ),
    )


def chat(start: int, by: int = 2) -> Iterator[Put]:
    """Messages of 1 KB in one channel; the first checkpoint has `start`, each later one `by` more."""
    script = Script()
    messages = [message(number) for number in range(start)]
    yield script.put({"messages": messages, "summary": prose(100), "turn": 0})
    turn = 0
    while True:
        turn += 1
        new = [message(len(messages) + number) for number in range(by)]
        messages = [*messages, *new]
        yield script.put({"messages": messages, "turn": turn}, {"messages": new, "turn": turn})


def trimmed(most: int) -> Iterator[Put]:
    """A chat of which only the newest messages are kept, two new ones in each step."""
    script = Script()
    messages = [message(number) for number in range(most)]
    yield script.put({"messages": messages, "turn": 0})
    turn = 0
    while True:
        turn += 1
        new = [message(2 * turn), message(2 * turn + 1)]
        messages = [*messages, *new][-most:]
        yield script.put({"messages": messages, "turn": turn}, {"messages": new, "turn": turn})


def summarised(most: int, kept: int) -> Iterator[Put]:
    """A chat that grows to `most` messages; then a summary replaces all but the newest."""
    script = Script()
    messages = [message(number) for number in range(kept)]
    yield script.put({"messages": messages, "turn": 0})
    turn = 0
    while True:
        turn += 1
        new = [message(2 * turn), message(2 * turn + 1)]
        if len(messages) >= most:
            new = [HumanMessage(prose(2000), id=str(uuid6(clock_seq=-1))), *new]
            messages = messages[-kept:]
            messages = [new[0], *messages, *new[1:]]
        else:
            messages = [*messages, *new]
        yield script.put({"messages": messages, "turn": turn}, {"messages": new, "turn": turn})


def edited(count: int) -> Iterator[Put]:
    """A list of dicts of 500 bytes; in each step, one in the middle is replaced."""
    script = Script()
    rows = [{"id": n, "text": prose(460), "score": n / 7} for n in range(count)]
    yield script.put({"rows": rows, "turn": 0})
    turn = 0
    while True:
        turn += 1
        at = count // 4 + turn * 37 % (count // 2)
        new = {"id": at, "text": prose(460), "score": turn / 7}
        rows = [*rows[:at], new, *rows[at + 1 :]]
        yield script.put({"rows": rows, "turn": turn}, {"rows": [new], "turn": turn})


def wide() -> Iterator[Put]:
    """Twenty channels of 50 KB, each a list of dicts; one changes in a step."""
    return _wide(lambda: [{"id": n, "text": prose(460), "score": n / 7} for n in range(100)])


def wide_text() -> Iterator[Put]:
    """Twenty channels of 50 KB, each a text; one changes in a step."""
    return _wide(lambda: prose(50_000))


def _wide(value: Callable[[], Any]) -> Iterator[Put]:
    script = Script()
    yield script.put({f"channel {n}": value() for n in range(20)})
    step = 0
    while True:
        step += 1
        yield script.put({f"channel {step % 20}": value()})


def files() -> Iterator[Put]:
    """A dict of 200 files of 5 KB; one changes in a step."""
    script = Script()
    held = {f"/src/file_{n}.py": prose(5000) for n in range(200)}
    yield script.put({"files": held, "turn": 0})
    turn = 0
    while True:
        turn += 1
        new = {f"/src/file_{turn * 7 % 200}.py": prose(5000)}
        held = {**held, **new}
        yield script.put({"files": held, "turn": turn}, {"files": new, "turn": turn})


def long_thread(run: str = "run") -> Iterator[Put]:
    """Small steps next to 5 KB that do not change; every tenth is an input, and each belongs to its own run."""
    script = Script()
    yield script.put({"notes": [{"text": prose(230)} for _ in range(20)], "count": 0, "log": []}, run_id=f"{run} 0")
    step = 0
    while True:
        step += 1
        source = "loop" if step % 10 else "input"
        yield script.put({"count": step, "log": [step, prose(100)]}, run_id=f"{run} {step}", source=source)


class Deltas:
    """The calls for a thread with one delta channel, and its history at the end.

    Args:
        steps: Checkpoints, each with one write.
        snapshots: Steps between two checkpoints that have the value; None for no such checkpoint.
        branches: Forks of three steps each, from checkpoints all over the thread.
    """

    channel = "log"

    def __init__(self, steps: int, *, snapshots: int | None = None, branches: int = 0) -> None:
        self.calls: list[Put | Writes] = []
        self.ids: list[str] = []
        self.written: list[Any] = []
        script = Script()
        for step in range(steps):
            # The newest one is that many steps after the last snapshot.
            is_snapshot = (
                snapshots is not None and step > 0 and (steps - 1 - step) % snapshots == 0 and step < steps - 1
            )
            self._put(script, _DeltaSnapshot(list(self.written)) if is_snapshot else None)
            self.ids.append(self._last(script))
            if step < steps - 1:
                self.written.append({"role": "user", "content": prose(200)})
                self._write(script, self.written[-1])
        for branch in range(branches):
            parent: str | None = self.ids[(branch + 1) * (steps - 2) // (branches + 1)]
            for _ in range(3):
                self._put(script, None, parent)
                parent = None
                self._write(script, {"role": "user", "content": "aside"})

    def _put(self, script: Script, value: Any, parent: str | None = None) -> None:
        counted = {} if value else {"counters_since_delta_snapshot": {self.channel: (1, 1)}}
        put = script.put_versions([self.channel], value, parent=parent, **counted)
        if value:
            put.checkpoint["channel_values"][self.channel] = value
        self.calls.append(put)

    def _write(self, script: Script, value: Any) -> None:
        self.calls.append(Writes(self._last(script), [(self.channel, value)], str(uuid6(clock_seq=-1))))

    @staticmethod
    def _last(script: Script) -> str:
        assert script.last
        return script.last
