"""One round trip over libpq: commands that were sent, and their results as they come.

Must not know: how to wait, our statements.

psycopg does this with generators, and polls the socket once for each command of a pipeline before it sends it. Here all
commands are sent with one system call. Together with the wait, a statement takes half of the client's CPU time.
"""

from __future__ import annotations

import select
from typing import Any

from psycopg import OperationalError, pq
from psycopg.pq.abc import PGconn, PGresult

# Without `poll`, as on Windows, psycopg sends all statements.
POLLS = hasattr(select, "poll")
READABLE: int = getattr(select, "POLLIN", 1)
WRITABLE: int = getattr(select, "POLLOUT", 4)


class Exchange:
    """The commands that are queued on a connection, up to the first or, in pipeline mode, up to the sync.

    Args:
        pgconn: The connection; it does not block.
        pipeline: Whether the connection is in pipeline mode.
    """

    def __init__(self, pgconn: PGconn, *, pipeline: bool = False) -> None:
        self._pgconn = pgconn
        self._pipeline = pipeline
        self._is_sent = False
        self.results: list[PGresult] = []
        """The results so far: one for each command and, in pipeline mode, one for the sync."""

    def advance(self) -> int:
        """Send and read as much as is possible without waiting.

        Returns:
            The events of the socket to wait for before the next call: `READABLE`, perhaps with `WRITABLE`; 0 when all
            results have come.

        Raises:
            OperationalError: The connection was lost.
        """
        pgconn, results = self._pgconn, self.results
        events = READABLE | WRITABLE if pgconn.flush() else READABLE
        if self._is_sent:
            try:
                pgconn.consume_input()
            except OperationalError:
                if any(result.status == pq.ExecStatus.FATAL_ERROR for result in results):
                    return 0  # The server has said why it closes the connection.
                raise
        self._is_sent = True
        while not pgconn.is_busy():
            result = pgconn.get_result()
            if result is not None:
                results.append(result)
                if self._pipeline and result.status == pq.ExecStatus.PIPELINE_SYNC:
                    return 0
            elif not self._pipeline:
                return 0
        return events


def is_active(pgconn: Any) -> bool:
    """Whether the server still works on what was sent."""
    return bool(pgconn.transaction_status == pq.TransactionStatus.ACTIVE)
