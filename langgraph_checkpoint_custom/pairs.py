"""Async versions of methods, made of the sync ones: each method stands once in the source.

A method that returns `self._run(…)` has the version that `awaited` makes, and one that returns `self._pages(…)` that of
`iterated`. The version is the same method, called with something in place of `self` that has the async `_arun` and
`_apages` under these names.

Methods that do more are written twice, and so are LangGraph's own, whose signatures type checkers compare with those of
the base class. They share their docstring, so that `help` explains both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

C = TypeVar("C", bound=type)
P = ParamSpec("P")
T = TypeVar("T")

_ASYNC = {"_run": "_arun", "_pages": "_apages"}


class _Async:
    """Stands for a saver in the async version of a method."""

    def __init__(self, saver: Any) -> None:
        self._saver = saver

    def __getattr__(self, name: str) -> Any:
        return getattr(self._saver, _ASYNC.get(name, name))


def awaited(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return the async version of a method that returns `self._run(…)`."""
    same: Any = method

    @wraps(method)
    async def version(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        found: T = await same(_Async(self), *args, **kwargs)
        return found

    return _named(version, method)


def iterated(method: Callable[Concatenate[Any, P], Iterator[T]]) -> Callable[Concatenate[Any, P], AsyncIterator[T]]:
    """Return the async version of a method that returns `self._pages(…)`."""
    same: Any = method

    @wraps(method)
    def version(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        found: AsyncIterator[T] = same(_Async(self), *args, **kwargs)
        return found

    return _named(version, method)


def _named(version: Callable[P, T], method: Callable[..., Any]) -> Callable[P, T]:
    """Give the async version of a method its name, also in tracebacks and warnings."""
    version.__name__ = name = f"a{method.__name__}"
    version.__qualname__ = f"{method.__qualname__.removesuffix(method.__name__)}{name}"
    version.__code__ = version.__code__.replace(co_name=name)
    return version


def shared_docstrings(cls: C) -> C:
    """Replace the docstrings "Async version of …" of a class by those of the methods that they name."""
    for name, method in vars(cls).items():
        if name.startswith("a") and (method.__doc__ or "").startswith("Async version of"):
            method.__doc__ = getattr(cls, name[1:]).__doc__
    return cls
