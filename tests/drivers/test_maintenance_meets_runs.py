"""A run and a concurrent prune or deletion of one thread: one waits for the other, and the result is complete.

Both orders are forced on PostgreSQL: the caller holds the transaction of the first call open, checks that the second
call waits for it, and then commits the first one. On SQLite there is one writer at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import psycopg
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.conformance.test_utils import generate_checkpoint, generate_config, generate_metadata
from langgraph.checkpoint.serde.types import TASKS
from psycopg import sql
from psycopg.conninfo import make_conninfo
from typing_extensions import LiteralString

from langgraph_checkpoint_custom import CheckpointError, CheckpointSaver, LabelExists, PostgresSaver, Retention
from langgraph_checkpoint_custom.drivers.postgres_errors import RetryPolicy
from langgraph_checkpoint_custom.engine.operation import Offload, Operation, RoundTrip, Steps, through
from langgraph_checkpoint_custom.model.keys import Range
from langgraph_checkpoint_custom.model.outline import FORMAT_WITH_SENDS
from langgraph_checkpoint_custom.model.records import RunRecord
from langgraph_checkpoint_custom.operations import due_threads, sweep
from langgraph_checkpoint_custom.operations.thread_states import runs_of_thread
from tests.citus import activity

WAITING: LiteralString = "SELECT pid FROM {} WHERE datname = current_database() AND wait_event_type = 'Lock'"
BIG = ["a value in its own row " * 200]


def fill(saver: CheckpointSaver, *, delta: bool, run_id: str = "old") -> list[RunnableConfig]:
    """Four checkpoints; `big` is stored with the first and replaced with the third, `log` is rebuilt from writes."""
    configs: list[RunnableConfig] = []
    config = generate_config("t")
    versions: dict[str, Any] = {}
    for step in range(4):
        new: dict[str, Any] = {}
        if step in (0, 2):
            new["big"] = f"{step}"
        if delta:
            new["log"] = f"{step}"
        versions |= new
        checkpoint = generate_checkpoint(
            channel_values={"big": [*BIG, versions["big"]]}, channel_versions=dict(versions)
        )
        metadata = generate_metadata(step=step, run_id=run_id if step < 3 else "new", **counters(delta))
        config = saver.put(config, checkpoint, metadata, new)
        saver.put_writes(config, [("log", step)], f"task {step}")
        configs.append(config)
    return configs


def counters(delta: bool) -> dict[str, Any]:
    return {"counters_since_delta_snapshot": {"log": (1, 1)}} if delta else {}


def fork(saver: CheckpointSaver, parent: RunnableConfig, *, delta: bool) -> RunnableConfig:
    """A checkpoint with an old parent that leaves `big` unchanged."""
    versions = {"big": "0", "log": "fork"} if delta else {"big": "0"}
    checkpoint = generate_checkpoint(channel_values={"big": [*BIG, "0"]}, channel_versions=dict(versions))
    new: dict[str, Any] = {"log": "fork"} if delta else {}
    return saver.put(parent, checkpoint, generate_metadata(step=9, run_id="fork", **counters(delta)), new)


def complete(saver: CheckpointSaver) -> None:
    """Every visible checkpoint can be read, with its history."""
    for found in saver.list(generate_config("t")):
        assert found.checkpoint["channel_values"]["big"][:-1] == BIG
        saver.get_delta_channel_history(config=found.config, channels=["log"])


@contextmanager
def held_open(url: str) -> Iterator[CheckpointSaver]:
    """A saver whose operations are one transaction, committed at the end of the block."""
    with psycopg.connect(url) as connection:
        saver = PostgresSaver(connection)
        saver.get_tuple(generate_config("t"))
        connection.commit()
        connection.execute("SELECT 1")
        yield saver
        connection.commit()


class ConcurrentCall:
    """A call on its own OS thread, with its result or error."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result = self._call()
        except BaseException as error:
            self.error = error

    def wait_until_blocked(self, url: str, *, together: int = 1) -> None:
        """Return when the call waits for a lock, and at least `together` sessions do."""
        with psycopg.connect(url, autocommit=True) as watcher:
            waiting = sql.SQL(WAITING).format(sql.SQL(activity(watcher)))
            while self._thread.is_alive():
                if len(watcher.execute(waiting).fetchall()) >= together:
                    return
        raise AssertionError(f"it did not wait: {self.result!r} {self.error!r}")

    def join(self) -> Any:
        self._thread.join()
        if self.error is not None:
            raise self.error
        return self.result


