"""An application of whichever version of the package is first on the path: `application.py <package> <url> <mode> …`.

`run` runs graphs on a few threads, each in an OS thread, until a line is read; `set-up` migrates the tables; `read`
lists; `maintain` does everything else that a version does to the tables, and deletes what it has made; several modes
follow each other. A line of JSON reports each checkpoint that was stored or read: thread, id and a digest. A thread
with an error of the package ends, and the last line has all errors. The file is started by its path, so that no other
version is imported.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from hashlib import sha256
from itertools import cycle
from typing import Annotated, Any, TypedDict, cast

from langchain_core.messages import AnyMessage, HumanMessage

import langgraph_checkpoint_custom
from langgraph_checkpoint_custom import CheckpointError, Retention, open_saver
from langgraph_checkpoint_custom.tools.exchange import export_file, import_file

THREADS = [f"thread {number}" for number in range(3)]
# Every second text is longer than what a checkpoint's row holds.
TEXTS = ("short", "long " * 1000)
RETAINED = 10


def add_and_forget(old: Any, new: Any) -> Any:
    """As `add_messages`, for a chat that does not grow forever."""
    from langgraph.graph.message import add_messages

    return cast("list[AnyMessage]", add_messages(old, new))[-RETAINED:]


class State(TypedDict):
    """A chat."""

    messages: Annotated[list[AnyMessage], add_and_forget]


_one_at_a_time = threading.Lock()


def report(*what: Any) -> None:
    """Print a line at once and flush it."""
    with _one_at_a_time:
        print(json.dumps(what), flush=True)


def contents(values: dict[str, Any]) -> str:
    """A digest of the messages of a checkpoint."""
    return sha256(repr(values.get("messages")).encode()).hexdigest()


def reporting(saver: Any) -> Any:
    """The saver, which from now on reports each checkpoint."""
    put = saver.put

    def reported(config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        result = put(config, checkpoint, metadata, new_versions)
        report(config["configurable"]["thread_id"], checkpoint["id"], contents(checkpoint["channel_values"]))
        return result

    saver.put = reported
    return saver


def run(saver: Any, errors: list[CheckpointError]) -> None:
    """Run until a line is read; a thread with an error ends before."""
    from langgraph.graph import START, StateGraph  # Takes a second, which the other modes save.

    texts = cycle(TEXTS)
    builder = StateGraph(State)
    builder.add_node("answer", lambda state: {"messages": [HumanMessage(next(texts))]})
    builder.add_edge(START, "answer")
    graph = builder.compile(checkpointer=reporting(saver))
    stop = threading.Event()

    def play(thread_id: str) -> None:
        try:
            while not stop.is_set():
                graph.invoke({"messages": [HumanMessage("ask")]}, {"configurable": {"thread_id": thread_id}})
        except CheckpointError as error:
            errors.append(error)

    def listen() -> None:
        sys.stdin.readline()
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    with ThreadPoolExecutor(len(THREADS)) as workers:
        for ended in [workers.submit(play, thread_id) for thread_id in THREADS]:
            ended.result()


def read(saver: Any) -> None:
    """List everything."""
    for found in saver.list(None):
        where = found.config["configurable"]
        report(where["thread_id"], where["checkpoint_id"], contents(found.checkpoint["channel_values"]))


def maintain(saver: Any) -> None:
    """Copy, fork, label, prune, roll back, export, import, sweep and delete."""
    saver.copy_thread(THREADS[0], "copy")
    _, older, *_ = saver.list({"configurable": {"thread_id": "copy"}})
    saver.label(older.config, "here")
    checkpoint_id = older.config["configurable"]["checkpoint_id"]
    saver.fork_thread("copy", "fork", checkpoint_id=checkpoint_id)
    saver.rollback("copy", checkpoint_id)
    saver.prune(["copy", "fork"])
    saver.set_ttl("fork", timedelta(microseconds=1))
    with saver.claim("copy"):
        assert [each.thread_id for each in saver.threads(prefix="copy")] == ["copy"]
    with tempfile.TemporaryDirectory() as folder:
        export_file(saver, f"{folder}/exported", threads=["copy"])
        saver.delete_thread("copy")
        assert import_file(saver, f"{folder}/exported").threads == 1
    saver.sweep(Retention(older_than=timedelta(days=36_500)))
    assert not saver.thread_exists("fork")
    saver.delete_thread("copy")


def main(package: str, url: str, *modes: str) -> None:
    """Run the modes, up to the first error."""
    assert langgraph_checkpoint_custom.__file__.startswith(package + os.sep), langgraph_checkpoint_custom.__file__
    errors: list[CheckpointError] = []
    with open_saver(url) as saver:
        try:
            for mode in modes:
                if mode == "run":
                    run(saver, errors)
                elif mode == "set-up":
                    saver.setup()
                else:
                    {"read": read, "maintain": maintain}[mode](saver)
        except CheckpointError as error:
            errors.append(error)
    report("ended", *((type(error).__name__, str(error)) for error in errors))


main(*sys.argv[1:])
