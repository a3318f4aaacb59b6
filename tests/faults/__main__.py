"""The command line of the fault bench; `--help` tells."""

# ruff: noqa: T201 - printing is what this module is for

from __future__ import annotations

import argparse
import json
import math
import random
import signal
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jmsx.errors import JmsxError
from tests.faults.bench import run_case
from tests.faults.brokers import KINDS, Stable
from tests.faults.cases import CASES
from tests.faults.rounds import Rounds, Sum
from tests.faults.settings import Plan
from tests.faults.soak import soak
from tests.faults.workload import BenchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.faults.account import Account
    from tests.faults.soak import Soak


#: Messages of a round of a case.
_SIZE: Final = 300


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases and give the exit code: 0 all kept, 1 a promise was broken, 2 a case had no end, or wrong usage."""
    options = _parser().parse_args(arguments)
    if options.random is not None or options.round is not None:
        return _play(options)
    names = ["soak"] if options.soak else options.case or CASES
    with Stable(options.broker, tls=options.tls) as stable:
        return max(_attempt(name, stable, options) for name in names)


def _attempt(name: str, stable: Stable, options: argparse.Namespace) -> int:
    """Run one case, print its account, and give its exit code."""
    # a case's chances do not depend on which others are run
    chance = random.Random(f"{options.seed} {name}")
    result: Account | Soak
    try:
        if options.soak:
            result = soak(stable, chance, options.soak)
        else:
            result = run_case(
                name,
                stable,
                chance,
                rounds=options.rounds,
                size=options.messages or _SIZE,
                keep=options.keep,
            )
    except (BenchError, JmsxError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        stable.discard()
        return 2
    print(json.dumps(result.as_json()) if options.json else _line(result), flush=True)
    return int(result.failed)


def _play(options: argparse.Namespace) -> int:
    """Play random rounds, a line for each, and give the exit code."""
    total = Sum()
    with Stable(options.broker, patient=True) as stable:
        rounds = Rounds(
            stable=stable,
            seed=options.seed,
            size=options.messages,
            fixed=options.plan or {},
            keep=options.keep,
        )
        one = options.round
        for played in rounds.play_for(options.random) if one is None else [rounds.play(one)]:
            print(*played.lines(), sep="\n", flush=True)
            total.add(played)
    print(total.line())
    return int(total.failed > 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults",
        description="Do what goes wrong between a client and its broker, and count every message.",
    )
    parser.add_argument("--broker", choices=KINDS, default="classic")
    parser.add_argument("--tls", action="store_true", help="over stomp+ssl")
    parser.add_argument(
        "--case", action="append", choices=tuple(CASES), help="one case; may be repeated"
    )
    parser.add_argument("--rounds", type=_positive, default=1, help="of each case (default 1)")
    parser.add_argument("--messages", type=_positive, help="a round (default 300, or drawn)")
    parser.add_argument(
        "--soak",
        type=_minutes,
        metavar="MINUTES",
        help="instead of the cases: faults at random for so long, and does the consumer grow",
    )
    parser.add_argument(
        "--random",
        type=_minutes,
        metavar="MINUTES",
        help="instead of the cases: for so long rounds of random settings, behind a hostile proxy and with kills",
    )
    parser.add_argument(
        "--round", type=int, metavar="K", help="of those play only number K, which --seed makes"
    )
    parser.add_argument(
        "--plan",
        type=_plan,
        metavar="JSON",
        help='settings that all of those have, such as {"batch": 2, "non_blocking": true}',
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="journals and logs of rounds that failed go there"
    )
    parser.add_argument("--seed", type=int, default=0, help="of all that is left to chance")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each case")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, not {text}")
    return int(text)


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = math.nan
    if not 0 < minutes < math.inf:
        raise argparse.ArgumentTypeError(f"must be minutes, more than 0, not {text}")
    return minutes


def _plan(text: str) -> dict[str, Any]:
    known = {each.name for each in fields(Plan)}
    try:
        given: dict[str, Any] = json.loads(text)
        wrong = sorted(given.keys() - known)
    except (ValueError, AttributeError):
        raise argparse.ArgumentTypeError(
            f"must be an object of settings in JSON, not {text}"
        ) from None
    if wrong:
        names = ", ".join(sorted(known))
        raise argparse.ArgumentTypeError(f"must be settings, out of {names}; {wrong[0]} is none")
    return given


def _line(result: Account | Soak) -> str:
    counts = " ".join(f"{name}={value}" for name, value in result.as_json().items() if value)
    return f"{'FAILED' if result.failed else 'kept  '} {counts}"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # brokers are ended, folders removed
    sys.exit(main())
