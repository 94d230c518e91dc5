"""`doctor` finds damaged rows, and repairs what nothing references."""

from __future__ import annotations

from typing import Any

import pytest

from langgraph_checkpoint_custom import CheckpointSaver
from langgraph_checkpoint_custom.cli import checking
from langgraph_checkpoint_custom.operations.doctor import CHECKS, look, repair
from tests.behaviour.helpers import Database, checkpoint, config, id_of, metadata, next_ulids, next_uuid
from tests.cli import test_reading
from tests.cli.conftest import Cli
from tests.cli.test_reading import HOSTILE, put
from tests.invariants import check_invariants, read_tables


def found(cli: Cli, *argv: str, code: int = 1) -> dict[str, int]:
    """Run doctor; returns the number of findings of each check that has any."""
    report = cli.json("doctor", *argv, code=code)
    assert report["ok"] is (code == 0)
    assert report["checks"].keys() == {check.name for check in CHECKS}
    return {name: check["count"] for name, check in report["checks"].items() if check["count"]}


def large(number: int, length: int = 200) -> list[Any]:
    """A list that is stored in chunks once it has grown."""
    return [{"text": f"{number} {element} " + "x" * 300} for element in range(length)]


def store_again(saver: CheckpointSaver, thread_id: str) -> Any:
    """Store a checkpoint twice under one id with different versions, so that nothing references the first values."""
    where: Any = None
    parents = [put(saver, thread_id, big=large(number, 100)) for number in range(2)]
    checkpoint_id = next_uuid()
    for number, parent in enumerate(parents):
        document = checkpoint(checkpoint_id, {"big": large(number), "small": ["y", number]})
        where = saver.put(parent, document, metadata(), document["channel_versions"])
    return where


def test_doctor_finds_nothing_in_an_intact_store(cli: Cli) -> None:
    assert found(cli, code=0) == {}
    with cli.store.open() as saver:
        location: Any = None
        for step in range(3):
            location = put(saver, HOSTILE, location, metadata(step), values=large(1, 100 + step), other=[step])
            saver.put_writes(location, [("values", step)], "task")
        saver.label(location, "mine")
        saver.prune([HOSTILE])
        put(saver.for_tenant("acme"), "1", a=["x"])
    assert found(cli, code=0) == {}
    assert "fix" not in cli("doctor")


