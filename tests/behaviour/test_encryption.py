"""With an encrypting serializer, no metadata is readable in the database, and deletions need no key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from langgraph_checkpoint_custom import CheckpointSaver
from tests.behaviour.helpers import LONG, Database, config, get, ids_of, metadata, put
from tests.stores import Client, Store

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")

CANARY = "canary-7f3a"


@pytest.fixture
def saver(store: Store) -> Iterator[CheckpointSaver]:
    with store.open(serde=EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")) as opened:
        yield opened


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
