"""What is read is what was stored."""

from __future__ import annotations

from langgraph.checkpoint.base import ChannelVersions
from langgraph.checkpoint.conformance.test_utils import generate_checkpoint, generate_config, generate_metadata

from tests.stores import Client


async def test_a_checkpoint_is_read_complete(client: Client) -> None:
    values = {"messages": [{"role": "user", "content": "a\0b" * 200}], "count": 3, "text": "x" * 1000, "none": None}
    versions: ChannelVersions = {channel: client.saver.get_next_version(None, None) for channel in values}
    checkpoint = generate_checkpoint(channel_values=values, channel_versions=versions)
    config = await client.put(generate_config("thread"), checkpoint, generate_metadata(step=1), versions)
    await client.put_writes(config, [("messages", ["new"])], "task", "~path")
    found = await client.get_tuple(config)
    assert found is not None
    assert found.checkpoint == checkpoint
    assert found.metadata == generate_metadata(step=1)
    assert found.pending_writes == [("task", "messages", ["new"])]
    assert found.parent_config is None
    assert found.config == config
