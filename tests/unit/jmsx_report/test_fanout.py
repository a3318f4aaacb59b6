"""What is owed to each queue and subscription of one send."""

from __future__ import annotations

import pytest

from tests.unit.jmsx_report.logs import (
    HOUR,
    MINUTE,
    SECOND,
    SENDER,
    START,
    WORKER,
    Log,
    audited,
    ended,
    findings,
    key,
    told,
    trade,
)


def test_a_virtual_topic_is_settled_once_for_each_of_its_queues() -> None:
    """Two groups of consumers, 8 messages: 8 sent, 16 done, none twice."""
    topic, queues = (
        "topic://VirtualTopic.t",
        [f"queue://Consumer.{one}.VirtualTopic.t" for one in "AB"],
    )
    log = Log().opens(SENDER).opens(WORKER)
    for queue in queues:
        log.reads(WORKER, queue)
    for number in range(8):
        made = log.send(SENDER, START + number * MINUTE, topic)
        for queue in queues:
            log.deliver(WORKER, made, START + number * MINUTE + SECOND, queue)
    found = audited(ended(log))

    assert (found.summary["verdict"], found.summary["sent"], found.summary["done"]) == (
        "balanced",
        8,
        16,
    )
    assert found.table.select("dest", "subscription", "sent", "done").rows() == [
        (topic, queue, 8, 8) for queue in queues
    ]

    log.send(SENDER, START + HOUR, topic)
    log.deliver(WORKER, log.lines[-1]["msg_key"], START + HOUR, queues[0])
    assert told(log)["unaccounted"] == 1


@pytest.mark.parametrize(("again", "verdict"), [(False, "unverifiable"), (True, "suspect")])
def test_a_missing_line_may_have_told_of_a_removal(*, again: bool, verdict: str) -> None:
    """Nothing is owed from then on, however many were sent, until the subscription surely gave a message again."""
    topic, log = "topic://t", Log().opens(SENDER).opens(WORKER)
    durable = {"dest": topic, "subscription": "durable:c.s"}
    log.reads(WORKER, **durable)
    given = [0, 10, *([35, 40] if again else [])]
    for minute in (0, 10, 20, 30, 35, 40, 50):
        at = START + minute * MINUTE
        made = log.send(SENDER, at, topic)
        if minute in given:
            log.deliver(WORKER, made, at + SECOND, **durable)
        if minute == 10:
            log.line(WORKER, "sub.removed", at + MINUTE, subscription="durable:c.s")
            log.lines.pop()
    summary = told(ended(log, START + HOUR))

    assert (summary["verdict"], summary["unaccounted"]) == (verdict, 7 - len(given))
    assert summary["unaccounted"] - summary["explained"] == int(again)
    assert len(summary["lost"]) == int(again)


@pytest.mark.parametrize(
    ("missing", "gave_back", "verdict", "removed"),
    [
        (3, None, "suspect", 0),
        (3, 4, "suspect", 0),
        (3, 8, "balanced", 1),
        (8, None, "balanced", 1),
    ],
)
def test_what_a_subscription_had_passed_over_does_not_go_with_it(
    missing: int, gave_back: int | None, verdict: str, removed: int
) -> None:
    """Messages come in order: it gave later ones, a minute and more after this one was there, or there again."""
    topic, log = "topic://t", Log().opens(SENDER).opens(WORKER)
    durable = {"dest": topic, "subscription": "durable:c.s"}
    log.reads(WORKER, **durable)
    lacking = ""
    for minute in range(10):
        at = START + minute * MINUTE
        made = log.send(SENDER, at, topic)
        lacking = made if minute == missing else lacking
        if minute == gave_back:
            log.deliver(WORKER, lacking, at, outcome="released", **durable)
        if minute not in (missing, 9):
            log.deliver(WORKER, made, at + SECOND, **durable)
    log.line(WORKER, "sub.removed", START + 10 * MINUTE, subscription="durable:c.s")
    summary = told(ended(log, START + HOUR))

    # The last one went with it, too: nothing later was given.
    assert (summary["verdict"], summary["removed"]) == (verdict, 1 + removed)
    assert summary["unaccounted"] == len(summary["lost"]) == 1 - removed


