"""Rounds on one database: store, make concurrent calls, read the final state, and look for an order that fits."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from langgraph_checkpoint_custom import CheckpointSaver
from langgraph_checkpoint_custom.tools.exchange import export_file
from tests.crash.processes import Process
from tests.invariants import Tables, read_tables, violations, without_old_chunks
from tests.model.storing import Key
from tests.races.calls import Answer, Call, Done, do
from tests.races.model import Effect, Model, State, config_of
from tests.races.plans import LOG, Caller, Mix, Plan, Round
from tests.races.search import Found, Step, Verdict, explain, steps_of
from tests.races.workers import work
from tests.stores import Store
from tests.tables import empty_tables

# Nanoseconds until all processes begin.
SOON = 2_000_000


@dataclass
class FinalState:
    """The final state of a round: the keys of checkpoints, results of reads, and broken rules."""

    visible: dict[str, set[Key]]
    hidden: dict[str, set[Key]]
    strategies: dict[str, str]
    answers: list[tuple[Call, Answer]]
    broken: list[str]

    def is_of(self, model: Model, state: State, threads: Collection[str]) -> bool:
        """Whether this agrees with some threads of a state."""
        return all(
            model.ids(state, each) == (self.visible[each], self.hidden[each])
            and model.strategy(state, each) == self.strategies.get(each)
            for each in threads
        ) and all(
            model.answer(state, call) == answer
            for call, answer in self.answers
            if model.reaches(Effect(call), state) <= set(threads)
        )


@dataclass
class Outcome:
    """The results of some rounds."""

    rounds: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    rolled_back: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_meaningful(self) -> bool:
        """Whether most rounds could be decided, and most calls were not rolled back."""
        undecided, rolled_back = self.verdicts[Verdict.UNKNOWN], self.rolled_back.total()
        return 2 * undecided < self.rounds and 2 * rolled_back < self.calls.total()


class Races:
    """Rounds on a store that nothing else uses.

    Args:
        store: An empty store.
        saver: A saver on it, which fills and reads it.
        processes: Those that make the calls.
        folder: For the files that are exported and imported.
    """

    def __init__(self, store: Store, saver: CheckpointSaver, processes: Sequence[Process], folder: Path) -> None:
        self._store = store
        self._saver = saver
        self._processes = processes
        self._folder = folder

    def run(
        self,
        seed: str,
        mix: Mix,
        *,
        rounds: int | None = None,
        seconds: float | None = None,
        problems: int = 1,
        first: int = 0,
        again: bool = False,
    ) -> Outcome:
        """Play rounds until there were `rounds`, or `seconds` have passed, or there were too many `problems`.

        Args:
            seed: Determines all rounds.
            mix: Which calls are made.
            rounds: How many rounds at most.
            seconds: How long at most.
            problems: How many problems at most.
            first: The number of the first round.
            again: Whether to repeat that round.
        """
        outcome = Outcome()
        begun = time.monotonic()
        number = first
        while rounds is None or outcome.rounds < rounds:
            if seconds is not None and time.monotonic() - begun > seconds:
                break
            holds = self._store.kind == "postgres"
            plan = Plan(seed, number, mix, holds=holds, folder=str(self._folder))
            try:
                self._round(plan.round(), outcome, seed)
            except AssertionError as error:
                raise AssertionError(f"round {number} of seed {seed!r}: {error}") from error
            number += not again
            if len(outcome.problems) >= problems:
                break
        outcome.seconds = time.monotonic() - begun
        return outcome

    def _round(self, planned: Round, outcome: Outcome, seed: str) -> None:
        empty_tables(self._store)
        model = Model()
        start = self._prepared(planned, model)
        history = self._made(planned)
        left = read_final_state(self._saver, self._store, planned.threads)
        steps = steps_of(model, history, planned.threads)
        found = explain(model, start, steps, planned.threads, partial(left.is_of, model))
        outcome.rounds += 1
        outcome.verdicts[found.verdict] += 1
        outcome.calls.update(done.call.name for done in history)
        outcome.rolled_back.update(
            done.call.name for done in history if done.answer[0] == "none" and ":" in done.answer[1]
        )
        if found.verdict is Verdict.WRONG or left.broken:
            title = f"round {planned.number} of seed {seed!r}"
            outcome.problems.append(describe(title, planned.threads, model, start, steps, left, found))

    def _prepared(self, planned: Round, model: Model) -> State:
        """Store the beginning of a round."""
        state = State()
        for number, call in enumerate(planned.setup):
            if planned.exported and planned.exported[0] == number:
                _, thread_id, path = planned.exported
                Path(path).unlink(missing_ok=True)
                export_file(self._saver, path)
                model.exported[path] = thread_id, state.content(thread_id)
            answer = do(self._saver, call, {})
            for effect in model.effects(call, planned.threads, among=False):
                states = model.outcomes(state, effect, answer)
                assert states, f"it begins with another answer than expected: {call} {answer}"
                state = states[0]
        return state

    def _made(self, planned: Round) -> list[Done]:
        """Let the callers make their calls."""
        by_process: list[list[Caller]] = [[] for _ in self._processes]
        for caller in planned.callers:
            by_process[caller.process].append(caller)
        warm = planned.threads if planned.warm else ()
        for process, callers in zip(self._processes, by_process, strict=True):
            process.send((callers, warm))
        for process in self._processes:
            assert process.receive() == "ready"
        begin = time.monotonic_ns() + SOON
        for process in self._processes:
            process.send(begin)
        # The calls were pickled; the model compares them by value.
        mine = {caller.name: list(caller.calls) for caller in planned.callers}
        found: list[Done] = []
        for process in self._processes:
            found += [replace(done, call=mine[done.caller].pop(0)) for done in process.receive()]
        return found


@contextmanager
def races(store: Store, processes: int) -> Iterator[Races]:
    """Processes that work on a store, which must have its tables."""
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        options: dict[str, Any] = {"synchronous": "OFF"} if store.kind == "sqlite" else {}
        saver = stack.enter_context(store.open(**options))
        saver.setup()
        at_work = [stack.enter_context(Process(work, store)) for _ in range(processes)]
        yield Races(store, saver, at_work, Path(folder))
        for process in at_work:
            process.send(None)
        for process in at_work:
            assert process.wait() == 0


def read_final_state(saver: CheckpointSaver, store: Store, threads: Sequence[str]) -> FinalState:
    """Read the final state."""
    tables = read_tables(store)
    visible: dict[str, set[Key]] = {thread_id: set() for thread_id in threads}
    hidden: dict[str, set[Key]] = {thread_id: set() for thread_id in threads}
    for row in tables.checkpoints:
        (hidden if row.hidden else visible)[row.thread_id].add(Key(*row[:3]))
    delta = {row[:2] for row in tables.checkpoints if LOG in row.delta_channels}
    calls: list[Call] = []
    for thread_id in threads:
        calls.append(Call("list", ({"configurable": {"thread_id": thread_id}},)))
        calls.append(Call("labels", (thread_id,)))
        calls += [Call("get_tuple", (config_of(key),)) for key in sorted(hidden[thread_id])]
        calls += [
            Call("get_delta_channel_history", kwargs={"config": config_of(key), "channels": [LOG]})
            for key in sorted(visible[thread_id])
            if key[:2] in delta
        ]
    answers = [(call, do(saver, call, {})) for call in calls]
    strategies = {thread_id: each for thread_id, each in tables.threads.items() if each}
    problems = [f"{call}: {a[1]}" for call, a in answers if a[0] == "error"]
    return FinalState(visible, hidden, strategies, answers, broken(tables) + problems)


def broken(tables: Tables) -> list[str]:
    """Rules of `tests/invariants.py` that are broken.

    Writes may be stored after the deletion of their checkpoint, and a version may be stored twice, or in a copy of its
    checkpoint.
    """
    there = {row[:3] for row in tables.checkpoints}
    writes = [write for write in tables.writes if write[:3] in there]
    threads = {thread_id: each for thread_id, each in tables.threads.items() if thread_id in {row[0] for row in there}}
    return list(violations(without_old_chunks(tables)._replace(writes=writes, threads=threads)))


def describe(
    title: str,
    threads: Sequence[str],
    model: Model,
    start: State,
    steps: Sequence[Step],
    left: FinalState,
    found: Found,
) -> str:
    """A description of a problem, for people."""
    history = {id(step.done): step.done for step in steps}.values()
    first = min(done.start for done in history)
    lines = [f"{title}: {found.verdict.value}"]
    lines += [f"  broken: {each}" for each in left.broken]
    lines.append("it began with:")
    for thread_id in threads:
        lines.append(f"  {thread_id!r}: {_ids(model, start, thread_id)}")
    lines.append("calls, by their ends, in ms:")
    for done in sorted(history, key=lambda done: done.end):
        when = f"{(done.start - first) / 1e6:8.2f} … {(done.end - first) / 1e6:8.2f}"
        lines.append(f"  {when}  caller {done.caller}: {done.call} -> {_answer(done.answer)}")
    lines.append("left:")
    for thread_id in threads:
        ttl = f", a time to live: {left.strategies[thread_id]}" if thread_id in left.strategies else ""
        lines.append(f"  {thread_id!r}: {_keys(left.visible[thread_id], left.hidden[thread_id])}{ttl}")
    lines += [f"  {call}: {_answer(answer)}" for call, answer in left.answers if call.name == "labels"]
    together = {each for step in found.furthest for each in model.reaches(step.effect, start)}
    # Those with the right checkpoints first.
    alike = sorted(
        found.ends,
        key=lambda state: sum(model.ids(state, each) != (left.visible[each], left.hidden[each]) for each in together),
    )
    for number, state in enumerate(alike[:4]):
        lines.append(f"all answers fit, but then this would be left ({number + 1} of {len(found.ends)}):")
        for thread_id in sorted(together):
            lines.append(f"  {thread_id!r}: {_ids(model, state, thread_id)}")
        for call, answer in left.answers:
            if model.reaches(Effect(call), state) <= together and model.answer(state, call) != answer:
                lines.append(f"  {call}: {difference(model.answer(state, call), answer)}")
    if not found.ends:
        lines.append("no order of more calls than this has right answers:")
        lines += [
            f"  {step.done.call}{f' in {step.effect.thread_id!r}' if step.effect.thread_id else ''}"
            for step in found.furthest
        ]
    return "\n".join(lines)


def difference(expected: Any, found: Any, path: str = "") -> str:
    """The first path at which two results differ."""
    if isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        pairs = [(key, expected[key], found[key]) for key in expected]
    elif isinstance(expected, (list, tuple)) and isinstance(found, (list, tuple)) and len(expected) == len(found):
        pairs = [(number, *pair) for number, pair in enumerate(zip(expected, found, strict=True))]
    elif isinstance(expected, list) and isinstance(found, list):
        return f"at {path or '/'} {len(expected)} items were expected, not {len(found)}"
    else:
        return f"at {path or '/'} {_short(expected)} was expected, not {_short(found)}"
    return next(difference(mine, theirs, f"{path}/{key}") for key, mine, theirs in pairs if mine != theirs)


def _short(anything: Any) -> str:
    text = re.sub(r"(bbb|ppp|www)[bpw]+", r"\1…", repr(anything))
    return text if len(text) <= 300 else f"{text[:300]}…"


def _ids(model: Model, state: State, thread_id: str) -> str:
    text = _keys(*model.ids(state, thread_id))
    labels = model.answer(state, Call("labels", (thread_id,)))[1]
    if strategy := model.strategy(state, thread_id):
        text += f", a time to live: {strategy}"
    return f"{text}, labels {sorted(labels[1])}" if labels[1] else text


def _keys(visible: set[Key], hidden: set[Key]) -> str:
    def listed(keys: set[Key]) -> str:
        return " ".join(f"{key.checkpoint_ns}/{key.checkpoint_id.lstrip('0')}" for key in sorted(keys)) or "nothing"

    return listed(visible) + (f", hidden {listed(hidden)}" if hidden else "")


def _answer(answer: Answer) -> str:
    text = f"{answer[0]} {answer[1]}"
    return text if len(text) < 200 else f"{text[:200]}…"
