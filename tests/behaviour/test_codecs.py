"""Values of types that have an exact form, secrets and codecs, stored and read by savers and by graphs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel, SecretBytes, SecretStr

from langgraph_checkpoint_custom import CheckpointEncodeError, CorruptCheckpoint, open_saver, register_codec
from tests.behaviour.helpers import Database, config, get, metadata, put
from tests.codecs import forget_codecs
from tests.exactly import same
from tests.stores import Client, Store

KEY = b"0123456789abcdef"


@pytest.fixture(autouse=True)
def _no_codecs() -> Iterator[None]:
    yield
    forget_codecs()


def alike(one: Any, two: Any) -> bool:
    """Whether two dicts are the same except for their order, which that of channels is not."""
    return same(dict(sorted(one.items())), dict(sorted(two.items())))


async def test_a_tuple_in_metadata_is_found_by_a_list(client: Client) -> None:
    await put(client, "1", meta=metadata(0, pair=(1, ("a",))))
    (found,) = await client.all(config(), filter={"pair": [1, ["a"]]})
    assert dict(found.metadata)["pair"] == (1, ("a",))


# Codecs


class Money:
    """A class that says itself how pickle stores it, so it has no form of its own here."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __reduce__(self) -> Any:
        return Money, (self.text,)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash(self.text)


class Dollars(Money):
    """Another type."""


def money_to_bytes(money: Money) -> bytes:
    return money.text.encode()


def money_from_bytes(data: bytes) -> Money:
    return Money(data.decode())


async def test_a_type_with_a_codec_is_stored_and_read_everywhere(store: Store, api: str, database: Database) -> None:
    value = {"a": [Money("1 €")], "b": (Money("2 €"),)}
    with store.open() as saver, store.open(strict=True) as strict:
        client = Client(saver, api)
        await put(client, "1")
        before = sorted(database.cells())
        with pytest.raises(
            CheckpointEncodeError, match=r"'mine'.*Money .*register_codec\(Money, to_bytes, from_bytes\)"
        ):
            await put(client, "2", {"mine": value})
        assert sorted(database.cells()) == before
        register_codec(Money, money_to_bytes, money_from_bytes)
        where = await put(client, "2", {"mine": value}, meta=metadata(0, mine=value))
        await client.put_writes(where, [("mine", value), ("__interrupt__", [value])], "task")
        with pytest.raises(CheckpointEncodeError, match="Dollars"):
            await put(client, "3", {"mine": [Dollars("1 $")]})
        for reader in (client, Client(strict, api)):
            found = await get(reader, where)
            assert found.checkpoint["channel_values"]["mine"] == value
            assert dict(found.metadata)["mine"] == value
            assert {channel: each for _, channel, each in found.pending_writes or []} == {
                "mine": value,
                "__interrupt__": [value],
            }


async def test_reading_without_the_codec_names_the_type_and_the_call(store: Store, api: str) -> None:
    register_codec(Money, money_to_bytes, money_from_bytes)
    with store.open() as saver:
        await put(Client(saver, api), "1", {"mine": {"deep": [Money("1 €")]}})
    forget_codecs()
    with store.open() as saver, pytest.raises(CorruptCheckpoint) as raised:
        await Client(saver, api).get_tuple(config())
    for words in ("'mine'", f"{__name__}.Money", "register_codec(Money, to_bytes, from_bytes)", "on_unreadable='raw'"):
        assert words in str(raised.value)
    with store.open(on_unreadable="raw") as saver:
        found = await get(Client(saver, api), config())
        assert found.checkpoint["channel_values"] == {"mine": {"deep": ["1 €".encode()]}}


# Secrets


class Settings(BaseModel):
    name: str
    password: SecretStr


SECRETS: dict[str, Any] = {
    "text": SecretStr("canary-7f3a"),
    "bytes": SecretBytes(b"canary-7f3a"),
    "in a model": Settings(name="a", password=SecretStr("canary-7f3a")),
    "in a message": [ToolMessage("t", tool_call_id="1", artifact={"key": SecretStr("canary-7f3a")})],
}


@pytest.mark.parametrize("options", [{}, {"on_inexact": "raise"}, {"serde": JsonPlusSerializer(pickle_fallback=True)}])
async def test_a_secret_is_refused_without_encryption(
    store: Store, api: str, database: Database, options: dict[str, Any]
) -> None:
    with store.open(**options) as saver:
        client = Client(saver, api)
        where = await put(client, "1")
        before = sorted(database.cells())
        for name, secret in SECRETS.items():
            for write in (
                put(client, "2", {"mine": secret}),
                put(client, "2", {"mine": [*range(10_000), secret]}),
                put(client, "2", meta=metadata(mine=secret)),
                client.put_writes(where, [("mine", secret)], "task"),
            ):
                with pytest.raises(CheckpointEncodeError, match=r"Secret\w+ would be readable .*EncryptedSerializer"):
                    pytest.fail(f"{name}: {await write}")
        assert sorted(database.cells()) == before


async def test_a_secret_is_stored_with_encryption(store: Store, api: str, database: Database) -> None:
    serde = EncryptedSerializer.from_pycryptodome_aes(key=KEY)
    many = [{"number": number, "secret": SECRETS["text"]} for number in range(1000)]
    with store.open(serde=serde) as saver:
        client = Client(saver, api)
        first = await put(client, "1", SECRETS | {"many": many}, meta=metadata(0, mine=SECRETS))
        second = await put(client, "2", {"many": [*many, SECRETS]}, parent=first)
        third = await put(client, "3", {"many": [*many, SECRETS, 1]}, parent=second)
        await client.put_writes(third, list(SECRETS.items()), "task")
        for where, expected in ((first, SECRETS | {"many": many}), (third, {"many": [*many, SECRETS, 1]})):
            assert alike((await get(client, where)).checkpoint["channel_values"], expected)
        assert same(dict((await get(client, first)).metadata)["mine"], SECRETS)
    assert not [cell for cell in database.cells() if b"canary" in cell]


async def test_a_secret_is_stored_with_a_codec(store: Store, api: str, database: Database) -> None:
    register_codec(
        SecretStr,
        lambda secret: secret.get_secret_value()[::-1].encode(),
        lambda data: SecretStr(data.decode()[::-1]),
    )
    with open_saver(store.url) as saver:
        saver.setup()
        client = Client(saver, api)
        await put(client, "1", {"mine": SECRETS["in a model"]})
        assert (await get(client, config())).checkpoint["channel_values"] == {"mine": SECRETS["in a model"]}
    assert not [cell for cell in database.cells() if b"canary" in cell]
