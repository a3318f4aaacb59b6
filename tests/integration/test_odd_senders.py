"""What other clients may write on a message stops nobody, deletes nothing and makes no dead letter unseen."""

from __future__ import annotations

import itertools
import re
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import AcknowledgeMode, Connection, Message, Queue, Reject
from jmsx.app import App
from jmsx.core.events import LinkClosed
from jmsx.core.frames import Frame
from jmsx.core.policy import RedeliveryMode
from jmsx.dead_letters.opening import open_access
from jmsx.errors import JmsxError, MessageNotReadableError
from jmsx_broker import ClassicBroker
from jmsx_broker.wire import Wire
from tests.integration.artemis_support import Console
from tests.integration.broker_support import eventually
from tests.integration.proxy import Proxy
from tests.integration.support import (
    DEAD_LETTERS,
    NO_RETRY,
    QUICK,
    TRANSACTED,
    Diary,
    bodies,
    fresh_queue,
    put,
    take,
)
from tests.jdk import NEEDS_JDK, run_peer

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from jmsx.observe import Observer
    from jmsx_broker import ArtemisBroker, Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

#: Texts that have ended sessions, or might.
HOSTILE = ("²", "٣", "9" * 400, "-5", "NaN", "1e400", "", "queue://²")

#: What jmsx or a broker reads; a `content-length` breaks Classic's own frames.
HEADERS = (
    "expires", "timestamp", "priority", "persistent", "redelivered", "message-id", "destination",
    "original-destination", "reply-to", "ack", "subscription", "correlation-id", "type", "transformation",
    "amq-msg-type", "browser", "receipt-id", "jmsx_group_id", "jmsx_group_seq", "jmsx_key", "jmsx_digest",
    "jmsx_redelivery_count", "jmsx_type", "jmsx_text", "jmsx_original_destination", "jmsx_connection", "jmsx_marker",
    "destination-type",
)  # fmt: skip


#: Queue, delivery mode, time to live (ms), text and string properties.
Sent = tuple[Queue, str, int, str, dict[str, str]]


def java(broker: Any, *lines: Sent) -> None:
    """Have a Java program send these."""
    text = "".join(
        "\t".join([queue.name, mode, str(ttl), body, *(f"{k}={v}" for k, v in given.items())])
        + "\n"
        for queue, mode, ttl, body, given in lines
    )
    run_peer("OddSender", broker.openwire_url, told=text)


def handled(
    broker: Broker, queue: Queue, count: int, mode: AcknowledgeMode, *observers: Observer
) -> list[str]:
    """The texts that a consumer gets until it has `count`, each acknowledged."""
    found: list[str] = []
    with Connection(broker.url, observers=observers) as connection:
        connection.start()
        session = connection.create_session(mode)
        consumer = session.create_consumer(queue)
        while len(found) < count and (message := consumer.receive(10)) is not None:
            found.append(message.text)
            if mode is AcknowledgeMode.SESSION_TRANSACTED:
                session.commit()
            else:
                message.acknowledge()
    return found


@pytest.mark.parametrize(
    "mode", [AcknowledgeMode.AUTO_ACKNOWLEDGE, AcknowledgeMode.SESSION_TRANSACTED], ids=str
)
@NEEDS_JDK
def test_properties_from_java_stop_nobody(broker: Broker, mode: AcknowledgeMode) -> None:
    """One message for each property and value; each is handled once, and nothing is left."""
    queue = fresh_queue()
    odd = [
        (queue, "persistent", 0, f"{name}={number}", {name: value})
        for name in HEADERS
        for number, value in enumerate(HOSTILE)
    ]
    java(broker, *odd, (queue, "persistent", 0, "last", {}))
    assert handled(broker, queue, len(odd) + 1, mode) == [*(line[3] for line in odd), "last"]
    assert eventually(lambda: broker.statistics(queue.name).size == 0)


