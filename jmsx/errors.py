"""
Every error that jmsx raises.

::

    JmsxError
    ├── IllegalStateError            the call does not fit the state of the object
    ├── InvalidDestinationError      no such destination, or not usable from here
    ├── InvalidSelectorError         the broker could not parse the selector
    ├── InvalidClientIdError         the client id is missing, or in use
    ├── MessageFormatError           a body or property that STOMP cannot carry
    ├── MessageNotReadableError      the body is not of the type that was asked for
    ├── MessageNotWriteableError     a received message is read-only
    ├── ConfigurationError           a bad option, URI or combination of settings
    ├── UnsupportedError             JMS has it, STOMP does not
    ├── SecurityError                the broker refused the credentials or the access
    ├── ResourceAllocationError      the broker is out of something
    ├── BrokerError                  the broker answered ERROR (its own words are in it)
    │   └── BrokerFaultError         … with a fault of its own, so it has done it, or not
    ├── ConnectionFailedError        the broker could not be reached, or went away
    │   ├── SendUnconfirmedError     … before it confirmed a message: it has it, or not
    │   └── TlsError                 it was reached, and there is no trust between us
    ├── BrokerTimeoutError           the broker did not answer in time
    ├── DrainError                   the app was stopped before all was finished and confirmed
    ├── DeadLetterError              a dead letter could not be confirmed; the original is kept
    ├── StoreError                   a ledger or an idempotency store cannot be used
    │   ├── StoreAwayError           … because its database cannot be reached
    │   └── SpoiltTransactionError   … because the handler has ended or broken the transaction that it shares
    ├── TransactionRolledBackError   the commit failed and everything is back
    └── TransactionInDoubtError      COMMIT was sent, no answer came: nobody knows

`retriable` says whether the same call may be made again as it is.
Source: the names follow the exceptions of Jakarta Messaging 3.1, chapter 8.
"""

from __future__ import annotations

from typing import ClassVar, Final

#: Why a broker that is there may not take what is sent to it, and what to do.
HELD_BACK: Final = (
    "a full broker holds its senders back (producer flow control): make room in it, or raise its limits of store,"
    " memory or temp"
)


class JmsxError(Exception):
    """The root of all errors that jmsx raises."""

    retriable: ClassVar[bool] = False


class IllegalStateError(JmsxError):
    """The call does not fit the state of the object; nothing was changed."""


class InvalidDestinationError(JmsxError):
    """The destination does not exist, is malformed, or cannot be used from here."""


class InvalidSelectorError(JmsxError):
    """The broker could not parse the message selector."""


class InvalidClientIdError(JmsxError):
    """The client id is missing where one is needed, or another connection uses it."""


class MessageFormatError(JmsxError):
    """A body or property has a type or content that STOMP cannot carry."""


class MessageNotReadableError(JmsxError):
    """The body is not of the type that was asked for."""


class MessageNotWriteableError(JmsxError):
    """A received message is read-only."""


class ConfigurationError(JmsxError):
    """An option, URI or combination of settings that makes no sense; says which and why."""


class UnsupportedError(JmsxError):
    """JMS has it, but STOMP to this broker cannot carry it."""


class SecurityError(JmsxError):
    """The broker refused the credentials, or the access to a destination."""


class ResourceAllocationError(JmsxError):
    """The broker ran out of a resource, such as its limit of uncommitted messages."""


class BrokerError(JmsxError):
    """The broker answered ERROR; its own words are in the text."""


class BrokerFaultError(BrokerError):
    """The broker answered with an exception that is no refusal, so whether it did its work is not known."""


class ConnectionFailedError(JmsxError):
    """The broker could not be reached, or the connection to it was lost."""

    retriable = True


class SendUnconfirmedError(ConnectionFailedError):
    """No answer of the broker tells whether it has a message; sent again, it may be there twice."""

    retriable = False

    def __init__(self, message_key: str, destination: str, cause: str) -> None:
        super().__init__(
            f"{cause}; so message {message_key} is unconfirmed: {destination} may have it or not, and"
            " sent again it may be there twice"
        )
        self.message_key = message_key
        self.destination = destination


class TlsError(ConnectionFailedError):
    """TLS could not be agreed on: a certificate is refused, or one side does not speak TLS; says what to do."""

    retriable = False


class BrokerTimeoutError(JmsxError):
    """The broker did not answer in time, so whether it did its work is not known."""


class DrainError(JmsxError):
    """Handlers still ran when the time for draining was over, or the broker confirmed too late; says which."""


class DeadLetterError(JmsxError):
    """A copy for the dead letter queue was not confirmed; the original stays unacknowledged."""


class StoreError(JmsxError):
    """The file or database of a ledger or an idempotency store cannot be used; says which and why."""


class StoreAwayError(StoreError):
    """The database of an idempotency store cannot be reached; it may come back."""


class SpoiltTransactionError(StoreError):
    """The handler has ended or broken the transaction in which its message is noted as done; its failure."""


class TransactionRolledBackError(JmsxError):
    """The commit failed: sends are gone, messages will be delivered again."""

    retriable = True


class TransactionInDoubtError(JmsxError):
    """COMMIT was sent, and the connection died or the broker failed before its receipt; do not retry blindly."""

    def __init__(self, transaction_id: str, broker: str, cause: str) -> None:
        super().__init__(
            f"nobody knows whether transaction {transaction_id} was committed by {broker}: {cause}."
            " Look for its effects before you repeat it."
        )
        self.transaction_id = transaction_id
        self.broker = broker
