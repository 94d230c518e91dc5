"""`stats` and `types`: what is in the store, by size and by class. They import no stored class."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import typer

from langgraph_checkpoint_custom.cli.common import Limit, Options, command, rows_of, thread_as_typed
from langgraph_checkpoint_custom.cli.output import (
    Column,
    counted,
    number,
    progress,
    say,
    show_source,
    size,
    table,
    tell,
)
from langgraph_checkpoint_custom.model.keys import thread_text
from langgraph_checkpoint_custom.operations.sizes import sizes_of_store, sizes_of_thread
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.tools.finding import thread_named


@command("utc", "tenant", "no_tenants")
def stats(
    options: Options,
    thread: Annotated[
        str | None,
        typer.Argument(metavar="[THREAD]", parser=thread_as_typed, help="one thread", show_default=False),
    ] = None,
    limit: Limit = 10,
) -> None:
    """Count rows and bytes of tables, the largest threads and channels, or of one thread by namespace and channel.

    Bytes are those of values as they are stored.
    """
    with options.opened(reads=True, lists=thread is None) as saver:
        d, driver, _ = saver.backend
        if thread is not None:
            thread = thread_named(saver, thread)
        names = saver.tenants() if options.tenants and thread is None else ()
        op: Any = sizes_of_store(d, limit, names) if thread is None else sizes_of_thread(d, thread_text(thread), limit)
        found = driver.run(op)._asdict()
    if options.as_json:
        about = {} if thread is None else {"thread_id": thread}
        tell(about | {name: [one._asdict() for one in rows] for name, rows in found.items()})
        return
    sizes = [number("rows", "rows"), number("size", lambda row: size(row.bytes))]
    newest = Column(options.times.head("newest"), lambda row: options.times.short(row.last_id), drop=True)
    namespace = Column("namespace", lambda row: row.checkpoint_ns or "(root)", cut=True)
    columns = {
        "tables": [Column("table", "table"), *sizes],
        "threads": [
            Column("largest threads", "thread_id"),
            Column("tenant", "tenant", cut=True),
            number("checkpoints", "checkpoints"),
            *sizes,
            newest,
        ],
        "namespaces": [namespace, number("checkpoints", "checkpoints"), *sizes, newest],
        "channels": [
            *([] if thread is None else [namespace]),
            Column("largest channels", "channel", cut=True),
            number("values", "versions"),
            number("chunks", "chunks"),
            number("writes", "writes"),
            sizes[-1],
        ],
    }
    for name, rows in found.items():
        table(columns[name], rows)


def classes_of(saver: CheckpointSaver) -> tuple[Counter[tuple[str, str]], Counter[str]]:
    """Count each class in the store, by module and name; return this, and the values not examined, by type."""
    from langgraph_checkpoint_custom.operations.rows import WITH_VALUES, starts
    from langgraph_checkpoint_custom.tools.types import types_page

    classes: Counter[tuple[str, str]] = Counter()
    unseen: Counter[str] = Counter()
    rows = 0
    d, driver, codec = saver.backend
    with progress("rows", lambda: rows_of(saver)) as report:
        for each, start in ((kind, start) for kind in WITH_VALUES for start in starts(d, kind)):
            after: Any = start
            while after is not None:
                page = driver.run(types_page(d, codec, each, after))
                classes.update(page.classes)
                unseen.update(page.unseen)
                rows, after = rows + page.rows, page.after
                report(rows, "types")
    return classes, unseen


@command("tenant")
def types(options: Options) -> None:
    """Find every class in the store, and print an allowlist for strict=True."""
    from langgraph_checkpoint_custom.encoding.allowlist import always_allowed

    with options.opened(reads=True, lists=True) as saver:
        classes, unseen = classes_of(saver)
    allow = [pair for pair in sorted(classes) if not always_allowed(*pair)]
    options.listing(
        "classes",
        [
            {"module": pair[0], "name": pair[1], "count": count, "always_allowed": pair not in allow}
            for pair, count in sorted(classes.items())
        ],
        [
            Column("class", lambda row: f"{row['module']}.{row['name']}"),
            Column("times", "count", right=True),
            Column("strict=True", lambda row: "reads it" if row["always_allowed"] else "needs allow"),
        ],
        allow=allow,
        unseen=unseen,
    )
    if options.as_json:
        return
    for what, count in unseen.items():
        say(f"{counted(count, 'value')} not examined: {what}")
    if allow:
        show_source("allow=[\n" + "".join(f"    ({m!r}, {n!r}),\n" for m, n in allow) + "]")
        say("CHECKPOINT_ALLOW=" + ",".join(f"{m}.{n}" for m, n in allow))
