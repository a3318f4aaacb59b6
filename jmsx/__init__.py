"""
What Java programmers get from the JMS client, for Python services on ActiveMQ over STOMP.

Each name is imported when it is first used: reading an event log needs none of the client, and importing all of it took
0.45 s of CPU time in each process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jmsx.plugins import on_demand as _on_demand

if TYPE_CHECKING:
    from jmsx.app.application import App
    from jmsx.app.health import HealthLimits
    from jmsx.app.middleware import Layer
    from jmsx.app.pacing import CircuitBreaker, RateLimit
    from jmsx.app.parameters import Header, Property
    from jmsx.config.options import (
        ConnectionOptions,
        ConsumerOptions,
        PrefetchPolicy,
        ReconnectPolicy,
        TlsOptions,
    )
    from jmsx.core.modes import AcknowledgeMode
    from jmsx.core.policy import ArtemisRedeliveryPolicy, RedeliveryPolicy, RedeliveryPolicyMap
    from jmsx.core.values import DeadLetterStrategy
    from jmsx.errors import (
        BrokerError,
        BrokerFaultError,
        BrokerTimeoutError,
        ConfigurationError,
        ConnectionFailedError,
        DrainError,
        IllegalStateError,
        InDoubtError,
        InvalidClientIdError,
        InvalidDestinationError,
        InvalidSelectorError,
        JmsxError,
        LinkError,
        MessageFormatError,
        MessageNotReadableError,
        MessageNotWriteableError,
        ProtocolError,
        RefusedError,
        ResourceAllocationError,
        SecurityError,
        SendUnconfirmedError,
        SpoiltTransactionError,
        StoreAwayError,
        StoreError,
        TlsError,
        TransactionInDoubtError,
        TransactionRolledBackError,
        UnansweredError,
        UnsupportedError,
        UsageError,
    )
    from jmsx.jms.browser import QueueBrowser
    from jmsx.jms.connection import Connection
    from jmsx.jms.consumer import MessageConsumer
    from jmsx.jms.destination import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic
    from jmsx.jms.message import MapMessage, Message
    from jmsx.jms.outcomes import BatchError, Discard, Duplicate, Reject, Retry
    from jmsx.jms.producer import MessageProducer
    from jmsx.jms.session import Session
    from jmsx.observe import Observer
    from jmsx.stores import DatabaseStore, IdempotencyStore, MemoryStore, SqliteStore
    from jmsx.stores.ledger import DeliveryLedger

__all__ = [
    "AcknowledgeMode",
    "App",
    "ArtemisRedeliveryPolicy",
    "BatchError",
    "BrokerError",
    "BrokerFaultError",
    "BrokerTimeoutError",
    "CircuitBreaker",
    "ConfigurationError",
    "Connection",
    "ConnectionFailedError",
    "ConnectionOptions",
    "ConsumerOptions",
    "DatabaseStore",
    "DeadLetterStrategy",
    "DeliveryLedger",
    "Destination",
    "Discard",
    "DrainError",
    "Duplicate",
    "Header",
    "HealthLimits",
    "IdempotencyStore",
    "IllegalStateError",
    "InDoubtError",
    "InvalidClientIdError",
    "InvalidDestinationError",
    "InvalidSelectorError",
    "JmsxError",
    "Layer",
    "LinkError",
    "MapMessage",
    "MemoryStore",
    "Message",
    "MessageConsumer",
    "MessageFormatError",
    "MessageNotReadableError",
    "MessageNotWriteableError",
    "MessageProducer",
    "Observer",
    "PrefetchPolicy",
    "Property",
    "ProtocolError",
    "Queue",
    "QueueBrowser",
    "RateLimit",
    "ReconnectPolicy",
    "RedeliveryPolicy",
    "RedeliveryPolicyMap",
    "RefusedError",
    "Reject",
    "ResourceAllocationError",
    "Retry",
    "SecurityError",
    "SendUnconfirmedError",
    "Session",
    "SpoiltTransactionError",
    "SqliteStore",
    "StoreAwayError",
    "StoreError",
    "TemporaryQueue",
    "TemporaryTopic",
    "TlsError",
    "TlsOptions",
    "Topic",
    "TransactionInDoubtError",
    "TransactionRolledBackError",
    "UnansweredError",
    "UnsupportedError",
    "UsageError",
]

_HOMES: Final = {
    "AcknowledgeMode": "jmsx.core.modes",
    "App": "jmsx.app.application",
    "ArtemisRedeliveryPolicy": "jmsx.core.policy",
    "BatchError": "jmsx.jms.outcomes",
    "BrokerError": "jmsx.errors",
    "BrokerFaultError": "jmsx.errors",
    "BrokerTimeoutError": "jmsx.errors",
    "CircuitBreaker": "jmsx.app.pacing",
    "ConfigurationError": "jmsx.errors",
    "Connection": "jmsx.jms.connection",
    "ConnectionFailedError": "jmsx.errors",
    "ConnectionOptions": "jmsx.config.options",
    "ConsumerOptions": "jmsx.config.options",
    "DatabaseStore": "jmsx.stores",
    "DeadLetterStrategy": "jmsx.core.values",
    "DeliveryLedger": "jmsx.stores.ledger",
    "Destination": "jmsx.jms.destination",
    "Discard": "jmsx.jms.outcomes",
    "DrainError": "jmsx.errors",
    "Duplicate": "jmsx.jms.outcomes",
    "Header": "jmsx.app.parameters",
    "HealthLimits": "jmsx.app.health",
    "IdempotencyStore": "jmsx.stores",
    "IllegalStateError": "jmsx.errors",
    "InDoubtError": "jmsx.errors",
    "InvalidClientIdError": "jmsx.errors",
    "InvalidDestinationError": "jmsx.errors",
    "InvalidSelectorError": "jmsx.errors",
    "JmsxError": "jmsx.errors",
    "Layer": "jmsx.app.middleware",
    "LinkError": "jmsx.errors",
    "MapMessage": "jmsx.jms.message",
    "MemoryStore": "jmsx.stores",
    "Message": "jmsx.jms.message",
    "MessageConsumer": "jmsx.jms.consumer",
    "MessageFormatError": "jmsx.errors",
    "MessageNotReadableError": "jmsx.errors",
    "MessageNotWriteableError": "jmsx.errors",
    "MessageProducer": "jmsx.jms.producer",
    "Observer": "jmsx.observe",
    "PrefetchPolicy": "jmsx.config.options",
    "Property": "jmsx.app.parameters",
    "ProtocolError": "jmsx.errors",
    "Queue": "jmsx.jms.destination",
    "QueueBrowser": "jmsx.jms.browser",
    "RateLimit": "jmsx.app.pacing",
    "ReconnectPolicy": "jmsx.config.options",
    "RedeliveryPolicy": "jmsx.core.policy",
    "RedeliveryPolicyMap": "jmsx.core.policy",
    "RefusedError": "jmsx.errors",
    "Reject": "jmsx.jms.outcomes",
    "ResourceAllocationError": "jmsx.errors",
    "Retry": "jmsx.jms.outcomes",
    "SecurityError": "jmsx.errors",
    "SendUnconfirmedError": "jmsx.errors",
    "Session": "jmsx.jms.session",
    "SpoiltTransactionError": "jmsx.errors",
    "SqliteStore": "jmsx.stores",
    "StoreAwayError": "jmsx.errors",
    "StoreError": "jmsx.errors",
    "TemporaryQueue": "jmsx.jms.destination",
    "TemporaryTopic": "jmsx.jms.destination",
    "TlsError": "jmsx.errors",
    "TlsOptions": "jmsx.config.options",
    "Topic": "jmsx.jms.destination",
    "TransactionInDoubtError": "jmsx.errors",
    "TransactionRolledBackError": "jmsx.errors",
    "UnansweredError": "jmsx.errors",
    "UnsupportedError": "jmsx.errors",
    "UsageError": "jmsx.errors",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = _on_demand(__name__, _HOMES)
