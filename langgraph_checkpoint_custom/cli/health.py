"""`doctor`: finds and deletes what is wrong in the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from langgraph_checkpoint_custom.cli.common import (
    Json,
    Schema,
    Tenant,
    Url,
    Yes,
    confirm,
    count_all,
    mention_tenants,
    opened,
)
from langgraph_checkpoint_custom.cli.output import Style, counted, progress, say, table, tell
from langgraph_checkpoint_custom.model.keys import Range
from langgraph_checkpoint_custom.operations.doctor import BY_NAME, CHECKS, Finding, look, repair
from langgraph_checkpoint_custom.operations.schema import Verified, verify
from langgraph_checkpoint_custom.saver import CheckpointSaver

commands = typer.Typer()

# Examples that are printed for each check.
EXAMPLES = 5


@commands.command()
def doctor(
    fix: Annotated[
        bool, typer.Option("--fix", help="delete values, chunks and labels that are not in use", show_default=False)
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="with --fix: only report what would be deleted", show_default=False)
    ] = False,
    yes: Yes = False,
    url: Url = None,
    schema: Schema = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Check the tables: orphaned rows, missing values and chunks, ids out of order, missing indexes."""
    counts: Counter[str] = Counter()
    examples: dict[str, list[Finding]] = {}
    with opened(url, tenant, schema=schema, may_be_anothers=True, reads=not fix) as saver:
        shape = saver.backend.driver.look(verify(saver.backend.dialect))
        if not shape.is_usable or any(line.startswith(("table", "column")) for line in shape.missing):
            _shape_only(shape, as_json)
        if fix and not dry_run:
            confirm("Delete unused values, unused chunks and dangling labels?", yes=yes)
        fixed = _look_through(saver, counts, examples, fix=fix and not dry_run)
        left = _wrong(shape, counts, fixed)
        mention_tenants(saver, tenant)
    if as_json:
        _tell(shape, counts, examples, fixed, ok=not left)
    else:
        _show(shape, counts, examples)
        if fix and not dry_run:
            say(f"{counted(fixed, 'row')} deleted.")
        elif any(counts[check.name] for check in CHECKS if check.repairable):
            say("--fix deletes the unused rows.")
    if left:
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


def _wrong(shape: Verified, counts: Counter[str], fixed: int) -> bool:
    """Return whether something wrong is left."""
    repairable = sum(counts[check.name] for check in CHECKS if check.repairable)
    rest = any(counts[check.name] for check in CHECKS if check.wrong and not check.repairable)
    return rest or repairable > fixed or bool(shape.missing)


def _shape_only(shape: Verified, as_json: bool) -> None:
    """Report that tables are missing or are those of another version, so that nothing can be checked; exit with 1."""
    if as_json:
        tell({"ok": False, "version": shape.version, "shipped": shape.shipped, "missing": shape.missing, "checks": {}})
    else:
        say("The tables are not those of this version; verify lists what is missing, and setup creates it.")
    raise typer.Exit(1)


def _tell(
    shape: Verified,
    counts: Counter[str],
    examples: Mapping[str, Sequence[Finding]],
    fixed: int,
    *,
    ok: bool,
) -> None:
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
    tell({"ok": ok, "missing": shape.missing, "checks": checks, "fixed": fixed})


def _show(
    shape: Verified,
    counts: Counter[str],
    examples: Mapping[str, Sequence[Finding]],
) -> None:
    rows: list[tuple[str, int, str]] = []
    styles: list[Style] = []
    for check in CHECKS:
        number = counts[check.name]
        rows.append((check.name, number, check.means if number else ""))
        styles.append("plain" if not number else "bad" if check.wrong else "dim")
    rows.append(
        (
            "missing or changed",
            len(shape.missing),
            "indexes, policies or functions; see verify" if shape.missing else "",
        )
    )
    styles.append("bad" if shape.missing else "plain")
    table(("check", "found", ""), rows, right=("found",), styles=styles)
    for name, found in examples.items():
        for finding in found:
            where = f", namespace {finding.checkpoint_ns}" if finding.checkpoint_ns else ""
            say(f"{name}: thread {finding.thread_id}{where}: {', '.join(finding.names)}")
