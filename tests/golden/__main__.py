"""Write the golden stores of this version: `python -m tests.golden`, before each release and never after it.

They are written by the wheel.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.wheels import ROOT, unpacked


def main(temporary: Path) -> None:
    """Write both stores into the folder of the version."""
    package = unpacked(ROOT, temporary)
    sys.path.insert(0, str(package))
    # These import the package.
    from tests.conftest import made_database, running_postgres
    from tests.golden.content import write_all
    from tests.golden.stores import FILES, HERE, save
    from tests.stores import Store

    version, file = (getattr(sys.modules["langgraph_checkpoint_custom"], name) for name in ("__version__", "__file__"))
    assert Path(file).is_relative_to(package)
    folder = HERE / version
    folder.mkdir(exist_ok=True)
    with running_postgres() as dsn, made_database(dsn) as (_, url):
        for store in (Store("sqlite", f"sqlite:///{temporary / 'checkpoints.db'}"), Store("postgres", url)):
            write_all(store)
            save(store, folder / FILES[store.kind])


with tempfile.TemporaryDirectory() as made:
    main(Path(made))
