"""How statements become round trips: parameters, tenants, locks.

Must not know: connections, results other than rows of `TupleRow`'s shape.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from typing_extensions import Self

from langgraph_checkpoint_custom.engine.operation import Form, RoundTrip, Row, Statement
from langgraph_checkpoint_custom.migrations import Migration
from langgraph_checkpoint_custom.model.keys import ABOVE_THREADS, TENANT_MARK, Range, right_above

# Parameters that are thread ids.
_THREADS = frozenset({"thread_id", "thread_below", "source", "target"})


@dataclass(frozen=True)
class Layout:
    """What is sent to tables that are laid out in one way.

    Attributes:
        name: "citus" if Citus distributes the tables over several servers.
        texts: The text of each statement, by name.
        migrations: The migrations that create the tables, in order.
        put: Stores a checkpoint that is one row and refers to no other rows; one that exists is replaced.
        put_on_parent: The same for one whose parent has to exist and not to be hidden; the reply has a row if it was
            stored.
        first_put: As `put`, the first checkpoint of a thread; also stores the row of the thread, if one statement can.
        latest: Reads the rows of the newest checkpoint of a thread and namespace, which are the parameters: `TupleRow`.
        exact: Reads the rows of the checkpoint of a key: `TupleRow`.
        page: Reads the rows of a page of a namespace without a filter: `TupleRow`.
        writes: What stores that many writes of a task.
    """

    name: str | None
    texts: Mapping[str, str]
    migrations: Sequence[Migration]
    put: Form
    put_on_parent: Form
    first_put: Form
    latest: Form
    exact: Form
    page: Form
    writes: Mapping[int, Form]


ON_PARENT = "insert_checkpoint_on_parent"


@dataclass
class SharedLayout:
    """The layout of the tables, which a dialect and its copies for tenants have in common.

    A saver finds out when it checks the tables, before its first operation.
    """

    layout: Layout
    is_certain: bool


class Statements(ABC):
    """The statements of one database, and the round trips that are made of them.

    Args:
        shared: The layout of the tables.
        location: Where the tables are, for messages.
        schema: The schema of the tables.
    """

    system: ClassVar[str]
    """OpenTelemetry's name of the database."""
    compresses: ClassVar[bool]
    """Whether compressing large values takes less time than storing and reading them as they are."""
    filter_contains: ClassVar[bool]
    """Whether a dict or list in a filter matches values that contain it, as in LangGraph's saver of the database."""
    one_writer: ClassVar[bool]
    """Whether a transaction that writes keeps out all others."""
    negative_limit: ClassVar[int | None]
    """What a limit below zero means, as in LangGraph's saver of the database; None means all."""
    first_put_is_complete: ClassVar[bool]
    """Whether one form stores the first checkpoint of a thread and the row of the thread; with Citus none is sent."""
    sent_for: ClassVar[Mapping[str, Sequence[str]]]
    """The statements that are sent for a name, in their order, where that is not the one statement of that name."""
    _percent: ClassVar[str] = "%"
    """A percent sign as it is written in a statement."""

    def __init__(self, shared: SharedLayout, *, location: str, schema: str) -> None:
        self._shared = shared
        self.location = location
        self._schema = schema
        self.tenant = ""

    # How the tables are laid out

    @property
    def layout(self) -> str | None:
        """The name of the layout, as far as it is known: "citus" if Citus distributes the tables."""
        return self._shared.layout.name

    @property
    def migrations(self) -> Sequence[Migration]:
        """The migrations that create the tables, in order."""
        return self._shared.layout.migrations

    def migrations_of(self, layout: str | None) -> Sequence[Migration]:
        """The migrations that create tables in a layout."""
        return self.migrations

    @property
    @abstractmethod
    def sends_forms(self) -> bool:
        """Whether a driver may send a form as it is: nothing is sent around it, and the layout is known."""

    def learn_layout(self, name: str | None) -> None:
        """Learn how the tables are laid out, as `schema_state` has read it. SQLite has one layout."""
        assert name is None

    @property
    def _texts(self) -> Mapping[str, str]:
        return self._shared.layout.texts

    # Thread ids and lists

    def for_tenant(self, tenant: str) -> Self:
        """Return the same statements for a tenant's rows only."""
        clone = copy(self)
        clone.tenant = tenant
        return clone

    def stored_thread(self, thread_id: str) -> str:
        """Return a thread id as the tables have it: with a prefix for the tenant, if there is one."""
        return f"{TENANT_MARK}{self.tenant}{TENANT_MARK}{thread_id}" if self.tenant else thread_id

    def own_thread_id(self, stored: str) -> str:
        """Return a stored thread id as the caller knows it."""
        return stored.removeprefix(self.stored_thread(""))

    def rows(self, reply: Sequence[Row]) -> Sequence[Row]:
        """Return the rows of a reply, of `TupleRow`'s shape, with thread ids as the caller knows them."""
        if not self.tenant:
            return reply
        return [(row[0], row[1] and self.own_thread_id(row[1]), *row[2:]) for row in reply]

    @staticmethod
    @abstractmethod
    def array(values: Sequence[Any]) -> Any:
        """A list of texts as a parameter."""

    @staticmethod
    @abstractmethod
    def names(value: Any) -> list[str]:
        """A list of texts from the column of a row."""

    # Statements and round trips

    def ask(self, *names: str, lock: Literal["alone", "shared"] | None = None, **params: Any) -> RoundTrip:
        """Send the named statements with the same parameters in one round trip; `sent_for` may have others for them.

        With `lock`, the lock of the parameter `thread_id` is taken before them.
        """
        locks: Sequence[Statement] = ()
        if lock:
            locks = (self._lock if lock == "alone" else self._share)(params["thread_id"])
        return self._send(*(each for name in names for each in self._statements(name, **params)), locks=locks)

    def has(self, name: str) -> bool:
        """Return whether the database has a statement of this name; some make sense for one database only."""
        return name in self._texts

    def ask_each(self, name: str, many: Iterable[Mapping[str, Any]], /, **params: Any) -> RoundTrip:
        """Send the named statement in one round trip for each of many parameters, with others that are the same."""
        return self._send(*(self.statement(name, **each, **params) for each in many))

    def statement(self, name: str, /, **params: Any) -> Statement:
        """Return the named statement with its parameters."""
        return Statement(name, self._texts[name], self._confined(params))

    def _confined(self, params: dict[str, Any]) -> dict[str, Any]:
        """Add tenant and schema to the parameters, and replace thread ids by those that the tables have."""
        params["tenant"], params["schema"] = self.tenant, self._schema
        if self.tenant:
            for name in _THREADS & params.keys():
                if params[name] is not None:
                    params[name] = self.stored_thread(params[name])
        return params

    def _send(self, *statements: Statement, locks: Sequence[Statement] = ()) -> RoundTrip:
        before, after = self._around()
        return RoundTrip(statements, (*before, *locks), after)

    def _around(self) -> tuple[Sequence[Statement], Sequence[Statement]]:
        """Return what is sent before and after the statements of each round trip."""
        return (), ()

    def _lock(self, thread_id: str) -> Sequence[Statement]:
        """Return what locks a thread alone until the transaction ends; see postgres/transactions.sql."""
        return self._statements("lock_thread", thread_id=thread_id)

    def _share(self, thread_id: str) -> Sequence[Statement]:
        """Return what shares the lock of a thread until the transaction ends, so that no other one holds it alone."""
        return self._statements("share_thread", thread_id=thread_id)

    def ranges(self, prefix: str = "") -> Sequence[Range]:
        """Return the ranges of the stored thread ids of this tenant that begin with `prefix`."""
        bottom = self.stored_thread(prefix)
        if bottom:
            return [Range(bottom, bottom + ABOVE_THREADS)]
        return [Range("", TENANT_MARK), Range(chr(ord(TENANT_MARK) + 1), ABOVE_THREADS)]

    def ranges_after(self, thread_id: str) -> Sequence[Range]:
        """Return the ranges of the stored thread ids of this tenant that are above a thread id."""
        bottom = right_above(self.stored_thread(thread_id))
        return [each._replace(bottom=max(bottom, each.bottom)) for each in self.ranges() if bottom < each.top]

    def _statements(self, name: str, /, **params: Any) -> list[Statement]:
        return [self.statement(each, **params) for each in self.sent_for.get(name, (name,))]