@pytest.mark.leaves_damage("rows are changed by hand")
def test_each_kind_of_damage_is_found(own_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """With pages of several sizes."""
    database = Database(own_cli.store)
    with own_cli.store.open() as saver:
        begun = put(saver, HOSTILE, big=large(1, 100))
        first = put(saver, HOSTILE, begun, a=["x"], big=large(1))
        second = put(saver, HOSTILE, first, b=["y" * 20_000])
        put(saver, HOSTILE, second, c=["z"])
        put(
            saver,
            "later",
            config("later", "9"),
            c=["z" * 20_000],
        )
        saver.put_writes(
            config("early", "1"),
            [("a", 1), ("b", 2)],
            "task",
        )
        labelled = put(saver, "labelled", a=1)
        saver.label(labelled, "mine")
        theirs = put(saver.for_tenant("acme"), "theirs", a=["x"])
    assert id_of(theirs)
    assert own_cli.json("doctor", code=1)["checks"]["write without a checkpoint"]["wrong"] is False
    database.run("DELETE FROM blobs WHERE channel = 'b'")
    database.run("DELETE FROM blobs WHERE channel = 'big' AND substr(version, 1, 2) = '#/'")
    database.run("DELETE FROM checkpoints WHERE thread_id = 'labelled'")
    database.run(
        "UPDATE checkpoints SET blob_channels = :none, blob_versions = :none WHERE thread_id = 'later'",
        none="{}" if database.kind == "postgres" else "[]",
    )
    chunks = sum(len(names) for names in read_tables(own_cli.store).chunks.values())
    expected = {
        "missing value": 1,
        "missing chunk": chunks,
        "deleted parent": 1,
        "id before its parent": 1,
        "unused value": 1,
        "dangling label": 1,
        "write without a checkpoint": 1,
    }
    assert found(own_cli) == expected
    for page in (0, 1, 2, 3):
        monkeypatch.setattr(checking, "look", lambda d, within, page=page: look(d, within, page))
        assert found(own_cli) == expected
    output = own_cli("doctor", code=1)
    assert "missing value: thread red \\x1b" in output
    assert "--fix deletes" in output
    assert found(own_cli, "--tenant", "acme", code=0) == {}
    report = own_cli.json("doctor", "--fix", "--yes", code=1)
    assert report["fixed"] == 2
    del expected["unused value"], expected["dangling label"]
    assert found(own_cli) == expected


@pytest.mark.leaves_damage("the checkpoints of some writes are never stored")
def test_late_writes_are_found_and_deleted(own_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a task that was cancelled, and whose checkpoint a prune has deleted; not those of a run that goes on."""
    later, called = config("t", "z"), config("t", "z", "call:1")
    with own_cli.store.open() as saver:
        with monkeypatch.context() as patch:
            patch.setattr(test_reading, "next_uuid", next_ulids())  # Of another year.
            stored = [put(saver, "t", a=1)]
            for step in range(2):
                stored.append(put(saver, "t", stored[-1], metadata(step), a=step))
        for step in range(2, 4):
            stored.append(put(saver, "t", stored[-1], metadata(step), a=step))
        saver.prune(["t"])
        assert found(own_cli, code=0) == {}
        finished = config("t", id_of(stored[0]), "call:0")
        for each in (stored[0], stored[2], stored[3], stored[4], later, finished, called):
            saver.put_writes(each, [("a", 1), ("b", 2)], "task")
        assert found(own_cli) == {"late write": 3}
        assert own_cli.json("doctor", "--fix", "--yes")["fixed"] == 3
        assert found(own_cli, code=0) == {}
        kept = Database(own_cli.store).run("SELECT DISTINCT checkpoint_ns, checkpoint_id FROM writes ORDER BY 1, 2")
        assert kept == [("", id_of(stored[3])), ("", id_of(stored[4])), ("", "z"), ("call:1", "z")]


def test_writes_whose_checkpoint_another_run_overtakes_are_no_late_writes(own_cli: Cli) -> None:
    """LangGraph may store the outputs of a task before the checkpoint that it started from."""
    with own_cli.store.open() as saver:
        first = put(saver, "t", a=1)
        overtaken = next_uuid()
        put(saver, "t", first, metadata(1), a=2)
        saver.put_writes(config("t", overtaken), [("a", 3)], "task")
        assert own_cli.json("doctor", "--fix", "--yes")["fixed"] == 0
        put(saver, "t", first, metadata(1), checkpoint_id=overtaken, a=3)
        stored = saver.get_tuple(config("t", overtaken))
        assert stored is not None
        assert stored.pending_writes == [("task", "a", 3)]


@pytest.mark.leaves_damage("a checkpoint is deleted by hand")
def test_a_missing_parent_is_a_notice_and_not_an_error(own_cli: Cli) -> None:
    """A run that continues from a checkpoint while it is deleted leaves such a row."""
    with own_cli.store.open() as saver:
        first = put(saver, "1", a=["x"])
        put(saver, "1", first, a=["y"])
    Database(own_cli.store).run("DELETE FROM checkpoints WHERE checkpoint_id = :id", id=id_of(first))
    assert found(own_cli, code=0) == {"deleted parent": 1}
    assert own_cli.json("doctor")["checks"]["deleted parent"]["wrong"] is False
    assert "deleted parent: thread 1" in own_cli("doctor")


def test_unreferenced_values_are_deleted_with_their_chunks(cli: Cli) -> None:
    with cli.store.open() as saver:
        where = store_again(saver, "1")
        before = saver.get_tuple(where)
        report = found(cli)
        assert report.keys() == {"unused value", "unused chunk"}
        tables = read_tables(cli.store)
        assert "--yes" in cli.fail("doctor", "--fix", code=2)
        assert read_tables(cli.store) == tables
        assert "deleted." in cli("doctor", "--fix", "--yes")
        check_invariants(cli.store)
        assert found(cli, code=0) == {}
        assert saver.get_tuple(where) == before


def test_a_value_that_is_referenced_since_the_check_is_not_deleted(cli: Cli) -> None:
    with cli.store.open() as saver:
        where = put(saver, "1", put(saver, "1", big=large(1, 100)), a=["x"], big=large(1))
        saver.label(where, "mine")
        tables = read_tables(cli.store)
        assert saver.backend.driver.run(repair(saver.backend.dialect, "1")) == 0
        assert read_tables(cli.store) == tables
        saver.unlabel("1", "mine")


@pytest.mark.leaves_damage("an index is dropped")
def test_a_missing_index_is_an_error(own_cli: Cli) -> None:
    with own_cli.store.open() as saver:
        saver.setup()
    Database(own_cli.store).change("DROP INDEX checkpoints_by_id")
    report = own_cli.json("doctor", code=1)
    assert [line for line in report["missing"] if "checkpoints_by_id" in line]
    assert "see verify" in own_cli("doctor", code=1)
    Database(own_cli.store).change("DROP TABLE labels")
    assert own_cli.json("doctor", code=1)["checks"] == {}
    assert "verify" in own_cli("doctor", code=1)


@pytest.mark.leaves_damage("rows are changed by hand")
def test_doctor_looks_at_the_threads_of_tenants(own_cli: Cli) -> None:
    with own_cli.store.open() as saver:
        store_again(saver.for_tenant("acme"), "1")
        put(saver.for_tenant("umbrella"), "2", b=["y" * 20_000])
        put(saver, "3", number=1)
    Database(own_cli.store).run("DELETE FROM blobs WHERE channel = 'b'")
    expected = {"missing value": 1, "unused value": 1}
    assert {name: number for name, number in found(own_cli).items() if name in expected} == expected
    assert found(own_cli, "--no-tenants", code=0) == {}
    assert "2 tenants not included: acme, umbrella" in own_cli.error
    (example,) = own_cli.json("doctor", code=1)["checks"]["missing value"]["examples"]
    assert (example["tenant"], example["thread_id"]) == ("umbrella", "2")
    assert "missing value: thread 2 of tenant umbrella: " in own_cli("doctor", code=1)
    assert found(own_cli, "--tenant", "acme").keys() == {"unused value", "unused chunk"}
    assert own_cli.json("doctor", "--fix", "--yes", code=1)["fixed"] > 1
    assert found(own_cli) == {"missing value": 1}
    assert found(own_cli, "--tenant", "acme", code=0) == {}
