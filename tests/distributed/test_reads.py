"""What a list of all threads says of a thread is of one moment, although Citus asks its server more than once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from langgraph_checkpoint_custom import PostgresSaver
from tests.behaviour.helpers import checkpoint, config, metadata

SHARD = (
    "SELECT shardid, nodeport FROM citus_shards WHERE shardid ="
    " get_shard_id_for_distribution_column('langgraph_checkpoint.{}', %s::text)"
)
WAITING = "SELECT FROM pg_locks WHERE locktype = 'relation' AND NOT granted AND relation = %s::regclass"


@pytest.mark.parametrize("server", range(3))
@pytest.mark.parametrize("thread_id", ["thread", "another", "third"])  # Their rows are on different servers.
def test_a_checkpoint_deleted_during_a_list_is_shown_with_its_writes(
    urls: Sequence[str], server: int, thread_id: str
) -> None:
    """It is deleted when the list has found it and waits to read the writes."""
    with PostgresSaver(urls[server]) as saver:
        document = checkpoint("1", {"value": "small"})
        stored = saver.put(config(thread_id), document, metadata(), document["channel_versions"])
        saver.put_writes(stored, [("value", "written")], "task")
        shards = {}
        with psycopg.connect(urls[0]) as coordinator:
            for table in ("checkpoints", "writes"):
                ((shard, port),) = coordinator.execute(sql.SQL(SHARD).format(sql.SQL(table)), [thread_id]).fetchall()
                shards[table] = sql.Identifier("langgraph_checkpoint", f"{table}_{shard}")
        (url,) = (url for url in urls if conninfo_to_dict(url)["port"] == str(port))
        with psycopg.connect(url) as deleting, ThreadPoolExecutor() as workers:
            deleting.execute("SET citus.enable_manual_changes_to_shards = on")
            deleting.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(shards["writes"]))
            listed = workers.submit(list, saver.list(None))
            with psycopg.connect(url, autocommit=True) as watcher:
                locked = [shards["writes"].as_string(watcher)]
                while not watcher.execute(WAITING, locked).fetchall():
                    assert not listed.done(), f"it did not wait: {listed.result()}"
                    time.sleep(0.02)  # No event is raised when a session of another server begins to wait.
            for shard in shards.values():
                deleting.execute(sql.SQL("DELETE FROM {} WHERE thread_id = %s").format(shard), [thread_id])
            deleting.commit()
            (found,) = listed.result()
        assert [write[1:] for write in found.pending_writes or ()] == [("value", "written")]
        assert list(saver.list(None)) == []
