"""
Dead letter queues of ActiveMQ Artemis, by its management: STOMP has no browser there, and ACKs no transaction.

The broker itself moves one message at each question, from queue to queue, so whoever is killed between two leaves each
message in exactly one of them. Source: BROKER.md A44, A47, A62 and A63.
"""

from __future__ import annotations

import json
import time
import uuid
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from jmsx import Session
from jmsx.core.frames import Frame
from jmsx.core.headers import whole
from jmsx.core.management import Inquiry, Question
from jmsx.core.requests import silent
from jmsx.dead_letters.access import no_queue
from jmsx.dead_letters.letter import (
    EXPIRED,
    NAMES,
    NAMING_HEADERS,
    UNTOLD,
    DeadLetter,
    no_single_queue,
    read,
)
from jmsx.drivers.machine import Machine
from jmsx.drivers.management_link import CannotAskError
from jmsx.drivers.request_link import RequestLink
from jmsx.errors import (
    BrokerError,
    BrokerTimeoutError,
    InvalidDestinationError,
    ResourceAllocationError,
    UnsupportedError,
)
from jmsx.jms.session import link_of
from jmsx.log import counted
from jmsx_artemis.asking import MANAGEMENT, ask, may_ask
from jmsx_artemis.dead_letter_queues import keeps
from jmsx_artemis.destinations import ANYCAST, MULTICAST
from jmsx_artemis.dialect import DIALECT
from jmsx_artemis.open_data import messages
from jmsx_artemis.questions import ADDRESS, address_settings, count, make_queue, queues

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

T = TypeVar("T")

#: Messages between two reports, and on one link.
BATCH: Final = 50

#: Messages on a page, of which each takes 8 KB on the wire.
PAGE: Final = 200

#: Seconds for an answer of a management that has answered before, so that it is busy if it does not: a page far behind
#: the head of a long queue takes its time, and an operator who was woken has more of it than a session.
BUSY: Final = 60.0

#: Seconds in which a broker reads a page of a queue, unless it does not read on.
READING: Final = 20.0
#: Seconds between two looks whether it has, at first and at most; doubled from one to the next.
_FIRST_LOOK: Final = 0.02
_LAST_LOOK: Final = 1.0

#: What a copy by `copyMessage` does not tell of the message, or only as its sender would have it: the lists do.
_LISTED: Final = frozenset(
    {"messageID", "_AMQ_ORIG_ADDRESS", "_AMQ_ORIG_QUEUE", "_AMQ_ORIG_MESSAGE_ID", "timestamp"}
)

#: Headers of the frame that shows a copy, which are not of the message.
_FRAMES: Final = frozenset({"destination", "subscription", "message-id"})


