"""Errors can be pickled and copied, and do not show stored values."""

from __future__ import annotations

import copy
import pickle
from contextlib import suppress
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from langgraph_checkpoint_custom import errors
from langgraph_checkpoint_custom.encoding.extensions import UnreadableValue, UnstorableValue

PACKAGE = Path(errors.__file__).parent
WHEN = datetime(2024, 5, 6, tzinfo=timezone.utc)
LOCATION = {"thread_id": "1", "checkpoint_ns": "", "checkpoint_id": "2", "channel": "a", "type": None}
# Errors that need more than a text.
MADE: dict[str, Any] = {
    "ThreadBusy": lambda cls: cls("1", "me", WHEN),
    "CorruptCheckpoint": lambda cls: cls("it is missing", **LOCATION),
    **dict.fromkeys(
        ("StorageError", "RetryableError", "ConnectionLost", "Contention"),
        lambda cls: cls("it failed", operation="put", statement="insert_checkpoint", sqlstate="40001"),
    ),
}


def all_below(cls: type[BaseException]) -> list[type[BaseException]]:
    return [cls, *(each for below in cls.__subclasses__() for each in all_below(below))]


def error_classes() -> list[type[BaseException]]:
    for file in PACKAGE.rglob("*.py"):
        if file.stem != "__main__":
            with suppress(ImportError, errors.ConfigError):  # A dependency of an extra may be missing.
                import_module(".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts))
    found = [*all_below(errors.CheckpointError), UnreadableValue, UnstorableValue]
    return sorted(set(found), key=lambda cls: cls.__name__)


@pytest.mark.parametrize("cls", error_classes(), ids=lambda cls: cls.__name__)
def test_errors_survive_pickle_and_copy(cls: type[BaseException]) -> None:
    error = MADE.get(cls.__name__, lambda cls: cls("it is so"))(cls)
    error.mine = ["attribute"]
    ways = [lambda e, n=n: pickle.loads(pickle.dumps(e, n)) for n in range(pickle.HIGHEST_PROTOCOL + 1)]
    for way in (*ways, copy.copy, copy.deepcopy):
        other = way(error)
        assert type(other) is cls
        assert (str(other), other.args, vars(other)) == (str(error), error.args, vars(error))
