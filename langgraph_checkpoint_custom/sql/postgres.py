"""PostgreSQL's statements: lists as arrays, bulk rows as arrays of columns.

An array goes as its text. Of a put with 14 arrays that took 10 µs where psycopg's way, a dumper for each element and
one for the list, took 150; as binary arrays of our own they took nearly as long, since psycopg asks each what it is.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from typing_extensions import Self

from langgraph_checkpoint_custom.encoding.encode import Encoded
from langgraph_checkpoint_custom.engine.operation import Batchable, Combined, Later, RoundTrip, Row, Statement
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.migrations import Migration, load_migrations, load_shipped
from langgraph_checkpoint_custom.model.keys import CheckpointRow, Key, ManyBytes, WriteRow
from langgraph_checkpoint_custom.sql.dialect import SqlDialect
from langgraph_checkpoint_custom.sql.statements import load_blocks

DEFAULT_SCHEMA = "langgraph_checkpoint"


# Writes of a task up to which each is a row of VALUES; a graph's node seldom has more.
FEW = 4
# Tables with a row or more for each superstep.
_GROWING = ("checkpoints", "blobs", "writes")


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


def in_schema(sql: str, schema: str) -> str:
    """SQL that names the tables in `langgraph_checkpoint`, for tables in another schema."""
    quoted = '"' + schema.replace('"', '""') + '"'
    return re.sub(rf"\b{DEFAULT_SCHEMA}\b", lambda _: quoted, sql)


@lru_cache(maxsize=16)  # Most processes have one schema, and to read all the text takes 5 ms.
def _texts_in(schema: str) -> tuple[Mapping[str, str], Sequence[Migration]]:
    """The statements for a schema, and its migrations."""
    escaped = schema.replace("%", "%%")  # psycopg reads a percent sign as the start of a parameter.
    blocks = {name: in_schema(body, escaped) for name, body in load_blocks("postgres.sql").items()}
    migrations = [
        migration._replace(statements=tuple(in_schema(sql, escaped) for sql in migration.statements))
        for migration in load_migrations("postgres")
    ]
    return MappingProxyType(blocks), migrations


class PostgresDialect(SqlDialect):
    """The statements of `postgres.sql`, in a schema."""

    system = "postgresql"
    compresses = True
    filter_contains = True
    negative_limit = 0
    replaces = False
    _percent = "%%"

    def __init__(self, schema: str) -> None:
        super().__init__(*_texts_in(schema), location=f"schema {schema!r}", schema=schema)
        self._insert_few = {size: _repeated(self._blocks["insert_few_writes"], size) for size in range(1, FEW + 1)}

    def laid_out(self, partitions: int | None) -> Self:
        """The same, making tables in partitions where there are none yet."""
        if partitions is None:
            return self
        if not 1 <= partitions <= 1024:
            raise ConfigError(f"partitions must be from 1 to 1,024, not {partitions!r}")
        clone = copy(self)
        first, *later = self.migrations
        statements = [made for sql in first.statements for made in _partitioned(sql, partitions)]
        clone.migrations = [first._replace(statements=tuple(statements)), *later]
        return clone

    def for_tenant(self, tenant: str) -> Self:
        """Confined by their keys, and a second time by the row-level security of the tables."""
        clone = super().for_tenant(tenant)
        clone._enter, clone._leave = [clone.statement("enter_tenant")], [clone.statement("leave_tenant")]
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

    def schema_state(self) -> RoundTrip:
        """As always; many who begin at once look together."""
        return _the_same_for_all(super().schema_state())

    def schema_numbers(self) -> RoundTrip:
        """As always; many who begin at once look together."""
        return _the_same_for_all(super().schema_numbers())

    def insert_checkpoint(self, encoded: Encoded) -> RoundTrip:
        """One statement, which can be one for many."""
        row = encoded.row
        statement = self._later("insert_checkpoint", lambda: _columns(row))
        batchable = Batchable(
            ("insert_checkpoints", self.tenant),
            row[:3],
            len(row.checkpoint) + len(row.metadata),
            row,
            self._insert_checkpoints,
        )
        return self._send(statement, batchable=batchable)

    def _insert_checkpoints(self, parts: Sequence[CheckpointRow]) -> Combined:
        # In one order, so that no two groups wait for one another.
        rows = sorted(parts, key=lambda row: row[:3])
        statement = self.statement(
            "insert_checkpoints",
            **self._keys([Key(*row[:3]) for row in rows]),
            parent_ids=_texts([row.parent_id for row in rows]),
            root_ids=_texts([row.root_id for row in rows]),
            run_ids=_texts([row.run_id for row in rows]),
            formats=_numbers([row.format for row in rows]),
            inline_channels=_texts([_texts(row.inline_channels) for row in rows]),
            delta_channels=_texts([_texts(row.delta_channels) for row in rows]),
            checkpoint_types=_texts([row.checkpoint_type for row in rows]),
            checkpoints=ManyBytes(row.checkpoint for row in rows),
            metadata_types=_texts([row.metadata_type for row in rows]),
            metadata=ManyBytes(row.metadata for row in rows),
            metadata_filters=_texts([row.metadata_filter for row in rows]),
        )

        def split(reply: Sequence[Any]) -> Sequence[Any]:
            stored = {tuple(row) for row in reply[0]}
            return [[[(True,)] if (self.stored_thread(row.thread_id), *row[1:3]) in stored else []] for row in parts]

        return Combined(self._send(statement, locks=[self.statement("limit_waiting")]), split)

    def put_checkpoint(self, encoded: Encoded, *, only_newest: bool, even_if_hidden: bool) -> RoundTrip:
        """One statement for the checkpoint and its blobs, behind the thread's lock."""
        thread_id = encoded.row.thread_id
        params = {
            **_columns(encoded.row),
            **_blobs(encoded),
            "needs_parent": bool(encoded.replayed),
            "needs_whole_parent": bool(encoded.replayed) and not even_if_hidden,
            "only_newest": only_newest,
            "claim": encoded.claim,
        }
        # Of two that have to be the newest, the second has to see the first.
        locks = self._lock(thread_id) if only_newest else self._share(thread_id)
        return self._send(self.statement("put_checkpoint", **params), locks=locks)

    def store_checked(self, encoded: Encoded, optional: Collection[str]) -> None:
        """Nothing: one statement checks and stores."""

    def insert_writes(self, key: Key, rows: Sequence[WriteRow], claim: str | None) -> RoundTrip:
        """One statement for all writes."""
        few = self._insert_few.get(len(rows)) if claim is None else None
        if few:
            statement = Statement("insert_few_writes", few, Later(lambda: self._confined(_few_writes(key, rows))))
        else:
            statement = self._later("insert_writes", lambda: _with_writes(key, rows, claim))
        if claim is not None:
            lost = self.statement("select_lost_claim", thread_id=key.thread_id, claim=claim)
            return self._send(statement, lost, locks=self._share(key.thread_id))
        batchable = Batchable(
            ("insert_writes", self.tenant),
            (*key, rows[0].task_id),
            sum(len(row.value) for row in rows),
            (key, rows),
            self._insert_writes_of_many,
        )
        return self._send(statement, batchable=batchable)

    def _insert_writes_of_many(self, parts: Sequence[tuple[Key, Sequence[WriteRow]]]) -> Combined:
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
        # What is there already is waited for, if it is being deleted: those that have nothing to do with it go on soon.
        limit = [self.statement("limit_waiting")]
        return Combined(self._send(statement, locks=limit), lambda _: [[[]]] * len(parts))

    def select_checkpoint(self, key: Key) -> RoundTrip:
        """One statement, which can be one for many."""
        statement = self._read_one(key)
        batchable = Batchable((statement.name, self.tenant), None, 0, key, self._select_checkpoints)
        return self._send(statement, batchable=batchable)

    def _select_checkpoints(self, keys: Sequence[Key]) -> Combined:
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

        return Combined(self._send(self._read(name, self._keys(list(dict.fromkeys(keys))))), split)

    def _later(self, name: str, params: Callable[[], dict[str, Any]]) -> Statement:
        return Statement(name, self._blocks[name], Later(lambda: self._confined(params())))

    def _keys(self, keys: Sequence[Key]) -> dict[str, Any]:
        """Keys as lists."""
        return {
            "thread_ids": _texts([self.stored_thread(key.thread_id) for key in keys]),
            "namespaces": _texts([key.checkpoint_ns for key in keys]),
            "checkpoint_ids": _texts([key.checkpoint_id for key in keys]),
        }


