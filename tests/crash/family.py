"""A process with a saver that is forked, and its child; both do what their test says."""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Literal

import psycopg
from psycopg_pool import ConnectionPool

from langgraph_checkpoint_custom import CheckpointError, CheckpointSaver, PostgresSaver
from tests.crash.programs import advance, number_of, seen
from tests.stores import Client, Store

# Seconds; what a test says takes milliseconds.
HANGS = 10

Opens = Callable[[Store], CheckpointSaver]
# Some operations on a thread of one's own, which then is read.
Command = tuple[int, int] | Literal["close", "fork", "end", "die"]


def from_url(store: Store) -> CheckpointSaver:
    """A saver with connections of its own."""
    return store.open()


def from_connection(store: Store) -> CheckpointSaver:
    """A saver on a caller's connection."""
    return PostgresSaver(psycopg.connect(store.url, autocommit=True))


def from_pool(store: Store) -> CheckpointSaver:
    """A saver on a caller's pool."""
    return PostgresSaver(ConnectionPool(store.url, min_size=1, open=True))


def family(
    connection: Connection,
    store: Store,
    opens: Opens,
    api: str,
    child_connection: Connection,
    child_opens: Opens | None,
    child_colour: str,
) -> None:
    """Obey, and be forked when told so; the child takes the saver over unless it opens its own."""
    saver = opens(store)
    loop = asyncio.new_event_loop()
    obey(connection, saver, Client(saver, api), loop, "parent")
    child = os.fork()
    if child:
        child_connection.close()
        connection.send("forked")
        obey(connection, saver, Client(saver, api), loop, "parent")
        os.waitpid(child, 0)
        return
    connection.close()
    childs = saver if child_opens is None else child_opens(store)  # The parent's goes on to exist.
    obey(child_connection, childs, Client(childs, child_colour), asyncio.new_event_loop(), "child")
    # A program that ends does this as well, though not the processes of `multiprocessing`.
    atexit._run_exitfuncs()
    os._exit(0)


def obey(
    connection: Connection, saver: CheckpointSaver, client: Client, loop: asyncio.AbstractEventLoop, thread_id: str
) -> None:
    """Do what the test says until it is to fork or to end, and answer: how many operations there are, or an error."""
    while True:
        command: Command = connection.recv()
        signal.alarm(HANGS)
        if command == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if command in ("fork", "end"):
            return
        try:
            if command == "close":
                saver.close()
            else:
                loop.run_until_complete(advance(client, thread_id, *command))
            connection.send(None if command == "close" else number_of(seen(saver, thread_id)))
        except CheckpointError as error:
            connection.send(error)
        signal.alarm(0)
