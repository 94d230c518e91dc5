"""`threads`, `tenants`, `history`, `types`, `interrupts`, `labels`: the commands that list things.

They import no stored class and make no stored object.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import typer
from langgraph.checkpoint.base import CheckpointTuple

from langgraph_checkpoint_custom.cli.common import (
    Json,
    Schema,
    Tenant,
    Thread,
    Url,
    mention_tenants,
    opened,
    rows_of,
    thread_as_typed,
    without_classes,
)
from langgraph_checkpoint_custom.cli.output import counted, progress, say, show_source, size, table, tell
from langgraph_checkpoint_custom.cli.times import Times, Utc, moment
from langgraph_checkpoint_custom.errors import CheckpointNotFound, ConfigError, CorruptCheckpoint
from langgraph_checkpoint_custom.model.id_times import time_of
from langgraph_checkpoint_custom.model.keys import AFTER_ALL, config_of, right_above
from langgraph_checkpoint_custom.model.records import CheckpointRecord, ThreadRecord
from langgraph_checkpoint_custom.operations.inspector import TimelineRecord
from langgraph_checkpoint_custom.operations.inspector import timeline as timeline_of
from langgraph_checkpoint_custom.operations.interrupts import open_among
from langgraph_checkpoint_custom.operations.sizes import ALL, MOST, sizes_of_threads
from langgraph_checkpoint_custom.operations.thread_states import State, failures_of, state_of
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.tools.display import brief, duration, json_of, up_to
from langgraph_checkpoint_custom.tools.finding import checkpoint_named, thread_named, wanted_of
from langgraph_checkpoint_custom.tools.states import channels_of, nodes_of
from langgraph_checkpoint_custom.tools.summary import line_of, question_of, text_of
from langgraph_checkpoint_custom.tools.timeline import graph_of, lines_of, sends_of

commands = typer.Typer()

# Characters of a value that are displayed without `--full`.
SHORT = 200

# Characters of the last message of a thread in a list.
LINE = 80

# Seconds. After a slower search, a hint says how to make it faster.
SLOW = 2.0

# Checkpoints of a thread whose story is told.
STORY = 1_000

# Threads that a page looks at to find those in a state for which there is no index.
REACH = 1_000
_SEARCHED = ("unfinished", "done")

Limit = Annotated[int, typer.Option("--limit", "-l", metavar="N", min=1, help="how many at most")]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="metadata that the newest checkpoint has; the value is JSON, also with operators, otherwise text; may be "
        "given several times",
        show_default=False,
    ),
]
Before = Annotated[
    str | None, typer.Option(metavar="CURSOR", help="continue where the last page ended", show_default=False)
]
Since = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="only threads whose newest checkpoint was made since then: 24h, or a date, also with a time",
        show_default=False,
    ),
]
Until = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="only threads whose newest checkpoint was made before that", show_default=False),
]
Full = Annotated[bool, typer.Option("--full", help="show values in full", show_default=False)]


@commands.command()
def threads(
    where: Where = None,
    limit: Limit = 20,
    before: Before = None,
    channel: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="show this channel instead of the last message", show_default=False),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY", help="show this metadata; by default user; may be given several times", show_default=False
        ),
    ] = None,
    state: Annotated[State | None, typer.Option(help="only threads in this state", show_default=False)] = None,
    since: Since = None,
    until: Until = None,
    utc: Utc = False,
    url: Url = None,
    schema: Schema = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """List a page of threads, the newest activity first, with their state, and last message, question or error.

    A thread without messages is shown by its values.
    """
    wanted = wanted_of(where or ())
    with opened(url, tenant, schema=schema, reads=True) as opener:
        saver = without_classes(opener)
        started = time.monotonic()
        found, last = _page(saver, wanted, before, state, limit, since, until)
        hint = _hint(saver, wanted) if wanted and time.monotonic() - started >= SLOW else None
        ids, run, d = [one.record.thread_id for one in found], saver.backend.driver.run, saver.backend.dialect
        counts = run(sizes_of_threads(d, ids, ALL if as_json else MOST))
        said = [] if as_json else [_said(saver, one, channel) for one in found]
        mention_tenants(saver, tenant)
    if as_json:
        rows = [{**_thread(one), **counts[one.record.thread_id].size._asdict()} for one in found]
        tell({"threads": rows, "next": last and _cursor_of(last)})
        return
    times = Times(utc)
    # What is the same in every row, or in none, is no column.
    records = [one.record for one in found]
    keys = columns or [key for key in ("user",) if any(key in one.newest.metadata for one in records)]
    kinds = ["kind"] if any(one.kind for one in records) else []
    cells = []
    for one, record, line in zip(found, records, said, strict=True):
        size_of, complete = counts[record.thread_id]
        whose = (_brief(record.newest.metadata.get(key)) for key in keys)
        of = (record.kind or "langgraph" for _ in kinds)
        newest = times.short(record.newest.checkpoint_id)
        numbers = up_to(MOST, size_of.checkpoints), ("" if complete else "> ") + size(size_of.bytes)
        cells.append((record.thread_id, *of, one.state, newest, *whose, line, *numbers))
    head = ("thread", *kinds, "state", times.head("newest"), *keys, channel or "last message", "checkpoints", "size")
    table(head, cells, right=("checkpoints", "size"), spare=(channel or "last message", *keys))
    _say_more(last, state)
    if hint:
        say(hint)


class _Listed(NamedTuple):
    """A thread of a list, with its newest checkpoint; None if that was deleted in the meantime, or cannot be read."""

    record: ThreadRecord
    found: CheckpointTuple | None
    state: str
    problem: str = ""


def _page(
    saver: CheckpointSaver,
    wanted: dict[str, Any] | None,
    before: str | None,
    state: State | None,
    limit: int,
    since: str | None,
    until: str | None,
) -> tuple[list[_Listed], ThreadRecord | None]:
    """Return a page of threads, and the last one that was looked at, unless all were."""
    most, indexed = (REACH, None) if state in _SEARCHED else (limit, state)
    found: list[_Listed] = []
    number, last = 0, None
    period: Any = {"since": moment(since), "until": moment(until)}
    for last in saver.threads(filter=wanted, state=indexed, before=_cursor(before), limit=most, **period):
        number += 1
        one = _listed(saver, last)
        if state in (None, one.state):
            found.append(one)
        if len(found) == limit:
            break
    return found, last if number == most or len(found) == limit else None


def _listed(saver: CheckpointSaver, record: ThreadRecord) -> _Listed:
    newest = record.newest
    try:
        found = saver.get_tuple(config_of(record.thread_id, newest.checkpoint_ns, newest.checkpoint_id))
    except CorruptCheckpoint as error:
        return _Listed(record, None, "unreadable", f"cannot be read: {error}")
    return _Listed(record, found, state_of(found) if found else "deleted")


def _say_more(last: ThreadRecord | None, state: State | None) -> None:
    if last is not None:
        searched = f"Threads are searched page by page, {REACH:,} at a time. " if state in _SEARCHED else ""
        say(f"{searched}More with --before {_quoted(_cursor_of(last))}")


@commands.command()
def failures(
    where: Where = None,
    limit: Limit = 20,
    before: Before = None,
    since: Since = None,
    until: Until = None,
    utc: Utc = False,
    url: Url = None,
    schema: Schema = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """List the tasks that have failed and not succeeded since: the thread, the node, the error and when it began."""
    with opened(url, tenant, schema=schema, reads=True) as opener:
        saver = without_classes(opener)
        found, last = _page(saver, wanted_of(where or ()), before, "failed", limit, since, until)
        rows = []
        for one in found:
            assert one.found is not None
            nodes = nodes_of(saver, one.found)
            newest = one.record.newest
            rows += [
                {
                    "thread_id": one.record.thread_id,
                    "checkpoint_id": newest.checkpoint_id,
                    "time": _iso(newest.checkpoint_id),
                    "run_id": newest.run_id,
                    "node": nodes.get(task_id),
                    "error": error,
                }
                for task_id, error in failures_of(one.found)
            ]
        mention_tenants(saver, tenant)
    if as_json:
        tell({"failures": rows, "next": last and _cursor_of(last)})
        return
    times = Times(utc)
    cells = (
        (one["thread_id"], times.short(one["checkpoint_id"]), one["node"], text_of(one["error"], SHORT)) for one in rows
    )
    table(("thread", times.head("since"), "node", "error"), cells, spare=("error",))
    _say_more(last, "failed")


def _said(saver: CheckpointSaver, one: _Listed, channel: str | None) -> str:
    """Return the last message of a thread, or one of its channels, in a line."""
    if one.found is None:
        return one.problem
    channels = channels_of(saver, one.found)
    if channel is not None:
        return next((text_of(each.value, LINE) for each in channels if each.name == channel), "")
    questions = [question_of(each) for each in open_among(one.found.checkpoint, one.found.pending_writes or [])]
    who, text = line_of(channels, questions, [error for _, error in failures_of(one.found)], LINE)
    return f"{who}: {text}" if who else text


def _brief(value: Any) -> str | None:
    return value if isinstance(value, str) or value is None else brief(value, LINE)


@commands.command()
def tenants(url: Url = None, schema: Schema = None, as_json: Json = False) -> None:
    """List the tenants that have threads; in other commands, --tenant selects one."""
    with opened(url, schema=schema, reads=True) as saver:
        found = saver.tenants()
    if as_json:
        tell({"tenants": found})
    else:
        table(("tenant",), [(name,) for name in found])


def _hint(saver: CheckpointSaver, where: dict[str, Any]) -> str | None:
    """Return a hint how to make this search faster; None if an index serves it already."""
    from langgraph_checkpoint_custom.model.filter import equal_texts, wanted
    from langgraph_checkpoint_custom.operations.schema import missing_searchable

    d, driver, _ = saver.backend
    keys = list(equal_texts(wanted(where), contains=d.filter_contains))
    if not keys or driver.run(missing_searchable(d, keys)) != keys:
        return None
    ways = " or ".join(f"--searchable {_quoted(key)}" for key in keys)
    return f"This search read all threads; an index makes it fast: setup {ways}"


def _thread(one: _Listed) -> dict[str, Any]:
    record, newest = one.record, one.record.newest
    return {
        "thread_id": record.thread_id,
        "kind": record.kind,
        "name": record.name,
        "state": one.state,
        "newest": newest.checkpoint_id,
        "time": _iso(newest.checkpoint_id),
        "run_id": newest.run_id,
        "metadata": json_of(newest.metadata),
    }


def _cursor(text: str | None) -> ThreadRecord | None:
    if text is None:
        return None
    checkpoint_id, colon, thread_id = text.partition(":")
    if not colon:
        raise ConfigError("--before takes the cursor that the last page ended with")
    thread_id = thread_as_typed(thread_id)
    return ThreadRecord(thread_id, CheckpointRecord(thread_id, "", checkpoint_id, None, None, {}))


def _cursor_of(last: ThreadRecord) -> str:
    return f"{last.newest.checkpoint_id}:{last.thread_id}"


def _quoted(text: str) -> str:
    import shlex

    return shlex.quote(text)


@commands.command()
def history(
    thread: Thread,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="metadata of the checkpoints to list, not of the newest one only, as in threads",
            show_default=False,
        ),
    ] = None,
    limit: Limit = 20,
    before: Annotated[
        str | None, typer.Option(metavar="CHECKPOINT", help="only checkpoints older than this one", show_default=False)
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", metavar="NAME", help="one namespace; by default all", show_default=False),
    ] = None,
    graph: Annotated[
        bool,
        typer.Option("--graph", help="draw the branches of the root graph or of --namespace", show_default=False),
    ] = False,
    utc: Utc = False,
    url: Url = None,
    schema: Schema = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Tell what happened in a thread, newest first: checkpoints, the nodes that made them, failures, questions, times.

    Nodes, failures and times are found for the checkpoints among the thread's next 1,000.
    """
    if graph and namespace is None:
        namespace = ""
    with opened(url, tenant, schema=schema, reads=True) as opener:
        saver = without_classes(opener)
        thread = thread_named(saver, thread)
        part = {"thread_id": thread} | ({} if namespace is None else {"checkpoint_ns": namespace})
        if before and time_of(before) is None:
            before = checkpoint_named(saver, thread, before, namespace or "").checkpoint_id
        older: Any = {"configurable": {"checkpoint_id": before}} if before else None
        found = list(saver.history({"configurable": part}, filter=wanted_of(where or ()), before=older, limit=limit))
        if not found and not before and not where:
            raise nothing_there(thread, namespace, None)
        end = right_above(found[0].checkpoint_id) if found and before else AFTER_ALL
        run, d = saver.backend.driver.run, saver.backend.dialect
        timeline: list[TimelineRecord] = run(timeline_of(d, thread, end, STORY))
        told = lines_of(timeline, sends_of(saver, thread, timeline), whole=not before)
        lines = {(one.record.checkpoint_ns, one.record.checkpoint_id): one for one in told}
        names = saver.labels(thread)
    labels: dict[tuple[str, str], list[str]] = {}
    for name, config in names.items():
        location = config["configurable"]
        labels.setdefault((location["checkpoint_ns"], location["checkpoint_id"]), []).append(name)
    more = found[-1].checkpoint_id if len(found) == limit else None
    if as_json:
        rows = []
        for one in found:
            line = lines.get((one.checkpoint_ns, one.checkpoint_id))
            rows.append(
                {
                    "checkpoint_id": one.checkpoint_id,
                    "checkpoint_ns": one.checkpoint_ns,
                    "time": _iso(one.checkpoint_id),
                    "made_by": line and line.made_by,
                    "state": line.words if line else [],
                    "seconds": line and line.seconds,
                    "parent_id": one.parent_id,
                    "run_id": one.run_id,
                    "metadata": json_of(one.metadata),
                    "labels": labels.get((one.checkpoint_ns, one.checkpoint_id), []),
                }
            )
        tell({"thread_id": thread, "checkpoints": rows, "next": more})
        return
    times = Times(utc)
    cells: dict[tuple[str, str], Sequence[object]] = {}
    for number, one in enumerate(found):
        place = one.checkpoint_ns, one.checkpoint_id
        line = lines.get(place)
        follows = number + 1 < len(found) and found[number + 1].checkpoint_id == one.parent_id
        cells[place] = (
            one.checkpoint_id,
            times.short(one.checkpoint_id),
            line.made_by if line else one.metadata.get("source"),
            ", ".join(line.words) if line else "",
            ", ".join(labels.get(place, [])),
            duration(line.seconds) if line and line.seconds is not None else "",
            one.metadata.get("step"),
            f"…{one.parent_id[-12:]}" if one.parent_id and not follows else "",
            one.checkpoint_ns,
            one.run_id,
        )
    drawn = [*cells.values()]
    if graph:
        own = [one for one in timeline if (one.checkpoint_ns, one.checkpoint_id) in cells]
        signs = graph_of(own)
        width = max((len(sign) for sign, _ in signs), default=0)
        blank = [""] * 10
        rows_of_graph = [(sign, cells[one.checkpoint_ns, one.checkpoint_id] if one else blank) for sign, one in signs]
        drawn = [(f"{sign.ljust(width)} {first}".rstrip(), *rest) for sign, (first, *rest) in rows_of_graph]
    optional = ("labels", "took", "step", "parent", "namespace", "run")
    table(
        ("checkpoint", times.head("time"), "made by", "state", *optional),
        drawn,
        right=("took", "step"),
        spare=("made by", "labels", "namespace", "run"),
        optional=optional,
    )
    if more:
        say(f"More with --before {_quoted(more)}")


