"""What Artemis is asked, and what the answers come to."""

from __future__ import annotations

import json

import pytest

from jmsx import RedeliveryPolicy
from jmsx.core.frames import Frame, MessageFrame
from jmsx.core.headers import SENDER_HEADER
from jmsx.core.management import DeadLetterQueue, Findings, Question
from jmsx.core.values import DestinationKind
from jmsx.errors import (
    BrokerError,
    BrokerFaultError,
    InvalidDestinationError,
    InvalidSelectorError,
    JmsxError,
    UsageError,
)
from jmsx_artemis.management import ArtemisManagement
from jmsx_artemis.selectors import NUMBERS
from tests.unit.jmsx_artemis.inquiring import Broker, queue

MANAGEMENT = ArtemisManagement()
QUESTION = Question("queue.q", "countMessages", ("a = 'b'",))
POLICY = RedeliveryPolicy()
QUEUE, TOPIC, DURABLE = DestinationKind.QUEUE, DestinationKind.TOPIC, DestinationKind.DURABLE


def answer(body: bytes, succeeded: str = "true") -> MessageFrame:
    """What the broker sends back."""
    return MessageFrame.of({"_AMQ_OperationSucceeded": succeeded}, body)


def test_question_on_the_wire() -> None:
    """Source: BROKER.md A62."""
    frame = MANAGEMENT.ask(QUESTION, "answers")
    assert frame.command == "SEND"
    assert dict(frame.headers) == {
        "destination": "activemq.management",
        "_AMQ_ResourceName": "queue.q",
        "_AMQ_OperationName": "countMessages",
        "reply-to": "answers",
    }
    assert json.loads(frame.body) == ["a = 'b'"]


def test_answers_come_to_a_topic_of_their_own() -> None:
    """A queue would stay; so would one that is named without its type, in other brokers' hands."""
    frame = MANAGEMENT.listen("answers")
    assert (frame.command, frame.headers["destination"]) == ("SUBSCRIBE", "answers")
    assert (frame.headers["subscription-type"], frame.headers["ack"]) == ("MULTICAST", "auto")


@pytest.mark.parametrize(
    ("body", "value"),
    [(b"[3]", 3), (b'["x"]', "x"), (b"[null]", None), (b"", None), (b"[]", [])],
)
def test_answer_is_one_value(body: bytes, value: object) -> None:
    """In an array of one; nothing at all for an operation that returns nothing."""
    assert MANAGEMENT.told(QUESTION, answer(body)) == value


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (answer(b'["AMQ229067: Cannot find resource"]', "false"), "AMQ229067"),
        (MessageFrame.of({}, b"[1]"), "was refused"),
        (answer(b"<html>"), "no JSON"),
    ],
)
def test_refusal_is_an_error(frame: MessageFrame, text: str) -> None:
    """With the broker's words."""
    with pytest.raises(BrokerError, match=text):
        MANAGEMENT.told(QUESTION, frame)


# Examining -----------------------------------------------------------------------------------------------------------


def test_healthy_queue() -> None:
    """Where its dead letters go, and nothing else to say."""
    broker = Broker([queue("DLQ")], settings={"orders": {"deadLetterAddress": "DLQ"}})
    found = broker.conduct(MANAGEMENT.examine("queue://orders", QUEUE, POLICY))
    assert found == Findings(DeadLetterQueue("queue://DLQ"))


def test_a_broker_of_before_does_not_tell_all() -> None:
    """Up to 2.33 it does not say of a queue whether it is internal: ours is safe, and the rest is read."""
    told = queue("DLQ")
    del told["internalQueue"]
    broker = Broker([told], settings={"orders": {"DLA": "DLQ"}})
    found = broker.conduct(MANAGEMENT.examine("queue://orders", QUEUE, POLICY))
    assert found == Findings(DeadLetterQueue("queue://jmsx.DLQ"))


