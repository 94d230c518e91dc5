"""How large values are split into chunks: only changes are stored, the rest is shared, the bytes stay the same."""

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
    UnchunkedValue,
    chunk_value,
    contents,
    join_chunks,
)
from langgraph_checkpoint_custom.encoding.extensions import UnreadableValue
from langgraph_checkpoint_custom.encoding.known import KnownBlobs
from langgraph_checkpoint_custom.encoding.objects import pack
from langgraph_checkpoint_custom.encoding.serde import ExactSerializer
from langgraph_checkpoint_custom.encoding.unchanged import LARGE, Unchanged, unchanged
from langgraph_checkpoint_custom.encoding.values import Large, Values
from langgraph_checkpoint_custom.model.keys import Key
from langgraph_checkpoint_custom.recent import ENTRY, Recent
from tests.exactly import same

SERDE = ExactSerializer(JsonPlusSerializer())
CODEC = Values(JsonPlusSerializer())
LOCATION = ("", "channel", "1")
StoredChunks = dict[str, bytes]


def loads(data: bytes) -> Any:
    return SERDE.loads_typed(("msgpack", data))


def in_chunks(value: Any, pack: Callable[[Any], bytes] = pack) -> tuple[ChunkedValue, Mapping[str, bytes]]:
    """Split a value of which nothing is stored yet."""
    found = chunk_value(value, "1", None, pack)
    assert found
    return found


class History:
    """Successive versions of a value, with all chunks that were stored."""

    def __init__(self) -> None:
        self.chunks: StoredChunks = {}
        self.known: Known | None = None

    @property
    def last(self) -> ChunkedValue:
        """The last version, which is in chunks."""
        assert isinstance(self.known, ChunkedValue)
        return self.known

    def store(self, value: Any, *, forget: bool = False) -> int:
        """Store the next version; returns how many chunks were new. With `forget`, as another process would.

        The first version is stored twice, because only the second time it is split into chunks.
        """
        first = self.known is None
        before = self.known.without_objects() if self.known and forget else self.known
        found = CODEC.dumps_blob(value, LOCATION, before)
        if not isinstance(found, Large):
            self.known = None
            return 0
        self.known = found.known
        if found.names is None:
            assert not found.new
            assert pack(SERDE.loads_typed(found.own_row)) == pack(value)
            return self.store(value) if first else 0
        assert not self.chunks.keys() & found.new.keys()
        self.chunks |= {name: chunk.value for name, chunk in found.new.items()}
        assert pack(self.load().value) == pack(value)
        return len(found.new)

    def load(self) -> JoinedChunks:
        """The last version, joined."""
        return join_chunks(contents(self.last), self.last.chunks, lambda chunk: self.chunks[chunk.name], loads)