class ArtemisDeadLetters:
    """The dead letters of one broker; see `jmsx.dead_letters.access.Access`."""

    remedy: Final = (
        "the others are with a consumer, scheduled, or in pages that the broker has not read; stop whoever reads the"
        " queue, or raise prefetch-page-bytes and max-read-page-bytes of its address"
    )

    def __init__(self, session: Session) -> None:
        link = link_of(session)
        if not may_ask(session):
            raise UnsupportedError(
                f"{link.address} shows and moves dead letters only through its management, and use_management is off"
            )
        self._session = session
        self._patience: float | None = None

    def queues(self) -> list[str]:
        """Return the queues of each dead letter address that a setting names, and those whose names are like one."""
        return sorted(self._ask(dead_letter_queues()))

    def count(self, queue: str) -> int | None:
        """Return how many messages the broker counts in `queue`; None: there is no such queue."""

        def inquiry() -> Inquiry[int | None]:
            found = yield from queues("NAME", _bare(queue))
            return count(found[0], "messageCount") if found else None

        return self._ask(inquiry())

    def counts(self, queues: Sequence[str]) -> dict[str, int | None]:
        """Return what `count` does, of each of `queues`."""
        return {queue: self.count(queue) for queue in queues}

    def is_same(self, queue: str, uri: str) -> bool:
        """Return whether the queue with that URI is `queue`; each may have the name of its address before its own."""
        return _target(uri)[1] == _bare(queue)

    def look(
        self, queue: str, *, bodies: bool = False, names: Collection[str] = ()
    ) -> Iterator[DeadLetter]:
        """
        Yield what waits in the queue; texts longer than the management tells (256 characters) are cut.

        With `bodies` the broker copies each message to a topic that nobody else reads. Where messages leave the queue
        meanwhile, others may not be shown.
        """
        queue = _bare(queue)
        pages = (
            self._pages(queue)
            if (chosen := _naming(names)) is None
            else self._chosen(queue, chosen)
        )
        if not bodies:
            for listed in pages:
                yield from map(_letter, listed)
            return
        with self._copying(queue) as copies:
            for listed in pages:
                for start in range(0, len(listed), BATCH):
                    yield from copies(listed[start : start + BATCH])

    def _pages(self, queue: str) -> Iterator[Sequence[Mapping[str, Any]]]:
        """
        Yield what waits in the queue, from its head, each message once.

        One list shows the head alone (`management-browse-page-size` messages, 200); the other one has pages, but to
        read it costs a hundred times as much. Where that setting is larger, the first list of a long queue is, too: one
        of 20,000 dead letters took all of a broker's memory. So it is asked for where no more than a page waits.
        """
        total, listed = self._ask(_listed(queue))
        yield listed
        seen = {str(one["messageID"]) for one in listed}
        number = len(listed) // PAGE + 1
        while listed and len(seen) < total:
            listed = self._ask(_page(queue, number))
            fresh = [one for one in listed if str(one["messageID"]) not in seen]
            yield fresh
            seen.update(str(one["messageID"]) for one in fresh)
            number += 1

    def _chosen(self, queue: str, chosen: str) -> Iterator[Sequence[Mapping[str, Any]]]:
        """Yield what waits in the queue and fits a filter; raises InvalidDestinationError if there is no such queue."""
        self._ask(_there(queue))
        listed = self._ask(_page(queue, number := 1, chosen))
        while listed:
            yield listed
            number += 1
            listed = self._ask(_page(queue, number, chosen)) if len(listed) == PAGE else []

    def replay(
        self,
        queue: str,
        letters: Sequence[DeadLetter],
        to: str | None = None,
        *,
        at_once: int | None = None,
    ) -> Iterator[list[str]]:
        """
        Have the broker move each letter; a queue that it had removed because it was empty is made again.

        Raises ResourceAllocationError at the first for which there is no room, and InvalidDestinationError before the
        first, where a queue is not there or does not keep what it gets.
        """
        targets = {letter.id: _target(to or letter.origin) for letter in letters}
        limited = self._ask(_made(set(targets.values()), is_named=to is not None))
        here = _bare(queue)
        return self._each(
            here,
            letters,
            lambda one: _moved(here, one, targets[one], limited),
            min(BATCH, at_once or BATCH),
        )

    def remove(self, queue: str, letters: Sequence[DeadLetter]) -> Iterator[list[str]]:
        """Have the broker delete `letters`, and give the ids of each batch that is gone."""
        here = _bare(queue)
        return self._each(here, letters, lambda one: _told(here, "removeMessage", whole(one)))

    def _each(
        self,
        queue: str,
        letters: Sequence[DeadLetter],
        act: Callable[[str], Inquiry[bool]],
        size: int = BATCH,
    ) -> Iterator[list[str]]:
        for start in range(0, len(letters), size):
            yield from self._all_of(queue, letters[start : start + size], act)

    def _all_of(
        self, queue: str, letters: Sequence[DeadLetter], act: Callable[[str], Inquiry[bool]]
    ) -> Iterator[list[str]]:
        """
        Have `act` done with `letters` of a queue, and yield the ids of those with which it is; the others are gone.

        The broker denies a message that lies in a page which it has not read yet (BROKER.md A63), so what it still
        lists is asked for again. Raises BrokerTimeoutError if none of that is found for READING seconds.
        """
        waited, pause = 0.0, _FIRST_LOOK
        while letters:
            done = self._ask(_those([one.id for one in letters], act))
            if done:
                yield done
                waited, pause = 0.0, _FIRST_LOOK
            letters = self._still_there(queue, [one for one in letters if one.id not in done])
            if letters and not done:
                if waited >= READING:
                    raise _unread(queue, len(letters))
                time.sleep(pause)
                waited, pause = waited + pause, min(2 * pause, _LAST_LOOK)

    def _still_there(self, queue: str, letters: Sequence[DeadLetter]) -> Sequence[DeadLetter]:
        """Return those of `letters` that the broker lists in the queue, by a filter of the times of their sending."""
        told = {whole(one.headers.get("timestamp")) for one in letters}
        times = sorted(one for one in told if one is not None)
        if not times:
            return []
        pages = self._chosen(queue, " OR ".join(f"AMQTimestamp = {one}" for one in times))
        there = {str(one["messageID"]) for listed in pages for one in listed}
        return [one for one in letters if one.id in there]

    def _ask(self, inquiry: Inquiry[T]) -> T:
        try:
            told = ask(self._session, inquiry, self._patience)
        except CannotAskError as error:
            raise type(error.cause)(f"{error.cause}{_advice(error)}") from error
        self._patience = BUSY
        return told

    @contextmanager
    def _copying(
        self, queue: str
    ) -> Iterator[Callable[[Sequence[Mapping[str, Any]]], Iterator[DeadLetter]]]:
        """Yield a function that yields messages, as listed, whole; but for those that have left the queue."""
        topic = f"jmsx.copies.{uuid.uuid4().hex}"
        link = link_of(self._session)
        # Its pauses are the caller's, and nobody sends heart-beats in them
        options = replace(link.options, heartbeat=(0.0, 0.0))
        shown_to = RequestLink(link.address, options, link.dialect, Machine())
        try:
            shown_to.connect()
            headers = {"id": topic, "destination": topic, "subscription-type": MULTICAST}
            shown_to.request(Frame("SUBSCRIBE", {**headers, "ack": "auto"}), topic)
            target = self._ask(_queue_of(topic))

            def copies(listed: Sequence[Mapping[str, Any]]) -> Iterator[DeadLetter]:
                ids = {str(one["messageID"]): one for one in listed}
                copied = self._ask(
                    _those(list(ids), lambda one: _told(queue, "copyMessage", whole(one), target))
                )
                for one in copied:
                    frame = shown_to.shown(topic, "SUBSCRIBE", topic)
                    told = frame.headers.items()
                    texts = {k: v for k, v in told if k not in _LISTED and k not in _FRAMES}
                    yield _letter({**ids[one], **texts}, frame.body)

            yield copies
            shown_to.end()
        finally:
            shown_to.drop()


