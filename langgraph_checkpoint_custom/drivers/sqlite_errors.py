"""Which errors SQLite raised, and what to do about them.

Must not know: connections.
"""

from __future__ import annotations

from langgraph_checkpoint_custom.errors import CheckpointError, Contention, StorageError, no_list_of_names

# Primary result codes: https://www.sqlite.org/rescode.html
BUSY = {5: "SQLITE_BUSY", 6: "SQLITE_LOCKED"}
# For a missing table or column SQLite reports only SQLITE_ERROR, and Python 3.10 does not report even that.
OTHER_TABLES = {1, None}
# SQLITE_IOERR and SQLITE_PROTOCOL: they were seen, rarely, while other processes opened and closed the same new file.
UNSETTLED = {10, 15}
# SQLITE_CANTOPEN and SQLITE_PROTOCOL, and each SQLITE_IOERR_SHM…
_OF_SHARED_MEMORY = {14, 15}
NO_SHARED_MEMORY = "without shared memory, as in some containers, pass journal_mode='DELETE'"
WAY_OUT = {
    8: "the file or its folder is not writable for this user",
    10: "the disk reported an error",
    11: "the file is damaged; restore it from a backup, or rescue it with the `.recover` command of the sqlite3 shell",
    13: "the disk is full; nothing of this operation was stored, free some space and try again",
    14: "the file cannot be opened; check that it or its folder exists, that this user may write there, and that this "
    "process does not have too many files open",
    18: "a value is larger than SQLite allows, which is usually 1 GB; nothing of this operation was stored",
    26: "the file is not a SQLite database",
}


def code_of(error: Exception) -> int | None:
    """Return the primary result code; None on Python 3.10, which does not report it."""
    if isinstance(error, OverflowError):  # Python raises it for values of more than 2 GB.
        return 18
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def may_lack_shared_memory(error: Exception) -> bool:
    """Whether the cause may be that a file is in WAL mode where there is no shared memory."""
    name = getattr(error, "sqlite_errorname", None) or ""
    return code_of(error) in _OF_SHARED_MEMORY or name.startswith("SQLITE_IOERR_SHM")


def storage_error(
    error: Exception, operation: str, statement: str | None, path: str, busy_timeout: float
) -> CheckpointError:
    """Return the error of this package for one of SQLite."""
    code = code_of(error)
    if str(error) == "malformed JSON":
        return no_list_of_names(operation)
    name = getattr(error, "sqlite_errorname", None)
    if code in BUSY:
        return Contention(
            f"{operation}: another connection has kept {path} locked for longer than busy_timeout "
            f"({busy_timeout:g} s); nothing was stored. Raise busy_timeout, or find out what holds the lock: "
            "another process, or a connection of your own with an open transaction",
            operation=operation,
            statement=statement,
            sqlstate=name,
        )
    way_out = WAY_OUT.get(code or 0, str(error))
    if name and code in WAY_OUT:
        way_out += f" ({name})"
    if may_lack_shared_memory(error):
        way_out += f"; {NO_SHARED_MEMORY}"
    return StorageError(
        f"{operation}: SQLite failed on {path}: {way_out}",
        operation=operation,
        statement=statement,
        sqlstate=name,
    )
