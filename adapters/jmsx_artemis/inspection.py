"""What ActiveMQ Artemis tells of queues and their settings by its management, for `jmsx check`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from jmsx.clock import SystemClock
from jmsx.core.management import Question
from jmsx.drivers.exchange import Exchange, UnansweredError
from jmsx.errors import JmsxError
from jmsx.inspection import Finding, Level
from jmsx_artemis.questions import queues

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jmsx import Session
    from jmsx.core.management import Inquiry
    from jmsx_artemis.questions import Queue


def inspect(session: Session, names: Sequence[str]) -> Iterator[Finding]:
    """How many messages and consumers each queue has, and what is set for it that may surprise."""
    management = session.dialect.management
    if management is None or not session.options.use_management:
        return
    exchange = Exchange(session.address, session.options, SystemClock())
    try:
        found = exchange.conduct(session.dialect, management, _find(names))
    except (UnansweredError, JmsxError) as error:
        told = f"not visible: {error}; {management.remedy}"
        yield Finding("management", Level.WARNING, told)
        return
    yield Finding("management", Level.OK, "it answers")
    for name, (settings, queue) in found.items():
        yield from warn_of(name, settings)
        if queue is None:
            told = "does not exist yet; it is made at its first use"
        else:
            told = f"{queue['messageCount']} messages, {queue['consumerCount']} consumers"
        yield Finding(f"queue {name}", Level.NOTE, told)


def warn_of(name: str, settings: Mapping[str, Any]) -> Iterator[Finding]:
    """What is set for an address, as `getAddressSettingsAsJSON` tells it, and does not go well with services."""
    if settings.get("addressFullMessagePolicy") == "DROP":
        yield Finding(
            f"address {name}",
            Level.WARNING,
            "once it is full the broker drops what is sent to it, and confirms that all the same"
            " (address-full-policy DROP); PAGE keeps it",
        )
    threshold = settings.get("slowConsumerThreshold", -1)
    if threshold >= 0 and settings.get("slowConsumerPolicy") == "KILL":
        yield Finding(
            f"address {name}",
            Level.WARNING,
            f"the broker hangs up on a consumer slower than {threshold} (slow-consumer-policy KILL): what a slow"
            " handler does then is done again",
        )


def _find(names: Sequence[str]) -> Inquiry[dict[str, tuple[Mapping[str, Any], Queue | None]]]:
    """Settings and queue for each name; a broker with none is asked something all the same."""
    found: dict[str, tuple[Mapping[str, Any], Queue | None]] = {}
    for name in names:
        told = yield Question("broker", "getAddressSettingsAsJSON", (name,))
        listed = yield from queues("NAME", name)
        found[name] = json.loads(told), (listed[0] if listed else None)
    if not names:
        yield from queues("NAME", "jmsx")
    return found
