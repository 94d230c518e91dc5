"""LangGraph's own switches, and extreme arguments, work as with the official savers."""

from __future__ import annotations

import dataclasses
import logging
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pydantic
import pytest
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.postgres import PostgresSaver as OfficialPostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver as OfficialSqliteSaver

from langgraph_checkpoint_custom import CheckpointEncodeError, ConfigError, CorruptCheckpoint, Retention, SqliteSaver
from langgraph_checkpoint_custom.encoding import allowlist
from tests.behaviour.helpers import config, metadata, put
from tests.stores import Client, Store


@dataclasses.dataclass
class Listed:
    value: int


@dataclasses.dataclass
class Unlisted:
    value: int


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: int


def function(value: int) -> int:
    """Do nothing."""
    return value


@pytest.fixture(autouse=True)
def _no_warning_logged_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowlist, "_LOGGED", set())


def _is_sqlite(client: Client) -> bool:
    return isinstance(client.saver, SqliteSaver)


def values(found: Any) -> Any:
    return found.checkpoint["channel_values"]


async def test_an_unregistered_type_is_warned_about_once(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    where = await put(client, "1", {"a": [Unlisted(1), Listed(2)]})
    with caplog.at_level(logging.WARNING, "langgraph.checkpoint.serde.jsonplus"):
        for _ in range(2):
            assert values(await client.get_tuple(where)) == {"a": [Unlisted(1), Listed(2)]}
    said = [record.getMessage() for record in caplog.records if record.name == "langgraph.checkpoint.serde.jsonplus"]
    assert len(said) == 2
    for name in ("Unlisted", "Listed"):
        (one,) = (text for text in said if text.startswith(f"Deserializing unregistered type {__name__}.{name} from"))
        assert "LANGGRAPH_STRICT_MSGPACK=true" in one
        assert f"[({__name__!r}, {name!r})]" in one


async def test_with_langgraphs_allowlist_other_types_are_read_as_their_stored_fields(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    serde = JsonPlusSerializer(allowed_msgpack_modules=[Listed])
    official = JsonPlusSerializer(allowed_msgpack_modules=[Listed])
    with store.open(serde=serde) as saver:
        client = Client(saver, "sync")
        stored = [Unlisted(1), Listed(2)]
        where = await put(client, "1", {"a": stored})
        with caplog.at_level(logging.WARNING, "langgraph.checkpoint.serde.jsonplus"):
            assert values(await client.get_tuple(where)) == {"a": [{"value": 1}, Listed(2)]}
        assert official.loads_typed(official.dumps_typed(stored)) == [{"value": 1}, Listed(2)]
        assert "Blocked deserialization of" in caplog.text
        assert "Unlisted" in caplog.text
    with store.open(strict=True, allow=[Listed]) as saver:
        with pytest.raises(CorruptCheckpoint, match="Unlisted is not allowed to be read"):
            saver.get_tuple(where)
        more = saver.with_allowlist([(__name__, "Nothing")])
        with pytest.raises(CorruptCheckpoint, match="Unlisted is not allowed to be read"):
            more.get_tuple(where)


async def test_what_holds_a_type_that_the_allowlist_rejects_comes_back_as_its_stored_data(
    store: Store, client: Client
) -> None:
    """Also if it cannot be made of that: a set of a dict, a dict with one as key, a function that is a name."""
    made: Any = Unlisted
    value = [{Frozen(1)}, {(1, Frozen(1)): 2}, defaultdict(made, a=1), partial(function, 1), {Frozen(1), "a"}]
    where = await put(client, "1", {"a": value})
    with store.open(serde=JsonPlusSerializer(allowed_msgpack_modules=None)) as saver:
        one, pairs, counted, called, two = values(saver.get_tuple(where))["a"]
    assert one == [{"value": 1}]
    assert pairs == [[(1, {"value": 1}), 2]]
    assert (type(counted), counted, counted.default_factory) == (defaultdict, {"a": 1}, None)
    assert called == [f"{__name__}:function", (1,), {}, {}]
    assert "a" in two
    assert {"value": 1} in two


STRICT = """
import dataclasses, sys
from typing import Any
from langgraph.checkpoint.base import empty_checkpoint
from langgraph_checkpoint_custom import open_saver

class Holder: pass

@dataclasses.dataclass
class Unlisted:
    value: int

thread = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
with open_saver(sys.argv[1]) as saver:
    saver.setup()
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"a": [Unlisted(1)]}
    checkpoint["channel_versions"] = {"a": "1"}
    saver.put(thread, checkpoint, {}, {"a": "1"})
    print(saver.get_tuple(thread).checkpoint["channel_values"]["a"])
"""


def test_strict_msgpack_of_the_environment(tmp_path: Path) -> None:
    for strict, expected in (("true", "[{'value': 1}]"), ("false", "[Unlisted(value=1)]")):
        done = subprocess.run(
            [sys.executable, "-c", STRICT, f"sqlite:///{tmp_path / strict}.db"],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, "LANGGRAPH_STRICT_MSGPACK": strict},
        )
        assert (done.returncode, done.stdout.strip()) == (0, expected), done.stderr
        assert ("Blocked deserialization" if strict == "true" else "Deserializing unregistered") in done.stderr


class Refusal(ValueError):
    """A custom error."""


class Refusing(JsonPlusSerializer):
    reads = True

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        if obj == ["forbidden"]:
            raise Refusal("this may not be stored")
        return super().dumps_typed(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        if not self.reads:
            raise Refusal("the server with the keys is down")
        return super().loads_typed(data)


@pytest.mark.parametrize("api", ["sync", "async"])
async def test_an_error_that_a_custom_serializer_raises_on_writing_is_not_wrapped(store: Store, api: str) -> None:
    with store.open(serde=Refusing()) as saver:
        client = Client(saver, api)
        where = await put(client, "1", {"a": ["fine"]})
        for attempt in (
            lambda: put(client, "2", {"a": ["forbidden"]}, parent=where),
            lambda: client.put_writes(where, [("a", ["forbidden"])], "task"),
        ):
            with pytest.raises(Refusal, match="this may not be stored") as raised:
                await attempt()
            if sys.version_info >= (3, 11):
                (note,) = raised.value.__notes__
                assert note.endswith("to channel 'a' cannot be serialised; nothing was stored") or note == (
                    "the value of channel 'a' cannot be serialised; nothing was stored"
                )
        found = await client.get_tuple(config())
        assert found is not None
        assert values(found) == {"a": ["fine"]}
        assert found.pending_writes == []
        with pytest.raises(CheckpointEncodeError, match="channel 'a'"):
            await put(client, "2", {"a": [lambda: None]})


@pytest.mark.parametrize("api", ["sync", "async"])
async def test_an_error_that_a_custom_serializer_raises_on_reading_is_not_wrapped(store: Store, api: str) -> None:
    serde = Refusing()
    with store.open(serde=serde) as saver:
        client = Client(saver, api)
        where = await put(client, "1", {"a": ["fine"]})
        serde.reads = False
        for attempt in (
            lambda: client.get_tuple(where),
            lambda: client.collect("list", where),
            lambda: client.collect("threads"),
        ):
            with pytest.raises(Refusal, match="the server with the keys is down") as raised:
                await attempt()
            if sys.version_info >= (3, 11):
                (note,) = raised.value.__notes__
                assert "checkpoint '" in note
                assert "a stored value cannot be read (Refusal)" in note
        # Data that it cannot read can still be deleted.
        assert (await client.do("sweep", Retention(keep_last=1))).threads == 1


class Numbered(pydantic.BaseModel):
    """A model whose error quotes the wrong value."""

    number: int


class Checking(JsonPlusSerializer):
    """A serializer that checks numbers when it writes them, when it reads them, or never."""

    when = ""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        if self.when == "writing" and isinstance(obj, dict) and "number" in obj:
            Numbered(**obj)
        return super().dumps_typed(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        obj = super().loads_typed(data)
        if self.when == "reading" and isinstance(obj, dict) and "number" in obj:
            Numbered(**obj)
        return obj


@pytest.mark.parametrize("api", ["sync", "async"])
async def test_a_value_quoted_in_an_error_of_the_serializer_is_not_displayed(store: Store, api: str) -> None:
    serde = Checking()
    with store.open(serde=serde) as saver:
        client = Client(saver, api)
        secret = {"number": "topsecret"}
        where = await put(client, "1", {"a": secret})
        await client.put_writes(where, [("a", secret)], "task")
        serde.when = "writing"
        for attempt in (
            lambda: put(client, "2", {"a": secret}, parent=where),
            lambda: client.put_writes(where, [("a", secret)], "another task"),
        ):
            with pytest.raises(CheckpointEncodeError, match="ValidationError: number: int_parsing") as unwritten:
                await attempt()
            assert "topsecret" not in str(unwritten.value)
        serde.when = "reading"
        with pytest.raises(CorruptCheckpoint, match="ValidationError: number: int_parsing") as unread:
            await client.get_tuple(config())
        assert "topsecret" not in str(unread.value)
        serde.when = "never"
        found = await client.get_tuple(config())
        assert found is not None
        assert values(found) == {"a": secret}
        assert found.pending_writes == [("task", "a", secret)]


@pytest.fixture
def official(client: Client, request: pytest.FixtureRequest) -> Iterator[Client]:
    """LangGraph's saver of the same database."""
    if _is_sqlite(client):
        with OfficialSqliteSaver.from_conn_string(":memory:") as saver:
            yield Client(saver, "sync")
    else:
        with OfficialPostgresSaver.from_conn_string(request.getfixturevalue("own_postgres_url")) as saver:
            saver.setup()
            yield Client(saver, "sync")


async def _copied(client: Client, official: Client) -> None:
    """Copy everything from our saver to the official one, oldest first."""
    for one in reversed(await client.all(None, limit=None)):
        location: Any = one.parent_config or {"configurable": {**one.config["configurable"], "checkpoint_id": None}}
        await official.put(location, one.checkpoint, one.metadata, {})


def _ids(found: Iterable[CheckpointTuple]) -> list[tuple[str, str]]:
    return [(one.config["configurable"]["thread_id"], one.checkpoint["id"]) for one in found]


async def test_extreme_limit_and_before_work_as_in_the_official_saver(client: Client, official: Client) -> None:
    """A negative limit is an error on the official PostgreSQL saver; ours returns nothing, as `InMemorySaver` does."""
    for number in range(3):
        await put(client, str(number), parent=config(checkpoint_id=str(number - 1)) if number else None)
    await _copied(client, official)
    for limit in (0, -1, -5, 1, 2, 3, 4, None):
        expected = []
        if _is_sqlite(client) or limit is None or limit >= 0:
            expected = _ids(await official.all(config(), limit=limit))
        assert _ids(await client.all(config(), limit=limit)) == expected, limit
        assert len(await client.collect("history", config(), limit=limit)) == len(expected)
    befores: list[Any] = [config(), {"configurable": {}}, config(checkpoint_id="1"), config(checkpoint_id="0"), None]
    for before in befores:
        expected = _ids(await official.all(config(), before=before))
        assert _ids(await client.all(config(), before=before)) == expected, before


NESTED: list[Any] = [
    {},
    {"b": 1},
    {"b": 1, "c": [1, 2]},
    {"b": {"c": {"d": 1, "e": 2}}},
    {"b": {"c": {}}},
    {"b": None},
    [],
    [1],
    [1, 2],
    [2, 1, 1],
    [[1, 2], [3]],
    [[1]],
    [{"b": 1}],
    [{"b": 1, "c": 2}, 5],
    [None, True],
    ["1"],
    [1.0],
    "b",
    1,
    True,
]


async def test_dicts_and_lists_in_a_filter_find_what_the_official_saver_finds(client: Client, official: Client) -> None:
    """On PostgreSQL, values that contain them; on SQLite, values that equal them. Each is compared with each."""
    for number, value in enumerate(NESTED):
        await put(client, f"{number:02}", meta=metadata(mine=value), thread_id=str(number))
    await _copied(client, official)
    for given in NESTED:
        if _is_sqlite(client) and (given in (1, True, [1.0], [1]) or given == [None, True]):
            continue  # For SQLite's JSON, true is 1, and 1.0 is not 1.
        expected = set(_ids(await official.all(None, filter={"mine": given})))
        found = _ids(await client.all(None, filter={"mine": given}))
        assert (set(found), len(found)) == (expected, len(expected)), given
        threads = {thread_id for thread_id, _ in expected}
        assert {one.thread_id for one in await client.collect("threads", filter={"mine": given})} == threads
        assert {one.thread_id for one in await client.collect("history", None, filter={"mine": given})} == threads
        assert await client.do("count_threads", filter={"mine": given}) == len(threads)


@pytest.mark.parametrize("limit", ["3", 1.5, [1]])
async def test_a_limit_that_is_not_a_number_is_refused(client: Client, limit: Any) -> None:
    for name in ("list", "threads", "history"):
        arguments = () if name == "threads" else (None,)
        with pytest.raises(ConfigError, match="limit must be a whole number or None"):
            await client.collect(name, *arguments, limit=limit)


@pytest.mark.parametrize("filter", ["x", ["source"], 5])
async def test_a_filter_that_is_not_a_dict_is_refused(client: Client, filter: Any) -> None:
    for name in ("list", "threads", "history"):
        arguments = () if name == "threads" else (None,)
        with pytest.raises(ConfigError, match="a filter is a dict"):
            await client.collect(name, *arguments, filter=filter)
    with pytest.raises(ConfigError, match="a filter is a dict"):
        await client.do("count_threads", filter=filter)


DOTTED: list[dict[str, Any]] = [
    {"writes.node.a": 1},
    {"writes.node.a": 2},
    {"writes.node": {"a": 1}},
    {"writes.node.b": None},
    {"writes.nothing": None},
    {"source": "loop", "writes.node.a": 1},
    {"source.more": "loop"},
]


async def test_dotted_keys_match_nested_values(client: Client) -> None:
    """As in the official SQLite saver, which gave these answers; the official PostgreSQL saver finds nothing here."""
    await put(client, "1", meta=metadata(writes={"node": {"a": 1}}), thread_id="1")
    await put(client, "1", meta=metadata(writes={"node": {"a": 2}}), thread_id="2")
    await put(client, "1", meta=metadata(), thread_id="3")
    with OfficialSqliteSaver.from_conn_string(":memory:") as official:
        theirs = Client(official, "sync")
        for one in reversed(await client.all(None)):
            await theirs.put(one.config, one.checkpoint, one.metadata, {})
        for filter in DOTTED:
            expected = {one.config["configurable"]["thread_id"] for one in official.list(None, filter=filter)}
            found = [one.config["configurable"]["thread_id"] for one in await client.all(None, filter=filter)]
            assert (set(found), len(found)) == (expected, len(expected)), filter
            assert {one.thread_id for one in await client.collect("threads", filter=filter)} == expected
            assert {one.thread_id for one in await client.collect("history", None, filter=filter)} == expected
            assert await client.do("count_threads", filter=filter) == len(expected)


async def test_a_key_that_contains_a_dot_is_matched_first(client: Client) -> None:
    held: Any = {"a.b": 1, "a": {"b": 2}}
    await put(client, "1", meta=metadata(**held))
    assert len(await client.all(None, filter={"a.b": 1})) == 1
    assert await client.all(None, filter={"a.b": 2}) == []
