"""`sweep`, on both databases."""

from __future__ import annotations

from datetime import timedelta

import pytest

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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "--older-than"),
        (["--older-than", "30"], "not a time"),
        (["--older-than", "d"], "not a time"),
        (["--max-bytes", "ten"], "not a size"),
    ],
)
def test_impossible_options_are_refused(cli: Cli, options: list[str], words: str) -> None:
    assert words in cli.fail("sweep", *options, "--yes", code=2)


def test_zero_is_no_number_of_checkpoints_to_keep(cli: Cli) -> None:
    assert "keep_last must be an int of 1" in cli.fail("sweep", "--keep-last", "0", "--yes", code=2)
