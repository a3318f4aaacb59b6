"""Faults of ActiveMQ Artemis itself; races are repeated, and counted."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any, Final

from jmsx.core.frames import Frame
from jmsx_broker import ArtemisBroker
from tests.integration.artemis_support import Console
from tests.integration.broker_support import eventually
from tests.jdk import run_peer
from tests.probes.support import (
    PATIENCE,
    clients,
    expect,
    logged,
    messages,
    next_message,
    reset,
    wire_of,
    write_all,
)

if TYPE_CHECKING:
    from tests.integration.parity.sides import Side

QUEUE: Final = "~"
_FROM_A_QUEUE: Final = {"subscription-type": "ANYCAST"}
_TO_A_QUEUE: Final = {"destination-type": "ANYCAST"}


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
            client.tell("SUBSCRIBE", id="o", destination="~other", ack="client", **_FROM_A_QUEUE)
            mine = next_message(client)
            assert mine is not None
            to = {"destination": side.real_name(QUEUE), **_TO_A_QUEUE}
            write_all(wire_of(sender), *[Frame("SEND", to, b"x")] * backlog)
            client.tell("SUBSCRIBE", id="s", destination=QUEUE, ack="auto", **_FROM_A_QUEUE)
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
    settings: dict[str, Any] = {"redelivery-delay": int(delay * 1000), "max-delivery-attempts": -1}
    seen: Counter[str] = Counter()
    with ArtemisBroker(address_settings={"#": settings}) as broker, clients(broker) as side:
        for _ in range(rounds):
            side.renew()
            client = side.open()
            client.put(QUEUE, "a", "b", "c")
            client.subscribe(QUEUE, **{"consumer-window-size": "-1"})
            client.wire.cut()
            began = time.monotonic()
            again = side.open()
            again.tell("SUBSCRIBE", id="s", destination=QUEUE, ack="client", **_FROM_A_QUEUE)
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
                **_TO_A_QUEUE,
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
            client.tell("SUBSCRIBE", id="s", destination=QUEUE, ack=ack, **_FROM_A_QUEUE)
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


def delivering(console: Console, name: str) -> int:
    """How many messages of a queue are in delivery."""
    return int(console.ask(f"queue.{name}", "getDeliveringCount"))


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
            write_all(wire_of(client), *[Frame("SEND", {**to, **_TO_A_QUEUE}, b"x")] * 3)
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
        os.kill(broker.pid, signal.SIGQUIT)  # Java writes to its log what its threads do
        eventually(lambda: logged(broker, "StompConnection.fail"), PATIENCE)
        words = [
            word
            for word in ("StompConnection.destroy", "StompConnection.fail")
            if logged(broker, word)
        ]
    told = f"after {tries} ERRORs {answered} of 12 CONNECTs were answered in {stuck:g} s; threads in {words}"
    expect(answered < 12 and len(words) == 2, told)
    return told


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
