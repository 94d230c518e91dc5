"""What takes room, and what a sweep would delete."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.keys import thread_text
from langgraph_checkpoint_custom.operations import sizes as counting
from langgraph_checkpoint_custom.retention import Retention
from langgraph_checkpoint_custom.ui.inspector import Inspector
from langgraph_checkpoint_custom.ui.texts import namespace
from langgraph_checkpoint_custom.ui.treemap import Box, treemap

# Threads, namespaces and channels that are shown, the largest ones.
LARGEST = 40
# The picture, in units of its own.
WIDTH, HEIGHT = 1000, 320


class Part(NamedTuple):
    """A part of the picture: a thread or a channel, or what is not shown separately."""

    name: str
    bytes: int
    thread_id: str | None
    box: Box


def space(inspector: Inspector, request: Request) -> Response:
    """What takes room: in the store by thread and channel, or in a thread by namespace and channel.

    Counting a whole store reads all rows. So the page comes first, and the browser asks for the figures after that.
    """
    store = inspector.store(request)
    d = store.saver.backend.dialect
    thread_id = request.query_params.get("thread")
    if thread_id:
        one: counting.Thread = store.run(counting.sizes_of_thread(d, thread_text(thread_id), LARGEST))
        many = len({channel.checkpoint_ns for channel in one.channels}) > 1
        channels = [
            (f"{namespace(channel.checkpoint_ns or '') or 'root'}: {channel.channel}" if many else channel.channel,
             channel.bytes, None) for channel in one.channels
        ]  # fmt: skip
        documents = sum(each.bytes for each in one.namespaces) - sum(each.bytes for each in one.channels)
        parts = _parts([*channels, ("documents and metadata", max(documents, 0), None)])
        return inspector.page(request, "space.html", thread_id=thread_id, counted=True, parts=parts, one=one, all=None)
    if request.query_params.get("count") != "1":
        return inspector.page(request, "space.html", thread_id=None, counted=False, parts=(), one=None, all=None)
    found: counting.Store = store.run(counting.sizes_of_store(d, LARGEST))
    rest = sum(table.bytes for table in found.tables) - sum(each.bytes for each in found.threads)
    threads = [(each.thread_id, each.bytes, each.thread_id) for each in found.threads]
    parts = _parts([*threads, ("other threads", max(rest, 0), None)])
    return inspector.page(request, "space.html", thread_id=None, counted=True, parts=parts, one=None, all=found)


def _parts(named: Sequence[tuple[str, int, str | None]]) -> list[Part]:
    return [Part(*named[box.number], box) for box in treemap([size for _, size, _ in named], WIDTH, HEIGHT)]


def sweep(inspector: Inspector, request: Request) -> Response:
    """What a sweep with a given retention would delete."""
    asked = {name: request.query_params.get(name, "").strip() for name in ("days", "keep", "megabytes")}
    days, keep, megabytes = (_number(name, text) for name, text in asked.items())
    retention: dict[str, Any] = {
        "older_than": None if days is None else timedelta(days=days),
        "keep_last": None if keep is None else int(keep),
        "max_bytes": None if megabytes is None else int(megabytes * 1_000_000),
    }
    if not any(asked.values()):
        raise ConfigError("say what a sweep should keep: days, keep or megabytes")
    store = inspector.store(request)
    swept = store.saver.sweep(Retention(**retention), dry_run=True, tenants=False)
    return inspector.page(request, "sweep.html", asked=asked, swept=swept)


def _number(name: str, text: str) -> float | None:
    try:
        number = float(text) if text else None
    except ValueError:
        raise ConfigError(f"{name} must be a number, not {text!r}") from None
    if number is not None and not 0 <= number < 1e12:
        raise ConfigError(f"{name} must be a number of 0 or more, not {text!r}")
    return number
