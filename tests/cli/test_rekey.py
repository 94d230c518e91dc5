"""`rekey` encrypts everything with another key."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from langgraph_checkpoint_custom import CorruptCheckpoint
from tests.cli.conftest import Cli
from tests.invariants import read_tables
from tests.stores import Store

KEYS = {"OLD_KEY": "0123456789abcdef", "LANGGRAPH_AES_KEY": "fedcba9876543210"}
OLD, NEW = (EncryptedSerializer.from_pycryptodome_aes(key=key.encode()) for key in KEYS.values())
NOTE = "note: 1 tenant not included: acme; --tenant NAME selects one\n"
WHERE: Any = {"configurable": {"thread_id": "thread", "checkpoint_ns": ""}}


def rekey(store: Store, *options: str, folder: Path, keys: Any = KEYS) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "langgraph_checkpoint_custom", "rekey", *options]
    variables = {"CHECKPOINT_URL": store.url, "PYTHONPATH": str(Path(__file__).parents[2]), **keys}
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder, env=variables)


def test_rekey_encrypts_everything_with_the_new_key(store: Store, tmp_path: Path) -> None:
    with store.open(serde=OLD) as saver:
        saver.put(WHERE, empty_checkpoint(), {}, {})
        saver.for_tenant("acme").put(WHERE, empty_checkpoint(), {}, {})
    before = read_tables(store)
    tried = rekey(store, "--old-key", "OLD_KEY", "--dry-run", folder=tmp_path)
    assert (tried.returncode, tried.stderr) == (0, "")
    assert tried.stdout == "2 rows, of which 2 would be rewritten. Nothing was changed.\n"
    tried = rekey(store, "--old-key", "OLD_KEY", "--dry-run", "--no-tenants", folder=tmp_path)
    assert (tried.returncode, tried.stderr) == (0, NOTE)
    assert tried.stdout == "1 row, of which 1 would be rewritten. Nothing was changed.\n"
    assert read_tables(store) == before
    for _ in range(2):
        done = rekey(store, "--old-key", "OLD_KEY", "--no-tenants", folder=tmp_path)
        assert (done.returncode, done.stderr) == (0, NOTE)
    assert done.stdout == "1 row, of which 0 were rewritten.\n"
    with store.open(serde=NEW) as saver:
        assert saver.get_tuple(WHERE)
        with pytest.raises(CorruptCheckpoint):
            saver.for_tenant("acme").get_tuple(WHERE)
        done = rekey(store, "--old-key", "OLD_KEY", folder=tmp_path)
        assert (done.stdout, done.stderr) == ("2 rows, of which 1 were rewritten.\n", "")
        assert saver.for_tenant("acme").get_tuple(WHERE)


def test_rows_without_encryption_are_encrypted_on_request(store: Store, tmp_path: Path) -> None:
    with store.open() as saver:
        saver.put(WHERE, empty_checkpoint(), {}, {})
    refused = rekey(store, folder=tmp_path)
    assert refused.returncode == 1
    assert "without encryption" in refused.stderr
    assert "'thread'" in refused.stderr
    assert rekey(store, "--unencrypted", folder=tmp_path).returncode == 0
    with store.open(serde=NEW) as saver:
        assert saver.get_tuple(WHERE)


@pytest.mark.parametrize("keys", [{}, {"LANGGRAPH_AES_KEY": "s3cret"}, {**KEYS, "OLD_KEY": "s3cret"}])
def test_an_invalid_key_is_named_and_not_printed(keys: dict[str, str], tmp_path: Path) -> None:
    store = Store("sqlite", f"sqlite:///{tmp_path / 'a.db'}")
    done = rekey(store, "--old-key", "OLD_KEY", folder=tmp_path, keys=keys)
    assert done.returncode == 2
    assert "_KEY must contain an AES key of 16, 24 or 32 bytes" in done.stderr
    assert "s3cret" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_keys_are_those_of_the_environment(store: Store, tmp_path: Path) -> None:
    with store.open(serde=OLD) as saver:
        saver.put(WHERE, empty_checkpoint(), {}, {})
    names = {"CHECKPOINT_ENCRYPTION_KEYS": "LANGGRAPH_AES_KEY,OLD_KEY"}
    done = rekey(store, "--json", folder=tmp_path, keys={**KEYS, **names})
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"rows": 1, "renewed": 1, "unreadable": []}
    with store.open(serde=NEW) as saver:
        assert saver.get_tuple(WHERE)


def test_a_command_without_the_key_says_where_keys_are_set(store: Store, cli: Cli) -> None:
    with store.open(serde=OLD) as saver:
        saver.put(WHERE, empty_checkpoint(), {}, {})
    for command in (["threads"], ["show", "thread"], ["history", "thread"], ["diff", "thread", "thread"]):
        report = cli.fail(*command)
        assert "it is encrypted" in report
        assert "CHECKPOINT_ENCRYPTION_KEYS names the variables that have the keys" in report
        assert "LANGGRAPH_AES_KEY" in report
