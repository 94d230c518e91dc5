"""A checkpoint is stored as the step left it, whatever the graph does to its values while they are being saved.

Each call starts while the tables are locked. Once it has encoded its arguments, the test changes all of them, and only
then lets the call continue.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeVar

import pytest
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from langgraph_checkpoint_custom import CheckpointSaver, ClosedError
from langgraph_checkpoint_custom.encoding.values import TypedBytes, ValueCodec
from langgraph_checkpoint_custom.engine.operation import OFFLOAD_BYTES
from tests.behaviour.helpers import LONG, CountingSerializer, Database, checkpoint, config, get, metadata, put
from tests.stores import Client, Store

T = TypeVar("T")


@pytest.fixture
def serde() -> CountingSerializer:
    return CountingSerializer()


@pytest.fixture
def saver(store: Store, serde: CountingSerializer) -> Iterator[CheckpointSaver]:
    with store.open(serde=serde) as opened:
        # What a saver does only once is done before the values are counted.
        opened.put(config("warm-up"), checkpoint("1"), metadata(), {})
        yield opened


class Meanwhile:
    """Runs calls, and changes things while the calls wait for the database."""

    def __init__(self, client: Client, database: Database, serde: CountingSerializer) -> None:
        self.client = client
        self._database = database
        self._serde = serde

    async def __call__(self, call: Coroutine[Any, Any, T], change: Callable[[], object], *, encoded: int) -> T:
        """Call `change` as soon as `encoded` values of the call are encoded."""
        before = self._serde.dumped
        with self._database.locked() as unlock:
            task = asyncio.create_task(call)
            # An async call gets one iteration of the loop; a sync call runs concurrently.
            await asyncio.sleep(0)
            while self.client.api == "sync" and self._serde.dumped < before + encoded:
                await asyncio.sleep(0.005)
            assert self._serde.dumped == before + encoded
            change()
            assert not task.done()
            unlock()
            return await task


@pytest.fixture
def meanwhile(client: Client, database: Database, serde: CountingSerializer) -> Meanwhile:
    return Meanwhile(client, database, serde)


async def test_a_checkpoint_is_stored_as_it_was(meanwhile: Meanwhile) -> None:
    values: Any = {"list": [LONG], "text": "as it was", "unversioned": ["as it was"]}
    document = checkpoint("1", values, {"list": "1", "text": "1"})
    document["versions_seen"] = {"node": {"list": "1"}}
    versions: Any = {"list": "1", "text": "1"}
    meta: Any = metadata(1, mine={"list": [1]})
    where = config()

    def change() -> None:
        document["channel_values"]["list"].append("changed")
        document["channel_values"]["unversioned"].append("changed")
        document["channel_values"].clear()
        document["versions_seen"]["node"].clear()
        document["channel_versions"].clear()
        document["id"] = "2"
        versions.clear()
        meta["mine"]["list"].append("changed")
        meta["new"] = 1
        where["configurable"].clear()

    # The list, the document, the metadata.
    assert await meanwhile(meanwhile.client.put(where, document, meta, versions), change, encoded=3) == config(
        checkpoint_id="1"
    )
    found = await get(meanwhile.client, config())
    assert found.checkpoint["channel_values"] == {"list": [LONG], "text": "as it was", "unversioned": ["as it was"]}
    assert found.checkpoint["channel_versions"] == {"list": "1", "text": "1"}
    assert found.checkpoint["versions_seen"] == {"node": {"list": "1"}}
    assert found.metadata == metadata(1, mine={"list": [1]})


async def test_the_graph_may_clear_a_value_that_has_to_be_stored_again(meanwhile: Meanwhile, is_citus: bool) -> None:
    """The checkpoint's dicts belong to the graph, which may empty them."""
    # With distributed tables, a call finds out that the value is missing before it waits, and encodes it again.
    encoded = 3 if is_citus and meanwhile.client.api == "sync" else 2
    client = meanwhile.client
    versions = {"list": "1"}
    first = await put(client, "1", {"list": ["as it was"]}, versions=versions)
    await client.delete_thread("thread")
    document = checkpoint("2", {"list": ["as it was"]}, versions)

    def change() -> None:
        document["channel_values"].clear()
        document["channel_versions"].clear()

    await meanwhile(client.put(first, document, metadata(), {}), change, encoded=encoded)
    assert (await get(client, config())).checkpoint["channel_values"] == {"list": ["as it was"]}


