"""`jmsx run shop:app`: run an application until SIGTERM or Ctrl-C, then drain it."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import logging
import os
import sys
import tomllib
import traceback
from dataclasses import dataclass, field, fields, replace
from importlib.metadata import version
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, get_args

import typer

import jmsx
from jmsx.cli.printing import JsonOption, print_json
from jmsx.cli.terminal import console
from jmsx.cli.times import seconds as duration
from jmsx.clock import SystemClock
from jmsx.core.durations import seconds
from jmsx.core.option_checks import check_flag, check_names, check_text, kind_of, nearest
from jmsx.errors import ConfigurationError
from jmsx.log import counted, hear_again

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")

#: The levels of `logging`, as the option spells them.
LEVELS: Final = ("debug", "info", "warning", "error")

#: The environment variable with the broker's URL.
_URL: Final = "JMSX_BROKER_URL"

#: The prefix of all environment variables of jmsx.
_PREFIX: Final = "JMSX_"

#: Environment variables that adapters read, and for which `jmsx run` has no option.
OTHERS: Final = ("JMSX_ARTEMIS_URL", "JMSX_BROKER", "JMSX_CACHE", "JMSX_JAVA")

_err = console(stderr=True)


def _drain_timeout() -> float:
    from jmsx.app.draining import DRAIN_TIMEOUT  # noqa: PLC0415 - imports the whole client, which other commands do not need

    return DRAIN_TIMEOUT


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """The settings of `jmsx run`: from its options, else JMSX_* variables, else `[tool.jmsx]` of pyproject.toml."""

    app: str | None = None  #: MODULE:APP
    broker_url: str | None = None
    drain_timeout: float | str = field(default_factory=_drain_timeout)
    health: str | None = None
    workers: int = 1
    until_idle: float | str | None = None
    log_level: str | None = None
    factory: bool = False

    @classmethod
    def of(cls, folder: Path, **given: Any) -> RunSettings:
        """Read the settings in `folder`; those `given` as arguments (not None) win. Raises ConfigurationError."""
        settings = replace(_from_file(folder), **{k: v for k, v in given.items() if v is not None})
        for name in ("app", "broker_url", "health"):
            check_text(name.replace("_", "-"), getattr(settings, name))
        check_flag("factory", settings.factory)
        if (
            isinstance(settings.workers, bool)
            or not isinstance(settings.workers, int)
            or settings.workers < 1
        ):
            raise ConfigurationError(
                f"workers must be a whole number from 1, not {settings.workers!r}"
            )
        level = settings.log_level
        if level is not None:
            level = level.lower() if isinstance(level, str) else level
            if level not in LEVELS:
                raise ConfigurationError(
                    f"log-level must be one of {', '.join(LEVELS)}, not {settings.log_level!r}"
                )
        if settings.until_idle is not None:
            seconds("until-idle", settings.until_idle)
        limit = seconds("drain-timeout", settings.drain_timeout)
        return replace(settings, drain_timeout=limit, log_level=level)


def _from_file(folder: Path) -> RunSettings:
    file = folder / "pyproject.toml"
    try:
        told: Any = tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return RunSettings()
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"cannot read [tool.jmsx] of {file}: {error}") from error
    for table in ("tool", "jmsx"):
        told = told.get(table, {})
        if not isinstance(told, dict):
            raise ConfigurationError(
                f"{table} in {file} is {kind_of(told)}, and no table: write [tool.jmsx], and the settings below"
            )
    names = [one.name.replace("_", "-") for one in fields(RunSettings)]
    check_names("setting in [tool.jmsx]", told, names)
    if type(told.get("health")) is int:  # a port
        told["health"] = str(told["health"])
    return RunSettings(**{name.replace("-", "_"): value for name, value in told.items()})


def run_app(
    target: Annotated[
        str | None,
        typer.Argument(
            help="MODULE:APP, such as shop:app; else `app` under tool.jmsx in pyproject.toml."
        ),
    ] = None,
    *,
    url: Annotated[
        str | None, typer.Option(envvar=_URL, help="The broker; wins over the app's.")
    ] = None,
    drain_timeout: Annotated[
        str | None,
        typer.Option(
            envvar="JMSX_DRAIN_TIMEOUT", help="How long stopping may take, such as 25 or 1m. [25 s]"
        ),
    ] = None,
    health: Annotated[
        str | None,
        typer.Option(
            envvar="JMSX_HEALTH",
            help="HOST:PORT for /healthz, /readyz and /metrics; wins over the app's.",
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(envvar="JMSX_WORKERS", help="Processes that run the app. [1]")
    ] = None,
    until_idle: Annotated[
        str | None,
        typer.Option(
            envvar="JMSX_UNTIL_IDLE", help="End when nothing has come for so long, such as 5s."
        ),
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(envvar="JMSX_LOG_LEVEL", help=f"One of {', '.join(LEVELS)}.")
    ] = None,
    factory: Annotated[
        bool, typer.Option("--factory", help="APP is a function that returns the App.")
    ] = False,
    reload: Annotated[
        bool,
        typer.Option(
            "--reload", help="Start again when a Python file here changes; for development."
        ),
    ] = False,
    as_json: JsonOption = False,
    supervised: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """
    Run an application's consumers.

    Example: jmsx run shop:app --url stomp://broker:61613 --workers 4 --health 8080

    Each option may also be set by a variable (JMSX_WORKERS=4) or under tool.jmsx in pyproject.toml (workers = 4); the
    option wins, then the variable. What it says goes to standard error; with --json to standard output, a line of JSON
    each: first `app`, `version`, `broker`, `consumers` and `workers` (not with --reload), then what is `said` when
    (`at`). SIGTERM or Ctrl-C drains, a second one aborts. Exit code 0: drained; 1: not all could be drained, or it
    could not run; 130: aborted.
    """
    settings = RunSettings.of(
        Path.cwd(),
        app=target,
        broker_url=url,
        drain_timeout=None if drain_timeout is None else duration("--drain-timeout", drain_timeout),
        health=health,
        workers=workers,
        until_idle=None if until_idle is None else duration("--until-idle", until_idle),
        log_level=log_level,
        factory=factory or None,
    )
    if settings.log_level is not None:
        logging.getLogger().setLevel(settings.log_level.upper())
    if settings.app is None:
        raise ConfigurationError(
            'jmsx run needs MODULE:APP, such as shop:app, or app = "shop:app" in [tool.jmsx]'
        )
    announce = _also_unread(_say_as_json if as_json else _err.print)
    if supervised is None:
        for words in misspelt(os.environ):
            announce(words)
    if supervised is None and (settings.workers > 1 or reload):
        app = None if reload else _prepared(settings)
        where = settings.health or (app.health if app is not None else None)
        verbose = logging.getLogger().isEnabledFor(logging.INFO)
        from jmsx.cli.supervisor import Supervisor  # noqa: PLC0415 - imports the whole client, which other commands do not need

        supervisor = Supervisor(
            _command(settings, verbose=verbose, as_json=as_json),
            variables={} if settings.broker_url is None else {_URL: settings.broker_url},
            count=settings.workers,
            health=where,
            drain_timeout=float(settings.drain_timeout),
            reload=Path.cwd() if reload else None,
            announce=announce,
        )
        if app is not None:
            _introduce(settings, app, counted(settings.workers, "worker"), as_json=as_json)
        code = supervisor.run()
        if code:
            raise typer.Exit(code)
        return
    app = _prepared(settings)
    if supervised is not None:
        _run_supervised(settings, app, supervised, announce)
        return
    _introduce(settings, app, "Ctrl-C drains", as_json=as_json)
    app.run(float(settings.drain_timeout), until_idle=settings.until_idle, announce=announce)
    announce("drained")


def misspelt(variables: Iterable[str]) -> list[str]:
    """Return a warning for each variable that begins with JMSX_ and is unknown; it may still be the app's own."""
    options = inspect.signature(run_app, eval_str=True).parameters.values()
    given = (getattr(one, "envvar", None) for each in options for one in get_args(each.annotation))
    known = [*OTHERS, *filter(None, given)]
    told = []
    for name in sorted(variables):
        if name.startswith(_PREFIX) and name not in known:
            near = nearest(name, known)
            hint = f"; did you mean {near}?" if near else ""
            told.append(f"{name} is set, and jmsx run does not know it{hint}")
    return told


