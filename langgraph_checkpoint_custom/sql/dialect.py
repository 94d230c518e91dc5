"""The interface of a dialect: statements by their names, and a method for each request that is more than a statement.

Must not know: connections, results other than rows of `TupleRow`'s shape.

`postgres_dialect.py` and `sqlite_dialect.py` complete it. Most methods make one round trip, or return None if none is
needed. A method `…_form` returns a `Form` and its parameters, which the saver sends without an operation. A method that
both databases have in the same way is implemented here, from the statements of the `.sql` files (see `files.py`); only
lists are written in different ways. An operation asks for a plain statement by its name, with `ask`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

from typing_extensions import Self

from langgraph_checkpoint_custom.encoding.encoded import Encoded
from langgraph_checkpoint_custom.engine.operation import Form, RoundTrip, Row, Statement
from langgraph_checkpoint_custom.migrations import Migration
from langgraph_checkpoint_custom.model.keys import (
    ABOVE_KINDS,
    ABOVE_THREADS,
    AFTER_ALL,
    KIND_MARK,
    LONG_NAMES,
    TENANT_MARK,
    CheckpointRow,
    Key,
    Page,
    Range,
    WriteRow,
    right_above,
)
from langgraph_checkpoint_custom.model.outline import BlobPlace
from langgraph_checkpoint_custom.model.records import ThreadPage
from langgraph_checkpoint_custom.sql.files import index_of, with_key

# Parameters that are thread ids.
_THREADS = frozenset({"thread_id", "thread_below", "target"})


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
        put_with_blobs: The same for one that has blobs or refers to those of its parent.
        first_put: As `put`, the first checkpoint of a thread; also stores the row of the thread, if one statement can.
        latest: Reads the rows of the newest checkpoint of a thread and namespace, which are the parameters: `TupleRow`.
        exact: Reads the rows of the checkpoint of a key: `TupleRow`.
        newest: Reads the same as `latest`, as the first page of a list of one.
        page: Reads the rows of a page of a namespace without a filter: `TupleRow`.
        writes: What stores that many writes of a task.
    """

    name: str | None
    texts: Mapping[str, str]
    migrations: Sequence[Migration]
    put: Form
    put_on_parent: Form
    put_with_blobs: Form
    first_put: Form
    latest: Form
    exact: Form
    newest: Form
    page: Form
    writes: Mapping[int, Form]


ON_PARENT = "insert_checkpoint_on_parent"
WITH_BLOBS = "insert_checkpoint_with_blobs"


@dataclass
class SharedLayout:
    """The layout of the tables, which a dialect and its copies for tenants have in common.

    A saver finds out when it checks the tables, before its first operation.
    """

    layout: Layout
    is_certain: bool


