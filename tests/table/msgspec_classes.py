"""Classes of msgspec, which may be missing, so their types are not checked."""

# mypy: ignore-errors
from __future__ import annotations

from typing import Any

import msgspec


class Place(msgspec.Struct):
    x: Any
    y: Any = None


class Fixed(msgspec.Struct, frozen=True, tag="fixed"):
    x: int


def raw() -> Any:
    return msgspec.Raw(b"1")
