"""`sweep`, `set-ttl`, `status`: what a retention deletes, and whether it is swept in time."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any, Literal

import typer

from langgraph_checkpoint_custom.cli.common import (
    AnyTenant,
    DryRun,
    Json,
    NoTenants,
    Schema,
    Tenant,
    Thread,
    Url,
    Yes,
    confirm,
    count_all,
    mention_tenants,
    opened,
    savers_of,
    whether_all,
)
from langgraph_checkpoint_custom.cli.output import complain, counted, progress, say, size, table, tell
from langgraph_checkpoint_custom.cli.reading import Where
from langgraph_checkpoint_custom.cli.times import Times, Utc, span
from langgraph_checkpoint_custom.engine.operation import follow
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.records import SweepStatus
from langgraph_checkpoint_custom.retention import Asked, Pause, Retention, now, perform, sweep_operations
from langgraph_checkpoint_custom.tools.finding import wanted_of

commands = typer.Typer()

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
    max_threads: Annotated[
        int | None, typer.Option(metavar="N", help="end after this many threads", show_default=False)
    ] = None,
    max_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="end after this time, such as 10m", show_default=False)
    ] = None,
    pause: Annotated[
        float, typer.Option(metavar="SECONDS", help="wait this long after each page of threads", show_default=False)
    ] = 0.0,
    dry_run: DryRun = False,
    yes: Yes = False,
    url: Url = None,
    schema: Schema = None,
    tenant: AnyTenant = None,
    no_tenants: NoTenants = False,
    as_json: Json = False,
) -> None:
    """Delete idle threads, all but the newest checkpoints, or what exceeds a size, while runs go on.

    Without such an option, only threads whose time to live is over; those are deleted in any case.
    """
    keep = Retention(
        older_than=None if older_than is None else span(older_than),
        keep_last=keep_last,
        max_bytes=None if max_bytes is None else _size(max_bytes),
        filter=wanted_of(where or ()),
        max_threads=max_threads,
        max_seconds=None if max_time is None else span(max_time).total_seconds(),
        pause=pause,
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
    if not done.complete:
        say("That is not all: the next sweep goes on there.")


@commands.command("set-ttl")
def set_ttl(
    thread: Thread,
    ttl: Annotated[str, typer.Argument(metavar="TIME", help="such as 30d or 12h; `none` takes it back")],
    keep_latest: Annotated[
        bool, typer.Option("--keep-latest", help="do what prune does, instead of deleting all", show_default=False)
    ] = False,
    url: Url = None,
    schema: Schema = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Give a thread a time to live, after which a sweep deletes it."""
    time = None if ttl == "none" else span(ttl)
    strategy: Literal["delete", "keep_latest"] = "keep_latest" if keep_latest else "delete"
    with opened(url, tenant, schema=schema) as saver:
        saver.set_ttl(thread, time, strategy=strategy)
    if as_json:
        tell({"thread_id": thread, "ttl_seconds": time.total_seconds() if time else None, "strategy": strategy})
    elif time is None:
        say(f"Thread {thread} has no time to live.")
    else:
        done = "pruned" if keep_latest else "deleted"
        say(f"Thread {thread} is {done} when nothing has been stored in it for {ttl}.")


@commands.command()
def status(
    within: Annotated[
        str, typer.Option(metavar="TIME", help="how long ago the last sweep may be, and how late a thread")
    ] = "1d",
    utc: Utc = False,
    url: Url = None,
    schema: Schema = None,
    tenant: AnyTenant = None,
    no_tenants: NoTenants = False,
    as_json: Json = False,
) -> None:
    """Say when the last sweep was complete and what is overdue; the exit code is 1 if that is too late."""
    limit, times, tenants = span(within), Times(utc), whether_all(tenant, no_tenants)
    with opened(url, tenant, schema=schema, reads=True) as saver:
        found = [(one.backend.dialect.tenant, one.sweep_status()) for one in savers_of(saver, tenants)]
        mention_tenants(saver, tenant, are_in=tenants)
    late = {whose for whose, one in found if _is_late(one, limit)}
    if as_json:
        tell({"ok": not late, "tenants": [{"tenant": whose or None, **json_of(one)} for whose, one in found]})
    else:
        table(
            ("tenant", times.head("last sweep"), "overdue", "for", ""),
            (
                (whose, times.short(one.finished_at) or "never", one.overdue, *_words(one, whose in late))
                for whose, one in found
            ),
            right=("overdue",),
            spare=("tenant",),
        )
    if late:
        raise typer.Exit(1)


def json_of(one: SweepStatus) -> dict[str, object]:
    """Return a status as JSON."""
    finished_at = None if one.finished_at is None else one.finished_at.isoformat()
    return {"finished_at": finished_at, "overdue": one.overdue, "lag_seconds": one.lag.total_seconds()}


def _is_late(one: SweepStatus, limit: timedelta) -> bool:
    return one.finished_at is None or now() - one.finished_at > limit or one.lag > limit


def _words(one: SweepStatus, late: bool) -> tuple[str, str]:
    return str(timedelta(seconds=round(one.lag.total_seconds()))) if one.overdue else "", "late" if late else "in time"


@commands.command()
def erase(
    where: Where = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    url: Url = None,
    schema: Schema = None,
    tenant: AnyTenant = None,
    no_tenants: NoTenants = False,
    as_json: Json = False,
) -> None:
    """Delete all threads with a checkpoint that has this metadata, such as those of a person, whatever their labels."""
    filter, tenants = wanted_of(where or ()), whether_all(tenant, no_tenants)
    if filter is None:
        raise ConfigError("say whose threads, such as --where user_id=ada")
    with opened(url, tenant, schema=schema) as saver:
        if not dry_run:
            confirm(f"Delete all threads with {', '.join(where or ())} for good?", yes=yes)
        done = saver.erase(filter, dry_run=dry_run, tenants=tenants)
        mention_tenants(saver, tenant, are_in=tenants)
    if as_json:
        tell({"dry_run": dry_run, "threads": [one._asdict() for one in done.threads], "unreadable": done.unreadable})
    else:
        table(
            ("tenant", "thread", "checkpoints", "writes", "values", "labels", "size"),
            ((*one[:6], size(one.bytes)) for one in done.threads),
            right=("checkpoints", "writes", "values", "labels", "size"),
            spare=("tenant",),
        )
        say(f"{counted(len(done.threads), 'thread')} {'would be deleted' if dry_run else 'deleted'}.")
        for whose, thread in done.unreadable:
            complain(f"thread {thread!r}{f' of {whose}' if whose else ''} has metadata that cannot be read; it stays")
    if done.unreadable:
        raise typer.Exit(1)


def _size(text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)B?", text, re.IGNORECASE)
    if found is None:
        raise ConfigError(f"{text!r} is not a size; write a number and B, KB, MB, GB or TB, such as 10GB")
    return int(float(found[1]) * _BYTES[found[2].upper()])
