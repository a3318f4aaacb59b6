"""
`jmsx broker`: start a real broker on this machine, and ask one for its counts.

Each command imports what it needs when it runs: `jmsx --help` lists this command, too, and must not wait for imports.
"""
# ruff: noqa: PLC0415 - not for `jmsx --help`

from __future__ import annotations

import contextlib
import functools
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

import jmsx_broker
from jmsx.cli.interrupts import sigterm_as_ctrl_c
from jmsx.cli.printing import JsonOption, print_json, print_table
from jmsx.cli.queues import LOCAL, BrokerOption
from jmsx.cli.terminal import console
from jmsx.errors import (
    BrokerTimeoutError,
    ConnectionFailedError,
    JmsxError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


app = typer.Typer(help="A real broker for development.", no_args_is_help=True, add_completion=False)

_out = console()
_err = console(stderr=True)


class Kind(StrEnum):
    """The kinds of brokers that can be started."""

    CLASSIC = "classic"
    ARTEMIS = "artemis"


@app.command()
def start(
    kind: Annotated[Kind, typer.Option(help="Which broker.")] = Kind.CLASSIC,
    port: Annotated[int, typer.Option(help="Port of STOMP; 0 takes a free one.")] = 61613,
    openwire_port: Annotated[int, typer.Option(help="Port for Java clients; 0: a free one.")] = 0,
    tls_port: Annotated[
        int | None, typer.Option(help="Port of STOMP over TLS; 0: a free one. Else no TLS.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder that keeps the messages; else they go with it.")
    ] = None,
) -> None:
    """
    Run ActiveMQ Classic or Artemis until Ctrl-C.

    It needs Java 17 or newer, and for the first start Maven, or PySpark (jmsx[spark]), to fetch the broker with.

    Example: jmsx broker start --kind artemis --port 0
    """
    from jmsx_broker.own import log_tail

    made = jmsx_broker.ArtemisBroker if kind is Kind.ARTEMIS else jmsx_broker.ClassicBroker
    broker = made(
        port,
        openwire_port=openwire_port,
        data=data,
        tls=tls_port is not None,
        tls_port=tls_port or 0,
    )
    with _told_errors(), sigterm_as_ctrl_c():
        try:
            _start(broker)
            code = broker.wait()
            _fail(
                f"the broker ended with {code}:\n{log_tail(broker.log.read_text('utf-8', 'replace'))}"
            )
        except KeyboardInterrupt:
            _err.print("stopping …")
        finally:
            broker.close()
    _err.print("stopped")


@app.command()
def stats(
    queue: Annotated[str, typer.Argument(help="A queue, such as orders or queue://orders.")],
    *,
    broker: BrokerOption = LOCAL,
    url: Annotated[str | None, typer.Option(hidden=True)] = None,  # its former name, in scripts
    as_json: JsonOption = False,
) -> None:
    """
    Print the broker's own counts of a queue: those of the first broker of the URL that answers.

    Example: jmsx broker stats orders --broker stomp://mq:61613
    """
    from jmsx_broker.questions import plain_urls, queue_statistics

    with _told_errors():
        for one, tls in plain_urls(url or broker):
            try:
                told = queue_statistics(one, queue, tls=tls)
                break
            except (ConnectionFailedError, BrokerTimeoutError) as error:
                failure = error
        else:
            raise failure
        if not told.exists:
            _fail(f"the broker has no queue {told.queue}")
    if as_json:
        print_json(asdict(told))
        return
    counts = {
        name: count for name, count in asdict(told).items() if name not in {"queue", "exists"}
    }
    rows = [(name, "unknown" if count is None else f"{count:,}") for name, count in counts.items()]
    print_table(("count", told.queue), rows)


@app.command()
def images(
    *,
    force: Annotated[bool, typer.Option(help="Make them again where they are already.")] = False,
    as_json: JsonOption = False,
) -> None:
    """
    Make container images of both brokers of this machine's Java, where none can be pulled.

    Example: jmsx broker images --force
    """
    from jmsx_broker.images import has_image, make_image
    from jmsx_broker.products import ARTEMIS, CLASSIC

    made: list[str] = []
    tell = made.append if as_json else functools.partial(_out.print, style="bold green")
    with _told_errors():
        for product in (CLASSIC, ARTEMIS):
            if force or not has_image(product):
                make_image(product)
            tell(product.image)
    if as_json:
        print_json(made)


def _start(broker: jmsx_broker.ClassicBroker | jmsx_broker.ArtemisBroker) -> None:
    """Start it, and say where it is."""
    from jmsx_broker.artefacts import is_cached

    if not is_cached(broker.product):
        _err.print(f"fetching {broker.product.name} {broker.product.version}, this once …")
    broker.start()
    _out.print(broker.url, style="bold green")
    if broker.has_tls:
        _out.print(broker.tls_url, style="bold green")
        _err.print(f"authority to trust: {broker.certificates.authority}")
    _err.print(f"Java clients: {broker.openwire_url}   log: {broker.log}   Ctrl-C stops it")


@contextlib.contextmanager
def _told_errors() -> Iterator[None]:
    """Tell the user an error of ours in words, without a traceback."""
    try:
        yield
    except JmsxError as error:
        _fail(str(error))


def _fail(text: str) -> NoReturn:
    """Print an error and end with 1."""
    _err.print("error:", text, style="red")
    raise typer.Exit(1)
