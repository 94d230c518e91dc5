"""Pending writes are returned in the order of `writes_sort_key`, compared as Python compares strings."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from langgraph.checkpoint.base import WRITES_IDX_MAP, writes_sort_key

from tests.behaviour.helpers import config, get, put
from tests.stores import Client

# Upper and lower case, accents, punctuation that collations ignore, and a character beyond U+FFFF, which UTF-16 sorts
# before U+FFFD.
TEXTS = ["", "B", "a", "b", "é", "z", "~a", "a b", "a-b", "a_b", "ab", "10", "9", "\ufffd", "\U0001f642"]


class Call(NamedTuple):
    task_path: str
    task_id: str
    writes: Sequence[tuple[str, str]]


def calls() -> list[Call]:
    """Every path with every task; each task makes two regular and two special writes."""
    made = []
    for path in TEXTS:
        for task in ("T", "t", "ü"):
            name = f"{path}/{task}"
            written = [
                ("b", f"{name} 0"),
                ("__error__", f"{name} -1"),
                ("a", f"{name} 2"),
                ("__resume__", f"{name} -4"),
            ]
            made.append(Call(path, f"{path}{task}", written))
    random.Random(7).shuffle(made)
    return made


def expected(made: Sequence[Call]) -> list[tuple[str, str, str]]:
    rows = [
        (writes_sort_key(call.task_path, call.task_id, WRITES_IDX_MAP.get(channel, idx)), call.task_id, channel, value)
        for call in made
        for idx, (channel, value) in enumerate(call.writes)
    ]
    return [row[1:] for row in sorted(rows)]


async def test_each_read_returns_writes_in_order(client: Client) -> None:
    made = calls()
    where = await put(client, "1", {"a": ["seed"]})
    for call in made:
        await client.put_writes(where, call.writes, call.task_id, call.task_path)
    for asked in (where, config()):
        assert (await get(client, asked)).pending_writes == expected(made)
    (listed,) = await client.all(config())
    assert listed.pending_writes == expected(made)
    child = await put(client, "2", parent=where)
    history = await client.history(child, ["a"])
    assert history["a"]["writes"] == [row for row in expected(made) if row[1] == "a"]
