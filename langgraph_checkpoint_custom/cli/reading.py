"""`threads`, `tenants`, `history`, `show`, `diff`, `types`, `interrupts`, `labels`: the commands that only read.

They import no stored class and make no stored object.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Any

import typer
from langgraph.checkpoint.base import CheckpointTuple

from langgraph_checkpoint_custom.cli.common import (
    Json,
    Namespace,
    Tenant,
    Thread,
    Url,
    mention_tenants,
    opened,
    rows_of,
    thread_as_typed,
    without_classes,
)
from langgraph_checkpoint_custom.cli.output import Style, counted, progress, say, show_source, size, table, tell
from langgraph_checkpoint_custom.errors import CheckpointNotFound, ConfigError
from langgraph_checkpoint_custom.model.keys import config_of
from langgraph_checkpoint_custom.model.records import CheckpointRecord, ThreadRecord
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.tools.display import (
    NOTHING,
    brief,
    differences,
    json_of,
    kind,
    object_of,
    tasks,
    time_of,
)

commands = typer.Typer()

# Characters of a value that are displayed without `--full`.
SHORT = 200

# Seconds. After a slower search, a hint says how to make it faster.
SLOW = 2.0

Limit = Annotated[int, typer.Option("--limit", "-l", metavar="N", min=1, help="how many at most")]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="metadata that the newest checkpoint has; the value is JSON, otherwise text; may be given several times",
        show_default=False,
    ),
]
Full = Annotated[bool, typer.Option("--full", help="show values in full", show_default=False)]


@commands.command()
def threads(
    where: Where = None,
    limit: Limit = 20,
    before: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="continue where the last page ended", show_default=False)
    ] = None,
    url: Url = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """List a page of threads, the newest activity first, with their checkpoints, writes and bytes."""
    from langgraph_checkpoint_custom.operations.sizes import sizes_of_threads

    wanted = wanted_of(where)
    with opened(url, tenant) as opener:
        saver = without_classes(opener)
        started = time.monotonic()
        found = list(saver.threads(filter=wanted, before=_cursor(before), limit=limit))
        hint = _hint(saver, wanted) if wanted and time.monotonic() - started >= SLOW else None
        sizes = saver.backend.driver.run(sizes_of_threads(saver.backend.dialect, [one.thread_id for one in found]))
        mention_tenants(saver, tenant)
    last = found[-1] if len(found) == limit else None
    following = f"{last.newest.checkpoint_id}:{last.thread_id}" if last else None
    if as_json:
        tell({"threads": [{**_thread(one), **sizes[one.thread_id]._asdict()} for one in found], "next": following})
        return
    rows = []
    for one in found:
        held = sizes[one.thread_id]
        step = one.newest.metadata.get("step")
        newest = when(one.newest.checkpoint_id)
        kind = one.kind or "langgraph"
        rows.append((one.thread_id, kind, newest, step, held.checkpoints, held.writes, size(held.bytes)))
    table(
        ("thread", "kind", "newest", "step", "checkpoints", "writes", "size"),
        rows,
        right=("step", "checkpoints", "writes", "size"),
    )
    if following:
        say(f"More with --before {_quoted(following)}")
    if hint:
        say(hint)


@commands.command()
def tenants(url: Url = None, as_json: Json = False) -> None:
    """List the tenants that have threads; in other commands, --tenant selects one."""
    with opened(url) as saver:
        found = saver.tenants()
    if as_json:
        tell({"tenants": found})
    else:
        table(("tenant",), [(name,) for name in found])


def _hint(saver: CheckpointSaver, wanted: dict[str, Any]) -> str | None:
    """Return a hint how to make this search faster; None if an index serves it already."""
    from langgraph_checkpoint_custom.operations.searchable import missing_searchable
    from langgraph_checkpoint_custom.sql.searchable import searchable_keys

    keys = searchable_keys(list(wanted))
    if saver.backend.driver.run(missing_searchable(saver.backend.dialect, keys)) != keys:
        return None
    ways = " or ".join(f"--searchable {_quoted(key)}" for key in keys)
    return f"This search read all threads; an index makes it fast: setup {ways}"


def _thread(one: ThreadRecord) -> dict[str, Any]:
    newest = one.newest
    return {
        "thread_id": one.thread_id,
        "kind": one.kind,
        "name": one.name,
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


def wanted_of(where: Sequence[str] | None) -> dict[str, Any] | None:
    wanted = {}
    for each in where or ():
        key, equals, text = each.partition("=")
        if not equals:
            raise ConfigError("--where takes a metadata key, an equals sign and a value")
        try:
            wanted[key] = json.loads(text)
        except ValueError:
            wanted[key] = text
    return wanted or None


def _quoted(text: str) -> str:
    import shlex

    return shlex.quote(text)


@commands.command()
def history(
    thread: Thread,
    where: Where = None,
    limit: Limit = 20,
    before: Annotated[
        str | None, typer.Option(metavar="CHECKPOINT", help="only checkpoints older than this one", show_default=False)
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", metavar="NAME", help="one namespace; by default all", show_default=False),
    ] = None,
    url: Url = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """List the checkpoints of a thread, newest first, without their values."""
    part = {"thread_id": thread} | ({} if namespace is None else {"checkpoint_ns": namespace})
    older: Any = {"configurable": {"checkpoint_id": before}} if before else None
    with opened(url, tenant) as opener:
        saver = without_classes(opener)
        found = list(saver.history({"configurable": part}, filter=wanted_of(where), before=older, limit=limit))
        names = saver.labels(thread)
    labels: dict[tuple[str, str], list[str]] = {}
    for name, config in names.items():
        location = config["configurable"]
        labels.setdefault((location["checkpoint_ns"], location["checkpoint_id"]), []).append(name)
    if not found and not before and not where:
        raise _nothing(thread, namespace, None)
    if as_json:
        rows = [
            {
                "checkpoint_id": one.checkpoint_id,
                "checkpoint_ns": one.checkpoint_ns,
                "time": _iso(one.checkpoint_id),
                "parent_id": one.parent_id,
                "run_id": one.run_id,
                "metadata": json_of(one.metadata),
                "labels": labels.get((one.checkpoint_ns, one.checkpoint_id), []),
            }
            for one in found
        ]
        tell({"thread_id": thread, "checkpoints": rows})
        return
    table(
        ("checkpoint", "time", "step", "source", "run", "namespace", "labels"),
        (
            (
                one.checkpoint_id,
                when(one.checkpoint_id),
                one.metadata.get("step"),
                one.metadata.get("source"),
                one.run_id,
                one.checkpoint_ns,
                ", ".join(labels.get((one.checkpoint_ns, one.checkpoint_id), [])),
            )
            for one in found
        ),
        right=("step",),
    )
    if len(found) == limit:
        say(f"More with --before {_quoted(found[-1].checkpoint_id)}")


@commands.command()
def show(
    thread: Thread,
    checkpoint: Annotated[
        str | None, typer.Argument(help="the id of a checkpoint; by default the newest", show_default=False)
    ] = None,
    namespace: Namespace = "",
    full: Full = False,
    url: Url = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Show a checkpoint: state, pending writes, interrupts and, as far as the stored rows show them, the next tasks.

    Classes are shown by name and are not imported.
    """
    from langgraph_checkpoint_custom.operations.interrupts import open_among

    with opened(url, tenant) as opener:
        found = _read(without_classes(opener), thread, checkpoint, namespace)
    configurable = found.config["configurable"]
    parent = (found.parent_config or {}).get("configurable", {}).get("checkpoint_id")
    values = found.checkpoint["channel_values"]
    writes = found.pending_writes or []
    waiting: list[Any] = list(open_among(writes))
    following = tasks(values)
    elsewhere = _rebuilt(found)
    checkpoint_id = configurable["checkpoint_id"]
    if as_json:
        tell(
            {
                "thread_id": thread,
                "checkpoint_ns": namespace,
                "checkpoint_id": checkpoint_id,
                "parent_id": parent,
                "time": _text(found.checkpoint.get("ts")),
                "format": json_of(found.checkpoint.get("v")),
                "metadata": json_of(dict(found.metadata)),
                "state": json_of(values),
                "not_stored_here": elsewhere,
                "versions": json_of(found.checkpoint.get("channel_versions")),
                "writes": [{"task_id": t, "channel": c, "value": json_of(value)} for t, c, value in writes],
                "interrupts": [json_of(one) for one in waiting],
                "next": following,
            }
        )
        return
    limit = 10**9 if full else SHORT
    say(f"Checkpoint {checkpoint_id} of thread {thread}" + (f", namespace {namespace}" if namespace else ""))
    say(f"Stored {_text(found.checkpoint.get('ts'))}; its parent is {parent or 'none'}.")
    _values("state", values, limit)
    if elsewhere:
        say(f"Not stored here, but rebuilt from earlier steps: {', '.join(elsewhere)}")
    _values("metadata", dict(found.metadata), limit)
    if writes:
        table(
            ("task", "writes to", "what", "value"),
            ((task_id, channel, kind(value), brief(value, limit)) for task_id, channel, value in writes),
        )
    for one in waiting:
        made = object_of(one) if hasattr(one, "code") else None
        content = made.content if made and isinstance(made.content, dict) else {"value": one}
        say(f"Waiting for an answer to {content.get('id', 'a question')}: {brief(content.get('value'), limit)}")
    say(
        "Next: " + (", ".join(f"{name} x{n}" if n > 1 else name for name, n in Counter(following).items()) or "nothing")
    )