def nothing_there(thread: str, namespace: str | None, checkpoint: str | None) -> CheckpointNotFound:
    what = "no checkpoint" + (f" {checkpoint!r}" if checkpoint else "")
    return CheckpointNotFound(f"thread {thread!r} has {what}" + (f" in namespace {namespace!r}" if namespace else ""))


def classes_of(saver: CheckpointSaver) -> tuple[Counter[tuple[str, str]], Counter[str]]:
    """Count each class in the store, by module and name; return this, and the values not examined, by type."""
    from langgraph_checkpoint_custom.operations.reencrypt import TABLES
    from langgraph_checkpoint_custom.tools.types import types_page

    classes: Counter[tuple[str, str]] = Counter()
    unseen: Counter[str] = Counter()
    rows = 0
    d, driver, codec = saver.backend
    with progress("rows", lambda: rows_of(saver)) as report:
        for each, start in ((one, start) for one in TABLES for start in one.starts(d)):
            after: Any = start
            while after is not None:
                page = driver.run(types_page(d, codec, each, after))
                classes.update(page.classes)
                unseen.update(page.unseen)
                rows, after = rows + page.rows, page.after
                report(rows, "types")
    return classes, unseen


@commands.command()
def types(url: Url = None, schema: Schema = None, tenant: Tenant = None, as_json: Json = False) -> None:
    """Find every class in the store, and print an allowlist for strict=True."""
    from langgraph_checkpoint_custom.encoding.allowlist import always_allowed

    with opened(url, tenant, schema=schema, reads=True) as saver:
        classes, unseen = classes_of(saver)
    found = sorted(classes.items())
    allow = [pair for pair, _ in found if not always_allowed(*pair)]
    if as_json:
        tell(
            {
                "classes": [
                    {"module": m, "name": n, "count": count, "always_allowed": always_allowed(m, n)}
                    for (m, n), count in found
                ],
                "allow": allow,
                "unseen": unseen,
            }
        )
        return
    table(
        ("class", "times", "strict=True"),
        ((f"{m}.{n}", count, "reads it" if always_allowed(m, n) else "needs allow") for (m, n), count in found),
        right=("times",),
    )
    for what, count in unseen.items():
        say(f"{counted(count, 'value')} not examined: {what}")
    if allow:
        show_source("allow=[\n" + "".join(f"    ({m!r}, {n!r}),\n" for m, n in allow) + "]")
        say("CHECKPOINT_ALLOW=" + ",".join(f"{m}.{n}" for m, n in allow))


