"""msgspec's `Raw`; its `Struct` has fields, see `classes.py`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from langgraph_checkpoint_custom.encoding.extensions import SINGLE
from langgraph_checkpoint_custom.encoding.leaves import called

msgspec: Any = import_module("msgspec")

LEAVES = [called(msgspec.Raw, SINGLE, "msgspec", bytes)]
