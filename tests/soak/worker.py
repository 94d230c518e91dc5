"""A process that runs graphs round after round, continues after every error of the saver, and reports its resources."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, get_args

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Durability

from langgraph_checkpoint_custom import CheckpointError, CheckpointSaver
from tests.behaviour.helpers import anywhere
from tests.soak.graph import between_rounds, build, next_input
from tests.stores import Store


class Holds(NamedTuple):
    """The resources of a process."""

    megabytes: float
    threads: int
    files: int


def holds() -> Holds:
    """The current resources of this process; memory is known on Linux only."""
    gc.collect()
    status = Path("/proc/self/statm")
    pages = int(status.read_text().split()[1]) if status.exists() else 0
    return Holds(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, threading.active_count(), len(os.listdir("/dev/fd")))


def work(connection: Connection, store: Store, api: str, names: Sequence[str]) -> None:
    """Run the graphs until the message "stop"; answers each "holds", and at last reports what is left after closing."""
    asyncio.run(asyncio.to_thread(build(InMemorySaver()).invoke, {"name": "warm", "round": 1}, anywhere()))
    before = holds()
    errors: Counter[str] = Counter()
    stop = threading.Event()

    def listen() -> None:
        while connection.recv() == "holds":
            connection.send(holds())
        stop.set()

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    with store.open() as saver:
        if api == "async":
            connection.send(asyncio.run(_play_all(saver, names, stop, errors)))
        else:
            with ThreadPoolExecutor(len(names)) as threads:
                for done in [
                    threads.submit(asyncio.run, _play(build(saver), "sync", name, stop, errors)) for name in names
                ]:
                    done.result()
            connection.send(holds())
    listener.join()
    connection.send((before, holds(), errors))


async def _play_all(saver: CheckpointSaver, names: Sequence[str], stop: threading.Event, errors: Counter[str]) -> Holds:
    """Run all graphs on this loop, and close the saver on it; returns what was held before that."""
    graph = build(saver)
    await asyncio.gather(*(_play(graph, "async", name, stop, errors) for name in names))
    held = holds()
    await saver.aclose()
    return held


async def _play(graph: Any, api: str, name: str, stop: threading.Event, errors: Counter[str]) -> None:
    """Run one graph until the end of the round in which it is stopped."""
    config = anywhere(name)
    while True:
        try:
            state = await graph.aget_state(config) if api == "async" else graph.get_state(config)
            if stop.is_set() and between_rounds(state):
                return
            durability: Durability = random.choice(get_args(Durability))
            if api == "async":
                await graph.ainvoke(next_input(state, name), config, durability=durability)
            else:
                graph.invoke(next_input(state, name), config, durability=durability)
        except CheckpointError as error:
            errors[type(error).__name__] += 1
            await asyncio.sleep(0.01)  # As a caller would before it retries.
