"""The verdict in words, which follow its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jmsx.log import counted
from jmsx_report.wording import moment

if TYPE_CHECKING:
    from collections.abc import Mapping


def one_line(audit: Mapping[str, Any]) -> str:
    """Return the verdict of the audit (as `summary.json`) and its numbers, in one line."""
    return f"{headline(audit)}: {numbers_line(audit)}"


def headline(audit: Mapping[str, Any]) -> str:
    """
    Word the verdict and for which time it holds: "balanced until 2026-11-22 14:02:00 UTC; 358 messages since".

    The time is limited to the period that was asked for: messages sent before or after it were not looked at.
    """
    words = str(audit["verdict"])
    horizon, since = audit.get("horizon"), audit.get("since") or 0
    period = audit.get("period") or {}
    begin, end = period.get("since_us"), period.get("until_us")
    if horizon is not None:
        until = horizon if end is None else min(horizon, end)
        # "balanced until" makes sense: later messages may change that. "suspect" does not end, so it is "judged until".
        words += "" if audit["verdict"] == "balanced" else ", judged"
        words += f" from {moment(begin)}" if begin is not None and begin < until else ""
        words += f" until {moment(until)} UTC"
    if since:
        words += f"; {counted(since, 'message')} since"
    return words


def meaning(audit: Mapping[str, Any]) -> str:
    """Word what the verdict says, by its numbers."""
    judged = audit["sent"] - (audit.get("since") or 0)
    if audit["verdict"] == "balanced":
        if judged == 1:
            return "The one message that was sent was settled, once."
        return f"Each of the {judged:,} messages that were sent was settled, once."
    if audit["verdict"] == "suspect":
        wrong = [
            f"{counted(number, 'message')} {words}"
            for number, words in (
                (proven(audit), "sent and never settled"),
                (audit["duplicates"], "done more than once"),
                (
                    audit.get("effect_duplicates", 0),
                    "of which a handler succeeded more than once",
                ),
            )
            if number
        ]
        begin = "; ".join(wrong) or "Some of the log contradicts itself"
        whole = audit["completeness"]["auditable"]
        return f"{begin}." + ("" if whole else " Besides, the log is not whole.")
    return "It is not proven that nothing was lost or done twice."


def proven(audit: Mapping[str, Any]) -> int:
    """Return how many messages are proven lost; summaries of older releases have no `explained`, so all count."""
    return int(audit["unaccounted"] - audit.get("explained", 0))


def numbers_line(audit: Mapping[str, Any]) -> str:
    """Say in one line what the audit counted."""
    said = [f"{audit['sent']:,} sent", f"{audit['done']:,} done"]
    said += [
        f"{audit[number]:,} {word}"
        for number, word in (
            ("dead_lettered", "dead lettered"),
            ("discarded", "discarded"),
            ("suppressed", "suppressed as done before"),
            ("expired", "expired"),
            ("expired_at_broker", "expired at the broker"),
            ("in_flight", "in flight"),
            ("unread", "sent where jmsx does not read"),
            ("awaiting_reader", "waiting for a reader"),
            ("removed", "removed with their subscription"),
            ("dropped", "dropped by their duplicate ids"),
            ("unclaimed", "dead lettered and not read"),
            ("unsent", "without a logged send"),
            ("foreign", "of other senders"),
        )
        if audit.get(number)
    ]
    unaccounted = f"{audit['unaccounted']:,} unaccounted for"
    if audit.get("explained"):
        unaccounted += f" ({audit['explained']:,} of them perhaps not lost)"
    said += [unaccounted, counted(audit["duplicates"], "duplicate")]
    return ", ".join(said)
