"""A sweep looks at the threads that are due and at those that have grown, and finds late what no rule has found."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from ulid import ULID

from langgraph_checkpoint_custom import (
    CheckpointSaver,
    OperationEvent,
    PostgresSaver,
    Retention,
    Swept,
    open_saver,
    retention,
)
from langgraph_checkpoint_custom.engine.operation import Operation
from langgraph_checkpoint_custom.operations import due_threads, sweep
from langgraph_checkpoint_custom.operations.due_threads import WEEK
from tests.behaviour.helpers import Database, checkpoint, config, metadata, next_uuid
from tests.behaviour.sweeps import DAY, Sweeps, now, put, threads
from tests.stores import Store


def test_a_second_sweep_of_unchanged_threads_takes_a_handful_of_transactions(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many, whatever their ids, with any retention. After that, only threads that have changed are visited."""
    events: list[OperationEvent] = []
    monkeypatch.setattr(due_threads, "DUE", 20)
    many, later = 30, now() + timedelta(hours=2)  # Nothing is new, which the last hour would be.
    with store.open(on_operation=events.append) as saver:
        saver.setup()
        ids = "", *(f"{first}00-100" for first in "0z"), str(ULID())
        last = {f"t{n}": put(saver, f"t{n}", days=1, checkpoint_id=ids[n % 4 if n > 9 else 0]) for n in range(many)}
        for keep in (Retention(older_than=30 * DAY, keep_last=2), Retention(keep_last=2), Retention()):
            sweeps = Sweeps(saver, keep)
            sweeps(later)
            assert sweeps.visits == many  # All threads, because the retention has changed.
            events.clear()
            assert sweeps(later) == Swept()
            assert sweeps.visits == 0
            assert len(events) <= 8
            assert sum(event.round_trips for event in events) <= 8
            assert sum(event.rows for event in events) <= 8
        sweeps = Sweeps(saver, Retention(keep_last=2))
        sweeps()
        for name in ("t1", "t7"):
            for _ in range(3):
                last[name] = put(saver, name, after=last[name])
        put(saver, "new")
        expected = sweeps(dry_run=True)
        done = sweeps()
        assert (done.threads, done.deleted_checkpoints) == (expected.threads, expected.deleted_checkpoints)
        assert done.deleted_checkpoints == 4


COUNTING = {
    "sqlite": [
        "CREATE TABLE counted (thread_id TEXT)",
        "CREATE TRIGGER counting AFTER UPDATE ON threads BEGIN INSERT INTO counted VALUES (new.thread_id); END",
    ],
    "postgres": [
        "CREATE TABLE public.counted (thread_id text)",
        "CREATE FUNCTION public.counting() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO public.counted VALUES (new.thread_id); RETURN NULL; END $$",
        "CREATE TRIGGER counting AFTER UPDATE ON threads FOR EACH ROW EXECUTE FUNCTION public.counting()",
    ],
}


def test_a_sweep_writes_the_row_of_a_thread_that_stays_at_most_twice(own_store: Store) -> None:
    """On PostgreSQL, each time leaves a dead row."""
    database, ids = Database(own_store), sorted(f"t{number}" for number in range(60))
    counted = "public.counted" if own_store.kind == "postgres" else "counted"
    with own_store.open() as saver:
        saver.setup()
        for thread_id in ids:
            put(saver, thread_id)
        with closing(database.connect()) as connection:
            for statement in COUNTING[own_store.kind]:
                connection.execute(statement)
            connection.commit()
        for days, times in ((1_000, 1), (2_000, 2)):  # A new thread is due already.
            assert saver.sweep(Retention(older_than=days * DAY)).threads == len(ids)
            found = database.run(f"SELECT thread_id, count(*) FROM {counted} GROUP BY thread_id")
            assert sorted(found) == [(thread_id, times) for thread_id in ids]
            database.run(f"DELETE FROM {counted}")
        saver.sweep(Retention(older_than=2_000 * DAY))
        assert database.run(f"SELECT count(*) FROM {counted}") == [(0,)]


