"""Rules, runbooks and the table of metrics, as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

from jmsx_dashboards.alerts import alerts
from jmsx_dashboards.boards import BOARDS
from jmsx_dashboards.model import Alert, Links, Recording, Settings, scaled, shortened
from jmsx_dashboards.recordings import recordings
from jmsx_prometheus.catalogue import LABELS, METRICS, PIPELINE, RAW_ONLY, SUPERVISOR, Metric

if TYPE_CHECKING:
    from collections.abc import Iterable

RULES_FILE: Final = "jmsx_rules.yml"
_WRITTEN: Final = "# Made by `jmsx dashboards export`.\n"


def rules(links: Links, settings: Settings) -> str:
    """Write Prometheus' recording and alerting rules."""
    scale = settings.timescale
    groups = [
        {
            "name": "jmsx.rules",
            "interval": shortened("30s", scale),
            "rules": [_recording(rule, scale) for rule in recordings(settings)],
        },
        {
            "name": "jmsx.alerts",
            **({"interval": shortened("30s", scale)} if scale != 1 else {}),
            "rules": [_alert(alert, links, scale) for alert in alerts(settings)],
        },
    ]
    return as_yaml({"groups": groups})


def runbook(alert: Alert) -> str:
    """Write what to do when `alert` fires."""
    quoted = {label: f"`{label}`" for label in alert.labels}
    held = "" if alert.wait == "0m" else f" for {alert.wait}"
    queries = "\n".join(f"```promql\n{query}\n```\n" for query in alert.queries)
    named = "this query" if len(alert.queries) == 1 else "these queries"
    asked = f", and {named}:\n\n{queries}" if queries else ""
    typed = "\n".join(alert.commands)
    commands = f"\nOn the command line:\n\n```sh\n{typed}\n```\n" if typed else ""
    return f"""# {alert.name}

Severity: {alert.severity}. {alert.description.format(**quoted)}

## Impact

{alert.impact}

## Look here first

Panel "{alert.panel}" of the board {_board_of(alert)}{asked or "."}
It fires when this has a value{held}:

```promql
{alert.expr}
```
{commands}
## Likely causes

{_bullets(alert.causes, quoted)}

## What to do

{_bullets(alert.steps, quoted)}
"""


def _board_of(alert: Alert) -> str:
    return next(
        f"`{board.uid}`"
        for board in BOARDS
        if alert.panel in {panel.title for panel in board.panels}
    )


@dataclass(frozen=True, slots=True)
class Cause:
    """What a `reason` of `jmsx_failures_total` means."""

    meaning: str
    first: str  #: what to look at
    fix: str


#: By reason.
CAUSES: Final = {
    "handler_error": Cause(
        "The handler raised `error_type`; the message will be delivered again.",
        "jmsx events tail EVENTS --kind redelivery.scheduled",
        "Nothing, if it stops by itself: that is what redeliveries are for. Else mend what the handler calls. Errors"
        " that no retry mends belong in `give_up_on`.",
    ),
    "max_redeliveries": Cause(
        "The handler raised `error_type` each time until the policy's limit; the message is a dead letter.",
        "jmsx dlq groups QUEUE --broker BROKER --events EVENTS",
        "Mend the cause, which the event log names with the place in the code, and jmsx's copies in their headers (what"
        " Classic has moved itself is `untold` without `--events`); then"
        " `jmsx dlq replay QUEUE --broker BROKER --dry-run`, and again without it.",
    ),
    "rejected": Cause(
        "The message can never be done: the handler raised `Reject`, an error of `give_up_on` or one that `retry_on`"
        " does not name, or the message does not fit what the handler takes.",
        "jmsx dlq show QUEUE --broker BROKER --events EVENTS",
        "Look at one message whole: who sent it? Mend the sender, or the handler; then replay.",
    ),
    "expired": Cause(
        "The time to live was over before a handler saw the message.",
        "jmsx broker stats QUEUE --broker BROKER",
        "A backlog, or senders who give too little time. Add consumers, or give more time.",
    ),
    "undecodable": Cause(
        "The body or a header cannot be read as what it says to be; no handler saw it.",
        "jmsx dlq show QUEUE --broker BROKER --events EVENTS",
        "Look who sent it: mostly a release that writes another format.",
    ),
    "dead_letter_refused": Cause(
        "The broker did not take a dead letter; the original stays, and comes again.",
        "jmsx check BROKER",
        "Grant writing to the dead letter queue, or make room at the broker.",
    ),
    "acknowledgement_dropped": Cause(
        "The connection was gone before the ACK: the broker delivers again what was done.",
        "jmsx events tail EVENTS --kind conn.lost",
        "Give the consumer a store of what was done (`dedupe=`), then look for what breaks the connections.",
    ),
    "send_refused": Cause(
        "The broker answered a SEND with an error; the sender was told by an exception.",
        "jmsx check BROKER",
        "The exception has the broker's words, or the log (`send refused`) where nobody waited for the answer: no"
        " permission, or the queue is full.",
    ),
}


