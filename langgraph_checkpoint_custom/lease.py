"""`Lease`: a claim on a thread with a heartbeat in the background.

The heartbeat renews the claim three times in its lifetime, so that one failed renewal does not end the claim. A late
renewal does no harm unless another owner has claimed the thread in the meantime.

An interrupt or cancellation while the claim is taken or released leaves it open whether that was done. So the claim is
then released before the interrupt continues.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType

from langchain_core.runnables import RunnableConfig
from typing_extensions import Self

from langgraph_checkpoint_custom.engine.operation import Driver, Operation
from langgraph_checkpoint_custom.errors import CheckpointError, ClaimLost, ClosedError, ConfigError, StorageError
from langgraph_checkpoint_custom.model.keys import CLAIM_KEY, MAX_THREAD_ID, text, thread_text
from langgraph_checkpoint_custom.operations.writers import claim_lost, release_claim, renew_claim, take_claim
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

RENEWALS = 3


class Lease:
    """A claim on a thread, for a `with` or `async with` block; `CheckpointSaver.claim` returns it.

    Attributes:
        config: The config to run graphs with: it names the thread and carries the claim.
        owner: The name that `ThreadBusy` shows to others.
        is_lost: Whether a renewal has found that the claim is lost. The next write then raises `ClaimLost`.
    """

    def __init__(
        self, driver: Driver, dialect: SqlDialect, thread_id: str, *, ttl_seconds: float, owner: str | None
    ) -> None:
        if not isinstance(ttl_seconds, (int, float)) or not 0 < ttl_seconds < 10**9:
            raise ConfigError(f"ttl_seconds must be more than 0 seconds, not {ttl_seconds!r}")
        self._driver = driver
        self._dialect = dialect
        self._thread_id = thread_text(thread_id)
        self._ttl_seconds = float(ttl_seconds)
        self._token = secrets.token_hex(16)
        self.owner = text("owner", owner or f"{socket.gethostname()}:{os.getpid()}", MAX_THREAD_ID)
        self.config: RunnableConfig = {"configurable": {"thread_id": self._thread_id, CLAIM_KEY: self._token}}
        self.is_lost = False
        self._process: int | None = None  # The one in which the block was entered.
        self._stopped = threading.Event()
        self._heartbeat: threading.Thread | asyncio.Task[None] | None = None

    # Sync

    def __enter__(self) -> Self:
        self._refuse_second()
        with self._released_if_interrupted():
            self._driver.run(self._take())
            self._process = os.getpid()
            # A daemon thread: a program that ends does not wait for it, and the claim expires.
            self._heartbeat = threading.Thread(target=self._renew_until_stopped, name="checkpoint-claim", daemon=True)
            self._heartbeat.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process != os.getpid():  # A forked process leaves the block, and the claim to its parent.
            return
        self._stopped.set()
        with self._released_if_interrupted():
            if isinstance(self._heartbeat, threading.Thread):
                self._heartbeat.join()
            held = self._driver.run(self._release())
        if not held and error is None:
            raise claim_lost(self._thread_id)

    @contextmanager
    def _released_if_interrupted(self) -> Iterator[None]:
        try:
            yield
        except CheckpointError:
            raise
        except BaseException:  # Ctrl-C, or no OS thread can be started.
            with suppress(CheckpointError):
                self._driver.run(self._release())
            raise

    def _renew_until_stopped(self) -> None:
        while not self._stopped.wait(self._ttl_seconds / RENEWALS):
            with self._stopped_if_over():
                self._driver.run(self._renew())

    # Async: the same

    async def __aenter__(self) -> Self:
        self._refuse_second()
        try:
            await self._driver.arun(self._take())
        except asyncio.CancelledError:
            self._stopped.set()
            with suppress(CheckpointError):
                await self._aend()
            raise
        self._process = os.getpid()
        self._heartbeat = asyncio.create_task(self._arenew_until_stopped())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process != os.getpid():
            return
        if not await self._aend() and error is None:
            raise claim_lost(self._thread_id)

    async def _aend(self) -> bool:
        """Stop the heartbeat and release the claim; returns whether the claim was held.

        That runs in a task of its own, which is never cancelled.
        """
        end = asyncio.ensure_future(self._astop())
        cancelled = None
        while not end.done():
            try:
                await asyncio.wait([end])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            end.exception()  # It is not raised, and asyncio must not log that.
            raise cancelled
        return end.result()

    async def _astop(self) -> bool:
        if isinstance(self._heartbeat, asyncio.Task):
            # Before Python 3.12 `asyncio.wait_for`, with which a pool waits for a connection, may lose a cancellation.
            self._stopped.set()
            self._heartbeat.cancel()
            await asyncio.wait([self._heartbeat])
        return await self._driver.arun(self._release())

    async def _arenew_until_stopped(self) -> None:
        while not self._stopped.is_set():
            await asyncio.sleep(self._ttl_seconds / RENEWALS)
            with self._stopped_if_over():
                await self._driver.arun(self._renew())

    # Shared by sync and async

    def _refuse_second(self) -> None:
        if self._process is not None:
            raise ConfigError("a Lease is for one block; call claim() again for another one")

    @contextmanager
    def _stopped_if_over(self) -> Iterator[None]:
        """Stop the heartbeat if a renewal finds that there is nothing to renew."""
        try:
            yield
        except ClaimLost:
            self.is_lost = True
            self._stopped.set()
        except ClosedError:
            self._stopped.set()
        except StorageError:
            pass  # The driver has already retried. The claim may still hold; the next write finds out.

    def _take(self) -> Operation[None]:
        stopped = self._stopped.is_set
        return take_claim(self._dialect, self._thread_id, self._token, self.owner, self._ttl_seconds, stopped)

    def _renew(self) -> Operation[None]:
        return renew_claim(self._dialect, self._thread_id, self._token, self._ttl_seconds)

    def _release(self) -> Operation[bool]:
        return release_claim(self._dialect, self._thread_id, self._token)
