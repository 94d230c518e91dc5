"""Rules about the source of the package, such as which module may import which."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Container, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_checkpoint_custom import CheckpointSaver, PostgresSaver, SqliteSaver
from langgraph_checkpoint_custom.sql.files import in_sqlite, load_statements, read_files
from tests.choice import DATABASES, LONG, NOT_DISTRIBUTED, ON_A_CLUSTER, ONE_DATABASE, SAMPLED
from tests.conftest import ON_COORDINATOR

PACKAGE = Path(__file__).parents[1] / "langgraph_checkpoint_custom"
NAME = PACKAGE.name

# What each module may import from the package. The pure ones may not import anything that does I/O either.
PURE = ("engine", "model", "encoding", "sql", "operations")
BELOW = {"errors", "migrations", "pairs", *PURE}
MAY_IMPORT = {
    "errors": set(),
    "migrations": set(),
    "pairs": set(),
    "engine": {"errors"},
    "model": {"errors"},
    "encoding": {"errors", "engine", "model"},
    "sql": {"errors", "migrations", "engine", "model", "encoding"},
    "operations": {"errors", "engine", "model", "encoding", "sql"},
    "forks": set(),
    "drivers": {"errors", "forks", "engine", "model"},
    "lease": BELOW,
    "blob_cache": {"forks", "model", "encoding"},
    "observed": {"errors", "engine", "model", "encoding"},
    "otel": {"observed"},
    "retention": BELOW,
    "lifecycle": BELOW | {"retention"},
    "threads": BELOW | {"lease", "lifecycle", "retention"},
    "options": BELOW | {"observed", "retention"},
    "saver": BELOW | {"observed", "options", "blob_cache", "retention", "threads"},
    "sqlite": BELOW | {"drivers", "options", "saver"},
    "postgres": BELOW | {"drivers", "options", "saver"},
    "adapters": BELOW | {"saver"},
    "tools": BELOW | {"saver"},
    "settings": {"errors", "options", "saver", "sqlite", "postgres"},
    "server": {"saver", "settings"},
    "ui": BELOW | {"retention", "saver", "tools"},
}
# These may import everything.
PROGRAMS = {"__init__", "__main__", "cli", "demo"}
OUTSIDE = {"asyncio", "threading", "time", "sqlite3", "psycopg", "psycopg_pool", "socket", "concurrent"}


def modules() -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        found.setdefault(path.relative_to(PACKAGE).parts[0].removesuffix(".py"), []).append(path)
    return found


def imports(path: Path) -> set[str]:
    """The modules that a file imports; what it imports from a module may be a module of ours as well."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            module = str(node.module)
            found |= {module, *filter(is_ours, (f"{module}.{alias.name}" for alias in node.names))}
    return found


def is_ours(name: str) -> bool:
    path = PACKAGE.parent.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def test_each_module_has_a_rule_for_its_imports() -> None:
    assert modules().keys() == MAY_IMPORT.keys() | PROGRAMS


@pytest.mark.parametrize("module", MAY_IMPORT)
def test_imports_go_one_way(module: str) -> None:
    paths = modules()[module]
    assert paths
    for path in paths:
        ours = {name.split(".")[1] for name in imports(path) if name.startswith(f"{NAME}.")}
        assert ours - {module} <= MAY_IMPORT[module], path


@pytest.mark.parametrize("module", PURE)
def test_pure_modules_import_no_clock_thread_loop_or_database(module: str) -> None:
    for path in modules()[module]:
        assert {name.split(".")[0] for name in imports(path)} & OUTSIDE == set(), path
        called = {node.attr for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Attribute)}
        assert called & {"now", "utcnow", "today"} == set(), path


# The serializer: between objects and msgpack. The rest of the encoding is about the rows of a checkpoint.
SERIALIZER = {
    "allowlist",
    "classes",
    "extensions",
    "langgraph_private",
    "leaves",
    "libraries",
    "objects",
    "restored",
    "serde",
}


def test_the_serializer_knows_nothing_of_checkpoints() -> None:
    for path in modules()["encoding"]:
        names = path.relative_to(PACKAGE / "encoding").with_suffix("").parts
        if names[0] in SERIALIZER:
            ours = {name.removeprefix(f"{NAME}.") for name in imports(path) if name.startswith(f"{NAME}.")}
            assert {name.split(".")[1] for name in ours - {"errors"}} <= SERIALIZER, path


