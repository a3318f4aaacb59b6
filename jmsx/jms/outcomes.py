"""
The exceptions by which a handler says what becomes of its message.

If a handler raises any other exception, its message is delivered again by the redelivery policy.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from jmsx.core.death_headers import STACK_LIMIT, cut
from jmsx.core.durations import Duration, as_number
from jmsx.core.option_checks import LARGEST, check_number
from jmsx.core.policy import Policy
from jmsx.core.values import Disposition, Failure
from jmsx.errors import (
    ConfigurationError,
    cause_of,
    class_of,
    context_of,
    exc_info_of,
    from_a_signal,
    text_of,
    traceback_of,
)
from jmsx.jms.message import Message
from jmsx.log import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The error's text if a BatchError names no message of its batch.
NOT_OF_IT: Final = (
    "BatchError(failed=[...]) names messages of the batch that failed, one at least, and it does not; so all of the"
    " batch failed"
)

#: How many frames of a traceback are looked at, for a recursion may have thousands.
_FRAMES: Final = 100

#: How many exceptions of a chain of causes are reported.
_CAUSES: Final = 5

#: Prefixes of the files whose code is not the application's.
_LIBRARIES: Final = tuple(
    {
        "<frozen",
        f"{Path(__file__).parent}{os.sep}",
        *(
            f"{folder}{os.sep}"
            for name, folder in sysconfig.get_paths().items()
            if name in ("stdlib", "platstdlib", "purelib", "platlib")
        ),
    }
)


class Steering(Exception):  # noqa: N818 - these are instructions, not errors
    """The base class of what a handler raises to say what becomes of its message."""


class Retry(Steering):
    """
    Deliver the message again after `delay`: seconds, a timedelta, or a text such as "2s".

    None: the delay of the redelivery policy; 0 or less: at once. The redelivery counts as one of those that the policy
    allows. Raises ConfigurationError if `delay` is no delay, or `reason` is no text.
    """

    def __init__(self, reason: str = "", *, delay: Duration | None = None) -> None:
        if not isinstance(reason, str):
            raise ConfigurationError(
                f"Retry takes a reason in words; write Retry(delay={reason!r})"
            )
        super().__init__(reason)
        seconds = as_number("delay of Retry", delay)
        _check_delay(seconds)
        self.delay: float | None = seconds


class Reject(Steering):
    """The message can never be handled: it becomes a dead letter at once, without redelivery."""


class Discard(Steering):
    """
    The message is not worth keeping: acknowledge it, and count it as discarded.

    If the handler of a batch raises it, it does not say which message it means, so all of them are delivered again, one
    by one; to discard some of them, raise `BatchError({message: Discard()})`.
    """


class Duplicate(Steering):
    """
    The message was handled before: acknowledge it, and count it as a duplicate.

    With an idempotency store (`dedupe=`) jmsx detects duplicates by itself.
    """


class BatchError(Exception):
    """
    Some messages of a batch failed, and the others are done.

    Each failed message is delivered again by the redelivery policy and its own delivery count. In a SESSION_TRANSACTED
    session, and with a DatabaseStore, the whole batch is rolled back: the other messages are handed out again at once,
    without the failed ones. They are marked as redelivered, but the rollback does not count as a failure of theirs.

    Args:
        failed: the failed messages; or a mapping of each of them to its exception, which may be a Retry, Reject or
            Discard, too. Without a mapping each failed with the cause of this error, or with this error itself.
        reason: in words.

    Raises ConfigurationError if `failed` is neither, or empty.

    """

    def __init__(
        self, failed: Iterable[Message] | Mapping[Message, BaseException], reason: str = ""
    ) -> None:
        own: dict[Message, BaseException] = {}
        if isinstance(failed, Mapping):
            own = dict(failed)
        named = list(own or (failed if isinstance(failed, Iterable) else ()))
        fit = named and all(isinstance(one, Message) for one in named)
        if not fit or not all(isinstance(one, BaseException) for one in own.values()):
            raise ConfigurationError(NOT_OF_IT)
        super().__init__(reason or f"{counted(len(named), 'message')} of the batch failed")
        self.failed: tuple[Message, ...] = tuple(named)
        self._own = own

    def error_of(self, message: Message) -> BaseException:
        """Return the exception with which `message` failed."""
        cause = self if self.__cause__ is None else self.__cause__
        return self._own.get(message, cause)


class Again(Steering):
    """Raised by jmsx only: deliver again by the policy for errors such as this exception's cause."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy


class Unhandled(Steering):
    """Raised by jmsx only: the message was not handled, which is no failure, and is the next to be handed out again."""


