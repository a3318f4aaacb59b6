"""
What jmsx asks Artemis through its management API, because plain STOMP cannot tell or do it.

A question is a SEND to `activemq.management` that names a resource and an operation, with a JSON array of arguments;
the answer is a message to its reply-to, with a JSON array of one value. The user needs the permission to `manage` that
address, and to create an address for the answers.

Source: BROKER.md A46, A56 and A62; `StompSession.java:308-364`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from jmsx.core.frames import Frame, MessageFrame
from jmsx.core.headers import whole
from jmsx.core.management import Advice, DeadLetterQueue, Findings, Inquiry, Question
from jmsx.core.policy import Policy
from jmsx.core.values import DestinationKind
from jmsx.errors import (
    BrokerError,
    BrokerFaultError,
    InvalidDestinationError,
    InvalidSelectorError,
    UsageError,
)
from jmsx_artemis.dead_letter_queues import OWN, choose_dead_letter_queue
from jmsx_artemis.destinations import ANYCAST, MULTICAST, address_of, parted
from jmsx_artemis.questions import (
    ADDRESS,
    Queue,
    address_settings,
    command,
    destroy,
    queues,
    refilter,
    routing_types,
)
from jmsx_artemis.selectors import NUMBERS, formerly
from jmsx_artemis.settings import (
    AddressSettings,
    deletes,
    drops,
    forgets,
    hangs_up,
    keeps_what_is_done,
    purges,
    redelivers_too,
    replaces,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


#: A topic that nobody sends to, on which selectors are tried.
_TRIAL: Final = "jmsx.answers.selector"

#: How the broker's refusal of a selector on that topic begins.
_TRIED: Final = re.compile(r"^.*\bjmsx\.answers\.[^\s:]+: ")


class ArtemisManagement:
    """The inquiries that jmsx makes of ActiveMQ Artemis."""

    remedy: Final = (
        f"give the user the permissions to `manage` {ADDRESS} and to create and consume jmsx.answers.#,"
        " or do without, by use_management=False"
    )

    def listen(self, answers: str) -> Frame:
        """Return the SUBSCRIBE to the topic for answers, which the broker removes with the subscription."""
        headers = {"destination": answers, "subscription-type": MULTICAST, "ack": "auto"}
        return Frame("SUBSCRIBE", {"id": answers, **headers})

    def ask(self, question: Question, answers: str) -> Frame:
        """Return the SEND of the question, which says where the answer is to go."""
        frame = command(question)
        return Frame("SEND", {**frame.headers, "reply-to": answers}, frame.body)

    def told(self, question: Question, frame: MessageFrame) -> Any:
        """Return the one value of an answer; None for an operation that returns nothing."""
        try:
            value = json.loads(frame.body or b"null")
        except ValueError as error:
            raise BrokerError(f"{question.operation} was answered with no JSON: {error}") from error
        told = value[0] if isinstance(value, list) and value else value
        if frame.headers.get("_AMQ_OperationSucceeded") != "true":
            raise BrokerError(f"{question.operation} of {question.resource} was refused: {told}")
        return told

    def examine(self, destination: str, kind: DestinationKind, policy: Policy) -> Inquiry[Findings]:
        """Check what a consumer would read, where dead letters go, and whether the broker itself also redelivers."""
        yield from _check(destination, kind)
        settings = yield from address_settings(address_of(destination))
        lying: list[Queue] = []
        if settings.dead_letter_address:
            lying = yield from queues("ADDRESS", settings.dead_letter_address)
        dead_letter_queue = yield from choose_dead_letter_queue(settings, lying)
        kept = bool(lying) or bool(dead_letter_queue.before)
        told = _given(
            redelivers_too(settings, policy),
            deletes(settings, kept=kept),
            *_of_keeping(settings),
            hangs_up(settings),
        )
        return Findings(dead_letter_queue, told, (yield from _of_expired(settings)))

    def examine_dead_letter_queue(self, destination: str) -> Inquiry[Findings]:
        """Return the queue with advice on the settings of its address."""
        settings = yield from address_settings(address_of(destination))
        return Findings(DeadLetterQueue(destination), _given(*_of_keeping(settings)))

    def try_selector(self, headers: Mapping[str, str]) -> Inquiry[None]:
        """Try the selector on the link for questions: Artemis closes the connection on which a bad selector comes."""
        if "selector" not in headers:
            return
        trial = {"destination": _TRIAL, "subscription-type": MULTICAST, "ack": "auto"}
        try:
            yield Frame("SUBSCRIBE", {"id": _TRIAL, **trial, "selector": headers["selector"]})
        except InvalidSelectorError as error:
            raise InvalidSelectorError(_in_users_words(str(error))) from error

    def check_temporary(self, destination: str) -> Inquiry[None]:
        """Check that the queue exists: a SEND to a deleted one would make it anew, with no reader (seen on 2.44.0)."""
        found = yield from queues("ADDRESS", address_of(destination))
        if not any(one["temporary"] == "true" or whole(one["consumerCount"]) for one in found):
            raise InvalidDestinationError(
                f"temporary queue {destination} is gone: nobody reads it any more"
            )

    def remove_temporary(self, destinations: Iterable[str]) -> Inquiry[None]:
        """Remove also queues with late answers in them: the broker itself removes empty ones only (seen on 2.44.0)."""
        for destination in destinations:
            for one in (yield from queues("ADDRESS", address_of(destination))):
                if whole(one["consumerCount"]) == 0 and one["routingType"] == ANYCAST:
                    yield from destroy(one["name"])

    def claim_durable(
        self, client_id: str, subscription: str, headers: Mapping[str, str]
    ) -> Inquiry[None]:
        """
        Remove the subscription's queue if it was made for another topic or selector: the broker would still use it.

        A queue that an older jmsx made for the same selector and no_local is kept, with its messages. Raises UsageError
        if the subscription is in use, BrokerError if the queue cannot be removed because somebody began to use it
        meanwhile, and BrokerFaultError if the broker fails.
        """
        queue = yield from _subscription(f"{client_id}.{subscription}")
        if queue is None:
            return
        if whole(queue["consumerCount"]) != 0:
            raise UsageError(
                f"Durable consumer is in use for client: {client_id} and subscriptionName: {subscription}; it has one"
                " consumer at a time, so close that first"
            )
        meant = (headers["destination"], headers.get("selector", ""))
        if (queue["address"], queue["filter"]) == meant:
            return
        if queue["address"] == meant[0] and formerly(meant[1], queue["filter"]):
            yield from refilter(queue["name"], meant[1])
            return
        try:
            yield from destroy(queue["name"])
        except (BrokerError, BrokerFaultError) as error:
            raise type(error)(
                f"durable subscription {subscription!r} of client {client_id!r} was made for another topic or"
                f" selector, and cannot be made anew: {error}"
            ) from error

    def remove_durable(self, client_id: str, subscription: str) -> Inquiry[None]:
        """Delete a durable subscription: on Artemis that is a queue called `CLIENT_ID.SUBSCRIPTION`."""
        queue = yield from _subscription(f"{client_id}.{subscription}")
        if queue is None:
            raise InvalidDestinationError(
                f"No durable subscription exists for clientID: {client_id} and subscriptionName: {subscription}"
            )
        if whole(queue["consumerCount"]) != 0:
            raise BrokerError(
                f"Durable consumer is in use for client: {client_id} and subscriptionName: {subscription}"
            )
        yield from destroy(queue["name"])


def _given(*advice: Advice | None) -> tuple[Advice, ...]:
    return tuple(one for one in advice if one is not None)


def _of_keeping(settings: AddressSettings) -> Iterator[Advice | None]:
    """Yield advice where queues delete messages before they are acknowledged, or keep them after that."""
    for look in (drops, forgets, replaces, purges, keeps_what_is_done):
        yield look(settings)


def _queue(name: str) -> Inquiry[Queue | None]:
    found = yield from queues("NAME", name)
    return found[0] if found else None


def _subscription(name: str) -> Inquiry[Queue | None]:
    """
    Return the queue of a subscription; raises InvalidDestinationError if an anycast queue has that name.

    A subscription may be removed and made anew, but never a queue that applications send to.
    """
    queue = yield from _queue(name)
    if queue is not None and queue["routingType"] != MULTICAST:
        raise InvalidDestinationError(f"{name!r} is a queue, and no subscription of a topic")
    return queue


def _of_expired(settings: AddressSettings) -> Inquiry[DeadLetterQueue | None]:
    """Return the queue of expired messages; None if the broker deletes them, or no copy would be safe there."""
    if not settings.expiry_address:
        return None
    lying = yield from queues("ADDRESS", settings.expiry_address)
    dead_letter_queue = yield from choose_dead_letter_queue(settings.of_expired, lying)
    return None if dead_letter_queue == OWN else dead_letter_queue


def _check(destination: str, kind: DestinationKind) -> Inquiry[None]:
    """
    Raise InvalidDestinationError if a consumer would read another queue than the one that is meant.

    A subscriber of a topic reads the queue that has the topic's name, if there is one (`StompSession.java:308-364`).
    And queue names are unique in the whole broker: `ADDRESS::QUEUE` may find a queue of another address.
    """
    _, address = parted(destination)
    address, _, name = address.partition("::")
    if name:
        queue = yield from _queue(name)
        if queue is not None and queue["address"] != address:
            raise InvalidDestinationError(
                f"{destination} does not exist: queue {name!r} belongs to address {queue['address']!r}"
            )
    elif kind is not DestinationKind.QUEUE and ANYCAST in (yield from routing_types(address)):
        raise InvalidDestinationError(
            f"{destination} is the address of a queue too; over STOMP Artemis would take that queue's messages."
            " Give the topic or the queue another name"
        )


def _in_users_words(refusal: str) -> str:
    """Return the broker's refusal of a selector, without the address it was tried on and the prefix jmsx added."""
    told = _TRIED.sub("", refusal)
    return told.replace(NUMBERS.rstrip(":"), "")
