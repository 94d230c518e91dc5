"""The operations against scripted replies: their statements, round trips and results."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint
from langgraph.checkpoint.conformance.test_utils import generate_checkpoint, generate_config, generate_metadata
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from langgraph_checkpoint_custom import (
    CheckpointLabelled,
    CheckpointNotFound,
    LabelExists,
    SchemaMissing,
    SchemaOutdated,
    ThreadExists,
)
from langgraph_checkpoint_custom.encoding.encode import encode_checkpoint, encode_writes
from langgraph_checkpoint_custom.encoding.known import KnownBlobs
from langgraph_checkpoint_custom.encoding.rows import Draft, Encoded
from langgraph_checkpoint_custom.encoding.values import Values
from langgraph_checkpoint_custom.engine.operation import (
    Offload,
    Operation,
    RoundTrip,
    adrive,
    done,
    drive,
    operation_of,
)
from langgraph_checkpoint_custom.model.filter import wanted
from langgraph_checkpoint_custom.model.keys import CheckpointRow, Key, key_of
from langgraph_checkpoint_custom.model.outline import OutlineRow
from langgraph_checkpoint_custom.model.pages import first_page
from langgraph_checkpoint_custom.model.records import ThreadPage
from langgraph_checkpoint_custom.operations.copies import copy_thread, fork_thread
from langgraph_checkpoint_custom.operations.delete import (
    delete_checkpoint,
    delete_for_runs,
    delete_thread,
    prune_thread,
    rollback,
    threads_of_runs,
)
from langgraph_checkpoint_custom.operations.delta_history import get_delta_channel_history
from langgraph_checkpoint_custom.operations.interrupts import waiting_threads
from langgraph_checkpoint_custom.operations.labels import label, labelled, labels_of_thread, unlabel
from langgraph_checkpoint_custom.operations.leases import take_claim
from langgraph_checkpoint_custom.operations.list_threads import (
    count_threads,
    history_page,
    runs_of_thread,
    thread_exists,
    threads_page,
)
from langgraph_checkpoint_custom.operations.read import get_tuple, list_page
from langgraph_checkpoint_custom.operations.schema import check_schema, setup
from langgraph_checkpoint_custom.operations.write import put, put_writes
from langgraph_checkpoint_custom.sql.dialect import SqlDialect
from langgraph_checkpoint_custom.sql.postgres_dialect import PostgresDialect
from langgraph_checkpoint_custom.sql.sqlite_dialect import SqliteDialect

CODEC = Values(BaseCheckpointSaver.serde)
HERE = Key("t", "", None), generate_config("t")
LARGE = "much" * 2000
Reply = list[list[Any]]


@pytest.fixture(params=["postgres", "sqlite"])
def d(request: pytest.FixtureRequest) -> SqlDialect:
    return PostgresDialect("langgraph_checkpoint") if request.param == "postgres" else SqliteDialect("file.db")


class Script:
    """Answers each round trip with the next reply, or with no rows, and records the requests."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.round_trips: list[RoundTrip] = []

    def __call__(self, request: RoundTrip | Offload) -> Any:
        if isinstance(request, Offload):
            return request.work()
        self.round_trips.append(request)
        return self.replies.pop(0) if self.replies else [[] for _ in request.statements]

    @property
    def names(self) -> list[list[str]]:
        return [[statement.name for statement in round_trip.statements] for round_trip in self.round_trips]


def next_version(current: None, channel: None) -> str:
    return "1"


def a_checkpoint(**values: Any) -> Checkpoint:
    return generate_checkpoint(channel_values=values, channel_versions=dict.fromkeys(values, "1"))


