"""What a dead letter tells, which of them are meant, and groups of a kind."""

from __future__ import annotations

import tracemalloc

import pytest

from jmsx.dead_letters.letter import UNTOLD, Choice, DeadLetter, Deaths, groups, read

COPY = {
    "jmsx_death_reason": "max_redeliveries",
    "jmsx_original_destination": "queue://orders",
    "jmsx_original_message_id": "ID:7",
    "jmsx_delivery_count": "5",
    "jmsx_consumer": "ship",
    "jmsx_first_failure": "1700000000000",
    "jmsx_last_failure": "1700000060500",
    "jmsx_exception": "TimeoutError",
    "jmsx_exception_message": "no answer",
    "jmsx_key": "k7",
    "timestamp": "1700000061000",
}


def letter(**changes: str) -> DeadLetter:
    """A copy that jmsx made, with headers changed."""
    return read("ID:9", {**COPY, **changes}, origin=None)


def test_a_copy_tells_its_death() -> None:
    """Names, counts and times as its headers have them."""
    read_ = letter()
    assert (read_.id, read_.message_id, read_.key) == ("ID:9", "ID:7", "k7")
    assert (read_.origin, read_.reason, read_.consumer) == (
        "queue://orders",
        "max_redeliveries",
        "ship",
    )
    assert (read_.error, read_.error_message, read_.deliveries) == ("TimeoutError", "no answer", 5)
    assert (read_.first_failure, read_.last_failure, read_.seen) == (
        1.7e9,
        1.7e9 + 60.5,
        1.7e9 + 60.5,
    )


def test_what_the_broker_moved_tells_less() -> None:
    """Its id is its own, its time is that of sending, and nothing is made up."""
    told = read("ID:9", {"timestamp": "1700000061000"}, origin="queue://orders")
    assert (told.message_id, told.key, told.origin, told.reason) == (
        "ID:9",
        "",
        "queue://orders",
        UNTOLD,
    )
    assert (told.deliveries, told.last_failure, told.seen) == (None, None, 1_700_000_061.0)
    delayed = {"timestamp": "0", "jmsx_timestamp": "1700000061000"}
    assert read("ID:9", delayed, origin="queue://orders").sent_at == 1_700_000_061.0


@pytest.mark.parametrize("odd", ["²", "-1", "9" * 30, "soon", ""])
def test_odd_numbers_tell_nothing(odd: str) -> None:
    """Anybody may have written them."""
    told = letter(jmsx_delivery_count=odd, jmsx_last_failure=odd, timestamp=odd)
    assert (told.deliveries, told.last_failure, told.seen) == (None, None, None)


@pytest.mark.parametrize(
    ("choice", "fits"),
    [
        (Choice(), True),
        (Choice(ids=frozenset({"ID:9"})), True),
        (Choice(ids=frozenset({"ID:7", "other"})), True),
        (Choice(ids=frozenset({"k7"})), True),
        (Choice(ids=frozenset({"ID:8"})), False),
        (Choice(error="TimeoutError"), True),
        (Choice(error="no ans"), True),
        (Choice(error="Timeout"), False),
        (Choice(reason="expired"), False),
        (Choice(consumer="ship", origin="queue://orders", reason="max_redeliveries"), True),
        (Choice(consumer="bill", origin="queue://orders"), False),
        (Choice(since=1.7e9, until=1.7e9 + 61), True),
        (Choice(since=1.7e9 + 61), False),
        (Choice(until=1.7e9 + 60.5), False),
    ],
)
def test_a_choice_fits_all_that_it_says(choice: Choice, *, fits: bool) -> None:
    """Ids are those of the queue, of the log, and keys."""
    assert choice.fits(letter()) is fits


def test_what_tells_no_time_is_outside_of_every_period() -> None:
    """It would be deleted with what is old otherwise."""
    told = letter(jmsx_last_failure="", timestamp="")
    assert Choice().fits(told)
    assert not Choice(until=1e12).fits(told)
    assert not Choice(since=0.0).fits(told)


