"""However a saver, its event loop and its process end, no session remains, and at most libraries log something."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import psycopg
import pytest

from tests.drivers.ends import LOGGED, WAYS
from tests.stores import Store


@pytest.fixture
def prepared(own_store: Store) -> Iterator[Store]:
    with own_store.open() as saver:
        saver.setup()
    yield own_store
    if own_store.kind == "postgres":
        with psycopg.connect(own_store.url, autocommit=True) as watcher:
            while watcher.execute(
                "SELECT FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
                " AND pid <> pg_backend_pid() AND application_name NOT LIKE 'citus_%'"
            ).fetchall():
                pass  # The server ends a session shortly after its connection.


@pytest.mark.parametrize("way", [way.__name__ for way in WAYS])
def test_no_session_remains(prepared: Store, way: str) -> None:
    command = [sys.executable, "-m", "tests.drivers.ends", way, prepared.url]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
    if prepared.kind == "sqlite" or way not in [each.__name__ for each in LOGGED]:
        assert ended.stderr == ""
