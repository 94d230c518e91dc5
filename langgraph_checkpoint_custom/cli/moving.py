"""`export`, `import`, `migrate`, `rekey`: the commands that move or store all threads again."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Annotated, Any, Literal

import typer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_checkpoint_custom.cli.checking import find_classes
from langgraph_checkpoint_custom.cli.common import (
    NotPossible,
    Options,
    argument,
    command,
    count_all,
    given,
    must_exist,
    option,
    rows_of,
    thread_as_typed,
)
from langgraph_checkpoint_custom.cli.output import complain, counted, progress, say
from langgraph_checkpoint_custom.encoding.extensions import UnreadableValue
from langgraph_checkpoint_custom.encoding.restored import find
from langgraph_checkpoint_custom.errors import ConfigError, SchemaForeign
from langgraph_checkpoint_custom.operations.schema import verify as verify_tables
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.settings import KEYS, URL, key_serde, open_saver, settings_of, url_of
from langgraph_checkpoint_custom.sqlite import SqliteSaver
from langgraph_checkpoint_custom.tools.exchange import count_exported, export_file, import_file, transfer
from langgraph_checkpoint_custom.tools.fence import close
from langgraph_checkpoint_custom.tools.migration import Diverged, MoveReport, migrate_back
from langgraph_checkpoint_custom.tools.migration import migrate as migrate_tables
from langgraph_checkpoint_custom.tools.official import open_official

# Problems that are printed one by one.
LISTED = 20
# Seconds between two passes of --follow, at least.
PAUSE = 1.0

Chosen = Annotated[
    list[str] | None,
    option("only this thread; may be given several times", "--thread", metavar="ID", parser=thread_as_typed),
]


@command("tenant", "no_tenants")
def export(
    options: Options,
    file: Annotated[Path, argument("the file to create; it must not exist", metavar="FILE")],
    threads: Chosen = None,
) -> None:
    """Write all threads to a file, while runs go on."""
    if file.exists():
        raise NotPossible(f"{file} already exists; move it away, or choose another name")
    with (
        options.opened(reads=True, lists=True) as saver,
        progress("export", "threads", _total(saver, options.tenants, threads)) as report,
    ):
        done = export_file(saver, file, threads=threads, progress=report, tenants=options.tenants)
    options.report(
        {"file": str(file), "threads": done.threads, "rows": done.rows},
        f"{counted(done.threads, 'thread')}, {counted(done.rows, 'row')} in {file}.",
    )


@command("tenant")
def import_(
    options: Options,
    file: Annotated[Path, argument("a file that export has written", metavar="FILE")],
    threads: Chosen = None,
) -> None:
    """Store the threads of a file, and check each one; a thread with other rows in the target stays as it is."""
    if not file.exists():
        raise NotPossible(f"there is no file {str(file)!r}")
    with (
        options.opened(may_be_new=True) as saver,
        progress("import", "threads", lambda: count_exported(file) if file.is_file() else 0) as report,
    ):
        saver.setup()
        done = import_file(saver, file, threads=threads, progress=report)
    options.report(
        {"file": str(file), **asdict(done)},
        f"{counted(done.threads, 'thread')}, {counted(done.rows, 'row')} from {file}{_unchanged(done.unchanged)}.",
    )
    _complain_of(done.problems)
    if done.problems:
        raise typer.Exit(1)


@command("dry_run", "tenant", "no_tenants")
def migrate(
    options: Options,
    source: Annotated[
        str | None,
        option(
            f"the database to copy from, or the path of a SQLite file; with --to official by default {URL}",
            "--from",
            metavar="URL",
        ),
    ] = None,
    threads: Chosen = None,
    follow: Annotated[bool, option("copy what is new again and again, until Ctrl-C or SIGTERM", "--follow")] = False,
    finish: Annotated[bool, option("close the official tables for writes, then copy what is new", "--finish")] = False,
    to: Annotated[
        Literal["official"] | None,
        option("copy from our tables to those of LangGraph's own savers at --url"),
    ] = None,
    tables: Annotated[
        Literal["official", "own"] | None,
        option("those of LangGraph's own savers, or ours; by default, what exists"),
    ] = None,
    official_key: Annotated[
        str | None, option("the variable with the AES key of official tables, or unencrypted", metavar="VARIABLE")
    ] = None,
    diverged: Annotated[
        Diverged,
        option(
            "a thread that went on in both databases: report it, or copy the source's to a thread of its own",
            show_default=True,
        ),
    ] = "report",
    app_dir: Annotated[
        Path | None, option("with --dry-run: also look for classes in the modules of this folder", metavar="FOLDER")
    ] = None,
) -> None:
    """Copy everything from LangGraph's own savers, or from our tables in another database, or back to the former.

    You can run it during live traffic and more than once: it copies what is new, and compares the copy. It creates the
    tables if there are none. What was copied once and then deleted in the target is only copied again if --thread names
    it. With --dry-run it copies everything to a temporary place, and reports what cannot be copied, and classes that
    cannot be found here.
    """
    dry_run = options.dry_run
    if app_dir is not None and not (dry_run and app_dir.is_dir()):
        raise ConfigError("--app-dir takes a folder, and goes with --dry-run; nothing else imports classes")
    if follow + finish + dry_run > 1 or (to and (finish or tables or dry_run)) or (finish and threads):
        raise ConfigError(
            "--follow, --finish and --dry-run, --to with --finish, --tables or --dry-run (move to another database "
            "instead), and --finish with --thread cannot be combined"
        )
    if to and options.no_tenants:
        raise ConfigError("--to official always leaves the threads of tenants out: omit --no-tenants")
    if not (source or to):
        raise ConfigError("no source given; use --from")
    source = url_of(source) if source else given(None)
    must_exist(source, "")
    serde = None
    if official_key is not None:
        serde = key_serde(official_key, "--official-key takes the name of a variable with a key, and the variable")
    details: dict[str, Any] = {"threads": threads, "serde": serde, "diverged": diverged}
    unfenced = None
    missing: list[str] = []
    if to:
        kind = "own"
        with replace(options, url=source, no_tenants=None).opened(lists=True) as saver:
            total = _total(saver, False, threads)
            move = partial(migrate_back, saver, given(options.url), **details)
            moved = _moves(move, total, follow, options.as_json)
    else:
        with _dry_target(serde) if dry_run else options.opened(may_be_new=True) as target:
            to_url = given(options.url) if options.url or not dry_run or os.environ.get(URL) else ""
            kind = tables or _kind(source, to_url, options.schema)
            if kind == "own" and (follow or finish or official_key or diverged != "report"):
                raise ConfigError(
                    "--follow, --finish, --official-key and --diverged copy are for tables of LangGraph's own savers"
                )
            target.setup()
            if kind == "official":
                unfenced = close(source, repr(target).strip("<>")) if finish else None
                total = partial(_count_official, source) if threads is None else partial(len, threads)
                move = partial(migrate_tables, source, target, **details)
                moved = _moves(move, total, follow, options.as_json)
            else:
                moved = _transfer(options, source, target, threads)
            missing = _missing(target, app_dir) if dry_run else []
    result = {"tables": kind, **moved}
    result |= {"dry_run": True, "missing_classes": missing} if dry_run else {}
    result |= {"closed": unfenced is None} if finish else {}
    end = ", in a dry run. Nothing was changed." if dry_run else "."
    end += " The official tables are closed." if finish and unfenced is None else ""
    options.report(result, _numbers(moved) + end)
    where = f"here or in {app_dir}" if app_dir else "here (--app-dir names your application's folder)"
    for name in missing:
        complain(f"{name} cannot be found {where}; reading it raises CorruptCheckpoint")
    if unfenced:
        complain(
            f"the official tables are not closed, and accept writes that nobody copies: {unfenced}; make sure that no "
            "old version runs"
        )
    if not follow:  # It has named them already.
        _complain_of(moved["problems"])
    if needing := len(moved["problems"]):
        closed = f"the official tables are {'not closed, see above' if unfenced else 'closed'}; " if finish else ""
        complain(f"{closed}{counted(needing, 'thread')} {'needs' if needing == 1 else 'need'} you, see above")
    if needing or missing or unfenced:
        raise typer.Exit(1)


def _numbers(moved: Mapping[str, Any]) -> str:
    said = [counted(moved[what], what[:-1]) for what in ("threads", "checkpoints", "writes", "rows") if what in moved]
    if deleted := moved.get("deleted"):
        said.append(f"{counted(deleted, 'thread')} deleted since they were copied")
    return ", ".join(said) + _unchanged(moved.get("unchanged", 0))


def _unchanged(threads: int) -> str:
    return f"; {counted(threads, 'thread')} {'was' if threads == 1 else 'were'} there already" if threads else ""


@contextmanager
def _dry_target(serde: Any) -> Iterator[CheckpointSaver]:
    """Open a saver on a temporary file; what is encrypted in the source is encrypted there too, and can be read."""
    keys = settings_of(os.environ, "sqlite:///dry-run.db").all_options()
    serde, previous = keys["serde"] or serde, keys["previous_serdes"]
    with (
        _sigterm_as_ctrl_c(),  # So that the folder does not stay.
        TemporaryDirectory() as folder,
        SqliteSaver(Path(folder) / "dry-run.db", serde=serde, previous_serdes=previous) as saver,
    ):
        yield saver


def _missing(saver: CheckpointSaver, app_dir: Path | None) -> list[str]:
    """Return the classes in the store, also those of tenants, that cannot be imported, also from modules of a folder.

    Only this function imports from that folder: its code must not run when somebody only looks into a store.
    """
    missing = []
    path = list(sys.path)
    sys.path += [str(app_dir.absolute())] if app_dir else []
    for module, name in sorted(find_classes(saver, tenants=True).classes):
        try:
            find(module, name)
        except UnreadableValue:
            missing.append(f"{module}.{name}")
    sys.path[:] = path
    return missing


def _moves(move: Callable[..., MoveReport], total: Callable[[], int], follow: bool, as_json: bool) -> dict[str, Any]:
    """Move once, or again and again until Ctrl-C or SIGTERM; name new problems, return the numbers and what is left."""
    moved: MoveReport | None = None
    with progress("copy", "threads", total) as report:
        if not follow:
            return asdict(move(progress=report))
        with suppress(KeyboardInterrupt), _sigterm_as_ctrl_c():
            while True:
                began, complete = monotonic(), datetime.now()
                found = move(progress=report)
                if moved is not None:
                    found.checkpoints += moved.checkpoints
                    found.writes += moved.writes
                if not as_json and found != moved:
                    numbers = f"{_numbers(asdict(found))} since the start, {counted(len(found.problems), 'problem')}"
                    say(f"{numbers}; everything from before {complete:%H:%M:%S} was examined")
                    sys.stdout.flush()
                known = moved.problems if moved else {}
                _complain_of({each: why for each, why in found.problems.items() if known.get(each) != why})
                moved = found
                sleep(max(monotonic() - began, PAUSE))  # At most half of the time, the databases work for this.
    if moved is None:
        raise KeyboardInterrupt
    return asdict(moved)


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """Let SIGTERM end what runs as Ctrl-C does; background jobs of a shell ignore SIGINT."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _count_official(source: str) -> int:
    with open_official(source, JsonPlusSerializer()) as official:
        return sum(map(len, official.threads()))


