"""
A session's whole conversation, from both sides: what it writes and what it reports, in order.

A frame is told in short: `ACK a`, `ACK a in jmsx`, `SEND queue:x 'body'`; a question mark says that it asks for a
receipt. Messages are called by one name, which is their id and their ack id.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from jmsx.core.events import (
    DeliveryEnded,
    Event,
    MessageDeadLettered,
    MessageSent,
    TransactionEnded,
)
from jmsx.core.frames import Disconnect, Frame, MessageFrame, Record, Refused, Transmit
from jmsx.core.headers import COUNT_HEADER, KEY_HEADER
from jmsx.core.identity import stamp
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.policy import RedeliveryPolicy, no_jitter
from jmsx.core.process_memory import ProcessMemory
from jmsx.core.session import SessionCore
from jmsx.core.values import (
    NO_FAILURE,
    ConsumerSettings,
    DeadLetterStrategy,
    DestinationKind,
    Disposition,
    Failure,
    SessionSettings,
    StompAck,
)
from jmsx.errors import ConnectionFailedError, LinkError, ProtocolError, TlsError
from jmsx_classic import dialect as classic
from jmsx_classic.copies import ClassicCopying
from jmsx_classic.reading import ClassicReading
from tests.unit.core import plain
from tests.unit.core.plain import PlainBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jmsx.core.delivery import Delivery
    from jmsx.core.dialect import Dialect
    from jmsx.core.requests import Request

AUTO = AcknowledgeMode.AUTO_ACKNOWLEDGE
CLIENT = AcknowledgeMode.CLIENT_ACKNOWLEDGE
DUPS_OK = AcknowledgeMode.DUPS_OK_ACKNOWLEDGE
INDIVIDUAL = AcknowledgeMode.INDIVIDUAL_ACKNOWLEDGE
TRANSACTED = AcknowledgeMode.SESSION_TRANSACTED

#: What is told of a link that is gone; none of them says what the broker has done.
LINK_ERRORS: tuple[type[LinkError], ...] = (ConnectionFailedError, TlsError, ProtocolError)

#: The time of day at `now` = 0, in epoch seconds.
WALL = 1_000_000.0

#: More messages than any test has: whoever hands out so many does not end.
ENDLESS = 10_000

#: Redelivers at once, for ever: for tests that are about something else.
AT_ONCE = RedeliveryPolicy(maximum_redeliveries=-1, initial_redelivery_delay=0, redelivery_delay=0)

#: Headers of a message that failed once and was sent back for later: what else the broker says is no count.
FAILED_ONCE: dict[str, Any] = {"redelivered": "true", "key": "k", "jmsx_redelivery_count": "1"}

BROKEN = Failure("ValueError", "no such order", "Traceback: ValueError: no such order")
REJECTED = Failure("Reject", "never", "stack", Disposition.REJECT)
DISCARDED = Failure("Discard", "stale", "stack", Disposition.DISCARD)
DUPLICATE = Failure(disposition=Disposition.DUPLICATE)


def at_most(redeliveries: int, **fields: Any) -> RedeliveryPolicy:
    """A policy that redelivers at once, so many times."""
    given = {"initial_redelivery_delay": 0, "redelivery_delay": 0, **fields}
    return RedeliveryPolicy(maximum_redeliveries=redeliveries, **given)


class OfJmsx(PlainBroker):
    """All messages come from jmsx, whatever they are called; those called `java` do not."""

    def genuine(self, delivery: Delivery) -> bool:
        """By its name."""
        return not delivery.headers.get("message-id", "").startswith("java")


class ByNack(PlainBroker):
    """NACK makes a dead letter of a persistent message, and deletes others; copies may be for later."""

    def dead_lettered_by_broker(
        self, delivery: Delivery, kind: DestinationKind, *, asked: bool = False
    ) -> bool:
        """As on Classic; not where its headers may be its sender's."""
        persistent = delivery.headers.get("persistent") == "true"
        vouched = asked or DIALECT.reading.genuine(delivery)
        return vouched and persistent and kind is not DestinationKind.TOPIC

    def scheduled_copy(
        self, delivery: Delivery, settings: ConsumerSettings, key: str, delay: float
    ) -> Frame:
        """As RabbitMQ's delayed exchange has it."""
        told = {KEY_HEADER: key, COUNT_HEADER: str(delivery.failures)}
        told["x-delay"] = f"{delay * 1000:.0f}"
        return self.copy(delivery, settings.destination, **told)


