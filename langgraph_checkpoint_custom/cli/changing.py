"""`copy`, `fork`, `prune`, `delete`, `rollback`, `label`, `unlabel`: the commands that change threads.

Commands that destroy something ask first. Their `--dry-run` executes the operation in a transaction and rolls it back,
so it reports exactly what would happen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Annotated, Any, NamedTuple

import typer

from langgraph_checkpoint_custom.cli.common import (
    AnyTenant,
    DryRun,
    Json,
    Namespace,
    NoTenants,
    NotPossible,
    Schema,
    Tenant,
    Thread,
    Url,
    Yes,
    confirm,
    mention_tenants,
    opened,
    savers_of,
    thread_as_typed,
    whether_all,
)
from langgraph_checkpoint_custom.cli.output import counted, progress, say, size, table, tell
from langgraph_checkpoint_custom.engine.operation import Operation
from langgraph_checkpoint_custom.errors import CheckpointNotFound, ConfigError
from langgraph_checkpoint_custom.model.keys import KIND_MARK, MAX_ID, Key, config_of, text, thread_text
from langgraph_checkpoint_custom.operations.delete import delete_thread, prune_thread
from langgraph_checkpoint_custom.operations.delete import rollback as rollback_thread
from langgraph_checkpoint_custom.operations.sizes import (
    DryRunResult,
    ThreadSize,
    counted_change,
    dry_run_of,
    sizes_of_threads,
)
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.tools.finding import all_threads

commands = typer.Typer()

Threads = Annotated[
    list[str] | None,
    typer.Argument(metavar="[THREAD]...", parser=thread_as_typed, help="ids of threads", show_default=False),
]
All = Annotated[bool, typer.Option("--all", help="all threads, including those of all tenants", show_default=False)]


@commands.command()
def copy(
    source: Annotated[str, typer.Argument(metavar="SOURCE", parser=thread_as_typed, help="a thread")],
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", parser=thread_as_typed, help="an id that has no checkpoints of its own"),
    ],
    url: Url = None,
    schema: Schema = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Copy a thread with its complete history, inside the database."""
    with opened(url, tenant, schema=schema) as saver:
        _must_be_there(saver, source)
        saver.copy_thread(source, target)
    _done({"source": source, "target": target}, f"Copied {source} to {target}.", as_json)


@commands.command()
def fork(
    source: Annotated[str, typer.Argument(metavar="SOURCE", parser=thread_as_typed, help="a thread")],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", parser=thread_as_typed, help="an id that has no checkpoints")
    ],
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="ID", help="where to start; by default the newest checkpoint", show_default=False),
    ] = None,
    run: Annotated[
        str | None, typer.Option(metavar="ID", help="start from the last checkpoint of this run", show_default=False)
    ] = None,
    url: Url = None,
    schema: Schema = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Start a new thread from a checkpoint of another, with all that the checkpoint needs and nothing after it."""
    with opened(url, tenant, schema=schema) as saver:
        config = saver.fork_thread(source, target, checkpoint_id=checkpoint, run_id=run)
    where = config["configurable"]["checkpoint_id"]
    result = {"source": source, "target": target, "checkpoint_id": where}
    _done(result, f"Thread {target} starts from checkpoint {where} of {source}.", as_json)


@commands.command()
def prune(
    threads: Threads = None,
    every: All = False,
    keep: Annotated[int, typer.Option(metavar="N", min=1, help="how many checkpoints to keep in each namespace")] = 1,
    dry_run: DryRun = False,
    yes: Yes = False,
    url: Url = None,
    schema: Schema = None,
    tenant: AnyTenant = None,
    no_tenants: NoTenants = False,
    as_json: Json = False,
) -> None:
    """Delete all checkpoints but the newest ones of each namespace, those with labels, and what these need.

    With --all, threads of other frameworks are not changed: there an older checkpoint can be a record of its own.
    """
    _on_threads(
        _Asked(threads, every, dry_run, yes, url, schema, tenant, no_tenants, as_json),
        lambda saver, one: prune_thread(saver.backend.dialect, one, keep),
        "Delete the history of {}?",
        "Pruned",
        but=KIND_MARK,
    )


@commands.command()
def delete(
    threads: Threads = None,
    every: All = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    url: Url = None,
    schema: Schema = None,
    tenant: AnyTenant = None,
    no_tenants: NoTenants = False,
    as_json: Json = False,
) -> None:
    """Delete threads completely."""
    _on_threads(
        _Asked(threads, every, dry_run, yes, url, schema, tenant, no_tenants, as_json),
        lambda saver, one: delete_thread(saver.backend.dialect, one),
        "Delete {} for good?",
        "Deleted",
    )


@commands.command()
def rollback(
    thread: Thread,
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="a checkpoint of the root graph")],
    dry_run: DryRun = False,
    yes: Yes = False,
    url: Url = None,
    schema: Schema = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Make a checkpoint the newest: delete everything after it, in all namespaces, and its own pending writes."""
    key = Key(thread_text(thread), "", text("checkpoint_id", checkpoint, MAX_ID))
    _on_threads(
        _Asked([thread], False, dry_run, yes, url, schema, tenant, False, as_json),
        lambda saver, one: rollback_thread(saver.backend.dialect, key),
        f"Delete everything after checkpoint {checkpoint} of {{}}?",
        "Rolled back",
    )


