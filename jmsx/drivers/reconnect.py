"""
Reach a broker: one round tries all that the URI names; rounds go on, with growing pauses, until one lets us in.

Source: `FailoverTransport.java`, its names and defaults; as there, the broker that failed last is tried last, and
pauses have no jitter.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import tenacity
from tenacity import Retrying, retry_if_exception

from jmsx import plugins
from jmsx.config.options import ConnectionOptions, ReconnectPolicy
from jmsx.config.uri import BrokerAddress, BrokerUri
from jmsx.core.dialect import Dialect
from jmsx.core.events import ConnectFailed
from jmsx.core.frames import Frame
from jmsx.core.wire import EarlierLinks
from jmsx.drivers.link import Inbox, StompLink, given_up
from jmsx.drivers.machine import Machine
from jmsx.errors import (
    BrokerTimeoutError,
    ConfigurationError,
    ConnectionFailedError,
    InvalidClientIdError,
    JmsxError,
    SecurityError,
    TlsError,
)
from jmsx.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenacity import RetryCallState


#: Failed rounds after which the log says again that we wait.
TELL_EVERY: Final = 10

#: Seconds to wait for another link at most, however many did not last: each may have done some work.
CALM: Final = 5.0

#: Seconds that a broker is given at least, however short the time for the first link is.
LEAST: Final = 0.5

#: Seconds for the first link that are as good as no limit.
NO_HURRY: Final = 86_400.0

#: Seconds that a broker is given to give up a link of ours that has ended, or whose CONNECT it has not answered: who
#: has our client id after that is taken for somebody else.
UNHEARD: Final = 60.0

#: Errors that no second try cures when a session is opened for the first time.
_HOPELESS: Final = (SecurityError, InvalidClientIdError, ConfigurationError, TlsError)

#: The `result` in `ConnectFailed` by the class of the error; others are `refused`.
_RESULTS: Final = {
    SecurityError: "credentials",
    BrokerTimeoutError: "timeout",
    TlsError: "tls",
    ConfigurationError: "settings",
    InvalidClientIdError: "settings",
}

#: One round, and no second.
ONCE: Final = ReconnectPolicy(maximum_attempts=0)

_log = logger("jmsx.connection")


@dataclass(frozen=True, slots=True)
class Connected:
    """A link that has just said CONNECTED."""

    link: StompLink
    frame: Frame
    dialect: Dialect
    seconds: float  #: how long that took

    @property
    def server(self) -> str:
        """The broker's own words for itself."""
        return self.frame.headers.get("server", "")


