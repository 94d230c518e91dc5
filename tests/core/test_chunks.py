"""How large values are cut: what changes is new, what does not is shared, and together they are the same bytes."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_checkpoint_custom.encoding import chunks as cutting
from langgraph_checkpoint_custom.encoding.chunks import (
    ChunkedValue,
    JoinedChunks,
    Known,
    Whole,
    chunk_value,
    contents,
    join_chunks,
)
from langgraph_checkpoint_custom.encoding.known import NOTHING_KNOWN, KnownValues
from langgraph_checkpoint_custom.encoding.objects import UnreadableValue, pack
from langgraph_checkpoint_custom.encoding.serde import ExactSerializer
from langgraph_checkpoint_custom.encoding.unchanged import LARGE, Unchanged, unchanged
from langgraph_checkpoint_custom.encoding.values import Large, Values
from langgraph_checkpoint_custom.model.keys import Key
from langgraph_checkpoint_custom.recent import ENTRY, Recent
from tests.exactly import same

SERDE = ExactSerializer(JsonPlusSerializer())
CODEC = Values(JsonPlusSerializer())
PLACE = ("", "channel", "1")
Parts = dict[str, bytes]


def loads(data: bytes) -> Any:
    return SERDE.loads_typed(("msgpack", data))


def in_parts(value: Any, pack: Callable[[Any], bytes] = pack) -> tuple[ChunkedValue, Mapping[str, bytes]]:
    """The parts of a value of which nothing is stored."""
    found = chunk_value(value, "1", None, pack)
    assert found
    return found


class Kept:
    """Version after version of a value, with all parts that were stored."""

    def __init__(self) -> None:
        self.chunks: Parts = {}
        self.known: Known | None = None

    @property
    def last(self) -> ChunkedValue:
        """The last version, which is in parts."""
        assert isinstance(self.known, ChunkedValue)
        return self.known

    def store(self, value: Any, *, forget: bool = False) -> int:
        """Store the next version; returns how many parts were new. With `forget`, as another process would.

        The first one is stored twice, and so is in parts.
        """
        first = self.known is None
        before = self.known.without_objects() if self.known and forget else self.known
        found = CODEC.dumps_blob(value, PLACE, before)
        if not isinstance(found, Large):
            self.known = None
            return 0
        self.known = found.known
        if found.names is None:
            assert not found.new
            assert pack(SERDE.loads_typed(found.whole)) == pack(value)
            return self.store(value) if first else 0
        assert not self.chunks.keys() & found.new.keys()
        self.chunks |= {name: part.value for name, part in found.new.items()}
        assert pack(self.load().value) == pack(value)
        return len(found.new)

    def load(self) -> JoinedChunks:
        """The last version, put together."""
        return join_chunks(contents(self.last), self.last.chunks, lambda part: self.chunks[part.name], loads)


@pytest.fixture(params=[False, True], ids=["known objects", "known names"])
def forget(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def text(dice: random.Random, size: int = 2000) -> str:
    return "".join(dice.choices("abcdefghij ", k=size))


def messages(count: int, seed: int = 1) -> list[BaseMessage]:
    dice = random.Random(seed)
    kinds: list[Callable[[int], BaseMessage]] = [
        lambda n: HumanMessage(text(dice), id=f"{seed} {n}"),
        lambda n: AIMessage(
            text(dice),
            id=f"{seed} {n}",
            tool_calls=[{"name": "find", "args": {"deep": [{"er": n}]}, "id": f"{n}"}],
            response_metadata={"usage": {"tokens": [n, 2]}},
        ),
        lambda n: ToolMessage(text(dice), tool_call_id=f"{n}", id=f"{seed} {n}"),
    ]
    return [kinds[n % 3](n) for n in range(count)]


def dicts(count: int, seed: int = 1) -> list[dict[str, Any]]:
    dice = random.Random(seed)
    return [{"id": n, "text": text(dice)} for n in range(count)]


SEQUENCES: Mapping[str, Callable[..., list[Any]]] = {"messages": messages, "dicts": dicts}


@pytest.mark.parametrize("make", SEQUENCES.values(), ids=SEQUENCES)
def test_an_append_stores_the_end_only(make: Callable[..., list[Any]], forget: bool) -> None:
    kept = Kept()
    values = make(200)
    kept.store(values[:40])
    for length in range(41, 201):
        assert kept.store(values[:length], forget=forget) <= 2
    assert sum(map(len, kept.chunks.values())) < 3 * len(pack(values))  # And not 120 times.


def test_the_same_object_again_and_again_makes_no_more_parts() -> None:
    """As a text in the code of a node, which it adds each time."""
    kept = Kept()
    texts = [each * 12 for each in ("a line that is everywhere ", "and another one ")]
    values = [texts[number % 3 // 2] for number in range(2_000)]
    kept.store(values[:1_000])
    for length in range(1_001, 2_001):
        assert kept.store(values[:length]) <= 2
    assert len(kept.last.chunks) < 2 * sum(map(len, values)) / cutting.PART + cutting.OPEN


def test_what_comes_in_small_pieces_is_stored_again_and_again_in_few_parts(forget: bool) -> None:
    """Without cuts for a long time, since texts of 40 bytes are few of those that a part has."""
    kept = Kept()
    values: list[Any] = [text(random.Random(number), 40) for number in range(1_000)]
    kept.store(values[:400])
    for length in range(401, 1_001):
        assert kept.store(values[:length], forget=forget) <= 2
        assert sum(not part.ends for part in kept.last.chunks) <= cutting.OPEN
        assert all(part.ends for part in kept.last.chunks[: -cutting.OPEN])
    assert sum(map(len, kept.chunks.values())) < 20 * len(pack(values))


@pytest.mark.parametrize("make", SEQUENCES.values(), ids=SEQUENCES)
def test_what_goes_from_the_head_or_changes_in_the_middle_moves_few_other_cuts(
    make: Callable[..., list[Any]], forget: bool
) -> None:
    kept = Kept()
    values = make(200)
    kept.store(values)
    assert len(kept.chunks) > 10
    assert sum(kept.store(values[first:], forget=forget) for first in range(1, 120)) < 2 * 120
    changed = [*values[:70], *make(1, 2), *values[71:]]
    assert kept.store(values, forget=forget) <= len(kept.chunks)
    assert kept.store(changed, forget=forget) <= 6
    assert kept.store([*changed[:100], *changed[103:]], forget=forget) <= 6
    assert kept.store([*make(2, 3), *changed], forget=forget) <= 6


def test_a_dict_shares_its_other_entries(forget: bool) -> None:
    kept = Kept()
    dice = random.Random(3)
    files = {f"/src/{n}.py": text(dice, 4000) for n in range(100)}
    kept.store(files)
    for n in (5, 50, 99):
        files = {**files, f"/src/{n}.py": text(dice, 4000)}
        assert kept.store(files, forget=forget) <= 6
    del files["/src/20.py"]
    assert kept.store(dict(files), forget=forget) <= 6
    assert kept.store({**files, "/src/new.py": text(dice, 4000)}, forget=forget) <= 6


def test_a_dict_of_what_was_in_a_list_is_cut_behind_its_pairs() -> None:
    kept = Kept()
    for pairs in range(20, 30):
        words = [text(random.Random(100 * pairs + number), 700) for number in range(60)]
        kept.store(words)
        kept.store({**dict(zip(words[: 2 * pairs : 2], words[1 : 2 * pairs : 2], strict=True)), "key": "other"})


def test_what_was_read_whole_goes_into_parts_and_back_if_it_does_not_grow() -> None:
    kept = Kept()
    for seed in (1, 2):
        values = messages(100, seed=seed)
        stored = CODEC.dumps(values, PLACE)
        read, kept.known = CODEC.loads_blob(*stored, PLACE)
        assert pack(read) == pack(values)
        assert kept.store([*values, *messages(10, seed=9)]) > 5
        assert kept.store(messages(100, seed=8)) == 0
    for value in (values[:3], "x" * 50_000, [0.5] * 50_000):
        assert CODEC.loads_blob(*CODEC.dumps(value, PLACE), PLACE) == (value, None)


def test_what_shares_nothing_is_left_whole_until_something_does(forget: bool) -> None:
    kept = Kept()
    assert kept.store(messages(100, seed=1)) > 5
    for seed in (2, 3):
        assert kept.store(messages(100, seed=seed), forget=forget) == 0
        assert isinstance(kept.known, Whole)
    values = [*messages(100, seed=3), *messages(10, seed=4)]
    assert kept.store(values, forget=forget) > 5
    assert 1 <= kept.store([*values, *messages(2, seed=5)], forget=forget) <= 2


def test_the_same_value_again_is_nothing_new(forget: bool) -> None:
    kept = Kept()
    values = messages(100)
    kept.store(values)
    assert kept.store(values, forget=forget) == 0
    assert kept.store(list(values), forget=forget) == 0


CHANGES: Mapping[str, Callable[[Any], object]] = {
    "content": lambda message: setattr(message, "content", "other"),
    "content of the same length": lambda message: setattr(message, "content", message.content.upper()),
    "a content in parts": lambda message: setattr(message, "content", ["a", {"type": "text", "text": "b"}]),
    "id": lambda message: setattr(message, "id", None),
    "an argument, deep inside": lambda message: message.tool_calls[0]["args"]["deep"][0].update(er=True),
    "one more inside": lambda message: message.tool_calls[0]["args"]["deep"].append({}),
    "moved into another": lambda message: message.response_metadata["usage"].update(
        tokens=[[*message.response_metadata["usage"]["tokens"]]]
    ),
    "a key": lambda message: message.response_metadata.update({"more": 1}),
    "another key": lambda message: message.response_metadata.update(used=message.response_metadata.pop("usage")),
    "what was empty": lambda message: message.additional_kwargs.update({"a": 1}),
    "1 that became True": lambda message: message.response_metadata["usage"]["tokens"].__setitem__(0, True),
    "a field of its own": lambda message: setattr(message, "extra_field", 1),
    "a field that is given now": lambda message: setattr(message, "name", None),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("location", [0, 1, 49, 97, 98, 99])
@pytest.mark.parametrize("image", ["", "A" * LARGE], ids=["small", "large"])
def test_an_object_that_was_changed_in_place_is_stored_as_it_is_now(
    change: Callable[[Any], object], location: int, image: str
) -> None:
    """The same list, of the same objects."""
    kept = Kept()
    values = messages(100)
    values[location] = AIMessage(
        "text",
        id="it",
        tool_calls=[{"name": "find", "args": {"deep": [{"er": 1}]}, "id": "1"}],
        response_metadata={"usage": {"tokens": [1, 2]}},
        additional_kwargs={"image": image} if image else {},
    )
    kept.store(values)
    change(values[location])
    assert 1 <= kept.store(values) <= 3


ALIKE: Mapping[str, tuple[Any, Any]] = {
    "a tuple and a list": ((1, 2), [1, 2]),
    "an empty list and a tuple": ([], ()),
    "bytes and a bytearray": (b"xx", bytearray(b"xx")),
    "deep inside": ([{"a": [b"xx"]}], [{"a": [bytearray(b"xx")]}]),
}


@pytest.mark.parametrize("alike", ALIKE.values(), ids=ALIKE)
@pytest.mark.parametrize("image", ["", "A" * LARGE], ids=["small", "large"])
def test_what_looks_the_same_when_it_is_encoded_is_told_apart(alike: tuple[Any, Any], image: str) -> None:
    """Either way: in a field, a dict and the metadata of a document, changed in place."""
    for before, after in (alike, alike[::-1]):
        kept = Kept()
        first = AIMessage("text", additional_kwargs={"it": before, "image": image})
        second = ToolMessage("text", tool_call_id="1", artifact=before)
        third = Document("text", metadata={"it": before})
        values: list[Any] = [*messages(50), first, second, third]
        kept.store(values)
        for change in (
            lambda first=first, after=after: first.additional_kwargs.update(it=after),
            lambda second=second, after=after: setattr(second, "artifact", after),
            lambda third=third, after=after: third.metadata.update(it=after),
        ):
            change()
            assert 1 <= kept.store(values) <= 3
            assert same(kept.load().value, values)


PLAIN: Mapping[str, Any] = {"nested": {"a": [{"b": [1, 2.5, None]}]}, "bytes": b"b", "empty": {}, "text": "\U0001f600"}
OTHERS: Mapping[str, Any] = {
    "time": datetime(2026, 1, 1),
    "set": {1},
    "model": HumanMessage("inside"),
    "keys": {1: 2},
    "half a character": "\ud800",
    "tuple": (1,),
    "bytearray": bytearray(b"b"),
}


@pytest.mark.parametrize("size", [1, LARGE])
def test_of_messages_that_hold_objects_nothing_is_known(size: int) -> None:
    def asked(value: Any) -> Unchanged | None:
        return unchanged([AIMessage("text", additional_kwargs={"deep": [value], "text": "x" * size})])

    for value in PLAIN.values():
        known = asked(value)
        assert known
        assert Unchanged.hold([known] * 20)
    for value in OTHERS.values():
        assert asked(value) is None


def test_a_message_of_a_class_of_its_own_is_encoded_each_time() -> None:
    class Mine(HumanMessage):
        """Whose form may depend on anything."""

    kept = Kept()
    values: list[Any] = dicts(30)
    kept.store(values)
    assert not any(part.objects for part in kept.last.chunks)
    chunked, _ = in_parts([*messages(50), *(Mine(content="text", id=str(n)) for n in range(50))], repr_of)
    assert any(part.objects for part in chunked.chunks)
    assert not chunked.chunks[-1].objects


def repr_of(value: Any) -> bytes:
    return repr(value).encode() * 2


ELEMENTS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.floats(), st.text(max_size=30), st.binary(max_size=30)
)
VALUES = ELEMENTS | st.lists(ELEMENTS, max_size=4) | st.dictionaries(st.text(max_size=5), ELEMENTS, max_size=4)


@given(
    versions=st.lists(
        st.lists(VALUES, min_size=1, max_size=40)
        | st.dictionaries(st.text(max_size=9), VALUES, min_size=1, max_size=40),
        min_size=1,
        max_size=4,
    ),
    size=st.integers(1, 400),
    most=st.integers(1, 4),
)
def test_parts_together_are_the_value(versions: list[Any], size: int, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "SPLIT_FROM", 0)
        patch.setattr(cutting, "ELEMENT", 0)
        patch.setattr(cutting, "SAMPLE", 1)
        patch.setattr(cutting, "PART", size)
        patch.setattr(cutting, "OPEN", most)
        kept = Kept()
        for version in versions:
            kept.store(version)
            kept.store(version, forget=True)
        if not isinstance(kept.known, ChunkedValue):
            return
        known = kept.load().chunked("1", kept.last.names)
        assert known.without_objects() == kept.last.without_objects()


@pytest.mark.parametrize("count", [2, 15, 16, 65_535, 65_536])
@pytest.mark.parametrize("kind", [list, dict])
def test_any_number_of_elements(count: int, kind: type) -> None:
    value = [["x" * 20]] * count if kind is list else {f"{n:06}": ["x" * 20] for n in range(count)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "SPLIT_FROM", 0)
        patch.setattr(cutting, "PART", 20)
        chunked, new = in_parts(value)
    assert join_chunks(contents(chunked), chunked.chunks, lambda part: new[part.name], loads).value == value


def test_keys_with_half_a_character_that_are_in_parts_already_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier versions have stored such dicts so, and could not read them."""
    value = {f"{n}\udce9": "x" * 500 for n in range(100)} | {"\ud800": {"\udfff": 1}}
    monkeypatch.setattr(cutting, "is_unicode", lambda _: True, raising=False)
    chunked, new = in_parts(value)
    together = join_chunks(contents(chunked), chunked.chunks, lambda part: new[part.name], loads)
    assert together.value == value
    assert list(together.value) == list(value)
    known = together.chunked("1", chunked.names)
    assert chunk_value(value, "2", known.without_objects(), pack) == (chunked._replace(version="2"), {})


