"""
How jmsx writes frames for ActiveMQ Classic.

Source: `ProtocolConverter.java:334-698` and `FrameTranslator.java:54-159`, at 6.3.1.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from jmsx.core.destination_names import is_composite, is_pattern, parts, wire_destination
from jmsx.core.dialect import Body, Writing
from jmsx.core.map_body import TRANSFORMATION, encode_map
from jmsx.core.selectors import in_decimals, spelled_out
from jmsx.core.values import StompAck
from jmsx.errors import InvalidDestinationError, MessageFormatError, UnsupportedError
from jmsx_classic.bodies import A_MAP, NO_TEXT, TEXT_HEADER, TRANSLATION_HEADER, looks_like_map
from jmsx_classic.selectors import check_arithmetic, check_functions

if TYPE_CHECKING:
    from collections.abc import Mapping


#: The destination option that sets the `transformation` of maps.
TRANSFORMS: Final = TRANSLATION_HEADER


#: The most properties of a message: the broker closes the connection over more than 1,000 headers (BROKER.md C53), and
#: the rest is left for the headers of STOMP and jmsx.
_PROPERTIES: Final = 960

_CRON: Final = re.compile(r"[0-9*/,-]+( [0-9*/,-]+){4}")


class ClassicWriting(Writing):
    """Writes frames for Classic."""

    def check_properties(self, properties: Mapping[str, str]) -> None:
        """Refuse properties that only Artemis obeys, such as a point in time for delivery, and too many of them."""
        if len(properties) > _PROPERTIES:
            raise MessageFormatError(
                f"the message has {len(properties)} properties, with jmsx's own of them; {_PROPERTIES} are the most,"
                " because ActiveMQ Classic closes the connection over 1,000 headers"
            )
        if "AMQ_SCHEDULED_TIME" in properties:
            raise UnsupportedError(
                "ActiveMQ Classic does not know AMQ_SCHEDULED_TIME; it has AMQ_SCHEDULED_DELAY"
            )
        cron = properties.get("AMQ_SCHEDULED_CRON")
        if cron is not None and not _CRON.fullmatch(cron):
            raise MessageFormatError(
                f"AMQ_SCHEDULED_CRON needs five fields, such as '0 * * * *', not {cron!r}"
            )

    def subscribe_headers(
        self,
        *,
        destination: str,
        ack: StompAck,
        selector: str | None,
        durable_name: str | None,
        no_local: bool,
        options: Mapping[str, str],
    ) -> dict[str, str]:
        """
        Return headers of SUBSCRIBE; each `consumer.X` option of a destination URI becomes `activemq.X`.

        Messages of queues are translated unless the URI has `consumer.transformation=none`; those of topics only with
        `=jms-map-xml`, because translation on a topic loses messages of other subscribers (BROKER.md C80). Without
        translation MapMessages come without a body. With translation the broker also reads Java's ObjectMessages, and
        closes the connection at one whose class it does not trust.
        Source: `JmsFrameTranslator.convertMessage`; measured on 6.1.8.
        """
        named = destination.partition("?")[0]
        if named.endswith((".#", "/#")):
            raise InvalidDestinationError(
                f"{destination}: ActiveMQ Classic has > for all that follows, and # is a name to it; write"
                f" {named.removesuffix('#')}>"
            )
        if is_composite(named) and len({kind for kind, _ in parts(named)}) > 1:
            raise UnsupportedError(
                f"{destination}: ActiveMQ Classic gives a consumer of queues and topics those of the first kind only;"
                " make a consumer for each kind"
            )
        headers = {
            "destination": wire_destination(destination),
            "ack": ack.value,
        }
        headers.update(
            (f"activemq.{name}", value) for name, value in options.items() if name != TRANSFORMS
        )
        usual = "none" if named.startswith(("topic://", "temp-topic://")) else TRANSFORMATION
        asked = options.get(TRANSFORMS, usual)
        if asked not in ("none", TRANSFORMATION):
            raise UnsupportedError(
                f"{destination}: consumer.{TRANSFORMS} may only be none or {TRANSFORMATION}; left out, it is {usual}"
            )
        if asked == TRANSFORMATION:
            headers[TRANSLATION_HEADER] = TRANSFORMATION
        if selector:
            headers["selector"] = _selector(selector, durable=durable_name is not None)
        if durable_name is not None:
            headers["activemq.subscriptionName"] = durable_name
        if no_local:
            headers["activemq.noLocal"] = "true"
        return headers

    def trial(self, destination: str, headers: Mapping[str, str]) -> Mapping[str, str] | None:
        """
        Return the headers of a trial SUBSCRIBE with prefetch 0, if the URI stands for several destinations; else None.

        With a receipt the broker adds a consumer with prefetch 0, and opens its window only for the destination with
        the pattern's literal name: a backlog was not delivered until a message came, or for 30 s. Without a receipt a
        refusal is written by another thread than receipts are, before or after those of later frames. Both were
        measured on 6.1.8.
        Source: `ProtocolConverter.onStompSubscribe`, `AbstractRegion.processConsumerControl`,
        `TransportConnection.serviceException` and `.dispatchAsync`.
        """
        if not is_pattern(destination):
            return None
        tried = {name: value for name, value in headers.items() if name != "browser"}
        return {**tried, "activemq.prefetchSize": "0"}

    def browse_headers(
        self, *, destination: str, prefetch: int, selector: str | None
    ) -> dict[str, str]:
        """Return headers of the SUBSCRIBE of a queue browser; `ack:auto` is safe, as a browser consumes nothing."""
        headers = {
            "destination": wire_destination(destination),
            "ack": "auto",
            "browser": "true",
            TRANSLATION_HEADER: TRANSFORMATION,
            "activemq.prefetchSize": str(max(prefetch, 1)),
        }
        return (
            headers if not selector else {**headers, "selector": _selector(selector, durable=False)}
        )

    def unsubscribe_durable_headers(self, name: str) -> dict[str, str]:
        """Return headers of the UNSUBSCRIBE that removes a durable subscription."""
        return {"activemq.subscriptionName": name}

    def encode_body(self, body: Body) -> tuple[dict[str, str], bytes]:
        """Encode a body: a content-length makes a BytesMessage (`LegacyFrameTranslator.java:45-120`)."""
        if isinstance(body, bytes):
            return {"content-length": str(len(body))}, body
        if isinstance(body, str):
            data = body.encode()
            if b"\0" in data:
                length = str(len(data))
                return {"amq-msg-type": "text", TEXT_HEADER: "true", "content-length": length}, data
            return ({TEXT_HEADER: "true"} if looks_like_map(data) else {}), data
        return (
            ({TEXT_HEADER: NO_TEXT}, b"")
            if body is None
            else ({TEXT_HEADER: A_MAP, TRANSLATION_HEADER: TRANSFORMATION}, encode_map(body))
        )


def _selector(selector: str, *, durable: bool) -> str:
    """Return the selector for the broker; a durable one keeps its numbers: with another text it would begin anew."""
    check_arithmetic(selector)
    check_functions(selector)
    return spelled_out(selector if durable else in_decimals(selector))
