"""What runs while something goes wrong, and what is stored then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import psycopg
from psycopg import sql

from langgraph_checkpoint_custom import StorageError
from tests.behaviour.helpers import config, get, metadata, put
from tests.stores import Client

T = TypeVar("T")
# A blob in one piece: the checkpoint has more than 16,384 bytes, and the value less.
LARGE = "large " * 2_720
SESSIONS = (
    " FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
    " AND pid <> pg_backend_pid()"
)
WAITING = f"SELECT pid{SESSIONS} AND wait_event_type = 'Lock'"


def elsewhere(url: str) -> str:
    """The URL of a database on a server that is not known to look for clients that are gone: not one on Linux."""
    with psycopg.connect(url, autocommit=True) as connection:
        text = "'PostgreSQL elsewhere'"
        connection.execute(f"CREATE OR REPLACE FUNCTION public.version() RETURNS text LANGUAGE sql RETURN {text}")
    return f"{url}&options=-c%20search_path%3Dpublic%2Cpg_catalog"


def set_for_database(watcher: psycopg.Connection[Any], **settings: str) -> None:
    """Change the settings of every later session."""
    for name, value in settings.items():
        database = sql.Identifier(watcher.info.dbname)
        watcher.execute(
            sql.SQL("ALTER DATABASE {} SET {} = {}").format(database, sql.Identifier(name), sql.Literal(value))
        )


async def fill(saver_client: Client, thread_id: str) -> None:
    """Store three checkpoints with a value and a write each; the newest one is of another run."""
    parent = None
    for step in range(3):
        run_id = "retained" if step == 2 else f"run on {thread_id}"
        parent = await put(
            saver_client,
            f"checkpoint {step}",
            {"list": [LARGE, step]},
            parent=parent,
            thread_id=thread_id,
            versions={"list": f"{step}"},
            meta=metadata(step, run_id=run_id),
        )
        await saver_client.put_writes(parent, [("list", [step])], f"task {step}")


async def put_one(saver_client: Client, thread_id: str, checkpoint_id: str = "checkpoint 9") -> None:
    parent = config(thread_id, "checkpoint 1")
    values = {"list": [LARGE, 9]}
    await put(
        saver_client,
        checkpoint_id,
        values,
        parent=parent,
        thread_id=thread_id,
        versions={"list": "9"},
        meta=metadata(9),
    )


async def read(saver_client: Client, thread_id: str) -> Any:
    newest = await get(saver_client, config(thread_id))
    return [
        (found.checkpoint, found.metadata["step"], found.pending_writes)
        for found in [newest, *await saver_client.all(config(thread_id))]
    ]


async def within_limit(call: Callable[[], Awaitable[T]]) -> T:
    """Make a call until it takes less than the server's statement_timeout, which it may exceed on a busy machine."""
    while True:
        try:
            return await call()
        except StorageError as error:
            if error.sqlstate != "57014":
                raise


Call = Callable[[Client, str], Awaitable[Any]]
OPERATIONS: Mapping[str, Call] = {
    "put": put_one,
    "put_writes": lambda saver_client, thread_id: saver_client.put_writes(
        config(thread_id, "checkpoint 2"), [("list", [9]), ("__interrupt__", "why"), ("other", None)], "task 9"
    ),
    "copy_thread": lambda saver_client, thread_id: saver_client.copy_thread(thread_id, f"{thread_id} copied"),
    "prune": lambda saver_client, thread_id: saver_client.prune([thread_id]),
    "delete_for_runs": lambda saver_client, thread_id: saver_client.delete_for_runs([f"run on {thread_id}"]),
    "delete_thread": lambda saver_client, thread_id: saver_client.delete_thread(thread_id),
}


def rows(connection: psycopg.Connection[Any]) -> list[Any]:
    """Everything that is stored in a database."""
    found: list[Any] = []
    for table in ("checkpoints", "blobs", "writes"):
        name = sql.Identifier("langgraph_checkpoint", table)
        found += connection.execute(sql.SQL("SELECT to_jsonb(t) FROM {} AS t ORDER BY 1").format(name)).fetchall()
    return found
