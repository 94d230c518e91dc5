"""gunicorn forks workers that share its saver or open their own, and they are killed, ended and replaced under load."""

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
# Seconds that nothing here takes; whoever waits longer hangs.
PATIENCE = 300
WORKERS, CLIENTS = 3, 6
# What ends a worker, at once or when it has answered. (At SIGQUIT or SIGABRT gunicorn's own workers raise `SystemExit`
# in the middle of anything; where Python is starting an OS thread of an executor, they wait for that one without end.)
TO_A_WORKER = [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]
# What the master is told: new workers for all, one more, one less.
TO_THE_MASTER = [signal.SIGHUP, signal.SIGTTIN, signal.SIGTTOU]
# What must not be in the log; gunicorn does not close the socket on which it listens.
BAD = ("Traceback", "ResourceWarning", "was destroyed", "never awaited", "never retrieved", "Exception ignored")
GOOD = ("unclosed <socket.socket", "Enable tracemalloc")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the workers of a master are found in /proc")


class Gunicorn:
    """A master with its workers, as the command line starts it; the log has what any of them says."""

    def __init__(self, store: Store, folder: Path, application: str, worker: str, *, preload: bool) -> None:
        self.log = folder / "log"
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("LANG", "GUNICORN"))}
        environment = kept | {"WEB_URL": store.url, "WEB_FOLDER": str(folder), "WEB_PRELOAD": "1" if preload else ""}
        command = [sys.executable, "-W", "always::ResourceWarning", "-X", "faulthandler", "-m", "gunicorn"]
        command += ["-c", "python:tests.crash.web", "-k", worker, "-w", str(WORKERS), f"tests.crash.web:{application}"]
        # Who connects before there is a worker waits.
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
        deadline = time.monotonic() + PATIENCE
        while self.master.poll() is None and time.monotonic() < deadline:
            time.sleep(0.5)  # Only how often it is told again; that it ends is what is waited for.
            for pid in self.workers():  # The master tells them once, and one that was just forked does not hear it.
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
        assert self.master.poll() == 0

    def workers(self) -> set[int]:
        """The workers that have not ended."""
        master = self.master.pid
        return {int(pid) for pid in Path(f"/proc/{master}/task/{master}/children").read_text().split()}


@contextmanager
def running(*args: Any, **kwargs: Any) -> Iterator[Gunicorn]:
    """A master for the time of a block; what is left of it in the end is killed."""
    gunicorn = Gunicorn(*args, **kwargs)
    try:
        yield gunicorn
    finally:
        print(gunicorn.log.read_text())
        while gunicorn.master.poll() is None:
            workers = gunicorn.workers()
            gunicorn.master.kill()
            gunicorn.master.wait(PATIENCE)
            for pid in workers:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


class Clients:
    """Each asks for one run after the other, and again if its worker was ended, until all are told to stop."""

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
        """Wait for the runs that go on, unless something has failed."""
        self._given_up = error is not None
        self._stop.set()
        self._pool.shutdown()
        if error is None:
            self.ended()

    def ended(self) -> int:
        """How many requests have ended; one client that has failed for good fails the test."""
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
        connection = HTTPConnection(host, port, timeout=PATIENCE)
        try:
            connection.request("GET", f"/?{query}", headers={"Connection": "close"})
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        assert answer.status == 200, body
        return list(json.loads(body))


@pytest.mark.timeout(2 * PATIENCE)
@pytest.mark.leaves_writes("a run may be killed after the writes of a checkpoint and before it")
@pytest.mark.parametrize("preload", [True, False], ids=["preloaded", "loaded_by_each"])
@pytest.mark.parametrize("api", ["sync", "async"])
def test_workers_are_killed_ended_and_replaced_while_requests_come(
    own_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: str, preload: bool
) -> None:
    seed = random.SystemRandom().randrange(10**9)
    print(f"seed: {seed}")
    dice = random.Random(seed)
    application, worker = ("wsgi", "sync") if api == "sync" else ("asgi", "uvicorn_worker.UvicornWorker")
    whole = agent.go_on(InMemorySaver(), "sync", "whole", tmp_path / "whole")  # type: ignore[arg-type]
    monkeypatch.setattr(web, "FOLDER", tmp_path)

    with running(own_store, tmp_path, application, worker, preload=preload) as gunicorn:
        told = [*TO_A_WORKER, *TO_THE_MASTER]
        dice.shuffle(told)
        victims: dict[int, signal.Signals] = {}
        with Clients(gunicorn) as clients:
            for what in told:
                before, busy = clients.ended(), set[int]()
                while clients.ended() < before + CLIENTS or not busy:
                    assert gunicorn.master.poll() is None, "the master has ended"
                    time.sleep(dice.uniform(0.01, 0.05))  # The moment is random; nothing else is waited for.
                    latest = web.noted(web.requests())[-CLIENTS:]
                    busy = {pid for _, pid in latest} & gunicorn.workers() - victims.keys()
                if what in TO_THE_MASTER:
                    gunicorn.master.send_signal(what)
                    continue
                victim = dice.choice(sorted(busy))
                victims[victim] = what
                with suppress(ProcessLookupError):  # It was told to end before.
                    os.kill(victim, what)
        gunicorn.end()
        while sessions(own_store):
            time.sleep(0.05)  # The server takes a moment to see that a process is gone.
        log = gunicorn.log.read_text()

    # Nobody failed but whose worker was ended; that of a request which has not begun is not known.
    began = dict(web.noted(web.requests()))
    excused = {pid for pid, what in victims.items() if what == signal.SIGKILL}
    assert {number: why for number, why in clients.failed.items() if began.get(number) not in {*excused, None}} == {}
    if own_store.kind == "postgres":
        # Who was killed may have begun with a request and not have connected yet.
        workers = {*began.values()} - excused
        assert workers <= {*web.noted(web.connected())}, "a worker has used another process's connections"
    said = [line for line in log.splitlines() if any(word in line for word in BAD)]
    assert [line for line in said if not any(word in line for word in GOOD)] == []

    assert len(clients.answers) > len(told)
    assert {tuple(answer) for answer in clients.answers.values()} == {tuple(whole)}
    with own_store.open() as saver:
        for thread_id in web.told_threads():
            state = agent.build(saver, tmp_path / "nothing").get_state(anywhere(thread_id))
            ids = {id_of(found) for found in saver.list(anywhere(thread_id))}
            stored = [agent.Stored(*line) for line in web.noted(web.acknowledged(thread_id))]
            assert {each.checkpoint_id for each in stored if each.done is None} <= ids, "a checkpoint is lost"
            # With "async" durability writes may come before their checkpoint; without it the task will run again.
            done = {name for each in stored if each.checkpoint_id in ids for name in each.done or ()}
            if thread_id in clients.answers:
                assert (state.values["done"], state.next) == (whole, ())
            else:  # A process's own, which may have been killed in the middle.
                assert done <= {*state.values["done"], *(name for task in state.tasks for name in task.result or ())}
    # A run that is killed may leave the writes of a step whose checkpoint was to be stored next to it.
    check_invariants(own_store, early_writes={write[:3] for write in read_tables(own_store).writes})
