"""The rows of random threads become what the plan of a deletion or fork says, on both databases."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

import psycopg
import pytest

from langgraph_checkpoint_custom import CheckpointLabelled, CheckpointNotFound
from langgraph_checkpoint_custom.engine.operation import Operation
from langgraph_checkpoint_custom.model.keys import Key
from langgraph_checkpoint_custom.model.outline import (
    Place,
    Removal,
    later,
    of_checkpoint,
    of_runs,
    superseded,
)
from langgraph_checkpoint_custom.operations.delete import (
    delete_checkpoint,
    delete_for_runs,
    delete_idle,
    prune_thread,
    rollback,
)
from langgraph_checkpoint_custom.sql.dialect import SqlDialect
from tests.model.random_threads import RUNS, Thread, random_thread
from tests.stores import Store

TREES = 30


class State(NamedTuple):
    """What is left of a thread."""

    checkpoints: Mapping[Place, tuple[str | None, bool]]
    blobs: Collection[tuple[str, str, str]]
    writes: Collection[tuple[Any, ...]]
    labels: Mapping[str, Place]


def state_of(thread: Thread) -> State:
    return State(
        {row.place: (row.parent_id, bool(row.hidden)) for row in thread.checkpoints},
        set(thread.blobs),
        {write[:4] for write in thread.writes},
        dict(thread.labels),
    )


def applied(
    thread: Thread, chosen: Any, *, runs: Collection[str] = (), opens: bool = False, after: str = "", idle: bool = False
) -> State:
    """What the plan makes of a thread."""
    outline = thread.outline()
    plan = Removal(outline, chosen)
    checkpoints = {
        row.place: (
            None if row.place in plan.cut else row.parent_id,
            bool(row.hidden) or row.place in plan.hidden,
        )
        for row in thread.checkpoints
        if row.place not in plan.gone
    }
    chunks = {(*b[:2], n) for b in plan.blobs for n in thread.blobs.get(b) or ()}
    kept = plan.remaining_blobs({c[:2] for c in chunks})
    chunks -= {(*b[:2], n) for b in kept for n in thread.blobs.get(b) or ()}
    writes = {write for write in thread.writes if write[:2] not in plan.gone}
    emptied: Mapping[Place, Collection[str]] = {}
    if opens:
        emptied = plan.reopened()
    if runs:
        emptied = plan.still_open({write[:2] for write in thread.writes if write[4] in runs})
    writes = {w for w in writes if not (w[:2] in emptied and (not runs or w[4] in runs) and w[5] not in emptied[w[:2]])}
    if after and plan.deletes_visible():
        writes = {w for w in writes if not (w[1] > after and w[:2] not in outline.rows)}
    if idle and not checkpoints:
        writes = set()
    return State(
        checkpoints,
        set(thread.blobs) - plan.blobs - chunks,
        {w[:4] for w in writes},
        {n: p for n, p in thread.labels.items() if n not in plan.labels},
    )


class Case(NamedTuple):
    op: Callable[[SqlDialect, str], Operation[Any]]
    expected: State


def cases(thread: Thread, random: Random) -> dict[str, Case]:
    outline = thread.outline()
    keep = random.choice([1, 2, 3])
    runs = random.sample(RUNS, random.randint(1, 2))
    ids = sorted({row.checkpoint_id for row in thread.checkpoints}) or ["001"]
    row = random.choice(thread.checkpoints) if thread.checkpoints else None
    place = row.place if row else ("", "001")
    point = random.choice(ids)
    newest = max((r.checkpoint_id for r in outline.rows.values() if not r.hidden), default=None)
    unchanged = state_of(thread)

    def unless_labelled(chosen: Any, **how: Any) -> State:
        return unchanged if Removal(outline, chosen).labels else applied(thread, chosen, **how)

    target = outline.rows.get(("", point))
    found = {
        f"prune {keep}": Case(lambda d, t: prune_thread(d, t, keep), applied(thread, superseded(outline, keep))),
        "prune": Case(lambda d, t: prune_thread(d, t), applied(thread, superseded(outline, 1))),
        f"runs {runs}": Case(
            lambda d, t: delete_for_runs(d, t, runs), applied(thread, of_runs(outline, runs), runs=runs)
        ),
        f"checkpoint {place}": Case(
            lambda d, t: delete_checkpoint(d, Key(t, *place)),
            unless_labelled(of_checkpoint(outline, place), opens=True),
        ),
        f"rollback {point}": Case(
            lambda d, t: rollback(d, Key(t, "", point)),
            unless_labelled(later(outline, point), opens=True, after=point)
            if target and not target.hidden
            else unchanged,
        ),
    }
    if newest is not None:
        limit = random.choice([newest, "zzz", "000"])
        gone = outline.rows.keys() if limit >= newest and not thread.labels else set()
        found[f"idle {limit}"] = Case(lambda d, t: delete_idle(d, t, limit), applied(thread, gone, idle=True))
    return found


def insert(
    execute: Callable[[str, list[Any]], Any],
    prefix: str,
    lists: Callable[[str], Any],
    tenant: bool,
    thread_id: str,
    thread: Thread,
) -> None:
    columns = (
        "thread_id, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format, hidden, inline_channels, "
        "delta_channels, blob_channels, blob_versions, checkpoint_type, checkpoint, metadata_type, metadata, "
        "metadata_filter" + (", tenant" if tenant else "")
    )
    execute(
        f"INSERT INTO {prefix}checkpoints ({columns}) VALUES ({', '.join('?' * (18 if tenant else 17))})",
        [
            (
                thread_id,
                *row[:6],
                bool(row.hidden),
                *map(lists, row[7:]),
                "msgpack",
                b"\x80",
                "msgpack",
                b"\x80",
                "{}",
                *([""] if tenant else []),
            )
            for row in thread.checkpoints
        ],
    )
    execute(
        f"INSERT INTO {prefix}blobs (thread_id, checkpoint_ns, channel, version, type, value, chunks) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (thread_id, *place, "msgpack", b"", json.dumps(names) if names is not None else None)
            for place, names in thread.blobs.items()
        ],
    )
    execute(
        f"INSERT INTO {prefix}writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, run_id, channel, "
        "task_path, type, value) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [(thread_id, *write, "", "msgpack", b"") for write in thread.writes],
    )
    execute(
        f"INSERT INTO {prefix}labels (thread_id, name, checkpoint_ns, checkpoint_id) VALUES (?, ?, ?, ?)",
        [(thread_id, name, *place) for name, place in thread.labels.items()],
    )


def read(fetch: Callable[[str], list[Any]], prefix: str, thread_id: str) -> State:
    where = f"WHERE thread_id = '{thread_id}'"
    rows = fetch(f"SELECT checkpoint_ns, checkpoint_id, parent_id, hidden FROM {prefix}checkpoints {where}")
    return State(
        {(row[0], row[1]): (row[2], bool(row[3])) for row in rows},
        set(map(tuple, fetch(f"SELECT checkpoint_ns, channel, version FROM {prefix}blobs {where}"))),
        set(map(tuple, fetch(f"SELECT checkpoint_ns, checkpoint_id, task_id, idx FROM {prefix}writes {where}"))),
        {
            row[0]: (row[1], row[2])
            for row in fetch(f"SELECT name, checkpoint_ns, checkpoint_id FROM {prefix}labels {where}")
        },
    )


@pytest.mark.leaves_damage("random threads have holes")
def test_the_rows_become_what_the_plan_says(own_store: Store) -> None:
    with own_store.open() as saver:
        saver.setup()
        d, driver = saver.backend.dialect, saver.backend.driver
        if own_store.kind == "sqlite":
            connection: Any = sqlite3.connect(own_store.url.removeprefix("sqlite:///"), isolation_level=None)
            execute: Any = connection.executemany
            prefix: str = ""
            lists: Any = str
        else:
            connection = psycopg.connect(own_store.url, autocommit=True)

            def execute(sql: str, rows: list[Any]) -> None:
                with connection.cursor() as cursor:
                    cursor.executemany(sql.replace("?", "%s"), rows)

            prefix, lists = "langgraph_checkpoint.", json.loads
        for seed in range(TREES):
            random = Random(seed)
            thread = random_thread(random)
            for number, (name, case) in enumerate(cases(thread, random).items()):
                thread_id = f"t{seed}-{number}"
                if own_store.kind == "sqlite":
                    connection.execute("BEGIN")
                insert(execute, prefix, lists, own_store.kind != "sqlite", thread_id, thread)
                if own_store.kind == "sqlite":
                    connection.execute("COMMIT")
                with suppress(CheckpointLabelled, CheckpointNotFound):
                    driver.run(case.op(d, thread_id))
                left = read(lambda sql: connection.execute(sql).fetchall(), prefix, thread_id)
                assert left == case.expected, (seed, name)
                saver.delete_thread(thread_id)
        connection.close()