def test_what_nobody_sent_is_told_where_its_settlements_are() -> None:
    """All that is read from the queue of a virtual topic counts at the topic, and so do repeats of it."""
    topic, queue = "topic://VirtualTopic.t", "queue://Consumer.A.VirtualTopic.t"
    log = Log().opens(SENDER).opens(WORKER)
    log.reads(WORKER, queue)
    log.deliver(WORKER, log.send(SENDER, START, topic), START + SECOND, queue)
    unknown = key(START, 99)
    for attempt in (1, 2):
        log.deliver(WORKER, unknown, START + attempt * MINUTE, queue, attempt=attempt)
    found = audited(ended(log))

    numbers = ("sent", "settled", "unsent", "duplicates", "repeated_keys")
    assert found.table.select("dest", *numbers).rows() == [(topic, 1, 3, 1, 1, [unknown])]
    assert found.duplicates.select("dest", "sample_keys").rows() == [(topic, [unknown])]


@pytest.mark.parametrize("name", ["queue://a,queue://b", "queue://a,b"])
def test_a_list_of_queues_gets_a_copy_each(name: str) -> None:
    """Settled once in each of them is not twice; only in one is a loss."""
    log = Log().opens(SENDER).opens(WORKER)
    for queue in ("queue://a", "queue://b"):
        log.reads(WORKER, queue)
    made = log.send(SENDER, START, name)
    log.deliver(WORKER, made, START + SECOND, "queue://a")
    lacking = told(ended(log))
    assert (lacking["verdict"], lacking["unaccounted"], lacking["sent"]) == ("suspect", 1, 1)

    log.lines = [line for line in log.lines if line["kind"] != "log.close"]
    log._next[SENDER] -= 1
    log._next[WORKER] -= 1
    log.deliver(WORKER, made, START + SECOND, "queue://b")
    whole = told(ended(log))
    assert (whole["verdict"], whole["duplicates"]) == ("balanced", 0)


def test_each_durable_subscription_gets_a_copy() -> None:
    """Done twice by one of them is a repeat; once by each is not."""
    log = Log().opens(SENDER).opens(WORKER)
    for name in ("durable:c.one", "durable:c.two"):
        log.reads(WORKER, "topic://t", subscription=name)
    made = log.send(SENDER, START, "topic://t")
    for name in ("durable:c.one", "durable:c.two"):
        log.deliver(WORKER, made, START + SECOND, "topic://t", subscription=name)
    assert told(ended(log))["verdict"] == "balanced"

    log.deliver(WORKER, made, START + SECOND, "topic://t", subscription="durable:c.two")
    assert told(log)["duplicates"] == 1


def test_a_subscription_owes_nothing_from_before_its_time() -> None:
    """It was made an hour after the first message."""
    log = Log().opens(SENDER).opens(WORKER)
    log.send(SENDER, START, "topic://t")
    log._of(
        "sub.open",
        WORKER,
        START + HOUR,
        {"dest": "topic://t", "consumer": "c", "subscription": "durable:c.s"},
    )
    made = log.send(SENDER, START + HOUR + MINUTE, "topic://t")
    log.deliver(WORKER, made, START + HOUR + MINUTE, "topic://t", subscription="durable:c.s")

    assert told(ended(log))["unaccounted"] == 0


def test_a_plain_topic_is_named_as_not_audited() -> None:
    """A copy for whoever listens, or none."""
    log = trade()
    log.send(SENDER, START, "topic://news")
    summary = told(ended(log))

    assert summary["verdict"] == "balanced"
    assert list(summary["not_audited"]) == ["topic://news"]
    assert len(findings(summary, "not_audited")) == 1


