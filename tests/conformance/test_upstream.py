"""`langgraph-checkpoint-conformance`: every capability is there, and passes, through both colours of one saver."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import validate
from langgraph.checkpoint.conformance.capabilities import Capability, DetectedCapabilities
from langgraph.checkpoint.conformance.initializer import RegisteredCheckpointer

from langgraph_checkpoint_custom import CheckpointSaver
from tests.conformance import side
from tests.conftest import COLOURS
from tests.stores import Store


@pytest.mark.parametrize("first", COLOURS)
@pytest.mark.parametrize("capability", Capability, ids=lambda capability: capability.value)
async def test_langgraphs_suite_passes_in_both_colours_of_one_saver(
    store: Store, first: str, capability: Capability
) -> None:
    async with store.open() as saver:
        for colour in sorted(COLOURS, key=lambda colour: colour != first):

            async def make(colour: str = colour) -> AsyncGenerator[BaseCheckpointSaver[Any], None]:
                yield side(saver, colour)

            report = await validate(
                RegisteredCheckpointer(name=f"{store.kind}, {colour}", factory=make), capabilities={capability.value}
            )
            result = report.results[capability.value]
            assert result.failures == [], colour
            assert (result.detected, result.passed, result.tests_skipped) == (True, True, 0), colour
            assert result.tests_passed > 0, colour


@pytest.mark.parametrize("colour", COLOURS)
def test_no_capability_is_missing(saver: CheckpointSaver, colour: str) -> None:
    assert DetectedCapabilities.from_instance(side(saver, colour)).missing == frozenset()
