"""What `put` stores of a value with an old version depends on the value and on the store, not on who has read what.

A document of at most 4,096 bytes has all its values, as they are when `put` is called; so has one of up to 16,384 if
those without a new version take at most 4,096. In a larger one, a large value is a blob of its version. If the parent's
row names the blob of a version that is not new, the checkpoint refers to that blob, whatever the object is now. Any
other value is stored as it is, but a stored blob never changes.
"""

from __future__ import annotations

import json
import operator
import threading
from collections.abc import Callable
from contextlib import closing
from copy import deepcopy
from typing import Annotated, Any, NamedTuple, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import START, StateGraph
from langgraph.types import Durability

from langgraph_checkpoint_custom import OperationEvent
from tests.behaviour.helpers import Database, config, get, new_versions, put, run_graph, states_of
from tests.stores import Client, Store

SHORT = ["as it was"]
MIDDLE = ["middle " * 430]  # 3 KB: in the document, if nothing else is large.
LONG = ["long " * 4_000]  # 20 KB: a blob.
VERSIONS = {"list": "1"}


class Change(NamedTuple):
    """A value as it was stored, the object when `put` is called, and what has to be stored then."""

    before: Any
    now: Any
    stored: Any
    in_blob: bool


CHANGES = {
    "short": Change(SHORT, ["changed"], ["changed"], False),
    "short, unchanged": Change(SHORT, SHORT, SHORT, False),
    "short, grown": Change(SHORT, LONG, LONG, True),
    "middle": Change(MIDDLE, [*MIDDLE, "changed"], [*MIDDLE, "changed"], False),
    "long": Change(LONG, [*LONG, "changed"], LONG, True),
    "long, unchanged": Change(LONG, LONG, LONG, True),
    "long, shortened": Change(LONG, ["changed"], ["changed"], False),
}
# Who puts the checkpoint with the old version.
WRITERS = ("has stored the parent", "has read the parent", "has not read it")


class Row(NamedTuple):
    """The channels whose values are in a checkpoint's document, and those in blobs with their versions."""

    inline: list[str]
    blobs: dict[str, str]


IN_DOCUMENT = Row(["list"], {})
IN_BLOB = Row([], VERSIONS)


def row_of(database: Database, checkpoint_id: str, thread_id: str = "thread") -> Row:
    """What the row of a checkpoint names."""
    sql = (
        "SELECT inline_channels, blob_channels, blob_versions FROM checkpoints"
        " WHERE thread_id = :thread_id AND checkpoint_id = :checkpoint_id"
    )
    (found,) = database.run(sql, thread_id=thread_id, checkpoint_id=checkpoint_id)
    inline, channels, versions = map(json.loads, found) if database.kind == "sqlite" else found
    return Row(list(inline), dict(zip(channels, versions, strict=True)))


def rows_of(database: Database, thread_id: str) -> list[tuple[Any, ...]]:
    """All rows of a thread, without its name."""
    with closing(database.connect()) as connection:
        return [
            tuple(row)
            for sql in (
                "SELECT checkpoint_id, parent_id, inline_channels, blob_channels, blob_versions, checkpoint_type,"
                " checkpoint, metadata FROM checkpoints WHERE thread_id = '{}' ORDER BY checkpoint_id",
                "SELECT channel, version, type, value, chunks FROM blobs WHERE thread_id = '{}' ORDER BY version",
            )
            for row in connection.execute(sql.format(thread_id))
        ]


async def value_of(client: Client, where: RunnableConfig) -> Any:
    """The value of the channel in a checkpoint."""
    return (await get(client, where)).checkpoint["channel_values"]["list"]


@pytest.mark.parametrize("writer", WRITERS)
async def test_the_object_and_the_parents_row_decide(
    store: Store, client: Client, database: Database, writer: str
) -> None:
    for name, change in CHANGES.items():
        old = {"list": deepcopy(change.before)}
        parent = await put(client, "1", old, versions=VERSIONS, thread_id=name)
        async with store.open() as other:
            its = client if writer == "has stored the parent" else Client(other, client.api)
            if writer == "has read the parent":
                await get(its, parent)
            now = {"list": deepcopy(change.now)}
            child = await put(its, "2", now, parent=parent, versions=VERSIONS, new={}, thread_id=name)
        assert await value_of(client, child) == change.stored, name
        assert await value_of(client, parent) == change.before, name
        assert row_of(database, "2", name) == (IN_BLOB if change.in_blob else IN_DOCUMENT), name


