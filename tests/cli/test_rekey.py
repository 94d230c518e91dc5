"""`rekey` encrypts everything with another key."""

from __future__ import annotations

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


@pytest.fixture
def keyed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Commands in an environment with both keys."""
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)
    monkeypatch.setenv("CHECKPOINT_ENCRYPTION_KEYS", "LANGGRAPH_AES_KEY,OLD_KEY")
    return cli


def test_rekey_encrypts_everything_with_the_new_key(store: Store, keyed: Cli) -> None:
    with store.open(serde=OLD) as saver:
        saver.put(WHERE, empty_checkpoint(), {}, {})
        saver.for_tenant("acme").put(WHERE, empty_checkpoint(), {}, {})
    before = read_tables(store)
    tried = keyed("rekey", "--dry-run")
    assert (tried, keyed.error) == ("2 rows, of which 2 would be rewritten. Nothing was changed.\n", "")
    tried = keyed("rekey", "--dry-run", "--no-tenants")
    assert (tried, keyed.error) == ("1 row, of which 1 would be rewritten. Nothing was changed.\n", NOTE)
    assert read_tables(store) == before
    for renewed in (1, 0):
        done = keyed("rekey", "--no-tenants")
        assert (done, keyed.error) == (f"1 row, of which {renewed} were rewritten.\n", NOTE)
    with store.open(serde=NEW) as saver:
        assert saver.get_tuple(WHERE)
        with pytest.raises(CorruptCheckpoint):
            saver.for_tenant("acme").get_tuple(WHERE)
        assert keyed("rekey") == "2 rows, of which 1 were rewritten.\n"
        assert saver.for_tenant("acme").get_tuple(WHERE)


def test_rows_without_encryption_are_encrypted_on_request(
    store: Store, keyed: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.open() as saver:
        saver.put(WHERE, empty_checkpoint(), {}, {})
    keyed("rekey", code=1)
    assert "without encryption" in keyed.error
    assert "'thread'" in keyed.error
    monkeypatch.setenv("CHECKPOINT_ENCRYPTION_KEYS", "LANGGRAPH_AES_KEY,unencrypted")
    keyed("rekey")
    with store.open(serde=NEW) as saver:
        assert saver.get_tuple(WHERE)


def test_the_servers_key_is_the_only_one_without_a_list(
    store: Store, keyed: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.open(serde=NEW) as saver:
        saver.put(WHERE, empty_checkpoint(), {}, {})
    monkeypatch.delenv("CHECKPOINT_ENCRYPTION_KEYS")
    assert keyed.json("rekey") == {"rows": 1, "renewed": 0, "unreadable": []}
    monkeypatch.delenv("LANGGRAPH_AES_KEY")
    assert "set CHECKPOINT_ENCRYPTION_KEYS" in keyed.fail("rekey", code=2)


def test_a_command_without_the_key_says_where_keys_are_set(store: Store, cli: Cli) -> None:
    with store.open(serde=OLD) as saver:
        saver.put(WHERE, empty_checkpoint(), {}, {})
    for command in (["threads"], ["show", "thread"], ["history", "thread"], ["diff", "thread", "thread"]):
        report = cli.fail(*command)
        assert "it is encrypted" in report
        assert "CHECKPOINT_ENCRYPTION_KEYS names the variables that have the keys" in report
        assert "LANGGRAPH_AES_KEY" in report
