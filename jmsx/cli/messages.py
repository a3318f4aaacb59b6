"""`jmsx send` and `jmsx browse`: send one message to a destination, and show the messages in a queue."""

from __future__ import annotations

import itertools
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from jmsx.cli.interrupts import sigterm_as_ctrl_c
from jmsx.cli.printing import JsonOption, print_json, print_row, short, timestamp
from jmsx.cli.queues import LOCAL, BrokerOption, opened, queue_name, record
from jmsx.cli.terminal import console
from jmsx.dead_letters.access import Access
from jmsx.dead_letters.letter import DeadLetter
from jmsx.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_out = console()
_err = console(stderr=True)

#: Seconds between two times that the queue is browsed.
_PAUSE: Final = 1.0

#: How many characters of a body are shown in a line.
_SHOWN: Final = 100


def send(
    destination: Annotated[str, typer.Argument(help="queue://orders, or topic://prices.")],
    body: Annotated[str, typer.Argument(help="The text; - reads it from standard input.")] = "-",
    *,
    broker: BrokerOption = LOCAL,
    properties: Annotated[
        list[str] | None, typer.Option("--property", "-p", help="NAME=TEXT; may be repeated.")
    ] = None,
    correlation_id: Annotated[str | None, typer.Option(help="JMSCorrelationID.")] = None,
    reply_to: Annotated[str | None, typer.Option(help="Where an answer shall go.")] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Each line of standard input is a message.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """
    Send a text, and wait until the broker has it; prints the key of the message.

    Example: jmsx send queue://orders '{"id": 7}' -p region=eu
    """
    from jmsx import Connection, Message  # noqa: PLC0415 - imports the whole client, which other commands do not need

    given = _properties(properties or ())
    if lines and body != "-":
        raise ConfigurationError("--lines reads standard input; leave the text out")
    with Connection(broker) as connection:
        producer = connection.create_session().create_producer()
        bodies: Iterable[str] = [body]
        if body == "-":
            bodies = _read(lines=lines)
        for number, text in enumerate(bodies, 1):
            message = Message(
                text, properties=given, correlation_id=correlation_id, reply_to=reply_to
            )
            with _told_interruption(number, destination) as sent:
                key = producer.send(message, destination=destination)
                sent.append(key)
                if as_json:
                    print_json({"key": key, "message_id": message.message_id})
                else:
                    _out.print(key)


def browse(
    queue: Annotated[str, typer.Argument(help="A queue, such as orders or queue://orders.")],
    *,
    broker: BrokerOption = LOCAL,
    limit: Annotated[
        int, typer.Option(min=1, help="At most so many; with --follow it is all.")
    ] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what comes, until Ctrl-C.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """
    Show what lies in a queue, from its head; nothing is taken.

    With --follow the queue is looked at each second: what is consumed in between is not seen.

    Example: jmsx browse orders --limit 5
    """
    name = queue_name(queue)
    try:
        with opened(broker) as access:
            if follow:
                _show_what_comes(access, name, as_json=as_json)
            shown = access.look(name, bodies=True)
            for letter in itertools.islice(shown, min(limit, sys.maxsize)):
                _show(letter, as_json=as_json)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _read(*, lines: bool) -> Iterator[str]:
    """Yield what standard input has, whole or line by line; raises ConfigurationError if that is no text."""
    if sys.stdin is None:
        raise ConfigurationError("standard input is closed; give the text as an argument")
    try:
        if lines:
            yield from (line.removesuffix("\n") for line in sys.stdin)
        else:
            yield sys.stdin.read()
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"what comes on standard input is no text in {error.encoding}: {error.reason}; bytes are sent by a program,"
            " as Message(b'...')"
        ) from error


@contextmanager
def _told_interruption(number: int, destination: str) -> Iterator[list[str]]:
    """Yield a list for the key of a message; if that is not printed, say whether the message was sent."""
    sent: list[str] = []
    try:
        with sigterm_as_ctrl_c():
            yield sent
    except (OSError, KeyboardInterrupt) as error:  # OSError: a full disk, or a broken pipe
        if sent:
            _err.tell(f"message {number:,} was sent to {destination}, with the key {sent[0]}")
        elif isinstance(error, KeyboardInterrupt):
            _err.tell(
                f"{destination} may have message {number:,} or not, and sent again it may be there twice"
            )
        raise


def _show_what_comes(access: Access, queue: str, *, as_json: bool) -> NoReturn:
    shown: set[str] = set()
    while True:
        here: set[str] = set()
        for letter in access.look(queue, bodies=True):
            here.add(letter.id)
            if letter.id not in shown:
                _show(letter, as_json=as_json)
        shown = here
        time.sleep(_PAUSE)


def _show(letter: DeadLetter, *, as_json: bool) -> None:
    if as_json:
        print_json(record(letter))
        return
    body = (letter.body or b"").decode("utf-8", "backslashreplace")
    print_row(timestamp(letter.sent_at), letter.id, short(body, _SHOWN))


def _properties(texts: Iterable[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise ConfigurationError(f"--property {text!r} is not NAME=TEXT, as in region=eu")
        found[name] = value
    return found
