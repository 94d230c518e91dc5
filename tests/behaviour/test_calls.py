"""How many of our functions an ordinary call runs, from the public method to the database's module and back.

Each is on one way that can be read from top to bottom. What is rare leaves it, such as blobs, claims and encryption.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint

import langgraph_checkpoint_custom
from tests.stores import Client, Store

PACKAGE = Path(langgraph_checkpoint_custom.__file__).parent
# The most calls of each method, and in how many modules.
CALLS = {"put": (32, 10), "put_writes": (32, 10), "get_tuple": (32, 10), "list": (40, 12)}
# Calls until connections, prepared statements and remembered texts are there.
WARM = 10


@contextmanager
def counted() -> Iterator[list[str]]:
    """The calls of our functions in this OS thread, and in those that start meanwhile: file, line and name."""
    found: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        path = Path(code.co_filename)
        # A coroutine or generator that goes on is no new call.
        if event == "call" and PACKAGE in path.parents and frame.f_lineno == code.co_firstlineno:
            found.append(f"{path.relative_to(PACKAGE)}:{code.co_firstlineno} {code.co_name}")

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


async def one_step(client: Client, number: int, counts: dict[str, list[str]]) -> None:
    """Put a small checkpoint and two writes, and read the newest checkpoint."""
    newest: Any = {"configurable": {"thread_id": "thread", "checkpoint_ns": ""}}
    parent = {} if number == 0 else {"checkpoint_id": f"{number - 1:03}"}
    config: Any = {"configurable": {**newest["configurable"], **parent}}
    checkpoint = empty_checkpoint()
    version = f"{number:032}.0.123"
    values = {"number": number, "text": "x" * 40, "list": [1, 2, 3]}
    versions: Any = dict.fromkeys(values, version)
    checkpoint |= {"v": 4, "id": f"{number:03}", "channel_values": values, "channel_versions": versions}
    saver, method = client.saver, "a" if client.api == "async" else ""

    async def call(name: str, *args: Any) -> Any:
        with counted() as found:
            reply = getattr(saver, f"{method}{name}")(*args)
            if name == "list":
                reply = [each async for each in reply] if method else list(reply)
            else:
                reply = await reply if method else reply
        counts[name] = found
        return reply

    stored = await call("put", config, checkpoint, {"source": "loop", "step": number, "parents": {}}, versions)
    await call("put_writes", stored, [("number", number), ("branch:to:x", None)], f"task {number}", "~path")
    read = await call("get_tuple", newest)
    assert read.checkpoint["channel_values"] == values
    assert len(read.pending_writes) == 2
    newest["configurable"]["checkpoint_id"] = stored["configurable"]["checkpoint_id"]
    assert await call("list", newest) == [read]


async def test_an_ordinary_call_runs_few_of_our_functions(store: Store, api: str) -> None:
    counts: dict[str, list[str]] = {}
    async with store.open() as saver:
        saver.setup()
        for number in range(WARM):
            await one_step(Client(saver, api), number, counts)
    for name, (most, modules) in CALLS.items():
        calls = counts[name]
        said = "\n".join([name, *calls])
        assert 10 < len(calls) <= most, said  # Not 0, which would mean that nothing was counted.
        assert len({call.partition(":")[0] for call in calls}) <= modules, said
