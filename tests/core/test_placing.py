"""In a large checkpoint, the size of each value decides whether it is in the document, whatever the others are."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_checkpoint_custom.encoding.chunks import NO_BLOBS
from langgraph_checkpoint_custom.encoding.encode import encode_checkpoint
from langgraph_checkpoint_custom.encoding.encoded import SMALL_VALUE, Encoded
from langgraph_checkpoint_custom.encoding.values import ValueCodec
from langgraph_checkpoint_custom.model.keys import Key

CODEC = ValueCodec(JsonPlusSerializer(), compress=False)
CONFIG: RunnableConfig = {"configurable": {"thread_id": "thread", "checkpoint_ns": "", "checkpoint_id": "0"}}

sizes = st.one_of(st.integers(0, 60), st.integers(900, 1_100), st.just(20_000))
values = st.one_of(
    st.integers(),
    st.none(),
    sizes.map(lambda size: ["x" * size]),
    sizes.map(lambda size: b"x" * size),
    sizes.map(lambda size: ("x" * size,)),
    st.integers(0, 60).map(lambda size: bytearray(size)),
    st.just(2**70),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(values, st.integers(1, 60)), min_size=1, max_size=12), st.sets(st.integers(0, 200)))
def test_the_size_of_each_value_decides(runs: list[tuple[Any, int]], old: set[int]) -> None:
    """Equal values follow one another, because those before one decide how many are measured together."""
    expanded = [value for value, times in runs for _ in range(times)]
    state: dict[str, Any] = {f"channel {number}": value for number, value in enumerate(expanded)}
    state["large"] = ["x" * 20_000]
    versions = dict.fromkeys(state, "1")
    new: Any = {channel: "1" for number, channel in enumerate(state) if number not in old}
    checkpoint: Any = {"v": 4, "id": "1", "ts": "", "channel_values": state, "channel_versions": versions}
    encoded = encode_checkpoint(CODEC, Key("thread", "", "0"), CONFIG, checkpoint, {}, new, NO_BLOBS)
    assert isinstance(encoded, Encoded)
    small = {channel for channel, value in state.items() if _is_small(value)}
    assert set(encoded.row.inline_channels) == small
    assert set(encoded.row.blob_channels) == state.keys() - small
    document = CODEC.decode((encoded.row.checkpoint_type, encoded.row.checkpoint))
    blobs = {blob.channel: CODEC.decode((blob.type, blob.value)) for blob in encoded.blobs}
    assert document["channel_values"] | blobs == state


def _is_small(value: Any) -> bool:
    return len(CODEC.encode(value)[1]) <= SMALL_VALUE and type(value) is not bytearray
