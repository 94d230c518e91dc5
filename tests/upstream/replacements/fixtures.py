"""The `conftest.py` of LangGraph's tests with our savers, the same for all of its packages."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Iterator
from types import CodeType
from typing import Any

import pytest
from langgraph.cache.base import BaseCache
from langgraph.cache.memory import InMemoryCache
from langgraph.cache.sqlite import SqliteCache
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langgraph_checkpoint_custom import CheckpointSaver

from . import conftest_checkpointer
from .conftest_checkpointer import DEFAULT_POSTGRES_URI as DEFAULT_POSTGRES_URI
from .replaced import DSN, SAVER, stores

# Tests of PostgreSQL check whether there is one.
NO_DOCKER = SAVER != "postgres"
DEFAULT_URI = DSN
ALL = os.environ.get("UPSTREAM_ALL") == "1"
SYNC = {
    "sqlite": ["sqlite", "sqlite_aes", "memory"],
    "postgres": ["postgres_pool", "postgres", "postgres_pipe", "postgres_connection", "memory"],
}[SAVER]
ASYNC = {
    "sqlite": ["sqlite_aio", "memory"],
    "postgres": [
        "postgres_aio_pool",
        "postgres_aio",
        "postgres_aio_pipe",
        "postgres_aio_connection",
        "memory",
    ],
}[SAVER]


@pytest.fixture(params=SYNC if ALL else SYNC[:1])
def sync_checkpointer(request: pytest.FixtureRequest) -> Iterator[CheckpointSaver]:
    with getattr(conftest_checkpointer, f"_checkpointer_{request.param}")() as checkpointer:
        yield checkpointer


@pytest.fixture(params=ASYNC if ALL else ASYNC[:1])
async def async_checkpointer(request: pytest.FixtureRequest) -> AsyncIterator[CheckpointSaver]:
    made = getattr(conftest_checkpointer, f"_checkpointer_{request.param}")()
    if request.param == "memory":
        with made as checkpointer:
            yield checkpointer
        return
    async with made as checkpointer:
        yield checkpointer


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that use no saver: they test nothing of ours."""
    others = [item for item in items if isinstance(item, pytest.Function) and not uses_a_saver(item)]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]


def uses_a_saver(test: pytest.Function) -> bool:
    """Whether a test gets a saver, or uses one through the functions and classes of its module."""
    parameters = test.callspec.params.values() if hasattr(test, "callspec") else ()
    if {"sync_checkpointer", "async_checkpointer"} & set(test.fixturenames) or any(map(makes_savers, parameters)):
        return True
    module = test.module
    codes = [test.function.__code__, *(code for made in vars(test.cls or object).values() for code in codes_of(made))]
    seen = set()
    while codes:
        code = codes.pop()
        if code in seen:
            continue
        seen.add(code)
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        for found in (getattr(module, name, None) for name in code.co_names):
            if makes_savers(found):
                return True
            if getattr(found, "__module__", None) == module.__name__:
                codes += codes_of(found)
    return False


def makes_savers(found: Any) -> bool:
    """Whether something is one of our classes, or one of the functions that make savers for fixtures."""
    ours = isinstance(found, type) and issubclass(found, CheckpointSaver)
    return ours or getattr(found, "__module__", None) == conftest_checkpointer.__name__


def codes_of(found: Any) -> list[CodeType]:
    """The code of a function, or of the methods of a class."""
    if isinstance(found, type):
        return [code for made in vars(found).values() for code in codes_of(made)]
    while hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    code = getattr(found, "__code__", None)
    return [code] if isinstance(code, CodeType) else []


@pytest.fixture(autouse=True)
def _own_stores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give each test empty stores, and note which tests have made no saver: they test nothing of ours."""
    made = []
    init = CheckpointSaver.__init__

    def noted(self: CheckpointSaver, *args: Any, **options: Any) -> None:
        made.append(self)
        init(self, *args, **options)

    monkeypatch.setattr(CheckpointSaver, "__init__", noted)
    yield
    stores.empty()
    if not made:
        request.node.user_properties.append(("saver", "none"))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def deterministic_uuids(mocker: Any) -> Any:
    made = (uuid.UUID(f"00000000-0000-4000-8000-{number:012}", version=4) for number in range(10000))
    return mocker.patch("uuid.uuid4", side_effect=made)


@pytest.fixture(params=["sync", "async", "exit"])
def durability(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["sqlite", "memory"])
def cache(request: pytest.FixtureRequest) -> BaseCache[Any]:
    return SqliteCache(path=":memory:") if request.param == "sqlite" else InMemoryCache()


@pytest.fixture(params=["in_memory"])
def sync_store() -> BaseStore:
    return InMemoryStore()


@pytest.fixture(params=["in_memory"])
def async_store() -> BaseStore:
    return InMemoryStore()
