"""`jmsx explain`: one message's life told rightly, and what is not known said."""

from __future__ import annotations

import json
from dataclasses import replace
from html import escape
from operator import itemgetter
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from jmsx.cli.commands import app
from jmsx.core.events import (
    MessageDeadLettered,
    Outcome,
    RedeliveryScheduled,
    TransactionEnded,
    TransactionOutcome,
)
from jmsx.errors import ConfigurationError
from jmsx_report.compaction import compact
from jmsx_report.explanation import deaths, explain, worded
from jmsx_report.life import page
from tests.pipeline.lines import segments
from tests.pipeline.simulator import SOURCE, Clock, delivery, open_log, seeded, sent

if TYPE_CHECKING:
    from pathlib import Path

    from jmsx.core.events import Event

KEY = "01a0c5a4f5b2aaaaaaaaaaaaaaaaaaaa"
OTHER = "01a0c5a4f5b2bbbbbbbbbbbbbbbbbbbb"
CHANCE = seeded(1)
WAY = "shop.py:12 place: ValueError"
OURS = "jmsx/app/worker.py:1 call"
FAILED = {"error_type": "ValueError", "error_place": "shop.py:12"}


def write(directory: Path, *events: Event) -> None:
    """A log of one process."""
    log = open_log(directory, Clock())
    for event in events:
        log.observe(event, SOURCE)
    log.close()


def came(at: float, **members: object) -> Event:
    """A delivery of KEY."""
    return replace(delivery(KEY, "queue://orders", at, CHANCE), **members)  # type: ignore[arg-type]  # the values are those of the test's table


def test_a_troubled_life(tmp_path: Path) -> None:
    """Sent by one service, failed twice at another, then dead: in order, with error and place."""
    write(
        tmp_path / "a", sent(KEY, "queue://orders", 1000.0), sent(OTHER, "queue://orders", 1000.0)
    )
    write(
        tmp_path / "b",
        came(1001.0, outcome=Outcome.ROLLED_BACK, error_stack=f"{OURS} > {WAY}", **FAILED),
        RedeliveryScheduled(
            at=1001.5, consumer="shop.orders", destination="queue://orders", message_key=KEY, next_attempt=2,
            delay=5.0, blocking=True, by_broker=False,
        ),
        replace(delivery(OTHER, "queue://orders", 1002.0, CHANCE), attempt=7),
        came(1007.0, outcome=Outcome.DEAD_LETTERED, attempt=2, **FAILED),
        MessageDeadLettered(
            at=1008.0, consumer="shop.orders", destination="queue://orders", message_id="ID:1", message_key=KEY,
            attempts=2, reason="max_redeliveries", error_type="ValueError", error_message="bad",
            dead_letter_destination="queue://dead", by_copy=True,
        ),
    )  # fmt: skip
    story = explain(tmp_path, KEY)
    told = [one.text for one in story.happenings]
    assert [one.service for one in story.happenings] == ["shop"] * 5
    assert told[0] == "sent to queue://orders, and confirmed by the broker"
    assert told[1].startswith(
        "delivery 1 to shop.orders of queue://orders: failed with ValueError at shop.py:12; given back ("
    )
    assert told[2] == "delivery 2 comes in 5 s; what lies behind it waits"
    assert [line for line in worded(story) if WAY in line] == [f"    by way of {WAY}"]
    assert f", by way of {escape(WAY)}" in page(story)
    # The log keeps what is ours, and so does what a program reads.
    assert any(one.line.get("error_stack") == f"{OURS} > {WAY}" for one in story.happenings)
    assert "; given to the dead letters (" in told[3]
    assert told[4] == "dead letter in queue://dead: max_redeliveries, after 2 deliveries"
    assert story.fate.startswith("a dead letter since ")
    assert story.unknown == ["times are by the clock of each process, so their order may deceive"]


def test_transactions_name_what_was_sent_because_of_it(tmp_path: Path) -> None:
    """Of the transaction that was committed, and of no other of that number in another process."""
    write(
        tmp_path / "a",
        came(1001.0, outcome=Outcome.COMMITTED, transaction_id="c1-s1:4"),
        replace(sent(OTHER, "queue://ledger", 1001.4), transaction_id="c1-s1:4"),
        TransactionEnded(
            at=1001.5, transaction_id="c1-s1:4", outcome=TransactionOutcome.COMMITTED, started_at=1001.0, sends=1,
            acknowledgements=1,
        ),
    )  # fmt: skip
    write(
        tmp_path / "b",
        replace(
            sent("01a0c5a4f5b2cccccccccccccccccccc", "queue://x", 1001.4), transaction_id="c1-s1:4"
        ),
    )
    story = explain(tmp_path, KEY)
    assert story.outputs == [(OTHER, "queue://ledger", "confirmed")]
    assert story.happenings[-1].text == "transaction c1-s1:4 was committed"
    assert "no send of it is in the log" in story.unknown[0]
    assert explain(tmp_path, OTHER).inputs == [(KEY, "queue://orders")]
    assert f"{OTHER}  queue://ledger  confirmed" in "\n".join(worded(story))


