"""The status of a store's sweeps says which threads are overdue, and for how long."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from langgraph_checkpoint_custom import Retention
from tests.behaviour.sweeps import DAY, Sweeps, now, put
from tests.stores import Client


async def test_the_status_says_what_is_overdue(client: Client) -> None:
    saver: Any = client.saver
    for days in (1, 2, 3):
        put(saver, f"{days}", days=days)
    assert (await client.do("sweep_status")).finished_at is None
    keep = Retention(older_than=3.5 * DAY)
    Sweeps(saver, keep)(now() - 2 * DAY)
    status = await client.do("sweep_status")
    assert abs(status.finished_at - now()) < DAY
    assert (status.overdue, status.lag) == (0, timedelta())
    Sweeps(saver, Retention(older_than=3.5 * DAY, keep_last=9))(now() - 5 * DAY)
    status = await client.do("sweep_status")  # At that time, all three were as new as can be.
    assert (status.overdue, status.lag > DAY) == (3, True)
    await client.do("sweep", keep)
    assert (await client.do("sweep_status")).overdue == 0


@pytest.mark.parametrize(("older_than", "overdue", "lag"), [(30 * DAY, 0, 0), (DAY / 2, 2, 0.5)])
async def test_threads_that_a_limited_sweep_has_still_to_visit_are_not_overdue(
    client: Client, older_than: timedelta, overdue: int, lag: float
) -> None:
    """All are due for a new retention. Those whose own time comes meanwhile are overdue."""
    saver: Any = client.saver
    for number in range(5):
        put(saver, f"t{number}")
    Sweeps(saver, Retention())(now() - 2 * DAY)
    assert not Sweeps(saver, Retention(older_than=older_than, max_threads=2))(now() - DAY).complete
    status = await client.do("sweep_status")
    assert status.overdue == overdue
    assert lag * DAY <= status.lag < (lag + 0.1) * DAY
