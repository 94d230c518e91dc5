"""Writes `shipped.txt` of both databases from the migrations: `python -m tests.cli.shipped`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from langgraph_checkpoint_custom import migrations, open_saver
from langgraph_checkpoint_custom.engine.operation import Steps, operation
from langgraph_checkpoint_custom.sql.dialect import SqlDialect
from tests.conftest import made_database, running_postgres


@operation("read")
def catalog(d: SqlDialect) -> Steps[list[str]]:
    """The lines of the catalog."""
    (rows,) = yield d.ask("catalog_lines")
    return sorted(str(line) for (line,) in rows)


def write(url: str, database: str) -> None:
    """Write the file of one database."""
    with open_saver(url) as saver:
        saver.setup()
        lines = saver.backend.driver.look(catalog(saver.backend.dialect))
    path = Path(migrations.__file__).with_name(database) / "shipped.txt"
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        write(f"sqlite:///{folder}/a.db", "sqlite")
    with running_postgres() as dsn, made_database(dsn) as (_, url):
        write(url, "postgres")


if __name__ == "__main__":
    main()
