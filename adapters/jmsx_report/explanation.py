"""
The life of one message, from the event logs of all services: who sent it, each delivery and its error, its end.

Lines are found by searching bytes, and only those found are parsed. So a log of any size is read once for the message
and what its listeners sent, once for the keys if a message id was asked for, once for the transactions and the message
whose listener sent it, and once for what else was sent while a handler ran: by the handler of a batch, in its threads,
or by `receive()`. No line says why such a message was sent, so the time decides. As in the report a line counts if
`fault_of` finds it valid, and of lines with one number the first. What the log cannot tell is said: a missing send, an
open end, lines that are missing somewhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import orjson

from jmsx.dead_letters.stacks import from_the_handler
from jmsx.errors import ConfigurationError
from jmsx.log import counted
from jmsx_eventlog.schema import fault_of
from jmsx_report.flows import DONE
from jmsx_report.local import content
from jmsx_report.segments import survey
from jmsx_report.wording import duration, moment, name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path


Line = dict[str, Any]

#: Outcomes of a delivery after which the message does not come again.
_ENDS: Final = {
    "acknowledged": "done, and acknowledged",
    "committed": "done, and committed",
    "discarded": "given up on purpose, and acknowledged",
    "dead_lettered": "given to the dead letters",
    "duplicate": "known as done before; acknowledged without being handled",
    "expired": "expired before it was handled",
}
#: Outcomes of a delivery after which the message comes again.
_GOES_ON: Final = {
    "rolled_back": "given back",
    "released": "given back by a consumer that closed",
    "abandoned": "its connection was lost before it was settled",
}
#: How the handler ended of a delivery that was abandoned while the application had the message.
_LATE: Final = {
    "done": "its handler came to its end all the same",
    "failed": "its handler failed",
    "undone": "the application gave it back",
    "in_doubt": "it may have become a dead letter",
}
_SENT: Final = {
    "confirmed": "sent to {dest}, and confirmed by the broker",
    "unconfirmed": "sent to {dest}; no receipt came, so nobody knows whether the broker has it",
    "error": "not sent to {dest}: the broker refused it",
    "rolled_back": "sent to {dest} in a transaction that was rolled back",
}
_TRANSACTION: Final = {
    "tx.commit": "transaction {tx_id} was committed",
    "tx.rollback": "transaction {tx_id} was rolled back",
    "tx.in_doubt": "nobody knows how transaction {tx_id} ended",
}
#: The fate of a message that was never delivered, by the outcome of its sends; the first outcome found counts.
_UNDELIVERED: Final = {
    "confirmed": "sent, and not delivered as far as the log goes",
    "unconfirmed": "perhaps sent, and not delivered as far as the log goes",
    "rolled_back": "never sent: its transaction was rolled back",
    "error": "never sent: the broker refused it",
}
#: For how many of the latest deliveries the messages sent meanwhile are told: each costs another search of the log.
_LOOKED_AT: Final = 2
#: What is said of a message whose end is not in the log; its broker may know more.
_OPEN: Final = "how it ended is not in the log"
#: The most characters of a text that are shown.
LONG: Final = 4000
#: The most places that one list shows.
_MOST: Final = 20
#: Fields that name a message.
_NAMES: Final = ("msg_key", "msg_id", "cause_key")
#: Bytes by which lines about the log itself are found.
_OF_THE_LOG: Final = (b'"kind":"log.open"', b'"kind":"log.gap"')


@dataclass(frozen=True, slots=True)
class Happening:
    """One line of the log, in words."""

    at_us: int  #: since the epoch, by the clock of its writer
    writer: str
    service: str  #: "" where the log has no first line of the writer
    text: str
    line: Line

    @property
    def way(self) -> str:
        """The calls that led from the handler to its error, in one line; "" if the log line does not have them."""
        return from_the_handler(str(self.line.get("error_stack", "")))


@dataclass(slots=True)
class Story:
    """What the log tells of one message."""

    keys: list[str]
    happenings: list[Happening] = field(default_factory=list)
    #: What its listeners sent, and the transactions that consumed it: key, destination, outcome
    outputs: list[tuple[str, str, str]] = field(default_factory=list)
    #: What its process also sent while its handler ran, for unknown reasons: key, destination, outcome
    meanwhile: list[tuple[str, str, str]] = field(default_factory=list)
    #: The messages whose listeners sent it, or that were consumed in the transaction that sent it: key, destination
    inputs: list[tuple[str, str]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)  #: what the log does not tell, sentences
    fate: str = ""  #: how it ended, as a clause


def explain(events: Path, wanted: str) -> Story:
    """
    Return the life of the message with the key or message id `wanted`, from the log in `events`.

    Raises:
        ConfigurationError: there is no log, no line tells of such a message, or `wanted` is nothing to look for.

    """
    if not wanted:
        raise ConfigurationError("give a message key or a message id")
    log = _Log(events)
    wanted = wanted.encode(errors="replace").decode()  # as the log has it
    keys, named = [wanted], {wanted}
    found = log.find(named, lambda line: bool(named & {line.get(one) for one in _NAMES}))
    own = [line for line in found if line.get("cause_key") != wanted]
    if own:
        keys = sorted({str(line["msg_key"]) for line in own if "msg_key" in line})
    elif not found:
        raise ConfigurationError(
            f"no line of {events} tells of {wanted!r}: it is neither a key (jmsx_key) nor a message id there"
        )
    if keys != [wanted]:
        found = log.find(
            keys, lambda line: not {line.get("msg_key"), line.get("cause_key")}.isdisjoint(keys)
        )
    own = _own(found, keys)
    transactions = {within for line in own if (within := _transaction(line)) is not None}
    causes = _causes(own)
    beside = (
        log.find(
            {number for _, number in transactions} | causes,
            lambda line: (
                _transaction(line) in transactions
                or (line["kind"] == "delivery" and line["msg_key"] in causes)
            ),
        )
        if transactions or causes
        else []
    )
    story = _told(log, keys, found, beside)
    handled = [
        (line["writer"], line["start_us"], line["end_us"])
        for line in own
        if line["kind"] == "delivery" and "start_us" in line and "end_us" in line
    ]
    sends = _sent_meanwhile(log, handled[-_LOOKED_AT:])
    story.meanwhile = list(map(_output, sends))
    if len(handled) > _LOOKED_AT:
        before = counted(len(handled) - _LOOKED_AT, "earlier handler")
        story.unknown.append(f"what was sent while {before} ran: not looked for")
    if sends:
        story.unknown.append(
            "whether its handler sent that: no line says so, and handlers that ran beside it may have"
        )
    return story


def deaths(events: Path) -> Iterator[Line]:
    """
    Yield the line of each dead letter and expired message in the log in `events`, with `reason`.

    The log is read segment by segment and nothing is kept, so the lines are not ordered by time, and a line that the
    log has twice comes twice.

    Raises:
        ConfigurationError: there is no log.

    """

    def died(line: Line) -> bool:
        return line["kind"] == "dlq" or (
            line["kind"] == "delivery" and line.get("outcome") == "expired"
        )

    needles = [b'"kind":"dlq"', b'"outcome":"expired"']
    for line in _Log(events).each(needles, died):
        yield {"reason": "expired", **line}


def _sent_meanwhile(log: _Log, handled: list[tuple[str, int, int]]) -> list[Line]:
    """Return sends without a known cause that began while their writer ran a handler; `handled`: writer, start, end."""
    begins = {begin for _, start, end in handled for begin in _begins(start, end)}

    def fits(line: Line) -> bool:
        return (
            line["kind"] == "send"
            and _transaction(line) is None
            and "cause_key" not in line
            and any(
                line["writer"] == writer and start <= line.get("start_us", -1) <= end
                for writer, start, end in handled
            )
        )

    return log.find_bytes([b'"start_us":' + begin for begin in begins], fits) if begins else []


def _begins(start: int, end: int) -> set[bytes]:
    """Return one or two prefixes such that each number from `start` to `end` begins with one of them."""
    size = 10 ** len(str(max(end - start, 0)))
    return {str(number // size).encode() for number in (start, end)}


class _Log:
    """The segments of a log, and what is known of their writers."""

    def __init__(self, events: Path) -> None:
        self._events = events
        found = survey(events)
        self._segments = found.segments
        self._noted = False  #: the lines about the writers were read
        self.unread = found.files.filter("unread").height
        self.services: dict[str, str] = {}  #: writer -> service
        #: By writer and number of a `log.gap` line: how many events it says are missing
        self.gaps: dict[tuple[str, int], int] = {}
        #: Writer and number that two different lines have
        self.contradictions: set[tuple[str, int]] = set()

    def find(self, texts: Collection[str], fits: Callable[[Line], bool]) -> list[Line]:
        """Return the lines that have one of `texts` as a value and satisfy `fits`, ordered by time."""
        return self.find_bytes([orjson.dumps(text) for text in texts], fits)

    def find_bytes(self, needles: Sequence[bytes], fits: Callable[[Line], bool]) -> list[Line]:
        """Return the lines that contain one of `needles` and satisfy `fits`, ordered by time."""
        found: dict[tuple[str, int], Line] = {}
        for line in self.each(needles, fits):
            place = line["writer"], line["seq"]
            if found.setdefault(place, line) != line:
                self.contradictions.add(place)
        return sorted(found.values(), key=_in_time)

    def each(self, needles: Sequence[bytes], fits: Callable[[Line], bool]) -> Iterator[Line]:
        """Yield the lines that contain one of `needles` and satisfy `fits`, in file order; perhaps several times."""
        for segment in self._segments:
            data = content(self._events, segment).data
            if not self._noted:
                self._note(data)
            yield from filter(fits, _lines(data, needles))
        self._noted = True

    def _note(self, data: bytes) -> None:
        """Remember what lines of `data` tell about the writers themselves."""
        for line in _lines(data, _OF_THE_LOG):
            if line["kind"] == "log.gap":
                self.gaps[line["writer"], line["seq"]] = line["dropped"]
            elif line["kind"] == "log.open":
                self.services[line["writer"]] = line.get("service", "")


def _in_time(line: Line) -> tuple[int, str, int]:
    return line["ts_us"], line["writer"], line["seq"]


def _as_told(line: Line) -> tuple[int, str, bool, int]:
    """Return a key that sorts as `_in_time` does, and a failed delivery before the dead letter of the same moment."""
    return line["ts_us"], line["writer"], line["kind"] == "dlq", line["seq"]


def _lines(data: bytes, needles: Iterable[bytes]) -> Iterator[Line]:
    """Yield each good line that has one of the needles; perhaps several times."""
    for needle in needles:
        at = data.find(needle)
        while at >= 0:
            end = data.find(b"\n", at)
            end = len(data) if end < 0 else end
            line = _parsed(data[data.rfind(b"\n", 0, at) + 1 : end])
            if line is not None:
                yield line
            at = data.find(needle, end)


def _parsed(text: bytes) -> Line | None:
    try:
        line = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if fault_of(line) is not None:
        return None
    return {name: value for name, value in line.items() if value is not None}


def _told(log: _Log, keys: list[str], found: list[Line], beside: list[Line]) -> Story:
    """Return the story made of the lines `found`, which name the message or its key as a cause, and those `beside`."""
    story = Story(keys)
    own = _own(found, keys)
    ends = [line for line in beside if line["kind"] in _TRANSACTION]
    died: dict[Any, int] = {}  #: where it did, and when
    for line in sorted([*own, *ends], key=_as_told):
        service, words = log.services.get(line["writer"], ""), _words(line)
        place = line.get("dest"), line.get("consumer")
        if line["kind"] == "dlq":
            died[place] = line["ts_us"]
        elif line["kind"] == "delivery" and line.get("start_us", 0) > died.get(place, math.inf):
            words = f"back from the dead letters: {words}"
        story.happenings.append(Happening(line["ts_us"], line["writer"], service, words, line))
    consumed, sent = (
        {_transaction(one) for one in own if one["kind"] == kind} - {None}
        for kind in ("delivery", "send")
    )
    caused = [line for line in found if line.get("cause_key") in keys]
    caused += [line for line in beside if line["kind"] == "send" and _transaction(line) in consumed]
    outputs = {
        (line["writer"], line["seq"]): line for line in caused if line["msg_key"] not in keys
    }
    story.outputs = [_output(line) for line in sorted(outputs.values(), key=_in_time)]
    causes = _causes(own)
    inputs = dict.fromkeys(
        (line["msg_key"], line["dest"])
        for line in beside
        if line["kind"] == "delivery"
        and line["msg_key"] not in keys
        and (line["msg_key"] in causes or _transaction(line) in sent)
    )
    story.inputs = list(inputs)
    story.fate = _fate(own)
    story.unknown = list(_unknown(log, keys, own))
    for key in sorted(causes - {key for key, _ in inputs}):
        story.unknown.append(
            f"what {name(key)} is, whose handler sent it: no delivery of that is in the log"
        )
    return story


def _causes(own: Iterable[Line]) -> set[str]:
    """Return the keys of the messages whose listeners sent it."""
    return {line["cause_key"] for line in own if "cause_key" in line}


def _own(found: Iterable[Line], keys: Collection[str]) -> list[Line]:
    return [line for line in found if line.get("msg_key") in keys]


def _output(line: Line) -> tuple[str, str, str]:
    return line["msg_key"], line["dest"], line["outcome"]


def _transaction(line: Line) -> tuple[str, str] | None:
    return (line["writer"], line["tx_id"]) if line.get("tx_id") else None


def _words(line: Line) -> str:
    """Return one line of the log as a clause."""
    worded = _WORDED.get(line["kind"])
    return name(line["kind"]) if worded is None else worded(line)


def _send(line: Line) -> str:
    text = _SENT.get(line.get("outcome", ""), "sent to {dest}")
    return text.format(dest=name(line.get("dest"))) + _within(line)


def _redelivery(line: Line) -> str:
    blocks = "; what lies behind it waits" if line.get("blocking") else ""
    keeps = "; the broker keeps it till then" if line.get("by_broker") else ""
    wait = duration(line.get("delay_us"))
    return f"delivery {line.get('next_attempt')} comes in {wait}{blocks}{keeps}"


def _dead(line: Line) -> str:
    where = (
        f"in {name(line['dlq_dest'])}" if line.get("dlq_dest") else "where the broker keeps them"
    )
    tried = line.get("attempts")
    times = "? deliveries" if tried is None else counted(tried, "delivery")
    return f"dead letter {where}: {line.get('reason')}, after {times}"


def _delivery(line: Line) -> str:
    outcome = line.get("outcome", "")
    ended = _ENDS.get(outcome) or _GOES_ON.get(outcome) or name(outcome)
    text = f"delivery {line.get('attempt')} to {name(line.get('consumer'))} of {name(line.get('dest'))}: "
    if line.get("error_type"):
        place = f" at {name(line['error_place'])}" if line.get("error_place") else ""
        text += f"failed with {name(line['error_type'])}{place}; "
    text += ended
    if isinstance(line.get("start_us"), int) and isinstance(line.get("end_us"), int):
        took = line["end_us"] - line["start_us"]
        text += (
            f" ({duration(took)} in the handler)"
            if took >= 0
            else " (before its handler was called)"
        )
    return text + _within(line)


def _late(line: Line) -> str:
    ended = _LATE.get(line.get("outcome", ""), name(line.get("outcome")))
    error = f" with {name(line['error_type'])}" if line.get("error_type") else ""
    return f"delivery {line.get('attempt')}, whose connection was lost: {ended}{error}"


def _within(line: Line) -> str:
    return f", in transaction {line['tx_id']}" if line.get("tx_id") else ""


def _transaction_ended(line: Line) -> str:
    return _TRANSACTION[line["kind"]].format(tx_id=line.get("tx_id"))


_WORDED: Final[Mapping[str, Callable[[Line], str]]] = {
    "send": _send,
    "delivery": _delivery,
    "delivery.late": _late,
    "redelivery.scheduled": _redelivery,
    "dlq": _dead,
    "dlq.failed": lambda line: (
        f"could not be made a dead letter, and is kept: {name(line.get('reason'))}"
    ),
    **dict.fromkeys(_TRANSACTION, _transaction_ended),
}


def _fate(own: list[Line]) -> str:
    """Return how the message ended, as far as the log tells, as a clause."""
    ended = [line for line in own if line["kind"] == "delivery" and line.get("outcome") in _ENDS]
    dead = [line for line in own if line["kind"] == "dlq"]
    last = max(ended, key=lambda line: line["ts_us"], default=None)
    if dead and (last is None or last["outcome"] == "dead_lettered"):
        return f"a dead letter since {moment(dead[-1]['ts_us'])} UTC"
    if last is not None:
        return f"{_ENDS[last['outcome']]}, {moment(last['ts_us'])} UTC"
    if any(line["kind"] == "delivery" for line in own):
        return "delivered, and not settled as far as the log goes"
    for outcome in _UNDELIVERED:  # it may have been sent several times, and one is enough
        if any(line["kind"] == "send" and line.get("outcome") == outcome for line in own):
            return _UNDELIVERED[outcome]
    return "not in the log, save that something was sent because of it"


def _unknown(log: _Log, keys: list[str], own: list[Line]) -> Iterator[str]:
    if not any(line["kind"] == "send" for line in own):
        yield "no send of it is in the log: its sender is not jmsx, keeps no log, or that log is not here"
    if len(keys) > 1:
        yield f"several messages have that message id: {', '.join(map(name, keys))}"
    sent = {line.get("outcome") for line in own if line["kind"] == "send"}
    deliveries = [line for line in own if line["kind"] == "delivery"]
    # else it never reached the broker
    if deliveries or not sent or sent & {"confirmed", "unconfirmed"}:
        yield from _open_ends(deliveries)
    missing = sum(log.gaps.values())
    if missing:
        yield f"{counted(missing, 'event')} missing from the log, as it says itself"
    if log.contradictions:
        left_out = counted(len(log.contradictions), "line")
        yield f"{left_out} left out, whose number another one has: see jmsx events validate"
    if log.unread:
        yield f"{counted(log.unread, 'file')} in the folder not read: see jmsx events validate"
    if len({line["writer"] for line in own}) > 1:
        yield "times are by the clock of each process, so their order may deceive"


def _open_ends(deliveries: list[Line]) -> Iterator[str]:
    if not any(line.get("outcome") in _ENDS for line in deliveries):
        yield _OPEN
    effects = [line for line in deliveries if line.get("outcome") in DONE]
    subscribers = {(line.get("dest"), line.get("subscription")) for line in effects}
    if len(effects) > len(subscribers):
        yield f"it was done {len(effects)} times, for {counted(len(subscribers), 'subscriber')}"
    unseen = min((line.get("attempt", 1) for line in deliveries), default=1) - 1
    if unseen > 0:
        earlier = counted(unseen, "delivery")
        yield f"{earlier} before number {unseen + 1} not in the log: who had it died, or keeps no log"
    for before, after in pairwise(deliveries):
        skipped = after.get("attempt", 0) - before.get("attempt", 0)
        if after.get("consumer") == before.get("consumer") and skipped > 1:
            yield f"{counted(skipped - 1, 'delivery')} behind number {before['attempt']} not in the log"


def not_known(story: Story, *, asked: bool) -> list[str]:
    """Return what the log does not tell, sentences; with what to do about it, unless the broker was asked."""
    return [
        f"{text}: ask the broker (--broker)" if text == _OPEN and not asked else text
        for text in story.unknown
    ]


def worded(story: Story, places: Sequence[str] | None = None) -> Iterator[str]:
    """Yield the story as lines of text; `places` is what a broker has of the message, sentences (None: not asked)."""
    yield f"{', '.join(map(name, story.keys))}: {story.fate}"
    yield ""
    for one in story.happenings:
        us = one.at_us % 1_000_000
        who = f"{name(one.service)} {name(one.writer)}".strip()
        yield f"{moment(one.at_us)}.{us:06}  {who}  {one.text}"
        if one.way:
            yield f"    by way of {name(one.way, LONG)}"
    for title, rows in (
        ("sent because of it", story.outputs),
        ("sent while its handler ran", story.meanwhile),
        ("sent because of", story.inputs),
    ):
        if rows:
            yield ""
            yield f"{title}:"
            yield from (f"  {'  '.join(map(name, row))}" for row in rows[:_MOST])
            if len(rows) > _MOST:
                yield f"  and {len(rows) - _MOST:,} more"
    if story.unknown:
        yield ""
        yield "not known:"
        yield from (f"  {text}" for text in not_known(story, asked=places is not None))
    if places:
        yield ""
        yield from places
