"""Many processes that write to one SQLite file: each waits for the others, and nothing is lost."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from langgraph_checkpoint_custom import SqliteSaver
from tests.behaviour.helpers import config, id_of
from tests.conftest import APIS
from tests.crash.processes import Process
from tests.crash.programs import put_many
from tests.invariants import check_invariants
from tests.stores import Store

PROCESSES = 8
PUTS = 200


@pytest.mark.parametrize("api", APIS)
def test_processes_that_write_to_one_file_lose_nothing(tmp_path: Path, api: str) -> None:
    """Half of them have their own thread, the others share one; each waits for the others, and none gives up."""
    store = Store("sqlite", f"sqlite:///{tmp_path / 'checkpoints.db'}")
    threads = [f"thread {number}" if number % 2 else "shared" for number in range(PROCESSES)]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(Process(put_many, store, api, thread_id, f"process {number}", PUTS))
            for number, thread_id in enumerate(threads)
        ]
        for process in processes:
            process.send("begin")
        for process in processes:
            assert process.receive() == "done"
            assert process.wait() == 0
    with SqliteSaver(tmp_path / "checkpoints.db") as saver:
        found = {
            thread_id: [(id_of(each), each.checkpoint["channel_values"]) for each in saver.list(config(thread_id))]
            for thread_id in threads
        }
    for thread_id in threads:
        names = sorted(f"process {number}" for number, each in enumerate(threads) if each == thread_id)
        expected = [(f"{put:05} {name}", {"who": [name], "put": put}) for put in range(PUTS) for name in names]
        assert found[thread_id] == expected[::-1]
    check_invariants(store)