class Undone(Unhandled):
    """Raised by jmsx only: the message was rolled back because others failed; it is handed out again as redelivered."""


def failure_of(error: BaseException) -> Failure:
    """
    Return the failure that `error` stands for; of a Steering exception with a cause, the cause is reported.

    Never raises, even if reading an attribute of the application's exception raises: that is a failure all the same.
    """
    try:
        return _failure(error)
    except BaseException as another:
        if from_a_signal(another):
            raise
        return Failure(error_type=class_of(error), error_message=text_of(error))


def _failure(error: BaseException) -> Failure:
    if isinstance(error, Duplicate):
        return Failure(disposition=Disposition.DUPLICATE)
    if isinstance(error, Undone):
        return Failure(disposition=Disposition.UNDO)
    if isinstance(error, Unhandled):
        return Failure(disposition=Disposition.RELEASE)
    disposition = Disposition.REDELIVER
    if isinstance(error, Discard):
        disposition = Disposition.DISCARD
    elif isinstance(error, Reject):
        disposition = Disposition.REJECT
    delay = error.delay if isinstance(error, Retry) else None
    _check_delay(delay)  # the attribute may have been changed since the Retry was made
    told = told_by(error)
    return Failure(
        error_type=class_of(told),
        error_message=text_of(told),
        stack=traceback_of(told),
        trace=trace_of(told),
        disposition=disposition,
        delay=delay,
        place=place_of(told),
        policy=error.policy if isinstance(error, Again) else None,
    )


def _check_delay(delay: object) -> None:
    """Raise ConfigurationError for a delay that is no number: it would end the session that has to wait for it."""
    if delay is not None:
        check_number("delay of Retry", delay, -LARGEST, " of seconds")


def steers(error: BaseException) -> bool:
    """Return whether `error` is a Steering; isinstance() would look at its `__class__`, which may raise."""
    return issubclass(type(error), Steering)


def told_by(error: BaseException) -> BaseException:
    """Return the error to report: the cause of `error` if that is a Steering exception with a cause, else `error`."""
    cause = cause_of(error) if steers(error) else None
    return error if cause is None else cause


def place_of(error: BaseException) -> str | None:
    """
    Return file and line of the innermost traceback frame of `error` that is in the application's own code.

    If no frame is in it, the innermost of all is taken. None: the error was never raised.
    """
    try:
        frames = _frames(error)
        own = [frame for frame in frames if not frame.file.startswith(_LIBRARIES)]
        return (own or frames)[-1].told(_folders())
    except Exception:  # noqa: BLE001 - no frame, no folder: an unknown place is no failure
        return None


def trace_of(error: BaseException) -> str:
    """
    Return the tracebacks of `error` and its causes in one line, without the errors' texts: these may be personal data.

    An example is `a.py:3 call > b.py:9 find: KeyError | a.py:5 call: ValueError`: first the cause, then the error that
    it led to, each with its frames from the outermost to the innermost. Only the nearest frames and causes are given,
    and of the line only the last `STACK_LIMIT` bytes.
    """
    told: list[str] = []
    one: BaseException | None = error
    try:
        folders = _folders()
        while one is not None and len(told) < _CAUSES:
            way = " > ".join(f"{frame.told(folders)} {frame.function}" for frame in _frames(one))
            told.insert(0, f"{way}: {class_of(one)}" if way else class_of(one))
            one = cause_of(one) or context_of(one)
    except Exception:  # noqa: BLE001 - a trace that cannot be made is no failure
        told = told or [class_of(error)]
    return cut(" | ".join(told), STACK_LIMIT, keep_end=True)


class _Frame(NamedTuple):
    """Where a call was when an exception came through it."""

    file: str
    line: int
    function: str

    def told(self, folders: Sequence[str]) -> str:
        """Return file and line, as a person knows them: from the folder that the file is imported from."""
        fitting = [folder for folder in folders if self.file.startswith(folder)]
        file = self.file.removeprefix(max(fitting, key=len)) if fitting else self.file
        return f"{file}:{self.line}"


def _frames(error: BaseException) -> list[_Frame]:
    """Return the innermost frames that it came through, that where it was raised last."""
    trace = exc_info_of(error)[2]
    walked = deque(traceback.walk_tb(trace), maxlen=_FRAMES)
    return [_Frame(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in walked]


def _folders() -> list[str]:
    """Return what modules are imported from."""
    return [f"{one.rstrip(os.sep)}{os.sep}" for one in (*sys.path, str(Path.cwd())) if one]