async def test_a_parent_that_was_stored_again_decides_by_its_row(
    store: Store, client: Client, database: Database
) -> None:
    parent = await put(client, "1", {"list": LONG}, versions=VERSIONS)
    async with store.open() as other:
        await put(Client(other, client.api), "1", {"list": LONG}, versions={"list": "2"})
    database.run("DELETE FROM blobs WHERE version = '1'")  # As any deletion in the thread does now.
    child = await put(client, "2", {"list": LONG}, parent=parent, versions=VERSIONS, new={})
    assert await value_of(client, child) == await value_of(client, parent) == LONG


PARENTS = ("no parent", "a parent that was deleted", "a parent that it stored and that was deleted")


@pytest.mark.parametrize("parent", PARENTS)
async def test_without_a_parents_row_the_object_decides(
    store: Store, client: Client, database: Database, parent: str
) -> None:
    for name, change in CHANGES.items():
        where = None
        if parent != "no parent":
            old = {"list": deepcopy(change.before)}
            where = await put(client, "1", old, versions=VERSIONS, thread_id=name)
            await client.delete_thread(name)
        async with store.open() as other:
            its = client if "stored" in parent else Client(other, client.api)
            now = {"list": deepcopy(change.now)}
            child = await put(its, "2", now, parent=where, versions=VERSIONS, new={}, thread_id=name)
        assert await value_of(client, child) == change.now, name
        if its is not client:  # The row that it stored may name the value as the blob that it was.
            assert row_of(database, "2", name) == (IN_BLOB if change.now[: len(LONG)] == LONG else IN_DOCUMENT), name


@pytest.mark.parametrize("writer", WRITERS)
async def test_the_encoded_size_of_a_document_decides_after_a_parent_with_blobs_too(
    store: Store, client: Client, database: Database, writer: str
) -> None:
    """Each number takes one byte."""
    for count, row in ((16_000, IN_DOCUMENT), (16_400, Row([], {"list": "2"}))):
        name = f"{count}"
        parent = await put(client, "1", {"list": LONG}, versions=VERSIONS, thread_id=name)
        async with store.open() as other:
            its = client if writer == "has stored the parent" else Client(other, client.api)
            if writer == "has read the parent":
                await get(its, parent)
            child = await put(its, "2", {"list": [0] * count}, parent=parent, versions={"list": "2"}, thread_id=name)
        assert await value_of(client, child) == [0] * count
        assert row_of(database, "2", name) == row, name


@pytest.mark.parametrize("writer", WRITERS)
async def test_what_has_no_new_version_is_stored_again_only_if_it_is_small(
    store: Store, client: Client, database: Database, writer: str
) -> None:
    """The document has more than 4,096 bytes in both cases."""
    versions, later = {"old": "1", "new": "1"}, {"old": "1", "new": "2"}
    for size, row in ((3_000, Row(["old", "new"], {})), (5_000, Row([], later))):
        name, values = f"{size}", {"old": ["o" * size], "new": ["n" * 8_000]}
        parent = await put(client, "1", values, versions=versions, thread_id=name)
        assert row_of(database, "1", name) == Row(["old", "new"], {})
        async with store.open() as other:
            its = client if writer == "has stored the parent" else Client(other, client.api)
            if writer == "has read the parent":
                await get(its, parent)
            new = {"new": "2"}
            child = await put(its, "2", values, parent=parent, versions=later, new=new, thread_id=name)
        assert (await get(client, child)).checkpoint["channel_values"] == values
        assert row_of(database, "2", name) == row


@pytest.mark.parametrize("writer", WRITERS)
async def test_a_blob_stays_one_if_a_node_has_emptied_its_value(
    store: Store, client: Client, database: Database, writer: str
) -> None:
    """The document is not small: another value is large. Whoever does not know the parent reads it after encoding."""
    versions, new = {"list": "1", "other": "1"}, {"other": "2"}
    parent = await put(client, "1", {"list": LONG, "other": LONG}, versions=versions)
    async with store.open() as other:
        its = client if writer == "has stored the parent" else Client(other, client.api)
        if writer == "has read the parent":
            await get(its, parent)
        values: Any = {"list": [], "other": [*LONG, "more"]}
        child = await put(its, "2", values, parent=parent, versions=versions | new, new=new)
    assert (await get(client, child)).checkpoint["channel_values"] == values | {"list": LONG}
    assert row_of(database, "2") == Row([], versions | new)


@pytest.mark.parametrize("has_parent", [True, False])
@pytest.mark.parametrize("new", [True, False])
async def test_a_delta_snapshot_is_a_blob_and_a_bytearray_stays_one_however_short(
    store: Store, client: Client, database: Database, new: bool, has_parent: bool
) -> None:
    values: dict[str, Any] = {"list": _DeltaSnapshot([1]), "bytes": bytearray(b"x")}
    versions = {"list": "1", "bytes": "1"}
    parent = await put(client, "1", values, versions=versions) if has_parent else None
    async with store.open() as other:
        its = Client(other, client.api)
        where = await put(its, "2", values, parent=parent, versions=versions, new=versions if new else {})
    found = (await get(client, where)).checkpoint["channel_values"]
    assert found == values
    assert type(found["bytes"]) is bytearray
    assert row_of(database, "2").blobs["list"] == "1"


