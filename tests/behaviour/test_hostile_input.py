"""Names and values from outside are data: they match what is equal to them, and nothing else."""

from __future__ import annotations

from contextlib import closing

import pytest

from langgraph_checkpoint_custom import CheckpointError, ConfigError
from langgraph_checkpoint_custom.model.keys import MAX_NAME
from tests.behaviour.helpers import Database, anywhere, config, get, ids_of, metadata, put
from tests.conftest import APIS
from tests.stores import Client, Store

NASTY = [
    "a",
    "A",
    "a ",
    " a",
    "á",
    "a\u0301",
    "а",  # The Cyrillic one.
    "a%",
    "a_",
    "a*",
    "%",
    "_",
    "'",
    '"',
    "''",
    "a'; DROP TABLE checkpoints; --",
    "' OR '1'='1",
    "%s",
    "%(thread_id)s",
    ":thread_id",
    "$1",
    "?",
    "{}",
    "{0}",
    "$.a",
    "$",
    "[0]",
    "a.b",
    "a[0]",
    "\\",
    "\\'",
    "\n",
    "a\nb",
    "\r\n",
    "\t",
    "null",
    "true",
    "1",
    "01",
    "1.0",
    "{}",
    '{"a": 1}',
    "a:b",
    "a|b",
    "a\x1f",
    "\x7f",
    "🙂",
    "\u202e",
    "ﬁ",
    "K",  # The Kelvin sign.
    "../../etc/passwd",
    "langgraph_checkpoint",
    "x" * 200,
]
NASTY = list(dict.fromkeys(NASTY))
WORDS = ("select", "insert", "delete", "update", "where", "from langgraph", "langgraph_checkpoint.")


async def test_any_text_works_as_thread_namespace_and_checkpoint(client: Client) -> None:
    for name in NASTY:
        where = await put(client, name, {"c": [name]}, thread_id=name, ns=name, meta=metadata(run_id=name, mine=name))
        await client.put_writes(where, [(name, name)], name, name)
    for name in NASTY:
        here = config(name, name, name)
        for where in (here, config(name, ns=name)):
            found = await get(client, where)
            assert found.config == here
            assert found.checkpoint["channel_values"] == {"c": [name]}
            assert found.pending_writes == [(name, name, name)]
        assert ids_of(await client.all(anywhere(name))) == [name]
        assert ids_of(await client.all(config(name, ns=name), filter={"mine": name})) == [name]
        assert ids_of(await client.all(None, filter={"mine": name, "run_id": name})) == [name]
        assert await client.all(anywhere(name), filter={name: name}) == []
    assert len(await client.all(None)) == len(NASTY)


async def test_threads_that_look_alike_are_pruned_copied_and_deleted_separately(client: Client) -> None:
    for name in NASTY:
        first = await put(client, "1", {"a": [1]}, thread_id=name)
        await put(client, "2", {"a": [2]}, thread_id=name, parent=first)
    left = dict.fromkeys(NASTY, 2)
    for number, name in enumerate(NASTY):
        if number % 3 == 0:
            await client.prune([name])
            left[name] = 1
        elif number % 3 == 1:
            await client.delete_thread(name)
            left[name] = 0
        else:
            await client.copy_thread(name, f"copy of {name}")
            left[f"copy of {name}"] = 2
        if number % 10 == 0:
            assert {each: len(await client.all(anywhere(each))) for each in left} == left
    assert {each: len(await client.all(anywhere(each))) for each in left} == left


async def test_a_thread_and_a_namespace_are_never_read_as_one_name(client: Client) -> None:
    pairs = [("a:b", "c"), ("a", "b:c"), ("a:b:c", ""), ("a|b", "c"), ("a", "b|c"), ("a b", ""), ("a", "b")]
    for number, (thread_id, ns) in enumerate(pairs):
        await put(client, str(number), thread_id=thread_id, ns=ns)
    for number, (thread_id, ns) in enumerate(pairs):
        assert ids_of(await client.all(config(thread_id, ns=ns))) == [str(number)]
    await client.delete_thread("a")
    assert ids_of(await client.all(None)) == ["5", "3", "2", "0"]


async def test_an_error_about_a_name_contains_no_sql(client: Client) -> None:
    for bad in ("nul\0" + "'; DROP TABLE x; --", "x" * (MAX_NAME + 1), "\ud800'"):
        for call in (
            client.get_tuple(config(bad)),
            client.all(config("thread", bad)),
            client.all(config(ns=bad)),
            client.delete_thread(bad),
            client.delete_for_runs([bad]),
            client.copy_thread("a", bad),
            client.history(config(), [bad]),
            client.put_writes(config(checkpoint_id="1"), [(bad, 1)], "task"),
        ):
            with pytest.raises(ConfigError) as raised:
                await call
            assert not [word for word in WORDS if word in str(raised.value).lower()]


@pytest.mark.leaves_damage("a column is renamed")
@pytest.mark.parametrize("api", APIS)
async def test_an_error_of_the_database_contains_no_sql(own_store: Store, api: str) -> None:
    with own_store.open() as saver:
        client = Client(saver, api)
        saver.setup()
        await put(client, "1")
        with closing(Database(own_store).connect()) as connection:
            if own_store.kind == "sqlite":
                connection.execute("DROP VIEW checkpoints_readable")  # SQLite does not rename what a view shows.
            connection.execute("ALTER TABLE checkpoints RENAME COLUMN parent_id TO renamed")
            connection.commit()
        with pytest.raises(CheckpointError) as raised:
            await client.get_tuple(config())
        assert not [word for word in WORDS if word in str(raised.value).lower()]
