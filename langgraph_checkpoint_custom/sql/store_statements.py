"""Requests about all threads: the tables, their sizes and problems, and pages of rows.

Must not know: connections, results.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from langgraph_checkpoint_custom.engine.operation import RoundTrip, Statement
from langgraph_checkpoint_custom.migrations import Migration
from langgraph_checkpoint_custom.model.id_times import IdRange
from langgraph_checkpoint_custom.model.keys import TENANT_MARK, Range, right_above
from langgraph_checkpoint_custom.sql.statements import Statements


class StoreStatements(Statements):
    """The round trips about all threads and the tables."""

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

    # Sizes and problems

    def only(self, thread_id: str) -> Range:
        """Return the range with one thread."""
        stored = self.stored_thread(thread_id)
        return Range(stored, right_above(stored))

    # Retention

    def select_sweep(self) -> RoundTrip:
        """Read the cells of a `LastSweep`, if there was one."""
        return self.ask("select_sweep")

    def sweep_status(self, now: float, limit: int) -> RoundTrip:
        """Read the same, and the number of threads that are due, up to a limit, and since when."""
        return self.ask("select_sweep", "count_due", now=now, limit=limit)

    def begin_policy(self, policy: str) -> RoundTrip:
        """Store what the sweeps keep, before all threads are armed."""
        return self.ask("begin_policy", policy=policy)

    def note_armed(self, policy: str, armed_at: float, started_at: float) -> RoundTrip:
        """Store what is armed, unless the sweeps have another policy."""
        return self.ask("note_armed", policy=policy, armed_at=armed_at, started_at=started_at)

    def note_swept(self, policy: str, finished_at: float) -> RoundTrip:
        """Store that a sweep has ended; the reply is empty if the sweeps have another policy."""
        return self.ask("note_swept", policy=policy, finished_at=finished_at)

    def arm_threads(self, within: Range, threads: int, *, again: bool) -> RoundTrip:
        """Insert rows of the first threads of a range; the first reply has their number and the last of them."""
        params = {**within._asdict(), "threads": threads, "again": again}
        return self.ask("threads_counted", "arm_threads", **params)

    def thread_ids(self, within: Range, threads: int) -> RoundTrip:
        """Read the stored ids of the first threads of a range."""
        return self.ask("thread_ids", **within._asdict(), threads=threads)

    def select_due(self, now: float, after: tuple[float, str], limit: int) -> RoundTrip:
        """Read the first stored threads that are due, after a time and a thread, each with when it was due."""
        due_after, thread_id = after
        return self.ask("select_due", now=now, due_after=due_after, thread_id=thread_id, limit=limit)

    def select_grown(self, ranges: Sequence[IdRange], after: str, limit: int) -> RoundTrip:
        """Read the first checkpoint ids of each range, each with its stored thread; `after` is one of the first id."""
        statements = [self.statement("select_grown", **each._asdict(), thread_id="", limit=limit) for each in ranges]
        statements[0] = self.statement("select_grown", **ranges[0]._asdict(), thread_id=after, limit=limit)
        return self._send(*statements)

    # Moving

    def select_moves(self, store: str, after: str, limit: int) -> RoundTrip:
        """Read a page of the stored ids of moved threads. If several statements have rows, the first one counts."""
        stored = self.stored_thread(after)
        return self._send(
            *(
                self.statement("select_moves", store=store, after=stored, bottom=bottom, top=top, limit=limit)
                for bottom, top in self.ranges()
                if stored < top
            )
        )

    def select_next_threads(self, after: str, threads: int) -> RoundTrip:
        """Read the stored ids of the first threads after one; those of the first statement come first."""
        bottom = right_above(self.stored_thread(after))
        left = [each._replace(bottom=max(bottom, each.bottom)) for each in self.ranges() if bottom < each.top]
        return self.ask_each("thread_ids", map(Range._asdict, left), threads=threads)

    def select_next_tenant(self, after: str) -> RoundTrip:
        """Read the stored id of the first thread of the first tenant after one. A tenant sees only itself."""
        above = chr(ord(TENANT_MARK) + 1)
        bottom, top = (
            (self.stored_thread(""), f"{TENANT_MARK}{self.tenant}{above}") if self.tenant else (TENANT_MARK, above)
        )
        start = f"{TENANT_MARK}{after}{above}" if after else bottom
        return self.ask("thread_ids", bottom=max(start, bottom), top=top, threads=1)

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

    # Encrypting again

    def stored_rows(self, table: str, after: Mapping[str, Any], limit: int) -> RoundTrip:
        """Read the page of a table's rows after a key: the columns of the key, and then the others.

        A page does not go on from one of the `ranges` to the next.
        """
        stored = self.stored_thread(after["thread_id"])
        top = next(each.top for each in self.ranges() if stored < each.top)
        return self._send(self.statement(f"stored_{table}s", **after, top=top, limit=limit))
