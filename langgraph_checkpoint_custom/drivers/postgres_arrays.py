"""Lists of bytes as binary arrays: as text they would be twice as long, and psycopg's own way asks each for its type.

Where psycopg has connections that were made before this was registered, they use its own.
"""

from __future__ import annotations

import struct

import psycopg
from psycopg import postgres
from psycopg.adapt import Dumper
from psycopg.pq import Format

from langgraph_checkpoint_custom.model.keys import ManyBytes

_ELEMENT = postgres.types["bytea"].oid
_HEAD = struct.Struct("!iiIii").pack  # Dimensions, has it NULLs, type of an element, length, number of the first one.
_EMPTY = struct.pack("!iiI", 0, 0, _ELEMENT)
_LENGTH = struct.Struct("!i").pack


def binary_array(values: ManyBytes) -> bytes:
    """A list of bytes as an array."""
    if not values:
        return _EMPTY
    parts = [_HEAD(1, 0, _ELEMENT, len(values), 1)]
    for value in values:
        parts += _LENGTH(len(value)), value
    return b"".join(parts)


class _BytesDumper(Dumper):
    format = Format.BINARY
    oid = postgres.types["bytea"].array_oid

    def dump(self, obj: ManyBytes) -> bytes:
        return binary_array(obj)


psycopg.adapters.register_dumper(ManyBytes, _BytesDumper)