class SqlDialect(ABC):
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

    def ask(self, *names: str, lock: Literal["exclusive", "shared"] | None = None, **params: Any) -> RoundTrip:
        """Send the named statements with the same parameters in one round trip; `sent_for` may have others for them.

        With `lock`, the lock of the parameter `thread_id` is taken before them, and that of a `target` is exclusive.
        """
        locks: list[Statement] = []
        if lock:
            wanted = {params["thread_id"]: lock} | ({params["target"]: "exclusive"} if "target" in params else {})
            for thread_id, how in sorted(wanted.items()):  # Always in the same order, to avoid deadlocks.
                locks += self._lock(thread_id, alone=how == "exclusive")
        return self._trip(*(each for name in names for each in self._statements(name, **params)), locks=locks)

    def has(self, name: str) -> bool:
        """Return whether the database has a statement of this name; some make sense for one database only."""
        return name in self._texts

    def ask_each(self, name: str, many: Iterable[Mapping[str, Any]], /, **params: Any) -> RoundTrip:
        """Send the named statement in one round trip for each of many parameters, with others that are the same."""
        return self._trip(*(sent for each in many for sent in self._statements(name, **each, **params)))

    @abstractmethod
    def ask_keys(self, name: str, thread_id: str, keys: Collection[tuple[str, ...]], /, **params: Any) -> RoundTrip:
        """Send the named statement for the rows of keys: with two parts of checkpoints, with three of blobs."""

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

    def _trip(self, *statements: Statement, locks: Sequence[Statement] = ()) -> RoundTrip:
        """Return the round trip that sends statements, after those that take locks."""
        before, after = self._around()
        return RoundTrip(statements, (*before, *locks), after)

    def _around(self) -> tuple[Sequence[Statement], Sequence[Statement]]:
        """Return what is sent before and after the statements of each round trip."""
        return (), ()

    def _lock(self, thread_id: str, *, alone: bool) -> Sequence[Statement]:
        """Return what locks a thread alone, or shares its lock, until the end; see postgres/transactions.sql."""
        return self._statements("lock_thread" if alone else "share_thread", thread_id=thread_id)

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

    # Storing

    @abstractmethod
    def put_form(self, row: CheckpointRow) -> tuple[Form, tuple[Any, ...]]:
        """What stores a checkpoint that is one row and refers to no other rows, and its parameters.

        A checkpoint that exists is replaced. `first_put_is_complete` says whether that is all for the first one of a
        thread.
        """

    def insert_checkpoint(self, row: CheckpointRow) -> RoundTrip:
        """Store a checkpoint with `put_form`, and with a first one the row of the thread."""
        form, params = self.put_form(row)
        arming = self._arming(row) if form is self._shared.layout.put else ()
        return self._trip(form.with_params(params), *arming)

    def _arming(self, row: CheckpointRow) -> Sequence[Statement]:
        """Return what inserts the row of a thread, by which sweeps find it, if a checkpoint begins one."""
        if row.parent_id or row.checkpoint_ns:
            return ()
        return (self.statement("arm_thread", thread_id=row.thread_id),)

    @abstractmethod
    def put_on_parent_form(self, encoded: Encoded) -> tuple[Form, tuple[Any, ...]] | None:
        """What stores a checkpoint, if its parent exists and is not hidden, and its parameters.

        None if a reference is optional: only `find_problems` tells which of those exist.

        The reply has a row if it was stored. It may be empty for another reason; `find_problems` finds out. With Citus
        it cannot be sent: Citus does not lock rows in a statement that inserts.
        """

    @property
    def finds_and_stores(self) -> bool:
        """Whether `find_problems` also stores a checkpoint that has none; otherwise `store_checked` follows."""
        return False

    @abstractmethod
    def find_problems(self, encoded: Encoded, *, only_newest: bool, even_if_hidden: bool) -> RoundTrip:
        """Find what keeps a checkpoint from being stored; each row of the reply has a kind and a name.

        - "value": a blob that the checkpoint refers to is missing; the name is its channel.
        - "parent": the parent is needed and missing.
        - "hidden parent": the parent is needed and hidden. `even_if_hidden` accepts that.
        - "claim": the claim of the call is lost.
        - "newer": the parent is not the newest checkpoint, which is named; only with `only_newest`.
        - "optional" is not a problem: a blob that may be missing exists. `store_checked` needs its channel, the name.
        """

    @abstractmethod
    def store_checked(self, encoded: Encoded, optional: Collection[str]) -> RoundTrip:
        """Store a checkpoint without problems, and its blobs, including the `optional` ones that were found."""

    def writes_form(self, rows: Sequence[WriteRow]) -> Form | None:
        """What stores these writes of one task, or None if one statement does not.

        Of regular writes with one key the first one remains, of special ones (`idx` < 0) the last.
        """
        return self._shared.layout.writes.get(len(rows))

    def writes_params(self, key: Key, rows: Sequence[WriteRow]) -> list[Any]:
        """The parameters of `writes_form`."""
        if self.tenant:
            key = key._replace(thread_id=self.stored_thread(key.thread_id))
        params: list[Any] = []
        for row in rows:
            params += key
            params += row
        return params

    @abstractmethod
    def insert_writes(self, key: Key, rows: Sequence[WriteRow], claim: str | None) -> RoundTrip:
        """Store any number of writes.

        With a claim, the reply to the last statement has a row if the claim is lost. Then nothing may be stored:
        PostgreSQL stores nothing, and on SQLite the operation fails, which rolls its transaction back.
        """

    # Reading

    @abstractmethod
    def select_checkpoint(self, key: Key) -> RoundTrip:
        """Read the rows of one checkpoint: `TupleRow`."""

    def read_form(self, key: Key) -> tuple[Form, tuple[str, ...]]:
        """What reads the rows of one checkpoint, and its parameters."""
        thread_id, checkpoint_ns, checkpoint_id = key
        if self.tenant:
            thread_id = self.stored_thread(thread_id)
        if checkpoint_id is None:
            return self._shared.layout.latest, (thread_id, checkpoint_ns)
        return self._shared.layout.exact, (thread_id, checkpoint_ns, checkpoint_id)

    def select_page(self, page: Page) -> RoundTrip:
        """Read the rows of one page of a list: `TupleRow`."""
        return self._page("page", page)

    def page_form(self, page: Page) -> tuple[Form, tuple[str | int, ...]]:
        """What reads the rows of a page of a namespace without a filter, and its parameters."""
        thread_id, checkpoint_ns, floor, before, _, _, _, limit, _ = page
        if limit == 1 and before == AFTER_ALL and not floor:  # As `get_tuple`.
            return self._shared.layout.newest, self.read_form(Key(thread_id or "", checkpoint_ns or "", None))[1]
        if self.tenant:
            thread_id = self.stored_thread(thread_id or "")
        return self._shared.layout.page, (thread_id or "", checkpoint_ns or "", floor, before, limit)

    def select_records(self, page: Page, *, all_kinds: bool = False, with_hidden: bool = False) -> RoundTrip:
        """Read the rows of one page of a list: the columns of a `CheckpointRecord`.

        A page of all threads has those of other frameworks only with `all_kinds`, and hidden checkpoints only with
        `with_hidden`.
        """
        return self._page("records", page, all_kinds=all_kinds, with_hidden=with_hidden)

    def _page(self, what: str, page: Page, *, all_kinds: bool = False, with_hidden: bool = False) -> RoundTrip:
        params = page._asdict()
        del params["ahead"]  # Up to 10,000 keys, in which an observer would look for bytes at each page.
        params["filter"] = _filter_text(page)
        if page.thread_id is None:
            kind = "store"
            kinds = ("", "") if all_kinds else (KIND_MARK, ABOVE_KINDS)
            params |= zip(("kinds", "above_kinds"), map(self.stored_thread, kinds), strict=True)
            params["with_hidden"] = with_hidden
        elif page.checkpoint_ns is None:
            kind = "thread"
            params |= self._ranges(page.keys, apart=page.ahead is not None and page.ahead.matching)
        else:
            kind = "namespace"
        return self._trip(self.statement(f"{what}_of_{kind}", **params))

    def _ranges(self, keys: Sequence[tuple[str, str]], *, apart: bool) -> dict[str, Any]:
        """Return the parameters for keys, newest first: in each namespace, from one id to another; or each `apart`."""
        if apart:
            ids = self.array([checkpoint_id for checkpoint_id, _ in keys])
            return {"namespaces": self.array([name for _, name in keys]), "lows": ids, "highs": ids}
        highs = {checkpoint_ns: checkpoint_id for checkpoint_id, checkpoint_ns in reversed(keys)}
        lows = {checkpoint_ns: checkpoint_id for checkpoint_id, checkpoint_ns in keys}
        return {
            "namespaces": self.array(list(lows)),
            "lows": self.array(list(lows.values())),
            "highs": self.array([highs[checkpoint_ns] for checkpoint_ns in lows]),
        }

    def select_newest_keys(self, page: Page, spaces: Sequence[str] | None, limit: int) -> RoundTrip:
        """Read the ids and namespaces of the newest checkpoints of a page, hidden ones too.

        That is `limit` of the thread, or of each of these namespaces, with a reply for each.
        """
        bounds: dict[str, Any] = {"thread_id": page.thread_id, "floor": page.floor, "limit": limit}
        if spaces is None:
            return self.ask("newest_keys_of_thread", **bounds, before=page.before, ns_below=page.ns_below)
        return self._trip(
            *(
                self.statement(
                    "newest_keys_of_namespace",
                    **bounds,
                    checkpoint_ns=checkpoint_ns,
                    before=right_above(page.before) if checkpoint_ns < page.ns_below else page.before,
                )
                for checkpoint_ns in spaces
            )
        )

    def select_matching_keys(self, page: Page, limit: int) -> RoundTrip:
        """Read the ids and namespaces of the checkpoints of a thread that match the filter of a page, newest first."""
        params: dict[str, Any] = {"thread_id": page.thread_id, "floor": page.floor, "before": page.before}
        params["ns_below"] = page.ns_below
        return self.ask("select_matching_keys", **params, filter=_filter_text(page), limit=limit)

    # Searchable keys

    def select_searched_threads(self, page: ThreadPage, key: str, texts: Collection[str]) -> RoundTrip:
        """Read one page of the threads that an index finds by the values of a key."""
        found = self.statement("threads_searched", **page.params(), shown=self.array([*texts, "?"]))
        return self._trip(self._with_key(found, key))

    def select_searchable(self, keys: Iterable[str]) -> RoundTrip:
        """Read a row for each key that has an index: its name, and whether this role can use it."""
        return self.ask("searchable_indexes", names=self.array(list(map(index_of, keys))))

    def make_searchable(self, key: str) -> RoundTrip:
        """Create the index of a key, and on PostgreSQL the view that it is used through.

        If there is an index already that cannot be used, it is dropped first, by the first statement.
        """
        return self._trip(*(self._with_key(statement, key) for statement in self._statements("searchable_make")))

    def _with_key(self, statement: Statement, key: str) -> Statement:
        return statement._replace(sql=with_key(statement.sql, key, key.replace("%", self._percent)))

    # Blobs and their chunks

    def select_chunks(self, thread_id: str, blobs: Collection[BlobPlace]) -> RoundTrip:
        """Read the places of the chunks of blobs; the reply may be to several statements."""
        return self.ask_keys("select_chunks", thread_id, blobs)

    def delete_blobs(self, thread_id: str, blobs: Collection[BlobPlace]) -> RoundTrip:
        """Delete blobs; the replies have the places of their chunks."""
        chunks = self.select_chunks(thread_id, blobs).statements if blobs else ()
        return self._trip(*chunks, *self.ask_keys("delete_blobs", thread_id, blobs).statements)

    # Tables

    def schema_create(self, *, with_schema: bool) -> RoundTrip:
        """Create the table of migrations and, if `with_schema`, the schema before it."""
        names = ("schema_create", "schema_create_table") if with_schema else ("schema_create_table",)
        return self._trip(*map(self.statement, names))

    def schema_apply(self, migration: Migration) -> RoundTrip:
        """Apply a migration and insert its row into the table of migrations."""
        number, name, oldest, statements = migration
        return self._trip(
            *(Statement(name, sql, {}) for sql in statements),
            self.statement("schema_applied", number=number, name=name, oldest=oldest),
        )

    @abstractmethod
    def shipped(self) -> Sequence[str]:
        """What all migrations create, as the lines that `catalog_lines` would read."""

    # Rows as they are stored

    def only(self, thread_id: str) -> Range:
        """Return the range with one thread."""
        stored = self.stored_thread(thread_id)
        return Range(stored, right_above(stored))

    def export_rows(self, thread_id: str, pages: Sequence[tuple[str, Mapping[str, Any]]], limit: int) -> RoundTrip:
        """Read pages of a thread's rows, each of a kind after a key: the thread, the key, and the other columns.

        `operations/rows.py` has the columns.
        """
        params = {"thread_id": thread_id, "limit": limit}
        return self._trip(*(self.statement(f"export_{kind}s", **after, **params) for kind, after in pages))

    def import_rows(self, thread_id: str, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> RoundTrip:
        """Store rows of a thread, each with its kind, unless a row with the same key exists."""
        imports = [self.statement(f"import_{kind}s", **row, thread_id=thread_id) for kind, row in rows]
        return self._trip(*imports, self.statement("arm_thread", thread_id=thread_id))

    def stored_rows(self, kind: str, after: Mapping[str, Any], limit: int) -> RoundTrip:
        """Read a page of the rows of all threads, of a kind after a key: the thread, the key, and the other columns.

        A page does not go on from one of the `ranges` to the next.
        """
        top = self.ranges_after(after["thread_id"])[0].top
        return self._trip(self.statement(f"stored_{kind}s", **after, top=top, limit=limit))


@lru_cache(maxsize=256)  # A graph has the same few lists of channels in all of its steps.
def names_text(array: Callable[[tuple[str, ...]], str], names: tuple[str, ...]) -> str:
    """Return a list of names as a parameter, which `array` makes."""
    found = array(names)
    if len(found) > LONG_NAMES:
        names_text.cache_clear()
    return found


def _filter_text(page: Page) -> str:
    return json.dumps(page.filter) if page.filter else "[]"
