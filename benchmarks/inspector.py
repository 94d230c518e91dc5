"""Server time of the inspector's pages on large stores: `python -m benchmarks.inspector`.

It makes a store of a million threads, one of which has 200,000 checkpoints and 400,000 writes, with rows that a saver
has encoded, on a SQLite file and then on a PostgreSQL server in a temporary folder. It gets each page several times. It
prints the median in milliseconds, and the CPU time, which depends less on other work on the machine. What the browser
fetches after the first paint is marked.
"""

from __future__ import annotations

import sqlite3
import statistics
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from starlette.testclient import TestClient

from benchmarks.stores import folder, started_server
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
# Two tasks a superstep.
_WRITES = """
INSERT INTO {writes} (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value)
SELECT c.thread_id, '', c.checkpoint_id, m.task_id, m.idx, m.task_path, NULL, m.channel, m.type, m.value
FROM {checkpoints} c CROSS JOIN (SELECT * FROM {writes} WHERE thread_id = 'model') AS m WHERE c.thread_id = 'long'
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
        stored = saver.put(config, document, metadata, {"text": "1", "number": "1"})
        for node in ("ask", "answer"):
            saver.put_writes(stored, [("number", 8)], f"task-{node}", f"~__pregel_pull, {node}")
    for thread, number in (("t", THREADS), ("long", LONG)):
        if url.startswith("sqlite"):
            with sqlite3.connect(unquote(url.removeprefix("sqlite:///"))) as file:
                file.execute(_SQLITE, {"thread": thread, "number": number})
                if thread == "long":
                    file.execute(_WRITES.format(checkpoints="checkpoints", writes="writes"))
        else:
            import psycopg

            with psycopg.connect(url, autocommit=True) as server:
                server.execute(_POSTGRES, {"thread": thread, "number": number})
                if thread == "long":
                    names = {name: f"langgraph_checkpoint.{name}" for name in ("checkpoints", "writes")}
                    server.execute(_WRITES.format(**names).encode())
                    server.execute("VACUUM ANALYZE")  # As autovacuum does some time after so many rows.


def measure(url: str, server_cpu: Callable[[], float] = lambda: 0.0) -> dict[str, tuple[float, float]]:
    """Return for each page the median time and the mean CPU time of inspector and server, in milliseconds."""
    found = {}
    with open_saver(url, read_only=True) as saver:
        client = TestClient(create_app(saver), base_url="http://127.0.0.1")
        state = client.get("/timeline?thread=long").json()["state"]
        for name, path in PAGES.items():
            taken = []
            busy = time.process_time() + server_cpu()
            for _ in range(REQUESTS):
                began = time.perf_counter()
                answer = client.get(path + (state if path.endswith("since=") else ""))
                taken.append(1_000 * (time.perf_counter() - began))
                assert answer.status_code == 200, answer.text
            busy = time.process_time() + server_cpu() - busy
            found[name] = statistics.median(taken), 1_000 * busy / REQUESTS
    return found


def main() -> None:
    """Measure and print."""
    results = []
    with folder() as where:
        url = f"sqlite:///{where / 'large.db'}"
        fill(url)
        results.append(measure(url))
    with folder() as where, started_server(where) as server:
        url = server.create("inspector")
        fill(url)
        results.append(measure(url, server.cpu))
    print(f"{'':48}{'SQLite, ms':>20}{'PostgreSQL, ms':>20}")
    print(f"{'page':48}" + f"{'median':>10}{'CPU':>10}" * 2)
    for name in PAGES:
        print(f"{name:48}" + "".join(f"{number:>10.1f}" for found in results for number in found[name]))


if __name__ == "__main__":
    main()