def test_headers_from_stomp_stop_nobody(broker: Broker) -> None:
    """The same from a client of this protocol, as far as the broker takes it."""
    queue, sent, refused = fresh_queue(), [], []
    of_the_broker = {"destination", "subscription", "destination-type", "expires", "priority"}
    for name in sorted({*HEADERS} - of_the_broker):
        for number, value in enumerate(HOSTILE):
            head = {"destination": queue.uri.replace("queue://", "/queue/"), "persistent": "true"}
            if "Artemis" in type(broker).__name__:
                head |= {"destination": queue.name, "destination-type": "ANYCAST"}
            try:
                with Wire(broker.url, timeout=10) as wire:
                    wire.request(Frame("SEND", {**head, name: value}, f"{name}={number}".encode()))
            except JmsxError:
                refused.append(name)
            else:
                sent.append(f"{name}={number}")
    assert len(sent) > len(refused)
    got = handled(broker, queue, len(sent), AcknowledgeMode.AUTO_ACKNOWLEDGE)
    assert sorted(got) == sorted(sent)
    assert eventually(lambda: broker.statistics(queue.name).size == 0)


def test_what_one_has_read_may_be_told_in_another(broker: Broker) -> None:
    """Who reads what a session sends, and writes to it, may put all that he has read into a body, or frames of it."""
    queue, output = fresh_queue(), fresh_queue()
    with Connection(broker.url) as connection, Wire(broker.url) as wire:
        connection.start()
        session = connection.create_session()
        session.create_producer(output).send(Message("read me"))
        consumer = session.create_consumer(queue)
        place, kind = ("", "ANYCAST") if wire.is_artemis else ("/queue/", "queue")
        reading = {"id": "r", "destination": place + output.name, "subscription-type": kind}
        wire.send(Frame("SUBSCRIBE", reading))
        told = "\n".join(
            f"{name}:{value}" for name, value in wire.receive("MESSAGE").headers.items()
        )
        mark = re.search(r"~\w+", told)
        forged = f"MESSAGE\nsubscription:1{mark[0] if mark else ''}\nmessage-id:9\nack:9\n{told}\n\nno\0\n"
        bodies = [told, f"RECEIPT\nreceipt-id:1\n{told}\n\n\0\n", f"x\0\n{forged}", "last"]
        head = {"destination": place + queue.name, "destination-type": kind, "persistent": "true"}
        for body in bodies:
            sized = {"content-length": str(len(body.encode()))}
            wire.request(Frame("SEND", {**head, **sized}, body.encode()))
        assert [one.text for one in take(consumer, len(bodies))] == bodies


@NEEDS_JDK
def test_a_text_with_a_length_of_its_own_comes_as_bytes(artemis_broker: ArtemisBroker) -> None:
    """All of it is there, as the broker has it; it ends no link, nor does it move what follows."""
    queue = fresh_queue()
    values = ("", "0", "3", "99999", "x")
    odd = [(queue, "persistent", 0, "text", {"content-length": value}) for value in values]
    java(artemis_broker, *odd, (queue, "persistent", 0, "last", {}))
    with Connection(artemis_broker.url) as connection:
        connection.start()
        *found, last = take(connection.create_session().create_consumer(queue), 6)
    assert [one.body for one in found] == [b"\1\0\0\0\x08" + "text".encode("utf-16-le")] * 5
    with pytest.raises(MessageNotReadableError, match="carries bytes"):
        _ = found[0].text
    assert (last.text, last.properties.get("content-length")) == ("last", None)


@NEEDS_JDK
def test_every_odd_message_can_be_a_dead_letter(broker: Broker) -> None:
    """Their copies are taken: no value that the broker refuses, or hangs up over, is carried on."""
    queue, seen = fresh_queue(), []
    odd = [
        (queue, delivery, 0, f"{name}={number}", {name: value, "case": queue.name})
        for delivery in ("persistent", "volatile")
        for name in HEADERS
        for number, value in enumerate((*HOSTILE, "true"))
    ]

    def refuse(message: Message) -> None:
        seen.append(message.text)
        raise Reject from ValueError("odd")

    java(broker, *odd)
    with Connection(broker.url) as connection:
        connection.start()
        connection.create_session().create_consumer(queue).set_listener(refuse)
        assert eventually(lambda: len(seen) == len(odd), 60)
        assert eventually(lambda: broker.statistics(queue.name).size == 0)
    assert seen == [line[3] for line in odd]
    assert len(dead(broker, queue)) == len(odd)


