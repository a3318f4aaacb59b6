"""The report as one HTML page: no script, nothing to load, verdict first."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from jmsx_spark import plots
from jmsx_spark.transforms import PERMILLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jmsx_spark.job import Findings

_MEANING: Final = {
    "balanced": "Every message that was sent was settled, once.",
    "suspect": "Not every message that was sent was settled, or some were settled twice.",
    "unverifiable": "The log is not whole, so it cannot prove that nothing was lost.",
}
_AUDIT: Final = {
    "sent": "confirmed by the broker",
    "done": "acknowledged or committed",
    "dead_lettered": "given to a dead letter queue",
    "discarded": "given up on purpose",
    "suppressed": "came again after it was done, and was not done again",
    "expired": "too old when they came",
    "unaccounted": "sent where jmsx reads, and never settled",
    "in_flight": "sent too late to be settled",
    "unread": "sent where jmsx does not read",
    "duplicates": "done more than once",
    "unsent": "settled, but no send of them is in the log",
    "foreign": "of senders that are not jmsx",
}


def page(findings: Findings, *, title: str) -> str:
    """Write the page."""
    audit = findings.audit
    sections = [
        _audit(audit, findings),
        _latency(findings),
        _redelivery(findings),
        _dead_letters(findings),
        _completeness(audit),
    ]
    style = files("jmsx_spark").joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}: {audit['verdict']}</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n<main>\n<h1>{escape(title)}</h1>\n{_verdict(audit)}"
        f"{''.join(sections)}</main>\n</body>\n</html>\n"
    )


def verdict_line(audit: Mapping[str, Any]) -> str:
    """Say in one line what the audit found."""
    said = [f"{audit['sent']:,} sent", f"{audit['done']:,} done"]
    said += [
        f"{audit[name]:,} {word}"
        for name, word in (
            ("dead_lettered", "dead lettered"),
            ("discarded", "discarded"),
            ("suppressed", "suppressed as done before"),
            ("expired", "expired"),
            ("in_flight", "in flight"),
            ("unread", "sent where jmsx does not read"),
            ("unsent", "without a logged send"),
            ("foreign", "of other senders"),
        )
        if audit[name]
    ]
    said += [f"{audit['unaccounted']:,} unaccounted for", f"{audit['duplicates']:,} duplicates"]
    return ", ".join(said)


def _verdict(audit: Mapping[str, Any]) -> str:
    verdict = audit["verdict"]
    meaning = _MEANING[verdict]
    if verdict == "unverifiable" and audit["completeness"]["auditable"]:
        meaning = "The log is whole, but some senders do not write to it."
    return (
        f'<p class="verdict {verdict}"><strong>{verdict.capitalize()}</strong>'
        f" {meaning} <span>{verdict_line(audit)}.</span></p>\n"
    )


def _section(heading: str, explanation: str, *parts: str) -> str:
    return f"<section>\n<h2>{heading}</h2>\n<p>{explanation}</p>\n{''.join(parts)}</section>\n"


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Lay out a table; whole numbers go to the right, a list has a line for each."""
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>\n" for row in rows)
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    return (
        '<div class="wide"><table>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>\n"
    )


def _cell(content: object) -> str:
    if isinstance(content, int):
        return f'<td class="n">{content:,}</td>'
    if isinstance(content, list):
        keys = "<br>".join(f"<code>{escape(key)}</code>" for key in content)
        return f"<td>{keys}</td>"
    return f"<td>{escape(str(content))}</td>"


def _audit(audit: Mapping[str, Any], findings: Findings) -> str:
    shown = [
        name
        for name in _AUDIT
        if audit[name] or name in ("sent", "done", "dead_lettered", "unaccounted", "duplicates")
    ]
    table = _table(
        ["destination", *(name.replace("_", " ") for name in shown), "verdict", "look at"],
        [
            [
                dest,
                *(numbers[name] for name in shown),
                numbers["verdict"],
                numbers["sample_keys"],
            ]
            for dest, numbers in audit["destinations"].items()
        ],
    )
    legend = "; ".join(f"<b>{name.replace('_', ' ')}</b>: {_AUDIT[name]}" for name in shown)
    picture = plots.flow(findings.buckets) if len(findings.buckets) > 1 else ""
    return _section("Sent against settled", f"In messages. {legend}.", table, picture)


