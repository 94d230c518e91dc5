"""The base of all adapters: documents in threads of their own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langgraph.checkpoint.conformance.test_utils import generate_checkpoint, generate_config, generate_metadata
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_checkpoint_custom import CheckpointConflict, CheckpointSaver, ConfigError
from langgraph_checkpoint_custom.adapters.documents import Before, Documents, next_version
from langgraph_checkpoint_custom.model.keys import kind_of, name_of, thread_of
from tests.invariants import read_tables
from tests.stores import Store

THREAD = thread_of("test", "a thread")


def add(saver: CheckpointSaver, values: dict[str, Any], thread_id: str = THREAD) -> int:
    """Increment a counter in a document and set other values of it; if somebody else was faster, again."""
    documents = Documents(saver, only_newest=True)
    while True:
        before = Before.of(documents.read(thread_id))
        number = before.values.get("number", 0) + 1
        try:
            documents.put(next_version(thread_id, before, {**values, "number": number}))
        except CheckpointConflict:
            continue
        return int(number)


def values(saver: CheckpointSaver, thread_id: str = THREAD) -> Any:
    found = Documents(saver).read(thread_id)
    return found and found.checkpoint["channel_values"]


def test_two_calls_make_two_ids_above_one_that_is_ahead_of_the_clock() -> None:
    """With the same id, the second of two changes would replace the first, as if it were its repetition."""
    before = Before("ffffff00-0000-6000-8000-000000000000")
    ids = {next_version(THREAD, before, {"number": 1}).checkpoint["id"] for _ in range(9)}
    assert len(ids) == 9
    assert min(ids) > str(before.checkpoint_id)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a:b", "c"), ("a", "b:c")),
        (("a/b", "c"), ("a", "b/c")),
        (("a/", "b"), ("a", "/b")),
        (("a%2Fb",), ("a/b",)),
        (("", "a"), ("a", "")),
        (("a",), ("a", "")),
        (("a\x1e",), ("a",)),
    ],
)
def test_different_names_have_different_thread_ids(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert thread_of("kind", *one) != thread_of("kind", *other)
    for name in (one, other):
        assert name_of(thread_of("kind", *name)) == name
        assert kind_of(thread_of("kind", *name)) == "kind"
    assert (kind_of("a/b"), name_of("a/b")) == (None, ("a/b",))


def test_a_name_that_is_too_long_is_refused() -> None:
    with pytest.raises(ConfigError, match="the name of a kind has"):
        thread_of("kind", "x" * 1000)
    with pytest.raises(ConfigError, match="must be text"):
        thread_of("kind", 5)  # type: ignore[arg-type]


def test_versions_of_a_document_share_large_values(store: Store, saver: CheckpointSaver) -> None:
    large = [{"text": f"{number} {'x' * 500}"} for number in range(200)]
    for number in range(3):
        changed = {"large": [*large, number], "unchanged": {"a": 1}} if number else {}
        assert add(saver, changed) == number + 1
    assert values(saver) == {"large": [*large, 2], "unchanged": {"a": 1}, "number": 3}
    history = list(saver.history({"configurable": {"thread_id": THREAD}}))
    assert [record.metadata["step"] for record in history] == [2, 1, 0]
    assert sum(len(blob.version) > 0 for blob in read_tables(store).blobs) < 2 * 8


def test_many_writers_lose_no_update(saver: CheckpointSaver) -> None:
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda number: add(saver, {f"{number}": number}), range(40)))
    assert sorted(numbers) == list(range(1, 41))
    assert values(saver) == {**{f"{number}": number for number in range(40)}, "number": 40}


def test_threads_of_other_frameworks_are_not_langgraph_threads(saver: CheckpointSaver) -> None:
    add(saver, {})
    own = generate_config("a thread")
    saver.put(own, generate_checkpoint(), generate_metadata(), {})
    assert [found.config["configurable"]["thread_id"] for found in saver.list(None)] == ["a thread"]
    assert [found.thread_id for found in saver.history(None)] == ["a thread"]
    assert {(found.kind, found.name) for found in saver.threads()} == {("test", ("a thread",)), (None, ("a thread",))}
    assert [found.thread_id for found in saver.threads(prefix=THREAD[:3])] == [THREAD]
    assert saver.count_threads() == 2


def test_with_a_key_documents_are_encrypted_and_a_strict_serializer_reads_them(store: Store) -> None:
    strict = JsonPlusSerializer(allowed_msgpack_modules=None)
    key = EncryptedSerializer.from_pycryptodome_aes(strict, key=b"0123456789abcdef")
    with store.open(serde=key) as saver:
        saver.setup()
        add(saver, {"secret": [{"text": "canary"}] * 3})
        assert values(saver) == {"secret": [{"text": "canary"}] * 3, "number": 1}
        assert "canary" not in str(read_tables(store))
