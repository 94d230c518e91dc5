"""A dict of operators in a filter means the same on both databases, and everywhere that a filter is taken."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from langgraph_checkpoint_custom import ConfigError, CorruptCheckpoint, PostgresSaver, Retention, open_saver
from langgraph_checkpoint_custom.model.filter import matches, wanted
from langgraph_checkpoint_custom.operations import list_threads
from tests.behaviour.helpers import (
    Database,
    checkpoint,
    config,
    ids_of,
    metadata,
    next_uuid,
    put,
)
from tests.conftest import APIS
from tests.stores import Client, Store

AES = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")
MISSING = object()

# Everything that a key of the metadata may be, by name.
STORED: Mapping[str, Any] = {
    "missing": MISSING,
    "none": None,
    "true": True,
    "zero": 0,
    "one": 1.0,
    "tenth": 0.1,
    "a bit more": math.nextafter(0.1, 1),
    "odd": 2**53 + 1,
    "even": float(2**53),
    "big": 10**30 + 1,
    "nan": math.nan,
    "infinite": math.inf,
    "empty": "",
    "digit": "1",
    "upper": "B",
    "a": "a",
    "a space": "a b",
    "a long one": "a" + "b" * 300,
    "accent": "é",
    "private": "\ue000",
    "emoji": "🙂",
    "list": [1, 2],
    "dict": {"a": 1, "b": 2},
    "operator": {"$in": [1]},
    "date": datetime(2024, 1, 1),
}
NUMBERS = ["zero", "one", "tenth", "a bit more", "odd", "even", "big"]
TEXTS = ["empty", "digit", "upper", "a", "a space", "a long one", "accent", "private", "emoji"]


def all_but(*names: str) -> list[str]:
    return [name for name in STORED if name not in names]


MEANING: Sequence[tuple[Mapping[str, Any], Sequence[str]]] = [
    ({"$eq": 1}, ["one"]),
    ({"$eq": True}, ["true"]),
    ({"$eq": None}, ["missing", "none"]),
    ({"$eq": [1, 2]}, ["list"]),
    ({"$eq": [1]}, []),
    ({"$eq": {"b": 2, "a": 1}}, ["dict"]),
    ({"$eq": {"a": 1}}, []),
    ({"$eq": {"$in": [1]}}, ["operator"]),
    ({"$eq": "a" + "b" * 300}, ["a long one"]),
    ({"$ne": 1}, all_but("one")),
    ({"$ne": None}, all_but("missing", "none")),
    ({"$ne": {"$in": [1]}}, all_but("operator")),
    ({"$in": []}, []),
    ({"$in": [0, "a", True, {"$in": [1]}, "a" + "b" * 300]}, ["zero", "a", "true", "operator", "a long one"]),
    ({"$in": (None, 1)}, ["missing", "none", "one"]),
    ({"$nin": []}, list(STORED)),
    ({"$nin": [0, None, "🙂"]}, all_but("zero", "missing", "none", "emoji")),
    ({"$exists": True}, all_but("missing")),
    ({"$exists": False}, ["missing"]),
    ({"$gt": 0}, ["one", "tenth", "a bit more", "odd", "even", "big"]),
    ({"$gte": 0}, NUMBERS),
    ({"$gte": -1e308}, NUMBERS),
    ({"$lt": 10**400}, NUMBERS),
    ({"$gt": 0.1}, ["one", "a bit more", "odd", "even", "big"]),
    ({"$lte": 0.1}, ["zero", "tenth"]),
    ({"$gt": float(2**53)}, ["odd", "big"]),
    ({"$lt": 2**53 + 1}, ["zero", "one", "tenth", "a bit more", "even"]),
    ({"$gte": 10**30 + 1}, ["big"]),
    ({"$gt": 10**30 + 1}, []),
    ({"$gte": ""}, TEXTS),
    ({"$gt": "a"}, ["a space", "a long one", "accent", "private", "emoji"]),
    ({"$lte": "a"}, ["empty", "digit", "upper", "a"]),
    ({"$lt": "a!"}, ["empty", "digit", "upper", "a", "a space"]),
    ({"$gt": "é"}, ["private", "emoji"]),
    ({"$gte": "🙂"}, ["emoji"]),
    ({"$lt": "\ue000"}, ["empty", "digit", "upper", "a", "a space", "a long one", "accent"]),
    ({"$gt": "a\0"}, ["a space", "a long one", "accent", "private", "emoji"]),
    ({"$gt": "\ud800"}, ["private", "emoji"]),
    ({"$gte": 0, "$lt": 1, "$ne": 0.1}, ["zero", "a bit more"]),
    ({"$in": [0, 1, 2], "$gt": 0}, ["one"]),
    ({"$gt": 0, "$lt": "z"}, []),
    ({"$exists": True, "$eq": None}, ["none"]),
    ({"$eq": 1, "$in": [2]}, []),
]

REFUSED: Sequence[tuple[Any, str]] = [
    ({"$regex": ".*"}, r"'\$regex' in the filter of 'mine' is not an operator; .*\$eq, \$in.*\{'\$eq': \{…\}\} finds"),
    ({"$and": []}, r"'\$and' in the filter of 'mine' is not an operator"),
    ({"$": 1}, r"'\$' in the filter of 'mine' is not an operator"),
    ({"$GT": 1}, r"'\$GT' in the filter of 'mine' is not an operator"),
    ({"$gt": 1, "b": 2}, "'b' in the filter of 'mine' is not an operator"),
    ({"b": 2, "$gt": 1}, "'b' in the filter of 'mine' is not an operator"),
    ({"$gt": 1, 5: 2}, "5 in the filter of 'mine' is not an operator"),
    ({"$in": "ab"}, r"\$in in the filter of 'mine' takes a list of values, not str; for one value, use \$eq"),
    ({"$nin": {"a": 1}}, r"\$nin in the filter of 'mine' takes a list of values, not dict; for one value, use \$ne"),
    ({"$in": None}, r"\$in in the filter of 'mine' takes a list of values, not NoneType"),
    ({"$in": [1, {2}]}, "the filter value of 'mine' is not JSON"),
    ({"$eq": math.nan}, "the filter value of 'mine' is not JSON"),
    ({"$ne": datetime(2024, 1, 1)}, "the filter value of 'mine' is not JSON"),
    ({"$exists": 1}, r"\$exists in the filter of 'mine' takes True or False, not int"),
    ({"$exists": "true"}, r"\$exists in the filter of 'mine' takes True or False, not str"),
    ({"$exists": None}, r"\$exists in the filter of 'mine' takes True or False, not NoneType"),
    ({"$gt": None}, r"\$gt in the filter of 'mine' takes a number or a text, not NoneType"),
    ({"$gte": True}, r"\$gte in the filter of 'mine' takes a number or a text, not bool"),
    ({"$lt": {"a": 1}}, r"\$lt in the filter of 'mine' takes a number or a text, not dict"),
    ({"$lte": [1]}, r"\$lte in the filter of 'mine' takes a number or a text, not list"),
    ({"$gt": math.nan}, r"\$gt in the filter of 'mine' takes a number or a text, not NaN or infinity"),
    ({"$lt": math.inf}, r"\$lt in the filter of 'mine' takes a number or a text, not NaN or infinity"),
    ({"$gt": datetime(2024, 1, 1)}, r"\$gt .* not datetime; store and compare a time as a text in ISO format"),
]


async def put_each(client: Client, values: Mapping[str, Any], key: str = "mine") -> None:
    """A thread for each value, whose id is the value's name."""
    for name, value in values.items():
        meta = metadata() if value is MISSING else metadata(**{key: value})
        await put(client, next_uuid(), thread_id=name, meta=meta)


