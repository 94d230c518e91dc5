"""When a checkpoint was made, by its id, and which ids were made between two times.

LangGraph's ids are UUIDv6. A UUIDv7 and a ULID also begin with a time. All other ids say none.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from uuid import UUID

from langgraph_checkpoint_custom.model.keys import Range

_GREGORIAN = datetime(1582, 10, 15, tzinfo=timezone.utc)  # Time 0 of a UUIDv6.
_TO_1970 = (datetime(1970, 1, 1, tzinfo=timezone.utc) - _GREGORIAN) // timedelta(microseconds=1)
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def time_of(checkpoint_id: str) -> datetime | None:
    """Return when a checkpoint was made, if its id is a UUIDv6, a UUIDv7 or a ULID; otherwise None."""
    try:
        if len(checkpoint_id) == 26:
            milliseconds = 0
            for char in checkpoint_id[:10].upper():
                milliseconds = milliseconds * 32 + _CROCKFORD.index(char)
            return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
        number = UUID(checkpoint_id)
        if number.version == 6:
            ticks = (number.int >> 80) << 12 | (number.int >> 64) & 0xFFF
            return _GREGORIAN + timedelta(microseconds=ticks // 10)
        if number.version == 7:
            return datetime.fromtimestamp((number.int >> 80) / 1000, timezone.utc)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def ids_between(since: float, until: float) -> list[Range]:
    """Return the ranges of the ids that were made from one time to another, in seconds since 1970, the highest first.

    Some of other times, or of none, may be in them, too: `time_of` says.
    """
    begin, end = (round(seconds * 1_000_000) for seconds in (since, until))
    ranges: list[Range] = []
    kinds = (_first_uuid6, _first_ulid, lambda time: _first_ulid(time).lower(), _first_uuid7)
    for one in sorted(Range(first(begin), first(end)) for first in kinds):
        if ranges and one.bottom <= ranges[-1].top:
            ranges[-1] = Range(ranges[-1].bottom, max(ranges[-1].top, one.top))
        else:
            ranges.append(one)
    return ranges[::-1]


def _first_uuid6(microseconds: int) -> str:
    ticks = _of_bits((microseconds + _TO_1970) * 10, 60)
    return f"{ticks >> 28:08x}-{ticks >> 12 & 0xFFFF:04x}-6{ticks & 0xFFF:03x}-"


def _first_ulid(microseconds: int) -> str:
    milliseconds = _of_bits(-(-microseconds // 1_000), 48)
    return "".join(_CROCKFORD[milliseconds >> 5 * place & 31] for place in reversed(range(10)))


def _first_uuid7(microseconds: int) -> str:
    milliseconds = _of_bits(-(-microseconds // 1_000), 48)
    return f"{milliseconds >> 16:08x}-{milliseconds & 0xFFFF:04x}-7"


def _of_bits(number: int, bits: int) -> int:
    return min(max(0, number), (1 << bits) - 1)
