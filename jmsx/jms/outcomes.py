"""
What a handler may raise to say what shall become of its message.

Anything else that it raises means: deliver again, by the redelivery policy.
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

#: What is wrong with a BatchError that names nothing of its batch.
NOT_OF_IT: Final = (
    "BatchError(failed=[...]) names messages of the batch that failed, one at least, and it does not; so all of the"
    " batch failed"
)

#: Frames of a traceback that are looked at: a recursion has thousands.
_FRAMES: Final = 100

#: Exceptions of a chain of causes that are told.
_CAUSES: Final = 5

#: Where code lies that is not the application's.
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
    Deliver the message again after `delay`: seconds, a timedelta, or a text such as "2s"; it counts as a delivery.

    None: the policy's; 0 or less: at once. Raises ConfigurationError for what is no delay, and for a reason that is no
    text.
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

    It does not say which of a batch it means, so all of them come again, one by one; to discard some, raise
    `BatchError({message: Discard()})`.
    """


class Duplicate(Steering):
    """
    The message was done before: acknowledge it, and count it as a duplicate.

    With an idempotency store (`dedupe=`) jmsx finds that out by itself.
    """


class BatchError(Exception):
    """
    Some messages of a batch failed, and the others are done.

    Each that failed is delivered again by its own count and the redelivery policy. In a SESSION_TRANSACTED session, and
    with a DatabaseStore, the whole batch is rolled back then: the other messages are handed out again at once, without
    those that failed. They are marked as redelivered, and this counts as no failure of theirs.

    Args:
        failed: the messages; or a mapping of them to what each of them failed with, which may be Retry, Reject or
            Discard too. Without a mapping that is the cause of this error, or this error itself.
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
        """Return what one of the messages failed with."""
        cause = self if self.__cause__ is None else self.__cause__
        return self._own.get(message, cause)


class Again(Steering):
    """jmsx's own: deliver again by a policy for this kind of error, which is the cause."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy


class Unhandled(Steering):
    """jmsx's own: nobody could handle the message, and it is not to blame: it waits in front again, uncounted."""


class Undone(Unhandled):
    """jmsx's own: what a handler did with the message is undone with others that failed: it waits again, flagged."""


def failure_of(error: BaseException) -> Failure:
    """
    Return the failure that `error` stands for; the cause of a steering exception is told in its place.

    Never raises, whatever an exception of the application's makes of its attributes: a failure it is all the same.
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
    _check_delay(delay)  # it may have been changed
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
    """Return the error to report for `error`: the cause of a steering exception, if it has one, else itself."""
    cause = cause_of(error) if steers(error) else None
    return error if cause is None else cause


def place_of(error: BaseException) -> str | None:
    """
    Return file and line where `error` was raised, in the innermost frame of the application's own code.

    In the innermost frame of all where none is; None: it was never raised.
    """
    try:
        frames = _frames(error)
        own = [frame for frame in frames if not frame.file.startswith(_LIBRARIES)]
        return (own or frames)[-1].told(_folders())
    except Exception:  # noqa: BLE001 - no frame, no folder: that a place is not known is no failure
        return None


def trace_of(error: BaseException) -> str:
    """
    Return the way to `error` and to what caused it, in one line, without what any of them says: that may be of a
    person.

    `a.py:3 call > b.py:9 find: KeyError | a.py:5 call: ValueError`: frames from the outermost to the innermost, what
    was raised there, and what was raised because of that; the nearest of both, and the last `STACK_LIMIT` bytes.
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
