"""`copy`, `fork`, `prune`, `delete`, `rollback`, `label`, `unlabel`, and that nothing is deleted without a question."""

from __future__ import annotations

import os
import pty
import subprocess
from typing import Any

import pytest

from langgraph_checkpoint_custom import CheckpointSaver
from tests.behaviour.helpers import config, id_of, metadata
from tests.cli.conftest import PROGRAM, SECRET, Cli
from tests.cli.test_reading import put
from tests.invariants import read_tables


def chain(saver: CheckpointSaver, thread_id: str, length: int = 3) -> list[str]:
    """Store a new thread; returns the ids of its checkpoints."""
    location: Any = None
    ids = []
    for step in range(length):
        location = put(saver, thread_id, location, metadata(step), values=[step], number=step)
        saver.put_writes(location, [("values", step)], f"task {step}")
        ids.append(id_of(location))
    return ids


def threads(cli: Cli) -> dict[str, int]:
    return {one["thread_id"]: one["checkpoints"] for one in cli.json("threads")["threads"]}


def test_copy_and_fork(cli: Cli) -> None:
    with cli.store.open() as saver:
        ids = chain(saver, "1")
    assert cli("copy", "1", "2") == "Copied 1 to 2.\n"
    assert cli.json("copy", "1", "2") == {"source": "1", "target": "2"}
    assert cli.json("fork", "1", "3", "--checkpoint", ids[1])["checkpoint_id"] == ids[1]
    assert "starts from" in cli("fork", "1", "4")
    assert threads(cli) == {"1": 3, "2": 3, "3": 1, "4": 1}
    assert "no thread" in cli.fail("copy", "nobody", "5")
    assert "of its own" in cli.fail("copy", "3", "2")
    assert "no checkpoint" in cli.fail("fork", "1", "5", "--checkpoint", "x")


@pytest.mark.parametrize("command", [["prune", "1"], ["delete", "1"], ["rollback", "1", "ID"]], ids=lambda c: c[0])
def test_a_dry_run_shows_what_the_command_then_does(command: list[str], cli: Cli) -> None:
    """A dry run reports what would happen and changes nothing. Without a terminal, a command needs --yes."""
    with cli.store.open() as saver:
        ids = chain(saver, "1")
        chain(saver, "2")
    argv = [ids[1] if each == "ID" else each for each in command]
    before = read_tables(cli.store)
    (report,) = cli.json(*argv, "--dry-run")["threads"]
    assert "would be deleted. Nothing was changed." in cli(*argv, "--dry-run")
    assert "--yes" in cli.fail(*argv, code=2)
    assert read_tables(cli.store) == before
    done = cli.json(*argv, "--yes")
    left = {"prune": 1, "delete": 0, "rollback": 2}[command[0]]
    assert (report["before"]["checkpoints"], report["after"]["checkpoints"]) == (3, left)
    assert done == {
        "threads": 1,
        **{
            f"{'freed' if what == 'bytes' else 'deleted'}_{what}": report["before"][what] - report["after"][what]
            for what in ("checkpoints", "writes", "bytes")
        },
    }
    assert min(done.values()) > 0
    assert threads(cli) == {"2": 3, **({"1": left} if left else {})}
    assert "no thread" in cli.fail(*[each.replace("1", "9") if each == "1" else each for each in argv], "--yes")


def test_a_prune_may_retain_several_checkpoints(cli: Cli) -> None:
    with cli.store.open() as saver:
        chain(saver, "1", 5)
    (report,) = cli.json("prune", "1", "--keep", "3", "--dry-run")["threads"]
    assert report["after"]["checkpoints"] == 3
    cli("prune", "1", "--keep", "3", "--yes")
    assert threads(cli) == {"1": 3}


def test_a_tenants_threads_are_changed_by_its_name(cli: Cli) -> None:
    with cli.store.open() as saver:
        for one in (saver, saver.for_tenant("acme")):
            chain(one, "1")
    assert cli("prune", "1", "--yes", "--tenant", "acme").startswith("Pruned 1 thread: 2 checkpoints, 2 writes and ")
    assert threads(cli) == {"1": 3}
    assert cli("delete", "1", "--yes").startswith("Deleted 1 thread: 3 checkpoints, 3 writes and ")
    assert cli.json("tenants") == {"tenants": ["acme"]}
    assert {one["checkpoints"] for one in cli.json("threads", "--tenant", "acme")["threads"]} == {1}


def test_a_sweep_goes_through_the_threads_of_all_tenants(cli: Cli) -> None:
    with cli.store.open() as saver:
        for one in (saver, saver.for_tenant("acme")):
            chain(one, "1")
    assert cli.json("sweep", "--keep-last", "1", "--dry-run")["threads"] == 2
    assert cli.json("sweep", "--keep-last", "1", "--yes", "--tenant", "acne")["threads"] == 0
    assert cli.error == "note: tenant 'acne' has no threads\n"
    assert cli.json("sweep", "--keep-last", "1", "--yes", "--no-tenants")["deleted_checkpoints"] == 2
    assert cli.error == "note: 1 tenant not included: acme; --tenant NAME selects one\n"
    assert cli.json("sweep", "--keep-last", "1", "--yes")["deleted_checkpoints"] == 2
    assert cli.error == ""
    assert "cannot be combined" in cli.fail("sweep", "--yes", "--no-tenants", "--tenant", "acme", code=2)


def test_a_rollback_changes_the_state_and_is_final(cli: Cli) -> None:
    with cli.store.open() as saver:
        ids = chain(saver, "1")
        assert cli("rollback", "1", ids[0], "--yes").startswith("Rolled back 1 thread: 2 checkpoints, ")
        found = saver.get_tuple(config("1"))
        assert found is not None
        assert found.checkpoint["channel_values"] == {"values": [0], "number": 0}
        assert found.pending_writes == []
    assert "no checkpoint" in cli.fail("rollback", "1", ids[2], "--yes")
    assert "no checkpoint" in cli.fail("rollback", "1", ids[2], "--dry-run")


def test_labeled_checkpoints_are_not_pruned(cli: Cli) -> None:
    with cli.store.open() as saver:
        ids = chain(saver, "1")
    assert cli.json("label", "1", "mine", ids[0]) == {"label": "mine", "checkpoint_id": ids[0]}
    assert ids[2] in cli("label", "1", "newest")
    cli("prune", "1", "--yes")
    assert threads(cli) == {"1": 2}
    assert "'newest'" in cli.fail("rollback", "1", ids[0], "--yes")
    assert "any more" in cli("unlabel", "1", "mine")
    cli("prune", "1", "--yes")
    assert threads(cli) == {"1": 1}
    assert "no checkpoint" in cli.fail("unlabel", "1", "mine")


@pytest.mark.parametrize(("answer", "code", "left"), [("n", 1, {"1": 3}), ("", 1, {"1": 3}), ("y", 0, {})])
def test_on_a_terminal_it_asks_for_confirmation(answer: str, code: int, left: dict[str, int], cli: Cli) -> None:
    with cli.store.open() as saver:
        chain(saver, "1")
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [*PROGRAM, "delete", "1"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(theirs)
    os.write(ours, f"{answer}\n".encode())
    output, error = child.communicate()
    os.close(ours)
    assert child.returncode == code, output + error
    assert error == "Delete thread '1' for good? [y/N] " + ("" if code == 0 else "Nothing was changed.\n")
    assert SECRET not in output + error
    assert threads(cli) == left
