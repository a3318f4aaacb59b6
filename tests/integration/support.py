"""What the tests of losses, of the driver and of the app share: wire-level puts, calls with a deadline, an observer."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import pytest

from jmsx import AcknowledgeMode, Connection, Queue, RedeliveryPolicy, Reject, Topic
from jmsx.core.events import DeliveryEnded, Event, MessageDeadLettered, MessagesReceived, Source
from jmsx.core.frames import Frame
from jmsx.core.identity import stamp
from jmsx.drivers.link_state import RESTORING
from jmsx.errors import BrokerError
from jmsx.jms.session import link_of
from jmsx.jms.temporary import reachable
from jmsx_broker import ArtemisBroker
from jmsx_broker.wire import Wire
from jmsx_classic import DIALECT as CLASSIC
from tests.integration.broker_support import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from jmsx import Destination, Message, Session
    from jmsx.jms.consumer import MessageConsumer
    from jmsx_broker import Broker, ClassicBroker
    from tests.integration.proxy import Proxy

T = TypeVar("T")

AUTO: Final = AcknowledgeMode.AUTO_ACKNOWLEDGE
DUPS_OK: Final = AcknowledgeMode.DUPS_OK_ACKNOWLEDGE
CLIENT: Final = AcknowledgeMode.CLIENT_ACKNOWLEDGE
INDIVIDUAL: Final = AcknowledgeMode.INDIVIDUAL_ACKNOWLEDGE
TRANSACTED: Final = AcknowledgeMode.SESSION_TRANSACTED

DEAD_LETTERS: Final = "ActiveMQ.DLQ"
DEAD_LETTERS_OF_ARTEMIS: Final = "DLQ"

#: A policy that redelivers at once, for ever.
AT_ONCE: Final = RedeliveryPolicy(
    maximum_redeliveries=-1, initial_redelivery_delay=0.0, redelivery_delay=0.0
)

#: The first failure is the last.
NO_RETRY = RedeliveryPolicy(maximum_redeliveries=0)

#: Three deliveries in all, a moment apart.
QUICK = RedeliveryPolicy(
    maximum_redeliveries=2, initial_redelivery_delay=0.05, redelivery_delay=0.05
)


#: Every way to settle a message.
MODES: Final[dict[str, dict[str, Any]]] = {
    "auto": {},
    "optimized": {"optimize_acknowledge": True},
    "dups-ok": {"mode": DUPS_OK},
    "client": {"mode": CLIENT},
    "individual": {"mode": INDIVIDUAL},
    "non-blocking": {"non_blocking_redelivery": True},
    "transacted": {"mode": TRANSACTED},
}


def fresh_queue() -> Queue:
    """A queue that no other test knows."""
    return Queue(f"jmsx.test.{uuid.uuid4().hex[:10]}")


def reading_maps(name: str, broker: Broker) -> Topic:
    """The topic for a consumer that reads its maps, which has to be asked for on Classic (BROKER.md C80)."""
    if isinstance(broker, ArtemisBroker):
        return Topic(name)
    return Topic(name + "?consumer.transformation=jms-map-xml")


def reject_bad(message: Message) -> None:
    """Reject a message "bad", and acknowledge any other: a listener."""
    if message.text == "bad":
        raise Reject
    message.acknowledge()


def text(message: Message | None) -> str:
    """The text of a message that must be there."""
    assert message is not None
    return message.text


def put(
    broker: Broker, queue: Destination, *bodies: str, key: str | None = None, **headers: str
) -> None:
    """
    Send persistent messages with a client that is not jmsx; they are on the broker when this returns.

    With a `key`: as jmsx does, and each with that key.
    """
    head = {"destination": f"/queue/{queue.name}", "persistent": "true", **headers}
    with Wire(broker.url, timeout=30) as wire:
        for text in bodies:
            body = text.encode()
            made = (
                head
                if key is None
                else stamp(head, body, key, f"queue://{queue.name}", CLASSIC.reading)
            )
            wire.request(Frame("SEND", made, body))


def take(consumer: MessageConsumer, count: int) -> list[Message]:
    """The next `count` messages, all of which must come."""
    messages = [consumer.receive(5) for _ in range(count)]
    assert None not in messages
    return [message for message in messages if message is not None]


def told(messages: list[Message]) -> list[tuple[str, int]]:
    """What the application sees of them."""
    return [(message.text, message.delivery_count) for message in messages]


def rest(broker: Broker, queue: Queue) -> list[str]:
    """What a new consumer gets, until nothing is left; a broker may take its time to give back what another one had."""
    with Connection(broker.url) as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(queue)
        found: list[str] = []

        def empty() -> bool:
            while (message := consumer.receive(0.5)) is not None:
                found.append(message.text)
            return broker.statistics(queue.name).size == 0

        eventually(empty, 10)
        return found


def bodies(broker: Broker, queue: Destination | str) -> list[str]:
    """
    What lies in a queue, oldest first, in flight or not.

    A browser misses what is just going back from a consumer that left, so it has to find as many as the broker counts.
    """
    name = queue if isinstance(queue, str) else queue.name
    found: list[str] = []

    def complete() -> bool:
        found[:] = [message.body.decode() for message in broker.browse(name)]
        return len(found) == broker.statistics(name).size

    eventually(complete, 5)
    return found


def dead_copies(broker: Broker, key: str) -> list[dict[str, str]]:
    """The headers of the dead letters that came from the queue `key`, or whose property `case` is `key`."""
    return [
        dict(message.headers)
        for message in broker.browse(
            DEAD_LETTERS_OF_ARTEMIS if isinstance(broker, ArtemisBroker) else DEAD_LETTERS
        )
        if key in (message.headers.get("case"), message.body.decode("utf-8", "replace"))
    ]


def settles(broker: Broker, queue: Destination, *, size: int, inflight: int = 0) -> bool:
    """
    Whether the broker's counts of `queue` become these soon; if not, the test fails with what they are.

    Raises:
        KeptForNobodyError: a message is in delivery when nobody is there any more.

    """

    def counts() -> tuple[int, int]:
        told = broker.statistics(queue.name)
        return told.size, told.inflight_count

    if not eventually(lambda: counts() == (size, inflight)):
        there, held = told = counts()
        others = there - held == size - inflight  # all but what it keeps is as it should be
        if others and isinstance(broker, ArtemisBroker) and stays_in_delivery(broker, queue):
            raise KeptForNobodyError(f"{queue} has (size, in flight) {told}")
        pytest.fail(f"{queue} has (size, in flight) {told}, not {(size, inflight)}")
    return True


def empties(broker: Broker, queue: Destination, within: float = 20) -> bool:
    """
    Whether nothing is left of a queue in so many seconds, while it is read, mostly by a process that starts meanwhile.

    If not, `settles` tells when its readers are gone whether the broker keeps the rest for nobody.
    """
    return eventually(lambda: not broker.statistics(queue.name).size, within)


class KeptForNobodyError(Exception):
    """The broker keeps a message for nobody (A66): no client could settle it, so the attempt tells nothing."""


def of_an_attempt_that_tells(attempt: Callable[[], T]) -> T:
    """What `attempt` returns; made again if the broker spoils it, as it may (A66), and not three times."""
    for _ in range(2):
        with contextlib.suppress(KeptForNobodyError):
            return attempt()
    return attempt()


@contextlib.contextmanager
def telling_what_is_kept(broker: Broker, queue: Destination) -> Iterator[None]:
    """
    Have what fails in the block tell whether the broker keeps a message of `queue` for nobody.

    The block ends the clients that it has begun.

    Raises:
        KeptForNobodyError: a message is in delivery when nobody is there any more.

    """
    try:
        yield
    except AssertionError as failed:
        if stays_in_delivery(broker, queue):
            raise KeptForNobodyError(f"the broker keeps a message of {queue}") from failed
        raise


def stays_in_delivery(broker: Broker, queue: Destination) -> bool:
    """Whether a message of a queue is with nobody, and is not given back: what a client of ours held would be."""
    assert eventually(lambda: not broker.statistics(queue.name).consumer_count, 5)
    return not eventually(lambda: not broker.statistics(queue.name).inflight_count, 3)


def stranded(broker: Broker, queue: Destination) -> int:
    """Messages that Artemis holds for a consumer that has died, until it is started again (examples/guarantees)."""
    told = broker.statistics(queue.name)
    return (told.inflight_count or 0) if not told.consumer_count else 0


def dead_destination(broker: Broker, session: Any) -> Destination:
    """The name of a temporary queue whose owner is gone: the broker refuses a SEND to it."""
    with Connection(broker.url) as connection:
        queue = connection.create_session().create_temporary_queue()
        gone = reachable(queue, link_of(session))
    # The broker forgets it some time after its connection is closed
    assert eventually(
        lambda: _refuses(broker, link_of(session).dialect.writing.send_headers(gone.uri))
    )
    return gone


def _refuses(broker: Broker, headers: Mapping[str, str]) -> bool:
    try:
        with Wire(broker.url) as wire:
            wire.request(Frame("SEND", {**headers, "persistent": "false"}))
    except BrokerError:
        return True
    return False


def send_to_the_dead(broker: Broker, session: Any) -> None:
    """
    A SEND in the open transaction that Classic refuses, told as one to some queue.

    Of one to a temporary queue that is gone the sender hears at once; of others that are refused it does not.
    """
    destination = link_of(session).dialect.writing.send_headers(
        dead_destination(broker, session).uri
    )
    frame = Frame("SEND", {**destination, "persistent": "true"}, b"lost")
    link_of(session).engine.call(lambda core, now: core.send(frame, "lost", "queue://lost", now))


class Outcome(Generic[T]):
    """What a call in a thread of its own came to."""

    def __init__(self, call: Callable[[], T]) -> None:
        self.value: T | None = None
        self.error: BaseException | None = None
        self.seconds = 0.0
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> Outcome[T]:
        """Wait for its end; an AssertionError if it hangs for longer than `seconds`."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"the call still hangs after {seconds} s"
        return self

    @property
    def waiting(self) -> bool:
        """Whether it has not ended."""
        return self._thread.is_alive()

    def _run(self) -> None:
        began = time.monotonic()
        try:
            self.value = self._call()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error
        self.seconds = time.monotonic() - began