@pytest.mark.parametrize("there", [False, True])
def test_where_a_broker_of_before_makes_a_queue_copies_go_before_and_after(*, there: bool) -> None:
    """It is not there when the first consumer starts, and is when the next one does."""
    made = queue("DLQ.orders", address="DLQ", filter="_AMQ_ORIG_ADDRESS = 'orders'")
    del made["internalQueue"]
    settings = {"orders": {"DLA": "DLQ", "autoCreateDeadLetterResources": True}}
    broker = Broker([made] if there else [], settings=settings)
    found = broker.conduct(MANAGEMENT.examine("queue://orders", QUEUE, POLICY))
    assert found.dead_letter_queue.destination.endswith("://DLQ::DLQ.orders")


@pytest.mark.parametrize("uri", ["queue://orders::north", "topic://orders::north"])
def test_settings_are_the_address_s(uri: str) -> None:
    """Not the queue's that the full name ends with."""
    broker = Broker([queue("DLQ")], settings={"orders": {"deadLetterAddress": "DLQ"}})
    kind = QUEUE if uri.startswith("queue") else TOPIC
    assert broker.conduct(
        MANAGEMENT.examine(uri, kind, POLICY)
    ).dead_letter_queue == DeadLetterQueue("queue://DLQ")


def test_all_advice_is_told() -> None:
    """Redelivery on both sides, and no place for dead letters."""
    broker = Broker(settings={"orders": {"redeliveryDelay": 5}})
    found = broker.conduct(MANAGEMENT.examine("queue://orders", QUEUE, POLICY))
    assert len(found.advice) == 2


def test_a_queue_that_is_named_for_dead_letters() -> None:
    """Whatever makes it lose one is told; how it redelivers itself is nothing that concerns it."""
    losing = {
        "addressFullMessagePolicy": "DROP",
        "defaultRingSize": 5,
        "defaultLastValueQueue": True,
        "defaultPurgeOnNoConsumers": True,
        "defaultNonDestructive": True,
        "redeliveryDelay": 5,
    }
    broker = Broker(settings={"dead": losing})
    found = broker.conduct(MANAGEMENT.examine_dead_letter_queue("queue://dead::q"))
    assert found.dead_letter_queue == DeadLetterQueue("queue://dead::q")
    assert [next(iter(one.settings)) for one in found.advice] == [
        "address-full-policy",
        "default-ring-size",
        "default-last-value-key",
        "default-purge-on-no-consumers",
        "default-non-destructive",
    ]
    assert broker.conduct(MANAGEMENT.examine_dead_letter_queue("queue://fine")).advice == ()


@pytest.mark.parametrize("set_", [{}, {"autoCreateDeadLetterResources": True}], ids=str)
def test_broker_that_makes_its_queue_deletes_nothing(set_: dict[str, bool]) -> None:
    """The queue is not there yet, but will be."""
    broker = Broker(settings={"orders": {"deadLetterAddress": "DLA", **set_}})
    found = broker.conduct(MANAGEMENT.examine("queue://orders", QUEUE, POLICY))
    assert len(found.advice) == (0 if set_ else 1)


@pytest.mark.parametrize("kind", [TOPIC, DURABLE])
@pytest.mark.parametrize(
    ("types", "refused"),
    [
        (None, False),
        (["MULTICAST"], False),
        (["ANYCAST"], True),
        (["ANYCAST", "MULTICAST"], True),
    ],
)
def test_topic_that_is_a_queue_too(
    kind: DestinationKind, types: list[str] | None, *, refused: bool
) -> None:
    """Its subscriber would take the queue's messages (seen live on 2.44.0; `StompSession.java:308-364`)."""
    broker = Broker(addresses={} if types is None else {"orders": types})
    inquiry = MANAGEMENT.examine("topic://orders", kind, POLICY)
    if refused:
        with pytest.raises(InvalidDestinationError, match="address of a queue too"):
            broker.conduct(inquiry)
    else:
        broker.conduct(inquiry)


def test_queue_may_be_a_topic_too() -> None:
    """Its consumer reads the queue, whatever else there is."""
    broker = Broker(addresses={"orders": ["ANYCAST", "MULTICAST"]})
    broker.conduct(MANAGEMENT.examine("queue://orders", QUEUE, POLICY))


