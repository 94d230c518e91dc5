"""What an operation asks of threads beyond LangGraph's own methods: lists of them, labels, forks, questions to a human.

Must not know: connections, results.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from langgraph_checkpoint_custom.engine.operation import RoundTrip, Statement
from langgraph_checkpoint_custom.model.filter import canonical
from langgraph_checkpoint_custom.model.keys import Key, Range
from langgraph_checkpoint_custom.model.records import ThreadPage
from langgraph_checkpoint_custom.sql.searchable import about, index_of
from langgraph_checkpoint_custom.sql.statements import Statements

# The sweep_ blocks in two parts: what is needed is spared, and the rest goes.
SPARE = "purge_labels", "purge_spare_needed"
REMOVE = "purge_writes", "purge_parents", "purge_chunks", "purge_blobs", "purge_checkpoints"


class Fork(NamedTuple):
    """What a fork copies to where, with the columns of its metadata.

    Unless it was `named`, the checkpoint has to be the newest one, or the last of a run, when it is copied.
    """

    source: str
    target: str
    checkpoint_id: str
    metadata: Mapping[str, Any]
    named: bool = True
    run_id: str | None = None


def fork_params(fork: Fork) -> dict[str, Any]:
    """Its statements' parameters."""
    return {
        "source": fork.source,
        "target": fork.target,
        "thread_id": fork.target,
        "checkpoint_id": fork.checkpoint_id,
        "named": fork.named,
        "run_id": fork.run_id,
        "source_json": canonical(fork.source),
        "target_json": canonical(fork.target),
        **fork.metadata,
    }


