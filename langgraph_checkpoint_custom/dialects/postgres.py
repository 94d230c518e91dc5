"""PostgreSQL's statements: lists as arrays, bulk rows as arrays of columns.

An array goes as its text. Of a put with 14 arrays that took 10 µs where psycopg's way, a dumper for each element and
one for the list, took 150; as binary arrays of our own they took nearly as long, since psycopg asks each what it is.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal

from typing_extensions import Self

from langgraph_checkpoint_custom.core.codec import Encoded
from langgraph_checkpoint_custom.core.dialect import SqlDialect
from langgraph_checkpoint_custom.core.model import CheckpointRow, Key, ManyBytes, WriteRow
from langgraph_checkpoint_custom.core.operation import Later, Merged, Row, Share, Statement, Trip
from langgraph_checkpoint_custom.core.statements import load_blocks
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.migrations import Migration, load_migrations, load_shipped

DEFAULT_SCHEMA = "langgraph_checkpoint"


# Tables with a row or more for each superstep.
_GROWING = ("checkpoints", "blobs", "writes")
# All that have a thread in their key, the first one being what the others are put beside.
_OF_THREADS = (*_GROWING, "labels", "claims")

Distribute = Literal["citus"]


def _partitioned(sql: str, partitions: int) -> list[str]:
    """A statement that makes a table, for a table in partitions by thread.

    A partition has row-level security and no policy, so a role that may read all tables sees its rows only through the
    table that it is a part of.
    """
    made = re.match(r"CREATE TABLE (.+?)\.(\w+) \(", sql)
    if made is None or made[2] not in _GROWING:
        return [sql]
    schema, table = made.groups()
    statements = [f"{sql} PARTITION BY HASH (thread_id)"]
    for number in range(partitions):
        part = f"{schema}.{table}_{number}"
        bounds = f"WITH (MODULUS {partitions}, REMAINDER {number})"
        statements += [
            f"CREATE TABLE {part} PARTITION OF {schema}.{table} FOR VALUES {bounds}",
            f"ALTER TABLE {part} ENABLE ROW LEVEL SECURITY",
        ]
    return statements


def _distributed(schema: str) -> list[str]:
    """The statements that spread the tables over Citus' workers, a thread's rows together."""

    def quoted(table: str) -> str:
        name = in_schema(f"{DEFAULT_SCHEMA}.{table}", schema)
        return "'" + name.replace("'", "''") + "'"

    first, *others = map(quoted, _OF_THREADS)
    return [
        f"SELECT create_reference_table({quoted('tenant_roles')})",
        f"SELECT create_distributed_table({first}, 'thread_id')",
        *(f"SELECT create_distributed_table({other}, 'thread_id', colocate_with => {first})" for other in others),
    ]


def in_schema(sql: str, schema: str) -> str:
    """SQL that names the tables in `langgraph_checkpoint`, for tables in another schema."""
    quoted = '"' + schema.replace('"', '""') + '"'
    return re.sub(rf"\b{DEFAULT_SCHEMA}\b", lambda _: quoted, sql)


@lru_cache(maxsize=16)  # Most processes have one schema, and to read all the text takes 5 ms.
def _texts_in(schema: str) -> tuple[Mapping[str, str], Sequence[Migration]]:
    """The statements for a schema, and its migrations."""
    escaped = schema.replace("%", "%%")  # psycopg reads a percent sign as the start of a parameter.
    blocks = {name: in_schema(body, escaped) for name, body in load_blocks("postgres.sql").items()}
    blocks["insert_checkpoint_with_blobs"] = f"{blocks.pop('insert_blobs')}\n{blocks['insert_checkpoint']}"
    blocks["erase_superseded"] = f"{blocks.pop('heads_newest')}\n{blocks['erase_superseded']}"
    heads = blocks.pop("heads_superseded")
    for name in ("doom_superseded", "doom_superseded_kept"):
        blocks[name] = f"{heads}\n{blocks[name]}"
    migrations = [
        migration._replace(statements=tuple(in_schema(sql, escaped) for sql in migration.statements))
        for migration in load_migrations("postgres")
    ]
    return MappingProxyType(blocks), migrations


class PostgresDialect(SqlDialect):
    """The statements of `postgres.sql`, in a schema."""

    system = "postgresql"
    compresses = True
    _percent = "%%"

    def __init__(self, schema: str) -> None:
        super().__init__(*_texts_in(schema), place=f"schema {schema!r}", schema=schema)

    def laid_out(self, partitions: int | None, distribute: Distribute | None) -> Self:
        """The same, making tables in partitions, or on many servers, where there are none yet."""
        if partitions is not None and not 1 <= partitions <= 1024:
            raise ConfigError(f"partitions must be from 1 to 1,024, not {partitions!r}")
        if distribute not in (None, "citus"):
            raise ConfigError(f"distribute is 'citus' or None, not {distribute!r}")
        clone = copy(self)
        first, *later = self.migrations
        statements = list(first.statements)
        if partitions is not None:
            statements = [made for sql in statements for made in _partitioned(sql, partitions)]
        if distribute:
            statements += _distributed(self._schema.replace("%", "%%"))
        clone.migrations = [first._replace(statements=tuple(statements)), *later]
        return clone

    def for_tenant(self, tenant: str) -> Self:
        """Confined by their keys, and a second time by the row-level security of the tables."""
        clone = super().for_tenant(tenant)
        clone._around = clone.statement("enter_tenant"), clone.statement("leave_tenant")
        return clone

    def shipped(self) -> Sequence[str]:
        """What is in `shipped.txt`."""
        return load_shipped("postgres")

    @staticmethod
    def array(values: Sequence[str]) -> str:
        """The text of an array."""
        return _texts(values)

    @staticmethod
    def names(value: Any) -> list[str]:
        """An array as it comes."""
        return value or []

    def schema_state(self) -> Trip:
        """As always; many who begin at once look together."""
        return _the_same_for_all(super().schema_state())

    def schema_numbers(self) -> Trip:
        """As always; many who begin at once look together."""
        return _the_same_for_all(super().schema_numbers())

    def insert_checkpoint(self, encoded: Encoded) -> Trip:
        """One statement, which is shorter where there are no blobs, or nothing has to be there already."""
        if encoded.kept or encoded.replayed:
            statement = self._later("extend_checkpoint", lambda: _with_blobs(encoded) | _kept(encoded))
        elif encoded.blobs:
            statement = self._later("insert_checkpoint_with_blobs", lambda: _with_blobs(encoded))
        else:
            statement = self._later("insert_checkpoint", lambda: _columns(encoded.row))
        row = encoded.row
        size = len(row.checkpoint) + len(row.metadata) + sum(len(blob.value) for blob in encoded.blobs)
        # In one namespace checkpoints have blobs in common, and the next one looks for its parent.
        key = row.thread_id, row.checkpoint_ns
        kind = "insert_checkpoints", self._tenant
        return self._send(statement)._replace(share=Share(kind, key, size, encoded, self._insert_checkpoints))

    def _insert_checkpoints(self, parts: Sequence[Encoded]) -> Merged:
        # In one order, so that no two groups wait for one another.
        ordered = sorted(parts, key=lambda part: part.row[:2])
        rows = [part.row for part in ordered]
        blobs = [(member, blob) for member, part in enumerate(ordered, 1) for blob in part.blobs]
        required = [[ref for ref in part.kept if ref.required] for part in ordered]
        optional = [[ref for ref in part.kept if not ref.required] for part in ordered]
        statement = self.statement(
            "insert_checkpoints",
            **self._keys([Key(*row[:3]) for row in rows]),
            parent_ids=_texts([row.parent_id for row in rows]),
            root_ids=_texts([row.root_id for row in rows]),
            run_ids=_texts([row.run_id for row in rows]),
            formats=_numbers([row.format for row in rows]),
            inline_channels=_texts([_texts(row.inline_channels) for row in rows]),
            delta_channels=_texts([_texts(row.delta_channels) for row in rows]),
            blob_channels=_texts([_texts(row.blob_channels) for row in rows]),
            blob_versions=_texts([_texts(row.blob_versions) for row in rows]),
            checkpoint_types=_texts([row.checkpoint_type for row in rows]),
            checkpoints=ManyBytes(row.checkpoint for row in rows),
            metadata_types=_texts([row.metadata_type for row in rows]),
            metadata=ManyBytes(row.metadata for row in rows),
            metadata_filters=_texts([row.metadata_filter for row in rows]),
            kept_channels=_texts(
                [
                    _texts([ref.channel for ref in refs]) if part.kept or part.replayed else None
                    for part, refs in zip(ordered, required, strict=True)
                ]
            ),
            kept_versions=_texts([_texts([ref.version for ref in refs]) for refs in required]),
            kept_begins=_texts([_texts([ref.begins for ref in refs]) for refs in required]),
            optional_channels=_texts([_texts([ref.channel for ref in refs]) for refs in optional]),
            optional_versions=_texts([_texts([ref.version for ref in refs]) for refs in optional]),
            members=_numbers([member for member, _ in blobs]),
            channels=_texts([blob.channel for _, blob in blobs]),
            versions=_texts([blob.version for _, blob in blobs]),
            types=_texts([blob.type for _, blob in blobs]),
            values=ManyBytes(blob.value for _, blob in blobs),
            parts=_texts([blob.parts for _, blob in blobs]),
        )

        def split(reply: Sequence[Any]) -> Sequence[Any]:
            stored = {tuple(row) for row in reply[0]}
            keys = ((self.stored_thread(part.row.thread_id), part.row.checkpoint_ns) for part in parts)
            return [[[[True]] if key in stored else []] for key in keys]

        return Merged(self._send(statement), split)

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

    def erase_superseded(self, thread_id: str) -> Trip:
        """One statement, if nobody else is at work on the thread."""
        return self._send(
            self.statement("erase_superseded_lock", thread_id=thread_id),
            self.statement("erase_superseded", thread_id=thread_id),
        )

    def insert_writes(self, key: Key, rows: Sequence[WriteRow], claim: str | None) -> Trip:
        """One statement for all writes."""
        statement = self._later("insert_writes", lambda: _with_writes(key, rows, claim))
        if claim is not None:
            lost = self.statement("select_lost_claim", thread_id=key.thread_id, claim=claim)
            return self._send(statement, lost)
        share = Share(
            ("insert_writes", self._tenant),
            (*key, rows[0].task_id),
            sum(len(row.value) for row in rows),
            (key, rows),
            self._insert_writes_of_many,
        )
        return self._send(statement)._replace(share=share)

    def _insert_writes_of_many(self, parts: Sequence[tuple[Key, Sequence[WriteRow]]]) -> Merged:
        # In one order, so that no two groups wait for one another.
        flat = [
            (key, row) for key, rows in sorted(parts, key=lambda part: (part[0], part[1][0].task_id)) for row in rows
        ]
        statement = self.statement(
            "insert_writes_of_many",
            **self._keys([key for key, _ in flat]),
            task_ids=_texts([row.task_id for _, row in flat]),
            idxs=_numbers([row.idx for _, row in flat]),
            task_paths=_texts([row.task_path for _, row in flat]),
            run_ids=_texts([row.run_id for _, row in flat]),
            channels=_texts([row.channel for _, row in flat]),
            types=_texts([row.type for _, row in flat]),
            values=ManyBytes(row.value for _, row in flat),
        )
        return Merged(self._send(statement), lambda _: [[[]]] * len(parts))

    def select_checkpoint(self, key: Key) -> Trip:
        """One statement, which can be one for many."""
        trip = super().select_checkpoint(key)
        kind = trip.statements[0].name, self._tenant
        return trip._replace(share=Share(kind, None, 0, key, self._select_checkpoints))

    def _select_checkpoints(self, keys: Sequence[Key]) -> Merged:
        name = "page_of_latest" if keys[0].checkpoint_id is None else "page_of_exact"

        def split(reply: Sequence[Any]) -> Sequence[Any]:
            found: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
            for row in reply[0]:
                found[row[1], row[2]].append(row)
            return [
                # A blob names no checkpoint: it may be of several.
                [[row for row in found[self.stored_thread(thread), ns] if exact is None or row[3] in (exact, None)]]
                for thread, ns, exact in keys
            ]

        return Merged(self._send(self._read(name, self._keys(list(dict.fromkeys(keys))))), split)

    def _later(self, name: str, params: Callable[[], dict[str, Any]]) -> Statement:
        return Statement(name, self._blocks[name], Later(lambda: self._confined(params())))

    def _keys(self, keys: Sequence[Key]) -> dict[str, Any]:
        """Keys as lists."""
        return {
            "thread_ids": _texts([self.stored_thread(key.thread_id) for key in keys]),
            "namespaces": _texts([key.checkpoint_ns for key in keys]),
            "checkpoint_ids": _texts([key.checkpoint_id for key in keys]),
        }


def _the_same_for_all(trip: Trip) -> Trip:
    """A read whose reply is everybody's."""

    def merge(parts: Sequence[None]) -> Merged:
        return Merged(trip, lambda reply: [reply] * len(parts))

    return trip._replace(share=Share(trip.statements[0].name, None, 0, None, merge))


