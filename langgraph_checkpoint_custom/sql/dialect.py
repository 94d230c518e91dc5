"""The interface of a dialect: a method for each request that is more than a statement. Two modules complete it.

Must not know: connections, results other than rows of `TupleRow`'s shape.

`postgres_dialect.py` and `sqlite_dialect.py` complete it. Most methods make one round trip, or return None if none is
needed. A method `…_form` returns a `Form`, which the saver sends without an operation. A method that both databases
have in the same way is implemented here, from the statements of the `.sql` files (see `files.py`); only lists are
written in different ways. This file has the requests of LangGraph's own methods and of claims, `thread_statements.py`
other requests about threads, and `store_statements.py` requests about all threads and the tables.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Collection, Sequence
from typing import Any

from langgraph_checkpoint_custom.encoding.encoded import Encoded
from langgraph_checkpoint_custom.engine.operation import Form, RoundTrip, Row, Statement
from langgraph_checkpoint_custom.model.keys import (
    ABOVE_KINDS,
    KIND_MARK,
    CheckpointRow,
    Key,
    Page,
    WriteRow,
    right_above,
)
from langgraph_checkpoint_custom.sql.store_statements import StoreStatements
from langgraph_checkpoint_custom.sql.thread_statements import ThreadStatements


class SqlDialect(StoreStatements, ThreadStatements):
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

    def put_on_parent_form(self, row: CheckpointRow) -> tuple[Form, tuple[Any, ...]]:
        """What stores a checkpoint that is one row, if its parent exists and is not hidden, and its parameters.

        The reply has a row if it was stored. It may be empty for another reason; `put_checkpoint` finds out.
        """
        parent = self.stored_thread(row.thread_id), row.checkpoint_ns, row.parent_id
        return self._shared.layout.put_on_parent, (*self.put_form(row)[1], *parent)

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

    def select_id_below(self, before: str, reach: int) -> RoundTrip:
        """Read the checkpoint id, of all threads, that comes after `reach` others below `before`."""
        return self.ask("select_id_below", before=before, reach=reach)

    def select_keys(self, thread_id: str, limit: int) -> RoundTrip:
        """Read the ids and namespaces of the first checkpoints of a thread, by namespace; hidden ones too."""
        return self.ask("select_keys", thread_id=thread_id, limit=limit)

    def select_namespaces(self, thread_id: str, limit: int) -> RoundTrip:
        """Read the namespaces of a thread, up to a number of them."""
        return self.ask("select_namespaces", thread_id=thread_id, limit=limit)

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

    # Deleting

    def lock_threads(self, thread_ids: Sequence[str]) -> RoundTrip | None:
        """Hold the locks of these threads alone until the transaction ends; None on SQLite, which has one writer."""
        # Always in the same order, to avoid deadlocks.
        locks = [lock for thread_id in sorted(set(thread_ids)) for lock in self._lock(thread_id)]
        return self._send(*locks) if locks else None

    def delete_thread(self, thread_id: str) -> RoundTrip:
        """Delete every row of a thread."""
        return self.ask("delete_thread", locks=self._lock(thread_id), thread_id=thread_id)

    def select_document(self, key: Key) -> RoundTrip:
        """Read the document of a checkpoint, without its blobs."""
        return self._send(self.statement("select_document", **key._asdict()))

    # Claims

    def take_claim(self, thread_id: str, token: str, owner: str, ttl_seconds: float) -> RoundTrip:
        """Claim a thread if it is free. The reply to the last statement is the token, owner and expiry of its claim."""
        names = "claim_expire", "claim_take", "claim_holder"
        params = {"thread_id": thread_id, "claim": token, "owner": owner, "ttl_seconds": ttl_seconds}
        return self.ask(*names, locks=self._lock(thread_id), **params)
