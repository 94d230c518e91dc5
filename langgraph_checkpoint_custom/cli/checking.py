"""`verify`, `doctor`, `stats`, `types`: what is in the tables, and what is wrong there. They import no stored class."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from typing import Annotated, Any

import typer

from langgraph_checkpoint_custom.cli.common import (
    Limit,
    Options,
    command,
    count_all,
    option,
    rows_of,
    thread_argument,
)
from langgraph_checkpoint_custom.cli.output import (
    Column,
    Style,
    counted,
    number,
    progress,
    say,
    show_source,
    size,
    table,
    tell,
)
from langgraph_checkpoint_custom.encoding.allowlist import always_allowed
from langgraph_checkpoint_custom.model.keys import Range, thread_text
from langgraph_checkpoint_custom.operations.doctor import BY_NAME, CHECKS, Finding, look, repair
from langgraph_checkpoint_custom.operations.schema import Verified
from langgraph_checkpoint_custom.operations.schema import verify as verify_tables
from langgraph_checkpoint_custom.operations.sizes import sizes_of_store, sizes_of_thread
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.tools.finding import savers_of, thread_named
from langgraph_checkpoint_custom.tools.types import Found, classes_of

# Examples of each check that are printed.
EXAMPLES = 5


@command()
def verify(options: Options) -> None:
    """Compare the tables with those that this package ships, but not owners and privileges; changes nothing."""
    with options.opened(may_be_anothers=True, reads=True) as saver:
        found = saver.backend.driver.look(verify_tables(saver.backend.dialect))
        location = saver.backend.dialect.location
    if options.as_json:
        tell({"ok": found.holds, **found._asdict()})
    else:
        rows = _lines(found, location)
        styles: list[Style] = [{"yes": "plain", "no": "bad", "": "dim"}[good] for good, _, _ in rows]  # type: ignore[misc]
        table([Column(head, itemgetter(at)) for at, head in enumerate(("ok", "what", ""))], rows, styles)
    if not found.holds:
        raise typer.Exit(1)


def _lines(found: Verified, location: str) -> list[tuple[str, str, str]]:
    """Return what was compared in lines: "yes", "no", or nothing for what is no problem; what; and the detail."""
    if found.foreign is not None:
        theirs = f"{location} has a table {found.foreign!r} that belongs to another program; our tables are not there"
        return [("no", "tables", theirs)]
    if found.version is None:
        return [("no", "tables", f"there are none in {location}; run setup")]
    version = f"{found.version}, this package has {found.shipped}"
    if found.version < found.shipped:
        version += "; run setup"
    elif not found.is_usable:
        version += f"; the tables need {found.oldest}: upgrade langgraph-checkpoint-custom"
    lines = [("yes", "tables", location), ("yes" if found.is_usable else "no", "version", version)]
    lines += [("no", "missing or changed", line) for line in found.missing]
    lines += [("", "added or changed", line) for line in found.added]
    if not found.missing and not found.added:
        lines.append(("yes", "as shipped", "everything"))
    return lines


@command("yes", "tenant", "no_tenants")
def doctor(
    options: Options,
    fix: Annotated[bool, option("delete values, chunks, labels and writes that are not in use", "--fix")] = False,
) -> None:
    """Check the tables: orphaned rows, missing values and chunks, ids out of order, missing indexes."""
    with options.opened(may_be_anothers=True, reads=not fix, lists=True) as saver:
        shape = saver.backend.driver.look(verify_tables(saver.backend.dialect))
        if not shape.is_usable or any(line.startswith(("table", "column")) for line in shape.missing):
            report = {"ok": False, "version": shape.version, "shipped": shape.shipped}
            options.report(
                {**report, "missing": shape.missing, "checks": {}},
                "The tables are not those of this version; verify lists what is missing, and setup creates it.",
            )
            raise typer.Exit(1)
        if fix:
            options.confirm("Delete unused values, unused chunks, dangling labels and late writes?")
        counts, examples, fixed = _look_through(saver, options.tenants, fix=fix)
    repairable = sum(counts[check.name] for check in CHECKS if check.repairable)
    rest = any(counts[check.name] for check in CHECKS if check.wrong and not check.repairable)
    is_left = rest or repairable > fixed or bool(shape.missing)
    if options.as_json:
        checks = {
            check.name: {
                "count": counts[check.name],
                "wrong": check.wrong,
                "examples": [
                    {
                        "tenant": whose or None,
                        "thread_id": one.thread_id,
                        "checkpoint_ns": one.checkpoint_ns,
                        "names": one.names,
                    }
                    for whose, one in examples.get(check.name, ())
                ],
            }
            for check in CHECKS
        }
        tell({"ok": not is_left, "missing": shape.missing, "checks": checks, "fixed": fixed})
    else:
        _show(counts, examples, len(shape.missing))
        if fix:
            say(f"{counted(fixed, 'row')} deleted.")
        elif repairable:
            say("--fix deletes the unused rows.")
    if is_left:
        raise typer.Exit(1)


# The findings of a check that are printed, each with the tenant of its thread.
Examples = dict[str, list[tuple[str, Finding]]]


def _look_through(saver: CheckpointSaver, tenants: bool, *, fix: bool) -> tuple[Counter[str], Examples, int]:
    """Check all threads and, with `fix`, delete what is unused.

    Returns:
        The number of findings by check, examples of them, and the number of deleted rows.
    """
    counts: Counter[str] = Counter()
    examples: Examples = {}
    fixed = done = 0
    run = saver.backend.driver.run
    with progress("doctor", "threads", lambda: count_all(saver, tenants)) as report:
        for d in (own.backend.dialect for own in savers_of(saver, tenants)):
            for threads in d.ranges():
                within: Range | None = threads
                while within is not None:
                    page = run(look(d, within))
                    within = page.remaining
                    done += page.threads
                    report(done)
                    counts.update(one.check for one in page.findings)
                    for one in page.findings:
                        if len(examples.setdefault(one.check, [])) < EXAMPLES:
                            examples[one.check].append((d.tenant, one))
                    if fix:
                        damaged = {one.thread_id for one in page.findings if BY_NAME[one.check].repairable}
                        fixed += sum(run(repair(d, thread_id)) for thread_id in sorted(damaged))
    return counts, examples, fixed


def _show(counts: Counter[str], examples: Examples, missing: int) -> None:
    rows = [(check.name, counts[check.name], check.means, check.wrong) for check in CHECKS]
    rows.append(("missing or changed", missing, "indexes, policies or functions; see verify", True))
    styles: list[Style] = ["plain" if not number else "bad" if wrong else "dim" for _, number, _, wrong in rows]
    columns = [
        Column("check", lambda row: row[0]),
        Column("found", lambda row: row[1], right=True),
        Column("", lambda row: row[2] if row[1] else ""),
    ]
    table(columns, rows, styles)
    for name, found in examples.items():
        for whose, finding in found:
            where = f" of tenant {whose}" if whose else ""
            where += f", namespace {finding.checkpoint_ns}" if finding.checkpoint_ns else ""
            say(f"{name}: thread {finding.thread_id}{where}: {', '.join(finding.names)}")


@command("utc", "tenant", "no_tenants")
def stats(
    options: Options,
    thread: Annotated[str | None, thread_argument("one thread", metavar="[THREAD]")] = None,
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
        if rows:
            table(columns[name], rows)


def find_classes(saver: CheckpointSaver, tenants: bool) -> Found:
    """Find the classes in the store, with those of all tenants if asked, and show how far it is."""
    with progress("types", "rows", lambda: rows_of(saver, tenants)) as report:
        return classes_of(savers_of(saver, tenants), report)


@command("tenant", "no_tenants")
def types(options: Options) -> None:
    """Find every class in the store, and print an allowlist for strict=True."""
    with options.opened(reads=True, lists=True) as saver:
        _, classes, unseen = find_classes(saver, options.tenants)
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
