"""Gives async methods the docstring of the sync ones, so that `help` explains both; each stands once in the source."""

from __future__ import annotations

from typing import TypeVar

C = TypeVar("C", bound=type)


def shared_docstrings(cls: C) -> C:
    """Replace the docstrings "Async version of …" of a class by those of the methods that they name."""
    for name, method in vars(cls).items():
        if name.startswith("a") and (method.__doc__ or "").startswith("Async version of"):
            method.__doc__ = getattr(cls, name[1:]).__doc__
    return cls
