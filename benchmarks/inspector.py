"""Server time of the inspector's pages on large stores: `python -m benchmarks.inspector [URL]`.

It makes a store of a million threads, one of which has 200,000 checkpoints, with rows that a saver has encoded, on a
SQLite file by default; an empty PostgreSQL database can be given. Then it gets each page and prints the median and the
longest time of several requests, in milliseconds. What the browser fetches after the first paint is marked.
"""

from __future__ import annotations

import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from starlette.testclient import TestClient

from langgraph_checkpoint_custom import open_saver
from langgraph_checkpoint_custom.ui import create_app

THREADS = 1_000_000
LONG = 200_000
REQUESTS = 9
PAGES = {
    "threads": "/",
    "threads, a later page": "/?at=01M80000000000000000500000&before=t0500000",
    "threads, by prefix": "/?prefix=t07",
    "threads, by metadata": "/?where=user=u7",
    "threads, by metadata that none has": "/?where=user=nobody",
    "threads, by label": "/?label=none",
    "thread": "/thread?thread=t0000007",
    "thread of 200,000 checkpoints": "/thread?thread=long",
    "list of its checkpoints": "/checkpoints?thread=long",
    "difference in it": "/difference?thread=long",
    "inbox": "/inbox",
    "space": "/space",
    "after the paint: a thread in a line": "/summary?thread=t0000007",
    "after the paint: the long thread in a line": "/summary?thread=long",
    "after the paint: the newest 5,000 checkpoints": "/timeline?thread=long",
    "after the paint: nothing new": "/timeline?thread=long&since=",
}

_COLUMNS = (
    "format, inline_channels, delta_channels, blob_channels, blob_versions, checkpoint_type, checkpoint, metadata_type,"
    " metadata, metadata_filter"
)
_SQLITE = f"""
WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < :number)
INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_id, run_id, {_COLUMNS})
SELECT :thread || CASE WHEN :thread = 't' THEN printf('%07d', n) ELSE '' END, '', '01M8' || printf('%022d', n),
    CASE WHEN :thread <> 't' AND n > 1 THEN '01M8' || printf('%022d', n - 1) END, NULL, {_COLUMNS}
FROM n CROSS JOIN (SELECT * FROM checkpoints WHERE thread_id = 'model')
"""
_POSTGRES = f"""
INSERT INTO langgraph_checkpoint.checkpoints
    (thread_id, checkpoint_ns, checkpoint_id, parent_id, run_id, tenant, {_COLUMNS})
SELECT %(thread)s || CASE WHEN %(thread)s = 't' THEN lpad(n::text, 7, '0') ELSE '' END, '',
    '01M8' || lpad(n::text, 22, '0'),
    CASE WHEN %(thread)s <> 't' AND n > 1 THEN '01M8' || lpad((n - 1)::text, 22, '0') END, NULL, '', {_COLUMNS}
FROM generate_series(1, %(number)s) AS n
CROSS JOIN (SELECT * FROM langgraph_checkpoint.checkpoints WHERE thread_id = 'model') AS m
"""


def fill(url: str) -> None:
    """Make the store."""
    with open_saver(url) as saver:
        saver.setup()
        document: Any = {
            "v": 4, "id": "0", "ts": "2026-01-02T03:04:05+00:00", "channel_versions": {"text": "1", "number": "1"},
            "channel_values": {"text": "a state of some length " * 8, "number": 7}, "versions_seen": {},
        }  # fmt: skip
        config: Any = {"configurable": {"thread_id": "model", "checkpoint_ns": ""}}
        metadata: Any = {"source": "loop", "step": 1, "parents": {}, "user": "u7"}
        saver.put(config, document, metadata, {"text": "1", "number": "1"})
    for thread, number in (("t", THREADS), ("long", LONG)):
        if url.startswith("sqlite"):
            with sqlite3.connect(unquote(url.removeprefix("sqlite:///"))) as file:
                file.execute(_SQLITE, {"thread": thread, "number": number})
        else:
            import psycopg

            with psycopg.connect(url) as server:
                server.execute(_POSTGRES, {"thread": thread, "number": number})


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        url = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{Path(folder) / 'large.db'}"
        fill(url)
        with open_saver(url, read_only=True) as saver:
            client = TestClient(create_app(saver), base_url="http://127.0.0.1")
            state = client.get("/timeline?thread=long").json()["state"]
            print(f"{'page':48}{'median':>10}{'longest':>10}  ms")
            for name, path in PAGES.items():
                taken = []
                for _ in range(REQUESTS):
                    began = time.perf_counter()
                    answer = client.get(path + (state if path.endswith("since=") else ""))
                    taken.append(1_000 * (time.perf_counter() - began))
                    assert answer.status_code == 200, answer.text
                print(f"{name:48}{statistics.median(taken):>10.1f}{max(taken):>10.1f}", flush=True)


if __name__ == "__main__":
    main()
