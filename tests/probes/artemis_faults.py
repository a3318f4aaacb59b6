"""Faults of ActiveMQ Artemis itself; races are repeated, and counted."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from jmsx.core.frames import Frame
from jmsx_broker import ArtemisBroker
from tests.integration.artemis_support import Console
from tests.integration.broker_support import eventually, is_listening, send
from tests.integration.pairs import artemis_replicas
from tests.jdk import run_peer
from tests.probes.support import (
    FROM_A_QUEUE,
    NO_WINDOW,
    PATIENCE,
    TO_A_QUEUE,
    await_receipt,
    clients,
    delivering,
    expect,
    logged,
    messages,
    next_message,
    reset,
    the_next,
    wire_of,
    write_all,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jmsx_broker.artemis_recipe import Setting
    from jmsx_broker.local import LocalBroker
    from tests.integration.parity.sides import Client, Side

QUEUE: Final = "~"
_FROM_A_TOPIC: Final = {"subscription-type": "MULTICAST"}


def a30_an_auto_ack_that_fails_is_charged_to_the_next_ack() -> str:
    """
    UNSUBSCRIBE while messages of `ack:auto` are on their way: the next ACK of another subscription may be an ERROR.

    Of 30 times at least one.
    """
    rounds, backlog, moment = 30, 200, 0.02  # times; messages; seconds
    errors = []
    with ArtemisBroker() as broker, clients(broker) as side:
        sender = side.open()
        for _ in range(rounds):
            side.renew()
            sender.put("~other", "mine")
            client = side.open()
            client.tell("SUBSCRIBE", id="o", destination="~other", ack="client", **FROM_A_QUEUE)
            mine = the_next(client)
            to = {"destination": side.real_name(QUEUE), **TO_A_QUEUE}
            write_all(wire_of(sender), *[Frame("SEND", to, b"x")] * backlog)
            client.tell("SUBSCRIBE", id="s", destination=QUEUE, ack="auto", **FROM_A_QUEUE)
            next_message(client)
            client.tell("UNSUBSCRIBE", id="s")
            time.sleep(moment)
            answer = client.ask("ACK", id=mine[1]["ack"])
            errors += [answer] * (answer != "RECEIPT")
            client.cut()
    told = f"{len(errors)} of {rounds} ACKs were refused"
    expect(bool(errors), told)
    return f"{told}: {errors[0]}"


def a38_the_death_of_a_socket_is_a_race() -> str:
    """
    Of 60 sockets that die with three messages in flight some have all counted and not delayed, others as DISCONNECT.

    As DISCONNECT is: the oldest counted, and all delayed.
    """
    rounds, delay = 60, 0.6  # times; seconds
    settings: dict[str, Setting] = {
        "redelivery-delay": int(delay * 1000),
        "max-delivery-attempts": -1,
    }
    seen: Counter[str] = Counter()
    with ArtemisBroker(address_settings={"#": settings}) as broker, clients(broker) as side:
        for _ in range(rounds):
            side.renew()
            client = side.open()
            client.put(QUEUE, "a", "b", "c")
            client.subscribe(QUEUE, **NO_WINDOW)
            client.wire.cut()
            began = time.monotonic()
            again = side.open()
            again.tell("SUBSCRIBE", id="s", destination=QUEUE, ack="client", **FROM_A_QUEUE)
            first = next_message(again)
            delayed = time.monotonic() - began > delay / 2
            flags = [
                first[1]["redelivered"] if first else "",
                *(m[1]["redelivered"] for m in messages(again, 0.2)),
            ]
            counted = {3: "all", 1: "the oldest"}.get(flags.count("true"), str(flags))
            seen[f"{counted} counted, {'delayed' if delayed else 'at once'}"] += 1
            again.cut()
    told = ", ".join(f"{what}: {times}" for what, times in seen.most_common())
    both = {"all counted, at once", "the oldest counted, delayed"}
    expect(both <= seen.keys(), told)
    return f"of {rounds} deaths {told}"


def a67_a_priority_that_is_none_loses_the_message() -> str:
    """A SEND of priority 10, 127 or -1 has a RECEIPT, and its message is nowhere; one of 9 is there."""
    with ArtemisBroker() as broker, clients(broker) as side, Console(broker) as console:
        client = side.open()
        answers = {}
        for priority in ("10", "127", "-1"):
            answers[priority] = client.ask(
                "SEND",
                b"x",
                destination=f"{QUEUE}{priority}",
                priority=priority,
                persistent="true",
                **TO_A_QUEUE,
            )
        lost = console.holds({})
        left = console.sizes()
        client.put(QUEUE, "a", priority="9")
        kept = sum(console.sizes().values())
    expect(set(answers.values()) == {"RECEIPT"}, f"answers: {answers}")
    expect(lost, f"left: {left}")
    expect(kept == 1, f"of priority 9 {kept} messages are there")
    return f"{len(answers)} RECEIPTs, 0 messages"


def a68_the_ack_of_a_later_message_deletes_a_stream_message() -> str:
    """
    A StreamMessage of a Java client by OpenWire does not come to a STOMP consumer; the text behind it does.

    It is in delivery all the same, and an ACK of the text deletes both, save in `client-individual`.
    """
    left = {}
    with ArtemisBroker() as broker, clients(broker) as side:
        for ack in ("auto", "client", "client-individual"):
            side.renew()
            name = side.real_name(QUEUE)
            run_peer("BodyPeer", broker.openwire_url, name, "persistent", "stream", "text")
            client = side.open()
            client.tell("SUBSCRIBE", id="s", destination=QUEUE, ack=ack, **FROM_A_QUEUE)
            came = messages(client, 1)
            expect(len(came) == 1, f"{len(came)} of 2 messages came to {ack}")
            if ack != "auto":
                client.ask("ACK", id=came[0][1]["ack"])
            client.ask("UNSUBSCRIBE", id="s")
            left[ack] = broker.statistics(name).size
        told = logged(broker, "AMQ332071")
    words = ", ".join(f"{count} in {ack}" for ack, count in left.items())
    expect(left == {"auto": 0, "client": 0, "client-individual": 1}, f"left: {words}")
    expect(told, "its log has no AMQ332071")
    return f"1 of 2 messages came; left of the other: {words}; the log has AMQ332071"


def a63_a_long_list_ends_in_an_out_of_memory_error() -> str:
    """
    `listMessages` of 20,000 messages with 4 kB of properties each has no answer, and the log says OutOfMemoryError.

    So it is where `management-browse-page-size` is 100,000, and Java has 512 MB.
    """
    count, step, patience = 20_000, 100, 120.0  # messages; messages; seconds
    with ArtemisBroker() as broker, clients(broker) as side:
        name = side.real_name(QUEUE)
        to = {"destination": name, "persistent": "true", **TO_A_QUEUE}
        properties = {f"p{number}": "." * 400 for number in range(10)}
        sender = wire_of(side.open())
        for _ in range(count // step):
            write_all(sender, *[Frame("SEND", {**to, **properties}, b"x")] * step)
        sender.write(Frame("SEND", {**to, "receipt": "r"}))
        await_receipt(sender, patience)
        there = broker.statistics(name).size
        client = side.open()
        client.ask("SUBSCRIBE", id="a", destination="~a", ack="auto", **_FROM_A_TOPIC)
        question = {
            "destination": "activemq.management",
            "reply-to": side.real_name("~a"),
            "_AMQ_ResourceName": f"queue.{name}",
            "_AMQ_OperationName": "listMessages",
        }
        wire_of(client).write(Frame("SEND", question, b'[""]'))
        end = time.monotonic() + patience
        answer = ""
        while not (answer or logged(broker, "OutOfMemoryError") or time.monotonic() > end):
            answer = str(client.wire.read(1) or "")[:60]
        failed = logged(broker, "OutOfMemoryError")
    told = f"{there} messages: OutOfMemoryError in the log: {failed}; answer: {answer or None}"
    expect(failed and not answer, told)
    return told


def a66_a_broken_socket_leaves_a_message_with_nobody() -> str:
    """
    Consumers of one message at a time acknowledge it, and their sockets break a moment later; the next is on its way.

    Until the broker keeps that one in delivery for nobody for 3 s; after its restart it is there. Not more than 1,000
    breaks; one is enough.
    """
    limit, stays = 1000, 3.0  # breaks; seconds
    with ArtemisBroker(address_settings=_FOR_EVER) as broker, clients(broker) as side:
        name = side.real_name(QUEUE)
        with Console(broker) as console:
            breaks = kept = 0
            while not kept and breaks < limit:
                breaks += _breaks(side, reset)
                if not eventually(lambda: delivering(console, name) == 0, stays):
                    kept = delivering(console, name)
            lie = broker.statistics(name).size
        broker.stop()
        broker.start()
        again = side.open()
        wide = {**NO_WINDOW, **FROM_A_QUEUE}
        again.tell("SUBSCRIBE", id="s", destination=QUEUE, ack="client", **wide)
        back = len(messages(again))
    told = f"{kept} kept after {breaks} breaks; of {lie} messages {back} are there after a restart"
    expect(kept > 0 and back == lie, told)
    return told


def a66_a_disconnect_leaves_none() -> str:
    """Where those consumers write DISCONNECT, and the broker closes, none of 200 leaves one with nobody for 3 s."""
    ends, stays = 200, 3.0  # seconds
    kept = 0
    with (
        ArtemisBroker(address_settings=_FOR_EVER) as broker,
        clients(broker) as side,
        Console(broker) as console,
    ):
        name = side.real_name(QUEUE)
        done = 0
        while done < ends:
            done += _breaks(side, lambda client: client.tell("DISCONNECT"))
            if not eventually(lambda: delivering(console, name) == 0, stays):
                kept = delivering(console, name)
                break
    told = f"{kept} kept after {done} DISCONNECTs"
    expect(kept == 0, told)
    return told


#: Address settings where no message becomes a dead letter.
_FOR_EVER: Final[Mapping[str, Mapping[str, Setting]]] = {"#": {"max-delivery-attempts": -1}}


def _breaks(side: Side, end: Callable[[Client], object]) -> int:
    """How many of ten consumers had a message and acknowledged it, and then ended in some way: at most ten."""
    sender = wire_of(side.open())
    to = {"destination": side.real_name(QUEUE), "persistent": "true", **TO_A_QUEUE}
    write_all(sender, *[Frame("SEND", to, b"x")] * 11)
    chance = Random(1)
    for number in range(10):
        client = side.open()
        one = {"consumer-window-size": "0", **FROM_A_QUEUE}
        client.tell("SUBSCRIBE", id="s", destination=QUEUE, ack="client", **one)
        message = next_message(client)
        if message is None:
            return number
        wire_of(client).write(Frame("ACK", {"id": message[1]["ack"]}))
        time.sleep(chance.uniform(0, 0.003))
        end(client)
    return 10


def a70_who_closes_while_an_answer_is_due_blocks_a_thread_for_10_s() -> str:
    """
    Clients hang up while RECEIPTs of persistent messages are due, until a CONNECT is not answered for 8 s.

    It is answered 10 s after. Not more than 3,000 times; one is enough.
    """
    limit, each, slow = 3000, 10, 8.0  # hang-ups; hang-ups between two looks; seconds
    chance = Random(1)
    with ArtemisBroker() as broker, clients(broker) as side:
        tries = 0
        worst = 0.0
        while worst < slow and tries < limit:
            client = side.open()
            to = {"destination": side.real_name(QUEUE), "persistent": "true", "receipt": "r"}
            write_all(wire_of(client), *[Frame("SEND", {**to, **TO_A_QUEUE}, b"x")] * 3)
            time.sleep(chance.uniform(0, 0.005))
            reset(client)
            tries += 1
            if tries % each == 0:
                worst = _slowest_connect(side, 12)
    told = f"after {tries} hang-ups a CONNECT took {worst:.1f} s"
    expect(slow < worst < 12, told)
    return told


def _slowest_connect(side: Side, count: int) -> float:
    """The seconds until the last of `count` CONNECTs is answered; at most 30."""
    began = time.monotonic()
    others = [side.open_silent() for _ in range(count)]
    for other in others:
        other.tell("CONNECT", **{"accept-version": "1.2", "host": "x"})
    for other in others:
        other.wire.read(max(began + 30 - time.monotonic(), 0.0))
    took = time.monotonic() - began
    for other in others:
        other.wire.cut()
    return took


def a65_a_refused_client_that_closes_may_lock_the_broker() -> str:
    """
    Clients close their sockets at an ERROR, until one's CONNECT is not answered for 10 s: nor are others' for 30 s.

    A thread dump shows one thread in StompConnection.destroy and one in StompConnection.fail. Not more than 5,000
    times; one is enough.
    """
    limit, stuck = 5000, 30.0  # times; seconds
    with ArtemisBroker() as broker, clients(broker) as side:
        tries = 0
        while tries < limit:
            client = side.open_silent()
            client.tell("CONNECT", **{"accept-version": "1.2", "host": "x"})
            if client.wire.read(PATIENCE) is None:
                break
            client.tell("NONSENSE")
            if tries % 2:
                client.wire.read(PATIENCE)
            reset(client)
            tries += 1
        answered = _answered(side, 12, stuck)
        dump = _thread_dump(broker)
    words = [word for word in ("StompConnection.destroy", "StompConnection.fail") if word in dump]
    told = f"after {tries} ERRORs {answered} of 12 CONNECTs were answered in {stuck:g} s; threads in {words}"
    expect(answered < 12 and len(words) == 2, told)
    return told


def _thread_dump(broker: LocalBroker) -> str:
    """What the broker's threads do: Java writes that to its log when it is told to."""
    before = len(broker.log.read_bytes())
    os.kill(broker.pid, signal.SIGQUIT)
    told = b""
    while b"JNI global refs" not in told:  # the last line
        time.sleep(0.1)
        told = broker.log.read_bytes()[before:]
    return told.decode("utf-8", "replace")


