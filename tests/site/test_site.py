"""The site can be made without a warning, has every public name, and loads nothing from another host."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import langgraph_checkpoint_custom
from tests.needs import need

ROOT = Path(__file__).parents[2]
PACKAGE = langgraph_checkpoint_custom.__name__
DOCUMENTS = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
# What makes a browser load something; a link that a reader may follow does not.
LOADS = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\ssrc="(?:https?:)?//[^"]*|<link[^>]*\shref="(?:https?:)?//[^"]*"""
    r"""|url\(["']?(?:https?:)?//[^)]*|@import\s+["'](?:https?:)?//[^"']*"""
)


@pytest.mark.timeout(900)  # It takes 20 s of one core.
def test_the_site_is_whole_and_loads_nothing_from_another_host(tmp_path: Path) -> None:
    """A broken link, a page outside the navigation and a docstring that cannot be read are warnings, and so errors."""
    need(
        all(map(find_spec, ("sphinx", "myst_parser", "furo", "cubeloop", "pydantic_deep"))),
        "Sphinx: the extra docs, on Python 3.11 or later",
    )
    site = tmp_path / "site"
    build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-c", "docs", "-d", str(tmp_path / "trees")]
    done = subprocess.run([*build, ".", str(site)], check=False, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")

    pages = [path for path in site.rglob("*") if path.suffix in (".html", ".css")]
    assert len(pages) > 20
    assert LOADS.search('<link rel="stylesheet" href="https://fonts.example/a.css">')
    assert {path.name: found for path in pages if (found := LOADS.findall(path.read_text("utf-8")))} == {}

    start = (site / "index.html").read_text("utf-8")
    assert [path.stem for path in (ROOT / "docs").glob("*.md") if f'href="docs/{path.stem}.html"' not in start] == []

    names = _names(site)
    assert {f"{PACKAGE}.{name}" for name in langgraph_checkpoint_custom.__all__} - names == set()
    imported = set(_imported_by_documents())
    assert len(imported) > 10
    assert imported - names == set()
    returned = {cls for name in names for cls in _returned(name) if not cls.startswith("_")}
    assert len(returned) > 10
    assert returned - {name.rpartition(".")[2] for name in names} == set()


def _names(site: Path) -> set[str]:
    """The full names in the API reference, from the index that Sphinx makes for other sites."""
    _, _, _, _, packed = (site / "objects.inv").read_bytes().split(b"\n", 4)
    rows = (line.split(" ", 2) for line in zlib.decompress(packed).decode().splitlines())
    return {name for name, kind, _ in rows if kind.startswith("py:")}


def _imported_by_documents() -> Iterator[str]:
    for path in DOCUMENTS:
        for module, listed in re.findall(rf"from ({PACKAGE}[.\w]*) import ([\w, ]+)", path.read_text("utf-8")):
            for name in listed.replace(" ", "").split(","):
                if not _is_module(f"{module}.{name}"):
                    yield f"{module}.{name}"


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _returned(name: str) -> Iterator[str]:
    """The classes of the package in the annotation of what a function or method returns."""
    parts = name.split(".")
    module = next(".".join(parts[:n]) for n in range(len(parts), 0, -1) if _is_module(".".join(parts[:n])))
    found: Any = import_module(module)
    for part in parts[module.count(".") + 1 :]:
        found = inspect.getattr_static(found, part, None) or getattr(found, part, None)
    function = getattr(found, "fget", None) or getattr(found, "__func__", found)
    if inspect.isfunction(function):
        for word in re.findall(r"\w+", str(function.__annotations__.get("return", ""))):
            cls = function.__globals__.get(word)
            if inspect.isclass(cls) and cls.__module__.startswith(f"{PACKAGE}."):
                yield word