def causes() -> str:
    """Return the page that explains each failure reason; the first table of the overview links to it."""
    parts = "\n".join(
        f"## {reason}\n\n{one.meaning}\n\n```sh\n{one.first}\n```\n\n{one.fix}\n"
        for reason, one in CAUSES.items()
    )
    return f"""# Causes

What stands in the column `reason` of "Failed messages", what to look at first, and what to do. Where and since when:

```promql
sum by (destination, consumer, reason, error_type) (increase(jmsx_failures_total[1h])) > 0
```

{parts}"""


def reading() -> str:
    """Write how to read the panels that no alert watches."""
    parts = "\n".join(
        f"## {board.title}\n\n{board.description}\n\n"
        + "".join(f"- **{panel.title}**: {panel.description}\n" for panel in board.panels)
        for board in BOARDS
    )
    return f"""# How to read the boards

Begin with the overview: its first fold names queue, cause, since when, and the runbook. Panels lead from the overview
to the destination, from there to reliability and to the broker; the pipeline tells whether the evidence is complete.

{parts}"""


def metrics_table() -> str:
    """Write the catalogue for readers."""
    rows = _rows(METRICS)
    pipeline = "\n".join(
        f"| `{row.name}` | {', '.join(f'`{label}`' for label in row.labels)} | {row.help} |"
        for row in PIPELINE
    )
    supervisor = _rows(SUPERVISOR)
    labels = "\n".join(f"| `{label}` | {about} |" for label, about in sorted(LABELS.items()))
    raw = "\n".join(f"- `{name}`: {reason}." for name, reason in RAW_ONLY.items())
    return f"""# Metrics of jmsx

Made from `adapters/jmsx_prometheus/catalogue.py`.

| name | type | labels | what it counts |
|---|---|---|---|
{rows}

## Of a report

Gauges in a file for node_exporter's textfile collector; made by `jmsx_prometheus.pipeline`.

| name | labels | what it says |
|---|---|---|
{pipeline}

## Of a supervisor

`jmsx run` with `--workers` has these beside those of the workers, each of which has the label `worker`.

| name | type | labels | what it counts |
|---|---|---|---|
{supervisor}

## Labels

| label | what it says, and what bounds it |
|---|---|
{labels}

## On no panel and in no alert

{raw}
"""


def _rows(metrics: Iterable[Metric]) -> str:
    return "\n".join(
        f"| `{row.name}` | {row.kind} | {', '.join(f'`{label}`' for label in row.labels)} | {row.help} |"
        for row in metrics
    )


def _recording(rule: Recording, timescale: float = 1.0) -> dict[str, Any]:
    return {"record": rule.record, "expr": scaled(rule.expr, (), timescale)}


def _alert(alert: Alert, links: Links, timescale: float = 1.0) -> dict[str, Any]:
    waiting = {} if alert.wait == "0m" else {"for": shortened(alert.wait, timescale, alert.least)}
    return {
        "alert": alert.name,
        "expr": scaled(alert.expr, alert.seconds, timescale),
        **waiting,
        "labels": {"severity": alert.severity.value},
        "annotations": links.annotations(alert),
    }


def _bullets(lines: Iterable[str], quoted: dict[str, str]) -> str:
    return "\n".join(f"- {line.format(**quoted)}" for line in lines)


def as_yaml(value: object) -> str:
    """Return `value` as YAML, with a comment that says that jmsx wrote it."""
    return _WRITTEN + yaml.safe_dump(value, sort_keys=False, width=10_000, allow_unicode=True)
