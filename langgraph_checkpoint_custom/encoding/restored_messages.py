"""Restores LangChain's messages and documents without validation: they are plain data under fixed names.

Must not know: serializers, SQL.

The constructor of such a class takes 8 to 13 µs, mostly for validation and for converting data of older versions of
LangChain. Setting the fields takes 1 µs. The stored fields come from a valid object, so they need no validation.

They are stored as any other model of pydantic; see `classes.py`.
"""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from pydantic import BaseModel
from typing_extensions import get_type_hints, is_typeddict

from langgraph_checkpoint_custom.encoding.langgraph_private import SAFE_TYPES

MODELS: frozenset[type[BaseModel]] = frozenset(
    {
        AIMessage,
        AIMessageChunk,
        ChatMessage,
        Document,
        FunctionMessage,
        HumanMessage,
        RemoveMessage,
        SystemMessage,
        ToolMessage,
    }
)
_DATA = (Any, str, int, float, bool, NoneType, dict, list)


def _is_plain(annotation: Any) -> bool:
    """Whether msgpack stores the values of such a field as they are."""
    if is_typeddict(annotation):
        return all(map(_is_plain, get_type_hints(annotation).values()))
    origin = get_origin(annotation)
    if origin in (Union, UnionType, dict, list):
        return all(map(_is_plain, get_args(annotation)))
    return origin is Literal or annotation in _DATA


class Plain(NamedTuple):
    """What an object of a class consists of: its fields, and whether it can have extra ones."""

    model: type[BaseModel]
    fields: frozenset[str]
    extra: bool


def plain(model: type[BaseModel]) -> Plain | None:
    """What an object of a class consists of, or None if it may hold more than plain fields."""
    if model.__private_attributes__ or not all(_is_plain(field.annotation) for field in model.model_fields.values()):
        return None
    return Plain(model, frozenset(model.model_fields), model.model_config.get("extra") == "allow")


# By the stored name. Without classes that hold more, or are not safe to read, in the installed version of LangChain.
_PLAIN_MODELS = {
    full_name: known
    for model in MODELS
    if (full_name := (model.__module__, model.__name__)) in SAFE_TYPES and (known := plain(model))
}
_set = object.__setattr__
_EXTRA = frozenset({"extra"})
_new = object.__new__


def made(module: str, name: str, stored: Any, given: Any = "", state: Any = None) -> Any:
    """Create a message or document with these fields, or return None if its class has to create it.

    `given` has the names of the fields that were given, or None if all were. If LangGraph's serializer has stored the
    object, they are not known, and `given` is the method by which LangGraph creates it: then all fields count as given.
    """
    known = _PLAIN_MODELS.get((module, name))
    if known is None or type(stored) is not dict or stored.keys() != known.fields:
        return None
    extra = None
    if state is not None:
        if state.keys() != _EXTRA:
            return None
        extra = state["extra"]
    message = _new(known.model)
    _set(message, "__dict__", stored)
    _set(message, "__pydantic_fields_set__", set(given if type(given) is list else stored))
    _set(message, "__pydantic_extra__", (extra or {}) if known.extra else None)
    _set(message, "__pydantic_private__", None)
    return message
