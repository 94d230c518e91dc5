"""What the killed processes do, and what their stores must contain afterwards.

A writer does the same operations each time, so the number of acknowledged operations determines the whole store.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256
from itertools import count, islice
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint
from langgraph.checkpoint.memory import InMemorySaver

from tests.behaviour.helpers import LONG, checkpoint, config, id_of, metadata, put
from tests.stores import Client, Store


class Operation(NamedTuple):
    """One call of a saver: `put` of the checkpoint of a step, or `put_writes` of a task there."""

    step: int
    task: str | None = None

    @property
    def checkpoint_id(self) -> str:
        """The id of the checkpoint of the step."""
        return f"{self.step:032}"

    def call(self, thread_id: str) -> tuple[str, tuple[Any, ...]]:
        """The method of a saver, and its arguments."""
        if self.task is not None:
            where = config(thread_id, self.checkpoint_id)
            return "put_writes", (where, self.writes, self.task, f"path {self.task}")
        document = self.document
        parent = Operation(self.step - 1).checkpoint_id if self.step else None
        new = {channel: v for channel, v in document["channel_versions"].items() if v == f"{self.step + 1}.0"}
        return "put", (config(thread_id, parent), document, metadata(self.step), new)

    @property
    def writes(self) -> list[tuple[str, Any]]:
        """Several rows, of which one is long now and then."""
        return [("one", self.task), ("two", LONG), ("three", "x" * (20_000 if self.step % 7 == 0 else 1))]

    @property
    def document(self) -> Checkpoint:
        """Values that are blobs, new and old, large and small, and one that is inline."""
        old = self.step - self.step % 4
        size = 50_000 if self.step % 5 == 0 else 500
        values = {"number": self.step, "new": [f"{self.step}" * size], "newer": [LONG, self.step], "old": [old] * 500}
        versions = {channel: f"{(old if channel == 'old' else self.step) + 1}.0" for channel in values}
        return checkpoint(self.checkpoint_id, values, versions)


def operations() -> Iterator[Operation]:
    """All operations in their order; in every third step, the writes of a task come before its checkpoint."""
    for step in count():
        complete, first, second = Operation(step), Operation(step, "first"), Operation(step, "second")
        yield from (first, complete, second) if step % 3 == 2 else (complete, first, second)


def unfinished(thread_id: str, number: int) -> set[tuple[str, str, str]]:
    """The checkpoints that may be missing while their writes exist, after `number` operations or one more."""
    return {(thread_id, "", each.checkpoint_id) for each in islice(operations(), number - 1, number + 1)}


async def advance(client: Client, thread_id: str, start: int, stop: int) -> None:
    """Do the operations from number `start` to `stop`."""
    for operation in islice(operations(), start, stop):
        name, arguments = operation.call(thread_id)
        await getattr(client, name)(*arguments)


def write(connection: Connection, store: Store, api: str, thread_id: str) -> None:
    """Do all operations until killed; after each, send how many are done."""

    async def work() -> None:
        client = Client(store.open(), api)
        for number in count():
            await advance(client, thread_id, number, number + 1)
            connection.send(number + 1)

    asyncio.run(work())


def write_many(connection: Connection, store: Store, number: int) -> None:
    """As `write`, on `number` threads at the same time, half of them with each api; sends thread and number."""
    saver = store.open()
    sending = threading.Lock()

    async def work(thread: int, api: str) -> None:
        for done in count():
            await advance(Client(saver, api), f"thread {thread}", done, done + 1)
            with sending:
                connection.send((thread, done + 1))

    async def tasks() -> None:
        await asyncio.gather(*(work(thread, "async") for thread in range(1, number, 2)))

    for thread in range(0, number, 2):
        threading.Thread(target=asyncio.run, args=(work(thread, "sync"),), daemon=True).start()
    asyncio.run(tasks())


def put_many(connection: Connection, store: Store, api: str, thread_id: str, name: str, number: int) -> None:
    """Wait for a message, store `number` checkpoints, and send that it is done."""

    async def work() -> None:
        with store.open() as saver:
            client = Client(saver, api)
            for step in range(number):
                await put(client, f"{step:05} {name}", {"who": [name], "put": step}, thread_id=thread_id)

    connection.recv()
    asyncio.run(work())
    connection.send("done")


def set_up(connection: Connection, store: Store) -> None:
    """Create the tables."""
    with store.open() as saver:
        connection.send("ready")
        saver.setup()


def hold_snapshot(connection: Connection, path: str) -> None:
    """Read, and again from the same snapshot at each message; sends how many checkpoints there are."""
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    while True:
        connection.send(reader.execute("SELECT count(*) FROM checkpoints").fetchone()[0])
        connection.recv()


def hold_lock(connection: Connection, path: str, seconds: float) -> None:
    """Begin to delete everything, wait for `seconds`, and roll back."""
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    for table in ("checkpoints", "blobs", "writes"):
        writer.execute(f"DELETE FROM {table}")
    connection.send("locked")
    time.sleep(seconds)  # The lock is held for this long, and the others must wait longer.
    connection.send("released")
    writer.execute("ROLLBACK")


class Seen(NamedTuple):
    """A checkpoint as `list` returns it."""

    checkpoint_id: str
    parent_id: str | None
    tasks: list[str]
    # A digest of its contents; the values themselves are too long for the message of a failed test.
    digest: str


def seen(saver: BaseCheckpointSaver[str], thread_id: str) -> list[Seen]:
    """The complete thread."""
    result = []
    for found in saver.list(config(thread_id)):
        writes = sorted(found.pending_writes or ())
        text = json.dumps([found.checkpoint, found.metadata, writes], sort_keys=True)
        parent_id = id_of(found.parent_config) if found.parent_config else None
        tasks = sorted({task_id for task_id, *_ in writes})
        result.append(Seen(id_of(found), parent_id, tasks, sha256(text.encode()).hexdigest()))
    return result


def number_of(found: list[Seen]) -> int:
    """How many operations are visible: all but writes that wait for their checkpoint."""
    return sum(1 + len(each.tasks) for each in found)


@lru_cache(300)
def after(number: int) -> list[Seen]:
    """The thread after `number` operations, in memory."""
    saver = InMemorySaver()
    for operation in islice(operations(), number):
        name, arguments = operation.call("thread")
        getattr(saver, name)(*arguments)
    return seen(saver, "thread")
