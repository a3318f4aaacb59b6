"""`jmsx demo`: a real broker, a real application with real failures, and the proof that nothing was lost."""

from __future__ import annotations

import contextlib
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from jmsx import plugins
from jmsx.cli.interrupts import first_of_two
from jmsx.cli.printing import JsonOption, print_json, print_table
from jmsx.cli.terminal import console
from jmsx.cli.writing import writing
from jmsx.core.option_checks import unknown
from jmsx.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Progress

_out = console()
_err = console(stderr=True)


#: The kinds of brokers for which an adapter is installed, and the default one.
_KINDS: Final = plugins.names("jmsx.brokers")
_DEFAULT: Final = "classic"


def demo(
    *,
    messages: Annotated[int, typer.Option(min=1, help="How many messages to send.")] = 2000,
    app: Annotated[
        Path | None, typer.Option(help="A file with `app` and `messages(count)`.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where the evidence goes.")] = None,
    broker: Annotated[
        str, typer.Option(help=f"On which broker: {' or '.join(_KINDS)}.")
    ] = _DEFAULT,
    report: Annotated[
        bool, typer.Option(help="Have Spark audit the event log and make a page of it.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """
    Run a shop with failing handlers on a real broker, and account for every message.

    Example: jmsx demo --broker artemis --no-report
    """
    from jmsx.cli.trial import Trial, find_example, fresh_broker  # noqa: PLC0415 - not for `jmsx --help`

    if broker not in _KINDS:
        raise unknown("broker", broker, _KINDS)
    if not logging.getLogger().isEnabledFor(logging.INFO):
        logging.getLogger("jmsx").setLevel(logging.CRITICAL)  # the demo's handlers fail on purpose
    if report:
        try:
            plugins.load("jmsx.reports", "spark")  # raises before the run if it is missing
        except ConfigurationError as error:
            raise ConfigurationError(f"{error}; or leave the audit out: --no-report") from error
    folder = out or Path("jmsx-demo") / time.strftime("%Y%m%d-%H%M%S")
    with writing(str(folder) if out is None else f"--out {out}"):
        folder.mkdir(parents=True, exist_ok=True)
    trial = Trial(app or find_example(), folder, messages)
    with first_of_two(lambda: _drain(trial.interrupt)):
        _err.print("starting a broker (the first time it is fetched) …")
        with fresh_broker(broker) as running:
            with _progress(messages) as progress:
                trial.exchange(running, progress)
            report = report and not trial.interrupted
            if report:
                _err.print("accounting, by Spark …")
            result = trial.judge(running, with_report=report)
    if as_json:
        print_json(result.as_dict())
    else:
        _show(result)
    if trial.interrupted:
        raise typer.Exit(130 if result.passed else 1)
    if not result.passed:
        raise typer.Exit(1)


def _drain(interrupt: Callable[[], object]) -> None:
    _err.print("draining; once more aborts …")
    interrupt()


class _Bars:
    """One bar for sending, one for settling."""

    def __init__(self, progress: Progress, messages: int) -> None:
        self._progress = progress
        self._tasks = {
            phase: progress.add_task(phase, total=messages) for phase in ("sending", "draining")
        }

    def __call__(self, phase: str, done: int) -> None:
        task = self._progress.tasks[self._tasks[phase]]
        total = max(task.total or 0, done)
        self._progress.update(self._tasks[phase], completed=done, total=total)


@contextlib.contextmanager
def _progress(messages: int) -> Iterator[_Bars]:
    from rich import progress as parts  # noqa: PLC0415 - not for `jmsx --help`

    columns = (
        parts.TextColumn("{task.description}"),
        parts.BarColumn(),
        parts.MofNCompleteColumn(),
        parts.TimeElapsedColumn(),
    )
    with parts.Progress(*columns, console=_err.rich) as progress:
        yield _Bars(progress, messages)


def _show(result: Any) -> None:
    """Print a DemoResult, whose module is not loaded for `jmsx --help`."""
    names = ("sent", "processed", "redelivered", "dead_lettered", "left", "lost", "duplicates")
    rows = [(name.replace("_", " "), f"{getattr(result, name):,}") for name in names]
    print_table(("jmsx demo", "messages"), rows)
    _out.print(f"audit by Spark: {result.audit}")
    if result.agree:
        _out.print("metrics, event log and broker agree", style="green")
    for difference in result.differences:
        _out.print(f"disagreement: {difference}", style="red")
    for name in ("report", "events", "metrics"):
        if getattr(result, name):
            _out.print(f"{name}: {getattr(result, name)}")
