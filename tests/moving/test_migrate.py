"""Whatever an official saver returns, ours returns after the move: every checkpoint, write, history and metadata."""

from __future__ import annotations

import json
import pickle
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, make_dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.postgres.shallow import ShallowPostgresSaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel, create_model

from langgraph_checkpoint_custom import CheckpointSaver, ConfigError, SchemaForeign, StorageError
from langgraph_checkpoint_custom.tools.foreign import PAGE
from langgraph_checkpoint_custom.tools.migration import copy_from, migrate, migrate_back
from langgraph_checkpoint_custom.tools.official import OfficialPostgres, open_official
from tests.behaviour.helpers import Database
from tests.faults.bouncer import bounced
from tests.golden.content import VALUES
from tests.moving.official import Official, config, everything, plain, play, step
from tests.stores import Store

CIPHER = EncryptedSerializer.from_pycryptodome_aes(key=b"the key of old  ")
OTHER = EncryptedSerializer.from_pycryptodome_aes(key=b"the key of today")


@pytest.fixture
def old_module() -> Iterator[ModuleType]:
    """A module of an application as it was."""
    module: Any = ModuleType("the_application_as_it_was")
    sys.modules[module.__name__] = module
    module.Point = make_dataclass("Point", [("x", int)])
    module.Journey = create_model("Journey", a=(str, ...), b=(str, ...))
    module.Travels = create_model("Travels", all=(list[module.Journey], ...))
    kind = Enum("Kind", {"BY_SEA": "by sea"})  # type: ignore[misc]
    module.Kind = kind
    for made in (module.Point, module.Journey, module.Travels, module.Kind):
        made.__module__ = module.__name__
    yield module
    sys.modules.pop(module.__name__, None)


def test_everything_that_graphs_stored_is_migrated_unchanged(official: Official, store: Store) -> None:
    with official.open() as source:
        threads = play(source)
        with store.open() as target:
            moved = migrate(official.url, target)
            assert moved.problems == {}
            assert moved.threads == len(threads)
            theirs, ours = everything(source), everything(target)
            assert [plain(found) for found in ours] == [plain(found) for found in theirs]
            assert moved.checkpoints == len(theirs) > 100
            for found in theirs:
                channels = list(found.metadata.get("counters_since_delta_snapshot") or ())
                if channels:
                    theirs_history = source.get_delta_channel_history(config=found.config, channels=channels)
                    assert target.get_delta_channel_history(config=found.config, channels=channels) == theirs_history


def test_values_of_every_type_are_the_same(official: Official, saver: CheckpointSaver) -> None:
    # Omitted: text with NUL, which the official PostgreSQL saver's JSON cannot store, and a set of tuples, which both
    # official savers return as a list of lists.
    values = {name: value for name, value in VALUES.items() if not isinstance(value, str) and name != "set"}
    with official.open() as source:
        first = step(source, "t", None, **values)
        source.put_writes(first, list(values.items()), "task", "a path")
        step(source, "t", first, **values)
        assert migrate(official.url, saver).problems == {}
        assert [plain(found) for found in everything(saver)] == [plain(found) for found in everything(source)]


def test_excluded_metadata_is_left_behind_and_is_no_difference(official: Official, store: Store) -> None:
    with official.open() as source:
        where = config("t")
        where["configurable"] |= {"api_key": "sk-1234567890", "user": "ann"}
        step(source, "t", where, a=[1])
    with store.open(exclude_metadata=["api_key"]) as target:
        moved = migrate(official.url, target)
        assert (moved.problems, moved.checkpoints) == ({}, 1)
        (found,) = everything(target)
        assert found.metadata == {"source": "loop", "step": 0, "parents": {}, "user": "ann"}


def test_a_thread_that_cannot_be_moved_does_not_stop_the_others(official: Official, saver: CheckpointSaver) -> None:
    long = "t" * 1001
    with official.open() as source:
        step(source, long, None, a=[1])
        step(source, "u", None, a=[2])
        moved = migrate(official.url, saver)
    assert list(moved.problems) == [long]
    assert "1,001 bytes" in moved.problems[long]
    assert [found.config["configurable"]["thread_id"] for found in saver.list(None)] == ["u"]


