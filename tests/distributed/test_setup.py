"""Setting up distributed tables, and what `setup` refuses."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
import pytest

from langgraph_checkpoint_custom import PostgresSaver
from langgraph_checkpoint_custom.cli import main
from langgraph_checkpoint_custom.errors import ConfigError, StorageError
from tests import citus
from tests.behaviour.helpers import checkpoint, config, metadata

SHOWN = (
    "SELECT count(*) FROM citus_tables WHERE citus_table_type = %s AND table_name::text LIKE 'langgraph_checkpoint.%%'"
)


@pytest.fixture
def empty_urls(spare_cluster_urls: Sequence[str]) -> Sequence[str]:
    """An empty database of the cluster."""
    citus.emptied(spare_cluster_urls)
    return spare_cluster_urls


def store_and_read(saver: PostgresSaver, thread_id: str) -> None:
    document = checkpoint("1", {"value": "x" * 5_000}, {"value": "1"})
    saver.put(config(thread_id), document, metadata(0), document["channel_versions"])
    found = saver.get_tuple(config(thread_id))
    assert found is not None
    assert found.checkpoint["channel_values"] == {"value": "x" * 5_000}


def test_the_command_distributes_all_tables(empty_urls: Sequence[str]) -> None:
    for _ in range(2):  # The second time changes nothing.
        assert main(["setup", "--distribute", "citus", "--url", empty_urls[0]]) == 0
    with psycopg.connect(empty_urls[0]) as server:
        counts = [server.execute(SHOWN, (kind,)).fetchone() for kind in ("distributed", "reference")]
    assert counts == [(7,), (2,)]
    for url in empty_urls:
        with PostgresSaver(url) as saver:
            store_and_read(saver, url)


def test_a_saver_and_those_of_its_tenants_find_out_that_the_tables_are_distributed(empty_urls: Sequence[str]) -> None:
    citus.distributed(empty_urls[0])
    with PostgresSaver(empty_urls[1]) as saver:
        tenant = saver.for_tenant("tenant")  # Before anything was read.
        store_and_read(saver, "thread")
        assert tenant.get_tuple(config("thread")) is None
        store_and_read(tenant, "thread")
        assert saver.backend.dialect.layout == tenant.backend.dialect.layout == "citus"


def test_tables_that_exist_are_not_distributed(empty_urls: Sequence[str]) -> None:
    with PostgresSaver(empty_urls[0]) as saver:
        saver.setup()
        with pytest.raises(ConfigError, match=r"already exist and are not distributed.*transfer\(\)"):
            saver.setup(distribute="citus")
        store_and_read(saver, "thread")
        assert saver.backend.dialect.layout is None


def test_only_the_coordinator_changes_tables(empty_urls: Sequence[str]) -> None:
    with PostgresSaver(empty_urls[1]) as saver, pytest.raises(StorageError, match="coordinator"):
        saver.setup(distribute="citus")


def test_a_database_without_citus_is_refused(empty_postgres_url: str, spare_cluster_urls: Sequence[str]) -> None:
    with PostgresSaver(empty_postgres_url) as saver, pytest.raises(ConfigError, match="CREATE EXTENSION citus"):
        saver.setup(distribute="citus")
