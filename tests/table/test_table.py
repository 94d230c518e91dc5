"""docs/comparison.md says what becomes of each value, and it is so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.table.document import SAME, read, rows_of, text_of
from tests.table.measuring import empty_stores, measure
from tests.table.values import KINDS


def test_the_document_has_what_was_measured() -> None:
    rows, measured_with, text = read()
    assert text == text_of(rows, measured_with), "`python -m tests.table` writes both"


@pytest.mark.timeout(600)
def test_it_is_so(postgres_dsn: str, tmp_path: Path) -> None:
    """Of the packages that are here; ours are the same on both databases, and never worse than LangGraph's."""
    with empty_stores(postgres_dsn, tmp_path) as urls:
        measured = measure(urls, tmp_path)
    rows, found = read()[0], rows_of(measured)
    assert {name: (row, rows.get(name)) for name, row in found.items() if row != rows.get(name)} == {}
    assert {kind for kind, _ in found} >= {kind.name for kind in KINDS if not kind.package}
    for name, (sqlite, postgres, ours) in found.items():
        assert measured["ours postgres"][name].told == ours, name
        assert ours == SAME if SAME in (sqlite, postgres) else ours.startswith((SAME, "changed: ", "refused")), name