def test_checkpoints_stored_long_before_a_sweep_are_not_read_again(saver: CheckpointSaver, database: Database) -> None:
    for number in range(30):
        put(saver, f"t{number}")
    sweeps = Sweeps(saver, Retention(keep_last=1))
    sweeps()
    sweeps(now() + timedelta(hours=2))
    assert sweeps.visits == 30  # A checkpoint may be committed an hour after its id was made.
    sweeps(now() + timedelta(hours=4))
    assert sweeps.visits == 0


def test_a_thread_is_visited_when_its_time_comes(saver: CheckpointSaver) -> None:
    for days in range(1, 6):
        put(saver, f"{days} days", days=days)
    sweeps = Sweeps(saver, Retention(older_than=5.5 * DAY))
    assert sweeps().deleted_threads == 0
    for day, left in ((0.4, 5), (0.6, 4), (1.6, 3)):
        swept = sweeps(now() + day * DAY)
        assert (len(threads(saver)), swept.threads, swept.deleted_threads) == (left, left < 5, left < 5)


def test_a_thread_that_goes_on_is_looked_at_again(saver: CheckpointSaver) -> None:
    first = put(saver, "t", days=1)
    sweeps = Sweeps(saver, Retention(older_than=2 * DAY))
    sweeps()
    put(saver, "t", after=first, days=-1)
    for day, deleted in ((1.1, 0), (2.1, 0), (3.1, 1)):
        assert sweeps(now() + day * DAY).deleted_threads == deleted


@pytest.mark.leaves_damage("rows of threads are deleted by hand")
def test_what_no_rule_has_found_is_found_within_a_week(saver: CheckpointSaver, database: Database) -> None:
    """A row is missing, another one says the wrong time, and the last sweep seems to have begun in the future."""
    for name in ("missing", "late", "new"):
        put(saver, name, after=put(saver, name))
    sweeps = Sweeps(saver, Retention(keep_last=1))
    sweeps()
    for name in ("missing", "late", "new"):
        newest = saver.get_tuple(config(name))
        assert newest is not None
        put(saver, name, after=newest.config)
    database.run("DELETE FROM threads WHERE thread_id = 'missing'")
    future = (now() + 365 * DAY).timestamp()
    database.run("UPDATE sweeps SET started_at = :future", future=future)
    assert sweeps(now() + 0.1 * DAY).deleted_checkpoints == 0
    database.run("UPDATE sweeps SET started_at = :future", future=future)
    assert sweeps(now() + timedelta(seconds=WEEK) + timedelta(hours=1)).deleted_checkpoints == 3


@pytest.mark.leaves_damage("a row of a thread is deleted by hand")
def test_a_thread_without_a_row_is_found_when_it_has_grown(saver: CheckpointSaver, database: Database) -> None:
    first = put(saver, "t")
    sweeps = Sweeps(saver, Retention(keep_last=1))
    sweeps()
    database.run("DELETE FROM threads")
    put(saver, "t", after=first)
    assert sweeps().deleted_checkpoints == 1
    assert database.run("SELECT thread_id FROM threads") == [("t",)]


def test_a_thread_whose_checkpoints_are_all_hidden_is_swept(saver: CheckpointSaver, database: Database) -> None:
    """The newest of them decides."""
    for name, days in (("old", 20), ("new", 2)):
        put(saver, name, after=put(saver, name, days=days), days=days)
    database.run("UPDATE checkpoints SET hidden = true")
    sweeps = Sweeps(saver, Retention(older_than=10 * DAY))
    expected = sweeps(dry_run=True)
    assert (expected.threads, expected.deleted_threads, expected.deleted_checkpoints) == (2, 1, 0)
    done = sweeps()
    assert (done.threads, done.deleted_threads, done.freed_bytes) == (2, 1, expected.freed_bytes)
    assert database.run("SELECT DISTINCT thread_id FROM checkpoints") == [("new",)]
    assert database.run("SELECT thread_id FROM threads") == [("new",)]
    assert Sweeps(saver, Retention(keep_last=1))().deleted_threads == 1
    assert database.run("SELECT count(*) FROM checkpoints") == [(0,)]


