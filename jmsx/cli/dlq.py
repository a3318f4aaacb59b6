"""`jmsx dlq`: what lies in the dead letter queues, why, and the way back."""

from __future__ import annotations

import base64
import functools
import inspect
import json
import os
import sys
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeAlias

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from jmsx.cli.terminal import console, visible
from jmsx.cli.times import instant
from jmsx.core.destination_names import parse_destination
from jmsx.dead_letters.access import Access
from jmsx.dead_letters.letter import Choice, DeadLetter
from jmsx.dead_letters.letter import groups as grouped
from jmsx.errors import ConfigurationError, JmsxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

app = typer.Typer(
    help="Dead letters: what lies there, why, and the way back.",
    no_args_is_help=True,
    add_completion=False,
)

_out = console()
_err = console(stderr=True)

#: Characters of a text in a column.
_COLUMN: Final = 60

#: Headers of the frame that shows a message, and none of the message's.
_UNTOLD: Final = frozenset({"subscription", "receipt", "transformation", "content-length", "ack"})

#: Lines of `show` unless more are asked for.
_SHOWN: Final = 20

BrokerOption: TypeAlias = Annotated[
    str, typer.Option("--broker", envvar="JMSX_BROKER_URL", help="The broker, as in an App.")
]
QueueArgument: TypeAlias = Annotated[
    str, typer.Argument(help="A dead letter queue, such as ActiveMQ.DLQ.")
]
JsonOption: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print JSON, and nothing else.")
]
LimitOption: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="At most so many, from the head of the queue.")
]
DryOption: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
]
YesOption: TypeAlias = Annotated[bool, typer.Option("--yes", help="Do not ask: for scripts.")]

LOCAL: Final = "stomp://127.0.0.1:61613"


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
        typer.Option(help="Only what died since: 2h, 7d or 2026-11-22T10:00 (UTC)."),
    ] = None,
    until: Annotated[str | None, typer.Option(help="Only what died before.")] = None,
) -> Choice:
    """Read the options that say which dead letters are meant."""
    now = datetime.now(UTC)
    begin, end = instant("--since", since, now), instant("--until", until, now)
    return Choice(
        reason=reason,
        error=error,
        consumer=consumer,
        origin=_destination(origin),
        ids=frozenset(ids or ()),
        since=None if begin is None else begin.timestamp(),
        until=None if end is None else end.timestamp(),
    )