MAINTENANCE: dict[str, Callable[[CheckpointSaver], None]] = {
    "prune": lambda saver: saver.prune(["t"]),
    "delete_for_runs": lambda saver: saver.delete_for_runs(["old"]),
    "delete_thread": lambda saver: saver.delete_thread("t"),
}


def test_copies_and_other_runs_do_not_wait_for_a_run(postgres_url: str) -> None:
    """A run that appends new values locks nothing that readers, copies or other runs need."""
    with PostgresSaver(postgres_url) as saver:
        fill(saver, delta=False)
        with held_open(postgres_url) as other:
            checkpoint = generate_checkpoint(channel_values={"big": [*BIG, "10"]}, channel_versions={"big": "10"})
            other.put(generate_config("t"), checkpoint, generate_metadata(step=4), {"big": "10"})
            saver.copy_thread("t", "copy")
            fill_again = generate_checkpoint(channel_values={"big": [*BIG, "11"]}, channel_versions={"big": "11"})
            saver.put(generate_config("t"), fill_again, generate_metadata(step=4), {"big": "11"})
        assert len(list(saver.list(generate_config("t")))) == 6
        assert len(list(saver.list(generate_config("copy")))) == 4
        complete(saver)


def test_a_put_in_a_callers_transaction_waits_for_a_prune_that_has_not_changed_anything(postgres_url: str) -> None:
    """While it waits for the thread's lock it has locked no row: with the prune's changes, that would be a deadlock."""
    calls: list[ConcurrentCall] = []
    with PostgresSaver(postgres_url) as saver, psycopg.connect(postgres_url) as connection:
        *_, newest = fill(saver, delta=False)
        held = PostgresSaver(connection)
        held.get_tuple(newest)
        connection.commit()

        def put_large() -> None:
            values: dict[str, Any] = {"big": [*BIG, "10"], "text": "x" * 20_000}
            versions: dict[str, Any] = {"big": "10", "text": "10"}
            large = generate_checkpoint(channel_values=values, channel_versions=versions)
            try:
                held.put(newest, large, generate_metadata(step=4), versions)
            except CheckpointError:
                connection.rollback()
                raise
            connection.commit()

        class Interposed:
            """The driver, which begins the put when the prune has read the outline."""

            driver = saver.backend.driver

            def __getattr__(self, name: str) -> Any:
                return getattr(self.driver, name)

            def run(self, op: Operation[Any]) -> Any:
                def answer(request: RoundTrip | Offload) -> Steps[Any]:
                    reply = yield request
                    names = [each.name for each in getattr(request, "statements", ())]
                    if "select_outline" in names and not calls:
                        calls.append(ConcurrentCall(put_large))
                        calls[0].wait_until_blocked(postgres_url)
                    return reply

                return self.driver.run(replace(op, start=lambda: through(op.start(), answer)))

        saver._driver = Interposed()
        saver.prune(["t"])
        saver._driver = Interposed.driver
        calls[0].join()
        assert [found.metadata["step"] for found in saver.list(generate_config("t"))] == [4, 3]
        complete(saver)


