"""What the guarantees are tested with."""

from __future__ import annotations

from collections.abc import Iterator

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
def database(store: Store) -> Database:
    """The tables of the test's store, without the saver."""
    return Database(store)


@pytest.fixture(params=["uuid6", "ulid"])
def next_id(request: pytest.FixtureRequest) -> NextId:
    """Checkpoint ids that grow, once for each kind of id."""
    return next_uuid if request.param == "uuid6" else next_ulids()


@pytest.fixture(params=["sync", "async"])
def api(request: pytest.FixtureRequest) -> str:
    """For a test that opens a saver of its own."""
    return str(request.param)
