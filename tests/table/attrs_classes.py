"""Classes of attrs, which may be missing, so their types are not checked."""

# mypy: ignore-errors
from __future__ import annotations

from typing import Any

import attrs


@attrs.define
class Place:
    x: Any
    y: Any = None


@attrs.frozen
class Fixed:
    x: int


@attrs.define
class Converted:
    x: int = attrs.field(converter=lambda given: int(given) * 2)


@attrs.define(slots=False)
class Private:
    _x: int


def local() -> Any:
    @attrs.define
    class Local:
        x: int

    return Local(1)