def test_a_run_with_small_values_does_not_wait_for_a_deletion(postgres_url: str) -> None:
    """Each of its checkpoints and writes is one row that is complete in itself."""
    with PostgresSaver(postgres_url) as saver:
        fill(saver, delta=False)
        with held_open(postgres_url) as other:
            other.delete_thread("t")
            checkpoint = generate_checkpoint(channel_values={"small": [1]}, channel_versions={"small": "1"})
            stored = saver.put(generate_config("t"), checkpoint, generate_metadata(), {"small": "1"})
            saver.put_writes(stored, [("small", [2])], "task")
        (found,) = saver.list(generate_config("t"))
        assert (found.config, found.checkpoint["channel_values"]) == (stored, {"small": [1]})
        assert found.pending_writes == [("task", "small", [2])]


def steps(saver: CheckpointSaver, parent: RunnableConfig, *numbers: int) -> RunnableConfig:
    """Checkpoints that are one row each, and whose channel `log` is rebuilt from the checkpoints before."""
    for number in numbers:
        new: dict[str, Any] = {"n": f"{number}", "log": f"{number}"}
        checkpoint = generate_checkpoint(channel_values={"n": number}, channel_versions=dict(new))
        parent = saver.put(parent, checkpoint, generate_metadata(step=number, **counters(True)), new)
    return parent


def test_a_step_that_needs_its_parent_waits_for_who_holds_the_lock_of_the_thread(postgres_url: str) -> None:
    """A deletion has read the thread then, and decides about checkpoints without children."""
    with PostgresSaver(postgres_url) as saver, psycopg.connect(postgres_url) as other:
        parent = steps(saver, generate_config("t"), 0, 1, 2)
        (lock,) = saver.backend.dialect.ask(lock="exclusive", thread_id="t").before
        other.execute(lock.sql.encode(), lock.params)
        call = ConcurrentCall(partial(steps, saver, parent, 3))
        call.wait_until_blocked(postgres_url)
        assert saver.get_tuple(generate_config("t")) == saver.get_tuple(parent)
        other.commit()
        stored = call.join()
        assert [each.config for each in saver.list(generate_config("t"), limit=1)] == [stored]


@pytest.mark.parametrize("name", MAINTENANCE)
def test_a_thread_with_the_same_id_in_another_schema_does_not_wait(own_postgres_url: str, name: str) -> None:
    """Not even while a deletion in the first schema holds the thread's lock exclusively."""
    with (
        PostgresSaver(own_postgres_url) as saver,
        psycopg.connect(own_postgres_url, autocommit=True, options="-c lock_timeout=150s") as connection,
    ):
        fill(saver, delta=False)
        another = PostgresSaver(connection, schema="another")
        another.setup()
        configs = fill(another, delta=False)
        with held_open(own_postgres_url) as other:
            MAINTENANCE[name](other)
            fork(another, configs[1], delta=False)
            complete(another)
            MAINTENANCE[name](another)


def test_storing_a_resume_again_during_a_deletion_does_not_block_other_threads(postgres_url: str) -> None:
    """It replaces a row that is being deleted, so it waits; the calls in its batch do not wait with it."""
    with PostgresSaver(postgres_url) as saver:
        configs = fill(saver, delta=False)
        saver.put_writes(configs[-1], [("__resume__", 1)], "task")
        with held_open(postgres_url) as other:
            other.delete_thread("t")
            again = ConcurrentCall(lambda: saver.put_writes(configs[-1], [("__resume__", 2)], "task"))
            again.wait_until_blocked(postgres_url)
            others = [
                ConcurrentCall(
                    partial(saver.put_writes, generate_config(f"t{n}", checkpoint_id="1"), [("a", n)], "task")
                )
                for n in range(30)
            ]
            for each in others:
                each.join()
        again.join()


def a_step(saver: CheckpointSaver, after: RunnableConfig) -> RunnableConfig:
    """A checkpoint of one row, which takes no lock."""
    return saver.put(after, generate_checkpoint(channel_values={}, channel_versions={}), generate_metadata(step=9), {})


