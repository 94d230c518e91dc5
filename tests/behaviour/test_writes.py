"""Regular writes keep their first value, special ones their last; `put_writes` never touches checkpoints."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from langgraph_checkpoint_custom import ConfigError
from tests.behaviour.helpers import Database, config, get, put
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


async def test_several_writes_of_a_task_to_one_channel_all_stay(client: Client) -> None:
    where = await put(client, "1")
    await client.put_writes(where, [("a", 1), ("a", 2), ("a", 1)], "task")
    assert await writes(client) == [("task", "a", 1), ("task", "a", 2), ("task", "a", 1)]


async def test_writes_may_arrive_before_their_checkpoint(client: Client) -> None:
    """LangGraph saves both in the background."""
    where = config(checkpoint_id="1")
    await client.put_writes(where, [("a", 1)], "task")
    assert await client.get_tuple(where) is None
    await put(client, "1")
    assert await writes(client) == [("task", "a", 1)]


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


async def test_writes_without_a_checkpoint_id_are_refused(client: Client, database: Database) -> None:
    for checkpoint_id in (None, ""):
        with pytest.raises(ConfigError, match="checkpoint_id"):
            await client.put_writes(config(checkpoint_id=checkpoint_id), [("a", 1)], "task")
    assert database.counts()["writes"] == 0
