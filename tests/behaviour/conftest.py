"""The fixtures of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from langgraph_checkpoint_custom import CheckpointSaver
from tests.behaviour.helpers import Database, NextId, next_ulids, next_uuid
from tests.stores import Store


@pytest.fixture
def saver(store: Store) -> Iterator[CheckpointSaver]:
    """A saver on an empty store that does not wait for the disk."""
    with store.open(**({"synchronous": "OFF"} if store.kind == "sqlite" else {})) as opened:
        yield opened


@pytest.fixture
def one_connection(store: Store) -> Iterator[CheckpointSaver]:
    """A saver with one connection at most, if it has a pool."""
    options: dict[str, Any] = (
        {"synchronous": "OFF"} if store.kind == "sqlite" else {"max_size": 1, "pool_timeout": 150.0}
    )
    with store.open(**options) as opened:
        yield opened


@pytest.fixture
def database(store: Store) -> Database:
    """The tables of the test's store, read and written without the saver."""
    return Database(store)


@pytest.fixture
def next_id(request: pytest.FixtureRequest) -> NextId:
    """Increasing checkpoint ids: UUIDs and ULIDs, so that each database and each api has both."""
    variant = request.node.name
    return next_uuid if ("sqlite" in variant) == ("async" in variant) else next_ulids()


@pytest.fixture(params=["sync", "async"])
def api(request: pytest.FixtureRequest) -> str:
    """For a test that opens its own saver."""
    return str(request.param)