class _Asked(NamedTuple):
    """The options of a command that changes threads."""

    threads: list[str] | None
    every: bool
    dry_run: bool
    yes: bool
    url: str | None
    schema: str | None
    tenant: str | None
    no_tenants: bool
    as_json: bool


def _on_threads(
    asked: _Asked,
    operation: Callable[[CheckpointSaver, str], Operation[Any]],
    question: str,
    verb: str,
    *,
    but: str | None = None,
) -> None:
    """Run an operation on each thread, or report what it would do.

    Args:
        asked: The options.
        operation: Makes the operation for a saver and a thread id.
        question: What to ask before; {} is where the threads are named.
        verb: What was done, such as "Deleted".
        but: With --all, threads whose ids begin with this are left out.
    """
    named = asked.threads or []
    if asked.every == bool(named):
        raise ConfigError("name threads, or use --all")
    tenants = whether_all(asked.tenant, asked.no_tenants) and asked.every
    with opened(asked.url, asked.tenant, schema=asked.schema) as saver:
        for one in named:
            _must_be_there(saver, one)

        def total() -> int:
            if named:
                return len(named)
            savers = savers_of(saver, tenants)
            left_out = 0 if but is None else sum(own.count_threads(prefix=but) for own in savers)
            return sum(own.count_threads() for own in savers) - left_out

        def found() -> Iterator[_Thread]:
            if named:
                yield from (_Thread(saver, one) for one in named)
                return
            for own in savers_of(saver, tenants):
                for one in all_threads(own):
                    if but is None or not one.startswith(but):
                        yield _Thread(own, one)

        if asked.every:
            mention_tenants(saver, asked.tenant, are_in=tenants)
        if asked.dry_run:
            _dry_run(found(), operation, total, asked.as_json)
            return
        if not asked.yes:
            confirm(question.format(_named(named, total())), yes=False)
        done = _Deleted()
        with progress("threads", total) as report:
            for own, one in found():
                thread_id, dialect = thread_text(one), own.backend.dialect
                change = counted_change(dialect, thread_id, operation(own, thread_id))
                done.add(*own.backend.driver.run(change))
                report(done.threads, verb.lower())
    _done(asdict(done), f"{verb} {counted(done.threads, 'thread')}: {done}.", asked.as_json)


@dataclass
class _Deleted:
    """What was deleted in some threads. Checkpoints that others need are hidden, and count as deleted."""

    threads: int = 0
    deleted_checkpoints: int = 0
    deleted_writes: int = 0
    freed_bytes: int = 0

    def add(self, before: ThreadSize, after: ThreadSize) -> None:
        """Add the sizes of a thread before and after."""
        self.threads += 1
        self.deleted_checkpoints += max(0, before.checkpoints - after.checkpoints)
        self.deleted_writes += max(0, before.writes - after.writes)
        self.freed_bytes += max(0, before.bytes - after.bytes)

    def __str__(self) -> str:
        checkpoints, writes = counted(self.deleted_checkpoints, "checkpoint"), counted(self.deleted_writes, "write")
        return f"{checkpoints}, {writes} and {size(self.freed_bytes)} of values"


