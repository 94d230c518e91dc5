"""What is exported from one database is the same in any other after the import."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.base import CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from zstandard import ZstdCompressor, ZstdDecompressor

from langgraph_checkpoint_custom import (
    CheckpointNotFound,
    CheckpointSaver,
    ConfigError,
    OperationEvent,
    PostgresSaver,
    open_saver,
)
from langgraph_checkpoint_custom.operations import export_rows as exporting
from langgraph_checkpoint_custom.tools import exchange
from langgraph_checkpoint_custom.tools.exchange import (
    BrokenExport,
    ExchangeReport,
    count_exported,
    export_file,
    import_file,
    transfer,
)
from langgraph_checkpoint_custom.tools.migration import copy_from
from tests.behaviour.helpers import peak
from tests.golden.content import write_all
from tests.moving.official import config, everything, play, step
from tests.stores import Store

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")

CIPHER = EncryptedSerializer.from_pycryptodome_aes(key=b"a key of sixteen")


def plain(saver: CheckpointSaver) -> list[dict[str, Any]]:
    return [found._asdict() for found in everything(saver)]


@pytest.fixture(params=["sqlite", "postgres"])
def other_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Another empty database, once for each type."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'other.db'}"
    return str(request.getfixturevalue("own_postgres_url"))


@pytest.fixture
def events() -> list[OperationEvent]:
    """The operations of `other`."""
    return []


@pytest.fixture
def other(other_url: str, events: list[OperationEvent]) -> Iterator[CheckpointSaver]:
    """A saver on another empty database."""
    with open_saver(other_url, on_operation=events.append) as opened:
        opened.setup()
        yield opened


def test_everything_that_graphs_stored_is_moved(saver: CheckpointSaver, other: CheckpointSaver, tmp_path: Path) -> None:
    threads = play(saver, every=3)
    for number, name in enumerate(threads):
        saver.label(config(name), f"label {number}")
    exported = export_file(saver, tmp_path / "all.zst")
    imported = import_file(other, tmp_path / "all.zst")
    assert exported == imported
    assert (imported.threads, imported.problems) == (len(threads), {})
    assert plain(other) == plain(saver)
    for number, name in enumerate(threads):
        assert other.labels(name) == saver.labels(name)
        assert list(saver.labels(name)) == [f"label {number}"]
    assert imported.unchanged == 0
    again = import_file(other, tmp_path / "all.zst")
    assert again == replace(imported, unchanged=len(threads))  # Nothing changes.
    assert plain(other) == plain(saver)
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


def export_rows(path: Path) -> int:
    """The rows in a file."""
    return sum(line["rows"] for line in lines_of(path) if "end" in line)


def test_encrypted_values_are_moved_without_the_key(store: Store, other: CheckpointSaver, tmp_path: Path) -> None:
    with store.open(serde=CIPHER) as saver:
        step(saver, "t", None, a=["a secret"] * 3000)
        expected = plain(saver)
    with store.open() as keyless:
        assert export_file(keyless, tmp_path / "all.zst").threads == 1
    assert b"a secret" not in unpacked(tmp_path / "all.zst")
    assert import_file(other, tmp_path / "all.zst").problems == {}
    other.serde = CIPHER
    assert plain(other) == expected


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


def test_a_second_transfer_moves_what_has_changed(saver: CheckpointSaver, other: CheckpointSaver) -> None:
    first = step(saver, "t", None, a=[1], b=["x" * 300])
    saver.put_writes(first, [("__error__", "one")], "task")
    assert transfer(saver, other).problems == {}
    saver.put_writes(first, [("__error__", "two")], "task")
    step(saver, "t", first, a=[2])
    step(saver, "u", None, a=[3])
    assert transfer(saver, other).threads == 2
    assert plain(other) == plain(saver)
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
    assert plain(other) == plain(saver)


def fill_large(saver: CheckpointSaver) -> None:
    """A thread that takes an import more than one batch, with labels."""
    location = None
    for number in range(60):
        location = step(saver, "t", location, a=[f"{number}" * 400])
        saver.label(location, f"label {number}")


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
    before, seen = plain(other), []
    ask = other.backend.dialect.ask

    def looked_at(*names: str, **params: Any) -> Any:
        if "release_claim" in names:
            with open_saver(other_url) as reader:
                seen.append(plain(reader))
        return ask(*names, **params)

    monkeypatch.setattr(other.backend.dialect, "ask", looked_at, raising=False)
    done = import_file(other, tmp_path / "all.zst") if how == "import" else transfer(saver, other)
    assert done.problems == {}
    assert seen == [before]
    assert plain(other) == plain(saver) != before


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
    assert plain(other) == plain(saver)


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
        assert plain(other) == plain(saver)
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
        assert imports == [("import_threads", None)] * (1 + 5)
        assert plain(other) == plain(saver)


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


def exported(saver: CheckpointSaver, threads: int, folder: Path) -> Path:
    """A file with that many threads of one checkpoint."""
    for number in range(threads):
        step(saver, f"t{number}", None, a=[number])
    path = folder / "all.zst"
    export_file(saver, path)
    return path


def unpacked(path: Path) -> bytes:
    with path.open("rb") as file:
        return ZstdDecompressor().stream_reader(file, read_across_frames=True).read()


def lines_of(path: Path) -> list[dict[str, Any]]:
    return list(map(json.loads, unpacked(path).splitlines()))


def packed(path: Path, text: bytes) -> Path:
    path.write_bytes(ZstdCompressor().compress(text))
    return path


def test_an_incomplete_export_is_refused(saver: CheckpointSaver, other: CheckpointSaver, tmp_path: Path) -> None:
    for name in "tu":
        step(saver, name, None, a=[name * 4000])
    export_file(saver, tmp_path / "all.zst")
    full = unpacked(tmp_path / "all.zst")
    lines = full.splitlines(keepends=True)
    cases = {
        "not an export": b"[1]\n",
        "is not an export of": b"",
        "format 2": lines[0].replace(b":1}", b":2}") + b"".join(lines[1:]),
        "ends too early": b"".join(lines[:-1]),
        "in the middle of thread 't'": b"".join(lines[:3]),
        "differ from those that were exported": full.replace(b'"value":"', b'"value":"AAAA', 1),
        "lacks some": b"".join(lines[: lines.index(b'{"thread":"u"}\n')]) + lines[-1],
    }
    for number, (words, text) in enumerate(cases.items()):
        with pytest.raises(BrokenExport, match=words):
            import_file(other, packed(tmp_path / f"{number}.zst", text))
    with pytest.raises(BrokenExport, match="in the middle of thread 't'"):  # Also if that is not asked for.
        import_file(other, packed(tmp_path / "cut.zst", b"".join(lines[:3])), threads=["u"])
    (tmp_path / "text").write_bytes(full)
    with pytest.raises(BrokenExport, match="Zstandard"):
        import_file(other, tmp_path / "text")
    with pytest.raises(ConfigError, match="already exists"):
        export_file(saver, tmp_path / "all.zst")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says how much memory a process takes")
def test_a_line_that_unpacks_to_gigabytes_is_refused_before_it_is_in_memory(
    other: CheckpointSaver, tmp_path: Path
) -> None:
    path = tmp_path / "bomb.zst"
    with path.open("wb") as file, ZstdCompressor().stream_writer(file) as packed_file:
        packed_file.write(b'{"langgraph-checkpoint-custom":1}\n{"thread":"')
        for _ in range(1024):
            packed_file.write(bytes(1 << 20))
    assert path.stat().st_size < 1_000_000

    def attempt(read: Callable[[], object]) -> None:
        with pytest.raises(BrokenExport, match=r"line 2: it unpacks to more than 256,000,000 bytes.*largest_row"):
            read()

    for read in (lambda: import_file(other, path), lambda: count_exported(path)):
        assert peak(partial(attempt, read)) < 600_000_000
    assert list(other.threads()) == []


def test_the_size_limit_of_a_row_can_be_set(
    saver: CheckpointSaver, other: CheckpointSaver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transfer has none."""
    step(saver, "t", None, a=[[hashlib.sha256(bytes([n])).hexdigest() for n in range(200)]])
    export_file(saver, tmp_path / "all.zst")
    with pytest.raises(BrokenExport, match="more than 1,000 bytes"):
        import_file(other, tmp_path / "all.zst", largest_row=1000)
    assert import_file(other, tmp_path / "all.zst", largest_row=1_000_000).threads == 1
    defaults: Any = import_file.__kwdefaults__
    monkeypatch.setitem(defaults, "largest_row", 1000)
    with pytest.raises(BrokenExport, match="more than 1,000 bytes"):
        import_file(other, tmp_path / "all.zst")
    assert transfer(saver, other).threads == 1


