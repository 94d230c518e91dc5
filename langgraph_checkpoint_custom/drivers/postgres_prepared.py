"""Sessions: which statements are prepared in them, and which are sent without psycopg's cursors.

A prepared statement exists in one server process. A pooler such as PgBouncer lends that process to others. So
statements are prepared only in sessions that are known to be direct: the server process that answers has the id that
was reported when the connection was made. This is checked once for each connection.

In a caller's session psycopg prepares the statements, because it notices when the caller makes the server forget them
(with `DISCARD ALL`, for example). In our own sessions, the statements that a run repeats go directly to libpq. A cursor
parses the statement, looks up the type of each parameter and counts; if other code runs between two calls, these 25
functions take 110 of the 645 µs of a put, 80 of 385 for writes and 75 of 500 for a get.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple, TypeVar

from psycopg import AsyncConnection, Connection, DataError, pq
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq.abc import PGconn, PGresult

from langgraph_checkpoint_custom.drivers.postgres_arrays import binary_array
from langgraph_checkpoint_custom.drivers.postgres_exchange import POLLS, Exchange
from langgraph_checkpoint_custom.engine.operation import Parts, Row, Statement
from langgraph_checkpoint_custom.model.keys import ManyBytes

T = TypeVar("T")
Exchanges = Generator[Exchange, Sequence[PGresult], T]

# Statements that a run repeats; all others but those in MANY are planned each time.
HOT = frozenset(
    {
        "insert_checkpoint",
        "insert_checkpoint_on_parent",
        "put_checkpoint",
        "delete_all_but_newest",
        "share_thread",
        "lock_thread",
        "insert_few_writes",
        "insert_writes",
        "page_latest",
        "page_exact",
        "page_of_namespace",
        "page_of_thread",
        "select_delta_history",
        # With tables that Citus distributes:
        "head_exact",
        "head_latest",
        "last_writes",
        "put_blobs",
        "select_blob_keys",
        "select_blobs",
        "select_newest_other",
        "select_parent",
        "select_writes",
    }
)

# Statements for many calls, prepared on first use: they are sent under load, and planning takes longer than running.
MANY = frozenset({"limit_waiting", "insert_checkpoints", "insert_writes_of_many", "page_of_latest", "page_of_exact"})

# For these a generic plan may read a complete thread, unless the session is ours.
RANGES = frozenset({"page_of_namespace"})

# How often a hot statement is sent before it is prepared, which is a round trip; psycopg's default.
THRESHOLD = 5

# The SQLSTATE for a prepared statement that no longer exists. After a rollback, psycopg makes the server forget all
# statements of a session if psycopg has prepared any: those of round trips with several statements.
_FORGOTTEN = b"26000"

_PARAMETER = re.compile(r"%(?:%|\((\w+)\)([sb]))")


class Text(NamedTuple):
    """A statement as the server reads it, and the names and formats of its parameters in their order."""

    sql: bytes
    names: Sequence[str]
    formats: Sequence[int]


@lru_cache(maxsize=256)
def text_of(sql: str) -> Text:
    """Convert a statement with psycopg's named parameters for the server."""
    formats: dict[str, int] = {}

    def numbered(found: re.Match[str]) -> str:
        name, form = found.groups()
        if name is None:
            return "%"
        formats[name] = pq.Format.BINARY if form == "b" else pq.Format.TEXT
        return f"${list(formats).index(name) + 1}"

    return Text(_PARAMETER.sub(numbered, sql).encode(), list(formats), list(formats.values()))


class Process(NamedTuple):
    """A server process: its id and its start time in microseconds since 1970, which together identify it."""

    pid: int
    began: int


