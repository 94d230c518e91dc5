"""Inserts values that are in msgpack already into a larger value, without encoding them again.

Must not know: serializers, checkpoints.

The larger value is encoded with a number in place of each of them, and then the bytes of the numbers are replaced. The
numbers are secret and random, so nothing else in the larger value has the bytes of one.
"""

from __future__ import annotations

from collections.abc import Iterable
from secrets import randbits

_FIRST = randbits(63) | 1 << 63


def number_for(position: int) -> int:
    """Return the number to encode in place of the value that is at this position among those to insert."""
    return _FIRST - position


def inserted(encoded: bytes, values: Iterable[bytes]) -> bytes:
    """Return the larger value with all values in place of their numbers."""
    for position, value in enumerate(values):
        encoded = encoded.replace(b"\xcf" + number_for(position).to_bytes(8, "big"), value, 1)
    return encoded
