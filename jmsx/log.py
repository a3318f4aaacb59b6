"""
The log lines a person reads: structlog's, written through the standard library's logging under the name `jmsx`.

A library must not choose where its users' logs go: whoever configures `logging` has them, as `event key=value`. The
record has the error itself as `exc_info`, for Sentry and the like, and the fields as `jmsx`, for formatters of JSON.

A handler, filter or formatter that raises costs its line, and nothing else.
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
    Let our lines through that a configuration has turned off.

    `dictConfig` and `fileConfig` turn off all that was imported before them, unless they are told otherwise. A level
    that somebody has set for `jmsx` stays.
    """
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] == "jmsx":
            logging.getLogger(name).disabled = False


#: Frames between who logs and the standard library's logger: a record tells the module and function of the former.
_FRAMES: Final = 6

#: The same without structlog.
_PLAIN_FRAMES: Final = 4


def _structured(standard: logging.Logger) -> Callable[..., object] | None:
    """
    Return what writes `(level, event, **fields)` to the standard library's logger.

    None: structlog cannot be loaded now, as where a process has no file descriptor left, and a link is lost for that.
    """
    try:
        import structlog  # noqa: PLC0415 - 65 ms, which a process that writes no line need not spend
        import structlog.stdlib  # noqa: PLC0415 - where another thread failed half way, it is not whole
    except (ImportError, OSError, AttributeError):
        return None

    render = structlog.processors.KeyValueRenderer(key_order=["event"])

    def as_record(
        logger: Any, method: str, event: MutableMapping[str, Any]
    ) -> tuple[tuple[str], dict[str, Any]]:
        """Return what `logging` is told: the line, the error as such, and the fields."""
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
    """Return what writes the same lines and records without structlog."""

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
    with contextlib.suppress(Exception):  # then nobody is told
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
    """Writes tracebacks with nothing in them that acts on a terminal, and none that is endless."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass."""
        if record.exc_info and record.exc_info[1] is not None and not record.exc_text:
            text = traceback_of(record.exc_info[1]).rstrip()
            record.exc_text = _CONTROL.sub(
                lambda found: repr(found[0])[1:-1], shortened(text, 16_000)
            )
        return True


#: Characters that a terminal would obey, save ends of lines and tabs, and surrogates, which no stream can write.
_CONTROL: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)

_HARMLESS: Final = _Harmless()


class Seldom:
    """A line that could come in floods: one in `seconds` is written, and says how many were left out before it."""

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
