"""Fixtures of the drivers' tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest


@pytest.fixture
async def room_for_many() -> AsyncIterator[None]:
    """Sync calls run on the loop's workers, which are few on a small machine."""
    with ThreadPoolExecutor(64) as workers:
        asyncio.get_running_loop().set_default_executor(workers)
        yield
