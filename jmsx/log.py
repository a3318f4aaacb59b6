"""
The log lines a person reads: structlog's, written through the standard library's logging under the name `jmsx`.

A library must not choose where its users' logs go: the application's `logging` configuration does. A line reads `event
key=value`. Its record has the exception as `exc_info`, for Sentry and the like, and the fields as `jmsx`, for JSON
formatters.

If a handler, filter or formatter raises, that line is lost, and nothing else.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
import sys
from typing import TYPE_CHECKING, Any, Final

from jmsx.errors import exc_info_of, from_a_signal, traceback_of

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping


class Logger:
    """A structlog logger over `logging.getLogger(name)`; structlog is loaded for the first line that is written."""

    def __init__(self, name: str) -> None:
        self._standard = logging.getLogger(name)
        if _HARMLESS not in self._standard.filters:
            self._standard.addFilter(_HARMLESS)
        self._log: Callable[..., object] | None = None

    def debug(self, event: str, **fields: object) -> None:
        """Write a line for those who look for a fault."""
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        """Write a line about something that went as it should."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Write a line about something that somebody may have to look at."""
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Write a line about something that somebody has to look at."""
        self._write(logging.ERROR, event, fields)

    def _write(self, level: int, event: str, fields: dict[str, object]) -> None:
        """Never raises: whoever logs has something else to do that must be done."""
        try:
            if self._standard.isEnabledFor(level):
                self._log = self._log or _structured(self._standard)
                (self._log or _plain(self._standard))(level, event, **fields)
        except BaseException as error:
            if from_a_signal(error):
                raise
            _tell_on_stderr(event, error)


def logger(name: str) -> Logger:
    """Return the logger of a module; `name` begins with `jmsx`."""
    return Logger(name)


def hear_again() -> None:
    """
    Enable jmsx's loggers again after a logging configuration has disabled them.

    `dictConfig` and `fileConfig` disable all loggers that exist already, unless they are told otherwise. A level that
    somebody has set for `jmsx` stays.
    """
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] == "jmsx":
            logging.getLogger(name).disabled = False


#: Stack frames between the caller and the standard library's logger, so that a record names the caller's function.
_FRAMES: Final = 6

#: The same without structlog.
_PLAIN_FRAMES: Final = 4


def _structured(standard: logging.Logger) -> Callable[..., object] | None:
    """
    Return a function `(level, event, **fields)` that writes to the standard library's logger through structlog.

    None: structlog cannot be imported now, for example because the process has no file descriptor left. Links are lost
    for that, too, and it must be logged.
    """
    try:
        import structlog  # noqa: PLC0415 - 65 ms, which a process that writes no line need not spend
        import structlog.stdlib  # noqa: PLC0415 - incomplete, if another thread's import of it failed
    except (ImportError, OSError, AttributeError):
        return None

    render = structlog.processors.KeyValueRenderer(key_order=["event"])

    def as_record(
        logger: Any, method: str, event: MutableMapping[str, Any]
    ) -> tuple[tuple[str], dict[str, Any]]:
        """Return the arguments for `logging`: the line, the exception and the fields."""
        exc_info = event.pop("exc_info", None)
        if isinstance(exc_info, BaseException):
            exc_info = exc_info_of(exc_info)
        fields = {name: value for name, value in event.items() if value is not None}
        more = {"exc_info": exc_info} if exc_info else {}
        more |= {"extra": {"jmsx": fields}, "stacklevel": _FRAMES}
        return (str(render(logger, method, dict(fields))),), more

    bound = structlog.wrap_logger(
        standard, processors=[as_record], wrapper_class=structlog.stdlib.BoundLogger
    )
    log: Callable[..., object] = bound.log
    return log


def _plain(standard: logging.Logger) -> Callable[..., object]:
    """Return a function that writes the same lines and records without structlog."""

    def log(level: int, event: str, exc_info: object = None, **more: object) -> None:
        fields = {"event": event, **{name: one for name, one in more.items() if one is not None}}
        line = " ".join(f"{name}={one!r}" for name, one in fields.items())
        told = exc_info_of(exc_info) if isinstance(exc_info, BaseException) else None
        standard.log(level, line, exc_info=told, extra={"jmsx": fields}, stacklevel=_PLAIN_FRAMES)

    return log


def _tell_on_stderr(event: str | None, error: BaseException) -> None:
    """Print the traceback of a handler that failed, as the standard library's handlers do."""
    if not logging.raiseExceptions:
        return
    with contextlib.suppress(Exception):  # stderr may fail, too
        sys.stderr.write(f"a log handler failed at {event!r}: {traceback_of(error)}")


def shortened(text: str, most: int = 1000) -> str:
    """Return `text`, or its beginning and its end if it is longer than `most` characters."""
    if len(text) <= most:
        return text
    left_out = len(text) - most
    return f"{text[: most // 2]}... {left_out} characters ...{text[-(most // 2) :]}"


def counted(number: int, thing: str) -> str:
    """Word a number of things: "1 message", "2,000 messages", "0 deliveries", "2 processes"."""
    if number == 1:
        return f"1 {thing}"
    stem, end = (thing[:-1], "ies") if thing.endswith("y") else (thing, "s")
    return f"{number:,} {stem}{'es' if stem.endswith('s') else end}"


class _Harmless(logging.Filter):
    """Escapes characters in tracebacks that a terminal would act on, and shortens long ones."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass."""
        if record.exc_info and record.exc_info[1] is not None and not record.exc_text:
            text = traceback_of(record.exc_info[1]).rstrip()
            record.exc_text = _CONTROL.sub(
                lambda found: repr(found[0])[1:-1], shortened(text, 16_000)
            )
        return True


#: Characters that a terminal would act on, except line feeds and tabs; and surrogates, which no stream can encode.
_CONTROL: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)

_HARMLESS: Final = _Harmless()


class Seldom:
    """Limits a log line that could come in floods to one in `seconds`, which says how many were left out before it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next = -math.inf
        self._left_out = 0

    def due(self, now: float) -> int | None:
        """Return how many lines were left out since the last one; None: leave this one out, too (`now`: monotonic)."""
        if now < self._next:
            self._left_out += 1
            return None
        self._next = now + self._seconds
        left_out, self._left_out = self._left_out, 0
        return left_out
