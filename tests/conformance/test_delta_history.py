"""The suite of `delta_history.py` on both databases, sync and async, with both types of ids.

It also runs over LangGraph's `InMemorySaver` if that supports the case, which shows that the tests are right.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from tests.conformance import delta_history, side
from tests.conformance.delta_history import ALL_DELTA_HISTORY_TESTS, LOOPS, DeltaHistoryTest
from tests.conformance.delta_threads import ID_TYPES, Ids
from tests.conftest import APIS, BACKENDS, made_database
from tests.stores import Store


def name_of(test: Any) -> str:
    return str(test.__name__).removeprefix("test_")


@pytest.fixture(scope="module", params=BACKENDS)
def shared_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store for all tests of this file, each of which uses its own threads."""
    if request.param == "sqlite":
        yield Store("sqlite", f"sqlite:///{tmp_path_factory.mktemp('history') / 'checkpoints.db'}")
        return
    if request.getfixturevalue("is_citus"):
        yield Store("postgres", request.getfixturevalue("cluster_urls")[1])
        return
    server, template = request.getfixturevalue("postgres_dsn"), request.getfixturevalue("postgres_template")
    with made_database(server, template) as (_, url):
        yield Store("postgres", url)


@pytest.mark.parametrize(("api", "kind"), list(zip(APIS, ID_TYPES, strict=True)))
@pytest.mark.parametrize("test", ALL_DELTA_HISTORY_TESTS, ids=name_of)
async def test_history(shared_store: Store, api: str, kind: str, test: DeltaHistoryTest) -> None:
    options = {"synchronous": "OFF"} if shared_store.kind == "sqlite" else {}
    async with shared_store.open(**options) as saver:
        await test(side(saver, api), Ids(kind))


@pytest.mark.parametrize("kind", ID_TYPES)
@pytest.mark.parametrize("test", [test for test in ALL_DELTA_HISTORY_TESTS if test not in LOOPS], ids=name_of)
async def test_history_of_langgraphs_own_saver(kind: str, test: DeltaHistoryTest) -> None:
    await test(InMemorySaver(), Ids(kind))


def test_every_test_of_the_suite_is_listed() -> None:
    written = {test for name, test in inspect.getmembers(delta_history) if name.startswith("test_")}
    assert written == set(ALL_DELTA_HISTORY_TESTS)
