"""PgBouncer in transaction mode in front of a test's database. It refuses to run as root, so it has its own user."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import psycopg

from tests.needs import need


@contextmanager
def bounced(url: str, *, servers: int = 2, settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """A PgBouncer with `servers` connections to the server of a URL; yields the URL of the same database through it.

    `settings` are those of a file; only addresses and log-ins are replaced.
    """
    program = need(shutil.which("pgbouncer"), "PgBouncer: install Debian's package, and have /usr/sbin on the PATH")
    user = _user(url)
    folder = Path(tempfile.mkdtemp(prefix="checkpoint-pgbouncer-"))
    try:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        (folder / "pgbouncer.ini").write_text(_configuration(url, port, servers, settings or {}, _version(program)))
        os.chown(folder, user.pw_uid, user.pw_gid)
        os.chown(folder / "pgbouncer.ini", user.pw_uid, user.pw_gid)
        command = [program, str(folder / "pgbouncer.ini")]
        log = folder / "log"
        with log.open("wb") as output:
            if os.geteuid() == 0:
                process = subprocess.Popen(
                    command,
                    stdout=output,
                    stderr=output,
                    user=user.pw_uid,
                    group=user.pw_gid,
                    extra_groups=[],
                )
            else:
                process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            pooled = f"postgresql://anybody@127.0.0.1:{port}{urlsplit(url).path}?sslmode=disable&gssencmode=disable"
            _wait_until_it_answers(process, pooled, log)
            yield pooled
        finally:
            process.kill()
            process.wait()
    finally:
        shutil.rmtree(folder)


def _configuration(url: str, port: int, servers: int, settings: Mapping[str, str], version: tuple[int, ...]) -> str:
    """Every client is let in, and is the URL's user on the server."""
    parts = urlsplit(url)
    host, server_port = _address(url)
    account = f"user={_quoted(unquote(parts.username or ''))}"
    if parts.password:
        account += f" password={_quoted(unquote(parts.password))}"
    pgbouncer = {
        "pool_mode": "transaction",
        "default_pool_size": str(servers),
        "max_client_conn": "200",
        # Older versions do not know prepared statements, which is what 0 means.
        **({"max_prepared_statements": "0"} if version >= (1, 21) else {}),
    }
    if settings:
        pgbouncer = {name: value for name, value in settings.items() if name != "auth_file"}
    pgbouncer |= {"listen_addr": "127.0.0.1", "listen_port": str(port), "unix_socket_dir": "", "auth_type": "any"}
    lines = ["[databases]", f"* = host={_quoted(host)} port={server_port} {account}", "[pgbouncer]"]
    return "\n".join([*lines, *(f"{name} = {value}" for name, value in pgbouncer.items()), ""])


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    return unquote(parts.hostname or query.get("host") or "127.0.0.1"), parts.port or int(query.get("port", "5432"))


def _user(url: str) -> pwd.struct_passwd:
    """The owner of the server's socket, whose folder may be closed to others; the user `nobody` without a socket."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    host, port = _address(url)
    if host.startswith("/"):
        owner = pwd.getpwuid((Path(host) / f".s.PGSQL.{port}").stat().st_uid)
        if owner.pw_uid != 0:
            return owner
    return pwd.getpwnam("nobody")


def _version(program: str) -> tuple[int, ...]:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(number) for number in said.split()[1].split(".")[:2])


def _wait_until_it_answers(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    until = time.monotonic() + 150
    while True:
        try:
            psycopg.connect(url, connect_timeout=5).close()
            return
        except psycopg.OperationalError as error:
            if process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"PgBouncer does not answer: {error}\n{log.read_text()}") from error
        time.sleep(0.02)