async def found(client: Client, filter: Mapping[str, Any]) -> set[str]:
    """The threads that a filter finds; every method finds the same."""
    listed = [one.config["configurable"]["thread_id"] for one in await client.all(None, filter=filter)]
    threads = [one.thread_id for one in await client.collect("threads", filter=filter)]
    assert threads == listed
    assert [one.thread_id for one in await client.collect("history", None, filter=filter)] == listed
    assert await client.do("count_threads", filter=filter) == len(listed)
    assert len(set(listed)) == len(listed)
    return set(listed)


async def test_each_operator_has_one_meaning(client: Client) -> None:
    await put_each(client, STORED)
    for condition, names in MEANING:
        assert await found(client, {"mine": condition}) == set(names), condition


@pytest.mark.parametrize("api", APIS)
async def test_a_wrong_operator_is_refused_before_anything_is_read(store: Store, api: str) -> None:
    seen: list[Any] = []
    with store.open(on_operation=seen.append) as saver:
        client = Client(saver, api)
        for condition, message in REFUSED:
            filter = {"step": 1, "mine": condition}
            calls = [
                client.all(config(), filter=filter),
                client.collect("threads", filter=filter),
                client.collect("history", None, filter=filter),
                client.do("count_threads", filter=filter),
            ]
            for call in calls:
                with pytest.raises(ConfigError, match=message):
                    await call
            with pytest.raises(ConfigError, match=message):
                Retention(keep_last=1, filter=filter)
        assert not seen
        assert await client.all(config()) == []
        assert seen