def _total(saver: CheckpointSaver, tenants: bool, threads: list[str] | None) -> Callable[[], int]:
    return lambda: count_all(saver, tenants) if threads is None else len(threads)


def _transfer(options: Options, source: str, target: CheckpointSaver, threads: list[str] | None) -> dict[str, Any]:
    with (
        _sigterm_as_ctrl_c(),  # So that the temporary file does not stay.
        replace(options, url=source, schema=None).opened(lists=True) as saver,
        progress("copy", "threads", _total(saver, options.tenants, threads)) as report,
    ):
        done = transfer(saver, target, threads=threads, progress=report, tenants=options.tenants)
    return asdict(done)


def _kind(source: str, target_url: str, target_schema: str | None) -> str:
    """Return whose tables the source has, "official" or "own"."""
    settings = settings_of(os.environ, source)
    with open_saver(source, **dict(settings.options)) as saver:
        d = saver.backend.dialect
        version = saver.backend.driver.look(verify_tables(d)).version
    is_target = source == target_url and (target_schema is None or d.location == f"schema {target_schema!r}")
    ours = version is not None and not is_target
    try:
        with open_official(source, JsonPlusSerializer()):
            official = True
    except SchemaForeign:
        official = False
    if ours and official:
        raise ConfigError("the source has LangGraph's own tables and ours; choose with --tables official or own")
    if not ours and not official:
        raise NotPossible("the source has neither LangGraph's own tables nor ours")
    return "official" if official else "own"


