"""Prints times in the local zone, or in UTC with `--utc`. A table says the zone in its head."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated

import typer

from langgraph_checkpoint_custom.model.id_times import time_of
from langgraph_checkpoint_custom.model.records import time_from

Utc = Annotated[bool, typer.Option("--utc", help="print times in UTC, not in the local zone", show_default=False)]


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
