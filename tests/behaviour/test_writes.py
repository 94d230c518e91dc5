"""Regular writes keep their first value, special ones the last; `put_writes` never touches checkpoints."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from langgraph_checkpoint_custom import CheckpointEncodeError, ConfigError
from tests.behaviour.helpers import Database, checkpoint, config, get, metadata, put
from tests.stores import Face

SPECIAL = ["__error__", "__interrupt__", "__resume__", "__scheduled__"]


async def writes(face: Face) -> list[tuple[str, str, Any]]:
    return list((await get(face, config())).pending_writes or [])


async def test_a_regular_write_keeps_its_first_value(face: Face) -> None:
    where = await put(face, "1")
    await face.put_writes(where, [("a", "first"), ("b", "first")], "task")
    await face.put_writes(where, [("a", "second"), ("b", "second"), ("c", "new")], "task")
    assert await writes(face) == [("task", "a", "first"), ("task", "b", "first"), ("task", "c", "new")]


async def test_a_special_write_keeps_its_last_value(face: Face) -> None:
    where = await put(face, "1")
    for value in ("first", "second"):
        for channel in SPECIAL:
            await face.put_writes(where, [(channel, value)], channel)
    assert await writes(face) == [(channel, channel, "second") for channel in SPECIAL]


async def test_both_kinds_in_one_call_each_keep_their_rule(face: Face) -> None:
    where = await put(face, "1")
    for value in ("first", "second"):
        await face.put_writes(where, [("a", value), ("__interrupt__", value), ("b", value)], "task")
    assert sorted(await writes(face)) == [
        ("task", "__interrupt__", "second"),
        ("task", "a", "first"),
        ("task", "b", "first"),
    ]


async def test_of_a_special_write_twice_in_one_call_the_last_stays(face: Face) -> None:
    where = await put(face, "1")
    await face.put_writes(where, [("__resume__", 1), ("__resume__", 2)], "task")
    assert await writes(face) == [("task", "__resume__", 2)]


async def test_several_writes_of_a_task_to_one_channel_all_stay(face: Face) -> None:
    where = await put(face, "1")
    await face.put_writes(where, [("a", 1), ("a", 2), ("a", 1)], "task")
    assert await writes(face) == [("task", "a", 1), ("task", "a", 2), ("task", "a", 1)]


async def test_tasks_and_namespaces_and_threads_have_writes_of_their_own(face: Face) -> None:
    places = [config("t", "1"), config("u", "1"), config("t", "1", "ns"), config("t", "2")]
    for number, where in enumerate(places):
        part = where["configurable"]
        await put(face, part["checkpoint_id"], thread_id=part["thread_id"], ns=part["checkpoint_ns"])
        for task in ("x", "y"):
            await face.put_writes(where, [("a", (task, number))], task)
    for number, where in enumerate(places):
        found = await get(face, where)
        assert found.pending_writes == [(task, "a", [task, number]) for task in ("x", "y")]


async def test_writes_may_arrive_before_their_checkpoint(face: Face) -> None:
    """LangGraph saves both in the background."""
    where = config(checkpoint_id="1")
    await face.put_writes(where, [("a", 1)], "task")
    assert await face.get_tuple(where) is None
    await put(face, "1")
    assert await writes(face) == [("task", "a", 1)]


async def test_they_never_touch_checkpoints(face: Face) -> None:
    where = await put(face, "1", {"a": [1], "b": "text"}, meta=metadata(3, mine="yes"))
    before = await get(face, where)
    await face.put_writes(where, [("a", [2]), ("__error__", "no")], "task")
    after = await get(face, where)
    assert after._replace(pending_writes=[]) == before


async def test_any_sequence_of_writes_will_do(face: Face) -> None:
    """LangGraph hands over a deque."""
    where = await put(face, "1")
    kinds: list[Any] = [list, tuple, deque]
    for kind in kinds:
        await face.put_writes(where, kind([("a", 1), ("b", None)]), kind.__name__)
    assert await writes(face) == [
        (task, channel, value) for task in ("deque", "list", "tuple") for channel, value in (("a", 1), ("b", None))
    ]


async def test_no_writes_are_no_rows(face: Face, database: Database) -> None:
    await face.put_writes(config(checkpoint_id="1"), [], "task")
    assert database.counts()["writes"] == 0


async def test_an_unserialisable_write_stores_nothing_and_names_its_channel(face: Face, database: Database) -> None:
    where = await put(face, "1")
    for value in (object(), [object()]):
        with pytest.raises(CheckpointEncodeError, match="culprit") as raised:
            await face.put_writes(where, [("fine", 1), ("culprit", value), ("also fine", 2)], "task")
        assert raised.value.__cause__ is not None
    assert database.count("writes") == 0


async def test_writes_without_a_checkpoint_id_are_refused(face: Face, database: Database) -> None:
    for checkpoint_id in (None, ""):
        with pytest.raises(ConfigError, match="checkpoint_id"):
            await face.put_writes(config(checkpoint_id=checkpoint_id), [("a", 1)], "task")
    assert database.counts()["writes"] == 0


async def test_the_config_of_the_step_before_will_do(face: Face) -> None:
    """LangGraph adds keys of its own to it."""
    where = await face.put(config(), checkpoint("1"), metadata(), {})
    where["configurable"] |= {"__pregel_task_id": "x", "user": object()}
    await face.put_writes(where, [("a", 1)], "task")
    assert await writes(face) == [("task", "a", 1)]
