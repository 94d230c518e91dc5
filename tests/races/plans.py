"""Rounds: what is stored first, and who then makes which calls concurrently. All of it comes from a seed.

A round has a few threads, and each caller makes one to three calls on them:

- "a" has most of the traffic: checkpoints of several runs, large values that are shared, values in chunks, a subgraph
  with a memory and calls of others, labels, perhaps a `DeltaChannel`
- "b" is a shorter one
- "c" is empty, or a copy of "a" or "b": the target of copies and forks
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.types import INTERRUPT, _DeltaSnapshot

from tests.model.storing import Key
from tests.races.calls import Call, retention
from tests.races.model import NEW, OLD, config_of

# The delta channel of root graphs that have one.
LOG = "log"
RUNS = ("run 0", "run 1", "run 2")
# Values with this many elements are stored in chunks: a list of 20 KB has a chunk for each few of them.
ELEMENTS = 40


@dataclass(frozen=True)
class Caller:
    """One caller, which makes its calls one after the other.

    Attributes:
        name: Its name.
        process: The number of its process.
        api: Whether it is an OS thread or a task of an event loop.
        calls: Its calls.
    """

    name: str
    process: int
    api: str
    calls: Sequence[Call]


@dataclass
class Round:
    """The calls of a round.

    Attributes:
        number: Its number, which its seed contains.
        setup: Calls that are made first, one after the other.
        exported: If a file is imported: how many of the first calls fill the exported store, the
            thread, and the file.
        callers: Who makes concurrent calls.
        threads: All threads.
        warm: Whether each process reads the threads first, and so knows the chunks of their values.
    """

    number: int
    setup: list[Call]
    callers: list[Caller]
    threads: Sequence[str]
    warm: bool
    exported: tuple[int, str, str] | None = None


@dataclass
class Known:
    """A planned checkpoint, whether it will be stored or not."""

    key: Key
    values: dict[str, Any]
    versions: dict[str, str]
    counters: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Mix:
    """How often each operation is called, and how.

    Attributes:
        weights: By operation; operations without a weight are not called.
        processes: The number of processes.
        callers: The maximal number of callers in total.
        calls: The maximal number of calls of each caller.
        hold: The share of calls that keep their transaction open for a moment.
    """

    weights: Mapping[str, float]
    processes: int = 2
    callers: int = 5
    calls: int = 2
    hold: float = 0.3


EVERYTHING: Mapping[str, float] = {
    "put": 10,
    "put_writes": 4,
    "get_tuple": 4,
    "list": 3,
    "history": 1,
    "get_delta_channel_history": 2,
    "labels": 1,
    "thread_exists": 1,
    "delete_thread": 2,
    "delete_checkpoint": 4,
    "delete_for_runs": 3,
    "prune": 6,
    "sweep": 3,
    "rollback": 4,
    "copy_thread": 4,
    "fork_thread": 4,
    "label": 4,
    "unlabel": 2,
    "set_ttl": 3,
    "claim": 2,
    "import_file": 1,
    "reencrypt": 1,
}


class Plan:
    """Plans one round."""

    def __init__(self, seed: str, number: int, mix: Mix, *, holds: bool, folder: str) -> None:
        self._random = random.Random(f"{seed} {number}")
        self._mix = mix
        self._holds = holds
        self._export = f"{folder}/{number}.export"
        self._number = number
        self._moment = 0
        self._version = 0
        self._known: dict[tuple[str, str], list[Known]] = {}
        self.threads = [f"{number} {name}" for name in "abc"]
        # As in threads of one graph: what a channel is rebuilt from is deleted while no thread has such a channel.
        self._delta = self._chance(0.3)
        self._claims = 0
        self._hot = [6, 1, 2]  # How often something happens in each thread.
        self._copied = ""  # The source of "c", if it is a copy.

    def round(self) -> Round:
        """The round."""
        setup: list[Call] = []
        exported = None
        a, b, c = self.threads
        if self._is_called("import_file") and self._chance(0.3 if len(self._mix.weights) > 4 else 1):
            setup += self._filled(c, self._random.randint(1, 3))
            exported = (len(setup), c, self._export)
            setup.append(Call("delete_thread", (c,)))
        setup += self._filled(a, self._random.randint(3, 6))
        setup += self._filled(b, self._random.randint(1, 3))
        if exported is None and self._chance(0.4):
            source = self._random.choice([a, b])
            setup.append(Call("copy_thread", (source, c)))
            for (thread_id, checkpoint_ns), known in list(self._known.items()):
                if thread_id == source:
                    copies = [
                        Known(each.key._replace(thread_id=c), each.values, each.versions, each.counters)
                        for each in known
                    ]
                    self._known[c, checkpoint_ns] = copies
            self._copied = source
            if self._chance(0.5):
                self._hot = [2, 1, 6]
        number = self._random.randint(2, self._mix.callers)
        processes = [(process, self._random.choice(["sync", "async"])) for process in range(self._mix.processes)]
        callers = []
        names = self._names(number, exported is not None)
        for index in range(number):
            process, api = processes[index % len(processes)]
            calls = list(self._calls(f"{index}", next(names)))
            callers.append(Caller(f"{index}", process, api, calls))
        return Round(self._number, setup, callers, self.threads, self._chance(0.7), exported)

    # Who makes which calls

    def _names(self, callers: int, can_import: bool) -> Iterator[list[str]]:
        """The operations of each caller; of a chosen few, each is called equally often."""
        weights = {name: each for name, each in self._mix.weights.items() if can_import or name != "import_file"}
        if len(weights) <= 4:
            each = list(weights)
            self._random.shuffle(each)
            for index in range(callers):
                yield [each[index % len(each)]]
            return
        for _ in range(callers):
            number = self._random.randint(1, self._mix.calls)
            yield self._random.choices(list(weights), list(weights.values()), k=number)

    def _calls(self, caller: str, names: Sequence[str]) -> Iterator[Call]:
        after = self._random.choice([0.0, 0.0, self._random.uniform(0, 0.004)])
        for name in names:
            for call in self._planned(name, caller):
                hold = 0.0
                if self._holds and call.name not in ("claim", "release") and self._chance(self._mix.hold):
                    hold = self._random.uniform(0.001, 0.008)
                yield Call(call.name, call.args, call.kwargs, call.owner, call.single_row, after, hold)
                after = 0.0

    def _planned(self, name: str, caller: str) -> Sequence[Call]:
        if name == "claim":
            thread_id = self._thread()
            self._claims += 1
            owner = f"{caller} {self._claims}"
            write: Call = self._random.choice([self._put_somewhere, self._put_writes])(thread_id)
            covered = Call(write.name, write.args, write.kwargs, owner)
            return [Call("claim", (thread_id,), owner=owner), covered, Call("release", (thread_id,), owner=owner)]
        made: Callable[[], Call] = getattr(self, f"_{name}")
        return [made()]

    def _put(self) -> Call:
        return self._put_somewhere(self._thread())

    def _get_tuple(self) -> Call:
        key = self._any(self._thread())
        if self._chance(0.6):
            return Call(
                "get_tuple", ({"configurable": {"thread_id": key.thread_id, "checkpoint_ns": key.checkpoint_ns}},)
            )
        return Call("get_tuple", (config_of(key),))

    def _list(self) -> Call:
        if self._chance(0.2):
            return Call("list", (None,))
        return Call("list", ({"configurable": {"thread_id": self._thread()}},))

    def _history(self) -> Call:
        return Call("history", ({"configurable": {"thread_id": self._thread()}},))

    def _get_delta_channel_history(self) -> Call:
        # The history of a hidden checkpoint may be incomplete; the newest is never hidden.
        config = {"configurable": {"thread_id": self._thread(), "checkpoint_ns": ""}}
        return Call("get_delta_channel_history", kwargs={"config": config, "channels": [LOG]})

    def _labels(self) -> Call:
        return Call("labels", (self._thread(),))

    def _thread_exists(self) -> Call:
        return Call("thread_exists", (self._thread(),))

    def _delete_thread(self) -> Call:
        return Call("delete_thread", (self._thread(),))

    def _delete_checkpoint(self) -> Call:
        key = self._any(self._thread(), newest=0.5)
        return Call("delete_checkpoint", (config_of(key),))

    def _delete_for_runs(self) -> Call:
        return Call("delete_for_runs", (self._random.sample(RUNS, self._random.randint(1, 2)),))

    def _prune(self) -> Call:
        threads = self._random.sample(self.threads, self._random.choice([1, 1, 2]))
        if len(threads) == 1:
            threads = [self._thread()]
        return Call("prune", (threads,), {"strategy": self._random.choice(["keep_latest"] * 9 + ["delete"])})

    def _sweep(self) -> Call:
        keep = self._random.choice([retention(), retention(1), retention(1), retention(2), retention(older_than=True)])
        return Call("sweep", (keep,))

    def _set_ttl(self) -> Call:
        ttl = self._random.choice([None, timedelta(days=1), timedelta(days=1)])
        return Call("set_ttl", (self._thread(), ttl), {"strategy": self._random.choice(["delete", "keep_latest"])})

    def _rollback(self) -> Call:
        thread_id = self._thread()
        roots = self._known.get((thread_id, ""), [])
        if not roots:
            return Call("rollback", (thread_id, "0"))
        return Call("rollback", (thread_id, self._random.choice(roots).key.checkpoint_id))

    def _copy_thread(self) -> Call:
        source, target = self._two()
        return Call("copy_thread", (source, target))

    def _fork_thread(self) -> Call:
        source, target = self._two()
        roots = self._known.get((source, ""), [])
        chosen = self._random.choice(roots).key.checkpoint_id if roots and self._chance(0.6) else None
        return Call("fork_thread", (source, target), {"checkpoint_id": chosen})

    def _label(self) -> Call:
        # A prune never deletes the newest checkpoint.
        return Call("label", (config_of(self._any(self._thread(), newest=0.1)), self._random.choice("xy")))

    def _unlabel(self) -> Call:
        return Call("unlabel", (self._thread(), self._random.choice("xy")))

    def _import_file(self) -> Call:
        return Call("import_file", (self._export,))

    def _reencrypt(self) -> Call:
        return Call("reencrypt")

    def _put_writes(self, thread_id: str | None = None) -> Call:
        key = self._any(thread_id or self._thread(), newest=0.6)
        return self._written(key)

    # What is stored

    def _filled(self, thread_id: str, number: int) -> Iterator[Call]:
        for _ in range(number):
            roots = self._known.get((thread_id, ""), [])
            call, root = self._stored(thread_id, "", roots[-1] if roots else None, OLD)
            yield call
            if self._chance(0.6):
                yield self._written(root.key)
            for checkpoint_ns, chance in (("memory", 0.3), ("call:1", 0.2)):
                if self._chance(chance):
                    others = self._known.get((thread_id, checkpoint_ns), [])
                    call, child = self._stored(thread_id, checkpoint_ns, others[-1] if others else None, OLD, root.key)
                    yield call
                    if self._chance(0.3):
                        yield self._written(child.key)
        if self._chance(0.3):
            yield Call("label", (config_of(self._any(thread_id, newest=0.1)), "x"))
        if self._chance(0.2):
            yield Call("prune", ([thread_id],), {"strategy": "keep_latest"})

    def _put_somewhere(self, thread_id: str) -> Call:
        checkpoint_ns = self._random.choice(["", "", "", "memory", "call:1"])
        known = self._known.get((thread_id, checkpoint_ns), [])
        parent = None
        if known and self._chance(0.9):
            parent = known[-1] if self._chance(0.7) else self._random.choice(known)
        roots = self._known.get((thread_id, ""), [])
        root = roots[-1].key if roots and checkpoint_ns else None
        return self._stored(thread_id, checkpoint_ns, parent, NEW, root)[0]

    def _stored(
        self, thread_id: str, checkpoint_ns: str, parent: Known | None, ts: str, root: Key | None = None
    ) -> tuple[Call, Known]:
        """A put, and the checkpoint that it stores."""
        self._moment += 1
        key = Key(thread_id, checkpoint_ns, f"{self._moment:026d}")
        values = dict(parent.values) if parent else {}
        versions = dict(parent.versions) if parent else {}
        counters = dict(parent.counters) if parent else {}
        new: dict[str, str] = {}
        for channel, chance in (("small", 0.9), ("blob", 0.4), ("chunks", 0.25)):
            if self._chance(chance):
                values[channel] = self._value(channel, values.get(channel))
                new[channel] = versions[channel] = self._next_version()
        if self._delta and not checkpoint_ns:
            values.pop(LOG, None)
            new[LOG] = versions[LOG] = self._next_version()
            if parent is None or self._chance(0.2):
                values[LOG] = _DeltaSnapshot([self._moment])
                counters.pop(LOG, None)
            else:
                updates, supersteps = counters.get(LOG, (0, 0))
                counters[LOG] = (updates + 1, supersteps + 1)
        if not new:
            values["small"] = self._moment
            new["small"] = versions["small"] = self._next_version()
        metadata: dict[str, Any] = {"source": "loop", "step": self._moment, "parents": {}}
        if root is not None:
            metadata["parents"] = {"": root.checkpoint_id}
        if counters:
            metadata["counters_since_delta_snapshot"] = {channel: [*pair] for channel, pair in counters.items()}
        if self._chance(0.7):
            metadata["run_id"] = self._random.choice(RUNS)
        location: dict[str, Any] = {"thread_id": thread_id, "checkpoint_ns": checkpoint_ns}
        if parent is not None:
            location["checkpoint_id"] = parent.key.checkpoint_id
        checkpoint = {
            "v": 4,
            "id": key.checkpoint_id,
            "ts": ts,
            "channel_values": dict(values),
            "channel_versions": dict(versions),
            "versions_seen": {},
            "updated_channels": sorted(new),
        }
        known = Known(key, values, versions, counters)
        self._known.setdefault((thread_id, checkpoint_ns), []).append(known)
        alone = set(values) <= {"small"} and not counters
        return Call("put", ({"configurable": location}, checkpoint, metadata, new), single_row=alone), known

    def _value(self, channel: str, before: Any) -> Any:
        if channel == "small":
            return self._random.choice([self._moment, f"text {self._moment}", None])
        if channel == "blob":
            return {"moment": self._moment, "text": "b" * 20_000}  # Too large for a checkpoint of one row.

        if before is None:
            before = [f"{self._moment} {index} " + "p" * 500 for index in range(ELEMENTS)]
        return [*before, f"{self._moment} " + "p" * 500]

    def _written(self, key: Key) -> Call:
        channels = ["small", LOG, LOG, INTERRUPT]
        writes = [
            (self._random.choice(channels), self._random.choice([self._moment, {"large": "w" * 300}]))
            for _ in range(self._random.randint(1, 2))
        ]
        config: RunnableConfig = config_of(key)
        if self._chance(0.5):
            config = {**config, "metadata": {"run_id": self._random.choice(RUNS)}}
        return Call("put_writes", (config, writes, self._random.choice(["task 1", "task 2"])), single_row=True)

    # Choices

    def _chance(self, chance: float) -> bool:
        return self._random.random() < chance

    def _is_called(self, name: str) -> bool:
        return self._mix.weights.get(name, 0) > 0

    def _thread(self) -> str:
        return self._random.choices(self.threads, self._hot)[0]

    def _two(self) -> tuple[str, str]:
        """A source and a target."""
        a, b, c = self.threads
        if self._copied and self._chance(0.5):
            return self._copied, c  # Again.
        return self._random.choices([(a, c), (b, c), (a, b), (c, b), (c, a)], [6, 5, 1, 1, 1])[0]

    def _any(self, thread_id: str, *, newest: float = 0.3) -> Key:
        """A checkpoint of a thread, which may exist or not."""
        spaces = [space for space in ("", "", "memory", "call:1") if (thread_id, space) in self._known]
        if not spaces:
            return Key(thread_id, "", f"{self._random.randint(1, 20):026d}")
        known = self._known[thread_id, self._random.choice(spaces)]
        return known[-1].key if self._chance(newest) else self._random.choice(known).key

    def _next_version(self) -> str:
        self._version += 1
        return f"{self._version:032d}.{self._random.randrange(10**16):016d}"
