"""An exception from a signal handler, such as Ctrl-C or a task queue's time limit, ends the decoding of a value."""

from __future__ import annotations

import dataclasses
import itertools
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde import encrypted
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from pydantic import BaseModel

from langgraph_checkpoint_custom import CheckpointError
from langgraph_checkpoint_custom.encoding import allowlist, chunks, decode, extensions, objects, restored, serde, values
from tests.behaviour.helpers import LONG, config, metadata, put
from tests.stores import Client, Store

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")

DECODING = {
    module.__file__ for module in (allowlist, chunks, decode, encrypted, extensions, objects, restored, serde, values)
}


class Late(Exception):
    pass


class Model(BaseModel):
    word: str
    inside: Any = None


@dataclasses.dataclass
class Data:
    word: str


@contextmanager
def late_at_call(number: int, raised: type[BaseException]) -> Iterator[list[str]]:
    """A signal comes at call number `number` of the decoding code; yields where that was, if it was."""
    calls = itertools.count(1)
    where: list[str] = []

    def late(*_: Any) -> None:
        raise raised

    def watch(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename in DECODING and next(calls) == number:
            where.append(code.co_name)
            signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, late)
    sys.setprofile(watch)
    try:
        yield where
    finally:
        sys.setprofile(None)
        signal.signal(signal.SIGUSR1, before)


class Renamed(BaseModel):
    word: str
    inside: Any = None


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "encrypted": {"serde": EncryptedSerializer.from_pycryptodome_aes(key=b"1234567890123456")},
    "raw": {"on_unreadable": "raw"},
    "on_load": {"on_load": {f"{__name__}.Model": Renamed, f"{__name__}.Data": lambda held: held["word"].upper()}},
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("raised", [Late, KeyboardInterrupt])
async def test_an_exception_from_outside_ends_a_read_and_the_next_one_works(
    store: Store, options: str, raised: type[BaseException]
) -> None:
    """At each call of the decoding code. msgpack loses one at the start of a call; others may count as the value's."""
    state: dict[str, Any] = {
        "message": [HumanMessage("hi"), AIMessage("you")],
        "model": Model(word="a", inside=Data("b")),
        "large": [LONG, Model(word="c")],
        "chunks": [{"number": number, "text": LONG} for number in range(20)],
    }
    with store.open(**OPTIONS[options]) as saver:
        client = Client(saver, "sync")
        where = None
        for step in range(2):
            state["chunks"] = [*state["chunks"], Model(word=f"item {step}")]
            where = await put(client, f"{step}", state, parent=where, meta=metadata(step, extra=Data("d")))
            await client.put_writes(where, [("model", Model(word="z")), ("delta", Data("e")), ("plain", 1)], "task")
        reads: dict[str, Callable[[], Any]] = {
            "get_tuple": lambda: saver.get_tuple(config()),
            "list": lambda: list(saver.list(config())),
            "history": lambda: saver.get_delta_channel_history(config=config(), channels=["delta"]),
        }
        for name, read in reads.items():
            expected = read()
            passed_on = 0
            for number in itertools.count(1):
                error: BaseException | None = None
                with late_at_call(number, raised) as functions:
                    try:
                        found = read()
                    except (raised, CheckpointError) as caught:
                        error = caught
                if not functions:
                    assert found == expected
                    break
                if error is None and options == "raw" and raised is Late:
                    continue  # What cannot be restored is no error then.
                is_lost = functions == ["_object"] or raised is Late
                assert isinstance(error, (raised, CheckpointError) if is_lost else raised), (name, number, functions)
                passed_on += type(error) is raised
            assert passed_on > 3, name
            assert read() == expected
