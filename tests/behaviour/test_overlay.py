"""An overlay reads from a saver and stores in memory, and writes nothing to the saver.

Real graphs over overlays are in `tests/graphs/test_scenarios.py`.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import INTERRUPT, RESUME

from langgraph_checkpoint_custom import ConfigError, overlay
from tests.behaviour.helpers import (
    LONG,
    Database,
    NextId,
    anywhere,
    config,
    default_walk,
    delta_history,
    get,
    id_of,
    ids_of,
    metadata,
    next_uuid,
    put,
    put_chain,
    put_delta_chain,
)
from tests.stores import Client


def over(client: Client) -> Client:
    return Client(overlay(client.saver), client.api)


async def test_an_overlay_writes_nothing_to_the_saver_below(
    client: Client, database: Database, next_id: NextId
) -> None:
    chained = await put_chain(client, next_id, 3, values={"v": [LONG]})
    await client.put_writes(chained[2], [("v", 1)], "task")
    before = sorted(database.cells())
    trial = over(client)
    assert await trial.all(anywhere()) == await client.all(anywhere())
    newest = await get(trial, config())
    versions = newest.checkpoint["channel_versions"]
    # An unchanged value is readable although only the saver below has it.
    where = await put(trial, next_id(), {"v": [LONG]}, parent=newest.config, versions=versions, new={})
    await trial.put_writes(where, [("v", 2)], "task")
    await trial.put_writes(chained[2], [("v", 2), ("w", 3)], "task")
    await trial.put_writes(chained[2], [("w", 4)], "another")
    found = await get(trial, config())
    assert (found.config, found.parent_config) == (where, chained[2])
    assert found.checkpoint["channel_values"] == {"v": [LONG]}
    assert found.pending_writes == [("task", "v", 2)]
    # Writes that exist stay.
    assert (await get(trial, chained[2])).pending_writes == [("another", "w", 4), ("task", "v", 1), ("task", "w", 3)]
    assert sorted(database.cells()) == before


@pytest.mark.parametrize("below", ["ours", "memory"])
async def test_lists_include_both_stores(client: Client, below: str) -> None:
    base = client if below == "ours" else Client(InMemorySaver(), client.api)
    trial = over(base)
    configs: list[RunnableConfig] = []
    for step in range(12):
        chosen = trial if step % 3 else base
        parent = configs[-1] if configs else None
        configs.append(await put(chosen, next_uuid(), {"n": step}, parent=parent, meta=metadata(step, odd=step % 2)))
    for limit in (None, 0, 1, 5, 100):
        found = await trial.all(anywhere(), limit=limit)
        assert [each.checkpoint["channel_values"]["n"] for each in found] == list(range(11, -1, -1))[:limit]
    assert ids_of(await trial.all(anywhere(), before=configs[5], limit=3)) == ids_of(configs[4:1:-1])
    assert ids_of(await trial.all(anywhere(), filter={"odd": 1})) == ids_of(configs[11::-2])
    assert ids_of(await trial.all(configs[4])) == ids_of(configs[4:5])
    assert ids_of(await trial.all(configs[3])) == ids_of(configs[3:4])
    assert len(await trial.all(None)) == 12
    assert len(await base.all(None)) == 4
    # A checkpoint that is stored again is listed once.
    await put(trial, id_of(configs[3]), {"n": 33})
    found = await trial.all(anywhere(), limit=9)
    assert [each.checkpoint["channel_values"]["n"] for each in found] == [11, 10, 9, 8, 7, 6, 5, 4, 33]


async def test_a_deleted_thread_is_deleted_in_the_overlay_only(client: Client, next_id: NextId) -> None:
    where = await put(client, next_id(), {"v": [1]})
    await put(client, next_id(), thread_id="other")
    trial = over(client)
    await put(trial, next_id(), {"v": [2]}, parent=where)
    await trial.delete_thread("thread")
    assert await trial.get_tuple(config()) is None
    assert await trial.get_tuple(where) is None
    assert await trial.all(anywhere()) == []
    assert [each.config["configurable"]["thread_id"] for each in await trial.all(None)] == ["other"]
    assert await trial.history(where, ["v"]) == {"v": {"writes": []}}
    stored_again = await put(trial, next_id(), {"v": [3]})
    assert ids_of(await trial.all(anywhere())) == ids_of([stored_again])
    assert ids_of(await client.all(anywhere())) == ids_of([where])


async def test_special_writes_are_replaced_and_all_writes_are_in_order(client: Client, next_id: NextId) -> None:
    where = await put(client, next_id())
    await client.put_writes(where, [("a", 1)], "one", "~1")
    await client.put_writes(where, [(INTERRUPT, "first")], "two", "~2")
    await client.put_writes(where, [("a", 3)], "three", "~3")
    trial = over(over(client))
    await trial.put_writes(where, [(INTERRUPT, "second"), (RESUME, "yes")], "two", "~2")
    await trial.put_writes(where, [("x", 0), ("a", 2)], "two", "~2")
    expected = [
        ("one", "a", 1), ("two", RESUME, "yes"), ("two", INTERRUPT, "second"), ("two", "x", 0), ("two", "a", 2),
        ("three", "a", 3),
    ]  # fmt: skip
    assert (await get(trial, where)).pending_writes == expected
    assert [found.pending_writes for found in await trial.all(anywhere())] == [expected]
    assert (await get(over(trial), where)).pending_writes == expected
    assert len((await get(client, where)).pending_writes or []) == 3


async def test_histories_continue_in_the_saver_below(client: Client, next_id: NextId) -> None:
    configs = await put_delta_chain(client, next_id, 5, {1})
    trial = over(client)
    assert await trial.history(configs[4], ["delta"]) == {"delta": delta_history(1, 4)}
    meta = metadata(5, counters_since_delta_snapshot={"delta": [1, 1]})
    where = await put(trial, next_id(), parent=configs[4], versions={"delta": "9"}, meta=meta)
    expected = {"delta": delta_history(1, 5)}
    assert await trial.history(where, ["delta"]) == expected
    assert await default_walk(trial, where, ["delta"]) == expected
    await trial.put_writes(configs[4], [("delta", "more")], "task 9", "path 9")
    assert (await trial.history(where, ["delta"]))["delta"]["writes"][-1] == ("task 9", "delta", "more")


async def test_an_overlay_stores_copies_of_values(client: Client, next_id: NextId) -> None:
    trial = over(client)
    value: dict[str, Any] = {"list": [1]}
    where = await put(trial, next_id(), {"v": value})
    value["list"].append(2)
    found = await get(trial, where)
    assert found.checkpoint["channel_values"] == {"v": {"list": [1]}}
    found.checkpoint["channel_values"]["v"]["list"].append(3)
    # A clone, as LangGraph makes it, reads and stores the same.
    clone = Client(copy.copy(trial.saver), client.api)
    assert (await get(clone, where)).checkpoint["channel_values"] == {"v": {"list": [1]}}
    later = await put(clone, next_id(), {"v": 2}, parent=where)
    assert ids_of([await get(trial, config())]) == ids_of([later])
    assert trial.saver.get_next_version(None, None) > ""
    with pytest.raises(ConfigError, match="checkpoint_id"):
        await trial.put_writes(config(), [("v", 1)], "task")


def test_an_allowlist_reaches_the_saver_below() -> None:
    class Below(InMemorySaver):
        asked: Any = None

        def with_allowlist(self, extra_allowlist: Any) -> BaseCheckpointSaver[str]:
            clone = Below()
            clone.asked = extra_allowlist
            return clone

    trial = overlay(Below()).with_allowlist([("builtins", "complex")])
    below: Any = trial._base
    assert below.asked == [("builtins", "complex")]