def _rebuilt(found: CheckpointTuple) -> list[str]:
    """Return the `DeltaChannel`s that have no value in a checkpoint."""
    counters = found.metadata.get("counters_since_delta_snapshot")
    return [name for name in counters or () if name not in found.checkpoint["channel_values"]]


def _values(title: str, values: dict[str, Any], limit: int) -> None:
    if values:
        rows = ((name, kind(value), brief(value, limit)) for name, value in values.items())
        table((title, "what", "value"), rows)


def _read(saver: CheckpointSaver, thread: str, checkpoint: str | None, namespace: str) -> CheckpointTuple:
    where = config_of(thread, namespace, checkpoint or "")
    found = saver.get_tuple(where)
    if found is None:
        raise _nothing(thread, namespace, checkpoint)
    return found


def _nothing(thread: str, namespace: str | None, checkpoint: str | None) -> CheckpointNotFound:
    what = "no checkpoint" + (f" {checkpoint!r}" if checkpoint else "")
    return CheckpointNotFound(f"thread {thread!r} has {what}" + (f" in namespace {namespace!r}" if namespace else ""))


@commands.command()
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="a thread, or a checkpoint of the one in --thread")],
    b: Annotated[str, typer.Argument(metavar="B", help="another one")],
    thread: Annotated[
        str | None, typer.Option(metavar="THREAD", help="A and B are checkpoints of this thread", show_default=False)
    ] = None,
    namespace: Namespace = "",
    limit: Limit = 50,
    full: Full = False,
    url: Url = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Show where two states differ: of two threads (their newest states), or of two checkpoints of a thread."""
    with opened(url, tenant) as opener:
        saver = without_classes(opener)
        locations = [(thread, a), (thread, b)] if thread is not None else [(a, None), (b, None)]
        both = [_read(saver, one, at, namespace) for one, at in locations]
    left, right = (one.checkpoint["channel_values"] for one in both)
    elsewhere = sorted({name for one in both for name in _rebuilt(one)})
    found = list(islice(differences(left, right), limit + 1))
    more = len(found) > limit
    if as_json:
        rows = [
            {
                "path": one.path,
                **{side: json_of(v) for side, v in (("a", one.left), ("b", one.right)) if v is not NOTHING},
            }
            for one in found[:limit]
        ]
        tell({"same": not found, "differences": rows, "more": more, "not_compared": elsewhere})
        return
    if elsewhere:
        say(f"Not compared, because they are rebuilt from earlier steps: {', '.join(elsewhere)}")
    if not found:
        say("The states are the same.")
        return
    length = 10**9 if full else SHORT
    rows_: list[tuple[str, ...]] = []
    styles: list[Style] = []
    for one in found[:limit]:
        sides = ("" if side is NOTHING else brief(side, length) for side in (one.left, one.right))
        rows_.append((one.path, *sides))
        styles.append("good" if one.left is NOTHING else "bad" if one.right is NOTHING else "plain")
    table(("where", "a", "b"), rows_, styles=styles)
    if more:
        say(f"More than {limit}; see --limit")


def classes_of(saver: CheckpointSaver) -> tuple[Counter[tuple[str, str]], Counter[str]]:
    """Count each class in the store, by module and name; return this, and the values not examined, by type."""
    from langgraph_checkpoint_custom.operations.reencrypt import TABLES
    from langgraph_checkpoint_custom.tools.types import types_page

    classes: Counter[tuple[str, str]] = Counter()
    unseen: Counter[str] = Counter()
    rows = 0
    with progress("rows", lambda: rows_of(saver)) as report:
        for each in TABLES:
            after: Any = each.first
            while after is not None:
                page = saver.backend.driver.run(types_page(saver.backend.dialect, saver.backend.values, each, after))
                classes.update(page.classes)
                unseen.update(page.unseen)
                rows, after = rows + page.rows, page.after
                report(rows, "types")
    return classes, unseen


@commands.command()
def types(url: Url = None, tenant: Tenant = None, as_json: Json = False) -> None:
    """Find every class in the store, and print an allowlist for strict=True."""
    from langgraph_checkpoint_custom.encoding.serde import ALWAYS_ALLOWED

    with opened(url, tenant) as saver:
        classes, unseen = classes_of(saver)
    found = sorted(classes.items())
    allow = [pair for pair, _ in found if pair not in ALWAYS_ALLOWED]
    if as_json:
        tell(
            {
                "classes": [
                    {"module": m, "name": n, "count": count, "always_allowed": (m, n) in ALWAYS_ALLOWED}
                    for (m, n), count in found
                ],
                "allow": allow,
                "unseen": unseen,
            }
        )
        return
    table(
        ("class", "times", "strict=True"),
        ((f"{m}.{n}", count, "reads it" if (m, n) in ALWAYS_ALLOWED else "needs allow") for (m, n), count in found),
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
    url: Url = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """List the threads that wait for a human, the longest waiting first, with their questions."""
    with opened(url, tenant) as opener:
        found = without_classes(opener).interrupts(prefix=prefix)
    if as_json:
        tell(
            [
                {
                    "thread_id": one.thread_id,
                    "checkpoint_id": one.checkpoint_id,
                    "since": one.since.isoformat() if one.since else None,
                    "interrupts": [json_of(each) for each in one.interrupts],
                }
                for one in found
            ]
        )
        return
    limit = 10**9 if full else SHORT
    rows = []
    for one in found:
        for each in one.interrupts:
            waiting: Any = each
            made = object_of(waiting) if hasattr(waiting, "code") else None
            content = made.content if made and isinstance(made.content, dict) else {"value": waiting}
            since = one.since.strftime("%Y-%m-%d %H:%M:%S") if one.since else None
            rows.append((one.thread_id, since, content.get("id"), brief(content.get("value"), limit)))
    table(("thread", "since", "interrupt", "question"), rows)


@commands.command()
def labels(thread: Thread, url: Url = None, tenant: Tenant = None, as_json: Json = False) -> None:
    """List the labels of a thread, with their checkpoints."""
    with opened(url, tenant) as saver:
        found = {name: config["configurable"] for name, config in saver.labels(thread).items()}
    if as_json:
        tell(
            {n: {part: location[part] for part in ("checkpoint_ns", "checkpoint_id")} for n, location in found.items()}
        )
    else:
        rows = ((name, location["checkpoint_id"], location["checkpoint_ns"]) for name, location in found.items())
        table(("label", "checkpoint", "namespace"), rows)


def when(checkpoint_id: str | None) -> str:
    """Format the time of a checkpoint, in UTC, for a table."""
    time = time_of(checkpoint_id) if checkpoint_id else None
    return time.strftime("%Y-%m-%d %H:%M:%S") if time else ""


def _iso(checkpoint_id: str) -> str | None:
    time = time_of(checkpoint_id)
    return time.isoformat() if time else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value else "at an unknown time"
