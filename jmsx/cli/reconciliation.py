"""Reconciliation: when traffic has stopped, metrics, event log and broker must show the numbers of the demo's books."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jmsx.cli.books import Books

if TYPE_CHECKING:
    from collections.abc import Mapping


def broker_differences(
    books: Books, statistics: Mapping[str, Any], dead_on_broker: int
) -> list[str]:
    """
    Return the differences between the broker's own counts and the books, a sentence each.

    `statistics`: for each queue URI its `enqueue_count` and `dequeue_count` since the broker was started.
    """
    differences = []
    sent = books.sent_to()
    for queue, counts in statistics.items():
        differences += _differ(f"{queue} sent", books=sent[queue], broker=counts.enqueue_count)
        settled = books.settled_at[queue]
        differences += _differ(f"{queue} settled", books=settled, broker=counts.dequeue_count)
    return differences + _differ("dead letters", books=len(books.dead), broker=dead_on_broker)


def metric_differences(books: Books, metrics: Any) -> list[str]:
    """Return the differences between the Prometheus counters and the books; `metrics` is the observer."""
    sent = metrics.value("jmsx_sent_messages_total", outcome="confirmed")
    settled = metrics.value("jmsx_settled_messages_total")
    dead = metrics.value("jmsx_dead_lettered_messages_total")
    redelivered = metrics.value("jmsx_redeliveries_total")
    return (
        _differ("sent", books=len(books.sent), prometheus=sent)
        + _differ("settled", books=books.settled_at.total(), prometheus=settled)
        + _differ("dead letters", books=len(books.dead), prometheus=dead)
        + _differ("redeliveries", books=books.redelivered, prometheus=redelivered)
    )


def log_differences(books: Books, counts: Mapping[str, int]) -> list[str]:
    """Return the differences between the event log and the books; `counts` are those of the report's audit."""
    outcomes = ("acknowledged", "committed", "discarded", "duplicate", "expired", "dead_lettered")
    settled = sum(counts.get(outcome, 0) for outcome in outcomes)
    return (
        _differ("sent", books=len(books.sent), log=counts["sends_confirmed"])
        + _differ("settled", books=books.settled_at.total(), log=settled)
        + _differ("dead letters", books=len(books.dead), log=counts["dlq"])
        + _differ("redeliveries", books=books.redelivered, log=counts["redeliveries_scheduled"])
    )


def _differ(what: str, **told: float) -> list[str]:
    if len(set(told.values())) == 1:
        return []
    return [f"{what}: " + ", ".join(f"{who} {number:g}" for who, number in told.items())]
