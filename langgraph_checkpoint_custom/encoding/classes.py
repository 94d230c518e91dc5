"""How the objects of a class are stored: found out once for each class, because that takes longer than encoding.

Must not know: msgpack, which classes may be read, checkpoints.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Hashable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    Sequence,
    Set,
    ValuesView,
)
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from io import IOBase
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from types import (
    BuiltinFunctionType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any, NamedTuple, TypeGuard, get_origin
from uuid import UUID
from zoneinfo import ZoneInfo

import pydantic
from langgraph.checkpoint.serde.types import SendProtocol
from pydantic_core import PydanticUndefined

from langgraph_checkpoint_custom.encoding.extensions import (
    KEYWORDS,
    METHOD,
    NUMPY,
    POSITIONAL,
    PYDANTIC_1,
    PYDANTIC_2,
    REFERENCE,
    SINGLE,
    UnstorableValue,
)
from langgraph_checkpoint_custom.encoding.langgraph_private import SAFE_METHODS, SAFE_TYPES
from langgraph_checkpoint_custom.encoding.leaves import leaf_of

PLAIN = -1  # No extension: msgpack can represent it.
_ADDRESSES = (IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network)
FACTORIES = {each.__name__: each for each in (list, dict, set, frozenset, tuple, str, int, float, bool)}

# Given a class and attributes of an object of it, returns those that can be stored, in a form that can be packed. It
# raises unless the object may be stored without the others.
Storable = Callable[[type, Mapping[str, Any]], dict[str, Any]]
Parts = Callable[[Any, Storable], Sequence[Any]]
BY_CONSTRUCTOR = {"anew": True}


class Kind(NamedTuple):
    """How the objects of a class are stored.

    Attributes:
        code: The code of the extension.
        module: The module of the class.
        name: The name of the class in its module.
        payload: Returns the data from which LangGraph rebuilds an object.
        parts: Returns what follows the names in the extension. That is the payload alone; or the payload and what
            restores more of the object than LangGraph; or, for an object whose fields are stored as they are, the
            fields, the names of those that were given, or None if all were or if it is not known, and a dict with
            further state, if any.
        lost: What would not come back. If this is not empty, the payload is stored without its class.
        secret: Whether the payload must not be readable in the database.
        is_direct: Whether each object is the extension of its parts. If not, each is looked at: whether it is an empty
            secret, and whether its constructor accepts the payload.
    """

    code: int
    module: str
    name: str
    payload: Callable[[Any], Any]
    parts: Parts
    lost: str
    secret: bool
    is_direct: bool


def _kind(
    code: int,
    module: str,
    name: str,
    payload: Callable[[Any], Any],
    parts: Parts | None = None,
    *,
    lost: str = "",
    checked: bool = False,
    secret: bool = False,
) -> Kind:
    is_direct = not (lost or checked or secret or code in (PLAIN, NUMPY))
    return Kind(code, module, name, payload, parts or (lambda o, _: (payload(o),)), lost, secret, is_direct)


def kind_of(obj: Any, cls: Any) -> Kind | None:
    """Find out how objects of a class are stored; after the leaves, the checks have LangGraph's order."""
    if leaf := leaf_of(cls):
        parts = (lambda o, _: (leaf.parts(o), leaf.method)) if leaf.method else None
        return _kind(leaf.code, leaf.module, leaf.name, leaf.parts, parts)
    if isinstance(obj, NAMED):
        return _kind(SINGLE, *REFERENCE, _path_of)
    module, name = _place_of(cls)
    full_name = (module, name or cls.__name__)
    lost = "" if name else "it cannot be found by its name in its module; define it there"

    def kind(code: int, payload: Callable[[Any], Any], parts: Parts | None = None, **more: Any) -> Kind:
        checked = full_name not in SAFE_TYPES and not issubclass(cls, Enum)
        return _kind(code, *full_name, payload, parts, lost=lost, **{"checked": checked, **more})

    def of_fields(code: int, payload: Callable[[Any], Any], parts: Parts) -> Kind:
        return kind(code, payload, parts, checked=False)

    if (
        issubclass(cls, (tuple, dict, list, str, bytes, int, float))
        and not issubclass(cls, Enum)
        and not is_named_tuple(cls)
    ):
        return _kind_of_container(cls)
    if issubclass(cls, pydantic.BaseModel):
        return of_fields(PYDANTIC_2, lambda o: o.model_dump(), _parts_of_model(cls))
    if is_secret(cls):
        return kind(SINGLE, lambda o: o.get_secret_value(), secret=True)
    if hasattr(cls, "__fields__") and hasattr(cls, "__private_attributes__"):
        return of_fields(PYDANTIC_1, lambda o: o.dict(), _parts_of_old_model(cls))
    if is_named_tuple(cls):
        return of_fields(KEYWORDS, lambda o: dict(o._asdict()), _parts_of_fields(cls, cls._fields))
    if issubclass(cls, re.Pattern):
        return _kind(POSITIONAL, "re", "compile", lambda o: [o.pattern, o.flags])
    if issubclass(cls, datetime) and (*full_name, "fromisoformat") not in SAFE_METHODS:
        lost = "only its text; store a datetime.datetime"
    for base, code, content, more in _FORMS:
        if issubclass(cls, base):
            return kind(code, content, more)
    if full_name in SAFE_TYPES and isinstance(obj, SendProtocol):
        return kind(POSITIONAL, _of_send)
    if dataclasses.is_dataclass(cls):
        names = [field.name for field in dataclasses.fields(cls)]

        def payload(o: Any) -> Any:
            return {name: getattr(o, name) for name in names}

        if not _is_bare(cls):
            return kind(KEYWORDS, payload)
        slots = [name for name in slots_of(cls) if name not in names]
        return of_fields(KEYWORDS, payload, _parts_of_fields(cls, names, slots))
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(cls, numpy.ndarray):
        lost = "only its data, as a plain numpy.ndarray"
        return _kind(NUMPY, "numpy", "ndarray", lambda o: o.view(numpy.ndarray), lost=lost)
    by_method = next((each for each in _BY_METHOD if callable(getattr(cls, each[0], None))), None)
    if is_struct(cls) or is_plain(cls):
        if not lost:
            of_class = _parts_of_fields(cls, cls.__struct_fields__) if is_struct(cls) else _parts_of_plain(cls)
            return of_fields(KEYWORDS, vars, of_class)
        if by_method is None:  # LangGraph has no form for it either.
            raise UnstorableValue(f"a {cls.__module__}.{cls.__qualname__} cannot be restored: {lost}")
    return kind(by_method[1], getattr(cls, by_method[0])) if by_method else None


