"""What is exported from one database is the same in any other after the import."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from langgraph_checkpoint_custom import CheckpointSaver, ConfigError
from langgraph_checkpoint_custom.operations import export_rows as exporting
from langgraph_checkpoint_custom.tools.exchange import ExchangeReport, export_file, import_file, transfer
from langgraph_checkpoint_custom.tools.migration import copy_from
from tests.golden.content import write_all
from tests.moving.files import export_rows, fill_large, lines_of, unpacked
from tests.moving.official import config, everything, play, step
from tests.stores import Store

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")

CIPHER = EncryptedSerializer.from_pycryptodome_aes(key=b"a key of sixteen")


def test_everything_that_graphs_stored_is_moved(saver: CheckpointSaver, other: CheckpointSaver, tmp_path: Path) -> None:
    threads = play(saver, every=3)
    for number, name in enumerate(threads):
        saver.label(config(name), f"label {number}")
    exported = export_file(saver, tmp_path / "all.zst")
    imported = import_file(other, tmp_path / "all.zst")
    assert exported == imported
    assert (imported.threads, imported.problems) == (len(threads), {})
    assert everything(other) == everything(saver)
    for number, name in enumerate(threads):
        assert other.labels(name) == saver.labels(name)
        assert list(saver.labels(name)) == [f"label {number}"]
    assert imported.unchanged == 0
    again = import_file(other, tmp_path / "all.zst")
    assert again == replace(imported, unchanged=len(threads))  # Nothing changes.
    assert everything(other) == everything(saver)
    assert export_file(other, tmp_path / "again.zst") == exported
    assert unpacked(tmp_path / "again.zst") == unpacked(tmp_path / "all.zst")


def test_everything_that_a_store_can_contain_is_moved(store: Store, other: CheckpointSaver, tmp_path: Path) -> None:
    write_all(store)
    with store.open() as saver:
        export_file(saver, tmp_path / "plain.zst")
        export_file(saver.for_tenant("acme"), tmp_path / "acme.zst")
        assert import_file(other, tmp_path / "plain.zst").problems == {}
        assert import_file(other.for_tenant("new"), tmp_path / "acme.zst").problems == {}
        for name in sorted({line["thread"] for line in lines_of(tmp_path / "acme.zst") if "thread" in line}):
            ours, theirs = (
                [found.checkpoint for found in one.list(config(name))]
                for one in (other.for_tenant("new"), saver.for_tenant("acme"))
            )
            assert ours == theirs != []


def of_all_tenants(saver: CheckpointSaver) -> dict[str, list[str]]:
    """The threads of all tenants, and those without a tenant."""
    found = {name: saver.for_tenant(name) if name else saver for name in ("", *saver.tenants())}
    return {name: sorted(thread.thread_id for thread in own.threads()) for name, own in found.items()}


def test_threads_of_tenants_are_moved_to_the_same_tenants(store: Store, other: CheckpointSaver, tmp_path: Path) -> None:
    """The same ids, by an export and by a transfer."""
    with store.open() as saver:
        saver.setup()
        for name in ("", "acme", "a\x01b", "öther"):
            for thread in ("1", "2") if name else ("1",):
                step(saver.for_tenant(name) if name else saver, thread, None, a=[name, thread, "x" * 300])
        expected = of_all_tenants(saver)
        assert len(expected) == 4
        assert export_file(saver, tmp_path / "all.zst").threads == 7
        assert export_file(saver, tmp_path / "own.zst", tenants=False).threads == 1
        assert import_file(other, tmp_path / "all.zst") == ExchangeReport(7, export_rows(tmp_path / "all.zst"), {})
        assert of_all_tenants(other) == expected
        for name in ("acme", "öther"):
            found = other.for_tenant(name).get_tuple(config("1"))
            assert found is not None
            assert found.checkpoint["channel_values"]["a"][:2] == [name, "1"]
        assert import_file(other, tmp_path / "all.zst").problems == {}  # Again: it finds everything.
        # A tenant's saver imports rows without a tenant and its own, and reports the others.
        moved = import_file(other.for_tenant("acme"), tmp_path / "all.zst")
        assert moved.threads + len(moved.problems) == 7
        assert {key for key in moved.problems if "öther" in key} == {"1 (tenant öther)", "2 (tenant öther)"}
        for name in expected:
            own = other.for_tenant(name) if name else other
            for thread in ("1", "2"):
                own.delete_thread(thread)
        assert of_all_tenants(other) == {"": []}
        assert transfer(saver, other).threads == 7
        assert of_all_tenants(other) == expected
        moved = transfer(saver, other.for_tenant("acme"))
        assert moved.problems.keys() >= {f"{thread} (tenant {name})" for name in ("a\x01b", "öther") for thread in "12"}
        with pytest.raises(ConfigError, match="threads of 3 tenants, which would be left behind"):
            copy_from(saver, other)
        assert transfer(saver, other, tenants=False).threads == 1


def test_encrypted_values_are_moved_without_the_key(store: Store, other: CheckpointSaver, tmp_path: Path) -> None:
    with store.open(serde=CIPHER) as saver:
        step(saver, "t", None, a=["a secret"] * 3000)
        expected = everything(saver)
    with store.open() as keyless:
        assert export_file(keyless, tmp_path / "all.zst").threads == 1
    assert b"a secret" not in unpacked(tmp_path / "all.zst")
    assert import_file(other, tmp_path / "all.zst").problems == {}
    other.serde = CIPHER
    assert everything(other) == expected


def test_a_second_transfer_moves_what_has_changed(saver: CheckpointSaver, other: CheckpointSaver) -> None:
    first = step(saver, "t", None, a=[1], b=["x" * 300])
    saver.put_writes(first, [("__error__", "one")], "task")
    assert transfer(saver, other).problems == {}
    saver.put_writes(first, [("__error__", "two")], "task")
    step(saver, "t", first, a=[2])
    step(saver, "u", None, a=[3])
    assert transfer(saver, other).threads == 2
    assert everything(other) == everything(saver)
    saver.prune(["t"])
    moved = transfer(saver, other)
    assert list(moved.problems) == ["t"]  # It has a checkpoint that the source does not have any more.


def test_a_transfer_stores_nothing_of_what_is_the_same(
    saver: CheckpointSaver, other: CheckpointSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "PAGE", 7)
    names = play(saver, every=3)
    fill_large(saver)
    saver.prune([names[0]])
    first = transfer(saver, other)
    assert first.problems == {}
    stored: list[str] = []
    own = other.backend.dialect.import_rows

    def noted(thread_id: str, rows: Any) -> Any:
        stored.append(thread_id)
        return own(thread_id, rows)

    monkeypatch.setattr(other.backend.dialect, "import_rows", noted, raising=False)
    assert transfer(saver, other) == replace(first, unchanged=first.threads)
    assert stored == []
    # Each of these leaves the number of rows and their lengths as they are.
    last = next(iter(saver.history(config("t")))).config
    saver.unlabel("t", "label 59")
    saver.label(last, "label 6x")
    assert transfer(saver, other) == replace(first, unchanged=first.threads - 1)
    assert set(stored) == {"t"}
    assert other.labels("t") == saver.labels("t")
    assert everything(other) == everything(saver)


@pytest.mark.leaves_writes("some are stored before their checkpoint")
def test_threads_that_are_read_together_are_exported_as_each_alone(saver: CheckpointSaver, tmp_path: Path) -> None:
    """Pages end in the middle of threads, also of longer ones than a page, and of writes without checkpoint."""
    names = [f"t{number:02}" for number in range(30)]
    for number, name in enumerate(names):
        location = None
        for _ in range(40 if number in (0, 7, 8) else 1 + number % 4):
            location = step(saver, name, location, a=[f"{number}" * 400])
            saver.put_writes(location, [("a", number)] * (number % 3), "task")
        saver.label(config(name), f"label {number}")
    for name in ("t03 orphan", "zz"):
        saver.put_writes(config(name, "0001"), [("a", number) for number in range(60)], "task")
    together = export_file(saver, tmp_path / "all.zst")
    assert together == export_file(saver, tmp_path / "alone.zst", threads=names)
    assert together.threads == len(names)
    assert unpacked(tmp_path / "all.zst") == unpacked(tmp_path / "alone.zst")


def test_a_thread_that_is_exported_during_a_run_is_one_snapshot(
    saver: CheckpointSaver, other: CheckpointSaver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prune comes between the first page of its checkpoints and the second."""
    monkeypatch.setattr(exporting, "PAGE", 2)
    location = None
    for number in range(5):
        location = step(saver, "t", location, a=[f"{number}" * 400])
    expected = everything(saver)
    dialect = saver.backend.dialect
    read = dialect.export_rows

    def pruned_before_the_second(thread_id: str, pages: Any, limit: int) -> Any:
        if len(pages) == 1:
            saver.prune(["t"])
        return read(thread_id, pages, limit)

    monkeypatch.setattr(dialect, "export_rows", pruned_before_the_second, raising=False)
    export_file(saver, tmp_path / "all.zst", threads=["t"])
    assert len(everything(saver)) == 1
    assert import_file(other, tmp_path / "all.zst").problems == {}
    assert everything(other) == expected


def test_one_id_is_not_taken_for_its_letters(saver: CheckpointSaver, other: CheckpointSaver, tmp_path: Path) -> None:
    for thread_id in ("1", "2", "12"):
        saver.put(config(thread_id), empty_checkpoint(), {}, {})
    file = tmp_path / "threads.zst"
    one: Any = "12"
    with pytest.raises(TypeError, match=r"write \['12'\]"):
        export_file(saver, file, threads=one)
    export_file(saver, file)
    with pytest.raises(TypeError, match=r"write \['12'\]"):
        import_file(other, file, threads=one)
    assert not other.thread_exists("1")