async def test_a_document_of_at_most_4_096_bytes_has_all_values_of_any_type(client: Client, database: Database) -> None:
    values = {"list": ["x" * 1_500], "text": "x" * 1_000, "bytes": b"x" * 1_000}
    where = await put(client, "1", values)
    assert (await get(client, where)).checkpoint["channel_values"] == values
    assert row_of(database, "1").blobs == {}


@pytest.mark.usefixtures("changing_values_in_blobs")
async def test_a_value_that_changes_with_every_step_is_stored_alike_by_one_saver_and_by_several(
    store: Store, client: Client, database: Database
) -> None:
    versions = [new_versions(["list"]) for _ in range(5)]
    for thread_id in ("one", "several"):
        where = None
        for step in range(5):
            async with store.open() as other:
                its = client if thread_id == "one" else Client(other, client.api)
                values = {"list": [*MIDDLE, step]}
                where = await put(its, f"{step}", values, parent=where, versions=versions[step], thread_id=thread_id)
    assert rows_of(database, "one") == rows_of(database, "several")


class State(TypedDict, total=False):
    items: list[Any]
    step: str


class Puts:
    """Counts the checkpoints that are stored, so that a node can wait for those before it."""

    def __init__(self) -> None:
        self._stored = 0
        self._changed = threading.Condition()

    def note(self, event: OperationEvent) -> None:
        if event.name == "put":
            with self._changed:
                self._stored += 1
                self._changed.notify_all()

    def wait_for(self, stored: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._stored >= stored, timeout=120)


@pytest.mark.parametrize("durability", ["async", "sync"])
@pytest.mark.parametrize("first", [pytest.param(SHORT, id="short"), pytest.param(LONG, id="long")])
async def test_what_nodes_change_in_place_and_do_not_return(
    store: Store, api: str, first: list[Any], durability: Durability
) -> None:
    """Of a short value, each checkpoint has the changes up to its `put`; a long one stays as it was returned."""
    puts = Puts()
    names = ["a", "b", "c"]

    def node(number: int, name: str) -> Any:
        def change(state: State) -> State:
            puts.wait_for(number + 2)  # Those of the input and of the steps before this one.
            state["items"].append(name)
            return {"step": name}

        return change

    builder = StateGraph(State)
    for number, name in enumerate(names):
        builder.add_node(name, node(number, name))
    for begin, end in zip([START, *names], names, strict=False):
        builder.add_edge(begin, end)
    async with store.open(on_operation=puts.note) as saver:
        saver.setup()
        client = Client(saver, api)
        graph = builder.compile(checkpointer=saver)
        await run_graph(client, graph, {"items": list(first)}, config(), durability=durability)
        found = [state.values.get("items") for state in await states_of(client, graph, config())]
    kept = len(names) if first is SHORT else 0
    assert found == [[*first, *names[: min(step, kept)]] for step in (3, 2, 1, 0)] + [None]


class Log(TypedDict):
    log: Annotated[list[str], operator.add]


async def test_a_join_is_stored_as_its_step_left_it_however_late_its_put_begins(
    store: Store, api: str, database: Database
) -> None:
    """LangGraph changes the set of a join in place, and with durability "async" it calls `put` in the background.

    In the second run, the first `put` waits for the database, and so the second one begins after the join has run.
    """
    unlocks: list[Callable[[], None]] = []

    def joins(state: Log) -> Log:
        while unlocks:
            unlocks.pop()()
        return {"log": ["join"]}

    builder = StateGraph(Log)
    for name in ("a", "b"):
        builder.add_node(name, lambda state, name=name: {"log": [name]})
        builder.add_edge(START, name)
    builder.add_node("join", joins)
    builder.add_edge(["a", "b"], "join")
    async with store.open() as saver:
        saver.setup()
        client = Client(saver, api)
        graph = builder.compile(checkpointer=saver)
        await run_graph(client, graph, {"log": ["in"]}, config())
        with database.locked() as unlock:
            unlocks.append(unlock)
            await run_graph(client, graph, {"log": ["in"]}, config(), durability="async")
        states = (await states_of(client, graph, config()))[:4]
        assert "join:a+b:join" in row_of(database, states[2].config["configurable"]["checkpoint_id"]).blobs
        assert [state.next for state in states] == [(), ("join",), ("a", "b"), ("__start__",)]
        await run_graph(client, graph, None, states[2].config)
        assert (await states_of(client, graph, config()))[0].values["log"] == ["in", "a", "b", "join"] * 2
