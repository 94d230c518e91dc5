"""`doctor`: finds and deletes what is wrong in the tables."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from langgraph_checkpoint_custom.cli.common import Options, command, count_all
from langgraph_checkpoint_custom.cli.output import Column, Style, counted, progress, say, table, tell
from langgraph_checkpoint_custom.model.keys import Range
from langgraph_checkpoint_custom.operations.doctor import BY_NAME, CHECKS, Finding, look, repair
from langgraph_checkpoint_custom.operations.schema import verify
from langgraph_checkpoint_custom.saver import CheckpointSaver

# Examples of each check that are printed.
EXAMPLES = 5


@command("yes", "tenant")
def doctor(
    options: Options,
    fix: Annotated[
        bool, typer.Option("--fix", help="delete values, chunks and labels that are not in use", show_default=False)
    ] = False,
) -> None:
    """Check the tables: orphaned rows, missing values and chunks, ids out of order, missing indexes."""
    counts: Counter[str] = Counter()
    examples: dict[str, list[Finding]] = {}
    with options.opened(may_be_anothers=True, reads=not fix, lists=True) as saver:
        shape = saver.backend.driver.look(verify(saver.backend.dialect))
        if not shape.is_usable or any(line.startswith(("table", "column")) for line in shape.missing):
            report = {"ok": False, "version": shape.version, "shipped": shape.shipped}
            options.report(
                {**report, "missing": shape.missing, "checks": {}},
                "The tables are not those of this version; verify lists what is missing, and setup creates it.",
            )
            raise typer.Exit(1)
        if fix:
            options.confirm("Delete unused values, unused chunks and dangling labels?")
        fixed = _look_through(saver, counts, examples, fix=fix)
    repairable = sum(counts[check.name] for check in CHECKS if check.repairable)
    rest = any(counts[check.name] for check in CHECKS if check.wrong and not check.repairable)
    is_left = rest or repairable > fixed or bool(shape.missing)
    if options.as_json:
        checks = {
            check.name: {
                "count": counts[check.name],
                "wrong": check.wrong,
                "examples": [
                    {"thread_id": one.thread_id, "checkpoint_ns": one.checkpoint_ns, "names": one.names}
                    for one in examples.get(check.name, ())
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


def _look_through(
    saver: CheckpointSaver, counts: Counter[str], examples: dict[str, list[Finding]], *, fix: bool
) -> int:
    """Check all threads and, with `fix`, delete what is unused; return the number of deleted rows."""
    fixed = done = 0
    run, d = saver.backend.driver.run, saver.backend.dialect
    with progress("threads", lambda: count_all(saver, tenants=False)) as report:
        for threads in d.ranges():
            within: Range | None = threads
            while within is not None:
                page = run(look(d, within))
                within = page.remaining
                done += page.threads
                report(done, "doctor")
                counts.update(one.check for one in page.findings)
                for one in page.findings:
                    if len(examples.setdefault(one.check, [])) < EXAMPLES:
                        examples[one.check].append(one)
                if fix:
                    damaged = {one.thread_id for one in page.findings if BY_NAME[one.check].repairable}
                    fixed += sum(run(repair(d, thread_id)) for thread_id in sorted(damaged))
    return fixed


def _show(counts: Counter[str], examples: dict[str, list[Finding]], missing: int) -> None:
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
        for finding in found:
            where = f", namespace {finding.checkpoint_ns}" if finding.checkpoint_ns else ""
            say(f"{name}: thread {finding.thread_id}{where}: {', '.join(finding.names)}")