def test_parts_that_do_not_belong_together_are_not_read() -> None:
    values = dicts(100)
    chunked, new = in_parts(values)
    stored = contents(chunked)
    data = [new[part.name] for part in chunked.chunks]
    with pytest.raises(UnreadableValue):
        join_chunks(stored, data[1:], bytes, loads)
    with pytest.raises(UnreadableValue):
        join_chunks(stored, [b"", *data[1:]], bytes, loads)
    with pytest.raises(UnreadableValue):
        join_chunks(stored, [data[0][1:] + b"x", *data[1:]], bytes, loads)


WHOLE: Mapping[str, Any] = {
    "a subclass of list": type("Mine", (list,), {})(dicts(100)),
    "a subclass of dict": type("Mine", (dict,), {})({str(n): "x" * 500 for n in range(100)}),
    "a dict with other keys": dict.fromkeys(range(100), "x" * 500),
    "a dict with half a character in a key": {f"{n}\udce9": "x" * 500 for n in range(100)},
    "a tuple": tuple(dicts(100)),
    "a small one": dicts(3),
    "nothing": [],
}


@pytest.mark.parametrize("value", WHOLE.values(), ids=WHOLE)
def test_what_is_left_whole(value: Any) -> None:
    assert chunk_value(value, "1", None, pack) is None


def test_recent_values_forget_the_objects_first_and_then_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    value, _ = in_parts(messages(100))
    monkeypatch.setattr("langgraph_checkpoint_custom.recent.OBJECTS", 2 * (value.size + ENTRY))
    monkeypatch.setattr("langgraph_checkpoint_custom.recent.PARTS", 3 * (len(value.chunks) + 2))
    recent = Recent()
    keys = [Key("thread", "", str(number)) for number in range(9)]
    for key in keys:
        recent.note(key, None, KnownValues(b"", {"messages": value}, is_whole=False))
    known = [(recent.of(key, None) or NOTHING_KNOWN).large.get("messages") for key in keys]
    assert known[:4] == [None] * 4
    assert known[4:7] == [value.without_objects()] * 3
    assert known[7:] == [value] * 2
    recent.note(Key("thread", "", "next"), None, KnownValues(b"", {"messages": value}, is_whole=False), keys[8])
    # Another run may go on from there.
    assert recent.of(keys[8], None) == KnownValues(b"", {"messages": value.without_objects()}, is_whole=False)
    assert recent.of(keys[7], EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef").cipher) is None