def _latency(findings: Findings) -> str:
    if not findings.latency:
        return _section("Latency", "No delivery was done.")
    heads = ["destination", "consumer", "messages"]
    heads += [f"end to end {label}" for label in PERMILLES]
    heads += [f"handler {label}" for label in PERMILLES]
    rows = [
        [
            row["dest"],
            row["consumer"],
            row["n"],
            *(duration(row[f"end_to_end_{label}_us"]) for label in PERMILLES),
            *(duration(row[f"handler_{label}_us"]) for label in PERMILLES),
        ]
        for row in findings.latency
    ]
    timed = [row for row in findings.latency if row["end_to_end_histogram"]]
    return _section(
        "Latency",
        "Of deliveries that were done. End to end is from the broker's timestamp (its clock, to the"
        " millisecond) to settlement; percentiles are within 1 %.",
        _table(heads, rows),
        plots.time_budget(findings.latency),
        plots.latency_curves(timed) if timed else "",
    )


def _redelivery(findings: Findings) -> str:
    rows = [
        [
            row["dest"],
            row["consumer"],
            row["deliveries"],
            row["redelivered"],
            f"{100 * row['ratio']:.2f} %",
            row["attempts_max"],
            row["succeeded_late"],
            duration(row["delay_planned_mean_us"]),
            duration(row["delay_actual_mean_us"]),
            duration(row["delay_late_p95_us"]),
        ]
        for row in findings.redelivery
    ]
    heads = ["destination", "consumer", "deliveries", "redelivered", "share", "most attempts"]
    heads += ["done late", "delay planned", "delay actual", "late by, p95"]
    return _section(
        "Redelivery",
        "By hour. <b>done late</b>: messages that a second or later attempt did;"
        " delays are means over the redeliveries that were scheduled here.",
        _table(heads, rows),
    )


def _dead_letters(findings: Findings) -> str:
    if not findings.dead_letters:
        return _section("Dead letters", "None.")
    rows = [
        [
            row["dest"],
            row["reason"],
            row["error_type"] or "-",
            row["n"],
            f"{100 * row['share']:.1f} %",
            row["attempts_max"],
            row["sample_keys"],
        ]
        for row in sorted(findings.dead_letters, key=lambda row: -row["n"])
    ]
    heads = ["destination", "reason", "error", "messages", "share", "most attempts", "look at"]
    return _section(
        "Dead letters",
        "Messages that were given up, by the class of the last error.",
        plots.causes(findings.dead_letters),
        _table(heads, rows),
    )


def _completeness(audit: Mapping[str, Any]) -> str:
    completeness = audit["completeness"]
    faults = "".join(f"<li>{escape(fault)}</li>" for fault in completeness["faults"])
    rows = [
        [
            log["writer"],
            log["lines"],
            log["expected"],
            log["repeated"],
            sum(log["dropped"].values()),
            log["ended"],
        ]
        for log in completeness["writers"]
    ]
    return _section(
        "Is the log whole?",
        "Each process numbers its lines, so what is missing can be told."
        + (" Nothing is." if completeness["complete"] else ""),
        f"<ul>{faults}</ul>\n" if faults else "",
        _table(["writer", "lines", "expected", "repeated", "events dropped", "ended"], rows),
    )


def duration(microseconds: float | None) -> str:
    """Word a duration with three digits and the unit that suits it."""
    if microseconds is None:
        return "-"
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if abs(microseconds) >= size:
            return f"{microseconds / size:.3g} {unit}"
    return f"{microseconds:.3g} us"