async def test_writes_are_stored_as_they_were(meanwhile: Meanwhile) -> None:
    await put(meanwhile.client, "1")
    where = config(checkpoint_id="1")
    value = ["as it was"]
    writes: list[tuple[str, Any]] = [("a", value), ("b", 1)]

    def change() -> None:
        value.append("changed")
        writes.append(("c", 2))
        writes[1] = ("b", "changed")
        where["configurable"]["checkpoint_id"] = "2"

    await meanwhile(meanwhile.client.put_writes(where, writes, "task"), change, encoded=2)
    found = await get(meanwhile.client, config())
    assert found.pending_writes == [("task", "a", ["as it was"]), ("task", "b", 1)]


SERDES: Mapping[str, SerializerProtocol | None] = {
    "compressed": None,
    "encrypted": EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef"),
}


Sealed = list[tuple[int, threading.Thread]]


@pytest.fixture
def sealed(monkeypatch: pytest.MonkeyPatch) -> Sealed:
    """The size of each value that is sealed, and the OS thread that does it."""
    noted: Sealed = []
    seal = ValueCodec.seal

    def noting(self: ValueCodec, type_: str, data: bytes, *args: Any) -> TypedBytes:
        noted.append((len(data), threading.current_thread()))
        return seal(self, type_, data, *args)

    monkeypatch.setattr(ValueCodec, "seal", noting)
    return noted


@pytest.mark.parametrize("serde", SERDES.values(), ids=SERDES)
async def test_a_large_value_is_compressed_or_encrypted_on_a_worker_as_it_was(
    store: Store, serde: SerializerProtocol | None, sealed: Sealed
) -> None:
    large = [LONG * 10, *range(50_000)]
    value = list(large)
    document = checkpoint("1", {"list": value, "short": [LONG * 10]}, {"list": "1", "short": "1"})
    begins = config()
    with store.open(serde=serde, compress=True) as saver:
        task = asyncio.create_task(saver.aput(begins, document, metadata(), {"list": "1", "short": "1"}))
        await asyncio.sleep(0)
        value.append("changed")
        document["channel_values"].clear()
        begins["configurable"].clear()
        where = await task
        value = list(large)
        writes = asyncio.create_task(saver.aput_writes(where, [("list", value)], "task"))
        await asyncio.sleep(0)
        value.append("changed")
        await writes
        found = await get(Client(saver, "async"), config())
    assert found.checkpoint["channel_values"] == {"list": large, "short": [LONG * 10]}
    assert found.pending_writes == [("task", "list", large)]
    by = [thread for size, thread in sealed if size > OFFLOAD_BYTES]
    assert len(by) == 2
    assert threading.main_thread() not in by
    with pytest.raises(ClosedError):
        await saver.aput(config(), document, metadata(), {"list": "1", "short": "1"})


@pytest.mark.parametrize("parent", ["deleted", "not known to the saver"])
@pytest.mark.parametrize("serde", SERDES.values(), ids=SERDES)
async def test_a_large_value_is_compressed_or_encrypted_on_a_worker_when_the_parent_is_read(
    store: Store, serde: SerializerProtocol | None, sealed: Sealed, parent: str
) -> None:
    """What it seals is known only then: an unchanged value whose blob is gone, or the values that are blobs at all."""
    large, short = [LONG * 10, *range(50_000)], [LONG * 10]
    with store.open(serde=serde, compress=True) as saver, store.open(serde=serde, compress=True) as other:
        client, others = Client(saver, "async"), Client(other, "async")
        versions = {"large": "1", "short": "1"}
        where = await put(client, "1", {"large": large, "short": short}, versions=versions)
        if parent == "deleted":
            await others.delete_thread("thread")
            new: dict[str, str] = {}
        else:
            client, large = others, [*large, "changed"]
            versions["large"] = "2"
            new = {"large": "2"}
        sealed.clear()
        await put(client, "2", {"large": large, "short": short}, parent=where, versions=versions, new=new)
        (by,) = [thread for size, thread in sealed if size > OFFLOAD_BYTES]
        assert by is not threading.main_thread()
        found = await get(client, config())
    assert found.checkpoint["channel_values"] == {"large": large, "short": short}
