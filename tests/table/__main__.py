"""Measures, and writes `measured.json` and docs/values.md: `python -m tests.table`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.conftest import running_postgres
from tests.table.document import rows_of, versions, write
from tests.table.measuring import empty_stores, measure


def main() -> None:
    measured_with = versions()
    with tempfile.TemporaryDirectory() as folder, running_postgres() as dsn, empty_stores(dsn, Path(folder)) as urls:
        write(rows_of(measure(urls, Path(folder))), measured_with)


if __name__ == "__main__":
    main()
