"""What Java programmers get from the JMS client, for Python services on ActiveMQ over STOMP."""

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