def is_secret(cls: type) -> bool:
    """Whether objects of a class hide something, as pydantic's `SecretStr` does."""
    return callable(getattr(cls, "get_secret_value", None))


def _name_of(cls: type) -> str | None:
    """The name by which a class can be found in its module, a path for a class inside another; None if it cannot."""
    generic = getattr(cls, "__pydantic_generic_metadata__", None)
    if generic and generic["args"]:  # Found through its origin: pydantic creates such a class if it does not exist yet.
        parts = (generic["origin"], *generic["args"])
        return cls.__name__ if all(_is_class(part) and _name_of(part) for part in parts) else None
    for name in (cls.__name__, cls.__qualname__):
        found: Any = sys.modules.get(cls.__module__)
        for part in name.split("."):
            found = getattr(found, part, None)
        # Compared by qualified name: a class that was defined again, such as in a notebook, is the same to a reader.
        if isinstance(found, type) and found.__qualname__ == cls.__qualname__:
            return name
    return None


def _place_of(cls: Any) -> tuple[str, str | None]:
    """The module and the name by which a class can be found; see `_name_of`.

    The module of `Page[int]` may be one that has only this name, and not the model `Page`.
    """
    module, name, args = cls.__module__, _name_of(cls), _arguments_of(cls)
    if args and name:
        origin = cls.__pydantic_generic_metadata__["origin"]
        if (origin.__module__, _name_of(origin)) != (module, name.partition("[")[0]):
            return origin.__module__, f"{_name_of(origin)}[{', '.join([each[1] for each in args])}]"
    return module, name


