"""Objects that are stored in one piece: of types of the standard library and of other packages, and of your own.

Must not know: msgpack, objects whose fields are stored, which classes may be read, checkpoints.

An object is stored as one of LangGraph's extensions: a module, a name, and the parts of the object. A leaf is how the
objects of one type become parts, and parts the objects again. It belongs to exactly this type, and not to its
subclasses, which may hold more. To add a type, add a line to `_STANDARD` or to a file of `libraries/`.

Its code says what LangGraph's serializer makes of the parts:

- With `SINGLE`, `POSITIONAL` and `KEYWORDS` it calls what is named, so that has to return the object for the parts.
- With `METHOD` it returns the parts. It would call the method that the last element names, but only methods that it
  knows; the ones here are `PARTS`, and `CODEC` if the parts are the bytes of a codec that the application registered.

Reading calls only the functions of the leaves here. So these types are safe to read: what is stored chooses one of the
leaves, and no leaf calls what its parts name. The file for a package is imported when a value of the package is stored
or read, and imports the package.
"""

from __future__ import annotations

from array import array
from collections import UserString
from collections.abc import Callable, Iterable
from contextlib import suppress
from fractions import Fraction
from functools import partial
from importlib import import_module
from io import BytesIO, StringIO
from pathlib import PurePosixPath, PureWindowsPath
from types import EllipsisType, GenericAlias, MappingProxyType, NotImplementedType, SimpleNamespace
from typing import Any, NamedTuple

from langgraph_checkpoint_custom.encoding.extensions import (
    KEYWORDS,
    METHOD,
    NUMPY,
    POSITIONAL,
    SINGLE,
    UnreadableValue,
)

PARTS = "parts"
CODEC = "codec"


class Leaf(NamedTuple):
    """How the objects of one type are stored.

    Attributes:
        cls: The type.
        code: The code of the extension.
        module: The module that is stored.
        name: The name in the module that is stored.
        parts: Returns what an object consists of.
        make: Returns the object again.
        method: What is stored as the method, with the code `METHOD`.
    """

    cls: type
    code: int
    module: str
    name: str
    parts: Callable[[Any], Any]
    make: Callable[[Any], Any]
    method: str = ""


def called(cls: type, code: int, module: str, parts: Callable[[Any], Any], name: str = "") -> Leaf:
    """The leaf of a type that is called with the parts of an object, as the code says."""
    makes: dict[int, Callable[[Any], Any]] = {
        SINGLE: cls,
        POSITIONAL: lambda those: cls(*those),
        KEYWORDS: lambda those: cls(**those),
    }
    return Leaf(cls, code, module, name or cls.__name__, parts, makes[code])


def rebuilt(cls: type, module: str, parts: Callable[[Any], Any], make: Callable[[Any], Any], name: str = "") -> Leaf:
    """The leaf of a type whose objects only the function `make` can create again."""
    return Leaf(cls, METHOD, module, name or cls.__name__, parts, make, PARTS)


def _in_memory(cls: Any) -> Leaf:
    """The leaf of files in memory: what is in one, for texts the newline, and the position."""

    def make(those: Any) -> Any:
        made = cls()
        made.__setstate__((*those, None))
        return made

    return rebuilt(cls, "io", lambda o: list(o.__getstate__()[:-1]), make)


_STANDARD = (
    called(range, POSITIONAL, "builtins", lambda o: [o.start, o.stop, o.step]),
    called(slice, POSITIONAL, "builtins", lambda o: [o.start, o.stop, o.step]),
    called(complex, POSITIONAL, "builtins", lambda o: [o.real, o.imag]),
    called(EllipsisType, POSITIONAL, "types", lambda _: [], "EllipsisType"),
    called(NotImplementedType, POSITIONAL, "types", lambda _: [], "NotImplementedType"),
    called(MappingProxyType, SINGLE, "types", lambda o: o.copy(), "MappingProxyType"),
    called(SimpleNamespace, KEYWORDS, "types", lambda o: vars(o)),
    called(GenericAlias, POSITIONAL, "types", lambda o: [o.__origin__, o.__args__]),
    # With one argument, a text, it may compute for hours.
    called(Fraction, POSITIONAL, "fractions", lambda o: [o.numerator, o.denominator])._replace(
        make=lambda those: Fraction(those[0], those[1])
    ),
    called(PurePosixPath, SINGLE, "pathlib", str),
    called(PureWindowsPath, SINGLE, "pathlib", str),
    called(UserString, SINGLE, "collections", lambda o: o.data),
    called(array, POSITIONAL, "array", lambda o: [o.typecode, o.tolist()]),
    _in_memory(BytesIO),
    _in_memory(StringIO),
    rebuilt(
        partial,
        "functools",
        lambda o: [o.func, o.args, o.keywords, vars(o)],
        # A function that may not be read is a text.
        lambda those: _with(partial(those[0], *those[1], **those[2]), those[3]) if callable(those[0]) else those,
    ),
)


