"""The cut-over of docs/moving.md and the way back, with two versions of an application in two processes."""

from __future__ import annotations

import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from time import sleep
from typing import IO, Any

import psycopg
import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver

from langgraph_checkpoint_custom import ConfigError, SchemaForeign, open_saver
from langgraph_checkpoint_custom.tools import fence
from tests.behaviour.helpers import made_role
from tests.cli.conftest import PROGRAM, Cli, url_with_secret
from tests.moving.application import THREADS, graph_of, say
from tests.moving.official import Official, config, everything, step

_WAITING = (
    "SELECT FROM pg_locks WHERE NOT granted"
    " AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())"
)
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "moving.md").read_text("utf-8")


def commands(section: str) -> list[list[str]]:
    """The commands of a section of the page, in their order."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return [shlex.split(line) for line in re.findall(r"^ *lgckpt (migrate .*)$", text, re.MULTILINE)]


@contextmanager
def running(*argv: str, stderr: int | None = None) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """A process, and its output."""
    with subprocess.Popen(
        argv,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # A background job ignores it.
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout
        finally:
            process.kill()


def application(kind: str, url: str, what: str, *threads: str) -> list[str]:
    return [sys.executable, "-m", "tests.moving.application", kind, url, what, *threads]


def killed_while_it_holds(url: str, what: str) -> None:
    """The old version starts or answers a run, and is killed in the middle of it."""
    with running(*application("official", url, what)) as (process, output):
        assert output.readline() == "holds\n"
        process.send_signal(signal.SIGKILL)


def logs(saver: BaseCheckpointSaver[Any]) -> dict[str, list[str]]:
    graph = graph_of(saver)
    return {thread_id: graph.get_state(config(thread_id)).values["log"] for thread_id in THREADS}


@pytest.mark.timeout(900)
def test_two_versions_of_an_application_and_no_turn_is_lost(cli: Cli, official: Official) -> None:
    """The old version serves in another process while `--follow` runs, and is killed in the middle of its runs."""
    old, new = official.url, url_with_secret(cli.store)

    def command(argv: list[str]) -> list[str]:
        return [{"official.db": old, "checkpoints.db": new}.get(each, each) for each in argv]

    rehearsal, once, follow, finish = map(command, commands("The cut-over"))
    (back,) = map(command, commands("Back to LangGraph's savers"))
    assert ("--follow" in follow, "--finish" in finish, "--to" in back) == (True, True, True)
    with official.open() as saver:
        graph = graph_of(saver)
        for thread_id in THREADS:
            say(graph, thread_id, "hello")
        say(graph, "asked", "ask")
    cli(*rehearsal)
    cli(*once)
    with running(*PROGRAM, *follow) as (following, passes):
        with running(*application("official", old, "serve")) as (serving, turns):
            for _ in range(2):
                assert turns.readline()
                assert "0 problems" in passes.readline()
            serving.kill()  # In the middle of a turn.
        following.send_signal(signal.SIGINT)
        assert following.wait() == 0
    killed_while_it_holds(old, "hold")
    killed_while_it_holds(old, "answer")
    assert cli.json(*finish)["closed"] is True
    with official.open() as theirs, cli.store.open() as ours:
        assert [each._asdict() for each in everything(ours)] == [each._asdict() for each in everything(theirs)]
        expected = logs(theirs)
        assert logs(ours) == expected
        graph = graph_of(ours)
        # Of the run in flight, the task that was done is not done again; the answer is not asked for again.
        assert graph.get_state(config("in flight")).next == ("slow",)
        assert graph.invoke(None, config("in flight"))["log"] == ["flight", "quick: flight", "slow: flight"]
        assert graph.invoke(None, config("asked"))["log"] == ["ask", "quick: ask", "slow: yes"]
        for thread_id in THREADS:
            assert say(graph, thread_id, "again") == [*expected[thread_id], "again", "quick: again", "slow: again"]
        # An old version that is left over is told where the threads are.
        with pytest.raises((sqlite3.IntegrityError, psycopg.Error), match=r"have moved to .*Saver of") as refused:
            say(graph_of(theirs), THREADS[0], "lost?")
        assert "n0t-for-the-screen" not in str(refused.value)
        expected = logs(ours)
    assert cli.json(*back)["problems"] == {}
    with official.open() as theirs:
        assert logs(theirs) == expected
        assert say(graph_of(theirs), THREADS[0], "back")[-1] == "slow: back"
    assert cli.json(*once)["problems"] == {}
    with cli.store.open() as ours:
        assert logs(ours)[THREADS[0]][-1] == "slow: back"
    # In a rolling change, both versions answer: each its own threads, and then both the same one.
    both, first, second, third = THREADS
    with (
        running(*PROGRAM, *follow) as (following, passes),
        running(*application("official", old, "serve", first)) as (_, old_turns),
        running(*application("ours", new, "serve", second, third)) as (_, new_turns),
    ):
        for number in ("0\n", "1\n"):
            assert (old_turns.readline(), new_turns.readline()) == (number, number)
            assert "0 problems" in passes.readline()
        following.send_signal(signal.SIGINT)
        assert following.wait() == 0
    with (
        running(*application("official", old, "serve", both)) as (_, old_turns),
        running(*application("ours", new, "serve", both)) as (_, new_turns),
    ):
        assert (old_turns.readline(), new_turns.readline()) == ("0\n", "0\n")
    ended = cli.json(*finish, code=1)
    assert (ended["problems"].keys(), ended["closed"]) == ({both}, True)
    assert cli.error.endswith("error: the official tables are closed; 1 thread needs you, see above\n")
    assert cli.json(*finish, "--diverged", "copy")["problems"] == {}
    with cli.store.open() as ours:
        found = logs(ours)
        assert "slow: official 1" in found[first]
        assert "slow: ours 1" in found[second]
        assert "slow: ours 1" in found[third]
        assert "slow: ours 0" in found[both]
        assert "slow: official 0" in graph_of(ours).get_state(config(f"{both}-official")).values["log"]


@pytest.mark.timeout(300)
def test_follow_names_a_problem_when_it_is_seen_and_once(cli: Cli, official: Official) -> None:
    argv = ("migrate", "--from", official.url, "--url", url_with_secret(cli.store))
    with official.open() as theirs, cli.store.open() as ours:
        ours.setup()
        at = step(theirs, "1", None, a=1)
        with running(*PROGRAM, *argv, "--follow", stderr=subprocess.STDOUT) as (following, output):
            assert re.search("1 checkpoint, .* since the start, 0 problems; everything from before ", output.readline())
            step(ours, "1", at, a=2)
            step(theirs, "1", at, a=3)
            assert "1 problem" in output.readline()
            assert "error: thread '1': it went on in both databases" in output.readline()
            for thread_id in ("2", "3"):  # Two more passes, which find the problem again.
                step(theirs, thread_id, None, a=1)
                assert "1 problem" in output.readline()
            following.send_signal(signal.SIGTERM)
            rest = output.read()
            assert following.wait() == 1
    assert rest.endswith("error: 1 thread needs you, see above\n")
    assert "it went on" not in rest


def test_options_of_migrate_that_exclude_each_other(
    cli: Cli, official: Official, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = ("migrate", "--from", official.url)
    new = f"sqlite:///{tmp_path}/new.db"
    with open_saver(new) as saver:
        step(saver, "1", None, a=1)
    for options in (
        ("--follow", "--finish"),
        ("--finish", "--dry-run"),
        ("--finish", "--thread", "1"),
        ("--to", "official", "--finish"),
    ):
        assert "cannot be combined" in cli.fail(*argv, *options, code=2)
    assert "omit --no-tenants" in cli.fail(*argv, "--to", "official", "--no-tenants", code=2)
    assert "official" in cli.fail(*argv, "--to", "elsewhere", code=2)
    assert "use --from" in cli.fail("migrate", code=2)
    monkeypatch.setenv("KEY", "0123456789abcdef")
    own = ("migrate", "--from", new, "--url", f"sqlite:///{tmp_path}/other.db", "--tables", "own")
    for of_official in (("--follow",), ("--finish",), ("--diverged", "copy"), ("--official-key", "KEY")):
        assert "LangGraph's own savers" in cli.fail(*own, *of_official, code=2)
    with official.open() as saver:
        step(saver, "1", None, a=1)
    monkeypatch.setenv("CHECKPOINT_URL", official.url)
    if official.kind == "postgres":  # Both kinds of tables may be in one database.
        cli(*argv)
        assert cli("migrate", "--to", "official") == "1 thread, 0 checkpoints, 0 writes.\n"
    else:
        assert "already has a table 'checkpoints'" in cli.fail("migrate", "--to", "official")
        assert "the tables of this package" in cli.fail("migrate", "--to", "official", "--from", new, "--url", new)


def test_what_cannot_be_closed_is_said(
    cli: Cli, official: Official, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(fence, "LOCK_SECONDS", 1)
    argv = ("migrate", "--from", official.url, "--url", url_with_secret(cli.store), "--finish")
    with official.open() as saver:
        step(saver, "1", None, a=1)
        if official.kind == "sqlite":
            path = official.url.removeprefix("sqlite:///")
            with closing(sqlite3.connect(path, isolation_level=None)) as somebody:
                somebody.execute("BEGIN IMMEDIATE")
                assert cli.json(*argv, code=1)["closed"] is False
                assert "are not closed" in cli.error
                assert "database is locked" in cli.error
        else:
            with psycopg.connect(official.url, autocommit=True) as somebody:
                with somebody.transaction():
                    somebody.execute("UPDATE checkpoints SET metadata = metadata")
                    assert cli.json(*argv, code=1)["closed"] is False
                    assert "are not closed" in cli.error
                    assert "lock timeout" in cli.error
                with made_role(official.url, "SELECT ON ALL TABLES IN SCHEMA public", "public") as name:
                    reader = f"{official.url}&options=-c%20role%3D{name}"
                    as_reader = ("migrate", "--tables", "official", "--from", reader, *argv[3:])
                    assert cli.json(*as_reader, code=1)["closed"] is False
                    assert "permission denied" in cli.error
        assert cli.error.endswith("; make sure that no old version runs\n")
        step(saver, "2", None, a=1)  # It is not closed.
        assert cli(*argv) == "2 threads, 1 checkpoint, 0 writes. The official tables are closed.\n"
        assert cli.json(*argv) == {
            **{"tables": "official", "threads": 2, "checkpoints": 0, "writes": 0},
            **{"deleted": 0, "problems": {}, "closed": True},
        }
        for change in (lambda: step(saver, "3", None, a=1), lambda: saver.delete_thread("1")):
            with pytest.raises((sqlite3.IntegrityError, psycopg.Error), match="have moved to"):
                change()
        assert [one.config["configurable"]["thread_id"] for one in everything(saver)] == ["1", "2"]


def test_a_checkpoint_that_is_being_stored_does_not_meet_the_closing_tables(empty_postgres_url: str) -> None:
    """LangGraph's saver stores the values of a checkpoint first, and then its row."""
    official = Official("postgres", empty_postgres_url)
    with official.open() as saver:
        step(saver, "1", None, a=1)
    with psycopg.connect(official.url) as somebody, psycopg.connect(official.url, autocommit=True) as watcher:
        somebody.execute("UPDATE checkpoint_blobs SET type = type")
        with ThreadPoolExecutor(1) as pool:
            closing_tables = pool.submit(fence.close, official.url, "elsewhere")
            while not watcher.execute(_WAITING).fetchall():
                sleep(0.01)
            somebody.execute("UPDATE checkpoints SET metadata = metadata")
            somebody.commit()
            assert closing_tables.result() is None


