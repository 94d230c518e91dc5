"""The examples of the documents work as they are written."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver as OfficialPostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver as OfficialAsyncPostgresSaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.sqlite import SqliteSaver as OfficialSqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver as OfficialAsyncSqliteSaver

from langgraph_checkpoint_custom import CheckpointSaver, PostgresSaver, Retention, SqliteSaver, errors, open_saver
from langgraph_checkpoint_custom.cli import main
from langgraph_checkpoint_custom.model import keys as model
from langgraph_checkpoint_custom.operations.copies import copy_thread
from langgraph_checkpoint_custom.saver import PAGE
from langgraph_checkpoint_custom.tools.exchange import export_file
from tests.behaviour.helpers import SURELY_FIT
from tests.needs import need

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def _blocks(text: str, kind: str = "python") -> list[str]:
    """The blocks of Python in a document."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


# psycopg and psycopg_pool log these if a loop ends without `aclose`; troubleshooting.md explains them.
INTERRUPTED = re.compile(
    r"^(query cancellation interrupted \(.*\): closing connection|error connecting in '.*': )\n", re.MULTILINE
)


def _run(code: str, folder: Path, *arguments: str, **environment: str) -> None:
    """Run a document's code in a new process and an empty folder; it must write nothing to stderr.

    Except for the warnings of a pool that was opening one more connection when its event loop ended: see `INTERRUPTED`.
    """
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **environment},
    )
    assert (done.returncode, INTERRUPTED.sub("", done.stderr)) == (0, "")


# A notebook's kernel runs its cells so: one event loop, with `await` at the top level.
KERNEL = """
import ast, asyncio, inspect, json, sys

async def main():
    names = {"__name__": "__main__"}
    for cell in json.loads(sys.argv[1]):
        waits = eval(compile(cell, "a cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if inspect.iscoroutine(waits):
            await waits

asyncio.run(main())
"""
DOCUMENTS = sorted(path.name for path in (ROOT / "docs").glob("*.md") if _blocks(path.read_text("utf-8")))
# Packages that are not in the extra `dev`.
NEEDED = {"adapters.md": ("cubeloop", "pydantic_deep")}