class Session:
    """What is known about the server process of a connection.

    Args:
        connection: The connection.
        prepares: Whether statements may be prepared in the session.
        own: Whether the session is ours alone and known to be direct.
        process: The server process, if the session is ours alone.
        citus: Whether the database has the extension Citus.
    """

    def __init__(
        self,
        connection: Connection[Any] | AsyncConnection[Any],
        *,
        prepares: bool,
        own: bool,
        process: Process | None = None,
        citus: bool = False,
    ) -> None:
        self.citus = citus
        self._prepares = prepares
        self.own = own
        self.process = process
        self._sends = own and prepares and POLLS and connection.info.encoding == "utf-8"
        self._uses: dict[str, int] = {}
        self._prepared: dict[str, bytes] = {}
        self._numbers = count()
        self._transformer = Transformer()

    def how(self, statement: Statement) -> bool | None:
        """Return psycopg's argument `prepare` for a statement; with None psycopg prepares it after some uses."""
        if not self._prepares or (statement.name in RANGES and not self.own):
            return False
        return True if statement.name in MANY else None if statement.name in HOT else False

    def sends(self, statements: Sequence[Statement]) -> bool:
        """Whether to use `round_trip`: only for statements that are sent often."""
        if not self._sends:
            return False
        often = True
        for name, sql, params in statements:
            if isinstance(params, tuple):  # psycopg sends parameters by position.
                return False
            if sql not in self._prepared and name not in MANY:
                if name not in HOT:
                    return False
                uses = self._uses[sql] = self._uses.get(sql, 0) + 1
                often = often and uses > THRESHOLD
        return often

    @property
    def own_pipelines(self) -> bool:
        """Whether to use `send_parts` for a round trip with several parts."""
        return self._sends

    def round_trip(self, pgconn: PGconn, statements: Sequence[Statement]) -> Exchanges[Sequence[Sequence[Row]]]:
        """Return the exchanges of a round trip; when all are completed, they return the rows of each statement."""
        results = yield from self._results(pgconn, statements)
        if any(result.error_field(pq.DiagnosticField.SQLSTATE) == _FORGOTTEN for result in results):
            self._prepared.clear()
            results = yield from self._results(pgconn, statements)
        for result in results:
            _checked(result)
        return [self._rows(result) for result in results]

    def _results(self, pgconn: PGconn, statements: Sequence[Statement]) -> Exchanges[Sequence[PGresult]]:
        queries = []
        for statement in statements:
            text, names, formats = text_of(statement.sql)
            prepared = self._prepared.get(statement.sql)
            if prepared is None:
                # Never reuse a number: a cancelled call may have prepared that name.
                prepared = b"langgraph_%d" % next(self._numbers)
                pgconn.send_prepare(prepared, text)
                _checked((yield Exchange(pgconn))[-1])
                self._prepared[statement.sql] = prepared
            queries.append((prepared, _dumped(statement.values(), names), formats))
        if len(queries) > 1:
            return (yield from _in_transaction(pgconn, queries))
        for prepared, parameters, formats in queries:
            pgconn.send_query_prepared(prepared, parameters, formats, result_format=pq.Format.BINARY)
        return (yield Exchange(pgconn))[-1:]

    def send_parts(self, pgconn: PGconn, parts: Callable[[], Parts], atomic: bool) -> Exchanges[Sequence[Any]]:
        """Return the exchanges of several parts, one for each; after the last one they return the reply.

        An interrupt leaves the connection in pipeline mode; the caller then has to close it.
        """
        reply: Sequence[Any] | None = None
        is_open = False
        pgconn.enter_pipeline_mode()
        with closing(parts()) as steps:
            while True:
                try:
                    part = next(steps) if reply is None else steps.send(reply)
                except StopIteration as done:
                    if is_open:
                        yield from self._part(pgconn, [], begin=False, commit=True)
                    pgconn.exit_pipeline_mode()
                    whole: Sequence[Any] = done.value
                    return whole
                except BaseException:
                    pgconn.exit_pipeline_mode()
                    yield from _ended(pgconn)
                    raise
                begin, commit = atomic and not is_open, atomic and part.last
                results = yield from self._part(pgconn, part.sent(), begin=begin, commit=commit)
                if results is None:  # A prepared statement no longer exists.
                    self._prepared.clear()
                    break
                is_open = atomic and not commit
                reply = part.reply([self._rows(result) for result in results])
        return (yield from self.send_parts(pgconn, parts, atomic))

    def _part(
        self, pgconn: PGconn, statements: Sequence[Statement], *, begin: bool, commit: bool
    ) -> Exchanges[Sequence[PGresult] | None]:
        """Send the statements of a part together; returns their results, or None if one is no longer prepared.

        After an error, the transaction is rolled back and the connection is not in pipeline mode.
        """
        if begin:
            pgconn.send_query_params(b"BEGIN", None)
        count = int(begin)
        answers_to: list[int] = []
        added: dict[str, bytes] = {}
        for statement in statements:
            name, sql, _ = statement
            text, names, formats = text_of(sql)
            values = _dumped(statement.values(), names)
            prepared = self._prepared.get(sql) or added.get(sql)
            if prepared is None and self._is_often(name, sql):
                prepared = added[sql] = b"langgraph_%d" % next(self._numbers)
                pgconn.send_prepare(prepared, text)
                count += 1
            if prepared is None:
                pgconn.send_query_params(text, values, param_formats=formats, result_format=pq.Format.BINARY)
            else:
                pgconn.send_query_prepared(prepared, values, formats, result_format=pq.Format.BINARY)
            answers_to.append(count)
            count += 1
        if commit:
            pgconn.send_query_params(b"COMMIT", None)
        pgconn.pipeline_sync()
        answers = (yield Exchange(pgconn, pipeline=True))[:-1]
        failed = next((answer for answer in answers if answer.status == pq.ExecStatus.FATAL_ERROR), None)
        if failed is None:
            self._prepared.update(added)
            return [answers[number] for number in answers_to]
        pgconn.exit_pipeline_mode()
        yield from _ended(pgconn)
        if failed.error_field(pq.DiagnosticField.SQLSTATE) != _FORGOTTEN:
            _checked(failed)
        return None

    def _is_often(self, name: str, sql: str) -> bool:
        """Whether a statement has been sent often enough to be prepared."""
        if name not in HOT:
            return False
        uses = self._uses[sql] = self._uses.get(sql, 0) + 1
        return uses > THRESHOLD

    def _rows(self, result: PGresult) -> Sequence[Row]:
        if not result.ntuples:
            return []
        self._transformer.set_pgresult(result)
        rows = self._transformer.load_rows(0, result.ntuples, tuple)
        self._transformer.set_pgresult(None)
        return rows


