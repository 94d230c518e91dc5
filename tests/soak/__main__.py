"""Run the soak: `python -m tests.soak --seconds 3600`, before a release.

Workers play turns on each database, with the sync or the async methods. Meanwhile they are killed and restarted, the
server of PostgreSQL is stopped at once and started again, threads are pruned and swept, and after a third of the time a
newer version migrates the tables, so that both versions run side by side. Each turn checks its thread. In the end, each
thread is checked, and the tables row by row. The report is written as Markdown and JSON. It ends with 1 if something is
wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from langgraph_checkpoint_custom import ConnectionLost, Retention, __version__, open_saver
from tests.faults.cluster import Cluster, running_cluster
from tests.invariants import read_tables, violations
from tests.migrations.conftest import ADDS
from tests.soak.worker import check, graph_on
from tests.stores import Store
from tests.wheels import ROOT, Application, next_version, unpacked

WORKERS = 3
# Seconds between two faults, at most.
PAUSE = 4.0
WORKER = Path(__file__).with_name("worker.py")


class Worker(Application):
    """A process of `worker.py`, which prints what it has to report."""

    def __init__(self, package: Path, url: str, name: str, seed: int, api: str) -> None:
        super().__init__(WORKER, package, url, name, str(seed), api)
        self.name = name


class Soak:
    """A soak of one database, and its report."""

    def __init__(self, store: Store, versions: list[Path], cluster: Cluster | None, chance: random.Random) -> None:
        self.store = store
        self.versions = versions
        self.cluster = cluster
        self.chance = chance
        self.usable = versions[:1]
        self.did: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.problems: list[str] = []
        self.acknowledged: dict[str, int] = {}
        self.workers: list[Worker] = []

    def run(self, seconds: float) -> None:
        """Play, disturb, and check in the end."""
        began = time.monotonic()
        self._migrate(self.versions[0])
        self.workers = [self._start(f"worker {number}") for number in range(WORKERS)]
        faults: list[Callable[[], None]] = []
        while (elapsed := time.monotonic() - began) < seconds and not self.problems:
            time.sleep(self.chance.uniform(0.5, PAUSE))  # The runs go on until the next fault, at any moment.
            if elapsed > seconds / 3 and len(self.usable) == 1:
                self._migrate(self.versions[1])
                self.usable = self.versions
                self.did["migration while workers run"] += 1
            if not faults:  # Each of them comes once before one comes again.
                faults = [self._kill, self._kill, self._restart, self._prune, self._sweep, self._stop_server]
                self.chance.shuffle(faults)
            faults.pop()()
        for worker in self.workers:
            self._ended(worker, kill=False)
        self._check()

    def _start(self, name: str) -> Worker:
        package, api = self.chance.choice(self.usable), self.chance.choice(["sync", "async"])
        self.did[f"start of version {self.versions.index(package) + 1}, {api}"] += 1
        return Worker(package, self.store.url, name, self.chance.randrange(10**6), api)

    def _ended(self, worker: Worker, *, kill: bool) -> None:
        if not kill:
            worker.stop()
        if said := worker.end(kill=kill):
            self.problems.append(f"{worker.name} ended: {said[-2000:]}")
        for kind, thread_id, what in worker.lines:
            if kind == "error":
                self.errors[what] += 1
            else:
                self.did[kind] += 1
                self.acknowledged[thread_id] = what

    def _kill(self) -> None:
        self._replace("kill", kill=True)

    def _restart(self) -> None:
        self._replace("restart", kill=False)

    def _replace(self, how: str, *, kill: bool) -> None:
        """Replace a worker by one of either version."""
        number = self.chance.randrange(WORKERS)
        self._ended(self.workers[number], kill=kill)
        self.workers[number] = self._start(self.workers[number].name)
        self.did[how] += 1

    def _migrate(self, package: Path) -> None:
        program = "import sys, langgraph_checkpoint_custom as p; p.open_saver(sys.argv[1]).setup()"
        command = [sys.executable, "-W", "ignore", "-c", program, self.store.url]
        subprocess.run(command, cwd=package, env=os.environ | {"PYTHONPATH": str(package)}, check=True)

    def _maintain(self, what: str, action: Any) -> None:
        try:
            with open_saver(self.store.url) as saver:
                action(saver)
            self.did[what] += 1
        except ConnectionLost as error:
            self.errors[f"{what}: {type(error).__name__}"] += 1

    def _prune(self) -> None:
        self._maintain("prune", lambda saver: saver.prune([thread.thread_id for thread in saver.threads()]))

    def _sweep(self) -> None:
        keep = Retention(keep_last=self.chance.randrange(1, 30), older_than=timedelta(days=1))
        self._maintain("sweep", lambda saver: saver.sweep(keep))

    def _stop_server(self) -> None:
        if self.cluster is not None:
            self.cluster.stop()
            self.cluster.start()
            self.did["stop of the server"] += 1

    def _check(self) -> None:
        """Check each thread, and the tables."""
        with open_saver(self.store.url) as saver:
            graph = graph_on(saver)
            for thread in saver.threads():
                try:
                    state = graph.get_state({"configurable": {"thread_id": thread.thread_id}})
                    if not state.tasks:
                        check(thread.thread_id, state.values)
                    assert state.values.get("turn", 0) >= self._least(thread.thread_id), "an acknowledged turn is lost"
                    self.did["thread checked"] += 1
                except Exception as error:
                    self.problems.append(f"{thread.thread_id}: {type(error).__name__}: {error}")
            lost = self.acknowledged.keys() - {thread.thread_id for thread in saver.threads()}
            self.problems += [f"{thread_id} is gone" for thread_id in sorted(lost) if not thread_id.endswith("fork")]
        tables = read_tables(self.store)
        # A killed worker leaves writes whose checkpoint was not stored, and values that were stored twice.
        rows = list(violations(tables, [write[:3] for write in tables.writes]))
        self.problems += [row for row in rows if not row.startswith("no checkpoint names the blob")]
        self.did["value that nothing names"] += len([row for row in rows if row.startswith("no checkpoint names")])
        self.did["checkpoint in the end"] += len(tables.checkpoints)

    def _least(self, thread_id: str) -> int:
        return 0 if thread_id.endswith("fork") else self.acknowledged.get(thread_id, 0)

    def report(self) -> dict[str, Any]:
        """What happened, for JSON."""
        return {"did": dict(self.did), "errors_that_callers_saw": dict(self.errors), "problems": self.problems}


def markdown(report: dict[str, Any]) -> str:
    """The report as a document."""
    lines = ["# Soak", ""]
    lines += [f"Version {report['version']}, commit {report['commit']}, {report['date']}, seed {report['seed']}:"]
    lines += [f"{report['seconds']} seconds on each database, {WORKERS} workers, each with several threads.", ""]
    for database, found in report["databases"].items():
        lines += [f"## {database}", "", "| what | number |", "|---|--:|"]
        lines += [f"| {what} | {number} |" for what, number in sorted(found["did"].items())]
        lines += [f"| raised: {what} | {number} |" for what, number in sorted(found["errors_that_callers_saw"].items())]
        lines += ["", *(f"- **{problem}**" for problem in found["problems"] or ["no invariant is broken"]), ""]
    return "\n".join(lines)


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--seconds", type=float, default=3600, help="on each database")
    parser.add_argument("--database", choices=["sqlite", "postgres"], action="append")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--out", type=Path, default=Path("soak.md"), help="the report; its JSON is beside it")
    given = parser.parse_args()
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], check=False, capture_output=True, text=True)
    report: dict[str, Any] = {
        "version": __version__,
        "commit": commit.stdout.strip(),
        "date": datetime.now(timezone.utc).date().isoformat(),
        "seed": given.seed,
        "seconds": given.seconds,
        "databases": {},
    }
    with ExitStack() as stack:
        source, this, later, files = (Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(4))
        versions = [unpacked(ROOT, this), unpacked(next_version(source, ADDS, oldest=1), later)]
        for database in given.database or ["sqlite", "postgres"]:
            cluster = stack.enter_context(running_cluster()) if database == "postgres" else None
            store = Store(database, cluster.url() if cluster else f"sqlite:///{files / 'soak.db'}")
            soak = Soak(store, versions, cluster, random.Random(given.seed))
            soak.run(given.seconds)
            report["databases"][database] = soak.report()
    given.out.write_text(markdown(report), "utf-8")
    given.out.with_suffix(".json").write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    print(markdown(report))
    return 1 if any(found["problems"] for found in report["databases"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
