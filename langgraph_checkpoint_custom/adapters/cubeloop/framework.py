"""Imports CubeLoop, or cubepi, its name until 0.13, which has the same modules."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from langgraph_checkpoint_custom.errors import ConfigError

if TYPE_CHECKING:
    from cubeloop.checkpointer import base, exceptions
    from cubeloop.hitl.types import HitlRequest
    from cubeloop.providers.base import Message
else:
    _name = next(filter(find_spec, ("cubeloop", "cubepi")), None)
    if _name is None:
        raise ConfigError("CubeLoop is missing: install langgraph-checkpoint-custom[cubeloop]")
    base = import_module(f"{_name}.checkpointer.base")
    exceptions = import_module(f"{_name}.checkpointer.exceptions")
    HitlRequest = import_module(f"{_name}.hitl.types").HitlRequest
    Message = import_module(f"{_name}.providers.base").Message

__all__ = ["HitlRequest", "Message", "base", "exceptions"]
