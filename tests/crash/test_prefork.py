"""gunicorn forks workers that share its saver or open their own. Under load, they are killed, ended and replaced."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlencode

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from tests.behaviour.helpers import anywhere, id_of
from tests.crash import agent, web
from tests.crash.test_fork import sessions
from tests.invariants import check_invariants, read_tables
from tests.stores import Store

ROOT = Path(__file__).parents[2]
# Seconds; nothing here takes that long unless it hangs.
TIMEOUT = 300
WORKERS, CLIENTS = 3, 6
# What ends a worker, at once or after its reply. (At SIGQUIT or SIGABRT, gunicorn's own workers raise `SystemExit`
# at any point; if Python is just starting an OS thread of an executor, they wait for that one forever.)
TO_A_WORKER = [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]
# Signals to the master: new workers for all, one more, one less.
TO_THE_MASTER = [signal.SIGHUP, signal.SIGTTIN, signal.SIGTTOU]
# What must not be in the log. gunicorn does not close the socket on which it listens.
BAD = ("Traceback", "ResourceWarning", "was destroyed", "never awaited", "never retrieved", "Exception ignored")
GOOD = ("unclosed <socket.socket", "Enable tracemalloc")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the workers of a master are found in /proc")


class Gunicorn:
    """A master with its workers, as the command line starts it; the log has the output of all of them."""

    def __init__(self, store: Store, folder: Path, application: str, worker: str, *, preload: bool) -> None:
        self.log = folder / "log"
        inherited = {name: text for name, text in os.environ.items() if not name.startswith(("LANG", "GUNICORN"))}
        environment = inherited | {
            "WEB_URL": store.url,
            "WEB_FOLDER": str(folder),
            "WEB_PRELOAD": "1" if preload else "",
        }
        command = [sys.executable, "-W", "always::ResourceWarning", "-X", "faulthandler", "-m", "gunicorn"]
        command += ["-c", "python:tests.crash.web", "-k", worker, "-w", str(WORKERS), f"tests.crash.web:{application}"]
        # A client that connects before there is a worker waits.
        with socket.create_server(("127.0.0.1", 0), backlog=64) as listener, self.log.open("ab") as log:
            self.address = listener.getsockname()
            self.master = subprocess.Popen(
                [*command, "-b", f"fd://{listener.fileno()}"],
                cwd=ROOT,
                env=environment,
                pass_fds=[listener.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def end(self) -> None:
        """End the master as a service manager does, after its workers."""
        self.master.terminate()
        deadline = time.monotonic() + TIMEOUT
        while self.master.poll() is None and time.monotonic() < deadline:
            time.sleep(0.5)  # How often the signal is repeated; the deadline is what matters.
            # The master signals the workers once, and one that was just forked does not get the signal.
            for pid in self.workers():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
        assert self.master.poll() == 0

    def workers(self) -> set[int]:
        """The workers that have not ended."""
        master = self.master.pid
        return {int(pid) for pid in Path(f"/proc/{master}/task/{master}/children").read_text().split()}


@contextmanager
def running(*args: Any, **kwargs: Any) -> Iterator[Gunicorn]:
    """A master for the duration of a block; what is left of it at the end is killed."""
    gunicorn = Gunicorn(*args, **kwargs)
    try:
        yield gunicorn
    finally:
        print(gunicorn.log.read_text())
        while gunicorn.master.poll() is None:
            workers = gunicorn.workers()
            gunicorn.master.kill()
            gunicorn.master.wait(TIMEOUT)
            for pid in workers:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


class Clients:
    """Each asks for one run after the other, and again if its worker was ended, until all are stopped."""

    def __init__(self, gunicorn: Gunicorn) -> None:
        self._gunicorn = gunicorn
        self._numbers = count()
        self._stop = threading.Event()
        self._given_up = False
        self.answers: dict[str, list[str]] = {}
        self.failed: dict[int, str] = {}
        self._pool = ThreadPoolExecutor(CLIENTS)
        self._clients = [self._pool.submit(self._ask_and_ask, client) for client in range(CLIENTS)]

    def __enter__(self) -> Clients:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the running requests, unless something has failed."""
        self._given_up = error is not None
        self._stop.set()
        self._pool.shutdown()
        if error is None:
            self.ended()

    def ended(self) -> int:
        """How many requests have ended; a client that has failed permanently fails the test."""
        for client in self._clients:
            if client.done():
                client.result()
        return len(self.answers) + len(self.failed)

    def _ask_and_ask(self, client: int) -> None:
        for run in count():
            if self._stop.is_set():
                return
            thread_id = f"client {client} run {run}"
            durability = ("sync", "async")[run % 2]
            while thread_id not in self.answers and not self._given_up:
                number = next(self._numbers)
                try:
                    self.answers[thread_id] = self._ask(number, thread_id, durability)
                except TimeoutError:
                    raise AssertionError(f"request {number} hangs") from None
                except (HTTPException, OSError) as error:
                    self.failed[number] = repr(error)

    def _ask(self, number: int, thread_id: str, durability: str) -> list[str]:
        query = urlencode({"number": number, "thread": thread_id, "durability": durability})
        host, port = self._gunicorn.address
        connection = HTTPConnection(host, port, timeout=TIMEOUT)
        try:
            connection.request("GET", f"/?{query}", headers={"Connection": "close"})
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        assert answer.status == 200, body
        return list(json.loads(body))


