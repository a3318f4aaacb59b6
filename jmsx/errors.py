"""
Every error that jmsx raises: the class says who is at fault, and whether the call may be repeated. At the end are
functions that read exceptions of the application's code, which may raise anything.

::

    JmsxError
    ├── UsageError                     the program asks for what cannot be: mend the program
    │   ├── ConfigurationError           a bad option, URI or combination of settings
    │   ├── IllegalStateError            the call does not fit the state of the object
    │   ├── UnsupportedError             JMS has it, STOMP does not
    │   ├── InvalidDestinationError      no such destination, or not usable from here
    │   ├── InvalidSelectorError         the broker could not parse the selector
    │   ├── InvalidClientIdError         the client id is missing, or in use
    │   ├── MessageFormatError           a body or property that STOMP cannot carry
    │   ├── MessageNotReadableError      the body is not of the type that was asked for
    │   └── MessageNotWriteableError     a received message is read-only
    ├── RefusedError                   the broker said no, and has not done it
    │   ├── BrokerError                  it answered ERROR (its own words are in it)
    │   ├── SecurityError                it refused the credentials or the access
    │   ├── ResourceAllocationError      it is out of something, or this process is
    │   └── TransactionRolledBackError   it rolled the transaction back; its messages come again
    ├── LinkError                      there is no connection to the broker
    │   ├── ConnectionFailedError        it could not be reached, or went away; it may be tried again
    │   ├── TlsError                     it was reached, and TLS could not be agreed on
    │   └── ProtocolError                what answered broke STOMP
    ├── InDoubtError                   nobody knows whether the broker has done it: look before it is done again
    │   ├── SendUnconfirmedError         the connection was lost before a message was confirmed
    │   ├── TransactionInDoubtError      COMMIT was sent, and no answer came
    │   ├── BrokerTimeoutError           the broker did not answer in time
    │   ├── UnansweredError              a request was sent, and no answer came
    │   └── BrokerFaultError             the broker answered with a fault of its own
    ├── StoreError                     a ledger or an idempotency store cannot be used
    │   ├── StoreAwayError               its database cannot be reached
    │   └── SpoiltTransactionError       the handler has ended or broken the transaction that it shares
    └── DrainError                     the app was stopped before all was finished and confirmed

`retriable` says whether the call, or the whole transaction that was rolled back, may be repeated as it is.
Source: the names of the leaves follow the exceptions of Jakarta Messaging 3.1, chapter 8.
"""

from __future__ import annotations

import threading
import traceback
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from types import TracebackType


class JmsxError(Exception):
    """The root of all errors that jmsx raises."""

    #: Whether the call may be repeated as it is: it has changed nothing, and may succeed another time. After a failed
    #: commit, repeat the whole transaction: `commit()` alone would commit nothing.
    retriable: ClassVar[bool] = False

    def __reduce__(self) -> tuple[object, ...]:
        """Let the error be unpickled whatever its constructor takes: a process pool hangs at one that cannot be."""
        return _again, (type(self), self.args), self.__dict__


def _again(kind: type[JmsxError], args: tuple[object, ...]) -> JmsxError:
    """Restore a pickled error without calling its constructor."""
    return kind.__new__(kind, *args)


class UsageError(JmsxError):
    """The program asks for what cannot be; nothing was done, and the same call fails again."""


class RefusedError(JmsxError):
    """The broker said no, and has not done what was asked for."""


class LinkError(JmsxError):
    """There is no connection to the broker, or none any more."""


class InDoubtError(JmsxError):
    """Nobody knows whether the broker has done what was asked for; done again, it may be done twice."""


class IllegalStateError(UsageError):
    """The call does not fit the state of the object; nothing was changed."""


class InvalidDestinationError(UsageError):
    """The destination does not exist, is malformed, or cannot be used from here."""


class InvalidSelectorError(UsageError):
    """The broker could not parse the message selector."""


class InvalidClientIdError(UsageError):
    """The client id is missing where one is needed, or another connection uses it."""


class MessageFormatError(UsageError):
    """A body or property has a type or content that STOMP cannot carry; nothing was sent."""


class MessageNotReadableError(UsageError):
    """The body is not of the type that was asked for, or STOMP does not carry it; says what to take instead."""


class MessageNotWriteableError(UsageError):
    """A received message is read-only."""


class ConfigurationError(UsageError):
    """An option, URI or combination of settings that makes no sense; says which and why."""


class UnsupportedError(UsageError):
    """JMS has it, but STOMP to this broker cannot carry it."""


class SecurityError(RefusedError):
    """The broker refused the credentials, or the access to a destination."""


class ResourceAllocationError(RefusedError):
    """The broker ran out of a resource, such as its limit of uncommitted messages; or this process did, of threads."""


class BrokerError(RefusedError):
    """The broker answered ERROR; its own words are in the text."""


class BrokerFaultError(InDoubtError):
    """The broker answered with an exception that is no refusal, so whether it did its work is not known."""


class ConnectionFailedError(LinkError):
    """The broker could not be reached, or the connection to it was lost."""

    retriable = True