@command("dry_run", "tenant", "no_tenants")
def rekey(options: Options) -> None:
    """Store everything again with another key, or encrypted for the first time, while runs go on.

    The variable CHECKPOINT_ENCRYPTION_KEYS names the variables with the keys. The first one encrypts; the others are
    old ones, or the word unencrypted.
    """
    if not settings_of(os.environ, given(options.url)).keys:
        raise ConfigError(f"no encryption key given: set {KEYS}")
    with (
        options.opened(lists=True) as saver,
        progress("dry run" if options.dry_run else "rekey", "rows", lambda: rows_of(saver, options.tenants)) as report,
    ):
        rows, renewed, unreadable = saver.reencrypt(dry_run=options.dry_run, progress=report, tenants=options.tenants)
    result = {"rows": rows, "renewed": renewed, "unreadable": [str(error) for error in unreadable]}
    done = "would be rewritten. Nothing was changed" if options.dry_run else "were rewritten"
    options.report(
        {"dry_run": True, **result} if options.dry_run else result,
        f"{counted(rows, 'row')}, of which {renewed:,} {done}.",
    )
    for error in unreadable:
        complain(str(error))
    if unreadable:
        raise typer.Exit(1)


def _complain_of(problems: Mapping[str, str]) -> None:
    for thread_id, problem in list(problems.items())[:LISTED]:
        complain(f"thread {thread_id!r}: {problem}")
    if len(problems) > LISTED:
        complain(f"and {counted(len(problems) - LISTED, 'thread')} more; --json has all of them")
