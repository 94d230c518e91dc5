"""`copy`, `fork`, `prune`, `delete`, `rollback`, `label`, `unlabel`: the commands that change threads.

Commands that destroy something ask first. Their `--dry-run` executes the operation in a transaction and rolls it back,
so it reports exactly what would happen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from langgraph_checkpoint_custom.cli.common import (
    Namespace,
    NotPossible,
    Options,
    Thread,
    argument,
    command,
    option,
    thread_argument,
)
from langgraph_checkpoint_custom.cli.output import Column, counted, number, say, size
from langgraph_checkpoint_custom.engine.operation import Operation
from langgraph_checkpoint_custom.errors import CheckpointNotFound
from langgraph_checkpoint_custom.model.keys import MAX_ID, Key, config_of, text, thread_text
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
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

Threads = Annotated[list[str], thread_argument("ids of threads", "THREAD...")]
Source = Annotated[str, thread_argument("a thread", "SOURCE")]
Target = Annotated[str, thread_argument("an id that has no checkpoints of its own", "TARGET")]


@command("tenant")
def copy(options: Options, source: Source, target: Target) -> None:
    """Copy a thread with its complete history, inside the database."""
    with options.opened() as saver:
        _must_be_there(saver, source)
        saver.copy_thread(source, target)
    options.report({"source": source, "target": target}, f"Copied {source} to {target}.")


@command("tenant")
def fork(
    options: Options,
    source: Source,
    target: Target,
    checkpoint: Annotated[
        str | None,
        option("where to start; by default the newest checkpoint", metavar="ID"),
    ] = None,
    run: Annotated[str | None, option("start from the last checkpoint of this run", metavar="ID")] = None,
) -> None:
    """Start a new thread from a checkpoint of another, with all that the checkpoint needs and nothing after it."""
    with options.opened() as saver:
        config = saver.fork_thread(source, target, checkpoint_id=checkpoint, run_id=run)
    where = config["configurable"]["checkpoint_id"]
    result = {"source": source, "target": target, "checkpoint_id": where}
    options.report(result, f"Thread {target} starts from checkpoint {where} of {source}.")


@command("tenant")
def label(
    options: Options,
    thread: Thread,
    name: Annotated[str, argument("a name that no other checkpoint of the thread has", metavar="NAME")],
    checkpoint: Annotated[str | None, argument("the id of a checkpoint; by default the newest")] = None,
    namespace: Namespace = "",
) -> None:
    """Give a checkpoint a name, so that no prune deletes it."""
    with options.opened() as saver:
        found = saver.label(config_of(thread, namespace, checkpoint or ""), name)["configurable"]["checkpoint_id"]
    options.report({"label": name, "checkpoint_id": found}, f"Checkpoint {found} has the label {name}.")


@command("tenant")
def unlabel(options: Options, thread: Thread, name: Annotated[str, argument("a label", metavar="NAME")]) -> None:
    """Remove a name from its checkpoint, so that a prune may delete the checkpoint."""
    with options.opened() as saver:
        if not saver.unlabel(thread, name):
            raise NotPossible(f"no checkpoint of thread {thread!r} has the label {name!r}")
    options.report({"label": name}, f"No checkpoint of {thread} has the label {name} any more.")


@command("dry_run", "yes", "tenant")
def prune(
    options: Options,
    threads: Threads,
    keep: Annotated[
        int, option("how many checkpoints to keep in each namespace", metavar="N", min=1, show_default=True)
    ] = 1,
) -> None:
    """Delete all checkpoints but the newest ones of each namespace, those with labels, and what these need.

    `sweep --keep-last` does that with all threads.
    """
    _change(options, threads, lambda d, one: prune_thread(d, one, keep), "Delete the history of {}?", "Pruned")


@command("dry_run", "yes", "tenant")
def delete(options: Options, threads: Threads) -> None:
    """Delete threads completely."""
    _change(options, threads, delete_thread, "Delete {} for good?", "Deleted")


@command("dry_run", "yes", "tenant")
def rollback(
    options: Options,
    thread: Thread,
    checkpoint: Annotated[str, argument("a checkpoint of the root graph", metavar="CHECKPOINT")],
) -> None:
    """Make a checkpoint the newest: delete everything after it, in all namespaces, and its own pending writes."""
    key = Key(thread_text(thread), "", text("checkpoint_id", checkpoint, MAX_ID))
    question = f"Delete everything after checkpoint {checkpoint} of {{}}?"
    _change(options, [thread], lambda d, _: rollback_thread(d, key), question, "Rolled back")


def _change(
    options: Options,
    threads: Sequence[str],
    operation: Callable[[SqlDialect, str], Operation[Any]],
    question: str,
    verb: str,
) -> None:
    """Run an operation on each thread, or report what it would do.

    Args:
        options: The shared options.
        threads: The ids of threads.
        operation: Makes the operation for a thread.
        question: What to ask before; {} is where the threads are named.
        verb: What was done, such as "Deleted".
    """
    with options.opened() as saver:
        for one in threads:
            _must_be_there(saver, one)
        named = f"thread {threads[0]!r}" if len(threads) == 1 else counted(len(threads), "thread")
        options.confirm(question.format(named))
        sizes = [_sizes(saver, thread_text(one), operation, dry_run=options.dry_run) for one in threads]
    # Checkpoints that others need are hidden, and count as deleted.
    checkpoints, writes, freed = (
        sum(max(0, getattr(before, what) - getattr(after, what)) for before, after in sizes)
        for what in ("checkpoints", "writes", "bytes")
    )
    deleted = f"{counted(checkpoints, 'checkpoint')}, {counted(writes, 'write')} and {size(freed)} of values"
    if not options.dry_run:
        result = {"threads": len(sizes), "deleted_checkpoints": checkpoints}
        result |= {"deleted_writes": writes, "freed_bytes": freed}
        options.report(result, f"{verb} {counted(len(sizes), 'thread')}: {deleted}.")
        return
    options.listing(
        "threads",
        [
            {"thread_id": before.thread_id, "before": before._asdict(), "after": after._asdict()}
            for before, after in sizes
        ],
        [
            Column("thread", "thread_id"),
            number("checkpoints", lambda row: row["before"]["checkpoints"]),
            number("would be", lambda row: row["after"]["checkpoints"]),
            number("writes", lambda row: row["before"]["writes"]),
            number("would be", lambda row: row["after"]["writes"]),
            number("size", lambda row: size(row["before"]["bytes"])),
            number("would be", lambda row: size(row["after"]["bytes"])),
        ],
        dry_run=True,
    )
    if not options.as_json:
        say(f"In {counted(len(sizes), 'thread')}, {deleted} would be deleted. Nothing was changed.")


def _sizes(
    saver: CheckpointSaver, thread_id: str, operation: Callable[[SqlDialect, str], Operation[Any]], *, dry_run: bool
) -> tuple[ThreadSize, ThreadSize]:
    """Run an operation, or its dry run; return the size of the thread before and after it."""
    d, driver, _ = saver.backend
    op: Operation[Any] = (dry_run_of if dry_run else counted_change)(d, thread_id, operation(d, thread_id))
    try:
        before, after = driver.run(op)
    except DryRunResult as result:
        return result.before, result.after
    return before, after


def _must_be_there(saver: CheckpointSaver, thread: str) -> None:
    """Raise CheckpointNotFound if a thread has no rows at all; writes without a checkpoint count."""
    thread_id = thread_text(thread)
    if not any(saver.backend.driver.run(sizes_of_threads(saver.backend.dialect, [thread_id]))[thread_id].size[1:]):
        raise CheckpointNotFound(f"there is no thread {thread!r}")
