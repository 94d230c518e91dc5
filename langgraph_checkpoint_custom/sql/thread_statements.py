"""Requests about threads beyond LangGraph's own methods: lists of threads, labels, rollback, forks, interrupts.

Must not know: connections, results.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from langgraph_checkpoint_custom.engine.operation import RoundTrip, Statement
from langgraph_checkpoint_custom.model.filter import canonical
from langgraph_checkpoint_custom.model.keys import Key, Range
from langgraph_checkpoint_custom.model.records import ThreadPage
from langgraph_checkpoint_custom.sql.searchable import index_of, with_key
from langgraph_checkpoint_custom.sql.statements import Statements

# What deletes the marked checkpoints, in this order: what a remaining checkpoint needs is hidden, the rest is deleted.
HIDE = "purge_labels", "purge_hide_needed"
REMOVE = "purge_writes", "purge_parents", "purge_blobs", "purge_checkpoints"
PURGE = *HIDE, *REMOVE
REFUSE_LABELLED = "refuse_labelled", "refuse_labelled_release"


class Fork(NamedTuple):
    """What a fork copies and where to, with the new metadata columns.

    If the caller has not `named` the checkpoint, it has to be the newest one, or the last one of the run, when it is
    copied.
    """

    source: str
    target: str
    checkpoint_id: str
    metadata: Mapping[str, Any]
    named: bool = True
    run_id: str | None = None


def fork_params(fork: Fork) -> dict[str, Any]:
    """Return the parameters of a fork's statements."""
    return {
        "thread_id": fork.source,
        "target": fork.target,
        "checkpoint_id": fork.checkpoint_id,
        "named": fork.named,
        "run_id": fork.run_id,
        "source_json": canonical(fork.source),
        "target_json": canonical(fork.target),
        **fork.metadata,
    }