@pytest.mark.parametrize(
    ("make", "round_trips"),
    [
        (lambda d: get_tuple(d, CODEC, next_version, None, Key("t", "", None)), 1),
        (lambda d: get_tuple(d, CODEC, next_version, None, Key("t", "", "id")), 1),
        (lambda d: list_page(d, CODEC, next_version, first_page("t", "", None, None, 10), ()), 1),
        (lambda d: get_delta_channel_history(d, CODEC, Key("t", "", None), ["a", "b"]), 1),
        (lambda d: get_delta_channel_history(d, CODEC, Key("t", "", None), []), 0),
        (
            lambda d: put_writes(
                d, *done(encode_writes(CODEC, generate_config("t", checkpoint_id="i"), [("a", 1)], "k", ""))
            ),
            1,
        ),
        (lambda d: put_writes(d, Key("t", "", "id"), [], None), 0),
        (lambda d: threads_page(d, CODEC, ThreadPage("z", "", (), 10), ()), 2),
        (lambda d: threads_page(d, CODEC, ThreadPage("z", "", (), 10), wanted({"a": 1})), 1),
        (lambda d: threads_page(d, CODEC, ThreadPage("z", "", (), 10, "t"), wanted({"a": 1})), 1),
        (lambda d: count_threads(d, CODEC, "", ()), 1),
        (lambda d: thread_exists(d, "t"), 1),
        (lambda d: runs_of_thread(d, CODEC, "t"), 1),
        (lambda d: history_page(d, CODEC, first_page("t", None, None, None, 10), ()), 1),
        (lambda d: delete_thread(d, "t"), 1),
        (lambda d: threads_of_runs(d, ["r"]), 1),
        (lambda d: threads_of_runs(d, []), 0),
        (lambda d: delete_for_runs(d, "t", ["r"]), 1),
        (lambda d: prune_thread(d, "t", 2), 1),
        (lambda d: copy_thread(d, "a", "b"), 1),
        (lambda d: waiting_threads(d, CODEC, ""), 1),
        (lambda d: unlabel(d, "t", "name"), 1),
        (lambda d: labels_of_thread(d, "t"), 1),
        (lambda d: delete_checkpoint(d, Key("t", "", "id")), 1),
    ],
)
async def test_operations_take_their_number_of_round_trips(
    d: SqlDialect, make: Callable[[SqlDialect], Operation[Any]], round_trips: int
) -> None:
    for api in ("sync", "async"):
        script = Script()
        if api == "sync":
            drive(make(d), script)
        else:

            async def perform(request: RoundTrip | Offload, script: Script = script) -> Any:
                return script(request)

            await adrive(make(d), perform)
        assert len(script.round_trips) == round_trips


def outline_row(checkpoint_id: str, parent_id: str | None = None, **cells: Any) -> tuple[Any, ...]:
    row = OutlineRow("", checkpoint_id, parent_id, None, None, 4, False, "[]", "[]", "[]", "[]")
    return tuple(row._replace(**cells))


def test_a_prune_reads_what_it_decides_by_and_nothing_else(d: SqlDialect) -> None:
    """Sends only for old formats, chunks only of values that may go, and those of others only if there are any."""
    blobs = {"blob_channels": '["a"]', "blob_versions": '["1"]'}
    more = {"blob_channels": '["a"]', "blob_versions": '["2"]'}
    reads = ["select_outline", "select_labels"]
    cases: list[tuple[list[Reply], list[str]]] = [
        ([[[], []]], []),
        ([[[outline_row("1")], []]], []),
        ([[[outline_row("1"), outline_row("2", "1")], []]], ["remove"]),
        ([[[outline_row("1", format=3)], []]], ["select_sends"]),
        ([[[outline_row("1", **blobs), outline_row("2", **blobs)], []]], ["remove"]),
        ([[[outline_row("1", **blobs), outline_row("2")], []]], ["select_chunks", "remove"]),
        (
            [[[outline_row("1", **blobs), outline_row("2", **more)], []], [[("", "a", "#/1")]]],
            ["select_chunks", "select_chunks", "remove"],
        ),
    ]
    for replies, expected in cases:
        script = Script(*replies)
        drive(prune_thread(d, "t"), script)
        first, *names = script.names
        assert first == reads
        assert ["remove" if "delete_checkpoints" in each else each[0] for each in names] == expected