def _in_transaction(
    pgconn: PGconn, queries: Sequence[tuple[bytes, Sequence[bytes | None], Sequence[int]]]
) -> Exchanges[Sequence[PGresult]]:
    """Send queries together, from BEGIN to COMMIT; returns the result of each.

    An interrupt leaves the connection in pipeline mode; the caller then has to close it.
    """
    pgconn.enter_pipeline_mode()
    pgconn.send_query_params(b"BEGIN", None)
    for prepared, parameters, formats in queries:
        pgconn.send_query_prepared(prepared, parameters, formats, result_format=pq.Format.BINARY)
    pgconn.send_query_params(b"COMMIT", None)
    pgconn.pipeline_sync()
    answers = (yield Exchange(pgconn, pipeline=True))[:-1]
    pgconn.exit_pipeline_mode()
    yield from _ended(pgconn)
    failed = next((answer for answer in answers if answer.status == pq.ExecStatus.FATAL_ERROR), None)
    # The server skips everything after a failed statement.
    return answers[1:-1] if failed is None else [failed]


def _ended(pgconn: PGconn) -> Exchanges[None]:
    """Roll back a transaction that has not ended."""
    if pgconn.transaction_status != pq.TransactionStatus.IDLE:
        pgconn.send_query_params(b"ROLLBACK", None)
        yield Exchange(pgconn)


def _checked(result: PGresult) -> None:
    """Raise psycopg's error if a statement failed."""
    if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
        raise error_from_result(result, encoding="utf-8")


def _dumped(values: Mapping[str, Any], names: Sequence[str]) -> Sequence[bytes | None]:
    """Convert parameters for libpq."""
    dumped: list[bytes | None] = []
    for name in names:
        value = values[name]
        kind = type(value)
        if kind is str:
            value = value.encode()
            if b"\0" in value:  # libpq would send only the part before it.
                raise DataError(f"{name} contains a NUL character, which PostgreSQL cannot store in a text")
        elif kind is ManyBytes:
            value = binary_array(value)
        elif kind is bool:
            value = b"t" if value else b"f"
        elif value is not None and kind is not bytes:
            assert kind is int, name
            value = b"%d" % value
        dumped.append(value)
    return dumped
