"""
Access to the dead letter queues of ActiveMQ Artemis through its management.

Over STOMP Artemis has no queue browser, and an ACK is never part of a transaction. The broker itself moves one message
per request from queue to queue, so if jmsx is killed in between, each message is in exactly one of the two queues.
Source: BROKER.md A44, A47, A62 and A63.
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

#: Messages that are handled between two reports of progress, and on one link.
BATCH: Final = 50

#: Messages on a page of `browse`; each takes 8 KB on the wire.
PAGE: Final = 200

#: Seconds to wait for an answer once the management has answered before: it is then only busy, as with a page far
#: behind the head of a long queue, and an operator can wait longer than a session.
BUSY: Final = 60.0

#: Seconds in which a broker reads a page of a queue, unless it does not read on.
READING: Final = 20.0
#: Seconds between two looks whether it has, at first and at most; doubled from one to the next.
_FIRST_LOOK: Final = 0.02
_LAST_LOOK: Final = 1.0

#: Fields that must be read from the lists: a copy by `copyMessage` lacks them, or has values that its sender chose.
_LISTED: Final = frozenset(
    {"messageID", "_AMQ_ORIG_ADDRESS", "_AMQ_ORIG_QUEUE", "_AMQ_ORIG_MESSAGE_ID", "timestamp"}
)

#: Headers that belong to the MESSAGE frame of a copy and not to the message.
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
        """Return the queues of each dead letter address in the settings, and queues whose names say dead letters."""
        return sorted(self._ask(dead_letter_queues()))

    def count(self, queue: str) -> int | None:
        """Return how many messages the broker counts in `queue`; None: there is no such queue."""

        def inquiry() -> Inquiry[int | None]:
            found = yield from queues("NAME", _bare(queue))
            return count(found[0], "messageCount") if found else None

        return self._ask(inquiry())

    def counts(self, queues: Sequence[str]) -> dict[str, int | None]:
        """Return the result of `count` for each of `queues`."""
        return {queue: self.count(queue) for queue in queues}

    def is_same(self, queue: str, uri: str) -> bool:
        """Return whether `uri` means the queue `queue`; both may be written `ADDRESS::QUEUE`."""
        return _target(uri)[1] == _bare(queue)

    def look(
        self, queue: str, *, bodies: bool = False, names: Collection[str] = ()
    ) -> Iterator[DeadLetter]:
        """
        Yield the messages that wait in the queue; the management cuts texts after 256 characters.

        With `bodies` the broker copies each message to a topic that nobody else reads, and all of it is shown. If
        messages leave the queue meanwhile, others may be skipped.
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
        Yield the messages that wait in the queue, from its head, each message once.

        `listMessagesAsJSON` shows the head alone (`management-browse-page-size` messages, by default 200); `browse` has
        pages, but costs a hundred times as much. If that setting is large, the first list of a long queue is large,
        too: one of 20,000 dead letters took all of a broker's memory. So it is used only if at most a page waits.
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
        """Yield the waiting messages that match a filter; raises InvalidDestinationError if there is no such queue."""
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
        Have the broker move each letter; a target queue that it had removed because it was empty is made again.

        Raises ResourceAllocationError at the first letter for which there is no room. Before any letter is moved,
        raises InvalidDestinationError if a target queue does not exist or does not keep what it gets.
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
        """Have the broker delete `letters`; yields the ids of each batch that is deleted."""
        here = _bare(queue)
        return self._each(here, letters, lambda one: _told(here, "removeMessage", whole(one)))

    def _each(
        self,
        queue: str,
        letters: Sequence[DeadLetter],
        act: Callable[[str], Inquiry[bool]],
        size: int = BATCH,
    ) -> Iterator[list[str]]:
        """
        Have the broker do `act` for `letters` of a queue, `size` at a time; yield the ids of those that it did.

        The others are gone. The broker does not find a message in a page that it has not read yet, and lists those of
        pages that are with a consumer (BROKER.md A63), so messages that it still lists are asked for again. Raises
        BrokerTimeoutError at the end if some are never found for READING seconds, or at once if none of a batch is.
        """
        missing = 0
        for start in range(0, len(letters), size):
            batch, found = letters[start : start + size], False
            waited, pause = 0.0, _FIRST_LOOK
            while batch:
                done = self._ask(_those([one.id for one in batch], act))
                if done:
                    found = True
                    yield done
                    waited, pause = 0.0, _FIRST_LOOK
                batch = self._still_there(queue, [one for one in batch if one.id not in done])
                if batch and not done:
                    if waited >= READING:
                        break
                    time.sleep(pause)
                    waited, pause = waited + pause, min(2 * pause, _LAST_LOOK)
            missing += len(batch)
            if batch and not found:
                break
        if missing:
            raise _unread(queue, missing)

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
        """Yield a function that takes listed messages and yields them whole, except those that have left the queue."""
        topic = f"jmsx.copies.{uuid.uuid4().hex}"
        link = link_of(self._session)
        # The caller may pause between messages, and nobody sends heart-beats meanwhile
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
    """Return advice for a broker that could not be asked, to end a sentence with; empty if the cause says enough."""
    if isinstance(error.cause, BrokerTimeoutError) and error.reached:
        return f"; it is busy, or its management has another address than {ADDRESS}"
    if silent(error.cause):
        return ""
    return f"; {MANAGEMENT.remedy}"


