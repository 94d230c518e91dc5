"""The oldest versions that pyproject.toml allows, as arguments of pip: `python -m tests.oldest`."""

from __future__ import annotations

import re
from importlib.metadata import requires

from packaging.requirements import Requirement


def oldest() -> list[str]:
    """The lower bounds of what a saver needs, on both databases."""
    needed = [Requirement(each) for each in requires("langgraph-checkpoint-custom") or ()]
    found = []
    for each in needed:
        if each.marker is None or each.marker.evaluate({"extra": "postgres"}):
            (bound,) = re.findall(r">=([\d.]+)", str(each.specifier))
            names = [each.name, *(f"{each.name}-binary" for extra in each.extras if extra == "binary")]
            found += [f"{name}=={bound}" for name in names]
    return found


if __name__ == "__main__":
    print(*oldest())