@NEEDS_JDK
def test_odd_messages_without_a_body_are_dead_letters_too(classic_broker: ClassicBroker) -> None:
    """None is deleted, whatever its headers say of where it lies and how it was sent."""
    queue, seen = fresh_queue(), set()
    odd = [
        (
            queue,
            delivery,
            0,
            "",
            {name: value, "case": queue.name, "each": f"{delivery} {name} {value}"},
        )
        for delivery in ("persistent", "volatile")
        for name in HEADERS
        for value in ("²", "true", f"/queue/{queue.name}.other")
    ]

    def refuse(message: Message) -> None:
        seen.add(message.properties["each"])
        raise Reject from ValueError("odd")

    java(classic_broker, *odd)
    with Connection(classic_broker.url) as connection:
        connection.start()
        connection.create_session().create_consumer(queue).set_listener(refuse)
        assert eventually(lambda: len(seen) == len(odd), 60)
        assert eventually(lambda: classic_broker.statistics(queue.name).size == 0, 20)
    dead = [one.headers for one in classic_broker.browse(DEAD_LETTERS)]
    assert {one["each"] for one in dead if one.get("case") == queue.name} == seen


def dead(broker: Broker, queue: Queue) -> list[str]:
    """The texts of the dead letters that came from `queue`."""
    if "Artemis" not in type(broker).__name__:
        return [
            message.body.decode()
            for message in broker.browse(DEAD_LETTERS)
            if message.headers.get("case") == queue.name
        ]
    with Console(broker) as console:
        return [
            str(one)
            for name in console.sizes()
            if name != queue.name
            for one in console.ask(f"queue.{name}", "listMessages", f"case = '{queue.name}'")
        ]


@pytest.mark.parametrize("mode", ["persistent", "volatile"])
@NEEDS_JDK
def test_a_property_is_no_expiry(classic_broker: ClassicBroker, mode: str) -> None:
    """Seconds, taken for milliseconds: it is handled, and neither deleted nor put aside unseen."""
    queue = fresh_queue()
    java(classic_broker, (queue, mode, 0, "alive", {"expires": "1767225600", "case": queue.name}))
    assert handled(classic_broker, queue, 1, AcknowledgeMode.AUTO_ACKNOWLEDGE) == ["alive"]
    assert dead(classic_broker, queue) == []


@NEEDS_JDK
def test_what_expires_in_the_prefetch_is_kept(classic_broker: ClassicBroker) -> None:
    """By its time to live, or by a property that says so: a copy of it is a dead letter."""
    ways = list(itertools.product(("persistent", "volatile"), (0, 10_000)))
    queues = [fresh_queue() for _ in ways]
    with Connection(classic_broker.url) as connection:
        consumers = [connection.create_session().create_consumer(queue) for queue in queues]
        for queue, (mode, ttl) in zip(queues, ways, strict=True):
            given = {"case": queue.name}
            if not ttl:
                given["expires"] = str(int((time.time() + 10) * 1000))
            java(classic_broker, (queue, mode, ttl, "late", given))
        for queue in queues:
            assert eventually(
                lambda: classic_broker.statistics(queue.name).inflight_count == 1  # noqa: B023 - called at once
            )
        time.sleep(10.5)
        connection.start()
        for consumer in consumers:
            assert consumer.receive(1) is None
    for queue in queues:
        assert dead(classic_broker, queue) == ["late"]
        assert bodies(classic_broker, queue) == []