def test_the_two_drivers_and_dialects_do_not_know_each_other() -> None:
    for module in ("drivers", "sql"):
        for path in modules()[module]:
            other = "postgres" if "sqlite" in path.name else "sqlite"
            assert not any(f".{module}.{other}" in name for name in imports(path)), path


def test_nothing_imports_the_command_line() -> None:
    for module, paths in modules().items():
        if module not in ("cli", "demo", "__main__"):
            for path in paths:
                assert not imports(path) & {f"{NAME}.cli", f"{NAME}.demo"}, path


def inside(path: Path, room: str) -> set[str]:
    """The modules of a room that one of its files imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name.removeprefix(f"{NAME}.") for name in found if name.startswith(f"{NAME}.{room}.")}


@pytest.mark.parametrize("room", ["adapters", "cli", "demo", "encoding", "tools", "ui"])
def test_the_modules_of_a_room_do_not_import_each_other_in_a_circle(room: str) -> None:
    names = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
        for path in modules()[room]
    }
    TopologicalSorter({name: inside(path, room) & names.keys() - {name} for name, path in names.items()}).prepare()


def private_names(path: Path) -> Iterator[str]:
    """The private names of LangGraph that a file imports, and the private attributes of LangGraph's objects."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("langgraph."):
            yield from (
                name for name in (*str(node.module).split("."), *(a.name for a in node.names)) if name[0] == "_"
            )
        elif isinstance(node, ast.Attribute) and node.attr in PRIVATE_ATTRIBUTES:
            yield node.attr


# Of LangGraph's serializer, and of its module.
PRIVATE_ATTRIBUTES = {name for name in (*vars(JsonPlusSerializer()), *vars(jsonplus)) if re.match("_[a-z]", name)}


def test_one_file_uses_private_names_of_langgraph() -> None:
    using = {path.name for paths in modules().values() for path in paths if set(private_names(path))}
    assert using == {"langgraph_private.py"}


BLOCK = "-- (?:name|fragment): "


def blocks(folder: str, files: Container[str] | None = None) -> dict[str, str]:
    """The text of each statement and fragment of a folder, or of some files of it, by name."""
    found: dict[str, str] = {}
    for text in [text for name, text in read_files(folder).items() if files is None or name in files]:
        _, *parts = re.split(rf"^{BLOCK}(\w+)$", text, flags=re.MULTILINE)
        found |= dict(zip(parts[::2], parts[1::2], strict=True))
    return found


def test_what_both_databases_have_stands_once() -> None:
    """In the words of SQLite, without comments: a block of both databases that has the same belongs into `common/`."""

    def text(body: str) -> list[str]:
        return [line.lower() for line in in_sqlite(body).splitlines() if line and not line.startswith("--")]

    assert blocks("common").keys().isdisjoint(blocks("postgres").keys() | blocks("sqlite").keys())
    subjects = read_files("common")
    postgres, sqlite = blocks("postgres", subjects), blocks("sqlite", subjects)
    assert [name for name in postgres.keys() & sqlite.keys() if text(postgres[name]) == text(sqlite[name])] == []


def test_sql_files_are_short() -> None:
    folders = ("common", "postgres", "sqlite", "citus")
    texts = {(folder, name): text for folder in folders for name, text in read_files(folder).items()}
    assert {place: text.count("\n") for place, text in texts.items() if text.count("\n") > 600} == {}


@pytest.mark.parametrize("database", ["postgres", "sqlite"])
def test_every_fragment_is_included_and_every_statement_is_named_in_python(database: str) -> None:
    text = "\n".join([*read_files("common").values(), *read_files(database).values()])
    assert set(re.findall(r"^-- fragment: (\w+)$", text, re.MULTILINE)) == set(
        re.findall(r"^ *-- include: (\w+)$", text, re.MULTILINE)
    )
    code = "".join(path.read_text("utf-8") for room in ("sql", "operations", "tools") for path in modules()[room])
    families = ("page_of_", "records_of_", "doctor_", "export_", "import_", "stored_", "renew_stored_")
    assert [
        name for name in load_statements(database) if f'"{name}"' not in code and not name.startswith(families)
    ] == []


