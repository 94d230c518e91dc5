"""How long a run waits during a prune of its thread: `python -m tests.races.waiting --checkpoints 1000`.

A run stores checkpoints with a large value, one after the other, while the thread is pruned. The longest of its puts
during the prune must take no longer than the prune itself plus one put without a prune.
"""

from __future__ import annotations

import argparse
import threading
import time
from statistics import median
from typing import NamedTuple

from langgraph_checkpoint_custom import CheckpointSaver, PostgresSaver
from tests.conftest import made_database, running_postgres
from tests.races.model import config_of
from tests.races.pairs import id_of, put

VARIANTS = ("plain", "with a label", "with a DeltaChannel")


class Waited(NamedTuple):
    """The measurements, in ms."""

    prune: float
    longest_put_during: float
    puts_during: int
    put_before: float


def stored(saver: CheckpointSaver, thread_id: str, number: int, *, delta: bool) -> None:
    """A checkpoint with a large value, after the previous one."""
    values = {"blob": {"number": number, "text": "b" * 5000}}
    call = put(thread_id, number, parent=number - 1 or None, values=values, new=["blob"], delta=delta)
    saver.put(*call.args)


def measured(saver: CheckpointSaver, source: str, thread_id: str, checkpoints: int, *, delta: bool) -> Waited:
    """Prune a copy of a thread while a run continues in it."""
    saver.copy_thread(source, thread_id)
    times: list[tuple[float, float]] = []
    ended = threading.Event()

    def run() -> None:
        number = checkpoints
        while not ended.is_set():
            number += 1
            start = time.perf_counter()
            stored(saver, thread_id, number, delta=delta)
            times.append((start, time.perf_counter()))

    worker = threading.Thread(target=run)
    worker.start()
    while len(times) < 50:
        time.sleep(0.001)
    start = time.perf_counter()
    saver.prune([thread_id])
    end = time.perf_counter()
    ended.set()
    worker.join()
    during = [till - since for since, till in times if till > start and since < end]
    before = [till - since for since, till in times if till <= start]
    saver.delete_thread(thread_id)
    return Waited((end - start) * 1000, max(during) * 1000, len(during), median(before) * 1000)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser("python -m tests.races.waiting", description=__doc__)
    parser.add_argument("--checkpoints", type=int, default=1000)
    parser.add_argument("--times", type=int, default=7)
    options = parser.parse_args()
    print("| thread | prune, ms | longest put during it, ms | puts during it | put before, ms |")
    print("|---|--:|--:|--:|--:|")
    with running_postgres() as dsn, made_database(dsn) as (_, url), PostgresSaver(url) as saver:
        saver.setup()
        for kind in VARIANTS:
            delta = kind == VARIANTS[2]
            for number in range(1, options.checkpoints + 1):
                stored(saver, kind, number, delta=delta)
            if kind == VARIANTS[1]:
                saver.label(config_of((kind, "", id_of(1))), "label")
            found = [
                measured(saver, kind, f"{kind} {turn}", options.checkpoints, delta=delta)
                for turn in range(options.times)
            ]
            middle = sorted(found)[len(found) // 2]
            worst = max(found, key=lambda each: each.longest_put_during / each.prune)
            for name, each in ((f"{kind}, median", middle), (f"{kind}, longest wait", worst)):
                print(f"| {name} | {each[0]:.1f} | {each[1]:.1f} | {each[2]} | {each[3]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