@dataclass
class Location:
    """Formerly a `Point`, with an `x`."""

    across: int


class RoundTrip(BaseModel):
    """Formerly a `Journey`, from `a` to `b`."""

    stops: list[str]


def test_old_classes_may_be_replaced_by_on_load(official: Official, store: Store, old_module: ModuleType) -> None:
    """`on_load` gets what LangGraph's serializer has stored of them; nested models are dicts there."""
    old = old_module
    with official.open() as source:
        journey = old.Journey(a="Rome", b="Oslo")
        location = step(source, "t", None, a=[old.Point(1)], b=old.Travels(all=[journey]), c=journey, d=old.Kind.BY_SEA)
        source.put_writes(location, [("a", old.Point(2)), ("c", journey)], "task")
        with store.open() as target:
            assert migrate(official.url, target).problems == {}
    del sys.modules[old.__name__]

    def round_trip(fields: dict[str, Any]) -> RoundTrip:
        return RoundTrip(stops=[fields["a"], fields["b"]])

    on_load: dict[str, Any] = {
        f"{old.__name__}.Point": lambda fields: Location(across=fields["x"]),
        f"{old.__name__}.Journey": round_trip,
        f"{old.__name__}.Travels": lambda fields: list(map(round_trip, fields["all"])),
        f"{old.__name__}.Kind": str.upper,
    }
    with store.open(on_load=on_load) as target:
        found = target.get_tuple(config("t"))
    rome = RoundTrip(stops=["Rome", "Oslo"])
    assert found is not None
    assert found.checkpoint["channel_values"] == {"a": [Location(1)], "b": [rome], "c": rome, "d": "BY SEA"}
    assert found.pending_writes == [("task", "a", Location(2)), ("task", "c", rome)]


@pytest.mark.parametrize(
    ("before", "after"), [(CIPHER, None), (None, OTHER), (CIPHER, OTHER)], ids=["decrypt", "encrypt", "another key"]
)
def test_the_encryption_key_can_change_during_a_migration(
    official: Official, store: Store, before: EncryptedSerializer | None, after: EncryptedSerializer | None
) -> None:
    with official.open(before) as source, store.open(serde=after) as target:
        location = step(source, "t", None, a=["a secret"], b=1.5)
        source.put_writes(location, [("a", "a word")], "task")
        assert migrate(official.url, target, serde=before).problems == {}
        assert [plain(found) for found in everything(target)] == [plain(found) for found in everything(source)]
    if after is not None:
        assert not any(b"a secret" in cell for cell in Database(store).cells())


def test_without_the_key_a_thread_is_a_problem(official: Official, saver: CheckpointSaver) -> None:
    with official.open(CIPHER) as source:
        step(source, "t", None, a=["a secret"])
        moved = migrate(official.url, saver)
    assert "encrypted" in moved.problems["t"]
    assert list(saver.list(None)) == []


def test_older_tables_have_no_task_paths(official: Official, saver: CheckpointSaver) -> None:
    with official.open() as source:
        location = step(source, "t", None, a=[1])
        source.put_writes(location, [("a", 1)], "task", "")
        expected = [plain(found) for found in everything(source)]
    if official.kind == "sqlite":
        with closing(sqlite3.connect(official.url.removeprefix("sqlite:///"))) as file, file:
            file.execute("ALTER TABLE writes DROP COLUMN task_path")
    else:
        with psycopg.connect(official.url) as server:
            server.execute("ALTER TABLE checkpoint_writes DROP COLUMN task_path")
    assert migrate(official.url, saver).problems == {}
    assert [plain(found) for found in everything(saver)] == expected


