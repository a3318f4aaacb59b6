"""The audit against a shop whose truth is known: it finds exactly what was put in."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from jmsx.core.events import Outcome
from jmsx_report import report
from tests.pipeline.lines import segments
from tests.pipeline.simulator import QUEUES, SOURCE, Shop, delivery, key_at, sent

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from jmsx_report import ReportResult


def _reported(directory: Path, deadline: float = 0.0) -> ReportResult:
    return report(directory, directory / "out", deadline_seconds=deadline, engine=map)


def _judged(directory: Path, deadline: float = 0.0) -> Mapping[str, Any]:
    return _reported(directory, deadline).audit


def _keys(audit: Mapping[str, Any], name: str) -> set[str]:
    return {row["msg_key"] for row in audit[name]}


@pytest.mark.parametrize("seed", [1, 2])
def test_the_audit_finds_exactly_what_was_put_in(tmp_path: Path, seed: int) -> None:
    """Lost, repeated, dead, discarded and expired messages are found, each by its key; what was suppressed is fine."""
    shop = Shop(tmp_path, seed, segment_bytes=100_000)
    truth = shop.trade(
        1500, lost=7, duplicated=9, suppressed=6, dead=20, discarded=4, expired=5, retried=40
    )
    shop.close()

    audit = _judged(tmp_path)

    assert truth.lost == _keys(audit, "lost")
    assert truth.duplicated == _keys(audit, "repeated")
    assert {
        "verdict": "suspect",
        "sent": 1500,
        "settled": 1500 - 7 + 9 + 6,
        "unaccounted": 7,
        "duplicates": 9,
        "suppressed": 6,
        "dead_lettered": 20,
        "discarded": 4,
        "expired": 5,
        "unsent": 0,
        "foreign": 0,
        "unread": 0,
        "in_flight": 0,
    }.items() <= audit.items()
    assert audit["completeness"]["complete"]
    assert (truth.deliveries, truth.again) == (
        audit["counts"]["deliveries"],
        audit["counts"]["redelivered"],
    )
    for queue in QUEUES:
        numbers = audit["destinations"][queue]
        assert numbers["sent"] == sum(to == queue for to in truth.sent.values())
        assert numbers["unaccounted"] == sum(truth.sent[key] == queue for key in truth.lost)


def test_a_loss_and_a_repeat_in_one_bucket_do_not_cancel_out(tmp_path: Path) -> None:
    """Counts agree and so would a plain total: the hashes of the keys do not."""
    shop = Shop(tmp_path, seed=3)
    shop.clock.now = 1000.0
    keys = [key_at(shop.clock.wall(), shop.chance) for _ in range(20)]
    for key in keys:
        shop.producer.observe(sent(key, QUEUES[0], 1000.0), SOURCE)
    for key in [*keys[1:], keys[7]]:
        shop.consumer.observe(delivery(key, QUEUES[0], 1000.0, shop.chance), SOURCE)
    shop.close()

    audit = _judged(tmp_path)

    assert (audit["sent"], audit["settled"]) == (20, 20)
    assert (audit["unaccounted"], audit["duplicates"], audit["verdict"]) == (1, 1, "suspect")
    assert (_keys(audit, "lost"), _keys(audit, "repeated")) == ({keys[0]}, {keys[7]})
    assert sorted([keys[0], keys[7]]) == audit["destinations"][QUEUES[0]]["sample_keys"]


def test_what_the_audit_cannot_know_is_not_called_lost(tmp_path: Path) -> None:
    """Topics, unread queues, wildcards, other senders, unconfirmed sends: each has its own name."""
    shop = Shop(tmp_path, seed=4)
    for key, destination, outcome in (
        ("read-by-wildcard", "queue://eu.orders", "confirmed"),
        ("unread", "queue://archive", "confirmed"),
        ("topic", "topic://news", "confirmed"),
        ("unconfirmed", QUEUES[1], "unconfirmed"),
    ):
        made = key_at(shop.clock.wall(), shop.chance)
        shop.producer.observe(sent(made, destination, 1000.0, outcome), SOURCE)
        if key == "read-by-wildcard":
            shop.consumer.observe(delivery(made, "queue://*.orders", 1000.0, shop.chance), SOURCE)
    shop.consumer.observe(
        delivery("ID:other-1:1:1", QUEUES[2], 1000.0, shop.chance, outcome=Outcome.COMMITTED),
        SOURCE,
    )
    shop.close()

    audit = _judged(tmp_path)

    assert "topic://news" not in audit["destinations"]
    names = ("sent", "settled", "unaccounted", "unread", "unsent", "foreign", "duplicates")
    assert dict(zip(names, (2, 2, 0, 1, 0, 1, 0), strict=True)) == {
        name: audit[name] for name in names
    }
    assert audit["verdict"] == "unverifiable"
    assert audit["destinations"]["queue://archive"]["verdict"] == "unverifiable"
    assert audit["destinations"][QUEUES[2]]["verdict"] == "unverifiable"


def test_a_message_sent_just_now_is_in_flight(tmp_path: Path) -> None:
    """With a deadline, what was sent within it may still wait in the queue."""
    shop = Shop(tmp_path, seed=5)
    shop.trade(60)
    shop.trade(1, lost=1)
    shop.close()

    assert _judged(tmp_path)["verdict"] == "suspect"
    waiting = _judged(tmp_path, deadline=60.0)

    assert (
        waiting["in_flight"],
        waiting["unaccounted"],
        waiting["verdict"],
    ) == (1, 0, "balanced")


def test_a_log_that_is_not_whole_proves_nothing(tmp_path: Path) -> None:
    """A missing segment is told by its writer and line numbers, and the verdict is not a guess."""
    shop = Shop(tmp_path, seed=6, segment_bytes=50_000)
    shop.trade(600)
    shop.close()
    mine = [path for path in segments(tmp_path) if path.name.startswith(str(shop.consumer.writer))]
    low, high = (int(path.stem.rsplit("-", 1)[1]) for path in mine[1:3])
    mine[1].unlink()
    mine[-1].rename(f"{mine[-1]}.open")

    audit = _judged(tmp_path)

    assert audit["verdict"] == "unverifiable"
    faults = " ".join(audit["completeness"]["faults"])
    assert f"{shop.consumer.writer}: {high - low:,} lines missing (seq {low}-{high - 1})" in faults
    assert "1 segment still open" in faults
    assert [path.rpartition("/")[2] for path in audit["completeness"]["open_segments"]] == [
        f"{mine[-1].name}.open"
    ]
    assert f"{shop.producer.writer}:" not in faults


def test_a_segment_that_was_shipped_twice_counts_once(tmp_path: Path) -> None:
    """Shipping is at least once; the audit is exactly once."""
    shop = Shop(tmp_path, seed=7, segment_bytes=50_000)
    shop.trade(600, lost=2, dead=5)
    shop.close()
    before = _reported(tmp_path)
    again = tmp_path / "again"
    again.mkdir()
    second = segments(tmp_path)[1]
    repeated = len(second.read_text().splitlines())
    shutil.copy(second, again)

    after = _reported(tmp_path)

    health = pl.read_parquet(after.tables["event_log_health"])
    assert sorted(health["repeated"]) == [0, repeated]
    assert before.audit == after.audit


def test_a_spoilt_line_costs_one_line(tmp_path: Path) -> None:
    """A line that is not JSON is counted and its number is missing; all others are read."""
    shop = Shop(tmp_path, seed=8, segment_seconds=3600)  # its lines are in one
    shop.trade(200)
    shop.close()
    spoilt = segments(tmp_path)[0]
    content = spoilt.read_bytes().splitlines(keepends=True)
    content[100] = b'{"v":1,"kind":"se\xff\x00\n'
    spoilt.write_bytes(b"".join(content))

    audit = _judged(tmp_path)

    assert audit["verdict"] == "unverifiable"
    assert audit["completeness"]["unreadable_lines"] == 1
    assert "1 line missing (seq 100-100)" in " ".join(audit["completeness"]["faults"])
