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
from langgraph_checkpoint_custom import aio
from tests.needs import need

ROOT = Path(__file__).parents[2]
PACKAGE = langgraph_checkpoint_custom.__name__
DOCUMENTS = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
# What makes a browser load something; a link that a reader may follow does not.
LOADS = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\ssrc="(?:https?:)?//[^"]*|<link[^>]*\shref="(?:https?:)?//[^"]*"""
    r"""|url\(["']?(?:https?:)?//[^)]*|@import\s+["'](?:https?:)?//[^"']*"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site; a broken link, a page outside the navigation or a docstring without form is an error."""
    need(
        all(map(find_spec, ("sphinx", "myst_parser", "furo", "cubeloop", "pydantic_deep"))),
        "Sphinx: the extra docs, on Python 3.11 or later",
    )
    target = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-c", "docs"]
    done = subprocess.run(
        [*build, "-d", f"{target}-trees", ".", target], check=False, capture_output=True, text=True, cwd=ROOT
    )
    assert (done.returncode, done.stderr) == (0, "")
    return target


@pytest.fixture(scope="module")
def names(site: Path) -> set[str]:
    """The full names in the API reference, from the index that Sphinx makes for other sites."""
    _, _, _, _, packed = (site / "objects.inv").read_bytes().split(b"\n", 4)
    rows = (line.split(" ", 2) for line in zlib.decompress(packed).decode().splitlines())
    return {name for name, kind, _ in rows if kind.startswith("py:")}


def test_the_site_loads_nothing_from_another_host(site: Path) -> None:
    pages = [path for path in site.rglob("*") if path.suffix in (".html", ".css")]
    assert len(pages) > 20
    assert LOADS.search('<link rel="stylesheet" href="https://fonts.example/a.css">')
    for path in pages:
        assert LOADS.findall(path.read_text("utf-8")) == [], path.name


def test_the_start_page_leads_to_every_page(site: Path) -> None:
    start = (site / "index.html").read_text("utf-8")
    for path in (ROOT / "docs").glob("*.md"):
        assert f'href="docs/{path.stem}.html"' in start


@pytest.mark.parametrize("module", [langgraph_checkpoint_custom, aio])
def test_every_public_name_is_in_the_reference(module: Any, names: set[str]) -> None:
    assert {f"{module.__name__}.{name}" for name in module.__all__} <= names


def test_every_name_that_a_document_imports_is_in_the_reference(names: set[str]) -> None:
    imported = set()
    for path in DOCUMENTS:
        for module, listed in re.findall(rf"from ({PACKAGE}[.\w]*) import ([\w, ]+)", path.read_text("utf-8")):
            found = {f"{module}.{name}" for name in listed.replace(" ", "").split(",")}
            imported |= {name for name in found if not find_spec(module) or not _is_module(name)}
    assert len(imported) > 10
    assert imported <= names


def test_every_class_that_a_public_function_returns_is_in_the_reference(names: set[str]) -> None:
    known = {name.rpartition(".")[2] for name in names}
    returned = {cls for name in names for cls in _returned(name)}
    assert len(returned) > 10
    assert {name for name in returned if not name.startswith("_")} <= known


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
