"""Faults of ActiveMQ Classic itself; races are repeated, and counted."""

from __future__ import annotations

import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from jmsx import App, Message, Queue, SendUnconfirmedError
from jmsx.core.frames import Frame
from jmsx.core.map_body import decode_map, encode_map
from jmsx_broker import ClassicBroker
from tests.integration.test_beside_others import MESSAGES, SENDERS, missing, subscribed
from tests.jdk import run_peer
from tests.probes.support import (
    PATIENCE,
    ack_ids,
    await_receipt,
    clients,
    expect,
    holding,
    messages,
    next_message,
    the_next,
    wire_of,
    write_all,
)

if TYPE_CHECKING:
    from tests.integration.parity.sides import Side

#: Of sends to several queues one of some 3,500 to 15,000 fails.
MOST_SENDS: Final = 60_000

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
    return _kept_by(RAISES)


def c66_a_bad_pattern_keeps_a_queue_s_messages() -> str:
    """So it is with a REGEX that is none."""
    return _kept_by("REGEX('[', price)")


def c66_a_function_of_a_missing_property_keeps_a_queue_s_messages() -> str:
    """So it is with REPLACE of a property that a message has not."""
    return _kept_by("REPLACE(missing, 'a', 'b') = 'c'")


def _kept_by(selector: str) -> str:
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
    expect(counts == [0, 0, 1, 4], told)
    return f"of 3 messages came {told}"


def c68_single_acks_in_transactions_slow_every_commit() -> str:
    """
    A COMMIT searches all that was acknowledged singly in transactions of its link, for each unacknowledged message.

    With a thousand unacknowledged, the last fifty of a thousand COMMITs of one ACK take over three times as long as the
    first fifty.
    """
    kept = 1000
    with ClassicBroker() as broker, clients(broker) as side:
        wire, _, ids = holding(side, 2 * kept)
        times = []
        for number in range(kept):
            began = time.monotonic()
            write_all(
                wire,
                Frame("BEGIN", {"transaction": "t"}),
                Frame("ACK", {"id": ids[number], "transaction": "t"}),
                Frame("COMMIT", {"transaction": "t", "receipt": "r"}),
            )
            await_receipt(wire)
            times.append(time.monotonic() - began)
    first, last = (sum(part) / 50 for part in (times[:50], times[-50:]))
    told = f"a COMMIT took {first * 1000:.1f} ms, and {last * 1000:.1f} ms with {kept} kept and {kept} unacknowledged"
    expect(last > 3 * first, told)
    return told


def c68_a_cumulative_ack_searches_its_transaction() -> str:
    """An ACK in a transaction of twice as many messages takes more than twice and a half as long."""
    counts = (5_000, 10_000)
    times = []
    for count in counts:
        with ClassicBroker() as broker, clients(broker) as side:
            wire, _, ids = holding(side, count, "client")
            wire.write(Frame("BEGIN", {"transaction": "t"}))
            began = time.monotonic()
            wire.write(Frame("ACK", {"id": ids[-1], "transaction": "t", "receipt": "r"}))
            await_receipt(wire, 120)
            times.append(time.monotonic() - began)
    told = ", ".join(
        f"{count} messages {seconds:.1f} s" for count, seconds in zip(counts, times, strict=True)
    )
    expect(times[1] > 2.5 * times[0], told)
    return f"one ACK: {told}"


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


def c70_a_map_s_characters_of_two_halves_come_spoilt() -> str:
    """A smile in a text of a map comes as two U+FFFD, to a STOMP consumer and to a Java one; others come well."""
    smile, spoilt = "\U0001f600", "\ufffd\ufffd"
    expected = {"<": "<", "\xe9": "\xe9", smile: spoilt}
    as_map = {"transformation": "jms-map-xml"}
    with ClassicBroker() as broker, clients(broker) as side:
        client = side.open()
        client.subscribe(QUEUE, **as_map)
        seen = {}
        for text in expected:
            client.put(QUEUE, encode_map({"k": text}).decode(), **as_map)
            message = the_next(client)
            seen[text] = decode_map(message[2])["k"]
        client.put("/queue/~java", encode_map({"k": smile}).decode(), **as_map)
        java = run_peer("MapPeer", broker.openwire_url, "receive", side.real_name("~java"))
    told = ", ".join(f"{text!a} as {came!a}" for text, came in seen.items())
    expect(seen == expected and spoilt in java, f"{told}; to Java: {java!a}")
    return f"{told}; to Java as {java.split()[-1]!a}"


def c70_so_does_such_a_property_from_the_store() -> str:
    """A smile in a property comes whole from memory, and as two U+FFFD after a restart; in the body it is whole."""
    smile, spoilt = "\U0001f600", "\ufffd\ufffd"
    seen = []
    with ClassicBroker() as broker, clients(broker) as side:
        side.open().put(QUEUE, smile, tint=smile)
        for _ in range(2):
            client = side.open()
            client.tell("SUBSCRIBE", id="s", destination=QUEUE, ack="client")
            message = the_next(client)
            seen.append((message[1]["tint"], message[2].decode()))
            broker.stop()
            broker.start()
    told = f"property and body {seen[0]!a}, after a restart {seen[1]!a}"
    expect(seen == [(smile, smile), (spoilt, smile)], told)
    return told


def c71_an_error_spoils_what_is_dispatched_beside_it() -> str:
    """
    50 connections, each with 50 times a SEND to itself and an ACK of nothing behind it, which is an ERROR.

    On at least one of them frames lose bytes, are lost whole, or come twice.
    """
    connections, times = 50, 50
    with ClassicBroker() as broker, clients(broker) as side:
        spoilt = sum(_is_spoilt(side, times) for _ in range(connections))
    told = f"{spoilt} of {connections} connections were spoilt"
    expect(spoilt > 0, told)
    return told