@pytest.mark.parametrize("days", [1, 8])
def test_threads_whose_ids_say_no_time_are_looked_at_once_a_week(saver: CheckpointSaver, days: int) -> None:
    sweeps = Sweeps(saver, Retention(keep_last=1))
    for number in range(3):
        for thread_id in ("0", "1", "t", "z"):
            document = checkpoint(f"{thread_id}{number}", {"a": 1})
            saver.put(
                config(thread_id, f"{thread_id}{number - 1}" if number else None), document, metadata(), {"a": "1"}
            )
        deleted = sweeps(now() + number * days * DAY).deleted_checkpoints
        assert deleted == (4 if number and days > 7 else 0)


def test_threads_that_have_grown_are_found_by_their_ids(saver: CheckpointSaver) -> None:
    """By UUIDv6, ULIDs in upper and in lower case, and UUIDv7."""
    sweeps = Sweeps(saver, Retention(keep_last=1))
    last = {name: config(name) for name in ("uuid6", "ulid", "lower ulid", "uuid7")}
    for number in range(3):
        made = time.time() + number
        ulid, uuid7 = str(ULID.from_timestamp(made)), str(UUID(int=round(made * 1000) << 80 | 7 << 76 | 2 << 62))
        ids = next_uuid(), ulid, ulid.lower(), uuid7
        for name, checkpoint_id in zip(last, ids, strict=True):
            last[name] = saver.put(last[name], checkpoint(checkpoint_id, {"a": 1}), metadata(), {"a": "1"})
        assert sweeps(now() + number * DAY / 24).deleted_checkpoints == (4 if number else 0)


def test_a_limited_sweep_is_continued_by_the_next_one(saver: CheckpointSaver) -> None:
    """It ends after a number of threads, or of seconds, for the due ones and for those that have grown."""
    tenants = [saver, saver.for_tenant("acme")]
    last = {(one, name): put(one, name) for one in tenants for name in "abcde"}
    limited = Sweeps(saver, Retention(max_threads=4, pause=0.001))
    swept = [limited() for _ in range(3)]
    assert [(each.threads, each.complete) for each in swept] == [(4, False), (4, False), (2, True)]
    assert saver.sweep_status().finished_at is not None
    grown = Retention(keep_last=1)
    Sweeps(saver, grown)()
    for (one, name), first in last.items():
        put(one, name, after=first)
    limited = Sweeps(saver, replace(grown, max_threads=4))
    assert limited(dry_run=True).threads == 4
    deleted = 0
    for minute in range(1, 50):  # Those of the last hour are visited again, but after the others.
        swept = [limited(now() + minute * timedelta(minutes=1))]
        assert (swept[0].threads, swept[0].complete) == (4, False)
        deleted += swept[0].deleted_checkpoints
    assert deleted == 10
    slow = Sweeps(saver, Retention(max_seconds=1e-9))
    assert (slow().complete, slow.visits) == (False, 0)


def test_a_stopped_sweep_goes_on_where_it_was(saver: CheckpointSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "TOGETHER", 3)
    for number in range(20):
        put(saver, f"t{number}", days=2)
    sweeps = Sweeps(saver, Retention(older_than=30 * DAY))
    steps = sweeps.steps()
    visited = 0
    for op in steps:
        visited += op.name == "rearm_threads"
        if visited == 3:  # That one has not run yet.
            break
    steps.close()
    sweeps()
    assert sweeps.visits == 20 - 2 * 3


def test_two_retentions_at_once_miss_no_thread(saver: CheckpointSaver) -> None:
    """A sweep takes a thread that another one has just armed; then both begin anew."""
    moment = now()
    for number in range(5):
        put(saver, f"t{number}", days=2)
    one, other = Sweeps(saver, Retention(older_than=30 * DAY)), Sweeps(saver, Retention(older_than=DAY))
    one(moment)
    saver.unlabel("t3", "none")  # Due, but for no reason.
    steps = one.steps(moment)
    for op in steps:
        if op.name == "due_page":
            break
    takes = other.steps(moment)
    for op in takes:
        if op.name == "due_page":
            break
    for _ in steps:  # It visits all, as they are armed, and keeps them.
        pass
    for _ in takes:
        pass
    assert len(threads(saver)) == 5
    assert other(moment).deleted_threads == 5


