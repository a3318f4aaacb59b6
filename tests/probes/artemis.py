"""What ActiveMQ Artemis does when nothing is wrong: connections, addresses, redelivery, expiry, management."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final

from jmsx.core.frames import Frame
from jmsx_broker import ArtemisBroker
from tests.integration.artemis_support import Console
from tests.integration.broker_support import changed_artemis, eventually
from tests.probes.support import (
    FROM_A_QUEUE,
    NO_WINDOW,
    PATIENCE,
    TO_A_QUEUE,
    clients,
    delivering,
    end_of,
    expect,
    messages,
    the_next,
    which_comes_first,
    wire_of,
    write_all,
)

if TYPE_CHECKING:
    from jmsx_broker.artemis_recipe import Setting
    from tests.integration.parity.sides import Client, Side

#: A queue of which no other program knows: `~` is made unique.
QUEUE: Final = "~"


def a3_who_is_silent_for_two_periods_is_ended() -> str:
    """
    A client that promises a beat every 5 s and sends none is ended after 10 s, one that promises none after 60 s.

    Each up to 2 s later, when the broker looks, and with ERROR (AMQ229014); all that it had comes again flagged.
    """
    promised, unpromised, look = 10.0, 60.0, 3.0  # seconds; one for a busy machine
    with ArtemisBroker() as broker, clients(broker) as side:
        told = []
        plain, beating = side.open(), side.open(heart__beat="5000,0")
        beating.put(QUEUE, "a", "b", "c")
        began = time.monotonic()
        beating.subscribe(QUEUE)
        for client, due in ((beating, promised), (plain, unpromised)):
            ended = end_of(client, due + 5)
            assert ended is not None, f"not ended after {due + 5:g} s"
            seconds, errors = time.monotonic() - began, ended[1]
            expect(due < seconds < due + look, f"ended after {seconds:.1f} s, not {due:g}")
            expect("AMQ229014" in "".join(errors), f"ERRORs: {errors}")
            told.append(f"{seconds:.1f} s")
        again = side.open()
        again.tell("SUBSCRIBE", id="s", destination=QUEUE, ack="client")
        flags = [seen[1]["redelivered"] for seen in messages(again)]
    expect(flags == ["true"] * 3, f"its messages came again with redelivered {flags}")
    return f"ended after {told[0]} with heart-beat:5000,0 and {told[1]} without; 3 of 3 messages flagged"


def a5_the_receipt_of_a_disconnect_is_early() -> str:
    """Behind the RECEIPT of a DISCONNECT its messages are in delivery, at least once of 100 times; later none."""
    rounds, held = 100, 20
    settings = {"#": {"max-delivery-attempts": -1}}
    with (
        ArtemisBroker(address_settings=settings) as broker,
        clients(broker) as side,
        Console(broker) as console,
    ):
        side.open().put(QUEUE, *map(str, range(held)))
        name = side.real_name(QUEUE)
        early = 0
        for _ in range(rounds):
            client = _served(side)
            for _ in range(held):
                the_next(client)
            client.ask("DISCONNECT")
            early += delivering(console, name) > 0
            expect(
                eventually(lambda: delivering(console, name) == 0, PATIENCE),
                f"still in delivery after {PATIENCE:g} s",
            )
    told = f"{early} of {rounds} times messages were still in delivery behind the RECEIPT"
    expect(early > 0, told)
    return told


def a76_an_empty_queue_goes_behind_its_last_consumer() -> str:
    """A minute later what a plain client sends to its name is gone; with `auto-delete-queues` false it waits."""
    wait = 65.0  # seconds: the broker looks every 30 s, and removes what it has found so twice
    settings: dict[str, dict[str, Setting]] = {"kept": {"auto-delete-queues": False}}
    names = ("kept", "removed")
    with ArtemisBroker(address_settings=settings) as broker, clients(broker) as side:
        client = side.open()
        for name in names:
            client.subscribe(name, name, **FROM_A_QUEUE)
        client.ask("DISCONNECT")
        time.sleep(wait)
        client = side.open()
        answers = [client.ask("SEND", b"x", destination=name) for name in names]
        came = {name: client.subscribe(name, name, **FROM_A_QUEUE)[1:] for name in names}
    told = f"{answers.count('RECEIPT')} of 2 were confirmed, and there came {came}"
    expect(answers == ["RECEIPT"] * 2 and came == {"kept": ["x"], "removed": []}, told)
    return told


def a11_drop_confirms_what_it_drops() -> str:
    """With `address-full-policy` DROP all of 60 SENDs have a RECEIPT, and most messages are gone."""
    sent = 60
    full: dict[str, Setting] = {"address-full-policy": "DROP", "max-size-bytes": 10_000}
    with ArtemisBroker(address_settings={"#": full}) as broker, clients(broker) as side:
        client = side.open()
        client.subscribe(QUEUE)
        answers = [client.ask("SEND", b"." * 1000, destination=QUEUE, **_KEPT) for _ in range(sent)]
        there = broker.statistics(side.real_name(QUEUE)).size
    confirmed = answers.count("RECEIPT")
    told = f"{confirmed} of {sent} were confirmed, {sent - there} of them are gone"
    expect(confirmed == sent and there < sent / 2, told)
    return told


#: How a persistent message is sent to a queue.
_KEPT: Final = {**TO_A_QUEUE, "persistent": "true"}


def a11_a_ring_deletes_what_a_consumer_gives_back() -> str:
    """With a `default-ring-size` of 3 the three newest stay; what a consumer has is deleted when it gives it back."""
    size = 3
    ring: dict[str, Setting] = {"default-ring-size": size}
    with ArtemisBroker(address_settings={"#": ring}) as broker, clients(broker) as side:
        client = side.open()
        client.put(QUEUE, "a")
        client.subscribe(QUEUE, **{"consumer-window-size": "0"})
        client.put(QUEUE, *"bcdefgh")
        there = broker.statistics(side.real_name(QUEUE)).size
        client.ask("UNSUBSCRIBE", id="s")
        left = client.subscribe(QUEUE, "t", **NO_WINDOW)[1:]
    told = f"{there} of 8 are left while a consumer has the first, {left} when it has given it back"
    expect(there == size + 1 and left == list("fgh"), told)
    return told


def a11_kill_hangs_up_on_a_slow_consumer() -> str:
    """With `slow-consumer-policy` KILL and a look each second a consumer that acknowledges nothing is hung up on."""
    limit = 15.0  # seconds
    slow: dict[str, Setting] = {
        "slow-consumer-policy": "KILL",
        "slow-consumer-threshold": 1000,
        "slow-consumer-check-period": 1,
    }
    with ArtemisBroker(address_settings={"#": slow}) as broker, clients(broker) as side:
        sender, client = side.open(), side.open()
        client.ask("SUBSCRIBE", id="s", destination=QUEUE, ack="client", **FROM_A_QUEUE)
        began = time.monotonic()
        ended = None
        while ended is None and time.monotonic() - began < limit:
            for _ in range(2000):
                sender.tell("SEND", b"x", destination=QUEUE, **TO_A_QUEUE)
            ended = end_of(client, 1)
    assert ended is not None, f"not hung up on in {limit:g} s"
    return f"hung up on after {time.monotonic() - began:.1f} s; ERRORs: {ended[1]}"


def a14_an_address_remembers_20000_ids() -> str:
    """Behind 20,000 others an id is new again, and the first of the others is not."""
    remembered = 20_000
    with ArtemisBroker() as broker, clients(broker) as side:
        client = side.open()
        name = side.real_name(QUEUE)

        def send(number: int, **headers: str) -> None:
            told = {"destination": name, "destination-type": "ANYCAST", **headers}
            client.wire.write(Frame("SEND", {**told, "_AMQ_DUPL_ID": f"id-{number}"}, b"x"))

        for number in range(remembered + 1):
            send(number)
        counts = []
        for number in (0, 2):
            client.ask("SEND", destination=QUEUE, **TO_A_QUEUE)
            before = broker.statistics(name).size
            send(number)
            client.ask("SEND", destination=QUEUE, **TO_A_QUEUE)
            counts.append(broker.statistics(name).size - before - 1)
    told = f"of the oldest of {remembered + 1} ids {counts[0]} message was taken again, of the third {counts[1]}"
    expect(counts == [1, 0], told)
    return told


def a36_each_name_of_a_transaction_is_a_session() -> str:
    """Ten transactions of one name add one session at most, ten of ten names ten; they go with the connection."""
    with ArtemisBroker() as broker, clients(broker) as side, Console(broker) as console:
        client = side.open()
        client.put(QUEUE, "a")
        before = _sessions(console)
        counts: list[int] = []
        for names in (["t"] * 10, [f"t{number}" for number in range(10)]):
            for name in names:
                client.ask("BEGIN", transaction=name)
                client.ask("COMMIT", transaction=name)
            counts.append(_sessions(console) - before - sum(counts))
        client.cut()
        gone = eventually(lambda: _sessions(console) < before, PATIENCE)
    told = f"one name left {counts[0]} session, ten names {counts[1]}"
    expect(counts == [1, 10], told)
    expect(gone, "they stayed when the connection had ended")
    return told


def _sessions(console: Console) -> int:
    """All sessions of the broker."""
    listed = console.ask("broker", "listSessions", "", 1, 1000)
    return int(json.loads(listed)["count"])


def a39_delays_double_and_end_at_ten_times_the_first() -> str:
    """
    The delay of a redelivery by DISCONNECT is the first times the multiplier to the power of those before, at most ten
    times the first; it holds for what nobody has seen too, and not for what UNSUBSCRIBE gives back.
    """
    first, multiplier = 0.5, 2.0  # seconds
    settings: dict[str, Setting] = {
        "redelivery-delay": int(first * 1000),
        "redelivery-delay-multiplier": multiplier,
        "max-delivery-attempts": -1,
    }
    with ArtemisBroker(address_settings={"#": settings}) as broker, clients(broker) as side:
        side.open().put(QUEUE, "a", "b")
        delays = []
        for _ in range(7):
            client = side.open()
            client.subscribe(QUEUE, **NO_WINDOW)
            client.ask("DISCONNECT")
            delays.append(_time_to(side, 2))
        client = side.open()
        client.subscribe(QUEUE)
        client.ask("UNSUBSCRIBE", id="s")
        unsubscribed = _time_to(side, 2)
    expected = [min(first * multiplier**number, 10 * first) for number in range(7)]
    told = ", ".join(f"{delay[1]:.1f}" for delay in delays)
    unseen = ", ".join(f"{delay[0]:.1f}" for delay in delays)
    near = all(
        abs(delay[1] - due) < 0.4 and abs(delay[0] - first) < 0.4
        for delay, due in zip(delays, expected, strict=True)
    )
    expect(near, f"{told} s, unseen {unseen} s, where {expected} s were expected")
    expect(max(unsubscribed) < 0.4, f"{unsubscribed} s behind UNSUBSCRIBE")
    return f"{told} s, unseen {unseen} s; behind UNSUBSCRIBE {max(unsubscribed):.1f} s"


def _served(side: Side) -> Client:
    """A new client to whom the queue's messages are on their way."""
    client = side.open()
    client.tell("SUBSCRIBE", id="s", destination=QUEUE, ack="client", **NO_WINDOW, **FROM_A_QUEUE)
    return client