READ_LESS: Sequence[Mapping[str, Any]] = [
    {"mine": {"$eq": 5}},
    {"mine": {"$in": [5, 6]}},
    {"mine": {"$ne": "b"}, "another": {"$ne": "x"}},
    {"mine": {"$nin": ["b", "c"]}},
    {"mine": {"$gt": 4}},
    {"mine": {"$gte": 4.5, "$lte": 6}},
    {"mine": {"$lt": 6}},
    {"another": {"$exists": False}},
]


@pytest.mark.leaves_damage("metadata is overwritten")
async def test_the_database_rules_out_what_does_not_match(client: Client, database: Database) -> None:
    """Rows whose metadata cannot be decoded are not read."""
    await put(client, "1", meta=metadata(mine=5))
    for number, value in enumerate(("b", "c"), 2):
        await put(client, str(number), meta=metadata(mine=value, another="x"))
    assert ids_of(await client.all(config(), filter={"mine": {"$gt": "a"}})) == ["3", "2"]
    database.run("UPDATE checkpoints SET metadata = :damage WHERE checkpoint_id > '1'", damage=b"\xc1")
    for filter in READ_LESS:
        assert ids_of(await client.all(config(), filter=filter)) == ["1"], filter
    assert await client.all(config(), filter={"mine": {"$lt": "a"}}) == []
    with pytest.raises(CorruptCheckpoint):
        await client.all(config(), filter={"mine": {"$gt": "a"}})


def some_value(chance: random.Random) -> Any:
    """Values of which many are equal, close to each other, or begin in the same way."""
    kind = chance.randrange(10)
    if kind < 3:
        number = chance.choice([0, 0.1, 1, 2**53, 2**63, 10**20, 1e300, 5e-324, 1e-7, 1700000000, 1700000000.25])
        number *= chance.choice([1, 1, 1, -1])
        step = chance.choice([0, 0, 1, -1])
        return math.nextafter(number, step * math.inf) if isinstance(number, float) and step else number + step
    if kind < 7:
        letters = chance.choices(["", "a", "b", "Z", " ", "!", '"', "\\", "\0", "\n", "é", "\x7f", "\ue000", "🙂"], k=3)
        return "".join(letters) + chance.choice(["", "", "x" * 300])
    if kind < 9:
        return chance.choice([None, True, False, math.nan, -math.inf, b"a", datetime(2024, 1, 1)])
    return chance.choice([[], [1], ["a", 1.0], {}, {"a": 1}, {"a": 1, "b": None}, {"$gt": 1}])


