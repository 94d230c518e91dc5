"""`checkpointer`: the saver of an Agent Server, made of what the environment says.

The server enters the factory in each OS thread that asks, with that thread's event loop, several at once, and two tasks
of one thread twice; it leaves hardly ever. So all entries of a process that read the same settings share one saver,
which works from every thread and loop. It is closed when the last entry leaves, or else when the process ends.

The server's guard raises on whatever blocks a loop. Making a saver imports what the database needs, so a worker does.
"""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import AbstractAsyncContextManager
from types import TracebackType

from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.settings import Settings, settings_of
from langgraph_checkpoint_custom.url import open_saver


def checkpointer() -> AbstractAsyncContextManager[CheckpointSaver]:
    """The saver of an Agent Server: `langgraph_checkpoint_custom.server.checkpointer` in `langgraph.json`.

    When it is entered, it reads `CHECKPOINT_URL` and the options of `docs/agent-server.md` from the environment, and
    creates or migrates the tables if they are not current.

    Raises:
        ConfigError: On entering, if a variable cannot be used; the message names it.
        CheckpointError: On entering, if the database cannot be used, or has no tables and this role may not make them.
    """
    return _Entry()


class _Entry(AbstractAsyncContextManager[CheckpointSaver]):
    """One entry. No generator: of one that is never left, Python has something to say when it ends."""

    async def __aenter__(self) -> CheckpointSaver:
        self._shared = await asyncio.to_thread(_enter)
        try:
            await self._shared.saver.asetup()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self._shared.saver

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shared.leave():
            await self._shared.saver.aclose()


class _Shared:
    """A saver, and how many entries use it."""

    def __init__(self, settings: Settings) -> None:
        self.saver = open_saver(settings.url, **settings.all_options())
        self.entries = 0
        self._settings = settings

    def leave(self) -> bool:
        """Count an entry less; returns whether that was the last one, and the saver is to be closed."""
        with _GATE:
            self.entries -= 1
            if self.entries == 0:
                del _SHARED[self._settings]
            return self.entries == 0


_GATE = threading.Lock()  # Held for nothing that takes time.
_SHARED: dict[Settings, _Shared] = {}


def _enter() -> _Shared:
    settings = settings_of(os.environ)
    made = _Shared(settings)  # It opens nothing yet; of those that come at once one is used.
    with _GATE:
        shared = _SHARED.setdefault(settings, made)
        shared.entries += 1
    return shared
