"""Spans of what is sent and handled, on both brokers in memory."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from jmsx import App, Discard, Message, RedeliveryPolicy
from jmsx.testing import harness
from jmsx_otel import tracing

KINDS = pytest.mark.parametrize("kind", ["classic", "artemis"])
NEVER = RedeliveryPolicy(maximum_redeliveries=0)


@pytest.fixture
def spans() -> InMemorySpanExporter:
    """What has ended."""
    return InMemorySpanExporter()


@pytest.fixture
def app(spans: InMemorySpanExporter) -> App:
    """An app whose spans are kept."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return App(middleware=[tracing(provider)], redelivery_policy=NEVER)


@KINDS
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_handler_is_linked_to_its_sender(
    app: App,
    spans: InMemorySpanExporter,
    kind: str,
    asynchronous: bool,
) -> None:
    """By the context in the message; what it sends is inside of its own span."""

    def ship(order: Message) -> None:
        app.send("queue://shipped", order.text)

    async def aship(order: Message) -> None:
        await app.asend("queue://shipped", order.text)

    app.consumer("queue://orders", name="ship")(aship if asynchronous else ship)
    with harness(app, kind) as mq:
        mq.send("queue://orders", "x", correlation_id="c")
    sent, inner, processed = spans.get_finished_spans()
    assert [one.name for one in (sent, inner, processed)] == [
        "send orders",
        "send shipped",
        "process orders",
    ]
    assert (sent.kind, processed.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    (link,) = processed.links
    assert link.context == sent.context or link.context.span_id == sent.context.span_id
    assert inner.parent is not None
    assert inner.parent.span_id == processed.context.span_id
    assert processed.attributes is not None
    assert processed.attributes["messaging.system"] == "activemq"
    assert processed.attributes["messaging.destination.name"] == "orders"
    assert processed.attributes["messaging.message.conversation_id"] == "c"
    assert processed.status.status_code is StatusCode.UNSET


def test_what_fails(app: App, spans: InMemorySpanExporter) -> None:
    """Is recorded; what is discarded has not failed."""

    @app.consumer("queue://orders")
    def ship(order: Message) -> None:
        if order.text == "discard":
            raise Discard
        raise ValueError(order.text)

    with harness(app) as mq:
        mq.send("queue://orders", "discard")
        mq.send("queue://orders", "x")
    discarded, failed = [one for one in spans.get_finished_spans() if "process" in one.name]
    assert discarded.status.status_code is StatusCode.UNSET
    assert failed.status.status_code is StatusCode.ERROR
    assert [event.name for event in failed.events] == ["exception"]


@KINDS
def test_batches(app: App, spans: InMemorySpanExporter, kind: str) -> None:
    """One span with a link for each message."""

    @app.consumer("queue://rows", batch=3, batch_timeout="1s")
    def write(rows: list[Message]) -> None:
        del rows

    with harness(app, kind) as mq:
        for text in "abc":
            mq.send("queue://rows", text)
        mq.advance("2s")
    (processed,) = [one for one in spans.get_finished_spans() if "process" in one.name]
    assert len(processed.links) == 3
    assert processed.attributes is not None
    assert processed.attributes["messaging.batch.message_count"] == 3


def test_what_came_in_is_sent_on_as_it_is(app: App, spans: InMemorySpanExporter) -> None:
    """Its properties cannot be changed: it keeps the context that it has."""

    @app.consumer("queue://orders")
    def forward(order: Message) -> None:
        app.send("queue://shipped", order)

    with harness(app) as mq:
        mq.send("queue://orders", "x")
        (message,) = mq.messages("queue://shipped")
        sent = spans.get_finished_spans()[0]
        assert f"{sent.context.span_id:016x}" in str(message.properties["traceparent"])
