"""The threads of one of our savers as a side of a move: nothing is decoded into objects.

Must not know: SQL, connections, the other side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from langgraph_checkpoint_custom.encoding.raw import without_classes
from langgraph_checkpoint_custom.engine.operation import Steps, operation, work_out
from langgraph_checkpoint_custom.errors import CheckpointError, ConfigError
from langgraph_checkpoint_custom.model.keys import KIND_MARK, Key, Range, thread_text
from langgraph_checkpoint_custom.operations.export_rows import next_threads
from langgraph_checkpoint_custom.operations.read import checkpoints_of_threads, get_with_writes
from langgraph_checkpoint_custom.operations.write import store_part
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.sql.dialect import SqlDialect
from langgraph_checkpoint_custom.tools.foreign import (
    PAGE,
    ForeignCheckpoint,
    ForeignWrite,
    Locations,
    Part,
    Place,
    encode_foreign_writes,
    foreign_of,
    locations_of,
)
from langgraph_checkpoint_custom.tools.move_plan import Moved

# Threads of a page of those that were moved. What was moved from or to a store remains when a thread is deleted.
MOVED = 100


@operation("read")
def moves_of_threads(d: SqlDialect, store: str, thread_ids: Sequence[str]) -> Steps[Sequence[bytes]]:
    """Return for each thread what was moved of it; empty if nothing was.

    Round trips: 1.
    """
    replies = yield d.ask_each("select_move", [{"thread_id": each} for each in thread_ids], store=store)
    return [bytes(rows[0][0]) if rows else b"" for rows in replies]


@operation("read")
def moved_threads(d: SqlDialect, store: str, after: str) -> Steps[Sequence[str]]:
    """Return the page of the moved threads with greater ids; empty after the last one.

    Round trips: 1.
    """
    replies = yield d.ask_each("select_moves", map(Range._asdict, d.ranges_after(after)), store=store, limit=MOVED)
    return [d.own_thread_id(row[0]) for row in next(filter(None, replies), [])]


@operation("write")
def store_move(d: SqlDialect, store: str, thread_id: str, checkpoints: bytes) -> Steps[None]:
    """Store what was moved of a thread.

    Round trips: 1.
    Idempotent: by (store, thread_id).
    """
    yield d.ask("store_move", store=store, thread_id=thread_id, checkpoints=checkpoints)


@operation("write")
def forget_moves(d: SqlDialect, store: str) -> Steps[None]:
    """Forget what was moved from or to a store.

    Round trips: 1.
    """
    yield d.ask_each("forget_moves", map(Range._asdict, d.ranges()), store=store)


class OwnThreads:
    """The threads of a saver as a side of a move, and what was moved of each from or to one store of an official saver.

    Args:
        saver: The saver.
        store: The name of the other store.

    Attributes:
        suffix, deletion, excluded, adds_values: As in `OfficialStore`.
    """

    suffix = "-custom"
    deletion = "lgckpt delete"
    adds_values = False

    def __init__(self, saver: CheckpointSaver, store: str) -> None:
        self._saver = without_classes(saver)
        self._dialect, self._driver, self._values = self._saver.backend
        self._store = store
        self.excluded = frozenset(self._values.excluded)

    def threads(self) -> Iterator[Sequence[str]]:
        """Yield the ids of LangGraph's threads in order, in pages."""
        after = ""
        while page := self._driver.run(next_threads(self._dialect, after, PAGE)):
            # Other frameworks' threads are nothing for LangGraph.
            yield [each for each in page if not each.startswith(KIND_MARK)]
            after = page[-1]

    def snapshot(self) -> AbstractContextManager[None]:
        """Return a block; what is stored during it may be seen."""
        return nullcontext()

    def storing(self) -> AbstractContextManager[None]:
        """Return a block; each part is stored on its own."""
        return nullcontext()

    def locations(self, thread_ids: Sequence[str]) -> Mapping[str, Locations]:
        """Return the checkpoints of threads with the number of their writes, older ones first."""
        known = [thread_id for thread_id in thread_ids if _is_key(thread_id)]
        if not known:
            return {}
        return locations_of(known, self._driver.run(checkpoints_of_threads(self._dialect, known)))

    def read(self, thread_id: str, places: Sequence[Place]) -> Sequence[ForeignCheckpoint]:
        """Return those of these checkpoints that exist, with their values and writes."""
        if not places:
            return ()
        keys = [Key(thread_id, *place) for place in places]
        read = self._driver.run(get_with_writes(self._dialect, self._values, keys))
        found = []
        for one, rows in read:
            writes = [
                ForeignWrite(task_id, row.path or "", row.idx or 0, channel, value)
                for (task_id, channel, value), row in zip(one.pending_writes or (), rows, strict=True)
            ]
            found.append(foreign_of(one)._replace(writes=writes))
        return found

    def read_writes(self, thread_id: str, place: Place) -> Sequence[ForeignWrite]:
        """Return the writes of a checkpoint."""
        return [write for one in self.read(thread_id, [place]) for write in one.writes]

    def store(self, part: Part) -> None:
        """Store a part of a thread, and its mark, in one transaction."""
        thread_id = part.thread_id
        encoders = [partial(self._encoded, one.put_arguments(parent)) for one, parent in part.checkpoints]
        rest = [
            self._dialect.insert_writes(key, rows, None)
            for key, found in part.writes
            for rows in encode_foreign_writes(self._values, key, found)
        ]
        if part.mark:
            rest.append(self._dialect.ask("store_move", store=self._store, thread_id=thread_id, checkpoints=part.mark))
        stored = store_part(
            self._dialect, thread_id, encoders, self._saver._remember_stored, rest, follows=part.follows
        )
        if not self._driver.run(stored):
            raise CheckpointError(
                "it was deleted in the target while it was moved; nothing more of it was copied; --thread (in Python "
                "threads=) moves it again"
            )

    def _encoded(self, arguments: Sequence[Any]) -> Any:
        return work_out(self._saver._encode(*arguments))

    # What was moved

    def moved(self, thread_ids: Sequence[str]) -> Mapping[str, Moved]:
        """Return what was moved of each thread."""
        known = [thread_id for thread_id in thread_ids if _is_key(thread_id)]
        found = self._driver.run(moves_of_threads(self._dialect, self._store, known)) if known else ()
        stored = dict(zip(known, found, strict=True))
        return {thread_id: Moved(stored.get(thread_id, b"")) for thread_id in thread_ids}

    def remember(self, thread_id: str, moved: bytes) -> None:
        """Store what was moved of a thread: `Moved.stored_with`."""
        self._driver.run(store_move(self._dialect, self._store, thread_id, moved))

    def moved_threads(self) -> Iterator[Sequence[str]]:
        """Yield the ids of the threads that were moved, in pages."""
        page: Sequence[str] = [""]
        while page := self._driver.run(moved_threads(self._dialect, self._store, page[-1])):
            yield page

    def forget(self) -> None:
        """Forget what was moved: the other store is a new one."""
        self._driver.run(forget_moves(self._dialect, self._store))


def _is_key(thread_id: str) -> bool:
    """Return whether the id can be the id of a thread in a saver."""
    try:
        thread_text(thread_id)
    except ConfigError:
        return False
    return True
