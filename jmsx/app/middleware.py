"""
Middleware: plain functions that run around every call of a handler.

::

    def timed(message, call_next):
        began = time.perf_counter()
        try:
            return call_next(message)
        finally:
            print(time.perf_counter() - began)

The app's middleware is outside of the consumer's, and in each list the first function is the outermost. Middleware
counts as part of the handler: it runs inside the handler's transaction, its `dedupe=` and its `timeout=`, and
`give_up_on=` and the like apply to its exceptions. If it raises, the delivery has failed; if it returns, the message is
settled, even if the middleware has swallowed an exception of the handler. If it returns without having called
`call_next`, the message was not handled (D15) and becomes a dead letter. To acknowledge a message without handling it,
raise Discard; in a batch, a BatchError with a Discard for each message.

A middleware may call `call_next` several times with parts of a batch; messages that it leaves out become dead letters.
It may replace messages of a batch in a call, by as many others in the same order. If a replacement fails, or does not
fit the handler's parameters, the message that it replaces has failed.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from jmsx.app.parameters import InvalidMessagesError
from jmsx.errors import ConfigurationError, IllegalStateError
from jmsx.jms.handlers import check_ran, check_runs, is_async, name_of
from jmsx.jms.message import Message
from jmsx.jms.outcomes import BatchError, Reject, Unhandled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractContextManager


#: Calls the next middleware, or the handler: pass it the message (for a batch the list), or another one in its place.
#: Around an `async def` handler, `await` its result.
CallNext: TypeAlias = "Callable[[Any], Any]"

#: Returns the positional and keyword arguments of the handler for a message; raises if the message does not fit them.
Arguments: TypeAlias = "Callable[[Any], tuple[Sequence[Any], Mapping[str, Any]]]"


@dataclass(frozen=True, slots=True)
class Layer:
    """
    One middleware in two forms, for an app with both plain and `async def` handlers.

    Args:
        plain: the function that is called around plain handlers.
        awaited: the `async def` function that is awaited around `async def` handlers.
        sending: a function of the message and the destination's name that returns a context manager, which is entered
            around each `app.send`; it may set properties. None: nothing runs around sends.

    """

    plain: Callable[[Any, CallNext], object]
    awaited: Callable[[Any, CallNext], Awaitable[object]]
    sending: Callable[[Message, str], AbstractContextManager[object]] | None = None


Middleware: TypeAlias = (
    "Callable[[Message, CallNext], object] | Callable[[list[Message], CallNext], object] | Layer"
)

#: The forms of a middleware, for errors.
_FORM: Final = "a function (message, call_next), or a Layer of a plain one and an async def"


def check_middleware(given: object) -> tuple[Middleware, ...]:
    """Return middleware as a tuple; raises ConfigurationError if something in it is no middleware."""
    if not isinstance(given, list | tuple):
        raise ConfigurationError(f"middleware= takes a list of them, each {_FORM}; not {given!r}")
    for one in given:
        if isinstance(one, Layer):
            _check(one.plain, awaited=False)
            _check(one.awaited, awaited=True)
        else:
            _check(one, awaited=is_async(one) if callable(one) else False)
    return tuple(given)


def _check(function: Any, *, awaited: bool) -> None:
    check_runs(function, awaited=awaited)
    if awaited and not is_async(function):
        raise ConfigurationError(
            f"{name_of(function)} must be `async def`, as the awaited part of a Layer is"
        )
    signature = inspect.signature(function)
    try:
        signature.bind(None, None)
    except TypeError as error:
        raise ConfigurationError(
            f"middleware {name_of(function)} must take (message, call_next): {error}"
        ) from error
    if next(iter(signature.parameters)).strip("_") == "call_next":
        raise ConfigurationError(
            f"middleware {name_of(function)} calls its first parameter call_next, and it gets a Message; the message"
            " comes first, then call_next: (message, call_next)"
        )


def chain(
    handler: Callable[..., Any], middleware: Iterable[Middleware]
) -> list[Callable[[Any, CallNext], Any]]:
    """Return the functions around `handler`, the outermost first; raises ConfigurationError if one does not fit it."""
    awaited = is_async(handler)
    fitting: list[Callable[[Any, CallNext], Any]] = []
    for one in middleware:
        function: Callable[[Any, CallNext], Any]
        if isinstance(one, Layer):
            function = one.awaited if awaited else one.plain
        elif is_async(one) is awaited:
            function = one
        else:
            kinds = ("an async def", "a plain function")
            mine, other = kinds if awaited else reversed(kinds)
            raise ConfigurationError(
                f"middleware {name_of(one)} is {other}, and handler {name_of(handler)} is {mine}; make a"
                " Layer(plain, awaited) of one for each kind"
            )
        fitting.append(function)
    return fitting


class Around:
    """The middleware of one consumer, around its handler."""

    def __init__(self, handler: Callable[..., Any], middleware: Iterable[Middleware]) -> None:
        self._handler = handler
        self._chain: Sequence[Callable[[Any, CallNext], Any]] = chain(handler, middleware)[::-1]

    def call(self, taken: Any, arguments: Arguments) -> Any:
        """Return the outermost middleware's result; raises what it raises, or why the handler was not called."""
        if not self._chain:
            args, named = arguments(taken)
            return self._handler(*args, **named)
        run = _Run(self._handler, arguments, taken)

        def call_next(given: Any) -> Any:
            given = run.whole(given)
            args, named = run.begin(given)
            try:
                result = self._handler(*args, **named)
            finally:
                run.at_work -= 1
            return run.end(given, result)

        try:
            result = self._nested(run, call_next)(taken)
        except (BatchError, InvalidMessagesError) as error:
            run.complete(error, self._reject(run) if run.at_work else Unhandled())
            raise
        finally:
            run.is_over = True
        self._check_called(run)
        return result

    async def acall(self, taken: Any, arguments: Arguments) -> Any:
        """Do as `call` does, for an `async def` handler."""
        if not self._chain:
            args, named = arguments(taken)
            return await self._handler(*args, **named)
        run = _Run(self._handler, arguments, taken)

        async def call_next(given: Any) -> Any:
            given = run.whole(given)
            args, named = run.begin(given)
            try:
                result = await self._handler(*args, **named)
            finally:
                run.at_work -= 1
            return run.end(given, result)

        try:
            result = await self._nested(run, call_next)(taken)
        except (BatchError, InvalidMessagesError) as error:
            run.complete(error, self._reject(run) if run.at_work else Unhandled())
            raise
        finally:
            run.is_over = True
        self._check_called(run)
        return result

    def _nested(self, run: _Run, call_next: CallNext) -> CallNext:
        for middleware in self._chain:
            call_next = _step(middleware, call_next, run)
        return call_next

    def _check_called(self, run: _Run) -> None:
        """
        Raise what kept the handler from having done all of it, also if a middleware has swallowed that.

        Also if it is at work still: what it comes to then nobody would see.
        """
        if run.at_work:
            raise self._reject(run)
        if run.calls == 0:
            raise run.refusal or self._reject(run)
        if left := run.left():
            if isinstance(run.refusal, InvalidMessagesError):
                run.complete(run.refusal, Unhandled())  # raises
            raise BatchError(dict.fromkeys(left, run.refusal or self._reject(run)))

    def _reject(self, run: _Run) -> Reject:
        """Return what is wrong with a middleware that has ended before the handler had done all of it, or begun."""
        names = ", ".join(name_of(one) for one in reversed(self._chain))
        handler, part = (
            name_of(self._handler),
            " with this message of the batch" if run.calls else "",
        )
        what = (
            f"while {handler} still ran" if run.at_work else f"and {handler} was not called{part}"
        )
        text = (
            f"middleware ({names}) returned, {what}: return call_next(message), awaited where it is async;"
            f" {run.away}"
        )
        reject = Reject(text)
        reject.__cause__ = ConfigurationError(text)
        return reject