MALFORMED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "not an object with 1": lambda row: [1],
    "not an object with 1 ": lambda row: {"blob": 1, "write": 2},
    "'table' is not a kind of row": lambda row: {"table": {}},
    "not an object with 6": lambda row: {"blob": []},
    "the blob is not an object": lambda row: {"blob": {"channel": "a"}},
    "does not have the columns": lambda row: {"blob": {**_without(row["blob"], "value"), "worth": ""}},
    "column channel": lambda row: {"blob": row["blob"] | {"channel": 5}},
    "column version": lambda row: {"blob": row["blob"] | {"version": None}},
    "column checkpoint_ns": lambda row: {"blob": row["blob"] | {"checkpoint_ns": "a\0b"}},
    "surrogates": lambda row: {"blob": row["blob"] | {"type": "\ud800"}},
    "base64|padding|characters|data": lambda row: {"blob": row["blob"] | {"value": "€"}},
    "padding|multiple": lambda row: {"blob": row["blob"] | {"value": "AAA"}},
    "Expecting value": lambda row: {"blob": row["blob"] | {"chunks": "no JSON"}},
    "column chunks": lambda row: {"blob": row["blob"] | {"chunks": "[1]"}},
    "column chunks ": lambda row: {"blob": row["blob"] | {"chunks": '{"a":1}'}},
}