#: A plain broker that flags what comes again, has dead letters of its own, can delay, and goes on after an ERROR.
DIALECT = replace(
    plain.DIALECT,
    dead_letter_queue="queue://ActiveMQ.DLQ",
    reading=OfJmsx(),
    copying=ByNack(),
    delay_header="x-delay",
    nack_dead_letters=True,
    flags_redelivery=True,
    errors_close=False,
)


class OfStomp(ClassicReading):
    """Classic, whose messages come from jmsx likewise."""

    def genuine(self, delivery: Delivery) -> bool:
        """By its name."""
        return OfJmsx().genuine(delivery)


#: The frames that ask Classic whether it has room for a dead letter (BROKER.md C76).
ASKS_FOR_ROOM = [
    "BEGIN in jmsx-room",
    "SEND queue:ActiveMQ.DLQ '' in jmsx-room ?",
    "ABORT in jmsx-room",
]

#: For what plain STOMP has not: selectors, browsers, windows, several kinds of refusals.
CLASSIC = replace(
    classic.DIALECT,
    reading=OfStomp(),
    copying=ClassicCopying(classic.DIALECT.writing, OfStomp()),
)


class Talk:
    """
    One session, its application and its broker.

    `now` is the time of every call (seconds, monotonic) until the test says another.
    """

    def __init__(
        self,
        mode: AcknowledgeMode,
        *,
        now: float = 0.0,
        draw: Callable[[], float] = no_jitter,
        single: bool = False,
        dialect: Dialect = DIALECT,
        memory: ProcessMemory | None = None,
        dead_letter: str = DeadLetterStrategy.SAFE,
        **settings: Any,
    ) -> None:
        self.mode = mode
        self.dead_letter = dead_letter  #: of every consumer
        #: Each message has an ACK of its own, also where the mode does not ask for it
        self.single = single
        self.now = now
        self.events: list[Event] = []
        self.refusals: list[Refused] = []  #: what the exception listener is told
        self.frames: list[Frame] = []  #: all that was written
        self.bursts: list[list[str]] = []  #: what was written together
        self._unread: list[str] = []
        self._asked: deque[str] = deque()  #: receipt ids, oldest first
        self.answers_nacks = True  #: the broker answers each NACK at once
        self._nacked: list[str] = []  #: receipt ids of NACKs
        self._ids = count(1)
        self.core = SessionCore(
            SessionSettings(mode=mode, broker="broker:61613", session_id="s", **settings),
            dialect,
            draw,
            ProcessMemory() if memory is None else memory,
        )
        self.core.link_opened("ActiveMQ/6.1.8", 0.01, now)
        self.wrote()

    # What the session did --------------------------------------------------------------------------------------------

    def wrote(self) -> list[str]:
        """The frames written since the last look; `DROP` is a link that it gave up."""
        self._perform()
        while self.answers_nacks and self._nacked:
            nacked, self._nacked = self._nacked, []
            answers = [Frame("RECEIPT", {"receipt-id": one}) for one in nacked]
            self.core.receive(answers, self.now, WALL + self.now)
            self._perform()
        unread, self._unread = self._unread, []
        return unread

    def _perform(self) -> None:
        for action in self.core.take_actions():
            if isinstance(action, Transmit):
                self.frames += action.frames
                burst = [self._gist(frame) for frame in action.frames]
                self.bursts.append(burst)
                self._unread += burst
            elif isinstance(action, Disconnect):
                self._unread.append("DROP")
            elif isinstance(action, Record):
                self.recorded(action)
            elif isinstance(action, Refused):
                self.refusals.append(action)
            else:
                self.events.append(action)

    def recorded(self, told: Record) -> None:
        """What a ledger is told; here is none."""

    def reported(self, kind: type[Any]) -> list[Any]:
        """All events of a kind so far."""
        self._unread = self.wrote()
        return [event for event in self.events if isinstance(event, kind)]

    def ended(self) -> list[str]:
        """How each delivery ended, such as `a#1 acknowledged`, oldest first."""
        return [
            f"{event.message_id}#{event.attempt} {event.outcome}"
            for event in self.reported(DeliveryEnded)
        ]

    # The broker ------------------------------------------------------------------------------------------------------

    def comes(self, *names: str, to: str = "1", wall: float | None = None, **headers: str) -> None:
        """The broker sends messages, persistent ones unless told otherwise, as one chunk."""
        wall = WALL + self.now if wall is None else wall
        frames = [self.message(name, to, **headers) for name in names]
        self.core.receive(frames, self.now, wall)

    @staticmethod
    def message(name: str, to: str = "1", *, key: str = "", **headers: str) -> MessageFrame:
        """A MESSAGE, with the name for a body unless told otherwise; with a `key`, jmsx has sent it to its queue."""
        given = {
            "destination": "/queue/q",
            "persistent": "true",
            "message-id": name,
            "ack": name,
            "subscription": to,
            "timestamp": "1700000000000",
        }
        given.update(
            {key.replace("correlation_", "correlation-"): text for key, text in headers.items()}
        )
        body = given.pop("body", name).encode()
        given = {name: value for name, value in given.items() if value}
        if key:
            given = stamp(given, body, key, "queue://q", DIALECT.reading)
        return MessageFrame.of(given, body)

    def answer(self) -> None:
        """The broker confirms the oldest question that is open."""
        self._unread = self.wrote()
        receipt = {"receipt-id": self._asked.popleft()}
        self.core.receive([Frame("RECEIPT", receipt)], self.now, WALL + self.now)

    def refuse(self, text: str = "ProtocolException: refused by the test") -> None:
        """The broker answers the oldest question that is open with ERROR."""
        self._unread = self.wrote()
        self.complain(text, **{"receipt-id": self._asked.popleft()})

    def refuse_nack(self) -> None:
        """The broker answers the oldest NACK with ERROR."""
        self.complain("refused by the test", **{"receipt-id": self._nacked.pop(0)})

    def complain(self, text: str, **headers: str) -> None:
        """The broker says ERROR to whatever."""
        error = Frame("ERROR", {"message": text, **headers})
        self.core.receive([error], self.now, WALL + self.now)

    def cut(self) -> None:
        """The link is lost."""
        self._unread = self.wrote()
        self._asked.clear()
        self._nacked.clear()
        self.core.link_closed("io", "reset by peer", self.now)

    def unanswered(self, kind: type[LinkError]) -> None:
        """Every question that is open ends with an error of that kind."""
        self._unread = self.wrote()
        self._asked.clear()
        self.core._requests.fail_all(self.now, lambda request: kind(f"at {request.command}"))

    def reopen(self) -> None:
        """A new link is up, and the broker confirms every consumer that is still open."""
        requests = self.core.link_opened("ActiveMQ/6.1.8", 0.01, self.now)
        self._unread = [frame for frame in self.wrote() if not frame.startswith("SUBSCRIBE")]
        for _ in requests:
            self.answer()

    def lose(self) -> None:
        """The link is lost and a new one is up; `wrote()` tells only what comes behind."""
        self.cut()
        self.reopen()
        self.wrote()

    # The application -------------------------------------------------------------------------------------------------

    def settings(self, name: str = "1", **fields: Any) -> ConsumerSettings:
        """What a consumer is made with; cumulative where the session does not forbid it."""
        single = self.single or self.mode is INDIVIDUAL or fields.get("non_blocking_redelivery")
        ack = StompAck.CLIENT_INDIVIDUAL if single else StompAck.CLIENT
        given: dict[str, Any] = {
            "subscription_id": name,
            "name": f"consumer-{name}",
            "destination": "queue://q",
            "kind": DestinationKind.QUEUE,
            "mode": self.mode,
            "stomp_ack": ack,
            "headers": {"destination": "/queue/q", "ack": ack.value},  # as the dialect makes them
            "origin": "queue://q",
            "dead_letter_queue": "queue://ActiveMQ.DLQ",
            "prefetch": 10,
            "policy": AT_ONCE,
            "dead_letter": self.dead_letter,
            **fields,
        }
        return ConsumerSettings(**given)

    def subscribe(self, name: str = "1", **fields: Any) -> None:
        """Open a consumer, and have the broker confirm it."""
        self.core.subscribe(self.settings(name, **fields), self.now)
        self.wrote()
        self.answer()

    def take(self, *consumers: str) -> Delivery | None:
        """The next delivery, in the hands of the application, which waits for answers to NACKs; not consumed."""
        names = consumers or ("1",)
        delivery = self._deliver(names)
        while delivery is None and self._hears_of_nacks():
            delivery = self._deliver(names)
        return delivery

    def _deliver(self, consumers: Sequence[str]) -> Delivery | None:
        return self.core.handing_out.deliver(consumers, self.now)

    def _hears_of_nacks(self) -> bool:
        """If something waits, have the broker answer the NACKs that were written, if it does; whether it has."""
        if not any(one.waiting for one in self.core._consumers):
            return False
        seen = len(self.frames)
        self._unread = self.wrote()
        nacked = any(frame.command == "NACK" for frame in self.frames[seen:])
        return nacked and self.answers_nacks

    def held(self, *consumers: str) -> Delivery:
        """The next delivery, which must be there."""
        delivery = self.take(*consumers)
        assert delivery is not None
        return delivery

    def receive(self, *consumers: str) -> str | None:
        """What `receive()` returns, such as `a#1` for the first delivery of `a`; None if nothing is there."""
        delivery = self.take(*consumers)
        if delivery is None:
            self.core.want(consumers or ("1",), self.now)
            return None
        self.core.consumed(delivery, self.now, returning=True)
        return called(delivery)

    def listen(self, failure: Failure | None = None, *consumers: str) -> str | None:
        """Call the listener with the next message; it returns, or raises `failure`."""
        delivery = self.take(*consumers)
        if delivery is None:
            self.core.want(consumers or ("1",), self.now)
            return None
        name = called(delivery)
        if failure is None:
            self.core.consumed(delivery, self.now)
        else:
            self.core.failed(delivery, failure, self.now)
        return name

    def drain(self, *consumers: str) -> list[str]:
        """All that `receive()` returns until there is nothing."""
        found = []
        while (name := self.receive(*consumers)) is not None:
            found.append(name)
            assert len(found) < ENDLESS
        return found

    def send(
        self, body: str = "out", *, persistent: bool = True, awaited: bool = True
    ) -> Request | None:
        """Send a message to `queue://x`."""
        headers = {"destination": "/queue/x", "persistent": str(persistent).lower()}
        frame = Frame("SEND", headers, body.encode())
        key = f"key-{next(self._ids)}"
        return self.core.send(frame, key, "queue://x", self.now, awaited=awaited)

    def commit(self) -> Request:
        """Commit; answered when the test says so."""
        return self.core.commit(self.now)

    def rollback(self, failure: Failure = NO_FAILURE) -> None:
        """Roll back."""
        self.core.rollback(self.now, failure)

    def timer(self) -> float:
        """Wait for the next timer and let it run; returns when that was."""
        due = self.core.next_timer()
        assert due is not None
        self.now = max(self.now, due)
        self.core.handle_timer(self.now)
        return due

    def wait_until(self, moment: float) -> None:
        """Let time go on, running every timer when it is due."""
        while (due := self.core.next_timer()) is not None and due <= moment:
            self.timer()
        self.now = moment

    def _gist(self, frame: Frame) -> str:
        headers = frame.headers
        words = [frame.command]
        if frame.command == "SEND":
            words += [
                headers["destination"].removeprefix("/").replace("/", ":"),
                repr(frame.body.decode()),
            ]
        elif "id" in headers:
            words.append(headers["id"])
        if "transaction" in headers:
            words += ["in", headers["transaction"]]
        if frame.command == "NACK" and "receipt" in headers:
            self._nacked.append(headers["receipt"])
        elif "receipt" in headers:
            self._asked.append(headers["receipt"])
            words.append("?")
        return " ".join(words)


