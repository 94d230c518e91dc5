"""Two operations on one thread: the first one's transaction is held open, the second comes, the first commits.

What is answered and left has to be what one of the two serial orders gives. Each pair is played from each beginning
in which it can meet. `python -m tests.races.pairs` plays all and tells who waits for whom.

What stores a row that is whole by itself waits for nobody, so it can also come between two statements of an operation:
each operation is played with a small checkpoint and a write that come before each of its statements.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from psycopg import sql

from langgraph_checkpoint_custom import PostgresSaver
from langgraph_checkpoint_custom.tools.exchange import export_file
from tests.conftest import made_database, running_postgres
from tests.races.calls import Answer, Call, Done, do, retention
from tests.races.model import NEW, OLD, Model, State, config_of
from tests.races.plans import LOG
from tests.races.rounds import look, told_of
from tests.races.search import Step, Verdict, explain, steps_of
from tests.stores import Store
from tests.tables import TABLES, empty_tables

# The thread on which everything meets, two that are copied and forked to it, and one to which it is.
THREAD, SOURCE, OTHER, TARGET = THREADS = ("t", "source", "other source", "target")

BLOB = {"text": "b" * 2000}
PARTS = [f"{index} " + "p" * 500 for index in range(40)]

# The number of the checkpoint that comes among the statements of an operation.
ROW = 95

_WAITING = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def put(
    thread_id: str,
    number: int,
    *,
    parent: int | None = None,
    checkpoint_ns: str = "",
    values: Mapping[str, Any],
    new: Sequence[str],
    versions: Mapping[str, int] = {},  # It is only read.
    run_id: str = "old",
    delta: bool = False,
    ts: str = OLD,
    checkpoint_id: str | None = None,
) -> Call:
    """A put of a checkpoint that is called by a number; a channel that is not new has the version of an earlier one."""
    channels = {channel: f"{versions.get(channel, number):032d}.{0:016d}" for channel in {*values, *new}}
    metadata: dict[str, Any] = {"source": "loop", "step": number, "parents": {}, "run_id": run_id}
    if delta:
        channels[LOG] = f"{number:032d}.{0:016d}"
        new = [*new, LOG]
        if LOG not in values:
            metadata["counters_since_delta_snapshot"] = {LOG: (1, 1)}
    part: dict[str, Any] = {"thread_id": thread_id, "checkpoint_ns": checkpoint_ns}
    if parent is not None:
        part["checkpoint_id"] = id_of(parent)
    checkpoint = {
        "v": 4,
        "id": checkpoint_id or id_of(number),
        "ts": ts,
        "channel_values": dict(values),
        "channel_versions": channels,
        "versions_seen": {},
        "updated_channels": sorted(new),
    }
    return Call("put", ({"configurable": part}, checkpoint, metadata, {channel: channels[channel] for channel in new}))


def id_of(number: int) -> str:
    """The id of a checkpoint."""
    return f"{number:026d}"


def written(thread_id: str, of: int | str, value: Any, run_id: str = "old", task: str = "") -> Call:
    """A put_writes, of a checkpoint by its number or id."""
    checkpoint_id = of if isinstance(of, str) else id_of(of)
    config = {**config_of((thread_id, "", checkpoint_id)), "metadata": {"run_id": run_id}}
    return Call("put_writes", (config, [(LOG, value)], task or f"task {of}"))


def story(thread_id: str, first: int, *, delta: bool) -> Iterator[Call]:
    """Five checkpoints with a large value that the third replaces, one in parts that grows, and a memory."""
    parts: dict[str, Any] = {}
    for number in range(first, first + 5):
        location = number - first
        blob = first if location < 2 else first + 2
        parts = {"parts": [*PARTS, *map(str, range(location))]}
        values = {"small": number, "blob": [BLOB, blob], **parts}
        if delta and location == 0:
            values[LOG] = _DeltaSnapshot([number])
        new = ["small", "parts", *(["blob"] if number == blob else [])]
        yield put(
            thread_id, number, parent=number - 1 if location else None, values=values, new=new,
            versions={"blob": blob}, run_id="old" if location < 3 else "new", delta=delta,
        )  # fmt: skip
        yield written(thread_id, number, [number], "old" if location < 3 else "new")
    for number in (first + 5, first + 6):
        values = {"blob": [BLOB, number]}
        parent = None if number == first + 5 else first + 5
        yield put(thread_id, number, parent=parent, checkpoint_ns="memory", values=values, new=["blob"])


def beginning(name: str) -> list[Call]:
    """What is stored behind the sources."""
    if name == "copy":
        return [Call("copy_thread", (SOURCE, THREAD))]
    if name == "empty":
        return []
    calls = list(story(THREAD, 10, delta=name == "delta"))
    if name != "plain":
        calls.append(Call("label", (config_of((THREAD, "", id_of(11))), "kept")))
    return calls


@dataclass(frozen=True)
class Operation:
    """An operation on the thread.

    Attributes:
        beginnings: From which of the beginnings it is played.
        call: What is called, by the number of the thread's first checkpoint, whether it is the second of the pair, and
            the file.
    """

    beginnings: frozenset[str]
    call: Callable[[int, bool, str], Call]


def _operation(beginnings: str, call: Callable[[int, bool, str], Call]) -> Operation:
    return Operation(frozenset(beginnings.split()), call)


def _put_small(first: int, second: bool, path: str) -> Call:
    number = 90 + second
    return put(THREAD, number, parent=first + 4, values={"small": number}, new=["small"], run_id="late", ts=NEW)


def _put_blob(first: int, second: bool, path: str) -> Call:
    number = 90 + second
    values = {"blob": [BLOB, number], "small": number}
    return put(THREAD, number, parent=first + 4, values=values, new=["blob", "small"], run_id="late", ts=NEW)


def _put_reference(first: int, second: bool, path: str) -> Call:
    """Going on from an older checkpoint, with a value that only older ones have."""
    number = 90 + second
    values = {"blob": [BLOB, first], "small": number}
    return put(
        THREAD, number, parent=first + 1, values=values, new=["small"], versions={"blob": first}, run_id="late", ts=NEW
    )


def _put_delta(first: int, second: bool, path: str) -> Call:
    number = 90 + second
    return put(
        THREAD, number, parent=first + 4, values={"small": number}, new=["small"], run_id="late", delta=True, ts=NEW
    )


def _source(second: bool) -> str:
    return OTHER if second else SOURCE


ALL = "plain labelled delta copy empty"
THERE = "plain labelled delta copy"
MAKING = "copy empty"

OPERATIONS: Mapping[str, Operation] = {
    "put": _operation(ALL, _put_small),
    "put_blob": _operation("plain labelled copy empty", _put_blob),  # Beside a delta channel: put_delta.
    "put_reference": _operation(THERE, _put_reference),
    "put_delta": _operation("delta", _put_delta),
    "put_writes": _operation(
        ALL, lambda first, second, path: written(THREAD, first + 4, "late", "new", f"late task {second}")
    ),
    "delete_thread": _operation(ALL, lambda first, second, path: Call("delete_thread", (THREAD,))),
    "delete_checkpoint": _operation(
        THERE,
        lambda first, second, path: Call("delete_checkpoint", (config_of((THREAD, "", id_of(first + 4 - second))),)),
    ),
    "delete_for_runs": _operation(ALL, lambda first, second, path: Call("delete_for_runs", (["new"],))),
    "prune": _operation(ALL, lambda first, second, path: Call("prune", ([THREAD],))),
    "sweep": _operation(ALL, lambda first, second, path: Call("sweep", (retention(1),))),
    "rollback": _operation(THERE, lambda first, second, path: Call("rollback", (THREAD, id_of(first + 2 - second)))),
    "copy_to": _operation(
        MAKING, lambda first, second, path: Call("copy_thread", (SOURCE if first else _source(second), THREAD))
    ),
    "copy_from": _operation(ALL, lambda first, second, path: Call("copy_thread", (THREAD, TARGET))),
    "fork_to": _operation(MAKING, lambda first, second, path: Call("fork_thread", (_source(second), THREAD))),
    "fork_from": _operation(
        ALL, lambda first, second, path: Call("fork_thread", (THREAD, TARGET), {"checkpoint_id": None})
    ),
    "label": _operation(
        ALL, lambda first, second, path: Call("label", (config_of((THREAD, "", id_of(first + 2))), f"late {second}"))
    ),
    "unlabel": _operation("labelled delta", lambda first, second, path: Call("unlabel", (THREAD, "kept"))),
    "claim": _operation(ALL, lambda first, second, path: Call("claim", (THREAD,), owner=f"owner {second}")),
    "import": _operation(MAKING, lambda first, second, path: Call("import_file", (path,))),
    "reencrypt": _operation(ALL, lambda first, second, path: Call("reencrypt")),
}

MAKERS = frozenset({"copy_to", "fork_to", "import"})

# What can be about a checkpoint that comes meanwhile.
NAMING = frozenset({"delete_checkpoint", "rollback"})


def beginnings(first: str, second: str) -> list[str]:
    """From what a pair is played: "copy" and "empty" are there for the sake of what makes a thread."""
    both = OPERATIONS[first].beginnings & OPERATIONS[second].beginnings
    wanted = set(ALL.split()) if {first, second} & MAKERS else {"plain", "labelled", "delta"}
    return [each for each in ALL.split() if each in both & wanted]


PAIRS = [pair for pair in product(OPERATIONS, repeat=2) if beginnings(*pair)]


@dataclass(frozen=True)
class Played:
    """What came of a pair."""

    waited: bool
    verdict: Verdict
    problem: str


class Watched(psycopg.Connection[Any]):
    """A connection that has something done before each of its statements."""

    before: Callable[[], None] | None = None

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        if self.before is not None:
            self.before()
        return super().wait(*args, **kwargs)


class Bench:
    """A database with a beginning, brought back for each pair, and those who meet there.

    Args:
        url: A database of its own, with the tables in it.
        folder: For the file that is imported.
        stack: Closes what is opened.
    """

    def __init__(self, url: str, folder: Path, stack: ExitStack) -> None:
        self._store = Store("postgres", url)
        self._path = str(folder / "export")
        # Those who store as the others do, and those who store anew in another form.
        self._free = [stack.enter_context(PostgresSaver(url, compress=each)) for each in (True, False)]
        self._watcher = stack.enter_context(psycopg.connect(url, autocommit=True))
        self._connection = stack.enter_context(Watched.connect(url, autocommit=True))
        self._held = [PostgresSaver(self._connection, compress=each) for each in (True, False)]
        for saver in (*self._free, *self._held):
            saver.thread_exists("nobody's")  # Each looks once whether the tables are there.
        self._models: dict[str, tuple[Model, State]] = {}

    def play(self, first: str, second: str, begun: str) -> Played:
        """Play a pair."""
        model, start = self._begin(begun)
        number = {"copy": 50, "empty": 0}.get(begun, 10)  # That of the thread's first checkpoint.
        calls = [
            OPERATIONS[first].call(number, False, self._path),
            OPERATIONS[second].call(number, True, self._path),
        ]
        answers: list[Answer] = []
        leases: dict[str, Any] = {}

        def meanwhile() -> None:
            answers.append(do(self._free[_is_renewing(calls[1])], calls[1], leases))

        worker = threading.Thread(target=meanwhile)
        try:
            with self._connection.transaction():
                answers.append(do(self._held[_is_renewing(calls[0])], calls[0], leases))
                worker.start()
                waited = self._waits(worker)
            worker.join()
            both = zip((first, second), calls, answers, strict=True)
            history = [Done(name, call, 1, 2, answer) for name, call, answer in both]
            steps = [step._replace(part=step.part._replace(among=False)) for step in steps_of(model, history, THREADS)]
            title = f"{first} held, {second} meanwhile, from {begun!r}"
            return self._judged(title, model, start, steps, {Verdict.FINE}, waited=waited)
        finally:
            for lease in leases.values():
                lease.__exit__(None, None, None)

    def play_with_row(self, name: str, begun: str, before: int, which: str) -> Played | None:
        """Play an operation, and before one of its statements store a checkpoint and a write of it.

        Where there is a delta channel, a checkpoint waits for whoever is alone with the thread; a write does not.

        Args:
            name: The operation.
            begun: The beginning.
            before: The number of the statement.
            which: Whether that checkpoint is the "newest", "named" as what the operation is about, or "between" others.

        Returns:
            None if there are fewer statements.
        """
        model, start = self._begin(begun)
        first = {"copy": 50, "empty": 0}.get(begun, 10)
        call = OPERATIONS[name].call(first, False, self._path)
        if which == "named":
            key = THREAD, "", id_of(ROW)
            call = replace(call, args=(config_of(key),) if name == "delete_checkpoint" else (THREAD, id_of(ROW)))
        rows = [written(THREAD, first + 4, "late", "late", "late task")]
        if begun != "delta":
            parent = first + 2 if which == "between" else first + 4
            row_id = f"{id_of(first + 3)}.5" if which == "between" else id_of(ROW)
            values = {"small": ROW}
            row = put(
                THREAD, ROW, parent=parent, values=values, new=["small"], run_id="late", ts=NEW, checkpoint_id=row_id
            )
            rows = [row, written(THREAD, row_id, "late", "late")]
        history: list[Done] = []

        numbers = count()

        def store() -> None:
            if next(numbers) == before:
                self._connection.before = None
                for now, each in enumerate(rows, 1):
                    history.append(Done("row", replace(each, alone=True), now, now, do(self._free[0], each, {})))

        leases: dict[str, Any] = {}
        try:
            self._connection.before = store
            with self._connection.transaction():
                answer = do(self._held[_is_renewing(call)], call, leases)
        finally:
            self._connection.before = None
            for lease in leases.values():
                lease.__exit__(None, None, None)
        if not history:
            return None
        steps = steps_of(model, [Done(name, call, 0, 3, answer), *history], THREADS)
        title = f"{name}, a row ({which}) before its statement {before}, from {begun!r}"
        return self._judged(title, model, start, steps, {Verdict.FINE, Verdict.LATE}, waited=False)

    def _judged(
        self, title: str, model: Model, start: State, steps: Sequence[Step], right: set[Verdict], *, waited: bool
    ) -> Played:
        left = look(self._free[0], self._store, THREADS)
        found = explain(model, start, steps, THREADS, partial(left.is_of, model))
        if found.verdict in right and not left.broken:
            return Played(waited, found.verdict, "")
        return Played(waited, found.verdict, told_of(title, THREADS, model, start, steps, left, found))

    def _waits(self, worker: threading.Thread) -> bool:
        while worker.is_alive():
            if self._watcher.execute(_WAITING).fetchall():
                return True
        return False

    def _begin(self, name: str) -> tuple[Model, State]:
        """Bring back what is there in the beginning."""
        if name not in self._models:
            self._models[name] = self._made(name)
            for table in TABLES:
                copy = sql.Identifier(f"{name} {table}")
                self._watcher.execute(
                    sql.SQL("CREATE TABLE {} AS TABLE langgraph_checkpoint.{}").format(copy, sql.Identifier(table))
                )
            return self._models[name]
        with self._watcher.transaction():
            for table in TABLES:
                copy, own = sql.Identifier(f"{name} {table}"), sql.Identifier(table)
                self._watcher.execute(sql.SQL("DELETE FROM langgraph_checkpoint.{}").format(own))
                self._watcher.execute(sql.SQL("INSERT INTO langgraph_checkpoint.{} SELECT * FROM {}").format(own, copy))
        return self._models[name]

    def _made(self, name: str) -> tuple[Model, State]:
        empty_tables(self._store)
        model = Model()
        state = State()

        def perform(calls: Sequence[Call]) -> None:
            nonlocal state
            for call in calls:
                answer = do(self._free[0], call, {})
                assert answer[0] == "ok", answer
                for part in model.parts(call, THREADS, among=False):
                    (state,) = model.outcomes(state, part, answer)

        if name in MAKING.split():  # What is imported is the source, under the name of the thread.
            perform(list(story(THREAD, 50, delta=False)))
            Path(self._path).unlink(missing_ok=True)
            export_file(self._free[0], self._path)
            model.exported[self._path] = THREAD, state.content(THREAD)
            perform([Call("copy_thread", (THREAD, SOURCE)), Call("delete_thread", (THREAD,))])
            perform(list(story(OTHER, 70, delta=False)))
        perform(beginning(name))
        return model, state


def _is_renewing(call: Call) -> bool:
    return call.name == "reencrypt"


@contextmanager
def bench(dsn: str, template: str | None = None) -> Iterator[Bench]:
    """A bench on a database of its own."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        _, url = stack.enter_context(made_database(dsn, *([template] if template else [])))
        if template is None:
            with closing(PostgresSaver(url)) as saver:
                saver.setup()
        yield Bench(url, folder, stack)


def main() -> int:
    """Play all pairs; returns how many are wrong."""
    wrong = {}
    with running_postgres() as dsn, bench(dsn) as location:
        print("held | meanwhile | from: waited, verdict")
        for first, second in PAIRS:
            for begun in beginnings(first, second):
                played = location.play(first, second, begun)
                print(f"{first} | {second} | {begun}: {'waited' if played.waited else '-'}, {played.verdict.name}")
                if played.problem:
                    wrong[first, second, begun] = played.problem
    for problem in wrong.values():
        print(problem)
    print(f"{len(wrong)} wrong:", *(" + ".join(key) for key in wrong), sep="\n")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(min(main(), 1))
