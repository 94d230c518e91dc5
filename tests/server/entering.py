"""Runs in a separate process: enters the factory as the server does, in many OS threads at once, and hardly ever exits.

With the argument `guarded`, no loop may be blocked: the server's own guard raises then.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Sequence
from typing import Any

from langgraph_checkpoint_custom.server import checkpointer

THREADS = 6
_ALL_AT_ONCE = threading.Barrier(THREADS)


async def enter(number: int, entries: list[Any]) -> None:
    """Two tasks of a loop enter at the same time, and one of the entries is dropped."""
    await asyncio.to_thread(_ALL_AT_ONCE.wait)

    async def once() -> Any:
        entries.append(entry := checkpointer())
        return await entry.__aenter__()

    saver, other = await asyncio.gather(once(), once())
    assert saver is other
    del entries[-1]
    config: Any = {"configurable": {"thread_id": str(number), "checkpoint_ns": ""}}
    checkpoint: Any = {"v": 4, "id": "1", "ts": "", "channel_values": {"a": [number]}, "channel_versions": {"a": "1"}}
    await saver.aput(config, checkpoint, {"step": 1}, {"a": "1"})
    await saver.aput_writes({"configurable": config["configurable"] | {"checkpoint_id": "1"}}, [("a", 1)], "task")
    found = await saver.aget_tuple(config)
    assert found.checkpoint == checkpoint
    assert [each.checkpoint async for each in saver.alist(config)] == [checkpoint]


def work(number: int, entries: list[Any], loops: list[asyncio.AbstractEventLoop], failed: list[str]) -> None:
    """An OS thread of the server: its loop is neither closed nor are its tasks cancelled."""
    loop = asyncio.new_event_loop()
    loops.append(loop)
    try:
        loop.run_until_complete(enter(number, entries))
    except BaseException as error:
        failed.append(repr(error))
        raise


def main(arguments: Sequence[str]) -> None:
    """Enter everywhere, and return without exiting."""
    if "guarded" in arguments:
        from langgraph_runtime_inmem.queue import _enable_blockbuster

        _enable_blockbuster()
    entries: list[Any] = []
    loops: list[asyncio.AbstractEventLoop] = []
    failed: list[str] = []
    threads = [threading.Thread(target=work, args=(number, entries, loops, failed)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == [], failed
    print("entered", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
