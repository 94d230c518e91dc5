"""A filter matches what equals the given value as JSON; on PostgreSQL, also a dict or list that contains it."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple

import pytest

from langgraph_checkpoint_custom import ConfigError, open_saver
from langgraph_checkpoint_custom.saver import PAGE
from tests.behaviour.helpers import config, ids_of, metadata, put
from tests.proxy import proxied
from tests.stores import Client


class Colour(str, Enum):
    RED = "red"


class Pair(NamedTuple):
    stored: Any
    given: Any


ESSAY = "an essay " * 100
EQUAL = [
    Pair("a", "a"),
    Pair("", ""),
    Pair('it\'s "quoted" \\ \n', 'it\'s "quoted" \\ \n'),
    Pair("nul \0 in it", "nul \0 in it"),
    Pair("naïve 🙂", "naïve 🙂"),
    Pair("5", "5"),
    Pair("null", "null"),
    Pair("true", "true"),
    Pair(5, 5),
    Pair(1.0, 1),
    Pair(1, 1.0),
    Pair(-0.0, 0),
    Pair(1e22, 10**22),
    Pair(0.1, 0.1),
    Pair(1e300, 1e300),
    Pair(2**63, 2**63),
    Pair(True, True),
    Pair(False, False),
    Pair(None, None),
    Pair([], []),
    Pair([1, "a", None, [True]], [1, "a", None, [True]]),
    Pair((1, 2), [1, 2]),
    Pair([1, 2], (1, 2)),
    Pair({}, {}),
    Pair({"a": 1, "b": [2]}, {"b": [2], "a": 1}),
    Pair({"a": 1.0}, {"a": 1}),
    Pair(Colour.RED, "red"),
    Pair(ESSAY, ESSAY),
    Pair([ESSAY, 1], [ESSAY, 1.0]),
    Pair("%", "%"),
    Pair("a_b", "a_b"),
]
DIFFERENT = [
    Pair("a", "A"),
    Pair("a", "a "),
    Pair("5", 5),
    Pair(5, "5"),
    Pair(1, True),
    Pair(True, 1),
    Pair(0, False),
    Pair("true", True),
    Pair("null", None),
    Pair("", None),
    Pair(0, None),
    Pair([], None),
    Pair(None, ""),
    Pair(None, False),
    Pair([1], 1),
    Pair({"a": 1}, {"a": 1, "b": None}),
    Pair({"a": {"b": 1}}, {"a": {"b": 2}}),
    Pair(0.1, 0.1000001),
    Pair("ab", "a_"),
    Pair("ab", "%"),
    Pair("ab", "a*"),
    Pair(ESSAY, ESSAY + "!"),
    Pair(float("nan"), None),
    Pair(float("inf"), None),
    Pair(datetime(2024, 1, 1), None),
    Pair(datetime(2024, 1, 1), "2024-01-01T00:00:00"),
    Pair({1, 2}, [1, 2]),
    Pair(b"a", "a"),
]
KEYS = [
    "",
    " ",
    "*",
    "%2A",
    "$",
    "$.a",
    "a.b",
    "a[0]",
    "it's",
    'with "quotes"',
    "back\\slash",
    "'; DROP TABLE checkpoints; --",
    ":a",
    "%s",
    "%(a)s",
    "?",
    "{}",
    "nul\0",
    "naïve 🙂",
    "null",
    "thread_id",
    "run_id",
    "source",
    "k" * 3000,
]


async def test_equal_as_json_matches(client: Client) -> None:
    for number, pair in enumerate(EQUAL):
        await put(client, str(number), meta=metadata(0, **{f"key {number}": pair.stored}))
    for number, pair in enumerate(EQUAL):
        if pair.given is not None:
            assert ids_of(await client.all(config(), filter={f"key {number}": pair.given})) == [str(number)], pair
        else:
            assert str(number) in ids_of(await client.all(config(), filter={f"key {number}": None}))


async def test_different_as_json_does_not_match(client: Client) -> None:
    for number, pair in enumerate(DIFFERENT):
        await put(client, str(number), meta=metadata(0, **{f"key {number}": pair.stored}))
    for number, pair in enumerate(DIFFERENT):
        assert str(number) not in ids_of(await client.all(config(), filter={f"key {number}": pair.given})), pair


async def test_a_lone_surrogate_matches_nothing(client: Client) -> None:
    """It cannot be stored."""
    await put(client, "1", meta=metadata(mine="half ?"))
    assert ids_of(await client.all(config(), filter={"mine": "half ?"})) == ["1"]
    assert ids_of(await client.all(config(), filter={"mine": "half \ud800"})) == []


async def test_any_text_may_be_a_key(client: Client) -> None:
    for number, key in enumerate(KEYS):
        await put(client, f"{number:02}", meta=metadata(0, **{key: f"value of {number}"}))
    for number, key in enumerate(KEYS):
        assert ids_of(await client.all(config(), filter={key: f"value of {number}"})) == [f"{number:02}"], key
        assert await client.all(config(), filter={key: "another"}) == []
        missing = await client.all(config(), filter={key: None})
        if key != "source":
            assert len(missing) == len(KEYS) - 1, key


async def test_a_value_that_is_not_json_is_refused(client: Client) -> None:
    await put(client, "1")
    itself: list[Any] = []
    itself.append(itself)
    for given in (object(), b"a", {1}, datetime(2024, 1, 1), float("nan"), -float("inf"), {1: 2}, [{"a": {2}}], itself):
        with pytest.raises(ConfigError, match="'mine'"):
            pytest.fail(f"{given!r}: {await client.all(config(), filter={'mine': given})}")


async def test_a_key_that_is_not_text_is_refused(client: Client) -> None:
    bad: Any = {5: "a"}
    with pytest.raises(ConfigError, match="int"):
        await client.all(config(), filter=bad)


async def test_metadata_that_json_cannot_represent_does_not_hide_the_rest(client: Client) -> None:
    odd: Any = {7: "int key", "mine": "yes", "nan": float("nan"), "when": datetime(2024, 1, 1), "raw": b"\0"}
    where = await put(client, "1", meta=odd)
    (found,) = await client.all(config(), filter={"mine": "yes"})
    assert found.config == where
    assert found.metadata[7] == "int key"  # type: ignore[literal-required]


async def test_a_filter_that_the_database_cannot_decide_reads_full_pages(postgres_url: str, api: str) -> None:
    """The client compares a long value. A small limit must not cost one round trip per checkpoint."""
    with proxied(postgres_url) as proxy, open_saver(proxy.url) as saver:
        client = Client(saver, api)
        for number in range(2 * PAGE):
            await put(client, f"{number:03}", meta=metadata(mine=ESSAY + str(number == 0)))
        before = proxy.round_trips
        found = await client.all(config(), filter={"mine": ESSAY + "True"}, limit=1)
        assert ids_of(found) == ["000"]
        assert proxy.round_trips - before <= 6
