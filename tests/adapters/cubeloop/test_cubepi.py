"""CubePi, CubeLoop's name until 0.13, without CubeLoop installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from langgraph_checkpoint_custom import CheckpointSaver
from langgraph_checkpoint_custom.adapters.cubeloop import CubeLoopCheckpointer
from tests.adapters.cubeloop.programs import said
from tests.downloads import pip
from tests.stores import Store

PROGRAM = """
import asyncio, sys

sys.modules["cubeloop"] = None  # As if it was not installed.
from cubepi.agent.agent import Agent
from cubepi.checkpointer.base import Checkpointer
from cubepi.checkpointer.exceptions import RunAlreadyCompletedError
from cubepi.providers.faux import FauxProvider, faux_assistant_message

from langgraph_checkpoint_custom import open_saver
from langgraph_checkpoint_custom.adapters.cubeloop import CubeLoopCheckpointer

async def main():
    async with open_saver(sys.argv[1]) as saver, CubeLoopCheckpointer(saver) as checkpointer:
        assert isinstance(checkpointer, Checkpointer)
        provider = FauxProvider()
        provider.set_responses([faux_assistant_message("hello")])
        agent = Agent(model=provider.model("faux"), checkpointer=checkpointer, thread_id="thread")
        await agent.prompt("hi", run_id="run")
        assert (await checkpointer.load("thread")).messages == agent.state.messages
        try:
            await checkpointer.claim_run("thread", "run")
        except RunAlreadyCompletedError:
            print("works")

asyncio.run(main())
"""
NEITHER = """
import sys

sys.modules["cubeloop"] = sys.modules["cubepi"] = None
from langgraph_checkpoint_custom import ConfigError

try:
    import langgraph_checkpoint_custom.adapters.cubeloop
except ConfigError as error:
    print(error)
"""


def run(code: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_cubepi_and_cubeloop_share_threads(tmp_path: Path, store: Store, saver: CheckpointSaver) -> None:
    pip("install", "cubepi==0.13.6", tmp_path / "packages")
    saver.setup()
    assert run(PROGRAM, store.url, PYTHONPATH=str(tmp_path / "packages")) == "works\n"
    found = await CubeLoopCheckpointer(saver).load("thread")
    assert found is not None
    assert said(found.messages) == [("user", "hi", "run"), ("assistant", "hello", "run")]


def test_without_either_package_the_error_names_the_extra() -> None:
    assert run(NEITHER) == "CubeLoop is missing: install langgraph-checkpoint-custom[cubeloop]\n"