def _is_spoilt(side: Side, times: int) -> bool:
    """Whether the bytes that a connection gets are anything else than its `times` MESSAGEs and ERRORs."""
    side.renew()
    client = side.open()
    wire = wire_of(client)
    name = side.real_name(QUEUE)
    client.ask("SUBSCRIBE", id="s", destination=name, ack="auto", activemq___prefetchSize="1000")
    for number in range(times):
        wire.write(Frame("SEND", {"destination": name}, b"%04d" % number))
        wire.write(Frame("ACK", {"id": "nothing"}))
    data = b""
    wire.socket.settimeout(1)
    try:
        while read := wire.socket.recv(65536):
            data += read
    except TimeoutError:
        pass
    whole = re.compile(
        rb"\n*(?:MESSAGE\n(?:[\w-]+:[^\n]*\n)+\n(?P<body>\d{4})|ERROR\n(?:[\w-]+:[^\n]*\n)+\n[^\0]*)"
    )
    frames = [whole.fullmatch(part) for part in data.split(b"\0")[:-1]]
    bodies = [frame["body"] for frame in frames if frame is not None and frame["body"]]
    expected = [b"%04d" % number for number in range(times)]
    return bodies != expected or len(frames) != 2 * times or None in frames


def c75_a_nack_has_a_later_ack_miscounted() -> str:
    """
    Four NACKs free a full window of four for four waiting messages, and an ACK of those is refused: rarely.

    On 16 connections at a time, until one is refused (`Unmatched acknowledge`), and not longer than ten minutes.
    """
    limit, connections = 600.0, 16  # seconds; connections
    tries = [0] * connections
    refused: list[str] = []
    end = time.monotonic() + limit
    with (
        ClassicBroker() as broker,
        clients(broker) as side,
        ThreadPoolExecutor(connections) as pool,
    ):

        def repeat(number: int) -> None:
            wire = wire_of(side.open())
            queue = {"destination": f"/queue/{side.real_name('~')}{number}"}
            window = {"id": "s", "ack": "client", "activemq.prefetchSize": "4"}
            wire.write(Frame("SUBSCRIBE", {**queue, **window}))
            while not refused and time.monotonic() < end:
                write_all(wire, *[Frame("SEND", queue, b"x")] * 8)
                write_all(wire, *(Frame("NACK", {"id": ack}) for ack in ack_ids(wire, 4)))
                wire.write(Frame("ACK", {"id": ack_ids(wire, 4)[-1], "receipt": "r"}))
                answer = wire.read(PATIENCE)
                assert answer is not None
                tries[number] += 1
                refused.extend([answer[1].get("message", "")] * (answer[0] == "ERROR"))

        list(pool.map(repeat, range(connections)))
    told = f"{len(refused)} of {sum(tries)} ACKs was refused"
    expect(bool(refused), told)
    return f"{told}: {refused[0][:60]}"


def c77_a_connect_may_be_refused_without_a_word() -> str:
    """24 clients at once want a client id that another one has, until one of them is closed without an ERROR."""
    with (
        ClassicBroker() as broker,
        _connecting(broker.url) as first,
        ThreadPoolExecutor(24) as pool,
    ):
        expect(first.recv(65536).startswith(b"CONNECTED"), "the first one was refused, too")
        tried, wordless = 0, 0
        while not wordless and tried < 50_000:
            answers = list(pool.map(_refusal, [broker.url] * 500))
            tried, wordless = tried + len(answers), answers.count(b"")
    told = f"{wordless} of {tried} were closed without a word"
    expect(wordless > 0, told)
    return told


def c80_a_translating_subscriber_loses_what_others_are_sent() -> str:
    """Five plain subscribers of a topic, without one that has asked for a translation, and beside it."""
    with ClassicBroker() as broker:
        alone = missing(broker.url, "alone")
        reader = subscribed(broker.url, "beside", transformation="jms-map-xml")
        beside = missing(broker.url, "beside")
        reader.cut()
    told = f"of {SENDERS * MESSAGES} messages each lacks {alone} without it, and {beside} beside it"
    expect(not any(alone) and any(beside), told)
    return told


def c81_a_translating_consumer_has_sends_to_several_queues_fail() -> str:
    """Sends to two queues that jmsx reads meanwhile, with a translation until one fails, and as many without."""
    with ClassicBroker() as broker:
        failed_at = _fails_at(broker.url, "jms-map-xml", MOST_SENDS)
        plain = _fails_at(broker.url, "none", failed_at or MOST_SENDS)
    told = f"send {failed_at} failed where they are translated, and {plain} where they are not"
    expect(failed_at is not None and plain is None, told)
    return told


def _fails_at(url: str, transformation: str, most: int) -> int | None:
    """The number of the first send that fails."""
    names = [f"{transformation}.{side}" for side in ("left", "right")]
    readers, shop = App(url), App(url)
    for name in names:
        readers.consumer(Queue(f"{name}?consumer.transformation={transformation}"), name=name)(
            _take
        )
    with readers, shop:
        for number in range(1, most + 1):
            try:
                shop.send(Queue(",".join(names)), str(number))
            except SendUnconfirmedError:
                return number
    return None


def _take(_message: Message) -> None:
    pass


def _refusal(url: str) -> bytes:
    with _connecting(url) as client:
        return client.recv(65536)


def _connecting(url: str) -> socket.socket:
    """A connection that has said CONNECT with the one client id."""
    client = socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), PATIENCE)
    client.sendall(b"CONNECT\naccept-version:1.2\nhost:x\nheart-beat:0,0\nclient-id:taken\n\n\0")
    return client
