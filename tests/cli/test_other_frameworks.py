"""Threads of other frameworks on the command line: listed with their kind, and named as they are listed."""

from __future__ import annotations

import pytest

from langgraph_checkpoint_custom.adapters.sessions import SessionCheckpoint, SessionStore
from tests.adapters.test_documents import THREAD, add, values
from tests.cli.conftest import Cli
from tests.cli.test_changing import chain

SHOWN = r"\x1etest/a thread"


@pytest.fixture(autouse=True)
def one_of_each(cli: Cli) -> None:
    with cli.store.open() as saver:
        saver.setup()
        chain(saver, "1")
        for _ in range(3):
            add(saver, {})


def test_threads_are_listed_with_their_kind(cli: Cli) -> None:
    found = {one["thread_id"]: one for one in cli.json("threads")["threads"]}
    assert {key: (one["kind"], one["name"]) for key, one in found.items()} == {
        "1": (None, ["1"]),
        THREAD: ("test", ["a thread"]),
    }
    (line,) = (line for line in cli("threads").splitlines() if "test/" in line)
    assert line.split()[:3] == [r"\x1etest/a", "thread", "test"]
    first = cli("threads", "--limit", "1")
    assert SHOWN in first
    cursor = first.rsplit("--before ", 1)[1].strip().strip("'")
    rest = cli("threads", "--before", cursor)
    assert " 1 " in rest
    assert "kind" not in rest  # All are LangGraph's.
    assert SHOWN in cli("stats")


def test_threads_are_named_as_they_are_listed(cli: Cli) -> None:
    assert "number" in cli("show", SHOWN)
    assert [one["metadata"]["step"] for one in cli.json("history", SHOWN)["checkpoints"]] == [2, 1, 0]
    assert cli.json("stats", SHOWN)["thread_id"] == THREAD
    copy = r"\x1etest/copy"
    cli("copy", SHOWN, copy)
    cli("delete", SHOWN, "--yes")
    with cli.store.open() as saver:
        assert values(saver) is None
        assert values(saver, THREAD.replace("a thread", "copy")) == {"number": 3}


def test_threads_are_pruned_and_deleted_by_name(cli: Cli) -> None:
    assert cli.json("prune", SHOWN, "--yes")["deleted_checkpoints"] == 2
    assert cli.json("delete", "1", SHOWN, "--yes")["threads"] == 2
    assert cli.json("threads")["threads"] == []


def test_their_open_questions_are_listed(cli: Cli) -> None:
    request = {"toolCall": {"toolCallId": "call-1", "toolName": "rm"}, "question": "Delete it?"}
    with cli.store.open() as saver:
        SessionStore(saver, "acme").save(SessionCheckpoint("chat", 1, [], interrupt=request))
    session = r"\x1esession/acme/chat"
    (line,) = (line for line in cli("interrupts").splitlines() if "acme" in line)
    assert line.split()[0] == session
    assert line.split()[3:] == ["call-1", "Delete", "it?"]
    (waiting,) = cli.json("interrupts")["threads"]
    assert waiting["interrupts"] == [{"id": "call-1", "value": request}]
    assert cli.json("show", session)["interrupts"] == waiting["interrupts"]
    assert "Waiting for an answer to call-1: " in cli("show", session)
    assert "asks: Delete it?" in cli("threads")
    assert cli.json("interrupts", "--prefix", session)["threads"] == [waiting]


def test_a_copy_to_another_kind_is_refused(cli: Cli) -> None:
    for target in ("2", r"\x1esession/acme/2"):
        assert "of the framework test" in cli.fail("copy", SHOWN, target, code=2)
        assert "of the framework test" in cli.fail("fork", SHOWN, target, code=2)
