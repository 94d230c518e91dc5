"""Stored data that cannot be decoded raises `CorruptCheckpoint`, which says where it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import ormsgpack
import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from langgraph_checkpoint_custom import CheckpointError, CorruptCheckpoint, open_saver
from tests.behaviour.helpers import LONG, Database, anywhere, config, get, metadata, put
from tests.stores import Client, Store

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")

READS: dict[str, Callable[[Client], Awaitable[object]]] = {
    "newest": lambda client: client.get_tuple(config("t", ns="sub")),
    "by id": lambda client: client.get_tuple(config("t", "2", "sub")),
    "list": lambda client: client.all(anywhere("t")),
    "list of all": lambda client: client.all(None),
}


async def put_thread(client: Client) -> None:
    first = await put(client, "1", {"a": [LONG], "b": [LONG, 1]}, thread_id="t", ns="sub")
    second = await put(client, "2", {"a": [LONG, 2], "c": 3}, thread_id="t", ns="sub", parent=first)
    await client.put_writes(first, [("b", [4])], "task")
    await client.put_writes(second, [("d", [5])], "task")


async def expect(
    client: Client, reads: Any, *, channel: str, type: str | None, checkpoint_id: str = "2"
) -> CorruptCheckpoint:
    """Each read raises, and says where."""
    for name, read in reads.items():
        with pytest.raises(CorruptCheckpoint) as raised:
            pytest.fail(f"{name}: {await read(client)}")
        error = raised.value
        assert (error.thread_id, error.checkpoint_ns, error.checkpoint_id) == ("t", "sub", checkpoint_id), name
        assert (error.channel, error.type) == (channel, type), name
        for word in ("'t'", "'sub'", repr(checkpoint_id), repr(channel), repr(type)):
            assert word in str(error), name
        assert isinstance(error, CheckpointError)
    return error


NEWEST = "thread_id = 't' AND checkpoint_ns = 'sub' AND checkpoint_id = '2'"


@pytest.mark.leaves_damage("a value is deleted by hand")
async def test_a_missing_value_raises(client: Client, database: Database) -> None:
    await put_thread(client)
    versions = (await get(client, config("t", ns="sub"))).checkpoint["channel_versions"]
    database.run("DELETE FROM blobs WHERE channel = 'a' AND version = :version", version=versions["a"])
    error = await expect(client, READS, channel="a", type=None)
    assert str(versions["a"]) in str(error)
    assert (await get(client, config("t", "1", "sub"))).checkpoint["channel_values"]["a"] == [LONG]


async def test_an_overwritten_value_raises(client: Client, database: Database) -> None:
    await put_thread(client)
    versions = (await get(client, config("t", ns="sub"))).checkpoint["channel_versions"]
    where = "channel = 'a' AND version = :version"
    database.run(
        f"UPDATE blobs SET value = :data, type = 'msgpack' WHERE {where}",
        data=b"\xc1 no msgpack",
        version=versions["a"],
    )
    error = await expect(client, READS, channel="a", type="msgpack")
    assert error.__cause__ is not None
    database.run(f"UPDATE blobs SET type = 'pickle' WHERE {where}", version=versions["a"])
    await expect(client, READS, channel="a", type="pickle")


# What a value, or it and the next one, are overwritten with.
among_others = pytest.mark.parametrize(
    "damage",
    [
        pytest.param([b"\xc1"], id="no msgpack"),
        pytest.param([b""], id="empty"),
        pytest.param([b"\x91", b"\x03\x03"], id="one that lacks an element, and one that has it"),
        pytest.param([b"\xa2h", b"i\x03"], id="one that ends in the next"),
    ],
)


@among_others
@pytest.mark.parametrize("channels", [12, 120])
@pytest.mark.leaves_damage("values are overwritten")
async def test_an_overwritten_value_among_many_is_named(
    client: Client, database: Database, damage: list[bytes], channels: int
) -> None:
    """They are decoded together, and of many channels they are read in another way."""
    values = {f"v{number:02}{' ' * 35}": ["x" * 1_200, number] for number in range(channels)}
    await put(client, "2", values, thread_id="t", ns="sub")
    for read in READS.values():
        found: Any = await read(client)
        assert (found[0] if isinstance(found, list) else found).checkpoint["channel_values"] == values
    for channel, data in zip(("v03", "v04"), damage, strict=False):
        database.run(
            "UPDATE blobs SET value = :data, type = 'msgpack' WHERE channel LIKE :channel",
            data=data,
            channel=f"{channel} %",
        )
    await expect(client, READS, channel="v03" + " " * 35, type="msgpack")


async def test_an_overwritten_write_raises(client: Client, database: Database) -> None:
    await put_thread(client)
    database.run(f"UPDATE writes SET value = :data WHERE {NEWEST}", data=b"\xc1")
    await expect(client, READS, channel="d", type="msgpack")


@among_others
async def test_an_overwritten_write_of_a_history_is_named(
    client: Client, database: Database, damage: list[bytes]
) -> None:
    """Writes are decoded together, but the error names the damaged one, and other writes keep their own bytes."""
    chain = [await put(client, "0", thread_id="t", ns="sub")]
    for number in range(1, 6):
        await client.put_writes(chain[-1], [("w", number)], "task")
        chain.append(await put(client, str(number), thread_id="t", ns="sub", parent=chain[-1]))
    assert [value for _, _, value in (await client.history(chain[-1], ["w"]))["w"]["writes"]] == [1, 2, 3, 4, 5]
    for checkpoint_id, data in zip("23", damage, strict=False):
        database.run(
            "UPDATE writes SET value = :data WHERE checkpoint_id = :checkpoint_id",
            data=data,
            checkpoint_id=checkpoint_id,
        )
    reads = {"history": lambda client: client.history(chain[-1], ["w"])}
    await expect(client, reads, channel="w", type="msgpack")


@pytest.mark.parametrize("column", ["checkpoint", "metadata"])
async def test_an_overwritten_document_raises(client: Client, database: Database, column: str) -> None:
    await put_thread(client)
    for data in (b"\xc1", b""):
        database.run(f"UPDATE checkpoints SET {column} = :data WHERE {NEWEST}", data=data)
        await expect(client, READS, channel=column, type="msgpack")
    # Text instead of a dict.
    database.run(f"UPDATE checkpoints SET {column} = :data WHERE {NEWEST}", data=b"\xa1a")
    await expect(client, READS, channel=column, type="msgpack")
    database.run(f"UPDATE checkpoints SET {column}_type = 'null' WHERE {NEWEST}")
    await expect(client, READS, channel=column, type="null")


async def test_a_document_without_values_raises(client: Client, database: Database) -> None:
    await put_thread(client)
    for document in ({"v": 4}, {"v": 4, "channel_values": {}, "channel_versions": 5}):
        database.run(f"UPDATE checkpoints SET checkpoint = :data WHERE {NEWEST}", data=ormsgpack.packb(document))
        await expect(client, READS, channel="checkpoint", type="msgpack")


async def test_a_damaged_thread_id_in_the_metadata_raises(client: Client, database: Database) -> None:
    await put_thread(client)
    for stored in ([], 5, ["a", "b"]):
        data = ormsgpack.packb({"thread_id": stored})
        database.run(f"UPDATE checkpoints SET metadata = :data WHERE {NEWEST}", data=data)
        await expect(client, READS, channel="metadata", type="msgpack")


async def test_the_wrong_serializer_raises(store: Store, client: Client) -> None:
    key = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")
    other_key = EncryptedSerializer.from_pycryptodome_aes(key=b"fedcba9876543210")
    with open_saver(store.url, serde=key) as encrypting:
        await put_thread(Client(encrypting, client.api))
    error = await expect(client, READS, channel="metadata", type="msgpack+aes|b")
    assert "pass the EncryptedSerializer that has its key as serde" in str(error)
    with open_saver(store.url, serde=other_key) as other:
        await expect(Client(other, client.api), READS, channel="metadata", type="msgpack+aes|b")


async def test_the_rest_of_the_store_remains_readable(client: Client, database: Database) -> None:
    await put_thread(client)
    await put(client, "1", {"a": [1]}, meta=metadata(mine="yes"))
    database.run(f"UPDATE checkpoints SET checkpoint = :data WHERE {NEWEST}", data=b"\xc1")
    assert (await get(client, config())).checkpoint["channel_values"] == {"a": [1]}
    assert len(await client.all(anywhere("t"), before=config(checkpoint_id="2"))) == 1
    assert len(await client.all(None, filter={"mine": "yes"})) == 1
    await client.prune(["t"])
    await client.delete_thread("t")
    assert len(await client.all(None)) == 1