def _with(made: Any, attributes: dict[str, Any]) -> Any:
    vars(made).update(attributes)
    return made


def _in_file(name: str) -> Iterable[Leaf]:
    leaves: Iterable[Leaf] = import_module(f"{__package__}.libraries.{name}").LEAVES
    return leaves


# The packages whose leaves were not added yet, by the first part of a module's name.
_LIBRARIES: dict[str, Callable[[], Iterable[Leaf]]] = {
    "numpy": partial(_in_file, "numpy"),
    "pandas": partial(_in_file, "pandas"),
    "pydantic": partial(_in_file, "pydantic"),
    "pydantic_core": partial(_in_file, "pydantic"),
    # Its `Struct` has fields, see `classes.py`.
    "msgspec": lambda: [called(import_module("msgspec").Raw, SINGLE, "msgspec", bytes)],
}
_BY_TYPE: dict[type, Leaf] = {}
_BY_NAME: dict[tuple[int, str, str, str], Leaf] = {}


def _add(leaves: Iterable[Leaf]) -> None:
    for leaf in leaves:
        _BY_TYPE.setdefault(leaf.cls, leaf)  # A codec that was registered earlier stays.
        _BY_NAME[leaf.code, leaf.module, leaf.name, leaf.method] = leaf


_add(_STANDARD)


def add_codec(leaf: Leaf) -> None:
    """Store the objects of a type with a codec from now on; what was stored otherwise is read as before."""
    _BY_TYPE[leaf.cls] = leaf
    _add([leaf])


def _load(library: str) -> None:
    """Add the leaves of a package; does nothing if they were added or if there are none."""
    if leaves := _LIBRARIES.get(library):
        _add(leaves())
        _LIBRARIES.pop(library, None)


def leaf_of(cls: type) -> Leaf | None:
    """How objects of exactly this type are stored, if it is a leaf."""
    if (leaf := _BY_TYPE.get(cls)) is None:
        library = str(cls.__module__).partition(".")[0]
        if library in _LIBRARIES:
            with suppress(ImportError):  # A module of another package has the name.
                _load(library)
            leaf = _BY_TYPE.get(cls)
    return leaf


def codec_of(cls: type) -> Leaf | None:
    """The codec that is registered for a type."""
    leaf = _BY_TYPE.get(cls)
    return leaf if leaf and leaf.method == CODEC else None


def leaf_named(code: int, module: str, name: str, method: str = "") -> Leaf | None:
    """The leaf with which an object was stored, if it was stored as one.

    Raises:
        UnreadableValue: The package of the type cannot be imported, or no codec is registered for it.
    """
    key = code, module, name, method
    if key in _BY_NAME:
        return _BY_NAME[key]
    if method == CODEC:
        raise UnreadableValue(
            f"a {module}.{name} was stored with a codec that is not registered in this process; call "
            f"register_codec({name}, to_bytes, from_bytes) before reading, as where it was stored, or read its bytes "
            "with on_unreadable='raw'"
        )
    library = module.partition(".")[0]
    if library in _LIBRARIES:
        try:
            _load(library)
        except ImportError:
            if code in (METHOD, NUMPY):  # Others may be a class of the application, in a module of that name.
                raise UnreadableValue(
                    f"a {module}.{name} can be read where the package {library} is installed; install it, or read "
                    "what was stored with on_unreadable='raw'"
                ) from None
    return _BY_NAME.get(key)


def is_leaf(module: str, name: str) -> bool:
    """Whether objects of this name are stored as leaves that LangGraph's serializer can create, too."""
    return any(leaf_named(code, module, name) for code in (SINGLE, POSITIONAL, KEYWORDS))