def _advice(error: CannotAskError) -> str:
    """Return what to do where the broker could not be asked, as the end of a sentence; empty: the cause says it."""
    if isinstance(error.cause, BrokerTimeoutError) and error.reached:
        return f"; it is busy, or its management has another address than {ADDRESS}"
    if silent(error.cause):
        return ""
    return f"; {MANAGEMENT.remedy}"


def dead_letter_queues(addresses: Iterable[str] | None = None) -> Inquiry[dict[str, int]]:
    """
    Return how many messages wait in each queue of what the settings of `addresses` (None: all) name as a dead letter
    address, and in each that is called so.

    The settings of each address are a question of their own: those of 2,000 took 7 s.
    """
    if addresses is None:
        addresses = yield Question("broker", "getAddressNames")
    dead: set[str] = set()
    for address in addresses:
        settings = yield from address_settings(address)
        if settings.dead_letter_address:
            dead.add(settings.dead_letter_address)
    found: dict[str, int] = {}
    for address in dead:
        for one in (yield from queues("ADDRESS", address)):
            found[one["name"]] = count(one, "messageCount")
    # Queues that no settings name: that of jmsx's copies, and those that applications have for them.
    for name in filter(NAMES.search, (yield Question("broker", "getQueueNames"))):
        for one in () if name in found else (yield from queues("NAME", name)):
            found[name] = count(one, "messageCount")
    return found


