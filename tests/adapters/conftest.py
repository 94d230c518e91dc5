"""The fixture of the adapters' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from langgraph_checkpoint_custom import CheckpointSaver
from tests.stores import Store


@pytest.fixture
def saver(store: Store) -> Iterator[CheckpointSaver]:
    """A saver on an empty store with its tables; what the adapters store needs no class."""
    with store.open(strict=True) as opened:
        opened.setup()
        yield opened
