"""`stats`: rows, bytes and growth."""

from __future__ import annotations

from typing import Annotated

import typer

from langgraph_checkpoint_custom.cli.common import (
    AnyTenant,
    Json,
    NoTenants,
    Schema,
    Url,
    mention_tenants,
    opened,
    thread_as_typed,
    whether_all,
)
from langgraph_checkpoint_custom.cli.output import counted, say, size, table, tell
from langgraph_checkpoint_custom.cli.reading import Limit
from langgraph_checkpoint_custom.cli.sweeping import json_of
from langgraph_checkpoint_custom.cli.times import Times, Utc
from langgraph_checkpoint_custom.model.id_times import time_of
from langgraph_checkpoint_custom.model.keys import thread_text
from langgraph_checkpoint_custom.model.records import SweepStatus
from langgraph_checkpoint_custom.operations.sizes import (
    ChannelSize,
    LargeThread,
    NamespaceSize,
    Store,
    Thread,
    sizes_of_store,
    sizes_of_thread,
)
from langgraph_checkpoint_custom.tools.finding import thread_named

commands = typer.Typer()

_NUMBERS = ("checkpoints", "rows", "values", "chunks", "writes", "size", "per checkpoint", "per day")

_SPARED = ("tenant", "namespace", "channel", "largest channels")


@commands.command()
def stats(
    thread: Annotated[
        str | None,
        typer.Argument(metavar="[THREAD]", parser=thread_as_typed, help="one thread", show_default=False),
    ] = None,
    limit: Limit = 10,
    utc: Utc = False,
    url: Url = None,
    schema: Schema = None,
    tenant: AnyTenant = None,
    no_tenants: NoTenants = False,
    as_json: Json = False,
) -> None:
    """Count rows and bytes of tables, the largest threads and channels, or of one thread by namespace and channel.

    Bytes are those of values as they are stored. Growth is per checkpoint, and per day from the first checkpoint to the
    last.
    """
    tenants = whether_all(tenant, no_tenants)
    with opened(url, tenant, schema=schema, reads=True) as saver:
        if thread is None:
            mention_tenants(saver, tenant, are_in=tenants)
            names = saver.tenants() if tenants else ()
            store = saver.backend.driver.run(sizes_of_store(saver.backend.dialect, limit, names))
            sweeps = saver.sweep_status()
            _tell_store(store, sweeps) if as_json else _show_store(store, sweeps, Times(utc))
        else:
            thread = thread_named(saver, thread)
            found = saver.backend.driver.run(sizes_of_thread(saver.backend.dialect, thread_text(thread), limit))
            _tell_thread(thread, found) if as_json else _show_thread(found, Times(utc))


def _growth(one: LargeThread | NamespaceSize) -> tuple[int | None, int | None]:
    """Return the bytes per checkpoint and per day; None where there is no checkpoint, or less than a day."""
    first, last = (time_of(each) if each else None for each in (one.first_id, one.last_id))
    days = (last - first).total_seconds() / 86_400 if first and last else 0
    return one.bytes // one.checkpoints if one.checkpoints else None, int(one.bytes / days) if days >= 1 else None


def _grown(one: LargeThread | NamespaceSize) -> tuple[str, str]:
    by_checkpoint, by_day = _growth(one)
    return "" if by_checkpoint is None else size(by_checkpoint), "" if by_day is None else size(by_day)


def _as_dict(one: LargeThread | NamespaceSize) -> dict[str, object]:
    by_checkpoint, by_day = _growth(one)
    return {**one._asdict(), "bytes_a_checkpoint": by_checkpoint, "bytes_a_day": by_day}


def _channel(one: ChannelSize) -> tuple[object, ...]:
    return one.channel, one.versions, one.chunks, one.writes, size(one.bytes)


def _tell_store(found: Store, sweeps: SweepStatus) -> None:
    channels = [{k: v for k, v in one._asdict().items() if k != "checkpoint_ns"} for one in found.channels]
    tell(
        {
            "tables": {one.table: {"rows": one.rows, "bytes": one.bytes} for one in found.tables},
            "threads": [_as_dict(one) for one in found.threads],
            "channels": channels,
            "sweeps": json_of(sweeps),
        }
    )


def _show_store(found: Store, sweeps: SweepStatus, times: Times) -> None:
    table(
        ("table", "rows", "size"),
        ((one.table, one.rows, size(one.bytes)) for one in found.tables),
        right=_NUMBERS,
        spare=_SPARED,
    )
    table(
        ("largest threads", "tenant", "checkpoints", "rows", "size", "per checkpoint", "per day", times.head("newest")),
        (
            (o.thread_id, o.tenant, o.checkpoints, o.rows, size(o.bytes), *_grown(o), times.short(o.last_id))
            for o in found.threads
        ),
        right=_NUMBERS,
        spare=_SPARED,
    )
    head = ("largest channels", "values", "chunks", "writes", "size")
    table(head, map(_channel, found.channels), right=_NUMBERS, spare=_SPARED)
    if sweeps.finished_at is not None:
        say(f"Last sweep: {times.short(sweeps.finished_at)}; {counted(sweeps.overdue, 'thread')} overdue.")


def _tell_thread(thread: str, found: Thread) -> None:
    tell(
        {
            "thread_id": thread,
            "namespaces": [_as_dict(one) for one in found.namespaces],
            "channels": [one._asdict() for one in found.channels],
        }
    )


def _show_thread(found: Thread, times: Times) -> None:
    table(
        ("namespace", "checkpoints", "rows", "size", "per checkpoint", "per day", times.head("newest")),
        (
            (o.checkpoint_ns or "(root)", o.checkpoints, o.rows, size(o.bytes), *_grown(o), times.short(o.last_id))
            for o in found.namespaces
        ),
        right=_NUMBERS,
        spare=_SPARED,
    )
    table(
        ("namespace", "channel", "values", "chunks", "writes", "size"),
        ((one.checkpoint_ns or "(root)", *_channel(one)) for one in found.channels),
        right=_NUMBERS,
        spare=_SPARED,
    )