def _also_unread(say: Callable[[T], object]) -> Callable[[T], object]:
    """Return `say`, so that a full disk, or a closed other end of the pipe, ends nothing that runs."""

    def announce(words: T) -> None:
        with contextlib.suppress(OSError, SystemExit):  # rich raises SystemExit for a broken pipe
            say(words)

    return announce


def _say_as_json(words: str) -> None:
    print_json({"at": SystemClock().wall(), "said": words})


def _run_supervised(
    settings: RunSettings, app: jmsx.App, supervised: int, tell: Callable[[str], object]
) -> None:
    """Run the application in a supervisor's worker."""
    from jmsx.app.endpoint import Endpoint  # noqa: PLC0415 - imports the whole client, which other commands do not need
    from jmsx.cli.supervisor import Supervised  # noqa: PLC0415 - imports the whole client, which other commands do not need

    wished, app.health = app.health, None
    with (
        Supervised(supervised) as supervisor,
        contextlib.closing(Endpoint("127.0.0.1:0", app.wsgi).begin()) as endpoint,
    ):
        supervisor.serves(endpoint.url, wished)  # before it starts, for it may wait for its broker

        def announce(words: str) -> None:
            supervisor.started()
            if supervisor.number == 0:
                tell(words)

        app.run(float(settings.drain_timeout), until_idle=settings.until_idle, announce=announce)