def _arguments_of(cls: Any) -> list[list[Any]]:
    """The type arguments of a generic model that can be found: module, name, and arguments of its own, if any."""
    generic = getattr(cls, "__pydantic_generic_metadata__", None)
    if not (generic and _name_of(cls)):
        return []
    return [[*_place_of(each), *filter(None, [_arguments_of(each)])] for each in generic["args"]]


# What is stored by its name, as pickle does.
NAMED = (type, FunctionType, BuiltinFunctionType)


def _path_of(named: Any) -> str:
    """The module and name of a class or function."""
    module, name = named.__module__, named.__qualname__
    found: Any = sys.modules.get(str(module))
    for part in name.split("."):
        found = getattr(found, part, None)
    # As in `_name_of`, it may be defined again. A function in a class may belong to an object.
    is_it = isinstance(found, type) and found.__qualname__ == name if isinstance(named, type) else "." not in name
    if type(found) is type(named) and is_it:
        return f"{module}:{name}"
    kind = "class" if isinstance(named, type) else "function"
    raise UnstorableValue(
        f"the {kind} {name} cannot be found by its name, as a lambda, a method and what is defined inside a function "
        "cannot; define it at the top level of a module"
    )


# What to do instead of storing an object that has no form, by what it is; the first that matches.
_INSTEAD: Mapping[str, Callable[[Any], bool]] = {
    "store its path or what it contains": lambda o: isinstance(o, IOBase),
    "store list(…) of it": lambda o: isinstance(o, (Iterator, KeysView, ValuesView, ItemsView)),
    "await it and store the result": lambda o: isinstance(o, Awaitable),
    "store the object that it belongs to": lambda o: isinstance(o, (MethodType, MethodWrapperType)),
    "store its name": lambda o: isinstance(o, ModuleType),
    "create it where it is used": lambda o: (
        type(o) is object or _is_live(type(o)) or "lock" in type(o).__name__.lower()
    ),
}


def no_form_of(o: Any) -> str:
    """Why an object cannot be stored, and what to do instead."""
    cls = type(o)
    name = f"{cls.__module__}.{cls.__qualname__}".removeprefix("builtins.")
    instead = next((instead for instead, holds in _INSTEAD.items() if holds(o)), "")
    codec = f"register_codec({cls.__name__}, to_bytes, from_bytes)"
    return f"a {name} has no form that can be stored; {instead or f'call {codec}, or store what it is made of'}"


def _is_class(part: Any) -> bool:
    return isinstance(part, type) and get_origin(part) is None  # On Python 3.10, list[int] is a type.


def _kind_of_container(cls: Any) -> Kind:
    if cls is int:  # Has more than 64 bits.
        return _kind(POSITIONAL, "builtins", "int", lambda o: [hex(o), 16])
    if cls in (OrderedDict, Counter):
        return _kind(SINGLE, "collections", cls.__name__, dict)
    if cls is defaultdict:
        return _kind(SINGLE, "collections", "defaultdict", dict, _parts_of_defaultdict)
    # Any other subclass becomes its base class. LangGraph's serializer can store only the first four.
    silent: dict[type, Callable[[Any], Any]] = {dict: dict, list: list, str: str.__str__, int: int}
    base = next(base for base in (*silent, float, bytes, tuple) if issubclass(cls, base))
    if base in silent and (base in (str, int) or not issubclass(cls, Hashable)):
        return _kind(PLAIN, "", "", silent[base])
    which = ", which cannot be in a set or a key" if base in silent else ""
    lost = f"a {base.__name__}{which}; call register_codec({cls.__name__}, to_bytes, from_bytes)"
    return _kind(PLAIN, "", "", base, lost=lost)