def test_a_deletion_names_the_rows_that_go(d: SqlDialect) -> None:
    """A row that is stored meanwhile has no such key."""
    script = Script([[outline_row("1"), outline_row("2", "1"), outline_row("3", "1", hidden=True)], []])
    drive(prune_thread(d, "t"), script)
    (statement,) = [each for each in script.round_trips[1].statements if each.name == "delete_checkpoints"]
    if d.system == "postgresql":
        assert isinstance(statement.params, dict)
        assert statement.params["checkpoint_ids"] == '{"1","3"}'
    else:
        keys: Any = statement.params
        assert [each["checkpoint_id"] for each in keys] == ["1", "3"]


def locks(round_trip: RoundTrip) -> list[str]:
    return [statement.name for statement in round_trip.before]


def encoded_in_rows(**values: Any) -> Encoded:
    """A checkpoint without a parent that has new values, one of them large."""
    checkpoint = a_checkpoint(**values)
    encoded = encode_checkpoint(CODEC, *HERE, checkpoint, generate_metadata(), checkpoint["channel_versions"])
    assert isinstance(encoded, Encoded)
    return encoded


def encoded_with_an_old_value(before: KnownBlobs | None) -> Encoded | Draft:
    """A checkpoint with an unchanged large value, and its parent's blobs if they are known."""
    where = generate_config("t", checkpoint_id="0")
    checkpoint = a_checkpoint(old=[LARGE], fresh=[2])
    encoded = encode_checkpoint(CODEC, key_of(where), where, checkpoint, generate_metadata(), {"fresh": "1"}, before)
    assert isinstance(encoded, (Encoded, Draft))
    return encoded


def test_a_put_of_a_small_checkpoint_is_one_statement_without_a_lock(d: SqlDialect) -> None:
    values = {"number": 1, "list": [1]}
    row = encode_checkpoint(CODEC, *HERE, a_checkpoint(**values), generate_metadata(), dict.fromkeys(values, "1"))
    assert isinstance(row, CheckpointRow)
    assert row.inline_channels == ["number", "list"]
    script = Script()
    drive(put(d, row), script)
    drive(operation_of(d.put_form, d.put_params(row)), script)  # As a driver sends it.
    assert script.names == [["insert_checkpoint"]] * 2
    assert script.round_trips[0].statements == script.round_trips[1].statements
    assert not any(map(locks, script.round_trips))


def deltas_alone() -> Encoded:
    """A checkpoint whose only channel is rebuilt from its ancestors."""
    checkpoint = generate_checkpoint(channel_versions={"log": "2"})
    metadata = generate_metadata(counters_since_delta_snapshot={"log": (1, 1)})
    where = generate_config("t", checkpoint_id="0")
    encoded = encode_checkpoint(CODEC, key_of(where), where, checkpoint, metadata, {"log": "2"})
    assert isinstance(encoded, Encoded)
    assert encoded.replayed == ["log"]
    return encoded


def test_a_put_of_deltas_alone_checks_its_parent_in_the_statement_that_stores_it(d: SqlDialect) -> None:
    encoded = deltas_alone()
    assert encoded.is_one_row
    script = Script([[(True,)]])
    drive(put(d, encoded), script)
    assert script.names == [["insert_checkpoint_on_parent"]]
    if d.system == "postgresql":  # The parent cannot be deleted while the lock is held.
        assert locks(script.round_trips[0]) == ["share_thread"]
    script = Script([[]])
    drive(put(d, encoded), script)  # If the parent is not found, another statement finds out why.
    if d.system == "postgresql":
        assert script.names == [["insert_checkpoint_on_parent"], ["put_checkpoint"]]
    else:
        assert script.names == [["insert_checkpoint_on_parent"], ["put_problems"], ["insert_checkpoint"]]


def test_a_put_with_blobs_shares_the_threads_lock(d: SqlDialect) -> None:
    encoded = encoded_in_rows(small=1, large=[LARGE])
    script = Script()
    drive(put(d, encoded), script)
    assert [blob.channel for blob in encoded.blobs] == ["large"]
    assert encoded.row.inline_channels == ["small"]
    if d.system == "postgresql":
        assert script.names == [["put_checkpoint"]]
        assert locks(script.round_trips[0]) == ["share_thread"]
        drive(put(d, encoded, only_newest=True), script)
        assert locks(script.round_trips[1]) == ["lock_thread"]
    else:  # There is one writer at a time, so what was checked stays true.
        assert script.names == [["put_blobs", "insert_checkpoint"]]
        drive(put(d, encoded, only_newest=True), script)
        assert script.names[1:] == [["put_problems"], ["put_blobs", "insert_checkpoint"]]


