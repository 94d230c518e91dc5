"""`InMemorySaver` for LangGraph's tests: one of our savers, each on an empty store."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import psycopg
from psycopg import sql

from langgraph_checkpoint_custom import CheckpointSaver, PostgresSaver, SqliteSaver

# Set by the caller of the tests: "sqlite" or "postgres", and an empty database for them alone.
SAVER = os.environ["UPSTREAM_SAVER"]
DSN = os.environ.get("UPSTREAM_DSN", "")
TABLES = ("checkpoints", "blobs", "writes", "threads", "sweeps", "moves", "claims", "labels")


class Stores:
    """Schemas that test after test finds empty, one for each saver of a test: creating one takes much longer."""

    def __init__(self) -> None:
        self._ready: list[str] = []
        self._savers: list[CheckpointSaver] = []

    def next_schema(self) -> str:
        """A schema with empty tables."""
        number = len(self._savers)
        if number == len(self._ready):
            schema = f"memory_{number}"
            with PostgresSaver(DSN, schema=schema) as saver:
                saver.setup()
            self._ready.append(schema)
        return self._ready[number]

    def opened(self, saver: CheckpointSaver) -> None:
        """Note a saver, which is closed at the end of the test."""
        self._savers.append(saver)

    def empty(self) -> None:
        """Close the savers of a test, and delete what they have stored."""
        savers, self._savers = self._savers, []
        for saver in savers:
            saver.close()
        if SAVER == "postgres":
            empty(self._ready[: len(savers)])


def empty(schemas: list[str]) -> None:
    """Empty the tables of schemas that have rows, once no test uses them any more."""
    if not schemas:
        return
    with psycopg.connect(DSN, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_get_activity(NULL)"
            " WHERE datid = (SELECT oid FROM pg_database WHERE datname = current_database())"
            " AND pid <> pg_backend_pid()"
        )
        found = connection.execute(
            "SELECT nspname, relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace"
            " WHERE nspname = ANY (%s) AND relname = ANY (%s) AND pg_relation_size(pg_class.oid) > 0",
            [schemas, [*TABLES]],
        )
        if tables := [sql.Identifier(*names) for names in found]:
            connection.execute(sql.SQL("TRUNCATE {}").format(sql.SQL(", ").join(tables)))


stores = Stores()
Ours: Any = SqliteSaver if SAVER == "sqlite" else PostgresSaver


class InMemorySaver(Ours):  # type: ignore[misc]  # The environment says which class it is.
    """Takes the arguments of LangGraph's."""

    def __init__(self, *, serde: Any = None, factory: Any = None) -> None:
        if SAVER == "sqlite":
            super().__init__(":memory:", serde=serde)
        else:
            super().__init__(DSN, schema=stores.next_schema(), serde=serde)
        stores.opened(self)

    # LangGraph's class calls its sync methods in the async ones, so tests override only the former.

    async def aget_tuple(self, config: Any) -> Any:
        if type(self).get_tuple is InMemorySaver.get_tuple:
            return await super().aget_tuple(config)
        return await asyncio.to_thread(self.get_tuple, config)

    async def aget_delta_channel_history(self, *, config: Any, channels: Any) -> Any:
        if type(self).get_delta_channel_history is InMemorySaver.get_delta_channel_history:
            return await super().aget_delta_channel_history(config=config, channels=channels)
        return await asyncio.to_thread(self.get_delta_channel_history, config=config, channels=channels)


MemorySaver = InMemorySaver
