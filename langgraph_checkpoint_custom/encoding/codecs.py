"""Codecs that an application registers for types of its own, or of packages that this one does not know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from langgraph_checkpoint_custom.encoding.extensions import METHOD, UnstorableValue
from langgraph_checkpoint_custom.encoding.leaves import CODEC, Leaf, add_codec
from langgraph_checkpoint_custom.encoding.objects import forget
from langgraph_checkpoint_custom.errors import ConfigError

T = TypeVar("T")

# What msgpack has a form for never asks how it is stored.
_MSGPACK = (type(None), bool, int, float, str, bytes, bytearray, memoryview, list, tuple, dict)


def register_codec(cls: type[T], to_bytes: Callable[[T], bytes], from_bytes: Callable[[bytes], T]) -> None:
    """Store the objects of a type as bytes, in every saver of this process.

    Objects of exactly this type are stored with the codec, wherever they are in a value, and not objects of its
    subclasses. Register a codec in each process before it stores or reads such objects: reading one without its codec
    raises `CorruptCheckpoint`, which names the type. `strict=True` allows types with a codec. If you register another
    codec for a type, it has to read the bytes of the earlier one.

    With LangGraph's own serializer, such an object comes back as its bytes.

    Args:
        cls: The type, with a name by which you can find it again: its module and name are stored.
        to_bytes: Returns the bytes of an object.
        from_bytes: Returns an object for such bytes. It may be called in an event loop or on any OS thread.

    Raises:
        ConfigError: The type is one of those that msgpack stores as they are, such as `str` or `dict`, or an argument
            is not a type or a function.
    """
    if not isinstance(cls, type) or cls in _MSGPACK:
        raise ConfigError(f"register_codec needs a class that is not stored as it is anyway, not {cls!r}")
    if not (callable(to_bytes) and callable(from_bytes)):
        raise ConfigError("register_codec needs two functions, to_bytes and from_bytes")

    def parts(o: Any) -> bytes:
        try:
            data = to_bytes(o)
        except Exception as error:
            problem = f"raised {type(error).__name__}"
        else:
            if type(data) is bytes:
                return data
            problem = f"returned a {type(data).__name__}, not bytes"
        raise UnstorableValue(f"the to_bytes that is registered for {cls.__module__}.{cls.__qualname__} {problem}")

    add_codec(Leaf(cls, METHOD, cls.__module__, cls.__qualname__, parts, from_bytes, CODEC))
    forget(cls)
