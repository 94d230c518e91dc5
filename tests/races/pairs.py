"""Two operations on one thread: the transaction of the first stays open, the second starts, the first commits.

The results and the final state must be those of one of the two serial orders. Each pair is played from each beginning
in which it is possible. `python -m tests.races.pairs` plays all, and prints which operation waits for which.

A call that stores a single row never waits, so it can also come between two statements of an operation: each operation
is played with a small checkpoint and a write that are stored before each of its statements.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
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
from tests.faults.workload import WAITING
from tests.races.calls import Answer, Call, Done, do, retention
from tests.races.model import NEW, OLD, Model, State, config_of
from tests.races.plans import LOG
from tests.races.rounds import describe, read_final_state
from tests.races.search import Step, Verdict, explain, steps_of
from tests.stores import Store
from tests.tables import TABLES, empty_tables

# The thread of the pair, two threads that are copied and forked to it, and one that it is copied and forked to.
THREAD, SOURCE, OTHER, TARGET = THREADS = ("t", "source", "other source", "target")

BLOB = {"text": "b" * 20_000}
ITEMS = [f"{index} " + "p" * 500 for index in range(40)]

# The number of the checkpoint that is stored between the statements of an operation.
ROW = 95


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
    """A put of the checkpoint `number`; a channel that is not new has the version of an earlier one."""
    channels = {channel: f"{versions.get(channel, number):032d}.{0:016d}" for channel in {*values, *new}}
    metadata: dict[str, Any] = {"source": "loop", "step": number, "parents": {}, "run_id": run_id}
    if delta:
        channels[LOG] = f"{number:032d}.{0:016d}"
        new = [*new, LOG]
        if LOG not in values:
            metadata["counters_since_delta_snapshot"] = {LOG: [1, 1]}
    location: dict[str, Any] = {"thread_id": thread_id, "checkpoint_ns": checkpoint_ns}
    if parent is not None:
        location["checkpoint_id"] = id_of(parent)
    checkpoint = {
        "v": 4,
        "id": checkpoint_id or id_of(number),
        "ts": ts,
        "channel_values": dict(values),
        "channel_versions": channels,
        "versions_seen": {},
        "updated_channels": sorted(new),
    }
    return Call(
        "put", ({"configurable": location}, checkpoint, metadata, {channel: channels[channel] for channel in new})
    )


def id_of(number: int) -> str:
    """The id of a checkpoint."""
    return f"{number:026d}"


def written(thread_id: str, of: int | str, value: Any, run_id: str = "old", task: str = "") -> Call:
    """A put_writes for a checkpoint, given by its number or id."""
    checkpoint_id = of if isinstance(of, str) else id_of(of)
    config = {**config_of((thread_id, "", checkpoint_id)), "metadata": {"run_id": run_id}}
    return Call("put_writes", (config, [(LOG, value)], task or f"task {of}"))


def history_of(thread_id: str, first: int, *, delta: bool) -> Iterator[Call]:
    """Five checkpoints with a large value that the third replaces, one in chunks that grows, and a memory."""
    chunked: dict[str, Any] = {}
    for number in range(first, first + 5):
        index = number - first
        blob = first if index < 2 else first + 2
        chunked = {"chunks": [*ITEMS, *map(str, range(index))]}
        values = {"small": number, "blob": [BLOB, blob], **chunked}
        if delta and index == 0:
            values[LOG] = _DeltaSnapshot([number])
        new = ["small", "chunks", *(["blob"] if number == blob else [])]
        yield put(
            thread_id, number, parent=number - 1 if index else None, values=values, new=new,
            versions={"blob": blob}, run_id="old" if index < 3 else "new", delta=delta,
        )  # fmt: skip
        yield written(thread_id, number, [number], "old" if index < 3 else "new")
    for number in (first + 5, first + 6):
        values = {"blob": [BLOB, number]}
        parent = None if number == first + 5 else first + 5
        yield put(thread_id, number, parent=parent, checkpoint_ns="memory", values=values, new=["blob"])


def beginning(name: str) -> list[Call]:
    """What is stored after the sources."""
    if name == "copy":
        return [Call("copy_thread", (SOURCE, THREAD))]
    if name == "empty":
        return []
    calls = list(history_of(THREAD, 10, delta=name == "delta"))
    if name != "plain":
        calls.append(Call("label", (config_of((THREAD, "", id_of(11))), "label")))
    return calls


@dataclass(frozen=True)
class Operation:
    """An operation on the thread.

    Attributes:
        beginnings: From which beginnings it is played.
        call: The call, given the number of the thread's first checkpoint, whether it is the second of the pair, and
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
    """Continue from an older checkpoint, with a value that only older ones have."""
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
NOT_EMPTY = "plain labelled delta copy"
MAKING = "copy empty"

