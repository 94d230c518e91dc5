"""With an encrypting serializer, no value and no metadata is readable in the database, and filters still work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from langgraph_checkpoint_custom import CheckpointSaver
from tests.behaviour.helpers import LONG, Database, anywhere, config, get, ids_of, metadata, put
from tests.stores import Client, Store

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")

CANARY = "canary-7f3a"


@pytest.fixture
def saver(store: Store) -> Iterator[CheckpointSaver]:
    with store.open(serde=EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")) as opened:
        yield opened


async def put_secrets(client: Client) -> None:
    values: dict[str, Any] = {"small": CANARY, "long": CANARY * 100, "list": [CANARY], "raw": CANARY.encode()}
    versions = {"small": "1", "long": "1", "list": "1", "raw": "1"}  # And one without a version.
    first = await put(client, "1", values | {"loose": [CANARY]}, versions=versions)
    meta = metadata(1, **{"mine": CANARY, "nested": {CANARY: 1}, CANARY: "a key", "thread_id": CANARY})
    second = await put(client, "2", values, parent=first, versions=versions, new={}, meta=meta)
    await client.put_writes(second, [("a", CANARY), ("b", [CANARY]), ("__error__", CANARY)], "task")
    await client.copy_thread("thread", "copy")


def readable(database: Database) -> list[bytes]:
    """Where the canary can be read: cells of the tables and, on SQLite, the files themselves."""
    cells = database.cells()
    if database.kind == "sqlite":
        cells += [file.read_bytes() for file in Path(database.path).parent.glob(f"{Path(database.path).name}*")]
    assert len(cells) > 50
    return [cell for cell in cells if CANARY.encode() in cell]


async def test_no_secret_is_readable_in_the_database(client: Client, database: Database) -> None:
    await put_secrets(client)
    assert readable(database) == []


async def test_without_encryption_the_secret_is_readable(store: Store, database: Database, api: str) -> None:
    """Shows that the test above can fail."""
    with store.open() as plain:
        await put_secrets(Client(plain, api))
        assert len(readable(database)) >= 10


class Wrapper:
    """A serializer around an encrypting one, which counts or compresses, for example."""

    def __init__(self) -> None:
        self.inner = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return self.inner.dumps_typed(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return self.inner.loads_typed(data)


class ContainersOnly(Wrapper):
    """A serializer that encrypts containers, such as state, messages and metadata, and leaves plain text readable."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return super().dumps_typed(obj) if isinstance(obj, (dict, list)) else self.inner.serde.dumps_typed(obj)


@pytest.mark.parametrize("kind", [Wrapper, ContainersOnly])
async def test_no_secret_of_the_metadata_is_readable_with_a_custom_encrypting_serializer(
    store: Store, database: Database, kind: type[Wrapper]
) -> None:
    with store.open(serde=kind()) as saver:
        for api in ("sync", "async"):
            client = Client(saver, api)
            where = await put(client, api, meta=metadata(1, **{"mine": CANARY, "nested": {CANARY: 1}, CANARY: 1}))
            assert (await get(client, where)).metadata["mine"] == CANARY  # type: ignore[typeddict-item]
            assert ids_of(await client.all(where, filter={"mine": CANARY})) == [api]
    found = [row[0] for row in database.run("SELECT CAST(metadata_filter AS text) FROM checkpoints")]
    assert len(found) == 2
    assert all(CANARY not in row for row in found)


async def test_everything_is_read_as_it_was_stored(client: Client) -> None:
    await put_secrets(client)
    for thread_id in ("thread", "copy"):
        found = await get(client, config(thread_id))
        assert found.checkpoint["channel_values"] == {
            "small": CANARY,
            "long": CANARY * 100,
            "list": [CANARY],
            "raw": CANARY.encode(),
        }
        assert found.metadata == metadata(
            1, **{"mine": CANARY, "nested": {CANARY: 1}, CANARY: "a key"}, thread_id=CANARY
        )
        assert sorted(found.pending_writes or []) == [
            ("task", "__error__", CANARY),
            ("task", "a", CANARY),
            ("task", "b", [CANARY]),
        ]
    assert (await get(client, config(checkpoint_id="1"))).checkpoint["channel_values"]["loose"] == [CANARY]


async def test_filters_work_on_plaintext_and_on_encrypted_keys(client: Client) -> None:
    for number in range(60):
        meta = metadata(number % 3, mine=f"{CANARY} {number % 2}", run_id=f"run {number % 5}")
        await put(client, f"{number:02}", meta=meta)
    everything = await client.all(None)
    for filter in (
        {"step": 1},
        {"source": "loop"},
        {"run_id": "run 2"},
        {"mine": f"{CANARY} 1"},
        {"mine": f"{CANARY} 1", "step": 2},
        {"mine": None},
        {"missing": None},
        {"missing": None, "mine": f"{CANARY} 0", "run_id": "run 0"},
        {"step": None},
        {"mine": "another"},
    ):
        wanted = [
            found for found in everything if all(found.metadata.get(key) == value for key, value in filter.items())
        ]
        for where in (config(), anywhere(), None):
            assert await client.all(where, filter=filter) == wanted, filter
        assert await client.all(config(), filter=filter, limit=3) == wanted[:3]
    assert ids_of(await client.all(config(), filter={"mine": f"{CANARY} 1"}, limit=2)) == ["59", "57"]


async def test_runs_are_deleted_and_threads_pruned_without_the_key(store: Store, client: Client) -> None:
    first = await put(client, "1", {"a": [LONG], "delta": _DeltaSnapshot([])}, meta=metadata(run_id="x"))
    counted = metadata(1, run_id="y", counters_since_delta_snapshot={"delta": [1, 1]})
    await put(client, "2", {"a": [LONG]}, parent=first, versions={"a": "2", "delta": "2"}, meta=counted)
    expected = await client.history(config(), ["delta"])
    with store.open() as plain:
        await Client(plain, client.api).prune(["thread"])
    assert ids_of(await client.all(config())) == ["2"]
    assert await client.history(config(), ["delta"]) == expected
    with store.open() as plain:
        await Client(plain, client.api).delete_for_runs(["y"])
    assert await client.all(config()) == []