def _with_writes(key: Key, rows: Sequence[WriteRow], claim: str | None) -> dict[str, Any]:
    """The writes of a task, as lists."""
    return key._asdict() | {
        "task_id": rows[0].task_id,
        "task_path": rows[0].task_path,
        "run_id": rows[0].run_id,
        "idxs": _numbers([row.idx for row in rows]),
        "channels": _texts([row.channel for row in rows]),
        "types": _texts([row.type for row in rows]),
        "values": ManyBytes(row.value for row in rows),
        "claim": claim,
    }


def _texts(texts: Sequence[Any]) -> str:
    """An array of texts, some of which may be missing."""
    if not texts:
        return "{}"
    if None in texts:
        return "{" + ",".join("NULL" if text is None else _texts([text])[1:-1] for text in texts) + "}"
    inner = '","'.join(texts)
    if "\\" in inner or inner.count('"') > 2 * len(texts) - 2:
        inner = '","'.join([text.replace("\\", r"\\").replace('"', r"\"") for text in texts])
    return f'{{"{inner}"}}'


def _numbers(numbers: Sequence[int]) -> str:
    """An array of numbers."""
    return "{" + ",".join(map(str, numbers)) + "}"


def _columns(row: CheckpointRow) -> dict[str, Any]:
    """The columns of a checkpoint."""
    return row._asdict() | {
        "inline_channels": _texts(row.inline_channels),
        "delta_channels": _texts(row.delta_channels),
        "blob_channels": _texts(row.blob_channels),
        "blob_versions": _texts(row.blob_versions),
    }


def _kept(encoded: Encoded) -> dict[str, Any]:
    """What a checkpoint refers to, as lists."""
    kept = [ref for ref in encoded.kept if ref.required]
    optional = [ref for ref in encoded.kept if not ref.required]
    return {
        "kept_channels": _texts([ref.channel for ref in kept]),
        "kept_versions": _texts([ref.version for ref in kept]),
        "kept_begins": _texts([ref.begins for ref in kept]),
        "optional_channels": _texts([ref.channel for ref in optional]),
        "optional_versions": _texts([ref.version for ref in optional]),
    }


def _with_blobs(encoded: Encoded) -> dict[str, Any]:
    """The columns of a checkpoint, and those of its new blobs as lists."""
    return _columns(encoded.row) | {
        "channels": _texts([blob.channel for blob in encoded.blobs]),
        "versions": _texts([blob.version for blob in encoded.blobs]),
        "types": _texts([blob.type for blob in encoded.blobs]),
        "values": ManyBytes(blob.value for blob in encoded.blobs),
        "parts": _texts([blob.parts for blob in encoded.blobs]),
    }
