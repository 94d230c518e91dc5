"""OpenTelemetry: a span and a duration for each operation, with the names of its conventions for databases."""

from __future__ import annotations

import time

from langgraph_checkpoint_custom.observed import OnOperation, OperationEvent

try:
    from opentelemetry.metrics import MeterProvider, get_meter
    from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider, get_tracer
except ImportError as error:
    raise ImportError("OpenTelemetry is missing: install langgraph-checkpoint-custom[otel]") from error

_NAME = "langgraph_checkpoint_custom"
_PREFIX = "langgraph.checkpoint"
# Seconds. OpenTelemetry's default boundaries are made for milliseconds: nearly all calls would be below the first one.
# These are those that its conventions for databases advise, and more of them: a call on SQLite takes a tenth of a
# millisecond.
BOUNDARIES = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


def instrumentation(
    tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> OnOperation:
    """Return a function for `on_operation` that reports each operation to OpenTelemetry.

    Use it as in `PostgresSaver(url, on_operation=instrumentation())`. Each operation becomes a client span, a child of
    the span that is current where the saver was called, and a value of the histogram `db.client.operation.duration`, in
    seconds.

    Args:
        tracer_provider: The global one by default.
        meter_provider: The global one by default.
    """
    tracer = get_tracer(_NAME, tracer_provider=tracer_provider)
    meter = get_meter(_NAME, meter_provider=meter_provider)
    durations = meter.create_histogram(
        "db.client.operation.duration",
        unit="s",
        description="Duration of database client operations",
        explicit_bucket_boundaries_advisory=BOUNDARIES,
    )

    def hook(event: OperationEvent) -> None:
        common = {"db.system.name": event.database, "db.operation.name": event.name}
        if event.error is not None:
            common["error.type"] = event.error
        durations.record(event.seconds, common)
        ended = time.time_ns()
        span = tracer.start_span(
            event.name,
            kind=SpanKind.CLIENT,
            start_time=ended - int(event.seconds * 1e9),
            attributes={
                **common,
                "db.response.returned_rows": event.rows,
                f"{_PREFIX}.round_trips": event.round_trips,
                f"{_PREFIX}.bytes": event.bytes,
                f"{_PREFIX}.retries": event.retries,
                **({} if event.thread_id is None else {f"{_PREFIX}.thread_id": event.thread_id}),
                **({} if event.checkpoint_ns is None else {f"{_PREFIX}.namespace": event.checkpoint_ns}),
            },
        )
        if event.error is not None:
            span.set_status(Status(StatusCode.ERROR, event.error))
        span.end(end_time=ended)

    return hook