def test_what_was_sent_meanwhile_is_told_by_its_time(tmp_path: Path) -> None:
    """By the process that handled it, outside of transactions; and that no line says why it was sent."""
    inside, late, other, within = (f"01a0c5a4f5b2{letter * 20}" for letter in "cdef")
    write(
        tmp_path / "a",
        replace(came(1001.0), started_at=1001.999, ended_at=1002.001, at=1002.1),  # type: ignore[arg-type]  # the values are those of the test's table
        sent(inside, "queue://ledger", 1002.0009),
        sent(late, "queue://ledger", 1002.5),
        replace(sent(within, "queue://ledger", 1002.0005), transaction_id="t9"),
    )
    write(tmp_path / "b", sent(other, "queue://ledger", 1002.0005))
    story = explain(tmp_path, KEY)
    assert story.meanwhile == [(inside, "queue://ledger", "confirmed")]
    assert f"{inside}  queue://ledger  confirmed" in "\n".join(worded(story))
    assert inside in page(story)
    assert any(text.startswith("whether its handler sent that") for text in story.unknown)
    assert explain(tmp_path, late).meanwhile == []


def test_the_message_whose_handler_sent_it_is_named(tmp_path: Path) -> None:
    """Outside of transactions too, and then nothing is told by its time that another handler sent beside it."""
    beside = "01a0c5a4f5b2cccccccccccccccccccc"
    write(
        tmp_path / "a" / "1",
        came(1001.0, started_at=1001.9, ended_at=1002.1, message_id="ID:x-1"),
        replace(sent(beside, "queue://ledger", 1002.0), cause_key="of another"),
    )
    caused = replace(sent(OTHER, "queue://ledger", 1002.0), cause_key=KEY)
    write(tmp_path / "a" / "2", caused)
    for wanted in (KEY, "ID:x-1"):
        story = explain(tmp_path / "a", wanted)
        assert story.outputs == [(OTHER, "queue://ledger", "confirmed")]
        assert (story.meanwhile, len(story.happenings)) == ([], 1)
        assert not any(text.startswith("whether its handler") for text in story.unknown)
    assert explain(tmp_path / "a", OTHER).inputs == [(KEY, "queue://orders")]
    write(tmp_path / "b", caused)
    assert explain(tmp_path / "b", KEY).fate.startswith("not in the log")
    assert explain(tmp_path / "b", KEY).outputs == [(OTHER, "queue://ledger", "confirmed")]
    told = explain(tmp_path / "b", OTHER)
    assert (told.inputs, KEY in told.unknown[-1]) == ([], True)


def test_a_message_id_finds_the_key(tmp_path: Path) -> None:
    """And with it the lines that have no message id."""
    write(tmp_path, sent(KEY, "queue://orders", 1000.0), came(1001.0, message_id="ID:x-1"))
    assert [one.line["kind"] for one in explain(tmp_path, "ID:x-1").happenings] == [
        "send",
        "delivery",
    ]


def test_compacted_segments_are_read(tmp_path: Path) -> None:
    """As the others."""
    write(tmp_path, sent(KEY, "queue://orders", 1000.0), came(1001.0))
    before = list(worded(explain(tmp_path, KEY)))
    assert list(compact(tmp_path))
    assert not segments(tmp_path)
    assert list(worded(explain(tmp_path, KEY))) == before


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    """An open end, a delivery that is not there, one too many."""
    write(
        tmp_path,
        came(1001.0, outcome=Outcome.ABANDONED),
        came(1002.0, attempt=4, outcome=Outcome.ABANDONED),
    )
    open_end = explain(tmp_path, KEY)
    assert open_end.fate == "delivered, and not settled as far as the log goes"
    assert "how it ended is not in the log" in open_end.unknown
    assert "2 deliveries behind number 1 not in the log" in open_end.unknown
    write(tmp_path / "more", came(1003.0), came(1004.0))
    assert "it was done 2 times, for 1 subscriber" in explain(tmp_path, KEY).unknown


def test_a_delivery_of_which_a_killed_process_told_nothing_is_missed(tmp_path: Path) -> None:
    """It began and never ended, so the first that the log tells of is another one."""
    write(tmp_path, sent(KEY, "queue://orders", 1000.0), came(1003.0, attempt=2))
    assert explain(tmp_path, KEY).unknown == [
        "1 delivery before number 2 not in the log: who had it died, or keeps no log"
    ]


