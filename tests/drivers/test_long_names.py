"""Names that do not fit into an index of PostgreSQL. A row of an index has 2,704 bytes after compression."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.conformance.test_utils import generate_metadata

from langgraph_checkpoint_custom import NameTooLong, OperationEvent, PostgresSaver
from tests.behaviour.helpers import LONG, checkpoint, config, metadata, noise, put
from tests.conftest import APIS
from tests.drivers.batches import NEW, a_checkpoint, in_one_batch, with_few
from tests.stores import Client

pytestmark = pytest.mark.parametrize("api", APIS)

# Just too long, and so long that the server fails at another point.
TOO_LONG = [noise(2_700), noise(20_000)]

CALLS: dict[str, Callable[[Client, str], Awaitable[Any]]] = {
    "put, one row": lambda client, name: put(client, "1", {"a": 1}, ns=name),
    "put, with a value": lambda client, name: put(client, "1", {"a": [LONG]}, ns=name),
    "put, a channel": lambda client, name: put(client, "1", {"other": [LONG], name: [LONG]}),
    "put, a version": lambda client, name: put(client, "1", {"a": [LONG]}, versions={"a": name}),
    "put_writes": lambda client, name: client.put_writes(config(checkpoint_id="1", ns=name), [("a", 1)], "task"),
    "put_writes, many": lambda client, name: client.put_writes(
        config(checkpoint_id="1", ns=name), [("a", number) for number in range(9)], "task"
    ),
}


def rows(url: str) -> list[int]:
    """The number of rows of each table."""
    with psycopg.connect(url) as server:
        tables = ("checkpoints", "blobs", "writes")
        return [server.execute(f"SELECT count(*) FROM langgraph_checkpoint.{each}").fetchone()[0] for each in tables]  # type: ignore[index]  # It has a row.


@pytest.mark.usefixtures("changing_values_in_blobs")
@pytest.mark.parametrize("name", TOO_LONG, ids=[str(len(name)) for name in TOO_LONG])
async def test_a_name_that_does_not_fit_is_refused_once(postgres_url: str, api: str, name: str) -> None:
    events: list[OperationEvent] = []
    async with PostgresSaver(postgres_url, on_operation=events.append) as saver:
        client = Client(saver, api)
        for what, call in CALLS.items():
            with pytest.raises(NameTooLong) as caught:
                await call(client, name)
            said = str(caught.value)
            assert said.startswith(f"{what.partition(',')[0]}: PostgreSQL cannot have names of this length in an index")
            assert "thread_id 'thread'" in said
            if what != "put, a version":
                kind = "channel" if "channel" in what else "checkpoint_ns"
                assert f"{kind} '{name[:60]}'… ({len(name):,} bytes)" in said
            assert "shorter names, or use SQLite" in said
            assert len(said) < 600
            assert (events[-1].error, events[-1].round_trips, events[-1].retries) == ("NameTooLong", 1, 0), what
    assert rows(postgres_url) == [0, 0, 0]


async def test_a_channel_of_a_checkpoint_on_a_parent_is_named(postgres_url: str, api: str) -> None:
    """Such a checkpoint is stored by one statement, with its blobs."""
    async with PostgresSaver(postgres_url) as saver:
        client, name = Client(saver, api), TOO_LONG[0]
        parent = await put(client, "1", {"other": [LONG] * 50})
        with pytest.raises(NameTooLong, match=rf"thread_id 'thread', channel '{name[:60]}'… \(2,700 bytes\)"):
            await put(client, "2", {"other": [LONG] * 50, name: [LONG] * 50}, parent=parent)
    assert rows(postgres_url)[0] == 1


@pytest.mark.parametrize("what", ["put, one row", "put_writes"])
async def test_it_does_not_affect_the_other_calls_of_its_batch(postgres_url: str, api: str, what: str) -> None:
    """Only async calls form batches."""
    calls: dict[str, Callable[[Client, str, str], Awaitable[Any]]] = {
        "put, one row": lambda client, thread, ns: client.put(
            config(thread, ns=ns), a_checkpoint(1), generate_metadata(), NEW
        ),
        "put_writes": lambda client, thread, ns: client.put_writes(config(thread, "id", ns), [("a", None)], "task"),
    }
    names = ["", noise(2_700), "a", "", noise(9_000), "b" * 9_000]
    async with with_few(postgres_url) as saver:
        client = Client(saver, "async")
        async with in_one_batch(
            postgres_url,
            lambda number: calls[what](client, f"first {number}", ""),
            [partial(calls[what], client, f"t{number}", ns) for number, ns in enumerate(names)],
        ) as sent:
            pass
        errors = [each.exception() for each in sent[: len(names)]]
        assert [type(error) for error in errors] == [
            NameTooLong if number in (1, 4) else type(None) for number in range(len(names))
        ]
        assert "thread_id 't1'" in str(errors[1])
        assert "thread_id 't4'" in str(errors[4])
    table = "checkpoints" if what.startswith("put,") else "writes"
    with psycopg.connect(postgres_url) as server:
        found = server.execute(
            f"SELECT thread_id FROM langgraph_checkpoint.{table} WHERE starts_with(thread_id, 't') ORDER BY 1"
        )
        assert [thread for (thread,) in found] == ["t0", "t2", "t3", "t5"]


async def test_a_copy_whose_id_is_too_long_is_refused(postgres_url: str, api: str) -> None:
    async with PostgresSaver(postgres_url) as saver:
        client = Client(saver, api)
        await client.put(config(ns=noise(2_500)), checkpoint("1", {"a": [LONG]}), metadata(), {"a": "1"})
        before = rows(postgres_url)
        with pytest.raises(NameTooLong, match=r"copy_thread: .* a thread id, a namespace and a channel"):
            await client.copy_thread("thread", noise(900))
        assert rows(postgres_url) == before
