"""`jmsx dlq`: what lies in the dead letter queues, why, and the way back."""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from jmsx import plugins
from jmsx.cli.moving import Found, Move, find, hidden
from jmsx.cli.printing import NOTHING, JsonOption, print_json, print_table, short, timestamp
from jmsx.cli.queues import LOCAL, BrokerOption, destination_uri, opened, queue_name, record
from jmsx.cli.terminal import console, visible
from jmsx.cli.times import instant
from jmsx.cli.writing import writing
from jmsx.dead_letters.letter import UNTOLD, Choice, DeadLetter, Deaths, no_single_queue
from jmsx.dead_letters.letter import groups as grouped
from jmsx.dead_letters.stacks import from_the_handler
from jmsx.errors import ConfigurationError
from jmsx.log import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

app = typer.Typer(
    help="Dead letters: what lies there, why, and the way back.",
    no_args_is_help=True,
    add_completion=False,
)

_out = console()
_err = console(stderr=True)

#: Headers that belong to the MESSAGE frame and not to the message.
_UNTOLD: Final = frozenset({"subscription", "receipt", "transformation", "content-length", "ack"})

#: Lines of `show` unless more are asked for.
_SHOWN: Final = 20

QueueArgument: TypeAlias = Annotated[
    str, typer.Argument(help="A dead letter queue, such as ActiveMQ.DLQ; `jmsx dlq ls` lists them.")
]
LimitOption: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="At most so many, from the head of the queue.")
]
DryOption: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
]
YesOption: TypeAlias = Annotated[bool, typer.Option("--yes", help="Do not ask: for scripts.")]


class _Meant:
    """Which dead letters a command is about, by their headers or else by an event log."""

    def __init__(self, choice: Choice, events: Path | None) -> None:
        self.choice = choice
        self.events = events
        #: Whether a letter without a known time of death is chosen by the time when it was sent; else it is left out
        self.by_sending = True
        self._deaths = (
            None if events is None else Deaths(plugins.load("jmsx.logs", "deaths")(events))
        )
        self.passed_by = 0  #: letters left out, for why or when they died is unknown
        self._unseen = set(choice.ids)  #: the ids asked for that were not found yet
        self._guessed = 0  #: letters chosen by the time when they were sent
        self._spared = 0  #: letters left out that this time would have chosen

    def told(self, letter: DeadLetter) -> DeadLetter:
        """Return `letter`, with what the log tells of its death."""
        return letter if self._deaths is None else self._deaths.told(letter)

    def fits(self, letter: DeadLetter) -> bool:
        """Return whether it is one of them, as far as it or the log tells."""
        told = self.told(letter)
        self._unseen -= told.names
        fits = self.choice.fits(told)
        guessed = fits and self.choice.guesses(told)
        spared = guessed and not self.by_sending
        self._guessed += guessed and not spared
        self._spared += spared
        self.passed_by += spared or (not fits and self.choice.may_fit(told))
        return fits and not spared

    def absent(self, found: Found, limit: int | None) -> frozenset[str]:
        """Return which names nothing has, if all that lies there was looked at to find `found`."""
        is_whole = not found.hidden and len(found.letters) != limit
        return frozenset(self._unseen) if is_whole else frozenset()

    def warn(self) -> None:
        """Say for how many dead letters it is not known whether they are meant, and count anew."""
        rest = "an event log tells (--events)" if self.events is None else f"nor does {self.events}"
        if self._guessed:
            words = f"{self._guessed:,} of them do not tell when they died, and count by when they were sent"
            _err.tell(f"{words}; {rest}", style="yellow")
        if self.passed_by:
            words = f"{self.passed_by:,} more may be meant, and do not tell {self.choice.asks} they died"
            remedy = f"{rest}, or say --by-sending" if self._spared else rest
            _err.tell(f"{words}; {remedy}", style="yellow")
        self._guessed = self._spared = self.passed_by = 0