def _there(queue: str) -> Inquiry[int]:
    """Return how many messages a queue has; raises InvalidDestinationError if there is none."""
    found = yield from queues("NAME", queue)
    if not found:
        raise no_queue(queue)
    return count(found[0], "messageCount")


def _listed(queue: str) -> Inquiry[tuple[int, list[Mapping[str, Any]]]]:
    """Return how many messages a queue has, and those at its head; raises InvalidDestinationError if there is none."""
    total = yield from _there(queue)
    if total > PAGE:
        return total, (yield from _page(queue, 1))
    try:
        told = yield Question(f"queue.{queue}", "listMessagesAsJSON", ("",))
    except BrokerError:  # JSON has no NaN and no Infinity, and one property that is such a number costs the whole list
        return total, (yield from _page(queue, 1))
    listed: list[Mapping[str, Any]] = json.loads(told)
    return total, listed


def _page(queue: str, number: int, chosen: str = "") -> Inquiry[list[Mapping[str, Any]]]:
    """Return the messages on a page of what fits a filter in a queue; the first is 1."""
    return messages((yield Question(f"queue.{queue}", "browse", (number, PAGE, chosen))))


def _naming(names: Collection[str]) -> str | None:
    """
    Return the filter of the messages that one of `names` names; None: the broker cannot choose them.

    No filter asks for the number of a message itself: of what is known by it all is listed, or by the key with its
    time what came in that millisecond.
    """
    if not names or any(whole(name) is not None for name in names):
        return None
    texts = ", ".join("'" + name.replace("'", "''") + "'" for name in sorted(names))
    times = [
        time
        for _, sign, time in (name.rpartition("@") for name in sorted(names))
        if sign and whole(time)
    ]
    return " OR ".join(
        (
            *(f"{one} IN ({texts})" for one in NAMING_HEADERS),
            *(f"AMQTimestamp = {one}" for one in times),
        )
    )


def _made(wanted: set[tuple[str, str]], *, is_named: bool) -> Inquiry[Mapping[str, str]]:
    """
    Have the queues of addresses, as (address, queue); `is_named`: by the operator, and not by the messages.

    Returns the addresses that lose what they have no room for. Raises InvalidDestinationError if a queue is not there
    that nobody but its subscriber makes; then none is made. So it does for one that does not keep what it gets.
    """
    for address, queue in sorted(wanted, key=_is_own):
        if (yield from queues("NAME", queue)):
            continue
        if not _is_own((address, queue)):
            if is_named:
                raise InvalidDestinationError(
                    f"{address} has no queue {queue}, and only its subscriber makes one; name one that is there"
                )
            raise InvalidDestinationError(
                f"queue {queue} of {address} is gone; name another one for what came from it"
                f" (--from queue://{address}::{queue} --to queue://NAME), and choose the others by --from"
            )
        yield from make_queue(queue, ANYCAST)
    limited: dict[str, str] = {}
    for address, queue in sorted(wanted):
        for one in (yield from queues("NAME", queue)):
            if not keeps(one, internal="false"):
                raise InvalidDestinationError(
                    f"queue {queue} does not keep all that it gets, as its settings say (ring-size, last-value,"
                    " purge-on-no-consumers, durable, enabled); dead letters would be lost there: name another one"
                )
        setting, policy = (yield from address_settings(address)).full_policy
        if policy in {"FAIL", "DROP"}:
            limited[address] = setting
    return limited