@pytest.mark.parametrize(
    "make",
    [
        lambda d: delete_thread(d, "t"),
        lambda d: prune_thread(d, "t"),
        lambda d: copy_thread(d, "s", "t"),
        lambda d: delete_checkpoint(d, Key("t", "", "1")),
        lambda d: take_claim(d, "t", "token", "me", 1.0),
    ],
)
def test_deleting_copying_and_claiming_take_the_exclusive_lock(make: Callable[[SqlDialect], Operation[Any]]) -> None:
    script = Script()
    with suppress(IndexError):  # The script has no answer to a claim.
        drive(make(PostgresDialect("langgraph_checkpoint")), script)
    (lock,) = script.round_trips[0].before
    assert lock.name == "lock_thread"
    assert isinstance(lock.params, dict)
    assert lock.params["thread_id"] == "t"


def test_put_stores_a_deleted_value_again(d: SqlDialect) -> None:
    """The value was stored with an earlier checkpoint that a prune removed. The new checkpoint has it, too."""
    encoded = encoded_with_an_old_value(KnownBlobs({"old": "1"}, {}))
    assert isinstance(encoded, Encoded)
    assert [ref.channel for ref in encoded.references] == ["old"]
    assert not encoded.blobs
    script = Script([[("value", "old")]])
    stored = drive(put(d, encoded), script)
    assert len(script.round_trips) == (2 if d.system == "postgresql" else 3)
    assert [blob.channel for blob in stored.blobs] == ["old"]
    assert not stored.references


@pytest.mark.parametrize("names_it", [True, False], ids=["a blob", "not a blob"])
def test_put_reads_the_row_of_a_parent_that_it_does_not_know(d: SqlDialect, names_it: bool) -> None:
    draft = encoded_with_an_old_value(None)
    assert isinstance(draft, Draft)
    array = list if d.system == "postgresql" else d.array  # psycopg makes lists of arrays.
    script = Script([[(array(["old"]), array(["1"])) if names_it else (array([]), array([]))]])
    stored = drive(put(d, draft), script)
    assert script.names[0] == ["select_blobs_of"]
    assert [ref.channel for ref in stored.references] == (["old"] if names_it else [])
    assert [blob.channel for blob in stored.blobs] == ([] if names_it else ["old"])
    assert stored.row.blob_channels == ["old"]
    assert stored.row.inline_channels == ["fresh"]


def test_put_refuses_a_delta_on_a_parent_that_was_deleted(d: SqlDialect) -> None:
    encoded = deltas_alone()
    missing = [[("parent", None)]]
    with pytest.raises(CheckpointNotFound, match="'log'"):
        drive(put(d, encoded), Script([[]], missing))


def test_copy_refuses_a_thread_with_its_own_checkpoints(d: SqlDialect) -> None:
    with pytest.raises(ThreadExists, match="'b'"):
        drive(copy_thread(d, "a", "b"), Script([[("id",)]]))


