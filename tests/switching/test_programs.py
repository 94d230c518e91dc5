"""What LangGraph's documentation does with a checkpointer has the same results with ours, with one line changed."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import APIS, BACKENDS, made_database
from tests.switching.loading import module_of, with_one_line_changed

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("[!_]*.py"))


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_a_program_for_the_official_saver_prints_the_same_with_one_line_changed(
    program: Path,
    backend: str,
    api: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    official = program.read_text()
    if backend == "sqlite":
        official = official.replace(".postgres.", ".sqlite.").replace("Postgres", "Sqlite")
    name = f"Async{backend.capitalize()}Saver"
    modules = f"langgraph.checkpoint.{backend}.aio", "langgraph_checkpoint_custom.aio"
    if api == "sync":
        official = without_async(official)
        name = name.removeprefix("Async")
        modules = f"langgraph.checkpoint.{backend}", "langgraph_checkpoint_custom"
    ours = with_one_line_changed(official, *(f"from {module} import {name}" for module in modules))

    printed = []
    for number, text in enumerate((official, ours)):
        with module_of(program.stem, text) as module:
            if backend == "sqlite":
                run(module, str(tmp_path / f"{number}.db"))
            else:
                with made_database(request.getfixturevalue("postgres_dsn")) as (_, url):
                    run(module, url)
        printed.append(capsys.readouterr().out)

    assert printed[1] == printed[0]
    assert printed[1].count("\n") > 5


def run(module: ModuleType, where: str) -> None:
    made = module.main(where)
    if made is not None:
        asyncio.run(made)


def without_async(program: str) -> str:
    """The sync form of an async program: LangGraph's names differ by a letter, and a task's result is requested."""
    program = re.sub(r"await (\w+_task\([^)]*\)|future)", r"\1.result()", program)
    program = re.sub(r"\b(?:async|await) ", "", program)
    program = re.sub(r"\.a(invoke|stream|get_\w+|update_state|list|delete_thread)\b", r".\1", program)
    return (
        re.sub(r"(\w)\.aio import Async", r"\1 import ", program)
        .replace("AsyncPostgres", "Postgres")
        .replace("AsyncSqlite", "Sqlite")
    )