def _moved(
    here: str, letter: str, target: tuple[str, str], limited: Mapping[str, str]
) -> Inquiry[bool]:
    """
    Have the broker move a letter from a queue to another one, and return whether it did.

    `limited` has the setting that limits each address which has one. Raises ResourceAllocationError where there is no
    room, or may be none: what the broker refuses is in no queue then until it is restarted, and what it drops never
    again (BROKER.md A75). How many pages are left it does not tell.
    """
    address, queue = target
    setting = limited.get(address)
    if setting is not None and (yield Question(f"address.{address}", "isPaging")):
        state = "is full" if setting == "address-full-policy" else "has pages, and may be full"
        raise ResourceAllocationError(
            f"{address} {state}, and what is moved there then is lost ({setting}); make room, or name another queue"
        )
    return (yield from _told(here, "moveMessage", whole(letter), queue))


def _unread(queue: str, letters: int) -> BrokerTimeoutError:
    return BrokerTimeoutError(
        f"the broker lists {counted(letters, 'message')} in pages of {queue}, and has read none of them in"
        f" {READING:g} s; resume the queue if it is paused, and do the same again"
    )


def _is_own(target: tuple[str, str]) -> bool:
    """Return whether an (address, queue) is the one queue of its address, by their names."""
    address, queue = target
    return address == queue


def _queue_of(topic: str) -> Inquiry[str]:
    names = yield Question(f"address.{topic}", "getQueueNames")
    target: str = names[0]
    return target


def _those(ids: Sequence[str], act: Callable[[str], Inquiry[bool]]) -> Inquiry[list[str]]:
    """Return those of `ids` for which the broker says that `act` is done."""
    done = []
    for one in ids:
        if (yield from act(one)):
            done.append(one)  # noqa: PERF401 - a comprehension cannot yield
    return done


def _told(queue: str, operation: str, *arguments: int | str | None) -> Inquiry[bool]:
    """Return whether the broker did it; not with a message that is not there."""
    told = yield Question(f"queue.{queue}", operation, arguments)
    return told is True


def _bare(queue: str) -> str:
    """Return the name that a queue has in the whole broker, of `ADDRESS::QUEUE` too."""
    return queue.rpartition("::")[2]


def _target(uri: str) -> tuple[str, str]:
    """Return address and queue of `queue://ADDRESS` or `queue://ADDRESS::QUEUE`."""
    address, _, queue = uri.removeprefix("queue://").partition("::")
    return address, queue or address


def _letter(listed: Mapping[str, Any], body: bytes | None = None) -> DeadLetter:
    headers = {name: str(value) for name, value in listed.items()}
    address, queue = headers.get("_AMQ_ORIG_ADDRESS", ""), headers.get("_AMQ_ORIG_QUEUE", "")
    origin = f"queue://{address}" if queue == address else f"queue://{address}::{queue}"
    number = headers.get("_AMQ_ORIG_MESSAGE_ID", headers["messageID"])
    return read(
        headers["messageID"],
        headers,
        origin=origin if address and queue else None,
        message_id=number,
        broker_key=DIALECT.reading.message_key(
            {"message-id": number, "timestamp": headers.get("timestamp", "")}
        ),
        reason=EXPIRED if "_AMQ_ACTUAL_EXPIRY" in headers else UNTOLD,
        size=None if body is None else len(body),
        astray=_astray(address, queue),
        body=body,
    )


def _astray(address: str, queue: str) -> str:
    """
    Return why a message cannot go back to a queue of an address.

    One that is called as its address is made if it is not there, and one called like a pattern would be given what is
    sent to all that fit it. Of another one, such as a subscription's, the name says nothing: it is there, or not.
    """
    if not (address and queue):
        return "it does not tell the queue that it came from"
    return no_single_queue(f"queue://{address}") if address == queue else ""