@pytest.fixture(params=[False, True], ids=["known objects", "known names"])
def forget(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def text(randomly: random.Random, size: int = 2000) -> str:
    return "".join(randomly.choices("abcdefghij ", k=size))


def messages(count: int, seed: int = 1) -> list[BaseMessage]:
    randomly = random.Random(seed)
    makers: list[Callable[[int], BaseMessage]] = [
        lambda n: HumanMessage(text(randomly), id=f"{seed} {n}"),
        lambda n: AIMessage(
            text(randomly),
            id=f"{seed} {n}",
            tool_calls=[{"name": "find", "args": {"deep": [{"er": n}]}, "id": f"{n}"}],
            response_metadata={"usage": {"tokens": [n, 2]}},
        ),
        lambda n: ToolMessage(text(randomly), tool_call_id=f"{n}", id=f"{seed} {n}"),
    ]
    return [makers[n % 3](n) for n in range(count)]


def dicts(count: int, seed: int = 1) -> list[dict[str, Any]]:
    randomly = random.Random(seed)
    return [{"id": n, "text": text(randomly)} for n in range(count)]


SEQUENCES: Mapping[str, Callable[..., list[Any]]] = {"messages": messages, "dicts": dicts}


@pytest.mark.parametrize("make", SEQUENCES.values(), ids=SEQUENCES)
def test_an_append_stores_only_the_end(make: Callable[..., list[Any]], forget: bool) -> None:
    history = History()
    values = make(200)
    history.store(values[:40])
    for length in range(41, 201):
        assert history.store(values[:length], forget=forget) <= 2
    assert sum(map(len, history.chunks.values())) < 3 * len(pack(values))  # And not 120 times.


def test_adding_the_same_object_repeatedly_makes_few_chunks() -> None:
    """For example a text in the code of a node, which adds it each time."""
    history = History()
    texts = [each * 12 for each in ("a line that is everywhere ", "and another one ")]
    values = [texts[number % 3 // 2] for number in range(2_000)]
    history.store(values[:1_000])
    for length in range(1_001, 2_001):
        assert history.store(values[:length]) <= 2
    assert len(history.last.chunks) < 2 * sum(map(len, values)) / cutting.CHUNK_BYTES + cutting.MAX_TAIL_CHUNKS


def test_a_list_that_grows_by_small_elements_has_few_chunks_after_the_last_cut(forget: bool) -> None:
    """There is no cut for a long time, since a chunk holds many texts of 40 bytes."""
    history = History()
    values: list[Any] = [text(random.Random(number), 40) for number in range(1_000)]
    history.store(values[:400])
    for length in range(401, 1_001):
        assert history.store(values[:length], forget=forget) <= 2
        assert sum(not chunk.ends for chunk in history.last.chunks) <= cutting.MAX_TAIL_CHUNKS
        assert all(chunk.ends for chunk in history.last.chunks[: -cutting.MAX_TAIL_CHUNKS])
    assert sum(map(len, history.chunks.values())) < 20 * len(pack(values))


@pytest.mark.parametrize("make", SEQUENCES.values(), ids=SEQUENCES)
def test_elements_that_are_removed_at_the_head_or_changed_in_the_middle_move_few_other_cuts(
    make: Callable[..., list[Any]], forget: bool
) -> None:
    history = History()
    values = make(200)
    history.store(values)
    assert len(history.chunks) > 10
    assert sum(history.store(values[first:], forget=forget) for first in range(1, 120)) < 2 * 120
    changed = [*values[:70], *make(1, 2), *values[71:]]
    assert history.store(values, forget=forget) <= len(history.chunks)
    assert history.store(changed, forget=forget) <= 6
    assert history.store([*changed[:100], *changed[103:]], forget=forget) <= 6
    assert history.store([*make(2, 3), *changed], forget=forget) <= 6


def test_a_dict_shares_its_unchanged_entries(forget: bool) -> None:
    history = History()
    randomly = random.Random(3)
    files = {f"/src/{n}.py": text(randomly, 4000) for n in range(100)}
    history.store(files)
    for n in (5, 50, 99):
        files = {**files, f"/src/{n}.py": text(randomly, 4000)}
        assert history.store(files, forget=forget) <= 6
    del files["/src/20.py"]
    assert history.store(dict(files), forget=forget) <= 6
    assert history.store({**files, "/src/new.py": text(randomly, 4000)}, forget=forget) <= 6


def test_a_dict_of_elements_that_were_in_a_list_is_cut_after_its_pairs() -> None:
    history = History()
    for pairs in range(20, 30):
        words = [text(random.Random(100 * pairs + number), 700) for number in range(60)]
        history.store(words)
        history.store({**dict(zip(words[: 2 * pairs : 2], words[1 : 2 * pairs : 2], strict=True)), "key": "other"})


def test_a_value_that_was_read_in_one_piece_is_split_if_it_grows_and_joined_if_it_is_replaced() -> None:
    history = History()
    for seed in (1, 2):
        values = messages(100, seed=seed)
        stored = CODEC.dumps(values, LOCATION)
        read, history.known = CODEC.loads_blob(*stored, LOCATION)
        assert pack(read) == pack(values)
        assert history.store([*values, *messages(10, seed=9)]) > 5
        assert history.store(messages(100, seed=8)) == 0
    for value in (values[:3], "x" * 50_000, [0.5] * 50_000):
        assert CODEC.loads_blob(*CODEC.dumps(value, LOCATION), LOCATION) == (value, None)


def test_a_value_that_shares_nothing_stays_in_one_piece_until_a_later_version_shares_something(forget: bool) -> None:
    history = History()
    assert history.store(messages(100, seed=1)) > 5
    for seed in (2, 3):
        assert history.store(messages(100, seed=seed), forget=forget) == 0
        assert isinstance(history.known, UnchunkedValue)
    values = [*messages(100, seed=3), *messages(10, seed=4)]
    assert history.store(values, forget=forget) > 5
    assert 1 <= history.store([*values, *messages(2, seed=5)], forget=forget) <= 2


def test_storing_the_same_value_again_stores_no_chunk(forget: bool) -> None:
    history = History()
    values = messages(100)
    history.store(values)
    assert history.store(values, forget=forget) == 0
    assert history.store(list(values), forget=forget) == 0


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
@pytest.mark.parametrize("position", [0, 1, 49, 97, 98, 99])
@pytest.mark.parametrize("image", ["", "A" * LARGE], ids=["small", "large"])
def test_an_object_that_was_changed_in_place_is_stored_as_it_is_now(
    change: Callable[[Any], object], position: int, image: str
) -> None:
    """The same list with the same objects."""
    history = History()
    values = messages(100)
    values[position] = AIMessage(
        "text",
        id="it",
        tool_calls=[{"name": "find", "args": {"deep": [{"er": 1}]}, "id": "1"}],
        response_metadata={"usage": {"tokens": [1, 2]}},
        additional_kwargs={"image": image} if image else {},
    )
    history.store(values)
    change(values[position])
    assert 1 <= history.store(values) <= 3


ALIKE: Mapping[str, tuple[Any, Any]] = {
    "a tuple and a list": ((1, 2), [1, 2]),
    "an empty list and a tuple": ([], ()),
    "bytes and a bytearray": (b"xx", bytearray(b"xx")),
    "deep inside": ([{"a": [b"xx"]}], [{"a": [bytearray(b"xx")]}]),
}


@pytest.mark.parametrize("alike", ALIKE.values(), ids=ALIKE)
@pytest.mark.parametrize("image", ["", "A" * LARGE], ids=["small", "large"])
def test_different_objects_that_are_encoded_alike_are_distinguished(alike: tuple[Any, Any], image: str) -> None:
    """In both directions, in a field, in a dict and in the metadata of a document, changed in place."""
    for before, after in (alike, alike[::-1]):
        history = History()
        first = AIMessage("text", additional_kwargs={"it": before, "image": image})
        second = ToolMessage("text", tool_call_id="1", artifact=before)
        third = Document("text", metadata={"it": before})
        values: list[Any] = [*messages(50), first, second, third]
        history.store(values)
        for change in (
            lambda first=first, after=after: first.additional_kwargs.update(it=after),
            lambda second=second, after=after: setattr(second, "artifact", after),
            lambda third=third, after=after: third.metadata.update(it=after),
        ):
            change()
            assert 1 <= history.store(values) <= 3
            assert same(history.load().value, values)


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
def test_messages_that_hold_objects_are_not_remembered_as_unchanged(size: int) -> None:
    def asked(value: Any) -> Unchanged | None:
        return unchanged([AIMessage("text", additional_kwargs={"deep": [value], "text": "x" * size})])

    for value in PLAIN.values():
        known = asked(value)
        assert known
        assert Unchanged.hold([known] * 20)
    for value in OTHERS.values():
        assert asked(value) is None


def test_a_message_of_a_subclass_is_encoded_each_time() -> None:
    class Mine(HumanMessage):
        """Its encoding may depend on anything."""

    history = History()
    values: list[Any] = dicts(30)
    history.store(values)
    assert not any(chunk.objects for chunk in history.last.chunks)
    chunked, _ = in_chunks([*messages(50), *(Mine(content="text", id=str(n)) for n in range(50))], repr_of)
    assert any(chunk.objects for chunk in chunked.chunks)
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
def test_the_joined_chunks_are_the_value(versions: list[Any], size: int, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "SPLIT_FROM", 0)
        patch.setattr(cutting, "ELEMENT", 0)
        patch.setattr(cutting, "SAMPLE", 1)
        patch.setattr(cutting, "CHUNK_BYTES", size)
        patch.setattr(cutting, "MAX_TAIL_CHUNKS", most)
        history = History()
        for version in versions:
            history.store(version)
            history.store(version, forget=True)
        if not isinstance(history.known, ChunkedValue):
            return
        known = history.load().chunked("1", history.last.names)
        assert known.without_objects() == history.last.without_objects()


@pytest.mark.parametrize("count", [2, 15, 16, 65_535, 65_536])
@pytest.mark.parametrize("kind", [list, dict])
def test_any_number_of_elements(count: int, kind: type) -> None:
    value = [["x" * 20]] * count if kind is list else {f"{n:06}": ["x" * 20] for n in range(count)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "SPLIT_FROM", 0)
        patch.setattr(cutting, "CHUNK_BYTES", 20)
        chunked, new = in_chunks(value)
    assert join_chunks(contents(chunked), chunked.chunks, lambda chunk: new[chunk.name], loads).value == value


def test_stored_chunks_of_a_dict_with_lone_surrogates_in_keys_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier versions have stored such dicts in chunks, and could not read them."""
    value = {f"{n}\udce9": "x" * 500 for n in range(100)} | {"\ud800": {"\udfff": 1}}
    monkeypatch.setattr(cutting, "is_unicode", lambda _: True, raising=False)
    chunked, new = in_chunks(value)
    together = join_chunks(contents(chunked), chunked.chunks, lambda chunk: new[chunk.name], loads)
    assert together.value == value
    assert list(together.value) == list(value)
    known = together.chunked("1", chunked.names)
    assert chunk_value(value, "2", known.without_objects(), pack) == (chunked._replace(version="2"), {})


def test_chunks_that_do_not_belong_together_are_not_read() -> None:
    values = dicts(100)
    chunked, new = in_chunks(values)
    stored = contents(chunked)
    data = [new[chunk.name] for chunk in chunked.chunks]
    with pytest.raises(UnreadableValue):
        join_chunks(stored, data[1:], bytes, loads)
    with pytest.raises(UnreadableValue):
        join_chunks(stored, [b"", *data[1:]], bytes, loads)
    with pytest.raises(UnreadableValue):
        join_chunks(stored, [data[0][1:] + b"x", *data[1:]], bytes, loads)


UNSPLIT: Mapping[str, Any] = {
    "a subclass of list": type("Mine", (list,), {})(dicts(100)),
    "a subclass of dict": type("Mine", (dict,), {})({str(n): "x" * 500 for n in range(100)}),
    "a dict with other keys": dict.fromkeys(range(100), "x" * 500),
    "a dict with half a character in a key": {f"{n}\udce9": "x" * 500 for n in range(100)},
    "a tuple": tuple(dicts(100)),
    "a small one": dicts(3),
    "nothing": [],
}


@pytest.mark.parametrize("value", UNSPLIT.values(), ids=UNSPLIT)
def test_values_that_stay_in_one_piece(value: Any) -> None:
    assert chunk_value(value, "1", None, pack) is None


def test_of_a_parent_the_cache_keeps_only_names_and_the_oldest_checkpoints_are_forgotten() -> None:
    value, _ = in_chunks(messages(100))
    known, names = (KnownBlobs({"messages": "1"}, {"messages": each}) for each in (value, value.without_objects()))
    recent = Recent(known.size + 3 * names.size + 4 * ENTRY)
    keys = [Key("thread", "", str(number)) for number in range(9)]
    for parent, key in zip([None, *keys], keys, strict=False):
        recent.note(key, None, known, parent)
    # Another run may continue from an earlier checkpoint.
    assert [recent.of(key, None) for key in keys] == [None] * 5 + [names] * 3 + [known]
    assert recent.of(keys[8], EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef").cipher) is None