def _answered(side: Side, count: int, seconds: float) -> int:
    """How many of `count` new clients are answered within so many seconds."""
    end = time.monotonic() + seconds
    others = [side.open_silent() for _ in range(count)]
    for other in others:
        other.tell("CONNECT", **{"accept-version": "1.2", "host": "x"})
    answers = [other.wire.read(max(end - time.monotonic(), 0.0)) for other in others]
    for other in others:
        other.wire.cut()
    return sum(answer is not None for answer in answers)


def a79_of_two_replicas_both_work_once_one_was_frozen() -> str:
    """The other one works meanwhile, and both do when it goes on, whichever it was."""
    briefly = "<check-period>1000</check-period><connection-ttl>2000</connection-ttl>"
    told = []
    for frozen in ("first", "second"):
        with artemis_replicas(("<static-connectors>", f"{briefly}<static-connectors>")) as pair:
            time.sleep(2)  # until the primary has its backup's word, too
            began, urls = time.monotonic(), (pair.first.url, pair.second.url)
            getattr(pair, frozen).pause()
            if frozen == "first":
                expect(eventually(partial(is_listening, urls[1]), PATIENCE), "nobody took over")
            else:
                send(pair.first, QUEUE, [b"x"])  # is answered when the backup is given up
            seconds = time.monotonic() - began
            getattr(pair, frozen).resume()
            for url in urls:
                expect(eventually(partial(is_listening, url), PATIENCE), f"only one, of {frozen}")
            told.append(f"after {seconds:.1f} s with the {frozen} one frozen")
    return f"both: {', '.join(told)}"
