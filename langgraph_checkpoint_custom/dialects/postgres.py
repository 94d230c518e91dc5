"""PostgreSQL's statements: lists as arrays, bulk rows as arrays of columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from typing_extensions import Self

from langgraph_checkpoint_custom.core.codec import Encoded
from langgraph_checkpoint_custom.core.dialect import SqlDialect, load_blocks
from langgraph_checkpoint_custom.core.model import Key, WriteRow
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
        super().__init__(
            {name: in_schema(body, escaped) for name, body in load_blocks("postgres.sql").items()},
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
    def array(values: Sequence[Any]) -> list[Any]:
        """A list as it is."""
        return list(values)

    @staticmethod
    def names(value: Any) -> list[str]:
        """An array as it comes."""
        return value or []

    def put_checkpoint(self, encoded: Encoded, *, only_newest: bool, even_if_hidden: bool) -> Trip:
        """One statement for the checkpoint and its blobs."""
        blobs, kept = encoded.blobs, encoded.kept
        params = encoded.row._asdict() | {
            "channels": [blob.channel for blob in blobs],
            "versions": [blob.version for blob in blobs],
            "types": [blob.type for blob in blobs],
            "values": [blob.value for blob in blobs],
            "kept_channels": [ref.channel for ref in kept],
            "kept_versions": [ref.version for ref in kept],
            "kept_required": [ref.required for ref in kept],
            "needs_parent": bool(encoded.replayed),
            "needs_whole_parent": bool(encoded.replayed) and not even_if_hidden,
            "only_newest": only_newest,
            "claim": encoded.claim,
        }
        locks = [self.statement("put_lock", **params)] if only_newest else []
        return self._send(*locks, self.statement("put_checkpoint", **params))

    def insert_writes(self, key: Key, rows: Sequence[WriteRow], claim: str | None) -> Trip:
        """One statement for all writes."""
        params = key._asdict() | {
            "task_id": rows[0].task_id,
            "task_path": rows[0].task_path,
            "run_id": rows[0].run_id,
            "idxs": [row.idx for row in rows],
            "channels": [row.channel for row in rows],
            "types": [row.type for row in rows],
            "values": [row.value for row in rows],
            "claim": claim,
        }
        checks = [self.statement("select_lost_claim", **params)] if claim else []
        return self._send(self.statement("insert_writes", **params), *checks)
