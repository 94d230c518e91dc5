"""`erase` deletes all threads of a person, of all tenants, with their labels, and says what it has deleted where."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from langgraph_checkpoint_custom import CheckpointSaver, ConfigError
from langgraph_checkpoint_custom.engine.operation import Operation
from langgraph_checkpoint_custom.model.keys import KIND_MARK
from langgraph_checkpoint_custom.operations import erase
from langgraph_checkpoint_custom.operations.erase import erase_operations
from tests.behaviour.helpers import Database, checkpoint, config, metadata, next_uuid, put
from tests.stores import Client, Store

ADA = {"user_id": "ada"}
OTHER = f"{KIND_MARK}session{KIND_MARK}x"


def fill(saver: CheckpointSaver, thread_id: str, *users: str, ns: str = "") -> Any:
    """A thread with a checkpoint of each of these users."""
    last = config(thread_id, None, ns)
    for step, user in enumerate(users):
        document = checkpoint(next_uuid(), {"a": ["x" * 100_000, step]})
        last = saver.put(last, document, metadata(step, user_id=user), {"a": f"{step}"})
        saver.put_writes(last, [("a", 1)], "task")
    return last


async def test_all_threads_of_a_person_are_deleted_and_reported(client: Client, database: Database) -> None:
    saver: Any = client.saver
    acme = saver.for_tenant("acme")
    saver.label(fill(saver, "1", "ada", "ada"), "mine")
    fill(saver, "shared", "bo", "ada", "bo")
    fill(saver, "subgraph", "bo")
    fill(saver, "subgraph", "ada", ns="child:1")
    fill(saver, "session", "ada")
    for table in ("checkpoints", "blobs", "writes", "threads"):  # As if another framework had stored it.
        database.run(f"UPDATE {table} SET thread_id = :other WHERE thread_id = 'session'", other=OTHER)
    fill(saver, "other", "bo")
    fill(acme, "1", "ada")
    fill(acme, "2", "bo")
    saver.prune(["shared"])  # The checkpoint of ada is gone.
    tried = await client.do("erase", ADA, dry_run=True)
    assert saver.thread_exists("1")
    own = await client.do("erase", ADA, tenants=False, dry_run=True)
    assert {(one.tenant, one.thread_id) for one in own.threads} < {(one.tenant, one.thread_id) for one in tried.threads}
    done = await client.do("erase", ADA)
    assert done == tried
    assert sorted((one.tenant, one.thread_id, one.checkpoints, one.writes, one.labels) for one in done.threads) == [
        ("", OTHER, 1, 1, 0),
        ("", "1", 2, 2, 1),
        ("", "subgraph", 2, 2, 0),
        ("acme", "1", 1, 1, 0),
    ]
    assert all(one.values >= one.checkpoints and one.bytes > 100 for one in done.threads)
    assert done.unreadable == []
    assert [found.thread_id for found in saver.threads()] == ["other", "shared"]
    assert database.run("SELECT count(DISTINCT thread_id) FROM threads") == [(3,)]
    assert (await client.do("erase", ADA)).threads == []


@pytest.mark.usefixtures("changing_values_in_blobs")
async def test_a_checkpoint_that_a_prune_has_hidden_is_searched(client: Client) -> None:
    """A `DeltaChannel` still needs it, so what the person wrote is still there."""
    saver: Any = client.saver
    for thread_id, other in (("hidden", "ada"), ("other", "bo")):
        first = await put(
            client, next_uuid(), {"delta": _DeltaSnapshot([1])}, thread_id=thread_id, meta=metadata(user_id=other)
        )
        counted = metadata(1, user_id="bo", counters_since_delta_snapshot={"delta": [1, 1]})
        await put(client, next_uuid(), thread_id=thread_id, parent=first, versions={"delta": "2"}, meta=counted)
        await client.prune([thread_id])
        assert [one.metadata["user_id"] for one in saver.list(config(thread_id))] == ["bo"]
    tried = await client.do("erase", ADA, dry_run=True)
    assert [(one.thread_id, one.checkpoints) for one in tried.threads] == [("hidden", 2)]
    assert await client.do("erase", ADA) == tried
    assert [found.thread_id for found in saver.threads()] == ["other"]


def test_it_works_in_pages_and_can_be_started_again(saver: CheckpointSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langgraph_checkpoint_custom.operations.pages.REACH", 7)
    monkeypatch.setattr(erase, "MATCHES", 3)
    for number in range(10):
        fill(saver, f"t{number}", *(["ada", "ada"] if number % 2 else ["bo"]))
    operations = erase_operations(saver.backend.dialect, saver.backend.values, ADA, dry_run=False, tenants=True)
    answer: Any = None
    erased = 0
    while erased < 2:
        op = operations.send(answer)
        assert isinstance(op, Operation)
        answer = saver.backend.driver.run(op)
        erased += op.name == "delete_thread"
    operations.close()
    assert saver.count_threads() == 8
    assert len(saver.erase(ADA).threads) == 3
    assert sorted(found.thread_id for found in saver.threads()) == [f"t{number}" for number in range(0, 10, 2)]


def test_threads_whose_metadata_cannot_be_read_are_named(store: Store) -> None:
    keys = [EncryptedSerializer.from_pycryptodome_aes(key=bytes([number]) * 16) for number in range(2)]
    for number, serde in enumerate(keys):
        with store.open(serde=serde) as saver:
            fill(saver, f"t{number}", "ada")
    with store.open(serde=keys[0]) as saver:
        done = saver.erase(ADA)
        assert [one.thread_id for one in done.threads] == ["t0"]
        assert done.unreadable == [("", "t1")]


@pytest.mark.parametrize("filter", [{}, None, {"a": object()}, "ada"])
def test_what_to_erase_must_be_said(saver: CheckpointSaver, filter: Any) -> None:
    with pytest.raises(ConfigError, match="filter"):
        saver.erase(filter)
