"""Regular writes keep their first value, special ones their last; `put_writes` never touches checkpoints."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from langgraph_checkpoint_custom import CheckpointEncodeError, ConfigError
from tests.behaviour.helpers import Database, checkpoint, config, get, metadata, put
from tests.stores import Client

SPECIAL = ["__error__", "__interrupt__", "__resume__", "__scheduled__"]


async def writes(client: Client) -> list[tuple[str, str, Any]]:
    return list((await get(client, config())).pending_writes or [])


async def test_a_regular_write_keeps_its_first_value(client: Client) -> None:
    where = await put(client, "1")
    await client.put_writes(where, [("a", "first"), ("b", "first")], "task")
    await client.put_writes(where, [("a", "second"), ("b", "second"), ("c", "new")], "task")
    assert await writes(client) == [("task", "a", "first"), ("task", "b", "first"), ("task", "c", "new")]


async def test_a_special_write_keeps_its_last_value(client: Client) -> None:
    where = await put(client, "1")
    for value in ("first", "second"):
        for channel in SPECIAL:
            await client.put_writes(where, [(channel, value)], channel)
    assert await writes(client) == [(channel, channel, "second") for channel in SPECIAL]


async def test_one_call_may_have_regular_and_special_writes(client: Client) -> None:
    where = await put(client, "1")
    for value in ("first", "second"):
        await client.put_writes(where, [("a", value), ("__interrupt__", value), ("b", value)], "task")
    assert sorted(await writes(client)) == [
        ("task", "__interrupt__", "second"),
        ("task", "a", "first"),
        ("task", "b", "first"),
    ]


async def test_the_last_of_two_special_writes_in_one_call_stays(client: Client) -> None:
    where = await put(client, "1")
    await client.put_writes(where, [("__resume__", 1), ("__resume__", 2)], "task")
    assert await writes(client) == [("task", "__resume__", 2)]


async def test_several_writes_of_a_task_to_one_channel_all_stay(client: Client) -> None:
    where = await put(client, "1")
    await client.put_writes(where, [("a", 1), ("a", 2), ("a", 1)], "task")
    assert await writes(client) == [("task", "a", 1), ("task", "a", 2), ("task", "a", 1)]


async def test_tasks_namespaces_and_threads_have_separate_writes(client: Client) -> None:
    configs = [config("t", "1"), config("u", "1"), config("t", "1", "ns"), config("t", "2")]
    for number, where in enumerate(configs):
        location = where["configurable"]
        await put(client, location["checkpoint_id"], thread_id=location["thread_id"], ns=location["checkpoint_ns"])
        for task in ("x", "y"):
            await client.put_writes(where, [("a", (task, number))], task)
    for number, where in enumerate(configs):
        found = await get(client, where)
        assert found.pending_writes == [(task, "a", (task, number)) for task in ("x", "y")]


async def test_writes_may_arrive_before_their_checkpoint(client: Client) -> None:
    """LangGraph saves both in the background."""
    where = config(checkpoint_id="1")
    await client.put_writes(where, [("a", 1)], "task")
    assert await client.get_tuple(where) is None
    await put(client, "1")
    assert await writes(client) == [("task", "a", 1)]


async def test_put_writes_never_touches_checkpoints(client: Client) -> None:
    where = await put(client, "1", {"a": [1], "b": "text"}, meta=metadata(3, mine="yes"))
    before = await get(client, where)
    await client.put_writes(where, [("a", [2]), ("__error__", "no")], "task")
    after = await get(client, where)
    assert after._replace(pending_writes=[]) == before


async def test_writes_may_be_any_sequence(client: Client) -> None:
    """LangGraph passes a deque."""
    where = await put(client, "1")
    types: list[Any] = [list, tuple, deque]
    for kind in types:
        await client.put_writes(where, kind([("a", 1), ("b", None)]), kind.__name__)
    assert await writes(client) == [
        (task, channel, value) for task in ("deque", "list", "tuple") for channel, value in (("a", 1), ("b", None))
    ]


async def test_an_empty_call_stores_no_rows(client: Client, database: Database) -> None:
    await client.put_writes(config(checkpoint_id="1"), [], "task")
    assert database.counts()["writes"] == 0


async def test_an_unserialisable_write_stores_nothing_and_names_its_channel(client: Client, database: Database) -> None:
    where = await put(client, "1")
    for value in (object(), [object()]):
        with pytest.raises(CheckpointEncodeError, match="culprit") as raised:
            await client.put_writes(where, [("fine", 1), ("culprit", value), ("also fine", 2)], "task")
        assert raised.value.__cause__ is not None
    assert database.count("writes") == 0


async def test_writes_without_a_checkpoint_id_are_refused(client: Client, database: Database) -> None:
    for checkpoint_id in (None, ""):
        with pytest.raises(ConfigError, match="checkpoint_id"):
            await client.put_writes(config(checkpoint_id=checkpoint_id), [("a", 1)], "task")
    assert database.counts()["writes"] == 0


async def test_the_config_of_the_previous_step_works(client: Client) -> None:
    """LangGraph adds its own keys to it."""
    where = await client.put(config(), checkpoint("1"), metadata(), {})
    where["configurable"] |= {"__pregel_task_id": "x", "user": object()}
    await client.put_writes(where, [("a", 1)], "task")
    assert await writes(client) == [("task", "a", 1)]
