"""What an operation asks of a whole store: its tables, its size and soundness, and its rows one by one.

Must not know: connections, results.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from langgraph_checkpoint_custom.engine.operation import RoundTrip, Statement
from langgraph_checkpoint_custom.migrations import Migration
from langgraph_checkpoint_custom.model.keys import AFTER_ALL, TENANT_MARK
from langgraph_checkpoint_custom.sql.statements import Statements


class StoreStatements(Statements):
    """The trips about a store."""

    # Tables

    def schema_lock(self) -> RoundTrip:
        """Wait until no other process migrates, and make others wait until the transaction ends."""
        return self._send(self.statement("schema_lock", schema=self._schema))

    def schema_state(self) -> RoundTrip:
        """One row: is the schema there, is the table of migrations, and a table that has a name of ours."""
        return self._send(self.statement("schema_state", schema=self._schema))

    def schema_numbers(self) -> RoundTrip:
        """The numbers of the migrations that were applied, a row each."""
        return self._send(self.statement("schema_numbers"))

    def schema_partitions(self) -> RoundTrip:
        """One row: the number of partitions of `checkpoints`."""
        return self._send(self.statement("schema_partitions", schema=self._schema))

    def schema_create(self, *, whole: bool) -> RoundTrip:
        """Make the table of migrations, and the schema for it if that is missing (`whole`)."""
        names = ("schema_create", "schema_create_table") if whole else ("schema_create_table",)
        return self._send(*map(self.statement, names))

    def schema_apply(self, migration: Migration) -> RoundTrip:
        """Apply a migration and note that it was."""
        return self._send(
            *(Statement(migration.name, sql, {}) for sql in migration.statements),
            self.statement("schema_applied", number=migration.number, name=migration.name),
        )

    @abstractmethod
    def shipped(self) -> Sequence[str]:
        """What all migrations together make, in the words of `catalog_lines`."""

    def catalog_lines(self) -> RoundTrip:
        """A row with a line for each thing that is there."""
        return self._send(self.statement("catalog_lines", schema=self._schema))

    def catalog_privileges(self) -> RoundTrip | None:
        """What this role may do, a row for each table and privilege; None where there is no such thing."""
        if "catalog_privileges" not in self._blocks:
            return None
        return self._send(self.statement("catalog_privileges", schema=self._schema))

    # Looking around

    def sizes_of_threads(self, thread_ids: Sequence[str]) -> RoundTrip:
        """A row for each thread: its id, visible and hidden checkpoints, writes, blobs, bytes."""
        return self._send(
            self.statement("sizes_of_threads", thread_ids=self.array(list(map(self.stored_thread, thread_ids))))
        )

    def sizes_of_thread(self, thread_id: str, limit: int) -> RoundTrip:
        """The largest namespaces of a thread, and its largest channels."""
        return self._send(
            self.statement("sizes_of_namespaces", thread_id=thread_id, limit=limit),
            self.statement("sizes_of_channels", thread_id=thread_id, limit=limit),
        )

    def sizes_of_store(self, limit: int) -> RoundTrip:
        """The tables, the largest threads, the largest channels."""
        return self._send(
            self.statement("sizes_of_tables"),
            self.statement("sizes_of_largest", limit=limit),
            self.statement("sizes_of_all_channels", limit=limit),
        )

    def doctor_page(self, table: str, after: Mapping[str, Any], limit: int) -> RoundTrip:
        """What is wrong in a page of a table behind a key, see `doctor`."""
        return self._send(self.statement(f"doctor_{table}", **after, limit=limit))

    def doctor_bloat(self) -> RoundTrip:
        """A row for each thing that has room in it: its name, what is used, what is not."""
        return self._send(self.statement("doctor_bloat", schema=self._schema))

    def repair(self, thread_id: str, keys: str, labels: str) -> RoundTrip:
        """Delete blobs and labels of a thread that are nobody's, of these; the statements' rows are those that went."""
        return self._round_trip("repair", locks=self._lock(thread_id), thread_id=thread_id, keys=keys, labels=labels)

    # Moving

    def select_places(self, thread_ids: Sequence[str]) -> RoundTrip:
        """Of each thread a row for each checkpoint: its namespace, its id, the number of its writes."""
        return self._send(*(self.statement("select_places", thread_id=thread_id) for thread_id in thread_ids))

    def select_next_thread(self, after: str) -> RoundTrip:
        """The stored id of the first thread behind one; of more than one row, the first is meant."""
        # Threads without a tenant are on both sides of those with one.
        behind = chr(ord(TENANT_MARK) + 1)
        end = f"{TENANT_MARK}{self.tenant}{behind}"
        ranges = [("", end)] if self.tenant else [("", TENANT_MARK), (behind, AFTER_ALL)]
        bottom = self.stored_thread(after)
        return self._send(
            *(
                self.statement("select_next_thread", after=bottom, bottom=low, top=high)
                for low, high in ranges
                if bottom < high
            )
        )

    def hides_tenants(self) -> RoundTrip | None:
        """Whether the tables hide the threads of tenants from whoever asks; None if they cannot."""
        if "hides_tenants" not in self._blocks or self.tenant:
            return None
        return self._send(self.statement("hides_tenants", schema=self._schema))

    def select_next_tenant(self, after: str) -> RoundTrip:
        """The stored id of the first thread of the first tenant behind one; a tenant knows of no other."""
        behind = chr(ord(TENANT_MARK) + 1)
        start = f"{TENANT_MARK}{after}{behind}" if after else TENANT_MARK
        bottom, top = TENANT_MARK, behind
        if self.tenant:
            bottom, top = self.stored_thread(""), f"{TENANT_MARK}{self.tenant}{behind}"
        return self._send(self.statement("select_next_thread", after=start, bottom=bottom, top=top))

    def export_rows(self, kind: str, thread_id: str, after: Mapping[str, Any], limit: int) -> RoundTrip:
        """A page of the rows of a thread behind a key: the columns of the key, and then the others, see `exchange`."""
        return self._send(self.statement(f"export_{kind}s", **after, thread_id=thread_id, limit=limit))

    def import_rows(self, thread_id: str, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> RoundTrip:
        """Store rows of a thread by their kinds, unless there are such."""
        return self._send(*(self.statement(f"import_{kind}s", **row, thread_id=thread_id) for kind, row in rows))

    # Storing anew

    def stored_rows(self, table: str, after: Mapping[str, Any], limit: int) -> RoundTrip:
        """A page of the rows of a table, with their keys first, behind a key."""
        return self._send(self.statement(f"stored_{table}s", **after, limit=limit))

    def renew_rows(self, table: str, changes: Sequence[Mapping[str, Any]]) -> RoundTrip:
        """Replace the values of rows, each unless it has changed."""
        return self._send(*(self.statement(f"renew_stored_{table}", **change) for change in changes))
