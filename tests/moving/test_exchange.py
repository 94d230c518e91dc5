"""What is exported from any of our databases is the same in any other after the import."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from zstandard import ZstdCompressor, ZstdDecompressor

from langgraph_checkpoint_custom import CheckpointSaver, ConfigError, OperationEvent, open_saver
from langgraph_checkpoint_custom.core.doctor import TABLES, look, mend
from langgraph_checkpoint_custom.exchange import IMPORTER, BrokenExport, export_file, import_file, transfer
from tests.golden.content import write_all
from tests.moving.official import config, everything, play, step
from tests.stores import Store

CIPHER = EncryptedSerializer.from_pycryptodome_aes(key=b"a key of sixteen")


def plain(saver: CheckpointSaver) -> list[dict[str, Any]]:
    return [found._asdict() for found in everything(saver)]


@pytest.fixture(params=["sqlite", "postgres"])
def other_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Another empty database, once for each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'other.db'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def other(other_url: str) -> Iterator[CheckpointSaver]:
    """A saver on another empty database."""
    with open_saver(other_url) as opened:
        opened.setup()
        yield opened


def test_all_that_graphs_have_stored_comes_over(saver: CheckpointSaver, other: CheckpointSaver, tmp_path: Path) -> None:
    threads = play(saver, every=3)
    for number, name in enumerate(threads):
        saver.label(config(name), f"label {number}")
    exported = export_file(saver, tmp_path / "all.zst")
    imported = import_file(other, tmp_path / "all.zst")
    assert exported == imported
    assert (imported.threads, imported.problems) == (len(threads), {})
    assert plain(other) == plain(saver)
    for number, name in enumerate(threads):
        assert other.labelled(name, f"label {number}") == saver.labelled(name, f"label {number}")
    assert import_file(other, tmp_path / "all.zst") == imported  # Again: nothing changes.
    assert plain(other) == plain(saver)
    assert export_file(other, tmp_path / "again.zst") == exported
    assert unpacked(tmp_path / "again.zst") == unpacked(tmp_path / "all.zst")


def test_everything_that_a_store_can_hold_comes_over(store: Store, other: CheckpointSaver, tmp_path: Path) -> None:
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


def test_what_is_encrypted_needs_no_key_on_the_way(store: Store, other: CheckpointSaver, tmp_path: Path) -> None:
    with store.open(serde=CIPHER) as saver:
        step(saver, "t", None, a=["a secret"] * 3000)
        expected = plain(saver)
    with store.open() as keyless:
        assert export_file(keyless, tmp_path / "all.zst").threads == 1
    assert b"a secret" not in unpacked(tmp_path / "all.zst")
    assert import_file(other, tmp_path / "all.zst").problems == {}
    other.serde = CIPHER
    assert plain(other) == expected


def test_a_thread_with_checkpoints_of_its_own_stays_as_it_is(
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


def test_a_transfer_takes_what_has_changed_since(saver: CheckpointSaver, other: CheckpointSaver) -> None:
    first = step(saver, "t", None, a=[1], b=["x" * 300])
    saver.put_writes(first, [("__error__", "one")], "task")
    assert transfer(saver, other).problems == {}
    saver.put_writes(first, [("__error__", "another")], "task")
    step(saver, "t", first, a=[2])
    step(saver, "u", None, a=[3])
    assert transfer(saver, other).threads == 2
    assert plain(other) == plain(saver)
    saver.prune(["t"])
    moved = transfer(saver, other)
    assert list(moved.problems) == ["t"]  # It has a checkpoint that the source has no more.


def fill_large(saver: CheckpointSaver) -> None:
    """A thread that takes an import more than one batch, with labels."""
    place = None
    for number in range(60):
        place = step(saver, "t", place, a=[f"{number}" * 400])
        saver.label(place, f"label {number}")


def test_a_doctor_takes_nothing_of_what_is_being_imported(
    saver: CheckpointSaver, other_url: str, tmp_path: Path
) -> None:
    fill_large(saver)
    export_file(saver, tmp_path / "all.zst")
    mended: list[tuple[int, int]] = []

    def mend_all(event: OperationEvent) -> None:
        if event.name == "import_rows":
            pages = [doctor._driver.run(look(doctor._dialect, table, table.first)) for table in TABLES]
            findings = [one for page in pages for one in page.findings]
            mended.append((len(findings), doctor._driver.run(mend(doctor._dialect, findings))))

    with open_saver(other_url) as doctor, open_saver(other_url, on_operation=mend_all) as target:
        target.setup()
        done = import_file(target, tmp_path / "all.zst")
        assert done.problems == {}
        assert plain(target) == plain(saver)
    assert mended[0][0] > 0
    assert mended[-1][0] == 0
    assert not any(went for _, went in mended)


def test_a_thread_that_somebody_has_claimed_is_not_imported(
    saver: CheckpointSaver, other: CheckpointSaver, tmp_path: Path
) -> None:
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


def test_the_claim_of_an_import_that_was_killed_is_not_in_the_way(
    saver: CheckpointSaver, other: CheckpointSaver, tmp_path: Path
) -> None:
    fill_large(saver)
    export_file(saver, tmp_path / "all.zst")
    with other.claim("t", owner=IMPORTER):  # It beats no more, but has not expired.
        assert import_file(other, tmp_path / "all.zst").problems == {}
    assert plain(other) == plain(saver)


SCRIPT = """
import signal
import sys
from langgraph_checkpoint_custom import open_saver
from langgraph_checkpoint_custom import exchange
exchange.FRAME = 2_000
def progress(threads):
    print(threads, flush=True)
    if threads == int(sys.argv[4]):
        signal.pause()  # Until it is killed.
