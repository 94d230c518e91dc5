"""Requests about threads beyond LangGraph's own methods: lists of threads, labels, rollback, forks, interrupts.

Must not know: connections, results.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from langgraph_checkpoint_custom.engine.operation import RoundTrip, Statement
from langgraph_checkpoint_custom.model.filter import canonical
from langgraph_checkpoint_custom.model.keys import AFTER_ALL, Key, Range, right_above
from langgraph_checkpoint_custom.model.outline import BlobPlace, Copies, Place, Removal
from langgraph_checkpoint_custom.model.records import ThreadPage
from langgraph_checkpoint_custom.sql.searchable import index_of, with_key
from langgraph_checkpoint_custom.sql.statements import Statements


class ThreadStatements(Statements):
    """The round trips about threads."""

    # Threads and runs

    def select_newest_threads(self, page: ThreadPage, reach: int) -> RoundTrip:
        """Read one page of threads: the columns of the records of their newest checkpoints.

        Only the threads of the `reach` newest checkpoints are read. If there may be more, a row without a namespace has
        the last checkpoint and its thread.
        """
        return self._send(self.statement("threads_newest", **_columns(page), reach=reach))

    def select_threads_by_id(self, page: ThreadPage, within: Range, threads: int) -> RoundTrip:
        """Do as `select_newest_threads` for the first threads of a range; the row without a namespace has the last."""
        return self._send(self.statement("threads_by_id", **_columns(page), **within._asdict(), threads=threads))

    def select_searched_threads(self, page: ThreadPage, key: str, texts: Collection[str]) -> RoundTrip:
        """Read one page of the threads that an index finds by the values of a key."""
        found = self.statement("threads_searched", **_columns(page), shown=self.array([*texts, "?"]))
        return self._send(self._with_key(found, key))

    def select_marked_threads(self, page: ThreadPage) -> RoundTrip:
        """Read a page of the threads whose newest checkpoint has an error or an interrupt, in several replies."""
        name = "threads_failed" if page.marked == "failed" else "threads_waiting"
        ranges = self.ranges(page.prefix)
        return self._send(*(self.statement(name, **_columns(page), **each._asdict()) for each in ranges))

    def select_searchable(self, keys: Iterable[str]) -> RoundTrip:
        """Read a row for each key that has an index: its name, and whether this role can use it."""
        names = self.array(list(map(index_of, keys)))
        return self._send(self.statement("searchable_indexes", names=names))

    def make_searchable(self, key: str) -> RoundTrip:
        """Create the index of a key, and on PostgreSQL the view that it is used through.

        If there is an index already that cannot be used, it is dropped first, by the first statement.
        """
        return self._send(*(self._with_key(statement, key) for statement in self._statements("searchable_make")))

    def _with_key(self, statement: Statement, key: str) -> Statement:
        return statement._replace(sql=with_key(statement.sql, key, key.replace("%", self._percent)))

    # Labels

    def label_checkpoint(self, key: Key, name: str) -> RoundTrip:
        """Label a checkpoint unless the name is taken.

        The last reply has the checkpoint that has the name afterwards, and the id of the one that was to get it.
        """
        names = "label_checkpoint", "label_holder"
        return self.ask(*names, locks=self._share(key.thread_id), **key._asdict(), name=name)

    # Deletions and forks, which are decided by an outline: model/outline.py

    def select_outline(self, thread_id: str, run_ids: Sequence[str] = ()) -> RoundTrip:
        """Hold the thread's lock alone, and read the cells of its `OutlineRow`s, and its labels.

        With runs, also read the places of the checkpoints to which they wrote.
        """
        statements = self._statements("select_outline", thread_id=thread_id)
        statements += self._statements("select_labels", thread_id=thread_id)
        if run_ids:
            statements += self._statements("select_written", thread_id=thread_id, run_ids=self.array(run_ids))
        return self._send(*statements, locks=self._lock(thread_id))

    def read_outline(self, thread_id: str) -> RoundTrip:
        """Read the outline of a thread and its labels, without a lock."""
        return self.ask("select_outline", "select_labels", thread_id=thread_id)

    def select_chunks(self, thread_id: str, blobs: Collection[BlobPlace]) -> RoundTrip:
        """Read the places of the chunks of blobs; the reply may be to several statements."""
        return self._send(*self._of_keys("select_chunks", thread_id, blobs))

    def remove(
        self,
        thread_id: str,
        removal: Removal,
        emptied: Mapping[Place, Collection[str]],
        run_ids: Sequence[str] | None,
    ) -> RoundTrip | None:
        """Change the rows of a thread as a removal says; None if nothing changes.

        If no checkpoint remains, neither does its row in `threads`. The writes of `emptied` checkpoints are deleted but
        those to some channels; with `run_ids`, those of these runs. The replies have the places of the chunks of the
        values that were deleted.
        """
        statements = [
            *self._of_keys("hide_checkpoints", thread_id, removal.hidden),
            *self._of_keys("cut_parents", thread_id, removal.cut),
            *self.delete_blobs(thread_id, removal.blobs).statements,
            *self._of_keys("delete_checkpoints", thread_id, removal.gone),
        ]
        if removal.labels:
            statements.append(self.statement("delete_labels", thread_id=thread_id, names=self.array(removal.labels)))
        runs = None if run_ids is None else self.array(run_ids)
        for (checkpoint_ns, checkpoint_id), channels in emptied.items():
            key, kept = Key(thread_id, checkpoint_ns, checkpoint_id), self.array(sorted(channels))
            statements.append(self.statement("delete_writes_but", **key._asdict(), kept=kept, run_ids=runs))
        if removal.gone and removal.empties():
            statements.append(self.statement("drop_thread", thread_id=thread_id))
        return self._send(*statements) if statements else None

    def delete_blobs(self, thread_id: str, blobs: Collection[BlobPlace]) -> RoundTrip:
        """Delete blobs; the replies have the places of their chunks."""
        return self._send(*self._of_keys("delete_blobs", thread_id, blobs))

    def delete_unused(self, thread_id: str, blobs: Collection[BlobPlace], labels: Sequence[str]) -> RoundTrip:
        """Delete blobs and labels."""
        names = self.array(labels)
        return self._send(
            *self._of_keys("delete_blobs", thread_id, blobs),
            self.statement("delete_labels", thread_id=thread_id, names=names),
        )

    def select_fork_point(self, source: str, target: str, checkpoint_id: str | None, run_id: str | None) -> RoundTrip:
        """Hold the lock of the target alone, share that of the source, and read what a fork is decided by.

        That is the cells of the source's `OutlineRow`s; and the metadata of the checkpoint to fork from, and of the
        target's newest checkpoint.
        """
        point = {"target": target, "checkpoint_id": checkpoint_id, "run_id": run_id}
        return self._select_for_new_thread(
            source, target, self.statement("select_fork_point", thread_id=source, **point)
        )

    def select_for_copy(self, source: str, target: str) -> RoundTrip:
        """Take the locks as `select_fork_point`, and read what a copy is decided by.

        That is the cells of the source's `OutlineRow`s; and the id of a checkpoint of the target that the source does
        not have, or has in another form or with other writes, if there is one.
        """
        return self._select_for_new_thread(
            source, target, self.statement("select_not_in_source", thread_id=source, target=target)
        )

    def _select_for_new_thread(self, source: str, target: str, statement: Statement) -> RoundTrip:
        # The locks are taken in the order of `lock_threads`. While that of the source is shared, nothing of it is
        # deleted.
        locks = [
            lock
            for thread_id in sorted({source, target})
            for lock in (self._lock(thread_id) if thread_id == target else self._share(thread_id))
        ]
        return self._send(self.statement("select_outline", thread_id=source), statement, locks=locks)

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

    # Retention

    def select_for_sweep(self, thread_id: str) -> RoundTrip:
        """Hold the thread's lock alone, and read its outline and labels, and its row in `threads` if it has one."""
        return self.read_for_sweep(thread_id)._replace(before=self.select_outline(thread_id).before)

    def read_for_sweep(self, thread_id: str) -> RoundTrip:
        """Read as `select_for_sweep`, without a lock."""
        return self.ask("select_outline", "select_labels", "select_arming", thread_id=thread_id)

    def select_metadata(self, key: Key) -> RoundTrip:
        """Read the metadata of a checkpoint."""
        return self.ask("select_metadata", **key._asdict())

    def rearm_thread(self, thread_id: str, due_at: float, seen: float | None) -> RoundTrip:
        """Say when a thread is due again, unless it is no more due at the time that was seen."""
        return self.ask("rearm_thread", thread_id=thread_id, due_at=due_at, seen=seen)

    def set_ttl(self, thread_id: str, ttl_seconds: float | None, strategy: str | None) -> RoundTrip:
        """Store the time to live of a thread, and read as `select_sweep`; no first row if it has no checkpoint."""
        params = {"ttl_seconds": ttl_seconds, "strategy": strategy}
        return self.ask("set_ttl", "select_sweep", locks=self._share(thread_id), thread_id=thread_id, **params)

    def drop_thread(self, thread_id: str) -> RoundTrip:
        """Delete the row of a thread in `threads`."""
        return self.ask("drop_thread", thread_id=thread_id)

    # The inspector

    def thread_counts(self, thread_id: str, most: int) -> RoundTrip:
        """Read the sizes of a thread, of `most` rows of each table; the newest row of its timeline; and its labels."""
        stored = self.stored_thread(thread_id)
        return self._send(
            self.statement("sizes", bottom=stored, top=right_above(stored), most=most),
            self.statement("timeline", thread_id=thread_id, before=AFTER_ALL, limit=1),
            self.statement("select_labels", thread_id=thread_id),
        )


def _columns(page: ThreadPage) -> dict[str, Any]:
    """Return the parameters of a page."""
    return page._asdict() | {"filter": json.dumps(page.filter)}