def called(delivery: Delivery) -> str:
    """How tests name a delivery: `a#2` is the second delivery of `a`."""
    return f"{delivery.message_id}#{delivery.delivery_count}"


def dead_letters(talk: Talk) -> list[tuple[str, int, str, str | None, bool]]:
    """Message, attempts, reason, dlq and whether by copy, of each dead letter so far."""
    return [
        (e.message_id, e.attempts, e.reason, e.dead_letter_destination, e.by_copy)
        for e in talk.reported(MessageDeadLettered)
    ]


def transactions(talk: Talk) -> list[tuple[str, int, int]]:
    """Outcome, sends and acknowledgements of each transaction so far."""
    return [
        (event.outcome.value, event.sends, event.acknowledgements)
        for event in talk.reported(TransactionEnded)
    ]


def sent(talk: Talk) -> list[str]:
    """The outcome of each SEND so far."""
    return [event.outcome for event in talk.reported(MessageSent)]


def outcome(request: Request) -> str:
    """How a request ended, or that it did not."""
    if not request.done:
        return "open"
    return "done" if request.error is None else type(request.error).__name__


def marker(talk: Talk, *numbers: int, session: str = "s") -> None:
    """Commit markers come, each called by its number."""
    for number in numbers:
        talk.comes(f"m{number}", to="commits", jmsx_session=session, jmsx_marker=str(number))


def copies(*names: str, to: str = "queue:ActiveMQ.DLQ", number: int = 1) -> list[str]:
    """The frames that copy dead letters, in the session's transaction of that number."""
    wire = f"jmsx-dead-{number}"
    return [f"BEGIN in {wire}", *(f"SEND {to} {name!r} in {wire} ?" for name in names)]


def settled(*names: str, number: int = 1) -> list[str]:
    """The frames that end it and acknowledge these."""
    wire = f"jmsx-dead-{number}"
    return [*(f"ACK {name} in {wire}" for name in names), f"COMMIT in {wire} ?"]
