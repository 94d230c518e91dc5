"""A password is in no error, traceback, log, warning or output, whatever goes wrong with the connection."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from langgraph_checkpoint_custom import (
    CheckpointError,
    ConfigError,
    ConnectionLost,
    PostgresSaver,
    StorageError,
    open_saver,
)
from tests.behaviour.helpers import config
from tests.conftest import APIS
from tests.faults.cluster import Cluster, running_cluster
from tests.faults.workload import SESSIONS, WAITING, fill, put_one
from tests.stores import Client

# In every password here, right or wrong, and in nothing else.
SECRET = "hu5h"


@pytest.fixture(scope="module")
def cluster(postgres_programs: None) -> Iterator[Cluster]:
    """A server that asks for a password, with the tables in it."""
    with running_cluster(password=f"right-{SECRET}") as made:
        with PostgresSaver(made.url()) as saver:
            saver.setup()
        yield made


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Log everything; at the end, none of it may contain a password."""
    caplog.set_level(logging.DEBUG)
    for name in ("psycopg", "psycopg.pool", "asyncio"):
        caplog.set_level(logging.DEBUG, logger=name)
    yield
    logged = "\n".join(f"{record.getMessage()} {record.args!r}" for record in caplog.get_records("call"))
    assert SECRET not in logged


def all_about(error: BaseException) -> str:
    """What a program prints of an error, and what a tool may find in it."""
    found = traceback.format_exception(error)
    each: BaseException | None = error
    while each is not None:
        found.append(f"{each!r} {each.args!r} {vars(each)!r}")
        each = each.__cause__ or each.__context__
    return "\n".join(found)


def broken(cluster: Cluster) -> dict[str, tuple[str, type[CheckpointError], str]]:
    """URLs that do not work, with their errors and parts of the messages."""
    right = cluster.url()
    local = f"someone:right-{SECRET}@127.0.0.1:1"
    return {
        "wrong password": (cluster.url(password=f"wrong-{SECRET}"), ConnectionLost, "authentication failed"),
        "wrong role": (cluster.url(user="nobody_there"), ConnectionLost, "authentication failed"),
        "wrong database": (cluster.url("no_such_database"), ConnectionLost, "does not exist"),
        "wrong port": (f"postgresql://{local}/db", ConnectionLost, "refused"),
        "wrong folder": (right.replace("host=/", "host=/no_such_folder/"), ConnectionLost, "No such file"),
        "two hosts": (f"postgresql://{local},127.0.0.1:2/db", ConnectionLost, "refused"),
        "as keywords": (f"host=127.0.0.1 port=1 password=right-{SECRET}", ConnectionLost, "refused"),
    }


