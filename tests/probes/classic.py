"""What ActiveMQ Classic does when nothing is wrong: heart-beats, dispatching, acknowledging, and its plugins."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jmsx import Connection, Message, Queue, SecurityError
from jmsx.core.frames import Frame
from jmsx_broker import ClassicBroker
from jmsx_broker.classic_recipe import ClassicRecipe
from tests.integration.broker_support import changed, changed_classic, eventually
from tests.probes.support import (
    PATIENCE,
    OtherwiseError,
    clients,
    end_of,
    expect,
    holding,
    messages,
    next_message,
    silence,
    socket_of,
    the_next,
    which_comes_first,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.integration.parity.sides import Client

#: A queue of which no other program knows: `~` is made unique.
QUEUE: Final = "/queue/~"

DEAD_LETTERS: Final = "ActiveMQ.DLQ"

#: Messages that Classic reads of a queue at a wake-up (maxPageSize).
PAGE: Final = 200


def c3_almost_two_periods_pass_between_two_beats() -> str:
    """
    The broker skips a beat if it wrote anything in its period.

    A RECEIPT right behind a beat has it skip the next one: almost two periods without a byte, each of three times.
    """
    period = 1.0  # seconds
    with ClassicBroker() as broker, clients(broker) as side:
        client = side.open(heart__beat=f"0,{period * 1000:.0f}")
        sock = socket_of(client)
        gaps = []
        for _ in range(3):
            silence(sock, 3 * period)  # a beat has come
            client.tell("SEND", destination=QUEUE, receipt="r")
            silence(sock, period)  # and its RECEIPT
            gaps.append(silence(sock, 3 * period) or 0.0)
    told = ", ".join(f"{gap:.2f}" for gap in gaps)
    expect(all(1.6 * period < gap < 2.1 * period for gap in gaps), f"{told} s without a byte")
    return f"{told} s without a byte, where a beat is due every {period:g} s"


def c3_who_beats_only_as_often_as_it_promised_is_closed() -> str:
    """
    Of clients that promised a beat each second one that sends none is closed in 2 to 3 s, without an ERROR.

    One that beats each 1.3 s is closed in the end, too. One that beats each 0.4 s lives, and so does one with 0,0.
    """
    period, late, often, limit = 1.0, 1.3, 0.4, 20.0  # seconds
    with ClassicBroker() as broker, clients(broker) as side:
        promise = f"{period * 1000:.0f},0"
        free = side.open(heart__beat="0,0")
        silent, slow, quick = (side.open(heart__beat=promise) for _ in range(3))
        began = time.monotonic()
        beats = {slow: late, quick: often}
        due = dict.fromkeys(beats, began)
        ends: dict[Client, float] = {}
        while len(ends) < 2 and time.monotonic() - began < limit:
            for client, every in beats.items():
                if client not in ends and time.monotonic() > due[client]:
                    socket_of(client).sendall(b"\n")
                    due[client] += every
            for client in (silent, slow):
                if client not in ends and (ended := end_of(client, 0.05)) is not None:
                    ends[client] = time.monotonic() - began
                    expect(not ended[1], f"ERRORs: {ended[1]}")
        live = [end_of(client, 0.05) is None for client in (quick, free)]
    expect(len(ends) == 2, f"{len(ends)} of 2 were closed in {limit:g} s")
    told = f"closed after {ends[silent]:.1f} s without a beat, after {ends[slow]:.1f} s with one each {late:g} s"
    expect(1.7 * period < ends[silent] < 3.3 * period and all(live), f"{told}; others live: {live}")
    return told


def c4_a_send_that_is_held_back_holds_the_ack_behind_it() -> str:
    """
    A queue of 1 MB is full of messages of 100 kB, and the next SEND waits; so does the ACK behind it, for 3 s.

    It is done when somebody has read the queue.
    """
    stop = 3.0  # seconds
    policy = (
        '<destinationPolicy><policyMap><policyEntries><policyEntry queue="full.>" memoryLimit="1mb">'
        "<pendingQueuePolicy><vmQueueCursor/></pendingQueuePolicy></policyEntry></policyEntries>"
        "</policyMap></destinationPolicy><plugins>"
    )
    with changed_classic(("<plugins>", policy)) as broker, clients(broker) as side:
        client, reader = side.open(), side.open()
        client.put(QUEUE, "a")
        client.subscribe(QUEUE)
        for _ in range(15):
            client.tell("SEND", b"." * 100_000, destination="/queue/full.~", persistent="true")
        client.tell("ACK", id=client.ack_ids["a"])
        time.sleep(stop)
        held = broker.statistics(side.real_name("~")).dequeue_count
        reader.tell("SUBSCRIBE", id="s", destination="/queue/full.~", ack="auto")
        read = len(messages(reader, 1))
        done = broker.statistics(side.real_name("~")).dequeue_count
    told = (
        f"{held} of 1 ACKs done in {stop:g} s, {done} when the {read} messages before it were read"
    )
    expect((held, done, read) == (0, 1, 15), told)
    return told


def c5_who_does_not_read_is_not_read() -> str:
    """
    Writing to a connection and processing its frames share one lock.

    A consumer reads one message of 20 MB, and acknowledges it when the socket is full: the broker does not do it in
    3 s, and does it when the consumer reads on.
    """
    stop = 3.0  # seconds
    with ClassicBroker() as broker, clients(broker) as side:
        side.open().put(QUEUE, *(f"{number:03}{'.' * 100_000}" for number in range(PAGE)))
        name = side.real_name("~")
        consumer = side.open()
        consumer.tell(
            "SUBSCRIBE",
            id="s",
            destination=QUEUE,
            ack="client-individual",
            activemq___prefetchSize="1000",
        )
        first = the_next(consumer)
        time.sleep(1)  # the broker fills the socket meanwhile
        consumer.tell("ACK", id=first[1]["ack"])
        time.sleep(stop)
        unread = broker.statistics(name).dequeue_count
        began = time.monotonic()
        read = len(messages(consumer))
        done = eventually(lambda: broker.statistics(name).dequeue_count == 1, PATIENCE)
        seconds = time.monotonic() - began
    expect(unread == 0, f"its ACK was done in {stop:g} s while it did not read")
    expect(done, "its ACK was not done when it had read on")
    return f"0 of 1 ACKs done in {stop:g} s unread, 1 when {read} more messages were read ({seconds:.1f} s)"


def c6_no_message_precedes_the_receipt_of_its_subscribe() -> str:
    """Of 300 SUBSCRIBEs to a queue with ten messages each is answered by its RECEIPT first, and then by a MESSAGE."""
    rounds = 300
    with ClassicBroker() as broker, clients(broker) as side:
        client = side.open()
        client.put(QUEUE, *"abcdefghij")
        early = came = 0
        for number in range(rounds):
            headers = {"id": str(number), "destination": QUEUE, "ack": "client", "receipt": "s"}
            client.tell("SUBSCRIBE", **headers)
            while (seen := client.wire.read(PATIENCE)) is not None and seen[0] != "RECEIPT":
                early += seen[1].get("subscription") == str(number)
            came += next_message(client) is not None
            client.ask("UNSUBSCRIBE", id=str(number))
            client.unread.clear()
    expect(early == 0, f"{early} MESSAGEs came before the RECEIPT of {rounds} SUBSCRIBEs")
    expect(came == rounds, f"behind {rounds - came} of {rounds} RECEIPTs nothing came")
    return f"0 MESSAGEs before the RECEIPTs of {rounds} SUBSCRIBEs, and some behind each"


def c10_the_look_for_expired_messages_wakes_a_queue() -> str:
    """
    A consumer that acknowledges nothing gets a page or two of 600 messages, and nothing more; until the broker looks.

    It looks 30 s after it has made the queue: the next page comes then.
    """
    period = 30.0  # seconds (expireMessagesPeriod)
    with ClassicBroker() as broker, clients(broker) as side:
        began = time.monotonic()
        side.open().put(QUEUE, *map(str, range(3 * PAGE)))
        consumer = side.open()
        consumer.ask(
            "SUBSCRIBE", id="s", destination=QUEUE, ack="client", activemq___prefetchSize="1000"
        )
        pages = len(messages(consumer))
        further = next_message(consumer, period + 5)
        seconds = time.monotonic() - began
        rest = 1 + len(messages(consumer))
    expect(pages in {PAGE, 2 * PAGE}, f"{pages} messages came at once")
    expect(further is not None, f"nothing more came in {seconds:.0f} s")
    expect(period - 1 < seconds < period + 2, f"more came after {seconds:.1f} s")
    return f"{pages} messages at once, {rest} more {seconds:.1f} s after the queue was made"


def c25_only_what_asks_for_a_receipt_is_synced() -> str:
    """
    A SEND or ACK is synced to the disk if it has a receipt; `strace` counts that, and is needed here.

    Twenty with a receipt are twenty syncs and more, twenty without are fewer than ten: those of the broker's own index.
    A broker that was killed half a second later has all of them all the same, in its journal.
    """
    frames = 20
    with ClassicBroker() as broker, clients(broker) as side:
        client = side.open()
        name = side.real_name("~")
        client.put(QUEUE, "first")

        def sends(receipt: bool) -> None:
            for number in range(frames):
                headers = {"destination": QUEUE, "persistent": "true"}
                body = f"{receipt}{number}".encode()
                (client.ask if receipt else client.tell)("SEND", body, **headers)

        def acks(receipt: bool) -> None:
            for _ in range(frames):
                message = the_next(client)
                (client.ask if receipt else client.tell)("ACK", id=message[1]["ack"])

        counts = {}
        with _syncs(broker.pid, broker.log.parent / "syncs") as count:
            for what, do in (("SEND", sends), ("ACK", acks)):
                if what == "ACK":
                    headers = {"ack": "client-individual", "activemq___prefetchSize": "100"}
                    client.ask("SUBSCRIBE", id="s", destination=QUEUE, **headers)
                for receipt in (False, True):
                    before = count()
                    do(receipt)
                    time.sleep(0.5)
                    counts[what, receipt] = count() - before
        client.cut()
        client = side.open()
        for number in range(frames):
            client.tell("SEND", str(number).encode(), destination="/queue/~kept", persistent="true")
        time.sleep(0.5)
        broker.kill()
        broker.start()
        kept = broker.statistics(side.real_name("~kept")).size
        left = broker.statistics(name).size
    told = ", ".join(
        f"{frames} {what}s {'with' if receipt else 'without'}: {syncs}"
        for (what, receipt), syncs in counts.items()
    )
    for (_, receipt), syncs in counts.items():
        expect(syncs >= frames if receipt else syncs < frames / 2, f"syncs to the disk: {told}")
    expect(kept == frames, f"of {frames} SENDs without a receipt a killed broker had {kept}")
    expect(left == 1, f"of {2 * frames + 1} messages {left} are left after {2 * frames} ACKs")
    return f"syncs to the disk: {told}; a killed broker had {kept} of {frames} unsynced"


@contextmanager
def _syncs(pid: int, file: Path) -> Iterator[Callable[[], int]]:
    """How many times a process has synced to the disk since the block began."""
    command = ["strace", "-f", "-e", "trace=fsync,fdatasync,msync", "-o", str(file), "-p", str(pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr is not None
        assert "attached" in tracer.stderr.readline()
        try:
            yield lambda: len(re.findall(r"(?:sync)\(", file.read_text("utf-8")))
        finally:
            tracer.terminate()


def c44_a_redelivery_plugin_delivers_a_nack_again() -> str:
    """With a `redeliveryPlugin` a NACK is answered, and its message comes again later; it is no dead letter."""
    delay = 1.0  # seconds
    plugin = (
        "<redeliveryPlugin><redeliveryPolicyMap><redeliveryPolicyMap><defaultEntry>"
        f'<redeliveryPolicy maximumRedeliveries="3" initialRedeliveryDelay="{delay * 1000:.0f}"/>'
        "</defaultEntry></redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin></plugins>"
    )
    with changed_classic(("</plugins>", plugin)) as broker, clients(broker) as side:
        client = side.open()
        client.put(QUEUE, "a")
        client.subscribe(QUEUE)
        answer = client.ack("a", "NACK")
        began = time.monotonic()
        again = next_message(client, 3 * delay)
        seconds = time.monotonic() - began
        dead = broker.statistics(DEAD_LETTERS).size
    expect(answer == "RECEIPT", f"the NACK was answered by {answer}")
    expect(again is not None, f"it did not come again in {3 * delay:g} s; dead letters: {dead}")
    expect(dead == 0, f"{dead} dead letters")
    return f"{answer}, again after {seconds:.1f} s, 0 dead letters"


def c44_a_discarding_plugin_deletes_what_is_refused() -> str:
    """With a `discardingDLQBrokerPlugin` a NACK is answered, and its message is nowhere."""
    plugin = '<discardingDLQBrokerPlugin dropAll="true"/></plugins>'
    with changed_classic(("</plugins>", plugin)) as broker, clients(broker) as side:
        client = side.open()
        client.put(QUEUE, "a")
        client.subscribe(QUEUE)
        answer = client.ack("a", "NACK")
        left = [broker.statistics(name).size for name in (side.real_name("~"), DEAD_LETTERS)]
    expect(answer == "RECEIPT", f"the NACK was answered by {answer}")
    expect(left == [0, 0], f"left in its queue and the dead letter queue: {left}")
    return f"{answer}, 0 messages in its queue, 0 dead letters"


def c45_without_the_scheduler_nothing_is_delayed() -> str:
    """A message with AMQ_SCHEDULED_DELAY comes at once from a broker that has no `schedulerSupport`."""
    delay = 5.0  # seconds
    off = ('schedulerSupport="true"', 'schedulerSupport="false"')
    with changed_classic(off) as broker, clients(broker) as side:
        client = side.open()
        client.subscribe(QUEUE)
        began = time.monotonic()
        client.put(QUEUE, "a", AMQ_SCHEDULED_DELAY=f"{delay * 1000:.0f}")
        came = next_message(client, delay * 2)
        seconds = time.monotonic() - began
    assert came is not None, "it did not come"
    expect(seconds < 1, f"it came after {seconds:.1f} s")
    return f"it came after {seconds:.2f} s, where {delay:g} were asked for"


def c64_the_first_answer_takes_longest() -> str:
    """A broker that was just started takes more than twice as long for its first answer as for its second."""
    with ClassicBroker() as broker:
        times = []
        for _ in range(2):
            began = time.monotonic()
            broker.statistics("nothing")
            times.append(time.monotonic() - began)
    told = " and then ".join(f"{seconds * 1000:.0f} ms" for seconds in times)
    expect(times[0] > 2 * times[1], told)
    return told


def c72_no_answer_tells_that_a_queue_is_empty() -> str:
    """
    The RECEIPT of what stands behind a SUBSCRIBE comes before the queue's one message, or behind it.

    It is written at once, and a moment later, 200 times each; each order is seen at least once.
    """
    with ClassicBroker() as broker, clients(broker) as side:
        client = side.open()
        client.put(QUEUE, "a")
        subscribe = Frame(
            "SUBSCRIBE", {"id": "s", "destination": side.real_name(QUEUE), "ack": "client"}
        )
        return which_comes_first(
            client,
            subscribe,
            lambda number: Frame("BEGIN", {"transaction": str(number), "receipt": "r"}),
        )


def c11_an_ack_that_waits_a_moment_costs_no_throughput() -> str:
    """
    A consumer acknowledges a page of 200 when it has run dry: at once, 10 ms later, or 200 ms later.

    For 20 pages 10 ms cost less than as much again, and 200 ms at least three times as much.
    """
    pages = 20
    rates = {}
    with ClassicBroker() as broker, clients(broker) as side:
        for pause in (0.0, 0.01, 0.2):  # seconds
            side.renew()
            client = side.open()
            for _ in range(pages * PAGE - 1):
                client.tell("SEND", b"x", destination=QUEUE)
            client.ask("SEND", b"x", destination=QUEUE)
            began, taken = time.monotonic(), 0
            client.tell(
                "SUBSCRIBE", id="s", destination=QUEUE, ack="client", activemq___prefetchSize="1000"
            )
            last = next_message(client)
            while last is not None:
                taken += 1
                following = next_message(client, pause)
                if following is None and taken < pages * PAGE:
                    client.tell("ACK", id=last[1]["ack"])
                    following = next_message(client)
                last = following
            rates[pause] = taken / (time.monotonic() - began)
            assert taken == pages * PAGE, f"{taken} messages came"
    told = ", ".join(f"{pause * 1000:g} ms: {rate:,.0f}/s" for pause, rate in rates.items())
    at_once, short, long = rates.values()
    expect(short > at_once / 2 and long < at_once / 3, told)
    return told


def c38_what_nobody_saw_comes_flagged() -> str:
    """
    The broker gives another message for an ACK before it reads the UNSUBSCRIBE behind it.

    Of 80 such messages some come flagged to the next subscription, and the client had not read them when it wrote
    UNSUBSCRIBE; where it waits 3 ms before, that are fewer.
    """
    count = 80
    flagged = {}
    with ClassicBroker() as broker, clients(broker) as side:
        for pause in (0.0, 0.003):  # seconds
            side.renew()
            client = side.open()
            client.put(QUEUE, *map(str, range(count + 1)))
            unseen = False
            flagged[pause] = 0
            for number in range(count):
                window = {"activemq___prefetchSize": "1", "ack": "client"}
                client.tell("SUBSCRIBE", id=str(number), destination=QUEUE, **window)
                message = the_next(client)
                flagged[pause] += unseen and message[1].get("redelivered") == "true"
                client.tell("ACK", id=message[1]["ack"])
                unseen = not pause or next_message(client, pause) is None
                client.ask("UNSUBSCRIBE", id=str(number))
                client.unread.clear()
    told = ", ".join(
        f"{times} of {count} with a pause of {pause * 1000:g} ms"
        for pause, times in flagged.items()
    )
    expect(flagged[0.0] > flagged[0.003], f"flagged though unseen: {told}")
    return f"flagged though unseen: {told}"


def c24_a_cumulative_ack_is_done_message_by_message() -> str:
    """A broker that is killed during one ACK of 900 has done a part of it, at least once of ten times."""
    count, rounds = 900, 10
    left = []
    for number in range(rounds):
        with ClassicBroker() as broker, clients(broker) as side:
            wire, name, ids = holding(side, count, "client", persistent="true")
            wire.write(Frame("ACK", {"id": ids[-1]}))
            time.sleep(0.01 * number)
            broker.kill()
            broker.start()
            left.append(broker.statistics(name).size)
    told = f"{sorted(left)} of {count} messages were left"
    expect(any(0 < size < count for size in left), told)
    return told


_LOGIN: Final = """act {
  org.apache.activemq.jaas.PropertiesLoginModule required reload=true
    org.apache.activemq.jaas.properties.user="users.properties"
    org.apache.activemq.jaas.properties.group="groups.properties";
};
"""


def c83_a_changed_password_ends_no_link() -> str:
    """Who is in stays in, and may do what he could; the next one needs the new password."""
    with tempfile.TemporaryDirectory() as folder:
        users = Path(folder, "users.properties")
        users.write_text("shop=old\n", "utf-8")
        Path(folder, "groups.properties").write_text("users=shop\n", "utf-8")
        login = Path(folder, "login.config")
        login.write_text(_LOGIN, "utf-8")
        recipe = ClassicRecipe(users={"shop": "old"})
        broker = changed(
            replace(recipe, main=(f"-Djava.security.auth.login.config={login}", *recipe.main)),
            (
                '<simpleAuthenticationPlugin anonymousAccessAllowed="false">',
                '<jaasAuthenticationPlugin configuration="act"/><!--',
            ),
            ("</simpleAuthenticationPlugin>", "-->"),
        )
        with broker, Connection(broker.url, username="shop", password="old") as connection:  # noqa: S106 - no real account has it
            producer = connection.create_session().create_producer(Queue("~"))
            producer.send(Message("a"))
            users.write_text("shop=fresh\n", "utf-8")
            os.utime(users, (time.time() + 5,) * 2)  # its times are whole seconds
            try:
                connection.create_session()
            except SecurityError:
                producer.send(Message("b"))
                return "a link sends on, and another one is refused"
    raise OtherwiseError("the old password still lets in")
