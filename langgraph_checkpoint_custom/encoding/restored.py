"""Restores objects from LangGraph's msgpack extensions, as pickle and copy would.

Must not know: which classes may be read, checkpoints.

If `objects.py` has stored the fields of an object as they were, no constructor runs and nothing is validated: pydantic
might reject or change what was valid when it was stored. Nothing else of the class is called either, for example no
`__setstate__`. So these extensions cannot call more than LangGraph's own, which name a constructor.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from enum import Enum
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import pydantic

from langgraph_checkpoint_custom.encoding.classes import (
    FACTORIES,
    declared,
    is_attribute,
    is_named_tuple,
    is_plain,
    is_slot,
    is_struct,
    slots_of,
)
from langgraph_checkpoint_custom.encoding.extensions import (
    KEYWORDS,
    METHOD,
    POSITIONAL,
    PYDANTIC_1,
    PYDANTIC_2,
    UnreadableValue,
)

_set = object.__setattr__
NO_STATE: Mapping[str, Any] = MappingProxyType({})


def find(module: str, name: str) -> Any:
    """Find a class, or the function that creates its objects, by the stored name."""
    try:
        found: Any = sys.modules.get(module) or importlib.import_module(module)
        if "." not in name:
            return getattr(found, name)
        for part in name.split("."):
            found = getattr(found, part)
            if not isinstance(found, type):
                raise AttributeError(f"{part!r} is not a class")
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    else:
        if (found.__module__, found.__qualname__) == (module, name):
            return found
        problem = f"it is {found.__module__}.{found.__qualname__}"
    raise UnreadableValue(
        f"{module}.{name} cannot be found ({problem}); restore the class under that name, "
        "name its replacement with on_load, or read what was stored with on_unreadable='raw'"
    )


def changed(cls: Any, how: str) -> UnreadableValue:
    """Return the error for an object that cannot be restored, because its class has changed."""
    name = cls if isinstance(cls, str) else f"{cls.__module__}.{cls.__name__}"
    return UnreadableValue(
        f"{name} cannot be created from what was stored ({how}); restore the class as it was, "
        "name its replacement with on_load, or read what was stored with on_unreadable='raw'"
    )


def make(code: int, target: Any, stored: Any, method: Any = "", state: Any = None) -> Any:
    """Restore an object from the content of its extension.

    Args:
        code: The code of the extension.
        target: The class, or the function that creates the object.
        stored: The data to restore the object from.
        method: For fields that are stored as they were, the names of those that were given, or None. Otherwise a text,
            which is the method to call for `METHOD`.
        state: Further state, if any.
    """
    as_they_were = type(method) is not str and not (state and "anew" in state)
    if code in (PYDANTIC_2, PYDANTIC_1):
        if as_they_were:
            of_fields = restored_model if code == PYDANTIC_2 else _restored_old_model
            return of_fields(target, stored, method, state or NO_STATE)
        try:
            return _pydantic(target, stored)
        except Exception:  # As LangGraph does: an object with a field that its constructor rejects is better than none.
            if not state:
                raise
            return getattr(target, "model_construct" if code == PYDANTIC_2 else "construct")(**stored)
    if code == KEYWORDS:
        if as_they_were:
            return _with_fields(target, stored, state or NO_STATE)
        return _dataclass(target, stored) if dataclasses.is_dataclass(target) else target(**stored)
    if code == POSITIONAL:
        return _positional(target, stored)
    if code == METHOD:
        restored = getattr(target, method)(stored)
        return (
            restored.replace(**{name: state[name] for name in ("tzinfo", "fold") if name in state})
            if state
            else restored
        )
    if target is defaultdict:
        factory = state["factory"]  # A text that is none of these is what was stored for one that may not be read.
        return defaultdict(FACTORIES.get(factory) if type(factory) is str else factory, stored)
    if state and "member" in state:
        return _member(target, stored, state["member"])
    return target(stored, maxlen=state["maxlen"]) if state else _single(target, stored)


# Objects whose fields are stored as they were

_NONE = object()


def _complete(
    cls: Any, stored: Any, state: Mapping[str, Any], known: Mapping[str, Any], default: Callable[[Any], Any]
) -> dict[str, Any]:
    """The stored fields, and the defaults of fields that the class did not have then."""
    if missing := stored.keys() - known.keys():
        raise changed(cls, f"it has no field {', '.join(sorted(missing))}")
    added = {}
    for name in known.keys() - stored.keys() - set(state.get("absent", ())):
        added[name] = default(known[name])
        if added[name] is _NONE:
            raise changed(cls, f"nothing was stored for its field {name}")
    return {name: stored[name] if name in stored else added[name] for name in known if name in stored or name in added}


def _with_others(restored: Any, state: Mapping[str, Any]) -> Any:
    for name, value in state.get("other", {}).items():
        if not is_attribute(type(restored), name):
            raise changed(type(restored), f"its {name} is not an attribute that can be stored")
        if is_slot(declared(type(restored), name)):
            _set(restored, name, value)
        else:  # Also what a property or another descriptor keeps there, without calling it.
            vars(restored)[name] = value
    return restored


def _with_fields(target: Any, stored: Any, state: Mapping[str, Any]) -> Any:
    if is_named_tuple(target):
        defaults = dict.fromkeys(target._fields, _NONE) | getattr(target, "_field_defaults", {})
        values = _complete(target, stored, NO_STATE, defaults, lambda default: default)
        return _with_others(tuple.__new__(target, values.values()), state)
    if isinstance(target, type) and is_struct(target):
        return _restored_struct(target, stored, state)
    if not (isinstance(target, type) and dataclasses.is_dataclass(target)):
        if isinstance(target, type) and is_plain(target):
            return _with_others(object.__new__(target), {"other": stored})
        raise changed(target, "it is not a dataclass")
    known = {field.name: field for field in dataclasses.fields(target)}
    if stored.keys() != known.keys():
        stored = _complete(target, stored, state, known, _default_of_field)
    restored = object.__new__(target)
    for name, value in stored.items():
        _set(restored, name, value)
    return _with_others(restored, state) if state else restored


def _restored_struct(target: Any, stored: Any, state: Mapping[str, Any]) -> Any:
    """Create a `Struct` of msgspec, which only its constructor can, and give it the stored fields."""
    restored = target(**stored)
    for name, value in stored.items():
        if getattr(restored, name) is not value:  # Its `__post_init__` has changed it.
            sys.modules["msgspec"].structs.force_setattr(restored, name, value)
    return _with_others(restored, state)


def _default_of_field(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return _NONE if field.default is dataclasses.MISSING else field.default


class _Model(NamedTuple):
    """What the objects of a pydantic model consist of."""

    names: tuple[str, ...]
    has_extra: bool
    has_private: bool
    is_root: bool


@lru_cache(maxsize=1000)
def _model(cls: Any) -> _Model:
    if not (isinstance(cls, type) and issubclass(cls, pydantic.BaseModel)):
        raise changed(cls, "it is not a pydantic model")
    has_extra = cls.model_config.get("extra") == "allow"
    return _Model(tuple(cls.model_fields), has_extra, bool(cls.__private_attributes__), cls.__pydantic_root_model__)


def restored_model(cls: Any, stored: Any, given: Any, state: Mapping[str, Any] = NO_STATE) -> Any:
    """Restore an object of a pydantic model from its fields, the names of those that were given, and further state."""
    names, has_extra, has_private, is_root = _model(cls)
    given = set(stored if given is None else given)
    if tuple(stored) != names and stored.keys() != cls.model_fields.keys():
        stored = _complete(cls, stored, state, cls.model_fields, _default_of_model_field)
    extra, private = (state.get("extra"), state.get("private")) if state else (None, None)
    if extra is None and has_extra:
        extra = {}
    if has_private:
        private = _default_private(cls) | (private or {})
    restored = object.__new__(cls)
    _set(restored, "__dict__", stored)
    _set(restored, "__pydantic_fields_set__", given)
    if not is_root or private is not None:  # A root model has neither, and no slot for them.
        _set(restored, "__pydantic_extra__", extra)
        _set(restored, "__pydantic_private__", private)
    return _with_others(restored, state) if "other" in state else restored


def _default_of_model_field(field: Any) -> Any:
    return _NONE if field.is_required() else field.get_default(call_default_factory=True)


def _restored_old_model(cls: Any, stored: Any, given: Any, state: Mapping[str, Any]) -> Any:
    old = getattr(sys.modules.get("pydantic.v1"), "BaseModel", ())
    if not (isinstance(cls, type) and issubclass(cls, old)):
        raise changed(cls, "it is not a pydantic 1 model")
    known: Any = cls.__fields__  # type: ignore[attr-defined]
    restored: Any = object.__new__(cls)
    _set(restored, "__dict__", _complete(cls, stored, state, known, _default_of_old_model_field))
    _set(restored, "__fields_set__", set(stored if given is None else given))
    for name, value in (_default_private(cls) | state.get("private", {})).items():
        _set(restored, name, value)
    return _with_others(restored, state)


def _default_of_old_model_field(field: Any) -> Any:
    return _NONE if field.required else field.get_default()


def _default_private(cls: Any) -> dict[str, Any]:
    """The private attributes of a model that have a default."""
    found = {name: each.get_default() for name, each in cls.__private_attributes__.items()}
    return {name: value for name, value in found.items() if repr(value) != "PydanticUndefined"}


# Objects that are created as LangGraph does


def _hashable(value: Any) -> Any:
    """An element of a set: a list was a tuple when it was stored, because it was hashable."""
    return tuple(map(_hashable, value)) if type(value) is list else value


def can_be_hashed(value: Any) -> bool:
    """Whether a value can be in a set or a key of a dict; the class alone does not say it."""
    try:
        hash(value)
    except Exception:  # The class's own method may raise anything.
        return False
    return True


def _lacks_class(value: Any) -> bool:
    """Whether a value cannot be hashed because it is, or has inside, the dict or list that is stored for an object."""
    if can_be_hashed(value):
        return False
    if isinstance(value, tuple):
        parts: Iterable[Any] = value
    else:
        names = [name for name in slots_of(type(value)) if is_attribute(type(value), name) and hasattr(value, name)]
        parts = [*getattr(value, "__dict__", {}).values(), *(getattr(value, name) for name in names)]
    return type(value) in (dict, list) or (isinstance(value, Hashable) and any(map(_lacks_class, parts)))


def _single(target: Any, stored: Any) -> Any:
    """Call a target with one argument; an argument that was a tuple is stored as a list."""
    if target in (set, frozenset, dict):
        members = stored if target is dict else [*map(_hashable, stored)]
        try:
            return target(members)
        except TypeError:
            keys = [key for key, _ in members] if target is dict else members
            if {True} != {_lacks_class(key) for key in keys if not can_be_hashed(key)}:
                raise
            return members  # As LangGraph does.
    if target is bytearray and type(stored) is not bytes:
        raise changed(target, "it can only be created from bytes")
    return target(_hashable(stored) if isinstance(target, type) and issubclass(target, Enum) else stored)


def _member(target: Any, stored: Any, name: str) -> Any:
    """A member of an enum by its value, as LangGraph finds it, or else by its name: NaN, for example, is not found."""
    try:
        return target(stored)
    except ValueError:
        if name in target.__members__:
            return target[name]
        raise


def _positional(target: Any, stored: list[Any]) -> Any:
    if (target.__module__, target.__name__) == ("langgraph.types", "Send") and len(stored) > 2:
        return target(*stored[:2], timeout=stored[2])
    return target(*stored)


def _dataclass(cls: Any, stored: Mapping[str, Any]) -> Any:
    """Create a dataclass with the stored values, even if its `__init__` changes them."""
    fields = {field.name: field for field in dataclasses.fields(cls)}
    if missing := stored.keys() - fields:
        raise changed(cls, f"it has no field {', '.join(sorted(missing))}")
    try:
        restored = cls(**{name: value for name, value in stored.items() if fields[name].init})
    except TypeError:
        if fields.keys() != stored.keys():
            raise
        restored = object.__new__(cls)  # Its `__init__` needs more than the fields.
    for name, value in stored.items():
        if getattr(restored, name, dataclasses.MISSING) is not value:
            object.__setattr__(restored, name, value)
    return restored


_BY_NAME = tuple(map(int, pydantic.VERSION.split(".")[:2])) >= (2, 11)


def _pydantic(cls: Any, stored: Any) -> Any:
    """Create a pydantic model from its dump, with validation, because only that restores nested models.

    A dump has the names of the fields; the constructor may want their aliases.
    """
    if not isinstance(stored, dict) or getattr(cls, "__pydantic_root_model__", False):
        return cls.model_validate(stored)
    known = _known_fields(cls)
    if known is not None and not stored.keys() <= known:
        missing = ", ".join(sorted(map(str, stored.keys() - known)))
        raise changed(cls, f"it has no field {missing}")
    if _BY_NAME and issubclass(cls, pydantic.BaseModel):
        with suppress(TypeError):  # The class has a method of its own without these arguments, as in SQLModel.
            return cls.model_validate(stored, by_alias=True, by_name=True)
    return cls(**{_alias(cls, name): value for name, value in stored.items()})


def _alias(cls: Any, name: str) -> str:
    fields = getattr(cls, "model_fields", None) or getattr(cls, "__fields__", {})
    return getattr(fields.get(name), "alias", None) or name


@lru_cache(maxsize=1000)
def _known_fields(cls: Any) -> frozenset[str] | None:
    """The keys that a dump of a model may have; None if any key is possible."""
    if not hasattr(cls, "model_fields"):  # pydantic 1
        config = getattr(cls, "__config__", None)
        any_key = config is None or str(getattr(config, "extra", "")).endswith("allow")
        return None if any_key else frozenset(cls.__fields__)
    if cls.model_config.get("extra") == "allow" or cls.__pydantic_decorators__.model_serializers:
        return None
    names = set(cls.model_fields) | set(cls.model_computed_fields)
    for field in (*cls.model_fields.values(), *cls.model_computed_fields.values()):
        names.update(alias for alias in (field.alias, getattr(field, "serialization_alias", None)) if alias)
    return frozenset(names)
