"""`docs/agent-server.md` agrees with the code, and its examples work as written."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from langgraph_checkpoint_custom import settings
from tests.behaviour.helpers import config, get, put
from tests.server.processes import CONFIG, ROOT
from tests.stores import Client

DOCUMENT = (ROOT / "docs" / "agent-server.md").read_text("utf-8")


def block(language: str) -> str:
    """The only block in a language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
    return str(found)


def test_the_recipe_is_the_configuration_of_the_tests_servers() -> None:
    assert json.loads(block("json"))["checkpointer"] == CONFIG["checkpointer"]


def test_every_variable_is_in_the_document_and_nothing_else() -> None:
    names = r"CHECKPOINT_[A-Z_]+[A-Z]"
    assert set(re.findall(names, DOCUMENT)) == settings._KNOWN
    assert settings.SERVERS_KEY in DOCUMENT
    assert f"| `{settings.URL}` | `{settings.DEFAULT_URL}` |" in DOCUMENT


async def test_the_custom_saver_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made: dict[str, Any] = {}
    exec(block("python"), made)
    async with made["checkpointer"]() as saver, made["checkpointer"]() as other:
        assert saver is other
        await put(Client(saver, "async"), "1")
        assert (await get(Client(other, "async"), config())).checkpoint["id"] == "1"
    await made["saver"].aclose()