class ThreadStatements(Statements):
    """The round trips about threads."""

    # Threads and runs

    def select_threads(self, page: ThreadPage) -> RoundTrip:
        """Read one page of threads: the columns of the records of their newest checkpoints."""
        params = page._asdict() | {"filter": json.dumps(page.filter)}
        return self._send(self.statement("threads_matching", **params, **self._within(self.ranges(page.prefix))))

    def select_newest_threads(self, page: ThreadPage, reach: int) -> RoundTrip:
        """Do as `select_threads` without a filter, for the threads of the `reach` newest checkpoints."""
        return self._send(self.statement("threads_newest", **page._asdict(), reach=reach))

    def select_recent_threads(self, page: ThreadPage, reach: int, keys: Iterable[str]) -> RoundTrip:
        """Do as `select_threads`, for the threads of the `reach` newest checkpoints, and as `select_searchable`.

        If there may be more checkpoints than these, the last row has no thread.
        """
        params = page._asdict() | {"filter": json.dumps(page.filter), "reach": reach}
        return self._send(self.statement("threads_recent", **params), self._searchable_indexes(keys))

    def select_searched_threads(self, page: ThreadPage, key: str, texts: Collection[str]) -> RoundTrip:
        """Do as `select_threads`, for the threads that an index finds by the values of a key."""
        return self._send(self._searched("threads_searched", key, texts, page._asdict()))

    def count_threads(self, prefix: str, filter: Sequence[Mapping[str, Any]]) -> RoundTrip:
        """Read the number of threads that match, and a row for each thread that the database cannot decide on."""
        within = self._within(self.ranges(prefix))
        return self._send(self.statement("threads_counted", filter=json.dumps(filter), **within))

    def count_searched_threads(
        self, filter: Sequence[Mapping[str, Any]], key: str, texts: Collection[str]
    ) -> RoundTrip:
        """Do as `count_threads`, for the threads that an index finds by the values of a key."""
        return self._send(self._searched("threads_searched_counted", key, texts, {"filter": filter}))

    def select_searchable(self, keys: Iterable[str]) -> RoundTrip:
        """Read a row for each key that has an index: its name, and whether this role can use it."""
        return self._send(self._searchable_indexes(keys))

    def _searchable_indexes(self, keys: Iterable[str]) -> Statement:
        return self.statement("searchable_indexes", schema=self._schema, names=self.array(list(map(index_of, keys))))

    def lock_searchable(self) -> RoundTrip:
        """Wait until no other process creates an index of a key."""
        return self._round_trip("searchable_lock")

    def make_searchable(self, key: str) -> RoundTrip:
        """Create the index of a key, and on PostgreSQL the view that it is used through.

        If there is an index already that cannot be used, it is dropped first, by the first statement.
        """
        return self._send(*(self._with_key(statement, key) for statement in self._statements("searchable_make")))

    def _with_key(self, statement: Statement, key: str) -> Statement:
        return statement._replace(sql=with_key(statement.sql, key, key.replace("%", self._percent)))

    def _searched(self, name: str, key: str, texts: Collection[str], params: dict[str, Any]) -> Statement:
        shown = self.array([*texts, "?"])
        found = self.statement(name, **params | {"filter": json.dumps(params["filter"]), "shown": shown})
        return self._with_key(found, key)

    def thread_exists(self, thread_id: str) -> RoundTrip:
        """Read a row if the thread has a checkpoint."""
        return self._round_trip("thread_exists", thread_id=thread_id)

    def select_runs(self, thread_id: str) -> RoundTrip:
        """Read a row for each run and its last checkpoint, and one for each value that shows if it is finished."""
        return self._round_trip("select_runs", thread_id=thread_id)

    # Labels, rollback, and forks

    def label_checkpoint(self, key: Key, name: str) -> RoundTrip:
        """Label a checkpoint unless the name is taken.

        The reply has the checkpoint that has the name afterwards, and the id of the one that was to get it.
        """
        return self._round_trip("label_checkpoint", locks=self._share(key.thread_id), **key._asdict(), name=name)

    def delete_label(self, thread_id: str, name: str) -> RoundTrip:
        """Delete a label; the reply is empty if it does not exist."""
        return self._round_trip("delete_label", thread_id=thread_id, name=name)

    def select_labels(self, thread_id: str) -> RoundTrip:
        """Read the labels of a thread."""
        return self._round_trip("select_labels", thread_id=thread_id)

    def delete_checkpoint(self, key: Key) -> RoundTrip:
        """Delete or hide a checkpoint.

        The first reply has rows if the checkpoint exists. The second has the labels that prevent the deletion.
        """
        names = "mark_checkpoint", *REFUSE_LABELLED, *HIDE, "delete_open_writes", *REMOVE
        return self._round_trip(*names, locks=self._lock(key.thread_id), **key._asdict())

    def delete_later(self, key: Key) -> RoundTrip:
        """Delete everything after a checkpoint; the replies are as those of `delete_checkpoint`."""
        writes = "delete_later_writes", "delete_open_writes"
        names = "mark_later", *REFUSE_LABELLED, *HIDE, *writes, *REMOVE
        return self._round_trip(*names, locks=self._lock(key.thread_id), **key._asdict())

    def select_fork_point(self, source: str, target: str, checkpoint_id: str | None, run_id: str | None) -> RoundTrip:
        """Read the metadata of the checkpoint to fork from, and of the target's newest checkpoint."""
        return self._round_trip(
            "select_fork_point", thread_id=source, target=target, checkpoint_id=checkpoint_id, run_id=run_id
        )

    def fork_thread(self, fork: Fork) -> RoundTrip:
        """Copy a checkpoint with new metadata, and what it needs, unless something prevents it; then `store_fork`.

        The first reply says what does: the target "exists", or the checkpoint is "missing". Then nothing was copied.
        """
        return self._send(*self._copies("fork_thread", fork), locks=self._lock(fork.target))

    def store_fork(self, fork: Fork) -> RoundTrip | None:
        """Store the copies after a `fork_thread` that nothing prevented; None if that has stored them already."""
        return None

    def _copies(self, name: str, fork: Fork) -> list[Statement]:
        """Copy what a fork may need, and delete what it does not need."""
        copies = self._statements(name, **fork_params(fork))
        return copies + [self.statement(each, thread_id=fork.target) for each in PURGE]

    # Interrupts

    def select_interrupts(self, ranges: Sequence[Range], limit: int) -> RoundTrip:
        """Read the newest checkpoints with a stored interrupt, and their writes, for `limit` threads in each range."""
        return self._round_trip("select_interrupts", **self._within(ranges), limit=limit)

    # The inspector

    def select_timeline(self, thread_id: str, before: str, limit: int) -> RoundTrip:
        """Read the newest checkpoints below an id, hidden ones too, and the tasks that wrote to them."""
        return self._round_trip("timeline", thread_id=thread_id, before=before, limit=limit)

    def thread_counts(self, thread_id: str, most: int) -> RoundTrip:
        """Read one row: the columns of `ThreadCounts`, counted up to `most`."""
        return self._round_trip("thread_counts", thread_id=thread_id, most=most)

    def sizes_of_checkpoint(self, key: Key) -> RoundTrip:
        """Read the lengths of all parts of a checkpoint, and of the values of its parent."""
        return self._round_trip("sizes_of_checkpoint", **key._asdict())

    def select_threads_with_label(self, name: str, after: str, limit: int) -> RoundTrip:
        """Read the stored ids of the threads above `after` that have a label of this name."""
        ranges = self._within(self.ranges())
        return self._round_trip("threads_with_label", **ranges, name=name, thread_id=after, limit=limit)