def _time_to(side: Side, count: int) -> list[float]:
    """The seconds until each of `count` messages comes to a new consumer, which gives them back uncounted."""
    began = time.monotonic()
    client = _served(side)
    times = []
    for _ in range(count):
        the_next(client)
        times.append(time.monotonic() - began)
    client.ask("UNSUBSCRIBE", id="s")
    return times


def a45_without_a_dead_letter_queue_messages_are_deleted() -> str:
    """What would be a dead letter is deleted where there is no dead letter address, and where no queue is on it."""
    settings: dict[str, dict[str, Setting]] = {
        "none.#": {"dead-letter-address": "", "max-delivery-attempts": 1},
        "empty.#": {"dead-letter-address": "nowhere", "max-delivery-attempts": 1},
    }
    with (
        ArtemisBroker(address_settings=settings) as broker,
        clients(broker) as side,
        Console(broker) as console,
    ):
        for queue in ("none.~", "empty.~"):
            client = side.open()
            client.put(queue, "a")
            client.subscribe(queue)
            client.ask("DISCONNECT")
        gone = console.holds({})
        left = console.sizes()
    expect(gone, f"left: {left}")
    return "0 of 2 messages are left anywhere"


def a54_what_expires_moves_at_the_next_look() -> str:
    """A message of one second that nobody reads is in ExpiryQueue within 31 s, and the next one 30 s later."""
    period = 30.0  # seconds (message-expiry-scan-period)
    with ArtemisBroker() as broker, clients(broker) as side:
        client = side.open()
        times = []
        began = time.monotonic()
        for number in range(2):
            client.put(f"{QUEUE}{number}", "a", expires=side.now_ms(1))
            while broker.statistics("ExpiryQueue").size <= number:
                time.sleep(0.2)
                assert time.monotonic() - began < 2 * period + 5, f"{number} were moved"
            times.append(time.monotonic() - began)
    told = f"moved after {times[0]:.1f} and {times[1]:.1f} s"
    expect(abs(times[1] - times[0] - period) < 2, told)
    return told