@pytest.mark.parametrize(
    ("choice", "may"),
    [
        (Choice(since=1.7e9 + 61), True),
        (Choice(since=1.7e9 + 61, reason="expired"), False),
        (Choice(until=1.7e9), False),  # whatever comes of it, it was not sent before that
        (Choice(until=1.7e9 + 61), False),  # it fits
        (Choice(since=1.7e9 + 61, until=1.7e9 + 62), True),
        (Choice(ids=frozenset({"ID:8"}), since=1.7e9 + 61), False),
    ],
)
def test_what_was_sent_before_may_have_died_since(choice: Choice, *, may: bool) -> None:
    """Where nobody tells when it died, the time of its sending is the earliest that this can have been."""
    undated = letter(jmsx_last_failure="", timestamp="1700000000000")
    assert (choice.may_fit(undated) and not choice.fits(undated)) is may
    timeless = letter(jmsx_last_failure="", timestamp="")
    assert timeless.seen is None
    assert choice.may_fit(timeless) is (choice.reason is None and not choice.ids)
    assert not choice.may_fit(letter(jmsx_last_failure="1600000000000"))


def test_an_empty_key_is_no_id() -> None:
    """Who gives an empty id means nothing by it."""
    assert not Choice(ids=frozenset({""})).fits(letter(jmsx_key=""))


def test_groups_count_and_name_the_newest() -> None:
    """The largest group first, with what cannot go back."""
    early = read(
        "a", {**COPY, "jmsx_last_failure": "1600000000000"}, origin=None, astray="it was a topic"
    )
    found = groups([early, letter(), letter(jmsx_exception="ValueError")])
    assert [(one.error, one.count, one.stuck) for one in found] == [
        ("TimeoutError", 2, 1),
        ("ValueError", 1, 0),
    ]
    assert (found[0].first, found[0].last, found[0].example) == (1.6e9, 1.7e9 + 60.5, "ID:9")


def test_what_stands_in_its_way() -> None:
    """A named queue helps who does not know where he came from, and not who has lost his body."""
    astray = read("a", COPY, origin=None, astray="it was a topic")
    stuck = read("a", COPY, origin=None, stuck="no body")
    assert (astray.obstacle(), astray.obstacle("queue://x")) == ("it was a topic", "")
    assert (stuck.obstacle(), stuck.obstacle("queue://x")) == ("no body", "no body")
    assert letter().obstacle() == ""


def died(msg_id: str, **changes: object) -> dict[str, object]:
    """A line of an event log that tells of a death."""
    line = {
        "msg_id": msg_id, "msg_key": "k7", "dest": "queue://orders", "consumer": "ship", "reason": "rejected",
        "error_type": "ValueError", "attempts": 2, "ts_us": 1_700_000_060_500_000,
    }  # fmt: skip
    return line | changes


MOVED = {"jmsx_key": "k7", "timestamp": "1700000000000"}


def moved(message_id: str = "ID:9", origin: str = "queue://orders", **headers: str) -> DeadLetter:
    """What the broker has moved, and tells no cause of."""
    return read(message_id, MOVED | headers, origin=origin)


def test_a_log_tells_what_no_header_does() -> None:
    """By key and destination, and then by the message id; what no line tells of stays as it is."""
    told = Deaths([died("ID:9")]).told(moved())
    assert (told.reason, told.error, told.consumer, told.deliveries) == (
        "rejected",
        "ValueError",
        "ship",
        2,
    )
    assert (told.seen, told.id, told.origin) == (1.7e9 + 60.5, "ID:9", "queue://orders")
    assert told.stack == ""
    way = "a.py:3 ship: ValueError"
    assert Deaths([died("ID:9", error_stack=way)]).told(moved()).stack == way
    assert letter(jmsx_stack="Traceback ...").stack == "Traceback ..."
    assert Deaths([died("ID:1")]).told(moved()).consumer == "ship"
    elsewhere = died("ID:1", dest="queue://bills")
    for letter_ in (moved(), letter(), moved(jmsx_death_reason="expired")):
        assert Deaths([elsewhere]).told(letter_) is letter_
    assert Deaths([died("ID:9")]).told(letter()) == letter()


def test_lines_come_in_any_order_and_twice() -> None:
    """A message that went back and died again died of what it died of last; once for each consumer of a topic."""
    first = died("ID:8", error_type="KeyError", ts_us=1_700_000_000_000_000)
    for lines in ([first, died("ID:7")], [died("ID:7"), first], [died("ID:7"), first] * 2):
        told = Deaths(lines).told(moved())
        assert (told.error, told.last_failure) == ("ValueError", 1.7e9 + 60.5)
        assert Deaths(lines).told(moved("ID:8")).error == "KeyError"
    both = [died("ID:9", dest="topic://orders", consumer=name) for name in ("ship", "bill")]
    told = Deaths(both * 2).told(moved(origin="topic://orders"))
    assert (told.consumer, told.deliveries) == ("bill or ship", 2)