#: What a Java program may call properties, though no STOMP client would.
ODD_NAMES = ("a b", "ü", "x.y", "a:b", "\\q", "-", "'", "x" * 5_000, "y" * 20_000)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({f"p{n}": str(n) for n in range(2_000)}, id="many"),
        pytest.param({f"p{n}": "x" * 200 for n in range(900)}, id="much"),
        pytest.param({"p": "x" * 200_000}, id="long"),
        pytest.param(dict.fromkeys(ODD_NAMES, "x"), id="names"),
        pytest.param({f"p{n}": ":" * 9_000 for n in range(20)}, id="escapes"),
    ],
)
@pytest.mark.parametrize("mode", [RedeliveryMode.LOCAL, RedeliveryMode.SCHEDULED])
@NEEDS_JDK
def test_more_properties_than_a_copy_can_have(
    broker: Broker, given: dict[str, str], mode: RedeliveryMode
) -> None:
    """The copy has what fits, the body, and why the message died; what comes behind it flows."""
    queue, dlq, seen = fresh_queue(), fresh_queue(), []
    java(broker, (queue, "persistent", 0, "odd", given), (queue, "persistent", 0, "next", {}))

    def refuse(message: Message) -> None:
        seen.append(message.text)
        if message.text == "odd":
            raise ValueError("odd")

    policy = replace(QUICK, mode=mode, maximum_redeliveries=1)
    options: dict[str, Any] = {"dead_letter": dlq.uri, "redelivery_policy": policy}
    with Connection(broker.url, **options) as connection:
        connection.start()
        connection.create_session().create_consumer(queue).set_listener(refuse)
        assert eventually(lambda: "next" in seen, 20)
        (letter,) = take(connection.create_session().create_consumer(dlq), 1)
    assert letter.text == "odd"
    assert letter.properties["jmsx_death_reason"] in ("max_redeliveries", "undecodable")
    assert eventually(lambda: broker.statistics(queue.name).size == 0)


@pytest.mark.parametrize("when", [-1_000, 10])
@pytest.mark.parametrize("fails", [True, False])
@NEEDS_JDK
def test_all_headers_of_a_message_on_another(
    classic_broker: ClassicBroker, when: float, *, fails: bool
) -> None:
    """As Java programs forward that copy what they find: no NACK deletes it, and no expiry that is not its own."""
    first, queue = fresh_queue(), fresh_queue()
    with Connection(classic_broker.url) as connection:
        connection.start()
        session = connection.create_session()
        session.create_producer(first).send(Message("first", properties={"case": queue.name}))
        (found,) = classic_broker.browse(first.name)
        copied = {**found.headers, "expires": str(int((time.time() + when) * 1000))}
        for name in ("ack", "subscription", "destination", "browser"):
            copied.pop(name, None)
        policy = replace(NO_RETRY, maximum_redeliveries=0 if fails else 1)
        with Connection(classic_broker.url, redelivery_policy=policy) as other:
            consumer = other.create_session(TRANSACTED)
            reader = consumer.create_consumer(queue)
            java(classic_broker, (queue, "volatile", 0, "second", copied))
            if when > 0 and not fails:
                time.sleep(when + 0.5)
            other.start()
            if fails or when < 0:
                (message,) = take(reader, 1)
                assert message.text == "second"
                consumer.rollback() if fails else consumer.commit()
            else:
                assert reader.receive(1) is None
            handled_well = when < 0 and not fails
            letters = [] if handled_well else ["second"]
            assert eventually(lambda: dead(classic_broker, queue) == letters)


#: Texts and properties of which Classic makes frames whose end nobody can tell; `␀` is a NUL, `␤` a line feed.
ENDLESS: tuple[tuple[str, dict[str, str]], ...] = (
    ("a␀b", {}),
    ("a␀", {}),
    ("a␀␤b", {}),
    ("a␀␤MESSAGE␤subscription:1␤ack:f␤message-id:f␤destination:/queue/f␤␤forged␀␤b", {}),
    ("a␀␤RECEIPT␤receipt-id:f␤␤␀␤b", {}),
    ("a␀␤MESSAGE␤ack:f␤x:", {}),
    ("short", {"content-length": "200"}),
    ("short", {"content-length": "99999"}),
    ("longer than that", {"content-length": "3"}),
    ("none", {"content-length": "abc"}),
    ("huge", {"content-length": "99999999999"}),
)


