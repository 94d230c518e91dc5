"""docs/api.md agrees with the code, has every public name, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver

import langgraph_checkpoint_custom
from langgraph_checkpoint_custom import CheckpointSaver, SqliteSaver, aio
from tests.reference.contents import LANGGRAPHS, METHODS, SECTIONS, Links
from tests.reference.document import COMMANDS, DOCUMENT, FOLDER, anchors_of, missing, text
from tests.reference.source import public_names

PAGES = [FOLDER.parent / "README.md", FOLDER.parent / "CONTRIBUTING.md", *sorted(FOLDER.glob("*.md"))]


def test_the_page_agrees_with_the_code() -> None:
    assert DOCUMENT.read_text("utf-8") == text(), "`python -m tests.reference` writes it"


def test_every_public_name_is_on_the_page() -> None:
    assert missing() == set(), "tests/reference/contents.py has the names"


def test_a_missing_name_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "Labels", _without(METHODS["Labels"], "label"))
    for title in ("Errors", "Arguments and results"):
        less = [(module, _without(links, "ThreadBusy", "Renewal")) for module, links in SECTIONS[title]]
        monkeypatch.setitem(SECTIONS, title, less)
    package = langgraph_checkpoint_custom.__name__
    assert missing() == {"saver.label", f"{package}.ThreadBusy", f"{package}.saver.Renewal"}


def _without(links: Links, *names: str) -> Links:
    return {name: link for name, link in links.items() if name not in names}


@pytest.mark.parametrize("module", [langgraph_checkpoint_custom, aio])
def test_the_names_are_read_as_python_reads_them(module: Any) -> None:
    assert set(public_names(module.__name__)) == set(module.__all__)


def test_every_method_of_a_saver_is_on_the_page_or_inherited() -> None:
    listed = {name for links in METHODS.values() for name in links}
    for name in dir(SqliteSaver(":memory:")):
        if not name.startswith("_") and name != "from_conn_string":
            is_twin = name.startswith("a") and name[1:] in listed
            assert is_twin or (name in listed) != (name in LANGGRAPHS), name
    for name in LANGGRAPHS:
        if name != "serde":
            assert getattr(CheckpointSaver, name) is getattr(BaseCheckpointSaver, name)


def test_every_command_is_on_the_page() -> None:
    page = DOCUMENT.read_text("utf-8").partition("## Command line\n")[2].partition("\n## ")[0]
    assert re.findall(r"^- \*\*`([\w-]+)`\*\*: ", page, re.MULTILINE) == list(COMMANDS)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_link_of_the_documents_leads_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text("utf-8")):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        other = path.parent / name if name else path
        assert other.exists(), target
        if anchor:
            assert anchor in anchors_of(other.read_text("utf-8")), target