def _parts_of_defaultdict(o: defaultdict[Any, Any], storable: Storable) -> Sequence[Any]:
    factory = o.default_factory
    name = getattr(factory, "__name__", None)
    if factory is None or FACTORIES.get(str(name)) is factory:
        return dict(o), None, {"factory": name}
    return dict(o), None, {"factory": storable(defaultdict, {"default_factory": factory}).get("default_factory")}


def _parts_of_deque(o: deque[Any], _: Storable) -> Sequence[Any]:
    return (list(o),) if o.maxlen is None else (list(o), None, {"maxlen": o.maxlen})


def _parts_of_enum(o: Enum, _: Storable) -> Sequence[Any]:
    """The value, and the name of a member whose value may not be found again: NaN, or a value of a mutable type."""
    return (o.value,) if type(o.value) in (str, int) else (o.value, None, {"member": o.name})


def _parts_of_datetime(o: datetime, storable: Storable) -> Sequence[Any]:
    zone = o.tzinfo
    state: dict[str, Any] = {"fold": o.fold} if o.fold else {}
    if zone is not None and (type(zone) is not timezone or len(zone.__getinitargs__()) > 1):  # type: ignore[attr-defined]
        state |= storable(type(zone), {"tzinfo": zone})
    return (o.isoformat(), "fromisoformat", state) if state else (o.isoformat(), "fromisoformat")


def _key_of_zone(zone: ZoneInfo) -> str:
    if zone.key is None:
        raise UnstorableValue("a ZoneInfo that was read from a file has no key to find it by")
    return zone.key


def _of_send(send: Any) -> list[Any]:
    timeout = getattr(send, "timeout", None)
    return [send.node, send.arg] if timeout is None else [send.node, send.arg, timeout]


# The methods by which LangGraph stores an object of any class, such as SQLAlchemy's rows, and the form of the result.
_BY_METHOD = (("model_dump", PYDANTIC_2), ("dict", PYDANTIC_1), ("_asdict", KEYWORDS))
_TIME = ("hour", "minute", "second", "microsecond", "tzinfo", "fold")
# How LangGraph stores objects of these classes and their subclasses: the code, the payload, and what else is stored.
_FORMS: Sequence[tuple[Any, int, Callable[[Any], Any], Parts | None]] = (
    (pathlib.Path, POSITIONAL, lambda o: list(o.parts), None),
    (UUID, SINGLE, lambda o: o.hex, None),
    ((Decimal, *_ADDRESSES), SINGLE, str, None),
    (deque, SINGLE, list, _parts_of_deque),
    ((set, frozenset), SINGLE, list, None),
    (datetime, METHOD, lambda o: o.isoformat(), _parts_of_datetime),
    (timedelta, POSITIONAL, lambda o: [o.days, o.seconds, o.microseconds], None),
    (date, POSITIONAL, lambda o: [o.year, o.month, o.day], None),
    (time, KEYWORDS, lambda o: {name: getattr(o, name) for name in _TIME}, None),
    (timezone, POSITIONAL, lambda o: list(o.__getinitargs__()), None),
    (ZoneInfo, SINGLE, _key_of_zone, None),
    (Enum, SINGLE, lambda o: o.value, _parts_of_enum),
)


# Classes whose fields are stored as they are


