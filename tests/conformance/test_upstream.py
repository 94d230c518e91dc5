"""`langgraph-checkpoint-conformance`: every capability is there, and passes, through both APIs of one saver."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import validate
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.checkpoint.conformance.initializer import RegisteredCheckpointer

from tests.conformance import side
from tests.stores import Store


@pytest.mark.parametrize("capability", Capability, ids=lambda capability: capability.value)
async def test_langgraphs_suite_passes_with_sync_and_async_methods_of_one_saver(
    store: Store, capability: Capability
) -> None:
    async with store.open() as saver:
        for api in ("sync", "async", "sync"):

            async def make(api: str = api) -> AsyncGenerator[BaseCheckpointSaver[Any], None]:
                yield side(saver, api)

            report = await validate(
                RegisteredCheckpointer(name=f"{store.kind}, {api}", factory=make), capabilities={capability.value}
            )
            result = report.results[capability.value]
            assert result.failures == [], api
            assert (result.detected, result.passed, result.tests_skipped) == (True, True, 0), api
            assert result.tests_passed > 0, api
