"""Reads of checkpoints with blobs on SQLite: each row is read once, and all of them belong to one snapshot."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.conformance.test_utils import generate_checkpoint, generate_config, generate_metadata

from langgraph_checkpoint_custom import CorruptCheckpoint, SqliteSaver
from tests.drivers.group_commits import CONNECT, traced

STEPS = 3
# What a step of a number stores, and how many statements read it. A long text is a blob; a long list has chunks. They
# are read in a transaction; a single checkpoint that turns out to have blobs is read again.
VALUES: dict[str, tuple[Callable[[int], Any], int]] = {
    "a row": (lambda step: [step], 1),
    "a blob": (lambda step: f"{step}" * 20_000, 2),
    "chunks": (lambda step: ["x" * 1000] * 200 + [step], 3),
}


def fill(saver: SqliteSaver, value: Callable[[int], Any]) -> list[Any]:
    """Store steps; return their values, the newest one first."""
    stored: RunnableConfig = generate_config("thread")
    values: list[Any] = []
    for step in range(1, STEPS + 1):
        values.insert(0, value(step))
        stored = put_step(saver, stored, step, values[0])
    return values


def put_step(saver: SqliteSaver, parent: RunnableConfig, step: int, value: Any) -> RunnableConfig:
    versions: Any = {"a": f"{step:032}.5"}
    checkpoint = generate_checkpoint(channel_values={"a": value}, channel_versions=versions)
    checkpoint["v"] = 4  # A checkpoint of an older format has sends, which belong to the snapshot.
    return saver.put(parent, checkpoint, generate_metadata(), versions)


@pytest.mark.parametrize("what", VALUES)
def test_each_row_is_read_once(tmp_path: Path, what: str) -> None:
    value, statements = VALUES[what]
    with traced(tmp_path / "checkpoints.db") as saver:
        values = fill(saver, value)
        for limit in (1, 2, STEPS):
            del saver.executed[:]
            found = list(saver.list(generate_config("thread"), limit=limit))
            assert [each.checkpoint["channel_values"]["a"] for each in found] == values[:limit]
            selects = [sql for sql, is_inside in saver.executed if is_inside and sql != "COMMIT"]
            assert len(selects) == statements, saver.executed
            assert saver.executed[0][0] == "BEGIN"
        del saver.executed[:]
        newest = saver.get_tuple(generate_config("thread"))
        assert newest
        assert newest.checkpoint["channel_values"]["a"] == values[0]
        first, *others = saver.executed
        assert first[0].startswith("SELECT")
        assert len(others) == (0 if statements == 1 else statements + 2), saver.executed


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("method", ["get_tuple", "list"])
def test_a_read_that_meets_a_deletion_has_all_of_the_thread_or_nothing(
    tmp_path: Path, method: str, number: int
) -> None:
    """Another process deletes the thread after this number of the read's statements."""
    path = tmp_path / "checkpoints.db"
    with traced(path) as saver:
        values = fill(saver, VALUES["chunks"][0])
        other = CONNECT(path, isolation_level=None)
        done: list[str] = []

        def note(sql: str) -> None:
            done.append(sql)
            if len(done) == number + 1:
                for table in ("checkpoints", "writes", "blobs"):
                    other.execute(f"DELETE FROM {table}")

        saver.writer.set_trace_callback(note)
        config = generate_config("thread")
        found = list(filter(None, [saver.get_tuple(config)] if method == "get_tuple" else saver.list(config)))
        other.close()
    # A transaction has its snapshot from its first SELECT on.
    in_time = done.index("BEGIN") + 2 <= number
    expected = values[: 1 if method == "get_tuple" else STEPS] if in_time else []
    assert [each.checkpoint["channel_values"]["a"] for each in found] == expected
    assert len(done) > number


@pytest.mark.parametrize("changes", ["the thread", "the newest"])
@pytest.mark.parametrize("method", ["get_tuple", "list"])
def test_a_read_that_meets_a_new_value_of_a_version_has_no_values_of_two_checkpoints(
    tmp_path: Path, method: str, changes: str
) -> None:
    """Another process deletes what was found before its blobs are read, and stores others with the same versions."""
    path = tmp_path / "checkpoints.db"
    with traced(path) as saver, SqliteSaver.from_conn_string(str(path)) as other:
        fill(saver, VALUES["a blob"][0])
        second = list(saver.list(generate_config("thread")))[1].config
        done: list[str] = []

        def note(sql: str) -> None:
            done.append(sql)
            if len(done) == 2:
                if changes == "the thread":
                    other.delete_thread("thread")
                    fill(other, lambda step: f"other {step}" * 20_000)
                else:
                    other.rollback("thread", second["configurable"]["checkpoint_id"])
                    put_step(other, second, STEPS, f"other {STEPS}" * 20_000)

        saver.writer.set_trace_callback(note)
        config = generate_config("thread")
        found = [saver.get_tuple(config)] if method == "get_tuple" else list(saver.list(config))
        saver.writer.set_trace_callback(None)
        expected = list(other.list(config))
        assert expected[0].checkpoint["channel_values"]["a"].startswith("other")
        assert found == expected[: len(found)]


@pytest.mark.parametrize("damaged", ["[", "7", "[1]", '{"a": "b"}'])
@pytest.mark.parametrize("column", ["blob_channels", "blob_versions"])
def test_a_damaged_list_of_blobs_raises(tmp_path: Path, column: str, damaged: str) -> None:
    """The database reads the lists, but the error says whose they are."""
    path = tmp_path / "checkpoints.db"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        fill(saver, VALUES["a blob"][0])
        with closing(CONNECT(path, isolation_level=None)) as other:
            other.execute(f"UPDATE checkpoints SET {column} = ?", (damaged,))
        reads: list[Callable[[], object]] = [
            lambda: saver.get_tuple(generate_config("thread")),
            lambda: list(saver.list(generate_config("thread"), limit=1)),
            lambda: list(saver.list(generate_config("thread"))),
        ]
        for read in reads:
            with pytest.raises(CorruptCheckpoint) as raised:
                read()
            assert raised.value.thread_id == "thread"
