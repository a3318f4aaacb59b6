"""
What Java programmers get from the JMS client, for Python services on ActiveMQ over STOMP.

A name is imported when it is first asked for: reading an event log needs none of the client, and to import all of it
took 0.45 s of CPU time in each process.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from jmsx.core.policy import ArtemisRedeliveryPolicy, RedeliveryPolicy, RedeliveryPolicyMap
    from jmsx.core.values import AcknowledgeMode, DeadLetterStrategy
    from jmsx.jms.browser import QueueBrowser
    from jmsx.jms.connection import Connection
    from jmsx.jms.consumer import MessageConsumer
    from jmsx.jms.destination import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic
    from jmsx.jms.message import Message
    from jmsx.jms.producer import MessageProducer
    from jmsx.jms.session import Session
    from jmsx.ledger import DeliveryLedger
    from jmsx.observe import Observer
    from jmsx.options import ConnectionOptions, PrefetchPolicy, ReconnectPolicy, TlsOptions
    from jmsx.steering import Discard, Duplicate, Reject, Retry

__all__ = [
    "AcknowledgeMode",
    "ArtemisRedeliveryPolicy",
    "Connection",
    "ConnectionOptions",
    "DeadLetterStrategy",
    "DeliveryLedger",
    "Destination",
    "Discard",
    "Duplicate",
    "Message",
    "MessageConsumer",
    "MessageProducer",
    "Observer",
    "PrefetchPolicy",
    "Queue",
    "QueueBrowser",
    "ReconnectPolicy",
    "RedeliveryPolicy",
    "RedeliveryPolicyMap",
    "Reject",
    "Retry",
    "Session",
    "TemporaryQueue",
    "TemporaryTopic",
    "TlsOptions",
    "Topic",
]

_HOMES: Final = {
    "AcknowledgeMode": "jmsx.core.values",
    "ArtemisRedeliveryPolicy": "jmsx.core.policy",
    "Connection": "jmsx.jms.connection",
    "ConnectionOptions": "jmsx.options",
    "DeadLetterStrategy": "jmsx.core.values",
    "DeliveryLedger": "jmsx.ledger",
    "Destination": "jmsx.jms.destination",
    "Discard": "jmsx.steering",
    "Duplicate": "jmsx.steering",
    "Message": "jmsx.jms.message",
    "MessageConsumer": "jmsx.jms.consumer",
    "MessageProducer": "jmsx.jms.producer",
    "Observer": "jmsx.observe",
    "PrefetchPolicy": "jmsx.options",
    "Queue": "jmsx.jms.destination",
    "QueueBrowser": "jmsx.jms.browser",
    "ReconnectPolicy": "jmsx.options",
    "RedeliveryPolicy": "jmsx.core.policy",
    "RedeliveryPolicyMap": "jmsx.core.policy",
    "Reject": "jmsx.steering",
    "Retry": "jmsx.steering",
    "Session": "jmsx.jms.session",
    "TemporaryQueue": "jmsx.jms.destination",
    "TemporaryTopic": "jmsx.jms.destination",
    "TlsOptions": "jmsx.options",
    "Topic": "jmsx.jms.destination",
}


def __getattr__(name: str) -> Any:
    """The public name `name`, imported now."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    """The public names are there, whether they are imported yet or not."""
    return sorted({*globals(), *__all__})
