"""`export`, `import`, `migrate`, also after they were interrupted."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from threading import Thread
from time import sleep
from types import ModuleType
from typing import Any

import pytest

from langgraph_checkpoint_custom import CheckpointSaver, open_saver
from langgraph_checkpoint_custom.settings import key_serde
from langgraph_checkpoint_custom.tools.exchange import export_file
from tests.cli.conftest import PROGRAM, SECRET, Cli, on_terminal
from tests.moving.official import Official, everything, step
from tests.stores import Store

HOSTILE = "red \x1b[31m[bold]\x07 \u202e line\nend"


def fill(saver: CheckpointSaver, threads: int, turns: int = 2) -> None:
    for number in range(threads):
        location = None
        for turn in range(turns):
            location = step(saver, f"{number:03}", location, text="x" * 2000, number=turn)
            saver.put_writes(location, [("a", turn)], f"task {turn}")


def environment(url: str) -> dict[str, str]:
    return {"CHECKPOINT_URL": url, "PYTHONWARNINGS": "error", "PYTHONUNBUFFERED": "1"}


def test_export_and_import(cli: Cli, tmp_path: Path) -> None:
    with cli.store.open() as saver:
        fill(saver, 3)
        step(saver.for_tenant("acme"), "1", None, a=1)
        assert cli("export", "all.zst", "--no-tenants").startswith("3 threads, ")
        assert "already exists" in cli.fail("export", "all.zst")
        with open_saver(f"sqlite:///{tmp_path}/other.db") as other:
            found = cli.json("import", "all.zst", "--url", f"sqlite:///{tmp_path}/other.db")
            assert (found["threads"], found["problems"]) == (3, {})
            assert everything(other) == everything(saver)
            said = cli("import", "all.zst", "--url", f"sqlite:///{tmp_path}/other.db")
            assert said == f"3 threads, {found['rows']} rows from all.zst; 3 threads were there already.\n"
            step(other, "001", None, a=1)
            step(other, HOSTILE, None, a=1)
        step(saver, HOSTILE, None, a=2)
        assert cli.json("export", "acme.zst", "--tenant", "acme")["threads"] == 1
        assert cli.json("export", "more.zst", "--no-tenants")["threads"] == 4
        again = cli.json("import", "more.zst", "--url", f"sqlite:///{tmp_path}/other.db", code=1)
        assert (again["threads"], again["unchanged"], set(again["problems"])) == (2, 2, {"001", HOSTILE})
        assert cli.error.count("error: thread ") == 2
    assert "no file" in cli.fail("import", "nowhere.zst")


def test_an_import_stores_what_comes_before_the_damage_also_on_a_terminal(cli: Cli, tmp_path: Path) -> None:
    """There, it counts the threads for its bar first."""
    with cli.store.open() as saver:
        for number in range(5):  # Together more than is read at once.
            step(saver, f"{number}", None, text=os.urandom(300_000).hex())
    cli("export", "all.zst")
    (tmp_path / "damaged").write_bytes((tmp_path / "all.zst").read_bytes() + b"damaged")
    (tmp_path / "text").write_text("text")
    (tmp_path / "folder").mkdir()
    for name in ("damaged", "text", "folder"):
        error = cli.fail("import", name, "--url", f"{name}.one.db")
        assert "damaged" in error or name == "folder"
        code, shown = on_terminal("import", name, "--url", f"{name}.two.db", columns=1000, interrupt="never")
        assert code == 1
        assert shown.rstrip().endswith(error.rstrip())
        with open_saver(f"{name}.one.db") as one, open_saver(f"{name}.two.db") as two:
            assert one.count_threads() == two.count_threads()
            assert (one.count_threads() > 0) == (name == "damaged")


def test_an_import_reads_a_pipe_also_on_a_terminal(cli: Cli, tmp_path: Path) -> None:
    """Once, since it can be read once."""
    with cli.store.open() as saver:
        fill(saver, 3)
    cli("export", "all.zst")
    os.mkfifo("pipe")
    content = Path("all.zst").read_bytes()
    writer = Thread(target=Path("pipe").write_bytes, args=[content], daemon=True)
    writer.start()
    code, shown = on_terminal("import", "pipe", "--url", "new.db", interrupt="never")
    writer.join()
    assert (code, shown.split(",")[0]) == (0, "3 threads")


def test_a_key_in_place_of_its_variable_is_not_printed(cli: Cli) -> None:
    """The fixture looks for it."""
    for key in (SECRET, ""):
        said = cli.fail("migrate", "--from", cli.store.url, "--url", "new.db", "--official-key", key, code=2)
        assert "the variable is not set" in said


def test_migrate_from_the_official_saver(cli: Cli, official: Official) -> None:
    with official.open() as source:
        for turn in range(3):
            step(source, "1", None, text=HOSTILE, turn=turn)
        step(source, "2", None, a=1)
        found = cli.json("migrate", "--from", official.url)
        assert found == {
            "tables": "official",
            "threads": 2,
            "checkpoints": 4,
            "writes": 0,
            "deleted": 0,
            "problems": {},
        }
        assert cli("migrate", "--from", official.url) == "2 threads, 0 checkpoints, 0 writes.\n"
        with cli.store.open() as saver:
            assert [each._asdict() for each in everything(saver)] == [each._asdict() for each in everything(source)]
            step(saver, "1", None, gone_on=True)
            step(source, "1", None, gone_on="elsewhere")
    assert "it went on in both databases" in cli.json("migrate", "--from", official.url, code=1)["problems"]["1"]
    assert "'1-official'" in cli.error
    assert cli.json("migrate", "--from", official.url, "--diverged", "copy")["problems"] == {}
    assert {one["thread_id"] for one in cli.json("threads")["threads"]} == {"1", "1-official", "2"}
    assert "'all'" in cli.fail("migrate", "--from", official.url, "--diverged", "all", code=2)


def test_one_thread_is_taken_along(cli: Cli, official: Official, tmp_path: Path) -> None:
    """From production to a file, from there or directly to a laptop, and from an official saver."""
    laptop = f"sqlite:///{tmp_path}/laptop.db"
    with cli.store.open() as saver, open_saver(laptop) as other:
        fill(saver, 4)
        step(saver.for_tenant("acme"), "002", None, a=1)
        assert "no thread 'x'" in cli.fail("export", "two.zst", "--thread", "x")
        assert cli("export", "two.zst", "--thread", "002", "--thread", "001", "--no-tenants").startswith("2 threads, ")
        assert cli("import", "two.zst", "--url", laptop, "--thread", "002").startswith("1 thread, ")
        assert everything(other) == [
            one for one in everything(saver) if one.config["configurable"]["thread_id"] == "002"
        ]
        assert "has no thread '003'" in cli.fail("import", "two.zst", "--url", laptop, "--thread", "003")
        assert cli.json("export", "both.zst", "--thread", "002")["threads"] == 2  # Of all tenants.
        moved = ("migrate", "--from", cli.store.url, "--url", laptop, "--no-tenants", "--thread")
        assert cli.json(*moved, "003")["threads"] == 1
        assert {one.thread_id for one in other.threads()} == {"002", "003"}
        assert "no thread 'x'" in cli.fail(*moved, "x")
    with official.open() as source:
        for thread_id in ("a", "b"):
            step(source, thread_id, None, a=[1])
        found = cli.json("migrate", "--from", official.url, "--url", laptop, "--thread", "b")
        assert (found["threads"], found["checkpoints"]) == (1, 1)
        assert "no thread 'x' in the source" in cli.fail("migrate", "--from", official.url, "--thread", "x")
    with open_saver(laptop) as other:
        assert {one.thread_id for one in other.threads()} == {"002", "003", "b"}


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_migrate_inside_of_one_postgres_database(empty_postgres_url: str, cli: Cli) -> None:
    """The official tables are next to ours: one database is source and target."""
    with Official("postgres", empty_postgres_url).open() as source:
        step(source, "1", None, a=1)
    for new in (1, 0):
        found = cli.json("migrate", "--from", empty_postgres_url, "--url", empty_postgres_url)
        assert (found["tables"], found["checkpoints"]) == ("official", new)
    dry = cli.json("migrate", "--from", empty_postgres_url, "--url", empty_postgres_url, "--dry-run")
    assert (dry["tables"], dry["checkpoints"]) == ("official", 1)
    assert "--tables" in cli.fail("migrate", "--from", empty_postgres_url, code=2)


def test_a_dry_run_of_migrate_moves_nothing_and_lists_missing_classes(
    cli: Cli, official: Official, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "temporary").mkdir()
    missing = dataclasses.make_dataclass("Gone", ["value"])
    missing.__module__ = "gone_app.state"
    with official.open() as source:
        step(source, "1", None, a=[1])
        dry = ("migrate", "--from", official.url, "--dry-run")
        assert "in a dry run. Nothing was changed." in cli(*dry)
        found = cli.json(*dry)
        assert (found["dry_run"], found["checkpoints"], found["missing_classes"]) == (True, 1, [])
        assert found["problems"] == {}
        step(source, "2", None, a=[missing(1)])
        assert cli.json(*dry, code=1)["missing_classes"] == ["gone_app.state.Gone"]
        assert cli.error == (
            "error: gone_app.state.Gone cannot be found here (--app-dir names your application's folder); reading it "
            "raises CorruptCheckpoint\n"
        )
        folder = tmp_path / "app"
        (folder / "gone_app").mkdir(parents=True)
        (folder / "gone_app" / "state.py").write_text(
            "import dataclasses\n\n\n@dataclasses.dataclass\nclass Other: ...\n"
        )
        assert cli.json(*dry, "--app-dir", str(folder), code=1)["missing_classes"] == ["gone_app.state.Gone"]
        assert f"cannot be found here or in {folder}; " in cli.error
        for name in [name for name in sys.modules if name.startswith("gone_app")]:
            del sys.modules[name]
        with (folder / "gone_app" / "state.py").open("a") as module:
            module.write("\n\nclass Gone: ...\n")
        importlib.invalidate_caches()
        path = list(sys.path)
        assert cli.json(*dry, "--app-dir", str(folder))["missing_classes"] == []
        assert sys.path == path
        assert "--dry-run" in cli.fail("migrate", "--from", official.url, "--app-dir", str(folder), code=2)
        for name in [name for name in sys.modules if name.startswith("gone_app")]:
            del sys.modules[name]
    assert cli.json("threads")["threads"] == []
    assert list((tmp_path / "temporary").iterdir()) == []


def test_migrate_moves_tables_of_this_package(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = f"sqlite:///{tmp_path}/source.db"
    module: Any = ModuleType("gone_app")
    module.Gone = dataclasses.make_dataclass("Gone", ["value"])
    module.Gone.__module__ = "gone_app"
    with open_saver(source) as saver, cli.store.open() as target:
        fill(saver, 3)
        found = cli.json("migrate", "--from", source)
        assert (found["tables"], found["threads"], found["problems"]) == ("own", 3, {})
        assert everything(target) == everything(saver)
        step(target, "001", None, a=1)
        step(saver, "001", None, a=2)
        assert set(cli.json("migrate", "--from", source, code=1)["problems"]) == {"001"}
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, "gone_app", module)
            step(saver.for_tenant("acme"), "1", None, a=[module.Gone(1)])
        dry = ("migrate", "--from", source, "--dry-run")
        assert cli.json(*dry, code=1)["missing_classes"] == ["gone_app.Gone"]
        assert cli.json(*dry, "--no-tenants")["missing_classes"] == []
    (tmp_path / "empty.db").touch()
    assert "neither" in cli.fail("migrate", "--from", "empty.db")
    assert cli.fail("migrate", "--from", "sqlite:///nowhere.db") == "error: there is no file 'nowhere.db'\n"
    assert "official" in cli.fail("migrate", "--from", source, "--tables", "foreign", code=2)


def bar(threads: int) -> str:
    """A progress bar with some progress."""
    return rf"[1-9][\d,]* of {threads:,} threads"


def test_an_export_stopped_by_ctrl_c_can_be_started_again(cli: Cli, tmp_path: Path) -> None:
    # Enough threads for several frames of the bar, so that the interrupt comes in the middle.
    number, options = (8000, {"synchronous": "OFF"}) if cli.store.kind == "sqlite" else (2500, {})
    with cli.store.open(**options) as saver:
        fill(saver, number, 1)
    line, variables = ("export", str(tmp_path / "all.zst")), environment(os.environ["CHECKPOINT_URL"])
    for _ in range(5):  # Once more if it had ended when the interrupt came.
        code, shown = on_terminal(*line, columns=120, interrupt=bar(number), **variables)
        if not (tmp_path / "all.zst").exists():
            break
        (tmp_path / "all.zst").unlink()
    assert code == 130, shown
    assert "error: interrupted" in shown
    assert "Traceback" not in shown
    assert SECRET not in shown
    assert not (tmp_path / "all.zst").exists()
    assert (tmp_path / "all.zst.part").exists()
    assert cli.json("export", "all.zst")["threads"] == number
    assert cli.json("verify")["ok"]


def test_without_a_terminal_there_is_no_bar(store: Store, tmp_path: Path) -> None:
    with store.open() as saver:
        saver.setup()
        fill(saver, 3)
    done = subprocess.run(
        [*PROGRAM, "export", str(tmp_path / "all.zst"), "--json"],
        env={**os.environ, **environment(store.url), "FORCE_COLOR": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert json.loads(done.stdout)["threads"] == 3
    table = subprocess.run(
        [*PROGRAM, "threads"],
        env={**os.environ, **environment(store.url), "FORCE_COLOR": "1", "TTY_COMPATIBLE": "1", "CLICOLOR_FORCE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "\x1b" not in table.stdout + table.stderr
    assert "002" in table.stdout


@pytest.mark.parametrize(
    "argv",
    [
        ["import", "all.zst", "--url", "sqlite:///new.db"],
        ["migrate", "--from", "OLD", "--url", "sqlite:///new.db"],
        ["types"],
        ["doctor"],
        ["rekey"],
    ],
    ids=lambda argv: argv[0],
)
def test_every_long_command_has_a_bar_on_a_terminal(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = f"sqlite:///{tmp_path}/old.db"
    with open_saver(old, synchronous="OFF") as saver:
        fill(saver, 20)
        if argv[0] == "import":
            export_file(saver, tmp_path / "all.zst")
    monkeypatch.chdir(tmp_path)
    if argv[0] == "rekey":
        monkeypatch.setenv("KEY", "0123456789abcdef")
        monkeypatch.setenv("CHECKPOINT_ENCRYPTION_KEYS", "KEY,unencrypted")
    line = [old if each == "OLD" else each for each in argv]
    code, shown = on_terminal(*line, columns=120, interrupt="never", **environment(old))
    assert code == 0, shown
    assert {"types": "80 rows", "rekey": "80 rows"}.get(argv[0], "20 of 20 ") in shown
    # The head of a table, and what stands in place of an empty one.
    assert {"doctor": "\x1b[1m", "types": "No classes."}.get(argv[0], "") in shown


def test_tenants_are_moved_and_omitted_threads_are_reported(cli: Cli, tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path / 'target.db'}"
    with cli.store.open() as saver:
        step(saver, "nobody's", None, a=[1])
        step(saver.for_tenant("acme"), "theirs", None, a=[1])
    assert cli("tenants").split()[::2] == ["tenant", "acme"]
    assert cli.json("tenants") == {"tenants": ["acme"]}
    note = "note: 1 tenant not included: acme; --tenant NAME selects one\n"
    for command in (["doctor"], ["stats"], ["export", str(tmp_path / "own.zst")]):
        cli(*command, "--no-tenants")
        assert cli.error == note
        cli(*command[:1], *(f"{each} of acme" for each in command[1:]), "--tenant", "acme")
        assert cli.error == ""
    cli("migrate", "--from", cli.store.url, "--url", target, "--tenant", "acme")
    with open_saver(target) as moved:
        assert [thread.thread_id for thread in moved.threads()] == []
        assert [thread.thread_id for thread in moved.for_tenant("acme").threads()] == ["theirs"]
        moved.for_tenant("acme").delete_thread("theirs")
        cli("migrate", "--from", cli.store.url, "--url", target, "--no-tenants")
        assert cli.error == note
        assert moved.tenants() == []
        assert cli.json("migrate", "--from", cli.store.url, "--url", target)["threads"] == 2
        assert cli.error == ""
        assert [thread.thread_id for thread in moved.for_tenant("acme").threads()] == ["theirs"]
    assert cli.json("export", str(tmp_path / "all.zst"))["threads"] == 2
    assert cli.error == ""
    other = f"sqlite:///{tmp_path / 'other.db'}"
    assert cli.json("import", str(tmp_path / "all.zst"), "--url", other)["threads"] == 2
    assert cli.json("tenants", "--url", other) == {"tenants": ["acme"]}


def test_migrate_from_one_schema_to_another(own_postgres_url: str, cli: Cli) -> None:
    with open_saver(own_postgres_url) as saver:
        saver.setup()
        step(saver, "1", None, a=1)
    found = cli.json("migrate", "--from", own_postgres_url, "--url", own_postgres_url, "--schema", "another")
    assert (found["tables"], found["threads"]) == ("own", 1)
    assert len(cli.json("threads", "--url", own_postgres_url, "--schema", "another")["threads"]) == 1


def test_a_dry_run_finds_missing_classes_in_encrypted_values(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "0123456789abcdef")
    monkeypatch.setenv("CHECKPOINT_ENCRYPTION_KEYS", "KEY")
    module: Any = ModuleType("gone_app")
    module.Gone = dataclasses.make_dataclass("Gone", ["value"])
    module.Gone.__module__ = "gone_app"
    key = key_serde("KEY", "")
    with open_saver(f"{tmp_path}/source.db", serde=key) as saver, monkeypatch.context() as patched:
        patched.setitem(sys.modules, "gone_app", module)
        step(saver, "1", None, a=[module.Gone(1)])
    found = cli.json("migrate", "--from", f"{tmp_path}/source.db", "--dry-run", code=1)
    assert found["missing_classes"] == ["gone_app.Gone"]


def test_a_dry_run_that_sigterm_ends_leaves_no_copy(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    with open_saver(f"{tmp_path}/source.db", synchronous="OFF") as saver:
        fill(saver, 2_000, 1)
    with subprocess.Popen(
        [*PROGRAM, "migrate", "--from", f"{tmp_path}/source.db", "--dry-run"],
        env={**os.environ, "TMPDIR": f"{tmp_path}/temporary"},
    ) as process:
        while not list((tmp_path / "temporary").rglob("*.part")):
            assert process.poll() is None
            sleep(0.01)
        process.terminate()
    assert process.returncode == 130
    assert list((tmp_path / "temporary").iterdir()) == []
