"""What is computed once for each name takes no more memory than ordinary names do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from langgraph_checkpoint_custom.encoding import metadata
from langgraph_checkpoint_custom.model import filter, keys
from langgraph_checkpoint_custom.sql import dialect
from langgraph_checkpoint_custom.sql.sqlite_dialect import SqliteDialect

ONE, LIST = keys.LONG_NAME, keys.LONG_NAMES


@pytest.mark.parametrize(
    ("cached", "ordinary", "long"),
    [
        (metadata._kind, ("short",), lambda n: (f"{n}é{'y' * ONE}",)),
        (filter.projected, ("short",), lambda n: (f"{n}é{'y' * ONE}",)),
        (keys.channel_text, ("short",), lambda n: (f"{n}é{'y' * ONE}",)),
        (keys.channel_texts, (("short", "also"),), lambda n: ((str(n), "y" * LIST),)),
        (
            dialect.names_text,
            (SqliteDialect.array, ("short", "also")),
            lambda n: (SqliteDialect.array, (str(n), "y" * LIST)),
        ),
    ],
)
def test_of_long_names_only_the_last_one_is_cached(cached: Any, ordinary: Any, long: Callable[[int], Any]) -> None:
    cached.cache_clear()
    for n in range(10):
        cached(*long(n))
    assert cached.cache_info().currsize == 1
    before = cached.cache_info().hits
    for _ in range(3):  # Whoever has one long name among others looks all up.
        cached(*ordinary)
        cached(*long(9))
    assert (cached.cache_info().hits - before, cached.cache_info().currsize) == (5, 2)
