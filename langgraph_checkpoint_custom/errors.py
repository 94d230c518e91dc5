"""The errors of this package, grouped by who can fix them. Each message names the cause and what to do.

These are the classes. The code that raises an error words it: `operations/schema.py` for missing tables, the drivers
for what a database reports. The few texts that several files need are here.

If an error says that nothing was stored, changed or deleted, this is true of the last attempt. If the answer to an
earlier attempt was lost, that attempt may have succeeded, and the message says so.

- the caller: `ConfigError`, `NameTooLong`, `ClosedError`, `CheckpointEncodeError`, `ThreadExists`, `LabelExists`,
  `CheckpointNotFound`, `CheckpointLabelled`, `CheckpointConflict`, `ThreadBusy`, `ClaimLost`, `StaleInterrupt`
- the operator of the database: `SchemaError` (tables), `StorageError` (everything else)
- the owner of the data: `CorruptCheckpoint`
"""

from __future__ import annotations

from datetime import datetime
from typing import Any


class CheckpointError(Exception):
    """The base class of the errors that this package raises. They can be pickled and copied."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args), self.__dict__


def _again(cls: type[CheckpointError], args: tuple[Any, ...]) -> CheckpointError:
    """Create the error from its text, without `__init__`, which takes other arguments."""
    return cls.__new__(cls, *args)


class ConfigError(CheckpointError, ValueError):
    """An argument or option cannot be used; nothing was written."""


class NameTooLong(ConfigError):
    """Thread id, namespace and channel are together too long for an index of PostgreSQL; nothing was stored."""


class ClosedError(CheckpointError):
    """The saver was closed; open a new one."""


def closed_error() -> ClosedError:
    """The error for a saver that was closed."""
    return ClosedError("this saver was closed; open a new one")


def read_only_error(operation: str) -> ConfigError:
    """The error for a write with a saver that only reads."""
    return ConfigError(f"{operation}: this saver was opened with read_only=True; open another one to change something")


class CheckpointEncodeError(CheckpointError, TypeError):
    """A value cannot be serialized; nothing was written. The serializer's own error is the `__cause__`."""


class ThreadExists(CheckpointError):
    """The target of a copy or fork has checkpoints or writes of its own; nothing was copied or forked."""


class LabelExists(CheckpointError):
    """Another checkpoint of the thread has this label; nothing was changed."""


class CheckpointNotFound(CheckpointError):
    """A checkpoint that the operation needs does not exist, or was pruned or deleted; nothing was stored."""


class CheckpointLabelled(CheckpointError):
    """A checkpoint that would be deleted has a label; nothing was deleted."""


class CheckpointConflict(CheckpointError):
    """Another run has stored a newer checkpoint since this run began; nothing was stored.

    A saver with `concurrent_writers="reject"` raises it, and a retry of a call of which an earlier attempt may have
    succeeded.
    """


class ThreadBusy(CheckpointError):
    """Somebody else has claimed the thread.

    Attributes:
        thread_id: The thread.
        owner: The owner of the claim.
        expires_at: When the claim expires, unless it is renewed.
    """

    def __init__(self, thread_id: str, owner: str, expires_at: datetime) -> None:
        super().__init__(
            f"thread {thread_id!r} is claimed by {owner!r} until {expires_at.isoformat(timespec='seconds')}; try again "
            "after that"
        )
        self.thread_id = thread_id
        self.owner = owner
        self.expires_at = expires_at


class ClaimLost(CheckpointError):
    """The claim on a thread has expired, and the thread was taken over or the claim removed; nothing was stored."""


class StaleInterrupt(CheckpointError):
    """The interrupt that you want to answer is not open."""


class CorruptCheckpoint(CheckpointError):
    """Stored data cannot be turned back into the value that was stored.

    The attributes are None if the database found the problem, because it does not say in which row.

    Attributes:
        thread_id: The thread.
        checkpoint_ns: The namespace.
        checkpoint_id: The checkpoint.
        channel: The channel, or the part of the row ("checkpoint", "metadata").
        type: The type that the serializer gave when the value was stored, if known.
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
    """The error for a stored value whose list of chunks the database cannot read."""
    return CorruptCheckpoint(
        f"{operation}: the list of chunks of a stored value is not a list of names, so something else has written "
        "to the tables; restore the thread from a backup"
    )


class SchemaError(CheckpointError):
    """The tables are not the ones that this package needs."""


class SchemaMissing(SchemaError):
    """The tables do not exist yet."""


class SchemaOutdated(SchemaError):
    """The tables were created by an older version of this package."""


class SchemaTooNew(SchemaError):
    """The tables need a newer version of this package."""


class SchemaForeign(SchemaError):
    """The database has a table of another program with the name of one of ours, such as `checkpoints`."""


class StorageError(CheckpointError):
    """The database failed or rejected the operation; its own error is the `__cause__`.

    Attributes:
        operation: The operation that was running, such as `put_writes`.
        statement: The name of the statement that failed, as in `sql/*.sql`, if known.
        sqlstate: PostgreSQL's five characters, or the name of SQLite's error, if known.
    """

    def __init__(
        self, message: str, *, operation: str, statement: str | None = None, sqlstate: str | None = None
    ) -> None:
        super().__init__(message)
        self.operation = operation
        self.statement = statement
        self.sqlstate = sqlstate


class RetryableError(StorageError):
    """A failure that another attempt may avoid; the saver has already made several attempts."""


class ConnectionLost(RetryableError):
    """The connection broke or could not be made.

    Attributes:
        unanswered: Whether a connection broke after it was made, in any of the attempts. If so, the operation may have
            succeeded.
    """

    unanswered = False


class Contention(RetryableError):
    """Other transactions were in the way: a deadlock, a serialization failure, or a lock that was held too long."""
