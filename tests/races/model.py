"""What each call does to a store if it runs alone: the oracle of `tests/model`, thread by thread.

A state is a number for each thread's content, so states are cheap to compare and remember. A call that changes several
threads in separate transactions (`prune`, `delete_for_runs`, `sweep`) has an effect for each thread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig

from langgraph_checkpoint_custom import CheckpointError, Retention
from tests.model.oracle import Oracle
from tests.model.storing import Key, exact
from tests.races.calls import READS, Answer, Call, comparable, record_of

# Anything older was there before the round, and is what a sweep considers old.
NEW = "2099-01-01T00:00:00+00:00"
OLD = "2025-01-01T00:00:00+00:00"


# The result of a method that returns nothing.
NO_RESULT: Answer = ("ok", exact(None))


class Content(NamedTuple):
    """The complete content of a thread, in a form that can be compared."""

    storage: frozenset[Any]
    writes: frozenset[Any]
    wrote: frozenset[Any]
    blobs: frozenset[Any]
    own: frozenset[Any]
    populated_channels: frozenset[Any]
    hidden: frozenset[Key]
    named: frozenset[Any]
    strategies: frozenset[Any]


EMPTY = Content(*[frozenset()] * 9)


class State(NamedTuple):
    """A store: for each thread the number of its content, and who has claimed it; sorted, without empty threads."""

    threads: tuple[tuple[str, int], ...] = ()
    claims: tuple[tuple[str, str], ...] = ()

    def content(self, thread_id: str) -> int:
        return dict(self.threads).get(thread_id, 0)

    def having(self, contents: Mapping[str, int]) -> State:
        threads = {**dict(self.threads), **contents}
        return self._replace(threads=tuple(sorted((name, number) for name, number in threads.items() if number)))

    def claimed(self, thread_id: str, owner: str | None) -> State:
        claims = {**dict(self.claims), thread_id: owner}
        return self._replace(claims=tuple(sorted((name, each) for name, each in claims.items() if each)))


class Effect(NamedTuple):
    """A call, or what it does to one thread."""

    call: Call
    thread_id: str | None = None
    """The one thread, if the call changes several in separate transactions."""
    among: bool = True
    """Whether other calls run concurrently."""


class Model:
    """The contents so far, with their numbers, and what each call does to each.

    Attributes:
        exported: For `import_file`, the thread and its content in each file, by path.
    """

    def __init__(self) -> None:
        self._contents: list[Content] = [EMPTY]
        self._numbers: dict[Content, int] = {EMPTY: 0}
        self._orphans: dict[int, Call] = {}
        self._oracle = Oracle()
        self._known: dict[Hashable, tuple[Answer, Mapping[str, int]]] = {}
        self._keep: list[Effect] = []  # An id may be reused after its object was deleted.
        self.exported: dict[str, tuple[str, int]] = {}

    # What a call does

    def effects(self, call: Call, threads: Iterable[str], *, among: bool = True) -> list[Effect]:
        """The effects of a call, each of which happens at one moment."""
        if call.name == "prune":
            return [Effect(call, thread_id, among) for thread_id in call.args[0]]
        if call.name in ("delete_for_runs", "sweep"):
            return [Effect(call, thread_id, among) for thread_id in threads]
        return [Effect(call, None, among)]

    def reaches(self, effect: Effect, state: State) -> set[str]:
        """The threads whose content an effect reads or changes."""
        call = effect.call
        if effect.thread_id is not None:
            return {effect.thread_id}
        if call.name in ("copy_thread", "fork_thread"):
            return set(call.args[:2])
        if call.name == "import_file":
            return {self.exported[call.args[0]][0]}
        if call.name == "reencrypt":
            return set()
        first = call.args[0] if call.args else call.kwargs.get("config")
        if first is None:
            return {name for name, _ in state.threads}
        return {first if isinstance(first, str) else first["configurable"]["thread_id"]}

    def changes(self, effect: Effect, state: State) -> set[str]:
        """The threads whose content an effect may change: for a copy or a fork, the target.

        A call for all threads first looks where it has something to do, and does not touch the others.
        """
        if effect.call.name in ("copy_thread", "fork_thread"):
            return {effect.call.args[1]}
        if effect.call.name in ("delete_for_runs", "sweep") and set(self.outcomes(state, effect, NO_RESULT)) == {state}:
            return set()
        return self.reaches(effect, state)

    def without_parent(self, effect: Effect) -> list[Effect]:
        """The same put without its parent, if it has one."""
        call = effect.call
        if call.name != "put" or "checkpoint_id" not in call.args[0]["configurable"]:
            return []
        if id(call) not in self._orphans:
            self._keep.append(effect)
            location = {name: each for name, each in call.args[0]["configurable"].items() if name != "checkpoint_id"}
            self._orphans[id(call)] = replace(call, args=({"configurable": location}, *call.args[1:]))
        return [effect._replace(call=self._orphans[id(call)])]

    def outcomes(self, state: State, effect: Effect, answer: Answer) -> Sequence[State]:
        """The states that an effect may leave, given its result; none if the result is wrong."""
        call = effect.call
        if answer[0] == "none" or call.name == "reencrypt":
            return [state] if answer[0] != "error" else []
        if call.name == "claim":
            holder = dict(state.claims).get(call.args[0])
            if answer == ("error", "ThreadBusy"):
                return [state] if holder else []
            return [state.claimed(call.args[0], call.owner)] if answer[0] == "ok" and not holder else []
        if call.name == "release":
            held = dict(state.claims).get(call.args[0]) == call.owner
            return [state.claimed(call.args[0], None)] if held and answer[0] == "ok" else []
        if call.name == "import_file":
            return self._imported(state, call, answer)
        if call.name == "sweep":
            return self._swept(state, effect, answer)
        if call.owner and dict(state.claims).get(self.thread_of(call)) != call.owner:
            return [state] if answer == ("error", "ClaimLost") else []
        if call.name == "put" and self._apply(state, effect, _may_be_refused)[0][1]:
            # Both results are correct.
            if answer == ("error", "CheckpointNotFound"):
                return [state]
            found, contents = self._apply(state, effect, _put_anyway)
            return [state.having(contents)] if answer == found else []
        found, contents = self._apply(state, effect, asked_of_oracle)
        return [state.having(contents)] if answer == found else []

    def over_deleted(self, state: State, effect: Effect, base: State, answer: Answer) -> Sequence[State]:
        """The states after a `put_writes` that conflicted with rows of `base` which a deletion has deleted since."""
        if effect.call.name != "put_writes":
            return []
        thread_id = self.thread_of(effect.call)
        config = effect.call.args[0]["configurable"]
        location = (thread_id, config["checkpoint_ns"], config["checkpoint_id"])
        before, now = self._contents[base.content(thread_id)], self._contents[state.content(thread_id)]
        there = dict(dict(now.writes).get(location, ()))
        lost = {slot: row for slot, row in dict(before.writes).get(location, ()) if slot not in there}
        if not lost:
            return []
        with_lost = self._having_writes(now, location, {**there, **lost})
        found = []
        for left in self.outcomes(state.having({thread_id: self._number(with_lost)}), effect, answer):
            content = self._contents[left.content(thread_id)]
            written = dict(dict(content.writes)[location])
            retained = {slot: row for slot, row in written.items() if row != lost.get(slot)}
            found.append(left.having({thread_id: self._number(self._having_writes(content, location, retained))}))
        return found

    def _having_writes(self, content: Content, location: Any, slots: Mapping[Any, Any]) -> Content:
        """The content with other writes for one checkpoint."""
        others = {each: rows for each, rows in content.writes if each != location}
        wrote = {each for each in content.wrote if each[0][0] != location or each[0][1] in slots}
        if slots:
            others[location] = frozenset(slots.items())
        return content._replace(writes=frozenset(others.items()), wrote=frozenset(wrote))

    def thread_of(self, call: Call) -> str:
        """The thread of a write."""
        thread_id: str = call.args[0]["configurable"]["thread_id"]
        return thread_id

    def answer(self, state: State, call: Call, thread_id: str | None = None) -> Answer:
        """The result of a call, or of its effect on a thread."""
        return self._apply(state, Effect(call, thread_id), asked_of_oracle)[0]

    def ids(self, state: State, thread_id: str) -> tuple[set[Key], set[Key]]:
        """The visible checkpoints of a thread, and the hidden ones."""
        content = self._contents[state.content(thread_id)]
        keys = {Key(thread_id, checkpoint_ns, checkpoint_id) for checkpoint_ns, checkpoint_id, _ in content.storage}
        return keys - content.hidden, set(content.hidden)

    def strategy(self, state: State, thread_id: str) -> str | None:
        """What is done with a thread after its time to live, if it has one."""
        return dict(self._contents[state.content(thread_id)].strategies).get(thread_id)

    def _imported(self, state: State, call: Call, answer: Answer) -> Sequence[State]:
        thread_id, number = self.exported[call.args[0]]
        if answer[0] != "ok":
            return []
        there, imported = self._contents[state.content(thread_id)], self._contents[number]
        if there.strategies:  # A thread may have a time to live, and no checkpoint any more. It keeps that time.
            imported = imported._replace(strategies=there.strategies)
        if there == imported:  # Its rows may differ, compressed or not: then it says so.
            return [state]
        if there._replace(strategies=frozenset()) == EMPTY and thread_id not in dict(state.claims):
            return [] if answer[1] else [state.having({thread_id: self._number(imported)})]
        return [state] if answer[1] else []

    def _swept(self, state: State, effect: Effect, answer: Answer) -> Sequence[State]:
        if answer[0] != "ok":
            return []
        found, contents = self._apply(state, effect, _sweep)
        left = state.having(contents)
        if not effect.among:
            return [left] if found[0] == "ok" else []
        # A checkpoint from which a run continues meanwhile may stay: the next sweep deletes it.
        also = [left] if left != state else []
        keep: Retention = effect.call.args[0]
        if keep.older_than is not None:
            also.append(state.having(self._apply(state, effect, _prune_one)[1]))
        return [state, *also]

    def _apply(
        self, state: State, effect: Effect, perform: Callable[[Oracle, Effect], Answer]
    ) -> tuple[Answer, Mapping[str, int]]:
        """The result of the oracle, and the threads that it has changed."""
        reached = sorted(self.reaches(effect, state))
        key = (id(effect.call), effect.thread_id, perform, *((name, state.content(name)) for name in reached))
        if key not in self._known:
            self._keep.append(effect)
            self._load({name: state.content(name) for name in reached})
            answer = perform(self._oracle, effect)
            is_read = effect.call.name in READS
            self._known[key] = answer, {} if is_read else {name: self._number(self._stored(name)) for name in reached}
        return self._known[key]

    # Contents

    def _number(self, content: Content) -> int:
        number = self._numbers.setdefault(content, len(self._contents))
        if number == len(self._contents):
            self._contents.append(content)
        return number

    def _load(self, threads: Mapping[str, int]) -> None:
        oracle = self._oracle
        oracle.storage = defaultdict(lambda: defaultdict(dict))
        oracle.writes = defaultdict(dict)
        oracle.blobs = {}
        oracle.own, oracle.populated_channels, oracle.hidden, oracle.wrote, oracle.named = {}, {}, set(), {}, {}
        oracle.strategies = {}
        for thread_id, number in threads.items():
            content = self._contents[number]
            for checkpoint_ns, checkpoint_id, row in content.storage:
                oracle.storage[thread_id][checkpoint_ns][checkpoint_id] = row
            for location, slots in content.writes:
                oracle.writes[location] = dict(slots)
            oracle.wrote.update(dict(content.wrote))
            oracle.blobs.update(dict(content.blobs))
            oracle.own.update(dict(content.own))
            oracle.populated_channels.update(dict(content.populated_channels))
            oracle.hidden |= content.hidden
            oracle.named.update(dict(content.named))
            oracle.strategies.update(dict(content.strategies))

    def _stored(self, thread_id: str) -> Content:
        oracle = self._oracle
        spaces = oracle.storage.get(thread_id, {})
        return Content(
            frozenset((space, each, row) for space, rows in spaces.items() for each, row in rows.items()),
            frozenset((k, frozenset(v.items())) for k, v in oracle.writes.items() if k[0] == thread_id and v),
            frozenset(
                (k, v) for k, v in oracle.wrote.items() if k[0][0] == thread_id and k[1] in oracle.writes.get(k[0], {})
            ),
            frozenset((k, v) for k, v in oracle.blobs.items() if k[0] == thread_id),
            frozenset((k, v) for k, v in oracle.own.items() if k.thread_id == thread_id),
            frozenset((k, v) for k, v in oracle.populated_channels.items() if k.thread_id == thread_id),
            frozenset(key for key in oracle.hidden if key.thread_id == thread_id),
            frozenset((k, v) for k, v in oracle.named.items() if k[0] == thread_id),
            frozenset((k, v) for k, v in oracle.strategies.items() if k == thread_id),
        )


# Calls of the oracle


def asked_of_oracle(oracle: Oracle, effect: Effect) -> Answer:
    """The result of the oracle."""
    call = effect.call
    try:
        if call.name == "prune":
            if call.kwargs.get("strategy") == "delete":
                oracle.delete_thread(effect.thread_id or "")
            else:
                oracle.prune([effect.thread_id or ""])
            return "ok", comparable(call, None)
        if call.name == "thread_exists":
            return "ok", comparable(call, bool(oracle.visible(call.args[0])))
        if call.name == "history":
            return "ok", [record_of(each) for each in oracle.list(*call.args, **call.kwargs)]
        found: Any = getattr(oracle, call.name)(*call.args, **call.kwargs)
        return "ok", comparable(call, list(found) if call.name == "list" else found)
    except CheckpointError as error:
        return "error", type(error).__name__


def _may_be_refused(oracle: Oracle, effect: Effect) -> Answer:
    return "ok", oracle.refuses(*effect.call.args) is None


def _put_anyway(oracle: Oracle, effect: Effect) -> Answer:
    refuses = oracle.refuses
    oracle.refuses = lambda *args: False  # type: ignore[method-assign]
    try:
        return asked_of_oracle(oracle, effect)
    finally:
        oracle.refuses = refuses  # type: ignore[method-assign]


def _sweep(oracle: Oracle, effect: Effect) -> Answer:
    keep: Retention = effect.call.args[0]
    thread_id = effect.thread_id or ""
    if not oracle.visible(thread_id):
        return "ok", None
    newest = max(oracle.visible(thread_id), key=lambda key: key.checkpoint_id)
    pinned = any(key.thread_id == thread_id for key in oracle.named.values())
    strategy = oracle.strategies.get(thread_id)
    idle = (keep.older_than is not None or strategy) and oracle.document(newest)["ts"] < NEW
    if idle and strategy:
        oracle.prune([thread_id], strategy=strategy)
    elif idle and not pinned:
        oracle.delete_thread(thread_id)
    elif idle:
        keep_last(oracle, thread_id, 1)
    elif keep.keep_last is not None:
        keep_last(oracle, thread_id, keep.keep_last)
    return "ok", None


def _prune_one(oracle: Oracle, effect: Effect) -> Answer:
    """What a sweep does with an old thread that had a label when it looked."""
    keep_last(oracle, effect.thread_id or "", 1)
    return "ok", None


def keep_last(oracle: Oracle, thread_id: str, number: int) -> None:
    """What a sweep keeps: the newest `number` checkpoints of each namespace, as a prune keeps one."""
    if number == 1:
        oracle.prune([thread_id])
        return
    heads: dict[str, list[Key]] = {}
    for key in sorted(oracle.visible(thread_id), reverse=True):
        if len(heads.setdefault(key.checkpoint_ns, [])) < number:
            heads[key.checkpoint_ns].append(key)
    roots = heads.get("", [])
    labelled = {key for key in oracle.named.values() if key.thread_id == thread_id}
    retained = oracle._pinned(thread_id)
    for checkpoint_ns, keys in heads.items():
        root_id = oracle._root(keys[0])
        root = Key(thread_id, "", root_id)
        finished = ":" in checkpoint_ns and root_id and root not in roots and root not in labelled
        if not (finished and ((roots and root_id < roots[0].checkpoint_id) or root in oracle.keys(thread_id))):
            retained.update(keys)
    for root in roots[1:]:
        for checkpoint_ns in heads:
            if checkpoint_ns and ":" not in checkpoint_ns:
                older = [key for key in oracle.visible(thread_id) if key.checkpoint_ns == checkpoint_ns]
                older = [key for key in older if key.checkpoint_id < root.checkpoint_id]
                retained.update(sorted(older)[-1:])
    oracle._remove(oracle.keys(thread_id) - retained)


def config_of(key: Key | tuple[str, str, str]) -> RunnableConfig:
    """The config of a checkpoint."""
    thread_id, checkpoint_ns, checkpoint_id = key
    location = {"thread_id": thread_id, "checkpoint_ns": checkpoint_ns, "checkpoint_id": checkpoint_id}
    return {"configurable": location}
