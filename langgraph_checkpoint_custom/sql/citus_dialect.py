"""The dialect of PostgreSQL with tables that Citus distributes by thread over several servers.

Citus plans a statement with each call, unless it reads one table and names the thread, or inserts rows of VALUES. A
plain statement like that took 0.3 ms of the servers' CPU time, and page_latest, which reads a checkpoint with its
writes and values, took 2. So what runs often is several plain statements. Where one depends on the rows of another,
they are parts of one round trip (`RoundTrip.parts`).

Must not know: connections, results other than rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from langgraph_checkpoint_custom.encoding.rows import Encoded
from langgraph_checkpoint_custom.engine.operation import Parts, RoundTrip, Row, Statement
from langgraph_checkpoint_custom.errors import Contention, no_list_of_names
from langgraph_checkpoint_custom.migrations import load_shipped
from langgraph_checkpoint_custom.model.filter import canonical
from langgraph_checkpoint_custom.model.keys import CheckpointRow, Key, WriteRow
from langgraph_checkpoint_custom.sql.files import with_rows
from langgraph_checkpoint_custom.sql.postgres_dialect import (
    ROW_SECURITY,
    PostgresDialect,
    columns,
)
from langgraph_checkpoint_custom.sql.thread_statements import PURGE, Fork, fork_params

# Rows of VALUES in one statement at most. A statement may have 65,535 parameters.
MANY_ROWS = 1_000
# The newest format of LangGraph's checkpoints. In older ones, pending sends are writes of the parent.
_FORMAT_WITH_SENDS = 4

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

    # Storing

    def insert_checkpoint_on_parent(self, row: CheckpointRow) -> RoundTrip:
        """Store a checkpoint that is one row, if its parent exists and is not hidden."""
        parent = self.statement("select_parent", **columns(row))

        def parts() -> Parts:
            (found,) = yield self._send(parent, locks=self._share(row.thread_id))
            if not found or found[0][0]:
                return [[]]
            yield self.insert_checkpoint(row)._replace(last=True)
            return [[(True,)]]

        return RoundTrip((), parts=parts)

    def put_checkpoint(self, encoded: Encoded, *, only_newest: bool, even_if_hidden: bool) -> RoundTrip:
        """Store a checkpoint and its blobs, after a look at the rows that it needs."""
        row = encoded.row
        locks = self._lock(row.thread_id) if only_newest else self._share(row.thread_id)
        checks: dict[str, Statement] = {}
        if encoded.claim is not None:
            checks["lost claim"] = self.statement("select_lost_claim", thread_id=row.thread_id, claim=encoded.claim)
        if encoded.replayed:
            checks["parent"] = self.statement("select_parent", **columns(row))
            checks["other"] = self.statement("select_other", **columns(row))
        if only_newest:
            checks["newest"] = self.statement("select_newest_other", **columns(row))
        if encoded.references:
            checks["blobs"] = self.statement(
                "select_blob_keys",
                thread_id=row.thread_id,
                checkpoint_ns=row.checkpoint_ns,
                channels=self.array([ref.channel for ref in encoded.references]),
                versions=self.array([ref.version for ref in encoded.references]),
                length=max(len(ref.begins) for ref in encoded.references),
            )
        if not checks:
            *blobs, checkpoint = self._stored(encoded, row)
            return self._send(checkpoint, locks=[*locks, *blobs])

        def parts() -> Parts:
            replies = yield self._send(*checks.values(), locks=locks)
            found = dict(zip(checks, replies, strict=True))
            begins = {(channel, version): start or "" for channel, version, start in found.get("blobs", ())}
            missing, optional = [], []
            for ref in encoded.references:
                start = begins.get((ref.channel, ref.version))
                if start is not None and start.startswith(ref.begins):
                    optional.append(ref.channel)
                elif ref.required:
                    missing.append(ref.channel)
            problems: list[Row] = [("value", channel) for channel in missing]
            if found.get("lost claim"):
                problems.append(("claim", None))
            if encoded.replayed:
                if not found["parent"]:
                    problems += [("parent", None)] if found["other"] else []
                elif found["parent"][0][0] and not even_if_hidden:
                    problems.append(("hidden parent", None))
            problems += [("newer", newest) for (newest,) in found.get("newest", ()) if newest != row.parent_id]
            if not problems:
                yield self._send(*self._stored(encoded, encoded.row_with(optional)))._replace(last=True)
            return [problems]

        return RoundTrip((), parts=parts)

    def _stored(self, encoded: Encoded, row: CheckpointRow) -> list[Statement]:
        """Return what stores the blobs, and as the last one what stores the checkpoint."""
        location = {"thread_id": row.thread_id, "checkpoint_ns": row.checkpoint_ns}
        blobs = self._rows_of("put_blobs", location, [blob._asdict() for blob in encoded.blobs])
        return [*blobs, self.put_form.with_params(self.put_params(row))]

    def _rows_of(self, name: str, same: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[Statement]:
        """Return the statements that insert these rows; all rows have the parameters in `same`."""
        statements = []
        for start in range(0, len(rows), MANY_ROWS):
            some = rows[start : start + MANY_ROWS]
            params = {f"{column}{number}": value for number, row in enumerate(some) for column, value in row.items()}
            sql = _with_rows(self._texts[name], len(some))
            statements.append(Statement(name, sql, self._confined({**same, **params})))
        return statements

    def insert_writes(self, key: Key, rows: Sequence[WriteRow], claim: str | None) -> RoundTrip:
        """Store writes as rows of VALUES, after a look at the claim."""
        task = key._asdict() | {name: getattr(rows[0], name) for name in ("task_id", "task_path", "run_id")}
        cells = [{"idx": row.idx, "channel": row.channel, "type": row.type, "value": row.value} for row in rows]
        stored = self._send(*self._rows_of("insert_few_writes", task, cells))
        if claim is None:
            return stored
        lost = self.statement("select_lost_claim", thread_id=key.thread_id, claim=claim)

        def parts() -> Parts:
            (is_lost,) = yield self._send(lost, locks=self._share(key.thread_id))
            if not is_lost:
                yield stored._replace(last=True)
            return [is_lost]

        return RoundTrip((), parts=parts)

    # Reading

    def select_referring(self, key: Key) -> RoundTrip:
        """Read the writes and then the checkpoint, then its blobs, then their chunks: each by a plain statement.

        In this order the writes are those of a time when nothing of the checkpoint was deleted yet, and the blobs of a
        version do not change. If a blob is missing, it was deleted meanwhile, and one statement reads all.
        """
        (whole,) = super().select_checkpoint(key).statements
        location = {"thread_id": key.thread_id, "checkpoint_ns": key.checkpoint_ns}
        if key.checkpoint_id is None:
            first = [self.statement(name, **location) for name in ("last_writes", "head_latest")]
        else:
            first = [self.statement(name, **key._asdict()) for name in ("select_writes", "head_exact")]

        def parts() -> Parts:
            writes, heads = yield RoundTrip(first)
            if not heads:
                return [[]]
            *head, format = heads[0]
            # The newest checkpoint was deleted meanwhile; or there are writes whose checkpoint is not stored yet.
            has_later_writes = any(write[3] > head[3] for write in writes)
            if has_later_writes or format < _FORMAT_WITH_SENDS:
                return (yield RoundTrip([whole]))
            rows: list[Row] = [head, *(write for write in writes if write[3] == head[3])]
            named = dict.fromkeys(zip(self.names(head[12]), self.names(head[13]), strict=True)) if head[12] else {}
            while named:  # The values, and then their chunks.
                channels, versions = (self.array(list(dict.fromkeys(each))) for each in zip(*named, strict=True))
                (found,) = yield RoundTrip(
                    [self.statement("select_blobs", **location, channels=channels, versions=versions)]
                )
                blobs = {(blob[4], blob[5]): blob for blob in found}
                if not blobs.keys() >= named.keys():
                    return (yield RoundTrip([whole]))
                rows += [blobs[name] for name in named]
                named = dict.fromkeys(
                    (channel, chunk) for channel, version in named for chunk in _chunk_names(blobs[channel, version][6])
                )
            return [rows]

        return RoundTrip([whole], parts=parts, atomic=False)

    def select_checkpoint(self, key: Key) -> RoundTrip:
        """Do as `select_referring`."""
        return self.select_referring(key)

    # Copies

    def copy_thread(self, source: str, target: str) -> RoundTrip:
        """Copy a thread, unless the target has checkpoints or writes of its own."""
        params = {
            "thread_id": source,
            "target": target,
            "source_json": canonical(source),
            "target_json": canonical(target),
        }
        check, *copies = (self.statement(name, **params) for name in ("copy_thread", *_COPIES))

        def parts() -> Parts:
            (own,) = yield self._send(check, locks=self._locks_of(source, target))
            if not own:
                yield self._send(*copies)._replace(last=True)
            return [own]

        return RoundTrip((), parts=parts)

    def fork_thread(self, fork: Fork) -> RoundTrip:
        """Copy a checkpoint with new metadata, and what it needs, unless something prevents it."""
        params = fork_params(fork)
        check = self.statement("fork_thread", **params)
        newest = self.statement("select_newest_id", thread_id=fork.source, checkpoint_ns="")
        copies = [
            *(self.statement(name, **params) for name in _FORKED),
            *(self.statement(name, thread_id=fork.target) for name in PURGE),
        ]

        def parts() -> Parts:
            refusal, before = yield self._send(check, newest, locks=self._locks_of(fork.source, fork.target))
            if refusal:
                return [refusal]
            *_, after = yield self._send(*copies, newest)
            # Only a fork of the newest checkpoint copies its writes. Each statement has looked by itself whether it is.
            if before != after and before[0][0] == fork.checkpoint_id:
                what = f"fork_thread: checkpoint {fork.checkpoint_id!r} got a successor meanwhile"
                raise Contention(what, operation="fork_thread")
            return [refusal]

        return RoundTrip((), parts=parts)

    def _locks_of(self, source: str, target: str) -> Sequence[Statement]:
        """Hold the lock of the target alone, and share that of the source: nothing is deleted while it is copied.

        There is no read snapshot of several statements that begins after the locks are held.
        """
        # In the order of `lock_threads`.
        return [
            lock
            for thread_id in sorted({source, target})
            for lock in (self._lock(thread_id) if thread_id == target else self._share(thread_id))
        ]


# What copies a thread, in this order. Of the source, rows that are stored meanwhile may be visible to the later ones.
_COPIES = "copy_thread_checkpoints", "copy_named_blobs", "copy_named_chunks", "copy_thread_writes", "copy_thread_labels"
_FORKED = "store_fork_checkpoints", "copy_named_blobs", "copy_named_chunks", "store_fork_writes"


def _chunk_names(chunks: str | None) -> list[str]:
    """Return the names of the chunks of a blob, from its column `chunks`."""
    try:
        names = json.loads(chunks or "[]")
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise no_list_of_names("get_tuple")
    return names