def test_a_thread_that_goes_on_while_it_is_swept_stays(postgres_url: str) -> None:
    """With all its checkpoints, and with the row that says when it is due: it is visited again."""
    with (
        PostgresSaver(postgres_url) as saver,
        PostgresSaver(postgres_url) as other,
        psycopg.connect(postgres_url, autocommit=True) as connection,
    ):
        *_, last = fill(saver, delta=False)
        before = [found.config for found in saver.list(None)]
        d, driver, codec = saver.backend
        policy = sweep.Policy(60.0, None, (), keep_waiting=True)
        op = sweep.sweep_thread(d, codec, "t", policy, time.time() + 3_600)
        stored: list[RunnableConfig] = []

        def answer(request: RoundTrip | Offload) -> Steps[Any]:
            reply = yield request
            if not stored:  # The newest checkpoint was read.
                stored.append(a_step(other, last))
            return reply

        done = driver.run(Operation(op.name, op.access, lambda: through(op.start(), answer)))
        assert (done.deleted_threads, done.deleted_checkpoints, done.freed_bytes) == (0, 0, 0)
        assert [found.config for found in saver.list(None)] == stored + before
        assert connection.execute("SELECT thread_id, due_at FROM langgraph_checkpoint.threads").fetchall() == [("t", 0)]
        assert driver.run(sweep.sweep_thread(d, codec, "t", policy, time.time() + 3_600)).deleted_threads


def test_a_thread_that_is_stored_while_others_are_armed_pushes_none_out_of_a_page(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_threads, "ARMED", 3)
    with (
        PostgresSaver(postgres_url) as saver,
        PostgresSaver(postgres_url) as other,
        psycopg.connect(postgres_url, autocommit=True) as connection,
    ):
        for name in "acde":
            a_step(saver, generate_config(name))
        connection.execute("DELETE FROM langgraph_checkpoint.threads")
        d, driver, _ = saver.backend
        within: Range | None = Range("", "~")
        while within is not None:
            thread_ids, within = driver.run(due_threads.ids_page(d, within))
            if within is not None:
                assert thread_ids == ["a", "c", "d"]
                a_step(other, generate_config("b"))
            driver.run(due_threads.arm_threads(d, thread_ids, 0, hasten=False))
        rows = connection.execute("SELECT thread_id FROM langgraph_checkpoint.threads ORDER BY 1").fetchall()
        assert rows == [(name,) for name in "abcde"]


def test_removing_a_label_takes_the_rows_in_the_order_of_a_deletion(postgres_url: str) -> None:
    """Whoever waits for the label does not hold the row of the thread, for which the deletion would wait."""
    with PostgresSaver(postgres_url) as saver, psycopg.connect(postgres_url) as other:
        (config, *_) = fill(saver, delta=False)
        saver.label(config, "here")
        other.execute("SELECT FROM langgraph_checkpoint.labels FOR UPDATE")
        call = ConcurrentCall(lambda: saver.unlabel("t", "here"))
        call.wait_until_blocked(postgres_url)
        other.execute("SELECT FROM langgraph_checkpoint.threads FOR UPDATE NOWAIT")
        other.rollback()
        assert call.join() is True


def test_a_sweep_waits_for_the_lock_of_a_thread_whose_label_was_removed(postgres_url: str) -> None:
    """If it held the lock and waited for a row, what the transaction does next in the thread would be a deadlock."""
    with PostgresSaver(postgres_url) as saver:
        (config, *_) = fill(saver, delta=False)
        saver.label(config, "here")
        with held_open(postgres_url) as other:
            assert other.unlabel("t", "here") is True
            call = ConcurrentCall(lambda: saver.sweep(Retention(keep_last=1)))
            call.wait_until_blocked(postgres_url)
            with psycopg.connect(postgres_url) as watcher:
                statement = "SELECT wait_event FROM pg_stat_activity WHERE pid IN ({})"
                waits_for = sql.SQL(statement).format(sql.SQL(WAITING).format(sql.SQL("pg_stat_activity")))
                assert watcher.execute(waits_for).fetchall() == [("advisory",)]
            other.label(generate_config("t"), "there")
        assert call.join().deleted_checkpoints == 3


