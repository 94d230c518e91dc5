"""A program of eight OS threads that store while interrupts hit them: `tests.crash.storm <file> <seed>`.

Python delivers a Ctrl-C to the main thread. Other threads are interrupted as debuggers and servers do it.
"""

from __future__ import annotations

import ctypes
import random
import signal
import sys
import threading
import time
from typing import Any

from langgraph_checkpoint_custom import SqliteSaver
from tests.behaviour.helpers import checkpoint, config, metadata

THREADS = 8
INTERRUPTS = 600
# Maximal seconds between two interrupts: enough for a few writes.
PAUSE = 0.004


class Writer:
    """One of the threads, and what was acknowledged to it."""

    def __init__(self, saver: SqliteSaver, number: int) -> None:
        self.saver = saver
        self.thread_id = f"t{number}"
        self.stored: set[str] = set()
        self.interrupted = 0
        self.step = 0
        self.ident = 0

    def put(self) -> None:
        self.step += 1
        document = checkpoint(f"{self.step:09d}", {"a": ["x", self.step]})
        self.saver.put(config(self.thread_id), document, metadata(), document["channel_versions"])
        self.stored.add(document["id"])

    def work(self, stop: threading.Event) -> None:
        self.ident = threading.get_ident()
        while not stop.is_set():
            try:
                try:
                    while not stop.is_set():
                        self.put()
                except KeyboardInterrupt:
                    self.interrupted += 1
                    self.put()  # While the error references everything that was interrupted.
            except KeyboardInterrupt:
                self.interrupted += 1

    def lost(self) -> set[str]:
        found = {one.checkpoint_id for one in self.saver.history(config(self.thread_id))}
        return self.stored - found


def main(path: str, seed: str) -> None:
    chance = random.Random(int(seed))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # It is ignored if it was for the parent.
    saver = SqliteSaver(path)
    saver.setup()
    writers = [Writer(saver, number) for number in range(THREADS)]
    begin, stop = threading.Event(), threading.Event()
    # Joined below; a daemon, so that a hanging one does not keep the process alive.
    others = [threading.Thread(target=writer.work, args=[stop], daemon=True) for writer in writers[1:]]

    def storm() -> None:
        begin.wait()
        for _ in range(INTERRUPTS):
            time.sleep(chance.random() * PAUSE)  # A random moment.
            victim = chance.choice(writers)
            if victim is writers[0]:
                signal.pthread_kill(victim.ident, signal.SIGINT)
            else:
                interrupt: Any = ctypes.py_object(KeyboardInterrupt)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(victim.ident), interrupt)
        stop.set()

    interrupter = threading.Thread(target=storm, daemon=True)
    writers[0].ident = threading.get_ident()
    for thread in (*others, interrupter):
        thread.start()
    while not all(writer.ident for writer in writers):
        time.sleep(0.001)  # Let them begin.
    begin.set()
    while interrupter.is_alive():
        try:
            writers[0].work(stop)
            interrupter.join()
        except KeyboardInterrupt:
            writers[0].interrupted += 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for thread in others:
        thread.join()
    lost = [writer.lost() for writer in writers]
    assert not any(lost), lost
    saver.close()
    print(sum(len(writer.stored) for writer in writers), sum(writer.interrupted for writer in writers))


if __name__ == "__main__":
    main(*sys.argv[1:])
