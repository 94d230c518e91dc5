"""An import stores a thread completely or not at all, and others although one cannot be stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.base import CheckpointTuple

from langgraph_checkpoint_custom import CheckpointNotFound, CheckpointSaver, OperationEvent, PostgresSaver, open_saver
from langgraph_checkpoint_custom.tools import exchange
from langgraph_checkpoint_custom.tools.exchange import BrokenExport, ExchangeReport, export_file, import_file, transfer
from tests.drivers.test_maintenance_meets_runs import ConcurrentCall
from tests.moving.files import exported, fill_large, packed, unpacked
from tests.moving.official import config, everything, step

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")


def test_a_thread_with_other_checkpoints_in_the_target_is_not_changed(
    saver: CheckpointSaver, other: CheckpointSaver, tmp_path: Path
) -> None:
    step(saver, "t", None, a=["theirs" * 100])
    step(saver, "u", None, a=["theirs" * 100])
    step(other, "t", None, a=["ours" * 100])
    before = found_in(other, "t")
    export_file(saver, tmp_path / "all.zst")
    for moved in (import_file(other, tmp_path / "all.zst"), transfer(saver, other)):
        assert list(moved.problems) == ["t"]
        assert "checkpoints of its own" in moved.problems["t"]
        assert moved.threads == 1
        assert found_in(other, "t") == before
        assert found_in(other, "u") == found_in(saver, "u")


def found_in(saver: CheckpointSaver, thread_id: str) -> list[CheckpointTuple]:
    return list(saver.list(config(thread_id)))


@pytest.mark.parametrize("how", ["import", "transfer"])
def test_a_thread_is_imported_atomically(
    saver: CheckpointSaver,
    other: CheckpointSaver,
    other_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    """Somebody reads when all of its rows are stored and the transaction is not committed yet."""
    fill_large(saver)
    if how == "transfer":
        transfer(saver, other)
        saver.put_writes(next(iter(saver.list(config("t"), limit=1))).config, [("a", "more")], "task")
    export_file(saver, tmp_path / "all.zst")
    before, seen = everything(other), []
    ask = other.backend.dialect.ask

    def looked_at(*names: str, **params: Any) -> Any:
        if "release_claim" in names:
            with open_saver(other_url) as reader:
                seen.append(everything(reader))
        return ask(*names, **params)

    monkeypatch.setattr(other.backend.dialect, "ask", looked_at, raising=False)
    done = import_file(other, tmp_path / "all.zst") if how == "import" else transfer(saver, other)
    assert done.problems == {}
    assert seen == [before]
    assert everything(other) == everything(saver) != before


def test_a_claimed_thread_is_not_imported(saver: CheckpointSaver, other: CheckpointSaver, tmp_path: Path) -> None:
    fill_large(saver)
    step(saver, "u", None, a=[1])
    export_file(saver, tmp_path / "all.zst")
    with other.claim("t", owner="a run"):
        done = import_file(other, tmp_path / "all.zst")
    assert done.threads == 1
    assert "a run" in done.problems["t"]
    assert [found.config for found in everything(other)] == [found.config for found in saver.list(config("u"))]
    assert import_file(other, tmp_path / "all.zst").problems == {}
    assert everything(other) == everything(saver)


def test_small_threads_are_imported_in_batches(
    saver: CheckpointSaver,
    other: CheckpointSaver,
    events: list[OperationEvent],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their number is bounded by rows and by bytes."""
    for number in range(40):
        saver.put_writes(step(saver, f"t{number:02}", None, a=["x" * 400]), [("a", 1)], "task")
    exported = export_file(saver, tmp_path / "all.zst")
    assert exported.rows == 80  # A checkpoint and a write of each.
    rows = [line for line in unpacked(tmp_path / "all.zst").splitlines(True) if line.startswith((b'{"ch', b'{"wr'))]
    size = len(b"".join(rows))  # That of a thread differs by a few bytes.
    for name, most, batches in (("ROWS", 1_000, 1), ("ROWS", 32, 3), ("BYTES", size // 4 + 40, 4), ("BYTES", 1, 0)):
        monkeypatch.undo()
        monkeypatch.setattr(exchange, f"BATCH_{name}", most)
        events.clear()
        assert import_file(other, tmp_path / "all.zst") == exported
        imports = [event for event in events if event.name.startswith("import_")]
        assert len(imports) == (batches or 40)
        assert max(event.round_trips for event in imports) <= 6  # As for one of the threads.
        assert everything(other) == everything(saver)
        for number in range(40):
            other.delete_thread(f"t{number:02}")


def test_a_thread_that_cannot_be_imported_takes_no_other_one_with_it(
    saver: CheckpointSaver, other: CheckpointSaver, events: list[OperationEvent], tmp_path: Path
) -> None:
    for number in range(10):
        step(saver, f"t{number}", None, a=[f"{number}" * 400])
    export_file(saver, tmp_path / "all.zst")
    step(other, "t4", None, a=["ours"])
    events.clear()
    with other.claim("t7", owner="a run"):
        done = import_file(other, tmp_path / "all.zst")
    assert done.threads == 8
    assert {name: words.split(":")[0] for name, words in done.problems.items()} == {
        "t4": "thread 't4' was not imported",
        "t7": done.problems["t7"].split(":")[0],
    }
    assert "a run" in done.problems["t7"]
    assert [event.name for event in events if "import" in event.name] == ["import_threads"] * (1 + 10)
    again = import_file(other, tmp_path / "all.zst")
    assert (again.threads, again.unchanged, list(again.problems)) == (9, 8, ["t4"])


def test_threads_before_a_damaged_one_are_imported(
    saver: CheckpointSaver, other: CheckpointSaver, tmp_path: Path
) -> None:
    for number in range(5):
        step(saver, f"t{number}", None, a=[f"{number}" * 4000])
    export_file(saver, tmp_path / "all.zst")
    lines = unpacked(tmp_path / "all.zst").splitlines(keepends=True)
    begins = lines.index(b'{"thread":"t3"}\n')
    with pytest.raises(BrokenExport, match="in the middle of thread 't3'"):
        import_file(other, packed(tmp_path / "cut.zst", b"".join(lines[: begins + 2])))
    assert sorted(thread.thread_id for thread in other.threads()) == ["t0", "t1", "t2"]


def test_an_import_does_not_wait_for_one_thread_with_the_locks_of_others(
    saver: CheckpointSaver, own_postgres_url: str, tmp_path: Path
) -> None:
    """Somebody holds the lock of a thread in a transaction, until the import has given up on the batch."""
    path = exported(saver, 5, tmp_path)
    events: list[OperationEvent] = []

    def noted(event: OperationEvent) -> None:
        events.append(event)
        if event.name == "import_threads":
            holder.rollback()

    with (
        open_saver(own_postgres_url, on_operation=noted) as other,
        psycopg.connect(own_postgres_url) as holder,
    ):
        other.setup()
        (lock,) = other.backend.dialect.ask(lock="shared", thread_id="t3").before
        holder.execute(lock.sql.encode(), lock.params)
        done = import_file(other, path)
        assert (done.threads, done.problems) == (5, {})
        imports = [(event.name, event.error) for event in events if "import" in event.name]
        assert imports == [("import_threads", "StorageError"), *[("import_threads", None)] * 5]
        assert everything(other) == everything(saver)


def test_an_import_in_a_callers_transaction_gives_the_locks_of_others_back(
    saver: CheckpointSaver, own_postgres_url: str, tmp_path: Path
) -> None:
    """It would deadlock with a transaction that holds the lock of a thread, and then deletes another one."""
    path = exported(saver, 5, tmp_path)
    with (
        psycopg.connect(own_postgres_url) as theirs,
        psycopg.connect(own_postgres_url) as holder,
    ):
        other, deleting = PostgresSaver(theirs), PostgresSaver(holder)
        other.setup()
        theirs.commit()
        deleting.delete_thread("t0")

        def move() -> ExchangeReport:
            try:
                return import_file(other, path)
            finally:
                theirs.commit()

        importing = ConcurrentCall(move)
        importing.wait_until_blocked(own_postgres_url)
        try:
            deleting.delete_thread("t3")
        finally:
            holder.commit()
            done = importing.join()
        assert done.threads == 5
        assert everything(other) == everything(saver)


def test_an_import_in_a_callers_transaction_leaves_its_settings(
    saver: CheckpointSaver, own_postgres_url: str, tmp_path: Path
) -> None:
    path = exported(saver, 2, tmp_path)
    with psycopg.connect(own_postgres_url) as connection:
        other = PostgresSaver(connection)
        other.setup()
        connection.execute("SET LOCAL lock_timeout = '7min'")
        assert import_file(other, path).threads == 2
        assert connection.execute("SHOW lock_timeout").fetchall() == [("7min",)]


def test_a_thread_with_other_rows_in_the_target_is_not_changed(
    saver: CheckpointSaver, other: CheckpointSaver, tmp_path: Path
) -> None:
    """Although all of its checkpoints are imported again: a pruned one, and one with another interrupt."""
    location = None
    for name in ("pruned", "asked"):
        for number in range(3):
            location = step(saver, name, None if number == 0 else location, a=[f"{number}" * 400])
    assert location is not None
    saver.put_writes(location, [("__interrupt__", "one")], "task")
    export_file(saver, tmp_path / "first.zst")
    assert import_file(other, tmp_path / "first.zst").problems == {}
    other.prune(["pruned"])
    saver.put_writes(location, [("__interrupt__", "another"), ("__resume__", "one")], "task")
    before = everything(other)
    export_file(saver, tmp_path / "second.zst")
    for _ in range(2):
        done = import_file(other, tmp_path / "second.zst")
        assert (done.threads, sorted(done.problems)) == (0, ["asked", "pruned"])
        assert everything(other) == before


def test_named_threads_are_stored_although_the_file_lacks_another(
    saver: CheckpointSaver, other: CheckpointSaver, tmp_path: Path
) -> None:
    path = exported(saver, 3, tmp_path)
    with pytest.raises(CheckpointNotFound, match="has no thread 'x'"):
        import_file(other, path, threads=["t0", "t2", "x"])
    assert sorted(thread.thread_id for thread in other.threads()) == ["t0", "t2"]