class _Thread(NamedTuple):
    """A thread, and the saver of its tenant."""

    saver: CheckpointSaver
    thread_id: str

    @property
    def tenant(self) -> str | None:
        """The tenant of the thread, if it has one."""
        return self.saver.backend.dialect.tenant or None


def _dry_run(
    threads: Iterable[_Thread],
    operation: Callable[[CheckpointSaver, str], Operation[Any]],
    total: Callable[[], int | None],
    as_json: bool,
) -> None:
    sizes: list[tuple[str | None, ThreadSize, ThreadSize]] = []
    done = _Deleted()
    with progress("threads", total) as report:
        for number, one in enumerate(threads, 1):
            thread_id = thread_text(one.thread_id)
            try:
                one.saver.backend.driver.run(
                    dry_run_of(one.saver.backend.dialect, thread_id, operation(one.saver, thread_id))
                )
            except DryRunResult as result:
                sizes.append((one.tenant, result.before, result.after))
                done.add(result.before, result.after)
            report(number, "dry run")
    if as_json:
        rows = [
            {"thread_id": a.thread_id, "tenant": tenant, "before": a._asdict(), "after": b._asdict()}
            for tenant, a, b in sizes
        ]
        tell({"dry_run": True, "threads": rows})
        return
    table(
        ("tenant", "thread", "checkpoints", "would be", "writes", "would be", "size", "would be"),
        (
            (tenant, a.thread_id, a.checkpoints, b.checkpoints, a.writes, b.writes, size(a.bytes), size(b.bytes))
            for tenant, a, b in sizes
        ),
        right=("checkpoints", "writes", "size", "would be"),
        spare=("tenant",),
    )
    say(f"In {counted(done.threads, 'thread')}, {done} would be deleted. Nothing was changed.")


def _named(threads: list[str], number: int) -> str:
    return f"thread {threads[0]!r}" if len(threads) == 1 else counted(number, "thread")


def _must_be_there(saver: CheckpointSaver, thread: str) -> None:
    """Raise CheckpointNotFound if a thread has no rows at all; writes without a checkpoint count."""
    thread_id = thread_text(thread)
    if not any(saver.backend.driver.run(sizes_of_threads(saver.backend.dialect, [thread_id]))[thread_id].size[1:]):
        raise CheckpointNotFound(f"there is no thread {thread!r}")


@commands.command()
def label(
    thread: Thread,
    name: Annotated[str, typer.Argument(metavar="NAME", help="a name that no other checkpoint of the thread has")],
    checkpoint: Annotated[
        str | None, typer.Argument(help="the id of a checkpoint; by default the newest", show_default=False)
    ] = None,
    namespace: Namespace = "",
    url: Url = None,
    schema: Schema = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Give a checkpoint a name, so that no prune deletes it."""
    with opened(url, tenant, schema=schema) as saver:
        found = saver.label(config_of(thread, namespace, checkpoint or ""), name)["configurable"]["checkpoint_id"]
    _done({"label": name, "checkpoint_id": found}, f"Checkpoint {found} has the label {name}.", as_json)


@commands.command()
def unlabel(
    thread: Thread,
    name: Annotated[str, typer.Argument(metavar="NAME", help="a label")],
    url: Url = None,
    schema: Schema = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Remove a name from its checkpoint, so that a prune may delete the checkpoint."""
    with opened(url, tenant, schema=schema) as saver:
        if not saver.unlabel(thread, name):
            raise NotPossible(f"no checkpoint of thread {thread!r} has the label {name!r}")
    _done({"label": name}, f"No checkpoint of {thread} has the label {name} any more.", as_json)


def _done(result: dict[str, Any], sentence: str, as_json: bool) -> None:
    if as_json:
        tell(result)
    else:
        say(sentence)
