"""Faults of ActiveMQ Classic itself; races are repeated, and counted."""

from __future__ import annotations

from typing import Final

from jmsx_broker import ClassicBroker
from tests.probes.support import (
    PATIENCE,
    clients,
    expect,
    messages,
    next_message,
)

QUEUE: Final = "/queue/~"
TOPIC: Final = "/topic/~"

#: A selector at which the broker raises, for each message whose property `price` is a text: all of STOMP's are.
RAISES: Final = "price - 1 > 0"


def c66_arithmetic_on_a_text_has_a_topic_refuse_all() -> str:
    """Each SEND to a topic is an ERROR while one consumer's selector calculates with a property that is a text."""
    with ClassicBroker() as broker, clients(broker) as side:
        bad, good = side.open(), side.open()
        bad.ask("SUBSCRIBE", id="t", destination=TOPIC, ack="auto", selector=RAISES)
        answers = [good.ask("SEND", b"x", destination=TOPIC, price="2") for _ in range(3)]
        bad.ask("UNSUBSCRIBE", id="t")
        freed = good.ask("SEND", b"x", destination=TOPIC, price="2")
    told = f"{3 - answers.count('RECEIPT')} of 3 SENDs refused, and {freed} when it was gone"
    expect("RECEIPT" not in answers and freed == "RECEIPT", told)
    return told


def c66_arithmetic_on_a_text_keeps_a_queue_s_messages() -> str:
    """What comes to a queue beside such a consumer comes to nobody before a restart; what comes later does."""
    return _kept_by(RAISES, later=1)


def c66_a_bad_pattern_keeps_a_queue_s_messages() -> str:
    """So it is with a REGEX that is none."""
    return _kept_by("REGEX('[', price)", later=1)


def _kept_by(selector: str, later: int) -> str:
    """What a consumer gets beside one with a selector, when that is gone, of a later message, and after a restart."""
    with ClassicBroker() as broker, clients(broker) as side:
        bad, good = side.open(), side.open()
        headers = {"destination": QUEUE, "ack": "client"}
        bad.ask("SUBSCRIBE", id="q", selector=selector, **headers)
        good.ask("SUBSCRIBE", id="q", **headers)
        for body in "abc":
            good.put(QUEUE, body, price="2")
        counts = [len(messages(good, 2))]
        bad.cut()
        counts.append(len(messages(good, 2)))
        good.put(QUEUE, "d", price="2")
        counts.append(len(messages(good, 2)))
        broker.stop()
        broker.start()
        last = side.open()
        last.ask("SUBSCRIBE", id="q", **headers)
        counts.append(len(messages(last)))
    told = "beside it {}, when it was gone {}, of a later one {}, after a restart {}".format(
        *counts
    )
    expect(counts == [0, 0, later, 4], told)
    return f"of 3 messages came {told}"


def c69_an_error_of_the_broker_s_inside_is_no_refusal() -> str:
    """A SEND to a topic is an ERROR, because the second subscriber's selector raises; the first has the message."""
    with ClassicBroker() as broker, clients(broker) as side:
        good, bad, sender = side.open(), side.open(), side.open()
        good.ask("SUBSCRIBE", id="t", destination=TOPIC, ack="auto")
        bad.ask("SUBSCRIBE", id="t", destination=TOPIC, ack="auto", selector=RAISES)
        sender.tell("SEND", b"x", destination=TOPIC, price="2", receipt="r")
        answer = sender.wire.read(PATIENCE)
        came = next_message(good, 2)
    assert answer is not None
    words = answer[2].split(b"\n")[0].decode()[:100]
    expect(answer[0] == "ERROR", f"the SEND was answered by {answer[0]}")
    expect(came is not None, f"ERROR ({words}), and the first subscriber has nothing")
    return f"ERROR ({words}), and the first subscriber has the message"
