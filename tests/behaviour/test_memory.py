"""How much memory a put and a get of a large value take at most, and what a process keeps of many threads."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.helpers import checkpoint, config, metadata, next_uuid
from tests.stores import Store

PROGRAM = """
import json, random, sys
from langgraph_checkpoint_custom import open_saver
from tests.behaviour.helpers import checkpoint, config, metadata, peak

url, kind = sys.argv[1:]
SIZE = 40_000_000
value = random.Random(1).randbytes(SIZE) if kind == "bytes" else "some words and some more " * (SIZE // 25)

peaks = {}
with open_saver(url) as saver:
    saver.put(config("first"), checkpoint("1", {"a": "x" * 100_000}), metadata(), {"a": "1"})
    large = checkpoint("1", {"a": value})
    versions = {"a": large["channel_versions"]["a"]}
    peaks["put"] = peak(lambda: saver.put(config("large"), large, metadata(), versions)) / SIZE
    del large, value
with open_saver(url) as saver:
    saver.get_tuple(config("first"))
    peaks["get"] = peak(lambda: saver.get_tuple(config("large"))) / SIZE
print(json.dumps(peaks))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says how much memory a process takes")
@pytest.mark.parametrize("kind", ["text", "bytes"])
def test_a_large_value_takes_a_few_times_its_size(store: Store, kind: str) -> None:
    """A get: the value, and twice its size. A put: twice its size, and once more for a text on SQLite.

    SQLite makes two copies of what is stored, and PostgreSQL's client one.
    """
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", PROGRAM, store.url, kind]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, check=True, timeout=600)
    peaks = json.loads(done.stdout)
    assert peaks["get"] <= 3.1
    assert peaks["put"] <= (3.1 if (store.kind, kind) == ("sqlite", "text") else 2.1)


# Bytes that the saver may keep, and what else is kept besides.
LIMIT, BESIDES = 300_000, 50_000


@pytest.mark.parametrize("messages", [3, 60], ids=["1 KB", "20 KB"])
def test_what_a_process_keeps_of_many_threads(store: Store, messages: int) -> None:
    """However many it serves: of small ones nothing, of large ones what `chunk_cache_bytes` allows."""

    def serve(thread_id: str) -> None:
        values: list[Any] = [{"text": f"{thread_id} {number} " + "x" * 300} for number in range(messages)]
        first = checkpoint(next_uuid(), {"a": values})
        where = saver.put(config(thread_id), first, metadata(), {"a": "1"})
        found = saver.get_tuple(where)
        assert found
        grown = checkpoint(next_uuid(), {"a": [*found.checkpoint["channel_values"]["a"], {"text": "more"}]})
        saver.put(where, grown, metadata(1), {"a": "2"})

    with store.open(chunk_cache_bytes=LIMIT) as saver:
        saver.setup()
        for number in range(20):
            serve(f"first {number}")
        gc.collect()
        tracemalloc.start()
        try:
            for number in range(60):  # Of 20 KB, four times as many as it may keep.
                serve(f"{number}")
            gc.collect()
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert held <= (BESIDES if messages == 3 else LIMIT + BESIDES)
    assert messages == 3 or held > LIMIT / 2