def test_it_fails_before_it_is_a_dead_letter(tmp_path: Path) -> None:
    """Also where both have one time, and the log has them the other way round."""
    dead = MessageDeadLettered(
        at=1001.0, consumer="shop.orders", destination="queue://orders", message_id="ID:1", message_key=KEY, attempts=1,
        reason="rejected", error_type="Reject", error_message="", dead_letter_destination=None, by_copy=False,
    )  # fmt: skip
    ended = came(1001.0, outcome=Outcome.DEAD_LETTERED, **FAILED)
    write(tmp_path, dead, replace(ended, at=1001.0))
    kinds = [one.line["kind"] for one in explain(tmp_path, KEY).happenings]
    assert kinds == ["delivery", "dlq"]


def test_gaps_and_odd_lines_are_said(tmp_path: Path) -> None:
    """What the log says itself is missing, and what was no line."""
    write(tmp_path, came(1001.0))
    path = segments(tmp_path)[0]
    gap = b'{"v":1,"kind":"log.gap","writer":"w","seq":1,"ts_us":1,"dropped":7,"dropped_kind":"send"}\n'
    torn = b'{"v":1,"kind":"send","msg_key":"' + KEY.encode() + b'"\n[1]\n'
    path.write_bytes(torn + path.read_bytes() + gap)
    story = explain(tmp_path, KEY)
    assert "7 events missing from the log, as it says itself" in story.unknown
    assert len(story.happenings) == 1


def test_lines_that_are_none_of_the_log_tell_nothing(tmp_path: Path) -> None:
    """What the report puts aside is not told here either; null is absent."""
    write(tmp_path, came(1001.0), came(1002.0, attempt=2))
    path = segments(tmp_path)[0]
    begin = '{"v":1,"kind":"%s","writer":"w","seq":%d,"ts_us":1,'
    path.write_text(
        "".join(
            begin % (kind, seq) + rest.replace("KEY", KEY) + "}\n"
            for seq, (kind, rest) in enumerate(
                [
                    ("send", '"msg_key":"KEY"'),
                    ("send", '"msg_key":"KEY","dest":7,"outcome":"confirmed"'),
                    ("delivery", '"msg_key":"KEY","dest":"d","consumer":"c","attempt":"x","outcome":"expired"'),
                    ("log.odd", '"msg_key":"KEY"'),
                    ("send", '"msg_key":"other","x":{"kind":"log.gap"},"dest":"d","outcome":"confirmed"'),
                    ("dlq", '"msg_key":"KEY","dest":"d","consumer":"c","reason":"rejected","attempts":null'),
                ]
            )
        )
        + path.read_text()
    )  # fmt: skip
    story = explain(tmp_path, KEY)
    assert [one.line["kind"] for one in story.happenings] == ["dlq", "delivery", "delivery"]
    assert story.happenings[0].text.endswith("rejected, after ? deliveries")
    assert not any("missing from the log" in text for text in story.unknown)


def test_a_number_that_two_lines_have_is_said(tmp_path: Path) -> None:
    """As in the report the first one counts; the same line once more is nothing new."""
    write(tmp_path, came(1001.0))
    path = segments(tmp_path)[0]
    line = next(one for one in path.read_bytes().splitlines() if b'"delivery"' in one)
    path.write_bytes(path.read_bytes() + line + b"\n")
    assert not any("number" in text for text in explain(tmp_path, KEY).unknown)
    path.write_bytes(path.read_bytes() + line.replace(b"acknowledged", b"expired") + b"\n")
    story = explain(tmp_path, KEY)
    assert [one.line["outcome"] for one in story.happenings] == ["acknowledged"]
    assert (
        "1 line left out, whose number another one has: see jmsx events validate" in story.unknown
    )


def test_the_name_of_a_file_is_no_proof(tmp_path: Path) -> None:
    """A segment that was renamed has what belongs to the transaction."""
    write(
        tmp_path,
        came(1001.0, outcome=Outcome.COMMITTED, transaction_id="t4"),
        replace(sent(OTHER, "queue://ledger", 1001.4), transaction_id="t4"),
    )
    path = segments(tmp_path)[0]
    path.rename(path.with_name("copy.jsonl"))
    assert explain(tmp_path, KEY).outputs == [(OTHER, "queue://ledger", "confirmed")]


@pytest.mark.parametrize("wanted", ["", "nobody", "no\udc80text"])
def test_nothing_to_tell_is_an_error(tmp_path: Path, wanted: str) -> None:
    """With what was looked for."""
    write(tmp_path, came(1001.0))
    with pytest.raises(ConfigurationError, match="key"):
        explain(tmp_path, wanted)


