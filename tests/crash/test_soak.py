"""Real graphs while connections are cut, processes killed and threads pruned: seconds of `python -m tests.soak`."""

from __future__ import annotations

import random

import pytest

from tests.soak.chaos import soak
from tests.stores import Store

# For each database; the full soak is `just soak`.
SECONDS, GRAPHS = 8, 8


@pytest.mark.leaves_writes("a run may be killed, or its thread pruned, between the writes and the checkpoint")
def test_graphs_end_as_in_memory_despite_cuts_kills_and_prunes(own_store: Store) -> None:
    seed = random.SystemRandom().randrange(10**9)
    print(f"seed: {seed}")
    outcome = soak(own_store, seconds=SECONDS, graphs=GRAPHS, seed=seed)
    assert not outcome.problems, "\n".join(outcome.problems)
    assert outcome.done["prunes"], outcome.done
