"""A driver without socket or thread: one session's core on a link of the fake broker, time told by the test."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jmsx.core.delivery_state import DeliveryState
from jmsx.core.events import SETTLED, DeliveryEnded, ErrorReceived, Outcome
from jmsx.core.frames import Disconnect, Frame, MessageFrame, Record, Refused, Transmit
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.policy import no_jitter
from jmsx.core.process_memory import ProcessMemory
from jmsx.core.session import SessionCore
from jmsx.core.values import ConsumerSettings, DestinationKind, SessionSettings, StompAck
from jmsx_classic import DIALECT

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx.core.delivery import Delivery
    from jmsx.core.dialect import Dialect
    from jmsx.core.events import Event
    from jmsx.core.policy import RedeliveryPolicy
    from jmsx.core.requests import Request
    from jmsx.core.values import OptimizeAcknowledge
    from jmsx.testing import FakeBroker
    from jmsx.testing.link import FakeLink

#: While a delivery is in one of these, a cumulative ACK of a later one would cover it.
UNCONFIRMED = {DeliveryState.DYING, DeliveryState.LEAVING}

#: An acknowledged one may be copied to a dead letter queue, too.
_COPIED = {*UNCONFIRMED, DeliveryState.SETTLED}

#: Which may be handed out once more, or wait among those that are.
ENDED_ALREADY = (DeliveryState.COPIED, DeliveryState.SETTLED)

#: What the deliveries may be that a consumer keeps in one place.
_WAITING = {DeliveryState.WAITING, *ENDED_ALREADY}
_HELD = {DeliveryState.HELD, *ENDED_ALREADY}
_RESTING = {DeliveryState.RESTING, *ENDED_ALREADY}
_OWED = {DeliveryState.OWED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """How a session is made."""

    mode: AcknowledgeMode
    policy: RedeliveryPolicy
    prefetch: int
    dead_letter: str
    non_blocking: bool = False
    single: bool = False  #: an ACK for each message
    optimize: OptimizeAcknowledge | None = None
    commit_markers: bool = False
    scheduled: bool = False  #: redelivery by the broker's scheduler

    @property
    def transacted(self) -> bool:
        """Whether its work takes effect at commit."""
        return self.mode is AcknowledgeMode.SESSION_TRANSACTED

    @property
    def ack(self) -> StompAck:
        """Single ACKs where local order is not the order of dispatch."""
        single = (
            self.single or self.non_blocking or self.mode is AcknowledgeMode.INDIVIDUAL_ACKNOWLEDGE
        )
        return StompAck.CLIENT_INDIVIDUAL if single else StompAck.CLIENT


@dataclass
class Peer:
    """
    One session: `write` and `read` move frames, and check each of them.

    `dead` is set when the link is gone and the session has been told.
    """

    name: str
    broker: FakeBroker
    habit: Habit
    queues: dict[str, str]  #: subscription id -> queue
    now: Callable[[], float]
    link: FakeLink = field(init=False)
    core: SessionCore = field(init=False)
    events: list[Event] = field(default_factory=list)
    dialect: Dialect = DIALECT
    memory: ProcessMemory = field(default_factory=ProcessMemory)
    #: Sessions that it has been: ids are of one alone, duplicate ids and commit markers too
    lives: int = 0
    dead: bool = True
    gave_up: bool = False  #: the session itself dropped the link
    known: set[str] = field(default_factory=set)  #: ack ids of this link
    settled: set[str] = field(default_factory=set)  #: message ids settled on this link
    complaints: list[str] = field(default_factory=list)  #: ERRORs that nobody planned
    midway: bool = False  #: a call is, or was, interrupted, and nobody has put right what it left

    def connect(self, *, fresh: bool = True) -> None:
        """A new link, with a new core or the old one, and all consumers subscribed."""
        if fresh:
            self.lives += 1
            settings = SessionSettings(
                mode=self.habit.mode,
                broker="fake:61613",
                session_id=f"{self.name}.{self.lives}",
                marker_day=20_000 if self.habit.commit_markers else None,
            )
            self.core = SessionCore(settings, self.dialect, no_jitter, self.memory)
        self.link = self.broker.open_link(self.now())
        self.link.feed(Frame("CONNECT", {"accept-version": "1.2", "host": "x"}), self.now())
        (connected,) = self.link.take_frames()
        self.known, self.settled = set(), set()
        self.dead = self.gave_up = False
        requests = self.core.link_opened(connected.headers["server"], 0.0, self.now())
        for request in requests:
            self.ask(request)
        for name in self.queues:
            if not self.core.is_open(name):
                self.subscribe(name)

    def subscribe(self, name: str) -> None:
        """Open the consumer of that name."""
        habit, uri = self.habit, f"queue://{self.queues[name]}"
        headers = self.dialect.writing.subscribe_headers(
            destination=uri,
            ack=habit.ack,
            selector=None,
            durable_name=None,
            no_local=False,
            options={},
        )
        headers.pop("transformation", None)  # which the fake broker has not
        settings = ConsumerSettings(
            subscription_id=name,
            name=f"{self.name}-{name}",
            destination=uri,
            kind=DestinationKind.QUEUE,
            mode=habit.mode,
            stomp_ack=habit.ack,
            headers=headers,
            origin=uri,
            dead_letter_queue=self.dialect.dead_letter_queue,
            prefetch=habit.prefetch,
            policy=habit.policy,
            dead_letter=habit.dead_letter,
            optimize=habit.optimize,
            non_blocking_redelivery=habit.non_blocking,
            scheduled=habit.scheduled,
        )
        self.ask(self.core.subscribe(settings, self.now()))

    def call(self, operation: Callable[[SessionCore, float], Any]) -> Any:
        """Run `operation(core, now)` and write what the core then asks for."""
        try:
            return operation(self.core, self.now())
        finally:
            self.write()

    def ask(self, request: Request | None) -> Request | None:
        """Wait for the answer, which either comes or is never to come."""
        self.write()
        while request is not None and not request.done and not self.dead:
            self.read()
        assert request is None or request.done
        return request

    def write(self) -> None:
        """Do what the core asks for."""
        for action in self.core.take_actions():
            if isinstance(action, Transmit):
                for frame in action.frames:
                    self.transmit(frame)
            elif isinstance(action, Disconnect):
                self.gave_up = True
                self.lose()
            elif not isinstance(action, (Record, Refused)):
                self._note(action)
        if not self.midway:
            self._check_agenda()

    def _check_agenda(self) -> None:
        """What it keeps of each consumer is what looking at all of them finds, and ACKs are in order."""
        consumers = list(self.core._consumers)
        agenda = self.core._consumers.agenda
        timers = [at for one in consumers if (at := one.next_timer()) is not None]
        assert agenda.next_timer() == min(timers, default=None)
        assert agenda.holding() == [one for one in consumers if one.delivered]
        assert agenda.widened() == [one for one in consumers if one.widened]
        first = agenda.next_ready(self.queues, self.now())
        ready = [one for one in consumers if one.is_ready(self.now())]
        assert first is min(ready, key=lambda one: one.next_order, default=None)
        for one in consumers:
            for some, states in (
                (one.waiting, _WAITING),
                (one.delivered, _HELD),
                (one.schedule.pending(), _RESTING),
                (one.batch.owed(), _OWED),
                (one.copies, _COPIED),
            ):
                assert not some or {delivery.state for delivery in some} <= states
            if not one.settings.individual:
                arrivals = [delivery.arrival.number for delivery in one.waiting]
                assert arrivals == sorted(arrivals)

    def transmit(self, frame: Frame) -> None:
        """Write one frame, which must make sense."""
        self._check(frame)
        self.link.feed(frame, self.now())

    def read(self) -> None:
        """Give the core all that the broker wrote, in chunks as a driver does; notice a dead link."""
        chunk: list[Frame | MessageFrame] = []
        for frame in self.link.take_frames():
            if isinstance(frame, MessageFrame):
                if "ack" in frame.headers:  # a browser's end has none
                    self.known.add(frame.headers["ack"])
                chunk.append(frame)
                continue
            self._feed(chunk)
            self._feed([frame])
            chunk = []
        self._feed(chunk)
        if self.link.closed:
            self.lose()

    def lose(self) -> None:
        """The link is gone; what was on its way is lost."""
        if self.dead:
            return
        self.dead = True
        if not self.link.closed:
            self.broker.drop(self.link, self.now())
        self.core.link_closed("io", "cut", self.now())
        self.write()

    def run_timers(self) -> None:
        """Do what is due now."""
        while not self.dead and (due := self.core.next_timer()) is not None and due <= self.now():
            before = due
            self.call(lambda core, now: core.handle_timer(now))
            after = self.core.next_timer()
            assert after is None or after > before, "a timer that is due for ever"

    def delivered(self, name: str) -> list[Delivery]:
        """What the application holds of a consumer."""
        return [] if self.dead else list(self.core._consumers.find(name).delivered)

    def dying(self, name: str) -> list[Delivery]:
        """What a consumer has on its way to its dead letter queue."""
        copies = () if self.dead else self.core._consumers.find(name).copies
        return [one for one in copies if one.state is DeliveryState.DYING]

    def _feed(self, frames: list[Frame | MessageFrame]) -> None:
        if frames and not self.dead:
            self.core.receive(frames, self.now(), self.broker.now_ms() / 1000)
            self.write()

    def _check(self, frame: Frame) -> None:
        """No acknowledgement of another link is ever on the wire."""
        assert not self.dead or self.gave_up, f"{frame} on a dead link"
        if frame.command in ("ACK", "NACK"):
            assert frame.headers["id"] in self.known, f"{frame} of another link"

    def _note(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, DeliveryEnded) and event.outcome in SETTLED:
            assert event.message_id not in self.settled, f"{event.message_id} is settled twice"
            self.settled.add(event.message_id)
        if isinstance(event, ErrorReceived) and not _planned(event.message):
            self.complaints.append(event.message)

    def rolled_back(self) -> set[str]:
        """Message ids whose last delivery ended in a rollback."""
        last = {e.message_id: e.outcome for e in self.events if isinstance(e, DeliveryEnded)}
        return {name for name, outcome in last.items() if outcome is Outcome.ROLLED_BACK}


def _planned(text: str) -> bool:
    return "refused by the test" in text or "rollback only" in text