def _parts_of_model(cls: type[pydantic.BaseModel]) -> Parts:
    known = cls.model_fields
    names = [*known]
    excluded = {name for name, field in known.items() if field.exclude}  # LangGraph does not store these.
    first = {name: each.default for name, each in cls.__private_attributes__.items()}
    args = _arguments_of(cls)
    has_more = bool(excluded or args)

    def parts(o: Any, storable: Storable) -> Sequence[Any]:
        fields = o.__dict__
        # For nearly all objects, this is all that there is.
        if [*fields] == names and not (has_more or o.__pydantic_extra__ or o.__pydantic_private__):
            given = o.__pydantic_fields_set__
            return fields, None if given == fields.keys() else sorted(given)  # As `_given`, without the call.
        state: dict[str, Any] = {}
        if fields.keys() != known.keys():
            fields = {name: fields[name] for name in fields if name in known}
            state = _further_state(o, fields, known)
        given = _given(o.__pydantic_fields_set__, fields)
        if extra := o.__pydantic_extra__:
            state["extra"] = extra
        private = (o.__pydantic_private__ or {}).items()
        if private := {name: each for name, each in private if each is not first.get(name, PydanticUndefined)}:
            state["private"] = private
        if args:
            state["args"] = args
        whole = len(fields)
        if excluded:
            stored = storable(cls, {name: fields[name] for name in excluded & fields.keys()})
            fields = {name: stored.get(name, fields[name]) for name in fields if name in stored or name not in excluded}
        return _with_state(cls, fields, given, state, storable, by_constructor=len(fields) < whole)

    return parts


def _parts_of_old_model(cls: Any) -> Parts:
    known = cls.__fields__

    def parts(o: Any, storable: Storable) -> Sequence[Any]:
        fields = {name: o.__dict__[name] for name in o.__dict__ if name in known}
        state = _further_state(o, fields, known)
        if private := {name: getattr(o, name) for name in cls.__private_attributes__ if hasattr(o, name)}:
            state["private"] = private
        return _with_state(cls, fields, _given(o.__fields_set__, fields), state, storable)

    return parts


def _parts_of_fields(cls: Any, known: Sequence[str], slots: Sequence[str] = ()) -> Parts:
    """For a dataclass, a named tuple or a `Struct` of msgspec, by the names of its fields; `slots` are no fields."""

    by_position = is_named_tuple(cls)  # A subclass may have a property of a field's name.

    def parts(o: Any, storable: Storable) -> Sequence[Any]:
        if by_position:
            fields = dict(zip(known, o, strict=True))
        else:
            fields = {name: getattr(o, name) for name in known if hasattr(o, name)}
        if len(fields) == len(known) and not slots and getattr(o, "__dict__", fields).keys() <= fields.keys():
            return fields, None
        return _with_state(cls, fields, None, _further_state(o, fields, known, slots), storable)

    return parts


def is_named_tuple(cls: Any) -> TypeGuard[Any]:
    """Whether something is the class of a named tuple."""
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields") and hasattr(cls, "_make")


def is_struct(cls: type) -> TypeGuard[Any]:
    """Whether a class is a `Struct` of msgspec."""
    return hasattr(cls, "__struct_fields__")


def _parts_of_plain(cls: Any) -> Parts:
    slots = slots_of(cls)

    def parts(o: Any, _: Storable) -> Sequence[Any]:
        fields = _further_state(o, (), (), slots).get("other", {})
        for name in getattr(o, "__dict__", fields).keys() - fields.keys():
            if isinstance(declared(cls, name), _METHODS):
                raise UnstorableValue(f"a {cls.__module__}.{cls.__qualname__} would get the {name} of its class back")
        return ({**fields, _HASH: None} if _HASH in fields else fields), None

    return parts


_METHODS = (FunctionType, staticmethod, classmethod)
# attrs' attribute for the hash of an object, which is another one in each process.
_HASH = "_attrs_cached_hash"
# With one of these, more than the attributes of an object may belong to it.
_OWN_WAY = (
    "__reduce__",
    "__reduce_ex__",
    "__getstate__",
    "__setstate__",
    "__getnewargs__",
    "__getnewargs_ex__",
    "__del__",
)
_IN_PYTHON = 1 << 9  # Py_TPFLAGS_HEAPTYPE, which a class has that a class statement has made.
# Modules whose objects belong to one process, and so do those that extend them.
_LIVE = (
    "asyncio",
    "threading",
    "multiprocessing",
    "concurrent",
    "queue",
    "weakref",
    "contextvars",
    "logging",
    "socket",
)


