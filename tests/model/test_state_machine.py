"""A Hypothesis state machine: random operations on a saver and on LangGraph's `InMemorySaver`, which is the oracle.

After every operation, both give the same results, and the tables are sound. `oracle.py` lists the intended
differences.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from datetime import timedelta
from itertools import product
from typing import Any, cast
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata
from langgraph.checkpoint.conformance.test_utils import generate_config
from langgraph.checkpoint.serde.types import TASKS, _DeltaSnapshot

from langgraph_checkpoint_custom import CheckpointError, CheckpointNotFound, CheckpointSaver, Retention
from tests.conftest import APIS
from tests.invariants import check_invariants
from tests.model.drawn import (
    DELTA,
    EXTRAS,
    FILTERS,
    GROWING,
    NAMESPACES,
    PLAIN,
    SPECIAL,
    STRATEGIES,
    UNVERSIONED,
    Calls,
    PutCall,
    WritesCall,
    checkpoint_id_at,
    elements,
    label,
    value,
)
from tests.model.oracle import Oracle
from tests.model.storing import Key, exact
from tests.stores import Store
from tests.tables import empty_tables

SETTINGS = settings(
    max_examples=10,
    stateful_step_count=20,
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)

# Values are cut into chunks of one or two elements.
CHUNKS = {"SPLIT_FROM": 1, "HEAD": 1, "START": 1, "FINDABLE": 1, "SAMPLE": 1, "CHUNK_BYTES": 4, "MOST_SMALL": 2}
# Lists have pages of this many checkpoints, so that threads of a few have several pages.
PAGE = 3


def rarely(data: st.DataObject) -> bool:
    return data.draw(st.integers(0, 3)) == 3


class SaverMachine(RuleBasedStateMachine):
    """The same operations on a saver and on the oracle, on this example's own threads."""

    def __init__(self, store: Store, calls: Calls, next_version: Callable[[Any, None], str], where: str) -> None:
        super().__init__()
        self.where = where
        self.store = store
        self.calls = calls
        self.next_version = next_version
        self.oracle = Oracle()
        self.example = uuid4().hex
        self.threads = [f"{self.example} {name}" for name in ("a", "b", "ü")]
        self.unknown = f"{self.example} unknown"
        self.runs = [f"{self.example} run {number}" for number in range(3)]
        self.types: Sequence[str] = ("uuid6",)
        self.moments = {1: 0, -1: 0}
        self.puts: list[PutCall] = []
        self.writes: list[WritesCall] = []
        self.ids: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        """Every id that was ever used, stored or not."""
        self.agreed = True
        """Whether the last operation left both sides alike."""
        self.touched: set[str] = set()
        self.reads = 0
        self.repeated = False

    @initialize(types=st.sampled_from([("uuid6",), ("ulid",), ("ulid", "uuid6")]))
    def choose_ids(self, types: Sequence[str]) -> None:
        self.types = types

    # Operations

    @rule(data=st.data())
    def continue_from_the_newest(self, data: st.DataObject) -> None:
        thread_id, checkpoint_ns = self._location(data)
        for _ in range(data.draw(st.integers(1, 6))):
            newest = [key for key in self.oracle.newest(thread_id) if key.checkpoint_ns == checkpoint_ns]
            key = self._new_key(data, thread_id, checkpoint_ns)
            self._put(data, key, newest[0].checkpoint_id if newest else None)
            if data.draw(st.booleans()):
                self._put_writes(data, key)

    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        """From any checkpoint that is stored, hidden or deleted, or from nothing."""
        thread_id, checkpoint_ns = self._location(data)
        # Only one that was stored before, so that no chain loops: `InMemorySaver` would follow it forever.
        ever_stored = {call.checkpoint["id"] for call in self.puts}
        parents = [each for each in self.ids[thread_id, checkpoint_ns] if each in ever_stored]
        deleted = [each for each in parents if Key(thread_id, checkpoint_ns, each) not in self.oracle.keys(thread_id)]
        key = self._new_key(data, thread_id, checkpoint_ns)
        self._put(
            data, key, data.draw(st.one_of(*(st.sampled_from(each) for each in ([None], parents, deleted) if each)))
        )

    @precondition(lambda self: self.puts)
    @rule(data=st.data())
    def repeat_a_put(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(self.puts))
        self.repeated = True
        self._do_put(call)

    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        """To any checkpoint that is stored, hidden, deleted, or not stored yet."""
        thread_id, checkpoint_ns = self._location(data)
        ids = self.ids[thread_id, checkpoint_ns]
        if ids and not rarely(data):
            key = Key(thread_id, checkpoint_ns, data.draw(st.sampled_from(ids)))
        else:
            key = self._new_key(data, thread_id, checkpoint_ns)
        self._put_writes(data, key)

    @precondition(lambda self: self.writes)
    @rule(data=st.data())
    def repeat_a_write(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(self.writes))
        self._do("put_writes", *call, touches=[call.config["configurable"]["thread_id"]])

    @precondition(lambda self: self.puts)
    @rule(data=st.data())
    def prune(self, data: st.DataObject) -> None:
        threads = st.lists(st.sampled_from([*self.threads, self.unknown]), min_size=1, max_size=3, unique=True)
        thread_ids = data.draw(threads)
        self._do("prune", thread_ids, strategy="keep_latest", touches=thread_ids)

    @precondition(lambda self: self.puts)
    @rule(data=st.data())
    def delete_for_runs(self, data: st.DataObject) -> None:
        run_ids = data.draw(st.lists(st.sampled_from([*self.runs, self.unknown]), max_size=2))
        self._do("delete_for_runs", run_ids, touches=self.threads)

    @precondition(lambda self: self.puts)
    @rule(data=st.data())
    def copy_or_delete_a_thread(self, data: st.DataObject) -> None:
        thread_id = data.draw(st.sampled_from(self.threads))
        operation = data.draw(st.sampled_from(["copy_thread", "copy_thread", "delete_thread", "delete", "delete_all"]))
        if operation == "copy_thread":
            target = data.draw(st.sampled_from(self.threads))
            for checkpoint_ns in NAMESPACES:
                known = self.ids[target, checkpoint_ns]
                known.extend(each for each in self.ids[thread_id, checkpoint_ns] if each not in known)
            self._do("copy_thread", thread_id, target, touches=[thread_id, target])
        elif operation == "delete_thread":
            self._do("delete_thread", thread_id, touches=[thread_id])
        else:
            self._do("prune", [thread_id], strategy=operation, touches=[thread_id])

    @precondition(lambda self: self.puts)
    @rule(data=st.data())
    def label_or_unlabel(self, data: st.DataObject) -> None:
        key = self._any_key(data)
        name = data.draw(st.sampled_from(["a", "ü"]))
        if data.draw(st.integers(0, 2)) == 2:
            self._do("unlabel", key.thread_id, name, touches=[key.thread_id])
        else:
            self._do("label", key.config, name, touches=[key.thread_id])

    @precondition(lambda self: self.puts)
    @rule(data=st.data())
    def set_a_time_to_live_or_sweep(self, data: st.DataObject) -> None:
        thread_id = data.draw(st.sampled_from(self.threads))
        ttl = data.draw(st.sampled_from([timedelta(days=1), None]))
        self._do("set_ttl", thread_id, ttl, strategy=data.draw(st.sampled_from(STRATEGIES)), touches=[thread_id])
        if data.draw(st.booleans()):
            note("sweep")
            self.agreed = False
            self.touched.update(self.threads)
            self.oracle.sweep()
            self.calls("sweep", Retention(keep_waiting=False))

    @precondition(lambda self: self.puts)
    @rule(data=st.data())
    def delete_one_or_all_after_it(self, data: st.DataObject) -> None:
        key = self._any_key(data)
        if data.draw(st.booleans()):
            self._do("delete_checkpoint", key.config, touches=[key.thread_id])
        else:
            self._do("rollback", key.thread_id, key.checkpoint_id, touches=[key.thread_id])

    @precondition(lambda self: self.puts)
    @rule(data=st.data())
    def fork_a_thread(self, data: st.DataObject) -> None:
        key = self._any_key(data)
        target = data.draw(st.sampled_from(self.threads))
        for checkpoint_ns in NAMESPACES:
            known = self.ids[target, checkpoint_ns]
            known.extend(each for each in self.ids[key.thread_id, checkpoint_ns] if each not in known)
        if data.draw(st.booleans()):
            self._do("delete_thread", target, touches=[target])
        chosen = data.draw(st.sampled_from([None, key.checkpoint_id]))
        self._do("fork_thread", key.thread_id, target, checkpoint_id=chosen, touches=[target])

    # Results

    @invariant()
    def every_read_has_the_same_result(self) -> None:
        if self.agreed:
            return
        self.reads += 1
        while self.touched:
            self._compare_thread(self.touched.pop())
        self._compare_list(None)
        early = set(self.oracle.writes) - self.oracle.keys()
        check_invariants(self.store, early_writes=early, stored_again=self.repeated)
        self.agreed = True

    @rule(data=st.data())
    def list_with_anything(self, data: st.DataObject) -> None:
        thread_id, checkpoint_ns = self._location(data)
        ids = st.sampled_from([None, *self.ids[thread_id, checkpoint_ns]])
        config: RunnableConfig | None = None
        if not rarely(data):
            config = {"configurable": {"thread_id": thread_id}}
            if data.draw(st.booleans()):
                config["configurable"]["checkpoint_ns"] = checkpoint_ns
            if (checkpoint_id := data.draw(ids)) and data.draw(st.booleans()):
                config["configurable"]["checkpoint_id"] = checkpoint_id
        before = data.draw(ids)
        self._compare_list(
            config,
            before={"configurable": {"checkpoint_id": before}} if before else None,
            limit=data.draw(st.sampled_from([None, 0, 1, PAGE - 1, PAGE, PAGE + 1, 100])),
            filter=data.draw(st.sampled_from([None, *FILTERS])),
        )

    def _compare_thread(self, thread_id: str) -> None:
        visible = self.oracle.visible(thread_id)
        self._ask("labels", thread_id)
        assert self.calls("thread_exists", thread_id) == bool(visible)
        used = [checkpoint_ns for checkpoint_ns in NAMESPACES if self.ids[thread_id, checkpoint_ns]]
        for checkpoint_ns in used:
            for checkpoint_id in [None, *self.ids[thread_id, checkpoint_ns]]:
                config = generate_config(thread_id, checkpoint_ns=checkpoint_ns, checkpoint_id=checkpoint_id)
                self._ask("get_tuple", config)
                if checkpoint_id is None or (thread_id, checkpoint_ns, checkpoint_id) in visible:  # 11
                    self._ask("get_delta_channel_history", config=config, channels=["log", "tally", "alpha"])
        for confined in (None, *used):
            config = {"configurable": {"thread_id": thread_id}}
            if confined is not None:
                config["configurable"]["checkpoint_ns"] = confined
            ids = sorted({key.checkpoint_id for key in visible if confined in (None, key.checkpoint_ns)})
            edges = [None, *ids[self.reads % len(ids) :][:1]] if ids else [None]
            filters = [None, FILTERS[self.reads % len(FILTERS)]]
            for before, limit, filter in product(edges, [None, 1 + self.reads % 4], filters):
                edge: RunnableConfig | None = {"configurable": {"checkpoint_id": before}} if before else None
                self._compare_list(config, before=edge, limit=limit, filter=filter)

    def _compare_list(self, config: RunnableConfig | None, **kwargs: Any) -> None:
        expected = list(self.oracle.list(config, **kwargs))
        assert exact(self.calls.list(config, **kwargs)) == exact(expected)

    def teardown(self) -> None:
        if not self.agreed:
            return  # The step that failed says why.
        for thread_id in self.threads:
            self._compare_thread(thread_id)
            self.calls("delete_thread", thread_id)
        left = check_invariants(self.store)
        assert not any(left)

    # Helpers

    def _do(self, name: str, *args: Any, touches: Iterable[str], **kwargs: Any) -> None:
        """An operation on both sides, which agree on the result or on the error."""
        note(f"{name}{args} {kwargs or ''}")
        self.agreed = False
        self.touched.update(touches)
        try:
            expected = getattr(self.oracle, name)(*deepcopy(args), **deepcopy(kwargs))
        except CheckpointError as error:
            with pytest.raises(type(error)):
                self.calls(name, *args, **kwargs)
        else:
            assert exact(self.calls(name, *args, **kwargs)) == exact(expected)

    def _do_put(self, call: PutCall) -> None:
        thread_id = call.config["configurable"]["thread_id"]
        if self.oracle.refuses(*call) is not None:
            self._do("put", *call, touches=[thread_id])
            key = Key(thread_id, call.config["configurable"]["checkpoint_ns"], call.checkpoint["id"])
            if self.oracle.has_lost_its_parent(key):
                self.oracle.adopt(key, self.calls("get_tuple", key.config))
            return
        note(f"put, which may be refused, {tuple(call)}")
        self.agreed = False
        self.touched.add(thread_id)
        with suppress(CheckpointNotFound):
            self.calls("put", *call)
            self.oracle.put(*deepcopy(call))

    def _ask(self, name: str, *args: Any, **kwargs: Any) -> None:
        """A read on both sides."""
        assert exact(self.calls(name, *args, **kwargs)) == exact(getattr(self.oracle, name)(*args, **kwargs))

    def _location(self, data: st.DataObject) -> tuple[str, str]:
        # Most operations use few locations, so that many of them meet.
        first, *others = self.threads
        thread_id = data.draw(st.sampled_from([*[first] * 3, *others]))
        return thread_id, data.draw(st.sampled_from([*[""] * 3, *["child"] * 3, *NAMESPACES]))

    def _any_key(self, data: st.DataObject) -> Key:
        """A checkpoint that usually exists; mostly one of the root's."""
        keys = sorted(self.oracle.keys())
        roots = [key for key in keys if not key.checkpoint_ns]
        chosen = roots if roots and not rarely(data) else keys
        if not chosen or rarely(data):
            return Key(self.threads[0], "", "unknown")
        found: Key = data.draw(st.sampled_from(chosen))
        return found

    def _new_key(self, data: st.DataObject, thread_id: str, checkpoint_ns: str) -> Key:
        """A checkpoint that is not stored: after all others, before all, or one that has writes already."""
        ids = self.ids[thread_id, checkpoint_ns]
        ever_stored = {call.checkpoint["id"] for call in self.puts}
        expected = sorted(key[2] for key in self.oracle.writes if key[:2] == (thread_id, checkpoint_ns))
        expected = [checkpoint_id for checkpoint_id in expected if checkpoint_id not in ever_stored]
        if expected and data.draw(st.integers(0, 1)) == 1:
            return Key(thread_id, checkpoint_ns, data.draw(st.sampled_from(expected)))
        direction = data.draw(st.sampled_from([1, 1, 1, -1]))
        self.moments[direction] += direction
        checkpoint_id = checkpoint_id_at(data.draw(st.sampled_from(self.types)), self.moments[direction])
        ids.append(checkpoint_id)
        return Key(thread_id, checkpoint_ns, checkpoint_id)

    def _state_at(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str | None) -> tuple[Checkpoint, Any] | None:
        """What a run that continues from a checkpoint has in memory, also if the checkpoint was deleted meanwhile."""
        if checkpoint_id is None:
            return None
        found = self.oracle.get_tuple(Key(thread_id, checkpoint_ns, checkpoint_id).config)
        if found is not None:
            return found.checkpoint, found.metadata
        for call in reversed(self.puts):
            if call.checkpoint["id"] == checkpoint_id and call.config["configurable"]["checkpoint_ns"] == checkpoint_ns:
                return deepcopy((call.checkpoint, call.metadata))
        return None

    def _put(self, data: st.DataObject, key: Key, parent_id: str | None) -> None:
        values: dict[str, Any] = {}
        versions: dict[str, Any] = {}
        counters: dict[str, tuple[int, int]] = {}
        state = self._state_at(key.thread_id, key.checkpoint_ns, parent_id)
        if state is not None:
            values, versions = dict(state[0]["channel_values"]), dict(state[0]["channel_versions"])
            counters = {
                name: (pair[0], pair[1]) for name, pair in state[1].get("counters_since_delta_snapshot", {}).items()
            }
        new: dict[str, Any] = {}

        def bump(channel: str) -> None:
            new[channel] = versions[channel] = self.next_version(versions.get(channel), None)

        parent_is_there = Key(key.thread_id, key.checkpoint_ns, parent_id or "") in self.oracle.keys(key.thread_id)
        for channel in PLAIN:
            usual = ["grow"] * 8 if channel == GROWING else ["keep", "keep", "set"]
            # An unchanged value is stored as the parent has it, by bytes or by version. A value that the parent lacks
            # is stored as it is now if it is small, and otherwise as whatever is left of its version. Of values in a
            # document nothing is left, whereas the oracle has all versions. `behaviour/test_put.py` has such cases.
            slips = ["slip"] if parent_is_there and channel in values and self.where == "rows" else []
            action = data.draw(st.sampled_from([*usual, "set", "empty", *slips, "leave out"]))
            if action == "grow":  # And perhaps lose the first elements.
                bump(channel)
                held = values.get(channel)
                values[channel] = [*(held[data.draw(st.integers(0, 2)) :] if type(held) is list else ())]
                values[channel] += data.draw(elements)
            elif action == "set":
                bump(channel)
                values[channel] = data.draw(value)
            elif action == "empty":
                bump(channel)
                values.pop(channel, None)
            elif action == "slip":
                values[channel] = data.draw(value)
            elif action == "leave out":
                values.pop(channel, None)
        if rarely(data):
            values[UNVERSIONED] = data.draw(value)
        for channel in DELTA[key.checkpoint_ns]:
            action = data.draw(st.sampled_from(["unchanged", "unchanged", "written", "written", "snapshot", "plain"]))
            held = values.pop(channel, _DeltaSnapshot(None))
            if self.where == "document" and action == "unchanged" and type(held) is not _DeltaSnapshot:
                action = "written"  # Without a new version, only the oracle still has the plain value of a document.
            if action != "unchanged" or channel not in versions:
                bump(channel)
            if action == "snapshot":
                values[channel] = _DeltaSnapshot(data.draw(value))
                counters.pop(channel, None)
            elif action == "plain":
                values[channel] = data.draw(value)
                counters.pop(channel, None)
            else:
                updates, supersteps = counters.get(channel, (0, 0))
                counters[channel] = (updates + (action == "written"), supersteps + 1)
        if not versions:
            bump("__start__")

        roots = [found.checkpoint_id for found in self.oracle.keys(key.thread_id) if found.checkpoint_ns == ""]
        metadata: dict[str, Any] = {"source": data.draw(st.sampled_from(["input", "loop"])), "step": len(self.puts)}
        metadata["parents"] = {}
        if key.checkpoint_ns and roots and not rarely(data):
            metadata["parents"] = {"": data.draw(st.sampled_from(sorted(roots, reverse=True)))}
        if counters:
            # Lists, since InMemorySaver returns a tuple as a list.
            metadata["counters_since_delta_snapshot"] = {channel: [*pair] for channel, pair in counters.items()}
        if data.draw(st.booleans()):
            metadata["run_id"] = data.draw(st.sampled_from(self.runs))
        if data.draw(st.booleans()):
            metadata["label"] = data.draw(label)
        if rarely(data):
            metadata["thread_id"] = data.draw(st.sampled_from([key.thread_id, "elsewhere"]))
        extras = data.draw(st.sampled_from([{}, {}, EXTRAS]))
        config: RunnableConfig = {
            "configurable": {"thread_id": key.thread_id, "checkpoint_ns": key.checkpoint_ns, **extras},
            "metadata": {'odd "key" % * $.a': 1, "a list": [1]} if extras else {},
        }
        if parent_id is not None:
            config["configurable"]["checkpoint_id"] = parent_id
        checkpoint = Checkpoint(
            v=data.draw(st.sampled_from([4, 4, 4, 1, 3])),
            id=key.checkpoint_id,
            ts="2025-01-01T00:00:00+00:00",
            channel_values=values,
            channel_versions=versions,
            versions_seen={"node": dict(new)},
            updated_channels=sorted(new),
        )
        call = PutCall(config, checkpoint, cast("CheckpointMetadata", metadata), new)
        self.puts.append(deepcopy(call))
        self._do_put(call)

    def _put_writes(self, data: st.DataObject, key: Key) -> None:
        channels = st.sampled_from([*PLAIN, *DELTA[key.checkpoint_ns], "log", *SPECIAL, TASKS])
        writes = data.draw(st.lists(st.tuples(channels, value), min_size=1, max_size=4))
        config = key.config
        run_id = data.draw(st.sampled_from([None, *self.runs]))
        if run_id is not None and data.draw(st.booleans()):
            config["configurable"]["run_id"] = run_id
        elif run_id is not None:
            config["metadata"] = {"run_id": run_id}
        call = WritesCall(
            config,
            data.draw(st.sampled_from([list, tuple, deque]))(writes),
            data.draw(st.sampled_from(["task", "Task", "ü", "\U0001f600", "\uffff"])),
            data.draw(st.sampled_from(["", "~b", "~B", "~é", "~\U0001f600", "~\uffff"])),
        )
        self.writes.append(deepcopy(call))
        self._do("put_writes", *call, touches=[key.thread_id])


