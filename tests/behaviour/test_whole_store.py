"""What reads all rows or threads of a store does so in pages: it takes a round trip for each page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from langgraph_checkpoint_custom import OperationEvent, Retention
from langgraph_checkpoint_custom.operations.rows import BYTES, MOST, rows_after
from langgraph_checkpoint_custom.operations.sizes import sizes_of_store
from langgraph_checkpoint_custom.tools.exchange import export_file
from langgraph_checkpoint_custom.tools.types import classes_of
from tests.behaviour.helpers import checkpoint, config, metadata, next_uuid
from tests.stores import Store

# Enough for five pages of rows, of 25, 50, 100, 200 and the rest.
THREADS = 410
# Of the threads that a sweep looks at: four for each 200 that are due.
PAGES = 9
YEARS = timedelta(days=36_500)


def test_the_round_trips_of_operations_on_a_whole_store(store: Store, tmp_path: Path) -> None:
    """One for each page, also of threads that a sweep visits, and one for each thread that is written."""
    events: list[OperationEvent] = []
    with store.open(on_operation=events.append) as saver:
        saver.setup()
        for number in range(THREADS):
            where = saver.put(config(f"t{number}"), checkpoint(next_uuid(), {"a": number}), metadata(), {"a": "1"})
            saver.put_writes(where, [("a", number)], "task")
        one = Retention(older_than=YEARS)
        # Five pages of checkpoints and of writes, one of blobs, and one of each above the threads of tenants.
        works: dict[str, tuple[Callable[[], object], int]] = {
            "types": (lambda: classes_of([saver]), 14),
            "reencrypt": (lambda: saver.reencrypt(dry_run=True), 14 + 2),  # Whether there are tenants.
            "stats": (lambda: saver.backend.driver.run(sizes_of_store(saver.backend.dialect, 10)), 4),
            "count_threads": (lambda: saver.count_threads(), 2),
            "export": (lambda: export_file(saver, tmp_path / "file"), 7 + 1),
            "sweep": (lambda: saver.sweep(one), 4 * PAGES + 14),
            "sweep again": (lambda: saver.sweep(one), 8),
            "sweep after a change": (lambda: saver.sweep(Retention(older_than=2 * YEARS)), 4 * PAGES + 14),
        }
        for name, (work, most) in works.items():
            events.clear()
            work()
            assert sum(event.round_trips for event in events) <= most, name
            assert sum(event.rows for event in events) <= 6 * THREADS, name
            if name == "sweep after a change":  # A page arms 2,000 threads, and a page of due ones has 200.
                counted = Counter(event.name for event in events)
                assert [counted[each] for each in ("arm_threads", "due_page", "kept_threads", "sweep_thread")] == [
                    2,
                    3,
                    PAGES,
                    0,
                ]


def test_a_page_has_no_more_rows_than_their_bytes_allow() -> None:
    assert [rows_after(25, 100), rows_after(MOST, 100)] == [50, MOST]
    assert [rows_after(25, 25 * BYTES), rows_after(1, 100 * BYTES), rows_after(1, BYTES // 8)] == [1, 1, 2]
