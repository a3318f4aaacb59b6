"""What log handlers, observers and exceptions raise goes no further; what a signal handler raises does."""

from __future__ import annotations

import logging
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from jmsx.core.events import Event, LinkClosed, Source
from jmsx.core.values import Disposition, Failure
from jmsx.jms.outcomes import Reject, failure_of, told_by
from jmsx.log import logger
from jmsx.observe import Observers
from tests.hiding import HidingError, NamelessError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOURCE = Source("localhost", "classic", "c", "s", 1)
EVENT = LinkClosed(at=0.0, reason="io", detail="")


class Alarm(Exception):  # noqa: N818 - as a program would call it
    """What a signal handler raises."""


@pytest.fixture
def alarm() -> Iterator[Callable[[], None]]:
    """Raises Alarm as a signal handler, in the middle of whatever calls it."""

    def fire(*_: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, fire)
    yield lambda: signal.raise_signal(signal.SIGALRM)
    signal.signal(signal.SIGALRM, before)


class Watcher:
    """An observer that does something for each event."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act

    def observe(self, event: Event, source: Source) -> None:  # noqa: ARG002 - it needs neither
        """Act."""
        self.act()

    def close(self) -> None:
        """Act."""
        self.act()


class RaisingHandler(logging.Handler):
    """Has no room for any line."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002 - nothing is written
        """Raise."""
        raise self.error


def raising(error: BaseException) -> Callable[[], None]:
    """Raises `error` when called."""

    def act() -> None:
        raise error

    return act


def raised(error: BaseException, cause: BaseException | None = None) -> Failure:
    """The failure of `error` as it is caught."""
    try:
        raise error from cause
    except type(error) as caught:
        return failure_of(caught)


@pytest.mark.parametrize("kind", [ValueError, SystemExit, BaseException, HidingError])
def test_an_observer_that_raises(
    caplog: pytest.LogCaptureFixture, kind: type[BaseException]
) -> None:
    """It is logged once, and the next one is told."""
    told: list[int] = []
    observers = Observers([Watcher(raising(kind("why"))), Watcher(lambda: told.append(1))])
    observers.observe(EVENT, SOURCE)
    observers.observe(EVENT, SOURCE)
    observers.close()
    assert told == [1, 1, 1]
    assert [record.msg for record in caplog.records] == [
        "event='observer failed' observer='Watcher' error='why'"
    ]


def test_an_exception_of_a_class_without_a_name() -> None:
    """A failure as any other: in a transaction one that nobody could tell was committed with the next message."""
    failure = None
    with suppress(ValueError):  # which would tell of the other one, and pytest could not print that
        failure = raised(NamelessError())
    assert failure is not None
    assert (failure.error_type, failure.disposition) == ("NamelessError", Disposition.REDELIVER)
    assert failure.error_message == "<NamelessError that cannot be printed>"
    assert "test_foreign_errors.py" in (failure.stack or "")
    assert (failure.trace or "").endswith("raised: NamelessError")


def test_an_alarm_inside_an_observer(alarm: Callable[[], None]) -> None:
    """It is the application's: it asked for it, and waits for it."""
    observers = Observers([Watcher(alarm)])
    with pytest.raises(Alarm):
        observers.observe(EVENT, SOURCE)
    with pytest.raises(Alarm):
        observers.close()


def test_ctrl_c_inside_an_observer() -> None:
    """As Python's own handler raises it."""
    with pytest.raises(KeyboardInterrupt):
        Observers([Watcher(lambda: signal.raise_signal(signal.SIGINT))]).observe(EVENT, SOURCE)


@pytest.mark.parametrize("kind", [ValueError, SystemExit, HidingError])
def test_a_log_handler_that_raises(
    capsys: pytest.CaptureFixture[str], kind: type[BaseException]
) -> None:
    """Its line is lost, whoever logs goes on, and stderr tells it."""
    error = kind("why")
    handler, standard = RaisingHandler(error), logging.getLogger("jmsx.test.raising")
    standard.addHandler(handler)
    try:
        logger("jmsx.test.raising").error("a line", exc_info=error)
    finally:
        standard.removeHandler(handler)
    told = capsys.readouterr().err
    assert "a log handler failed at 'a line'" in told
    assert kind.__name__ in told


def test_an_alarm_inside_a_log_handler(alarm: Callable[[], None]) -> None:
    """The line may be lost, the alarm is not."""
    standard = logging.getLogger("jmsx.test.alarm")
    handler = RaisingHandler(ValueError("never"))
    handler.emit = lambda record: alarm()  # type: ignore[method-assign]  # noqa: ARG005 - as emit is called
    standard.addHandler(handler)
    try:
        with pytest.raises(Alarm):
            logger("jmsx.test.alarm").error("a line")
    finally:
        standard.removeHandler(handler)


def test_exceptions_that_hide() -> None:
    """A failure all the same, with what can be told."""
    error = HidingError("why")
    failure = failure_of(error)
    assert told_by(error) is error
    assert (failure.error_type, failure.disposition) == ("HidingError", Disposition.REDELIVER)
    assert failure.error_message == "why"


def test_exceptions_that_python_cannot_print() -> None:
    """Python's own module fails at it: type, words and place are told."""
    odd = SyntaxError("x", ("f", "abc", "def", "t"))  # type: ignore[arg-type]  # Python's traceback module fails at such a line number
    failure = raised(odd)
    assert failure.error_type == "SyntaxError"
    assert failure.stack is not None
    assert "raise error from cause" in failure.stack
    assert failure.place is not None
    assert failure.place.startswith("tests/unit/test_foreign_errors.py:")


def test_the_cause_of_a_reject_that_hides() -> None:
    """It is told in its place, and the instruction is obeyed."""
    failure = raised(Reject(), HidingError("why"))
    assert (failure.error_type, failure.disposition) == ("HidingError", Disposition.REJECT)


def test_a_line_about_an_exception_that_hides(caplog: pytest.LogCaptureFixture) -> None:
    """It is written."""
    logger("jmsx.test").error("failed", exc_info=HidingError("why"))
    assert [record.message for record in caplog.records] == ["event='failed'"]
    assert "HidingError: why" in caplog.text