@contextmanager
def opened(store: Store, api: str) -> Iterator[tuple[CheckpointSaver, Calls]]:
    """A saver, and its methods with one api."""
    options = {"synchronous": "OFF"} if store.kind == "sqlite" else {}
    saver = store.open(**options)
    if api == "sync":
        with saver:
            yield saver, Calls(saver, None)
        return
    loop = asyncio.new_event_loop()
    try:
        yield saver, Calls(saver, loop)
    finally:
        loop.run_until_complete(saver.aclose())
        loop.close()


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("where", ["rows", "document"])
def test_a_saver_returns_the_same_results_as_the_oracle(
    store: Store, api: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With values in separate rows and in chunks, or inline if they are small."""
    monkeypatch.setattr("langgraph_checkpoint_custom.saver.PAGE", PAGE)
    if where == "rows":
        monkeypatch.setattr("langgraph_checkpoint_custom.encoding.encoded.SMALL_VALUE", 0)
        monkeypatch.setattr("langgraph_checkpoint_custom.encoding.encode.DOCUMENT", 0)
        for name, number in CHUNKS.items():
            monkeypatch.setattr(f"langgraph_checkpoint_custom.encoding.chunks.{name}", number)
    with opened(store, api) as (saver, calls):

        def machine() -> SaverMachine:
            empty_tables(store)
            return SaverMachine(store, calls, saver.get_next_version, where)

        run_state_machine_as_test(machine, settings=SETTINGS)  # type: ignore[arg-type]  # It takes any factory.