def is_plain(cls: type) -> bool:
    """Whether an object of a class is nothing but its attributes, also for pickle and copy."""
    bases = cls.__mro__[:-1]
    if not bases or _is_live(cls) or not all(base.__flags__ & _IN_PYTHON for base in bases):
        return False
    # attrs defines how pickle stores a class with slots: by the attributes, too.
    names = () if hasattr(cls, "__attrs_attrs__") else _OWN_WAY
    return _is_bare(cls) and all(getattr(cls, name, None) is getattr(object, name, None) for name in names)


def _is_live(cls: type) -> bool:
    return any(base.__module__.partition(".")[0] in _LIVE for base in cls.__mro__)


def slots_of(cls: Any) -> list[str]:
    """The names of the slots of a class and its bases."""
    return [name for base in cls.__mro__ for name in vars(base) if is_slot(vars(base)[name])]


# State that may be left out if it cannot be stored; the constructor then restores the object.
_OPTIONAL = frozenset({"other", "private"})


def _further_state(
    o: Any, fields: Collection[str], known: Collection[str], slots: Iterable[str] = ()
) -> dict[str, Any]:
    """The state of an object besides its fields: further attributes, and the names of fields without a value.

    Without what the class itself computes, such as a cached property: it is computed again.
    """
    own = getattr(o, "__dict__", {}) | {name: getattr(o, name) for name in slots if hasattr(o, name)}
    state: dict[str, Any] = {}
    if others := {name: own[name] for name in own if name not in known and is_attribute(type(o), name)}:
        state["other"] = others
    if absent := [name for name in known if name not in fields]:
        state["absent"] = absent
    return state


def _with_state(
    cls: type,
    fields: Mapping[str, Any],
    given: Any,
    state: dict[str, Any],
    storable: Storable,
    *,
    by_constructor: bool = False,
) -> Sequence[Any]:
    """The parts of an object, with the storable state.

    If something must be left out, the state is only the mark that the constructor restores the object, and the
    arguments of a generic model.
    """
    for part in _OPTIONAL & state.keys():
        stored = storable(cls, state[part])
        by_constructor = by_constructor or len(stored) < len(state[part])
        state[part] = stored
    if by_constructor:
        state = BY_CONSTRUCTOR | {key: state[key] for key in state if key == "args"}
    return (fields, given, state) if state else (fields, given)


def is_attribute(cls: type, name: str) -> bool:
    """Whether a name can be an attribute of an instance, and is not a method or similar of the class.

    It may be that of a descriptor, such as a property, that keeps its value in the instance under its own name.
    """
    found = declared(cls, name)
    is_of_python = name.startswith("__") and name.endswith("__")
    return not is_of_python and (not hasattr(found, "__get__") or hasattr(found, "__set__"))


def declared(cls: type, name: str) -> Any:
    """What a class or its bases have under a name, as it is, and not its metaclass; None if there is nothing."""
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def is_slot(found: Any) -> bool:
    """Whether an attribute of a class is a slot of its instances."""
    return isinstance(found, MemberDescriptorType)


def _given(names: Set[str], fields: Mapping[str, Any]) -> list[str] | None:
    """The names of the fields that were given, or None if all were; sorted, so equal objects have equal bytes."""
    return None if names == fields.keys() else sorted(names)


def _is_bare(cls: Any) -> bool:
    """Whether `object.__new__` can create an instance; it cannot for an exception, for example."""
    try:
        object.__new__(cls)
    except TypeError:
        return False
    return True
