"""Four processes that change the same threads concurrently."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from cubeloop.checkpointer.base import CheckpointData
from cubeloop.checkpointer.exceptions import (
    RunAlreadyClaimedError,
    RunAlreadyCompletedError,
    ThreadAlreadyExistsError,
)
from cubeloop.providers.base import Message, TextContent, UserMessage

from langgraph_checkpoint_custom import CheckpointSaver
from langgraph_checkpoint_custom.adapters.cubeloop import CubeLoopCheckpointer
from tests.adapters.cubeloop.programs import Call, said, serve
from tests.crash.processes import Process
from tests.stores import Store

PROCESSES = 4
THREAD = {"thread_id": "thread"}


class Team:
    """Processes with a checkpointer each, and one here."""

    def __init__(self, saver: CheckpointSaver, processes: Sequence[Process]) -> None:
        self.checkpointer = CubeLoopCheckpointer(saver)
        self._processes = processes

    def do(self, *calls: Sequence[Call]) -> list[list[Any]]:
        """Let all processes make their calls concurrently; returns their results."""
        working = self._processes[: len(calls)]
        for process, each in zip(working, calls, strict=True):
            process.send(each)
        return [process.receive() for process in working]

    async def load(self, thread_id: str = "thread") -> CheckpointData:
        """An existing thread."""
        found = await self.checkpointer.load(thread_id)
        assert found is not None
        return found


@pytest.fixture
def team(store: Store, saver: CheckpointSaver) -> Iterator[Team]:
    saver.setup()
    with ExitStack() as stack:
        yield Team(saver, [stack.enter_context(Process(serve, store)) for _ in range(PROCESSES)])


def message(text: str, run_id: str | None = None) -> Message:
    return UserMessage(content=[TextContent(text=text)], run_id=run_id)


def names(number: int) -> list[str]:
    return [f"{each}" for each in range(number)]


async def test_four_processes_work_concurrently(team: Team) -> None:
    """One test for everything, since processes take longer to start than to work."""
    await runs_are_claimed_once(team)
    await no_key_of_extra_is_lost(team)
    await batches_are_contiguous_and_in_order(team)
    await runs_are_completed_one_after_the_other(team)
    await forks_are_never_seen_incomplete(team)
    await completed_runs_stay_as_they_are(team)


async def runs_are_claimed_once(team: Team) -> None:
    calls = [("claim_run", {**THREAD, "run_id": run_id}) for run_id in names(40)]
    results = team.do(calls, calls[::-1], calls[20:] + calls[:20], calls)
    for each in zip(results[0], results[1][::-1], results[2][20:] + results[2][:20], results[3], strict=True):
        assert Counter(each) == {None: 1, RunAlreadyClaimedError.__name__: 3}


async def no_key_of_extra_is_lost(team: Team) -> None:
    keys = [[f"{process} {name}" for name in names(40)] for process in range(PROCESSES)]
    team.do(*([("save_extra", {**THREAD, "extra": {key: key}}) for key in each] for each in keys))
    assert (await team.load()).extra == {key: key for each in keys for key in each}


async def batches_are_contiguous_and_in_order(team: Team) -> None:
    def batches(process: int) -> list[list[str]]:
        return [[f"{process} {number} {position}" for position in range(3)] for number in range(50)]

    def append(batch: list[str]) -> Call:
        return "append", {**THREAD, "messages": [message(text) for text in batch]}

    team.do(*([append(batch) for batch in batches(process)] for process in range(PROCESSES)))
    found = [text for _, text, _ in said((await team.load()).messages)]
    pieces = [found[start : start + 3] for start in range(0, len(found), 3)]
    for process in range(PROCESSES):
        assert [piece for piece in pieces if piece[0][0] == f"{process}"] == batches(process)
    assert len(pieces) == 200


async def runs_are_completed_one_after_the_other(team: Team) -> None:
    runs = {"thread_id": "runs"}
    for run_id in names(60):
        await team.checkpointer.claim_run("runs", run_id)
        await team.checkpointer.append("runs", [message(run_id, run_id)])
    # Each process completes its own runs and, concurrently, some that another process completes.
    calls = [("mark_run_complete", {**runs, "run_id": run_id}) for run_id in names(60)]
    results = team.do(calls[:20], calls[15:35], calls[30:50], calls[45:])
    assert {result for each in results for result in each} == {None}
    snapshots = [await team.checkpointer.snapshot("runs", after_run_id=run_id) for run_id in names(60)]
    # As many runs are completed up to a run as its position in the sequence says.
    assert sorted(map(len, snapshots)) == list(range(1, 61))
    assert len((await team.load("runs")).messages) == 60


async def forks_are_never_seen_incomplete(team: Team) -> None:
    await team.checkpointer.save_extra("runs", {"a": 1})
    await team.checkpointer.mark_run_complete("thread", "0")
    complete = CheckpointData((await team.load("runs")).messages, {"a": 1}, "runs")
    last = (await last_run(team, complete.messages)) or ""
    seen: Counter[bool] = Counter()
    for name in names(25):
        fork = ("fork", {"src_thread_id": "runs", "new_thread_id": f"fork {name}", "after_run_id": last})
        load = ("load", {"thread_id": f"fork {name}"})
        *forks, first, second = team.do([fork], [fork], [load] * 4, [load] * 4)
        assert Counter(result for each in forks for result in each) == {None: 1, ThreadAlreadyExistsError.__name__: 1}
        for found in first + second:
            assert found in (None, complete)
            seen[found is None] += 1
        assert await team.load(f"fork {name}") == complete
    assert seen.total() == 200


async def last_run(team: Team, messages: Sequence[Message]) -> str | None:
    """The run that was completed last."""
    for run_id in names(60):
        if len(await team.checkpointer.snapshot("runs", after_run_id=run_id)) == len(messages):
            return run_id
    return None


async def completed_runs_stay_as_they_are(team: Team) -> None:
    for name in names(50):
        run = {"thread_id": "races", "run_id": name}
        await team.checkpointer.claim_run(**run)
        append = ("append", {"thread_id": "races", "messages": [message(f"{position}", name) for position in range(2)]})
        snapshot = ("snapshot", {"thread_id": "races", "after_run_id": name})
        *appended, (_, completed) = team.do([append], [append], [append], [("mark_run_complete", run), snapshot])
        results = Counter(result for each in appended for result in each)
        assert results.keys() <= {None, RunAlreadyCompletedError.__name__}
        # Nothing was added to the run after it was completed, and nothing of a refused append was stored.
        assert await team.checkpointer.snapshot("races", after_run_id=name) == completed
        assert [text for _, text, run_id in said(completed) if run_id == name] == ["0", "1"] * results[None]
