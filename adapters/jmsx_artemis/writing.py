"""How jmsx writes frames for ActiveMQ Artemis. Source: BROKER.md."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from jmsx.core.delivery import Delivery
from jmsx.core.dialect import Body, Writing
from jmsx.core.headers import KEY_HEADER, whole
from jmsx.core.map_body import encode_map
from jmsx.core.values import StompAck
from jmsx.errors import UnsupportedError
from jmsx_artemis.bodies import NO_TEXT, TYPE_HEADER
from jmsx_artemis.destinations import parted, readable, single
from jmsx_artemis.selectors import NUMBERS, core_filter
from jmsx_artemis.window import LARGEST, UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


#: Properties that only Classic's scheduler obeys.
_CLASSIC_SCHEDULES: Final = frozenset(
    {"AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_REPEAT", "AMQ_SCHEDULED_CRON"}
)

#: How many message keys a filter may name: the broker looks up each message's key among them (5,000 keys took it 0.7 s
#: with a queue of 3,000 messages).
_KEYS: Final = 5_000

#: How many timestamps a filter may name: the broker compares each with each message (1,000 took it 4 s there).
_TIMES: Final = 100

#: A message key that needs no quoting in a filter, as all keys made by jmsx.
_KEY: Final = re.compile(r"[\w.:@/-]{1,200}", re.ASCII)

_WINDOW: Final = "consumer-window-size"

#: By how many bytes a frame may be longer when its message is redelivered: the id of the subscription and, twice, of
#: the broker's consumer may be longer.
_LONGER: Final = 64

#: The `consumer-window-size` with which no message is ever sent; with 0 the broker sends one.
_NOTHING: Final = "-2"


def _named(wanted: Sequence[Delivery]) -> str | None:
    """Return a filter that matches these messages, and few others; None if they are too many for a filter."""
    told = [(one.headers.get(KEY_HEADER, ""), one.headers.get("timestamp")) for one in wanted]
    keys = sorted({key for key, _ in told if _KEY.fullmatch(key)})
    times = sorted({whole(time) or 0 for key, time in told if not _KEY.fullmatch(key)})
    if len(keys) > _KEYS or len(times) > _TIMES:
        return None
    terms = [f"AMQTimestamp = {time}" for time in times]
    if keys:
        texts = ", ".join(f"'{key}'" for key in keys)
        terms.append(f"{KEY_HEADER} = {texts}" if len(keys) == 1 else f"{KEY_HEADER} IN ({texts})")
    return " OR ".join(terms)


def _roomier(headers: Mapping[str, str], wanted: Sequence[Delivery]) -> Mapping[str, str]:
    """
    Return the window header with room for all the messages `wanted`, because none of them is acknowledged before all
    have come; empty if the window is unlimited anyway.
    """
    window = whole(headers.get(_WINDOW), least=-1)
    if window is None or window == UNLIMITED:
        return {}
    size = sum(one.frame.size + _LONGER for one in wanted)
    return {_WINDOW: str(min(max(window, size), LARGEST))}


class ArtemisWriting(Writing):
    """Writes frames for Artemis."""

    def send_headers(self, destination: str) -> dict[str, str]:
        """Return address and routing type; without the type a message to a new queue is lost (BROKER.md A7)."""
        routing, address = parted(single(destination))
        return {"destination": address, "destination-type": routing}

    def queue_name(self, name: str) -> str:
        """Return the queue's own name, unique in the broker, also from `address::queue` (BROKER.md A9)."""
        return name.rpartition("::")[2]

    def check_properties(self, properties: Mapping[str, str]) -> None:
        """Refuse repeated schedules (BROKER.md A13) and the closing of groups by sequence, impossible over STOMP."""
        for name in _CLASSIC_SCHEDULES & properties.keys():
            raise UnsupportedError(
                f"Artemis does not know {name}; it has AMQ_SCHEDULED_DELAY and AMQ_SCHEDULED_TIME"
            )
        if properties.get("JMSXGroupSeq", "").startswith("-"):
            raise UnsupportedError(
                "over STOMP Artemis does not close a message group by a negative JMSXGroupSeq"
            )

    def reply_to(self, destination: str) -> str:
        """Return the `reply-to` header: the URI, as Artemis' own JMS client writes it."""
        parted(single(destination))
        return destination.partition("?")[0]

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
        """Return headers of SUBSCRIBE; raises UnsupportedError for any `consumer.X` option: they are Classic's."""
        if options:
            raise UnsupportedError(
                f"{destination}: Artemis has no consumer.{min(options)} over STOMP; leave it out, or set it for"
                " the address on the broker"
            )
        routing, address = parted(readable(destination))
        headers = {"destination": address, "subscription-type": routing, "ack": ack.value}
        if selector and no_local:
            raise UnsupportedError(
                f"{destination}: Artemis cannot leave out a session's own messages and obey a selector, over STOMP;"
                " leave out one of the two"
            )
        if selector:
            headers["selector"] = core_filter(selector, durable=durable_name is not None)
        if durable_name is not None:
            headers["durable-subscription-name"] = durable_name
        if no_local:
            headers["no-local"] = "true"
        return headers

    def narrowed(self, headers: Mapping[str, str], wanted: Sequence[Delivery]) -> Mapping[str, str]:
        """
        Return `headers` with a selector that lets only the messages `wanted` come, and a window with room for them all.

        The selector names their keys or timestamps: a filter cannot test the broker's own message id (BROKER.md A21).
        If they are too many for a selector, only the window is widened, and other messages of the queue come, too.
        """
        roomy = {**headers, **_roomier(headers, wanted)}
        named = _named(wanted)
        if named is None:
            return roomy
        given = headers.get("selector", "").removeprefix(NUMBERS)
        both = f"({given}) AND ({named})" if given else named
        return {**roomy, "selector": NUMBERS + both}

    def browse_headers(
        self,
        *,
        destination: str,
        prefetch: int,  # noqa: ARG002 - there are no browsers, so nothing is fetched
        selector: str | None,  # noqa: ARG002 - there are no browsers, so nothing is chosen
    ) -> dict[str, str]:
        """Raise UnsupportedError: Artemis has no queue browser over STOMP."""
        raise UnsupportedError(
            f"Artemis cannot show {destination} over STOMP without taking from it; use its console or"
            " its management address"
        )

    def unsubscribe_durable_headers(self, name: str) -> dict[str, str]:
        """Return headers of the UNSUBSCRIBE that removes a durable subscription, which must be in use."""
        return {"durable-subscription-name": name}

    def holding_headers(self, destination: str) -> Mapping[str, str] | None:
        """Return the headers of a consumer with a window below -1, which makes the queue and gets nothing (2.44.0)."""
        routing, address = parted(destination)
        own = {"destination": address, "subscription-type": routing, "ack": "client"}
        return {**own, _WINDOW: _NOTHING}

    def encode_body(self, body: Body) -> tuple[dict[str, str], bytes]:
        """Encode a body: a content-length makes a BytesMessage, its absence a TextMessage (BROKER.md A50)."""
        if isinstance(body, bytes):
            return {TYPE_HEADER: "bytes", "content-length": str(len(body))}, body
        if body is None:
            return {TYPE_HEADER: NO_TEXT}, b""
        if isinstance(body, str):
            data = body.encode()
            length = {"content-length": str(len(data))} if b"\0" in data else {}
            return {TYPE_HEADER: "text", **length}, data
        return {TYPE_HEADER: "map"}, encode_map(body)
