"""LangGraph's names for the savers of async programs: `AsyncSqliteSaver` and `AsyncPostgresSaver`.

A program for `langgraph.checkpoint.postgres.aio` or `langgraph.checkpoint.sqlite.aio` imports them from here and needs
no other change. `AsyncPostgresSaver` needs the extra `postgres`.
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
    if name == "AsyncShallowPostgresSaver":  # `from … import` replaces the message of an AttributeError.
        raise ImportError(f"there is no {name}: use AsyncPostgresSaver with retention=Retention(keep_last=1)")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
