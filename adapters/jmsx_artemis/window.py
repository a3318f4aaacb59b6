"""
The window of a consumer on Artemis: bytes, not messages.

The broker sends while the subscription has credits, and subtracts the size of each frame, so one frame may overshoot;
only an ACK returns the credits of the messages it covers. The window of a subscription never changes. A session that
must hold more messages than fit (CLIENT, INDIVIDUAL, a transaction) would wait for ever, so jmsx then opens a further
subscription to the same queue on the same connection: the order of the queue is kept, because all frames come through
one socket. On a topic a further subscription would get copies, so there such a session asks for an unlimited window.

A queue with `max-consumers` may refuse a further subscription and then closes the link. So if a link is refused on
which a further subscription has brought nothing, the first window of the next link is wider.

Source: BROKER.md A16 to A18, A81.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jmsx.core.delivery import Delivery
from jmsx.core.frames import Frame
from jmsx.core.headers import SUBSCRIPTION_SEPARATOR
from jmsx.core.values import ConsumerSettings, DestinationKind
from jmsx.core.window import Unsettled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


#: The assumed size of a frame in bytes until the first has come: a small one, with some 400 bytes of headers.
SMALL: Final = 512

#: The share of the window that may wait for one common ACK, as the Java client's optimizeAcknowledge has it.
SHARE: Final = 0.65

#: After a further subscription was refused, the first window of the next link has room for this many times what was
#: held: each link that is too narrow wastes the work done on it, and a delivery that the broker counts.
AMPLE: Final = 8

UNLIMITED: Final = -1

#: The widest window in bytes: the broker reads a Java int, and closes the link on a larger number (seen on 2.44.0).
LARGEST: Final = 2**31 - 1


class _Credits:
    """The credits of one subscription, as the broker counts them."""

    def __init__(self, window: int) -> None:
        self.window = window  #: bytes
        self._used = 0
        self._sizes: dict[int, int] = {}  #: by arrival, of what is not acknowledged; oldest first

    @property
    def spent(self) -> bool:
        """Return whether all credits are used up, so that the broker sends nothing more."""
        return self.window != UNLIMITED and self._used >= self.window

    def take(self, delivery: Delivery) -> None:
        self._sizes[delivery.arrival.number] = delivery.frame.size
        self._used += delivery.frame.size

    def give_back(self, delivery: Delivery, *, individual: bool) -> None:
        covered = [delivery.arrival.number]
        if not individual:
            covered = []
            for arrival in self._sizes:
                if arrival > delivery.arrival.number:
                    break
                covered.append(arrival)
        self._used -= sum(self._sizes.pop(arrival, 0) for arrival in covered)


class ByteWindow:
    """The windows of all subscriptions that feed one consumer."""

    def __init__(self, settings: ConsumerSettings, least: int = 0) -> None:
        """Begin without messages; the first window has at least `least` bytes."""
        self._settings = settings
        self._frames = 0
        self._bytes = 0
        holds = settings.individual or not settings.acknowledges_itself
        #: Whether credits are counted; not for a session that acknowledges each message before it waits for the next
        self.counting: Final = holds
        self._grows = settings.kind is DestinationKind.QUEUE
        first = self._room(settings.prefetch) if self._grows or not holds else UNLIMITED
        if first != UNLIMITED:
            first = max(first, least)
        self._credits = {settings.subscription_id: _Credits(first)}
        self._first = first
        #: The further subscription that was opened last, until a message comes through it
        self._newest = ""
        self._wanted = 0  #: bytes of a first window that would make that one needless
        self._least = first  #: bytes of the next link's first window

    @property
    def batch_bytes(self) -> int | None:
        """Bytes of frames that may at most wait for one common ACK."""
        return None if self._first == UNLIMITED else int(self._first * SHARE) + 1

    @property
    def limited(self) -> bool:
        """Whether there are credits at all."""
        return self._first != UNLIMITED

    @property
    def subscription_ids(self) -> Sequence[str]:
        """The wire subscriptions that feed the consumer: its own, and the further ones."""
        return list(self._credits)

    def subscribe_headers(self) -> Mapping[str, str]:
        """Return the header that sets the first window, in bytes."""
        return {"consumer-window-size": str(self._first)}

    def arrived(self, deliveries: Sequence[Delivery]) -> None:
        """Subtract the frames from the credits."""
        for delivery in deliveries:
            self._frames += 1
            self._bytes += delivery.frame.size
            if delivery.arrival.wire_subscription in self._credits:
                self._credits[delivery.arrival.wire_subscription].take(delivery)
                if delivery.arrival.wire_subscription == self._newest:
                    self._newest = ""

    def settled(self, batch: Sequence[Delivery], older: int = 0) -> None:  # noqa: ARG002 - a credit counts that itself
        """Return the credits of `batch`, and of older messages that its cumulative ACKs cover."""
        for delivery in batch:
            if delivery.arrival.wire_subscription in self._credits:
                credits_ = self._credits[delivery.arrival.wire_subscription]
                credits_.give_back(delivery, individual=self._settings.individual)

    def reset(self) -> None:
        """Do nothing: transactions do not change credits."""

    def full(self, unsettled: int) -> bool:
        """Return whether all credits are spent: then only an ACK, or on a queue a further subscription, brings more."""
        return self._grows and unsettled > 0 and all(one.spent for one in self._credits.values())

    def patience(self, unsettled: int) -> float | None:
        """Return 0 if the window is full, so that it is opened at once, or else None."""
        return 0.0 if self.full(unsettled) else None

    def open(self, unsettled: Unsettled) -> Sequence[Frame]:
        """Return a further SUBSCRIBE, whose window fits all unsettled messages and is no smaller than the first."""
        settings = self._settings
        name = f"{settings.subscription_id}{SUBSCRIPTION_SEPARATOR}{len(self._credits)}"
        window = max(self._first, self._room(len(unsettled)))
        self._credits[name] = _Credits(window)
        total = sum(one.window for one in self._credits.values())
        self._newest = name
        self._wanted = min(max(total, self._room(AMPLE * len(unsettled))), LARGEST)
        headers = {"id": name, **settings.headers, "consumer-window-size": str(window)}
        return [Frame("SUBSCRIBE", headers)]

    def release(self) -> Sequence[Frame]:
        """Return nothing: no transaction keeps a window open."""
        return []

    def refused(self) -> None:
        """Make the next link's first window wider, if the newest further subscription may be what was refused."""
        if self._newest:
            self._least = self._wanted

    def again(self) -> ByteWindow:
        """Return the window of the next link: as wide as this one, or wider if a further subscription was refused."""
        return ByteWindow(self._settings, self._least)

    def _room(self, messages: int) -> int:
        """
        Return the bytes of a window for so many messages of the average size so far, at most `LARGEST`; 1 for one.

        The broker sends as long as a single byte is left, so the last message needs only one.
        """
        size = self._bytes // self._frames if self._frames else SMALL
        return min((messages - 1) * size + 1, LARGEST)
