"""Whether objects are what they were, by looking at what they hold and not at its contents.

Must not know: serializers, SQL.

A node may change an object in place and give it back, so that it is the same object says nothing, unless it cannot be
changed. Of a message it is enough that each field still holds the same object and that its dicts and lists have the
same content. These are small as a rule, the tokens of a model's answer or the arguments of a tool: encoding all of them
at once takes a twentieth of looking at them one by one. Where they are large, with an image inside, say, it is enough
that they hold the same objects, and so on. So it is where there are bytes, which look like a bytearray when they are
encoded. For other classes, and where a tuple is inside, encoding the whole object is the only way to know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain, starmap
from operator import attrgetter, is_
from typing import Any

import ormsgpack
from ormsgpack import MsgpackEncodeError

from langgraph_checkpoint_custom.encoding.messages import MODELS
from langgraph_checkpoint_custom.encoding.objects import may_have_bytes

_FIXED = frozenset({str, int, float, bool, type(None), bytes})
_CONTAINERS = frozenset({dict, list})
_EXTRA = attrgetter("__pydantic_extra__")
_END = object()
# Whatever is not plain data is an error, and what would look like it.
_PLAIN = (
    ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
# Bytes of the dicts and lists of a part; more are not held a second time.
LARGE = 65_536


class Unchanged:
    """Objects that cannot be changed and messages, and what these held; all together, since there are many."""

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
        """Whether they hold the same now, in all of these; a few passes for all take a third of those for each."""
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
    """What to ask whether objects are unchanged, or None if nothing can tell."""
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
    is_told = len(encoded) <= LARGE  # By what they are encoded.
    large = []
    if not is_told or may_have_bytes(encoded):
        for container in full:
            leaves: list[Any] = []
            if not _collect(container, leaves):
                return None
            large.append((container, leaves))
            is_told = is_told and bytes not in map(type, leaves)
    if is_told:
        return Unchanged(models, fields, given, empty, full, encoded, ())
    return Unchanged(models, fields, given, empty, (), b"", large)


def _encoded(containers: Sequence[Any]) -> bytes | None:
    """Dicts and lists one behind another, as they are stored; None if there is an object in one."""
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
    """All objects in a value, itself included, in an order that tells what is in what; False if that is not all."""
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


# Of objects that cannot be changed.
_ALWAYS = Unchanged((), (), (), (), (), b"", ())
