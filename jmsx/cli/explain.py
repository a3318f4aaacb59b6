"""`jmsx explain`: the life of one message, from the event logs and the broker."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jmsx import plugins
from jmsx.cli.printing import JsonOption, print_json, short, timestamp
from jmsx.cli.terminal import console, visible
from jmsx.cli.writing import writing
from jmsx.core.headers import whole
from jmsx.dead_letters.access import Access
from jmsx.dead_letters.letter import UNTOLD, DeadLetter
from jmsx.errors import ConfigurationError, InvalidDestinationError, JmsxError
from jmsx.files import appearing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_out = console()


def explain(
    message: Annotated[
        str,
        typer.Argument(
            help="A message key (jmsx_key) or a message id; with --broker also the id of a dead letter."
        ),
    ],
    *,
    events: Annotated[
        Path, typer.Option(help="The event log, or a folder with those of all services.")
    ],
    broker: Annotated[
        str | None,
        typer.Option(help="Look for it on this broker, too: in its queues and the dead letters."),
    ] = None,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write it as one HTML page, too.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """
    Tell the life of one message: sent, delivered, failed, settled, dead; and what the log does not know.

    Example: jmsx explain 01a204cf767502ed3d5d520bb14ae787 --events /var/log/jmsx
    """
    told, worded = plugins.load("jmsx.logs", "explain"), plugins.load("jmsx.logs", "worded")
    story = _story(events, message, broker, told)
    places = None if broker is None else list(_places(broker, story))
    if page is not None:
        text = plugins.load("jmsx.logs", "page")(story, places)
        with writing(f"--page {page}"), appearing(page) as unfinished:
            unfinished.write_text(text, encoding="utf-8")
    if as_json:
        print_json({**asdict(story), "broker": places})
        return
    for line in worded(story, places):
        _out.tell(visible(line, keep=""))


def _story(events: Path, message: str, broker: str | None, told: Callable[..., Any]) -> Any:
    """Return what the log tells of it, by one of its names."""
    names = [message]
    if broker is not None and whole(message) is not None:  # an Artemis message id
        names = _names(broker, message) or names
    failure = None
    for name in names:
        try:
            return told(events, name)
        except ConfigurationError as error:
            failure = failure or error
    if names == [message] and broker is not None:
        for name in _names(broker, message):
            with suppress(ConfigurationError):
                return told(events, name)
    hint = "what a dead letter's id of `jmsx dlq show` stands for, --broker tells"
    raise ConfigurationError(f"{failure}; {hint}" if broker is None else str(failure))


def _names(url: str, id: str) -> list[str]:  # noqa: A002 - it fills the field of that name
    """Return how the log may call a dead letter that its broker has under another id, such as a copy; empty: none."""
    from jmsx.dead_letters.opening import open_access  # noqa: PLC0415 - imports the whole client, which other commands do not need

    with open_access(url) as access:
        return _logged_as(access, id)


def _logged_as(access: Access, id: str) -> list[str]:  # noqa: A002 - it fills the field of that name
    for queue in access.queues():
        for letter in access.look(queue, names=[id]):
            if letter.id == id:
                return letter.logged_as
    return []


def _places(url: str, story: Any) -> Iterator[str]:
    """Yield where the broker has it now, a sentence each."""
    from jmsx.dead_letters.opening import open_access  # noqa: PLC0415 - imports the whole client, which other commands do not need

    with open_access(url) as access:
        yield from _places_in(access, story)


def _places_in(access: Access, story: Any) -> Iterator[str]:
    lines = [one.line for one in story.happenings]
    queues = {line.get(name) for line in lines for name in ("dest", "dlq_dest")}
    names = {str(uri).removeprefix("queue://") for uri in queues if str(uri).startswith("queue://")}
    looked: list[str] = []
    found = 0
    everywhere = sorted(names | set(access.queues()))
    if not everywhere:
        yield "the broker has no dead letters, and the log names no queue to look in"
    for queue in everywhere:
        try:
            for letter in access.look(queue, names=story.keys):
                if not set(letter.logged_as).isdisjoint(story.keys):
                    found += 1
                    yield f"the broker has it in {queue}, as {letter.id}{_cause(letter)}"
            looked.append(queue)
        except InvalidDestinationError:  # both brokers remove queues that nobody uses
            yield f"the broker has no queue {queue}"
        except JmsxError as error:
            yield f"the broker does not show {queue}: {error}"
    if not found and looked:
        yield f"the broker shows it in none of {', '.join(looked)}"


def _cause(letter: DeadLetter) -> str:
    """Return why it is a dead letter, as far as it tells; empty for one that is none."""
    if letter.reason == UNTOLD:
        return ""
    why = f"{letter.error}: {letter.error_message}" if letter.error else ""
    told = (
        letter.reason,
        short(why),
        letter.last_failure and f"since {timestamp(letter.last_failure)} UTC",
    )
    return f": {', '.join(one for one in told if one)}"
