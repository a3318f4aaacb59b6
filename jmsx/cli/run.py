"""`jmsx run shop:app`: run an application until SIGTERM or Ctrl-C, then drain it."""

from __future__ import annotations

import importlib
import sys
import traceback
from typing import Annotated

import typer

import jmsx
from jmsx.cli.terminal import console
from jmsx.config.options import DRAIN_TIMEOUT
from jmsx.config.uri import parse_broker_uri
from jmsx.errors import ConfigurationError

_err = console(stderr=True)


def run_app(
    target: Annotated[str, typer.Argument(help="MODULE:APP, such as shop:app.")],
    url: Annotated[
        str | None, typer.Option(envvar="JMSX_BROKER_URL", help="The broker; wins over the app's.")
    ] = None,
    drain_timeout: Annotated[
        float, typer.Option(min=0.0, help="Seconds that stopping may take.")
    ] = DRAIN_TIMEOUT,
    health: Annotated[
        str | None,
        typer.Option(help="HOST:PORT for /healthz, /readyz and /metrics; wins over the app's."),
    ] = None,
) -> None:
    """Run an application's consumers."""
    app = load_app(target)
    if not app.consumers:
        raise ConfigurationError(
            f"{target} has no consumers, so there is nothing to run; put @app.consumer('queue://NAME') above a function"
        )
    app.url = url or app.url
    app.health = health or app.health
    broker = parse_broker_uri(app.url) if app.url else "no broker"  # shown without its password
    count = len(app.consumers)
    _err.print(f"{target}: {count} consumer{'' if count == 1 else 's'} on {broker}; Ctrl-C drains")
    app.run(drain_timeout, announce=_err.print)
    _err.print("drained")


class ImportFailedError(ConfigurationError):
    """The user's module cannot be imported; `trace` says where, if it was found at all."""

    def __init__(self, told: str, error: BaseException | None) -> None:
        super().__init__(told)
        self.trace = "" if error is None else _trace(error)


def _trace(error: BaseException) -> str:
    """The traceback, from where the user's own code begins."""
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


def load_app(target: str) -> jmsx.App:
    """The App that MODULE:NAME names; raises ConfigurationError saying what is missing."""
    module_name, colon, name = target.partition(":")
    if not colon:
        raise ConfigurationError(f"{target!r} is not MODULE:APP, such as shop:app")
    sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name in _parents(module_name)
        told = f"cannot import {module_name}: {type(error).__name__}: {error}"
        raise ImportFailedError(told, None if absent else error) from error
    app = getattr(module, name, None)
    if not isinstance(app, jmsx.App):
        raise ConfigurationError(f"{module_name} has no App called {name!r}")
    return app
