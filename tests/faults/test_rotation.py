"""Changing passwords: each new connection asks for the connection string."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from langgraph_checkpoint_custom import ConfigError, PostgresSaver
from tests.conftest import APIS
from tests.faults.cluster import Cluster, running_cluster
from tests.faults.workload import SESSIONS, fill, put_one, read
from tests.stores import Client


class Vault:
    """Returns the connection string with the current password; counts who asks, and where."""

    def __init__(self, cluster: Cluster, api: str) -> None:
        self._cluster = cluster
        self.role = f"app_{api}"
        self.password = "secret-0"
        self.stale: list[str] = []
        self.askers: list[int] = []
        with psycopg.connect(cluster.url(), autocommit=True) as owner:
            owner.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(self.role)))
            owner.execute(sql.SQL("CREATE ROLE {} LOGIN SUPERUSER").format(sql.Identifier(self.role)))
        self.rotate("secret-1")

    def rotate(self, password: str) -> None:
        """Change the password and end the role's sessions."""
        self.password = password
        with psycopg.connect(self._cluster.url(), autocommit=True) as owner:
            change = sql.SQL("ALTER ROLE {} PASSWORD {}")
            owner.execute(change.format(sql.Identifier(self.role), sql.Literal(password)))
            owner.execute(f"SELECT pg_terminate_backend(pid, 5000){SESSIONS} AND usename = %s", [self.role])

    def url(self) -> str:
        self.askers.append(threading.get_ident())
        password = self.stale.pop() if self.stale else self.password
        return self._cluster.url(user=self.role, password=password)

    async def aurl(self) -> str:
        await asyncio.sleep(0)
        return self.url()


@pytest.fixture(scope="module")
def cluster(postgres_programs: None) -> Iterator[Cluster]:
    """A server that asks for a password, with the tables in it."""
    with running_cluster(password="topsecret") as made:
        with PostgresSaver(made.url()) as saver:
            saver.setup()
        yield made


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_saver_works_on_when_the_password_changes(cluster: Cluster, api: str, is_async: bool) -> None:
    vault = Vault(cluster, api)
    thread_id = f"{api} {is_async}"
    async with PostgresSaver(vault.aurl if is_async else vault.url, max_size=2) as saver:
        client = Client(saver, api)
        if is_async and api == "sync":
            with pytest.raises(ConfigError, match="only the async methods work"):
                await read(client, thread_id)
            return
        await fill(client, thread_id)
        for number in range(2, 4):
            vault.rotate(f"secret-{number}")
            vault.stale.append(f"secret-{number - 1}")  # Somebody has it in a cache.
            await put_one(client, thread_id, f"checkpoint {number + 7}")
        assert len(await client.all({"configurable": {"thread_id": thread_id}})) == 5
    asked_on_the_loop = threading.get_ident() in vault.askers
    assert asked_on_the_loop is is_async


@pytest.mark.parametrize("api", APIS)
async def test_the_functions_result_is_checked_and_its_own_error_is_not_wrapped(api: str) -> None:
    class Sealed(Exception):
        """The vault's own error."""

    def sealed() -> str:
        raise Sealed

    async with PostgresSaver(sealed) as saver:
        with pytest.raises(Sealed):
            await read(Client(saver, api), "t")
    wrong: list[Any] = ["postgresql://me:hu5h@hu5h@host/db", None, b"host=hu5h"]
    for given in wrong:
        async with PostgresSaver(lambda given=given: given) as saver:
            with pytest.raises(ConfigError, match="connection string") as caught:
                await read(Client(saver, api), "t")
            assert "hu5h" not in f"{caught.value!r} {caught.value.__cause__!r}"