def test_queues_below_an_address_and_wildcards() -> None:
    """Sent to the address, read at `address::queue`; sent to two queues, read by a pattern."""
    log = Log().opens(SENDER).opens(WORKER)
    log.reads(WORKER, "queue://prices::eu")
    log.reads(WORKER, "queue://*.mail")
    log.deliver(WORKER, log.send(SENDER, START, "queue://prices"), START + 1, "queue://prices::eu")
    for place in ("eu", "us"):
        log.deliver(
            WORKER, log.send(SENDER, START, f"queue://{place}.mail"), START + 1, "queue://*.mail"
        )
    summary = told(ended(log))

    assert (summary["verdict"], summary["sent"], summary["settled"]) == ("balanced", 3, 3)
    # What is read together is balanced together, by whatever name it is called; each message counts once.
    assert {row["verdict"] for row in summary["hours"]} == {"balanced"}
    assert {row["dest"]: (row["sent"], row["settled"]) for row in summary["hours"]} == {
        "queue://prices": (1, 0),
        "queue://prices::eu": (0, 1),
        "queue://eu.mail": (1, 0),
        "queue://us.mail": (1, 0),
        "queue://*.mail": (0, 2),
    }


def test_a_dead_letter_that_is_consumed_is_no_repeat() -> None:
    """Given up where it was sent to, and settled at the dead letter queue."""
    log = trade()
    made = log.send(SENDER, START)
    log.deliver(WORKER, made, START + SECOND, outcome="dead_lettered")
    log.deliver(WORKER, made, START + MINUTE, "queue://ActiveMQ.DLQ")
    summary = told(ended(log))

    assert (summary["verdict"], summary["dead_lettered"], summary["done"]) == ("balanced", 1, 11)


def _two_copies() -> tuple[Log, str, tuple[str, str]]:
    """A message for two groups, by each of which it may be done; dead letters are read, too."""
    log = Log().opens(SENDER).opens(WORKER)
    groups = ("queue://Consumer.A.VirtualTopic.t", "queue://Consumer.B.VirtualTopic.t")
    for queue in (*groups, "queue://DLQ"):
        log.reads(WORKER, queue)
    return log, log.send(SENDER, START, "topic://VirtualTopic.t"), groups


def test_the_dead_letter_of_one_copy_hides_no_loss_of_another() -> None:
    """What was read of dead letters may be either copy: that one of them is lost is not proven, nor that none is."""
    log, made, groups = _two_copies()
    log.deliver(WORKER, made, START + SECOND, groups[0], "dead_lettered")
    log.deliver(WORKER, made, START + MINUTE, "queue://DLQ")
    summary = told(ended(log))

    assert (summary["verdict"], summary["unaccounted"], summary["explained"]) == (
        "unverifiable",
        1,
        1,
    )


def test_each_copy_may_be_a_dead_letter() -> None:
    """Both are done with where nobody sent them, once each; a third time is a repeat."""
    log, made, groups = _two_copies()
    for queue in groups:
        log.deliver(WORKER, made, START + SECOND, queue, "dead_lettered")
    for minute in (1, 2):
        log.deliver(WORKER, made, START + minute * MINUTE, "queue://DLQ")
    lines = [*log.lines]
    summary = told(ended(log))
    assert (summary["verdict"], summary["duplicates"]) == ("balanced", 0)

    log.lines = lines
    log.deliver(WORKER, made, START + 3 * MINUTE, "queue://DLQ", seq=log._next[WORKER] - 2)
    summary = told(log)
    assert (summary["verdict"], summary["duplicates"]) == ("suspect", 1)


def test_a_copy_that_the_broker_moved_may_be_done_beside_a_dead_letter() -> None:
    """One copy was made a dead letter here, the other one by the broker; both are read."""
    log, made, groups = _two_copies()
    log.deliver(WORKER, made, START + SECOND, groups[0], "dead_lettered")
    for minute in (1, 2):
        log.deliver(WORKER, made, START + minute * MINUTE, "queue://DLQ")
    summary = told(ended(log))

    assert (summary["verdict"], summary["duplicates"], summary["unaccounted"]) == ("balanced", 0, 0)


