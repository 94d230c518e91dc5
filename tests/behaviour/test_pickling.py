"""A saver can be sent to another process, where it opens its own connections, if it was made from a path or URL."""

from __future__ import annotations

import asyncio
import copy
import multiprocessing
import pickle
import sqlite3
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from langgraph.checkpoint.serde.base import CipherProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from psycopg_pool import ConnectionPool

from langgraph_checkpoint_custom import (
    CheckpointSaver,
    ConfigError,
    CorruptCheckpoint,
    PostgresSaver,
    Retention,
    SqliteSaver,
    log_slow_operations,
)
from langgraph_checkpoint_custom.aio import AsyncPostgresSaver, AsyncSqliteSaver
from tests.behaviour.helpers import config, get, put
from tests.stores import Client, Store

SPAWN = multiprocessing.get_context("spawn")
# Seconds; a new process imports everything.
TIMEOUT = 300
NOWHERE = "postgresql://someone:secret@localhost:1/nothing"


class Mine(NamedTuple):
    """A class that a saver may be allowed to read."""

    value: int


class Reversing(CipherProtocol):
    """A cipher with a class that another process can import."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "reversing", plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return ciphertext[::-1]


class Own(JsonPlusSerializer):
    """A serializer with something of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.mark = 5


class Untyped:
    """A serializer that LangGraph wraps."""

    def dumps(self, obj: Any) -> bytes:
        return repr(obj).encode()

    def loads(self, data: bytes) -> Any:
        return eval(data)


def nowhere() -> str:
    """A function that returns a connection string."""
    return NOWHERE


async def in_another_process(connection: Connection, savers: Sequence[CheckpointSaver], api: str) -> None:
    """Send back what each saver reads, and store a checkpoint with it."""
    for saver in savers:
        client = Client(saver, api)
        connection.send([found.checkpoint["channel_values"] for found in await client.all(config())])
        await put(client, "2", {"a": [Mine(2)]}, parent=config(checkpoint_id="1"))
        await saver.aclose() if api == "async" else saver.close()
        try:
            await client.get_tuple(config())
        except Exception as error:
            connection.send(type(error).__name__)


def child(connection: Connection, savers: Sequence[CheckpointSaver], api: str) -> None:
    """Run in the other process."""
    asyncio.run(in_another_process(connection, savers, api))


async def test_a_saver_works_in_a_spawned_process(store: Store, api: str) -> None:
    """With its options, its tenant, its serializer, and what LangGraph has allowed it to read."""
    strict = JsonPlusSerializer(allowed_msgpack_modules=None)
    plain = store.open(concurrent_writers="reject")
    reading = store.open(serde=strict)
    encrypting = store.open(serde=EncryptedSerializer(Reversing(), strict))
    mine = [(Mine.__module__, Mine.__name__)]
    savers: list[Any] = [
        plain,
        reading.with_allowlist(mine).for_tenant("reading"),  # type: ignore[attr-defined]
        encrypting.for_tenant("encrypting").with_allowlist(mine),
    ]
    for saver in savers:
        await put(Client(saver, api), "1", {"a": [Mine(1)]})
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=child, args=(theirs, savers, api))
    process.start()
    theirs.close()
    for saver in savers:
        for expected in ([{"a": [Mine(1)]}], "ClosedError"):
            assert ours.poll(TIMEOUT), "the process hangs"
            assert ours.recv() == expected
        found = await get(Client(saver, api), config())  # Its connections are still open.
        assert (found.checkpoint["id"], found.checkpoint["channel_values"]) == ("2", {"a": [Mine(2)]})
    process.join(TIMEOUT)
    assert process.exitcode == 0
    for saver in (plain, reading, encrypting):
        await saver.aclose()


OPTIONS: dict[str, Any] = {
    "previous_serdes": [EncryptedSerializer(Reversing()), JsonPlusSerializer()],
    "plaintext_metadata": ["user"],
    "exclude_metadata": ["api_key"],
    "strict": True,
    "allow": [Mine],
    "on_unreadable": "raw",
    "on_inexact": "raise",
    "on_load": {"my_app.Old": Mine},
    "concurrent_writers": "reject",
    "compress": True,
    "on_operation": log_slow_operations(5),
    "retention": Retention(keep_last=3, filter={"a": 1}),
}


