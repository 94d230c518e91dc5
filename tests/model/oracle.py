"""`InMemorySaver` as the oracle.

It has the operations that the original lacks, each in the simplest correct form, and the intended differences:

 1. A small scalar (None, bool, int, float, text and bytes of up to 256) is stored with its checkpoint. `InMemorySaver`
    loses it, or returns its version's old value, if its channel is not in `new_versions`.
 2. A larger value whose version is not stored yet is stored with the first checkpoint that has it, even if its channel
    is not in `new_versions`. `InMemorySaver` loses it.
 3. A value of a channel without a version stays with its checkpoint. `InMemorySaver` loses it.
 4. A returned config has the three keys. `InMemorySaver` returns the caller's config.
 5. A filter compares as JSON: True is not 1, and a tuple is a list. `InMemorySaver` compares as Python.
 6. A checkpoint that is stored without a value that its version once had is read without it. `InMemorySaver` returns it
    in every checkpoint with that version. LangGraph omits only `DeltaChannel`s, whose snapshots are returned here, too,
    unless they are small (1): the history then ends one checkpoint earlier, with the same value. If the checkpoint that
    it continues from was deleted with all its namespace, it may still have the value: a saver remembers what it stored
    last.
 7. Which channels of a checkpoint have a value is decided when it is stored. `InMemorySaver` decides when it is read.
 8. Metadata keeps NUL characters and takes no request-scoped keys from the config (`langgraph_auth_*`,
    `langgraph_request_id`). `InMemorySaver` drops the former and keeps the latter.
 9. A list is newest first across namespaces and threads, and its limit counts from there. `InMemorySaver` lists them
    one by one.
10. A checkpoint older than format 4 has its parent's sends as the value of `__pregel_tasks`, as with LangGraph's savers
    for databases. `InMemorySaver` does not know such checkpoints.
11. Pruned checkpoints that a `DeltaChannel` or (10) still needs are hidden: not the newest, not listed, but readable by
    id. Their own ancestors may be deleted, so only the history of visible checkpoints is compared. A visible checkpoint
    whose parent is deleted has no parent any more.
12. A checkpoint is refused if a `DeltaChannel` of it needs a parent or further ancestor that was pruned, unless the
    namespace is empty otherwise. It may be refused, which loses nothing, if it is stored already (a repeat) or if the
    channel's snapshot is still stored under its version.
13. `delete_for_runs` also deletes what a run wrote to checkpoints of other runs, but neither writes of a hidden one nor
    writes that a remaining child is rebuilt from.
14. The history of a `DeltaChannel` is LangGraph's default walk, since `InMemorySaver`'s own one reads by version (6).
15. Labels protect their checkpoints from a prune, with what a run from them needs of subgraphs with a memory. If a
    rollback or a deletion by name deletes the newest checkpoint of a namespace, the writes of the one before are
    deleted, unless a remaining child is rebuilt from them. `InMemorySaver` has none of these, and no forks.
16. A thread may have a time to live, which belongs to it until it has no checkpoint. Here it is over at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.types import TASKS

from langgraph_checkpoint_custom import CheckpointLabelled, CheckpointNotFound, LabelExists, ThreadExists
from tests.model.storing import Key, StoringOracle


class Oracle(StoringOracle):
    """The whole oracle: deletions, copies, forks, labels and times to live."""

    # Deleting and copying

    def delete_thread(self, thread_id: str) -> None:
        for key in self.keys(thread_id):
            self._forget(key)
        self._forget_labels(key for key in self.named.values() if key.thread_id == thread_id)
        super().delete_thread(thread_id)
        self.strategies.pop(thread_id, None)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        of_runs = {key for key in self.keys() if self.metadata(key).get("run_id") in run_ids}
        locations = {key[:2] for key in of_runs}
        self._forget_labels(of_runs)
        self._remove(of_runs | {key for key in self.hidden if key[:2] in locations})
        for (location, slot), run_id in self.wrote.items():  # 13
            written = self.writes.get(location, {})
            if run_id in run_ids and slot in written and not self._is_read(Key(*location), written[slot][1]):
                del written[slot]

    def _is_read(self, key: Key, channel: str) -> bool:
        """Whether a write belongs to a hidden checkpoint, or to what a child is rebuilt from."""
        children = [child for child in self.keys(key.thread_id) if self.parent(child) == key]
        if channel == TASKS:
            return key in self.hidden or any(self.document(child)["v"] < 4 for child in children)
        replayed = channel in {
            name
            for other in self.keys(key.thread_id)
            if other[:2] == key[:2]
            for name in self._delta_channels(other) | self._snapshots(other)
        }
        return key in self.hidden or (replayed and any(channel not in self.populated(child) for child in children))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        for thread_id in thread_ids:
            if strategy == "keep_latest":
                retained = {key for key in self.newest(thread_id) if not self._is_finished(key)}
                self._remove(self.keys(thread_id) - retained - self._pinned(thread_id))
            else:
                self.delete_thread(thread_id)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        copies = {key: key._replace(thread_id=target_thread_id) for key in self.keys(source_thread_id)}
        alike = {
            copy
            for key, copy in copies.items()
            if copy in self.keys(target_thread_id)
            and self.storage[key[0]][key[1]][key[2]][2] == self.storage[copy[0]][copy[1]][copy[2]][2]
            and (key in self.hidden) == (copy in self.hidden)
        }
        if self.keys(target_thread_id) - alike:
            raise ThreadExists
        self._refuse_other_writes(source_thread_id, target_thread_id)
        self._copy_all(copies, source_thread_id, target_thread_id)

    def _refuse_other_writes(self, source_thread_id: str, target_thread_id: str) -> None:
        for location, written in self.writes.items():
            theirs = self.writes.get((source_thread_id, *location[1:]), {})
            if location[0] == target_thread_id and any(
                slot not in theirs or theirs[slot][2] != one[2] for slot, one in written.items()
            ):
                raise ThreadExists

    def _copy_all(self, copies: Mapping[Key, Key], source_thread_id: str, target_thread_id: str) -> None:
        for key, copy in copies.items():
            if copy in self.keys(target_thread_id):
                continue
            metadata = self.metadata(key)
            if metadata.get("thread_id") == source_thread_id:
                metadata["thread_id"] = target_thread_id
            document, _, parent_id = self.storage[key[0]][key[1]][key[2]]
            self.storage[copy[0]][copy[1]][copy[2]] = (document, self.serde.dumps_typed(metadata), parent_id)
            self.own[copy], self.populated_channels[copy] = self.own[key], self.populated_channels[key]
            if key in self.hidden:
                self.hidden.add(copy)
        for (thread_id, checkpoint_ns, channel, version), value in list(self.blobs.items()):
            if thread_id == source_thread_id:
                self.blobs.setdefault((target_thread_id, checkpoint_ns, channel, version), value)
        for (thread_id, checkpoint_ns, checkpoint_id), writes in list(self.writes.items()):
            if (thread_id, checkpoint_ns, checkpoint_id) in copies:
                location = (target_thread_id, checkpoint_ns, checkpoint_id)
                there = self.writes.get(location, {})
                self.writes[location] = writes | there
                for slot in writes.keys() - there.keys():
                    self.wrote[location, slot] = self.wrote[(thread_id, checkpoint_ns, checkpoint_id), slot]

        for (thread_id, name), key in list(self.named.items()):
            if thread_id == source_thread_id:
                self.named.setdefault((target_thread_id, name), copies[key])

    # Labels, and deletions by name (15)

    def label(self, config: RunnableConfig, name: str) -> RunnableConfig:
        key = self._exact(config)
        if key not in self.visible():
            raise CheckpointNotFound
        if self.named.get((key.thread_id, name), key) != key:
            raise LabelExists
        self.named[key.thread_id, name] = key
        return key.config

    def unlabel(self, thread_id: str, name: str) -> bool:
        return self.named.pop((thread_id, name), None) is not None

    def labels(self, thread_id: str) -> dict[str, RunnableConfig]:
        return {name: key.config for (thread, name), key in sorted(self.named.items()) if thread == thread_id}

    def rollback(self, thread_id: str, checkpoint_id: str) -> RunnableConfig:
        point = Key(thread_id, "", checkpoint_id)
        if point not in self.visible():
            raise CheckpointNotFound
        later = {
            key
            for key in self.keys(thread_id)
            if key.checkpoint_id > checkpoint_id or (key.checkpoint_ns and self._root(key) >= checkpoint_id)
        }
        if self._remove_by_name(later, {key for key in self.hidden if key.thread_id == thread_id}):
            for location in list(self.writes):
                if location[0] == thread_id and location[2] > checkpoint_id and location not in self.keys():
                    del self.writes[location]
        return point.config

    def delete_checkpoint(self, config: RunnableConfig) -> bool:
        point = self._exact(config)
        if point not in self.visible():
            return False
        keys = self.keys(point.thread_id)
        going, hidden = {point}, {key for key in self.hidden if key[:2] == point[:2]}
        if not point.checkpoint_ns:
            going |= {key for key in keys if ":" in key.checkpoint_ns and self._root(key) == point.checkpoint_id}
            others = [key for key in self.visible(point.thread_id) if not key.checkpoint_ns and key != point]
            head = max(others, default=point)
            if others == [] or (head < point and self.parent(point) in (None, head)):  # Its tasks run again.
                going |= {key for key in keys if key.checkpoint_ns and self._root(key) >= head.checkpoint_id}
                hidden = {key for key in self.hidden if key.thread_id == point.thread_id}
        self._remove_by_name(going, hidden)
        return True

    def fork_thread(
        self, source_thread_id: str, target_thread_id: str, *, checkpoint_id: str | None = None
    ) -> RunnableConfig:
        roots = sorted(key for key in self.visible(source_thread_id) if not key.checkpoint_ns)
        point = Key(source_thread_id, "", checkpoint_id) if checkpoint_id else roots[-1] if roots else None
        if point not in roots:
            raise CheckpointNotFound
        assert point is not None
        origin = {"forked_from_thread": source_thread_id, "forked_from_checkpoint": point.checkpoint_id}
        start = point._replace(thread_id=target_thread_id)
        if self.keys(target_thread_id):
            newest = max((key for key in self.visible(target_thread_id) if not key.checkpoint_ns), default=None)
            if newest != start or not origin.items() <= self.metadata(start).items():
                raise ThreadExists
            return start.config
        self._refuse_other_writes(source_thread_id, target_thread_id)
        is_open = point == roots[-1]
        retained = {start}
        for checkpoint_ns in {key.checkpoint_ns for key in self.keys(source_thread_id)} - {""}:
            heads = [
                key
                for key in self.visible(source_thread_id)
                if key.checkpoint_ns == checkpoint_ns and (is_open or key.checkpoint_id < point.checkpoint_id)
            ]
            head = max(heads, default=None)
            if head and (":" not in checkpoint_ns or (is_open and self._root(head) == point.checkpoint_id)):
                retained.add(head._replace(thread_id=target_thread_id))
        sources = self.keys(source_thread_id)
        early = {location: writes for location, writes in self.writes.items() if Key(*location) not in self.keys()}
        labels = dict(self.named)
        copies = {key: key._replace(thread_id=target_thread_id) for key in sources}
        self._copy_all(copies, source_thread_id, target_thread_id)
        self.named = labels
        for source in sources:
            copy = source._replace(thread_id=target_thread_id)
            if copy in retained and not is_open:
                self.writes.pop(copy, None)
                if copy in early:
                    self.writes[copy] = early[copy]
        for location in list(self.writes):
            if location[0] == target_thread_id and Key(*location) not in self.keys():
                del self.writes[location]
        self.writes.update({location: early[location] for location in early if location not in self.keys()})
        document, _, parent_id = self.storage[target_thread_id][""][start.checkpoint_id]
        metadata = self.serde.dumps_typed(self.metadata(start) | origin)
        self.storage[target_thread_id][""][start.checkpoint_id] = (document, metadata, parent_id)
        for key in retained:
            if self.parent(key) not in self.keys():
                self._forget_parent(key)
        self._remove(self.keys(target_thread_id) - retained)
        return start.config

    # A time to live (16)

    def set_ttl(self, thread_id: str, ttl: timedelta | None, *, strategy: str = "delete") -> None:
        if not self.keys(thread_id):
            raise CheckpointNotFound
        self.strategies.pop(thread_id, None)
        if ttl is not None:
            self.strategies[thread_id] = strategy

    def sweep(self) -> None:
        for thread_id, strategy in list(self.strategies.items()):
            self.prune([thread_id], strategy=strategy)

    def _exact(self, config: RunnableConfig) -> Key:
        location = config["configurable"]
        return Key(location["thread_id"], location["checkpoint_ns"], location["checkpoint_id"])

    def _root(self, key: Key) -> str:
        """The root checkpoint from which a subgraph's call started."""
        return cast(str, self.metadata(key).get("parents", {}).get("") or "") if key.checkpoint_ns else ""

    def _pinned(self, thread_id: str) -> set[Key]:
        """The checkpoints that a prune does not delete."""
        pinned = {key for key in self.named.values() if key.thread_id == thread_id}
        for label in [key for key in pinned if not key.checkpoint_ns]:
            memories: dict[str, Key] = {}
            for key in sorted(self.visible(thread_id)):
                if key.checkpoint_ns and ":" not in key.checkpoint_ns and key.checkpoint_id < label.checkpoint_id:
                    memories[key.checkpoint_ns] = key
            pinned.update(memories.values())
        return pinned

    def _forget_labels(self, keys: Iterable[Key]) -> None:
        deleted = set(keys)
        self.named = {location: key for location, key in self.named.items() if key not in deleted}

    def _remove_by_name(self, victims: set[Key], hidden: set[Key]) -> bool:
        """Delete victims, and the writes that led to them; returns whether a visible one was deleted."""
        if victims & set(self.named.values()):
            raise CheckpointLabelled
        seen = victims - self.hidden
        parents = {key: self.parent(key) for key in self.keys()}
        was_hidden = set(self.hidden)
        replayed = {
            (key[:2], channel) for key in self.keys() for channel in self._delta_channels(key) | self._snapshots(key)
        }
        there = self.keys()
        self._remove(victims | hidden)
        deleted = there - self.keys()
        for location in {key[:2] for key in seen & deleted}:
            left = [key for key in self.visible() if key[:2] == location]
            head = max(left, default=None)
            lost = max(key for key in seen & deleted if key[:2] == location)
            if (
                head is None
                or head > lost
                or not any(
                    key[:2] == location and (parents[key] == head or (parents[key] is None and key not in was_hidden))
                    for key in deleted
                )
            ):
                continue
            children = [key for key in self.keys() if parents[key] == head]
            for slot, (_, channel, _, _) in list(self.writes.get(head, {}).items()):
                if channel == TASKS:
                    is_read = any(self.document(child)["v"] < 4 for child in children)
                else:
                    is_read = (location, channel) in replayed and any(
                        channel not in self.populated(child) for child in children
                    )
                if not is_read:
                    del self.writes[head][slot]
        return bool(seen & deleted)

    def _is_finished(self, key: Key) -> bool:
        """Whether this is the head of a subgraph call that an older superstep of the root graph made."""
        root_id = self.metadata(key).get("parents", {}).get("")
        if ":" not in key.checkpoint_ns or not root_id or Key(key.thread_id, "", root_id) in self.named.values():
            return False
        newest = max(
            (root.checkpoint_id for root in self.visible(key.thread_id) if root.checkpoint_ns == ""), default=""
        )
        return root_id < newest or (root_id != newest and Key(key.thread_id, "", root_id) in self.keys(key.thread_id))

    def _remove(self, victims: Iterable[Key]) -> None:
        """Delete checkpoints, or hide those that a remaining one needs."""
        victims = set(victims)
        needed = {ancestor for key in self.keys() - victims for ancestor in self._needed_by(key)}
        for key in (victims & needed) - self.hidden:
            if self.parent(key) not in self.keys():  # Its parent was deleted before this.
                self._forget_parent(key)
        self.hidden |= victims & needed
        deleted = victims - needed
        for key in deleted:
            self._forget(key)
            self.storage[key[0]][key[1]].pop(key[2])
            self.writes.pop(key, None)
        for key in self.keys():
            if self.parent(key) in deleted and key not in self.hidden:
                self._forget_parent(key)  # 11
        named = {
            (key.thread_id, key.checkpoint_ns, channel, self.document(key)["channel_versions"][channel])
            for key in self.keys()
            for channel in self.populated_channels[key]
        }
        for blob in set(self.blobs) - named:
            del self.blobs[blob]
        self.strategies = {thread_id: each for thread_id, each in self.strategies.items() if self.keys(thread_id)}

    def _needed_by(self, key: Key) -> set[Key]:
        """The ancestors without which a checkpoint could not be read, and those that have sends for one of them."""
        needed: set[Key] = set()
        open_channels = self._delta_channels(key) - self.populated(key)
        cursor = self.parent(key)
        while open_channels and cursor in self.keys(key.thread_id):
            assert cursor is not None
            needed.add(cursor)
            open_channels -= self.populated(cursor)
            cursor = self.parent(cursor)
        readers = [key, *needed]
        while readers:
            reader = readers.pop()
            parent = self.parent(reader)
            if self.document(reader)["v"] < 4 and parent in self.keys(key.thread_id) and self.has_sends(parent):
                assert parent is not None
                needed.add(parent)
                readers.append(parent)
        return needed

    def _forget_parent(self, key: Key) -> None:
        document, metadata, _ = self.storage[key[0]][key[1]][key[2]]
        self.storage[key[0]][key[1]][key[2]] = (document, metadata, None)

    def _forget(self, key: Key) -> None:
        del self.own[key], self.populated_channels[key]
        self.hidden.discard(key)
