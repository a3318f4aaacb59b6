"""`jmsx check`: whether a broker, and an application on it, will do what they should; before anything runs."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Annotated, Final

import typer

from jmsx.check.finding import Finding, Level
from jmsx.cli.printing import JsonOption, print_json
from jmsx.cli.run import load_app
from jmsx.cli.terminal import console, visible
from jmsx.errors import ConfigurationError

_out = console()

_STYLES: Final = {
    Level.OK: "green",
    Level.NOTE: "dim",
    Level.WARNING: "yellow",
    Level.FAILURE: "red",
}


def check(
    url: Annotated[
        str | None, typer.Argument(envvar="JMSX_BROKER_URL", help="The broker; else the app's.")
    ] = None,
    *,
    target: Annotated[
        str | None, typer.Option("--app", help="MODULE:APP whose options and consumers to check.")
    ] = None,
    guarantees: Annotated[
        bool,
        typer.Option(
            "--guarantees",
            help="Try what the table of guarantees promises, on queues of its own (jmsx.check.…); a minute.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """
    Check a broker, and an application on it; exit code 1 if something does not work.

    Example: jmsx check stomp://mq:61613 --guarantees
    """
    if not logging.getLogger().isEnabledFor(logging.INFO):
        logging.getLogger("jmsx").setLevel(logging.CRITICAL)  # the findings say the same
    from jmsx.check.preflight import examine  # noqa: PLC0415 - with it comes the client, which `report` does without

    app = load_app(target) if target is not None else None
    url = url or (app.url if app is not None else None)
    if url is None:
        raise ConfigurationError("nothing to check: give a broker URL, or --app with one")
    findings = []
    for finding in examine(url, app.options if app is not None else {}, app, thorough=guarantees):
        findings.append(finding)
        if not as_json:
            _tell(finding)
    passed = not any(finding.level is Level.FAILURE for finding in findings)
    if as_json:
        rows = [asdict(finding) for finding in findings]
        print_json({"ok": passed, "findings": rows})
    if not passed:
        raise typer.Exit(1)


def _tell(finding: Finding) -> None:
    """Print one row, as soon as it is known: what follows may take its time. Whole lines where no person looks on."""
    told = visible(finding.told, keep="")  # a line break would let a broker write rows of its own
    if not _out.is_terminal:
        _out.print(f"{finding.level:8} {finding.check:24} {told}")
        return
    from rich.table import Table  # noqa: PLC0415 - only this command draws one, and on a terminal
    from rich.text import Text  # noqa: PLC0415 - only this command draws one, and on a terminal

    row = Table.grid(padding=(0, 2), pad_edge=False)
    row.add_column(width=7)
    row.add_column(width=24)
    row.add_column(overflow="fold")
    level = Text(finding.level.value, style=_STYLES[finding.level])
    row.add_row(level, Text(finding.check), Text(told))
    _out.print(row)