def a72_no_answer_tells_that_a_queue_is_empty() -> str:
    """
    The RECEIPT of what stands behind a SUBSCRIBE comes before the queue's one message, or behind it.

    It is written at once, and a moment later, 200 times each; each order is seen at least once.
    """
    with ArtemisBroker() as broker, clients(broker) as side:
        client = side.open()
        client.put(QUEUE, "a")
        subscribe = Frame(
            "SUBSCRIBE",
            {"id": "s", "destination": side.real_name(QUEUE), "ack": "client", **FROM_A_QUEUE},
        )
        behind = Frame(
            "SEND", {"destination": "~", "destination-type": "MULTICAST", "receipt": "r"}
        )
        return which_comes_first(client, subscribe, lambda _number: behind)


def a52_a_message_of_100_kib_is_large_and_its_headers_are_limited() -> str:
    """
    A body of 100 KiB in the broker is kept as a file, one of a byte less is not: 4 bytes are the broker's own.

    A text has two bytes for each character there. With a header of half that many characters a large one is refused.
    """
    limit = 100 * 1024 - 4  # bytes (stompMinLargeMessageSize)
    with ArtemisBroker() as broker, clients(broker) as side:
        client = side.open()
        folder = broker.log.parent / "data" / "large-messages"
        files = []
        for size, headers in (
            (limit - 1, _length(limit - 1)),
            (limit, _length(limit)),
            (limit // 2 - 3, {}),
            (limit // 2 - 2, {}),
        ):
            before = len(list(folder.glob("*.msg")))
            client.ask("SEND", b"." * size, destination=QUEUE, **_KEPT, **headers)
            files.append(len(list(folder.glob("*.msg"))) - before)
        body, kept = b"." * limit, {**_KEPT, **_length(limit)}
        answers = [
            client.ask("SEND", body, destination=QUEUE, big="." * size, **kept)[:9]
            for size in (limit // 2 - 1000, limit // 2)
        ]
    told = f"files of large messages: {files}; with large headers: {answers}"
    expect(files == [0, 1, 0, 1] and answers == ["RECEIPT", "AMQ339011"], told)
    return told


def _length(size: int) -> dict[str, str]:
    """What makes bytes of a body."""
    return {"content-length": str(size)}


def a74_a_commit_may_be_confirmed_behind_a_send_that_is_not_done() -> str:
    """A SEND is refused, for its address is full; BEGIN, another SEND and COMMIT were written with it."""
    rounds, confirmed = 40, 0
    full: dict[str, dict[str, Setting]] = {
        "full": {"max-size-bytes": 1, "address-full-policy": "FAIL"}
    }
    with changed_artemis(settings=full) as broker, clients(broker) as side:
        taken = f"taken.{side.real_name(QUEUE)}"
        side.open().put("full", "a")
        for _ in range(rounds):
            wire = wire_of(side.open())
            told = {"transaction": "t"}
            write_all(
                wire,
                Frame("SEND", {"destination": "full", "receipt": "copy", **TO_A_QUEUE}, b"b"),
                Frame("BEGIN", told),
                Frame("SEND", {"destination": taken, **told, **TO_A_QUEUE}, b"c"),
                Frame("COMMIT", {**told, "receipt": "commit"}),
            )
            while (seen := wire.read(PATIENCE)) is not None and seen[0] != "CLOSED":
                confirmed += seen[0] == "RECEIPT" and seen[1]["receipt-id"] == "commit"
        side.open().put(taken, "d")
        done = (broker.statistics(taken).enqueue_count or 0) - 1
    expect(confirmed > 0 and done == 0, f"{confirmed} confirmed, {done} done of {rounds}")
    return f"COMMIT confirmed in {confirmed} of {rounds}, and nothing of it done"


def a42_what_a_killed_broker_remembers_of_a_count() -> str:
    """
    A message is counted three times, and the broker killed; how many of at most six attempts are left tells the rest.

    With the `max-redelivery-records` 1 of `artemis create` it remembers one, with 10 all three.
    """
    counted, most = 3, 6
    remembered = {}
    settings: dict[str, dict[str, Setting]] = {"#": {"max-delivery-attempts": most}}
    for records in (1, 10):
        setting = f"<max-redelivery-records>{records}</max-redelivery-records><acceptors>"
        with (
            changed_artemis(("<acceptors>", setting), settings=settings) as broker,
            clients(broker) as side,
        ):
            client = side.open()
            client.put(QUEUE, "a")
            name = side.real_name(QUEUE)
            for _ in range(counted):
                _attempt(side)
            broker.kill()
            broker.start()
            left = 0
            while broker.statistics(name).size and left < most:
                _attempt(side)
                left += 1
            remembered[records] = most - left
    told = ", ".join(
        f"{count} of {counted} with {records}" for records, count in remembered.items()
    )
    expect(remembered == {1: 1, 10: 3}, told)
    return f"remembered deliveries, by max-redelivery-records: {told}"


def a42_a_first_delivery_is_forgotten_unless_it_is_written_before() -> str:
    """What a consumer has when the broker is killed is flagged with `persist-delivery-count-before-delivery` alone."""
    flags = {}
    for before in ("false", "true"):
        name = "persist-delivery-count-before-delivery"
        setting = f"<{name}>{before}</{name}><acceptors>"
        with changed_artemis(("<acceptors>", setting)) as broker, clients(broker) as side:
            client = side.open()
            client.put(QUEUE, "a")
            client.subscribe(QUEUE)
            broker.kill()
            broker.start()
            again = side.open()
            again.tell("SUBSCRIBE", id="s", destination=QUEUE, ack="client", **FROM_A_QUEUE)
            message = the_next(again)
            flags[before] = message[1]["redelivered"]
    told = ", ".join(f"redelivered:{flag} with {before}" for before, flag in flags.items())
    expect(flags == {"false": "false", "true": "true"}, told)
    return told


def _attempt(side: Side) -> None:
    """Get the queue's one message, and give it back counted."""
    client = side.open()
    client.subscribe(QUEUE)
    client.ask("DISCONNECT")
    time.sleep(0.3)  # its RECEIPT comes before the message is back (A5)