def test_what_differs_in_distributed_tables_is_used() -> None:
    """A block of `citus/` replaces one of PostgreSQL, or is named in Python or included by one that is."""
    replaced = blocks("common").keys() | blocks("postgres").keys()
    code = "".join(path.read_text("utf-8") for path in modules()["sql"]) + "".join(read_files("citus").values())
    added = blocks("citus").keys() - replaced
    assert [name for name in added if f'"{name}"' not in code and f"include: {name}\n" not in code] == []


# Statements that read many threads, and so many servers of a cluster. `docs/postgres.md` names what sends them.
ACROSS_THREADS = {
    "page_of_store",
    "records_of_store",
    "threads_newest",
    "threads_by_id",
    "threads_counted",
    "threads_searched",
    "threads_failed",
    "threads_waiting",
    "select_id_below",
    "select_interrupting",
    "select_moves",
    "forget_moves",
    "threads_of_runs",
    "threads_with_label",
    "label_names",
    "arm_threads",
    "hasten_threads",
    "select_later",
    "thread_ids",
    "select_due",
    "select_grown",
    "count_due",
}
# Statements that use the thread of the previous statement, name their threads in another way, or read no rows.
CONTINUING_PREFIXES = ("schema_", "searchable_", "enter_", "leave_", "copy_", "fork_")
CONTINUING = {
    "select_sends_of",
    "select_values_of",
    "read_table_in_order",
    "read_as_before",
    "limit_waiting",
    "free_pages",
    "give_back_page",
    "select_sweep",
    "begin_policy",
    "note_sweep",
}
# Statements that only the command line sends (`verify`, `stats` and `doctor` read everything), and the one that reads
# the role's rights when a saver opens.
INSPECTING = ("catalog_", "sizes", "doctor_", "thread_at", "hides_tenants")


def test_every_key_column_of_a_hot_statement_is_bound() -> None:
    """No statement that a run sends reads rows of more than one thread."""
    for database in ("postgres", "sqlite"):
        for name, body in load_statements(database).items():
            if name not in ACROSS_THREADS | CONTINUING and not name.startswith(CONTINUING_PREFIXES + INSPECTING):
                # By name, or by position.
                bound = re.search(
                    r"(?::|%\()thread_ids?\b|\bthread_id = (\?|%s)\s"
                    r"|\(\s*thread_id,[^)]*\)\s*(SELECT |VALUES\s+(-- repeat\s+)?\()(\?|%s)",
                    body,
                )
                assert bound, f"{name} of {database}"


METHODS = [
    name
    for name, function in inspect.getmembers(BaseCheckpointSaver, inspect.isfunction)
    if not name.startswith("_") and name not in ("get", "aget", "with_allowlist")
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("saver", [CheckpointSaver, PostgresSaver, SqliteSaver])
def test_every_method_of_the_base_class_is_overridden_with_its_signature(
    saver: type[CheckpointSaver], method: str
) -> None:
    ours, theirs = getattr(saver, method), getattr(BaseCheckpointSaver, method)
    assert ours is not theirs
    parameters = [(p.name, p.kind, p.default) for p in inspect.signature(ours).parameters.values()]
    assert parameters == [(p.name, p.kind, p.default) for p in inspect.signature(theirs).parameters.values()]
    assert inspect.iscoroutinefunction(ours) == inspect.iscoroutinefunction(theirs)
    assert inspect.isasyncgenfunction(ours) == inspect.isasyncgenfunction(theirs)


def test_what_the_choice_of_tests_names_exists() -> None:
    tests = Path(__file__).parent
    texts = {path.relative_to(tests).as_posix(): path.read_text("utf-8") for path in tests.rglob("*.py")}
    for entry in LONG:
        path, _, name = entry.partition("::")
        assert f"def {name}(" in texts[path] or not name, entry
    for entry in SAMPLED:
        path, _, name = entry.partition("::")
        assert re.search(r"\b" + name.replace("*", r"\w*") + r"\b", texts[path]), entry
    for start in (*ONE_DATABASE, *ON_A_CLUSTER):
        assert any(path.startswith(start) for path in texts), start
    text = "\n".join(texts.values())
    there = {Path(path).name for path in texts} | set(re.findall(r"(?m)^(?:async )?def (test_\w+)\(", text))
    assert {*NOT_DISTRIBUTED, *ON_COORDINATOR} - there == set()
    fixtures = set(re.findall(r"@pytest\.fixture(?:\([^@]*?\))?\n(?:@.*\n)*(?:async )?def (\w+)\(", text))
    assert DATABASES - fixtures == set()