class SendUnconfirmedError(InDoubtError):
    """No answer of the broker tells whether it has a message; sent again, it may be there twice."""

    def __init__(self, message_key: str, destination: str, cause: str) -> None:
        super().__init__(
            f"{cause}; so message {message_key} is unconfirmed: {destination} may have it or not, and"
            " sent again it may be there twice"
        )
        self.message_key = message_key
        self.destination = destination


class TlsError(LinkError):
    """TLS could not be agreed on: a certificate is refused, or one side does not speak TLS; says what to do."""


class ProtocolError(LinkError):
    """What answered broke STOMP, or is no STOMP broker; the link was ended, and the text says what came."""


class BrokerTimeoutError(InDoubtError):
    """The broker did not answer in time, so whether it did its work is not known."""


class UnansweredError(InDoubtError):
    """A request was sent and no answer came, in time or at all; whether it was handled is not known."""


class DrainError(JmsxError):
    """Handlers still ran when the time for draining was over, or the broker confirmed too late; says which."""


class StoreError(JmsxError):
    """The file or database of a ledger or an idempotency store cannot be used; says which and why."""


class StoreAwayError(StoreError):
    """The database of an idempotency store cannot be reached; it may come back."""


class SpoiltTransactionError(StoreError):
    """The handler has ended or broken the transaction in which its message is noted as done, and so has failed."""


class TransactionRolledBackError(RefusedError):
    """The commit failed: its sends are gone, its messages are delivered again; repeat the whole transaction."""

    retriable = True


class TransactionInDoubtError(InDoubtError):
    """COMMIT was sent, and the connection died or the broker failed before its receipt; do not retry blindly."""

    def __init__(self, transaction_id: str, broker: str, cause: str) -> None:
        super().__init__(
            f"nobody knows whether transaction {transaction_id} was committed by {broker}: {cause}."
            " Look for its effects before you repeat it."
        )
        self.transaction_id = transaction_id
        self.broker = broker


def afresh(error: JmsxError) -> JmsxError:
    """Return `error`, to be raised once more, without its traceback and context, which keep what was sent in memory."""
    error.__context__ = None
    return error.with_traceback(None)


# Errors of others ----------------------------------------------------------------------------------------------------
#
# Code that is not ours may raise anything: log handlers, observers, the methods of exceptions. jmsx catches that at the
# call. But what a signal handler raises during the call is no error of that code, and is let through.


def from_a_signal(error: BaseException) -> bool:
    """
    Return whether `error`, which the caller has caught, was raised by a signal handler, and so is the application's.

    A signal handler runs on the main thread. It is called from the frame that it interrupts, and is given that frame,
    by which it is known here. Python's own handler of Ctrl-C leaves no frame; KeyboardInterrupt is always taken for it.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    if issubclass(type(error), KeyboardInterrupt):
        return True
    trace, caller = _trace(error), None
    while trace is not None:
        for value in trace.tb_frame.f_locals.values():
            within = value if type(value) is tuple else (value,)
            if caller is not None and any(each is caller for each in within):
                return True
        caller, trace = trace.tb_frame, trace.tb_next
    return False


def cause_of(error: BaseException) -> BaseException | None:
    """Return the `__cause__` of an exception, read even where its class hides that attribute."""
    cause = BaseException.__dict__["__cause__"].__get__(error)
    return cause if isinstance(cause, BaseException) else None


def context_of(error: BaseException) -> BaseException | None:
    """Return the exception that was being handled when `error` was raised, if tracebacks show it; else None."""
    if BaseException.__dict__["__suppress_context__"].__get__(error):
        return None
    context: BaseException | None = BaseException.__dict__["__context__"].__get__(error)
    return context


def class_of(error: BaseException) -> str:
    """Return the name of the class of `error`, even if a metaclass overrides `__name__`."""
    name: str = type.__dict__["__name__"].__get__(type(error))
    return name


def text_of(error: BaseException) -> str:
    """Return `str(error)`; if that raises, a text with the name of its class."""
    try:
        return str(error)
    except BaseException as another:
        if from_a_signal(another):
            raise
        return f"<{class_of(error)} that cannot be printed>"


def traceback_of(error: BaseException) -> str:
    """Return the traceback of `error` as Python prints it, or as much of that as can be had."""
    try:
        return "".join(traceback.format_exception(type(error), error, _trace(error)))
    except BaseException as another:
        if from_a_signal(another):
            raise
    told = f"{class_of(error)}: {text_of(error)}\n"
    try:
        return "".join((*traceback.format_tb(_trace(error)), told))
    except Exception:  # noqa: BLE001 - the loader of a module may fail to give its source
        return told


def exc_info_of(
    error: BaseException,
) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """Return what `sys.exc_info()` returns while `error` is handled."""
    return type(error), error, _trace(error)


def raised_with(error: BaseException, raised: BaseException) -> BaseException:
    """Return `error`, with the traceback of `raised` if it has none of its own."""
    if _trace(error) is None:
        BaseException.with_traceback(error, _trace(raised))
    return error


def _trace(error: BaseException) -> TracebackType | None:
    trace: TracebackType | None = BaseException.__dict__["__traceback__"].__get__(error)
    return trace