def _choice(
    *,
    reason: Annotated[
        str | None,
        typer.Option(help="Only: max_redeliveries, rejected, expired, undecodable or untold."),
    ] = None,
    error: Annotated[
        str | None, typer.Option(help="Only those with this exception, or whose message begins so.")
    ] = None,
    consumer: Annotated[str | None, typer.Option(help="Only those of this consumer.")] = None,
    origin: Annotated[
        str | None, typer.Option("--from", help="Only those that come from here: queue://orders.")
    ] = None,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", help="Only these message ids or keys; may be repeated."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Only what died since: 2h, 7d or 2026-11-22T10:00 (UTC); or was sent, if it does not tell"
            " (but see purge --by-sending)."
        ),
    ] = None,
    until: Annotated[str | None, typer.Option(help="Only what died before; as --since.")] = None,
    events: Annotated[
        Path | None,
        typer.Option(
            help="An event log, or a folder with those of all services: causes that no header tells."
        ),
    ] = None,
) -> _Meant:
    """Read the options that say which dead letters are meant."""
    now = datetime.now(UTC)
    begin, end = instant("--since", since, now), instant("--until", until, now)
    choice = Choice(
        reason=reason,
        error=error,
        consumer=consumer,
        origin=destination_uri(origin),
        ids=frozenset(ids or ()),
        since=None if begin is None else begin.timestamp(),
        until=None if end is None else end.timestamp(),
    )
    return _Meant(choice, events)


