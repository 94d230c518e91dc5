"""Prints times in the local zone, or in UTC with `--utc`, and reads times. A table says the zone in its head."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime, timedelta, timezone

from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.id_times import time_of
from langgraph_checkpoint_custom.model.records import time_from

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def span(text: str) -> timedelta:
    """Return a span of time, such as "90m"."""
    if found := re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text):
        with suppress(OverflowError):
            return timedelta(seconds=float(found[1]) * _SECONDS[found[2]])
    raise ConfigError(f"{text!r} is not a time; write a number and s, m, h, d or w, such as 30d")


def moment(text: str | None) -> datetime | None:
    """Return the time that a text says: "24h" ago, a date, or a date with a time, in the local zone or with another."""
    if text is None:
        return None
    with suppress(ValueError, OverflowError):
        if text[-1:].isalpha() and not text.endswith("Z"):
            return datetime.now(timezone.utc) - span(text)
        return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone()
    raise ConfigError(f"{text!r} is not a time; write for example 24h, 2026-01-31, or 2026-01-31T18:30")


class Times:
    """Formats times, all in one zone."""

    def __init__(self, utc: bool) -> None:
        now = datetime.now(timezone.utc) if utc else datetime.now().astimezone()
        self._zone, self._year = now.tzinfo, now.year

    def head(self, name: str) -> str:
        """Return the head of a column of times."""
        return f"{name} ({self._zone})"

    def short(self, time: datetime | str | None) -> str:
        """Return a time, or that of a checkpoint's id, for a table; empty if it is not known."""
        found = time_of(time) if isinstance(time, str) else time
        if found is None:
            return ""
        local = found.astimezone(self._zone)
        return local.strftime("%m-%d %H:%M:%S" if local.year == self._year else "%Y-%m-%d %H:%M")

    def full(self, text: object) -> str:
        """Return the time of a checkpoint from what it says of itself, with the zone."""
        time = time_from(text)
        return f"{time.astimezone(self._zone):%Y-%m-%d %H:%M:%S} {self._zone}" if time else "at an unknown time"