def test_two_savers_with_other_retentions_do_not_visit_all_threads_for_each_other(
    saver: CheckpointSaver, caplog: pytest.LogCaptureFixture
) -> None:
    """Each does on every other day, and says once why; a sweep that somebody asks for does so at once."""
    for number in range(5):
        put(saver, f"t{number}", days=number)
    put(saver, "old", days=10)
    one, other = Sweeps(saver, Retention(older_than=30 * DAY)), Sweeps(saver, Retention(older_than=10.5 * DAY))
    visits: list[tuple[int, Sweeps, int]] = []
    for hour in range(0, 100, 4):
        for sweeps in (one, other):
            sweeps.regular(now() + hour * timedelta(hours=1))
            if sweeps.visits:
                visits.append((hour, sweeps, sweeps.visits))
    assert visits == [(0, one, 6), (24, other, 6), (48, one, 5), (72, other, 5), (96, one, 5)]
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 2
    assert all('"older_than": 2592000.0' in text and '"older_than": 907200.0' in text for text in warnings)
    other()
    assert (other.visits, "old" in threads(saver)) == (5, False)


def test_who_hastens_a_thread_while_it_is_locked_for_a_visit_is_not_overruled(
    saver: CheckpointSaver, database: Database
) -> None:
    put(saver, "t")
    Sweeps(saver, Retention())()
    ((seen,),) = database.run("SELECT due_at FROM threads")
    saver.set_ttl("t", DAY)
    d: Any = saver.backend.dialect
    rearm = d.ask("rearm_thread", thread_id="t", due_at=10.0, seen=seen)
    saver.backend.driver.run(Operation("rearm", "write", lambda: (yield rearm)))
    assert database.run("SELECT due_at <= 0 FROM threads") == [(True,)]


@pytest.mark.parametrize("visited_before", [False, True])
@pytest.mark.parametrize("moment", ["kept_threads", "rearm_threads"])
def test_a_time_to_live_that_is_set_during_a_visit_counts(
    saver: CheckpointSaver, database: Database, visited_before: bool, moment: str
) -> None:
    """Of a new thread, too, which is due already."""
    put(saver, "t")
    if visited_before:
        Sweeps(saver, Retention())()
        saver.unlabel("t", "none")  # Due, but for no reason.
    for op in Sweeps(saver, Retention()).steps():
        if op.name == moment:  # It has not run yet.
            saver.set_ttl("t", DAY)
    ((due_at,),) = database.run("SELECT due_at FROM threads")
    assert due_at <= (0 if moment == "rearm_threads" else (now() + DAY).timestamp())


@pytest.mark.parametrize("ends", ["commit", "rollback"])
@pytest.mark.parametrize("reason", ["another retention", "new checkpoints", "their time"])
def test_a_sweep_holds_no_threads_while_it_waits_for_one(
    postgres_url: str, is_citus: bool, reason: str, ends: str
) -> None:
    """A caller's transaction has changed one. Of these, none is lost."""
    if is_citus:
        pytest.skip("a sweep waits for the row")
    ending = "&" if "?" in postgres_url else "?"
    impatient = f"{postgres_url}{ending}options=-c%20lock_timeout%3D50ms"
    with open_saver(impatient) as saver, psycopg.connect(postgres_url) as connection:
        saver.setup()
        last = {name: put(saver, name) for name in "abc"}
        keep, held = Retention(keep_last=5), list[str]()
        Sweeps(saver, keep)()
        if reason == "another retention":
            keep = Retention(keep_last=6)
        for name in "abc" if reason == "new checkpoints" else "":
            put(saver, name, after=last[name])
        for name in "abc" if reason == "their time" else "":
            saver.unlabel(name, "none")
        PostgresSaver(connection).set_ttl("b", DAY)
        sweeps = Sweeps(saver, keep)
        for op in sweeps.steps():  # Waiting for the row would be an error.
            if op.name == "hasten_thread":
                held.append(op.arguments["thread_id"])
                getattr(connection, ends)()
        assert (sweeps.visits, held) == (3, [] if reason == "their time" else ["b"])
        getattr(connection, ends)()
        due = connection.execute("SELECT due_at <= 0 FROM langgraph_checkpoint.threads WHERE thread_id = 'b'")
        assert due.fetchall() == [(reason == "their time",)]  # It is visited by the next one.


