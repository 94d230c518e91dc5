"""`checkpointer`, which gives an Agent Server its saver, configured by environment variables.

The server enters the factory in each OS thread that asks, with that thread's event loop. It enters it several times at
once, and twice from two tasks of one thread, and hardly ever leaves. So all entries of a process that read the same
settings share one saver, which works from every OS thread and event loop. It is closed when the last entry leaves, or
when the process ends.

The server raises an error for anything that blocks an event loop. Making a saver imports the database driver, so this
module makes it in a worker.
"""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import AbstractAsyncContextManager
from types import TracebackType

from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.settings import Settings, open_saver, settings_of


def checkpointer() -> AbstractAsyncContextManager[CheckpointSaver]:
    """Return the saver of an Agent Server; `langgraph.json` names this function as the `checkpointer`.

    The path is `langgraph_checkpoint_custom.server.checkpointer`. On entering, it reads `CHECKPOINT_URL` and the
    options of `docs/agent-server.md` from the environment, and creates or migrates the tables if they are not current.

    Returns:
        An async context manager that returns the saver.

    Raises:
        ConfigError: On entering, if a variable cannot be used; the message names the variable.
        CheckpointError: On entering, if the database cannot be used, or has no tables and this role may not create
            them.
    """
    return _Entry()


class _Entry(AbstractAsyncContextManager[CheckpointSaver]):
    """One entry of the factory.

    It is a class and no generator, because Python prints a message at exit about an async generator that was not
    finished.
    """

    async def __aenter__(self) -> CheckpointSaver:
        # It enters here, and not in the worker, which goes on if the wait is cancelled: then nobody would leave.
        self._shared = (await asyncio.to_thread(_made)).enter()
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
    """A saver, and the number of entries that use it."""

    def __init__(self, settings: Settings) -> None:
        self.saver = open_saver(settings.url, **settings.all_options())
        self.saver._is_behind_server = True
        self.entries = 0
        self._settings = settings

    def enter(self) -> _Shared:
        """Add an entry to the first one that was made of these settings; return that one."""
        with _GATE:
            shared = _SHARED.setdefault(self._settings, self)
            shared.entries += 1
        return shared

    def leave(self) -> bool:
        """Remove one entry; return whether it was the last one, so that the saver has to be closed."""
        with _GATE:
            self.entries -= 1
            if self.entries == 0:
                del _SHARED[self._settings]
            return self.entries == 0


_GATE = threading.Lock()  # Never held during slow work.
_SHARED: dict[Settings, _Shared] = {}


def _made() -> _Shared:
    # It opens no connection yet. If several entries make one concurrently, all use the first that is registered.
    return _Shared(settings_of(os.environ))
