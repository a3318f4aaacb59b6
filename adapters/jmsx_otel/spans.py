"""
OpenTelemetry: a span for each message sent, and for each call of a handler, linked to the senders' spans.

::

    app = App("stomp://localhost:61613", middleware=[tracing()])

The trace context travels in message properties, written by the propagators that the program has set (`traceparent`).
Names and attributes follow the semantic conventions for messaging. `jmsx[otel]` installs only the API; the SDK that the
program sets up decides what is done with spans.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from opentelemetry import propagate, trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider

from jmsx.app.middleware import CallNext, Layer
from jmsx.errors import MessageNotWriteableError
from jmsx.jms.destination import destination
from jmsx.jms.message import Message
from jmsx.jms.outcomes import Discard, Duplicate

if TYPE_CHECKING:
    from collections.abc import Iterator


def tracing(tracer_provider: TracerProvider | None = None) -> Layer:
    """
    Return a middleware for `App(middleware=[...])` that traces sends and handlers (plain, `async def`, and of batches).

    Each call of a handler has a CONSUMER span, `process NAME`, with links to the senders' spans of its messages, if
    these have a trace context; exceptions are recorded. Each `app.send` has a PRODUCER span, `send NAME`; a received
    message that is sent on keeps its trace context. `tracer_provider`: None means the program's global one.
    """
    tracer = trace.get_tracer("jmsx", tracer_provider=tracer_provider)

    @contextmanager
    def processing(taken: Message | list[Message]) -> Iterator[None]:
        messages = taken if isinstance(taken, list) else [taken]
        first = messages[0]
        place = "" if first.destination is None else first.destination.name
        with tracer.start_as_current_span(
            f"process {place}",
            kind=SpanKind.CONSUMER,
            links=[link for one in messages if (link := _link(one)) is not None],
            attributes=_attributes("process", place),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            if isinstance(taken, list):
                span.set_attribute("messaging.batch.message_count", len(messages))
            else:
                _identify(span, first)
            try:
                yield
            except (Discard, Duplicate):
                raise
            except BaseException as error:
                span.record_exception(error)
                span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
                span.set_attribute("error.type", type(error).__qualname__)
                raise

    def plain(taken: Any, call_next: CallNext) -> object:
        with processing(taken):
            return call_next(taken)

    async def awaited(taken: Any, call_next: CallNext) -> object:
        with processing(taken):
            return await call_next(taken)

    @contextmanager
    def sending(message: Message, to: str) -> Iterator[None]:
        place = destination(to).name
        with tracer.start_as_current_span(
            f"send {place}", kind=SpanKind.PRODUCER, attributes=_attributes("send", place)
        ) as span:
            carrier: dict[str, str] = {}
            propagate.inject(carrier)
            with suppress(MessageNotWriteableError):
                message.properties.update(carrier)
            yield
            _identify(span, message)

    return Layer(plain, awaited, sending)


def _link(message: Message) -> Link | None:
    """Return a link to the span of the message's sender; None if the message has no trace context."""
    carrier = {name: text for name, text in message.properties.items() if isinstance(text, str)}
    context = trace.get_current_span(propagate.extract(carrier)).get_span_context()
    return Link(context) if context.is_valid and context.is_remote else None


def _attributes(operation: str, place: str) -> dict[str, str]:
    return {
        "messaging.system": "activemq",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": place,
    }


def _identify(span: Span, message: Message) -> None:
    if message.message_id is not None:
        span.set_attribute("messaging.message.id", message.message_id)
    if message.correlation_id is not None:
        span.set_attribute("messaging.message.conversation_id", message.correlation_id)