def test_the_readmes_example_remembers_the_first_turn(tmp_path: Path) -> None:
    (block,) = _blocks(README)
    done = subprocess.run([sys.executable, "-c", block], check=False, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    assert first == "You said ['Hello!']."
    assert f"`{second}`" in README


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_documents_examples_run(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The examples of one document run one after the other; CHECKPOINT_URL is an empty database."""
    for package in NEEDED.get(name, ()):
        need(find_spec(package), f"the extra {package.replace('_', '-')}")
    code = "\n".join(_blocks((ROOT / "docs" / name).read_text("utf-8")))
    if "CHECKPOINT_URL" in code:
        _run(code, tmp_path, CHECKPOINT_URL=request.getfixturevalue("empty_postgres_url"))
    else:
        _run(code, tmp_path)


# After FastAPI's block: users have threads of their own.
TURNS = """
from fastapi.testclient import TestClient

with TestClient(app) as client:
    assert client.post("/ann/threads/1", params={"said": "a"}).json() == {"said": "a", "heard": ["a"]}
    assert client.post("/ann/threads/1", params={"said": "b"}).json()["heard"] == ["a", "b"]
    assert client.post("/bob/threads/1", params={"said": "c"}).json()["heard"] == ["c"]
"""
# After FastAPI's block: one request waits in its node until another has continued the thread.
CONFLICT = """
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from fastapi.testclient import TestClient

begun, go_on = threading.Event(), threading.Event()

def hear(state):
    if state["said"] == "slow":
        begun.set()
        assert go_on.wait(150)
    return {"heard": [*state.get("heard", []), state["said"]]}

builder = StateGraph(State)
builder.add_node("hear", hear)
builder.add_edge(START, "hear")
with TestClient(app) as client, ThreadPoolExecutor() as pool:
    slow = pool.submit(client.post, "/ann/threads/1", params={"said": "slow"})
    assert begun.wait(150)
    # Its node runs while its input is still being stored (durability "async"): before that, the quick one would lose.
    stored = app.state.saver.for_tenant("ann")
    while (last := stored.get_tuple({"configurable": {"thread_id": "1"}})) is None or last.metadata["step"] < 0:
        time.sleep(0.01)  # Nothing outside the saver announces that a checkpoint is stored.
    quick = client.post("/ann/threads/1", params={"said": "quick"})
    go_on.set()
    assert (quick.status_code, quick.json()["heard"]) == (200, ["quick"])
    assert slow.result().status_code == 409
    assert slow.result().json()["detail"] == "another request has changed this thread"
"""


# After Django's block: async and sync views share a saver.
VIEWS = """
import django
from django.test import AsyncClient, Client

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"])
django.setup()


async def asked():
    client = AsyncClient()
    for said in ("a", "b"):
        response = await client.get("/async/1", {"said": said})
    assert response.json()["heard"] == ["a", "b"]


saver.setup()
asyncio.run(asked())
assert Client().get("/sync/1", {"said": "c"}).json()["heard"] == ["a", "b", "c"]
"""


def test_the_applications_for_fastapi_and_django_remember(tmp_path: Path, empty_postgres_url: str) -> None:
    graph, fastapi, django, *_ = _blocks((ROOT / "docs" / "frameworks.md").read_text("utf-8"))
    _run("\n".join((graph, fastapi, TURNS, django, VIEWS)), tmp_path, CHECKPOINT_URL=empty_postgres_url)


def test_fastapi_answers_409_if_another_request_has_continued_the_thread(
    tmp_path: Path, empty_postgres_url: str
) -> None:
    graph, app, *_ = _blocks((ROOT / "docs" / "frameworks.md").read_text("utf-8"))
    _run("\n".join((graph, app, CONFLICT)), tmp_path, CHECKPOINT_URL=empty_postgres_url)


def test_the_notebooks_cells_run(tmp_path: Path) -> None:
    cells = _blocks((ROOT / "docs" / "frameworks.md").read_text("utf-8"), "python notebook")
    assert any(re.search(r"^first = await ", cell, re.MULTILINE) for cell in cells)
    _run(KERNEL, tmp_path, json.dumps(cells))


def test_the_documents_are_short() -> None:
    """Those that a user reads: not the reference, and not what a program writes."""
    pages = {path for path in (ROOT / "docs").glob("*.md") if path.name not in ("api.md", "values.md")}
    texts = [README, *(path.read_text("utf-8") for path in pages)]
    assert sum(len(text.split()) for text in texts) <= 22_000
    assert len(README.splitlines()) <= 110


def test_the_readme_has_the_two_commands() -> None:
    for extra, command in (("demo", "python -m langgraph_checkpoint_custom demo"), ("dev", "python -m pytest")):
        assert f"\npython -m pip install -e '.[{extra}]' && {command}\n" in README


def test_the_numbers_in_the_documents_are_those_of_the_code() -> None:
    guarantees = " ".join((ROOT / "docs" / "guarantees.md").read_text("utf-8").split())
    assert f"1 per page of {PAGE}" in guarantees
    for text in (README, guarantees):
        assert f"{model.MAX_THREAD_ID:,} bytes (threads) and {model.MAX_ID} (checkpoints, tasks" in text
    assert f"may have {model.MAX_NAME:,} bytes" in guarantees
    assert f"{SURELY_FIT:,} bytes of thread id, tenant, namespace and channel together always fit" in guarantees
    assert f"may have {model.MAX_TENANT} bytes, and a label {model.MAX_ID}." in guarantees


def test_the_tests_of_the_guarantees_exist() -> None:
    """A name without a folder is in the folder of the name before it."""
    _, _, after = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("\n## Which test keeps which promise\n")
    table, _, _ = after.partition("\n## ")
    rows = re.findall(r"^\| .* \| (`.*) \|$", table, re.MULTILINE)
    assert len(rows) > 10
    for row in rows:
        folder = ""
        for name in re.findall(r"`([^`]+)`", row):
            folder = name.rpartition("/")[0] if "/" in name else folder
            assert list((ROOT / "tests" / folder).glob(name.rpartition("/")[2] or "*.py")), name


@pytest.mark.parametrize("saver", [CheckpointSaver, SqliteSaver, PostgresSaver])
def test_every_option_is_explained_where_the_reference_has_it(saver: type) -> None:
    explained = re.findall(r"^    (\w+): ", inspect.getdoc(saver) or "", re.MULTILINE)
    for name, parameter in inspect.signature(saver).parameters.items():
        assert name in explained or parameter.kind is inspect.Parameter.VAR_POSITIONAL, name


def _parsed(path: Path) -> ast.Module:
    """Parse a file, again if another OS thread does so, too: then Python before 3.11.5 raises SystemError."""
    for _ in range(9):
        with suppress(SystemError):
            return ast.parse(path.read_text("utf-8"))
    return ast.parse(path.read_text("utf-8"))


def _texts_of_the_source() -> list[str]:
    """Every text in the package; … replaces the values of formatted texts."""
    found = []
    for path in sorted((ROOT / "langgraph_checkpoint_custom").rglob("*.py")):
        for node in ast.walk(_parsed(path)):
            if isinstance(node, ast.JoinedStr):
                found.append(
                    "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(re.sub(r"%[.0-9]*[sdrf]", "…", node.value))
    return found


def test_the_troubleshooting_has_every_error_and_no_message_of_its_own() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    for name, found in vars(errors).items():
        if isinstance(found, type) and issubclass(found, errors.CheckpointError):
            assert f"`{name}`" in page, name
    quoted: set[str] = set()
    column = None
    for line in page.splitlines():
        cells = line.strip("|").split(" | ") if line.startswith("|") else []
        if not cells:
            column = None
        elif column is None:
            column = [cell.strip() for cell in cells].index("message")
        elif not line.startswith("|--"):
            quoted |= set(re.findall(r"`([^`]+)`", cells[column]))
    assert len(quoted) > 40
    texts = _texts_of_the_source()
    for text in sorted(quoted):
        pattern = re.compile(".*".join(map(re.escape, text.split("…"))), re.DOTALL)
        assert any(map(pattern.search, texts)), text


def test_the_storage_format_has_every_table_and_column() -> None:
    page = (ROOT / "docs" / "storage-format.md").read_text("utf-8")
    schema = (ROOT / "schema.sql").read_text("utf-8")
    tables = re.findall(r"^CREATE TABLE langgraph_checkpoint\.(\w+) \(\n(.*?)^\);", schema, re.MULTILINE | re.DOTALL)
    assert len(tables) == 10
    for table, body in tables:
        for name in (table, *re.findall(r"^    ([a-z]\w*) ", body, re.MULTILINE)):
            assert f"`{name}`" in page, name


@pytest.mark.parametrize("name", ["storage-format.md"])
def test_the_documents_queries_run(name: str, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        for question in _blocks((ROOT / "docs" / name).read_text("utf-8"), "sql"):
            assert connection.execute(question.encode()).fetchall() == []


@pytest.mark.parametrize(
    ("saver", "methods"),
    [
        (SqliteSaver, {"copy_thread", "delete_for_runs", "prune"}),
        (OfficialPostgresSaver, {"prune"}),
        (OfficialAsyncPostgresSaver, {"prune"}),
        (OfficialSqliteSaver, set()),
        (OfficialAsyncSqliteSaver, set()),
    ],
)
def test_the_readme_says_which_methods_savers_have(saver: type[BaseCheckpointSaver[str]], methods: set[str]) -> None:
    said = r"^\| `copy_thread`, `delete_for_runs`, `prune` \| only the PostgreSQL saver has `prune`.*; no saver has the"
    assert re.search(said, README, re.MULTILINE)
    for method in ("copy_thread", "delete_for_runs", "prune"):
        has = any(getattr(saver, name) is not getattr(BaseCheckpointSaver, name) for name in (method, f"a{method}"))
        assert has == (method in methods), method


# A line of a block, or code in a line, that begins with the program's name and a command.
PROGRAM = r"(?:lgckpt|python -m langgraph_checkpoint_custom) (?=[a-z])"
COMMANDS = sorted(
    {
        (path.name, command.partition(" | ")[0].partition(" > ")[0].strip())
        for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
        for line in path.read_text("utf-8").splitlines()
        for command in re.findall(rf"(?:^ *|`|&& ){PROGRAM}([^`]*)", line)
    }
)
ASKING = ("delete", "prune", "rollback", "sweep", "vacuum")
KEYS = {"KEY_2025": "0123456789abcdef", "KEY_2026": "fedcba9876543210"}
CHECKPOINTS = ("1f0c4a52-7d5c-6f0e-8003-5d0b7a1c2e44", "1f0c4a53-0a10-6b1a-8004-9f1be0c3a511")


def _prepare(name: str, arguments: list[str], serde: Any) -> None:
    """A store with the data that the command needs."""
    with open_saver(os.environ["CHECKPOINT_URL"], serde=serde) as saver:
        for thread in ("1", "2", "3"):
            where: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
            for checkpoint_id in CHECKPOINTS:
                made = {**empty_checkpoint(), "id": checkpoint_id}
                where = saver.put(where, made, {"source": "loop", "step": 1, "user": "ann"}, {})  # type: ignore
        if "1-copy" in arguments and name != "copy":
            saver.copy_thread("1", "1-copy")
        if name == "status":
            saver.sweep(Retention())
        if name == "unlabel":
            saver.label({"configurable": {"thread_id": "1"}}, arguments[-1])
        if name == "import":
            export_file(saver, "all.zst")
        if r"\x1ecubeloop/thread" in arguments:
            saver.backend.driver.run(copy_thread(saver.backend.dialect, "1", "\x1ecubeloop/thread"))
    if name == "migrate":
        with OfficialSqliteSaver.from_conn_string("official.db") as official:
            official.put({"configurable": {"thread_id": "9", "checkpoint_ns": ""}}, empty_checkpoint(), {}, {})


@pytest.mark.parametrize(("document", "command"), COMMANDS)
def test_the_documents_commands_run(
    document: str, command: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command runs on its own store, with prompts confirmed; a PostgreSQL URL is that of an empty database."""
    name, *arguments = shlex.split(command)
    if name in ("demo", "ui"):
        pytest.skip("tests/cli/test_demo.py and tests/ui/test_command.py run them")
    if "--distribute" in arguments:
        pytest.skip("tests/distributed/test_setup.py runs it on a cluster")
    if "--follow" in arguments:
        pytest.skip("tests/cli/test_cut_over.py runs it, until Ctrl-C")
    monkeypatch.chdir(tmp_path)
    for variable, key in KEYS.items():
        monkeypatch.setenv(variable, key)
    serde = None
    if name == "rekey":
        monkeypatch.setenv("CHECKPOINT_ENCRYPTION_KEYS", "KEY_2026,KEY_2025")
        serde = EncryptedSerializer.from_pycryptodome_aes(key=KEYS["KEY_2025"].encode())
    monkeypatch.setenv("CHECKPOINT_URL", f"sqlite:///{tmp_path / 'checkpoints.db'}")
    _prepare(name, arguments, serde)
    arguments = [
        request.getfixturevalue("empty_postgres_url") if each.startswith("postgresql:") else each for each in arguments
    ]
    if name in ASKING and not {"--yes", "--dry-run"} & set(arguments):
        arguments.append("--yes")
    assert main([name, *arguments]) == 0
