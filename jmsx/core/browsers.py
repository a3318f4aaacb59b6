"""Queue browsers: they look at the messages of a queue and acknowledge none."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from jmsx.core.delivery import Delivery
from jmsx.core.dialect import Dialect
from jmsx.core.frames import Frame, Outbox
from jmsx.core.requests import Request, Requests, answered, silent, subscribe
from jmsx.core.translating import Translating, doubted, is_same, one_message, queue_of
from jmsx.errors import ConnectionFailedError, JmsxError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


#: Seconds that a question waits for what the broker shows.
PATIENCE: Final = 5.0

#: Seconds in which a broker that sends no messages tells that there are no more.
SILENCE: Final = 0.5

#: A selector that matches no message.
_NONE: Final = "1 = 0"


def lost(broker: str, destination: str) -> ConnectionFailedError:
    """Return the error of a browser whose link is gone."""
    return ConnectionFailedError(
        f"the connection to {broker} was lost while {destination} was browsed; browse it again"
    )


class _Browser:
    def __init__(self, destination: str, *, blind: bool) -> None:
        self.destination = destination
        self.waiting: deque[Delivery] = deque()
        self.blind = blind  #: the broker was not asked to translate what it shows
        self.ended = False


class _Question:
    """A question to a browser: whether the broker shows a message, or has sent a subscription all that it has."""

    def __init__(
        self,
        destination: str,
        selector: str,
        told: Callable[[bool], None],
        last: float,
        *,
        delivery: Delivery | None = None,
        subscription_id: str = "",
    ) -> None:
        self.destination = destination
        self.selector = selector
        self.told = told
        self.last = last  #: seconds, monotonic: it waits no longer than that
        self.delivery = delivery  #: None: the question is for the end
        self.subscription_id = subscription_id
        self.until = last
        self.came = False  #: something has come to the subscription since it was asked

    def prolong(self, now: float) -> None:
        """Wait for SILENCE seconds from now on, if it is for the end."""
        if self.delivery is None:
            self.until = min(now + SILENCE, self.last)


class Browsers:
    """
    Keeps the queue browsers of a session, and the messages that they were shown.

    Source: the end of a queue is a MESSAGE with `browser:end` (BROKER.md C18, `StompQueueBrowserSubscription`).
    """

    def __init__(
        self, dialect: Dialect, requests: Requests, outbox: Outbox, translating: Translating
    ) -> None:
        self._dialect = dialect
        self._translating = translating
        self._requests = requests
        self._outbox = outbox
        self._open: dict[str, _Browser] = {}
        self._lost: dict[str, tuple[str, str]] = {}  #: broker and queue of each that is not closed
        self._closing: list[Request] = []  #: the UNSUBSCRIBEs of which some may not be answered
        self._asked = 0
        self.questions: dict[str, _Question] = {}

    def __len__(self) -> int:
        return len(self._open) + len(self.questions)

    def __contains__(self, subscription_id: str) -> bool:
        return subscription_id in self._open or subscription_id in self.questions

    @property
    def showing(self) -> bool:
        """Whether the broker may be showing messages to a browser; it may show any number, acknowledged or not."""
        return bool(self._open) or not all(request.done for request in self._closing)

    def open(self, subscription_id: str, destination: str, headers: Mapping[str, str]) -> Request:
        """
        Subscribe a browser with the SUBSCRIBE `headers` that the dialect made; then call
        `look` until it tells the end.
        """
        request = self._requests.open("SUBSCRIBE", destination)
        wanted = (
            self._dialect.untranslated(headers)
            if self._translating.suspects_translation
            else headers
        )
        blind = self._dialect.translation_header not in (None, *wanted)
        self._lost.pop(subscription_id, None)  # it is opened anew on the next link
        self._open[subscription_id] = _Browser(destination, blind=blind)
        named = {"id": subscription_id, **wanted}
        trial = self._dialect.writing.trial(destination, named)
        subscribe(named, request, self._requests, self._outbox, trial=trial)
        return request

    def ask(self, delivery: Delivery, that: str, told: Callable[[bool], None], now: float) -> None:
        """
        Ask whether the broker shows `delivery`, which a consumer holds, to a browser with the selector `that`.

        `told(shown)` is called with the answer, or never if the link is lost before. If the question is refused, cannot
        be asked, or is not answered in PATIENCE seconds, the answer is False.
        """
        destination = queue_of(delivery, self._dialect)
        selector = f"{one_message(delivery.message_id)} AND {that}"
        self._ask(_Question(destination, selector, told, now + PATIENCE, delivery=delivery), now)

    def await_end(
        self, subscription_id: str, destination: str, then: Callable[[], None], now: float
    ) -> None:
        """
        Run `then` when nothing more of a queue is on its way to a subscription.

        A browser is opened that is shown no message: its end comes behind all that the broker has dispatched by then.
        If something has come meanwhile, this is done once more, because the broker may dispatch in several steps. A
        broker that tells no end keeps nobody waiting: `then` runs at once if it cannot be asked, after SILENCE seconds
        in which nothing comes, and after PATIENCE in all. If the link is lost before, `then` is never run. Source: the
        broker shows a browser the end behind what it dispatches in the same step, on the same thread (BROKER.md C38).
        """
        question = _Question(
            destination,
            _NONE,
            lambda _ended: then(),
            now + PATIENCE,
            subscription_id=subscription_id,
        )
        self._ask(question, now)

    def came(self, subscription_id: str, now: float) -> None:
        """Note that messages come to a subscription: any end that is awaited comes behind them."""
        for question in self.questions.values():
            question.prolong(now)
            question.came = question.came or question.subscription_id == subscription_id

    def _ask(self, question: _Question, now: float) -> None:
        self._asked += 1
        name = f"jmsx-question-{self._asked}"
        try:
            headers = self._dialect.untranslated(
                self._dialect.writing.browse_headers(
                    destination=question.destination, prefetch=1, selector=question.selector
                )
            )
        except JmsxError:  # of what its sender wrote in a header
            question.told(False)  # noqa: FBT003 - the callback takes the answer alone
            return
        question.came = False
        question.prolong(now)
        self.questions[name] = question

        def begun(_now: float, error: JmsxError | None) -> JmsxError | None:
            if name in self.questions and error is not None and not silent(error):
                # The broker would complain of its UNSUBSCRIBE, for there is no such subscription.
                del self.questions[name]
                question.told(False)  # noqa: FBT003 - the callback takes the answer alone
            return error

        request = self._requests.open("SUBSCRIBE", question.destination, begun)
        named = {"id": name, **headers, "receipt": request.receipt_id}
        self._outbox.transmit(Frame("SUBSCRIBE", named))

    def _tell(self, name: str, now: float, *, shown: bool) -> None:
        question = self.questions.pop(name)
        self._outbox.transmit(Frame("UNSUBSCRIBE", {"id": name}))
        if shown and question.came:
            self._ask(question, now)
        else:
            question.told(shown)

    def next_timer(self) -> float | None:
        """Return when the oldest question has waited long enough (seconds, monotonic), or None."""
        if not self.questions:  # nearly always, and asked for each message
            return None
        return min(one.until for one in self.questions.values())

    def handle_timer(self, now: float, *, coming: bool) -> None:
        """Answer the questions whose time is over with False; `coming`: bytes are here, not read yet."""
        for name, question in list(self.questions.items()):
            if coming and question.until <= now:
                question.prolong(now)
            if question.until <= now:
                self._tell(name, now, shown=False)

    def accept(self, subscription_id: str, deliveries: list[Delivery], now: float) -> None:
        """Keep the messages that the broker shows a browser; messages for a browser that is closed are ignored."""
        question = self.questions.get(subscription_id)
        if question is not None:
            asked = question.delivery
            shown = asked is None or is_same(deliveries[0].frame, asked.frame, self._dialect)
            self._tell(subscription_id, now, shown=shown)
            return
        browser = self._open.get(subscription_id)
        if browser is None:
            return
        for delivery in deliveries:
            if browser.blind:
                delivery.go_by(doubted(delivery.frame, self._dialect))
            if self._dialect.ends_browsing(delivery.headers):
                browser.ended = True
            else:
                browser.waiting.append(delivery)

    def look(self, subscription_id: str) -> tuple[Delivery | None, bool]:
        """
        Return the next message, or None, and whether the end of the queue was reached, or the browser is closed.

        Raises ConnectionFailedError if the link was lost since the browser was opened.
        """
        if subscription_id in self._lost:
            raise lost(*self._lost[subscription_id])
        browser = self._open.get(subscription_id)
        if browser is None:
            return None, True
        if browser.waiting:
            return browser.waiting.popleft(), False
        return None, browser.ended

    def close(
        self, subscription_id: str, destination: str, taken: Delivery | None = None
    ) -> Request:
        """
        Unsubscribe a browser. `taken` is acknowledged first, if the subscription consumes what it is shown.

        With `ack:auto` Artemis acknowledges on its own, and if UNSUBSCRIBE is quicker it fails the next ACK of the
        session, whosever it is. Source: `StompSession.sendMessage`, `ServerSessionImpl.findConsumer` (2.44.0).
        """
        self._lost.pop(subscription_id, None)
        if self._open.pop(subscription_id, None) is None:  # the link was lost, and with it this
            return answered("UNSUBSCRIBE", destination)
        request = self._requests.open("UNSUBSCRIBE", destination)
        self._closing = [*(one for one in self._closing if not one.done), request]
        acks = [] if taken is None else [Frame("ACK", {"id": taken.arrival.ack_id})]
        headers = {"id": subscription_id, "receipt": request.receipt_id}
        self._outbox.transmit(*acks, Frame("UNSUBSCRIBE", headers))
        return request

    def lose(self, broker: str) -> None:
        """Forget all browsers and questions, because the link to `broker` is gone; `look` tells it of each browser."""
        self._lost |= {name: (broker, one.destination) for name, one in self._open.items()}
        self._open.clear()
        self.questions.clear()
