"""The APIs and durabilities in which graphs are run."""

from __future__ import annotations

import pytest

from tests.conftest import APIS
from tests.graphs.running import Durability


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> str:
    """Whether graphs are run through their async methods, or through their sync ones on an OS thread."""
    return str(request.param)


@pytest.fixture(params=["sync", "async", "exit"])
def durability(request: pytest.FixtureRequest) -> Durability:
    """When LangGraph stores a step: before the next one, while it runs, or at the end of the run."""
    found: Durability = request.param
    return found


@pytest.fixture(autouse=True)
def _values_inline_and_in_blobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs in tests have small states: here, some of their values are in the document, and some are blobs."""
    monkeypatch.setattr("langgraph_checkpoint_custom.encoding.encoded.SMALL_VALUE", 40)
    monkeypatch.setattr("langgraph_checkpoint_custom.encoding.encode.DOCUMENT", 400)