def dead_letter_queues(addresses: Iterable[str] | None = None) -> Inquiry[dict[str, int]]:
    """
    Return how many messages wait in each dead letter queue: each queue of a dead letter address that the settings of
    `addresses` (None: all) name, and each queue whose name says that it holds dead letters.

    Each address costs a question for its settings: 2,000 addresses took 7 s.
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
    # Queues that no settings name: the one for copies that jmsx makes, and dead letter queues of applications.
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
    """Return how many messages a queue has, and its first ones; raises InvalidDestinationError if it does not exist."""
    total = yield from _there(queue)
    if total > PAGE:
        return total, (yield from _page(queue, 1))
    try:
        told = yield Question(f"queue.{queue}", "listMessagesAsJSON", ("",))
    except BrokerError:  # JSON has no NaN or Infinity, and one such property spoils the list
        return total, (yield from _page(queue, 1))
    listed: list[Mapping[str, Any]] = json.loads(told)
    return total, listed


def _page(queue: str, number: int, chosen: str = "") -> Inquiry[list[Mapping[str, Any]]]:
    """Return one page of the messages in a queue that match the filter `chosen`; pages are numbered from 1."""
    return messages((yield Question(f"queue.{queue}", "browse", (number, PAGE, chosen))))


def _naming(names: Collection[str]) -> str | None:
    """
    Return a filter for the messages that have one of `names` as id or key; None if the broker cannot select them.

    A filter cannot test the broker's own number of a message. So if a name is a bare number, all messages are listed;
    for a key NUMBER@TIME the filter selects all messages of that millisecond.
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
    Make sure that the queues `wanted`, pairs of address and queue, exist; `is_named`: the operator named them.

    Returns the addresses that lose messages when they are full, with the setting that says so. Raises
    InvalidDestinationError if a missing queue is one that only its subscriber may make (then no queue is made), or if a
    queue does not keep what it gets.
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

    `limited` has, by address, the setting that limits it. Raises ResourceAllocationError if the target has no room, or
    may have none (the broker does not tell how many pages are left): a move that it refuses leaves the message in no
    queue until the broker is restarted, and a message that it drops is lost for good (BROKER.md A75).
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
        f"the broker lists {counted(letters, 'message')} in pages of {queue}, and found none of them in {READING:g} s:"
        " they are with a consumer, or it has not read them; stop whoever reads the queue, resume it if it is paused,"
        " and do the same again"
    )


def _is_own(target: tuple[str, str]) -> bool:
    """Return whether the queue is named like its address, as the only queue of an anycast address is."""
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
    """Have a queue do `operation`, and return whether it did: False if the message is not there."""
    told = yield Question(f"queue.{queue}", operation, arguments)
    return told is True


def _bare(queue: str) -> str:
    """Return the queue's name, unique in the whole broker, also when written `ADDRESS::QUEUE`."""
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
    Return why a message cannot go back to a queue of an address; empty if it may.

    A missing queue that is named like its address is made; but if the name is a pattern, the queue would get the
    messages of all addresses that match. The name of another queue, such as a subscription's, tells nothing.
    """
    if not (address and queue):
        return "it does not tell the queue that it came from"
    return no_single_queue(f"queue://{address}") if address == queue else ""
