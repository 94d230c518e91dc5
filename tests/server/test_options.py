"""Options in the environment: each one takes effect, and an impossible one raises an error with the variable's name."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import Any

import pytest

from langgraph_checkpoint_custom import CheckpointSaver, ConfigError, CorruptCheckpoint, SqliteSaver, open_saver, server
from langgraph_checkpoint_custom.server import checkpointer
from tests.behaviour.helpers import config, get, metadata, put
from tests.golden.content import Person, Point
from tests.stores import Client

KEY, OTHER_KEY = "k3y-" * 8, "0ther-k3y-0ther-"
PG = {"CHECKPOINT_URL": "postgresql://localhost/nowhere"}
KEYS = "CHECKPOINT_ENCRYPTION_KEYS"


@pytest.fixture(autouse=True)
def only_what_a_test_sets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.startswith(("CHECKPOINT_", "LANGGRAPH_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def say(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name, text in variables.items():
        monkeypatch.setenv(name, text)


async def test_without_a_url_the_database_is_a_file_next_to_the_app(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(monkeypatch, CHECKPOINT_URL=" ", CHECKPOINT_SYNCHRONOUS="", CHECKPOINT_BUSY_TIMEOUT="2.5")
    say(monkeypatch, CHECKPOINT_JOURNAL_MODE="delete")
    async with checkpointer() as saver:
        assert isinstance(saver, SqliteSaver)
        assert (tmp_path / "checkpoints.db").exists()
        assert not (tmp_path / "checkpoints.db-wal").exists()


async def test_a_path_in_place_of_a_url_names_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, CHECKPOINT_URL="mine.db", CHECKPOINT_BUSY_TIMEOUT="2.5")
    async with checkpointer() as saver:
        assert isinstance(saver, SqliteSaver)
        assert (tmp_path / "mine.db").exists()


async def test_the_options_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    say(
        monkeypatch,
        CHECKPOINT_URL="postgresql://somewhere",
        CHECKPOINT_SCHEMA="of an agent",
        CHECKPOINT_MIN_SIZE="0",
        CHECKPOINT_MAX_SIZE="3",
        CHECKPOINT_POOL_TIMEOUT="4",
        CHECKPOINT_CONNECT_TIMEOUT="5",
        CHECKPOINT_PREPARE="False",
        CHECKPOINT_CONCURRENT_WRITERS="reject",
        CHECKPOINT_ON_UNREADABLE="raw",
        CHECKPOINT_PLAINTEXT_METADATA="user, topic",
        CHECKPOINT_EXCLUDE_METADATA="api_key, token",
        CHECKPOINT_COMPRESS="false",
    )
    given: dict[str, Any] = {}

    def opened(url: str, **options: Any) -> CheckpointSaver:
        given.update(options, url=url)
        return open_saver("sqlite:///:memory:")

    monkeypatch.setattr(server, "open_saver", opened)
    async with checkpointer():
        expected = {
            "url": "postgresql://somewhere",
            "schema": "of an agent",
            "min_size": 0,
            "max_size": 3,
            "pool_timeout": 4.0,
            "connect_timeout": 5.0,
            "prepare": False,
            "concurrent_writers": "reject",
            "on_unreadable": "raw",
            "plaintext_metadata": ("user", "topic"),
            "exclude_metadata": ("api_key", "token"),
            "compress": False,
        }
        assert {name: given[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"CHECKPOINT_STRICT": "maybe"}, "CHECKPOINT_STRICT must be true or false, not 'maybe'"),
        ({"CHECKPOINT_STRIKT": "true"}, "CHECKPOINT_STRIKT is not a setting; did you mean CHECKPOINT_STRICT?"),
        ({"CHECKPOINT_ENCRYPTION_KEY": "KEY"}, f"CHECKPOINT_ENCRYPTION_KEY is not a setting; did you mean {KEYS}?"),
        ({"CHECKPOINT_COMPRESS": "zstd"}, "CHECKPOINT_COMPRESS must be true or false, not 'zstd'"),
        ({"CHECKPOINT_BUSY_TIMEOUT": "soon"}, "CHECKPOINT_BUSY_TIMEOUT must be a number of seconds, not 'soon'"),
        ({"CHECKPOINT_BUSY_TIMEOUT": "nan"}, "CHECKPOINT_BUSY_TIMEOUT must be a number of seconds, not 'nan'"),
        (
            {"CHECKPOINT_SYNCHRONOUS": "rarely"},
            "CHECKPOINT_SYNCHRONOUS must be one of OFF, NORMAL, FULL, EXTRA, not 'rarely'",
        ),
        ({"CHECKPOINT_JOURNAL_MODE": "off"}, "CHECKPOINT_JOURNAL_MODE must be one of WAL, DELETE, TRUNCATE, not 'off'"),
        ({**PG, "CHECKPOINT_MAX_SIZE": "many"}, "CHECKPOINT_MAX_SIZE must be a whole number, not 'many'"),
        ({**PG, "CHECKPOINT_MIN_SIZE": "7", "CHECKPOINT_MAX_SIZE": "5"}, "min_size <= max_size, not 7 and 5"),
        ({**PG, "CHECKPOINT_SCHEMA": "pg_mine"}, "'pg_mine' cannot be the name of a schema"),
        ({**PG, "CHECKPOINT_SYNCHRONOUS": "OFF"}, "CHECKPOINT_SYNCHRONOUS is for SQLite, but CHECKPOINT_URL names"),
        ({"CHECKPOINT_URL": "a.db", "CHECKPOINT_SCHEMA": "mine"}, "for PostgreSQL, but CHECKPOINT_URL names another"),
        ({"CHECKPOINT_SCHEMA": "mine"}, "CHECKPOINT_SCHEMA is for PostgreSQL, but CHECKPOINT_URL is not set, which"),
        ({"CHECKPOINT_URL": "mysql://me:s3cret@host/db"}, "no database is known for a URL that starts with 'mysql'"),
        (
            {"CHECKPOINT_CONCURRENT_WRITERS": "maybe"},
            "CHECKPOINT_CONCURRENT_WRITERS must be one of allow, reject, not",
        ),
        (
            {"CHECKPOINT_PLAINTEXT_METADATA": "user,,topic"},
            "CHECKPOINT_PLAINTEXT_METADATA must be a comma-separated list of names",
        ),
        ({"CHECKPOINT_EXCLUDE_METADATA": "token,step"}, "exclude_metadata cannot contain 'step'"),
        ({"CHECKPOINT_ALLOW": "app.Plan"}, "without CHECKPOINT_STRICT=true everything is allowed"),
        (
            {"CHECKPOINT_STRICT": "true", "CHECKPOINT_ALLOW": "Plan"},
            "such as my_app.state.Plan, and 'Plan' is not a class",
        ),
        ({KEYS: ""}, f"{KEYS} must be a comma-separated list of names, and one of them is empty"),
        ({KEYS: "unencrypted"}, "must be that of the key to encrypt with, not 'unencrypted'"),
        ({KEYS: KEY}, "the variable of name 1 is not set"),
        ({KEYS: "KEY,NOT_SET", "KEY": KEY}, "the variable of name 2 is not set"),
        ({KEYS: "KEY", "KEY": KEY[1:]}, "KEY must contain an AES key of 16, 24 or 32 bytes, not 31 bytes"),
    ],
)
async def test_an_impossible_option_is_refused(
    variables: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(monkeypatch, **variables)
    with pytest.raises(ConfigError) as caught:
        async with checkpointer():
            raise AssertionError("it was entered")
    assert message in str(caught.value)
    printed = "".join(traceback.format_exception(caught.value))
    assert "k3y" not in printed
    assert "s3cret" not in printed


async def test_other_variables_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, CHECKPOINT_DISABLE="1", CHECKPOINT_DIR="/somewhere")
    async with checkpointer() as saver:
        await saver.asetup()


async def test_strict_reads_what_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, CHECKPOINT_STRICT="true")
    allowed = "tests.golden.content.Point, tests.golden.content.Colour"
    async with checkpointer() as saver:
        await put(Client(saver, "async"), "1", values={"point": Point(1, 2.5)})
        with pytest.raises(CorruptCheckpoint, match="Point"):
            await saver.aget_tuple(config())
    say(monkeypatch, CHECKPOINT_ALLOW=allowed)
    async with checkpointer() as saver:
        found = await get(Client(saver, "async"), config())
        assert found.checkpoint["channel_values"] == {"point": Point(1, 2.5)}


def text_of(checkpoint_id: str) -> str:
    return f"what was stored {checkpoint_id}"


async def stored(checkpoint_id: str) -> None:
    text = text_of(checkpoint_id)
    async with checkpointer() as saver:
        await put(Client(saver, "async"), checkpoint_id, values={"channel": [text]}, meta=metadata(mine=text))


async def read(checkpoint_id: str) -> Any:
    async with checkpointer() as saver:
        return (await get(Client(saver, "async"), config(checkpoint_id=checkpoint_id))).checkpoint["channel_values"]


def in_the_files(checkpoint_id: str) -> bool:
    """Whether a stored text is readable in the SQLite files."""
    return any(text_of(checkpoint_id).encode() in file.read_bytes() for file in Path.cwd().glob("checkpoints.db*"))


async def test_keys_can_be_added_changed_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    await stored("in-plain-text")
    assert in_the_files("in-plain-text")
    say(monkeypatch, FIRST=KEY, SECOND=OTHER_KEY, **{KEYS: "FIRST"})
    with pytest.raises(CorruptCheckpoint):
        await read("in-plain-text")
    say(monkeypatch, **{KEYS: "FIRST, unencrypted"})
    await stored("with-the-first")
    assert await read("in-plain-text") == {"channel": [text_of("in-plain-text")]}
    say(monkeypatch, **{KEYS: "SECOND,FIRST,unencrypted"})
    await stored("with-the-second")
    async with checkpointer() as saver:
        renewal = await saver.areencrypt()
        assert renewal.unreadable == []
        assert renewal.renewed > 0
    say(monkeypatch, **{KEYS: "SECOND"})
    for value in ("in-plain-text", "with-the-first", "with-the-second"):
        assert await read(value) == {"channel": [text_of(value)]}
    assert not in_the_files("with-the-first")
    monkeypatch.delenv(KEYS)
    with pytest.raises(CorruptCheckpoint):
        await read("with-the-second")


async def test_the_servers_own_key_encrypts_unless_other_keys_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, LANGGRAPH_AES_KEY=KEY)
    await stored("with-the-servers")
    say(monkeypatch, MINE=OTHER_KEY, **{KEYS: "MINE,LANGGRAPH_AES_KEY"})
    await stored("with-mine")
    assert await read("with-the-servers") == {"channel": [text_of("with-the-servers")]}
    assert not in_the_files("with-the-servers")
    assert not in_the_files("with-mine")


async def test_strict_and_keys_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    person = Person(name="Ann", tags={"x"})
    say(monkeypatch, CHECKPOINT_STRICT="true", LANGGRAPH_AES_KEY=KEY)
    async with checkpointer() as saver:
        client = Client(saver, "async")
        await put(client, "1", values={"person": person})
        with pytest.raises(CorruptCheckpoint, match="is not allowed to be read"):
            await get(client, config())
    say(monkeypatch, CHECKPOINT_ALLOW="tests.golden.content.Person")
    async with checkpointer() as saver:
        assert (await get(Client(saver, "async"), config())).checkpoint["channel_values"] == {"person": person}


async def test_no_key_is_in_the_repr_of_a_saver(monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, SECRET_KEY=KEY, **{KEYS: "SECRET_KEY"})
    async with checkpointer() as saver:
        seen = f"{server._SHARED!r} {vars(saver)!r} {saver!r} {vars(saver.serde)!r}"
        assert "SECRET_KEY" in seen
        assert "k3y" not in seen
