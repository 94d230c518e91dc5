"""Lays out sizes as rectangles whose areas are in proportion to them: a squarified treemap.

Must not know: the store, requests, HTML.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Box(NamedTuple):
    """A rectangle; `number` is the position of its size."""

    number: int
    x: float
    y: float
    width: float
    height: float


def treemap(sizes: Sequence[float], width: float, height: float) -> list[Box]:
    """Return a rectangle for each size above zero, which together fill the given one.

    Rows are filled along the shorter side, and a row ends where another size would make its rectangles less square.
    """
    order = sorted((number for number, size in enumerate(sizes) if size > 0), key=lambda number: -sizes[number])
    total = sum(sizes[number] for number in order)
    scale = width * height / total if total else 0
    boxes: list[Box] = []
    x = y = 0.0
    row: list[int] = []
    for number in [*order, -1]:
        side = min(width - x, height - y)
        areas = [sizes[each] * scale for each in row]
        if row and (number < 0 or _worst([*areas, sizes[number] * scale], side) > _worst(areas, side)):
            # Shares of what is left, so that rounding leaves no gap and nothing sticks out.
            thick = min(sum(areas) / side, max(width - x, height - y)) if side else 0
            at = 0.0
            for each, area in zip(row, areas, strict=True):
                long = side * area / sum(areas)
                upright = width - x >= height - y
                boxes.append(Box(each, x, y + at, thick, long) if upright else Box(each, x + at, y, long, thick))
                at += long
            if width - x >= height - y:
                x += thick
            else:
                y += thick
            row = []
        row.append(number)
    return boxes


def _worst(areas: Sequence[float], side: float) -> float:
    """The least square rectangle of a row: how many times longer it is than wide."""
    total = sum(areas)
    if not total or not side:
        return float("inf")
    return max(max(side**2 * area / total**2, total**2 / (side**2 * area)) for area in areas if area)
