"""Helpers of the adapters' tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from langgraph_checkpoint_custom import CheckpointSaver
from langgraph_checkpoint_custom.adapters.documents import Documents, next_version
from tests.behaviour.helpers import Database
from tests.stores import Client, Store

# Texts that are allowed in names and have a meaning in paths, SQL, URLs or this package.
HOSTILE = ["../etc", "a/b", "a", "a/", "/", "%2F", "a%2Fb", "a:b", "%", "_", "'; --", "\x1e", "\x1f", "ü 你", ".."]


class Calls:
    """The methods of a store as coroutines that call its sync or its async methods."""

    def __init__(self, store: Any, api: str) -> None:
        self._client = Client(store, api)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._client.do, name)


def put_document(
    saver: CheckpointSaver, thread_id: str, values: Mapping[str, Any], metadata: Mapping[str, Any]
) -> None:
    """Store a version that no adapter would have stored."""
    documents = Documents(saver)
    documents.put(next_version(thread_id, documents.newest(thread_id), values, metadata))


def damage(store: Store) -> None:
    """Replace all values in the database with bytes that cannot be decoded."""
    damaged = "x'c1'" if store.kind == "sqlite" else r"'\xc1'"
    Database(store).change(f"UPDATE blobs SET value = {damaged}", f"UPDATE checkpoints SET checkpoint = {damaged}")


@contextmanager
def refusing(store: Store, table: str, *events: str) -> Iterator[None]:
    """Have the database refuse these changes of a table. It has to be the test's own store."""
    if store.kind == "sqlite":
        made = [
            f"CREATE TRIGGER refuses_{event} BEFORE {event} ON {table} BEGIN SELECT RAISE(ABORT, 'refused'); END"
            for event in events
        ]
        dropped = [f"DROP TRIGGER refuses_{event}" for event in events]
    else:
        made = [
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused'; END $$",
            f"CREATE TRIGGER refuses BEFORE {' OR '.join(events)} ON {table} FOR EACH ROW EXECUTE FUNCTION refuse()",
        ]
        dropped = ["DROP FUNCTION refuse() CASCADE"]
    Database(store).change(*made)
    try:
        yield
    finally:
        Database(store).change(*dropped)
