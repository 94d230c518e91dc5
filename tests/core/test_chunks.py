"""How large values are split into chunks: only changes are stored, the rest is shared, the bytes stay the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from langgraph_checkpoint_custom.blob_cache import ENTRY, BlobCache
from langgraph_checkpoint_custom.encoding import chunks as cutting
from langgraph_checkpoint_custom.encoding.chunks import (
    Chunk,
    ChunkedValue,
    KnownBlobs,
    KnownValue,
    cut,
    end_of_token,
    is_splittable,
    join,
)
from langgraph_checkpoint_custom.encoding.extensions import UnreadableValue
from langgraph_checkpoint_custom.encoding.objects import pack
from langgraph_checkpoint_custom.model.keys import Key


def in_chunks(value: Any) -> ChunkedValue:
    """Split a value of which nothing is stored yet."""
    data = pack(value)
    found = cut(data, "1", KnownValue("0", whole=data))
    assert found
    return found


class History:
    """Successive versions of a value, with all chunks that were stored."""

    def __init__(self) -> None:
        self.chunks: dict[str, bytes] = {}
        self.known: KnownValue | None = None

    @property
    def sizes(self) -> list[int]:
        """The sizes of the chunks of the last version."""
        assert self.known
        return [len(chunk.data) for chunk in self.known.chunks]

    def store(self, value: Any, *, forget: bool = False) -> int:
        """Store the next version; returns how many chunks were new. With `forget`, as a process that has read the last.

        The first version is stored twice, because only the second time it is split into chunks.
        """
        first = self.known is None
        data = pack(value)
        if not is_splittable(data):
            self.known = None
            return 0
        found = cut(data, "1", self.known) if self.known else None
        if found is None:
            self.known = KnownValue("1", whole=data)
            return self.store(value) if first else 0
        self.known = found.value
        assert not self.chunks.keys() & {chunk.name for chunk in found.new}
        self.chunks |= dict(found.new)
        stored = [Chunk(chunk.name, self.chunks[chunk.name]) for chunk in self.known.chunks]
        assert join(found.own_row, stored) == data
        if forget:
            self.known = KnownValue("1", stored)
        return len(found.new)

    @property
    def size(self) -> int:
        """The bytes of all chunks."""
        return sum(map(len, self.chunks.values()))


@pytest.fixture(params=[False, True], ids=["stored", "read"])
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
    assert history.size < 3 * len(pack(values))  # And not 120 times.


@pytest.mark.parametrize("around", [lambda values: {"log": values}, lambda values: [1, [values]]])
def test_a_list_inside_another_value_is_shared(around: Callable[[list[Any]], Any], forget: bool) -> None:
    history = History()
    values = messages(200)
    history.store(around(values[:40]))
    for length in range(41, 201):
        assert history.store(around(values[:length]), forget=forget) <= 3
    assert history.size < 5 * len(pack(values))


@pytest.mark.parametrize("make", SEQUENCES.values(), ids=SEQUENCES)
def test_elements_that_are_removed_at_the_head_or_changed_in_the_middle_leave_most_chunks(
    make: Callable[..., list[Any]], forget: bool
) -> None:
    history = History()
    values = make(200)
    history.store(values)
    assert len(history.chunks) > 10
    assert sum(history.store(values[first:], forget=forget) for first in range(1, 120)) < 2 * 120
    changed = [*values[:70], *make(1, 2), *values[71:]]
    assert history.store(values, forget=forget) <= len(history.chunks)
    assert history.store(changed, forget=forget) <= 2
    assert history.store([*changed[:100], *changed[103:]], forget=forget) <= 2
    assert history.store([*make(2, 3), *changed], forget=forget) <= 4
    assert history.store([*changed[:50], *make(100, 4), *changed[50:]], forget=forget) <= 18


def test_a_dict_shares_its_unchanged_entries(forget: bool) -> None:
    history = History()
    randomly = random.Random(3)
    files = {f"/src/{n}.py": text(randomly, 4000) for n in range(100)}
    history.store(files)
    for n in (5, 50, 99):
        files = {**files, f"/src/{n}.py": text(randomly, 4000)}
        assert history.store(files, forget=forget) <= 2
    del files["/src/20.py"]
    assert history.store(dict(files), forget=forget) <= 2
    assert history.store({**files, "/src/new.py": text(randomly, 4000)}, forget=forget) <= 1


def test_a_value_that_was_read_in_one_piece_is_split_if_it_grows_and_joined_if_it_is_replaced() -> None:
    history = History()
    for seed in (1, 2):
        values = messages(100, seed=seed)
        history.known = KnownValue("1", whole=pack(values))
        assert history.store([*values, *messages(10, seed=9)]) > 5
        assert history.store(messages(100, seed=8)) == 0
    for value in (values[:3], "x" * 50_000, tuple([0.5] * 50_000)):
        assert not is_splittable(pack(value))


def test_a_value_that_shares_nothing_stays_in_one_piece_until_a_later_version_shares_something(forget: bool) -> None:
    history = History()
    assert history.store(messages(100, seed=1)) > 5
    for seed in (2, 3):
        assert history.store(messages(100, seed=seed), forget=forget) == 0
        assert history.known
        assert history.known.whole
    values = [*messages(100, seed=3), *messages(10, seed=4)]
    assert history.store(values, forget=forget) > 5
    assert history.store([*values, *messages(2, seed=5)], forget=forget) == 1


ELEMENTS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.floats(), st.text(max_size=30), st.binary(max_size=30)
)
VALUES = ELEMENTS | st.lists(ELEMENTS, max_size=4) | st.dictionaries(st.text(max_size=5), ELEMENTS, max_size=4)
LARGE = st.lists(VALUES, max_size=40) | st.dictionaries(st.text(max_size=9), VALUES, max_size=40)


@given(versions=st.lists(LARGE, min_size=1, max_size=4), size=st.integers(1, 400), most=st.integers(1, 4))
def test_the_joined_chunks_are_the_value(versions: list[Any], size: int, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, number in (("SPLIT_FROM", 0), ("SAMPLE", 1), ("CHUNK_BYTES", size), ("MOST_SMALL", most)):
            patch.setattr(cutting, name, number)
        for name, number in (("FINDABLE", size // 4), ("HEAD", size // 40), ("START", 1 + size // 40)):
            patch.setattr(cutting, name, number)
        history = History()
        for version in versions:
            history.store(version)
            history.store(version, forget=True)


@given(VALUES | st.lists(VALUES) | st.integers().map(lambda seed: messages(1, seed)[0]))
def test_a_token_ends_where_the_next_one_starts(value: Any) -> None:
    data = pack([value, "end"])
    at = 1
    while data[at:] != pack("end"):
        at = end_of_token(data, at)


def test_chunks_that_do_not_belong_together_are_not_read() -> None:
    found = in_chunks(dicts(100))
    with pytest.raises(UnreadableValue):
        join(found.own_row, found.new[1:])
    with pytest.raises(UnreadableValue):
        join(found.own_row, [Chunk("", b""), *found.new[1:]])


def test_the_cache_forgets_the_oldest_checkpoints_and_the_parent() -> None:
    known = KnownBlobs({"messages": "1"}, {"messages": in_chunks(messages(100)).value})
    cache = BlobCache(4 * (known.size + ENTRY))
    keys = [Key("thread", "", str(number)) for number in range(9)]
    for key in keys:
        cache.remember(key, None, known)
    assert [cache.of(key, None) for key in keys] == [None] * 5 + [known] * 4
    cache.remember(Key("thread", "", "9"), None, known, "8")
    assert [cache.of(key, None) for key in keys] == [None] * 5 + [known] * 3 + [None]
    cache.remember(keys[8], None, known)
    assert cache.of(keys[8], EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef").cipher) is None
