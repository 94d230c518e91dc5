"""Connection strings, or functions that return one: each new connection calls them, since passwords may change."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from langgraph_checkpoint_custom.drivers.postgres_sessions import KERNEL
from langgraph_checkpoint_custom.errors import ConfigError

Address = str | Callable[[], str] | Callable[[], Awaitable[str]]


def check_conninfo(conninfo: object) -> str:
    """Check and return a connection string.

    The error contains neither the string nor libpq's message, because both can contain the password.
    """
    if not isinstance(conninfo, str):
        raise ConfigError(f"a connection string is text, not a {type(conninfo).__name__}")
    if not _is_clear(conninfo):
        raise ConfigError("the connection string cannot be read; %-encode special characters in it")
    return conninfo


def resolve(address: Address, connect_timeout: int) -> str:
    """Return the connection string for the next connection, with `connect_timeout` in seconds if it has none."""
    given = address if isinstance(address, str) else address()
    if inspect.iscoroutine(given):
        given.close()
        raise ConfigError(
            "an async function returns the connection string, so only the async methods work, and not in an event loop "
            "that cannot wait for sockets (the default on Windows)"
        )
    return _with_limits(given, connect_timeout)


async def aresolve(address: Address, connect_timeout: int) -> str:
    """Async version of `resolve`; a sync function runs on a worker, since it may use the network."""
    if isinstance(address, str):
        return _with_limits(address, connect_timeout)
    given = address() if inspect.iscoroutinefunction(address) else await asyncio.to_thread(address)
    return _with_limits(await given if inspect.isawaitable(given) else given, connect_timeout)


def _with_limits(conninfo: object, connect_timeout: int) -> str:
    """Return a connection string, with limits on how long the network may be silent if it has none of its own."""
    given = conninfo_to_dict(check_conninfo(conninfo))
    return make_conninfo(**{**KERNEL, "connect_timeout": connect_timeout, **given})  # type: ignore[arg-type]  # It takes numbers, too.


def _is_clear(conninfo: str) -> bool:
    """Whether a connection string can be parsed, and means what it seems to mean.

    libpq ends the account of a URL at the first @, and the host at the first /. If the password contains one of those,
    the rest of it becomes a part of the host, port or database, and so appears in every error and log.
    """
    try:
        conninfo_to_dict(conninfo)
    except ProgrammingError:
        return False
    if not conninfo.startswith(("postgresql://", "postgres://")):
        return True
    account, at, rest = conninfo.partition("://")[2].partition("@")
    if not at:
        return True
    if "/" in account:
        return "?" in account  # The @ belongs to an option.
    # A password may contain a question mark, but something that looks like an option is one; then there is no account.
    return not re.search(r"\?\w*=", account) and "@" not in rest.partition("?")[0]
