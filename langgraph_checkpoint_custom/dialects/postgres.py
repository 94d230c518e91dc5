"""PostgreSQL's statements: lists as arrays, bulk rows as arrays of columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from typing_extensions import Self

from langgraph_checkpoint_custom.core.codec import Encoded
from langgraph_checkpoint_custom.core.dialect import SqlDialect, load_blocks
from langgraph_checkpoint_custom.core.model import CheckpointRow, Key, ManyBytes, ManyTexts, WriteRow
from langgraph_checkpoint_custom.core.operation import Trip
from langgraph_checkpoint_custom.migrations import load_migrations

DEFAULT_SCHEMA = "langgraph_checkpoint"


def in_schema(sql: str, schema: str) -> str:
    """SQL that names the tables in `langgraph_checkpoint`, for tables in another schema."""
    quoted = '"' + schema.replace('"', '""') + '"'
    return re.sub(rf"\b{DEFAULT_SCHEMA}\b", lambda _: quoted, sql)


class PostgresDialect(SqlDialect):
    """The statements of `postgres.sql`, in a schema."""

    def __init__(self, schema: str) -> None:
        escaped = schema.replace("%", "%%")  # psycopg reads a percent sign as the start of a parameter.
        blocks = {name: in_schema(body, escaped) for name, body in load_blocks("postgres.sql").items()}
        blocks["insert_checkpoint_with_blobs"] = f"{blocks.pop('insert_blobs')}\n{blocks['insert_checkpoint']}"
        super().__init__(
            blocks,
            [
                migration._replace(statements=tuple(in_schema(sql, escaped) for sql in migration.statements))
                for migration in load_migrations("postgres")
            ],
            place=f"schema {schema!r}",
            schema=schema,
        )

    def for_tenant(self, tenant: str) -> Self:
        """Confined by their keys, and a second time by the row-level security of the tables."""
        clone = super().for_tenant(tenant)
        clone._around = clone.statement("enter_tenant"), clone.statement("leave_tenant")
        return clone

    @staticmethod
    def array(values: Sequence[str]) -> ManyTexts:
        """A list of its own kind, which the driver knows."""
        return ManyTexts(values)

    @staticmethod
    def names(value: Any) -> list[str]:
        """An array as it comes."""
        return value or []

    def insert_checkpoint(self, encoded: Encoded) -> Trip:
        """One statement, which is shorter where there are no blobs, or nothing has to be there already."""
        if encoded.kept or encoded.replayed:
            return self._send(self.statement("extend_checkpoint", **_with_blobs(encoded), **_kept(encoded)))
        if encoded.blobs:
            return self._send(self.statement("insert_checkpoint_with_blobs", **_with_blobs(encoded)))
        return self._send(self.statement("insert_checkpoint", **_columns(encoded.row)))

    def put_checkpoint(self, encoded: Encoded, *, only_newest: bool, even_if_hidden: bool) -> Trip:
        """One statement for the checkpoint and its blobs."""
        params = {
            **_with_blobs(encoded),
            **_kept(encoded),
            "needs_parent": bool(encoded.replayed),
            "needs_whole_parent": bool(encoded.replayed) and not even_if_hidden,
            "only_newest": only_newest,
            "claim": encoded.claim,
        }
        locks = [self.statement("put_lock", **params)] if only_newest else []
        return self._send(*locks, self.statement("put_checkpoint", **params))

    def store_checked(self, encoded: Encoded) -> None:
        """Nothing: one statement checks and stores."""

    def insert_writes(self, key: Key, rows: Sequence[WriteRow], claim: str | None) -> Trip:
        """One statement for all writes."""
        params = key._asdict() | {
            "task_id": rows[0].task_id,
            "task_path": rows[0].task_path,
            "run_id": rows[0].run_id,
            "idxs": [row.idx for row in rows],
            "channels": ManyTexts(row.channel for row in rows),
            "types": ManyTexts(row.type for row in rows),
            "values": ManyBytes(row.value for row in rows),
            "claim": claim,
        }
        checks = [self.statement("select_lost_claim", **params)] if claim else []
        return self._send(self.statement("insert_writes", **params), *checks)


def _columns(row: CheckpointRow) -> dict[str, Any]:
    """The columns of a checkpoint."""
    return row._asdict() | {
        "inline_channels": ManyTexts(row.inline_channels),
        "delta_channels": ManyTexts(row.delta_channels),
        "blob_channels": ManyTexts(row.blob_channels),
        "blob_versions": ManyTexts(row.blob_versions),
    }


def _kept(encoded: Encoded) -> dict[str, Any]:
    """What a checkpoint refers to, as lists."""
    kept = [ref for ref in encoded.kept if ref.required]
    optional = [ref for ref in encoded.kept if not ref.required]
    return {
        "kept_channels": ManyTexts(ref.channel for ref in kept),
        "kept_versions": ManyTexts(ref.version for ref in kept),
        "kept_begins": ManyTexts(ref.begins for ref in kept),
        "optional_channels": ManyTexts(ref.channel for ref in optional),
        "optional_versions": ManyTexts(ref.version for ref in optional),
    }


def _with_blobs(encoded: Encoded) -> dict[str, Any]:
    """The columns of a checkpoint, and those of its new blobs as lists."""
    return _columns(encoded.row) | {
        "channels": ManyTexts(blob.channel for blob in encoded.blobs),
        "versions": ManyTexts(blob.version for blob in encoded.blobs),
        "types": ManyTexts(blob.type for blob in encoded.blobs),
        "values": ManyBytes(blob.value for blob in encoded.blobs),
        "parts": [blob.parts for blob in encoded.blobs],
    }
