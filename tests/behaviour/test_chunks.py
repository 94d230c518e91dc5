"""Large lists and dicts are stored in chunks that versions share. Readers see no difference."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from langgraph_checkpoint_custom import CorruptCheckpoint
from langgraph_checkpoint_custom.encoding.chunks import NAME_MARK
from tests.behaviour.helpers import Database, config, get, metadata, next_uuid, put
from tests.stores import Client, Store

KEY = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")
OTHER = EncryptedSerializer.from_pycryptodome_aes(key=b"fedcba9876543210")
RANDOM = random.Random(5)


def text(size: int = 900) -> str:
    return "".join(RANDOM.choices("abcdefghijklmnop ", k=size))


def messages(count: int) -> list[BaseMessage]:
    classes = (HumanMessage, AIMessage)
    return [classes[n % 2](text(), id=f"{n}") for n in range(count)]


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """Each test uses the same random numbers, whatever ran before: they decide where values are cut."""
    RANDOM.seed(6)


LONG = messages(150)
FILES = {f"/src/{n}.py": text(3000) for n in range(60)}


class Thread:
    """A thread with one channel that gets one checkpoint after another, and the values that they must have."""

    def __init__(self, thread_id: str = "thread") -> None:
        self.thread_id = thread_id
        self.configs: list[RunnableConfig] = []
        self.values: list[Any] = []

    async def put(self, client: Client, value: Any, *, parent: int = -1, run_id: str = "run") -> RunnableConfig:
        before = self.configs[parent] if self.configs else None
        meta = metadata(len(self.configs), run_id=run_id)
        where = await put(client, next_uuid(), {"log": value}, parent=before, thread_id=self.thread_id, meta=meta)
        self.configs.append(where)
        self.values.append(value)
        return where

    async def check(self, client: Client, *deleted: int) -> None:
        """Every checkpoint is as it was stored, except the deleted ones."""
        deleted = tuple(number % len(self.configs) for number in deleted)
        stored = [
            pair for number, pair in enumerate(zip(self.configs, self.values, strict=True)) if number not in deleted
        ]
        for where, value in stored:
            assert (await get(client, where)).checkpoint["channel_values"] == {"log": value}
        listed = [found.checkpoint["channel_values"]["log"] for found in await client.all(config(self.thread_id))]
        assert listed == [value for _, value in reversed(stored)]


def chunks(database: Database, thread_id: str = "thread") -> int:
    """How many chunks there are."""
    sql = "SELECT count(*) FROM blobs WHERE thread_id = :thread_id AND version LIKE :mark"
    return int(database.run(sql, thread_id=thread_id, mark=f"{NAME_MARK}%")[0][0])


async def test_a_list_that_grows_is_stored_once(client: Client, database: Database) -> None:
    thread = Thread()
    for length in range(50, 150, 2):
        await thread.put(client, LONG[:length])
    assert 20 <= chunks(database) <= 120  # Not 50 times as many as the value has.
    await thread.check(client)


VALUES: Mapping[str, Sequence[Any]] = {
    "trimmed at the head": [LONG[start:] for start in range(0, 60, 6)],
    "changed in the middle": [[*LONG[:n], HumanMessage(text(), id="new"), *LONG[n + 1 :]] for n in range(10, 140, 13)],
    "taken out": [[*LONG[:n], *LONG[n + 4 :]] for n in range(0, 140, 13)],
    "a dict": [{**FILES, f"/src/{n}.py": text(3000)} for n in range(0, 60, 6)],
    "a dict in another order": [dict(sorted(FILES.items(), key=lambda pair: pair[0][n:])) for n in range(4, 8)],
    "small and large": [LONG, LONG[:3], LONG, [], LONG[:100]],
    "other types": [LONG, FILES, [text() for _ in range(100)], None, "text", {"a": LONG}, LONG],
    "chunks that are alike": [["x" * 9000] * 5, [{"a": "y" * 9000}] * 3 + LONG, {str(n): "z" * 9000 for n in range(9)}],
    "the same": [LONG, LONG, list(LONG), FILES, FILES],
    "a key with half a character": [FILES, FILES | {"a": text()}, FILES | {"r\udce9sum\udce9.txt": text()}, FILES],
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
async def test_each_version_is_what_was_stored_whatever_changes(client: Client, values: Sequence[Any]) -> None:
    thread = Thread()
    for value in values:
        await thread.put(client, value)
    await thread.check(client)


async def test_another_process_shares_the_chunks_that_it_has_read(store: Store, database: Database, api: str) -> None:
    thread = Thread()
    for length in range(100, 150, 10):
        with store.open() as saver:
            client = Client(saver, api)
            if thread.configs:
                found = await get(client, config())
                values = [*found.checkpoint["channel_values"]["log"], *LONG[length - 10 : length]]
            else:
                saver.setup()
                values = LONG[:length]
            await thread.put(client, values)
    assert 5 <= chunks(database) <= 20
    with store.open() as saver:
        await thread.check(Client(saver, api))


async def test_chunks_are_shared_only_while_the_version_has_all_of_them(
    store: Store, database: Database, api: str
) -> None:
    """Another saver may have stored the same checkpoint, as a client that retries does, with other chunks."""
    thread = Thread()
    with store.open() as saver, store.open() as other:
        saver.setup()
        client, others = Client(saver, api), Client(other, api)
        for length in (100, 110):
            await thread.put(client, LONG[:length])
        parent, checkpoint_id = thread.configs[-1], next_uuid()
        await get(others, parent)
        for each in (client, others):
            await put(each, checkpoint_id, {"log": LONG[:140]}, parent=parent, versions={"log": "9"})
        named = "".join(names for (names,) in database.run("SELECT chunks FROM blobs WHERE chunks IS NOT NULL"))
        left = [name for (name,) in database.run("SELECT version FROM blobs WHERE chunks IS NULL") if NAME_MARK in name]
        deleted = [name for name in left if name not in named]
        assert deleted
        for name in deleted:  # As the command `doctor --fix` does.
            database.run("DELETE FROM blobs WHERE version = :version", version=name)
        last = await put(client, next_uuid(), {"log": LONG}, parent=config("thread", checkpoint_id))
        for each in (client, others):
            assert (await get(each, last)).checkpoint["channel_values"] == {"log": LONG}


@pytest.mark.parametrize("change", [list.clear, lambda values: values.append(lambda: None)], ids=["empty", "a lambda"])
async def test_changing_a_value_after_reading_it_changes_nothing(
    store: Store, api: str, change: Callable[[list[Any]], None]
) -> None:
    thread = Thread()
    with store.open() as saver:
        saver.setup()
        await thread.put(Client(saver, api), LONG[:100])
    with store.open() as saver:
        client = Client(saver, api)
        read = (await get(client, config())).checkpoint["channel_values"]["log"]
        values = [*read, *LONG[100:]]
        change(read)
        await thread.put(client, values)
        await thread.put(client, LONG)
        await thread.check(client)


async def test_prune_keeps_exactly_the_chunks_in_use(client: Client, database: Database) -> None:
    thread = Thread()
    for length in range(60, 150, 10):
        await thread.put(client, LONG[:length])
    await thread.put(client, LONG[40:])
    await client.prune(["thread"])
    other = Thread("other")
    for _ in range(2):
        await other.put(client, LONG[40:])
    assert chunks(database) == chunks(database, "other") > 5
    await thread.check(client, *range(-len(thread.configs), -1))
    await thread.put(client, LONG[30:])
    await thread.check(client, *range(-len(thread.configs), -2))


@pytest.mark.parametrize("how", ["prune", "delete_thread"])
async def test_missing_chunks_are_stored_again(store: Store, api: str, how: str) -> None:
    thread = Thread()
    with store.open() as mine, store.open() as other:
        mine.setup()
        for length in (90, 100, 110):
            await thread.put(Client(mine, api), LONG[:length])
        await getattr(Client(other, api), how)(*(["thread"] if how == "delete_thread" else [["thread"]]))
        await thread.put(Client(mine, api), LONG[50:120], parent=1 if how == "prune" else -1)
        await thread.check(Client(mine, api), *((0, 1) if how == "prune" else (0, 1, 2)))


@pytest.mark.leaves_damage("swaps chunks")
async def test_encryption_binds_chunks_to_their_location_and_order(store: Store, database: Database, api: str) -> None:
    with store.open(serde=KEY) as saver:
        saver.setup()
        client = Client(saver, api)
        thread = Thread()
        for length in (100, 130):
            await thread.put(client, LONG[:length])
        assert not any(b"HumanMessage" in cell for cell in database.cells())
        await thread.check(client)
        newest = config()
        version = "(SELECT max(version) FROM blobs WHERE chunks IS NOT NULL)"
        names = json.loads(database.run(f"SELECT chunks FROM blobs WHERE version = {version}")[0][0])
        wrong = json.dumps([names[1], names[0], *names[2:]], separators=(",", ":"))
        right = json.dumps(names, separators=(",", ":"))
        change = f"UPDATE blobs SET chunks = :names WHERE version = {version}"
        database.run(change, names=wrong)
        with pytest.raises(CorruptCheckpoint, match="'log'"):
            await get(client, newest)
        database.run(change, names=right)
        await thread.check(client)
        rows = {name: database.run("SELECT value FROM blobs WHERE version = :name", name=name)[0][0] for name in names}
        for name, other in ((names[0], names[1]), (names[1], names[0])):
            database.run("UPDATE blobs SET value = :value WHERE version = :name", value=rows[other], name=name)
        with pytest.raises(CorruptCheckpoint, match="'log'"):
            await get(client, newest)


async def test_another_key_shares_no_chunks_and_reencrypts_them(store: Store, database: Database, api: str) -> None:
    thread = Thread()
    with store.open(serde=KEY) as saver:
        saver.setup()
        for length in (90, 100):
            await thread.put(Client(saver, api), LONG[:length])
    with store.open(serde=OTHER, previous_serdes=[KEY]) as saver:
        client = Client(saver, api)
        await get(client, config())
        await thread.put(client, LONG[:110])
        await thread.check(client)
        done = saver.reencrypt()
        assert not done.unreadable
    with store.open(serde=OTHER) as saver:
        await thread.check(Client(saver, api))


DAMAGES: Mapping[str, Callable[[str], tuple[str, dict[str, Any]]]] = {
    "a chunk is missing": lambda name: ("DELETE FROM blobs WHERE version = :name", {"name": name}),
    "a chunk is another": lambda name: (
        "UPDATE blobs SET type = 'null', value = :empty WHERE version = :name",
        {"name": name, "empty": b""},
    ),
    "no names": lambda name: ("UPDATE blobs SET chunks = NULL WHERE chunks IS NOT NULL", {}),
    "names of nothing": lambda name: ("UPDATE blobs SET chunks = '[]' WHERE chunks IS NOT NULL", {}),
}


@pytest.mark.leaves_damage("takes chunks away")
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_an_error_names_damaged_chunks(
    client: Client, database: Database, damage: Callable[[str], tuple[str, dict[str, Any]]]
) -> None:
    thread = Thread()
    await thread.put(client, LONG[:140])
    where = await thread.put(client, LONG)
    ((name,),) = database.run("SELECT min(version) FROM blobs WHERE version LIKE :mark", mark=f"{NAME_MARK}%")
    sql, params = damage(name)
    database.run(sql, **params)
    for read in (lambda: client.get_tuple(where), lambda: client.all(config())):
        with pytest.raises(CorruptCheckpoint, match="channel 'log'"):
            await read()


@pytest.mark.leaves_damage("names no chunks")
async def test_a_value_with_an_invalid_list_of_chunks_is_corrupt(client: Client, database: Database) -> None:
    thread = Thread()
    for count in (100, 120, 150):
        await thread.put(client, LONG[:count])
    for names in ("[1]", "5", '"text"', '{"a": 1}', "no JSON", '["a'):
        database.run("UPDATE blobs SET chunks = :names WHERE chunks IS NOT NULL", names=names)
        for read in (client.get_tuple, client.all):
            with pytest.raises(CorruptCheckpoint):
                pytest.fail(f"{names}: {await read(config())}")


class Mine(list[Any]):
    """A subclass of list."""


async def test_large_values_of_other_types_come_back(client: Client, database: Database) -> None:
    """Lists and dicts are stored in chunks, whatever is in them."""
    stored: list[tuple[RunnableConfig, dict[str, Any]]] = []
    for more in range(3):
        values = {
            "a list in a dict": {"inside": LONG[: 100 + more], "count": more},
            "a subclass": Mine(LONG[: 100 + more]),
            "numbers as keys": {n: LONG[n].text for n in range(100 + more)},
            "numbers": [n / 7 for n in range(10_000 + more)],
            "a text": "".join(message.text for message in LONG[: 100 + more]),
            "a tuple": tuple(LONG[: 100 + more]),
        }
        where = await put(client, f"{more}", values, parent=stored[-1][0] if stored else None)
        stored.append((where, values))
    for where, values in stored:
        assert (await get(client, where)).checkpoint["channel_values"] == values
    in_chunks = {channel for (channel,) in database.run("SELECT channel FROM blobs WHERE chunks IS NOT NULL")}
    assert in_chunks == values.keys() - {"a text", "a tuple"}