def within(seconds: float, call: Callable[[], T]) -> Outcome[T]:
    """Call in a thread, and fail if it takes longer than `seconds`."""
    return Outcome(call).join(seconds)


class Diary:
    """An observer that keeps every event."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.closed = 0

    def observe(self, event: Event, source: Source) -> None:  # noqa: ARG002 - an observer's signature
        """Keep it."""
        self.events.append(event)

    def close(self) -> None:
        """Count it."""
        self.closed += 1

    def received(self) -> int:
        """How many messages have come."""
        return sum(event.messages for event in self.events if isinstance(event, MessagesReceived))

    def outcomes(self) -> Counter[str]:
        """How many deliveries ended how."""
        return Counter(
            str(event.outcome) for event in self.events if isinstance(event, DeliveryEnded)
        )

    def attempts(self) -> list[tuple[str, int, str]]:
        """(message id, attempt, outcome) of every delivery that ended, in order."""
        return [
            (event.message_id, event.attempt, str(event.outcome))
            for event in self.events
            if isinstance(event, DeliveryEnded)
        ]

    def dead(self) -> list[MessageDeadLettered]:
        """The dead letters."""
        return [event for event in self.events if isinstance(event, MessageDeadLettered)]


def descriptors() -> int:
    """How many file descriptors this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@contextlib.contextmanager
def paused(broker: ClassicBroker | ArtemisBroker) -> Iterator[None]:
    """A broker that does not read and does not answer, in any of its threads, from the first line of the block on."""

    def stopped() -> bool:
        tasks = Path(f"/proc/{broker.pid}/task").iterdir()
        return all("\nState:\tT" in (task / "status").read_text() for task in tasks)

    broker.pause()
    try:
        assert eventually(stopped, 5)
        yield
    finally:
        broker.resume()


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    """Fail if the block leaves a thread or a file descriptor behind."""
    threads, files = set(threading.enumerate()), descriptors()

    def gone() -> bool:
        return set(threading.enumerate()) <= threads and descriptors() <= files

    yield
    assert eventually(gone, 5), (
        f"left: {set(threading.enumerate()) - threads}, {descriptors() - files} descriptors"
    )


def connect(proxy: Proxy, options: str = "", **settings: Any) -> Connection:
    """A started connection that survives its links."""
    url = f"failover:({proxy.url})?maxReconnectDelay=100{options}"
    connection = Connection(url, **{"redelivery_policy": AT_ONCE, **settings})
    connection.start()
    return connection


def outage(session: Session) -> bool:
    """Whether the session knows that its link is gone."""
    return link_of(session).engine.state in RESTORING