@commands.command()
def interrupts(
    prefix: Annotated[
        str, typer.Option(metavar="TEXT", help="only threads whose ids start with this", show_default=False)
    ] = "",
    full: Full = False,
    utc: Utc = False,
    url: Url = None,
    schema: Schema = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """List the threads that wait for a human, the longest waiting first, with their questions."""
    with opened(url, tenant, schema=schema, reads=True) as opener:
        found = without_classes(opener).interrupts(prefix=thread_as_typed(prefix))
    if as_json:
        listed = [
            {
                "thread_id": one.thread_id,
                "checkpoint_id": one.checkpoint_id,
                "since": one.since.isoformat() if one.since else None,
                "interrupts": [json_of(question_of(each)._asdict()) for each in one.interrupts],
            }
            for one in found
        ]
        tell({"threads": listed})
        return
    limit, times = 10**9 if full else SHORT, Times(utc)
    rows = []
    for one in found:
        for each in one.interrupts:
            name, question = question_of(each)
            rows.append((one.thread_id, times.short(one.since), name, text_of(question, limit)))
    head = ("thread", times.head("since"), "interrupt", "question")
    table(head, rows, spare=() if full else ("question",))


@commands.command()
def labels(
    thread: Thread, url: Url = None, schema: Schema = None, tenant: Tenant = None, as_json: Json = False
) -> None:
    """List the labels of a thread, with their checkpoints."""
    with opened(url, tenant, schema=schema, reads=True) as saver:
        thread = thread_named(saver, thread)
        found = [(name, config["configurable"]) for name, config in saver.labels(thread).items()]
    rows = [(name, where["checkpoint_id"], where["checkpoint_ns"]) for name, where in found]
    if as_json:
        keys = ("label", "checkpoint_id", "checkpoint_ns")
        tell({"thread_id": thread, "labels": [dict(zip(keys, row, strict=True)) for row in rows]})
    else:
        table(("label", "checkpoint", "namespace"), rows, spare=("namespace",))


def _iso(checkpoint_id: str) -> str | None:
    time = time_of(checkpoint_id)
    return time.isoformat() if time else None
