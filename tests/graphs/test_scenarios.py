"""Graphs on a database return the same results as in memory, in whatever process the next step runs.

Each scenario is played in memory and on a database, and all results are compared: values, states, tasks,
interrupts, errors, and at the end the history and the stored checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.conftest import BACKENDS
from tests.graphs.running import (
    PAST_SCENARIOS,
    SCENARIOS,
    Copied,
    Durability,
    Pruned,
    PrunedWhileRunning,
    Scenario,
    agrees_with_memory,
)
from tests.graphs.scenarios import deltas
from tests.stores import Store

# Each api and each durability, and both APIs with the one whose checkpoints LangGraph makes in another way. A
# scenario has one of them on one database and one on the other; the next scenario has the other two.
FOUR_WAYS = [("sync", "sync"), ("async", "exit"), ("async", "async"), ("sync", "exit")]


def _parametrized(chosen: Iterable[tuple[str, Scenario, tuple[str, str]]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("store", "scenario", "api", "durability"),
        [pytest.param(backend, one, *way, id="-".join((backend, *way, one.__name__))) for backend, one, way in chosen],
        indirect=["store"],
    )


@_parametrized(
    (backend, scenario, FOUR_WAYS[2 * index + number % 2])
    for number, scenario in enumerate(SCENARIOS)
    for index, backend in enumerate(BACKENDS)
)
async def test_a_copy_continues_in_another_process_as_in_memory(
    store: Store, scenario: Scenario, api: str, durability: Durability
) -> None:
    await agrees_with_memory(scenario, Copied, store, api, durability)


# The two ways whose checkpoints differ most: for a delta channel on both databases, otherwise on one.
@pytest.mark.leaves_writes("with durability async, writes are stored in the background, and so after a prune")
@_parametrized(
    (backend, scenario, way)
    for number, scenario in enumerate(SCENARIOS)
    for index, backend in enumerate(BACKENDS)
    for turn, way in enumerate([("sync", "exit"), ("async", "async")])
    if scenario.__module__ == deltas.__name__ or (number + index + turn) % 2
)
async def test_a_thread_that_is_pruned_at_every_stage_continues_as_in_memory(
    store: Store, scenario: Scenario, api: str, durability: Durability
) -> None:
    # If steps are stored during the run, the thread is pruned during the run, too.
    while_running = durability == "async" and scenario not in PAST_SCENARIOS
    await agrees_with_memory(scenario, PrunedWhileRunning if while_running else Pruned, store, api, durability)