@pytest.fixture(scope="module")
def lonely_broker() -> Iterator[ClassicBroker]:
    """One whose dead letters nobody else reads: a program that splits frames at NULs could not."""
    with ClassicBroker() as broker:
        yield broker


@pytest.mark.parametrize(
    "mode",
    [
        AcknowledgeMode.AUTO_ACKNOWLEDGE,
        AcknowledgeMode.CLIENT_ACKNOWLEDGE,
        AcknowledgeMode.INDIVIDUAL_ACKNOWLEDGE,
        AcknowledgeMode.SESSION_TRANSACTED,
    ],
    ids=str,
)
@NEEDS_JDK
def test_a_body_without_an_end_is_a_dead_letter(
    lonely_broker: ClassicBroker, mode: AcknowledgeMode
) -> None:
    """Whole, for the broker has it; its neighbours are handled once, on the same link."""
    queue, before = fresh_queue(), lonely_broker.statistics(DEAD_LETTERS).size
    lines: list[Sent] = []
    for number, (body, given) in enumerate(ENDLESS):
        lines.append((queue, "persistent", 0, f"good {number}", {}))
        lines.append((queue, "persistent", 0, body, {**given, "case": queue.name}))
    java(lonely_broker, *lines, (queue, "persistent", 0, "last", {}))
    good = [f"good {number}" for number in range(len(ENDLESS))]
    assert handled(lonely_broker, queue, len(good) + 1, mode) == [*good, "last"]
    assert eventually(lambda: lonely_broker.statistics(queue.name).size == 0)
    assert lonely_broker.statistics(DEAD_LETTERS).size - before == len(ENDLESS)


@NEEDS_JDK
def test_a_body_whose_head_tells_that_it_has_no_end(lonely_broker: ClassicBroker) -> None:
    """With a window of one message nothing comes behind it; it is asked for at once, however long answers may take."""
    queue, seen = fresh_queue(), []
    app = App(lonely_broker.url, request_timeout=600.0)
    app.consumer(queue, name="read", prefetch=1)(lambda message: seen.append(message.text))
    with app:
        for word in ("first", "second"):
            java(lonely_broker, (queue, "persistent", 0, "odd", {"content-length": "abc"}))
            java(lonely_broker, (queue, "persistent", 0, word, {}))
        assert eventually(lambda: seen == ["first", "second"], 30)
        assert eventually(lambda: lonely_broker.statistics(queue.name).size == 0)


@pytest.mark.parametrize(
    ("body", "odd"), [("short", {"content-length": "99999"}), ("a␀␤MESSAGE␤ack:f␤x:", {})]
)
@NEEDS_JDK
def test_a_body_without_an_end_at_the_end(
    lonely_broker: ClassicBroker, body: str, odd: dict[str, str]
) -> None:
    """Nothing comes behind it that would show it, so the session asks for something; and goes on."""
    queue, seen = fresh_queue(), []
    app = App(lonely_broker.url, request_timeout=4.0)
    app.consumer(queue, name="read")(lambda message: seen.append(message.text))
    app.start()
    try:
        for word in ("first", "second"):
            java(lonely_broker, (queue, "persistent", 0, body, odd))
            assert eventually(lambda: lonely_broker.statistics(queue.name).size == 0, 15)
            java(lonely_broker, (queue, "persistent", 0, word, {}))
        assert eventually(lambda: seen == ["first", "second"])
        assert app.ready().ok
    finally:
        app.abort()


