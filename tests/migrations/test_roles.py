"""The two roles of docs/postgres.md, created by the SQL in the document, on a separate server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from langgraph_checkpoint_custom import ConfigError, PostgresSaver, Retention, SchemaMissing, StorageError
from langgraph_checkpoint_custom.server import checkpointer
from tests.conftest import APIS
from tests.faults.cluster import Cluster, running_cluster
from tests.faults.workload import OPERATIONS, fill, read
from tests.stores import Client

DOCUMENT = (Path(__file__).parents[2] / "docs" / "postgres.md").read_text("utf-8")
MAKE_ROLES, AFTER_SETUP, VACUUM, *_ = re.findall(r"^```sql\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
TABLES = ("checkpoints", "blobs", "writes")


def execute(cluster: Cluster, user: str, sql: str) -> None:
    """Run SQL as some role."""
    with psycopg.connect(cluster.url(user=user)) as connection:
        connection.execute(sql.encode())


@pytest.fixture(scope="module")
def cluster(postgres_programs: None) -> Iterator[Cluster]:
    """A server where everything in the document was done."""
    with running_cluster() as made:
        execute(made, "postgres", MAKE_ROLES)
        with PostgresSaver(made.url(user="checkpoint_runner")) as saver, pytest.raises(SchemaMissing):
            saver.get_tuple({"configurable": {"thread_id": "t"}})
        with PostgresSaver(made.url(user="checkpoint_migrator")) as saver:
            saver.setup()
        execute(made, "postgres", AFTER_SETUP)
        yield made


@pytest.mark.parametrize("api", APIS)
async def test_the_runner_may_call_every_method_of_a_saver(cluster: Cluster, api: str) -> None:
    for concurrent_writers in ("allow", "reject"):
        options: Any = {"concurrent_writers": concurrent_writers}
        async with PostgresSaver.from_conn_string(cluster.url(user="checkpoint_runner"), **options) as saver:
            client = Client(saver, api)
            for name, call in {**OPERATIONS, "read": read}.items():
                thread_id = f"{name} {api} {concurrent_writers}"
                async with PostgresSaver(cluster.url(user="checkpoint_runner")) as other:
                    await fill(Client(other, api), thread_id)
                if (name, concurrent_writers) != ("put", "reject"):  # That one forks on purpose.
                    await call(client, thread_id)


def test_the_runner_searches_by_the_keys_that_the_migrator_makes(cluster: Cluster) -> None:
    with PostgresSaver(cluster.url(user="checkpoint_runner")) as runner:
        with pytest.raises(StorageError, match="must be owner") as caught:
            runner.setup(searchable=["user"])
        assert caught.value.sqlstate == "42501"
        runner.setup()
        with PostgresSaver(cluster.url(user="checkpoint_migrator")) as migrator:
            migrator.setup(searchable=["user"])
        runner.setup(searchable=["user"])
        assert runner.count_threads(filter={"user": "missing"}) == 0


async def test_an_error_says_that_the_runner_sees_no_threads_of_tenants(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    with PostgresSaver(cluster.url(user="checkpoint_migrator")) as owner:
        await fill(Client(owner.for_tenant("acme"), "sync"), "of a tenant")
        assert owner.tenants() == ["acme"]
    with PostgresSaver(cluster.url(user="checkpoint_runner")) as runner:
        runner.sweep(Retention(keep_last=100), tenants=False)
        assert "row-level security" not in caplog.text
        for _ in range(2):
            runner.sweep(Retention(keep_last=100))
    assert caplog.text.count("row-level security hides the threads of tenants from this role") == 1


async def test_a_role_that_does_not_see_all_tenants_neither_erases_nor_encrypts_a_part(cluster: Cluster) -> None:
    with PostgresSaver(cluster.url(user="checkpoint_migrator")) as owner:
        await fill(Client(owner.for_tenant("acme"), "sync"), "of a person")
    with PostgresSaver(cluster.url(user="checkpoint_runner")) as runner:
        for dry_run in (True, False):
            with pytest.raises(ConfigError, match="row-level security hides the threads of tenants"):
                runner.erase({"source": "loop"}, dry_run=dry_run)
            with pytest.raises(ConfigError, match="row-level security hides the threads of tenants"):
                await runner.areencrypt(dry_run=dry_run)
        runner.erase({"source": "loop"}, tenants=False)
        runner.reencrypt(tenants=False)
        erased = runner.for_tenant("acme").erase({"source": "loop"})
    assert "of a person" in [each.thread_id for each in erased.threads]


async def test_an_agent_server_may_be_the_runner(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHECKPOINT_URL", cluster.url(user="checkpoint_runner"))
    async with checkpointer() as saver:
        assert await saver.aget_tuple({"configurable": {"thread_id": "of a server"}}) is None
    monkeypatch.setenv("CHECKPOINT_SCHEMA", "another")
    with pytest.raises(StorageError, match="permission denied"):
        async with checkpointer():
            raise AssertionError("it was entered")


@pytest.mark.parametrize("user", ["checkpoint_runner", "checkpoint_migrator"])
def test_a_role_that_may_not_create_gets_one_clear_error(cluster: Cluster, user: str) -> None:
    with PostgresSaver(cluster.url(user=user), schema="another") as saver:
        with pytest.raises(StorageError, match="permission denied") as caught:
            saver.setup()
        assert caught.value.sqlstate == "42501"


@pytest.mark.parametrize(
    "sql",
    [
        *(f"TRUNCATE langgraph_checkpoint.{table}" for table in TABLES),
        *(f"DROP TABLE langgraph_checkpoint.{table}" for table in TABLES),
        *(f"ALTER TABLE langgraph_checkpoint.{table} ADD COLUMN mine text" for table in TABLES),
        "CREATE TABLE langgraph_checkpoint.mine (id int)",
        "CREATE SCHEMA mine",
        "DROP SCHEMA langgraph_checkpoint",
        "INSERT INTO langgraph_checkpoint.langgraph_checkpoint_migrations VALUES (9999, 'future', 1)",
        "DELETE FROM langgraph_checkpoint.langgraph_checkpoint_migrations",
    ],
)
def test_the_runner_may_do_nothing_else(cluster: Cluster, sql: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        execute(cluster, "checkpoint_runner", sql)


def test_the_runner_may_use_what_a_later_migration_adds(cluster: Cluster) -> None:
    execute(cluster, "checkpoint_migrator", "CREATE TABLE langgraph_checkpoint.later (id int)")
    execute(
        cluster,
        "checkpoint_runner",
        "INSERT INTO langgraph_checkpoint.later VALUES (1); UPDATE langgraph_checkpoint.later SET id = 2;"
        " SELECT * FROM langgraph_checkpoint.later FOR UPDATE; DELETE FROM langgraph_checkpoint.later",
    )
    execute(cluster, "checkpoint_migrator", "DROP TABLE langgraph_checkpoint.later")