async def test_failing_connections_reveal_no_password(
    cluster: Cluster, capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    """All at the same time, since each is retried for seconds."""
    asyncio.get_running_loop().set_debug(True)

    async def fail(url: str, kind: type[CheckpointError], message: str, api: str) -> None:
        async with PostgresSaver(url, connect_timeout=2, pool_timeout=2) as saver:
            with pytest.raises(kind, match=message) as caught:
                await Client(saver, api).get_tuple(config("t"))
            held = vars(saver) | vars(saver.backend.driver)
            assert SECRET not in f"{all_about(caught.value)} {saver!r} {saver} {held!r}"

    await asyncio.gather(*(fail(*each, api) for each in broken(cluster).values() for api in APIS))
    assert SECRET not in f"{capfd.readouterr()} {[str(each.message) for each in recwarn]}"


@pytest.mark.parametrize("api", APIS)
async def test_a_working_connection_reveals_no_password(cluster: Cluster, api: str) -> None:
    """Not even if the server ends it, if the pool is busy, or if it is closed."""
    async with PostgresSaver(cluster.url(), max_size=1, pool_timeout=0.1) as saver:
        client = Client(saver, api)
        await fill(client, api)
        with psycopg.connect(cluster.url(), autocommit=True) as other:
            other.execute("BEGIN")
            other.execute("LOCK TABLE langgraph_checkpoint.checkpoints")
            waiting = asyncio.ensure_future(put_one(client, api))
            while not other.execute(WAITING).fetchall():
                await asyncio.sleep(0.01)
            with pytest.raises(StorageError, match="busy") as busy:
                await client.get_tuple(config("t"))
            other.execute(f"SELECT pg_terminate_backend(pid, 5000){SESSIONS}")
            other.execute("ROLLBACK")
            await waiting
            other.execute(f"SELECT pg_terminate_backend(pid, 5000){SESSIONS}")
        await put_one(client, api)
        assert SECRET not in all_about(busy.value)
    with pytest.raises(CheckpointError) as closed:
        await client.get_tuple(config("t"))
    assert SECRET not in all_about(closed.value)


@pytest.mark.parametrize("api", APIS)
async def test_a_missing_password_raises_at_once(cluster: Cluster, api: str) -> None:
    """Here it is certain that no attempt will help; to libpq, a wrong password looks like too many connections."""
    async with PostgresSaver(cluster.url().replace(f":right-{SECRET}", "")) as saver:
        with pytest.raises(StorageError, match="the server asks for a password, and none was given") as caught:
            await Client(saver, api).get_tuple(config("t"))
        assert not isinstance(caught.value, ConnectionLost)


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://me:first-{SECRET}@second-{SECRET}@127.0.0.1:1/db",
        f"postgresql://me:@{SECRET}@127.0.0.1:1/db",
        f"postgresql://me:first/{SECRET}@127.0.0.1:1/db",
        f"postgresql://me:{SECRET}/second@127.0.0.1:1/db",
        f"postgresql://me:{SECRET}/?second@127.0.0.1:1/db",
        f"postgresql://127.0.0.1:1?password=first@{SECRET}",
        f"postgresql://127.0.0.1?user=me&password=first@{SECRET}",
        f"postgresql://me:{SECRET}%ZZ@127.0.0.1:1/db",
        f"postgresql://me:first@[{SECRET}/db",
        f"postgresql://me:first@127.0.0.1/db?{SECRET}",
        f"postgresql:/me:{SECRET}@127.0.0.1/db",
        f"host=127.0.0.1 password=first {SECRET}",
        f"host=127.0.0.1 pass={SECRET}",
        f"password='{SECRET}",
        f"{SECRET}",
        f"://me:{SECRET}@127.0.0.1:1/db",
        f"mysql://me:{SECRET}@127.0.0.1:1/db",
    ],
)
def test_an_ambiguous_address_is_refused_and_not_displayed(text: str) -> None:
    for make in (PostgresSaver, open_saver):
        with pytest.raises(ConfigError) as caught:
            make(text)
        assert SECRET not in all_about(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me:p%40%2Fss@localhost/db",
        "postgresql://me:p?ss@localhost/db",
        "postgresql://localhost/db?user=me&password=p@s/s",
        "postgresql:///db?user=me@there",
        "postgresql://me@localhost/db?application_name=me@there",
        "postgresql://me@[::1]:5432,localhost/db",
        "host=localhost user=me@there password=p@s/s",
        "",
    ],
)
def test_unambiguous_addresses_are_accepted(text: str) -> None:
    PostgresSaver(text).close()


def test_the_command_line_prints_no_password(cluster: Cluster) -> None:
    """Nor does Python in its development mode; what is no command is in tests/cli/test_demo.py."""
    urls = {broken(cluster)[name][0]: 1 for name in ("wrong password", "wrong port")} | {cluster.url(): 0}
    program = [sys.executable, "-X", "dev", "-m", "langgraph_checkpoint_custom", "setup", "--url"]
    environment = {**os.environ, "CHECKPOINT_URL": f"postgresql://me:{SECRET}@127.0.0.1:1/db"}
    output: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    processes = [subprocess.Popen([*program, url], env=environment, **output) for url in urls]
    for process, code in zip(processes, urls.values(), strict=True):
        said = process.communicate()[0]
        assert SECRET not in said
        assert process.returncode == code, said
