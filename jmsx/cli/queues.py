"""Shared by commands that look into queues: options for broker and queue, and messages as JSON."""

from __future__ import annotations

import base64
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from jmsx.core.destination_names import parse_destination
from jmsx.dead_letters.access import Access
from jmsx.dead_letters.letter import DeadLetter
from jmsx.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The broker's URL, if the user gives none.
LOCAL: Final = "stomp://127.0.0.1:61613"

BrokerOption: TypeAlias = Annotated[
    str, typer.Option("--broker", envvar="JMSX_BROKER_URL", help="The broker, as in an App.")
]


@contextmanager
def opened(url: str) -> Iterator[Access]:
    """Yield access to the queues of a broker."""
    from jmsx.dead_letters.opening import open_access  # noqa: PLC0415 - imports the whole client, which other commands do not need

    with open_access(url) as access:
        yield access


def destination_uri(text: str | None) -> str | None:
    """Return the URI of a queue or topic, however it is spelt; raises InvalidDestinationError."""
    return None if text is None else str(parse_destination(text))


def queue_name(queue: str) -> str:
    """Return the bare name of a queue; raises ConfigurationError for anything else."""
    uri = destination_uri(queue) or ""
    kind, _, name = uri.partition("://")
    if kind != "queue" or any(sign in name for sign in "*>,?"):
        raise ConfigurationError(f"{queue!r} is not one queue; write its name, such as orders")
    return name


def record(letter: DeadLetter) -> dict[str, Any]:
    """Return one message as a dict for JSON; its body is in `text` if it is UTF-8, else in `base64`."""
    record = {
        **asdict(letter),
        "headers": dict(letter.headers),
        "replay": letter.obstacle() or "yes",
    }
    body = record.pop("body")
    if letter.stuck or body is None:
        return {**record, "text": None, "base64": None}
    try:
        return {**record, "text": body.decode(), "base64": None}
    except UnicodeDecodeError:
        return {**record, "text": None, "base64": base64.b64encode(body).decode()}
