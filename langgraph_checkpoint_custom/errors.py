"""What can go wrong, sorted by who can mend it; every message names the thing and the way out.

Where an error is of nothing that was stored, changed or deleted, that is so of the last attempt; its message says if an
earlier one, whose answer was lost, may have been done.

- the caller: `ConfigError`, `ClosedError`, `CheckpointEncodeError`, `ThreadExists`, `LabelExists`,
  `CheckpointNotFound`, `CheckpointLabelled`, `CheckpointConflict`, `ThreadBusy`, `ClaimLost`, `StaleInterrupt`
- whoever runs the database: `SchemaError` (tables), `StorageError` (everything else)
- nobody but the data's owner: `CorruptCheckpoint`
"""

from __future__ import annotations

from datetime import datetime
from typing import Any


class CheckpointError(Exception):
    """Base of every error that this package raises on purpose. They can be pickled and copied."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args), self.__dict__


def _again(cls: type[CheckpointError], args: tuple[Any, ...]) -> CheckpointError:
    """The same error with its text, which the class has made of other arguments; it comes before its attributes."""
    return cls.__new__(cls, *args)


class ConfigError(CheckpointError, ValueError):
    """An argument or option cannot be used; nothing was written."""


class ClosedError(CheckpointError):
    """The saver was closed; open a new one."""


def closed() -> ClosedError:
    """The error for a saver that was closed."""
    return ClosedError("this saver was closed; open a new one")


class CheckpointEncodeError(CheckpointError, TypeError):
    """A value cannot be serialised; nothing was written. The serializer's own error is the `__cause__`."""


class ThreadExists(CheckpointError):
    """The target of a copy has checkpoints of its own; nothing was copied."""


class LabelExists(CheckpointError):
    """Another checkpoint of the thread has this label; nothing was changed."""


class CheckpointNotFound(CheckpointError):
    """A checkpoint that the operation builds on was pruned or deleted; a write has stored nothing."""


class CheckpointLabelled(CheckpointError):
    """A checkpoint that would go has a label; nothing was deleted."""


class CheckpointConflict(CheckpointError):
    """Another run has stored a checkpoint since this one began (`concurrent_writers="reject"`); nothing was stored."""


class ThreadBusy(CheckpointError):
    """Somebody else has claimed the thread.

    Attributes:
        thread_id: The thread.
        owner: Who has it.
        expires_at: When the claim ends, unless it is renewed.
    """

    def __init__(self, thread_id: str, owner: str, expires_at: datetime) -> None:
        super().__init__(
            f"thread {thread_id!r} is claimed by {owner!r} until {expires_at.isoformat(timespec='seconds')}; try again "
            "when that is over"
        )
        self.thread_id = thread_id
        self.owner = owner
        self.expires_at = expires_at


class ClaimLost(CheckpointError):
    """The claim on a thread has expired and is somebody else's or nobody's; nothing was stored."""


class StaleInterrupt(CheckpointError):
    """The question that is to be answered is not the one that waits."""


class CorruptCheckpoint(CheckpointError):
    """Stored data cannot be turned back into the value that was stored.

    The attributes are None where the database has found it, which does not say in which row.

    Attributes:
        thread_id: The thread.
        checkpoint_ns: The namespace.
        checkpoint_id: The checkpoint.
        channel: The channel, or the part of the row ("checkpoint", "metadata").
        type: The type tag that the serializer gave when the value was stored, if known.
    """

    def __init__(
        self,
        reason: str,
        *,
        thread_id: str | None = None,
        checkpoint_ns: str | None = None,
        checkpoint_id: str | None = None,
        channel: str | None = None,
        type: str | None = None,
    ) -> None:
        where = (
            f" (thread {thread_id!r}, namespace {checkpoint_ns!r}, checkpoint {checkpoint_id!r}, "
            f"channel {channel!r}, type {type!r})"
        )
        super().__init__(reason if thread_id is None else reason + where)
        self.thread_id = thread_id
        self.checkpoint_ns = checkpoint_ns
        self.checkpoint_id = checkpoint_id
        self.channel = channel
        self.type = type


def no_list_of_names(operation: str) -> CorruptCheckpoint:
    """The error where a database cannot read which parts a stored value has."""
    return CorruptCheckpoint(
        f"{operation}: what should name the parts of a stored value is no list of names, so something else has written "
        "to the tables; restore the thread from a backup"
    )


class SchemaError(CheckpointError):
    """The tables are not the ones that this package needs."""


class SchemaMissing(SchemaError):
    """The tables do not exist yet."""


class SchemaOutdated(SchemaError):
    """The tables are of an older version of this package."""


class SchemaTooNew(SchemaError):
    """The tables are of a newer version of this package."""


class SchemaForeign(SchemaError):
    """A `checkpoints` table is there, but it is somebody else's."""


class StorageError(CheckpointError):
    """The database refused or failed; its own error is the `__cause__`.

    Attributes:
        operation: The operation that was running, such as `put_writes`.
        statement: The statement that failed, by its name in `sql/*.sql`, if known.
        sqlstate: The five characters that PostgreSQL gives, or SQLite's error name, if known.
    """

    def __init__(
        self, message: str, *, operation: str, statement: str | None = None, sqlstate: str | None = None
    ) -> None:
        super().__init__(message)
        self.operation = operation
        self.statement = statement
        self.sqlstate = sqlstate


class RetryableError(StorageError):
    """Trying again can help; the driver has already tried as often as it was told to."""


class ConnectionLost(RetryableError):
    """The connection broke or could not be made.

    Attributes:
        unanswered: Whether it broke after it was made, at any of the attempts, so that what was asked for may have been
            done all the same.
    """

    unanswered = False


class Contention(RetryableError):
    """Other transactions were in the way: a deadlock, a serialisation failure, or a lock held too long."""
