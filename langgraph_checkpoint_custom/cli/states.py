"""`show`, `diff`: the commands that show the state of a checkpoint.

They import no stored class and make no stored object.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher, unified_diff
from itertools import islice
from typing import Annotated, Any, NamedTuple

import typer
from langgraph.checkpoint.base import CheckpointTuple

from langgraph_checkpoint_custom.cli.common import (
    Json,
    Namespace,
    Tenant,
    Thread,
    Url,
    opened,
    thread_as_typed,
    without_classes,
)
from langgraph_checkpoint_custom.cli.output import Style, counted, lines, say, table, tell
from langgraph_checkpoint_custom.cli.reading import SHORT, Full, Limit, nothing_there
from langgraph_checkpoint_custom.model.keys import config_of
from langgraph_checkpoint_custom.model.namespaced_ids import kind_of
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.tools.chats import Message, chat_of, rebuilt
from langgraph_checkpoint_custom.tools.display import NOTHING, Difference, brief, differences, json_of, kind, tasks
from langgraph_checkpoint_custom.tools.frameworks import LOGS, chat_of_framework
from langgraph_checkpoint_custom.tools.summary import json_of_question, question_of

commands = typer.Typer()

# Messages of a chat, and lines of a message, that are displayed without `--full`.
MESSAGES = 20
LINES = 8
# The limit where there is none.
_ALL = 10**9


class State(NamedTuple):
    """A checkpoint that was read raw.

    Attributes:
        found: The checkpoint.
        chats: Its chats, by channel; rebuilt ones, and those of other frameworks, too.
        rebuilt: The `DeltaChannel`s whose chats were rebuilt.
        elsewhere: The `DeltaChannel`s that have no value here and cannot be rebuilt.
    """

    found: CheckpointTuple
    chats: Mapping[str, Sequence[Message]]
    rebuilt: Sequence[str]
    elsewhere: Sequence[str]


def delta_channels_elsewhere(found: CheckpointTuple) -> list[str]:
    """Return the `DeltaChannel`s that have no value in a checkpoint."""
    counters = found.metadata.get("counters_since_delta_snapshot")
    return [name for name in counters or () if name not in found.checkpoint["channel_values"]]


def state_of(saver: CheckpointSaver, found: CheckpointTuple) -> State:
    """Return a checkpoint with its chats; `saver` reads raw.

    A `DeltaChannel` is rebuilt if its writes are messages, by the rule of LangGraph's own reducer for messages.
    """
    values = found.checkpoint["channel_values"]
    chats = {name: chat for name, value in values.items() if (chat := chat_of(value))}
    names = delta_channels_elsewhere(found)
    made: dict[str, Sequence[Message]] = {}
    empty = set()
    if names:
        histories = saver.get_delta_channel_history(config=found.config, channels=names)
        for name in names:
            seed, writes = histories[name].get("seed"), histories[name]["writes"]
            value = rebuilt(seed, [write for _, _, write in writes])
            if value is not None and (chat := chat_of(value.value)):
                made[name] = chat
            elif seed is None and not writes:
                empty.add(name)
    configurable = found.config["configurable"]
    if configurable["checkpoint_ns"] == "" and (of := kind_of(configurable["thread_id"])):
        chat = chat_of_framework(of, values, _log(saver, configurable["thread_id"], of, values))
        chats.update({"messages": chat} if chat else {})
    return State(
        found, {**made, **chats}, list(made), [name for name in names if name not in made and name not in empty]
    )


def _log(saver: CheckpointSaver, thread_id: str, of: str, values: Mapping[str, Any]) -> Sequence[Any]:
    """Return the entries of another framework's log, if it has one."""
    if of not in LOGS or not isinstance(values.get("log"), str):
        return ()
    log = saver.get_tuple(config_of(thread_id, LOGS[of], values["log"]))
    return [value for _, _, value in (log and log.pending_writes) or ()]


