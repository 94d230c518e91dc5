"""Stores that released versions have written are read as they were written, and can be continued."""

from __future__ import annotations

import re
from datetime import timedelta

import psycopg
import pytest

from langgraph_checkpoint_custom import CorruptCheckpoint, Retention, __version__
from tests.behaviour.helpers import Database, checkpoint, config, metadata
from tests.conftest import made_database
from tests.golden.content import read_all, savers, write_all
from tests.golden.stores import load, versions
from tests.invariants import check_invariants
from tests.stores import Store


@pytest.fixture(params=versions())
def golden(request: pytest.FixtureRequest, empty_store: Store) -> Store:
    """A store that a released version has written, migrated."""
    load(request.param, empty_store)
    with empty_store.open() as saver:
        saver.setup()
    return empty_store


@pytest.fixture(params=["sqlite", "postgres"])
def empty_store(request: pytest.FixtureRequest) -> Store:
    """A store without tables."""
    if request.param == "postgres":
        return Store("postgres", request.getfixturevalue("empty_postgres_url"))
    return Store("sqlite", f"sqlite:///{request.getfixturevalue('tmp_path') / 'golden.db'}")


def test_a_golden_store_is_read_as_it_was_written(golden: Store, store: Store) -> None:
    write_all(store)
    expected, found = read_all(store), read_all(golden)
    assert found.keys() == expected.keys()
    for name, seen in expected.items():
        assert len(seen["list"]) == 12
        assert found[name] == seen, name
    check_invariants(golden)


def test_runs_continue_in_a_golden_store(golden: Store) -> None:
    with golden.open() as saver:
        for each in savers(saver).values():
            threads = ["values", "deltas", "old", "large", "copy"]
            for thread_id in threads:
                newest = each.get_tuple(config(thread_id))
                assert newest is not None
                after = checkpoint("9", newest.checkpoint["channel_values"], newest.checkpoint["channel_versions"])
                each.put(newest.config, after, metadata(9), {})
                each.put_writes(config(thread_id, "9"), [("a", 1)], "task")
                found = each.get_tuple(config(thread_id))
                assert found is not None
                assert found.checkpoint["channel_values"] == newest.checkpoint["channel_values"]
            each.prune(threads)
            each.delete_for_runs(["run 1"])
            each.sweep(Retention(older_than=timedelta(days=36_500)), tenants=False)
            assert not each.thread_exists("expiring")
    check_invariants(golden)


def test_a_golden_store_has_each_form_of_a_value(golden: Store) -> None:
    types = "SELECT checkpoint_type AS type FROM checkpoints UNION SELECT type FROM blobs UNION SELECT type FROM writes"
    found = {str(row[0]) for row in Database(golden).run(types)}
    assert {"null", "bytes", "msgpack", "msgpack|z", "msgpack|p", "msgpack+aes|b", "msgpack+aes|pb"} <= found, found


def test_this_version_has_a_golden_store() -> None:
    """Until its release, write it again with `python -m tests.golden` when the tables or the bytes in them change."""
    assert __version__ in versions()


def test_a_row_format_of_a_later_version_is_refused(golden: Store) -> None:
    Database(golden).run("UPDATE checkpoints SET checkpoint_type = checkpoint_type || '|?'")
    with golden.open() as saver, pytest.raises(CorruptCheckpoint, match="upgrade langgraph-checkpoint-custom"):
        saver.get_tuple(config("values"))


def test_a_blob_format_of_a_later_version_is_refused(golden: Store) -> None:
    Database(golden).run("UPDATE blobs SET type = type || '|?' WHERE chunks IS NULL")
    with golden.open() as saver, pytest.raises(CorruptCheckpoint, match="upgrade langgraph-checkpoint-custom"):
        saver.get_tuple(config("large"))


def test_the_golden_tables_are_those_of_the_migrations(golden: Store, postgres_dsn: str) -> None:
    """A golden store of this version that was written before the tables changed is outdated."""
    if golden.kind == "postgres":
        with made_database(postgres_dsn) as (_, url), Store("postgres", url).open() as fresh:
            fresh.setup()
            assert columns(golden.url) == columns(url)
    else:
        with Store("sqlite", golden.url + ".fresh").open() as fresh:
            fresh.setup()
        query = "SELECT sql FROM sqlite_schema ORDER BY name"
        made = [Database(Store("sqlite", golden.url + end)).run(query) for end in ("", ".fresh")]
        first, second = ([sql and str(sql).split() for (sql,) in rows] for rows in made)
        assert first == second


def columns(url: str) -> list[tuple[str, ...]]:
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns"
            " WHERE table_schema = 'langgraph_checkpoint' ORDER BY 1, 2"
        ).fetchall()
    return [tuple(map(str, row)) for row in rows if not re.match("pg_", str(row[0]))]