with open_saver(sys.argv[2]) as saver:
    work = exchange.export_file if sys.argv[1] == "export" else exchange.import_file
    done = work(saver, sys.argv[3], progress=progress)
    print(done.threads, done.problems, flush=True)
"""


def test_what_is_killed_goes_on_where_it_was(saver: CheckpointSaver, other: CheckpointSaver, tmp_path: Path) -> None:
    for number in range(30):
        place = step(saver, f"{number:02}", None, a=[f"{number}" * 400])
        saver.put_writes(place, [("a", number)], "task")
    file = tmp_path / "all.zst"
    starts = []
    for what, one in (("export", saver), ("import", other)):
        for kills_at in ("4", "17"):
            with started(what, one, file, kills_at) as child:
                assert child.stdout is not None
                starts.append(child.stdout.readline())
                for line in child.stdout:
                    if line == f"{kills_at}\n":
                        child.kill()
            assert child.wait() == -signal.SIGKILL
        with started(what, one, file, "0") as child:
            assert child.stdout is not None
            assert child.stdout.read().endswith("\n30 {}\n")
        assert child.wait() == 0
    assert int(starts[1]) > 1  # What was exported before is not exported again.
    assert plain(other) == plain(saver)


def started(what: str, saver: CheckpointSaver, file: Path, kills_at: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, what, url_of(saver), str(file), kills_at]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def url_of(saver: Any) -> str:
    if hasattr(saver._driver, "path"):
        return f"sqlite:///{saver._driver.path}"
    return str(saver._driver._connections._options["conninfo"])


def unpacked(path: Path) -> bytes:
    with path.open("rb") as file:
        return ZstdDecompressor().stream_reader(file, read_across_frames=True).read()


def lines_of(path: Path) -> list[dict[str, Any]]:
    import json

    return list(map(json.loads, unpacked(path).splitlines()))


def packed(path: Path, text: bytes) -> Path:
    path.write_bytes(ZstdCompressor().compress(text))
    return path


def test_what_is_no_whole_export_is_refused(saver: CheckpointSaver, other: CheckpointSaver, tmp_path: Path) -> None:
    for name in "tu":
        step(saver, name, None, a=[name * 400])
    export_file(saver, tmp_path / "all.zst")
    whole = unpacked(tmp_path / "all.zst")
    lines = whole.splitlines(keepends=True)
    cases = {
        "no export": b"[1]\n",
        "no export of": b"",
        "form 2": lines[0].replace(b":1}", b":2}") + b"".join(lines[1:]),
        "ends too early": b"".join(lines[:-1]),
        "in the middle of thread 't'": b"".join(lines[:3]),
        "not those that were exported": whole.replace(b'"value":"', b'"value":"AAAA', 1),
        "lost some": b"".join(lines[: lines.index(b'{"thread":"u"}\n')]) + lines[-1],
    }
    for number, (words, text) in enumerate(cases.items()):
        with pytest.raises(BrokenExport, match=words):
            import_file(other, packed(tmp_path / f"{number}.zst", text))
    (tmp_path / "text").write_bytes(whole)
    with pytest.raises(BrokenExport, match="Zstandard"):
        import_file(other, tmp_path / "text")
    with pytest.raises(ConfigError, match="there already"):
        export_file(saver, tmp_path / "all.zst")


def test_a_thread_that_is_exported_while_a_run_goes_on_is_of_one_moment(
    saver: CheckpointSaver, other: CheckpointSaver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prune comes between its checkpoints and their values."""
    place = None
    for number in range(5):
        place = step(saver, "t", place, a=[f"{number}" * 400])
    expected = plain(saver)
    dialect = saver._dialect
    read = dialect.export_rows

    def pruned_before_blobs(kind: str, *args: Any) -> Any:
        if kind == "blob":
            saver.prune(["t"])
        return read(kind, *args)

    monkeypatch.setattr(dialect, "export_rows", pruned_before_blobs, raising=False)
    export_file(saver, tmp_path / "all.zst")
    assert len(plain(saver)) == 1
    assert import_file(other, tmp_path / "all.zst").problems == {}
    assert plain(other) == expected