def test_threads_are_read_by_age_and_a_filter_switches_to_ids_if_too_few_of_the_newest_match(d: SqlDialect) -> None:
    page = ThreadPage("z", "", (), 1)
    metadata = CODEC.dumps({"source": "loop", "thread_id": None}, ("metadata", "", "1"))
    script = Script([[("a", "", "1", None, None, *metadata)]])
    reply = drive(threads_page(d, CODEC, page, ()), script)
    assert script.names == [["threads_newest"]]
    (found,) = reply.threads
    assert found.newest.metadata == {"source": "loop", "thread_id": "a"}
    assert reply.after == page._replace(before="1", thread_below="a")
    row = ("a", "", "1", None, None, *metadata)
    recent = ["threads_recent", "searchable_indexes"]
    more = (None,) * 7
    for given, ways in (
        ([[[]], [[row], []]], [["threads_newest"], recent]),
        ([[[]], [[more], []], [[row, more], []]], [["threads_newest"], recent, recent]),
        ([[[]], [[], []]], [["threads_newest"], recent]),
    ):
        script = Script(*given)
        drive(threads_page(d, CODEC, page, ()), script)
        assert script.names == ways
    replies: list[tuple[list[Reply], list[list[str]]]] = [
        ([[[row], []]], [recent]),
        ([[[more], []], [[row]]], [recent, ["threads_matching"]]),
        ([[[more], [("searchable_source", True)]], [[row]]], [recent, ["threads_searched"]]),
        ([[[more], [("searchable_source", False)]], [[row]]], [recent, ["threads_matching"]]),
    ]
    for given, names in replies:
        script = Script(*given)
        reply = drive(threads_page(d, CODEC, page, wanted({"source": "input"})), script)
        assert script.names == names
        assert (list(reply.threads), reply.after) == ([], page._replace(before="1", thread_below="a"))


def test_filters_that_the_database_cannot_count_are_decided_in_python(d: SqlDialect) -> None:
    metadata = [CODEC.dumps({"user": user}, ("metadata", "", "1")) for user in "ab"]
    rows = [(3, *[None] * 5), *((None, "t", "", "1", *each) for each in metadata)]
    for there, name in (([], "threads_counted"), ([("searchable_user", True)], "threads_searched_counted")):
        script = Script([there], [rows])
        assert drive(count_threads(d, CODEC, "", wanted({"user": "a"})), script) == 4
        assert script.names == [["searchable_indexes"], [name]]
    script = Script([rows])
    assert drive(count_threads(d, CODEC, "t", wanted({"user": "a"})), script) == 4
    assert script.names == [["threads_counted"]]