def _repeated(sql: str, size: int) -> str:
    """The statement for so many writes: its row, which is between VALUES and ON CONFLICT, once for each."""
    before, row, after = re.split(r"(?<=VALUES\n)(.*?)(?=\nON CONFLICT)", sql, maxsplit=1, flags=re.DOTALL)
    rows = [re.sub(r"%\((idx|channel|type|value)\)", rf"%(\g<1>{number})", row) for number in range(size)]
    return before + ",\n".join(rows) + after


def _the_same_for_all(round_trip: RoundTrip) -> RoundTrip:
    """A read whose reply is everybody's."""

    def merge(parts: Sequence[None]) -> Combined:
        return Combined(round_trip, lambda reply: [reply] * len(parts))

    return round_trip._replace(batchable=Batchable(round_trip.statements[0].name, None, 0, None, merge))


def _few_writes(key: Key, rows: Sequence[WriteRow]) -> dict[str, Any]:
    """The writes of a task, one by one."""
    first = rows[0]
    params = key._asdict() | {"task_id": first.task_id, "task_path": first.task_path, "run_id": first.run_id}
    for number, row in enumerate(rows):
        params[f"idx{number}"] = row.idx
        params[f"channel{number}"] = row.channel
        params[f"type{number}"] = row.type
        params[f"value{number}"] = row.value
    return params


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


def _blobs(encoded: Encoded) -> dict[str, Any]:
    """What a checkpoint refers to, and its new blobs, as lists."""
    return {
        "kept_channels": _texts([ref.channel for ref in encoded.kept]),
        "kept_versions": _texts([ref.version for ref in encoded.kept]),
        "kept_begins": _texts([ref.begins for ref in encoded.kept]),
        "kept_required": _texts(["t" if ref.required else "f" for ref in encoded.kept]),
        "channels": _texts([blob.channel for blob in encoded.blobs]),
        "versions": _texts([blob.version for blob in encoded.blobs]),
        "types": _texts([blob.type for blob in encoded.blobs]),
        "values": ManyBytes(blob.value for blob in encoded.blobs),
        "parts": _texts([blob.parts for blob in encoded.blobs]),
    }
