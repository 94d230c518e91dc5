"""A process that has used a saver is forked: the child works on its own connections, and the parent as before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import psycopg
import pytest

from langgraph_checkpoint_custom import CheckpointError
from tests.conftest import APIS
from tests.crash.family import Command, Opens, family, from_connection, from_pool, from_url
from tests.crash.processes import TIMEOUT, Process, answer, pipe
from tests.crash.programs import after, seen
from tests.stores import Store


class Family:
    """Sends the commands of the test to parent and child."""

    def __init__(self, parent: Process, child: Connection) -> None:
        self._parent = parent
        self._child = child

    def parent(self, command: Command) -> Any:
        self._parent.send(command)
        return self._parent.receive()

    def child(self, command: Command) -> Any:
        self._child.send(command)
        return answer(self._child)

    def end_child(self, how: Command = "end") -> None:
        self._child.send(how)
        assert self._child.poll(TIMEOUT), "the child does not end"

    def end_parent(self) -> None:
        self._parent.send("end")
        assert self._parent.wait() == 0


@contextmanager
def a_family(
    store: Store,
    api: str = "sync",
    child_api: str = "sync",
    *,
    opens: Opens = from_url,
    child_opens: Opens | None = None,
) -> Iterator[Family]:
    ours, theirs = pipe()
    with ours, Process(family, store, opens, api, theirs, child_opens, child_api) as parent:
        theirs.close()
        yield Family(parent, ours)


def sessions(store: Store) -> set[int]:
    """The server processes with a client."""
    if store.kind == "sqlite":
        return set()
    with psycopg.connect(store.url) as watcher:
        return {
            pid
            for (pid,) in watcher.execute(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        }


@pytest.mark.parametrize("child_api", APIS)
@pytest.mark.parametrize("api", APIS)
def test_the_child_has_its_own_connections_and_its_end_does_not_matter(store: Store, api: str, child_api: str) -> None:
    with a_family(store, api, child_api) as two:
        assert two.parent((0, 3)) == 3
        of_parent = sessions(store)
        assert two.parent("fork") == "forked"
        assert two.child((0, 3)) == 3
        assert two.parent((3, 6)) == 6
        assert two.child((3, 30)) == 30
        if store.kind == "postgres":
            assert sessions(store) - of_parent
        two.end_child()
        assert of_parent <= sessions(store)
        assert two.parent((6, 30)) == 30
        two.end_parent()
    with store.open() as saver:
        assert seen(saver, "child") == seen(saver, "parent") == after(30)


@pytest.mark.parametrize("child_opens", [None, from_url], ids=["same_saver", "new_saver"])
@pytest.mark.parametrize("api", APIS)
def test_what_the_child_stores_is_stored_even_if_the_parent_closes_first(
    store: Store, api: str, child_opens: Opens | None
) -> None:
    with a_family(store, api, api, child_opens=child_opens) as two:
        assert two.parent((0, 3)) == 3
        assert two.parent("fork") == "forked"
        assert two.child((0, 3)) == 3
        assert two.parent((3, 6)) == 6
        assert two.parent("close") is None
        assert two.child((3, 30)) == 30
        two.end_child("die")
        two.end_parent()
    with store.open() as saver:
        assert seen(saver, "child") == after(30)
        assert seen(saver, "parent") == after(6)


@pytest.mark.parametrize("opens", [from_connection, from_pool])
def test_a_callers_connections_are_refused_in_the_child(postgres_url: str, opens: Opens) -> None:
    with a_family(Store("postgres", postgres_url), opens=opens) as two:
        assert two.parent((0, 3)) == 3
        assert two.parent("fork") == "forked"
        error = two.child((0, 3))
        assert isinstance(error, CheckpointError)
        assert "fork" in str(error)
        two.end_child()
        assert two.parent((3, 6)) == 6
        two.end_parent()
