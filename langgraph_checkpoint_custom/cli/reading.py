"""`threads`, `failures`, `tenants`, `history`, `interrupts`, `labels`: the commands that list things.

They import no stored class and make no stored object.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import zip_longest
from typing import Annotated, Any

from langgraph_checkpoint_custom.cli.common import (
    Full,
    Limit,
    Options,
    Thread,
    Where,
    command,
    moment,
    option,
    thread_as_typed,
)
from langgraph_checkpoint_custom.cli.output import Column, number, size
from langgraph_checkpoint_custom.errors import CheckpointNotFound, ConfigError
from langgraph_checkpoint_custom.model.id_times import time_of
from langgraph_checkpoint_custom.model.keys import AFTER_ALL, right_above
from langgraph_checkpoint_custom.model.records import CheckpointRecord, ThreadRecord
from langgraph_checkpoint_custom.operations.inspector import TimelineRecord
from langgraph_checkpoint_custom.operations.inspector import timeline as timeline_of
from langgraph_checkpoint_custom.operations.sizes import ALL, MOST, sizes_of_threads
from langgraph_checkpoint_custom.operations.thread_states import State, failures_of
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.tools.display import brief, duration, json_of, up_to
from langgraph_checkpoint_custom.tools.finding import checkpoint_named, labels_by_checkpoint, thread_named, wanted_of
from langgraph_checkpoint_custom.tools.states import Summary, nodes_of, question_of, summary_of, text_of
from langgraph_checkpoint_custom.tools.timeline import graph_of, lines_of, sends_of

# Characters of a value that are displayed without `--full`.
SHORT = 200

# Characters of the last message of a thread in a list.
LINE = 80

# Checkpoints of a thread whose story is told.
STORY = 1_000

# Threads that a page looks at to find those in a state for which there is no index.
REACH = 1_000
_SEARCHED = ("unfinished", "done")

Before = Annotated[str | None, option("continue where the last page ended", metavar="CURSOR")]
Since = Annotated[
    str | None,
    option(
        "only threads whose newest checkpoint was made since then: 24h, or a date, also with a time", metavar="TIME"
    ),
]
Until = Annotated[str | None, option("only threads whose newest checkpoint was made before that", metavar="TIME")]


@command("utc", "tenant")
def threads(
    options: Options,
    where: Where = None,
    limit: Limit = 20,
    before: Before = None,
    columns: Annotated[
        list[str] | None, option("show this metadata; by default user; may be given several times", metavar="KEY")
    ] = None,
    state: Annotated[State | None, option("only threads in this state")] = None,
    since: Since = None,
    until: Until = None,
) -> None:
    """List a page of threads, the newest activity first, with their state, and last message, question or error.

    A thread without messages is shown by its values.
    """
    with options.opened(reads=True, lists=True) as saver:
        page, following = _page(saver, where, before, state, limit, since, until)
        ids, d = [record.thread_id for record, _ in page], saver.backend.dialect
        counts = saver.backend.driver.run(sizes_of_threads(d, ids, ALL if options.as_json else MOST))
        rows = [
            {
                "thread_id": record.thread_id,
                "kind": record.kind,
                "name": record.name,
                "state": last.state,
                "newest": record.newest.checkpoint_id,
                "time": record.time,
                "run_id": record.newest.run_id,
                "last": f"{last.who}: {last.text}" if last.who else last.text,
                "metadata": json_of(record.newest.metadata),
                **counts[record.thread_id].size._asdict(),
            }
            for record, last in page
        ]
    times = options.times
    options.listing(
        "threads",
        rows,
        [
            Column("thread", "thread_id"),
            Column("kind", "kind"),
            Column("state", "state"),
            Column(times.head("newest"), lambda row: times.short(row["newest"]), drop=True),
            *(Column(key, partial(_brief, key), cut=True, drop=columns is None) for key in columns or ["user"]),
            Column("last message", "last", cut=True),
            number("checkpoints", lambda row: up_to(MOST, row["checkpoints"])),
            number("size", lambda row: ("" if counts[row["thread_id"]].complete else "> ") + size(row["bytes"])),
        ],
        paging=f"Threads are searched page by page, {REACH:,} at a time. " if state in _SEARCHED else "",
        next=following,
    )


def _page(
    saver: CheckpointSaver,
    where: list[str] | None,
    before: str | None,
    state: State | None,
    limit: int,
    since: str | None,
    until: str | None,
) -> tuple[list[tuple[ThreadRecord, Summary]], str | None]:
    """Return a page of threads, and the cursor of the next one."""
    most, indexed = (REACH, None) if state in _SEARCHED else (limit, state)
    found: list[tuple[ThreadRecord, Summary]] = []
    looked_at, last = 0, None
    options: Any = {"filter": wanted_of(where or ()), "since": moment(since), "until": moment(until)}
    for last in saver.threads(state=indexed, before=_cursor(before), limit=most, **options):
        looked_at += 1
        summary = summary_of(saver, last.newest, LINE, only=state)
        if state in (None, summary.state):
            found.append((last, summary))
        if len(found) == limit:
            break
    is_more = last is not None and (looked_at == most or len(found) == limit)
    return found, f"{last.newest.checkpoint_id}:{last.thread_id}" if last and is_more else None


@command("utc", "tenant")
def failures(
    options: Options,
    where: Where = None,
    limit: Limit = 20,
    before: Before = None,
    since: Since = None,
    until: Until = None,
) -> None:
    """List the tasks that have failed and not succeeded since: the thread, the node, the error and when it began."""
    with options.opened(reads=True, lists=True) as saver:
        page, following = _page(saver, where, before, "failed", limit, since, until)
        rows = [row for each in page for row in _failures(saver, *each)]
    times = options.times
    options.listing(
        "failures",
        rows,
        [
            Column("thread", "thread_id"),
            Column(times.head("since"), lambda row: times.short(row["checkpoint_id"]), drop=True),
            Column("node", "node", cut=True),
            Column("error", lambda row: text_of(row["error"], SHORT), cut=True),
        ],
        next=following,
    )


def _failures(saver: CheckpointSaver, record: ThreadRecord, last: Summary) -> Iterator[dict[str, Any]]:
    assert last.found is not None  # Its state is known.
    nodes, newest = nodes_of(saver, last.found), record.newest
    for task_id, error in failures_of(last.found):
        yield {
            "thread_id": record.thread_id,
            "checkpoint_id": newest.checkpoint_id,
            "time": newest.time,
            "run_id": newest.run_id,
            "node": nodes.get(task_id),
            "error": error,
        }


def _brief(key: str, row: dict[str, Any]) -> str | None:
    value = row["metadata"].get(key)
    return value if isinstance(value, str) or value is None else brief(value, LINE)


@command()
def tenants(options: Options) -> None:
    """List the tenants that have threads; in other commands, --tenant selects one."""
    with options.opened(reads=True) as saver:
        options.listing("tenants", saver.tenants(), [Column("tenant", str)])


def _cursor(text: str | None) -> ThreadRecord | None:
    if text is None:
        return None
    checkpoint_id, colon, thread_id = text.partition(":")
    if not colon:
        raise ConfigError("--before takes the cursor that the last page ended with")
    thread_id = thread_as_typed(thread_id)
    return ThreadRecord(thread_id, CheckpointRecord(thread_id, "", checkpoint_id, None, None, {}))


@command("utc", "tenant")
def history(
    options: Options,
    thread: Thread,
    where: Annotated[
        list[str] | None,
        option("metadata of the checkpoints to list, not of the newest one only, as in threads", metavar="KEY=VALUE"),
    ] = None,
    limit: Limit = 20,
    before: Annotated[str | None, option("only checkpoints older than this one", metavar="CHECKPOINT")] = None,
    namespace: Annotated[
        str | None, option("one namespace; by default all", "--namespace", "-n", metavar="NAME")
    ] = None,
    graph: Annotated[bool, option("draw the branches of the root graph or of --namespace", "--graph")] = False,
) -> None:
    """Tell what happened in a thread, newest first: checkpoints, the nodes that made them, failures, questions, times.

    Nodes, failures and times are found for the checkpoints among the thread's next 1,000.
    """
    if graph and namespace is None:
        namespace = ""
    with options.opened(reads=True) as saver:
        thread = thread_named(saver, thread)
        part = {"thread_id": thread} | ({} if namespace is None else {"checkpoint_ns": namespace})
        if before and time_of(before) is None:
            before = checkpoint_named(saver, thread, before, namespace or "").checkpoint_id
        older: Any = {"configurable": {"checkpoint_id": before}} if before else None
        found = list(saver.history({"configurable": part}, filter=wanted_of(where or ()), before=older, limit=limit))
        if not found and not before and not where:
            raise nothing_there(thread, namespace, None)
        end = right_above(found[0].checkpoint_id) if found and before else AFTER_ALL
        timeline: list[TimelineRecord] = saver.backend.driver.run(
            timeline_of(saver.backend.dialect, thread, end, STORY)
        )
        told = lines_of(timeline, sends_of(saver, thread, timeline), whole=not before)
        labels = labels_by_checkpoint(saver, thread)
    lines = {(line.record.checkpoint_ns, line.record.checkpoint_id): line for line in told}
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for one in found:
        place = one.checkpoint_ns, one.checkpoint_id
        line = lines.get(place)
        rows[place] = {
            "checkpoint_id": one.checkpoint_id,
            "checkpoint_ns": one.checkpoint_ns,
            "time": one.time,
            "made_by": line.made_by if line else one.metadata.get("source"),
            "state": line.words if line else [],
            "seconds": line and line.seconds,
            "parent_id": one.parent_id,
            "run_id": one.run_id,
            "metadata": json_of(one.metadata),
            "labels": labels.get(place, []),
        }
    # What the table has besides: the parent if it is not in the next line, and with --graph the branches.
    shown = [
        {
            **rows[one.checkpoint_ns, one.checkpoint_id],
            "parent": f"…{one.parent_id[-12:]}" if one.parent_id and one.parent_id != below else "",
        }
        for one, below in zip_longest(found, [one.checkpoint_id for one in found[1:]])
    ]
    if graph:
        drawn = graph_of([one for one in timeline if (one.checkpoint_ns, one.checkpoint_id) in rows])
        width = max((len(sign) for sign, _ in drawn), default=0)
        by_id = {row["checkpoint_id"]: row for row in shown}
        shown = [{**(by_id[one.checkpoint_id] if one else {}), "sign": sign.ljust(width) + " "} for sign, one in drawn]
    times = options.times
    more = found[-1].checkpoint_id if len(found) == limit else None
    options.listing(
        "checkpoints",
        rows.values(),
        [
            Column("checkpoint", lambda row: (row.get("sign", "") + row.get("checkpoint_id", "")).rstrip()),
            Column("made by", "made_by", cut=True),
            Column("state", lambda row: ", ".join(row.get("state", ())), cut=True),
            Column("labels", lambda row: ", ".join(row.get("labels", ())), cut=True, drop=True),
            Column("namespace", "checkpoint_ns", cut=True, drop=True),
            Column(times.head("time"), lambda row: times.short(row.get("checkpoint_id")), drop=True),
            number("took", lambda row: None if row.get("seconds") is None else duration(row["seconds"])),
            number("step", lambda row: row.get("metadata", {}).get("step")),
            Column("parent", "parent", drop=True),
            Column("run", "run_id", cut=True, drop=True),
        ],
        shown,
        thread_id=thread,
        next=more,
    )


def nothing_there(thread: str, namespace: str | None, checkpoint: str | None) -> CheckpointNotFound:
    what = "no checkpoint" + (f" {checkpoint!r}" if checkpoint else "")
    return CheckpointNotFound(f"thread {thread!r} has {what}" + (f" in namespace {namespace!r}" if namespace else ""))


@command("utc", "tenant")
def interrupts(
    options: Options,
    prefix: Annotated[str, option("only threads whose ids start with this", metavar="TEXT")] = "",
    full: Full = False,
) -> None:
    """List the threads that wait for a human, the longest waiting first, with their questions."""
    with options.opened(reads=True, lists=True) as saver:
        found = saver.interrupts(prefix=thread_as_typed(prefix))
    questions = [(one, question_of(each)) for one in found for each in one.interrupts]
    times, limit = options.times, 10**9 if full else SHORT
    options.listing(
        "threads",
        [
            {
                "thread_id": one.thread_id,
                "checkpoint_id": one.checkpoint_id,
                "since": one.since,
                "interrupts": [json_of(question_of(each)._asdict()) for each in one.interrupts],
            }
            for one in found
        ],
        [
            Column("thread", lambda row: row[0].thread_id),
            Column(times.head("since"), lambda row: times.short(row[0].since), drop=True),
            Column("interrupt", lambda row: row[1].id, drop=True),
            Column("question", lambda row: text_of(row[1].value, limit), cut=not full),
        ],
        questions,
        nothing="No threads wait for a human.",
    )


@command("tenant")
def labels(options: Options, thread: Thread) -> None:
    """List the labels of a thread, with their checkpoints."""
    with options.opened(reads=True) as saver:
        thread = thread_named(saver, thread)
        found = [(name, config["configurable"]) for name, config in saver.labels(thread).items()]
    options.listing(
        "labels",
        [
            {"label": name, "checkpoint_id": where["checkpoint_id"], "checkpoint_ns": where["checkpoint_ns"]}
            for name, where in found
        ],
        [
            Column("label", "label"),
            Column("checkpoint", "checkpoint_id"),
            Column("namespace", "checkpoint_ns", cut=True),
        ],
        thread_id=thread,
    )