def test_checkpoints_of_old_formats_are_moved_with_their_pending_sends(
    official: Official, saver: CheckpointSaver
) -> None:
    with official.open() as source:
        first = step(source, "t", None, a=[1])
        source.put_writes(first, [("__pregel_tasks", "one"), ("__pregel_tasks", {"two": 2})], "task")
        step(source, "t", first, a=[2])
        _make_old(official)
        expected = {found.config["configurable"]["checkpoint_id"]: found for found in source.list(None)}
    assert migrate(official.url, saver).problems == {}
    found = saver.get_tuple(config("t"))
    assert found is not None
    assert found.checkpoint["v"] == 3
    assert found.checkpoint["channel_values"]["__pregel_tasks"] == ["one", {"two": 2}]
    if official.kind == "postgres":  # The SQLite saver no longer reads them.
        theirs = expected[found.config["configurable"]["checkpoint_id"]]
        assert found.checkpoint["channel_values"] == theirs.checkpoint["channel_values"]


def _make_old(official: Official) -> None:
    if official.kind == "postgres":
        with psycopg.connect(official.url) as server:
            server.execute("UPDATE checkpoints SET checkpoint = jsonb_set(checkpoint, '{v}', '3')")
        return
    serde = JsonPlusSerializer()
    with closing(sqlite3.connect(official.url.removeprefix("sqlite:///"))) as file, file:
        for rowid, type_, data in file.execute("SELECT rowid, type, checkpoint FROM checkpoints").fetchall():
            old = serde.dumps_typed({**serde.loads_typed((type_, data)), "v": 3})
            file.execute("UPDATE checkpoints SET type = ?, checkpoint = ? WHERE rowid = ?", (*old, rowid))


def test_threads_are_found_page_by_page(official: Official) -> None:
    names = [*sorted(f"{number}" for number in range(2 * PAGE + 1)), "", "\x7f"]
    with official.open() as source:
        for name in names:
            step(source, name, None)
    with open_official(official.url, JsonPlusSerializer()) as found:
        assert sum(map(len, found.threads())) == len(names)
        pages = list(found.threads())
        assert [len(page) for page in pages] == [PAGE, PAGE, 3]
        assert sorted(name for page in pages for name in page) == sorted(names)
        assert set(found.locations(["5", "missing", ""])) == {"", "5"}


def test_long_lists_share_their_chunks(official: Official, store: Store) -> None:
    # Compression would hide what is stored twice.
    with official.open() as source, store.open(compress=False) as target:
        location, messages = None, []
        full = 0
        for turn in range(60):
            messages.append({"role": "user", "content": f"{turn} " * 500})
            location = step(source, "t", location, messages=list(messages))
            full += len(str(messages))
        assert migrate(official.url, target).problems == {}
        found = target.get_tuple(config("t"))
        assert found is not None
        assert found.checkpoint["channel_values"]["messages"] == messages
        assert sum(len(blob) for (blob,) in Database(store).run("SELECT value FROM blobs")) < full / 6


def test_another_database_is_refused(store: Store, saver: CheckpointSaver) -> None:
    saver.setup()
    with pytest.raises(SchemaForeign, match="no tables of LangGraph's own"):
        migrate(store.url, saver)
    with pytest.raises(ConfigError, match="sqlite:///"):
        migrate("redis://localhost", saver)


@pytest.mark.parametrize("kind", ["json", "pickle"])
def test_values_of_other_types_than_msgpack_are_the_same(empty_postgres_url: str, store: Store, kind: str) -> None:
    """As earlier releases of LangGraph's savers, those for JavaScript, and `pickle_fallback` have stored them."""
    official, serde = Official("postgres", empty_postgres_url), JsonPlusSerializer(pickle_fallback=True)
    with official.open(serde) as source:
        step(source, "t", None, a={"b": [1]}, c=2)
        data = pickle.dumps({"b": [1]}) if kind == "pickle" else b'{"b":[1]}'
        with psycopg.connect(official.url) as server:
            server.execute("UPDATE checkpoint_blobs SET type = %s, blob = %s", [kind, data])
        with store.open(serde=serde) as saver:
            assert migrate(official.url, saver).problems == {}
            assert [plain(found) for found in everything(saver)] == [plain(found) for found in everything(source)]
            assert migrate_back(saver, official.url).problems == {}


