"""`open_saver`, which selects the database by a URL."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote, unquote

from typing_extensions import Unpack

from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.options import Options
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.sqlite import SqliteSaver


def open_saver(url: str, **options: Unpack[Options]) -> CheckpointSaver:
    """Return the saver for a database URL, or the path of a SQLite file, without connecting yet.

    Args:
        url: `sqlite:///checkpoints.db` (relative path), `sqlite:////var/lib/app/checkpoints.db` (absolute path),
            `sqlite:///:memory:`, or `postgresql://user:password@host/database`. A path has a slash or ends with `.db`,
            `.sqlite` or `.sqlite3`, or the file exists.
        options: The options of `SqliteSaver` or `PostgresSaver`.

    Raises:
        ConfigError: The URL does not name a database that this package supports.
    """
    if not isinstance(url, str):
        raise ConfigError(f"a database URL is text, not {type(url).__name__}; for a path use SqliteSaver")
    url = url_of(url)
    scheme, colon, _ = url.partition(":")
    scheme = scheme.lower()
    if scheme == "sqlite":
        rest = url[len("sqlite:") :]
        if not rest.startswith("///"):
            raise ConfigError("a SQLite URL has three slashes before a relative path: sqlite:///checkpoints.db")
        if "?" in rest:
            raise ConfigError(
                "a sqlite:/// URL has no options; give them to open_saver, and write %3F for a question mark"
            )
        return SqliteSaver(unquote(rest[3:]) or ":memory:", **options)  # type: ignore[misc]  # It raises for others.
    if scheme.partition("+")[0] in ("postgresql", "postgres"):
        from langgraph_checkpoint_custom.postgres import PostgresSaver

        return PostgresSaver.from_conn_string(url, **options)  # type: ignore[misc]
    # Without a scheme it may be a connection string with a password.
    known = colon and re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme)
    what = f"a URL that starts with {scheme!r}" if known else "a text that is not a URL"
    raise ConfigError(f"no database is known for {what}; use sqlite:/// or postgresql://")


def url_of(text: str) -> str:
    """Return the URL for the path of a SQLite file; return a URL as it is.

    A name such as "localhost" is not taken for a file that could be created: the file exists, or its name has a slash
    or the usual ending.
    """
    if ":" in text or "=" in text:  # A URL, or a connection string of PostgreSQL.
        return text
    is_file = "/" in text or text.endswith((".db", ".sqlite", ".sqlite3")) or Path(text).is_file()
    return f"sqlite:///{quote(text)}" if is_file else text
