"""Partitioned tables behave like unpartitioned ones, and `setup` does not change the layout of existing tables."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from langgraph_checkpoint_custom import ConfigError, PostgresSaver, Retention
from langgraph_checkpoint_custom.model.keys import Key
from langgraph_checkpoint_custom.operations import list_threads as core_threads
from langgraph_checkpoint_custom.tools.exchange import transfer
from tests.conftest import APIS
from tests.graphs.running import Copied, Pruned, Reopened, agrees_with_memory
from tests.graphs.scenarios import SCENARIOS
from tests.invariants import read_tables, violations
from tests.moving.official import config, everything, play, step
from tests.stores import Store


@pytest.fixture
def partitioned(empty_postgres_url: str) -> Store:
    with PostgresSaver(empty_postgres_url) as saver:
        saver.setup(partitions=4)
    return Store("postgres", empty_postgres_url)


def test_real_graphs_see_no_difference(partitioned: Store) -> None:
    async def play_all() -> None:
        for number, scenario in enumerate(SCENARIOS[::4]):
            kind = (Reopened, Pruned, Copied)[number % 3]
            with partitioned.open() as saver:
                for found in list(saver.list(None)):
                    saver.delete_thread(found.config["configurable"]["thread_id"])
            await agrees_with_memory(scenario, kind, partitioned, APIS[number % 2], "sync")

    asyncio.run(play_all())


def test_rows_are_spread_and_maintained(partitioned: Store) -> None:
    with partitioned.open() as saver:
        threads = play(saver, every=4)
        with psycopg.connect(partitioned.url) as server:
            for table in ("checkpoints", "writes"):
                counts = [
                    server.execute(f"SELECT count(*) FROM langgraph_checkpoint.{table}_{number}").fetchone()
                    for number in range(4)
                ]
                assert all(count and count[0] for count in counts)
        assert [thread.thread_id for thread in saver.threads()] != []
        assert saver.count_threads() == len(threads)
        saver.copy_thread(threads[0], "copy")
        saver.fork_thread(threads[1], "fork", checkpoint_id=newest(saver, threads[1]))
        saver.sweep(Retention(keep_last=2))
        saver.prune(threads[:3])
        saver.delete_for_runs(["unknown"])
        saver.delete_thread("copy")
        assert list(violations(read_tables(partitioned))) == []


def test_threads_are_found_by_searchable_keys(partitioned: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_threads, "FILTERED", 1)
    with PostgresSaver(partitioned.url) as saver:
        play(saver, every=4)
        filters: list[dict[str, Any]] = [{"source": "loop"}, {"step": 1}, {"source": None}]
        without = [(list(saver.threads(filter=each)), saver.count_threads(filter=each)) for each in filters]
        saver.setup(partitions=4, searchable=["source", "step"])
        assert [(list(saver.threads(filter=each)), saver.count_threads(filter=each)) for each in filters] == without
        assert without[0][1] > 1


def newest(saver: Any, thread_id: str) -> str:
    found = saver.get_tuple(config(thread_id))
    return str(found.checkpoint["id"])


@pytest.mark.parametrize("name", ["latest", "exists"])
def test_a_statement_of_a_run_looks_into_one_partition(partitioned: Store, name: str) -> None:
    with partitioned.open() as saver, psycopg.connect(partitioned.url, autocommit=True) as server:
        location = step(saver, "t", None, a=[1])
        d = saver._dialect
        key = Key("t", "", location["configurable"]["checkpoint_id"])
        round_trip = d.select_checkpoint(key._replace(checkpoint_id=None)) if name == "latest" else d.thread_exists("t")
        server.execute("SET plan_cache_mode = force_generic_plan")
        server.prepare_threshold = 0
        (statement,) = round_trip.statements
        plan = server.execute(f"EXPLAIN (ANALYZE, COSTS OFF) {statement.sql}", statement.params).fetchall()
        text = "\n".join(line for (line,) in plan)
        read = {
            number
            for number in range(4)
            for line in text.splitlines()
            if f"on checkpoints_{number}" in line and "never executed" not in line
        }
        assert len(read) == 1, text


def test_a_role_sees_a_partitions_rows_through_the_table_only(partitioned: Store) -> None:
    with partitioned.open() as saver, psycopg.connect(partitioned.url, autocommit=True) as server:
        step(saver, "t", None, a=["x" * 300])
        server.execute("CREATE ROLE reads_all")
        try:
            server.execute("GRANT USAGE ON SCHEMA langgraph_checkpoint TO reads_all")
            server.execute("GRANT SELECT ON ALL TABLES IN SCHEMA langgraph_checkpoint TO reads_all")
            server.execute("SET ROLE reads_all")
            seen = {}
            for table in ("checkpoints", "checkpoints_0", "checkpoints_1", "checkpoints_2", "checkpoints_3"):
                (seen[table],) = server.execute(f"SELECT count(*) FROM langgraph_checkpoint.{table}").fetchone() or ()
            assert seen.pop("checkpoints") == 1
            assert set(seen.values()) == {0}
        finally:
            server.execute("RESET ROLE")
            server.execute("DROP OWNED BY reads_all")
            server.execute("DROP ROLE reads_all")


@pytest.mark.parametrize("api", APIS)
def test_setup_does_not_change_the_layout_of_existing_tables(partitioned: Store, api: str) -> None:
    async def again(partitions: int | None) -> None:
        with PostgresSaver(partitioned.url) as saver:
            if api == "sync":
                await asyncio.to_thread(saver.setup, partitions=partitions)
            else:
                await saver.asetup(partitions=partitions)
                await saver.aclose()

    asyncio.run(again(None))
    asyncio.run(again(4))
    with pytest.raises(ConfigError, match=r"with 4 partitions, not 8.*transfer"):
        asyncio.run(again(8))


def test_unpartitioned_tables_are_not_partitioned_in_place_but_moved(postgres_url: str) -> None:
    with PostgresSaver(postgres_url) as full, PostgresSaver(postgres_url, schema='it\'s 5% "odd"') as partitioned_saver:
        with pytest.raises(ConfigError, match=r"with no partitions, not 3.*transfer"):
            full.setup(partitions=3)
        step(full, "t", None, a=["x" * 300])
        partitioned_saver.setup(partitions=3)
        assert transfer(full, partitioned_saver).problems == {}
        assert everything(partitioned_saver) == everything(full)


@pytest.mark.parametrize("partitions", [0, 1025])
def test_an_impossible_layout_is_refused(partitions: int) -> None:
    saver = PostgresSaver("postgresql://nobody@localhost:1/nothing")
    with pytest.raises(ConfigError, match="partitions"):
        saver.setup(partitions=partitions)