class ThreadStatements(Statements):
    """The trips about threads."""

    # Threads and runs

    def select_threads(self, page: ThreadPage) -> RoundTrip:
        """The rows of one page of threads: what the records of their newest checkpoints are made of."""
        params = page._asdict() | {"filter": json.dumps(page.filter)}
        return self._send(self._read("threads_matching", params | self._within(self.ranges(page.prefix))))

    def select_newest_threads(self, page: ThreadPage, reach: int) -> RoundTrip:
        """As `select_threads` without a filter, of the threads that so many newest checkpoints are of."""
        return self._send(self.statement("threads_newest", **page._asdict(), reach=reach))

    def select_recent_threads(self, page: ThreadPage, reach: int) -> RoundTrip:
        """As `select_threads`, of the threads that so many newest checkpoints are of; and `select_searchable`.

        After the rows comes one without a thread if there are as many checkpoints.
        """
        params = page._asdict() | {"filter": json.dumps(page.filter), "reach": reach}
        return self._send(self._read("threads_recent", params), self._searchable_there(page.filter))

    def select_searched_threads(self, page: ThreadPage, key: str) -> RoundTrip:
        """As `select_threads`, of the threads that an index finds by a key of the filter."""
        return self._send(self._searched("threads_searched", key, page._asdict()))

    def count_threads(self, prefix: str, filter: Mapping[str, str]) -> RoundTrip:
        """A row with the number of threads that match, and a row for each that the database cannot decide on."""
        return self._send(
            self._read("threads_counted", {"filter": json.dumps(filter)} | self._within(self.ranges(prefix)))
        )

    def count_searched_threads(self, filter: Mapping[str, str], key: str) -> RoundTrip:
        """As `count_threads`, of the threads that an index finds by a key of the filter."""
        return self._send(self._searched("threads_searched_counted", key, {"filter": filter}))

    def select_searchable(self, keys: Iterable[str]) -> RoundTrip:
        """A row for each of the keys that has an index: its name, whether it is whole, whether this role can use it."""
        return self._send(self._searchable_there(keys))

    def _searchable_there(self, keys: Iterable[str]) -> Statement:
        return self.statement("searchable_there", schema=self._schema, names=self.array(list(map(index_of, keys))))

    def lock_searchable(self) -> RoundTrip:
        """Wait until nobody makes an index."""
        return self._round_trip("searchable_lock")

    def drop_searchable(self, key: str) -> RoundTrip:
        """Drop the index of a key."""
        return self._send(*(self._about(statement, key) for statement in self._group("searchable_drop")))

    def make_searchable(self, key: str) -> RoundTrip:
        """Make the index of a key, unless it is there, and what has to be there to use it."""
        return self._send(*(self._about(statement, key) for statement in self._group("searchable_make")))

    def _about(self, statement: Statement, key: str) -> Statement:
        return statement._replace(sql=about(statement.sql, key, key.replace("%", self._percent)))

    def _searched(self, name: str, key: str, params: dict[str, Any]) -> Statement:
        filter = params["filter"]
        found = self._read(name, params | {"filter": json.dumps(filter), "shown": filter[key]})
        return self._about(found, key)

    def thread_exists(self, thread_id: str) -> RoundTrip:
        """A row if there is a checkpoint."""
        return self._round_trip("thread_exists", thread_id=thread_id)

    def select_runs(self, thread_id: str) -> RoundTrip:
        """A row for each run and its last checkpoint, and one for each value of that which has to be looked at."""
        return self._round_trip("select_runs", thread_id=thread_id)

    # Labels, going back, and forks

    def label_checkpoint(self, key: Key, name: str) -> RoundTrip:
        """Label a checkpoint unless the name is taken; whose the name is then, and which checkpoint was meant."""
        return self._round_trip("label_checkpoint", locks=self._share(key.thread_id), **key._asdict(), name=name)

    def delete_label(self, thread_id: str, name: str) -> RoundTrip:
        """Delete a label; no row if there is none."""
        return self._round_trip("delete_label", thread_id=thread_id, name=name)

    def select_labels(self, thread_id: str) -> RoundTrip:
        """The labels of a thread."""
        return self._round_trip("select_labels", thread_id=thread_id)

    def delete_checkpoint(self, key: Key) -> RoundTrip:
        """Delete or hide a checkpoint; the first statement has rows if it is there, the second's are what refuses."""
        groups = "mark_checkpoint", "refuse_labelled", *SPARE, "delete_open_writes", *REMOVE
        return self._round_trip(*groups, locks=self._lock(key.thread_id), **key._asdict())

    def delete_later(self, key: Key) -> RoundTrip:
        """Delete what is behind a checkpoint; the replies are as those of `delete_checkpoint`."""
        erase = "delete_later_writes", "delete_open_writes"
        groups = "mark_later", "refuse_labelled", *SPARE, *erase, *REMOVE
        return self._round_trip(*groups, locks=self._lock(key.thread_id), **key._asdict())

    def select_fork_point(self, source: str, target: str, checkpoint_id: str | None, run_id: str | None) -> RoundTrip:
        """The metadata of the checkpoint to fork from, and of the target's newest one."""
        return self._round_trip(
            "select_fork_point", source=source, target=target, checkpoint_id=checkpoint_id, run_id=run_id
        )

    def fork_thread(self, fork: Fork) -> RoundTrip:
        """Copy a checkpoint, with other metadata, and what it needs, if nothing is in the way; `store_fork` comes next.

        The first statement's rows say what is: the target "exists", or the checkpoint is "gone"; nothing is copied.
        """
        return self._round_trip("fork_thread", *SPARE, *REMOVE, locks=self._lock(fork.target), **fork_params(fork))

    def store_fork(self, fork: Fork) -> RoundTrip | None:
        """What is left to do after a `fork_thread` that found nothing in the way; None if that has copied it."""
        return None

    # Questions to a human

    def select_interrupts(self, ranges: Sequence[Range], limit: int) -> RoundTrip:
        """The newest checkpoints with interrupts beside them, of the first threads in each range, and their writes."""
        return self._round_trip("select_interrupts", **self._within(ranges), limit=limit)

    def select_write_places(self, key: Key) -> RoundTrip:
        """Of the writes beside a checkpoint what they are ordered by: path, task and index."""
        return self._round_trip("select_write_places", **key._asdict())