OPERATIONS: Mapping[str, Operation] = {
    "put": _operation(ALL, _put_small),
    "put_blob": _operation("plain labelled copy empty", _put_blob),  # With a delta channel: put_delta.
    "put_reference": _operation(NOT_EMPTY, _put_reference),
    "put_delta": _operation("delta", _put_delta),
    "put_writes": _operation(
        ALL, lambda first, second, path: written(THREAD, first + 4, "late", "new", f"late task {second}")
    ),
    "delete_thread": _operation(ALL, lambda first, second, path: Call("delete_thread", (THREAD,))),
    "delete_checkpoint": _operation(
        NOT_EMPTY,
        lambda first, second, path: Call("delete_checkpoint", (config_of((THREAD, "", id_of(first + 4 - second))),)),
    ),
    "delete_for_runs": _operation(ALL, lambda first, second, path: Call("delete_for_runs", (["new"],))),
    "prune": _operation(ALL, lambda first, second, path: Call("prune", ([THREAD],))),
    "sweep": _operation(ALL, lambda first, second, path: Call("sweep", (retention(1),))),
    "rollback": _operation(
        NOT_EMPTY, lambda first, second, path: Call("rollback", (THREAD, id_of(first + 2 - second)))
    ),
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
    "unlabel": _operation("labelled delta", lambda first, second, path: Call("unlabel", (THREAD, "label"))),
    "set_ttl": _operation(ALL, lambda first, second, path: Call("set_ttl", (THREAD, timedelta(days=1)))),
    "claim": _operation(ALL, lambda first, second, path: Call("claim", (THREAD,), owner=f"owner {second}")),
    "import": _operation(MAKING, lambda first, second, path: Call("import_file", (path,))),
    "reencrypt": _operation(ALL, lambda first, second, path: Call("reencrypt")),
}

MAKERS = frozenset({"copy_to", "fork_to", "import"})

# Operations that start again if a checkpoint is stored in their source meanwhile.
COPYING = frozenset({"copy_from", "fork_from"})

# Operations on a checkpoint that may be stored meanwhile.
NAMING = frozenset({"delete_checkpoint", "rollback"})


def beginnings(first: str, second: str) -> list[str]:
    """The beginnings of a pair: "copy" and "empty" are there for operations that create a thread."""
    both = OPERATIONS[first].beginnings & OPERATIONS[second].beginnings
    wanted = set(ALL.split()) if {first, second} & MAKERS else {"plain", "labelled", "delta"}
    return [each for each in ALL.split() if each in both & wanted]


# A claim cannot be the first, since it is refused in a caller's transaction.
PAIRS = [pair for pair in product(OPERATIONS, repeat=2) if beginnings(*pair) and pair[0] != "claim"]


@dataclass(frozen=True)
class Played:
    """The result of a pair."""

    waited: bool
    verdict: Verdict
    problem: str


class Watched(psycopg.Connection[Any]):
    """A connection that calls a function before each of its statements."""

    before: Callable[[], None] | None = None

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        if self.before is not None:
            self.before()
        return super().wait(*args, **kwargs)


