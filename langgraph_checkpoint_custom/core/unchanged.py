"""Whether objects are what they were, by looking at what they hold and not at its contents.

Must not know: serializers, SQL.

A node may change an object in place and give it back, so that it is the same object says nothing, unless it cannot be
changed. Of a message it is enough that each field still holds the same object, and so on inside its dicts and lists:
that takes a tenth of encoding it. For other classes encoding is the only way to know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, starmap
from operator import attrgetter, is_
from typing import Any

from langgraph_checkpoint_custom.core.messages import MODELS

_FIXED = frozenset({str, int, float, bool, type(None), bytes})
_CONTAINERS = frozenset({dict, list, tuple})
_EXTRA = attrgetter("__pydantic_extra__")
_END = object()


class Unchanged:
    """Objects that cannot be changed and messages, and what these held; all together, since there are many."""

    __slots__ = ("_empty", "_fields", "_full", "_models", "_names")

    def __init__(
        self,
        models: Sequence[Any],
        fields: Sequence[Any],
        empty: Sequence[Any],
        full: Sequence[tuple[Any, Sequence[Any]]],
    ) -> None:
        self._models = models
        self._names = _names(models)
        self._fields = fields
        self._empty = empty
        self._full = full

    @staticmethod
    def hold(marks: Sequence[Unchanged]) -> bool:
        """Whether they hold the same now, in all of these; a few passes for all take a third of those for each."""
        models = list(chain.from_iterable([mark._models for mark in marks]))
        return (
            _names(models) == list(chain.from_iterable([mark._names for mark in marks]))
            and all(map(is_, _fields(models), chain.from_iterable([mark._fields for mark in marks])))
            and not any(chain.from_iterable([mark._empty for mark in marks]))
            and not any(map(_EXTRA, models))
            and all(starmap(_has, chain.from_iterable([mark._full for mark in marks])))
        )


def unchanged(objects: Sequence[Any]) -> Unchanged | None:
    """What to ask whether objects are unchanged, or None if nothing can tell."""
    models = [each for each in objects if type(each) not in _FIXED]
    if not models:
        return _ALWAYS
    for model in models:
        if type(model) not in MODELS or model.__pydantic_extra__:
            return None
    fields = list(_fields(models))
    containers = [value for value in fields if type(value) not in _FIXED]
    full = []
    for container in filter(None, containers):
        leaves: list[Any] = []
        if not _collect(container, leaves):
            return None
        full.append((container, leaves))
    empty = [container for container in containers if not container]
    if not _CONTAINERS.issuperset(map(type, empty)):
        return None
    return Unchanged(models, fields, empty, full)


def _names(models: Sequence[Any]) -> list[str]:
    return list(chain.from_iterable([model.__dict__ for model in models]))


def _fields(models: Sequence[Any]) -> Iterator[Any]:
    return chain.from_iterable([model.__dict__.values() for model in models])


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
_ALWAYS = Unchanged((), (), (), ())
