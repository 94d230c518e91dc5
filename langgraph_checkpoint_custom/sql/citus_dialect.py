"""The dialect of PostgreSQL with tables that Citus distributes by thread over several servers.

A statement runs on the server that has the thread if it names the thread in each place. Citus plans it with each call,
unless it reads one table or inserts rows of VALUES. It has no statement that inserts into two tables. So `put`
and `copy_thread` check first and store then, as on SQLite; the operation is one transaction.

Must not know: connections, results other than rows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import ClassVar

from langgraph_checkpoint_custom.encoding.rows import Encoded
from langgraph_checkpoint_custom.engine.operation import Form, RoundTrip, Statement
from langgraph_checkpoint_custom.migrations import load_shipped
from langgraph_checkpoint_custom.model.filter import canonical
from langgraph_checkpoint_custom.model.keys import CheckpointRow, Key, WriteRow
from langgraph_checkpoint_custom.sql.files import with_rows
from langgraph_checkpoint_custom.sql.postgres_dialect import ROW_SECURITY, PostgresDialect

# Rows of VALUES in one statement at most. A statement may have 65,535 parameters.
MANY_ROWS = 1_000

_PARAMETER = re.compile(r"%\((\w+)\)s")
_with_rows = lru_cache(maxsize=256)(with_rows)


class CitusDialect(PostgresDialect):
    """The statements of `postgres/` as `citus/` changes them."""

    layout = "citus"
    sent_for: ClassVar[Mapping[str, Sequence[str]]] = {
        **PostgresDialect.sent_for,
        "claim_sweep": (),
        "claim_take": ("claim_expire", "claim_take"),
        "label_checkpoint": ("label_insert", "label_checkpoint"),
        "schema_distribute": (
            "schema_in_order",
            "schema_share",
            "schema_distribute",
            "schema_distribute_blobs",
            "schema_distribute_writes",
            "schema_distribute_labels",
            "schema_distribute_claims",
        ),
    }

    def shipped(self) -> Sequence[str]:
        """The lines of `shipped.txt` that do not belong to row-level security."""
        lines = (line.removesuffix(", row-level security") for line in load_shipped("postgres"))
        return [line for line in lines if not ROW_SECURITY.search(line)]

    def _around(self) -> tuple[Sequence[Statement], Sequence[Statement]]:
        """There is no row-level security."""
        return (), ()

    def _make_forms(self) -> None:
        super()._make_forms()
        self.latest_form, self._latest = _by_position(self.latest_form)
        self.exact_form, self._exact = _by_position(self.exact_form)

    # Storing

    def insert_checkpoint_on_parent(self, row: CheckpointRow) -> None:
        """Return None: `put_checkpoint` finds out about the parent."""

    def store_checked(self, encoded: Encoded, optional: Collection[str]) -> RoundTrip:
        """Store the blobs and the checkpoint."""
        row = encoded.row_with(optional) if optional else encoded.row
        location = {"thread_id": row.thread_id, "checkpoint_ns": row.checkpoint_ns}
        statements = []
        for at in range(0, len(encoded.blobs), MANY_ROWS):
            some = encoded.blobs[at : at + MANY_ROWS]
            cells = {
                f"{column}{number}": cell for number, blob in enumerate(some) for column, cell in blob._asdict().items()
            }
            sql = _with_rows(self._texts["put_blobs"], len(some))
            statements.append(Statement("put_blobs", sql, self._confined({**location, **cells})))
        statements.append(self.put_form.with_params(self.put_params(row)))
        return self._send(*statements, locks=self._share(row.thread_id))

    def insert_writes(self, key: Key, rows: Sequence[WriteRow], claim: str | None) -> RoundTrip:
        """Store writes as rows of VALUES; if the claim is lost, the operation fails, which rolls them back."""
        statements = []
        for at in range(0, len(rows), MANY_ROWS):
            some = rows[at : at + MANY_ROWS]
            sql = _with_rows(self._texts["insert_few_writes"], len(some))
            statements.append(Statement("insert_few_writes", sql, self.writes_params(key, some)))
        if claim is None:
            return self._send(*statements)
        lost = self.statement("select_lost_claim", thread_id=key.thread_id, claim=claim)
        return self._send(*statements, lost, locks=self._share(key.thread_id))

    # Reading

    def read_form(self, key: Key) -> tuple[Form, tuple[str, ...]]:
        """What reads the rows of one checkpoint; the thread is a parameter in each place that needs it."""
        form, params = super().read_form(key)
        values = dict(zip(("thread_id", "checkpoint_ns", "checkpoint_id"), params, strict=False))
        return form, tuple([values[name] for name in (self._exact if len(params) == 3 else self._latest)])

    # Copies

    def copy_thread(self, source: str, target: str) -> RoundTrip:
        """Read whether the target has checkpoints or writes of its own; then `store_copy`."""
        return self._send(self._of_two("copy_thread", source, target), locks=self._locks_of(source, target))

    def store_copy(self, source: str, target: str) -> RoundTrip:
        """Store the copies."""
        return self._send(*(self._of_two(name, source, target) for name in _COPIES))

    def _of_two(self, name: str, source: str, target: str) -> Statement:
        texts = {"source_json": canonical(source), "target_json": canonical(target)}
        return self.statement(name, thread_id=source, target=target, **texts)


# What copies a thread, in this order. Of the source, rows that are stored meanwhile may be visible to the later ones.
_COPIES = "copy_thread_checkpoints", "copy_named_blobs", "copy_named_chunks", "copy_thread_writes", "copy_thread_labels"


def _by_position(form: Form) -> tuple[Form, Sequence[str]]:
    """Return a form whose parameters go by position, given one with names, and the names in their order."""
    return form._replace(sql=_PARAMETER.sub("%s", form.sql)), _PARAMETER.findall(form.sql)
