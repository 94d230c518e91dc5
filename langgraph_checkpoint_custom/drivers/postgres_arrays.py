"""Lists of bytes as binary arrays: text would be twice as long, and psycopg's own dumper looks up each value's type.

A connection that was created before this dumper was registered uses psycopg's.
"""

from __future__ import annotations

import struct

import psycopg
from psycopg import postgres
from psycopg.adapt import Dumper
from psycopg.pq import Format

from langgraph_checkpoint_custom.model.keys import ManyBytes

_ELEMENT = postgres.types["bytea"].oid
_HEAD = struct.Struct("!iiIii").pack  # Dimensions, has NULLs, element type, length, lower bound.
_EMPTY = struct.pack("!iiI", 0, 0, _ELEMENT)
_LENGTH = struct.Struct("!i").pack


def binary_array(values: ManyBytes) -> bytes:
    """Return a list of bytes as a binary array."""
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