def _introduce(settings: RunSettings, app: jmsx.App, how: str, *, as_json: bool) -> None:
    broker = app.connection_uri()  # shown without its password
    if as_json:
        told = {
            "app": settings.app,
            "version": version("jmsx"),
            "broker": str(broker),
            "consumers": [one.name for one in app.consumers],
            "workers": settings.workers,
        }
        _also_unread(print_json)(told)
        return
    consumers = counted(len(app.consumers), "consumer")
    _also_unread(_err.print)(
        f"jmsx {version('jmsx')}, {settings.app}: {consumers} on {broker}; {how}"
    )


def _prepared(settings: RunSettings) -> jmsx.App:
    """Return the app, with what the settings say of it."""
    app = load_app(str(settings.app), factory=settings.factory)
    hear_again()  # the app's module may have configured `logging`
    if not app.consumers:
        raise ConfigurationError(
            f"{settings.app} has no consumers, so there is nothing to run; put @app.consumer('queue://NAME') above a"
            " function"
        )
    app.url = settings.broker_url or app.url
    if app.url is None:
        raise ConfigurationError(
            f"{settings.app} has no broker; say which with --url stomp://HOST:61613, {_URL}, broker-url in [tool.jmsx],"
            " or App(URL)"
        )
    app.health = settings.health or app.health
    return app


def _command(settings: RunSettings, *, verbose: bool, as_json: bool) -> list[str]:
    """Return what starts one worker, but for the URL: it may have a password, and everybody can read arguments."""
    options = {
        "--drain-timeout": settings.drain_timeout,
        "--until-idle": settings.until_idle,
        "--log-level": settings.log_level,
    }
    given = [f"{name}={value}" for name, value in options.items() if value is not None]
    return [
        *(sys.executable, "-m", "jmsx.cli", *(["-v"] if verbose else []), "run", str(settings.app)),
        *given,
        *(["--factory"] if settings.factory else []),
        *(["--json"] if as_json else []),
    ]


class ImportFailedError(ConfigurationError):
    """The user's module cannot be imported; `trace` is the traceback in it, empty if it was not found."""

    def __init__(self, told: str, error: BaseException | None) -> None:
        super().__init__(told)
        self.trace = "" if error is None else _trace(error)


def _trace(error: BaseException) -> str:
    """Return the traceback, from where the user's own code begins."""
    trace = error.__traceback__
    while trace is not None and (
        trace.tb_frame.f_code.co_filename.startswith("<frozen importlib")
        or trace.tb_frame.f_globals.get("__name__") in (__name__, "importlib")
    ):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace, chain=False))


def _parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _parted(target: str) -> tuple[str, str]:
    """Return the module and the name in it; raises ConfigurationError that says what to write for a file's name."""
    module, colon, name = target.rpartition(":")
    path = PureWindowsPath(module)  # it accepts slashes of both kinds
    if colon and path.stem.isidentifier() and (path.suffix == ".py" or {*"/\\"} & {*module}):
        parts = path.with_suffix("").parts
        below = all(part.isidentifier() for part in parts)
        dotted = ".".join(parts) if below else path.stem
        folder = "" if below else "in the folder that it is in, "
        raise ConfigurationError(
            f"{target!r} is a file, and no module: {folder}write {dotted}:{name}"
        )
    if not all(part.isidentifier() for part in (name, *module.split("."))):
        raise ConfigurationError(f"{target!r} is not MODULE:APP, such as shop:app")
    return module, name


def load_app(target: str, *, factory: bool = False) -> jmsx.App:
    """
    Return the App called MODULE:NAME, or with `factory` the App that the function of that name returns.

    Raises ConfigurationError, which says what is missing, or ImportFailedError with the traceback in the user's code.
    """
    module_name, name = _parted(target)
    sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name in _parents(module_name)
        told = f"cannot import {module_name}: {type(error).__name__}: {error}"
        raise ImportFailedError(told, None if absent else error) from error
    app = getattr(module, name, None)
    if factory and callable(app):
        if inspect.iscoroutinefunction(app):
            raise ConfigurationError(
                f"{target} is async; a function that returns an App is a plain `def`"
            )
        try:
            app = app()
        except (Exception, SystemExit) as error:
            told = f"{target}() failed: {type(error).__name__}: {error}"
            raise ImportFailedError(told, error) from error
        if not isinstance(app, jmsx.App):
            raise ConfigurationError(f"{target}() returned no App, but {app!r}")
    if not isinstance(app, jmsx.App):
        hint = "; is it a function that returns one? Then say --factory" if callable(app) else ""
        raise ConfigurationError(f"{module_name} has no App called {name!r}{hint}")
    return app