#: Names that a Java program may give its properties, of which Classic makes lines of the head, its end, or frames.
TORN_NAMES = (
    "a␤b",
    "a␤b␤c",
    "a␤␤",
    "a␤subscription:1␤b",
    "a␤content-length:3␤b",
    "a␤persistent:true␤message-id:{id}␤b",
    "a␤␤␀␤MESSAGE␤message-id:{id}␤destination:/queue/f␤b",
    "a␤␤␀␤RECEIPT␤receipt-id:f␤␤␀␤MESSAGE␤b",
    "a␤␤␀␤ERROR␤message:f␤␤␀␤MESSAGE␤b",
    "a␤ack:f␤b",
    "a␤ack:{ack}␤b",
    "a␤ack:{ack}␤subscription:1␤␤forged␀␤MESSAGE␤b",
    "a␤␤␀␤MESSAGE␤ack:{ack}␤b",
)


def place_of(name: str) -> int:
    """
    Where a header of this name lies in a HashMap; take the rest of a division by its number of places.

    Source: `String.hashCode` and `HashMap.hash` of Java.
    """
    number = 0
    for byte in name.replace("␤", "\n").replace("␀", "\0").encode():
        number = (number * 31 + byte) & 0xFFFFFFFF
    return number ^ (number >> 16)


def placed(name: str) -> str:
    """
    The name, longer, so that it does not stand in front of all headers of the broker's own, as 1 of 16 names do.

    Then nobody could tell it from the end of the body before it, whose message would be a dead letter, too.
    """
    letters = "bcdefghijklmnop"  # `expires` is in the third of 32 places
    return next(name + one for one in letters if place_of(name + one) % 32 > 2)


def next_ack(broker: ClassicBroker) -> tuple[str, int]:
    """How the broker's acks begin, and the number that it gave last; everybody who may read something sees them."""
    queue = fresh_queue()
    with Wire(broker.url) as wire:
        wire.send(
            Frame("SUBSCRIBE", {"id": "1", "destination": f"/queue/{queue.name}", "ack": "client"})
        )
        wire.send(Frame("SEND", {"destination": f"/queue/{queue.name}"}, b"x"))
        ack: str = wire.receive("MESSAGE").headers["ack"]
    before, _, number = ack.rpartition(":")
    return before.replace(":", r"\c") + r"\c", int(number)


@pytest.mark.parametrize("mode", ["persistent", "volatile"])
@pytest.mark.parametrize(
    "acks",
    [
        AcknowledgeMode.AUTO_ACKNOWLEDGE,
        AcknowledgeMode.INDIVIDUAL_ACKNOWLEDGE,
        AcknowledgeMode.SESSION_TRANSACTED,
    ],
    ids=str,
)
@NEEDS_JDK
def test_a_head_without_an_end_is_a_dead_letter(
    lonely_broker: ClassicBroker, acks: AcknowledgeMode, mode: str
) -> None:
    """Also if it bears the acks of its neighbours, which are handled once, on the same link."""
    queue, before = fresh_queue(), lonely_broker.statistics(DEAD_LETTERS).size
    prefix, number = next_ack(lonely_broker)
    lines: list[Sent] = []
    good: list[str] = []
    for place, name in enumerate(TORN_NAMES):
        for shift in range(3):
            good.append(f"good {place}.{shift}")
            given = name.format(
                ack=f"{prefix}{number + 2 * len(good) + shift}", id="ID:x-1-1:1:1:1"
            )
            lines.append((queue, mode, 0, good[-1], {}))
            lines.append((queue, mode, 0, "odd", {placed(given): "1", "case": queue.name}))
    java(lonely_broker, *lines, (queue, mode, 0, "last", {}))
    diary = Diary()
    assert handled(lonely_broker, queue, len(good) + 1, acks, diary) == [*good, "last"]
    assert eventually(lambda: lonely_broker.statistics(queue.name).size == 0)
    assert lonely_broker.statistics(DEAD_LETTERS).size - before >= len(good)
    ends = [event for event in diary.events if isinstance(event, LinkClosed)]
    assert len(ends) == 1  # when it was closed


