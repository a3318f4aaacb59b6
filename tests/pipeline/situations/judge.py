"""Run a report over a situation, and tell what it said wrong."""

from __future__ import annotations

import json
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from typer.testing import CliRunner

from jmsx import plugins
from jmsx.cli.commands import app
from tests.pipeline.situations import (  # noqa: F401 - each adds its situations
    closed,
    fanout,
    healthy,
    in_hand,
    incomplete,
    lost,
    mixed,
    moved,
    names,
    operations,
    payments,
    readers,
    shipping,
    spoilt,
    third_book,
    together,
    topology,
    unsettled,
    values,
)
from tests.pipeline.situations.scene import SITUATIONS, Scene, Situation
from tests.pipeline.situations.truth import Said, Truth

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SITUATIONS", "Judged", "by_a_call", "by_the_command", "chosen", "judge"]


@dataclass(frozen=True)
class Judged:
    """What a report said wrong of one situation."""

    situation: Situation
    faults: tuple[str, ...]  #: none where it said nothing wrong
    said: Said | None = None


def chosen(names_or_families: Sequence[str]) -> list[Situation]:
    """The situations of these names and families; all where none is named."""
    unknown = set(names_or_families) - {*SITUATIONS, *(one.family for one in SITUATIONS.values())}
    if unknown:
        raise ValueError(f"no situation or family: {', '.join(sorted(unknown))}")
    return [
        one
        for one in SITUATIONS.values()
        if not names_or_families or {one.name, one.family} & {*names_or_families}
    ]


def judge(
    situation: Situation,
    seed: int,
    *,
    engine: str,
    messages: int,
    skewed: bool = False,
    keep: Path | None = None,
    by_command: bool = False,
) -> Judged:
    """Write the log of a situation, have it reported, and hold what was said against the truth."""
    ask = by_the_command if by_command else by_a_call
    with tempfile.TemporaryDirectory(prefix="jmsx-situation-") as scratch:
        root = Path(scratch) if keep is None else keep / situation.name
        events = root / "events"
        events.mkdir(parents=True)
        made = situation.make(Scene(events, seed, messages, skewed))
        truths = made if isinstance(made, list) else [made]
        try:
            said = ask(events, root / "out", engine, truths[0].options)
        except Exception:  # noqa: BLE001 - whatever it is, a traceback is a wrong answer
            return Judged(situation, (f"no report: {traceback.format_exc(limit=-2)}",))
        return Judged(situation, _least(truths, said), said)


def _least(truths: list[Truth], said: Said) -> tuple[str, ...]:
    """The faults by that truth of which the fewest words are wrong."""
    faults = [truth.faults(said) for truth in truths]
    least = min(faults, key=len)
    return tuple(least)


def by_a_call(events: Path, out: Path, engine: str, options: dict[str, Any]) -> Said:
    """Call the engine as the command does; what it raises is raised."""
    given: dict[str, Any] = {}
    if "deadline" in options:
        given["deadline_seconds"] = float(options["deadline"])
    if "expect" in options:
        given["expect"] = options["expect"]
    plugins.load("jmsx.reports", engine)(events, out, **given)
    return Said(json.loads((out / "summary.json").read_bytes()), None, _quarantine(out))


def by_the_command(events: Path, out: Path, engine: str, options: dict[str, Any]) -> Said:
    """Run `jmsx report` in this process; raises what it raised, and LookupError where it said nothing."""
    arguments = ["report", str(events), "--out", str(out), "--engine", engine]
    if "deadline" in options:
        arguments += ["--deadline", str(options["deadline"])]
    for service, count in options.get("expect", {}).items():
        arguments += ["--expect", f"{service}={count}"]
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if result.exit_code not in (0, 2, 3):
        raise LookupError(f"exit {result.exit_code}: {result.output[-2000:]}")
    return Said(json.loads((out / "summary.json").read_bytes()), result.exit_code, _quarantine(out))


def _quarantine(out: Path) -> tuple[str, ...]:
    folder = out / "tables" / "quarantine"
    return tuple(pl.read_parquet(folder)["path"]) if folder.exists() else ()
