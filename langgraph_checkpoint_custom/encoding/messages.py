"""LangChain's messages and documents: plain data under fixed names, so they need no validation to be what they were.

Must not know: serializers, SQL.

Making one by its class takes 8 to 13 µs, most of it validation and conversions of what older versions of LangChain
stored; filling it in takes one. What is stored are the fields of an object that was one already.
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
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_TYPES
from pydantic import BaseModel
from typing_extensions import get_type_hints, is_typeddict

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
    """Whether what a field holds is stored as it is."""
    if is_typeddict(annotation):
        return all(map(_is_plain, get_type_hints(annotation).values()))
    origin = get_origin(annotation)
    if origin in (Union, UnionType, dict, list):
        return all(map(_is_plain, get_args(annotation)))
    return origin is Literal or annotation in _DATA


class Plain(NamedTuple):
    """How to fill in an object of a class: the fields that it has then, and what else it holds."""

    model: type[BaseModel]
    fields: frozenset[str]
    extra: bool


def plain(model: type[BaseModel]) -> Plain | None:
    """How to fill in an object of a class, or None if that might not be all that it is."""
    if model.__private_attributes__ or not all(_is_plain(field.annotation) for field in model.model_fields.values()):
        return None
    return Plain(model, frozenset(model.model_fields), model.model_config.get("extra") == "allow")


# By the name that is stored. A class of a later LangChain may hold more, or may not be safe to read.
_PLAIN_MODELS = {
    location: known
    for model in MODELS
    if (location := (model.__module__, model.__name__)) in SAFE_MSGPACK_TYPES and (known := plain(model))
}
_set = object.__setattr__
_EXTRA = frozenset({"extra"})
_new = object.__new__


def made(module: str, name: str, stored: Any, given: Any = "", state: Any = None) -> Any:
    """A message with these fields, or None if its class has to make it.

    Of those that LangGraph has stored it is not known which fields were given; it says how its class makes them.
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
