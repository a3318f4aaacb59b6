"""Observers are objects that are told each event; one that fails never disturbs delivery."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from jmsx.core.events import Event, Source
from jmsx.core.option_checks import offers, wrong_type
from jmsx.errors import ConfigurationError, from_a_signal, text_of
from jmsx.log import logger

_log = logger("jmsx.observe")


@runtime_checkable
class Observer(Protocol):
    """
    An object that is told each event, in order for each session.

    It is called from several threads, so it must be thread-safe, and in an app with `async def` handlers on the event
    loop, too.

    An observer may have three more attributes. `keeps_counts`: if true, an `App` asks the broker for its counts, and
    reports them (`QueueCounted`). `note_paused(destination, consumer, *, paused)` is called when a CircuitBreaker opens
    and closes. `follows_ends`: if it is false for all observers, `MessagesAcknowledged` and `DeliveryEnded` are not
    reported, except after a refused dead letter or an unreadable frame.
    """

    def observe(self, event: Event, source: Source) -> None:
        """Take note of `event`; return fast, never block."""

    def close(self) -> None:
        """Flush and release; called once, after the last event, and again if Ctrl-C interrupts it."""


def checked(observers: object) -> tuple[Observer, ...]:
    """Return `observers` as a tuple; raises ConfigurationError now, not at the first event, if one cannot observe."""
    wanted = "with methods observe(event, source) and close()"
    if isinstance(observers, str) or not isinstance(observers, Iterable):
        raise wrong_type("observers", f"a list of objects {wanted}", observers)
    given = tuple(observers)
    for one in given:
        if isinstance(one, type):
            raise ConfigurationError(
                f"observer {one.__name__} is a class; write {one.__name__}(...)"
            )
        if not offers(one, Observer):
            raise wrong_type("an observer", f"an object {wanted}", one)
    return given


class Observers:
    """Tells all observers each event; if one raises, that is logged, once for each class of error."""

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._observers = checked(observers)
        self._failures: set[tuple[int, type[BaseException]]] = set()

    def __len__(self) -> int:
        return len(self._observers)

    @property
    def follow_ends(self) -> bool:
        """Whether any observer is to be told how each single message was acknowledged and ended."""
        return any(getattr(one, "follows_ends", True) for one in self._observers)

    def observe(self, event: Event, source: Source) -> None:
        """Tell every observer; whatever one raises, SystemExit too, is logged and goes no further."""
        for observer in self._observers:
            try:
                observer.observe(event, source)
            except BaseException as error:
                if from_a_signal(error):  # such as Ctrl-C, which is meant for the application
                    raise
                self._note_failure(observer, error)

    def close(self) -> None:
        """Close every observer, also when one fails."""
        for observer in self._observers:
            try:
                observer.close()
            except BaseException as error:
                if from_a_signal(error):
                    raise
                self._note_failure(observer, error)

    def _note_failure(self, observer: Observer, error: BaseException) -> None:
        key = (id(observer), type(error))
        if key not in self._failures:
            self._failures.add(key)
            _log.error(
                "observer failed",
                observer=type(observer).__name__,
                error=text_of(error),
                exc_info=error,
            )