def test_a_sweep_looks_at_long_threads_one_by_one(saver: CheckpointSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their outlines are not in memory together. Without a number to keep, no outline is read."""
    monkeypatch.setattr(sweep, "SHORT", 3)
    for name, size in {"short": 3, "long": 4}.items():
        last = config(name)
        for _ in range(size):
            last = put(saver, name, after=last)
    put(saver, "spaces")
    for number in range(3):
        put(saver, "spaces", after=config("spaces", ns=f"sub:{number}"))
    for keep, alone in ((Retention(keep_last=9), 2), (Retention(older_than=DAY), 1)):
        sweeps = Sweeps(saver, keep)
        assert (sweeps().threads, sweeps.ran["sweep_thread"]) == (3, alone)


def test_what_a_sweep_reads_of_a_thread(store: Store) -> None:
    """Of one that stays, its newest checkpoint. One that is deleted takes two round trips, and no list of its rows."""
    events: list[OperationEvent] = []
    with store.open(on_operation=events.append) as saver:
        saver.setup()
        for days in (1, 3):
            for number in range(5):
                last = config(f"{days}-{number}")
                for _ in range(20):
                    last = put(saver, f"{days}-{number}", days=days, after=last)
                    saver.put_writes(last, [("a", 1)], "task")
        events.clear()
        Sweeps(saver, Retention(older_than=10 * DAY))()
        ((rows, trips),) = [(event.rows, event.round_trips) for event in events if event.name == "kept_threads"]
        assert (rows, trips) == (10, 1)
        events.clear()
        swept = Sweeps(saver, Retention(older_than=2 * DAY))()
        assert (swept.threads, swept.deleted_threads, swept.deleted_checkpoints) == (10, 5, 100)
        assert sum(event.rows for event in events if event.name == "kept_threads") == 10
        # The number of checkpoints, the newest one, and the sizes of the checkpoints and of the writes.
        deletions = [(event.rows, event.round_trips) for event in events if event.name == "sweep_thread"]
        assert deletions == [(4, 2)] * 5
        assert swept.freed_bytes > 0


@pytest.mark.parametrize(
    ("thread_id", "namespaces", "stays", "trips", "rows"),
    [
        ("short", ["", "", ""], True, 1, 1),
        ("long", ["", "", "", ""], False, 1, 1),
        # The newest checkpoint, the outline, and the label.
        ("labelled", ["", "", "", ""], True, 2, 1 + 4 + 1),
        ("hidden", ["", "", ""], False, 2, 1 + 3),
        ("calls", ["", "", "subgraph"], True, 2, 1 + 3),
    ],
)
def test_a_sweep_reads_an_outline_only_if_it_must(
    store: Store, database: Database, thread_id: str, namespaces: list[str], stays: bool, trips: int, rows: int
) -> None:
    """The newest root checkpoints tell enough, unless one is hidden or has a label, or there are subgraphs."""
    events: list[OperationEvent] = []
    with store.open(on_operation=events.append) as saver:
        saver.setup()
        last = {ns: config(thread_id, ns=ns) for ns in namespaces}
        for number, ns in enumerate(namespaces):
            last[ns] = put(saver, thread_id, after=last[ns])
            if (thread_id, number) == ("labelled", 0):
                saver.label(last[ns], "first")
            if (thread_id, number) == ("hidden", 0):
                database.run("UPDATE checkpoints SET hidden = true")
        d, _, codec = saver.backend
        policy = sweep.Policy(None, 3, (), keep_waiting=True)
        events.clear()
        kept = saver.backend.driver.run(sweep.kept_threads(d, codec, [thread_id], policy, time.time()))
        assert [each.thread_id for each in kept] == [thread_id] * stays
        assert [(event.round_trips, event.rows) for event in events] == [(trips, rows)]
        swept = saver.sweep(Retention(keep_last=3))
        assert (swept.threads, swept.deleted_checkpoints) == (1, int(thread_id == "long"))
        assert bool(database.run("SELECT count(*) FROM checkpoints WHERE hidden")[0][0]) is False
