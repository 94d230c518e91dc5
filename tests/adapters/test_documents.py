"""The base of all adapters: documents and logs in their own threads, and operations that lock these threads."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.conformance.test_utils import generate_checkpoint, generate_config, generate_metadata
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_checkpoint_custom import CheckpointSaver, ConfigError
from langgraph_checkpoint_custom.adapters.documents import (
    Attempt,
    Document,
    append_entries,
    once,
    read_document,
    store_document,
)
from langgraph_checkpoint_custom.adapters.runner import OperationRunner, attempt
from langgraph_checkpoint_custom.encoding.values import Values
from langgraph_checkpoint_custom.engine.operation import Steps, operation
from langgraph_checkpoint_custom.model.namespaced_ids import kind_of, name_of, thread_of
from langgraph_checkpoint_custom.sql.dialect import SqlDialect
from tests.invariants import read_tables
from tests.stores import Store

THREAD = thread_of("test", "a thread")


@operation("exclusive", locks=["thread_id"])
def add(d: SqlDialect, codec: Values, change: Attempt[int], thread_id: str, values: dict[str, Any]) -> Steps[int]:
    """Increment a counter in a document and set other values of it."""

    def steps() -> Steps[int]:
        before = yield from read_document(d, codec, thread_id)
        number = before.values["number"] + 1 if before else 1
        yield from store_document(d, codec, change, (thread_id, ""), before, {**values, "number": number})
        return number

    return (yield from once(d, change, steps()))


@operation("exclusive", locks=["thread_id"])
def append(d: SqlDialect, codec: Values, change: Attempt[int], thread_id: str, entries: list[Any]) -> Steps[int]:
    """Append to a log whose length is in a document."""
    before = yield from read_document(d, codec, thread_id)
    batch = before.values["batches"] if before else 0
    log = yield from read_document(d, codec, thread_id, "log")
    key = log.key if log else (yield from store_document(d, codec, change, (thread_id, "log"), None, {}))
    yield from store_document(d, codec, change, (thread_id, ""), before, {"batches": batch + 1})
    yield from append_entries(d, codec, key, batch, entries)
    return int(batch)


@operation("snapshot")
def read(d: SqlDialect, codec: Values, thread_id: str, name: str = "") -> Steps[Document | None]:
    return (yield from read_document(d, codec, thread_id, name))


@pytest.fixture
def saver(store: Store) -> Iterator[CheckpointSaver]:
    with store.open() as saver:
        saver.setup()
        yield saver


def values(runner: OperationRunner, thread_id: str = THREAD, name: str = "") -> Any:
    found = runner.run(read, thread_id, name)
    return found and found.values


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


def test_versions_of_a_document_share_large_values(saver: CheckpointSaver) -> None:
    runner = OperationRunner(saver)
    large = [{"text": f"{number} {'x' * 500}"} for number in range(200)]
    for number in range(3):
        assert runner.run(
            add, attempt(), THREAD, {"large": [*large, number], "unchanged": {"a": 1}} if number else {}
        ) == (number + 1)
    assert values(runner) == {"large": [*large, 2], "unchanged": {"a": 1}, "number": 3}
    history = list(saver.history({"configurable": {"thread_id": THREAD}}))
    assert [record.metadata["step"] for record in history] == [2, 1, 0]


def test_many_writers_lose_no_update(saver: CheckpointSaver) -> None:
    runner = OperationRunner(saver)
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda number: runner.run(add, attempt(), THREAD, {f"{number}": number}), range(40)))
    assert sorted(numbers) == list(range(1, 41))
    assert values(runner) == {**{f"{number}": number for number in range(40)}, "number": 40}


def test_a_new_id_sorts_after_the_newest_even_if_the_clock_is_behind(saver: CheckpointSaver) -> None:
    runner = OperationRunner(saver)
    late = attempt()
    runner.run(add, Attempt("ffffffff-ffff-6fff-bfff-fffffffffff0", late.at), THREAD, {})
    assert runner.run(add, late, THREAD, {}) == 2
    assert values(runner) == {"number": 2}


def test_a_change_whose_answer_was_lost_is_made_once(saver: CheckpointSaver) -> None:
    runner = OperationRunner(saver)
    change = attempt()
    assert runner.run(add, change, THREAD, {}) == 1
    assert runner.run(add, attempt(), THREAD, {}) == 2
    assert runner.run(add, change, THREAD, {}) == 1
    assert values(runner) == {"number": 2}
    saver.delete_thread(THREAD)
    assert runner.run(add, change, THREAD, {}) == 1


def test_an_error_rolls_back_the_complete_operation(saver: CheckpointSaver) -> None:
    @operation("exclusive", locks=["thread_id"])
    def fail(d: SqlDialect, codec: Values, thread_id: str) -> Steps[None]:
        yield from store_document(d, codec, attempt(), (thread_id, ""), None, {"number": 1})
        yield from store_document(d, codec, attempt(), (thread_id, "other"), None, {"number": 1})
        raise LookupError

    runner = OperationRunner(saver)
    with pytest.raises(LookupError):
        runner.run(fail, THREAD)
    assert values(runner) is None
    assert not saver.thread_exists(THREAD)


def test_a_log_is_in_order(saver: CheckpointSaver) -> None:
    runner = OperationRunner(saver)
    with ThreadPoolExecutor(4) as pool:
        batches = list(pool.map(lambda n: runner.run(append, attempt(), THREAD, [[n, 0], [n, 1]]), range(20)))
    found = runner.run(read, THREAD, "log")
    assert found is not None
    assert found.entries == [[number, position] for number in map(batches.index, range(20)) for position in (0, 1)]


def test_threads_of_other_frameworks_are_not_langgraph_threads(saver: CheckpointSaver) -> None:
    runner = OperationRunner(saver)
    runner.run(add, attempt(), THREAD, {})
    own = generate_config("a thread")
    saver.put(own, generate_checkpoint(), generate_metadata(), {})
    assert [found.config["configurable"]["thread_id"] for found in saver.list(None)] == ["a thread"]
    assert [found.thread_id for found in saver.history(None)] == ["a thread"]
    assert {(found.kind, found.name) for found in saver.threads()} == {("test", ("a thread",)), (None, ("a thread",))}
    assert [found.thread_id for found in saver.threads(prefix=THREAD[:3])] == [THREAD]
    assert saver.count_threads() == 2
    there: RunnableConfig = {"configurable": {"thread_id": THREAD, "checkpoint_ns": "", "checkpoint_id": "x"}}
    with pytest.raises(ConfigError, match="other frameworks"):
        saver.put(generate_config(THREAD), generate_checkpoint(), generate_metadata(), {})
    with pytest.raises(ConfigError, match="other frameworks"):
        saver.put_writes(there, [("a", 1)], "task")


def test_with_a_key_documents_are_encrypted_and_a_strict_serializer_reads_them(store: Store) -> None:
    strict = JsonPlusSerializer(allowed_msgpack_modules=None)
    key = EncryptedSerializer.from_pycryptodome_aes(strict, key=b"0123456789abcdef")
    with store.open(serde=key) as saver:
        saver.setup()
        OperationRunner(saver).run(add, attempt(), THREAD, {"secret": [{"text": "canary"}] * 3})
        assert values(OperationRunner(saver)) == {"secret": [{"text": "canary"}] * 3, "number": 1}
        assert "canary" not in str(read_tables(store))
