"""How much memory a put and a get of a large value take at most, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stores import Store

PROGRAM = """
import gc, json, random, sys
from langgraph_checkpoint_custom import open_saver
from tests.behaviour.helpers import checkpoint, config, metadata

url, kind = sys.argv[1:]
SIZE = 40_000_000
value = random.Random(1).randbytes(SIZE) if kind == "bytes" else "some words and some more " * (SIZE // 25)


def resident(name):
    with open("/proc/self/status") as file:
        return 1024 * int(next(line for line in file if line.startswith(name)).split()[1])


def peak(work):
    gc.collect()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # The peak begins anew.
    before = resident("VmRSS")
    work()
    return (resident("VmHWM") - before) / SIZE


peaks = {}
with open_saver(url) as saver:
    saver.put(config("first"), checkpoint("1", {"a": "x" * 100_000}), metadata(), {"a": "1"})
    large = checkpoint("1", {"a": value})
    versions = {"a": large["channel_versions"]["a"]}
    peaks["put"] = peak(lambda: saver.put(config("large"), large, metadata(), versions))
    del large, value
with open_saver(url) as saver:
    saver.get_tuple(config("first"))
    peaks["get"] = peak(lambda: saver.get_tuple(config("large")))
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