def test_what_is_kept_of_a_log_is_small() -> None:
    """A week of a broken service has a hundred thousand deaths and more; of each some hundred bytes are kept."""
    number = 20_000
    stack = "worker.py:1 call > orders.py:17 place: ValueError"
    lines = (died(f"ID:{one}", msg_key=f"{one:032x}", error_stack=stack) for one in range(number))
    tracemalloc.start()
    try:
        deaths = Deaths({name: copied(value) for name, value in line.items()} for line in lines)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held / number < 700, f"{held / number:.0f} bytes each"
    letter_ = read("a", MOVED | {"jmsx_key": f"{7:032x}"}, origin="queue://orders")
    assert deaths.told(letter_).stack == stack


def copied(value: object) -> object:
    """As it comes out of the JSON of a line: no two have a text in common."""
    return value.encode().decode() if isinstance(value, str) else value


def test_a_number_that_another_broker_gives_again_is_no_name() -> None:
    """Artemis numbers its messages from about 20 on, each broker and each new one: the time belongs to it."""
    times = ("1700000000000", "1700000000001")
    lines = [died("47", msg_key=f"47@{time}") for time in times[:1]]
    found = [
        Deaths(lines).told(
            read("90", {}, origin="queue://orders", message_id="47", broker_key=f"47@{time}")
        )
        for time in times
    ]
    assert [one.reason for one in found] == ["rejected", UNTOLD]


def test_copies_of_the_brokers_in_two_queues_have_one_id() -> None:
    """As those of Classic's virtual topics: each died of what its own queue's consumer did."""
    lines = [
        died("ID:9", msg_key="ID:9", dest="queue://a.orders", error_type="KeyError"),
        died("ID:9", msg_key="ID:9", dest="queue://b.orders"),
    ]
    for origin, error in (
        ("queue://a.orders", "KeyError"),
        ("queue://b.orders", "ValueError"),
        ("queue://c.orders", ""),
        ("topic://a.orders", ""),
        ("", ""),
    ):
        assert Deaths(lines).told(read("ID:9", {}, origin=origin)).error == error


@pytest.mark.parametrize("subscribed", ["queue://*.orders", "queue://bills,a.orders?x=y"])
def test_what_stood_for_several_destinations(subscribed: str) -> None:
    """The log tells them as they were subscribed."""
    letter_ = read("ID:9", {}, origin="queue://a.orders")
    line = died("ID:9", msg_key="ID:9", dest=subscribed)
    assert Deaths([line]).told(letter_).reason == "rejected"
    assert Deaths([line | {"dest": "queue://b.*"}]).told(letter_) is letter_


def test_a_message_is_meant_by_the_key_that_the_log_has() -> None:
    """Its sender's, and else its broker's."""
    told = read("90", {}, origin=None, message_id="47", broker_key="47@1700000000000")
    assert Choice(ids=frozenset({"47@1700000000000"})).fits(told)
    assert not Choice(ids=frozenset({"47@1700000000001", ""})).fits(told)


def test_the_last_death_counts() -> None:
    """It went back, and died again of something else."""
    lines = [died("ID:9"), died("ID:9", consumer="bill", error_type="KeyError")]
    told = Deaths(lines).told(moved())
    assert (told.consumer, told.error) == ("bill", "KeyError")


def test_of_a_topic_nobody_knows_whose_it_is() -> None:
    """Each subscriber's copy has the same id: all causes are told, each with what is told of its own last death."""
    lines = [
        died("ID:9", dest="topic://orders", **told)
        for told in ({}, {"consumer": "bill", "error_type": "KeyError"}, {})
    ]
    told = Deaths(lines).told(moved(origin="topic://orders"))
    assert (told.consumer, told.error, told.deliveries) == (
        "bill or ship",
        "KeyError or ValueError",
        2,
    )


def test_a_copy_of_what_its_sender_gave_no_key_is_called_as_its_original() -> None:
    """By the name that log and events have; id and time of the copy are its own."""
    for broker_key in (None, "90@1700000000555"):
        read_ = read(
            "ID:9",
            {"jmsx_original_key": "ID:java-1", "jmsx_original_message_id": "ID:java-1"},
            origin="queue://orders",
            broker_key=broker_key,
        )
        assert read_.logged_as == ["ID:java-1"]
