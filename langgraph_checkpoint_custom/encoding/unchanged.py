"""Finds out whether objects are unchanged, without encoding them completely.

Must not know: serializers, SQL.

A node may change an object in place and return it. So identity proves nothing, except for objects that cannot be
changed. A message is unchanged if each field still holds the same object, and if the dicts and lists in its fields have
the same content. These are usually small, such as the token counts of a model's answer or the arguments of a tool:
encoding all of them together takes a twentieth of the time of comparing them one by one. If they are large, for example
with an image inside, they are compared by the identity of everything inside. The same is done if they contain bytes,
because encoded bytes look like an encoded bytearray. For other classes, and for tuples inside, only encoding the
complete object can tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain, starmap
from operator import attrgetter, is_
from typing import Any

import ormsgpack
from ormsgpack import MsgpackEncodeError

from langgraph_checkpoint_custom.encoding.objects import may_have_bytes
from langgraph_checkpoint_custom.encoding.restored_messages import MODELS

_FIXED = frozenset({str, int, float, bool, type(None), bytes})
_CONTAINERS = frozenset({dict, list})
_EXTRA = attrgetter("__pydantic_extra__")
_END = object()
# Everything that is not plain data is an error, including what ormsgpack would encode like plain data.
_PLAIN = (
    ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
# Bytes of the encoded dicts and lists of one chunk. If they are larger, no encoded copy is kept in memory.
LARGE = 65_536


class Unchanged:
    """The recorded contents of the messages among some objects; the other objects cannot be changed.

    All messages are recorded together, because there are many.
    """

    __slots__ = ("_count", "_empty", "_encoded", "_fields", "_given", "_large", "_models", "_small")

    def __init__(
        self,
        models: Sequence[Any],
        fields: Sequence[Any],
        given: Sequence[Set[str]],
        empty: Sequence[Any],
        small: Sequence[Any],
        encoded: bytes,
        large: Sequence[tuple[Any, Sequence[Any]]],
    ) -> None:
        self._models = models
        self._fields = fields
        self._given = given
        self._count = sum(map(len, given))
        self._empty = empty
        self._small = small
        self._encoded = encoded
        self._large = large

    @staticmethod
    def hold(those: Iterable[Unchanged | None]) -> bool:
        """Whether all messages still have their recorded contents.

        A few passes over all of them take a third of the time of passes over each.
        """
        marks = [mark for mark in those if mark and mark is not _ALWAYS]
        models = list(chain.from_iterable([mark._models for mark in marks]))
        held = [model.__dict__ for model in models]
        return (
            sum(map(len, held)) == sum([len(mark._fields) for mark in marks])
            and all(map(is_, _values(held), chain.from_iterable([mark._fields for mark in marks])))
            and not any(chain.from_iterable([mark._empty for mark in marks]))
            and not any(map(_EXTRA, models))
            and sum(map(len, chain.from_iterable([mark._given for mark in marks])))
            == sum([mark._count for mark in marks])
            and _encoded(list(chain.from_iterable([mark._small for mark in marks])))
            == b"".join([mark._encoded for mark in marks])
            and all(starmap(_has, chain.from_iterable([mark._large for mark in marks])))
        )


def unchanged(objects: Sequence[Any]) -> Unchanged | None:
    """Record the contents of objects for a later check, or return None if no check is possible."""
    models = [each for each in objects if type(each) not in _FIXED]
    if not models:
        return _ALWAYS
    for model in models:
        if type(model) not in MODELS or model.__pydantic_extra__:
            return None
    fields = list(_values([model.__dict__ for model in models]))
    containers = [value for value in fields if type(value) not in _FIXED]
    if not _CONTAINERS.issuperset(map(type, containers)):
        return None
    empty = [container for container in containers if not container]
    full = [container for container in containers if container]
    encoded = _encoded(full)
    if encoded is None:
        return None
    given = [model.__pydantic_fields_set__ for model in models]
    by_encoding = len(encoded) <= LARGE  # Whether comparing the encoded form is enough.
    large = []
    if not by_encoding or may_have_bytes(encoded):
        for container in full:
            leaves: list[Any] = []
            if not _collect(container, leaves):
                return None
            large.append((container, leaves))
            by_encoding = by_encoding and bytes not in map(type, leaves)
    if by_encoding:
        return Unchanged(models, fields, given, empty, full, encoded, ())
    return Unchanged(models, fields, given, empty, (), b"", large)


def _encoded(containers: Sequence[Any]) -> bytes | None:
    """Encode dicts and lists one after the other; None if one of them contains an object."""
    try:
        data = ormsgpack.packb(containers, option=_PLAIN)
    except MsgpackEncodeError:
        return None
    return data[1 if len(containers) < 16 else 3 if len(containers) < 2**16 else 5 :]


def _values(held: Sequence[Mapping[str, Any]]) -> Iterator[Any]:
    return chain.from_iterable([fields.values() for fields in held])


def _has(container: Any, leaves: Sequence[Any]) -> bool:
    now: list[Any] = []
    return _collect(container, now) and len(now) == len(leaves) and all(map(is_, now, leaves))


def _collect(value: Any, leaves: list[Any]) -> bool:
    """Append a value and all objects inside it to `leaves`; `_END` marks where a dict or list ends.

    Returns False if the value contains an object other than plain data.
    """
    kind = type(value)
    leaves.append(value)
    if kind in _FIXED:
        return True
    if kind not in _CONTAINERS:
        return False
    for item in [*value, *value.values()] if kind is dict else value:
        if not _collect(item, leaves):
            return False
    leaves.append(_END)
    return True


# For objects of which none can be changed.
_ALWAYS = Unchanged((), (), (), (), (), b"", ())
