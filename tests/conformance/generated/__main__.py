"""The command line of the generated programs; `--help` tells."""

# ruff: noqa: T201 - printing is what this module is for

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conformance import brokers
from tests.conformance.generated.generator import program
from tests.conformance.generated.shrink import shrunk
from tests.conformance.generated.trial import Difference, Trial, running

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.conformance.scenario import Json

#: Programs at once; between two batches there is something to read.
_BATCH = 50


def main(arguments: Sequence[str] | None = None) -> int:
    """Run programs and give the exit code: 1 if any differs."""
    options = _parser().parse_args(arguments)
    logging.getLogger("jmsx").setLevel(logging.CRITICAL)  # failures are what programs are made of
    first, last = options.first, options.first + options.programs
    if options.print:
        for number in range(first, last):
            print(json.dumps(program(options.seed, number), ensure_ascii=False))
        return 0
    differ = chance = 0
    with running(options.broker, options.jobs) as trial:
        for begin in range(first, last, _BATCH):
            numbers = range(begin, min(begin + _BATCH, last))
            for found in trial.differences([program(options.seed, one) for one in numbers]):
                steady = trial.steady(found)
                differ, chance = (differ + 1, chance) if steady else (differ, chance + 1)
                _tell(found, steady, trial, options)
    print(f"{options.programs} programs, {differ} differ, {chance} differed by chance")
    return 1 if differ else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance.generated",
        description="Run random JMS programs on the Java client and on jmsx, and compare.",
    )
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--programs", type=int, default=50, metavar="N")
    parser.add_argument("--first", type=int, default=0, help="number of the first program")
    parser.add_argument("--broker", choices=brokers.KINDS, default="classic", help="jmsx's broker")
    parser.add_argument("--jobs", type=int, default=12, help="programs at once (default 12)")
    parser.add_argument("--json", action="store_true", help="one JSON object a difference")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write what differs there")
    parser.add_argument("--no-shrink", action="store_true", help="leave programs as they are")
    parser.add_argument("--print", action="store_true", help="print the programs, run nothing")
    return parser


def _tell(
    found: Difference, steady: Difference | None, trial: Trial, options: argparse.Namespace
) -> None:
    """Report one difference, and keep it if it shows again."""
    name = found.program["id"]
    if steady is None:
        if not options.json:
            print(f"CHANCE {name}: {found.text}", flush=True)
        return
    small = steady if options.no_shrink else shrunk(steady, trial.differences)
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        kept = {**small.program, "id": name}
        text = json.dumps(kept, indent=1, ensure_ascii=False) + "\n"
        (options.keep / f"{name}.json").write_text(text, encoding="utf-8")
    if options.json:
        print(json.dumps(_as_json(name, small), ensure_ascii=False), flush=True)
        return
    print(f"DIFFERS {name}: {small.text}")
    rows = zip(small.program["steps"], small.java, small.reduced, small.jmsx, strict=True)
    for number, (step, java, reduced, jmsx) in enumerate(rows):
        print(f"{number:3} {json.dumps(step, ensure_ascii=False)}")
        for who, outcome in (("java", java), ("like", reduced), ("jmsx", jmsx)):
            if who != "like" or reduced != java:
                print(f"      {who} {json.dumps(outcome, ensure_ascii=False)}")
    sys.stdout.flush()


def _as_json(name: str, found: Difference) -> Json:
    return {
        "id": name,
        "difference": found.text,
        "steps": found.program["steps"],
        "java": found.java,
        "stomp_like": found.reduced,
        "jmsx": found.jmsx,
    }


if __name__ == "__main__":
    sys.exit(main())
