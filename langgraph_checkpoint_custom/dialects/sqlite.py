"""SQLite's statements: lists as JSON, bulk rows one by one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from langgraph_checkpoint_custom.core.codec import Encoded
from langgraph_checkpoint_custom.core.dialect import SqlDialect, load_blocks
from langgraph_checkpoint_custom.core.model import Key, WriteRow
from langgraph_checkpoint_custom.core.operation import Statement, Trip
from langgraph_checkpoint_custom.migrations import load_migrations

_first_value = json.JSONDecoder().raw_decode  # `json.loads` asks first what it was given.


class SqliteDialect(SqlDialect):
    """The statements of `sqlite.sql`."""

    def __init__(self, path: str) -> None:
        super().__init__(load_blocks("sqlite.sql"), load_migrations("sqlite"), place=path, schema="main")

    @staticmethod
    def array(values: Sequence[Any]) -> str:
        """A list as JSON."""
        return json.dumps(list(values), ensure_ascii=False)

    @staticmethod
    def names(value: Any) -> list[str]:
        """A list from JSON."""
        return _first_value(value)[0] if value else []

    def put_checkpoint(self, encoded: Encoded, *, only_newest: bool, even_if_hidden: bool) -> Trip:
        """Blobs, checkpoint, and what is gone."""
        row = encoded.row
        place = {"thread_id": self.stored_thread(row.thread_id), "checkpoint_ns": row.checkpoint_ns}
        kept = [*encoded.kept, *((blob.channel, blob.version, False) for blob in encoded.blobs)]
        params = row._asdict() | {
            "inline_channels": self.array(row.inline_channels),
            "delta_channels": self.array(row.delta_channels),
            "kept": self.array(kept),
            "needs_parent": bool(encoded.replayed),
            "needs_whole_parent": bool(encoded.replayed) and not even_if_hidden,
            "only_newest": only_newest,
            "claim": encoded.claim,
        }
        statements = [self.statement("put_checkpoint", **params)]
        if encoded.blobs:
            each = [place | blob._asdict() for blob in encoded.blobs]
            statements.insert(0, Statement("put_blobs", self._blocks["put_blobs"], each))
        if only_newest or encoded.claim or encoded.replayed or any(ref.required for ref in encoded.kept):
            statements.append(self.statement("put_gone", **params))
        return self._send(*statements)

    def insert_writes(self, key: Key, rows: Sequence[WriteRow], claim: str | None) -> Trip:
        """One row at a time, in one transaction."""
        place = key._asdict() | {"thread_id": self.stored_thread(key.thread_id)}
        each = [place | row._asdict() for row in rows]
        checks = [self.statement("select_lost_claim", thread_id=key.thread_id, claim=claim)] if claim else []
        return self._send(Statement("insert_writes", self._blocks["insert_writes"], each), *checks)
