"""What a saver does as an object: setting up, opening and closing, copies, tenants.

This module contains no SQL and opens no connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from copy import copy
from types import TracebackType
from typing import Any, NoReturn

from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import Self

from langgraph_checkpoint_custom.engine.operation import Driver
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.keys import tenant_text
from langgraph_checkpoint_custom.operations.schema import make_searchable, missing_searchable
from langgraph_checkpoint_custom.pairs import shared_docstrings
from langgraph_checkpoint_custom.retention import Sweeper
from langgraph_checkpoint_custom.sql.dialect import SqlDialect
from langgraph_checkpoint_custom.sql.searchable import searchable_keys


@shared_docstrings
class Lifecycle:
    """What every saver does as an object, apart from its methods about checkpoints."""

    serde: SerializerProtocol
    _dialect: SqlDialect
    _driver: Driver
    _sweeper: Sweeper | None
    _is_of_tenant = False
    _given: Any = None
    _database = ""

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

    # Copying

    def __copy__(self) -> Self:
        """Return a shallow copy, which shares the connections."""
        clone = object.__new__(type(self))
        vars(clone).update(vars(self))
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
            SchemaTooNew: A newer version of this package has created the tables.
            SchemaForeign: The database has a `checkpoints` table of another program.
        """
        keys = searchable_keys(searchable)
        self._driver.setup()
        self._index(keys)

    async def asetup(self, *, searchable: Sequence[str] = ()) -> None:
        """Async version of `setup`."""
        keys = searchable_keys(searchable)
        await self._driver.asetup()
        await self._aindex(keys)

    def close(self) -> None:
        """Close what this saver opened; you cannot use it afterwards.

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
            await asyncio.to_thread(self._sweeper.stop)
        await self._driver.aclose()

    def stats(self) -> Mapping[str, Any]:
        """Return current figures about the connections.

        Returns:
            On PostgreSQL, psycopg_pool's statistics of each pool. On SQLite, the number of connections that are reading
            and of those that are idle.
        """
        return self._driver.stats()

    def _index(self, keys: Sequence[str]) -> None:
        if missing := self._driver.run(missing_searchable(self._dialect, keys)):
            self._driver.run(make_searchable(self._dialect, missing))

    async def _aindex(self, keys: Sequence[str]) -> None:
        if missing := await self._driver.arun(missing_searchable(self._dialect, keys)):
            await self._driver.arun(make_searchable(self._dialect, missing))

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
