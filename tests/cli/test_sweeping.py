"""`sweep`, on both databases."""

from __future__ import annotations

from datetime import timedelta

from langgraph_checkpoint_custom import Retention
from tests.behaviour.test_sweep import ids, put
from tests.cli.conftest import Cli


def test_a_dry_run_shows_what_the_command_then_does(cli: Cli) -> None:
    with cli.store.open() as saver:
        for number in (1, 2, 3):
            put(saver, "old", number, days=40)
            put(saver, "new", number, user="Ada")
    argv = ("sweep", "--older-than", "30d", "--keep-last", "2")
    report = cli.json(*argv, "--dry-run")
    assert (report["threads"], report["deleted_threads"], report["deleted_checkpoints"]) == (2, 1, 4)
    assert report["would_delete"] == [["", "old"]]
    assert "would be deleted" in cli(*argv, "--dry-run")
    assert "--yes" in cli.fail(*argv, code=2)
    with cli.store.open() as saver:
        assert (len(ids(saver, "old")), len(ids(saver, "new"))) == (3, 3)
        assert saver.sweep(Retention(older_than=timedelta(days=30)), dry_run=True).deleted_threads == 1
    done = cli.json(*argv, "--yes")
    assert (done["deleted_threads"], done["deleted_checkpoints"]) == (1, 4)
    assert done["freed_bytes"] > 0
    with cli.store.open() as saver:
        assert (len(ids(saver, "old")), len(ids(saver, "new"))) == (0, 2)
    assert "0 of 1 thread deleted" in cli("sweep", "--max-bytes", "0.5GB", "--yes")
    assert cli.json("sweep", "--max-bytes", "0", "--where", "user=nobody", "--yes")["threads"] == 0
    assert cli.json("sweep", "--max-bytes", "0", "--where", "user=Ada", "--yes")["deleted_threads"] == 1


def test_a_time_to_live_is_set_swept_and_watched(cli: Cli) -> None:
    """With a limit of threads, and for each tenant; `status` says by its exit code whether all is well."""
    with cli.store.open() as saver:
        for name in "abc":
            put(saver, name, 1, days=2)
        put(saver.for_tenant("acme"), "d", 1, days=2)
    assert "never" in cli("status", code=1)
    assert "deleted when nothing has been stored in it for 1d" in cli("set-ttl", "a", "1d")
    report = cli.json("set-ttl", "b", "12h", "--keep-latest")
    assert report == {"thread_id": "b", "ttl_seconds": 43_200.0, "strategy": "keep_latest"}
    cli("set-ttl", "c", "1h")
    assert "has no time to live" in cli("set-ttl", "c", "none")
    assert "not a time" in cli.fail("set-ttl", "a", "soon", code=2)
    assert "no checkpoint yet" in cli.fail("set-ttl", "z", "1d", code=1)
    assert "the next sweep goes on there" in cli("sweep", "--max-threads", "1", "--yes")
    cli("status", code=1)
    assert cli.json("sweep", "--max-time", "1h", "--pause", "0.001", "--yes")["complete"]
    with cli.store.open() as saver:
        assert [saver.thread_exists(name) for name in "abc"] == [False, True, True]
    assert "in time" in cli("status", "--within", "1h")
    report = cli.json("status")
    assert report["ok"]
    assert [(one["tenant"], one["overdue"], one["lag_seconds"]) for one in report["tenants"]] == [
        (None, 0, 0.0),
        ("acme", 0, 0.0),
    ]
    assert cli.json("status", "--within", "0s", code=1)["ok"] is False


def test_a_person_is_erased(cli: Cli) -> None:
    with cli.store.open() as saver:
        put(saver, "1", 1, user="Ada")
        put(saver, "2", 1, user="Bo")
        put(saver.for_tenant("acme"), "3", 1, user="Ada")
    assert "--where user_id=ada" in cli.fail("erase", "--yes", code=2)
    where = ("erase", "--where", "user=Ada")
    report = cli.json(*where, "--dry-run")
    assert [(one["tenant"], one["thread_id"], one["checkpoints"]) for one in report["threads"]] == [
        ("", "1", 1),
        ("acme", "3", 1),
    ]
    assert "--yes" in cli.fail(*where, code=2)
    assert "2 threads deleted" in cli(*where, "--yes")
    assert cli(*where, "--dry-run") == "No threads with user=Ada.\n"
    assert cli.json(*where, "--dry-run")["threads"] == []
    with cli.store.open() as saver:
        assert [saver.thread_exists(name) for name in "12"] == [False, True]
