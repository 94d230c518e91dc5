"""Write the golden stores of this version: `python -m tests.golden`, before each release and never after it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from langgraph_checkpoint_custom import __version__
from tests.conftest import made_database, running_postgres
from tests.golden.content import write_all
from tests.golden.stores import FILES, HERE, save
from tests.stores import Store


def main() -> None:
    """Write both stores into the folder of the version."""
    folder = HERE / __version__
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        fill(Store("sqlite", f"sqlite:///{Path(temporary) / 'checkpoints.db'}"), folder)
    with running_postgres() as dsn, made_database(dsn) as (_, url):
        fill(Store("postgres", url), folder)


def fill(store: Store, folder: Path) -> None:
    """Write one store and save it to a file."""
    write_all(store)
    save(store, folder / FILES[store.kind])


main()
