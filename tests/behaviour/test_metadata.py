"""Metadata is stored completely, merged with what LangGraph merges from the config."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import EXCLUDED_METADATA_KEYS, get_checkpoint_metadata

from tests.behaviour.helpers import checkpoint, config, get, ids_of, metadata, put
from tests.stores import Client

ANYTHING: dict[str, Any] = {
    "text": "a\0b",
    "nan": [1, None],
    "bytes": b"\0\xff",
    "deep": {"list": [{"a": 1}], "none": None},
    "writes": {"node": [1]},
    "long": "x" * 10_000,
    "counters_since_delta_snapshot": {"a": [1, 2]},
    "": "empty key",
    "naïve \0 🙂": "odd key",
}


async def test_metadata_is_read_complete(client: Client) -> None:
    where = await put(client, "1", meta=metadata(3, **ANYTHING))
    assert (await get(client, where)).metadata == metadata(3, **ANYTHING)


async def test_empty_metadata_stays_empty(client: Client) -> None:
    empty: Any = {}
    where = await put(client, "1", meta=empty)
    assert (await get(client, where)).metadata == {}


def rich_config() -> RunnableConfig:
    given: RunnableConfig = {
        "configurable": {
            "thread_id": "thread",
            "checkpoint_ns": "",
            "run_id": "run",
            "user": "configurable wins over nothing",
            "text": "a",
            "int": 1,
            "float": 1.5,
            "bool": True,
            "none": None,
            "list": [1],
            "dict": {"a": 1},
            "object": object(),
            "__pregel_internal": "hidden",
            "step": 99,
        },
        "metadata": {"text": "metadata wins", "mine": "yes", "step": 98, "__hidden": 1, "list": [1]},
        "tags": ["not merged"],
    }
    given["configurable"] |= dict.fromkeys(EXCLUDED_METADATA_KEYS - {"thread_id", "checkpoint_ns"}, "excluded")
    del given["configurable"]["checkpoint_id"]
    return given


async def test_metadata_is_merged_with_the_config_as_in_langgraph(client: Client) -> None:
    given = rich_config()
    expected = get_checkpoint_metadata(given, metadata(1))
    await client.put(given, checkpoint("1"), metadata(1), {})
    found = (await get(client, config())).metadata
    assert found == expected
    assert {"run_id", "user", "text", "int", "float", "bool", "mine", "step"} < set(found)
    assert found["step"] == 1


@pytest.mark.parametrize("key", ["configurable", "metadata"])
async def test_keys_of_one_request_are_not_merged(client: Client, key: str) -> None:
    """They name a user and short-lived rights, and would be stored as long as the thread."""
    given: Any = {"configurable": {"thread_id": "thread", "checkpoint_ns": ""}, "metadata": {}}
    given[key] |= {
        "langgraph_auth_user": "secret",
        "langgraph_auth_user_id": "secret",
        "langgraph_auth_permissions": "secret",
        "langgraph_auth_anything": 1,
        "langgraph_request_id": "secret",
        "langgraph_other": "merged",
    }
    await client.put(given, checkpoint("1"), metadata(1), {})
    assert (await get(client, config())).metadata == metadata(1, langgraph_other="merged")


async def test_the_callers_objects_are_not_changed(client: Client) -> None:
    given, document, meta = rich_config(), checkpoint("1", {"a": [1], "b": "small"}), metadata(1, thread_id="thread")
    await client.put(given, document, meta, dict(document["channel_versions"]))
    expected = rich_config()
    expected["configurable"]["object"] = given["configurable"]["object"]
    assert given == expected
    assert document["channel_values"] == {"a": [1], "b": "small"}
    assert meta == metadata(1, thread_id="thread")


async def test_a_thread_id_in_the_metadata_is_read(client: Client) -> None:
    """It is stored as a mark, since a copy of the thread changes it."""
    held: list[Any] = ["thread", "other", None, 5, ["thread"], [None]]
    for number, thread_id in enumerate(held):
        await put(client, str(number), meta=metadata(thread_id=thread_id))
    found = {each.checkpoint["id"]: each.metadata for each in await client.all(config())}
    for number, thread_id in enumerate(held):
        assert (await get(client, config(checkpoint_id=str(number)))).metadata == metadata(thread_id=thread_id)
        assert found[str(number)] == metadata(thread_id=thread_id)
        assert ids_of(await client.all(config(), filter={"thread_id": thread_id})) == [str(number)]