class Connector:
    """
    Opens the links of one session, one after the other.

    `cancel()` ends it from any thread, for good, also in the middle of an attempt.
    """

    def __init__(
        self, uri: BrokerUri, client_id: str | None, inbox: Inbox, machine: Machine
    ) -> None:
        self.uri = uri
        self.client_id = client_id
        self.inbox = inbox
        self._machine = machine
        self._cancelled = machine.event()
        self._trying: StompLink | None = None
        self._opened: StompLink | None = None  #: the last one
        self._failed: BrokerAddress | None = None  #: the broker whose link was lost
        self._dialect: Dialect | None = None  #: of the first link; the others must have it too
        self._told = EarlierLinks()  #: is passed on from one link to the next
        self._until = math.inf  #: when the first link is to be there (seconds, monotonic)
        #: When a CONNECT was last left without an answer: the broker may have that link (seconds, monotonic)
        self._unheard_at = -math.inf
        self._forget_refusal()
        #: Is told which broker did not let us in, and why.
        self.on_failure: Callable[[BrokerAddress, JmsxError], None] = lambda _address, _error: None

    @property
    def policy(self) -> ReconnectPolicy | None:
        """How a lost link is restored; None: it is not."""
        return self.uri.options.reconnect

    @property
    def cancelled(self) -> bool:
        """Whether there will be no other link."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """End the search for a broker: no further attempt is made."""
        self._cancelled.set()
        trying = self._trying
        if trying is not None:
            trying.drop()

    def abandon(self) -> None:
        """Do as `cancel` does; and close the link that was opened last, which nobody takes."""
        self.cancel()
        opened = self._opened
        if opened is not None:
            opened.drop()

    def first(self, *, patient: bool) -> Connected:
        """
        Return the session's first link; without a reconnect policy, or if not `patient`, there is one round only.

        Raises SecurityError, InvalidClientIdError, TlsError or ConfigurationError at once, and ConnectionFailedError or
        BrokerTimeoutError when the attempts or the time that the policy gives are used up. In the minute after a
        CONNECT without an answer it tries on after an InvalidClientIdError, too: the broker may still have that link.
        """
        policy = (self.policy if patient else None) or ONCE
        seconds = policy.startup_seconds(self.uri.options.request_timeout)
        retrying = self._retrying(policy, policy.startup_attempts, seconds, self._is_hopeless)
        began = self._machine.monotonic()
        self._until = math.inf if policy is ONCE else began + seconds
        try:
            connected = retrying(self.connect)
        finally:
            self._until = math.inf
            self._forget_refusal()
        tried = int(retrying.statistics["attempt_number"])
        if tried > 1:
            waited = round(self._machine.monotonic() - began, 3)
            _log.warning("connected", broker=str(self.uri), after_seconds=waited, attempts=tried)
        else:
            _log.info("connected", broker=str(connected.link.address), server=connected.server)
        return connected

    def restore(self, attempt: Callable[[], None], lost: BrokerAddress, *, flaps: int) -> int:
        """
        Make `attempt()`, which calls `connect`, until it succeeds, for as long as the policy says.

        `lost` is the broker whose link was lost; `flaps` links in a row did not last, which is as if attempts had
        failed, so that pauses go on growing. Without a policy there is one attempt, and others only for as long as the
        broker may have our client id for the link that was lost, `UNHEARD` at most. Returns the number of attempts;
        raises the last JmsxError.
        """
        policy = self.policy or ONCE
        self._failed = lost
        if flaps:
            self._cancelled.wait(min(policy.delay(flaps), max(CALM, policy.delay(1))))
        seconds = UNHEARD if self.policy is None else math.inf
        retrying = self._retrying(
            policy, policy.maximum_attempts, seconds, lambda _error: False, before=flaps
        )
        if self.policy is None:
            once = retrying.stop
            retrying.stop = lambda state: (
                once(state) and (self.cancelled or not self._is_our_own(state))
            )
        try:
            retrying(attempt)
        finally:
            self._forget_refusal()
        return int(retrying.statistics["attempt_number"])

    def connect(self) -> Connected:
        """Make one round; the error tells of every broker that did not let us in."""
        failures: list[JmsxError] = []
        try:
            addresses = self._addresses()
            for place, address in enumerate(addresses):
                try:
                    return self._open(address, self._hurried(len(addresses) - place))
                except JmsxError as error:
                    failures.append(error)
                    self.on_failure(address, error)
            raise _summary(failures)
        finally:
            failures.clear()  # their tracebacks refer to this frame and their links, and would keep both in memory

    def _addresses(self) -> list[BrokerAddress]:
        addresses = list(self.uri.addresses)
        if self.policy is not None and self.policy.randomize:
            random.shuffle(addresses)
        return sorted(addresses, key=lambda address: address == self._failed)

    def _hurried(self, brokers: int) -> ConnectionOptions:
        """Return the options for a link to the first of so many `brokers`, which share the time that is left."""
        options, left = self.uri.options, self._until - self._machine.monotonic()
        if left > NO_HURRY:
            return options
        limit = min(options.connect_timeout or math.inf, max(left / brokers, LEAST))
        return replace(options, connect_timeout=limit)

    def _open(self, address: BrokerAddress, options: ConnectionOptions) -> Connected:
        began = self._machine.monotonic()
        link = self._opened = self._trying = self._machine.link(address, options, self.inbox)
        link.share(self._told)
        try:
            frame, self._dialect = self._greet(link)
        except BaseException:
            if link.unheard:
                self._unheard_at = self._machine.monotonic()
            link.drop()
            raise
        finally:
            self._trying = None
        return Connected(link, frame, self._dialect, self._machine.monotonic() - began)

    def _greet(self, link: StompLink) -> tuple[Frame, Dialect]:
        if self.cancelled:
            raise given_up(link.address)
        frame, before = link.open(self.client_id), self._dialect
        dialect = find_dialect(frame, self.uri.options.dialect, str(link.address))
        if before is not None and dialect.name != before.name:
            raise ConfigurationError(
                f"{link.address} is of another kind ({dialect.name}) than the broker that the session"
                f" began on ({before.name}); name brokers of one kind"
            )
        return frame, dialect

    def _is_hopeless(self, error: JmsxError) -> bool:
        """Return whether no second try cures `error`; a link of ours that is still ending may have the client id."""
        lately = self._machine.monotonic() - self._unheard_at < UNHEARD
        own = lately and isinstance(error, InvalidClientIdError)
        return isinstance(error, _HOPELESS) and not own

    def _is_our_own(self, state: RetryCallState) -> bool:
        """
        Return whether it may be a link of ours that has the client id for which the broker refuses us.

        Classic may close the connection instead of saying so.
        Source: jmsx_classic's BROKER.md, C77.
        """
        error = None if state.outcome is None else state.outcome.exception()
        opened = self._opened
        wordless = (
            self.client_id is not None
            and isinstance(error, ConnectionFailedError)
            and opened is not None
            and opened.unheard
        )
        return (wordless or isinstance(error, InvalidClientIdError)) and _spent(state) < UNHEARD

    def _retrying(
        self,
        policy: ReconnectPolicy,
        attempts: int,
        seconds: float,
        hopeless: Callable[[JmsxError], bool],
        *,
        before: int = 0,
    ) -> Retrying:
        """Return what makes the rounds; `before` is how many have failed already."""
        rounds = tenacity.stop_never if attempts < 0 else tenacity.stop_after_attempt(attempts)
        return Retrying(
            retry=retry_if_exception(
                lambda error: isinstance(error, JmsxError) and not hopeless(error)
            ),
            wait=lambda state: min(
                policy.delay(before + state.attempt_number), max(seconds - _spent(state), 0.0)
            ),
            stop=tenacity.stop_any(
                tenacity.stop_when_event_set(self._cancelled),
                rounds,
                tenacity.stop_after_delay(seconds),
            ),
            sleep=tenacity.sleep_using_event(self._cancelled),
            before_sleep=self._tell,
            reraise=True,
        )

    def _forget_refusal(self) -> None:
        self.refusal = ""  #: why the last attempt failed, while others are made
        self._refused: type[JmsxError] | None = None  #: the class of that error

    def _tell(self, state: RetryCallState) -> None:
        """Log that we wait, once and then from time to time; log at once an error that waiting will hardly cure."""
        error = None if state.outcome is None else state.outcome.exception()
        if not isinstance(error, JmsxError):
            return
        is_new = type(error) is not self._refused and isinstance(error, _HOPELESS)
        self.refusal, self._refused = str(error), type(error)
        if is_new or state.attempt_number % TELL_EVERY == 1:
            _log.warning(
                "waiting for broker",
                broker=str(self.uri),
                attempt=state.attempt_number,
                error=self.refusal,
            )


def failed(error: JmsxError, now: float) -> ConnectFailed:
    """Return the event of an attempt that ended with `error`."""
    result = next((word for cls, word in _RESULTS.items() if isinstance(error, cls)), "refused")
    return ConnectFailed(at=now, result=result, detail=str(error))


def _summary(failures: list[JmsxError]) -> JmsxError:
    """Return one error for those of all brokers: of their class, if all refuse us for the same reason."""
    if len(failures) == 1:
        return failures[0]
    kinds = {type(failure) for failure in failures}
    kind = kinds.pop() if len(kinds) == 1 and kinds.issubset(_HOPELESS) else ConnectionFailedError
    return kind("; ".join(str(failure) for failure in failures))


def _spent(state: RetryCallState) -> float:
    return state.seconds_since_start or 0.0


def find_dialect(connected: Frame, name: str | None, broker: str) -> Dialect:
    """Return the dialect called `name`, or the one that knows CONNECTED's server; raises ConfigurationError."""
    server = connected.headers.get("server", "")
    known = plugins.names("jmsx.dialects")
    for candidate in [name] if name is not None else known:
        dialect: Dialect = plugins.load("jmsx.dialects", candidate)
        if name is not None or dialect.speaks(server):
            return dialect
    raise ConfigurationError(
        f"{broker} calls itself {server!r}, which no dialect knows ({', '.join(known)});"
        " name one with the option dialect= if you are sure"
    )
