"""
How fast jmsx is beside its rivals: `uv run python -m tests.benchmarks [--suite ...] [--broker ...] [--only ...]`.

All ways take turns on one real broker with a normal Java machine, forwards and backwards; every ratio is taken within
one turn, and the median of the ratios is told, so that a machine which is busy now and then spoils little. CPU is that
of the client's process alone. `--full` runs everything on both brokers and writes the README beside this file; with
`--json`, all runs are written down after each suite, of which `--made-of` makes the README without a broker.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.benchmarks import hand_overs, readme
from tests.benchmarks.bounds import Results
from tests.benchmarks.brokers import Broker
from tests.benchmarks.goals import GOALS, Runs, ratio
from tests.benchmarks.growth import growths
from tests.benchmarks.one_thread import costs
from tests.benchmarks.ways import SUITES, Way, counterparts

if TYPE_CHECKING:
    from collections.abc import Sequence

_README: Final = Path(__file__).parent / "README.md"


def turns(broker: Broker, ways: Sequence[Way], messages: int, repeats: int) -> Runs:
    """Run all ways in turns, every other time backwards."""
    runs: Runs = {way.label: [] for way in ways}
    for turn in range(repeats):
        for way in ways if turn % 2 == 0 else ways[::-1]:
            count = max(messages // way.share, 100)
            if turn == 0 and way.who.startswith("java"):
                broker.run(way, count)  # its compiler sees what it will do
            run = broker.run(way, count)
            runs[way.label].append(run)
            told = " ".join(f"{name} {value:,.1f}" for name, value in run.items())
            print(f"  {turn + 1} {way.label:28} {told}", file=sys.stderr, flush=True)
    return runs


def table(runs: Runs, ways: Sequence[Way], broker: str) -> str:
    """Medians of each way, and the ratios of ours."""
    lines = [f"{'':28} {'k/s':>8} {'CPU us':>8} {'p50 us':>8}  throughput and CPU to"]
    for way in ways:
        done = [run for run in runs[way.label] if run]
        if not done:
            lines.append(f"{way.label:28} failed")
            continue
        figures = [
            statistics.median(run[name] for run in done) if name in done[0] else None
            for name in ("rate", "us", "p50")
        ]
        rate = "" if figures[0] is None else f"{figures[0] / 1000:.2f}"
        others = [f"{one:.1f}" if one is not None else "" for one in figures[1:]]
        told = []
        for other in counterparts(way, broker) if way.who == "jmsx" else ():
            both = [ratio(runs, (way.label, other.label), one) for one in ("rate", "us", "p50")]
            shown = "/".join("-" if one is None else f"{one:.2f}" for one in both[:2])
            if any(one is not None for one in both):
                told.append(f"{other.label} {shown}")
        lines.append(f"{way.label:28} {rate:>8} {others[0]:>8} {others[1]:>8}  {', '.join(told)}")
    return "\n".join(lines)


def reached(suite: str, runs: Runs, broker: str) -> str:
    """Of each goal of a suite what was reached, the worst first."""
    lines = []
    for goal in GOALS:
        if goal.suite != suite:
            continue
        found = [(ratio(runs, pair, goal.figure), pair) for pair in goal.pairs]
        worst = sorted(((one, pair) for one, pair in found if one is not None), reverse=goal.most)
        for one, pair in worst:
            sign = "<=" if goal.most else ">="
            verdict = "met" if goal.met(one, broker) else "MISSED"
            lines.append(
                f"{verdict:6} {one:6.2f} {sign} {goal.bound(broker):4.2f}  {goal.text}: {pair[0]}"
            )
    return "\n".join(lines)


def main() -> None:
    """Measure, and print tables; or write the README."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--suite", default="consume,produce", help=f"of {', '.join(SUITES)}")
    parser.add_argument("--broker", default="classic", help="classic,artemis")
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="parts of labels, with commas between them")
    parser.add_argument("--json", type=Path, help="write all runs there")
    parser.add_argument("--full", action="store_true", help="everything, and write the README")
    parser.add_argument("--made-of", type=Path, help="write the README of these runs")
    given = parser.parse_args()
    if given.made_of is not None:
        told = json.loads(given.made_of.read_text())
        _write_readme({tuple(key.split()): runs for key, runs in told["runs"].items()}, told["of"])
        return
    suites = list(SUITES) if given.full else given.suite.split(",")
    brokers = ["classic", "artemis"] if given.full else given.broker.split(",")
    wanted = [word for word in given.only.split(",") if word]
    results: Results = {}
    for kind in brokers:
        with Broker(kind) as broker:
            for suite in suites:
                ways = [
                    way
                    for way in SUITES[suite](kind)
                    if not wanted or any(word in way.label for word in wanted)
                ]
                runs = turns(broker, ways, given.messages, given.repeats)
                results[kind, suite] = runs
                _keep(results, given)
                print(f"\n{kind}, {suite}, load {os.getloadavg()[0]:.1f}")
                print(table(runs, ways, kind))
                print(reached(suite, runs, kind), flush=True)
            grown = growths(broker) if given.full else []
        if given.full:
            results[kind, "growth"] = {one["what"]: [one["figures"]] for one in grown}
            _keep(results, given)
    if given.full:
        _write_readme(results, readme.of(given.messages, given.repeats))


def _keep(results: Results, given: argparse.Namespace) -> None:
    """Write down all runs that there are, and of what they are."""
    if given.json is not None:
        runs = {f"{kind} {suite}": runs for (kind, suite), runs in results.items()}
        told = {"of": readme.of(given.messages, given.repeats), "runs": runs}
        given.json.write_text(json.dumps(told, indent=1))


def _write_readme(results: Results, of: Sequence[str]) -> None:
    """Measure what needs no broker, and write the page."""
    handed = hand_overs.measured(8_000, 5)
    _README.write_text(readme.made(results, costs(2_000, 15), of, handed=handed))


if __name__ == "__main__":
    main()