def _choosing(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `_choice`, and what they come to as `choice`."""
    options = inspect.signature(_choice, eval_str=True).parameters
    given = inspect.signature(command, eval_str=True).parameters
    own = [one for one in given.values() if one.name != "choice"]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        chosen = _choice(**{name: given.pop(name) for name in options})
        command(choice=chosen, **given)

    run.__signature__ = inspect.Signature([*own, *options.values()])  # type: ignore[attr-defined]  # typer reads it
    run.__annotations__ = {**command.__annotations__, **_choice.__annotations__}
    del run.__annotations__["choice"]
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
    with opened(broker) as access:
        names = [queue_name(one) for one in queues] if queues else access.queues()
        counts = {name: access.count(name) for name in names}
    if as_json:
        _print_json([{"queue": name, "messages": count} for name, count in counts.items()])
        return
    if not counts:
        _out.print("no dead letter queue, as far as the broker tells; name one")
        return
    _print_table(
        ("queue", "messages"),
        [(name, "none such" if count is None else f"{count:,}") for name, count in counts.items()],
    )


@app.command()
@_choosing
def groups(
    queue: QueueArgument,
    *,
    choice: Choice,
    broker: BrokerOption = LOCAL,
    as_json: JsonOption = False,
) -> None:
    """
    Count dead letters by where they come from, cause and consumer.

    Example: jmsx dlq groups ActiveMQ.DLQ --since 24h
    """
    with opened(broker) as access:
        seen = _find(access, queue_name(queue), choice, None)
    _warn(seen)
    found = grouped(seen.letters)
    if as_json:
        _print_json([asdict(one) for one in found])
        return
    rows = [
        (
            f"{one.count:,}", one.origin or "?", one.reason, _short(one.error) or "-", one.consumer or "-",
            timestamp(one.first), timestamp(one.last), one.example,
        )
        for one in found
    ]  # fmt: skip
    head = ("count", "from", "reason", "error", "consumer", "first", "last", "newest")
    _print_table(head, rows)
    stuck = sum(one.stuck for one in found)
    if stuck:
        _out.print(f"{stuck:,} of them cannot be sent back as they are; `jmsx dlq show` says why")


@app.command()
@_choosing
def show(
    queue: QueueArgument,
    message: Annotated[
        str | None, typer.Argument(help="Message id or key; then that one is shown whole.")
    ] = None,
    *,
    choice: Choice,
    broker: BrokerOption = LOCAL,
    limit: LimitOption = _SHOWN,
    as_json: JsonOption = False,
) -> None:
    """
    Show dead letters, a line each, or one of them whole: cause, stack, headers and body.

    Example: jmsx dlq show ActiveMQ.DLQ ID:mq-41235-1:4:-1:1:7
    """
    if message is not None:
        choice = replace(choice, ids=frozenset({message}))
    with opened(broker) as access:
        whole = message is not None
        seen = _find(access, queue_name(queue), choice, 1 if whole else limit, bodies=whole)
    _warn(seen)
    found = seen.letters
    if as_json:
        _print_json([record(one) for one in found])
    elif not found:
        _out.print(f"nothing of that lies in {queue_name(queue)}")
    elif message is not None:
        _print_whole(found[0])
    else:
        rows = [
            (
                one.id, timestamp(one.seen), one.origin or "?", one.reason, str(one.deliveries or "?"),
                _short(f"{one.error}: {one.error_message}") if one.error else "-", one.obstacle() or "can go back",
            )
            for one in found
        ]  # fmt: skip
        _print_table(("id", "died", "from", "reason", "deliveries", "error", "replay"), rows)
    if not found:
        raise typer.Exit(1)


@app.command()
@_choosing
def replay(
    queue: QueueArgument,
    *,
    choice: Choice,
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
    properties and key, and lose their expiry. What a topic's subscriber could not handle needs --to.

    Example: jmsx dlq replay ActiveMQ.DLQ --error TimeoutError --rate 50
    """
    target, name = _destination(to), queue_name(queue)

    def plan(letters: Sequence[DeadLetter]) -> str:
        places = Counter(target or one.origin for one in letters)
        words = ", ".join(f"{count:,} to {place}" for place, count in places.most_common())
        return f"{len(letters):,} dead letters of {name} go back: {words}"

    with opened(broker) as access:

        def find(limit: int | None) -> _Found:
            found = _find(access, name, choice, limit)
            _print_staying(found.letters, target)
            return found._replace(
                letters=[one for one in found.letters if not one.obstacle(target)]
            )

        act = functools.partial(access.replay, name, to=target)
        _move(_Move(find, plan, act, limit, rate), dry_run=dry_run, yes=yes, as_json=as_json)


@app.command()
@_choosing
def purge(
    queue: QueueArgument,
    *,
    choice: Choice,
    broker: BrokerOption = LOCAL,
    limit: LimitOption = None,
    dry_run: DryOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """
    Delete dead letters for good; `jmsx dlq export` keeps them first.

    Example: jmsx dlq purge ActiveMQ.DLQ --reason expired --until 30d
    """
    name = queue_name(queue)
    with opened(broker) as access:
        move = _Move(
            find=lambda limit: _find(access, name, choice, limit),
            plan=lambda letters: f"{len(letters):,} dead letters of {name} are deleted for good",
            act=functools.partial(access.remove, name),
            limit=limit,
        )
        _move(move, dry_run=dry_run, yes=yes, as_json=as_json)


@app.command()
@_choosing
def export(
    queue: QueueArgument,
    out: Annotated[Path, typer.Argument(help="A file that is not there yet; a JSON line each.")],
    *,
    choice: Choice,
    broker: BrokerOption = LOCAL,
    limit: LimitOption = None,
) -> None:
    """
    Write dead letters with headers and bodies into a file; they stay where they are.

    A body is `text` if it is UTF-8, else `base64`; null if it does not come over STOMP.

    Example: jmsx dlq export ActiveMQ.DLQ dead.jsonl
    """
    count = 0
    with opened(broker) as access, _made(out) as lines:
        for letter in access.look(queue_name(queue), bodies=True):
            if choice.fits(letter):
                lines(json.dumps(record(letter)))
                count += 1
                if count == limit:
                    break
    _out.print(f"{count:,} dead letters in {out}")


@contextmanager
def opened(url: str) -> Iterator[Access]:
    """Access to the queues of a broker."""
    from jmsx.dead_letters.opening import open_access  # noqa: PLC0415 - with it comes the client

    with open_access(url) as access:
        yield access


class _Found(NamedTuple):
    """Dead letters that are meant."""

    letters: list[DeadLetter]
    hidden: str  #: what the broker does not show of the queue, a sentence; empty: nothing


def _find(
    access: Access, queue: str, choice: Choice, limit: int | None, *, bodies: bool = False
) -> _Found:
    letters, seen = [], 0
    for letter in access.look(queue, bodies=bodies):
        seen += 1
        if choice.fits(letter):
            letters.append(letter)
            if len(letters) == limit:
                return _Found(letters, "")
    total = access.count(queue) or 0
    hidden = f"{seen:,} of {total:,} messages can be seen; {access.remedy}" if seen < total else ""
    return _Found(letters, hidden)


def _warn(found: _Found) -> None:
    if found.hidden:
        _err.print(found.hidden, style="yellow")


def _destination(text: str | None) -> str | None:
    """The URI of a queue or topic, however it is spelt; raises InvalidDestinationError."""
    return None if text is None else str(parse_destination(text))


def queue_name(queue: str) -> str:
    """The bare name of a queue; raises ConfigurationError for anything else."""
    uri = _destination(queue) or ""
    kind, _, name = uri.partition("://")
    if kind != "queue" or any(sign in name for sign in "*>,?"):
        raise ConfigurationError(f"{queue!r} is not one queue, like ActiveMQ.DLQ")
    return name


@dataclass(frozen=True, slots=True)
class _Move:
    """What is done with dead letters."""

    find: Callable[[int | None], _Found]  #: those that are meant and can be moved, at most so many
    plan: Callable[[Sequence[DeadLetter]], str]  #: in words
    act: Callable[[Sequence[DeadLetter]], Iterator[list[str]]]
    limit: int | None
    rate: float | None = None  #: messages a second


def _move(move: _Move, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """
    Say the plan, ask, and do it; exit code 1 if some of the letters were not there any more.

    What the broker shows only when others have left the queue is found then, and belongs to it.
    """
    found = move.find(move.limit)
    planned, done = len(found.letters), 0
    follows = f", and what lies behind them ({found.hidden})" if found.hidden else ""
    (_err if as_json else _out).print(
        f"{move.plan(found.letters)}{follows}" if planned else "nothing to do"
    )
    if planned and not dry_run:
        if not yes:
            _confirm()
        done = _carry_out(move, found.letters)
        while found.hidden and done == planned and (move.limit is None or done < move.limit):
            found = move.find(None if move.limit is None else move.limit - done)
            planned += len(found.letters)
            if not found.letters:
                _warn(found)
                break
            done += _carry_out(move, found.letters)
    missing = 0 if dry_run else planned - done
    if as_json:
        _print_json({"planned": planned, "done": done, "missing": missing, "dry_run": dry_run})
    elif planned and not dry_run:
        rest = f"; {missing:,} were not there any more" if missing else ""
        _out.print(f"{done:,} done{rest}")
    if missing:
        raise typer.Exit(1)


def _confirm() -> None:
    if not sys.stdin.isatty():
        raise ConfigurationError("nobody can be asked here; say --yes, or --dry-run")
    typer.confirm("Go on?", abort=True)


def _carry_out(move: _Move, letters: Sequence[DeadLetter]) -> int:
    """How many were done; what is interrupted says so, and leaves nothing half done."""
    done, total, began = 0, len(letters), time.monotonic()
    columns = (
        TextColumn("{task.fields[speed]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=_err, disable=not _err.is_terminal) as progress:
        task = progress.add_task("", total=total, speed="")
        try:
            for moved in move.act(letters):
                done += len(moved)
                passed = time.monotonic() - began
                progress.update(task, completed=done, speed=f"{done / max(passed, 0.001):,.0f}/s")
                if move.rate is not None:
                    time.sleep(max(done / move.rate - passed, 0.0))
        except (KeyboardInterrupt, JmsxError):
            _err.print(
                f"{done:,} of {total:,} were done for certain; each of the others is in one of the queues"
            )
            raise
    return done


def _print_staying(letters: Sequence[DeadLetter], to: str | None) -> None:
    staying = Counter(why for one in letters if (why := one.obstacle(to)))
    for why, count in staying.most_common():
        _err.print(f"{count:,} stay: {why}", style="yellow")


@contextmanager
def _made(path: Path) -> Iterator[Callable[[str], object]]:
    """A new file of its owner's alone; raises ConfigurationError if there is one."""
    try:
        with open(path, "x", encoding="utf-8", opener=_private) as file:
            yield lambda line: file.write(f"{line}\n")
    except FileExistsError as error:
        raise ConfigurationError(f"{path} is there already; name another file") from error


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def record(letter: DeadLetter) -> dict[str, Any]:
    """One dead letter as JSON has it."""
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
        "error": f"{letter.error}: {letter.error_message}" if letter.error else "",
    }
    for name, value in told.items():
        if value not in (None, "", "-"):
            _out.print(f"{name:14} {visible(str(value), keep='')}")
    stack = letter.headers.get("jmsx_stack")
    if stack:
        _out.print(f"\n{stack}")
    _out.print("\nheaders")
    for name, text in letter.headers.items():
        if not name.startswith("jmsx_") and name not in _UNTOLD:
            _out.print(f"  {visible(name, keep='')}: {visible(text, keep='')}")
    _out.print(f"\nbody, {letter.size if letter.size is not None else '?'} bytes")
    if letter.body is not None:
        _out.print(letter.body.decode("utf-8", "backslashreplace"))


def _print_json(value: object) -> None:
    _out.print_json(json.dumps(value), indent=None, ensure_ascii=True)


def _print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table for a person; for a pipe a line each, with tabs between, and no head."""
    if not _out.is_terminal:
        for row in rows:
            print_row(*row)
        return
    table = Table(*head)
    for row in rows:
        table.add_row(*(visible(text, keep="") for text in row))
    _out.print(table)


def print_row(*texts: str) -> None:
    """A line with tabs between, for a pipe; the console of rich would make spaces of them."""
    typer.echo("\t".join(visible(text, keep="") for text in texts))


def _short(text: str) -> str:
    line = text.partition("\n")[0]
    return line if len(line) <= _COLUMN else f"{line[: _COLUMN - 1]}…"


def timestamp(seconds: float | None) -> str:
    """An instant (epoch seconds) in UTC, to the second."""
    if seconds is None:
        return "-"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
