"""What a saver does as an object: how its methods run operations, setting up, opening and closing, copies, tenants.

This module contains no SQL and opens no connection.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from copy import copy
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, TypeVar

from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import Self

from langgraph_checkpoint_custom.encoding.values import ValueCodec
from langgraph_checkpoint_custom.engine.operation import Driver, Operation, Operations, Pause, afollow, follow
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.keys import tenant_text
from langgraph_checkpoint_custom.operations.pages import AnyPage, next_page
from langgraph_checkpoint_custom.operations.schema import make_searchable, missing_searchable, setup
from langgraph_checkpoint_custom.pairs import shared_docstrings
from langgraph_checkpoint_custom.retention import Sweeper
from langgraph_checkpoint_custom.sql.dialect import SqlDialect
from langgraph_checkpoint_custom.sql.files import searchable_keys

T = TypeVar("T")


class Backend(NamedTuple):
    """The parts of a saver, with its tenant and its serializer.

    Whatever is built on a saver (tools, adapters, the command line) makes operations with `dialect` and `values`, and
    runs them with `driver`.

    Attributes:
        dialect: The statements of the database.
        driver: The connections to it.
        values: The encoding of values.
    """

    dialect: SqlDialect
    driver: Driver
    values: ValueCodec


@shared_docstrings
class Lifecycle(ABC):
    """What every saver does as an object, apart from its methods about checkpoints."""

    serde: SerializerProtocol
    _dialect: SqlDialect
    _driver: Driver
    _sweeper: Sweeper | None
    _is_of_tenant = False
    _original: Lifecycle | None = None
    _given: Any = None
    _database = ""

    @property
    @abstractmethod
    def _codec(self) -> ValueCodec: ...

    @property
    def backend(self) -> Backend:
        """What operations run on, for what is built on a saver."""
        return Backend(self._dialect, self._driver, self._codec)

    @property
    def conn(self) -> Any:
        """The connection or pool that you passed to the saver, under the name that it has in LangGraph's savers.

        Raises:
            AttributeError: The saver opens its connections itself.
        """
        if self._given is None:
            raise AttributeError(
                "the saver opens its own connections, several at a time, and close() or aclose() closes them; for SQL "
                "of your own open another one"
            )
        return self._given

    def __repr__(self) -> str:
        """Return the class and the database, without its password."""
        tenant = f", tenant {self._dialect.tenant!r}" if self._dialect.tenant else ""
        return f"<{type(self).__name__} of {self._database or self._dialect.location}{tenant}>"

    # Running operations

    def _run(self, what: Operation[T] | Operations[T] | Pause) -> T:
        """Run an operation, or several that are requested one after the other, with the pauses that a sweep makes."""
        if isinstance(what, Operation):
            return self._driver.run(what)
        if isinstance(what, Pause):
            time.sleep(what.seconds)  # A sweep lets others store something.
            return None  # type: ignore[return-value]  # A pause has no result.
        return follow(what, self._run)

    async def _arun(self, what: Operation[T] | Operations[T] | Pause) -> T:
        if isinstance(what, Operation):
            return await self._driver.arun(what)
        if isinstance(what, Pause):
            await asyncio.sleep(what.seconds)
            return None  # type: ignore[return-value]
        return await afollow(what, self._arun)

    def _pages(
        self, read: Callable[[AnyPage], Operation[Any]], page: AnyPage | None, limit: int | None, most: int
    ) -> Iterator[Any]:
        """Return what is on a page and on those after it; between two pages, nothing is held."""
        while page is not None:
            found, after, *_ = self._driver.run(read(page))
            yield from found[:limit]
            page, limit = next_page(after, len(found), limit, most)

    async def _apages(
        self, read: Callable[[AnyPage], Operation[Any]], page: AnyPage | None, limit: int | None, most: int
    ) -> AsyncIterator[Any]:
        while page is not None:
            found, after, *_ = await self._driver.arun(read(page))
            for each in found[:limit]:
                yield each
            page, limit = next_page(after, len(found), limit, most)

    # Copying

    def __copy__(self) -> Self:
        """Return a shallow copy, which shares the connections."""
        clone = object.__new__(type(self))
        vars(clone).update(vars(self))
        clone._original = self._original or self  # The sweeper ends when it is gone.
        return clone

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied deeply.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(
            "a saver cannot be pickled or copied deeply: create one in the other process, from the same path or URL"
        )

    # Opening and closing

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def setup(self, *, searchable: Sequence[str] = ()) -> None:
        """Create or migrate the tables; does nothing if they are current.

        Any number of processes may call it at the same time.

        Args:
            searchable: Metadata keys that get an index each, so that `threads` and `count_threads` find few threads
                among many.

        Raises:
            SchemaTooNew: The tables need a newer version of this package.
            SchemaForeign: The database has a table of another program with the name of one of ours.
        """
        self._set_up(searchable)

    async def asetup(self, *, searchable: Sequence[str] = ()) -> None:
        """Async version of `setup`."""
        await self._aset_up(searchable)

    def _set_up(self, searchable: Sequence[str], distribute: str | None = None) -> None:
        keys = searchable_keys(searchable)
        self._driver.setup(self._setup_of(distribute))
        self._run(self._index(keys))

    async def _aset_up(self, searchable: Sequence[str], distribute: str | None = None) -> None:
        keys = searchable_keys(searchable)
        await self._driver.asetup(self._setup_of(distribute))
        await self._arun(self._index(keys))

    def _setup_of(self, distribute: str | None) -> Operation[None]:
        if distribute not in (None, "citus"):
            raise ConfigError(f'distribute must be "citus" or None, not {distribute!r}')
        return setup(self._dialect.for_tenant(""), distribute)

    def _index(self, keys: Sequence[str]) -> Operations[None]:
        if missing := (yield missing_searchable(self._dialect, keys)):
            yield make_searchable(self._dialect, missing)

    def close(self) -> None:
        """Close what this saver opened; you cannot use it afterwards. On an event loop, it does not wait for a sweep.

        Connections and pools that you passed in stay open. A saver that `for_tenant` returned is closed together with
        the saver that it came from, so closing it does nothing.
        """
        if self._is_of_tenant:
            return
        if self._sweeper:
            self._sweeper.stop()
        self._driver.close()

    async def aclose(self) -> None:
        """Async version of `close`."""
        if self._is_of_tenant:
            return
        if self._sweeper:
            try:
                await asyncio.to_thread(self._sweeper.stop)
            except RuntimeError:  # The process or the loop is ending, so no OS thread starts any more.
                self._sweeper.stop()
        await self._driver.aclose()

    def stats(self) -> Mapping[str, Any]:
        """Return current figures about the connections.

        Returns:
            On PostgreSQL, psycopg_pool's statistics of each pool. On SQLite, the number of connections that are reading
            and of those that are idle.
        """
        return self._driver.stats()

    # Tenants

    def for_tenant(self, tenant: str) -> Self:
        """Return a saver that reads and writes only the rows of one tenant, on the same connections.

        The same thread id in two tenants, or in a tenant and in none, names two different threads. On PostgreSQL,
        row-level security restricts every statement a second time, unless the role owns the tables. The connections
        belong to this saver: neither `close` on the tenant's saver nor the end of its `with` block closes them.

        Args:
            tenant: The name of the tenant.
        """
        clone = copy(self)
        clone._is_of_tenant = True
        clone._dialect = self._dialect.for_tenant(tenant_text(tenant))
        return clone