class Bench:
    """A database with a beginning, which is restored for each pair, and the savers for the pair.

    Args:
        url: A separate database with the tables in it.
        folder: For the file that is imported.
        stack: Closes what is opened.
    """

    def __init__(self, url: str, folder: Path, stack: ExitStack) -> None:
        self._store = Store("postgres", url)
        self._path = str(folder / "export")
        # A saver like all others, and one that stores everything again in another form.
        self.free = [stack.enter_context(PostgresSaver(url, compress=each)) for each in (True, False)]
        self._watcher = stack.enter_context(psycopg.connect(url, autocommit=True))
        self.connection = stack.enter_context(Watched.connect(url, autocommit=True))
        self._held = [PostgresSaver(self.connection, compress=each) for each in (True, False)]
        for saver in (*self.free, *self._held):
            saver.thread_exists("nobody's")  # Each checks once whether the tables exist.
        self._models: dict[str, tuple[Model, State]] = {}

    def play(self, first: str, second: str, begun: str) -> Played:
        """Play a pair."""
        model, start = self.begin(begun)
        number = {"copy": 50, "empty": 0}.get(begun, 10)  # That of the thread's first checkpoint.
        calls = [
            OPERATIONS[first].call(number, False, self._path),
            OPERATIONS[second].call(number, True, self._path),
        ]
        answers: list[Answer] = []
        leases: dict[str, Any] = {}

        def meanwhile() -> None:
            answers.append(do(self.free[_is_renewing(calls[1])], calls[1], leases))

        worker = threading.Thread(target=meanwhile)
        try:
            with self.connection.transaction():
                answers.append(do(self._held[_is_renewing(calls[0])], calls[0], leases))
                worker.start()
                waited = self.waits(worker)
            worker.join()
            both = zip((first, second), calls, answers, strict=True)
            history = [Done(name, call, 1, 2, answer) for name, call, answer in both]
            steps = [
                step._replace(effect=step.effect._replace(among=False)) for step in steps_of(model, history, THREADS)
            ]
            title = f"{first} held, {second} meanwhile, from {begun!r}"
            return self._judged(title, model, start, steps, {Verdict.FINE}, waited=waited)
        finally:
            for lease in leases.values():
                lease.__exit__(None, None, None)

    def play_with_row(self, name: str, begun: str, before: int, which: str) -> Played | None:
        """Play an operation, and store a checkpoint and a write before one of its statements.

        With a delta channel, a checkpoint waits for an operation that locks the thread; a write does not.

        Args:
            name: The operation.
            begun: The beginning.
            before: The number of the statement.
            which: Whether that checkpoint is the "newest", "named" in the operation, or "between" others.

        Returns:
            None if there are fewer statements.
        """
        model, start = self.begin(begun)
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
                self.connection.before = None
                for now, each in enumerate(rows, 1):
                    history.append(Done("row", replace(each, single_row=True), now, now, do(self.free[0], each, {})))

        leases: dict[str, Any] = {}
        try:
            self.connection.before = store
            # A claim is refused in a caller's transaction.
            with nullcontext() if name == "claim" else self.connection.transaction():
                answer = do(self._held[_is_renewing(call)], call, leases)
                again = name in COPYING and answer[0] == "error" and answer[1].startswith("Contention:")
                if again:
                    raise psycopg.Rollback
            if again:  # In a transaction of the caller's, the caller has to retry.
                with self.connection.transaction():
                    answer = do(self._held[0], call, leases)
        finally:
            self.connection.before = None
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
        left = read_final_state(self.free[0], self._store, THREADS)
        found = explain(model, start, steps, THREADS, partial(left.is_of, model))
        if found.verdict in right and not left.broken:
            return Played(waited, found.verdict, "")
        return Played(waited, found.verdict, describe(title, THREADS, model, start, steps, left, found))

    def waits(self, worker: threading.Thread) -> bool:
        while worker.is_alive():
            if self._watcher.execute(WAITING).fetchall():
                return True
        return False

    def begin(self, name: str) -> tuple[Model, State]:
        """Restore a beginning."""
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
                answer = do(self.free[0], call, {})
                assert answer[0] == "ok", answer
                for effect in model.effects(call, THREADS, among=False):
                    (state,) = model.outcomes(state, effect, answer)

        if name in MAKING.split():  # The imported thread is the source, with the id of the thread.
            perform(list(history_of(THREAD, 50, delta=False)))
            Path(self._path).unlink(missing_ok=True)
            export_file(self.free[0], self._path)
            model.exported[self._path] = THREAD, state.content(THREAD)
            perform([Call("copy_thread", (THREAD, SOURCE)), Call("delete_thread", (THREAD,))])
            perform(list(history_of(OTHER, 70, delta=False)))
        perform(beginning(name))
        return model, state


def _is_renewing(call: Call) -> bool:
    return call.name == "reencrypt"


@contextmanager
def made_bench(dsn: str, template: str | None = None) -> Iterator[Bench]:
    """A bench on a separate database."""
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
    with running_postgres() as dsn, made_bench(dsn) as bench:
        print("held | meanwhile | from: waited, verdict")
        for first, second in PAIRS:
            for begun in beginnings(first, second):
                played = bench.play(first, second, begun)
                print(f"{first} | {second} | {begun}: {'waited' if played.waited else '-'}, {played.verdict.name}")
                if played.problem:
                    wrong[first, second, begun] = played.problem
    for problem in wrong.values():
        print(problem)
    print(f"{len(wrong)} wrong:", *(" + ".join(key) for key in wrong), sep="\n")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(min(main(), 1))
