"""
How a consumer that acknowledges late keeps messages coming.

The broker sends no more than `prefetch` unacknowledged messages, and pages a backlog in only when something wakes it.
The Java client opens the window with a DELIVERED acknowledgement at half the prefetch. Over STOMP an ACK inside a
transaction has the same effect. jmsx sends one when the application waits and no message is left to hand out, so that
it does not stall where the Java client would, and aborts that transaction at once: what remains is the wake-up and,
with cumulative ACKs, a window that is wider by the messages the ACK covered, until plain ACKs narrow it again.

An open transaction would do as well, but Classic searches the list of its messages once for each of them: with 20,000
unacknowledged messages one more ACK took it more than ten seconds (measured).

Source: `PrefetchSubscription.java:193-398`; BROKER.md C10, C34 and C68.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from jmsx.core.batching import IDLE, PAGE
from jmsx.core.delivery import Delivery
from jmsx.core.frames import Frame
from jmsx.core.values import ConsumerSettings
from jmsx.core.window import Unsettled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


#: Seconds that a consumer waits for a message before it widens its window, if few messages are unsettled: then the
#: window is rarely the reason why none comes.
PATIENCE: Final = 0.1

#: Seconds after which a consumer that asked in vain asks once more, as if its model of the window were wrong.
DOUBT: Final = 1.0


class MessageWindow:
    """The window of one subscription, in messages; makes the frames that widen it, as `WindowModel` says."""

    batch_bytes: Final = None
    limited: Final = True

    def __init__(self, settings: ConsumerSettings) -> None:
        self._settings = settings
        self._id = settings.subscription_id
        self._prefetch = settings.prefetch
        self._individual = settings.individual
        self._model = WindowModel(settings.prefetch, individual=settings.individual)
        self._held: set[str] = set()  #: ack ids in the open transaction that widens the window
        #: Whether the window was widened, so that ACKs may narrow it; stored because each ACK asks
        self.counting = False

    @property
    def subscription_ids(self) -> Sequence[str]:
        """The wire subscriptions that feed the consumer: on Classic there is one."""
        return (self._id,)

    def subscribe_headers(self) -> Mapping[str, str]:
        """Return the header that sets the prefetch, in messages."""
        return {"activemq.prefetchSize": str(self._prefetch)}

    def arrived(self, deliveries: Sequence[Delivery]) -> None:
        """Do nothing: unsettled messages are counted where they are asked for."""

    def settled(self, batch: Sequence[Delivery], older: int = 0) -> None:
        """Narrow a wide window by the messages that were settled, and by those that stood before them."""
        self._model.settled(len(batch) + older)
        self.counting = self._model.opened

    def reset(self) -> None:
        """Start the model anew, because what was handed out is settled or will be handed out again."""
        self._model.reset()

    def full(self, unsettled: int) -> bool:
        """Return whether the broker may send no more than the `unsettled` messages."""
        return self._model.is_full(unsettled)

    def patience(self, unsettled: int) -> float | None:
        """Return how many seconds to wait before `open`; None: opening would be of no use."""
        return self._model.patience(unsettled)

    def open(self, unsettled: Unsettled) -> Sequence[Frame]:
        """
        Return ACKs in a transaction that is aborted at once; with individual ACKs the transaction stays open.

        Individual ACKs narrow the window again when they are aborted. So their transaction stays open until the next
        message is settled, and meanwhile gets ACKs of messages that are handed out.
        """
        self.counting = True
        full = self._model.is_full(len(unsettled))
        covered = self._model.ask(len(unsettled))
        if not self._individual:
            self._model.widened(covered)
            return self._wake(next(islice(unsettled, covered - 1, None)))
        free = next(
            (one for one in reversed(unsettled) if one.arrival.ack_id not in self._held), None
        )
        if free is not None and not full:
            return self._wake(free)
        covered = max(covered, min(len(self._held), len(unsettled)))  # never narrow the window
        more = self._not_held(unsettled, covered)
        name = {"transaction": f"hold-{self._id}"}
        frames: list[Frame] = []
        if not more or not self._held:
            frames = [*self.release(), Frame("BEGIN", name)]
            more = list(islice(unsettled, covered))
        self._held.update(one.arrival.ack_id for one in more)
        frames += [Frame("ACK", {"id": one.arrival.ack_id, **name}) for one in more]
        self._model.held(covered)
        return frames

    def _not_held(self, unsettled: Unsettled, covered: int) -> list[Delivery]:
        """Return those of the oldest `covered` messages that are not held; none if the held ones are not the oldest."""
        ahead = len(self._held)
        newest = list(islice(reversed(unsettled), max(len(unsettled) - ahead, 0)))
        more = newest[::-1][: max(covered - ahead, 0)]
        return [] if any(one.arrival.ack_id in self._held for one in more) else more

    def release(self) -> Sequence[Frame]:
        """
        Return the frame that aborts the open transaction, if there is one.

        It must end before other transactions begin: the STOMP converter mixes up those of one link (BROKER.md C30).
        """
        if not self._held:
            return []
        self._held = set()
        self._model.held(0)
        return [Frame("ABORT", {"transaction": f"hold-{self._id}"})]

    def refused(self) -> None:
        """Do nothing: on Classic no further subscription is opened, so none can be refused."""

    def again(self) -> MessageWindow:
        """Return a fresh window for the next link, which may ask for more where this one asked in vain."""
        return MessageWindow(self._settings)

    def _wake(self, delivery: Delivery) -> Sequence[Frame]:
        """Return the frames that make the broker page in more messages without settling any."""
        name = {"transaction": f"window-{self._id}"}
        ack = Frame("ACK", {"id": delivery.arrival.ack_id, **name})
        return [Frame("BEGIN", name), ack, Frame("ABORT", name)]


class WindowModel:
    """A model of one window, in messages: how many more the broker sends; rather too few than too many."""

    def __init__(self, prefetch: int, *, individual: bool) -> None:
        self._prefetch = prefetch
        self._individual = individual
        self._wider = 0  #: messages beyond the prefetch, by aborted or held ACKs
        self._asked = 0  #: unsettled messages when more was last asked for
        self._sure = True  #: the last request was enough: another would be useless

    @property
    def opened(self) -> bool:
        """Whether the window is wider than the prefetch, or was asked to be; if not, settling changes nothing here."""
        return self._wider > 0 or self._asked > 0

    def patience(self, unsettled: int) -> float | None:
        """
        Return how many seconds to wait before asking for more, when the application waits and nothing comes; None: do
        not ask.
        """
        fresh = unsettled - self._asked
        if fresh <= 0:
            return None if self._sure or unsettled == 0 else DOUBT
        return IDLE if fresh >= min(max(self._prefetch // 2, 1), PAGE // 2) else PATIENCE

    def ask(self, unsettled: int) -> int:
        """
        Return how many of the `unsettled` messages, oldest first, an ACK(tx) has to cover to get more; at least 1.

        While there is room 1 will do, as a mere wake-up.
        """
        again = unsettled <= self._asked
        full = again or self.is_full(unsettled)
        self._asked = unsettled
        self._sure = full or self._individual
        if not full:
            return 1
        growth = max(1, min(self._prefetch, PAGE))
        missing = growth + (unsettled - self._prefetch if self._individual else 0)
        return min(unsettled, max(missing, 1))

    def is_full(self, unsettled: int) -> bool:
        """Return whether the broker may send no more than the `unsettled` messages."""
        return unsettled >= self._prefetch + self._wider

    def widened(self, messages: int) -> None:
        """Note that the broker sends `messages` more, after a cumulative ACK that was aborted."""
        self._wider += messages

    def held(self, messages: int) -> None:
        """Note that `messages` single ACKs are kept in an open transaction: the broker sends as many more meanwhile."""
        self._wider = messages

    def settled(self, messages: int) -> None:
        """Note that `messages` messages were settled outside a transaction, which narrows a wide window."""
        self._asked = max(0, self._asked - messages)
        self._wider = max(0, self._wider - messages)

    def reset(self) -> None:
        """Forget what was handed out, which is settled or will be handed out again: then ask anew."""
        self._asked = 0