@commands.command()
def show(
    thread: Thread,
    checkpoint: Annotated[
        str | None, typer.Argument(help="the id of a checkpoint; by default the newest", show_default=False)
    ] = None,
    namespace: Namespace = "",
    full: Full = False,
    url: Url = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Show a checkpoint: state, chats, pending writes, open questions and the next tasks, as far as they are stored.

    Classes are shown by name and are not imported.
    """
    from langgraph_checkpoint_custom.operations.interrupts import open_among

    with opened(url, tenant, reads=True) as opener:
        saver = without_classes(opener)
        found = _read(saver, thread, checkpoint, namespace)
        state = None if as_json else state_of(saver, found)
    configurable = found.config["configurable"]
    parent = (found.parent_config or {}).get("configurable", {}).get("checkpoint_id")
    values = found.checkpoint["channel_values"]
    writes = found.pending_writes or []
    waiting: list[Any] = list(open_among(writes))
    following = tasks(values)
    checkpoint_id = configurable["checkpoint_id"]
    if state is None:
        tell(
            {
                "thread_id": thread,
                "checkpoint_ns": namespace,
                "checkpoint_id": checkpoint_id,
                "parent_id": parent,
                "time": _text(found.checkpoint.get("ts")),
                "format": json_of(found.checkpoint.get("v")),
                "metadata": json_of(dict(found.metadata)),
                "state": json_of(values),
                "not_stored_here": delta_channels_elsewhere(found),
                "versions": json_of(found.checkpoint.get("channel_versions")),
                "writes": [{"task_id": t, "channel": c, "value": json_of(value)} for t, c, value in writes],
                "interrupts": [json_of_question(one) for one in waiting],
                "next": following,
            }
        )
        return
    limit = _ALL if full else SHORT
    say(f"Checkpoint {checkpoint_id} of thread {thread}" + (f", namespace {namespace}" if namespace else ""))
    say(f"Stored {_text(found.checkpoint.get('ts'))}; its parent is {parent or 'none'}.")
    _values("state", {name: value for name, value in values.items() if name not in state.chats}, limit)
    if state.elsewhere:
        say(f"Not stored here, but rebuilt from earlier steps: {', '.join(state.elsewhere)}")
    for name, chat in state.chats.items():
        _show_chat(name, chat, full=full, is_rebuilt=name in state.rebuilt)
    _values("metadata", dict(found.metadata), limit)
    if writes:
        table(
            ("task", "writes to", "what", "value"),
            ((task_id, channel, kind(value), brief(value, limit)) for task_id, channel, value in writes),
        )
    for one in waiting:
        asked, question = question_of(one)
        say(f"Waiting for an answer to {asked or 'a question'}: {brief(question, limit)}")
    say(
        "Next: " + (", ".join(f"{name} x{n}" if n > 1 else name for name, n in Counter(following).items()) or "nothing")
    )


def _values(title: str, values: dict[str, Any], limit: int) -> None:
    if values:
        rows = ((name, kind(value), brief(value, limit)) for name, value in values.items())
        table((title, "what", "value"), rows)


def _show_chat(name: str, chat: Sequence[Message], *, full: bool, is_rebuilt: bool) -> None:
    how = ", rebuilt from earlier steps" if is_rebuilt else ""
    rows: list[tuple[Style, str]] = [("strong", f"{name}: {counted(len(chat), 'message')}{how}")]
    shown = chat if full else chat[-MESSAGES:]
    if len(shown) < len(chat):
        rows.append(("dim", f"  {counted(len(chat) - len(shown), 'earlier message')}; see --full"))
    for message in shown:
        rows += _rows_of(message, "  ", full=full)
    lines([*rows, ("plain", "")])


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
        named = ", ".join(f"{key}={brief(value, SHORT)}" for key, value in call.args.items()) if _is_dict(call) else ""
        found.append(f"calls {call.name}({named or ('' if _is_dict(call) else brief(call.args, SHORT))})")
    return found


def _is_dict(call: Any) -> bool:
    return isinstance(call.args, dict)


def _short(line: str) -> str:
    return line if len(line) <= 2 * SHORT else line[: 2 * SHORT - 1] + "…"


def _read(saver: CheckpointSaver, thread: str, checkpoint: str | None, namespace: str) -> CheckpointTuple:
    where = config_of(thread, namespace, checkpoint or "")
    found = saver.get_tuple(where)
    if found is None:
        raise nothing_there(thread, namespace, checkpoint)
    return found


@commands.command()
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="a thread, or a checkpoint of the one in --thread")],
    b: Annotated[str, typer.Argument(metavar="B", help="another one")],
    thread: Annotated[
        str | None, typer.Option(metavar="THREAD", help="A and B are checkpoints of this thread", show_default=False)
    ] = None,
    namespace: Namespace = "",
    limit: Limit = 50,
    full: Full = False,
    url: Url = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Show where two states differ: of two threads (their newest states), or of two checkpoints of a thread."""
    with opened(url, tenant, reads=True) as opener:
        saver = without_classes(opener)
        locations = [(thread, a), (thread, b)] if thread is not None else [(a, None), (b, None)]
        both = [_read(saver, thread_as_typed(one), at, namespace) for one, at in locations]
        states = () if as_json else [state_of(saver, each) for each in both]
    left, right = (one.checkpoint["channel_values"] for one in both)
    if as_json:
        found = list(islice(differences(left, right), limit + 1))
        rows = [
            {
                "path": one.path,
                **{side: json_of(v) for side, v in (("a", one.left), ("b", one.right)) if v is not NOTHING},
            }
            for one in found[:limit]
        ]
        elsewhere = sorted({name for one in both for name in delta_channels_elsewhere(one)})
        tell({"same": not found, "differences": rows, "more": len(found) > limit, "not_compared": elsewhere})
        return
    _show_differences(left, right, *states, limit=limit, full=full)


def _show_differences(
    left: Mapping[str, Any], right: Mapping[str, Any], a: State, b: State, *, limit: int, full: bool
) -> None:
    elsewhere = sorted({*a.elsewhere, *b.elsewhere})
    if elsewhere:
        say(f"Not compared, because they are rebuilt from earlier steps: {', '.join(elsewhere)}")
    # A channel is compared as a chat if it is one on both sides, or on one side while the other has nothing.
    chats = [
        name
        for name in [*a.chats, *(name for name in b.chats if name not in a.chats)]
        if (name in a.chats or name not in left) and (name in b.chats or name not in right) and name not in elsewhere
    ]
    rest_a, rest_b = ({name: value for name, value in side.items() if name not in chats} for side in (left, right))
    found = list(islice(differences(rest_a, rest_b), limit + 1))
    length = _ALL if full else SHORT
    rows: list[tuple[str, ...]] = []
    styles: list[Style] = []
    texts: list[Difference] = []
    for one in found[:limit]:
        if _is_text(one.left) and _is_text(one.right) and "\n" in one.left + one.right:
            texts.append(one)
            continue
        sides = ("" if side is NOTHING else brief(side, length) for side in (one.left, one.right))
        rows.append((one.path, *sides))
        styles.append("good" if one.left is NOTHING else "bad" if one.right is NOTHING else "plain")
    if rows:
        table(("where", "a", "b"), rows, styles=styles)
    for one in texts:
        lines([("strong", one.path), *_text_rows(one.left, one.right, full=full), ("plain", "")])
    changed = [_show_chat_differences(name, a.chats.get(name, ()), b.chats.get(name, ()), full=full) for name in chats]
    if len(found) > limit:
        say(f"More than {limit}; see --limit")
    if not found and not any(changed):
        say("The states are the same.")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _text_rows(left: str, right: str, *, full: bool) -> Iterator[tuple[Style, str]]:
    """Yield the lines that differ, with the lines around them."""
    for line in islice(unified_diff(left.split("\n"), right.split("\n"), lineterm="", n=_ALL if full else 2), 2, None):
        style: Style = "good" if line.startswith("+") else "bad" if line.startswith("-") else "dim"
        yield style, "  " + (line if full else _short(line))


def _show_chat_differences(name: str, left: Sequence[Message], right: Sequence[Message], *, full: bool) -> bool:
    """Print which messages of a chat differ; return whether there are any."""
    rows: list[tuple[Style, str]] = []
    counts: Counter[str] = Counter()
    keys, others = ([each.id or repr(each) for each in side] for side in (left, right))
    for what, begin, end, start, stop in SequenceMatcher(None, keys, others, autojunk=False).get_opcodes():
        if what == "equal":
            for one, other in zip(left[begin:end], right[start:stop], strict=True):
                if one != other:
                    counts["changed"] += 1
                    rows += _changed_rows(one, other, full=full)
            continue
        for sign, style, side in (("- ", "bad", left[begin:end]), ("+ ", "good", right[start:stop])):
            if side:
                counts["removed" if sign == "- " else "added"] += len(side)
            for each in side:
                rows += [(style, text) for _, text in _rows_of(each, sign, full=full)]  # type: ignore[misc]
    if rows:
        numbers = ", ".join(f"{number:,} {what}" for what, number in counts.items())
        lines([("strong", f"{name}: {numbers}"), *rows, ("plain", "")])
    return bool(rows)


def _changed_rows(one: Message, other: Message, *, full: bool) -> Iterator[tuple[Style, str]]:
    """Yield what differs in a message that has the same id on both sides."""
    yield "plain", f"~ {other.role} {other.id}"
    before, after = "\n".join(lines_of(one)), "\n".join(lines_of(other))
    yield from _text_rows(before, after, full=full)
    for name in ("role", "name", "tool_call_id", "failed", "more"):
        was, became = getattr(one, name), getattr(other, name)
        if was != became:
            yield "plain", f"  {name}: {brief(was, SHORT)} is now {brief(became, SHORT)}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value else "at an unknown time"
