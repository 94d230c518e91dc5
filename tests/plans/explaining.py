"""The statements that are explained on the stores of `conftest.py`, and how a plan is read."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from langgraph_checkpoint_custom.encoding.encoded import Encoded
from langgraph_checkpoint_custom.engine.operation import Form, RoundTrip, Statement
from langgraph_checkpoint_custom.model.filter import narrowing, wanted
from langgraph_checkpoint_custom.model.keys import Ahead, BlobRef, BlobRow, CheckpointRow, Key, Page, Range, WriteRow
from langgraph_checkpoint_custom.model.outline import Outline, Removal, branch, later, superseded
from langgraph_checkpoint_custom.model.records import ThreadPage
from langgraph_checkpoint_custom.operations.copies import copied, forked
from langgraph_checkpoint_custom.operations.delete import changes
from langgraph_checkpoint_custom.operations.doctor import TABLES as DOCTORS
from langgraph_checkpoint_custom.operations.inspector import counts_of_thread
from langgraph_checkpoint_custom.operations.pages import first_page
from langgraph_checkpoint_custom.operations.sizes import ALL
from langgraph_checkpoint_custom.sql.dialect import SqlDialect
from tests.plans.conftest import SHORT

NOTHING = narrowing(wanted({"source": "nothing"}), contains=True)
LOOP = narrowing(wanted({"source": "loop"}), contains=True)
OPERATORS = narrowing(
    wanted(
        {"source": {"$in": ["loop", "fork"], "$gt": "a"}, "step": {"$gte": 0, "$ne": 5}, "user": {"$exists": False}}
    ),
    contains=True,
)
ALL_THREADS = Range(" ", "\U0010ffff")
THREE = Range("t1", "t100\x01")
SEARCHED = ThreadPage("\U0010ffff", "", narrowing(wanted({"run": "run7-10"}), contains=True), 20)


def round_trips(d: SqlDialect) -> dict[str, tuple[RoundTrip, int]]:
    """The cases, with the number of rows that each may read in total."""
    page = first_page("t0", "", None, "003000", 20)
    keys = [(f"{n:06}", "") for n in range(2_999, 2_979, -1)]
    of_thread = first_page("t0", None, None, "003000", 20)._replace(ahead=Ahead(keys, [""], 0))
    write, written = some_writes(d, "t7")
    return {
        "latest": (d.select_checkpoint(Key("t0", "", None)), 20),
        "by id": (d.select_checkpoint(Key("t0", "", "000123")), 20),
        "put": (d.insert_checkpoint(a_checkpoint("t7")), 0),
        "put on a parent": (put_on_parent(d, Encoded(a_checkpoint("t7"))), 1),
        "put with blobs": (put_on_parent(d, an_extension("t7")), 2),
        "blobs of the parent": (d.ask("select_blobs_of", **Key("t7", "", "000050")._asdict()), 1),
        "writes": (RoundTrip((write.with_params(written),)), 0),
        "list page": (d.select_page(page), 300),
        "list page without a filter": (RoundTrip((_page_at_once(d, page),)), 300),
        "list page, filtered": (d.select_page(page._replace(filter=LOOP)), 300),
        "list page, filtered by operators": (d.select_page(page._replace(filter=OPERATORS)), 300),
        "list page of all threads": (d.select_page(first_page(None, None, None, "000050", 20)), 6_000),
        # All namespaces of a thread: its keys are read for the order, and then 20 rows.
        # Of 4,000: under row-level security, the planner may sort all keys of a thread.
        "keys of a thread": (d.ask("select_keys", thread_id="t0", limit=1_001), 4_000),
        "namespaces of a thread": (d.ask("select_namespaces", thread_id="t0", limit=11), 2),
        "newest keys of a namespace": (d.select_newest_keys(of_thread, [""], 20), 20),
        "newest keys of a thread": (d.select_newest_keys(first_page("t1", None, None, None, 20), None, 20), 100),
        "list page of a thread": (d.select_page(of_thread), 300),
        "history page": (d.select_records(page), 300),
        "history page of a thread": (d.select_records(of_thread), 60),
        "end of a search": (d.ask("select_id_below", before="000101", reach=5_000), 5_001),
        "search of all threads": (
            d.select_records(first_page(None, None, None, "000050", 20)._replace(filter=NOTHING, floor="000049")),
            4_000,
        ),
        "newest of threads": (d.ask_each("newest_of_thread", [{"thread_id": "t1"}, {"thread_id": "t2"}]), 4),
        # The long thread's 4,000 are the newest of the store, and then 1,960 threads have the same newest id. Each of
        # the threads that are found takes three rows.
        "newest threads": (newest_threads(d, ThreadPage("\U0010ffff", "", (), 20), 1_000), 1_010),
        "newest threads, one after the other": (
            newest_threads(d, ThreadPage("000100", "t1700", (), 20), 100),
            3_000,
        ),
        "newest threads, filtered": (newest_threads(d, ThreadPage("000100", "t1700", LOOP, 20), 100), 3_000),
        # For each of 500 threads: the next one, its first namespace, its newest checkpoint.
        "threads by id": (threads_by_id(d, ()), 2_000),
        "threads by id, filtered": (
            threads_by_id(d, LOOP),
            2_000,
        ),
        "threads by id, filtered by operators": (
            threads_by_id(d, OPERATORS),
            2_000,
        ),
        # The last run of a thread has one checkpoint, which is the thread's newest.
        "threads, searched": (d.select_searched_threads(SEARCHED, "run", ['"run7-10"']), 10),
        # The index entries of 50 interrupts twice, and the newest checkpoint of each thread; no thread has failed.
        "threads that wait": (marked_threads(d, "threads_waiting", LOOP), 170),
        "threads that failed": (marked_threads(d, "threads_failed", ()), 0),
        "count of threads": (d.ask("threads_counted", **ALL_THREADS._asdict(), threads=500), 510),
        "thread exists": (d.ask("select_keys", thread_id="t7", limit=1), 1),
        "next threads": (d.ask_each("thread_ids", map(Range._asdict, d.ranges_after("t7")), threads=3), 8),
        "checkpoints of a thread": (d.ask("select_checkpoint_ids", thread_id="t7"), 400),
        "newest id": (d.ask("select_newest_id", **Key("t7", "", None)._asdict()), 1),
        "document": (d.ask("select_document", **Key("t7", "", "000050")._asdict()), 1),
        "export of checkpoints": (
            d.export_rows("t0", [("checkpoint", {"checkpoint_ns": "", "checkpoint_id": "0001"})], 20),
            20,
        ),
        "export of values": (
            d.export_rows("t0", [("blob", {"checkpoint_ns": "", "channel": "messages", "version": "100"})], 20),
            20,
        ),
        "export of writes": (
            d.export_rows(
                "t0", [("write", {"checkpoint_ns": "", "checkpoint_id": "000100", "task_id": "", "idx": 0})], 20
            ),
            20,
        ),
        "runs": (d.ask("select_runs", thread_id="t7"), 150),
        # Of a thread of 4,000 checkpoints, 20 with their writes.
        "timeline": (d.ask("timeline", thread_id="t0", before="\U0010ffff", limit=20), 150),
        "timeline, from the middle": (d.ask("timeline", thread_id="t0", before="002000", limit=20), 150),
        "numbers of a thread": (counts_of_thread(d, "t0", 100), 320),
        "sizes of a checkpoint": (
            d.ask("sizes_of_checkpoint", "sizes_of_writes", **Key("t7", "", "000050")._asdict()),
            40,
        ),
        "sizes of values": (
            d.ask(
                "sizes_of_blobs",
                thread_id="t7",
                checkpoint_ns="",
                channels=d.array(["messages", "messages"]),
                versions=d.array(["50", "#/5"]),
            ),
            2,
        ),
        # Of the 50 threads that have ever asked, each once, and their newest checkpoints with the writes of these.
        "threads that have asked": (d.ask("select_interrupting", **ALL_THREADS._asdict(), limit=1_000), 50),
        "threads whose newest checkpoint asks": (
            d.ask_each("select_asking", [{"thread_id": "t17"}, {"thread_id": "t18"}]),
            10,
        ),
        "questions of checkpoints": (
            d.ask_each("select_questions", [Key(each, "", "000100")._asdict() for each in ("t17", "t18")]),
            10,
        ),
        # Three threads: 100 checkpoints, 200 writes, 112 blobs and 3 labels of each.
        "end of a page of threads": (d.ask("thread_at", **THREE._asdict(), rows=200), 450),
        "sizes of threads": (d.ask("sizes", **THREE._asdict(), most=10_000), 1_500),
        "sizes of threads, in part": (
            d.ask_each("sizes", [d.only("t0")._asdict(), d.only("t1")._asdict()], most=100),
            650,
        ),
        "doctor": (d.ask(*DOCTORS, **THREE._asdict()), 2_500),
        # The threads of a sweep. All but one of the 1,961 have the checkpoint 000050.
        "due threads": (d.ask("select_due", now=1_500.0, due_after=1_200.0, thread_id="", limit=20), 20),
        # There are 101, which PostgreSQL 15 sorts instead of following the index to the first 20.
        "new checkpoints": (new_checkpoints(d, "0039", ""), 101),
        "new checkpoints of many threads": (new_checkpoints(d, "000050", "t1700"), 2_000),
        "thread to hasten": (d.ask("hasten_thread", thread_id="t7"), 2),
        "threads to arm": (armed(d, range(1, 501), "arm_threads"), 1_000),
        # For more threads, PostgreSQL 15 reads all of so small a table.
        "threads to hasten": (armed(d, range(1, 1_900, 400), "hasten_threads"), 12),
        "threads left": (armed(d, range(1, 1_900, 400), "select_later"), 12),
        "ids of threads": (d.ask("thread_ids", **ALL_THREADS._asdict(), threads=500), 510),
        # Of 4,000 checkpoints the newest six, its namespace twice, and the row of the thread.
        "thread that a sweep visits": (
            d.ask("select_visit", thread_id="t0", limit=101, even_hidden=False, counted=6),
            20,
        ),
        # Of 100 checkpoints, twice as many writes, and their values, each is counted and deleted.
        "expired thread": (RoundTrip([d.statement("delete_thread", thread_id="t7", checkpoints=100)]), 1_000),
        "thread armed again": (d.ask("rearm_thread", thread_id="t7", due_at=2_000.0, seen=1_007.0), 2),
        "thread without checkpoints": (d.ask("drop_thread", thread_id="t7"), 3),
        "time to live": (
            RoundTrip([d.statement("set_ttl", thread_id="t7", ttl_seconds=60.0, strategy="delete")]),
            1,
        ),
        "how many are due": (RoundTrip([d.statement("count_due", above=0.0, below=1_500.0, limit=100)]), 100),
        "metadata": (d.ask("select_metadata", **Key("t7", "", "000050")._asdict()), 1),
        "delta history": (
            d.ask("select_delta_history", **Key("t0", "", "003999")._asdict(), asked=d.array(["log"])),
            2_000,
        ),
    }


def newest_threads(d: SqlDialect, page: ThreadPage, reach: int) -> RoundTrip:
    return d.ask("threads_newest", **page.params(), reach=reach)


def threads_by_id(d: SqlDialect, filter: Sequence[Any]) -> RoundTrip:
    page = ThreadPage("\U0010ffff", "", filter, 20)
    return d.ask("threads_by_id", **page.params(), **ALL_THREADS._asdict(), threads=500)


def marked_threads(d: SqlDialect, name: str, filter: Sequence[Any]) -> RoundTrip:
    page = ThreadPage("\U0010ffff", "", filter, 20)
    return d.ask_each(name, map(Range._asdict, d.ranges("t")), **page.params(), threads=1_000)


def new_checkpoints(d: SqlDialect, bottom: str, thread_id: str) -> RoundTrip:
    return d.ask("select_grown", bottom=bottom, top="\U0010ffff", thread_id=thread_id, limit=20)


def armed(d: SqlDialect, numbers: Iterable[int], *names: str) -> RoundTrip:
    return d.ask(*names, thread_ids=d.array([f"t{number}" for number in numbers]), due_at=1.0)


def _page_at_once(d: SqlDialect, page: Page) -> Statement:
    form, params = d.page_form(page)
    return form.with_params(params)


NO_METADATA = {"metadata_type": "msgpack", "metadata": b"\x80", "metadata_filter": "{}"}


def a_checkpoint(thread_id: str) -> CheckpointRow:
    """A checkpoint after the last one that references nothing."""
    return CheckpointRow(
        thread_id, "", "000101", f"{SHORT:06}", None, None, 4, [], [], [], [],
        "msgpack", b"", "msgpack", b"", "{}",
    )  # fmt: skip


def an_extension(thread_id: str) -> Encoded:
    """A checkpoint that keeps a value of the last one, shares a chunk with it and has its own value."""
    last = str(SHORT)
    references = [BlobRef("messages", last, required=True), BlobRef("messages", last, required=True, begins='["#/10"')]
    row = a_checkpoint(thread_id)._replace(blob_channels=["messages"], blob_versions=[last])
    return Encoded(row, None, references=references, blobs=[BlobRow("own", "1", "msgpack", b"")])


def some_writes(d: SqlDialect, thread_id: str) -> tuple[Form, Sequence[Any]]:
    """What stores two writes of a task, and its parameters."""
    key, rows = Key(thread_id, "", "000077"), [WriteRow("new", "", None, idx, "a", "msgpack", b"") for idx in range(2)]
    form = d.writes_form(rows)
    assert form
    return form, d.writes_params(key, rows)


def an_outline(size: int) -> Outline:
    """The outline of the thread t7 of the stores, if this is its size, with one value in each checkpoint."""
    return Outline(
        (
            "",
            f"{n:06}",
            f"{n - 1:06}" if n > 1 else None,
            None,
            f"run7-{n // 10}",
            4,
            False,
            "[]",
            "[]",
            '["messages"]',
            f'["{n}"]',
        )
        for n in range(1, size + 1)
    )


def put_on_parent(d: SqlDialect, encoded: Encoded) -> RoundTrip:
    """What stores a checkpoint and its blobs on its parent in one statement, where one does."""
    found = d.put_on_parent_form(encoded)
    return RoundTrip([found[0].with_params(found[1])] if found and not d.layout else ())


def maintenance(d: SqlDialect, size: int = SHORT) -> dict[str, RoundTrip]:
    """Statements that change many rows or read all."""
    after = {"thread_id": "t5", "checkpoint_ns": "", "checkpoint_id": ""}
    outline = an_outline(size)
    pruned, rolled_back = Removal(outline, superseded(outline, 1)), Removal(outline, later(outline, "000050"))
    copies = branch(outline, "000050")
    return {
        "put with references": d.find_problems(an_extension("t7"), only_newest=True, even_if_hidden=False),
        "threads of runs": d.ask("threads_of_runs", run_ids=d.array(["run7-3"])),
        "outline": d.ask(
            "select_outline", "select_labels", "select_written", thread_id="t7", limit=ALL, run_ids=d.array(["run7-3"])
        ),
        "sends": d.ask("select_sends", thread_id="t7"),
        "chunks": d.select_chunks("t7", pruned.blobs),
        "prune": changes(d, "t7", pruned, {}, None),
        "values": d.delete_blobs("t7", pruned.blobs),
        "delete runs": changes(d, "t7", rolled_back, {("", "000050"): {"log"}}, ["run7-3"]),
        "delete early writes": d.ask("delete_early_writes", thread_id="t7", checkpoint_id="000050"),
        "copied": d.ask("select_not_in_source", "count_checkpoints", lock="shared", thread_id="t7", target="t8"),
        "copied already": d.ask("select_not_in_source", thread_id="t7", target="t7"),
        "copy": copied(d, "t7", "new"),
        "delete a thread": d.ask("delete_thread", lock="exclusive", thread_id="t7", checkpoints=None),
        "places": d.ask("select_checkpoint_ids", thread_id="t7"),
        "outline of a short thread": d.ask("select_outline", thread_id="t7", limit=101),
        "delete an expired thread": d.ask("delete_thread", lock="exclusive", thread_id="t7", checkpoints=size),
        "fork": forked(d, "t7", "new", copies, copies.blobs, {"checkpoint_id": "000050", **NO_METADATA}),
        "move labels": d.ask("move_labels", **Key("t7", "", "000050")._asdict(), new_id="000051"),
        "label": d.ask("label_checkpoint", **Key("t7", "", None)._asdict(), name="name"),
        "stored checkpoints": d.stored_rows("checkpoint", after, 100),
        "stored labels": d.stored_rows("label", {"thread_id": "t7", "name": ""}, 100),
    }


def prepare(connection: psycopg.Connection[Any], statement: Statement) -> tuple[str, Sequence[Any]]:
    """Prepare a statement as `explained`; returns what executes it, with its parameters."""
    given: Any = statement.params
    values: list[Any] = []
    numbers: dict[str, int] = {}

    def numbered(found: re.Match[str]) -> str:
        name = found[1]
        if found[0] == "%%":
            return "%"
        if name not in numbers:
            values.append(given[len(values) if name is None else name])
        if name is None:
            return f"${len(values)}"
        return f"${numbers.setdefault(name, len(values))}"

    text = re.sub(r"%%|%(?:\((\w+)\))?[sb]", numbered, statement.sql)
    connection.execute(b"PREPARE explained AS " + text.encode(), prepare=False)
    return f"EXECUTE explained({', '.join(['%s'] * len(values))})" if values else "EXECUTE explained", values


def explain(connection: psycopg.Connection[Any], statement: Statement, *, generic: bool = False) -> dict[str, Any]:
    """The plan of a statement, with the rows that it read; for its parameters, or the generic one."""
    explained: str = statement.sql
    values: Any = statement.params
    connection.execute("SET jit = off")  # As in each of our sessions and, through a pooler, transactions.
    if generic:
        # EXPLAIN knows the parameters of what it explains, however it is sent.
        for setting in ("plan_cache_mode = force_generic_plan", "random_page_cost = 1"):  # As in our own sessions.
            connection.execute(f"SET {setting}")
        explained, values = prepare(connection, statement)
    cursor = psycopg.ClientCursor(connection) if generic else connection.cursor()
    row = cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {explained}", values).fetchone()
    if generic:
        connection.execute("DEALLOCATE explained")
    assert row is not None
    plan: dict[str, Any] = row[0][0]["Plan"]
    return plan


def connected(url: str, *, owner: bool) -> psycopg.Connection[Any]:
    """A connection as the tables' owner, or as a role under row-level security, about which the planner knows less."""
    connection = psycopg.connect(url)
    connection.execute("SET statement_timeout = '300s'")
    if not owner:
        connection.execute("CREATE ROLE plans_runner")
        connection.execute("GRANT USAGE ON SCHEMA langgraph_checkpoint TO plans_runner")
        connection.execute(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA langgraph_checkpoint TO plans_runner"
        )
        connection.execute("SET LOCAL ROLE plans_runner")
    return connection


