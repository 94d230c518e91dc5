"""Checkpoint savers for LangGraph, on PostgreSQL and SQLite, that give back most types unchanged.

`PostgresSaver` and `AsyncPostgresSaver` need the extra `postgres`. They are imported on first use, so that SQLite works
without psycopg.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from langgraph_checkpoint_custom.encoding.objects import register_codec
from langgraph_checkpoint_custom.errors import (
    CheckpointConflict,
    CheckpointEncodeError,
    CheckpointError,
    CheckpointLabelled,
    CheckpointNotFound,
    ClaimLost,
    ClosedError,
    ConfigError,
    ConnectionLost,
    Contention,
    CorruptCheckpoint,
    LabelExists,
    NameTooLong,
    RetryableError,
    SchemaError,
    SchemaForeign,
    SchemaMissing,
    SchemaOutdated,
    SchemaTooNew,
    StaleInterrupt,
    StorageError,
    ThreadBusy,
    ThreadExists,
)
from langgraph_checkpoint_custom.model.records import (
    CheckpointRecord,
    RunRecord,
    SweepStatus,
    Swept,
    ThreadRecord,
    WaitingThread,
)
from langgraph_checkpoint_custom.observed import OperationEvent
from langgraph_checkpoint_custom.operations.erase import Erased
from langgraph_checkpoint_custom.retention import Retention
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.settings import open_saver
from langgraph_checkpoint_custom.sqlite import AsyncSqliteSaver, SqliteSaver

if TYPE_CHECKING:
    from langgraph_checkpoint_custom.postgres import AsyncPostgresSaver, PostgresSaver

__version__ = "1.0.0rc1"

__all__ = [
    "AsyncSqliteSaver",
    "CheckpointConflict",
    "CheckpointEncodeError",
    "CheckpointError",
    "CheckpointLabelled",
    "CheckpointNotFound",
    "CheckpointRecord",
    "CheckpointSaver",
    "ClaimLost",
    "ClosedError",
    "ConfigError",
    "ConnectionLost",
    "Contention",
    "CorruptCheckpoint",
    "Erased",
    "LabelExists",
    "NameTooLong",
    "OperationEvent",
    "Retention",
    "RetryableError",
    "RunRecord",
    "SchemaError",
    "SchemaForeign",
    "SchemaMissing",
    "SchemaOutdated",
    "SchemaTooNew",
    "SqliteSaver",
    "StaleInterrupt",
    "StorageError",
    "SweepStatus",
    "Swept",
    "ThreadBusy",
    "ThreadExists",
    "ThreadRecord",
    "WaitingThread",
    "open_saver",
    "register_codec",
]
if find_spec("psycopg"):  # `import *` works without it.
    __all__ += ["AsyncPostgresSaver", "PostgresSaver"]

_SHALLOW = {"AsyncShallowPostgresSaver": "AsyncPostgresSaver", "ShallowPostgresSaver": "PostgresSaver"}


def __getattr__(name: str) -> Any:
    if name in _SHALLOW.values():
        from langgraph_checkpoint_custom import postgres

        return getattr(postgres, name)
    if name in _SHALLOW:  # `from … import` hides the message of an AttributeError.
        raise ImportError(f"there is no {name}: use {_SHALLOW[name]} with retention=Retention(keep_last=1)")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
