"""What the README says of speed, and of LangGraph's savers as production runs them: with a pool, a `DeltaChannel`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Annotated, Any, TypedDict

import psycopg
import pytest
from langchain_core.messages import AIMessage, AnyMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver as OfficialPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver as OfficialSqliteSaver
from langgraph.graph import END, START, StateGraph
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

from langgraph_checkpoint_custom import PostgresSaver, SqliteSaver

ROOT = Path(__file__).parents[1]
THREAD: Any = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
CONNECTIONS = 3


def _end_all_connections(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def _official_pool(url: str, **options: Any) -> ConnectionPool[Any]:
    needs = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    return ConnectionPool(url, min_size=CONNECTIONS, max_size=CONNECTIONS, kwargs=needs, **options)


def _outcomes(saver: Any, url: str) -> list[str]:
    """What reads return after the server has ended all connections: "read", or the class of the error."""
    saver.setup()
    saver.put(THREAD, empty_checkpoint(), {}, {})
    _end_all_connections(url)
    found = []
    for _ in range(2 * CONNECTIONS):
        try:
            found.append("read" if saver.get_tuple(THREAD) else "nothing")
        except psycopg.OperationalError as error:
            found.append(type(error).__name__)
    return found


def test_after_a_restart_each_connection_of_the_official_savers_pool_fails_a_call(empty_postgres_url: str) -> None:
    with _official_pool(empty_postgres_url) as pool:
        pool.wait()
        found = _outcomes(OfficialPostgresSaver(pool), empty_postgres_url)
        assert found == ["AdminShutdown"] * CONNECTIONS + ["read"] * CONNECTIONS


def test_a_check_in_the_pool_prevents_that_and_so_does_this_saver(empty_postgres_url: str) -> None:
    with _official_pool(empty_postgres_url, check=ConnectionPool.check_connection) as pool:
        pool.wait()
        assert set(_outcomes(OfficialPostgresSaver(pool), empty_postgres_url)) == {"read"}
    with PostgresSaver(empty_postgres_url, min_size=CONNECTIONS, max_size=CONNECTIONS) as saver:
        assert set(_outcomes(saver, empty_postgres_url)) == {"read"}


def test_the_official_saver_holds_its_lock_while_a_list_is_open_with_a_pool_too(empty_postgres_url: str) -> None:
    """A read in the loop waits for this lock, which cannot be entered twice."""
    with _official_pool(empty_postgres_url) as pool:
        saver = OfficialPostgresSaver(pool)
        saver.setup()
        saver.put(THREAD, empty_checkpoint(), {}, {})
        listed = iter(saver.list(None))
        next(listed)
        assert saver.lock.locked()
        assert not saver.lock.acquire(blocking=False)


def _joined(messages: list[AnyMessage], new: Sequence[list[AnyMessage]]) -> list[AnyMessage]:
    return [*messages, *chain.from_iterable(new)]


class Chat(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], DeltaChannel(_joined)]
    steps: int


def _chat(saver: Any, steps: int) -> None:
    def say(state: Chat) -> Chat:
        number = state.get("steps", 0) + 1
        return {"messages": [AIMessage(f"{number} " + "a message of a chat " * 10)], "steps": number}

    builder = StateGraph(Chat)
    builder.add_node("say", say)
    builder.add_edge(START, "say")
    builder.add_conditional_edges("say", lambda state: "say" if state["steps"] < steps else END, ["say", END])
    config: Any = {**THREAD, "recursion_limit": 2 * steps}
    found = builder.compile(checkpointer=saver).invoke({"messages": []}, config, durability="sync")
    assert len(found["messages"]) == steps


def _bytes_of_tables(url: str) -> int:
    with psycopg.connect(url) as connection:
        tables = connection.execute(
            "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.relkind = 'r' AND n.nspname IN ('public', 'langgraph_checkpoint')"
        ).fetchone()
        assert tables
        return int(tables[0])


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_chat_with_a_delta_channel_takes_about_as_much_space_with_either_saver(
    database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    sizes: list[int] = []
    for kind in (OfficialSqliteSaver, SqliteSaver) if database == "sqlite" else (OfficialPostgresSaver, PostgresSaver):
        with ExitStack() as stack:
            if database == "sqlite":
                file = tmp_path / f"{len(sizes)}.db"
                _chat(stack.enter_context(kind.from_conn_string(str(file))), 200)
                stack.close()  # Empties the write-ahead log.
                sizes.append(file.stat().st_size)
            else:
                url = request.getfixturevalue("empty_postgres_url")
                saver: Any = stack.enter_context(kind.from_conn_string(url))
                saver.setup()
                before = _bytes_of_tables(url)
                _chat(saver, 200)
                sizes.append(_bytes_of_tables(url) - before)
    official, ours = sizes
    assert 0.5 * official < ours < 1.5 * official


# The row of the README's table, and the case in the report.
SINGLE = {
    "reading a small state": "get small",
    "64 runs at the same time, each with the calls of a superstep": "64 at a time (10 steps on each thread)",
    "storing a chat of 1,000 messages": "put chat to 1,000 messages",
    "listing all 1,000 checkpoints of a thread": "list all (1000 of 1000 checkpoints)",
}


def test_the_readmes_speed_is_that_of_the_report() -> None:
    """What `benchmarks/report/report.md` has: the ratio to the fastest official saver is in the sixth column."""
    readme, report = ((ROOT / name).read_text("utf-8") for name in ("README.md", "benchmarks/report/report.md"))
    sections = {name: text for name, _, text in (each.partition("\n") for each in report.split("\n## "))}
    ratios: dict[str, list[str]] = {}
    for database in ("postgres", "sqlite"):
        lines = sections[database].splitlines()
        for cells in (line.strip("| ").split(" | ") for line in lines if line.startswith("| ")):
            ratios.setdefault(cells[0], []).append(cells[5] if len(cells) > 5 else "")
    cases = [
        line.strip("| ").split(" | ")
        for line in sections["The ordinary superstep"].splitlines()
        if line.startswith(("| s", "| p", "| g"))
    ]
    supersteps = [list(map(float, cells)) for name, *cells in cases if name.startswith("superstep")]
    assert (len(cases), len(supersteps)) == (8, 4)
    rows = {
        "the median of four kinds of supersteps": [f"{median(column):.2f}" for column in zip(*supersteps, strict=True)],
        "the worst of eight everyday calls": [max(column, key=float) for column in list(zip(*cases, strict=True))[1:]],
        **{name: ratios[case] for name, case in SINGLE.items()},
    }
    for name, found in rows.items():
        assert f"\n| {name} | {' | '.join(found)} |\n" in readme
    said = " ".join(readme.split())
    slowest = max(float(cells[2]) for case, cells in ratios.items() if re.match("get (?!latest)", case))
    assert f"on SQLite, where reading a large state takes up to {slowest:.1f} times as long" in said
    ((met, targets, changed),) = re.findall(
        r"^(\d+) of (\d+) targets met, (\d+) of them changed by", report, re.MULTILINE
    )
    assert f"{met} of our {targets} targets are met, {changed} of them [as changed](" in said
    for database, official, ours in (("postgres", "260", "4.3"), ("sqlite", "586", "5.1")):
        (line,) = [line for line in sections[database].splitlines() if line.startswith("| 1,000 chat steps, on disk")]
        sizes = re.findall(r"([.\d]+) MB", line)
        assert (sizes[0], f"{float(sizes[1]):.0f}") == (ours, official)
    assert "| 260 MB on PostgreSQL, 586 MB on SQLite | 4.3 MB, 5.1 MB |" in readme


def test_the_readme_counts_the_values_of_docs_values() -> None:
    table = (ROOT / "docs" / "values.md").read_text("utf-8")
    rows = [
        list(map(int, cells)) for cells in re.findall(r"^\|[^|]* \| (\d+) \| (\d+) \| (\d+) \|$", table, re.MULTILINE)
    ]
    same, given, changed, refused, error, stuck = rows
    sqlite, postgres, ours = (
        (same[n], given[n] + changed[n], refused[n], error[n], stuck[n]) for n in range(len(same))
    )
    said = (
        "| PostgreSQL: {} return unchanged, {} changed, {} are refused, {} are stored with an error, {} end their run. "
        "SQLite: {}, {}, {}, {}, {} | {} return unchanged, {} changed, {} are refused |"
    )
    assert ours[3:] == (0, 0)
    assert said.format(*postgres, *sqlite, *ours[:3]) in (ROOT / "README.md").read_text("utf-8")
