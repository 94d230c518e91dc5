"""`threads`, `history`, `show`, `diff`, `types`, `interrupts`, `labels`, `stats`: they only read."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from http import HTTPStatus
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

import ormsgpack
import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT
from langgraph.types import Interrupt, Send
from pydantic import AnyUrl

from langgraph_checkpoint_custom import CheckpointSaver, open_saver
from langgraph_checkpoint_custom.cli import common, main, reading
from langgraph_checkpoint_custom.model.id_times import time_of
from langgraph_checkpoint_custom.tools.display import brief, json_of
from langgraph_checkpoint_custom.tools.types import classes
from tests.behaviour.helpers import checkpoint, config, id_of, metadata, next_uuid
from tests.cli.conftest import Cli
from tests.ui.conftest import pages_of

HOSTILE = "red \x1b[31m[bold red]x[/]\x07 \u202e line\nend"
SHOWN = r"red \x1b[31m[bold red]x[/]\x07 \u202e line\nend"


@pytest.fixture
def missing_class(monkeypatch: pytest.MonkeyPatch) -> type:
    """A class whose module cannot be imported after a value of it was stored."""
    module = ModuleType("a_module_that_is_gone")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    @dataclass
    class Plan:
        steps: list[Any]
        cost: Decimal

    Plan.__module__, Plan.__qualname__ = module.__name__, "Plan"
    module.Plan = Plan  # type: ignore[attr-defined]
    return Plan


def put(
    saver: CheckpointSaver,
    thread_id: str,
    parent: Any = None,
    meta: Any = None,
    *,
    checkpoint_id: str | None = None,
    **values: Any,
) -> Any:
    """Store a checkpoint whose values are all new versions."""
    document = checkpoint(checkpoint_id or next_uuid(), values)
    document["ts"] = "2026-01-02T03:04:05+00:00"
    return saver.put(parent or config(thread_id), document, meta or metadata(), document["channel_versions"])


def test_an_empty_list_is_a_sentence(cli: Cli) -> None:
    for name in ("threads", "failures", "tenants"):
        assert cli(name) == f"No {name}.\n"
    assert cli("threads", "--state", "unfinished") == "No threads.\n"
    assert cli("types") == "No classes.\n"
    assert cli("interrupts") == "No threads wait for a human.\n"
    assert "largest" not in cli("stats")
    with cli.store.open() as saver:
        put(saver, "1")
    assert cli("labels", "1") == "No labels.\n"
    assert cli("history", "1", "--where", "user=x") == "No checkpoints.\n"


def test_threads_by_page_and_by_metadata(cli: Cli) -> None:
    with cli.store.open() as saver:
        for number in range(5):
            put(saver, f"t{number}", meta=metadata(number, user=f"u{number % 2}"), text="x" * 3000)
        saver.copy_thread("t4", "t4-copy")
        put(saver.for_tenant("acme"), "theirs")
    first = cli.json("threads", "--limit", "2")
    assert [one["thread_id"] for one in first["threads"]] == ["t4-copy", "t4"]
    assert first["threads"][0]["checkpoints"] == 1
    assert first["threads"][0]["bytes"] > 100
    assert first["threads"][0]["time"].startswith("20")
    # Both have the same newest checkpoint, and a page may end between them.
    (alone,) = cli.json("threads", "--limit", "1")["threads"]
    after = cli.json("threads", "--limit", "1")["next"]
    assert [alone["thread_id"], cli.json("threads", "--limit", "1", "--before", after)["threads"][0]["thread_id"]] == [
        "t4-copy",
        "t4",
    ]
    rest = cli.json("threads", "--before", first["next"])
    assert [one["thread_id"] for one in rest["threads"]] == ["t3", "t2", "t1", "t0"]
    assert rest["next"] is None
    found = cli.json("threads", "--where", "user=u1", "--where", "step=3")
    assert [one["thread_id"] for one in found["threads"]] == ["t3"]
    found = cli.json("threads", "--where", 'user={"$in": ["u1", "u2"]}', "--where", 'step={"$gte": 2}')
    assert [one["thread_id"] for one in found["threads"]] == ["t3"]
    assert "$in in the filter of 'user' takes a list" in cli.fail("threads", "--where", 'user={"$in": "u1"}', code=2)
    assert [one["thread_id"] for one in cli.json("threads", "--tenant", "acme")["threads"]] == ["theirs"]
    output = cli("threads", "--limit", "2")
    assert "t4-copy" in output
    assert "More with --before" in output
    assert "'nothing' is not KEY=VALUE" in cli.fail("threads", "--where", "nothing", code=2)
    assert "--before" in cli.fail("threads", "--before", "nothing", code=2)


def test_history_and_labels(cli: Cli) -> None:
    with cli.store.open() as saver:
        location = None
        ids = []
        for step in range(4):
            location = put(saver, "1", location, metadata(step, run_id="run"), number=step)
            ids.append(id_of(location))
        saver.label(config("1", ids[1]), "good one")
    found = cli.json("history", "1")["checkpoints"]
    assert [one["checkpoint_id"] for one in found] == ids[::-1]
    assert [one["parent_id"] for one in found] == [*ids[2::-1], None]
    assert [one["labels"] for one in found] == [[], [], ["good one"], []]
    assert [one["metadata"]["step"] for one in cli.json("history", "1", "--before", ids[2])["checkpoints"]] == [1, 0]
    assert len(cli.json("history", "1", "--where", "step=2", "--namespace", "")["checkpoints"]) == 1
    for none in (("--where", "step=9"), ("--before", ids[0])):
        assert cli.json("history", "1", *none)["checkpoints"] == []
    output = cli("history", "1", "--limit", "3")
    assert "good one" in output
    assert f"--before {ids[1]}" in output
    assert cli.json("labels", "1")["labels"] == [{"label": "good one", "checkpoint_id": ids[1], "checkpoint_ns": ""}]
    assert ids[1] in cli("labels", "1")
    for command in ("history", "labels", "stats", "show"):
        assert "there is no thread '2', and none whose id begins with it" in cli.fail(command, "2")
    assert "no checkpoint in namespace 'x'" in cli.fail("history", "1", "--namespace", "x")


def test_what_reads_takes_parts_of_ids_and_labels(cli: Cli) -> None:
    with cli.store.open() as saver:
        first = put(saver, "4fd1-ann", number=1)
        last = put(saver, "4fd1-ann", first, number=2)
        put(saver, "4fd1-bob", number=3)
        put(saver, "4fd1", number=4)
        saver.label(first, "before")
    ends = [id_of(one)[-12:] for one in (first, last)]
    for thread in ("4fd1-a", "4fd1-ann"):
        for wanted in ("before", ends[0], id_of(first)):
            assert cli.json("show", thread, wanted)["state"] == {"number": 1}
        assert cli.json("show", thread, "latest")["state"] == {"number": 2}
        assert cli.json("diff", "--thread", thread, "before", "latest")["differences"] == [
            {"path": "number", "a": 1, "b": 2}
        ]
        found = cli.json("history", thread, "--before", ends[1])
        assert (found["thread_id"], [one["labels"] for one in found["checkpoints"]]) == ("4fd1-ann", [["before"]])
        assert cli.json("labels", thread)["thread_id"] == cli.json("stats", thread)["thread_id"] == "4fd1-ann"
    assert cli.json("show", "4fd1")["state"] == {"number": 4}
    assert "several threads begin with '4fd1-': 4fd1-ann, 4fd1-bob" in cli.fail("show", "4fd1-")
    assert "there is no checkpoint 'x'" in cli.fail("show", "4fd1-ann", "x")
    # What changes something takes exact ids only.
    for command in (("label", "4fd1-a", "x"), ("fork", "4fd1-a", "x"), ("delete", "4fd1-a", "--yes")):
        cli.fail(*command)
    cli.fail("rollback", "4fd1-ann", ends[0], "--yes")
    cli.fail("fork", "4fd1-ann", "x", "--checkpoint", "before")


def test_another_schema(cli: Cli) -> None:
    if cli.store.kind == "sqlite":
        said = cli.fail("threads", "--schema", "other", code=2)
        assert "SqliteSaver has no option 'schema'; it is an option of PostgresSaver" in said
        return
    cli("setup", "--schema", "other")
    with cli.store.open(schema="other") as saver:
        put(saver, "there", number=1)
    cli("label", "there", "kept", "--schema", "other")
    assert cli.json("threads")["threads"] == []
    for command in (("threads",), ("show", "there"), ("labels", "there"), ("export", "all.zst"), ("doctor",)):
        cli(*command, "--schema", "other")
    cli("prune", "there", "--yes", "--schema", "other")
    assert [one["label"] for one in cli.json("labels", "there", "--schema", "other")["labels"]] == ["kept"]


def test_what_reads_takes_the_file_that_is_here(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with open_saver("checkpoints.db") as saver:
        put(saver, "here", number=1)
    monkeypatch.delenv("CHECKPOINT_URL")
    for command in (("threads",), ("show", "here"), ("verify",), ("doctor",), ("export", "all.zst")):
        cli(*command)
        assert cli.error == "note: no database given, so this is ./checkpoints.db\n"
    for changing in (("delete", "here", "--yes"), ("setup",), ("doctor", "--fix", "--yes"), ("import", "all.zst")):
        assert "no database given" in cli.fail(*changing, code=2)


def test_a_large_file_is_not_read_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "large.db")
    with open_saver(path) as saver:
        put(saver, "here", number=1)
    os.truncate(path, 2**40)  # More than fits into memory, and no block of the disk.
    assert main(["threads", "--url", path]) == 0
    assert "here" in capsys.readouterr().out


def test_times_are_local_and_say_their_zone(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "XYZ-3")
    time.tzset()
    try:
        with cli.store.open() as saver:
            where = put(saver, "1", number=1)
            saver.put_writes(where, [(INTERRUPT, [Interrupt(value="?", id="a")])], "task")
            saver.put_writes(put(saver, "2", number=1), [(ERROR, "no")], "task")
            made = time_of(id_of(where))
            assert made is not None
            local = f"{made + timedelta(hours=3):%m-%d %H:%M:%S}"
            for command in ("threads", "history 1", "stats 1"):
                assert "(XYZ)" in cli(*command.split())
                assert local in cli(*command.split())
                assert f"{made:%m-%d %H:%M:%S}" in cli(*command.split(), "--utc")
            assert "2026-01-02 06:04:05 XYZ" in cli("show", "1")
            assert "2026-01-02 03:04:05 UTC" in cli("show", "1", "--utc")
            assert "since (XYZ)" in cli("interrupts")
            assert "since (UTC)" in cli("failures", "--utc")
            assert "2026-01-02 06:04:05 XYZ" in pages_of(saver).page("/checkpoint", thread="1")
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_history_draws_its_branches(cli: Cli) -> None:
    with cli.store.open() as saver:
        one = put(saver, "1", meta=metadata(0), number=1)
        two = put(saver, "1", one, metadata(1), number=2)
        other = put(saver, "1", one, metadata(1), number=3)
        last = put(saver, "1", two, metadata(2), number=4)
    drawn = re.findall(r"^ ([*|][*|/ ]*?) *(?:\w{8}-|$)", cli("history", "1", "--graph"), re.MULTILINE)
    assert drawn == ["*", "| *", "* |", "|/", "*"]
    rows = {row["checkpoint_id"]: row["parent_id"] for row in cli.json("history", "1")["checkpoints"]}
    assert [*rows] == [id_of(each) for each in (last, other, two, one)]
    assert f"…{id_of(two)[-12:]}" in cli("history", "1")
    assert cli.json("history", "1", "--limit", "2")["next"] == id_of(other)


def test_show_prints_a_checkpoint(cli: Cli, missing_class: type) -> None:
    plan = missing_class(steps=[HOSTILE, {1: b"\0", "nan": float("nan")}], cost=Decimal("1.5"))
    with cli.store.open() as saver:
        values = {
            HOSTILE: HOSTILE,
            "plan": plan,
            "chat": [{"text": "x" * 500, "number": number} for number in range(200)],
            "branch:to:agent": None,
            "__pregel_tasks": [Send("tool", {"a": 1}), Send("tool", {"a": 2})],
        }
        where = put(saver, HOSTILE, meta=metadata(3, note=HOSTILE), **values)
        saver.put_writes(where, [(INTERRUPT, [Interrupt(value=HOSTILE, id="ask-1")])], "task 1")
        saver.put_writes(where, [("answer", plan)], "task 2")
    del sys.modules["a_module_that_is_gone"]
    output = cli("show", HOSTILE)
    assert SHOWN in output
    assert "a_module_that_is_gone.Plan(steps=['red " in output
    assert "cost=decimal.Decimal('1.5')" in output
    assert "list of 200" in output
    assert "Waiting for an answer to ask-1: 'red " in output
    assert "Next: agent, tool x2" in output
    assert "branch:to" not in output
    assert "a_module_that_is_gone" not in sys.modules
    assert len(output) < 10_000 < len(cli("show", HOSTILE, "--full"))
    found = cli.json("show", HOSTILE, id_of(where))
    assert found["state"][HOSTILE] == HOSTILE
    assert found["state"]["plan"]["class"] == "a_module_that_is_gone.Plan"
    steps = found["state"]["plan"]["value"]["steps"]
    assert steps == [HOSTILE, {"pairs": [[1, {"bytes": "AA=="}], ["nan", {"float": "nan"}]]}]
    assert found["interrupts"][0]["id"] == "ask-1"
    assert found["interrupts"][0]["value"] == HOSTILE
    assert found["next"] == ["agent", "tool", "tool"]
    assert len(found["state"]["chat"]) == 200
    assert [write["channel"] for write in found["writes"]] == [INTERRUPT, "answer"]
    (waiting,) = cli.json("interrupts")["threads"]
    assert (waiting["thread_id"], waiting["since"]) == (HOSTILE, "2026-01-02T03:04:05+00:00")
    assert waiting["interrupts"] == found["interrupts"]
    output = cli("interrupts")
    assert "ask-1" in output
    assert SHOWN in output
    for command in ("threads", "stats", "types"):
        cli(command)
    for command in ("history", "stats", "labels"):
        cli(command, HOSTILE)
    assert SHOWN in cli("threads")
    assert "\\x1b" in cli.fail("show", f"{HOSTILE} nobody has")
    assert "there is no checkpoint 'x', and none whose id ends with it" in cli.fail("show", HOSTILE, "x")


def test_types_are_an_allowlist_that_works(cli: Cli, missing_class: type) -> None:
    with cli.store.open() as saver:
        # The second version is in chunks, and each chunk has some of the objects.
        many = [
            {"text": "y" * 300, "send": Send("a", missing_class(steps=[number], cost=None))} for number in range(300)
        ]
        where = put(
            saver, "1", put(saver, "1", many=many[:100]), plan=[missing_class(steps=[], cost=Decimal(1))], many=many
        )
        saver.put_writes(where, [("plan", missing_class(steps=[Send("node", None)], cost=Decimal(2)))], "task")
        # Of these, only the class and the function have to be allowed.
        saver.put_writes(where, [("more", [Fraction(1, 3), AnyUrl("a://b"), (1, HTTPStatus), json.dumps])], "more")
    module = sys.modules.pop("a_module_that_is_gone")
    found = cli.json("types")
    counts = {f"{one['module']}.{one['name']}": one["count"] for one in found["classes"]}
    assert counts["a_module_that_is_gone.Plan"] == 402
    assert found["allow"] == [["a_module_that_is_gone", "Plan"], ["http", "HTTPStatus"], ["json", "dumps"]]
    assert found["unseen"] == {}
    output = cli("types")
    assert "    ('a_module_that_is_gone', 'Plan'),\n" in output
    assert "CHECKPOINT_ALLOW=a_module_that_is_gone.Plan,http.HTTPStatus,json.dumps" in output
    assert "a_module_that_is_gone" not in sys.modules
    sys.modules["a_module_that_is_gone"] = module
    with cli.store.open(strict=True, allow=[tuple(pair) for pair in found["allow"]]) as saver:
        tuple_ = saver.get_tuple(where)
        assert tuple_ is not None
        assert type(tuple_.checkpoint["channel_values"]["plan"][0]) is missing_class


def test_types_are_those_of_all_tenants(cli: Cli) -> None:
    with cli.store.open() as saver:
        put(saver, "1", a=Decimal(1))
        put(saver.for_tenant("acme"), "1", a=Fraction(1))
        put(saver.for_tenant("umbrella"), "1", a=HTTPStatus.OK)

    def found(*argv: str) -> list[str]:
        return [f"{one['module']}.{one['name']}" for one in cli.json("types", *argv)["classes"]]

    assert found() == ["decimal.Decimal", "fractions.Fraction", "http.HTTPStatus"]
    assert cli.error == ""
    assert cli.json("types")["allow"] == [["http", "HTTPStatus"]]
    assert found("--no-tenants") == ["decimal.Decimal"]
    assert "2 tenants not included: acme, umbrella" in cli.error
    assert found("--tenant", "acme") == ["fractions.Fraction"]


def test_with_a_key_from_the_environment(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "0123456789abcdef"
    with cli.store.open(serde=EncryptedSerializer.from_pycryptodome_aes(key=key.encode())) as saver:
        where = put(saver, "1", secret=["what nobody sees", Decimal(1)])
    cli.fail("show", "1")
    assert cli.json("types")["unseen"] == {"unreadable": 2}
    monkeypatch.setenv("MY_KEY", key)
    monkeypatch.setenv("CHECKPOINT_ENCRYPTION_KEYS", "MY_KEY")
    state = cli.json("show", "1", id_of(where))["state"]
    assert state == {"secret": ["what nobody sees", {"class": "decimal.Decimal", "value": "1"}]}
    assert cli.json("types")["unseen"] == {}
    assert {one["table"]: one["rows"] for one in cli.json("stats")["tables"]}["blobs"] == 0
    assert cli.json("threads")["threads"][0]["thread_id"] == "1"


def test_diff_prints_where_two_states_differ(cli: Cli, missing_class: type) -> None:
    with cli.store.open() as saver:
        one = put(saver, "1", a={"x": 1, "y": [1, 2]}, b=missing_class(steps=[1], cost=None), same=[float("nan")])
        two = put(
            saver,
            "1",
            one,
            a={"x": 1, "y": [1, 3, 4]},
            b=missing_class(steps=[2], cost=None),
            same=[float("nan")],
            c=HOSTILE,
        )
        saver.copy_thread("1", "2")
    del sys.modules["a_module_that_is_gone"]
    found = cli.json("diff", "--thread", "1", id_of(one), id_of(two))
    assert found["same"] is False
    by_path = {each.pop("path"): each for each in found["differences"]}
    assert by_path.keys() == {"a.y[1]", "a.y[2]", "b", "c"}
    assert by_path["a.y[1]"] == {"a": 2, "b": 3}
    assert by_path["a.y[2]"] == {"b": 4}
    assert by_path["c"] == {"b": HOSTILE}
    assert by_path["b"]["a"]["value"] == {"steps": [1], "cost": None}
    output = cli("diff", "--thread", "1", id_of(one), id_of(two))
    assert "a.y[1]" in output
    assert "a_module_that_is_gone.Plan(steps=[2], cost=None)" in output
    assert cli("diff", "1", "2") == "The states are the same.\n"
    assert cli.json("diff", "1", "2") == {"same": True, "differences": [], "more": False, "not_compared": []}
    assert "More than 1" in cli("diff", "--thread", "1", id_of(one), id_of(two), "--limit", "1")
    assert "there is no thread '3'" in cli.fail("diff", "1", "3")


def test_a_delta_channel_without_a_snapshot_is_reported(cli: Cli) -> None:
    with cli.store.open() as saver:
        meta = metadata(1, counters_since_delta_snapshot={HOSTILE: [1, 1]})
        where = put(saver, "1", meta=metadata(), a=1)
        saver.put_writes(where, [(HOSTILE, "no message")], "task")
        put(saver, "1", where, meta, a=1)
    assert cli.json("show", "1")["not_stored_here"] == [HOSTILE]
    assert f"{SHOWN}: a DeltaChannel" in cli("show", "1")
    assert cli.json("diff", "1", "1")["not_compared"] == [HOSTILE]
    assert SHOWN in cli("diff", "1", "1")


def test_stats_count_rows_and_bytes(cli: Cli) -> None:
    with cli.store.open() as saver:
        location = None
        for step in range(3):
            location = put(saver, "1", location, metadata(step), big="x" * 20_000 + str(step), small=step)
            saver.put_writes(location, [("big", "y" * 900)], "task")
        put(saver, "2", other=["z" * 20_000])
        put(saver.for_tenant("acme"), "1", theirs=["z" * 20_000])
    every = cli.json("stats")
    assert {(one["tenant"], one["thread_id"]) for one in every["threads"]} == {("", "1"), ("", "2"), ("acme", "1")}
    found = cli.json("stats", "--no-tenants")
    assert {one["table"]: one["rows"] for one in found["tables"]} == {"checkpoints": 4, "blobs": 4, "writes": 3}
    assert sum(one["bytes"] for one in found["tables"]) == sum(one["bytes"] for one in found["threads"])
    assert [(one["thread_id"], one["checkpoints"], one["rows"]) for one in found["threads"]] == [
        ("1", 3, 9),
        ("2", 1, 2),
    ]
    assert [(one["channel"], one["versions"], one["writes"]) for one in found["channels"]] == [
        ("big", 3, 3),
        ("other", 1, 0),
    ]
    one = cli.json("stats", "1")
    assert [(each["checkpoint_ns"], each["checkpoints"]) for each in one["namespaces"]] == [("", 3)]
    assert one["namespaces"][0]["bytes"] == found["threads"][0]["bytes"]
    assert [each["channel"] for each in one["channels"]] == ["big"]
    assert [each["channel"] for each in cli.json("stats", "1", "--tenant", "acme")["channels"]] == ["theirs"]
    assert "largest threads" in cli("stats")
    assert "(root)" in cli("stats", "1")


@pytest.mark.parametrize(
    ("checkpoint_id", "time"),
    [
        ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "2016-07-30T23:54:10.259000+00:00"),
        ("1ec9414c-232a-6b00-b3c8-9e6bdeced846", "2022-02-22T19:22:22+00:00"),
        ("017f22e2-79b0-7cc3-98c4-dc0c0c07398f", "2022-02-22T19:22:22+00:00"),
        ("anything", None),
        ("zzzzzzzzzzzzzzzzzzzzzzzzz!", None),
        ("6ba7b810-9dad-11d1-80b4-00c04fd430c8", None),
    ],
)
def test_the_time_of_an_id_is_printed_if_it_has_one(checkpoint_id: str, time: str | None) -> None:
    found = time_of(checkpoint_id)
    assert (found.isoformat() if found else None) == time


def test_deep_and_broken_values_are_displayed() -> None:
    deep: Any = "bottom"
    for _ in range(500):
        deep = [deep]
    assert brief(deep, 10_000).endswith("]")
    json.dumps(json_of(deep))
    assert brief("x" * 10_000, 100) == "'" + "x" * 98 + "…"
    with pytest.raises(ValueError, match="in the middle"):
        list(classes(b"\xdb\x00\x00\xff\xffabc"))
    packed = ormsgpack.packb({"a": [1, -1, 1.5, None, True, "é" * 40, b"x" * 300, 2**40], "b": {"c": {}}})
    assert list(classes(packed)) == []


def test_a_list_does_not_count_a_long_thread_to_its_end(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST", 3)
    with cli.store.open() as saver:
        for thread_id, number in (("short", 3), ("long", 5)):
            for step in range(number):
                put(saver, thread_id, meta=metadata(step), word="x")
    long, short = [line.split() for line in cli("threads").splitlines() if line.split()[:1] in (["long"], ["short"])]
    assert (long[-5:-2], short[-3]) == ([">", "3", ">"], "3")
    counted = {one["thread_id"]: one["checkpoints"] for one in cli.json("threads")["threads"]}
    assert counted == {"long": 5, "short": 3}


READING = {
    "threads": (), "tenants": (), "history": ("t",), "types": (), "interrupts": (), "labels": ("t",), "show": ("t",),
    "diff": ("t", "t"), "stats": (), "export": ("all.zst",), "doctor": (), "failures": (), "verify": (),
}  # fmt: skip


@pytest.mark.parametrize("command", READING)
def test_a_command_that_reads_cannot_write_and_leaves_no_files(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    with cli.store.open() as saver:
        put(saver, "t", meta=metadata(0), word="x")
    before = {each.name for each in tmp_path.iterdir()}
    read_only: list[bool] = []

    def opening(url: str, **options: Any) -> CheckpointSaver:
        read_only.append(options["read_only"])
        return open_saver(url, **options)

    monkeypatch.setattr(common, "open_saver", opening)
    assert "no file" in cli.fail(command, *READING[command], "--url", "nowhere.db")
    assert read_only == []
    cli(command, *READING[command])
    assert read_only == [cli.store.kind == "postgres"]
    assert {each.name for each in tmp_path.iterdir()} - before <= {"all.zst"}


def test_long_values_are_whole_in_a_file(cli: Cli) -> None:
    question = "q" * 20_000
    with cli.store.open() as saver:
        saver.put_writes(put(saver, "1", a=question), [(INTERRUPT, [Interrupt(question, id="x")])], "task")
    for argv in (("interrupts", "--full"), ("show", "1", "--full")):
        assert question in cli(*argv)


def test_a_time_that_the_zone_cannot_say_is_left_out(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """An id can say any time, such as the last second of the year 9999."""
    monkeypatch.setenv("TZ", "XYZ-9")
    time.tzset()
    document = checkpoint(str(UUID(int=253_402_300_799_000 << 80 | 7 << 76 | 2 << 62)), {"a": 1})
    document["ts"] = "9999-12-31T23:59:59+00:00"
    with cli.store.open() as saver:
        saver.put(config("1"), document, metadata(), document["channel_versions"])
    try:
        for argv in (("threads",), ("history", "1"), ("show", "1"), ("stats",)):
            assert "1" in cli(*argv)
    finally:
        monkeypatch.undo()
        time.tzset()
