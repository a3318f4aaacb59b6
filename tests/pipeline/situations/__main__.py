"""
Judge the audit by situations of which the truth is known.

    python -m tests.pipeline.situations [--engine local|spark] [--seed N] [--seeds N] [--messages N]
                                        [--skewed] [--by-command] [--keep DIR] [--list] [NAME…]

NAME is a situation or a family of them. Ends with 1 if anything was said wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.pipeline.situations.judge import Judged, chosen, judge

if TYPE_CHECKING:
    from collections.abc import Iterator


def main() -> int:
    """Judge, tell what is wrong, and count."""
    options = _options()
    situations = chosen(options.names)
    if options.list:
        for one in situations:
            _out(f"{one.family:12} {one.name:45} {one.told}")
        return 0
    begun, wrong = time.monotonic(), Counter[str]()
    with _running(options.engine):
        for seed in range(options.seed, options.seed + options.seeds):
            for one in situations:
                judged = judge(
                    one,
                    seed,
                    engine=options.engine,
                    messages=options.messages,
                    skewed=options.skewed,
                    keep=options.keep,
                    by_command=options.by_command,
                )
                _tell(judged, seed)
                wrong[one.name] += bool(judged.faults)
    asked = len(situations) * options.seeds
    right = asked - sum(wrong.values())
    seconds = time.monotonic() - begun
    _out(f"{right} of {asked} judged rightly ({len(situations)} kinds), {seconds:.0f} s")
    return int(right < asked)


@contextmanager
def _running(engine: str) -> Iterator[None]:
    """Have one Spark for all situations, where it is the engine: starting one takes longer than a situation."""
    if engine != "spark":
        yield
        return
    from jmsx_spark.session import session  # noqa: PLC0415 - the local engine needs no pyspark

    with (
        tempfile.TemporaryDirectory(prefix="jmsx-spark-") as scratch,
        session(Path(scratch) / "spark.log"),
    ):
        yield


def _out(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _tell(judged: Judged, seed: int) -> None:
    name = f"{judged.situation.family}/{judged.situation.name}"
    for fault in judged.faults:
        _out(f"WRONG {name} (seed {seed}): {fault}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.pipeline.situations")
    parser.add_argument("names", nargs="*", metavar="NAME", help="situations or families")
    parser.add_argument("--engine", default="local", choices=("local", "spark"))
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--messages", type=int, default=240, help="of each healthy trade")
    parser.add_argument(
        "--skewed",
        action="store_true",
        help="have clocks some minutes wrong, where none is told of",
    )
    parser.add_argument(
        "--by-command", action="store_true", help="run `jmsx report`, and look at its exit code"
    )
    parser.add_argument("--keep", type=Path, help="leave logs and reports below this folder")
    parser.add_argument("--list", action="store_true", help="only name the situations")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
