"""Connection strings, or functions that give one: each new connection asks, since passwords may change."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from langgraph_checkpoint_custom.errors import ConfigError

Address = str | Callable[[], str] | Callable[[], Awaitable[str]]


def checked(conninfo: object) -> str:
    """A connection string, if it is one; the error shows neither it nor libpq's words, which can hold the password."""
    if not isinstance(conninfo, str):
        raise ConfigError(f"a connection string is text, not a {type(conninfo).__name__}")
    if not _is_clear(conninfo):
        raise ConfigError("the connection string cannot be read; %-encode special characters in it")
    return conninfo


def resolve(address: Address) -> str:
    """The connection string to connect with now."""
    given = address if isinstance(address, str) else address()
    if inspect.iscoroutine(given):
        given.close()
        raise ConfigError("an async function gives the connection string, so the saver has async methods only")
    return checked(given)


async def aresolve(address: Address) -> str:
    """The same; a function that is not async runs on a worker, since it may ask over the network."""
    if isinstance(address, str):
        return checked(address)
    given = address() if inspect.iscoroutinefunction(address) else await asyncio.to_thread(address)
    return checked(await given if inspect.isawaitable(given) else given)


def _is_clear(conninfo: str) -> bool:
    """Whether a connection string can be read, and is not read as another one than was meant.

    To libpq the account of a URL ends at the first @ and the host at the first /. With one of those in the password,
    the rest of it would be a part of the host, port or database, and so of every error and log.
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
        return "?" in account  # The @ is that of an option.
    # A question mark may be in a password, but what looks like an option is one, and the account was left out.
    return not re.search(r"\?\w*=", account) and "@" not in rest.partition("?")[0]
