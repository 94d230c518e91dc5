"""Lists of a thread read about as many pages as LangGraph's saver reads, also over many namespaces.

The threads, the operations on them and what counts their pages are those of `python -m benchmarks.growth`.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path

import psycopg
import pytest

from benchmarks import filled, growth
from tests.conftest import BACKENDS, made_database

SHAPES = ("long", "five", "agent")
# Times the pages of LangGraph's saver, at most. With a filter, both read the table in its order. Ours then reads each
# match by its key: up to a tenth of the rows here.
TIMES = {"list": 2, "history": 1.8, "few hits": 3.3}
# And this many more: a list of a few pages is as good.
PAGES = 10


@contextmanager
def made(backend: str, dsn: str, path: Path, *, official: bool) -> Iterator[filled.Database]:
    if backend == "sqlite":
        yield filled.SqliteDatabase(str(path), official=official)
    else:
        with made_database(dsn) as (_, url):
            yield filled.PostgresDatabase(url, dsn, official=official)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says what a process reads")
@pytest.mark.parametrize("backend", BACKENDS)
def test_lists_of_a_thread_of_a_thousand_checkpoints(
    backend: str, postgres_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psycopg.Connection, "__init__", filled.remembered)
    monkeypatch.setattr(sqlite3, "connect", filled.without_cache)
    pages: dict[tuple[str, str], list[int]] = {}
    for official in (True, False):
        with made(backend, postgres_dsn, tmp_path / f"{official}.db", official=official) as database:
            filled.fill(database, "C", 0.02, SHAPES)
            with database.opened() as saver:
                for name in ("warm", *SHAPES):
                    reads = takewhile(lambda work: work[0] != "put", growth.on_thread(saver, name))
                    for what, cost in growth.measured(database, reads, puts=False).items():
                        pages.setdefault((name, what), []).append(cost.pages)
    assert len(pages) == 7 * 4
    for (name, what), numbers in pages.items():
        if name in SHAPES and what != "get":
            theirs = pages[name, what.replace("history", "list")][0]
            most = next(times for word, times in reversed(TIMES.items()) if word in what)
            assert numbers[-1] <= most * theirs + PAGES, (name, what, numbers[-1], theirs)
