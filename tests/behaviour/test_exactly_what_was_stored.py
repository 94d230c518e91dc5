"""A value is read equal and of the same type, whatever it contains and wherever it is stored."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict, defaultdict, deque
from datetime import timedelta, timezone
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as np_st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.types import INTERRUPT, _DeltaSnapshot
from langgraph.types import Command, Interrupt, Send

from langgraph_checkpoint_custom import CheckpointEncodeError, open_saver
from tests.behaviour.helpers import Database, checkpoint, config, get, metadata, next_uuid, put
from tests.core.models import Aliased, Holding, Inner, More, Numbers, Old, Rewritten, Shown, Tree, new
from tests.core.objects import Color, Location, Normalised, Pair, Rights, Slotted
from tests.core.test_leaves import RECORD, Plain
from tests.exactly import same
from tests.stores import Client, Store
from tests.table.classes import Level, Word

zones = st.sampled_from([None, timezone.utc, timezone(timedelta(hours=-3, minutes=-30)), ZoneInfo("Europe/Berlin")])
text = st.text(st.characters(), max_size=20) | st.sampled_from(["nul\0nul", "a\r\nb", "🙂", "x" * 300])
hashable = st.one_of(
    st.none(),
    st.integers(-(2**80), 2**80),
    text,
    st.binary(max_size=9),
    st.uuids(),
    st.sampled_from([Color.RED, Color.PAIR, *Rights, *Word, *Level]),
    st.fractions(),
    st.complex_numbers(),
    st.builds(range, st.integers(-(2**70), 2**70), st.integers(-9, 9), st.just(3)),
    st.builds(PurePosixPath, st.text(st.characters(exclude_characters="\0"), max_size=9)),
    st.builds(np.int64, st.integers(-(2**63), 2**63 - 1)),
    st.builds(np.float32, st.floats(width=32, allow_nan=False)),
    st.sampled_from([np.str_("a"), np.bool_(False), np.datetime64("2024-02-29"), ..., int, Location]),
)
scalars = st.one_of(
    hashable,
    st.booleans(),
    st.floats(),
    st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 1e22, 1e16, 5e-324]),
    st.datetimes(timezones=zones),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.decimals(),
    st.frozensets(hashable | st.tuples(hashable, hashable), max_size=3),
    st.sets(hashable | st.tuples(hashable, st.tuples(hashable)), max_size=3),
    st.builds(lambda items: np.fromiter([*items, None], dtype=object), st.lists(hashable, max_size=3)),
    st.just(np.ma.array([1, 2, 3], mask=[False, True, False], fill_value=9)),
    np_st.arrays(st.sampled_from(["i1", "<i8", ">f4", "f8", "?", "c16", "U3", RECORD]), np_st.array_shapes(max_dims=2)),
    st.builds(Holding, one=st.builds(More, number=st.integers(0, 9), more=text), anything=text),
    st.builds(lambda number: new(Aliased, thePlain=number, theInner=Inner(number=number)), st.integers(0, 9)),
    st.builds(Numbers, st.lists(st.integers(0, 9), max_size=2)),
    st.builds(lambda name: Tree({name: Tree({})}), text),
    st.builds(Rewritten, text=text),
    st.builds(lambda number: new(Shown, extra=number), st.integers(0, 9)),
    st.builds(lambda number: new(Old, theNumber=number), st.integers(0, 9)),
    st.builds(Normalised, name=text),
    st.builds(lambda number: Slotted(given=number), st.integers(0, 9)),
    st.builds(HumanMessage, content=text, id=text),
    st.builds(
        lambda args: AIMessage("", tool_calls=[{"name": "f", "args": args, "id": "1"}]),
        st.dictionaries(text, st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False), max_size=2),
    ),
    st.builds(ToolMessage, content=text, tool_call_id=st.just("1")),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(text | st.integers(0, 9), inner, max_size=3),
        st.builds(deque, st.lists(inner, max_size=3)),
        st.tuples(inner, inner),
        st.builds(OrderedDict, st.dictionaries(hashable, inner, max_size=3)),
        st.builds(lambda items: defaultdict(list, items), st.dictionaries(text, inner, max_size=3)),
        st.builds(lambda value: SimpleNamespace(a=value), inner),
        st.builds(Plain, inner),
        st.builds(Location, inner, inner),
        st.builds(Pair, inner, inner),
        st.builds(Send, st.just("node"), inner),
        st.builds(lambda value: Interrupt(value=value, id="1"), inner),
        st.builds(lambda value: Command(update={"a": value}, resume=value, goto="next"), inner),
        st.builds(_DeltaSnapshot, inner),
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("api", ["sync", "async"])
def test_values_writes_interrupts_and_metadata_are_read_as_they_were_stored(store: Store, api: str) -> None:
    options: Any = {"synchronous": "OFF"} if store.kind == "sqlite" else {}
    loop = asyncio.new_event_loop()
    saver = open_saver(store.url, **options)
    client = Client(saver, api)

    async def check(value: Any) -> None:
        where = await put(client, next_uuid(), {"a": value}, meta=metadata(0, mine=value, nested={"list": [value]}))
        await client.put_writes(where, [("a", value), (INTERRUPT, [Interrupt(value=value, id="1")])], "task")
        found = await get(client, where)
        assert same(value, found.checkpoint["channel_values"]["a"])
        assert same(value, found.metadata["mine"])  # type: ignore[typeddict-item]
        assert same([value], found.metadata["nested"]["list"])  # type: ignore[typeddict-item]
        interrupt, write = found.pending_writes or []
        assert same(value, write[2])
        assert same(value, interrupt[2][0].value)
        versions = found.checkpoint["channel_versions"]
        child = await put(client, next_uuid(), {"a": value}, parent=where, versions=versions, new={})
        assert same(value, (await get(client, child)).checkpoint["channel_values"]["a"])
        (history,) = (await client.history(child, ["a"])).values()
        assert same(value, history["seed"])
        assert same(value, history["writes"][0][2])

    @given(values)
    def round_trip(value: Any) -> None:
        loop.run_until_complete(check(value))

    try:
        round_trip()
    finally:
        loop.run_until_complete(saver.aclose())
        loop.close()


REFUSED: dict[str, Any] = {
    "an array of texts with another text for what is missing": np.array(
        ["a"], dtype=np.dtypes.StringDType(na_object="nothing")
    ),
    "an array whose fields overlap": np.zeros(1, {"names": ["a", "b"], "formats": ["i4", "i2"], "offsets": [0, 2]}),
    "something else": object(),
    "a lambda": lambda: None,
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_value_that_cannot_be_stored_is_refused(client: Client, database: Database, name: str) -> None:
    where = await put(client, "1")
    before = sorted(database.cells())
    for value in (REFUSED[name], [REFUSED[name]], {"deep": Location(REFUSED[name])}):
        with pytest.raises(CheckpointEncodeError, match="nothing was stored"):
            await put(client, "2", {"fine": ["x"], "a": value})
        with pytest.raises(CheckpointEncodeError, match="nothing was stored"):
            await client.put_writes(where, [("fine", 1), ("a", value)], "task")
        with pytest.raises(CheckpointEncodeError, match=r"metadata.*nothing was stored"):
            await put(client, "2", {"fine": ["x"]}, meta=metadata(0, mine=value))
    assert sorted(database.cells()) == before


async def test_the_error_of_a_task_is_stored_as_text(client: Client) -> None:
    """LangGraph stores exceptions for people to read, not to raise them again."""
    where = await put(client, "1")
    await client.put_writes(where, [("__error__", ValueError("no"))], "task")
    assert (await get(client, where)).pending_writes == [("task", "__error__", "ValueError('no')")]


def test_an_encrypted_checkpoint_whose_id_is_no_text(store: Store) -> None:
    with store.open(serde=EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")) as saver:
        for number, value in ((1, "small"), (2, ["large" * 10_000])):
            made: Any = {**checkpoint("", {"a": value}), "id": UUID(int=number)}
            where = saver.put(config(), made, metadata(), {"a": "1"})
            assert where["configurable"]["checkpoint_id"] == str(UUID(int=number))
            assert saver.get_tuple(where).checkpoint["channel_values"] == {"a": value}  # type: ignore[union-attr]