def some_condition(chance: random.Random) -> Any:
    def given(names: str) -> Any:
        while True:
            value = some_value(chance)
            if isinstance(value, str) and chance.random() < 0.1:
                value += "\ud800"
            try:
                wanted({"": {names: [value] if names == "$in" else value}})
            except ConfigError:
                continue
            return value

    made: dict[str, Any] = {}
    for name in chance.choices(["$eq", "$ne", "$in", "$nin", "$exists", *["$gt", "$gte", "$lt", "$lte"] * 2], k=2):
        if name in ("$in", "$nin"):
            made[name] = [given("$in") for _ in range(chance.randrange(4))]
        else:
            made[name] = chance.random() < 0.5 if name == "$exists" else given(name)
        if chance.random() < 0.6:
            break
    return made if chance.random() < 0.9 or "$eq" not in made else made["$eq"]


KEYS = ["a", "b.c", "b", "*", "ü", "plain"]


@pytest.mark.parametrize(
    ("filters", "options"),
    [(200, {}), (10, {"serde": AES, "plaintext_metadata": ["plain"]})],
    ids=["readable", "encrypted"],
)
def test_random_filters_find_what_matches_in_python(
    store: Store, filters: int, options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`list`, `threads`, `history` and `count_threads` on a database, and Python on the same metadata in memory."""
    monkeypatch.setattr(list_threads, "FILTERED", 20)
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    held: dict[str, Any] = {}
    quick: Any = {"synchronous": "OFF"} if store.kind == "sqlite" else {}
    with open_saver(store.url, **quick, **options) as saver:
        contains = isinstance(saver, PostgresSaver)
        for number in range(60):
            some: Any = {key: some_value(chance) for key in KEYS if chance.random() < 0.7}
            if chance.random() < 0.5:
                some["b"] = {"c": some_value(chance)}
            held[f"t{number:03}"] = some = {**metadata(), **some}
            saver.put(config(f"t{number:03}"), checkpoint(f"{number:03}"), some, {})
        sizes = set()
        for _ in range(filters):
            filter = {key: some_condition(chance) for key in chance.sample(KEYS, chance.choice([1, 1, 2]))}
            conditions = wanted(filter)
            expected = [
                name for name in sorted(held, reverse=True) if matches(held[name], conditions, contains=contains)
            ]
            where = f"seed {seed}, {filter!r}"
            assert [one.thread_id for one in saver.history(None, filter=filter)] == expected, where
            assert saver.count_threads(filter=filter) == len(expected), where
            assert [one.thread_id for one in saver.threads(filter=filter)] == expected, where
            listed = saver.list(None, filter=filter, limit=3)
            assert [one.config["configurable"]["thread_id"] for one in listed] == expected[:3], where
            sizes.add(len(expected))
        assert len(sizes) > filters // 10


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("condition", [{"$ne": "x"}, {"$exists": False}, {"$nin": []}, None])
async def test_a_sweep_with_a_filter_leaves_threads_that_it_cannot_read(store: Store, api: str, condition: Any) -> None:
    """Nobody knows whether their metadata match."""
    old = (datetime.now(timezone.utc) - timedelta(days=40)).isoformat()
    other = EncryptedSerializer.from_pycryptodome_aes(key=b"fedcba9876543210")
    for name, serde in (("lost", other), ("read", AES)):
        with store.open(serde=serde) as saver:
            await Client(saver, api).put(config(name), {**checkpoint("1"), "ts": old}, metadata(), {})
    with store.open(serde=AES) as saver:
        client = Client(saver, api)
        done = await client.do("sweep", Retention(keep_last=1, filter={"mine": condition}))
        assert done.threads == 1
        assert (await client.do("sweep", Retention(keep_last=1))).threads == 2
