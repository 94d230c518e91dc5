"""Backups during runs, by the commands of docs/postgres.md and docs/sqlite.md."""

from __future__ import annotations

import re
import shlex
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from langgraph_checkpoint_custom import CheckpointSaver, PostgresSaver, SqliteSaver, open_saver
from tests.faults.cluster import Cluster, running_cluster
from tests.invariants import Tables, check_invariants, read_tables
from tests.migrations.test_roles import AFTER_SETUP, MAKE_ROLES, VACUUM, execute
from tests.migrations.test_two_versions import done
from tests.stores import Store

DOCUMENT = (Path(__file__).parents[2] / "docs" / "postgres.md").read_text("utf-8")
DUMP, RESTORE = re.findall(r"^(pg_(?:dump|restore) .*)$", DOCUMENT, re.MULTILINE)
WITHOUT_ROLES = "--no-owner --no-privileges"
STEPS = 5


@pytest.fixture(scope="module")
def cluster(postgres_programs: None) -> Iterator[Cluster]:
    """A server with the two roles."""
    with running_cluster() as made:
        execute(made, "postgres", MAKE_ROLES)
        with PostgresSaver(made.url(user="checkpoint_migrator")) as saver:
            saver.setup()
        execute(made, "postgres", AFTER_SETUP)
        yield made


def graph_on(saver: CheckpointSaver) -> Any:
    """A graph whose list grows by one item at each step, and is large enough to be stored in chunks."""
    builder: Any = StateGraph(dict)
    for step in range(STEPS):
        builder.add_node(f"step {step}", lambda state: {"list": [*state["list"], "word " * 1000]})
        builder.add_edge(f"step {step - 1}" if step else START, f"step {step}")
    return builder.compile(checkpointer=saver)


@contextmanager
def runs_on(saver: CheckpointSaver) -> Iterator[None]:
    """Runs that begin, end and are pruned during a block; some exist before it begins."""
    graph = graph_on(saver)
    stop, begun = threading.Event(), threading.Event()
    problems: list[Exception] = []

    def run(name: str) -> None:
        number = 0
        try:
            while not stop.is_set():
                thread_id = f"{name} {number % 7}"
                # Not "async", for which this applies to each step and not only to the input, see `in_flight`.
                graph.invoke({"list": [str(number)]}, {"configurable": {"thread_id": thread_id}}, durability="sync")
                if number % 5 == 4:
                    saver.prune([thread_id])
                number += 1
                if number == 3:
                    begun.set()
        except Exception as error:
            problems.append(error)

    workers = [threading.Thread(target=run, args=(f"worker {i}",)) for i in range(3)]
    for worker in workers:
        worker.start()
    try:
        assert begun.wait(150)
        yield
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    assert not problems


def check_restored(url: str) -> None:
    """Check that a store is complete and that its threads continue."""
    store = Store("postgres" if url.startswith("postgresql") else "sqlite", url)
    check_invariants(store, early_writes=in_flight(read_tables(store)))
    with open_saver(url) as saver:
        graph = graph_on(saver)
        threads = [thread.thread_id for thread in saver.threads()]
        assert len(threads) >= 3
        for thread_id in threads:
            config = {"configurable": {"thread_id": thread_id}}
            state = graph.get_state(config)
            # A task that has its writes, but not the checkpoint after them, is in `tasks` and not in `next`.
            values = graph.invoke(None if state.tasks else {"list": []}, config)
            assert len(values["list"]) >= STEPS
            assert not graph.get_state(config).tasks


def check_upgraded(url: str, next_minor_version: Path) -> None:
    """Check that the next version migrates a restored store, and that both continue its threads then."""
    store = Store("postgres" if url.startswith("postgresql") else "sqlite", url)
    done(next_minor_version, store, "set-up", "read")
    check_restored(url)


def in_flight(tables: Tables) -> set[tuple[str, str, str]]:
    """Checkpoints that have writes, and are newer than all stored checkpoints of their threads.

    LangGraph begins the first tasks of a run while the checkpoint of its input is still being stored.
    """
    newest: dict[str, str] = {}
    for row in tables.checkpoints:
        newest[row.thread_id] = max(newest.get(row.thread_id, ""), row.checkpoint_id)
    return {write[:3] for write in tables.writes if write.checkpoint_id > newest.get(write.thread_id, "")}


def as_documented(line: str, role: str, file: str, url: str) -> list[str]:
    """A command of the document, whose URL names a role, with a file and a URL of the test."""
    words = shlex.split(line)
    assert "checkpoints.dump" in words
    assert any(f"//{role}@" in word for word in words)
    return [url if "://" in word else file if word == "checkpoints.dump" else word for word in words]


@pytest.mark.timeout(600)
def test_a_dump_taken_during_runs_is_a_working_store(cluster: Cluster, next_minor_version: Path) -> None:
    file = str(cluster.folder / "checkpoints.dump")
    with PostgresSaver(cluster.url(user="checkpoint_runner")) as saver, runs_on(saver):
        source = cluster.url("postgres", user="checkpoint_migrator")
        cluster.run(*as_documented(DUMP, "checkpoint_migrator", file, source))
    assert f"`{WITHOUT_ROLES}`" in DOCUMENT
    for name, user, options in (("another", "checkpoint_runner", ""), ("third", "postgres", WITHOUT_ROLES)):
        cluster.run("createdb", "-h", str(cluster.folder), "-U", "postgres", name)
        program, *words = as_documented(RESTORE, "postgres", file, cluster.url(name, user="postgres"))
        cluster.run(program, *options.split(), *words)
        check_restored(cluster.url(name, user=user))
    check_upgraded(cluster.url("third", user="postgres"), next_minor_version)


def test_a_role_that_only_runs_cannot_dump(cluster: Cluster) -> None:
    with pytest.raises(AssertionError, match="row-level security"):
        cluster.run("pg_dump", "-n", "langgraph_checkpoint", "-f", "/dev/null", cluster.url(user="checkpoint_runner"))


def test_the_owner_may_set_autovacuum(cluster: Cluster) -> None:
    execute(cluster, "checkpoint_migrator", VACUUM)
    with PostgresSaver(cluster.url(user="checkpoint_runner")) as saver:
        saver.setup()
        graph_on(saver).invoke({"list": []}, {"configurable": {"thread_id": "vacuumed"}})


@pytest.mark.parametrize("how", ["backup", "VACUUM INTO"])
def test_a_copy_of_a_file_taken_during_runs_is_a_working_store(
    how: str, tmp_path: Path, next_minor_version: Path
) -> None:
    file, copy = tmp_path / "checkpoints.db", tmp_path / "copy.db"
    with SqliteSaver(file) as saver, runs_on(saver), closing(sqlite3.connect(file)) as source:
        if how == "backup":
            with closing(sqlite3.connect(copy)) as target:
                source.backup(target)
        else:
            source.execute("VACUUM INTO ?", (str(copy),))
    check_restored(f"sqlite:///{copy}")
    check_upgraded(f"sqlite:///{copy}", next_minor_version)