def test_the_command(tmp_path: Path) -> None:
    """Text for a person, and JSON."""
    write(tmp_path, sent(KEY, "queue://orders", 1000.0), came(1001.0))
    text = CliRunner().invoke(app, ["explain", KEY, "--events", str(tmp_path)])
    assert text.exit_code == 0
    assert text.stdout.startswith(f"{KEY}: done, and acknowledged, ")
    told = json.loads(
        CliRunner().invoke(app, ["explain", KEY, "--events", str(tmp_path), "--json"]).stdout
    )
    assert told["keys"] == [KEY]
    assert [one["line"]["kind"] for one in told["happenings"]] == ["send", "delivery"]
    assert told["broker"] is None


def test_the_page(tmp_path: Path) -> None:
    """It has what the text has, and what others have written is text in it."""
    broken = {**FAILED, "error_place": "<script>.py:12"}
    write(tmp_path, sent(KEY, "queue://orders", 1000.0), came(1001.0, **broken))
    out = tmp_path / "life.html"
    wanted = ["explain", KEY, "--events", str(tmp_path), "--page", str(out)]
    assert CliRunner().invoke(app, wanted).exit_code == 0
    written = out.read_text("utf-8")
    assert written.startswith("<!doctype html>")
    story = explain(tmp_path, KEY)
    assert KEY in written
    assert story.fate[1:] in written
    for text in (*(one.text for one in story.happenings), *story.unknown):
        assert escape(text) in written
    assert "<script" not in written
    assert "On the broker now" in page(story, ["the broker has it in DLQ, as 7"])
    refused = CliRunner().invoke(app, [*wanted[:-1], str(tmp_path / "no" / "life.html")])
    assert "cannot be written: No such file" in str(refused.exception)


def died(at: float, attempts: int) -> Event:
    """A death of KEY: the broker has moved it."""
    return MessageDeadLettered(
        at=at, consumer="shop.orders", destination="queue://orders", message_id="ID:1", message_key=KEY,
        attempts=attempts, reason="rejected", error_type="ValueError", error_message="bad",
        dead_letter_destination="", by_copy=False,
    )  # fmt: skip


def test_deaths_are_found_without_the_rest(tmp_path: Path) -> None:
    """What was given to the dead letters, and what expired, also of a compacted log; `Deaths` puts it in order."""
    write(tmp_path / "a", sent(KEY, "queue://orders", 1000.0), died(1008.0, 2), came(1009.0))
    write(tmp_path / "b", came(1001.0, outcome=Outcome.EXPIRED))
    for _ in range(2):
        told = sorted(deaths(tmp_path), key=itemgetter("ts_us"))
        assert [(one["msg_key"], one["reason"]) for one in told] == [
            (KEY, "expired"),
            (KEY, "rejected"),
        ]
        list(compact(tmp_path))


def test_what_was_replayed_is_told(tmp_path: Path) -> None:
    """The delivery behind a death at the same consumer is the way back of a dead letter; nobody else writes of it."""
    first = came(1000.0, outcome=Outcome.DEAD_LETTERED, **FAILED)
    write(tmp_path, first, died(1001.0, 1), came(2000.0))
    told = [one.text for one in explain(tmp_path, KEY).happenings]
    assert told[0].startswith("delivery 1 to shop.orders")
    assert told[1].endswith("rejected, after 1 delivery")
    assert told[2].startswith("back from the dead letters: delivery 1 to shop.orders")


@pytest.mark.parametrize(
    ("outcomes", "fate", "open_end"),
    [
        (["rolled_back"], "never sent: its transaction was rolled back", False),
        (["error"], "never sent: the broker refused it", False),
        (["error", "rolled_back"], "never sent: its transaction was rolled back", False),
        (["unconfirmed"], "perhaps sent, and not delivered as far as the log goes", True),
        (["rolled_back", "confirmed"], "sent, and not delivered as far as the log goes", True),
    ],
)
def test_what_nobody_got_may_never_have_been_sent(
    tmp_path: Path, outcomes: list[str], fate: str, *, open_end: bool
) -> None:
    """Then no broker is to be asked how it ended; of several sends one that was confirmed is enough."""
    sends = [
        replace(sent(KEY, "queue://orders", 1000.0 + number), outcome=outcome)
        for number, outcome in enumerate(outcomes)
    ]
    write(tmp_path, *sends)
    story = explain(tmp_path, KEY)
    assert story.fate == fate
    advice = "how it ended is not in the log: ask the broker (--broker)"
    assert (advice in "\n".join(worded(story))) == open_end
    assert (advice in page(story)) == open_end
    for places in ([], ["the broker has it in orders, as 7"]):  # what it answers stands below
        told = list(worded(story, places))
        assert not any("ask the broker" in line for line in told)
        assert "ask the broker" not in page(story, places)
        assert ("  how it ended is not in the log" in told) == open_end
        assert told[len(told) - len(places) :] == places
