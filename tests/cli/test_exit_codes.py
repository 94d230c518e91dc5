"""Every command ends with the exit code that `docs/command-line.md` says: 0, 1 or 2 (130 is in `test_moving.py`)."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from langgraph_checkpoint_custom import Retention, SqliteSaver
from tests.cli.conftest import Cli
from tests.cli.test_changing import chain
from tests.cli.test_document import COMMANDS, DOCUMENT
from tests.stores import Store

# The thread 1 has three checkpoints, FIRST is the id of its first one, and "kept" is a label of that.
TABLE = """
threads                                 0
threads --where user                    2
threads --before x                      2
threads --limit 0                       2
failures                                0
failures 1                              2
show 1                                  0
show 1 x                                1
show nobody                             1
show                                    2
history 1                               0
history nobody                          1
history 1 --where x                     2
diff 1 1                                0
diff 1 nobody                           1
diff 1                                  2
interrupts                              0
interrupts 1                            2
labels 1                                0
labels                                  2
tenants                                 0
tenants 1                               2
label 1 mine                            0
label 1 mine x                          1
label nobody mine                       1
label 1                                 2
unlabel 1 kept                          0
unlabel 1 nothing                       1
unlabel 1                               2
copy 1 2                                0
copy nobody 2                           1
copy 3 1                                1
copy 1 '\\x1esession/a'                 2
fork 1 2                                0
fork 1 2 --checkpoint x                 1
fork 3 1                                1
fork 1                                  2
rollback 1 FIRST --yes                  0
rollback 1 x --yes                      1
rollback 1 FIRST                        2
rollback 1 --yes                        2
prune 1 --yes                           0
prune 1 --dry-run                       0
prune nobody --yes                      1
prune 1                                 2
prune --yes                             2
prune 1 --keep 0 --yes                  2
delete 1 --yes                          0
delete nobody --yes                     1
delete 1                                2
delete --yes                            2
sweep --keep-last 1 --yes               0
sweep --keep-last 1                     2
sweep --yes                             0
sweep --older-than soon --yes           2
sweep --keep-last 0 --yes               2
sweep --max-bytes ten --yes             2
set-ttl 1 30d                           0
set-ttl nobody 30d                      1
set-ttl 1                               2
erase --where user=ada --yes            0
erase --where user=ada                  2
erase --yes                             2
status                                  0
status --within soon                    2
verify                                  0
verify 1                                2
doctor                                  0
doctor --fix                            2
stats                                   0
stats 1                                 0
stats 1 2                               2
types                                   0
types 1                                 2
export new.zst                          0
export old.zst                          1
export                                  2
import old.zst --url copy.db            0
import nothing.zst                      1
import                                  2
migrate --from other.db                 0
migrate --from nothing.db               1
migrate --from empty.db                 1
migrate --from other.db --tables x      2
migrate --from other.db --to x          2
migrate --from other.db --follow --finish   2
migrate --from other.db --finish --dry-run  2
migrate                                 2
rekey                                   0
rekey --url nothing.db                  1
rekey --tenant a --no-tenants           2
schema                                  0
schema --database oracle                2
schema --after -1                       2
setup                                   0
setup everything                        2
demo --url new.db                       0
demo --url no/folder/new.db             1
demo --url sqlite:///:memory:           2
"""
CASES = [re.split(r" {2,}", line) for line in TABLE.strip().splitlines()]
# The commands that look at no database, or make one, and those that need arguments besides `--url`.
WITHOUT_DATABASE = {"schema"}
# `ui` runs until it is stopped, and `vacuum` is for SQLite alone; their own tests look at their exit codes.
ELSEWHERE = {"ui", "vacuum"}


@pytest.fixture(autouse=True)
def files(store: Store, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the table is about; the ids of the checkpoints of thread 1."""
    monkeypatch.setenv("KEY", "0123456789abcdef")
    with store.open() as saver:
        ids = chain(saver, "1")
        chain(saver, "3")
        saver.label({"configurable": {"thread_id": "1", "checkpoint_id": ids[0]}}, "kept")
        saver.sweep(Retention())
    with SqliteSaver(tmp_path / "other.db") as saver:
        chain(saver, "9")
    cli("export", "old.zst")
    (tmp_path / "empty.db").touch()
    return ids


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - ELSEWHERE))
def test_a_command_ends_with_its_exit_codes(
    name: str, cli: Cli, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that fail come first, since they change nothing."""
    if name == "rekey":
        monkeypatch.setenv("CHECKPOINT_ENCRYPTION_KEYS", "KEY,unencrypted")
    cases = [(shlex.split(command), int(code)) for command, code in CASES if command.split()[0] == name]
    assert cases
    for command, code in sorted(cases, key=lambda case: case[1] == 0):
        argv = [files[0] if each == "FIRST" else each for each in command]
        if code:
            cli.fail(*argv, code=code)
        else:
            cli(*argv)


def test_the_table_has_success_and_failure_of_every_command() -> None:
    found = {(command.split()[0], code) for command, code in CASES}
    for name in set(COMMANDS) - ELSEWHERE:
        assert (name, "0") in found, name
        assert (name, "2") in found or name in WITHOUT_DATABASE, name
    for code in ("0", "1", "2", "130"):
        assert f"\n| {code} | " in DOCUMENT