def test_encrypted_keys_are_not_looked_up_in_the_index(d: SqlDialect) -> None:
    hiding = Values(EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef"), clear=["team"])
    there = [("searchable_user", True), ("searchable_team", True)]
    script = Script([[]])
    assert drive(count_threads(d, hiding, "", wanted({"user": 1})), script) == 0
    assert script.names == [["threads_counted"]]
    script = Script([there], [[]])
    assert drive(count_threads(d, hiding, "", wanted({"user": 1, "team": {"$in": [2]}})), script) == 0
    assert script.names == [["searchable_indexes"], ["threads_searched_counted"]]
    (statement,) = script.round_trips[-1].statements
    assert isinstance(statement.params, dict)
    assert statement.params["shown"] == d.array(["2", "?"])


def test_a_label_that_is_taken_is_refused(d: SqlDialect) -> None:
    key = Key("t", "", "2")
    made = Script([[("", "2", "2")]])
    config = drive(label(d, key, "name"), made)
    assert config["configurable"]["checkpoint_id"] == "2"
    assert made.names == [["label_checkpoint"]]
    with pytest.raises(LabelExists, match="'1'"):
        drive(label(d, key, "name"), Script([[("", "1", "2")]]))
    with pytest.raises(LabelExists):
        drive(label(d, key, "name"), Script([[("sub", "2", "2")]]))
    with pytest.raises(CheckpointNotFound, match="no checkpoint '2'"):
        drive(label(d, key, "name"), Script([[]]))
    with pytest.raises(CheckpointNotFound, match="'other'; its labels are 'name'"):
        drive(labelled(d, "t", "other"), Script([[("name", "", "2")]]))


def test_checkpoints_to_delete_must_exist_and_have_no_label(d: SqlDialect) -> None:
    rows = [outline_row("1"), outline_row("2", "1"), outline_row("3", "2")]
    operations: list[tuple[Callable[[SqlDialect, Key], Operation[Any]], str]] = [
        (delete_checkpoint, "3"),
        (rollback, "2"),
    ]
    for operation, checkpoint_id in operations:
        key = Key("t", "", checkpoint_id)
        script = Script([rows, [("name", "", "3")]])
        with pytest.raises(CheckpointLabelled, match="'name'"):
            drive(operation(d, key), script)
        assert len(script.round_trips) == 1
        assert drive(operation(d, key), Script([rows, [("other", "", "1")]]))
    replies: list[Reply] = [[[], []], [[outline_row("2", hidden=True)], []]]
    for reply in replies:
        assert drive(delete_checkpoint(d, Key("t", "", "2")), Script(reply)) is False
        with pytest.raises(CheckpointNotFound, match="'2'"):
            drive(rollback(d, Key("t", "", "2")), Script(reply))


def test_a_fork_reads_its_checkpoint_and_copies_in_a_second_round_trip(d: SqlDialect) -> None:
    def metadata(**more: Any) -> tuple[str, bytes]:
        return CODEC.dumps({"source": "loop", **more}, ("metadata", "", "1"))

    def fork(*replies: Reply) -> Script:
        script = Script(*replies)
        found = drive(fork_thread(d, CODEC, "a", "b", "1", None), script)
        assert found["configurable"] == {"thread_id": "b", "checkpoint_ns": "", "checkpoint_id": "1"}
        return script

    point, rows, count = ("point", "1", *metadata()), [outline_row("1")], [[(1,)]]
    script = fork([rows, [point]], count)
    assert script.names[0] == ["select_outline", "select_fork_point"]
    assert script.names[1] == ["fork_checkpoints", "fork_writes", "fork_metadata", "fork_count"]
    (params,) = [each.params for each in script.round_trips[1].statements if each.name == "fork_metadata"]
    assert isinstance(params, dict)
    origin = {"forked_from_thread": "a", "forked_from_checkpoint": "1"}
    assert CODEC.loads(params["metadata_type"], params["metadata"], ("metadata", "", "1")) == {
        "source": "loop",
        **origin,
    }
    assert all(name in params["metadata_filter"] for name in origin)
    # What was forked already is not forked again. Any other checkpoint in the target is refused.
    assert len(fork([rows, [point, ("target", "1", *metadata(**origin))]]).round_trips) == 1
    targets = [("1", *metadata()), ("2", *metadata(**origin)), (None, None, None)]
    for target in targets:
        with pytest.raises(ThreadExists, match="'b'"):
            fork([rows, [point, ("target", *target)]])
    with pytest.raises(CheckpointNotFound):
        fork([rows, []])
    # The source got a checkpoint after its outline was read.
    again = fork([rows, [point]], [[(2,)]], [[]], [[*rows, outline_row("2", "1")], [point]], count)
    assert [names[0] for names in again.names[2:4]] == ["delete_writes", "select_outline"]


def test_setup_applies_the_missing_migrations(d: SqlDialect) -> None:
    nothing = [[(isinstance(d, SqliteDialect), False, None, None)]]  # SQLite always has exactly one schema.
    script = Script([[(1,)]], nothing, nothing)
    drive(setup(d), script)
    assert script.names[:3] == [["schema_lock"], ["schema_state"], ["schema_state"]]
    assert script.names[-1][-1] == "schema_applied"
    current = Script([[(1,)]], [[(True, True, "checkpoints", None)]], [[(m.number,) for m in d.migrations]])
    drive(setup(d), current)
    assert current.names == [["schema_lock"], ["schema_state"], ["schema_numbers"]]


def test_check_distinguishes_missing_from_outdated_tables(d: SqlDialect) -> None:
    with pytest.raises(SchemaMissing):
        drive(check_schema(d), Script([[(True, False, None, None)]]))
    with pytest.raises(SchemaOutdated):
        drive(check_schema(d), Script([[(True, True, "checkpoints", None)]], [[]]))


def test_each_attempt_starts_the_operation_from_the_beginning(d: SqlDialect) -> None:
    op = put_writes(d, *done(encode_writes(CODEC, generate_config("t", checkpoint_id="i"), [("a", 1)], "k", "")))
    scripts = [Script(), Script()]
    for script in scripts:
        drive(op, script)
    first, second = (
        [statement.params for round_trip in script.round_trips for statement in round_trip.sent()] for script in scripts
    )
    assert first == second
    assert first