@pytest.mark.parametrize(
    "saver",
    [
        lambda: SqliteSaver("file.db", busy_timeout=5, synchronous="NORMAL", journal_mode="DELETE", **OPTIONS),
        lambda: AsyncSqliteSaver(Path("file.db"), **OPTIONS),
        lambda: PostgresSaver(NOWHERE, schema="mine", max_size=3, prepare=False, connect_timeout=5, **OPTIONS),
        lambda: AsyncPostgresSaver.from_conn_string(nowhere, min_size=0, **OPTIONS),
    ],
    ids=["sqlite", "async sqlite", "postgres", "async postgres"],
)
def test_the_copy_has_all_options(saver: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with saver() as original:
        data = pickle.dumps(original)
        monkeypatch.chdir("/")
        with pickle.loads(data) as other:
            assert type(other) is type(original)
            assert pickle.dumps(other) == data
            assert other.backend.dialect.location.endswith(original.backend.dialect.location)
            with pickle.loads(pickle.dumps(other.for_tenant("acme"))) as of_tenant:
                assert of_tenant.backend.dialect.tenant == "acme"


def test_a_function_keeps_the_password_out_of_the_pickle() -> None:
    assert b"secret" in pickle.dumps(PostgresSaver(NOWHERE))
    assert b"secret" not in pickle.dumps(PostgresSaver(nowhere))
    assert "secret" not in repr(vars(PostgresSaver(NOWHERE)))


@pytest.mark.parametrize(
    ("opened", "message"),
    [
        (lambda path: SqliteSaver(":memory:"), "its data is in the memory of this process; give it the path of a file"),
        (
            lambda path: SqliteSaver(sqlite3.connect(path, check_same_thread=False)),
            "no connection or pool of yours .*; give it the path or the connection string",
        ),
        (lambda path: PostgresSaver(ConnectionPool(NOWHERE, open=False)), "no connection or pool of yours "),
    ],
    ids=["memory", "connection", "pool"],
)
def test_what_lives_in_this_process_is_refused(opened: Any, message: str, tmp_path: Path) -> None:
    with opened(tmp_path / "file.db") as saver:
        for each in (saver, saver.for_tenant("acme")):
            with pytest.raises(ConfigError, match=message):
                pickle.dumps(each)
        assert copy.copy(saver)._driver is saver._driver
        if saver._given is not None and isinstance(saver, SqliteSaver):
            saver.conn.close()


def test_a_connection_of_the_caller_is_refused(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection, pytest.raises(ConfigError, match="no connection or pool of your"):
        pickle.dumps(PostgresSaver(connection))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"serde": EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")}, "serde"),
        ({"previous_serdes": [EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")]}, "previous_serdes"),
        ({"on_operation": lambda event: None}, "on_operation"),
        ({"on_load": {"my_app.Old": lambda stored: stored}}, "on_load"),
    ],
)
def test_an_option_that_cannot_be_pickled_is_named(store: Store, options: Any, name: str) -> None:
    with (
        store.open(**options) as saver,
        pytest.raises(ConfigError, match=f"cannot be pickled: its {name} .*create the"),
    ):
        pickle.dumps(saver)


def test_a_function_for_the_connection_string_has_to_be_found_by_name() -> None:
    with pytest.raises(ConfigError, match="cannot be pickled: its conn "):
        pickle.dumps(PostgresSaver(lambda: NOWHERE))


async def test_a_serializer_of_ones_own_may_be_pickled(store: Store, api: str) -> None:
    """Also a subclass of LangGraph's, and one that LangGraph wraps."""
    for serde in (Own(), Untyped()):
        with store.open(serde=serde) as saver:
            await put(Client(saver, api), "1", {"a": [1]}, thread_id=type(serde).__name__)
            with pickle.loads(pickle.dumps(saver)) as other:
                found = await get(Client(other, api), config(type(serde).__name__))
                assert found.checkpoint["channel_values"] == {"a": [1]}
                assert getattr(other.serde, "mark", 5) == 5


async def test_the_copy_refuses_what_the_original_refuses(store: Store, api: str) -> None:
    with store.open(strict=True) as saver:
        await put(Client(saver, api), "1", {"a": [Mine(1)]})
        with pickle.loads(pickle.dumps(saver)) as other, pytest.raises(CorruptCheckpoint, match="is not allowed"):
            await Client(other, api).get_tuple(config())