def test_a_thread_that_is_being_deleted_does_not_meet_the_closing_tables(empty_postgres_url: str) -> None:
    """LangGraph's saver deletes the rows of checkpoints first, and then their values."""
    official = Official("postgres", empty_postgres_url)
    with official.open() as saver, ThreadPoolExecutor(2) as pool:
        step(saver, "1", None, a=[1])
        with psycopg.connect(official.url) as somebody, psycopg.connect(official.url, autocommit=True) as watcher:
            somebody.execute("SELECT FROM checkpoints FOR UPDATE")
            deleting = pool.submit(saver.delete_thread, "1")
            while not watcher.execute(f"{_WAITING} AND locktype = 'transactionid'").fetchall():
                sleep(0.001)
            closing_tables = pool.submit(fence.close, official.url, "elsewhere")
            while not watcher.execute(f"{_WAITING} AND mode = 'ShareRowExclusiveLock'").fetchall():
                sleep(0.001)
            somebody.commit()
            deleting.result()
            assert closing_tables.result() is None
            assert watcher.execute("SELECT FROM checkpoints UNION ALL SELECT FROM checkpoint_blobs").fetchall() == []
        with pytest.raises(psycopg.Error, match="have moved to"):
            saver.delete_thread("1")


def test_after_the_tables_are_locked_the_other_statements_wait_as_long_as_they_need(
    empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only as long as a try for the locks: here, for somebody who changes the function of the triggers."""
    monkeypatch.setattr(fence, "TRY_SECONDS", 0.05)
    official = Official("postgres", empty_postgres_url)
    with official.open():
        assert fence.close(official.url, "elsewhere") is None
    with psycopg.connect(official.url) as somebody, psycopg.connect(official.url, autocommit=True) as watcher:
        somebody.execute(f"ALTER FUNCTION {fence.NAME}() COST 7")
        with ThreadPoolExecutor(1) as pool:
            closing_tables = pool.submit(fence.close, official.url, "here")
            longer_than_a_try = f"{_WAITING} AND clock_timestamp() - waitstart > '0.2s'"
            while not watcher.execute(longer_than_a_try).fetchall() and not closing_tables.done():
                sleep(0.01)
            somebody.rollback()
            assert closing_tables.result() is None


def test_only_tables_of_langgraph_are_closed(cli: Cli, empty_postgres_url: str, tmp_path: Path) -> None:
    ours = f"sqlite:///{tmp_path}/ours.db"
    with open_saver(ours) as saver:
        at = step(saver, "1", None, a=1)
        for url in (ours, empty_postgres_url):
            assert "no tables of LangGraph's own" in cli.fail(
                "migrate", "--from", url, "--tables", "official", "--finish"
            )
            with pytest.raises(SchemaForeign):
                fence.close(url, "elsewhere")
            fence.open_again(url)
        step(saver, "1", at, a=2)


def test_no_error_has_the_password() -> None:
    changes: list[Callable[[str], object]] = [lambda url: fence.close(url, "elsewhere"), fence.open_again]
    for change in changes:
        with pytest.raises(ConfigError, match="%-encode") as refused:
            change("postgresql://user:s3cr%zzt@localhost/app")
        assert "s3cr" not in str(refused.value)
