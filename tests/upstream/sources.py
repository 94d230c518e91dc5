"""LangGraph's tests: where they come from, and how the official savers' names in them are replaced by ours."""

from __future__ import annotations

import ast
import shutil
import warnings
from pathlib import Path

HERE = Path(__file__).parent
# What a user changes: the module that a saver is imported from. Ours have no counterpart of `InMemorySaver`, so a class
# next to the tests creates one of our savers each time.
OURS = {
    ("langgraph.checkpoint.memory", "InMemorySaver"): "tests.replaced",
    ("langgraph.checkpoint.memory", "MemorySaver"): "tests.replaced",
    ("langgraph.checkpoint.postgres", "PostgresSaver"): "langgraph_checkpoint_custom",
    ("langgraph.checkpoint.postgres.aio", "AsyncPostgresSaver"): "langgraph_checkpoint_custom",
    ("langgraph.checkpoint.sqlite", "SqliteSaver"): "langgraph_checkpoint_custom",
    ("langgraph.checkpoint.sqlite.aio", "AsyncSqliteSaver"): "langgraph_checkpoint_custom",
}


def copy_tests(source: Path, folder: Path) -> None:
    """Copy the tests of a package into a folder, with the imports and fixtures of our savers."""
    tests = folder / "tests"
    shutil.copytree(source / "tests", tests)
    for file in tests.rglob("*.py"):
        file.write_text(with_our_imports(file.read_text()))
    for ours in (HERE / "replacements").glob("[!_]*.py"):
        # It is not called conftest here, because pytest would take it for one of our own tests.
        shutil.copy(ours, tests / ours.name.replace("fixtures.py", "conftest.py"))
    (folder / "pytest.ini").write_text(
        "[pytest]\n"
        "asyncio_mode = auto\n"
        "asyncio_default_fixture_loop_scope = function\n"
        "timeout = 180\n"
        "addopts = -p no:randomly -p no:cacheprovider\n"
    )


def with_our_imports(program: str) -> str:
    """A program that imports each official saver from our package; nothing else changes."""
    lines = program.splitlines(keepends=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parsed = ast.parse(program)
    imports = [node for node in ast.walk(parsed) if isinstance(node, ast.ImportFrom)]
    for node in sorted(imports, key=lambda node: node.lineno, reverse=True):
        modules = [OURS.get((node.module or "", alias.name), node.module or "") for alias in node.names]
        if modules == [node.module] * len(modules):
            continue
        indent = " " * node.col_offset
        named = [f"{alias.name} as {alias.asname}" if alias.asname else alias.name for alias in node.names]
        lines[node.lineno - 1 : node.end_lineno] = [
            f"{indent}from {module} import {name}\n" for module, name in zip(modules, named, strict=True)
        ]
    return "".join(lines)