def test_a_document_that_only_its_classes_can_read_is_a_problem(tmp_path: Path, saver: CheckpointSaver) -> None:
    """As an earlier release of LangGraph's saver for SQLite has stored them."""
    official = Official("sqlite", f"sqlite:///{tmp_path / 'official.db'}")
    with official.open() as source:
        step(source, "t", None, a=[1])
        (found,) = everything(source)
        with closing(sqlite3.connect(tmp_path / "official.db")) as file, file:
            file.execute(
                "UPDATE checkpoints SET type = 'json', checkpoint = ?", [json.dumps(found.checkpoint).encode()]
            )
        assert "stored as json" in migrate(official.url, saver).problems["t"]
        assert copy_from(source, saver).checkpoints == 1
        assert [plain(found) for found in everything(saver)] == [plain(found) for found in everything(source)]


def test_a_connection_that_is_lost_is_an_error_of_the_database(
    empty_postgres_url: str, saver: CheckpointSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    official = Official("postgres", empty_postgres_url)
    with official.open() as source:
        for thread_id in "tuv":
            step(source, thread_id, None, a=[1])
    read = OfficialPostgres.read

    def lost(self: Any, thread_id: str, places: Any) -> Any:
        if thread_id == "u":
            with psycopg.connect(empty_postgres_url) as server:
                server.execute("SELECT pg_terminate_backend(%s, 10000)", [self._connection.info.backend_pid])
        return read(self, thread_id, places)

    with monkeypatch.context() as patched:
        patched.setattr(OfficialPostgres, "read", lost)
        with pytest.raises(StorageError, match="cannot be read"):
            migrate(official.url, saver)
    assert migrate(official.url, saver).checkpoints == 2


def test_a_damaged_row_is_a_problem_of_its_thread(tmp_path: Path, saver: CheckpointSaver) -> None:
    official = Official("sqlite", f"sqlite:///{tmp_path / 'official.db'}")
    with official.open() as source:
        for number in range(20):
            step(source, f"{number:02}", None, a=[f"{number:02}" * 10_000])
    path = tmp_path / "official.db"
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = path.read_bytes()
    at = data.rindex(b"10" * 1_000) // 4096 * 4096  # A page in the middle of the value; it begins with the next one.
    path.write_bytes(data[:at] + b"\xff" * 4 + data[at + 4 :])
    moved = migrate(official.url, saver)
    assert (moved.threads, moved.checkpoints, list(moved.problems)) == (20, 19, ["10"])
    assert "malformed" in moved.problems["10"]


def test_through_a_pooler(empty_postgres_url: str, saver: CheckpointSaver) -> None:
    """Each transaction may reach another server process, which has no statement that this one has prepared."""
    official = Official("postgres", empty_postgres_url)
    with official.open() as source:
        for number in range(2 * PAGE + 1):
            step(source, f"{number:03}", None, a=[1])
    with bounced(official.url, servers=2) as url:
        others = [psycopg.connect(url, prepare_threshold=None) for _ in range(2)]
        with open_official(url, JsonPlusSerializer()) as found:
            for page in found.threads():
                held = others.pop() if others else None
                if held:
                    held.execute("SELECT 1")  # In a transaction, so that the next page comes from the other process.
                assert len(found.locations(page)) == len(page)
                if held:
                    held.close()
        assert migrate(url, saver).checkpoints == 2 * PAGE + 1


def test_tables_of_a_shallow_saver_are_named_and_not_changed(empty_postgres_url: str, saver: CheckpointSaver) -> None:
    opened = ShallowPostgresSaver.from_conn_string(empty_postgres_url)
    with ExitStack() as stack:
        with pytest.warns(DeprecationWarning, match="ShallowPostgresSaver"):
            source = stack.enter_context(opened)
        source.setup()
        step(source, "t", None, a=[1])
        moves: list[Callable[[], object]] = [
            lambda: migrate(empty_postgres_url, saver),
            lambda: migrate_back(saver, empty_postgres_url),
        ]
        for move in moves:
            with pytest.raises(SchemaForeign, match="copy_from copies those of a ShallowPostgresSaver"):
                move()
        with psycopg.connect(empty_postgres_url) as server:
            last = server.execute("SELECT max(v) FROM checkpoint_migrations").fetchone()
        assert last == (len(source.MIGRATIONS) - 1,)
        assert copy_from(source, saver).checkpoints == 1
