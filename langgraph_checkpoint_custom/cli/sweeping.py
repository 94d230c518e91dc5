"""`sweep`: deletes what a retention does not keep."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any

import typer

from langgraph_checkpoint_custom.cli.common import (
    AnyTenant,
    DryRun,
    Json,
    NoTenants,
    Schema,
    Url,
    Yes,
    confirm,
    count_all,
    mention_tenants,
    opened,
    whether_all,
)
from langgraph_checkpoint_custom.cli.output import counted, progress, say, size, tell
from langgraph_checkpoint_custom.cli.reading import Where
from langgraph_checkpoint_custom.engine.operation import follow
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.retention import Asked, Pause, Retention, now, perform, sweep_operations
from langgraph_checkpoint_custom.tools.finding import wanted_of

commands = typer.Typer()

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_BYTES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


@commands.command()
def sweep(
    older_than: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="delete threads idle for this long, such as 30d or 12h", show_default=False),
    ] = None,
    keep_last: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="keep this many of the newest checkpoints in each namespace", show_default=False
        ),
    ] = None,
    max_bytes: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="delete the longest idle threads above this total size, such as 10GB",
            show_default=False,
        ),
    ] = None,
    where: Where = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    url: Url = None,
    schema: Schema = None,
    tenant: AnyTenant = None,
    no_tenants: NoTenants = False,
    as_json: Json = False,
) -> None:
    """Delete idle threads, all but the newest checkpoints, or what exceeds a size, while runs go on."""
    if older_than is None and keep_last is None and max_bytes is None:
        raise ConfigError("say what to delete: --older-than, --keep-last or --max-bytes")
    keep = Retention(
        older_than=None if older_than is None else _time(older_than),
        keep_last=keep_last,
        max_bytes=None if max_bytes is None else _size(max_bytes),
        filter=wanted_of(where or ()),
    )
    tenants = whether_all(tenant, no_tenants)
    with opened(url, tenant, schema=schema) as saver:
        if not dry_run:
            confirm("Delete what these options do not keep?", yes=yes)
        seen = 0
        with progress("threads", lambda: count_all(saver, tenants, wanted_of(where or ()))) as report:

            def run(asked: Asked) -> Any:
                nonlocal seen
                if not isinstance(asked, Pause) and asked.name in ("sweep_thread", "look_at_thread"):
                    seen += 1
                    report(seen, "dry run" if dry_run else "work")
                return perform(saver.backend.driver.run, asked)

            done = follow(
                sweep_operations(
                    saver.backend.dialect, saver.backend.values, keep, now(), dry_run=dry_run, tenants=tenants
                ),
                run,
            )
        mention_tenants(saver, tenant, are_in=tenants)
    if as_json:
        figures = asdict(done)
        if not dry_run:
            del figures["would_delete"]
        tell({"dry_run": dry_run, **figures})
        return
    deleted, whose = ("would be deleted", "the values of deleted threads") if dry_run else ("deleted", "values")
    say(
        f"{done.deleted_threads:,} of {counted(done.threads, 'thread')} {deleted}; in total "
        f"{counted(done.deleted_checkpoints, 'checkpoint')} {deleted}, with {size(done.freed_bytes)} of {whose}."
    )


def _time(text: str) -> timedelta:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text)
    if found is None:
        raise ConfigError(f"{text!r} is not a time; write a number and s, m, h, d or w, such as 30d")
    return timedelta(seconds=float(found[1]) * _SECONDS[found[2]])


def _size(text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)B?", text, re.IGNORECASE)
    if found is None:
        raise ConfigError(f"{text!r} is not a size; write a number and B, KB, MB, GB or TB, such as 10GB")
    return int(float(found[1]) * _BYTES[found[2].upper()])
