"""docs/values.md says what happens to each value, and is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.table.document import SAME, read, rows_of, text_of
from tests.table.measuring import empty_stores, measure
from tests.table.values import GROUPS

# Stored in clear by LangGraph's savers; ours wants encryption or a codec.
SECRETS = ("`SecretStr`", "`SecretBytes`", "pydantic 1: `SecretStr`")


def test_the_document_has_the_measurements() -> None:
    rows, measured_with, text = read()
    assert text == text_of(rows, measured_with), "`python -m tests.table` writes both"


@pytest.mark.timeout(600)
def test_the_measurements_are_still_right(postgres_dsn: str, tmp_path: Path) -> None:
    """For the installed packages. Ours give the same results on both databases, never worse ones than LangGraph's."""
    with empty_stores(postgres_dsn, tmp_path) as urls:
        measured = measure(urls, tmp_path)
    rows, found = read()[0], rows_of(measured)
    assert {name: (row, rows.get(name)) for name, row in found.items() if row != rows.get(name)} == {}
    assert {kind for kind, _ in found} >= {kind.name for kind in GROUPS if not kind.package}
    for name, (sqlite, postgres, ours) in found.items():
        assert measured["ours postgres"][name].text == ours, name
        if name[1] in SECRETS:
            assert ours == "refused", name
            continue
        assert ours == SAME if SAME in (sqlite, postgres) else ours.startswith((SAME, "changed: ", "refused")), name