@NEEDS_JDK
def test_the_dead_letter_that_is_meant_and_none_that_has_its_id(
    classic_broker: ClassicBroker,
) -> None:
    """An operator's choice of one of two: the other one stays, although it lies in front."""
    queue = fresh_queue()
    told = {body: {"message-id": "m", "jmsx_exception": body} for body in ("a", "b")}
    java(classic_broker, *((queue, "persistent", 0, body, head) for body, head in told.items()))
    with open_access(classic_broker.url) as access:
        first, second = access.look(queue.name)
        assert first.id == second.id == "m"
        assert list(access.remove(queue.name, [second])) == [["m"]]
    assert bodies(classic_broker, queue) == ["a"]


@NEEDS_JDK
def test_a_dead_letter_whose_headers_do_not_come_stays(classic_broker: ClassicBroker) -> None:
    """What is sent back in its place would have none of its properties."""
    queue = fresh_queue()
    java(classic_broker, (queue, "persistent", 0, "a", {"no␤colon": "x", "n": "7"}))
    with open_access(classic_broker.url) as access:
        (letter,) = access.look(queue.name)
        assert letter.obstacle("queue://other").startswith("its headers do not come over STOMP")
        assert list(access.replay(queue.name, [letter], "queue://other")) == []
        assert list(access.remove(queue.name, [letter])) == [[letter.id]]


@pytest.mark.parametrize("mode", ["auto", "individual", "transacted"])
def test_a_body_that_names_an_older_ack_stops_nobody(
    classic_broker: ClassicBroker, mode: str
) -> None:
    """As the first message of a link it costs that one; on the next link its own number is the one that is new."""
    queue, seen = fresh_queue(), []
    prefix, number = next_ack(classic_broker)
    text = f"a\nack:{prefix}{number}\nb"
    put(classic_broker, queue, text)
    put(classic_broker, queue, "last")
    app = App(classic_broker.url, redelivery_policy=NO_RETRY)
    app.consumer(queue, name="read", mode=mode)(lambda message: seen.append(message.text))
    app.start()
    try:
        assert eventually(lambda: classic_broker.statistics(queue.name).size == 0, 20)
    finally:
        app.abort()
    assert seen == [text, "last"]


#: How many properties a message may have, from few to many, and a share of the numbers at which a HashMap grows.
COUNTS = (
    0,
    12,
    13,
    30,
    40,
    41,
    60,
    85,
    90,
    120,
    180,
    190,
    300,
    376,
    380,
    700,
    760,
    900,
    1600,
    3500,
    24_700,
    49_300,
)


@NEEDS_JDK
def test_where_an_ack_stands(classic_broker: ClassicBroker) -> None:
    """In front of `subscription`, unless `priority` or `timestamp` does, in a HashMap of up to 49,152 headers."""
    both, neither = set(), []
    with Wire(classic_broker.url) as wire:
        for count in COUNTS:
            queue = fresh_queue()
            given = {f"p{number}": "1" for number in range(count)}
            java(classic_broker, (queue, "persistent", 0, "x", given))
            asked = {"id": f"{count}", "destination": f"/queue/{queue.name}", "ack": "client"}
            wire.send(Frame("SUBSCRIBE", asked))
            names = list(wire.receive("MESSAGE").headers)
            front = names[: names.index("subscription")]
            if not {"ack", "priority", "timestamp"} & set(front):
                neither.append(count)
            both.add("ack" in front)
    assert both == {True, False}
    assert neither == [49_300]


