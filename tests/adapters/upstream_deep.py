"""A pytest plugin for pydantic-deep's own tests: their stores become ours, on the database in UPSTREAM_URL."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

import pydantic_deep
from pydantic_deep import agent
from pydantic_deep.features import checkpointing

from langgraph_checkpoint_custom import open_saver
from langgraph_checkpoint_custom.adapters.pydantic_deep import DeepCheckpointStore

SAVER = open_saver(os.environ["UPSTREAM_URL"])


class InMemoryCheckpointStore(DeepCheckpointStore):
    """Each instance has its own session."""

    def __init__(self) -> None:
        super().__init__(SAVER, str(uuid4()))


class FileCheckpointStore(DeepCheckpointStore):
    """Each folder has its own session."""

    def __init__(self, directory: str | Path) -> None:
        super().__init__(SAVER, str(directory))


for module in (pydantic_deep, agent, checkpointing):
    for store in (InMemoryCheckpointStore, FileCheckpointStore):
        if hasattr(module, store.__name__):
            setattr(module, store.__name__, store)


def pytest_unconfigure() -> None:
    SAVER.close()