@pytest.mark.timeout(2 * TIMEOUT)
@pytest.mark.leaves_writes("a run may be killed after the writes of a checkpoint and before it")
@pytest.mark.parametrize("preload", [True, False], ids=["preloaded", "loaded_by_each"])
@pytest.mark.parametrize("api", ["sync", "async"])
def test_workers_are_killed_ended_and_replaced_while_requests_come(
    own_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: str, preload: bool
) -> None:
    seed = random.SystemRandom().randrange(10**9)
    print(f"seed: {seed}")
    randomly = random.Random(seed)
    application, worker = ("wsgi", "sync") if api == "sync" else ("asgi", "uvicorn_worker.UvicornWorker")
    complete = agent.finish_run(InMemorySaver(), "sync", "complete", tmp_path / "complete")  # type: ignore[arg-type]
    monkeypatch.setattr(web, "FOLDER", tmp_path)

    with running(own_store, tmp_path, application, worker, preload=preload) as gunicorn:
        signals = [*TO_A_WORKER, *TO_THE_MASTER]
        randomly.shuffle(signals)
        victims: dict[int, signal.Signals] = {}
        with Clients(gunicorn) as clients:
            for what in signals:
                before, busy = clients.ended(), set[int]()
                while clients.ended() < before + CLIENTS or not busy:
                    assert gunicorn.master.poll() is None, "the master has ended"
                    time.sleep(randomly.uniform(0.01, 0.05))  # The moment is random; nothing else is waited for.
                    latest = web.noted(web.requests())[-CLIENTS:]
                    busy = {pid for _, pid in latest} & gunicorn.workers() - victims.keys()
                if what in TO_THE_MASTER:
                    gunicorn.master.send_signal(what)
                    continue
                victim = randomly.choice(sorted(busy))
                victims[victim] = what
                with suppress(ProcessLookupError):  # It was already signals to end.
                    os.kill(victim, what)
        gunicorn.end()
        while sessions(own_store):
            time.sleep(0.05)  # The server takes a moment to see that a process has ended.
        log = gunicorn.log.read_text()

    # Only requests whose worker was ended have failed; the worker of a request that has not begun is unknown.
    began = dict(web.noted(web.requests()))
    excused = {pid for pid, what in victims.items() if what == signal.SIGKILL}
    assert {number: why for number, why in clients.failed.items() if began.get(number) not in {*excused, None}} == {}
    if own_store.kind == "postgres":
        # A killed worker may have begun a request without connecting yet.
        workers = {*began.values()} - excused
        assert workers <= {*web.noted(web.connected())}, "a worker has used another process's connections"
    said = [line for line in log.splitlines() if any(word in line for word in BAD)]
    assert [line for line in said if not any(word in line for word in GOOD)] == []

    assert len(clients.answers) > len(signals)
    assert {tuple(answer) for answer in clients.answers.values()} == {tuple(complete)}
    with own_store.open() as saver:
        for thread_id in web.acknowledged_threads():
            state = agent.build(saver, tmp_path / "nothing").get_state(anywhere(thread_id))
            ids = {id_of(found) for found in saver.list(anywhere(thread_id))}
            stored = [agent.Stored(*line) for line in web.noted(web.acknowledged(thread_id))]
            assert {each.checkpoint_id for each in stored if each.done is None} <= ids, "a checkpoint is lost"
            # With "async" durability, writes may come before their checkpoint; without it, the task will run again.
            done = {name for each in stored if each.checkpoint_id in ids for name in each.done or ()}
            if thread_id in clients.answers:
                assert (state.values["done"], state.next) == (complete, ())
            else:  # The process's own thread; the process may have been killed halfway.
                assert done <= {*state.values["done"], *(name for task in state.tasks for name in task.result or ())}
    # A killed run may leave the writes of a step whose checkpoint was to be stored next.
    check_invariants(own_store, early_writes={write[:3] for write in read_tables(own_store).writes})
