"""`show`, `diff`: the commands that show the state of a checkpoint.

They import no stored class and make no stored object.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, Any

from langgraph.checkpoint.base import CheckpointTuple

from langgraph_checkpoint_custom.cli.common import (
    Full,
    Limit,
    Namespace,
    Options,
    Thread,
    argument,
    command,
    option,
    thread_as_typed,
)
from langgraph_checkpoint_custom.cli.output import Column, Style, counted, lines, say, table, tell
from langgraph_checkpoint_custom.cli.reading import SHORT, nothing_there
from langgraph_checkpoint_custom.model.keys import config_of, key_of
from langgraph_checkpoint_custom.operations.thread_states import next_nodes
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.tools.changes import AROUND, Change, Line, PathChange, changes
from langgraph_checkpoint_custom.tools.chats import Message
from langgraph_checkpoint_custom.tools.display import NOTHING, brief, differences, json_of, kind
from langgraph_checkpoint_custom.tools.finding import checkpoint_named, thread_named
from langgraph_checkpoint_custom.tools.states import Channel, channels_of, nodes_of, not_stored, questions_of

# Messages of a chat, and lines of a message, that are displayed without `--full`.
MESSAGES = 20
LINES = 8
# The limit where there is none.
_ALL = 10**9


@command("utc", "tenant")
def show(
    options: Options,
    thread: Thread,
    checkpoint: Annotated[
        str | None,
        argument("an id or its end, a label, or latest; by default the newest"),
    ] = None,
    namespace: Namespace = "",
    full: Full = False,
) -> None:
    """Show a checkpoint: state, chats, pending writes, open questions and the next tasks, as far as they are stored.

    Classes are shown by name and are not imported.
    """
    with options.opened(reads=True) as saver:
        found = _read(saver, thread, checkpoint, namespace)
        channels = [] if options.as_json else channels_of(saver, found)
        nodes = nodes_of(saver, found)
    thread, namespace, checkpoint_id = key_of(found.config)
    parent = (found.parent_config or {}).get("configurable", {}).get("checkpoint_id")
    values = found.checkpoint["channel_values"]
    writes = found.pending_writes or []
    questions = questions_of(found)
    following = next_nodes(values)
    if options.as_json:
        tell(
            {
                "thread_id": thread,
                "checkpoint_ns": namespace,
                "checkpoint_id": checkpoint_id,
                "parent_id": parent,
                "time": json_of(found.checkpoint.get("ts")),
                "format": json_of(found.checkpoint.get("v")),
                "metadata": json_of(dict(found.metadata)),
                "state": json_of(values),
                "not_stored_here": not_stored(found),
                "versions": json_of(found.checkpoint.get("channel_versions")),
                "writes": [
                    {"task_id": t, "node": nodes.get(t), "channel": c, "value": json_of(value)}
                    for t, c, value in writes
                ],
                "interrupts": [json_of(one._asdict()) for one in questions],
                "next": following,
            }
        )
        return
    limit = _ALL if full else SHORT
    say(f"Thread {thread}" + (f", namespace {namespace}" if namespace else ""))
    say(f"Checkpoint {checkpoint_id}, stored {options.times.full(found.checkpoint.get('ts'))}")
    say(f"Parent {parent or 'none'}")
    _values(
        "state", {one.name: one.value for one in channels if one.readable and not (one.chat or one.inner)}, full=full
    )
    for one in channels:
        if not one.readable:
            say(f"{one.name}: {one.note}")
        elif one.chat:
            _show_chat(one, one.chat, full=full)
    _values("metadata", dict(found.metadata), full=full)
    if writes:
        columns = [
            Column("node", lambda write: nodes.get(write[0]) or write[0]),
            Column("writes to", lambda write: write[1], cut=not full),
            Column("what", lambda write: kind(write[2]), cut=not full),
            Column("value", lambda write: brief(write[2], limit), cut=not full),
        ]
        table(columns, writes)
    for question in questions:
        say(f"Waiting for an answer to {question.id or 'a question'}: {brief(question.value, limit)}")
    say(
        "Next: " + (", ".join(f"{name} x{n}" if n > 1 else name for name, n in Counter(following).items()) or "nothing")
    )


def _values(title: str, values: dict[str, Any], *, full: bool) -> None:
    if values:
        columns = [
            Column(title, lambda pair: pair[0], cut=not full),
            Column("what", lambda pair: kind(pair[1]), cut=not full),
            Column("value", lambda pair: brief(pair[1], _ALL if full else SHORT), cut=not full),
        ]
        table(columns, values.items())


def _show_chat(channel: Channel, chat: Sequence[Message], *, full: bool) -> None:
    how = f", {channel.note}" if channel.note else ""
    rows: list[tuple[Style, str]] = [("strong", f"{channel.name}: {counted(len(chat), 'message')}{how}")]
    shown = chat if full else chat[-MESSAGES:]
    if len(shown) < len(chat):
        rows.append(("dim", f"  {counted(len(chat) - len(shown), 'earlier message')}; see --full"))
    for message in shown:
        rows += _rows_of(message, "  ", full=full)
    lines(rows)


def _rows_of(message: Message, indent: str, *, full: bool) -> Iterator[tuple[Style, str]]:
    """Yield the lines of a message; its role is in the first one."""
    written = lines_of(message)
    cut = written if full else [_short(line) for line in written[:LINES]]
    if len(cut) < len(written):
        cut.append(f"… {counted(len(written) - len(cut), 'more line')}; see --full")
    style: Style = "bad" if message.failed else "dim" if message.role in ("tool", "system") else "plain"
    # The name of a tool is in the call.
    role = message.role if message.name is None or message.role == "tool" else f"{message.role} {message.name}"
    for number, line in enumerate(cut or [""]):
        yield style, f"{indent}{role if number == 0 else '':7} {line}".rstrip()


def lines_of(message: Message) -> list[str]:
    """Return what a message says, line by line, and its calls of tools."""
    found: list[str] = []
    for part in message.parts:
        text = brief(part.value, SHORT) if part.kind == "value" else part.text
        found += (f"[{part.kind}: {text}]" if part.kind in ("image", "file") else text).split("\n")
    for call in message.calls:
        named = isinstance(call.args, dict) and (f"{key}={brief(value, SHORT)}" for key, value in call.args.items())
        found.append(f"calls {call.name}({', '.join(named) if named else brief(call.args, SHORT)})")
    return [*found, f"[{message.tokens}]"] if message.tokens else found


def _short(line: str) -> str:
    return line if len(line) <= 2 * SHORT else line[: 2 * SHORT - 1] + "…"


def _read(saver: CheckpointSaver, thread: str, checkpoint: str | None, namespace: str) -> CheckpointTuple:
    """Return a checkpoint by what a person typed; ids come first."""
    thread_id = thread_named(saver, thread)
    found = saver.get_tuple(config_of(thread_id, namespace, checkpoint or ""))
    if found is None and checkpoint:
        _, checkpoint_ns, checkpoint_id = checkpoint_named(saver, thread_id, checkpoint, namespace)
        found = saver.get_tuple(config_of(thread_id, checkpoint_ns, checkpoint_id or ""))
    if found is None:
        raise nothing_there(thread_id, namespace, checkpoint)
    return found


@command("tenant")
def diff(
    options: Options,
    a: Annotated[str, argument("a thread, or a checkpoint of the one in --thread", metavar="A")],
    b: Annotated[str, argument("another one", metavar="B")],
    thread: Annotated[str | None, option("A and B are checkpoints of this thread", metavar="THREAD")] = None,
    namespace: Namespace = "",
    limit: Limit = 50,
    full: Full = False,
) -> None:
    """Show where two states differ: of two threads (their newest states), or of two checkpoints of a thread."""
    with options.opened(reads=True) as saver:
        locations = [(thread, a), (thread, b)] if thread is not None else [(a, None), (b, None)]
        both = [_read(saver, thread_as_typed(one), at, namespace) for one, at in locations]
        sides = [] if options.as_json else [channels_of(saver, each) for each in both]
    if options.as_json:
        left, right = (one.checkpoint["channel_values"] for one in both)
        found = list(islice(differences(left, right), limit + 1))
        rows = [
            {
                "path": one.path,
                **{side: json_of(v) for side, v in (("a", one.left), ("b", one.right)) if v is not NOTHING},
            }
            for one in found[:limit]
        ]
        elsewhere = sorted({name for one in both for name in not_stored(one)})
        tell({"same": not found, "differences": rows, "more": len(found) > limit, "not_compared": elsewhere})
        return
    changed, _ = changes(*sides, most=limit, around=_ALL if full else AROUND)
    for change in changed:
        _show_change(change, limit, full=full)
    if all(change.what == "unknown" for change in changed):
        say("The states are the same.")


def _show_change(change: Change, limit: int, *, full: bool) -> None:
    """Print what differs in a channel: messages, lines of a text, or places in another value."""
    counts = Counter(_SIGNS[one.sign] for one in change.messages)
    what = ", ".join(f"{number:,} {sign}" for sign, number in counts.items()) or change.what
    note = "" if change.messages or not change.note else f": {change.note}"
    head = f"{change.channel}: " + ("not compared" if change.what == "unknown" else what) + note
    rows: list[tuple[Style, str]] = [("strong", head)]
    for one in change.messages:
        if one.sign == "~":
            rows.append(("plain", f"~ {one.message.role} {one.message.id or ''}".rstrip()))
            rows += _line_rows(one.lines, full=full)
            rows += (row for field in one.fields for row in _path_rows("", field, full=full))
        else:
            style: Style = "good" if one.sign == "+" else "bad"
            rows.extend((style, text) for _, text in _rows_of(one.message, f"{one.sign} ", full=full))
    rows += _line_rows(change.lines, full=full)
    rows += (row for path in change.paths for row in _path_rows(change.channel, path, full=full))
    if change.more:
        rows.append(("dim", f"  More than {limit}; see --limit"))
    lines(rows)


_SIGNS = {"+": "added", "-": "removed", "~": "changed"}


def _line_rows(found: Sequence[Line], *, full: bool) -> Iterator[tuple[Style, str]]:
    for sign, text in found:
        style: Style = "good" if sign == "+" else "bad" if sign == "-" else "dim"
        yield style, f"  {sign}{text if full else _short(text)}"


def _path_rows(channel: str, found: PathChange, *, full: bool) -> Iterator[tuple[Style, str]]:
    before, after = ("nothing" if side is None else side if full else _short(side) for side in found[1:])
    dot = "." if channel and found.path and not found.path.startswith("[") else ""
    yield "plain", f"  {channel}{dot}{found.path}: {before} is now {after}"