class _Run:
    """One call of the outermost middleware: how often, and with what, the handler has run."""

    def __init__(self, handler: Callable[..., Any], arguments: Arguments, taken: Any) -> None:
        self._handler = handler
        self._arguments = arguments
        #: A copy of the batch, for a middleware may change the list that it gets.
        self._batch: list[Message] = list(taken) if isinstance(taken, list) else []
        self.calls = 0  #: how often the handler was called
        self.at_work = 0  #: how many of these calls have not ended
        self.is_over = False  #: whether the outermost middleware has ended
        #: Why the handler was not called, or has not run to its end.
        self.refusal: BaseException | None = None
        self._given: set[Message] = set()
        #: The message of the batch that a middleware has replaced, by its replacement.
        self._replaced: dict[Message, Message] = {}

    @property
    def away(self) -> str:
        """What a middleware should raise for a message that the handler is not to get, as the end of a sentence."""
        if self._batch:
            return "raise BatchError({message: Discard()}) to have some away"
        return "raise Discard to have a message away"

    def whole(self, given: Any) -> Any:
        """Return what was `given`; of a batch as a list, for a generator could be read only once."""
        return list(given) if self._batch and isinstance(given, Iterable) else given

    def begin(self, given: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Return what the handler is called with; raises for what does not fit; IllegalStateError when all is over."""
        self._note_replaced(given)
        try:
            arguments = self._arguments(given)
        except InvalidMessagesError as error:
            rejects = {self._original(one): reject for one, reject in error.rejects.items()}
            self.refusal = InvalidMessagesError(rejects)
            raise self.refusal from None
        except BaseException as error:
            self.refusal = error
            raise
        if self.is_over:
            raise IllegalStateError(
                f"call_next() of {name_of(self._handler)} came too late: its middleware has returned, and what it was"
                " given is settled"
            )
        self.calls += 1
        self.at_work += 1
        self._given.update(self._originals(given))
        return arguments

    def end(self, given: Any, result: Any) -> Any:
        """Return what the handler has returned; raises Reject if that has yet to run."""
        try:
            check_ran(self._handler, result)
        except Reject as error:
            self.refusal = error
            self.calls -= 1
            self._given.difference_update(self._originals(given))
            raise
        return result

    def left(self) -> list[Message]:
        """Return the messages of a batch that the handler was not given, nor others in their place."""
        left = [message for message in self._batch if message not in self._given]
        return left if len(left) > len(self._given.difference(self._batch)) else []

    def complete(
        self, error: BatchError | InvalidMessagesError, of_others: Reject | Unhandled
    ) -> None:
        """
        Raise a BatchError that names the batch's own messages, and with `of_others` those that nobody has done.

        That are those which the handler was not given: they come again, and none of them has failed. Where it is at
        work still, all others.
        """
        if self.calls == 0 and isinstance(error, InvalidMessagesError):
            return  # the worker reads that error, and calls the handler with the other messages
        if isinstance(error, InvalidMessagesError):
            failed: dict[Message, BaseException] = dict(error.rejects)
        else:
            failed = {self._original(one): error.error_of(one) for one in error.failed}
        undone = self._batch if self.at_work else self.left()
        left = [message for message in undone if message not in failed]
        if left or self._replaced or isinstance(error, InvalidMessagesError):
            raise BatchError({**failed, **dict.fromkeys(left, of_others)}) from error

    def _note_replaced(self, given: Any) -> None:
        """Note which is in the place of which, in their order, if there is one for each of the batch."""
        if self._batch and given != self._batch:
            own, taken = set(self._batch), set(_listed(given))
            others = [one for one in _listed(given) if one not in own]
            missing = [one for one in self._batch if one not in taken]
            if others and len(others) == len(missing):
                self._replaced.update(zip(others, missing, strict=True))

    def _original(self, given: Message) -> Message:
        return self._replaced.get(given, given)

    def _originals(self, given: Any) -> Sequence[Message]:
        return [self._original(one) for one in _listed(given)]


def _listed(given: Any) -> Sequence[Message]:
    return given if isinstance(given, list | tuple) else [given]


def _step(middleware: Callable[[Any, CallNext], Any], call_next: CallNext, run: _Run) -> CallNext:
    return lambda given: middleware(run.whole(given), call_next)


def _close_old_connections(message: Any, call_next: CallNext) -> object:
    """Close database connections that Django would not use again, as it does around a request."""
    from django.db import close_old_connections as close  # noqa: PLC0415 - Django is an extra

    close()
    try:
        return call_next(message)
    finally:
        close()


async def _aclose_old_connections(message: Any, call_next: CallNext) -> object:
    """Close old connections around an `async def` handler, in the thread in which Django runs what is not async."""
    from asgiref.sync import sync_to_async  # noqa: PLC0415 - comes with Django
    from django.db import close_old_connections as close  # noqa: PLC0415 - Django is an extra

    await sync_to_async(close)()
    try:
        return await call_next(message)
    finally:
        await sync_to_async(close)()


#: For Django: closes database connections that are too old or broken, before and after each call of a handler.
close_old_connections: Final = Layer(_close_old_connections, _aclose_old_connections)
