"""
Access to the dead letter queues of ActiveMQ Classic: read with a queue browser, emptied in transactions.

A message is sent back in the same transaction in which the dead letter is acknowledged, so whatever happens to this
process or to the broker, no message is in two places or in none. ACKs and COMMIT go out when every SEND has its
receipt: an ERROR for a SEND without one would not spoil the transaction. Source: BROKER.md C18, C20, C42.

A queue is first browsed without translation, because translating changes messages that the broker may just be sending
to others (C80); from the first message on whose body is missing, it is browsed with translation. If the broker closes
the connection because of a message that it should translate (C67), the whole queue is read untranslated, and each
missing body is looked up alone. A body of XML may be a text, or an object or map that the broker has translated: a
browser without translation shows which of them are texts.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from jmsx import MessageConsumer, Session, Topic
from jmsx.core.delivery import Delivery
from jmsx.core.destination_names import destination_uri
from jmsx.core.frames import UNDECODABLE_HEADER, Frame, MessageFrame
from jmsx.core.headers import INT, UNREADABLE_HEADER, whole
from jmsx.core.identity import stamp_again
from jmsx.core.requests import barrier
from jmsx.core.translating import beyond, doubted, until_bodiless
from jmsx.core.values import StompAck
from jmsx.core.wire import LINKS, EarlierLinks
from jmsx.dead_letters.access import no_queue
from jmsx.dead_letters.letter import (
    EXPIRED,
    GIVEN_UP,
    NAMES,
    UNTOLD,
    DeadLetter,
    no_single_queue,
    read,
)
from jmsx.drivers.body_lookup import BodyLookup
from jmsx.drivers.machine import Machine
from jmsx.drivers.request_link import PATIENCE, MisreadError, RequestLink
from jmsx.errors import (
    BrokerTimeoutError,
    ConnectionFailedError,
    UnsupportedError,
)
from jmsx.jms.one_broker import connect_to
from jmsx.jms.session import link_of
from jmsx_classic.bodies import TRANSLATION_HEADER, looks_like_map
from jmsx_classic.copies import replayed_headers
from jmsx_classic.dialect import DIALECT
from jmsx_classic.statistics import Statistics

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Generator,
        Iterator,
        Mapping,
        Sequence,
    )

#: Messages in one transaction.
BATCH: Final = 100

#: A transaction takes no more messages once their bodies have so many bytes: broker and process hold them in memory.
BATCH_BYTES: Final = 8 * 1024 * 1024

#: How many messages are settled on one link: Classic keeps each until the link ends, and searches all at a COMMIT.
LINK: Final = 500

#: How many unsettled messages a subscription may hold. Messages that are not wanted stay unsettled at the subscription
#: that got them, and another subscription is made for those behind them: so no more than this many bodies wait here.
_PREFETCH: Final = 500

#: The prefetch of a browser, in messages.
_BROWSED: Final = 500

#: How many queues' statistics are asked for together: all the answers must come in the time that one may take.
_TOGETHER: Final = 100

#: Seconds in which the broker must send the next advisory of a queue, or the one that marks the end.
_PATIENCE: Final = 2.0
#: Seconds between two looks at the advisories that have come.
_LOOK: Final = 0.1

#: Matches the queue in an advisory that it exists, as the transformation `jms-map-xml` writes it (seen on 6.1.8).
_QUEUE: Final = re.compile(
    r'<destination class="ActiveMQQueue">\s*<string>([^<]*)</string>.*<operationType>0<', re.DOTALL
)

#: How the broker words that a message has expired (`dlqDeliveryFailureCause`).
_EXPIRED: Final = re.compile(r"\bexpired\b", re.IGNORECASE)

#: The same header by a Java client that gave a message up: after so many deliveries, because of an exception or `null`.
_GIVEN_UP: Final = re.compile(
    r"(?:Delivery\[(?P<deliveries>\d+)\] )?exceeds redelivery policy limit:.*?, cause:"
    r"(?!null$)(?:(?P<error>[\w.$]+)(?:: ?(?P<message>.*))?)?",
    re.DOTALL | re.IGNORECASE,
)


#: Matches a body of XML, which the broker may have made of a map or an object.
_XML: Final = re.compile(rb"\s*<")


class ClassicDeadLetters:
    """The dead letters of one broker; see `jmsx.dead_letters.access.Access`."""

    remedy: Final = "they do not fit into the broker's memory; raise its memoryUsage limit"

    def __init__(self, session: Session) -> None:
        link = link_of(session)
        self._session = session
        self._address = link.address
        # The caller of a slow replay may pause between batches, and nobody sends heart-beats meanwhile
        self._options = replace(link.options, heartbeat=(0.0, 0.0))
        self._lookup = BodyLookup(DIALECT, self._options, Machine())
        #: Whether the broker can translate all messages of a queue, for queues that were browsed to the end
        self._translates: dict[str, bool] = {}
        #: Ids of messages that were sent as text in XML, by queue, for queues in which such messages were looked for
        self._texts: dict[str, set[str]] = {}
        self._told = EarlierLinks()  #: what one link tells the next
        self._is_silent = False  #: the broker has not answered the question for its queues

    def queues(self) -> list[str]:
        """Return the queues named like dead letter queues: Classic does not tell its strategies over STOMP."""
        return sorted(name for name in self._all() if NAMES.search(name))

    def _all(self) -> set[str]:
        """
        Return all queues: the broker sends each new subscriber of their advisories one for each queue that exists.

        Raises UnsupportedError if the broker sends no advisories (`advisorySupport="false"`) or does not answer: while
        its memory is full, the question blocks the connection (BROKER.md C79). So it gets a connection of its own, and
        after one failure is not asked again.
        """
        if self._is_silent:
            raise _untold(self._address)
        found = None
        connection = connect_to(self._address, self._options, request_timeout=PATIENCE)
        try:
            with suppress(BrokerTimeoutError):
                connection.start()
                found = _queues_of(connection.create_session())
        finally:  # without an answer, or after Ctrl-C, do not wait for DISCONNECT either
            (connection.abort if found is None else connection.close)()
        if found is None:
            self._is_silent = True
            raise _untold(self._address)
        return {html.unescape(name) for name in found}

    def is_same(self, queue: str, uri: str) -> bool:
        """Return whether the queue with that URI, perhaps with options, is `queue`."""
        return uri.partition("?")[0] == f"queue://{queue}"

    def count(self, queue: str) -> int | None:
        """Return the number of messages by the statistics plugin, or else by a browser; None: no such queue."""
        return self.counts([queue])[queue]

    def counts(self, queues: Sequence[str]) -> dict[str, int | None]:
        """Return the result of `count` for each of `queues`; which of them exist is asked only once."""
        try:
            there = self._all().intersection(queues)
        except UnsupportedError:  # no advisories
            return {queue: self._number(queue) for queue in queues}
        sizes = self._sizes(sorted(there))
        for queue in there - sizes.keys():
            sizes[queue] = self._number(queue)
        return {queue: sizes.get(queue) for queue in queues}

    def _sizes(self, queues: Sequence[str]) -> dict[str, int]:
        """Return the number of messages of those `queues` for which the statistics plugin tells it."""
        link_of(self._session).shared.start()
        asked = Statistics(self._session)
        if asked.broker() is None:
            return {}
        sizes = {}
        for first in range(0, len(queues), _TOGETHER):
            for queue, told in asked.queues(queues[first : first + _TOGETHER]).items():
                if isinstance(size := told.get("size"), int):
                    sizes[queue] = size
        return sizes

    def _number(self, queue: str) -> int:
        return sum(1 for _ in self._browsed(queue, DIALECT.untranslated(_browsing(queue))))

    def look(
        self, queue: str, *, bodies: bool = False, names: Collection[str] = ()
    ) -> Iterator[DeadLetter]:
        """
        Yield the messages that a browser gets; raises InvalidDestinationError if the queue is known not to exist.

        The browser has no selector for `names`: the broker ends a browser after the first page without a match.
        """
        with suppress(UnsupportedError):
            if queue not in self._all():  # a browser would make it
                raise no_queue(queue)
        self._texts.pop(queue, None)
        for frame in self._shown(queue, whole=True):
            letter = _letter(frame, bodies=bodies)
            if not names or not letter.names.isdisjoint(names):
                yield letter

    def _shown(self, queue: str, *, whole: bool = False) -> Iterator[MessageFrame]:
        """
        Yield the messages that a browser gets: untranslated up to the first one without its body, then translated until
        the broker closes the connection because it cannot translate one, and from there on untranslated.

        If `whole`, each body that is then missing is looked up alone.
        """
        translated = _browsing(queue)
        plain = DIALECT.untranslated(translated)
        known = Counter[str]()
        if self._translates.get(queue, True):
            try:
                with closing(self._browsed(queue, plain)) as frames:
                    ended = yield from until_bodiless(frames, known, DIALECT, _lacks_body)
                if not ended:
                    for frame in beyond(known, self._browsed(queue, translated), DIALECT):
                        yield self._untranslated(frame, queue) if whole else frame
                        known[DIALECT.reading.message_id(frame.headers)] += 1
            except ConnectionFailedError:  # if it has another reason, the next browser raises it
                pass
            else:
                self._translates[queue] = True
                return
        for frame in beyond(known, self._browsed(queue, plain), DIALECT):
            yield self._whole(frame, queue) if whole else frame
        self._translates[queue] = False

    def _browsed(
        self, queue: str, headers: Mapping[str, str]
    ) -> Generator[MessageFrame, None, None]:
        with self._own_link() as link:
            link.send(Frame("SUBSCRIBE", {"id": "look", **headers}))
            for frame in link.messages(queue, DIALECT.ends_browsing):
                yield frame if TRANSLATION_HEADER in headers else doubted(frame, DIALECT)

    def _whole(self, frame: MessageFrame, queue: str) -> MessageFrame:
        """Return the untranslated `frame` with its body, which is looked up if it comes only by translation."""
        if not _lacks_body(frame):
            return frame
        shown = self._lookup.look(_delivery(frame, queue), self._address)
        return frame if shown is None or _is_object(shown) else shown

    def _untranslated(self, frame: MessageFrame, queue: str) -> MessageFrame:
        """Return a translated `frame` as it was sent: an object without a body, a text in XML as text."""
        if not _XML.match(frame.body):
            return frame
        if queue not in self._texts:
            headers = DIALECT.untranslated(_browsing(queue))
            self._texts[queue] = {
                DIALECT.reading.message_id(one.headers)
                for one in self._browsed(queue, headers)
                if _XML.match(one.body)
            }
        if DIALECT.reading.message_id(frame.headers) in self._texts[queue]:
            left = f"{TRANSLATION_HEADER}:".encode()
            lines = [line for line in frame.block.split(b"\n") if not line.startswith(left)]
            return MessageFrame(b"\n".join(lines), frame.body)
        return frame.without_body() if _is_object(frame) else frame

    def replay(
        self,
        queue: str,
        letters: Sequence[DeadLetter],
        to: str | None = None,
        *,
        at_once: int | None = None,
    ) -> Iterator[list[str]]:
        """Send a copy of each letter to `to`, or to its origin, and acknowledge it; each batch is a transaction."""

        def copy(letter: DeadLetter, frame: MessageFrame) -> list[Frame]:
            destination = to or letter.origin
            delivery = _delivery(frame, queue)
            headers = replayed_headers(delivery) | DIALECT.writing.send_headers(destination)
            send = Frame("SEND", headers, frame.body)
            return [stamp_again(send, delivery, destination, DIALECT.reading)]

        movable = [one for one in letters if not one.obstacle(to)]
        return self._settle(queue, movable, copy, min(BATCH, at_once or BATCH))

    def remove(self, queue: str, letters: Sequence[DeadLetter]) -> Iterator[list[str]]:
        """Delete the letters; a batch is one transaction."""
        return self._settle(queue, letters, lambda _letter, _frame: [])

    def _settle(
        self,
        queue: str,
        letters: Sequence[DeadLetter],
        instead: Callable[[DeadLetter, MessageFrame], list[Frame]],
        size: int = BATCH,
    ) -> Iterator[list[str]]:
        """
        Acknowledge `letters` in one transaction with the SENDs that `instead` makes of each, and give the rest back.

        Several links are used, one after the other. Letters are compared as a whole, as two may have the same id (C46).
        """
        wanted = Counter(letters)
        if queue not in self._translates:  # a link must not end while a COMMIT is under way
            for _ in self._shown(queue):
                pass
        in_vain = 0  #: links in a row
        while wanted.total():
            left = wanted.total()
            try:
                with self._own_link() as link:
                    for batch in self._batches(link, queue, wanted.copy(), instead, size):
                        _commit(link, batch, queue)
                        wanted.subtract(one.letter for one in batch)
                        yield [one.letter.id for one in batch]
                    link.end()
            except MisreadError:
                in_vain = 0 if wanted.total() < left else in_vain + 1
                if in_vain > LINKS:
                    raise
            else:
                in_vain = 0
                if wanted.total() == left:  # they are not there any more
                    return

    def _batches(
        self,
        link: RequestLink,
        queue: str,
        wanted: Counter[DeadLetter],
        instead: Callable[[DeadLetter, MessageFrame], list[Frame]],
        size: int,
    ) -> Iterator[list[_Taken]]:
        """Consume `queue` on one link and yield batches of `wanted` messages, taking them out of `wanted`."""
        looked_at = {one.id for one in wanted if not one.stuck or UNREADABLE_HEADER in one.headers}
        batch: list[_Taken] = []
        subscriptions, held, taken, weight = 0, 0, 0, 0
        while wanted.total() and taken < LINK:
            if held >= subscriptions * _PREFETCH - BATCH:
                subscriptions += 1
                link.send(self._subscribe(queue, f"move-{subscriptions}"))
            try:
                frame = link.message(queue, settles=True)
            except BrokerTimeoutError:
                # The queue has no more messages, if the broker still answers, and sends none before its answer.
                link.request_all(barrier("alive"), queue)
                if link.has_messages:
                    continue
                break
            if self._translates[queue]:
                frame = self._untranslated(frame, queue)
            elif DIALECT.reading.message_id(frame.headers) in looked_at:
                frame = self._whole(doubted(frame, DIALECT), queue)
            letter = _letter(frame)
            if not wanted[letter]:
                held += 1
                continue
            wanted[letter] -= 1
            taken += 1
            ack_id = frame.headers.get(DIALECT.ack_header, "")
            batch.append(_Taken(letter, ack_id, instead(letter, frame)))
            weight += len(frame.body)
            if len(batch) == size or weight >= BATCH_BYTES:
                yield batch
                batch, weight = [], 0
        if batch:
            yield batch

    def _subscribe(self, queue: str, name: str) -> Frame:
        headers: Mapping[str, str] = DIALECT.writing.subscribe_headers(
            destination=f"queue://{queue}",
            ack=StompAck.CLIENT_INDIVIDUAL,
            selector=None,
            durable_name=None,
            no_local=False,
            options={"prefetchSize": str(_PREFETCH)},
        )
        if not self._translates[queue]:
            headers = DIALECT.untranslated(headers)
        return Frame("SUBSCRIBE", {"id": name, **headers})

    @contextmanager
    def _own_link(self) -> Iterator[RequestLink]:
        link = RequestLink(self._address, self._options, DIALECT, Machine(), self._told)
        try:
            link.connect()
            yield link
        finally:
            link.drop()


class _Taken(NamedTuple):
    """A message that is taken from the queue."""

    letter: DeadLetter
    ack_id: str
    instead: list[Frame]  #: the SENDs that replace it


def _commit(link: RequestLink, batch: Sequence[_Taken], queue: str) -> None:
    """
    In one transaction send the replacements and acknowledge the messages.

    Raises MisreadError if one of the messages was not read whole: that shows before the answer to BEGIN.
    """
    within = {"transaction": "move"}
    link.request(Frame("BEGIN", within), queue)
    sends = [send for one in batch for send in one.instead]
    link.request_all(
        [Frame("SEND", {**send.headers, **within}, send.body) for send in sends],
        f"of what lay in {queue}",
    )
    link.send(*(Frame("ACK", {"id": one.ack_id, **within}) for one in batch))
    try:
        link.request(Frame("COMMIT", within), queue)
    except MisreadError as error:  # the COMMIT may have taken effect: do not retry
        raise ConnectionFailedError(str(error)) from error


def _delivery(frame: MessageFrame, queue: str) -> Delivery:
    """Return the message as a `Delivery` to a consumer of `queue`, which the dialect can read."""
    message_id = DIALECT.reading.message_id(frame.headers)
    read = f"queue://{queue}"
    return Delivery.of(frame, 0, message_id, epoch=0, now=0.0, wall=0.0, subscribed=read)


def _browsing(queue: str) -> Mapping[str, str]:
    return DIALECT.writing.browse_headers(
        destination=f"queue://{queue}", prefetch=_BROWSED, selector=None
    )


def _lacks_body(frame: MessageFrame) -> bool:
    """Return whether a message may have a body that comes only translated."""
    headers = frame.headers
    return UNDECODABLE_HEADER not in headers and not DIALECT.reading.carries(headers, frame.body)


def _is_object(frame: MessageFrame) -> bool:
    """Return whether a body that the broker has translated is no map, but an object of a class that it trusts (C67)."""
    return _XML.match(frame.body) is not None and not looks_like_map(frame.body)


def _letter(frame: MessageFrame, *, bodies: bool = False) -> DeadLetter:
    headers = frame.headers
    origin = headers.get("jmsx_original_destination") or destination_uri(
        headers.get("original-destination")
    )
    reason, error, message, deliveries = _cause(headers.get("dlqDeliveryFailureCause", ""))
    return read(
        DIALECT.reading.message_id(headers),
        headers,
        origin=origin,
        reason=reason,
        error=error,
        error_message=message,
        deliveries=deliveries,
        size=len(frame.body),
        stuck=_stuck(headers, frame.body),
        astray=_astray(origin),
        body=frame.body if bodies else None,
    )


def _queues_of(session: Session) -> set[str] | None:
    """Return the queues that advisories name, as they are written there; None: the broker sends no advisories."""
    consume = session.create_consumer
    # An advisory of our own temporary topic comes after those of the queues that existed before: it marks the end
    advisories = consume(Topic("ActiveMQ.Advisory.Queue?consumer.transformation=jms-map-xml"))
    end = consume(Topic("ActiveMQ.Advisory.TempTopic"))
    consume(session.create_temporary_topic())
    found, silent = set[str](), 0.0
    while end.receive(_LOOK) is None:
        more = _named_by(advisories)
        silent = 0.0 if more else silent + _LOOK
        if silent > _PATIENCE:
            return None
        found |= more
    return found | _named_by(advisories)


def _untold(broker: object) -> UnsupportedError:
    return UnsupportedError(
        f"{broker} does not tell which queues it has (advisorySupport is off, or its memory is full); name one"
    )


def _named_by(advisories: MessageConsumer) -> set[str]:
    """Return the queues named by the advisories that have come."""
    found = set[str]()
    while (advisory := advisories.receive(0.0)) is not None:
        text = advisory.body if advisory.readable else ""
        found |= set(_QUEUE.findall(str(text)))
    return found


def _cause(told: str) -> tuple[str, str, str, int | None]:
    """Return reason, error, its text and deliveries, as the broker and Java clients word a cause; a NACK has none."""
    given_up = _GIVEN_UP.search(told)
    if given_up is not None:
        error = (given_up["error"] or "").rpartition(".")[2]
        return GIVEN_UP, error, given_up["message"] or "", whole(given_up["deliveries"], most=INT)
    return EXPIRED if _EXPIRED.search(told) else UNTOLD, "", "", None


def _stuck(headers: Mapping[str, str], body: bytes) -> str:
    """Return why a message cannot be sent on: parts that STOMP does not show would be missing. Empty if it can."""
    if UNDECODABLE_HEADER in headers and "jmsx_death_reason" not in headers:  # else it is a copy's
        return "its headers do not come over STOMP; use the broker's console"
    if not DIALECT.reading.carries(headers, body):
        return "its body does not come over STOMP; use the broker's console"
    return ""


def _astray(origin: str | None) -> str:
    """Return why a message cannot go back to `origin` (URI); empty if it can."""
    if origin and origin.startswith("topic://"):
        return f"every subscriber of {origin} would get it again"
    if not origin or not origin.startswith("queue://"):
        return "it does not tell where it came from"
    return no_single_queue(origin)