def test_the_newest_checkpoint_is_labelled_while_a_run_goes_on(postgres_url: str) -> None:
    """The one that was the newest when it got the name."""
    with (
        PostgresSaver(postgres_url) as saver,
        PostgresSaver(postgres_url) as run,
        psycopg.connect(postgres_url) as other,
    ):
        first = a_step(run, generate_config("t"))
        other.execute("INSERT INTO langgraph_checkpoint.labels VALUES ('t', 'here', '', 'another')")
        call = ConcurrentCall(lambda: saver.label(generate_config("t"), "here"))
        call.wait_until_blocked(postgres_url)
        a_step(run, first)
        other.rollback()
        assert call.join() == first
        assert saver.labels("t") == {"here": first}
        with pytest.raises(LabelExists):
            saver.label(generate_config("t"), "here")


def test_runs_are_listed_in_a_callers_transaction_while_the_thread_is_deleted(postgres_url: str) -> None:
    """Such a transaction sees the deletion between two statements."""
    with PostgresSaver(postgres_url) as saver, held_open(postgres_url) as other:
        checkpoint = generate_checkpoint(channel_values={TASKS: []}, channel_versions={TASKS: "1"})
        checkpoint["v"] = FORMAT_WITH_SENDS
        stored = saver.put(generate_config("t"), checkpoint, generate_metadata(run_id="1"), {TASKS: "1"})
        checkpoint_id = stored["configurable"]["checkpoint_id"]
        d, driver, codec = other.backend
        op = runs_of_thread(d, codec, "t")

        def answer(request: RoundTrip | Offload) -> Steps[Any]:
            reply = yield request
            saver.delete_thread("t")
            return reply

        found = driver.run(replace(op, start=lambda: through(op.start(), answer)))
        assert found == [RunRecord("1", checkpoint_id, checkpoint_id, 1, finished=True)]


@pytest.mark.parametrize("keep", [Retention(keep_last=1), Retention(max_bytes=0)])
def test_a_sweep_leaves_a_thread_whose_lock_is_held_for_too_long(postgres_url: str, keep: Retention) -> None:
    """And goes on with the others: each sweep begins with the threads that have been due for the longest time."""
    with PostgresSaver(postgres_url) as saver, held_open(postgres_url) as other:
        fill(saver, delta=False)
        last = a_step(saver, a_step(saver, generate_config("u")))
        other.label(generate_config("t"), "held")
        limit = make_conninfo(postgres_url, options="-c lock_timeout=100ms")
        with PostgresSaver(limit) as sweeper:
            sweeper.backend.driver._retry = RetryPolicy(attempts=1)  # type: ignore[attr-defined]
            swept = sweeper.sweep(keep)
        assert len(list(saver.list(generate_config("t")))) == 4
        left = [] if keep.max_bytes == 0 else [last]
        assert [found.config for found in saver.list(generate_config("u"))] == left
        assert not swept.complete
        assert saver.sweep_status().finished_at is None


def test_a_thread_that_gets_its_row_while_a_sweep_visits_it_stays_due(postgres_url: str) -> None:
    with PostgresSaver(postgres_url) as saver, psycopg.connect(postgres_url, autocommit=True) as server:
        fill(saver, delta=False)
        server.execute("DELETE FROM langgraph_checkpoint.threads")
        d, driver, codec = saver.backend
        now = time.time()
        visit = sweep.sweep_thread(d, codec, "t", sweep.Policy(None, 9, (), True), now)

        def arming(request: RoundTrip | Offload) -> Steps[Any]:
            if isinstance(request, RoundTrip) and request.statements[0].name == "rearm_thread":
                with PostgresSaver(postgres_url) as other:
                    other.backend.driver.run(due_threads.arm_threads(d, ["t"], now, hasten=True))
            return (yield request)

        driver.run(replace(visit, start=lambda: through(visit.start(), arming)))
        assert server.execute("SELECT due_at FROM langgraph_checkpoint.threads").fetchall() == [(now,)]
