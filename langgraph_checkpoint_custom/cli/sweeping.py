"""`sweep`, `set-ttl`, `status`, `erase`, `vacuum`: what goes through a whole store and deletes."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from langgraph_checkpoint_custom.cli.common import (
    NotPossible,
    Options,
    Thread,
    Where,
    amount,
    argument,
    command,
    option,
    span,
)
from langgraph_checkpoint_custom.cli.output import Column, complain, counted, number, say, size
from langgraph_checkpoint_custom.drivers.sqlite import SqliteDriver
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.records import SweepStatus
from langgraph_checkpoint_custom.retention import Retention
from langgraph_checkpoint_custom.tools.finding import savers_of, wanted_of

# Bytes that SQLite rewrites in a second on a disk of a small server; a question names the time.
PACE = 200_000_000


@command("dry_run", "yes", "tenant", "no_tenants")
def sweep(
    options: Options,
    older_than: Annotated[
        str | None, option("delete threads idle for this long, such as 30d or 12h", metavar="TIME")
    ] = None,
    keep_last: Annotated[
        int | None, option("keep this many of the newest checkpoints in each namespace", metavar="N")
    ] = None,
    max_bytes: Annotated[
        str | None, option("delete the longest idle threads above this total size, such as 10GB", metavar="SIZE")
    ] = None,
    where: Where = None,
    max_threads: Annotated[int | None, option("end after this many threads", metavar="N")] = None,
    max_time: Annotated[str | None, option("end after this time, such as 10m", metavar="TIME")] = None,
    pause: Annotated[float, option("wait this long after each page of threads", metavar="SECONDS")] = 0.0,
) -> None:
    """Delete idle threads, all but the newest checkpoints, or what exceeds a size, while runs go on.

    Without such an option, only threads whose time to live is over; those are deleted in any case.
    """
    keep = Retention(
        older_than=None if older_than is None else span(older_than),
        keep_last=keep_last,
        max_bytes=None if max_bytes is None else amount(max_bytes),
        filter=wanted_of(where or ()),
        max_threads=max_threads,
        max_seconds=None if max_time is None else span(max_time).total_seconds(),
        pause=pause,
    )
    with options.opened(lists=True) as saver:
        options.confirm("Delete what these options do not keep?")
        done = saver.sweep(keep, dry_run=options.dry_run, tenants=options.tenants)
    figures = asdict(done)
    if not options.dry_run:
        del figures["would_delete"]
    deleted = "would be deleted" if options.dry_run else "deleted"
    whose = "the values of deleted threads" if options.dry_run else "values"
    options.report(
        {"dry_run": options.dry_run, **figures},
        f"{done.deleted_threads:,} of {counted(done.threads, 'thread')} {deleted}; in total "
        f"{counted(done.deleted_checkpoints, 'checkpoint')} {deleted}, with {size(done.freed_bytes)} of {whose}."
        + ("" if done.complete else " That is not all: the next sweep goes on there."),
    )


@command("tenant")
def set_ttl(
    options: Options,
    thread: Thread,
    ttl: Annotated[str, argument("such as 30d or 12h; `none` takes it back", metavar="TIME")],
    keep_latest: Annotated[bool, option("do what prune does, instead of deleting all", "--keep-latest")] = False,
) -> None:
    """Give a thread a time to live, after which a sweep deletes it."""
    after = None if ttl == "none" else span(ttl)
    strategy: Literal["delete", "keep_latest"] = "keep_latest" if keep_latest else "delete"
    with options.opened() as saver:
        saver.set_ttl(thread, after, strategy=strategy)
    done = "pruned" if keep_latest else "deleted"
    options.report(
        {"thread_id": thread, "ttl_seconds": after.total_seconds() if after else None, "strategy": strategy},
        f"Thread {thread} is {done} when nothing has been stored in it for {ttl}."
        if after
        else f"Thread {thread} has no time to live.",
    )


@command("utc", "tenant", "no_tenants")
def status(
    options: Options,
    within: Annotated[
        str, option("how long ago the last sweep may be, and how late a thread", metavar="TIME", show_default=True)
    ] = "1d",
) -> None:
    """Say when the last sweep was complete and what is overdue; the exit code is 1 if that is too late."""
    limit, times = span(within), options.times
    with options.opened(reads=True, lists=True) as saver:
        found = [(one.backend.dialect.tenant, one.sweep_status()) for one in savers_of(saver, options.tenants)]
    late = {whose for whose, one in found if _is_late(one, limit)}
    options.listing(
        "tenants",
        [
            {
                "tenant": whose or None,
                "finished_at": one.finished_at,
                "overdue": one.overdue,
                "lag_seconds": one.lag.total_seconds(),
            }
            for whose, one in found
        ],
        [
            Column("tenant", lambda row: row[0], cut=True),
            Column(times.head("last sweep"), lambda row: times.short(row[1].finished_at) or "never"),
            Column("overdue", lambda row: row[1].overdue, right=True),
            Column("for", lambda row: timedelta(seconds=round(row[1].lag.total_seconds())) if row[1].overdue else None),
            Column("state", lambda row: "late" if row[0] in late else "in time"),
        ],
        found,
        ok=not late,
    )
    if late:
        raise typer.Exit(1)


def _is_late(one: SweepStatus, limit: timedelta) -> bool:
    return one.finished_at is None or datetime.now(timezone.utc) - one.finished_at > limit or one.lag > limit


@command("dry_run", "yes", "tenant", "no_tenants")
def erase(
    options: Options,
    where: Annotated[
        list[str] | None,
        option(
            "metadata that any checkpoint of the thread has, also a hidden one; the value as in threads; may be given "
            "several times",
            metavar="KEY=VALUE",
        ),
    ] = None,
) -> None:
    """Delete all threads with a checkpoint that has this metadata, such as those of a person, whatever their labels."""
    filter = wanted_of(where or ())
    if filter is None:
        raise ConfigError("say whose threads, such as --where user_id=ada")
    with options.opened(lists=True) as saver:
        options.confirm(f"Delete all threads with {', '.join(where or ())} for good?")
        done = saver.erase(filter, dry_run=options.dry_run, tenants=options.tenants)
    columns = [
        Column("tenant", "tenant", cut=True),
        Column("thread", "thread_id"),
        *(number(what, what) for what in ("checkpoints", "writes", "values", "labels")),
        number("size", lambda row: size(row.bytes)),
    ]
    more: dict[str, Any] = {"dry_run": options.dry_run, "unreadable": done.unreadable}
    options.listing("threads", done.threads, columns, nothing=f"No threads with {', '.join(where or ())}.", **more)
    if not options.as_json:
        if done.threads:
            say(f"{counted(len(done.threads), 'thread')} {'would be deleted' if options.dry_run else 'deleted'}.")
        for whose, thread in done.unreadable:
            complain(f"thread {thread!r}{f' of {whose}' if whose else ''} has metadata that cannot be read; it stays")
    if done.unreadable:
        raise typer.Exit(1)


@command("yes")
def vacuum(options: Options) -> None:
    """Rewrite a SQLite file without the space of deleted rows; writes wait meanwhile, reads do not.

    Afterwards a sweep gives the space of what it deletes back, in short steps. It does so without this command in a
    file that this package has created.
    """
    with options.opened() as saver:
        driver: Any = saver.backend.driver
        if not isinstance(driver, SqliteDriver):
            raise NotPossible(
                "vacuum is for SQLite files; PostgreSQL uses the space of deleted rows again by itself, and VACUUM "
                "FULL or pg_repack returns it to the disk"
            )
        path = Path(driver.path)
        before = path.stat().st_size
        options.confirm(
            f"Rewrite {path} ({size(before)})? Writes wait meanwhile, for about {before / PACE:.1f} seconds, and fail "
            "after their busy_timeout. The disk needs up to twice this space."
        )
        began = time.monotonic()
        driver.vacuum()
        seconds = time.monotonic() - began
    after = path.stat().st_size
    options.report(
        {"bytes_before": before, "bytes_after": after, "seconds": round(seconds, 3)},
        f"The file has {size(after)}, before {size(before)}. Writes waited for {seconds:.1f} seconds.",
    )
