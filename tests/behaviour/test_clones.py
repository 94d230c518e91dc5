"""A saver can be copied, as LangGraph does to read with another serializer."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_checkpoint_custom import CheckpointSaver, ClosedError, CorruptCheckpoint
from tests.behaviour.helpers import CountingSerializer, config, get, put
from tests.stores import Client, Store

KEY = b"0123456789abcdef"


@dataclass
class Mine:
    """A type that only this test knows."""

    value: int


async def test_a_copy_sees_what_the_original_sees(client: Client) -> None:
    clone = Client(copy.copy(client.saver), client.api)
    await put(client, "1", {"a": [1]})
    assert await get(clone, config()) == await get(client, config())
    where = await put(clone, "2", {"a": [2]}, parent=config(checkpoint_id="1"))
    await clone.put_writes(where, [("a", 3)], "task")
    assert await get(clone, config()) == await get(client, config())
    assert await client.all(config()) == await clone.all(config())


async def test_a_copy_of_an_unused_saver_shares_what_is_opened_later(store: Store) -> None:
    """Also if nothing was opened yet, as with `:memory:`."""
    path = "sqlite:///:memory:" if store.kind == "sqlite" else store.url
    with Store(store.kind, path).open() as original:
        clone = copy.copy(original)
        await put(Client(clone, "sync"), "1", {"a": [1]})
        assert (await get(Client(original, "async"), config())).checkpoint["channel_values"] == {"a": [1]}


async def test_each_copy_has_its_own_serializer(client: Client) -> None:
    clone_saver = copy.copy(client.saver)
    clone = Client(clone_saver, client.api)
    clone_saver.serde = EncryptedSerializer.from_pycryptodome_aes(key=KEY)
    await put(client, "1", {"a": [1]})
    await put(clone, "2", {"a": [2]})
    assert isinstance(client.saver.serde, JsonPlusSerializer)
    assert (await get(clone, config())).checkpoint["channel_values"] == {"a": [2]}
    assert (await get(client, config(checkpoint_id="1"))).checkpoint["channel_values"] == {"a": [1]}
    with pytest.raises(CorruptCheckpoint, match="without encryption"):
        await clone.get_tuple(config(checkpoint_id="1"))
    with pytest.raises(CorruptCheckpoint, match=r"msgpack\+aes"):
        await client.get_tuple(config())


async def test_the_serializer_is_read_when_a_method_is_called(client: Client) -> None:
    first, second = CountingSerializer(), CountingSerializer()
    client.saver.serde = first
    where = await put(client, "1", {"a": [1]})
    client.saver.serde = second
    await get(client, where)
    await client.history(where, ["a"])
    assert await client.all(config())
    await client.put_writes(where, [("a", 1)], "task")
    assert (first.loaded, second.dumped) == (0, 1)
    assert first.dumped > 0
    assert second.loaded > 0


async def test_an_allowlist_makes_a_clone_that_knows_more_types(store: Store, api: str) -> None:
    with store.open(serde=JsonPlusSerializer(allowed_msgpack_modules=None)) as strict:
        await put(Client(strict, api), "1", {"a": [Mine(1)]})
        allowing = strict.with_allowlist([(Mine.__module__, Mine.__name__)])
        assert isinstance(allowing, CheckpointSaver)
        assert allowing is not strict
        assert type(allowing) is type(strict)
        read = (await get(Client(allowing, api), config())).checkpoint["channel_values"]
        assert read == {"a": [Mine(1)]}
        # As with LangGraph: the stored fields, and its warning.
        blocked = (await get(Client(strict, api), config())).checkpoint["channel_values"]
        assert type(blocked["a"][0]) is not Mine


async def test_an_allowlist_keeps_the_encryption(store: Store, api: str) -> None:
    inner = JsonPlusSerializer(allowed_msgpack_modules=None)
    serde = EncryptedSerializer.from_pycryptodome_aes(inner, key=KEY)
    with store.open(serde=serde) as strict:
        allowing = Client(strict.with_allowlist([(Mine.__module__, Mine.__name__)]), api)
        await put(allowing, "1", {"a": [Mine(1)]})
        assert (await get(allowing, config())).checkpoint["channel_values"] == {"a": [Mine(1)]}
        assert isinstance(allowing.saver.serde, EncryptedSerializer)


async def test_closing_one_closes_all(store: Store, api: str) -> None:
    original = store.open()
    clone = copy.copy(original)
    await put(Client(clone, api), "1")
    original.close()
    for saver in (original, clone):
        with pytest.raises(ClosedError):
            await Client(saver, api).get_tuple(config())


async def test_a_serializer_without_types_works(store: Store, api: str) -> None:
    """LangGraph wraps a serializer that has only `dumps` and `loads`."""

    class Untyped:
        def dumps(self, obj: Any) -> bytes:
            return repr(obj).encode()

        def loads(self, data: bytes) -> Any:
            return eval(data)

    untyped: Any = Untyped()
    with store.open(serde=untyped) as saver:
        client = Client(saver, api)
        await put(client, "1", {"a": [1], "b": "small"})
        assert (await get(client, config())).checkpoint["channel_values"] == {"a": [1], "b": "small"}
        assert len(await client.all(config(), filter={"source": "loop"})) == 1
