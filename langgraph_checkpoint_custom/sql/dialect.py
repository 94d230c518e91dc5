"""The interface of a dialect: a method for each request that is more than a statement. Two modules complete it.

Must not know: connections, results other than rows of `TupleRow`'s shape.

`postgres_dialect.py` and `sqlite_dialect.py` complete it. Most methods make one round trip, or return None if none is
needed. A method `…_form` returns a `Form`, which the saver sends without an operation. A method that both databases
have in the same way is implemented here, from the statements of the `.sql` files (see `files.py`); only lists are
written in different ways. An operation asks for a plain statement by its name, with `Statements.ask`.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from langgraph_checkpoint_custom.encoding.encoded import Encoded
from langgraph_checkpoint_custom.engine.operation import Form, RoundTrip, Row, Statement
from langgraph_checkpoint_custom.migrations import Migration
from langgraph_checkpoint_custom.model.filter import canonical
from langgraph_checkpoint_custom.model.keys import (
    ABOVE_KINDS,
    KIND_MARK,
    CheckpointRow,
    Key,
    Page,
    Range,
    WriteRow,
    right_above,
)
from langgraph_checkpoint_custom.model.outline import BlobPlace, Copies, Place, Removal
from langgraph_checkpoint_custom.model.records import ThreadPage
from langgraph_checkpoint_custom.sql.searchable import index_of, with_key
from langgraph_checkpoint_custom.sql.statements import Statements


class SqlDialect(Statements):
    """The statements of one database."""

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
        return self._send(form.with_params(params), *arming)

    def _arming(self, row: CheckpointRow) -> Sequence[Statement]:
        """Return what inserts the row of a thread, if a checkpoint begins one."""
        if row.parent_id or row.checkpoint_ns:
            return ()
        return (self.statement("arm_thread", thread_id=row.thread_id),)

    @abstractmethod
    def put_on_parent_form(self, row: CheckpointRow) -> tuple[Form, tuple[Any, ...]]:
        """What stores a checkpoint that is one row, if its parent exists and is not hidden, and its parameters.

        The reply has a row if it was stored. It may be empty for another reason; `put_checkpoint` finds out.
        """

    def insert_checkpoint_on_parent(self, row: CheckpointRow) -> RoundTrip | None:
        """Store a checkpoint with `put_on_parent_form`; None with Citus, where `put_checkpoint` has to do that.

        Citus does not lock rows in a statement that inserts.
        """
        if self.layout:
            return None
        form, params = self.put_on_parent_form(row)
        return self._send(form.with_params(params))

    @abstractmethod
    def put_checkpoint(self, encoded: Encoded, *, only_newest: bool, even_if_hidden: bool) -> RoundTrip:
        """Store a checkpoint and its blobs, unless something that it needs is missing; `store_checked` completes it.

        Each row of the reply is a problem, and if there are any, nothing was stored:

        - ("value", channel): a blob that the checkpoint refers to is missing.
        - ("parent", None): the parent is needed and missing.
        - ("hidden parent", None): the parent is needed and hidden. `even_if_hidden` accepts that.
        - ("claim", None): the claim of the call is lost.
        - ("newer", checkpoint_id): the parent is not the newest checkpoint; only with `only_newest`.

        ("optional", channel) is not a problem: a blob that may be missing exists. `store_checked` needs these channels.
        """

    @abstractmethod
    def store_checked(self, encoded: Encoded, optional: Collection[str]) -> RoundTrip | None:
        """Store the checkpoint, if nothing prevents it, or nothing can; None if `put_checkpoint` stores it already."""

    def writes_form(self, rows: Sequence[WriteRow]) -> Form | None:
        """What stores these writes of one task, or None if one statement does not.

        Of regular writes with one key the first one remains, of special ones (`idx` < 0) the last.
        """
        return self._shared.layout.writes.get(len(rows))

    def writes_params(self, key: Key, rows: Sequence[WriteRow]) -> tuple[Any, ...]:
        """The parameters of `writes_form`."""
        thread_id = self.stored_thread(key.thread_id) if self.tenant else key.thread_id
        location = (thread_id, *key[1:], *rows[0][1:4])
        return tuple([cell for row in rows for cell in (*location, row.idx, row.channel, row.type, row.value)])

    @abstractmethod
    def insert_writes(self, key: Key, rows: Sequence[WriteRow], claim: str | None) -> RoundTrip:
        """Store any number of writes.

        With a claim, the reply to the last statement has a row if the claim is lost. Then nothing may be stored:
        PostgreSQL stores nothing, and on SQLite the operation fails, which rolls its transaction back.
        """

    # Reading

    def select_checkpoint(self, key: Key) -> RoundTrip:
        """Read the rows of one checkpoint: `TupleRow`. `select_rest` reads those that are left."""
        return self.ask("rows_of_latest" if key.checkpoint_id is None else "rows_of_exact", **key._asdict())

    def read_form(self, key: Key) -> tuple[Form, tuple[str, ...]]:
        """What reads the rows of one checkpoint, and its parameters."""
        thread_id, checkpoint_ns, checkpoint_id = key
        if self.tenant:
            thread_id = self.stored_thread(thread_id)
        if checkpoint_id is None:
            return self._shared.layout.latest, (thread_id, checkpoint_ns)
        return self._shared.layout.exact, (thread_id, checkpoint_ns, checkpoint_id)

    def read_rows(self, reply: Sequence[Row]) -> Sequence[Row] | None:
        """The rows of the reply to `read_form`; None if there is more of the checkpoint: on SQLite, its blobs."""
        return self.rows(reply)

    def select_page(self, page: Page) -> RoundTrip:
        """Read the rows of one page of a list: `TupleRow`. `select_rest` reads those that are left."""
        return self._page("page", page)

    def page_form(self, page: Page) -> tuple[Form, tuple[str | int, ...]]:
        """What reads the rows of a page of a namespace without a filter, and its parameters."""
        thread_id = self.stored_thread(page.thread_id or "")
        return self._shared.layout.page, (thread_id, page.checkpoint_ns or "", page.floor, page.before, page.limit)

    def select_rest(self, rows: Sequence[Row]) -> RoundTrip | None:
        """Read what is left of the checkpoints of these rows; None if they are complete."""
        return None

    def select_records(self, page: Page, *, all_kinds: bool = False) -> RoundTrip:
        """Read the rows of one page of a list: the columns of a `CheckpointRecord`.

        A page of all threads has those of other frameworks only with `all_kinds`.
        """
        return self._page("records", page, all_kinds=all_kinds)

    def _page(self, what: str, page: Page, *, all_kinds: bool = False) -> RoundTrip:
        params = page._asdict()
        params["filter"] = json.dumps(page.filter) if page.filter else "[]"
        if page.thread_id is None:
            kind = "store"
            kinds = ("", "") if all_kinds else (KIND_MARK, ABOVE_KINDS)
            params |= zip(("kinds", "above_kinds"), map(self.stored_thread, kinds), strict=True)
        elif page.checkpoint_ns is None:
            kind = "thread"
            params |= self._ranges(page.keys)
        else:
            kind = "namespace"
        return self._send(self.statement(f"{what}_of_{kind}", **params))

    def _ranges(self, keys: Sequence[tuple[str, str]]) -> dict[str, Any]:
        """Return the parameters for keys, newest first: in each namespace, those from one id to another."""
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
        return self._send(
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

    # Delta histories

    def select_delta_history(self, key: Key, channels: Sequence[str]) -> RoundTrip:
        """Read the ancestors of a checkpoint as far as the channels need them, with their writes and values.

        `HistoryRow` in `operations/delta_history.py` describes the rows.
        """
        return self.ask("select_delta_history", **key._asdict(), asked=self.array(channels))

    # Searchable keys

    def select_searched_threads(self, page: ThreadPage, key: str, texts: Collection[str]) -> RoundTrip:
        """Read one page of the threads that an index finds by the values of a key."""
        found = self.statement("threads_searched", **page.params(), shown=self.array([*texts, "?"]))
        return self._send(self._with_key(found, key))

    def select_searchable(self, keys: Iterable[str]) -> RoundTrip:
        """Read a row for each key that has an index: its name, and whether this role can use it."""
        return self.ask("searchable_indexes", names=self.array(list(map(index_of, keys))))

    def make_searchable(self, key: str) -> RoundTrip:
        """Create the index of a key, and on PostgreSQL the view that it is used through.

        If there is an index already that cannot be used, it is dropped first, by the first statement.
        """
        return self._send(*(self._with_key(statement, key) for statement in self._statements("searchable_make")))

    def _with_key(self, statement: Statement, key: str) -> Statement:
        return statement._replace(sql=with_key(statement.sql, key, key.replace("%", self._percent)))

    # Deletions and copies, which are decided by an outline: model/outline.py

    def lock_threads(self, thread_ids: Sequence[str]) -> RoundTrip | None:
        """Hold the locks of these threads alone until the transaction ends; None on SQLite, which has one writer."""
        # Always in the same order, to avoid deadlocks.
        locks = [lock for thread_id in sorted(set(thread_ids)) for lock in self._lock(thread_id)]
        return self._send(*locks) if locks else None

    def delete_thread(self, thread_id: str) -> RoundTrip:
        """Delete every row of a thread."""
        return self.ask("delete_thread", lock="alone", thread_id=thread_id)

    def remove(
        self,
        thread_id: str,
        removal: Removal,
        emptied: Mapping[Place, Collection[str]],
        run_ids: Sequence[str] | None,
    ) -> RoundTrip:
        """Change the rows of a thread as a removal says, but for its blobs.

        If no checkpoint remains, neither does its row in `threads`. The writes of `emptied` checkpoints are deleted but
        those to some channels; with `run_ids`, those of these runs.
        """
        statements = [
            *self._of_keys("hide_checkpoints", thread_id, removal.hidden),
            *self._of_keys("cut_parents", thread_id, removal.cut),
            *self._of_keys("delete_checkpoints", thread_id, removal.gone),
            *self._delete_labels(thread_id, removal.labels),
        ]
        runs = None if run_ids is None else self.array(run_ids)
        for (checkpoint_ns, checkpoint_id), channels in emptied.items():
            key, kept = Key(thread_id, checkpoint_ns, checkpoint_id), self.array(sorted(channels))
            statements.append(self.statement("delete_writes_but", **key._asdict(), kept=kept, run_ids=runs))
        if removal.gone and removal.empties():
            statements += self._statements("drop_thread", thread_id=thread_id)
        return self._send(*statements)

    def select_chunks(self, thread_id: str, blobs: Collection[BlobPlace]) -> RoundTrip:
        """Read the places of the chunks of blobs; the reply may be to several statements."""
        return self._send(*self._of_keys("select_chunks", thread_id, blobs))

    def delete_blobs(self, thread_id: str, blobs: Collection[BlobPlace]) -> RoundTrip:
        """Delete blobs; the replies have the places of their chunks."""
        return self._send(*self._of_keys("delete_blobs", thread_id, blobs))

    def delete_unused(self, thread_id: str, blobs: Collection[BlobPlace], labels: Sequence[str]) -> RoundTrip:
        """Delete blobs and labels."""
        return self._send(*self._of_keys("delete_blobs", thread_id, blobs), *self._delete_labels(thread_id, labels))

    def _delete_labels(self, thread_id: str, names: Sequence[str]) -> Sequence[Statement]:
        return [self.statement("delete_label", thread_id=thread_id, name=name) for name in names]

    def select_outlines(self, source: str, target: str) -> RoundTrip:
        """Hold the lock of the target alone, share that of the source, and read what a copy or fork is decided by.

        That is the cells of the `OutlineRow`s of both; and the id of a checkpoint of the target to which somebody wrote
        what the source does not have, if there is one.
        """
        # The locks are taken in the order of `lock_threads`. While that of the source is shared, nothing of it is
        # deleted.
        locks = [
            lock
            for thread_id in sorted({source, target})
            for lock in (self._lock(thread_id) if thread_id == target else self._share(thread_id))
        ]
        return self._send(
            self.statement("select_outline", thread_id=source),
            self.statement("select_outline", thread_id=target),
            self.statement("select_not_in_source", thread_id=source, target=target),
            locks=locks,
        )

    def store_copies(
        self,
        source: str,
        target: str,
        copies: Copies,
        blobs: Collection[BlobPlace],
        start: Mapping[str, Any] | None = None,
    ) -> RoundTrip:
        """Store copies in a thread, with these blobs. The last reply is the number of the source's checkpoints.

        For a fork, `start` has the id of the checkpoint that it starts from, and its new metadata. A copy has no
        `start`, but all labels.
        """
        params = {"target": target, "source_json": canonical(source), "target_json": canonical(target)}
        return self._send(
            *self._of_keys("copy_checkpoints", source, copies.checkpoints - copies.hidden, hidden=False, **params),
            *self._of_keys("copy_checkpoints", source, copies.hidden, hidden=True, **params),
            *self._of_keys("cut_parents", target, copies.cut),
            *self._of_keys("copy_blobs", source, blobs, target=target),
            *self._of_keys("copy_writes", source, copies.written, target=target),
            self.statement("mark_fork", thread_id=target, **start)
            if start
            else self.statement("copy_labels", thread_id=source, target=target),
            self.statement("arm_thread", thread_id=target),
            self.statement("count_checkpoints", thread_id=source),
        )

    @abstractmethod
    def _of_keys(
        self, name: str, thread_id: str, keys: Collection[tuple[str, ...]], /, **params: Any
    ) -> Sequence[Statement]:
        """Return what `sent_for` has for a name, for many keys: with two parts of checkpoints, with three of blobs."""

    # Tables

    def schema_create(self, *, with_schema: bool) -> RoundTrip:
        """Create the table of migrations and, if `with_schema`, the schema before it."""
        names = ("schema_create", "schema_create_table") if with_schema else ("schema_create_table",)
        return self._send(*map(self.statement, names))

    def schema_apply(self, migration: Migration) -> RoundTrip:
        """Apply a migration and insert its row into the table of migrations."""
        number, name, oldest, statements = migration
        return self._send(
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
        """Read pages of a thread's rows, each of a kind after a key: the columns of the key, and then the others.

        `operations/export_rows.py` has the columns.
        """
        params = {"thread_id": thread_id, "limit": limit}
        return self._send(*(self.statement(f"export_{kind}s", **after, **params) for kind, after in pages))

    def import_rows(self, thread_id: str, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> RoundTrip:
        """Store rows of a thread, each with its kind, unless a row with the same key exists."""
        imports = [self.statement(f"import_{kind}s", **row, thread_id=thread_id) for kind, row in rows]
        return self._send(*imports, self.statement("arm_thread", thread_id=thread_id))

    def stored_rows(self, table: str, after: Mapping[str, Any], limit: int) -> RoundTrip:
        """Read the page of a table's rows after a key: the columns of the key, and then the others.

        A page does not go on from one of the `ranges` to the next.
        """
        top = self.ranges_after(after["thread_id"])[0].top
        return self._send(self.statement(f"stored_{table}s", **after, top=top, limit=limit))
