"""Programs as text: one line changed, made into modules."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


def with_one_line_changed(program: str, official: str, ours: str) -> str:
    """A program with another import line; nothing else differs."""
    changed = program.replace(official, ours)
    lines = [line for line in difflib.ndiff(program.splitlines(), changed.splitlines()) if line[0] in "+-"]
    assert lines == [f"- {official}", f"+ {ours}"]
    return changed


@contextmanager
def module_of(name: str, program: str) -> Iterator[ModuleType]:
    """A module made of a text, which can be found by its name during a block, as reading its classes needs it."""
    module = ModuleType(name)
    sys.modules[name] = module
    try:
        exec(compile(program, name, "exec", dont_inherit=True), module.__dict__)
        yield module
    finally:
        del sys.modules[name]
