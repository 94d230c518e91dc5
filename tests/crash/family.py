"""A process with a saver that is forked, and its child; both execute the commands of their test."""

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

# Seconds; a command takes milliseconds.
TIMEOUT = 150

Opens = Callable[[Store], CheckpointSaver]
# A range of operations on the process's own thread, which then is read.
Command = tuple[int, int] | Literal["close", "fork", "end", "die"]


def from_url(store: Store) -> CheckpointSaver:
    """A saver with its own connections."""
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
    child_api: str,
) -> None:
    """Execute commands, and fork at the command for it; the child takes over the saver unless it opens its own."""
    saver = opens(store)
    loop = asyncio.new_event_loop()
    execute_commands(connection, saver, Client(saver, api), loop, "parent")
    child = os.fork()
    if child:
        child_connection.close()
        connection.send("forked")
        execute_commands(connection, saver, Client(saver, api), loop, "parent")
        os.waitpid(child, 0)
        return
    connection.close()
    childs = saver if child_opens is None else child_opens(store)  # The parent's saver still exists.
    execute_commands(child_connection, childs, Client(childs, child_api), asyncio.new_event_loop(), "child")
    # A program that ends does this as well, but not the processes of `multiprocessing`.
    atexit._run_exitfuncs()
    os._exit(0)


def execute_commands(
    connection: Connection, saver: CheckpointSaver, client: Client, loop: asyncio.AbstractEventLoop, thread_id: str
) -> None:
    """Execute commands until one says to fork or to end; replies with the number of operations, or an error."""
    while True:
        command: Command = connection.recv()
        signal.alarm(TIMEOUT)
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