def test_a_loss_of_one_of_several_destinations_is_no_loss_of_the_others() -> None:
    """One consumer reads all three; who asks for what it reads is told of the loss, too."""
    log = Log().opens(SENDER).opens(WORKER)
    log.reads(WORKER, "queue://eu.>")
    for number, queue in enumerate(("queue://eu.a", "queue://eu.b", "queue://eu.c")):
        made = log.send(SENDER, START + number * SECOND, queue)
        if number < 2:
            log.deliver(WORKER, made, START + MINUTE, "queue://eu.>")
    summary = told(ended(log))
    verdicts = {dest: found["verdict"] for dest, found in summary["destinations"].items()}

    assert summary["verdict"] == "suspect"
    assert verdicts == {
        "queue://eu.>": "suspect",
        "queue://eu.a": "balanced",
        "queue://eu.b": "balanced",
        "queue://eu.c": "suspect",
    }


def _half_heard(kind: str, dest: str, sent_to: str, read: str) -> Log:
    """Of five messages one reader does two; of another one the first fifty lines are missing, and one has `dest`."""
    log = Log().opens(SENDER).opens(WORKER).opens("mail")
    log.reads(WORKER, read)
    for minute in range(5):
        made = log.send(SENDER, START + minute * MINUTE, sent_to)
        if minute % 2:
            log.deliver(WORKER, made, START + minute * MINUTE + SECOND, read)
    log._next["mail"] = 50
    told_of = {
        "messages": 1,
        "msg_key": key(START, 99),
        "next_attempt": 2,
        "delay_us": SECOND,
        "buffered": 0,
        "in_process": 0,
    }
    log._of(kind, "mail", START + HOUR, {"dest": dest, "consumer": "c"} | told_of)
    log.reads(WORKER, "queue://other")
    log.deliver(
        WORKER,
        log.send("mail", START + HOUR, "queue://other"),
        START + HOUR + SECOND,
        "queue://other",
    )
    return ended(log).closes("mail", START + 2 * HOUR)


@pytest.mark.parametrize("dest", ["queue://eu.a", "queue://eu.>", "queue://us.a,eu.a"])
@pytest.mark.parametrize(
    "kind",
    [
        "sub.stats",
        "sub.close",
        "recv.batch",
        "ack.batch",
        "ack.dropped",
        "redelivery.scheduled",
        "dlq",
        "dlq.failed",
    ],
)
def test_any_line_of_a_consumer_tells_what_it_reads(kind: str, dest: str) -> None:
    """So its gap may explain what is not settled there, however it names that queue."""
    summary = told(_half_heard(kind, dest, "queue://eu.a", "queue://eu.a"), deadline_us=MINUTE)

    assert (summary["verdict"], summary["unaccounted"], summary["explained"]) == (
        "unverifiable",
        3,
        3,
    )


@pytest.mark.parametrize(
    "dest", ["queue://us.a", "queue://us.>", "topic://eu.a", "temp-queue://eu.a"]
)
def test_who_is_heard_to_read_elsewhere_explains_nothing(dest: str) -> None:
    """The three are lost: it is known what it has to do with."""
    summary = told(
        _half_heard("sub.stats", dest, "queue://eu.a", "queue://eu.a"), deadline_us=MINUTE
    )

    assert (summary["verdict"], summary["unaccounted"], summary["explained"]) == ("suspect", 3, 0)
    assert dest not in summary["not_audited"]


def test_a_group_that_is_only_heard_of_is_owed_nothing_from_before() -> None:
    """It may have begun to read a virtual topic no sooner than it told so."""
    topic, mine, other = (
        "topic://VirtualTopic.t",
        *(f"queue://Consumer.{one}.VirtualTopic.t" for one in "AB"),
    )
    log = _half_heard("sub.stats", other, topic, mine)
    summary = told(log, deadline_us=MINUTE)

    assert summary["destinations"][topic]["verdict"] == "suspect"
    assert (summary["unaccounted"], summary["explained"]) == (3, 0)


@pytest.mark.parametrize("dest", ["queue://", ","])
def test_who_reads_what_has_no_name_breaks_no_report(dest: str) -> None:
    """A line may be spoilt; what it tells leads nowhere, and all else is audited."""
    log = trade()
    log.reads(WORKER, dest)
    assert audited(ended(log)).summary["done"] == 10
