"""LangGraph's names for savers that are used from `async` code: `AsyncSqliteSaver` and `AsyncPostgresSaver`.

A program that was written for `langgraph.checkpoint.postgres.aio` or `langgraph.checkpoint.sqlite.aio` imports them
from here and stays as it is. `AsyncPostgresSaver` needs the extra `postgres`.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from langgraph_checkpoint_custom.sqlite import AsyncSqliteSaver

if TYPE_CHECKING:
    from langgraph_checkpoint_custom.postgres import AsyncPostgresSaver

__all__ = ["AsyncSqliteSaver"]
if find_spec("psycopg"):
    __all__ += ["AsyncPostgresSaver"]


def __getattr__(name: str) -> Any:
    if name == "AsyncPostgresSaver":
        from langgraph_checkpoint_custom.postgres import AsyncPostgresSaver

        return AsyncPostgresSaver
    if name == "AsyncShallowPostgresSaver":  # What `from … import` says of an AttributeError is less.
        raise ImportError(f"there is no {name}: use AsyncPostgresSaver with retention=Retention(keep_last=1)")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