@pytest.mark.parametrize(("count", "places"), [(24_700, 65_536), (49_300, 131_072)])
@NEEDS_JDK
def test_an_ack_that_is_guessed_among_very_many_properties_settles_nothing(
    lonely_broker: ClassicBroker, count: int, places: int
) -> None:
    """It stands in front of the mark, and the broker's own behind. Its dead letter no other test could browse."""
    queue, seen = fresh_queue(), []
    prefix, number = next_ack(lonely_broker)
    name = f"a␤ack:{prefix}{number + 4}␤b"
    low = place_of("subscription") % places
    name = next(
        name + f"{more}" for more in range(99_999) if place_of(name + f"{more}") % places < low
    )
    java(
        lonely_broker,
        (queue, "persistent", 0, "first", {}),
        (queue, "persistent", 0, "odd", {**{f"p{one}": "1" for one in range(count)}, name: "1"}),
        (queue, "persistent", 0, "third", {}),
        (queue, "persistent", 0, "last", {}),
    )
    app = App(lonely_broker.url, redelivery_policy=NO_RETRY)

    def handle(message: Message) -> None:
        time.sleep(0.7)
        seen.append(message.text)

    app.consumer(queue, name="read", mode="individual")(handle)
    with app:
        assert eventually(lambda: lonely_broker.statistics(queue.name).size == 0, 20)
    assert seen == ["first", "third", "last"]


class HaltingProxy(Proxy):
    """Passes on what the broker says up to `word`, and what comes behind that 2 s later."""

    word = b"\n\nforged\0\n"

    def _pass_on(
        self, data: bytes, source: socket.socket, sink: socket.socket, *, to_broker: bool
    ) -> bool:
        before, found, behind = data.partition(self.word)
        if to_broker or not found:
            return super()._pass_on(data, source, sink, to_broker=to_broker)
        passed = super()._pass_on(before + found, source, sink, to_broker=to_broker)
        time.sleep(2.0)
        return passed and super()._pass_on(behind, source, sink, to_broker=to_broker)


@pytest.mark.parametrize("mode", ["auto", "individual", "transacted"])
@NEEDS_JDK
def test_an_ack_that_is_guessed_settles_nothing(lonely_broker: ClassicBroker, mode: str) -> None:
    """
    Nor where a message has so many properties that the broker's stands behind them, and its name ends what has come.

    The guess is the `ack` of the message behind it, which was settled unseen.
    """
    queue, seen = fresh_queue(), []
    prefix, number = next_ack(lonely_broker)
    name = f"a:␤ack:{prefix}{number + 3}␤␤forged␀␤MESSAGE␤expires:0␤"
    low, high = (place_of(one) % 256 for one in ("subscription", "ack"))
    name = next(
        name + f"{more}" for more in range(999) if low < place_of(name + f"{more}") % 256 < high
    )
    odd = {**{f"p{one}": "1" for one in range(100)}, name: "1"}
    java(
        lonely_broker,
        (queue, "persistent", 0, "first", {}),
        (queue, "persistent", 0, "odd", odd),
        (queue, "persistent", 0, "third", {}),
        (queue, "persistent", 0, "last", {}),
    )
    with HaltingProxy(lonely_broker.url) as proxy:
        app = App(proxy.url, redelivery_policy=NO_RETRY)
        app.consumer(queue, name="read", mode=mode)(lambda message: seen.append(message.text))
        with app:
            assert eventually(lambda: lonely_broker.statistics(queue.name).size == 0, 20)
    assert seen == ["first", "third", "last"]


@pytest.mark.parametrize("count", [60, 120])
@pytest.mark.parametrize("mode", ["auto", "individual", "transacted"])
def test_many_properties_cost_nobody_his_message(
    classic_broker: ClassicBroker, mode: str, count: int
) -> None:
    """Its own `ack` shows when something comes behind it, which is asked for at once, however long answers may take."""
    queue, seen = fresh_queue(), []
    app = App(classic_broker.url, request_timeout=600.0)
    app.consumer(queue, name="read", mode=mode, prefetch=1)(
        lambda message: seen.append(message.text)
    )
    with app:
        for word in ("first", "second"):
            app.send(queue, word, properties={f"p{one}": "1" for one in range(count)})
            assert eventually(partial(seen.__contains__, word), 15)
    assert seen == ["first", "second"]
    assert classic_broker.statistics(queue.name).size == 0
