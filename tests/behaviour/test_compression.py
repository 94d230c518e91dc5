"""Large values are compressed by default where that saves time, or as an option says. Every saver reads both."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from langgraph_checkpoint_custom.encoding import values
from tests.behaviour.helpers import Database, config, get, next_uuid, put
from tests.stores import Client, Store

CHOICES = (None, True, False)
WORDS = "the same words again and again, " * 40


def state(turns: int) -> dict[str, Any]:
    """A text, a list that is stored in chunks from 20 turns on, and bytes that compression does not shrink."""
    return {
        "text": WORDS * 20,
        "messages": [HumanMessage(f"{turn}: {WORDS}", id=f"{turn}") for turn in range(turns)],
        "noise": bytes((byte * byte // 7 + byte // 3) % 256 for byte in range(900)),
    }


def forms(database: Database) -> set[str]:
    """The forms of values, as the letters after the bar in their types say them."""
    rows = database.run(
        "SELECT type, value FROM blobs UNION ALL SELECT type, value FROM writes"
        " UNION ALL SELECT checkpoint_type, checkpoint FROM checkpoints"
    )
    return {type_.partition("|")[2] for type_, _ in rows if type_ != "bytes"}


async def fill(client: Client, thread_id: str = "thread") -> list[Any]:
    """Store three checkpoints of a thread, the last one with a large write; returns their values."""
    where, states = None, []
    for turns in (20, 30, 40):
        states.append(state(turns))
        where = await put(client, next_uuid(), states[-1], parent=where, thread_id=thread_id)
    assert where
    await client.put_writes(where, [("text", WORDS)], "task")
    return states


async def check(client: Client, states: list[Any], thread_id: str = "thread") -> None:
    found = await client.all(config(thread_id))
    assert [each.checkpoint["channel_values"] for each in reversed(found)] == states
    assert found[0].pending_writes == [("task", "text", WORDS)]


@pytest.mark.parametrize("compress", CHOICES)
async def test_values_are_stored_as_the_option_says(
    store: Store, database: Database, api: str, compress: bool | None
) -> None:
    with store.open(compress=compress) as saver:
        client = Client(saver, api)
        await check(client, await fill(client))
    compressed = store.kind == "postgres" if compress is None else compress
    assert forms(database) == ({"", "z", "p"} if compressed else {"", "p"})


@pytest.mark.parametrize("compress", [True, False])
async def test_a_saver_with_another_option_reads_and_continues(
    store: Store, database: Database, api: str, compress: bool
) -> None:
    with store.open(compress=compress) as one, store.open(compress=not compress) as other:
        states = await fill(Client(one, api))
        await check(Client(other, api), states)
        blobs = database.count("blobs")
        before = await get(Client(other, api), config())
        states.append(state(41))
        where = await put(Client(other, api), next_uuid(), states[-1], parent=before.config)
        await Client(other, api).put_writes(where, [("text", WORDS)], "task")
        assert (
            database.count("blobs") <= blobs + 5
        )  # One blob for each of the three channels, and the last one or two chunks of the list.
        await check(Client(one, api), states)
    assert forms(database) == {"", "z", "p"}


async def test_a_value_takes_the_other_form_when_it_is_stored_again(store: Store, database: Database, api: str) -> None:
    with store.open(compress=False) as saver:
        states = await fill(Client(saver, api))
    plain = sum(map(len, database.cells()))
    with store.open(compress=True) as saver:
        client = Client(saver, api)
        renewal = await client.do("reencrypt")
        assert renewal.unreadable == []
        assert renewal.renewed
        await check(client, states)
        assert forms(database) == {"", "z", "p"}
        assert sum(map(len, database.cells())) < plain / 3
        assert (await client.do("reencrypt")).renewed == 0


async def test_encrypted_values_are_never_compressed(store: Store, database: Database, api: str) -> None:
    """The length would reveal something about the text."""
    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")
    with store.open(serde=serde, compress=True) as saver:
        client = Client(saver, api)
        await check(client, await fill(client))
    assert forms(database) == {"b", "pb"}


async def test_a_list_decompresses_a_value_once_that_many_checkpoints_have(
    store: Store, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decompressed = []
    decompress = values._decompress

    def counted(data: bytes) -> bytes:
        decompressed.append(data)
        return decompress(data)

    monkeypatch.setattr(values, "_decompress", counted)
    states = [{"text": WORDS * 20, "step": step} for step in range(5)]
    with store.open(compress=True) as saver:
        client = Client(saver, api)
        where = None
        for step, stored in enumerate(states):
            versions = {"text": "1", "step": f"{step}"}
            new = versions if where is None else {"step": f"{step}"}
            where = await put(client, next_uuid(), stored, parent=where, versions=versions, new=new)
        found = await client.all(config())
    assert [each.checkpoint["channel_values"] for each in reversed(found)] == states
    assert len(decompressed) == 1
