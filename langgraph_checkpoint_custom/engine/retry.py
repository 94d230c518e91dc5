"""How often and how long to try again.

Must not know: the clock; whoever tries says how long it has been at it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential back-off with jitter.

    Attributes:
        attempts: How often an operation is tried at most, the first time included. Eight, whose pauses sum up to about
            six seconds: a PostgreSQL server of small size restarts in two to four.
        seconds: No new attempt but the second one is begun after this time: the first may have waited for longer, for a
            server that has fallen silent.
    """

    attempts: int = 8
    seconds: float = 30.0

    def pause(self, failed: int, elapsed: float) -> float | None:
        """Seconds to wait after `failed` attempts that took `elapsed` seconds, or None to give up."""
        if failed >= self.attempts or (failed > 1 and elapsed >= self.seconds):
            return None
        longest: float = min(0.05 * 2 ** (failed - 1), 2.0)
        return longest * (0.5 + random.random() / 2)