def _without(row: dict[str, Any], column: str) -> dict[str, Any]:
    return {name: cell for name, cell in row.items() if name != column}


def test_an_invalid_row_is_refused_with_its_line_number(
    saver: CheckpointSaver, other: CheckpointSaver, tmp_path: Path
) -> None:
    step(saver, "s", None, a=["s" * 4000])
    step(saver, "t", None, a=["t" * 4000])
    step(other, "s", None, a=["there"])  # One is compared first.
    export_file(saver, tmp_path / "all.zst")
    lines = unpacked(tmp_path / "all.zst").splitlines(keepends=True)
    blob_lines = [number for number, line in enumerate(lines) if line.startswith(b'{"blob":')]
    for at in (blob_lines[0], blob_lines[-1]):
        for words, change in MALFORMED.items():
            line = json.dumps(change(json.loads(lines[at]))).encode() + b"\n"
            text = b"".join([*lines[:at], line, *lines[at + 1 :]])
            with pytest.raises(BrokenExport, match=rf"line {at + 1}: .*({words.strip()})"):
                import_file(other, packed(tmp_path / "one.zst", text))
            assert [thread.thread_id for thread in other.threads()] == ["s"]
    for at, line in (
        (1, b"no JSON\n"),
        (1, b'{"thread":["t"]}\n'),
        (1, b"[" * 100_000 + b"\n"),
        (2, b"no JSON\n"),
        (2, b'{"write":' * 100_000 + b"\n"),
        (2, b"\xff\n"),
    ):
        text = b"".join([*lines[:at], line, *lines[at + 1 :]])
        with pytest.raises(BrokenExport, match=f"line {at + 1}: "):
            import_file(other, packed(tmp_path / "one.zst", text))


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
    expected = plain(saver)
    dialect = saver.backend.dialect
    read = dialect.export_rows

    def pruned_before_the_second(thread_id: str, pages: Any, limit: int) -> Any:
        if len(pages) == 1:
            saver.prune(["t"])
        return read(thread_id, pages, limit)

    monkeypatch.setattr(dialect, "export_rows", pruned_before_the_second, raising=False)
    export_file(saver, tmp_path / "all.zst", threads=["t"])
    assert len(plain(saver)) == 1
    assert import_file(other, tmp_path / "all.zst").problems == {}
    assert plain(other) == expected


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
    before = plain(other)
    export_file(saver, tmp_path / "second.zst")
    for _ in range(2):
        done = import_file(other, tmp_path / "second.zst")
        assert (done.threads, sorted(done.problems)) == (0, ["asked", "pruned"])
        assert plain(other) == before


def test_named_threads_are_stored_although_the_file_lacks_another(
    saver: CheckpointSaver, other: CheckpointSaver, tmp_path: Path
) -> None:
    path = exported(saver, 3, tmp_path)
    with pytest.raises(CheckpointNotFound, match="has no thread 'x'"):
        import_file(other, path, threads=["t0", "t2", "x"])
    assert sorted(thread.thread_id for thread in other.threads()) == ["t0", "t2"]


def test_joined_exports_are_not_imported_in_part(
    saver: CheckpointSaver, other: CheckpointSaver, tmp_path: Path
) -> None:
    one = exported(saver, 1, tmp_path).read_bytes()
    (tmp_path / "joined.zst").write_bytes(one + one)
    with pytest.raises(BrokenExport, match="goes on after the end"):
        import_file(other, tmp_path / "joined.zst")


def test_of_two_exports_to_one_file_the_later_one_is_complete(
    saver: CheckpointSaver, other: CheckpointSaver, tmp_path: Path
) -> None:
    for number in range(20):
        step(saver, f"t{number}", None, a=[f"{number}" * 100_000])
    path = tmp_path / "all.zst"
    later: list[ExchangeReport] = []

    def begin_another(threads: int) -> None:
        if threads == 10:
            step(saver, "new", None, a=["later"])
            later.append(export_file(saver, path))

    with pytest.raises(ConfigError, match="has begun meanwhile"):
        export_file(saver, path, progress=begin_another)
    assert import_file(other, path) == later[0]
    assert [file.name for file in tmp_path.glob("all*")] == ["all.zst"]


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
