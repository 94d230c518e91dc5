"""A hook gets an event for each operation, without stored values, and does not change the operation."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from langgraph_checkpoint_custom import CheckpointEncodeError, OperationEvent, ThreadExists
from langgraph_checkpoint_custom.otel import BOUNDARIES, instrumentation
from tests.behaviour.helpers import LONG, Database, checkpoint, config, metadata
from tests.conftest import APIS
from tests.stores import Client, Store

SYSTEMS = {"postgres": "postgresql", "sqlite": "sqlite"}


@pytest.mark.parametrize("api", APIS)
def test_each_operation_is_reported_once(store: Store, api: str) -> None:
    events: list[OperationEvent] = []

    async def work() -> None:
        with store.open(on_operation=events.append) as saver:
            saver_client = Client(saver, api)
            await saver_client.put(config("t"), checkpoint("1", {"a": "short"}), metadata(), {"a": "1"})
            await saver_client.put_writes(config("t", "1"), [("a", LONG)], "task")
            await saver_client.get_tuple(config("t"))
            await saver_client.all(None)
            await saver_client.copy_thread("t", "u")
            await saver_client.delete_thread("t")
            await saver.aclose()

    asyncio.run(work())
    names = ["put", "put_writes", "get_tuple", "list_page", "copy_thread", "delete_thread"]
    assert [event.name for event in events] == names
    assert {event.database for event in events} == {SYSTEMS[store.kind]}
    assert [event.thread_id for event in events] == ["t", "t", "t", None, "t", "t"]
    assert [event.checkpoint_ns for event in events] == ["", "", "", None, None, None]
    assert [event.name for event in events if event.round_trips != 1] == ["copy_thread"]
    assert all(event.retries == 0 and event.error is None for event in events)
    assert all(0 < event.seconds < 600 for event in events)
    put, writes, get = events[:3]
    assert put.bytes > 0
    assert get.rows == 2
    assert get.bytes >= put.bytes + writes.bytes > writes.bytes > 0
    assert LONG not in repr(events)


@pytest.mark.parametrize("api", APIS)
def test_the_events_of_a_tenant_have_its_own_ids(store: Store, api: str) -> None:
    events: list[OperationEvent] = []

    async def work() -> None:
        with store.open(on_operation=events.append) as saver:
            tenant = Client(saver.for_tenant("acme"), api)
            await tenant.put(config("t"), checkpoint("1"), metadata(), {})
            await tenant.put_writes(config("t", "1"), [("a", 1)], "task")
            await tenant.get_tuple(config("t"))
            await tenant.all(config("t"))
            await tenant.delete_thread("t")
            await saver.aclose()

    asyncio.run(work())
    assert [event.thread_id for event in events] == ["t"] * 5


def test_an_error_is_reported_and_still_raised(store: Store) -> None:
    events: list[OperationEvent] = []
    with store.open(on_operation=events.append) as saver:
        saver.put(config("t"), checkpoint("1"), metadata(), {})
        saver.put(config("u"), checkpoint("2"), metadata(), {})
        with pytest.raises(ThreadExists):
            saver.copy_thread("t", "u")
        with pytest.raises(CheckpointEncodeError):  # No operation has begun.
            saver.put(config("t"), checkpoint("1", {"a": object()}), metadata(), {"a": "1"})
    errors = [(event.name, event.error) for event in events]
    assert errors == [("put", None), ("put", None), ("copy_thread", "ThreadExists")]


def test_attempts_are_counted(postgres_url: str) -> None:
    events: list[OperationEvent] = []
    with Store("postgres", postgres_url).open(on_operation=events.append) as saver:
        saver.get_tuple(config("t"))
        with psycopg.connect(postgres_url, autocommit=True) as server:
            server.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        saver.get_tuple(config("t"))
    first, second = events
    assert (first.retries, first.round_trips) == (0, 1)
    assert second.retries >= 1
    assert second.round_trips == second.retries + 1


def test_a_hook_that_fails_changes_nothing(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    def hook(event: OperationEvent) -> None:
        raise RuntimeError(event.name)

    with store.open(on_operation=hook) as saver:
        saver.put(config("t"), checkpoint("1"), metadata(), {})
        assert saver.get_tuple(config("t")) is not None
    assert [record.message for record in caplog.records if record.name == "langgraph_checkpoint_custom"] == [
        "on_operation failed",
        "on_operation failed",
    ]


@pytest.mark.parametrize("api", APIS)
def test_spans_and_durations_for_opentelemetry(store: Store, api: str) -> None:
    spans = InMemorySpanExporter()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    reader = InMemoryMetricReader()
    hook = instrumentation(tracers, MeterProvider([reader]))

    async def work() -> None:
        with store.open(on_operation=hook) as saver:
            saver_client = Client(saver, api)
            with tracers.get_tracer("application").start_as_current_span("request"):
                await saver_client.put(config("t"), checkpoint("1"), metadata(), {})
            await saver_client.put(config("u"), checkpoint("2"), metadata(), {})
            with pytest.raises(ThreadExists):
                await saver_client.copy_thread("t", "u")
            await saver.aclose()

    asyncio.run(work())
    put, request, _, copy = spans.get_finished_spans()
    assert put.parent is not None
    assert put.parent.span_id == request.context.span_id
    assert put.kind == SpanKind.CLIENT
    attributes = dict(put.attributes or {})
    assert attributes["db.system.name"] == SYSTEMS[store.kind]
    assert attributes["db.operation.name"] == put.name == "put"
    assert attributes["langgraph.checkpoint.thread_id"] == "t"
    assert attributes["langgraph.checkpoint.round_trips"] == 1
    assert (put.end_time or 0) > (put.start_time or 0) >= (request.start_time or 0)
    assert copy.status.status_code == StatusCode.ERROR
    assert dict(copy.attributes or {})["error.type"] == "ThreadExists"
    data: Any = reader.get_metrics_data()
    (metric,) = data.resource_metrics[0].scope_metrics[0].metrics
    assert (metric.name, metric.unit) == ("db.client.operation.duration", "s")
    assert sorted(point.attributes["db.operation.name"] for point in metric.data.data_points) == ["copy_thread", "put"]
    # The boundaries are those of calls that take from a tenth of a millisecond to seconds, unless a view has others.
    assert {point.explicit_bounds for point in metric.data.data_points} == {BOUNDARIES}


def test_stats_describe_the_connections(store: Store) -> None:
    async def get() -> dict[str, Any]:
        await saver.aget_tuple(config("t"))
        assert [found async for found in saver.alist(None)] == []
        return dict(saver.stats())

    with store.open() as saver:
        saver.get_tuple(config("t"))
        stats = asyncio.run(get())
        if store.kind == "sqlite":
            assert stats["reading"] == 0
            assert stats["idle"] >= 1
        else:
            assert stats["workers"]["pool_available"] == 1
            (loop,) = stats["loops"]
            assert loop["requests_num"] >= 1


@pytest.mark.parametrize("hook", [None, lambda event: None], ids=["no hook", "hook"])
def test_an_unreadable_thread_is_left_out_of_threads_with_a_state(store: Store, database: Database, hook: Any) -> None:
    """Its value is so large that it is decoded as a request of its own, whose error the operation has to receive."""
    with store.open(on_operation=hook) as saver:
        saver.put(config("t"), checkpoint("1", {"a": "x" * 100_000}, {"a": "1"}), metadata(), {"a": "1"})
        saver.put_writes(config("t", "1"), [("__error__", "boom")], "task")
        assert [found.thread_id for found in saver.threads(state="failed")] == ["t"]
    database.run("UPDATE blobs SET value = :bad", bad=b"\xc1" * 100_000)
    with store.open(on_operation=hook) as saver:
        assert list(saver.threads(state="failed")) == []
