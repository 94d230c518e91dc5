"""A few seconds of rounds on each database; `just races` plays them for half an hour."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import BACKENDS
from tests.races.plans import EVERYTHING, Mix
from tests.races.rounds import races
from tests.races.search import Verdict
from tests.stores import Store

# All operations, and separately those that once had bugs.
MIXES = {
    "everything": ("", 40),
    "deleting": ("prune,rollback,delete_for_runs,delete_checkpoint", 10),
    "labels": ("prune,sweep,label", 10),
    "times to live": ("set_ttl,sweep,put,delete_checkpoint", 10),
    "making": ("fork_thread,copy_thread,import_file", 10),
    "copying again": ("copy_thread,prune,delete_checkpoint", 10),
}


@pytest.fixture(params=BACKENDS)
def own_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A database that nothing else reads; the tables are checked after each round."""
    if request.param == "sqlite":
        yield Store("sqlite", f"sqlite:///{tmp_path / 'checkpoints.db'}")
    else:
        yield Store("postgres", request.getfixturevalue("postgres_url"))


@pytest.mark.parametrize("name", MIXES)
def test_some_order_of_the_calls_explains_all_results(own_database: Store, name: str) -> None:
    only, rounds = MIXES[name]
    weights = {each: EVERYTHING[each] for each in only.split(",")} if only else EVERYTHING
    seed = str(random.SystemRandom().randrange(10**9))
    print("seed", seed)  # Also if a process ends or hangs.
    with races(own_database, processes=2) as running:
        outcome = running.run(seed, Mix(weights), rounds=rounds)
    assert outcome.problems == []
    assert outcome.verdicts[Verdict.FINE] > 0
    assert outcome.is_meaningful, outcome
