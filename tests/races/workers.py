"""The processes that make the calls of a round: each with one saver, used by OS threads and by an event loop."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Any

import psycopg

from langgraph_checkpoint_custom import CheckpointSaver, PostgresSaver
from tests.races.calls import Answer, Call, Done, Leases, ado, do
from tests.races.plans import Caller
from tests.stores import Store

# OS threads in a process.
WORKERS = 8


def work(connection: Connection, store: Store) -> None:
    """Make the calls of each round: a message has the callers, and the threads to read first."""
    with ExitStack() as stack:
        worker = _Worker(store, stack)
        while (message := connection.recv()) is not None:
            callers, warm = message
            for thread_id in warm:
                do(worker.saver, Call("list", ({"configurable": {"thread_id": thread_id}},)), {})
            connection.send("ready")
            connection.send(worker.run(callers, connection.recv()))
        worker.close()


class _Worker:
    def __init__(self, store: Store, stack: ExitStack) -> None:
        self._store = store
        self._stack = stack
        options: dict[str, Any] = {"synchronous": "OFF"} if store.kind == "sqlite" else {}
        self.saver = store.open(**options)
        # Each stores again what the other one has stored.
        self._renewing = [stack.enter_context(store.open(compress=each, **options)) for each in (True, False)]
        self._held: queue.SimpleQueue[tuple[psycopg.Connection[Any], CheckpointSaver]] = queue.SimpleQueue()
        self._workers = stack.enter_context(ThreadPoolExecutor(WORKERS))
        self._loop = asyncio.new_event_loop()

    def close(self) -> None:
        self._loop.run_until_complete(self.saver.aclose())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def run(self, callers: Sequence[Caller], begin: int) -> list[Done]:
        """Make the calls of some callers concurrently; `begin` is when, by the monotonic clock in ns."""
        tasks = [caller for caller in callers if caller.api == "async"]
        others = [caller for caller in callers if caller.api == "sync"]
        running = [self._workers.submit(self._make, caller, begin) for caller in others]
        found = self._loop.run_until_complete(self._amake_all(tasks, begin)) if tasks else []
        return [done for each in (*found, *(future.result() for future in running)) for done in each]

    def _make(self, caller: Caller, begin: int) -> list[Done]:
        time.sleep(max(0, begin - time.monotonic_ns()) / 1e9)
        leases: Leases = {}
        found = []
        for call in caller.calls:
            time.sleep(call.after)
            start = time.monotonic_ns()
            answer = self._hold(call, leases) if call.hold else do(self._saver_for(call), call, leases)
            found.append(Done(caller.name, call, start, time.monotonic_ns(), answer))
        return found

    async def _amake_all(self, callers: Sequence[Caller], begin: int) -> list[list[Done]]:
        return await asyncio.gather(*(self._amake(caller, begin) for caller in callers))

    async def _amake(self, caller: Caller, begin: int) -> list[Done]:
        await asyncio.sleep(max(0, begin - time.monotonic_ns()) / 1e9)
        leases: Leases = {}
        found = []
        for call in caller.calls:
            await asyncio.sleep(call.after)
            start = time.monotonic_ns()
            if call.hold:
                answer = await asyncio.to_thread(self._hold, call, leases)
            else:
                answer = await ado(self._saver_for(call), call, leases)
            found.append(Done(caller.name, call, start, time.monotonic_ns(), answer))
        return found

    def _saver_for(self, call: Call) -> CheckpointSaver:
        if call.name != "reencrypt":
            return self.saver
        self._renewing.reverse()
        return self._renewing[0]

    def _hold(self, call: Call, leases: Leases) -> Answer:
        """Make a call in a transaction of the caller's, which stays open for a moment."""
        connection, saver = self._borrowed()
        answer: Answer = ("none", "rolled back")
        with connection.transaction():
            answer = do(saver, call, leases)
            if answer[0] == "error" and answer[1].startswith("Contention:"):
                answer = ("none", answer[1])  # In a transaction of the caller's, the caller has to retry.
                raise psycopg.Rollback
            time.sleep(call.hold)
        self._held.put((connection, saver))
        return answer

    def _borrowed(self) -> tuple[psycopg.Connection[Any], CheckpointSaver]:
        try:
            return self._held.get_nowait()
        except queue.Empty:
            connection = self._stack.enter_context(psycopg.connect(self._store.url, autocommit=True))
            saver = PostgresSaver(connection)
            saver.thread_exists("nobody's")
            return connection, saver
