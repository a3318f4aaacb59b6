"""The report as one HTML page: no script, nothing to load, verdict first."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from jmsx.log import counted
from jmsx_report import plots
from jmsx_report.balance import TWICE
from jmsx_report.clocks import TOLD_US
from jmsx_report.conclusions import LISTED, NUMBER_OF, PROOFS
from jmsx_report.findings import ROWS, Findings, Shown
from jmsx_report.latency import PERMILLES
from jmsx_report.sentences import headline, meaning, numbers_line, proven
from jmsx_report.wording import duration, moment, name, until

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


_NUMBERS: Final = {
    "sent": "confirmed by the broker",
    "unaccounted": "sent where jmsx reads, and never settled",
    "explained": "so many of these a gap, the broker, a consumer or another queue may explain; the others are lost",
    "duplicates": "done more than once",
    "effect_duplicates": "of which a handler succeeded more than once",
    "dead_after_done": "dead-lettered after they were done; do not send these dead letters again",
    "settled": "all that was settled, however; each copy by itself",
    "done": "acknowledged or committed",
    "dead_lettered": "given to a dead letter queue",
    "discarded": "given up on purpose",
    "suppressed": "came again after it was done, and was not done again",
    "expired": "too old when they came",
    "expired_at_broker": "not settled, and by now too old",
    "in_flight": "sent, or planned to come again, too late to be settled",
    "unread": "sent where jmsx does not read",
    "awaiting_reader": "not settled, and sent about when the last reader there was closed in order, or later",
    "removed": "not settled, and removed with their subscription",
    "dropped": "sent with the duplicate id of another one, as brokers drop",
    "unanswered": "sent without an answer of the broker, and not settled",
    "in_doubt": "delivered in a transaction that nobody knows the end of",
    "unclaimed": "moved to a queue of dead letters that jmsx reads, and not read there",
    "unsent": "settled, but no send of them is in the log",
    "foreign": "of senders that are not jmsx",
}
_ALWAYS: Final = ("sent", "done", "dead_lettered", "unaccounted", "duplicates")
_BADNESS: Final = {"suspect": 0, "unverifiable": 1, "balanced": 2}
#: Findings that come first (0) and last (2).
_WEIGHTS: Final = {NUMBER_OF.get(proof, proof): 0 for proof in PROOFS} | {"clock": 2}
#: Reasons of a verdict that are shown above everything else.
_REASONS: Final = 6


def page(findings: Findings, *, title: str = "jmsx report") -> str:
    """Write the page."""
    audit = findings.audit
    sections = [
        _findings(audit),
        _destinations(audit, findings),
        _hours(audit),
        _keys(audit),
        _latency(findings),
        _redelivery(findings),
        _dead_letters(findings),
        _writers(findings),
        _completeness(findings),
    ]
    style = files("jmsx_report").joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}: {headline(audit)}</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n<main>\n<h1>{_text(title)}</h1>\n{_about(findings)}{_conclusion(audit)}"
        f"{''.join(sections)}</main>\n</body>\n</html>\n"
    )


def _about(findings: Findings) -> str:
    """Return the paragraph that names the log, its time and its services."""
    services = sorted(
        {row["service"] for row in findings.writers.rows if row["service"] is not None}
    )
    processes = sum(row["processes"] for row in findings.writers.rows)
    known = findings.writers.of == len(findings.writers.rows)
    said = [f"The event log in <code>{_text(findings.events)}</code>"]
    if findings.first_us is not None:
        said.append(f"lines from <b>{_text(until(findings.first_us, findings.last_us))}</b>")
    if processes:
        words = counted(processes, "process")
        named = ", ".join(_text(one) for one in services[:_REASONS])
        more = f" and {len(services) - _REASONS} more" if len(services) > _REASONS else ""
        said.append(
            f"{'' if known else 'more than '}{words} of {named or 'unknown services'}{more}"
        )
    asked = findings.audit.get("period") or {}
    if asked.get("since_us") is not None or asked.get("until_us") is not None:
        begin = "the beginning" if asked["since_us"] is None else f"{moment(asked['since_us'])} UTC"
        end = "the end" if asked["until_us"] is None else f"{moment(asked['until_us'])} UTC"
        said.append(f"judged is what was sent from {begin} to {end}")
    return f'<p class="about">{"; ".join(said)}. All times are UTC.</p>\n'


def _conclusion(audit: Mapping[str, Any]) -> str:
    verdict = audit["verdict"]
    words = headline(audit)
    reasons = audit.get("reasons") or []
    listed = "".join(f"<li>{_text(reason, 300)}</li>" for reason in reasons[:_REASONS])
    if len(reasons) > _REASONS:
        listed += f"<li>{len(reasons) - _REASONS} more in summary.json</li>"
    return (
        f'<div class="verdict {verdict}"><p><strong>{words[:1].upper()}{words[1:]}</strong></p>\n'
        f"<p>{meaning(audit)}</p>\n"
        + (f"<ul>{listed}</ul>\n" if listed else "")
        + f'<p class="numbers">{numbers_line(audit)}.</p></div>\n'
    )


def _section(heading: str, explanation: str, *parts: str) -> str:
    return f"<section>\n<h2>{heading}</h2>\n<p>{explanation}</p>\n{''.join(parts)}</section>\n"


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]], of: int, where: str) -> str:
    """
    Lay out a table of ROWS rows at most; whole numbers go to the right, a list has a line for each.

    `of`: how many rows there are; `where`: the file that has all of them.
    """
    shown = list(rows)[:ROWS]
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>\n" for row in shown)
    numeric = [isinstance(cell, int) for cell in shown[0]] if shown else [False] * len(heads)
    head = "".join(
        f'<th class="n">{escape(text)}</th>' if number else f"<th>{escape(text)}</th>"
        for text, number in zip(heads, numeric, strict=True)
    )
    more = f"<p>{of - len(shown):,} more in {escape(where)}</p>\n" if of > len(shown) else ""
    return (
        '<div class="wide"><table>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>\n{more}"
    )


#: The most characters of a name that is kept on one line, so that tables fit on a screen.
_LONG: Final = 24


class _Key(str):
    """A key of a message: set in a face of equal widths."""

    __slots__ = ()


class _Lines(tuple[str, ...]):
    """Lines below each other in a cell, each of which may be wrapped."""

    __slots__ = ()


class _Words(str):
    """Text in a cell that may be wrapped."""

    __slots__ = ()


def _cell(content: object) -> str:
    match content:
        case None:
            cell = "<td>-</td>"
        case int():
            cell = f'<td class="n">{content:,}</td>'
        case list():
            keys = "<br>".join(f"<code>{_text(key)}</code>" for key in content)
            cell = f"<td>{keys}</td>"
        case _Lines():
            cell = f'<td class="lines">{"<br>".join(map(_text, content))}</td>'
        case _Key():
            cell = f"<td><code>{_text(content)}</code></td>"
        case _Words():
            cell = f'<td class="words">{_text(content, 400)}</td>'
        case "balanced" | "suspect" | "unverifiable":
            cell = f'<td class="{content}"><strong>{content}</strong></td>'
        case str() if len(content) > _LONG:
            cell = _cell(_Lines((content,)))
        case _:
            cell = f"<td>{_text(content)}</td>"
    return cell


def _text(text: object, longest: int = 120) -> str:
    return escape(name(text, longest))


def _findings(audit: Mapping[str, Any]) -> str:
    found = audit.get("findings") or []
    if not found:
        return ""
    proven_first = sorted(found, key=lambda one: _WEIGHTS.get(one["what"], 1))
    rows = [[one["what"].replace("_", " "), _Words(one["says"])] for one in proven_first]
    return _section(
        "Findings",
        "What one should know beside the numbers.",
        _table(["what", "says"], rows, len(rows), "summary.json"),
    )


def _destinations(audit: Mapping[str, Any], findings: Findings) -> str:
    shown = [number for number in _NUMBERS if audit.get(number) or number in _ALWAYS]
    everything = sorted(
        audit["destinations"].items(),
        key=lambda item: (_BADNESS.get(item[1]["verdict"], 0), item[0]),
    )
    rows = [
        [
            dest,
            numbers["verdict"],
            _Words("; ".join((numbers.get("reasons") or [])[:_REASONS]) or "-"),
            *(numbers.get(number, 0) for number in shown),
        ]
        for dest, numbers in everything[:ROWS]
    ]
    legend = "; ".join(f"<b>{number.replace('_', ' ')}</b>: {_NUMBERS[number]}" for number in shown)
    table = _table(
        ["destination", "verdict", "because", *(number.replace("_", " ") for number in shown)],
        rows,
        len(everything),
        "summary.json",
    )
    picture = plots.flow(findings.flow, findings.flow_us) if len(findings.flow) > 1 else ""
    return _section("Sent against settled", f"In messages. {legend}.", table, picture)


def _hours(audit: Mapping[str, Any]) -> str:
    hours = audit.get("hours") or []
    if not hours:
        return ""
    worst = sorted(
        hours, key=lambda hour: (_BADNESS.get(hour["verdict"], 0), hour["hour_us"], hour["dest"])
    )
    told = ("sent", "settled", "done", "unaccounted", "duplicates")
    rows = [
        [
            moment(hour["hour_us"])[:16],
            hour["dest"],
            hour["verdict"],
            *(hour[number] for number in told),
            _Words("; ".join(hour["reasons"][:_REASONS]) or "-"),
        ]
        for hour in worst[:ROWS]
    ]
    balanced = sum(hour["verdict"] == "balanced" for hour in hours)
    return _section(
        "By hour",
        f"The hour (UTC) in which messages were sent; those that are not balanced first."
        f" {balanced:,} of {len(hours):,} are balanced.",
        _table(
            ["hour", "destination", "verdict", *told, "because"],
            rows,
            len(hours),
            "summary.json (hours)",
        ),
    )


def _keys(audit: Mapping[str, Any]) -> str:
    """Return the lists of lost, perhaps lost and repeated messages: each key with its times and last fate."""
    lost, unsettled = audit.get("lost") or [], audit.get("unsettled") or []
    unknown = proven(audit) - len(lost) if unsettled and len(lost) < LISTED else 0
    perhaps = "a gap in it, the broker, a consumer or another queue may explain that"
    if unknown > 0:
        perhaps = f"{perhaps} for some; {unknown:,} of them are lost, and nobody knows which"
    by_hour = "tables/audit (Parquet; keys by hour)"
    whose = "the oldest first; times are by the clock of who wrote them."
    return "".join(
        (
            _listed(
                "Lost messages",
                f"Sent where jmsx reads, and not settled in this log; {whose}",
                lost,
                proven(audit),
                by_hour,
            ),
            _listed(
                "Messages that were not settled",
                f"Sent where jmsx reads, and not settled in this log, but {perhaps}; {whose}",
                unsettled,
                audit.get("explained", 0),
                by_hour,
            ),
            _listed(
                "Repeated messages",
                "Done more than once, or their handler succeeded more than once, or dead-lettered after they were"
                f" done; {whose}",
                audit.get("repeated") or [],
                sum(audit.get(number, 0) for number in TWICE),
                "tables/duplicates (Parquet)",
                caused=True,
            ),
        )
    )


def _listed(
    heading: str,
    explanation: str,
    listed: Sequence[Mapping[str, Any]],
    number: int,
    where: str,
    *,
    caused: bool = False,
) -> str:
    """Lay out keys with their times; `number`: how many there are, where not all of them are `listed`."""
    if not listed:
        return ""
    heads = ["key", "sent to", "read from", "sent at", "last seen at", "last fate"]
    rows = [
        [
            _Key(row["msg_key"]),
            row["dest"],
            row["subscription"] if row["subscription"] != row["dest"] else "the same",
            moment(row["key_us"]),
            moment(row["last_us"]),
            row["last_fate"] or "never delivered",
            *([_Words(row.get("cause") or "-")] if caused else []),
        ]
        for row in listed
    ]
    of = max(number, len(rows)) if len(rows) >= LISTED else len(rows)
    table = _table([*heads, *(["cause"] if caused else [])], rows, of, where)
    return _section(heading, explanation, table)


def _latency(findings: Findings) -> str:
    if not findings.latency.rows:
        return _section("Latency", "No delivery was done.")
    heads = ["service", "destination", "consumer", "messages"]
    heads += [f"end to end {label}" for label in PERMILLES]
    heads += [f"handler {label}" for label in PERMILLES]
    rows = [
        [
            row["service"],
            row["dest"],
            row["consumer"],
            row["n"],
            *(duration(row[f"end_to_end_{label}_us"]) for label in PERMILLES),
            *(duration(row[f"handler_{label}_us"]) for label in PERMILLES),
        ]
        for row in findings.latency.rows
    ]
    timed = [row for row in findings.latency.rows if row["end_to_end_histogram"]]
    told = findings.audit.get("clocks") or []
    skewed = sum(abs(clock["believed_us"]) >= TOLD_US for clock in told)
    whose = (
        "clock of one process differs" if skewed == 1 else f"clocks of {skewed:,} processes differ"
    )
    return _section(
        "Latency",
        "Of deliveries that were done. End to end is from the broker's timestamp (its clock, to the"
        " millisecond) to settlement; percentiles are within 1 %."
        + (
            f" <b>With care:</b> the {whose} from the broker's (see the findings),"
            " and times are not corrected for it."
            if skewed
            else ""
        ),
        _table(heads, rows, findings.latency.of, "tables/delivery_latency (Parquet, by minute)"),
        plots.time_budget(findings.latency.rows),
        plots.latency_curves(timed) if timed else "",
    )


def _redelivery(findings: Findings) -> str:
    if not findings.redelivery.rows:
        return _section("Redelivery", "None.")
    rows = [
        [
            moment(row["hour_us"])[:16],
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
        for row in findings.redelivery.rows
    ]
    heads = ["hour", "destination", "consumer", "deliveries", "redelivered", "share"]
    heads += ["most attempts", "done late", "delay planned", "delay actual", "late by, p95"]
    return _section(
        "Redelivery",
        "By hour (UTC), the latest first; hours without a redelivery are left out."
        " <b>done late</b>: messages that a second or later attempt did;"
        " delays are means over the redeliveries that were scheduled here.",
        _table(heads, rows, findings.redelivery.of, "tables/redelivery (Parquet)"),
    )


def _dead_letters(findings: Findings) -> str:
    if not findings.dead_letters.rows:
        return _section("Dead letters", "None.")
    rows = [
        [
            _Lines((row["dest"], row["reason"])),
            _Lines((row["error_type"] or "-", row.get("error_place") or "-")),
            row["n"],
            f"{100 * row['share']:.1f} %",
            row["attempts_max"],
            _Lines((moment(row.get("first_us")), moment(row.get("last_us")))),
            row["sample_keys"] or [],
        ]
        for row in findings.dead_letters.rows
    ]
    heads = ["destination, reason", "error, place", "messages", "share", "most attempts"]
    heads += ["first, last", "look at"]
    return _section(
        "Dead letters",
        "Messages that were given up, by the class of the last error.",
        plots.causes(findings.dead_letters.rows),
        _table(heads, rows, findings.dead_letters.of, "tables/dead_letters (Parquet)"),
    )


def _writers(findings: Findings) -> str:
    if not findings.writers.rows:
        return ""
    rows = [
        [
            row["service"],
            row["host"],
            row["version"],
            row["broker"],
            row["processes"],
            row["open"],
            moment(row["first_us"]),
            moment(row["last_us"]),
        ]
        for row in findings.writers.rows
    ]
    heads = ["service", "host", "jmsx", "broker", "processes", "not ended", "first line"]
    heads += ["last line"]
    return _section(
        "Who wrote",
        "Processes by service, host and version of jmsx.",
        _table(heads, rows, findings.writers.of, "tables/event_log_health (Parquet)"),
    )


def _completeness(findings: Findings) -> str:
    completeness = findings.audit["completeness"]
    faults = completeness["faults"]
    listed = "".join(f"<li>{_text(fault, 300)}</li>" for fault in faults[:ROWS])
    if len(faults) > ROWS:
        listed += f"<li>{len(faults) - ROWS:,} more in summary.json</li>"
    parts = [f"<ul>{listed}</ul>\n" if listed else ""]
    if findings.logs.rows:
        numbers = ("lines", "expected", "missing", "repeated", "dropped")
        rows = [
            [
                row["service"],
                row["writer"],
                *(row[number] for number in numbers),
                row["ended"],
                moment(row["last_us"]),
            ]
            for row in findings.logs.rows
        ]
        heads = ["service", "writer", *numbers, "ended", "last line"]
        parts.append(_table(heads, rows, findings.logs.of, "tables/event_log_health (Parquet)"))
    parts.append(_quarantined(findings.quarantine))
    parts.append(_other_files(findings.files))
    return _section(
        "Is the log whole?",
        "Each process numbers its lines, so what is missing can be told."
        + (" Nothing is." if completeness["complete"] else ""),
        *parts,
    )


def _quarantined(quarantine: Shown) -> str:
    if not quarantine.rows:
        return ""
    rows = [[row["path"], row["line"], _Words(row["why"])] for row in quarantine.rows]
    table = _table(["segment", "line", "why"], rows, quarantine.of, "tables/quarantine (Parquet)")
    return (
        f"<h3>Put aside: {counted(quarantine.of, 'line')}</h3>\n"
        f"<p>They are in no number above; line 0 is the segment as a whole.</p>\n{table}"
    )


def _other_files(found: Shown) -> str:
    if not found.rows:
        return ""
    rows = [
        [
            row["path"],
            row["what"],
            "no" if row["unread"] else "yes, or not needed",
            _Words(row["why"]),
        ]
        for row in found.rows
    ]
    table = _table(["file", "what", "read", "why"], rows, found.of, "tables/files (Parquet)")
    return f"<h3>Files that are not closed segments: {found.of:,}</h3>\n{table}"
