"""Checkpoints older than format 4 have their pending sends in the parent's writes, and load with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.postgres import PostgresSaver as OfficialPostgresSaver
from langgraph.checkpoint.serde.types import TASKS
from langgraph.types import Send
from psycopg.rows import dict_row

from tests.behaviour.helpers import config, get, put
from tests.stores import Client

SENDS = [Send("a", 1), Send("b", {"x": [2]}), Send("c", None), Send("d", "last")]


async def put_old_thread(client: Client, v: int) -> None:
    """A parent whose tasks sent something, in another order than that of their paths; the last one's sent nothing."""
    parent = await put(client, "1", {"x": [1]}, versions={"x": "1.1"}, v=v)
    await client.put_writes(parent, [(TASKS, SENDS[2]), ("x", [0]), (TASKS, SENDS[3])], "task b", "~path 2")
    await client.put_writes(parent, [(TASKS, SENDS[1])], "task c", "~path 1")
    await client.put_writes(parent, [(TASKS, SENDS[0])], "task z", "")
    child = await put(client, "2", {"x": [2]}, parent=parent, versions={"x": "3.1", "y": "2.1"}, v=v)
    await client.put_writes(child, [(TASKS, Send("next", 1))], "task")
    quiet = await put(client, "3", {"x": [3]}, parent=child, versions={"x": "4.1"}, v=v)
    await put(client, "4", {"x": [4]}, parent=quiet, versions={"x": "5.1"}, v=v)


async def test_a_checkpoint_without_versions_gets_a_first_one(client: Client) -> None:
    parent = await put(client, "1", v=1)
    await client.put_writes(parent, [(TASKS, SENDS[0])], "task")
    await put(client, "2", parent=parent, v=1)
    found = (await get(client, config())).checkpoint
    assert found["channel_values"] == {TASKS: SENDS[:1]}
    (version,) = found["channel_versions"].values()
    assert str(version).startswith(f"{1:032d}.")


async def test_pending_sends_of_other_namespaces_are_not_loaded(client: Client) -> None:
    """LangGraph's own saver loads them."""
    for ns in ("", "sub"):
        parent = await put(client, "1", ns=ns, v=1)
        if ns:
            await client.put_writes(parent, [(TASKS, SENDS[0])], "task")
        await put(client, "2", ns=ns, parent=parent, v=1)
    assert (await get(client, config())).checkpoint["channel_values"] == {}
    assert (await get(client, config(ns="sub"))).checkpoint["channel_values"] == {TASKS: SENDS[:1]}


@pytest.fixture
def official(own_postgres_url: str) -> Iterator[OfficialPostgresSaver]:
    """LangGraph's own saver, whose tables are in another schema."""
    with psycopg.connect(own_postgres_url, autocommit=True, row_factory=dict_row) as connection:
        saver = OfficialPostgresSaver(connection)
        saver.setup()
        yield saver


def comparable(found: CheckpointTuple) -> Any:
    return found.config, found.checkpoint, found.metadata, found.parent_config, found.pending_writes


@pytest.mark.parametrize("v", [1, 2, 3, 4])
async def test_old_checkpoints_load_as_in_langgraphs_own_saver(
    client: Client, official: OfficialPostgresSaver, v: int
) -> None:
    theirs = Client(official, "sync")
    for each in (client, theirs):
        await put_old_thread(each, v)
    for where in (config(), *(config(checkpoint_id=each) for each in "123")):
        assert comparable(await get(client, where)) == comparable(await get(theirs, where))
    ours, official_list = await client.all(config()), await theirs.all(config())
    assert [comparable(found) for found in ours] == [comparable(found) for found in official_list]
