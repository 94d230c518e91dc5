"""How often and for how long an operation is retried.

Must not know: the clock; the caller passes the elapsed time.

The loop is `_retrying` in `drivers/postgres.py`. SQLite waits for other processes by the rules of
`drivers/sqlite_connections.py`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential back-off with jitter.

    Attributes:
        attempts: Maximum number of attempts, including the first one. The pauses between eight add up to three
            to five seconds; a small PostgreSQL server restarts in two to four.
        seconds: No attempt starts later after the beginning of the call, except the second one: the first one may have
            waited longer than this for a server that does not answer.
    """

    attempts: int = 8
    seconds: float = 30.0

    def pause(self, failed: int, elapsed: float) -> float | None:
        """Return the seconds to wait after `failed` attempts that took `elapsed` seconds, or None to give up."""
        if failed >= self.attempts or (failed > 1 and elapsed >= self.seconds):
            return None
        longest: float = min(0.05 * 2 ** (failed - 1), 2.0)
        return longest * (0.5 + random.random() / 2)
