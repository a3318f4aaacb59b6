"""The root of the command line: which commands there are, and how errors reach the user."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import sysconfig
import traceback
from copy import copy
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from jmsx import plugins
from jmsx.cli import exits
from jmsx.cli.check import check
from jmsx.cli.demo import demo
from jmsx.cli.dlq import app as dlq
from jmsx.cli.events import app as events
from jmsx.cli.explain import explain
from jmsx.cli.interrupts import is_interruption
from jmsx.cli.messages import browse, send
from jmsx.cli.report import ReportCommand, report
from jmsx.cli.run import ImportFailedError, run_app
from jmsx.cli.terminal import VisibleFormatter, console
from jmsx.cli.writing import worded
from jmsx.errors import JmsxError

if TYPE_CHECKING:
    from collections.abc import Callable


def _listen(context: Any, _parameter: object, verbose: bool) -> None:  # noqa: FBT001 - click's call
    """Log from INFO up."""
    if verbose and not context.resilient_parsing:
        logging.getLogger().setLevel(logging.INFO)


class _Root(TyperGroup):
    """Takes --verbose behind every command, as well as before it."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Do as the base class does."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            self._have_heed(command)
        return command

    def _have_heed(self, command: Any) -> None:
        """Give the command, and those below it, the option that stands here."""
        if not any("--verbose" in one.opts for one in command.params):
            verbose = copy(next(one for one in self.params if "--verbose" in one.opts))
            verbose.expose_value, verbose.callback = False, _listen
            command.params.append(verbose)
        for below in getattr(command, "commands", {}).values():
            self._have_heed(below)


app = typer.Typer(
    name="jmsx",
    cls=_Root,
    help="Reliable messaging for Python services on ActiveMQ, over STOMP.",
    epilog="\n\n".join(
        ("Exit codes:", *(f"{code}: {meaning}" for code, meaning in exits.MEANINGS.items()))
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Panels and colours only on a terminal: loading rich takes a third of the time of `jmsx --help`. Plain help cuts
    # the description of a command at the end of the line, so lines are long.
    rich_markup_mode="rich" if os.isatty(1) else None,
    context_settings={"terminal_width": 120},
)
app.command()(browse)
app.command()(check)
app.command()(demo)
app.command()(explain)
app.command("run")(run_app)
app.command(cls=ReportCommand)(report)
app.command()(send)
app.add_typer(dlq, name="dlq")
app.add_typer(events, name="events")

_err = console(stderr=True)


def _version(asked: bool) -> None:  # noqa: FBT001 - typer's call
    """Print the version, and leave."""
    if asked:
        typer.echo(f"jmsx {version('jmsx')}")
        raise typer.Exit


@app.callback()
def root(
    *,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens.")] = False,
    _: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Reliable messaging for Python services on ActiveMQ, over STOMP."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(VisibleFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])


def run() -> int:
    """Run the command of `sys.argv`; returns the exit code."""
    for name in plugins.names("jmsx.commands"):
        try:
            app.add_typer(plugins.load("jmsx.commands", name), name=name)
        except JmsxError as error:
            _err.print(f"jmsx: no command {name!r}: {error}", style="yellow")
    try:
        code = app(standalone_mode=False)
    except JmsxError as error:
        if isinstance(error, ImportFailedError) and error.trace:
            _err.print(error.trace)
        _err.tell(f"error: {error}", style="red")
        return exits.FAILED
    except (KeyboardInterrupt, typer.Abort) as error:
        return _interrupted(error)
    except typer.Exit as leave:
        return leave.exit_code
    except Exception as error:  # noqa: BLE001 - the last resort: words, not a traceback
        show = getattr(error, "show", None)
        if show is not None:  # a mistake in the arguments, which typer explains itself
            _tell(show)
            return exits.WRONG_ARGUMENTS
        return _unexpected(error)
    return code if isinstance(code, int) else exits.DONE


def _interrupted(error: BaseException) -> int:
    """Say so, unless typer takes the end of a file, or of the pipe to a process, for a person's Ctrl-D."""
    if isinstance(error.__cause__, EOFError):
        return _unexpected(error.__cause__)
    _tell(lambda: _err.print("interrupted", style="yellow"))
    return exits.INTERRUPTED


def _tell(show: Callable[[], object]) -> None:
    """Show what has happened, where that can be written: the exit code tells it, too."""
    with contextlib.suppress(OSError):
        show()


def _unexpected(error: Exception) -> int:
    """Tell of an error that is none of jmsx: with its traceback if it is the user's code, or as a fault of ours."""
    if is_interruption(error):
        return _interrupted(error)
    ours = _ours(error)
    if not ours:
        _err.print("".join(traceback.format_exception(error)))
    if ours and isinstance(error, OSError):  # such as a full disk: no fault of jmsx's
        _err.print("error:", worded(error), style="red")
        return exits.FAILED
    _err.print(f"error: {type(error).__name__}: {error}", style="red")
    if ours:
        _err.print(f"jmsx {version('jmsx')}: this is a fault of ours; please report it")
    return exits.FAILED


def _ours(error: BaseException) -> bool:
    """Return whether no code but jmsx's and that of installed libraries was at work."""
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    for frame, _ in traceback.walk_tb(error.__traceback__):
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        file = frame.f_code.co_filename
        if not (package.startswith("jmsx") or file.startswith((*folders, "<frozen"))):
            return False
    return True