def _choosing(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `_choice`, and what they come to as `meant`."""
    options = inspect.signature(_choice, eval_str=True).parameters
    given = inspect.signature(command, eval_str=True).parameters
    own = [one for one in given.values() if one.name != "meant"]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        chosen = _choice(**{name: given.pop(name) for name in options})
        command(meant=chosen, **given)

    run.__signature__ = inspect.Signature([*own, *options.values()])  # type: ignore[attr-defined]  # typer reads it
    run.__annotations__ = {**command.__annotations__, **_choice.__annotations__}
    del run.__annotations__["meant"]
    return run


@app.command()
def ls(
    queues: Annotated[
        list[str] | None, typer.Argument(help="Queues; else those that are dead letter queues.")
    ] = None,
    *,
    broker: BrokerOption = LOCAL,
    as_json: JsonOption = False,
) -> None:
    """
    List dead letter queues, and how many messages wait in each.

    Example: jmsx dlq ls --broker stomp://mq:61613
    """
    named = [queue_name(one) for one in queues or ()]
    with opened(broker) as access:
        counts = access.counts(named or access.queues())
    if as_json:
        print_json([{"queue": name, "messages": count} for name, count in counts.items()])
        return
    if not counts:
        _out.tell("no dead letter queue, as far as the broker tells; name one")
        return
    print_table(
        ("queue", "messages"),
        [(name, "none such" if count is None else f"{count:,}") for name, count in counts.items()],
    )


@app.command()
@_choosing
def groups(
    queue: QueueArgument,
    *,
    meant: _Meant,
    broker: BrokerOption = LOCAL,
    as_json: JsonOption = False,
) -> None:
    """
    Count dead letters by where they come from, cause and consumer.

    Example: jmsx dlq groups ActiveMQ.DLQ --since 24h
    """
    name = queue_name(queue)
    with opened(broker) as access:
        seen = find(access, name, meant.fits, None)
    seen.warn()
    meant.warn()
    letters = [meant.told(one) for one in seen.letters]
    found = grouped(letters)
    if as_json:
        print_json([asdict(one) for one in found])
        return
    rows = [
        (
            f"{one.count:,}", one.origin or "?", one.reason, short(one.error) or NOTHING, one.consumer or NOTHING,
            timestamp(one.first), timestamp(one.last), one.example,
        )
        for one in found
    ]  # fmt: skip
    head = ("count", "from", "reason", "error", "consumer", "first", "last", "newest")
    print_table(head, rows)
    stuck = sum(one.stuck for one in found)
    if stuck:
        _out.tell(f"{stuck:,} of them cannot be sent back as they are; `jmsx dlq show` says why")
    untold = sum(one.count for one in found if one.reason == UNTOLD)
    if untold and meant.events is None:
        _out.tell(
            f"{untold:,} of them tell no cause, nor when they died (the times are of their sending), as the broker has"
            " moved them; --events DIR has both from an event log"
        )
    elif untold:
        _out.tell(f"{untold:,} of them tell no cause, and no line of {meant.events} does")


@app.command()
@_choosing
def show(
    queue: QueueArgument,
    message: Annotated[
        str | None, typer.Argument(help="Message id or key; then that one is shown whole.")
    ] = None,
    *,
    meant: _Meant,
    broker: BrokerOption = LOCAL,
    limit: LimitOption = _SHOWN,
    as_json: JsonOption = False,
) -> None:
    """
    Show dead letters, a line each, or one of them whole: cause, stack, headers and body.

    Where the broker has moved a message its headers tell no cause; the event log of who failed does (--events), and of
    one message its whole life.

    Example: jmsx dlq show ActiveMQ.DLQ ID:mq-41235-1:4:-1:1:7 --events /var/log/jmsx
    """
    if message is not None:
        meant.choice = replace(meant.choice, ids=frozenset({message}))
    name = queue_name(queue)
    with opened(broker) as access:
        whole = message is not None
        seen = find(access, name, meant.fits, 1 if whole else limit, bodies=whole)
    seen.warn()
    doubtful = meant.passed_by
    meant.warn()
    found = [meant.told(one) for one in seen.letters]
    life = None if meant.events is None or not (whole and found) else _life(found[0], meant.events)
    if as_json:
        print_json([record(one) | ({} if life is None else {"log": life}) for one in found])
    elif not found:
        nothing = "nothing tells that of itself" if doubtful else "nothing of that lies"
        _out.print(f"{nothing} in {name}")
    elif message is not None:
        _print_whole(found[0])
        if life is not None:
            _out.print("\nevent log")
            for line in life:
                _out.tell(f"  {visible(line, keep='')}")
    else:
        rows = [
            (
                one.id, _died(one), one.origin or "?", one.reason, str(one.deliveries or "?"),
                short(_error(one)) or NOTHING, one.obstacle() or "can go back",
            )
            for one in found
        ]  # fmt: skip
        print_table(("id", "died", "from", "reason", "deliveries", "error", "replay"), rows)
    if not found:
        raise typer.Exit(1)


@app.command()
@_choosing
def replay(
    queue: QueueArgument,
    *,
    meant: _Meant,
    broker: BrokerOption = LOCAL,
    to: Annotated[
        str | None,
        typer.Option(help="Send them to this queue, and not to where they came from: queue://x."),
    ] = None,
    limit: LimitOption = None,
    rate: Annotated[
        float | None, typer.Option(min=0.1, help="At most so many a second, on average.")
    ] = None,
    dry_run: DryOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """
    Send dead letters back to where they came from.

    Killed at any moment, each message is in exactly one of the two queues; begin again, and the rest follows. They keep
    properties and key, and lose their expiry; on Classic they are persistent then, and of Java's all properties are
    texts, and the group is lost. What a topic's subscriber could not handle needs --to.

    Where a message came from is told by its headers, which whoever may send to the dead letter queue can write: look at
    the plan (--dry-run), or name the queue (--to). Exit code 1: some of those that are meant stay, or are not there.

    Example: jmsx dlq replay ActiveMQ.DLQ --error TimeoutError --rate 50
    """
    target, name = destination_uri(to), queue_name(queue)
    if target is not None and (fault := no_single_queue(target)):
        raise ConfigurationError(
            f"--to {to}: {fault}, as queue://orders is; dead letters would be lost, or be there more than once"
        )

    def plan(letters: Sequence[DeadLetter]) -> str:
        places = Counter(target or one.origin for one in letters)
        words = ", ".join(f"{count:,} to {place}" for place, count in places.most_common())
        one = len(letters) == 1
        return f"{_count(letters)} of {name} {'goes' if one else 'go'} back: {words}"

    with opened(broker) as access:
        if target is not None and access.is_same(name, target):
            raise ConfigurationError(
                f"--to {to}: they lie there already, and would lose what tells where they came from and why they died"
            )

        def movable(limit: int | None) -> Found:
            staying = Counter[str]()

            def fits(letter: DeadLetter) -> bool:
                chosen = meant.fits(letter)
                obstacle = letter.obstacle(target) if chosen else ""
                if (
                    chosen
                    and not obstacle
                    and target is None
                    and access.is_same(name, letter.origin)
                ):
                    obstacle = f"it came from {name} itself; name another queue (--to)"
                staying.update([obstacle] if obstacle else [])
                return chosen and not obstacle

            found = find(access, name, fits, limit)
            meant.warn()
            _print_staying(staying)
            return found._replace(staying=staying.total(), absent=meant.absent(found, limit))

        # as many at once as a second allows, at the most, rather than a hundred and then a pause
        step = None if rate is None or rate > sys.maxsize else max(1, int(rate))
        act = functools.partial(access.replay, name, to=target, at_once=step)
        move = Move(movable, plan, act, "in one of the queues", limit, rate)
        move.carry_out(dry_run=dry_run, yes=yes, as_json=as_json)


@app.command()
@_choosing
def purge(
    queue: QueueArgument,
    *,
    meant: _Meant,
    broker: BrokerOption = LOCAL,
    limit: LimitOption = None,
    by_sending: Annotated[
        bool,
        typer.Option(
            "--by-sending",
            help="With --since and --until: what does not tell when it died counts by when it was sent.",
        ),
    ] = False,
    dry_run: DryOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """
    Delete dead letters for good; `jmsx dlq export` keeps them first.

    What was sent a month ago may have died a minute ago: with --since or --until, what does not tell of that stays.

    Example: jmsx dlq purge ActiveMQ.DLQ --until 30d --events /var/log/jmsx
    """
    name = queue_name(queue)
    if by_sending and meant.choice.since is meant.choice.until is None:
        raise ConfigurationError(
            "--by-sending goes with --since or --until, as in --until 30d; without a period every age is meant"
        )
    meant.by_sending = by_sending
    with opened(broker) as access:

        def chosen(limit: int | None) -> Found:
            found = find(access, name, meant.fits, limit)
            meant.warn()
            return found._replace(absent=meant.absent(found, limit))

        move = Move(
            find=chosen,
            plan=lambda letters: (
                f"{_count(letters)} of {name} {'is' if len(letters) == 1 else 'are'} deleted for good"
            ),
            act=functools.partial(access.remove, name),
            doubt=f"deleted, or still in {name}",
            limit=limit,
        )
        move.carry_out(dry_run=dry_run, yes=yes, as_json=as_json)


@app.command()
@_choosing
def export(
    queue: QueueArgument,
    out: Annotated[Path, typer.Argument(help="A file that is not there yet; a JSON line each.")],
    *,
    meant: _Meant,
    broker: BrokerOption = LOCAL,
    limit: LimitOption = None,
) -> None:
    """
    Write dead letters with headers and bodies into a file; they stay where they are.

    A body is `text` if it is UTF-8, else `base64`; null if it does not come over STOMP. Exit code 1: the broker does
    not show all that lies there, or a message that you name is not there.

    Example: jmsx dlq export ActiveMQ.DLQ dead.jsonl
    """
    name = queue_name(queue)
    with opened(broker) as access:
        with _made(out) as lines:
            count, seen = _export(access.look(name, bodies=True), meant, limit, lines)
        rest = Found([], "")
        if count != limit:
            rest = Found([], hidden(access, name, seen))
            rest = rest._replace(absent=meant.absent(rest, limit))
    _out.print(f"{counted(count, 'dead letter')} in {out}")
    meant.warn()
    rest.warn()
    if rest.hidden or rest.absent:
        raise typer.Exit(1)


def _export(
    letters: Iterable[DeadLetter], meant: _Meant, limit: int | None, to: Callable[[str], object]
) -> tuple[int, int]:
    """Return how many lines were written, and how many letters were seen for them."""
    count = seen = 0
    for letter in letters:
        seen += 1
        if meant.fits(letter):
            to(json.dumps(record(meant.told(letter))))
            count += 1
            if count == limit:
                break
    return count, seen


def _error(letter: DeadLetter) -> str:
    """Return its error and what that says, as far as they are told."""
    return ": ".join(filter(None, (letter.error, letter.error_message if letter.error else "")))


def _count(letters: Sequence[DeadLetter]) -> str:
    return counted(len(letters), "dead letter")


def _died(letter: DeadLetter) -> str:
    """Return when it died; of what does not tell: when it was sent, said so."""
    seen = timestamp(letter.seen)
    return seen if letter.last_failure is not None or letter.seen is None else f"sent {seen}"


def _life(letter: DeadLetter, events: Path) -> list[str]:
    """Return what an event log tells of it, as lines."""
    explain, worded = plugins.load("jmsx.logs", "explain"), plugins.load("jmsx.logs", "worded")
    told = ""
    for name in letter.logged_as:
        try:
            # No places on the broker: the caller has found the message in a queue, and shows it
            return list(worded(explain(events, name), ()))
        except ConfigurationError as error:  # such as that no event names it
            told = str(error)
    return [told]


def _print_staying(staying: Counter[str]) -> None:
    for why, count in staying.most_common():
        _err.tell(
            visible(f"{count:,} {'stays' if count == 1 else 'stay'}: {why}", keep=""),
            style="yellow",
        )


@contextmanager
def _made(path: Path) -> Iterator[Callable[[str], object]]:
    """
    Yield a new file of its owner's alone, on the disk at the end; it has its name when it is whole, also if this is
    killed.

    Raises ConfigurationError if there is one, or it cannot be written.
    """
    part = path.with_name(f"{path.name}.part")
    with writing(str(path)):
        if os.path.lexists(path):
            raise ConfigurationError(f"{path} is there already; name another file")
        try:
            with open(part, "x", encoding="utf-8", opener=_private) as file:
                try:
                    yield lambda line: file.write(f"{line}\n")
                    file.flush()
                    os.fsync(file.fileno())  # the user may delete the messages at the broker next
                except BaseException:
                    part.unlink(missing_ok=True)
                    raise
        except FileExistsError as error:
            raise ConfigurationError(
                f"{part} is there already, of an export that runs or was killed; remove it, or name another file"
            ) from error
        part.rename(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _print_whole(letter: DeadLetter) -> None:
    told = {
        "id": letter.id,
        "message id": letter.message_id,
        "key": letter.key,
        "from": letter.origin,
        "reason": letter.reason,
        "consumer": letter.consumer,
        "deliveries": letter.deliveries,
        "first failure": timestamp(letter.first_failure),
        "last failure": timestamp(letter.last_failure),
        "replay": letter.obstacle() or "can go back",
        "error": _error(letter),
    }
    for name, value in told.items():
        if value not in (None, "", NOTHING):
            _out.print(f"{name:14} {visible(str(value), keep='')}")
    if letter.stack:
        _out.print(f"\n{from_the_handler(letter.stack)}")
    _out.print("\nheaders")
    for name, text in letter.headers.items():
        if not name.startswith("jmsx_") and name not in _UNTOLD:
            _out.print(f"  {visible(name, keep='')}: {visible(text, keep='')}")
    _out.print(f"\nbody, {letter.size if letter.size is not None else '?'} bytes")
    if letter.body is not None:
        _out.print(letter.body.decode("utf-8", "backslashreplace"))