def statement_rows(plan: dict[str, Any]) -> Iterator[tuple[dict[str, Any], int]]:
    """Every node of a plan with the rows that it read, including those that it discarded."""
    loops = plan.get("Actual Loops", 1)
    lost = sum(plan.get(key, 0) for key in ("Rows Removed by Filter", "Rows Removed by Index Recheck"))
    yield plan, int(loops * (plan.get("Actual Rows", 0) + lost))
    for child in plan.get("Plans", ()):
        yield from statement_rows(child)


def table_reads(plan: dict[str, Any]) -> tuple[list[str], int]:
    """Tables that were read from end to end, and the number of rows read from tables."""
    scans, rows = [], 0
    for node, read in statement_rows(plan):
        if "Scan" in node["Node Type"] and not node.get("Relation Name", "pg_").startswith("pg_"):
            rows += read
            if node["Node Type"] == "Seq Scan" and node["Actual Loops"]:  # Else it is below a condition that is false.
                scans.append(f"{node['Relation Name']} ({read} rows)")
    return scans, rows


def sqlite_plan(connection: sqlite3.Connection, statement: Statement) -> list[str]:
    params = statement.params[0] if isinstance(statement.params, list) else statement.params
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement.sql}", params)]


# The tables that are too large to be read from end to end.
TABLES = "checkpoints", "blobs", "writes", "labels", "threads"


def sqlite_reads(path: Path, statement: Statement) -> list[str]:
    """What SQLite would read from end to end; it names a table by its alias in the statement."""
    with closing(sqlite3.connect(path)) as connection:
        details = sqlite_plan(connection, statement)
    aliases = re.findall(rf"\b(?:{'|'.join(TABLES)})\s+(?:AS\s+)?(\w+)", statement.sql)
    scans = [text for text in details if text.startswith("SCAN ") and text.split()[1] in {*TABLES, *aliases}]
    scans = [text for text in scans if "VIRTUAL TABLE" not in text]
    # SQLite 3.53 creates a Bloom filter of the list of an IN, which reads no table.
    return scans + [text for text in details if "BLOOM FILTER" in text and text != "CREATE BLOOM FILTER"]
