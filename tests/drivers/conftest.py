"""Fixtures of the drivers' tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest


@pytest.fixture
async def room_for_many() -> AsyncIterator[None]:
    """Give the loop 64 workers for sync calls; on a small machine it has only a few."""
    with ThreadPoolExecutor(64) as workers:
        asyncio.get_running_loop().set_default_executor(workers)
        yield