@pytest.mark.parametrize(
    ("address", "refused"), [("orders", False), ("other", True), (None, False)]
)
def test_queue_of_another_address(address: str | None, *, refused: bool) -> None:
    """A queue has its name in the whole broker; what is sent to the full name would vanish (seen live)."""
    broker = Broker([] if address is None else [queue("north", address)])
    inquiry = MANAGEMENT.examine("queue://orders::north", QUEUE, POLICY)
    if refused:
        with pytest.raises(InvalidDestinationError, match="belongs to address 'other'"):
            broker.conduct(inquiry)
    else:
        broker.conduct(inquiry)


# Selectors -----------------------------------------------------------------------------------------------------------


def test_selector_is_tried_where_nobody_sends() -> None:
    """So that a bad one costs no session's link."""
    broker = Broker()
    broker.conduct(MANAGEMENT.try_selector({"destination": "orders", "selector": "a = 'b'"}))
    (frame,) = broker.asked
    assert isinstance(frame, Frame)
    assert frame.command == "SUBSCRIBE"
    assert frame.headers["selector"] == "a = 'b'"
    assert frame.headers["destination"] != "orders"


def test_no_selector_no_question() -> None:
    """Most consumers have none."""
    broker = Broker()
    broker.conduct(MANAGEMENT.try_selector({"destination": "orders"}))
    assert broker.asked == []


def test_bad_selector() -> None:
    """An error of its own, not one of asking."""
    refusal = InvalidSelectorError("Invalid selector")
    broker = Broker(refusals={"SUBSCRIBE": refusal})
    with pytest.raises(InvalidSelectorError) as caught:
        broker.conduct(MANAGEMENT.try_selector({"selector": "="}))
    assert caught.value is not refusal


# Temporary queues ----------------------------------------------------------------------------------------------------


def test_temporary_queues_are_removed() -> None:
    """Where nobody reads them: not one that is read, nor the subscription of a topic."""
    broker = Broker(
        [
            queue("s-1", "s-1", routingType="ANYCAST", consumerCount="0"),
            queue("s-2", "s-2", routingType="ANYCAST", consumerCount="1"),
            queue("sub", "s-3", routingType="MULTICAST", consumerCount="0"),
        ]
    )
    broker.conduct(MANAGEMENT.remove_temporary([f"temp-queue://s-{one}" for one in range(5)]))
    assert broker.commands == [("destroyQueue", ("s-1",))]


# Durable subscriptions -----------------------------------------------------------------------------------------------

HEADERS = {"destination": "prices", "selector": "a = 'b'"}


def durable(**told: str) -> Broker:
    """A broker with the durable subscription that HEADERS mean, unless told otherwise."""
    given = {"filter": "a = 'b'", "routingType": "MULTICAST", **told}
    return Broker([queue("shop.sub", given.pop("address", "prices"), **given)])


@pytest.mark.parametrize("broker", [Broker(), durable()], ids=["new", "the same"])
def test_durable_subscription_is_left_as_it_is(broker: Broker) -> None:
    """Whether it is there or not."""
    broker.conduct(MANAGEMENT.claim_durable("shop", "sub", HEADERS))
    assert broker.commands == []


@pytest.mark.parametrize(
    "told", [{"filter": ""}, {"filter": "a = 'c'"}, {"address": "other"}], ids=str
)
def test_changed_durable_subscription_is_removed(told: dict[str, str]) -> None:
    """SUBSCRIBE then makes it anew (JMS 3.1 section 8.3.3); Artemis would go on with the old one (BROKER.md A56)."""
    broker = durable(**told)
    broker.conduct(MANAGEMENT.claim_durable("shop", "sub", HEADERS))
    assert broker.commands == [("destroyQueue", ("shop.sub",))]


