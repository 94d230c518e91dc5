"""What an operation asks of a database's SQL; `postgres.py` and `sqlite.py` answer it.

Must not know: connections, results other than rows of `TupleRow`'s shape.

Each method makes one trip. Where the text is the same for both databases but for the way a list is written, it is made
from the blocks of a `.sql` file, see `statements`. Here are the trips of LangGraph's own methods and of claims;
`thread_statements` has what else is asked of threads, `store_statements` what is asked of a whole store.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence

from langgraph_checkpoint_custom.encoding.encode import Encoded
from langgraph_checkpoint_custom.engine.operation import RoundTrip, Statement
from langgraph_checkpoint_custom.model.filter import canonical
from langgraph_checkpoint_custom.model.keys import (
    ABOVE_KINDS,
    AFTER_ALL,
    KIND_MARK,
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
    def insert_checkpoint(self, encoded: Encoded) -> RoundTrip:
        """Store a checkpoint that is one row; a row in the reply says that it was stored.

        Without one, nothing was stored, and `put_checkpoint` decides: there is such a checkpoint already or, where that
        is replaced, the parent is needed and is hidden or gone. Where such a checkpoint is replaced and no parent is
        needed, it is stored in any case, and no row says so.
        """

    @abstractmethod
    def put_checkpoint(self, encoded: Encoded, *, only_newest: bool, even_if_hidden: bool) -> RoundTrip:
        """Store a checkpoint and its blobs, unless something it needs is gone; with `store_checked` if there is such.

        The rows say what is in the way: ("value", channel) for a kept blob, ("parent", None) if the parent is needed
        and gone, ("hidden parent", None) if it is hidden, which `even_if_hidden` accepts, ("claim", None) if the claim
        that it comes with is lost, and with `only_newest` ("newer", checkpoint_id) if the parent is not the newest. If
        there are any, nothing was stored. ("optional", channel) is in nobody's way: a kept blob that need not be there
        is, which `store_checked` is to be told.
        """

    @abstractmethod
    def store_checked(self, encoded: Encoded, optional: Collection[str]) -> RoundTrip | None:
        """What is left to do after a `put_checkpoint` that found nothing in the way; None if that has stored it."""

    @abstractmethod
    def insert_writes(self, key: Key, rows: Sequence[WriteRow], claim: str | None) -> RoundTrip:
        """Store writes: a regular one keeps the first value for its place, a special one (`idx` < 0) the last.

        With a claim, the last statement has a row if that is lost, and nothing was stored.
        """

    # Reading

    def select_newest_id(self, key: Key) -> RoundTrip:
        """The id of the newest checkpoint of a namespace."""
        return self._send(self.statement("select_newest_id", thread_id=key.thread_id, checkpoint_ns=key.checkpoint_ns))

    def select_checkpoint(self, key: Key) -> RoundTrip:
        """The rows of one checkpoint: `TupleRow`; where its head is of the kind "more", `select_referring` has all."""
        return self.select_referring(key)

    def select_referring(self, key: Key) -> RoundTrip:
        """The rows of one checkpoint, with the values and sends that it refers to: `TupleRow`."""
        return self._send(self._read_one(key))

    def _read_one(self, key: Key) -> Statement:
        thread_id, checkpoint_ns, checkpoint_id = key
        params = {"thread_id": thread_id, "checkpoint_ns": checkpoint_ns}
        if checkpoint_id is None:
            return self._read("page_latest", params)
        return self._read("page_exact", {**params, "checkpoint_id": checkpoint_id})

    def select_page(self, page: Page) -> RoundTrip:
        """The rows of one page of a list: `TupleRow`."""
        return self._page("page", page)

    def select_records(self, page: Page) -> RoundTrip:
        """The rows of one page of a list: what a `CheckpointRecord` is made of."""
        return self._page("records", page)

    def _page(self, what: str, page: Page) -> RoundTrip:
        params = page._asdict()
        params["filter"] = json.dumps(page.filter)
        if page.thread_id is None:
            kind = "store"
            params |= {"kinds": self.stored_thread(KIND_MARK), "above_kinds": self.stored_thread(ABOVE_KINDS)}
        elif page.checkpoint_ns is None:
            kind = "thread"
        else:
            kind = "namespace"
        return self._send(self._read(f"{what}_of_{kind}", params))

    # Delta histories

    def select_delta_history(self, key: Key, channels: Sequence[str]) -> RoundTrip:
        """The ancestors of a checkpoint as far as the channels need them: `TupleRow`, see `history.lineage`."""
        return self._send(self._delta("select_delta_history", key, channels))

    def select_delta_values(self, key: Key, channels: Sequence[str]) -> RoundTrip:
        """The same with their writes and values: `HistoryRow`."""
        return self._send(self._delta("select_delta_values", key, channels))

    def _delta(self, name: str, key: Key, channels: Sequence[str]) -> Statement:
        return self._read(name, key._asdict() | {"asked": self.array(channels)})

    # Deleting and copying

    def lock_threads(self, thread_ids: Sequence[str]) -> RoundTrip | None:
        """Let nobody else store or delete in these threads until the transaction ends; None if nobody can anyway."""
        # In one order, so that no two wait for one another.
        locks = [lock for thread_id in sorted(set(thread_ids)) for lock in self._lock(thread_id)]
        return self._send(*locks) if locks else None

    def delete_thread(self, thread_id: str) -> RoundTrip:
        """Delete every row of a thread."""
        return self._round_trip("delete_thread", locks=self._lock(thread_id), thread_id=thread_id)

    def delete_all_but_newest(self, thread_id: str) -> RoundTrip:
        """Delete all but the newest checkpoint of each namespace, if nothing else stays; the last row says so."""
        return self._round_trip("delete_all_but_newest", locks=self._lock(thread_id), thread_id=thread_id)

    def delete_superseded(self, thread_id: str, keep: int) -> RoundTrip:
        """Delete what is older than the newest checkpoints of each namespace, or hide it where those still need it."""
        locks = self._lock(thread_id)
        return self._round_trip("mark_superseded", "purge", locks=locks, thread_id=thread_id, keep=keep)

    def delete_idle(self, thread_id: str, newest: str) -> RoundTrip:
        """Delete a thread, unless it has a label or a newer checkpoint than the one that was seen."""
        groups = "mark_idle", "purge", "delete_idle_writes"
        return self._round_trip(*groups, locks=self._lock(thread_id), thread_id=thread_id, newest=newest)

    def select_kept_places(self, thread_id: str) -> RoundTrip:
        """A row for each checkpoint of a thread that is not hidden: its namespace, its id, whether it has a label."""
        return self._send(self.statement("select_kept_places", thread_id=thread_id))

    def select_document(self, key: Key) -> RoundTrip:
        """The document of a checkpoint, without the values beside it."""
        return self._send(self.statement("select_document", **key._asdict()))

    def threads_of_runs(self, run_ids: Sequence[str]) -> RoundTrip:
        """The stored ids of the threads in which runs have stored something."""
        return self._send(self.statement("threads_of_runs", run_ids=self.array(run_ids)))

    def delete_runs(self, thread_id: str, run_ids: Sequence[str]) -> RoundTrip:
        """Delete the checkpoints and writes of runs in a thread, or hide the ones that a descendant still needs."""
        groups = "mark_runs", "purge", "delete_run_writes"
        locks = self._lock(thread_id)
        return self._round_trip(*groups, locks=locks, thread_id=thread_id, run_ids=self.array(run_ids))

    def copy_thread(self, source: str, target: str) -> RoundTrip:
        """Copy a thread, unless the target has checkpoints of its own; the first statement's rows are those."""
        return self._round_trip(
            "copy",
            locks=self._lock(target),
            source=source,
            target=target,
            source_json=canonical(source),
            target_json=canonical(target),
        )

    # Claims

    def take_claim(self, thread_id: str, token: str, owner: str, ttl_seconds: float) -> RoundTrip:
        """Claim a thread if it is free; the last statement's row is the token, owner and end of whoever has it."""
        locks = self._lock(thread_id)
        return self._round_trip(
            "claim", locks=locks, thread_id=thread_id, claim=token, owner=owner, ttl_seconds=ttl_seconds
        )

    def renew_claim(self, thread_id: str, token: str, ttl_seconds: float) -> RoundTrip:
        """Put off the end of a claim; no row if it is lost."""
        return self._round_trip("renew_claim", thread_id=thread_id, claim=token, ttl_seconds=ttl_seconds)

    def release_claim(self, thread_id: str, token: str) -> RoundTrip:
        """End a claim; no row if it was lost."""
        return self._round_trip("release_claim", thread_id=thread_id, claim=token)


def first_page(
    thread_id: str | None,
    checkpoint_ns: str | None,
    exact: str | None,
    before: str | None,
    filter: Mapping[str, str],
    limit: int,
) -> Page:
    """The first page of a list, of checkpoint `exact` alone if that is given."""
    ceiling = AFTER_ALL if before is None else before
    if exact is not None:
        ceiling = min(ceiling, right_above(exact))
    return Page(thread_id, checkpoint_ns, exact or "", ceiling, "", "", filter, limit)