@pytest.mark.parametrize(
    ("found", "selector"),
    [
        (
            "(__AMQ_CID <> '00f5633b' OR __AMQ_CID IS NULL)",
            f"{NUMBERS}({SENDER_HEADER} IS NULL OR {SENDER_HEADER} <> 'it''s')",
        ),
        (f"{NUMBERS}flag AND a = 'flag'", f"{NUMBERS}(flag = TRUE) AND a = 'flag'"),
    ],
)
def test_durable_subscription_of_an_older_jmsx(found: str, selector: str) -> None:
    """The application's choice is the same, so what waits in it is kept."""
    broker = durable(filter=found)
    broker.conduct(MANAGEMENT.claim_durable("shop", "sub", {**HEADERS, "selector": selector}))
    ((operation, (changed,)),) = broker.commands
    assert operation == "updateQueue"
    assert json.loads(changed) == {"name": "shop.sub", "filter-string": selector}


@pytest.mark.parametrize(
    ("found", "selector"),
    [
        ("(__AMQ_CID <> '00f5633b' OR __AMQ_CID IS NULL)", f"{NUMBERS}a = 'b'"),
        ("(__AMQ_CID <> '0' OR __AMQ_CID IS NULL)", ""),
        (f"{NUMBERS}flag", f"{NUMBERS}NOT flag"),
        ("", f"{NUMBERS}({SENDER_HEADER} IS NULL OR {SENDER_HEADER} <> 'x')"),
    ],
)
def test_another_choice_of_the_application(found: str, selector: str) -> None:
    """That makes it anew, as JMS says."""
    broker = durable(filter=found)
    broker.conduct(MANAGEMENT.claim_durable("shop", "sub", {**HEADERS, "selector": selector}))
    assert broker.commands == [("destroyQueue", ("shop.sub",))]


@pytest.mark.parametrize("told", [{}, {"filter": ""}], ids=str)
def test_durable_subscription_in_use(told: dict[str, str]) -> None:
    """Artemis would let both read (BROKER.md A57)."""
    broker = durable(consumerCount="1", **told)
    with pytest.raises(UsageError, match="in use for client: shop and subscriptionName: sub"):
        broker.conduct(MANAGEMENT.claim_durable("shop", "sub", HEADERS))
    assert broker.commands == []


@pytest.mark.parametrize("kind", [BrokerError, BrokerFaultError])
def test_changed_durable_subscription_that_cannot_be_removed(kind: type[JmsxError]) -> None:
    """Somebody took it up in the meantime, or the broker failed: never go on with the wrong selector."""
    broker = durable(filter="")
    broker.refusals["destroyQueue"] = kind("AMQ229025: it has consumers")
    with pytest.raises(kind, match=r"cannot be made anew.*AMQ229025"):
        broker.conduct(MANAGEMENT.claim_durable("shop", "sub", HEADERS))


def test_removing_a_durable_subscription() -> None:
    """Its queue, which is called after client and subscription."""
    broker = durable()
    broker.conduct(MANAGEMENT.remove_durable("shop", "sub"))
    assert broker.commands == [("destroyQueue", ("shop.sub",))]


@pytest.mark.parametrize(
    ("broker", "error"),
    [(Broker(), InvalidDestinationError), (durable(consumerCount="2"), BrokerError)],
    ids=["unknown", "in use"],
)
def test_durable_subscription_that_cannot_be_removed(
    broker: Broker, error: type[JmsxError]
) -> None:
    """The errors of JMS, and nothing is touched."""
    with pytest.raises(error):
        broker.conduct(MANAGEMENT.remove_durable("shop", "sub"))
    assert broker.commands == []


def test_queue_of_an_application_is_never_removed() -> None:
    """It may be called as the queue of a subscription would be."""
    broker = Broker([queue("shop.sub")])
    for inquiry in (
        MANAGEMENT.remove_durable("shop", "sub"),
        MANAGEMENT.claim_durable("shop", "sub", HEADERS),
    ):
        with pytest.raises(InvalidDestinationError, match="is a queue"):
            broker.conduct(inquiry)
    assert broker.commands == []
