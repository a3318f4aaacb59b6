"""A trade of which everything is known: who sent what, what became of it, and what was put in on purpose."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from tests.pipeline.situations.fleet import (
    HOUR,
    MINUTE,
    SECOND,
    START,
    Fleet,
    Process,
    Segment,
    key_at,
)
from tests.pipeline.situations.truth import BALANCED, Truth, totals

if TYPE_CHECKING:
    from pathlib import Path

QUEUES: Final = ("queue://orders", "queue://invoices", "queue://mail", "queue://ledger")
#: The number that a settlement adds to, by its outcome.
_SETTLES: Final = {
    "acknowledged": "done",
    "committed": "done",
    "dead_lettered": "dead_lettered",
    "discarded": "discarded",
    "duplicate": "suppressed",
    "expired": "expired",
}
#: What may become of a message that nobody settled.
_NOT_SETTLED: Final = ("unaccounted", "in_flight", "unread", "awaiting_reader")
#: What was settled, and no send of it is in the log.
_NOT_SENT: Final = ("unsent", "foreign")
#: The numbers of which the books know the truth.
NUMBERS: Final = frozenset(
    {"sent", "settled", *_SETTLES.values(), *_NOT_SETTLED, "duplicates", *_NOT_SENT}
)
_MS: Final = 1000


@dataclass
class Message:
    """One message that was sent."""

    key: str
    to: str
    sent_at: int  #: true time
    sender: Process


@dataclass
class Books:
    """What truly happened, counted when it was made to happen."""

    numbers: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    lost: set[str] = field(default_factory=set)
    repeated: set[str] = field(default_factory=set)

    def add(self, dest: str, name: str, count: int = 1) -> None:
        """Add to a number of a destination."""
        self.numbers[dest.partition("?")[0]][name] += count

    def exact(self) -> dict[str, dict[str, int]]:
        """Every number of every destination."""
        return {
            dest: {name: found[name] for name in NUMBERS} for dest, found in self.numbers.items()
        }


class Shop:
    """
    Senders and consumers on several hosts, each queue with two consumers of one service.

    `skews`: seconds by which the clocks of sender 1, sender 2 and the hosts of consumers are ahead. `own_times`: the
    broker is Classic, which takes the time of a message from its sender; else it has the messages of Artemis.
    """

    def __init__(
        self,
        seed: int,
        *,
        messages: int = 240,
        queues: tuple[str, ...] = QUEUES,
        skews: tuple[int, ...] = (0, 0, 0, 0),
        span: int = 2 * HOUR,
        segment_lines: int = 60,
        broker_skew: int = 0,
        hosts: int = 2,
        own_times: bool = False,
    ) -> None:
        self.own_times = own_times
        self.fleet = Fleet(seed, segment_lines=segment_lines)
        self.chance = self.fleet.chance
        self.books = Books()
        self.messages = messages
        self.queues = queues
        self.span = span
        self.broker_skew = broker_skew * SECOND
        self.now = START
        one, two, *rest = (skew * SECOND for skew in skews)
        self.senders = [
            self.fleet.process("web", "web-a", skew=one),
            self.fleet.process("batch", "batch-a", skew=two),
        ]
        self.consumers: dict[str, list[Process]] = {queue: [] for queue in queues}
        for number in range(hosts):
            skew = rest[number % len(rest)] if rest else 0
            worker = self.fleet.process("worker", f"worker-{'abcdefgh'[number]}", skew=skew)
            for queue in queues:
                self.reads(worker, queue)

    # What a process does.

    def reads(self, process: Process, dest: str, name: str | None = None) -> Process:
        """Have the process consume from `dest`."""
        short = dest.rpartition("/")[2]
        process.consumers[dest] = name or f"{process.service}.{short}"
        self.consumers.setdefault(dest, []).append(process)
        return process

    def send(
        self,
        dest: str,
        *,
        by: Process | None = None,
        outcome: str = "confirmed",
        counted: bool = True,
        key: str | None = None,
        at: int | None = None,
        **fields: Any,
    ) -> Message:
        """Send a message; counts it as sent where that is so."""
        sender = by or self.chance.choice(self.senders)
        begun = self.now if at is None else at
        made = key or key_at(sender.at(begun), self.chance)
        sender.noted_of_session(
            "send",
            begun + self.chance.randrange(500, 9000),
            dest=dest,
            msg_key=made,
            outcome=outcome,
            start_us=sender.at(begun),
            size=self.chance.randrange(2, 4000),
            **fields,
        )
        if counted and outcome == "confirmed":
            self.books.add(dest, "sent")
        return Message(made, dest, begun, sender)

    def deliver(
        self,
        message: Message,
        outcome: str = "acknowledged",
        *,
        attempt: int = 1,
        after: int = 20_000,
        by: Process | None = None,
        dest: str | None = None,
        consumer: str | None = None,
        error: str | None = None,
        handled: bool = True,
        counted: bool = True,
        takes: int | None = None,
        runs_on: bool = False,
        msg_id: str | None = None,
        **fields: Any,
    ) -> int:
        """
        Deliver a message once, `after` microseconds of its sending; returns when it was settled.

        `runs_on`: that was while its handler ran.
        """
        to = dest or message.to
        process = by or self.chance.choice(self.consumers[to])
        received = message.sent_at + after + self.chance.randrange(0, 5 * _MS)
        started = received + self.chance.randrange(50, 3 * _MS)
        ended = started + (self.chance.randrange(200, 40 * _MS) if takes is None else takes)
        settled = ended if runs_on else ended + self.chance.randrange(20, 4 * _MS)
        name = consumer or process.consumers.get(to) or process.service
        process.noted_of_session(
            "recv.batch", received, dest=to, consumer=name, messages=1, redelivered_messages=0
        )
        process.noted_of_session(
            "delivery",
            settled,
            dest=to,
            consumer=name,
            subscription=process.copies.get(to),
            msg_key=message.key,
            msg_id=msg_id or self.id_of(message),
            attempt=attempt,
            redelivered=attempt > 1,
            sent_us=self._stamped(message) // _MS * _MS,
            recv_us=process.at(received),
            start_us=process.at(started) if handled else None,
            end_us=process.at(ended) if handled else None,
            outcome=outcome,
            error_type=error,
            error_place=None if error is None else "shop/handlers.py:42",
            size=self.chance.randrange(2, 4000),
            **fields,
        )
        if counted and outcome in _SETTLES:
            self.books.add(to, "settled")
            self.books.add(to, _SETTLES[outcome])
        if outcome == "acknowledged":
            process.noted_of_session(
                "ack.batch", settled, dest=to, consumer=name, messages=1, trigger="each"
            )
        return settled

    def id_of(self, message: Message) -> str:
        """Return how the broker calls it: the ids of Classic have another form than those of Artemis."""
        number = crc32(message.key.encode())
        return f"ID:broker-1:1:1:1:{number}" if self.own_times else str(number)

    def _stamped(self, message: Message) -> int:
        """Return the time that the broker has of it; senders of older releases took it after they had made the key."""
        if self.own_times:
            return message.sender.at(message.sent_at) + self.chance.randrange(3 * _MS)
        return message.sent_at + _MS + self.broker_skew

    # What becomes of a message.

    def done(self, dest: str, **how: Any) -> Message:
        """Sent, and done once."""
        message = self.send(dest)
        self.deliver(message, **how)
        return message

    def retried(self, dest: str) -> Message:
        """It failed once, waited, and was done at the second attempt."""
        message = self.send(dest)
        worker = self.chance.choice(self.consumers[dest])
        self._failed(message, worker, 1, 20_000)
        self.deliver(message, attempt=2, after=2 * SECOND, by=worker)
        return message

    def dead(self, dest: str) -> Message:
        """It failed three times and was given to the dead letter queue."""
        message = self.send(dest)
        worker = self.chance.choice(self.consumers[dest])
        error = self.chance.choice(("ValueError", "KeyError", "TimeoutError"))
        self._failed(message, worker, 1, 20_000, error)
        self._failed(message, worker, 2, 2 * SECOND, error)
        at = self.deliver(
            message, "dead_lettered", attempt=3, after=4 * SECOND, by=worker, error=error
        )
        self.dead_letter(message, worker, at, 3, "max_redeliveries", error=error)
        return message

    def dead_letter(
        self,
        message: Message,
        worker: Process,
        at: int,
        attempts: int,
        reason: str,
        *,
        error: str | None = None,
        copied_to: str | None = None,
        **fields: Any,
    ) -> None:
        """Note that the broker has the message as a dead letter; as our copy, if it was `copied_to` a queue."""
        told = {
            "dest": message.to,
            "consumer": worker.consumers.get(message.to, worker.service),
            "msg_key": message.key,
            "msg_id": self.id_of(message),
            "attempts": attempts,
            "reason": reason,
            "error_type": error,
            "error_place": None if error is None else "shop/handlers.py:42",
            "dlq_dest": copied_to,
            "by_copy": copied_to is not None,
        }
        worker.noted_of_session("dlq", at, **(told | fields))

    def _failed(
        self,
        message: Message,
        worker: Process,
        attempt: int,
        after: int,
        error: str = "ValueError",
        **plan: Any,
    ) -> None:
        at = self.deliver(
            message, "rolled_back", attempt=attempt, after=after, by=worker, error=error
        )
        worker.noted_of_session(
            "redelivery.scheduled",
            at,
            dest=message.to,
            consumer=worker.consumers[message.to],
            msg_key=message.key,
            next_attempt=attempt + 1,
            **({"delay_us": 2 * SECOND, "blocking": True, "by_broker": False} | plan),
        )

    def discarded(self, dest: str) -> Message:
        """The application asked to forget it."""
        message = self.send(dest)
        self.deliver(message, "discarded", error="Discard")
        return message

    def suppressed(self, dest: str) -> Message:
        """It came twice, and the second was known to have been done."""
        message = self.send(dest)
        worker = self.chance.choice(self.consumers[dest])
        self.deliver(message, by=worker)
        self.deliver(message, "duplicate", by=worker, after=3 * SECOND, handled=False)
        return message

    def expired(self, dest: str) -> Message:
        """Its time was over before the handler saw it."""
        message = self.send(dest, expires_us=self.now + SECOND)
        self.deliver(message, "expired", after=2 * SECOND, handled=False)
        return message

    def released(self, dest: str) -> Message:
        """It was given back by an orderly close, and then done by another."""
        message = self.send(dest)
        self.deliver(message, "released", handled=False)
        self.deliver(message, after=5 * SECOND)
        return message

    def interrupted(self, dest: str) -> Message:
        """The link was lost while its handler ran and failed; then it was done."""
        message = self.send(dest)
        self.deliver(message, "abandoned", error="ConnectionError")
        self.deliver(message, attempt=2, after=3 * SECOND)
        return message

    def lost(self, dest: str) -> Message:
        """Confirmed, and nobody settled it."""
        message = self.send(dest)
        if self.chance.random() < 0.5:
            self.deliver(message, "abandoned", error="ConnectionError")
        self.books.add(dest, "unaccounted")
        self.books.lost.add(message.key)
        return message

    def twice(self, dest: str) -> Message:
        """Done twice: two acknowledgements of one message."""
        message = self.done(dest)
        self.deliver(message, attempt=1, after=30 * SECOND)
        self.books.add(dest, "duplicates")
        self.books.repeated.add(message.key)
        return message

    def ran_twice(self, dest: str) -> Message:
        """Its handler succeeded, the link was lost before the ACK, and it succeeded again."""
        message = self.send(dest)
        self.deliver(message, "abandoned")
        self.deliver(message, attempt=2, after=6 * SECOND)
        return message

    def ran_on(self, dest: str, late: str | None) -> Message:
        """Its link was lost while its handler ran; how that went was told `late`, or never. Another then did it."""
        message = self.send(dest)
        worker = self.chance.choice(self.consumers[dest])
        at = self.deliver(message, "abandoned", by=worker, runs_on=True)
        if late is not None:
            self.late(message, worker, at + self.chance.randrange(1, 2 * SECOND), late)
        self.deliver(message, attempt=2, after=6 * SECOND)
        return message

    def late(self, message: Message, worker: Process, at: int, outcome: str) -> None:
        """Note how its first delivery went, which lost its link."""
        worker.noted_of_session(
            "delivery.late",
            at,
            dest=message.to,
            consumer=worker.consumers[message.to],
            msg_key=message.key,
            attempt=1,
            outcome=outcome,
            error_type="ValueError" if outcome == "failed" else None,
        )

    # The trade.

    def trade(self, **fates: int) -> Shop:
        """Send all messages over the whole time; `fates` says how many meet another than `done`."""
        told = [fate for fate, count in fates.items() for _ in range(count)]
        told += ["done"] * (self.messages - len(told))
        self.chance.shuffle(told)
        step = self.span // (len(told) + 1)
        for number, fate in enumerate(told):
            self.now = START + (number + 1) * step + self.chance.randrange(step // 2 + 1)
            getattr(self, fate)(self.chance.choice(self.queues))
        self.ends_at(START + self.span + 2 * MINUTE)
        return self

    def usual(self, **fates: int) -> Shop:
        """Trade with some of everything that happens to healthy services."""
        some = max(1, self.messages // 60)
        usual = {
            "retried": 3 * some,
            "dead": some,
            "discarded": some,
            "suppressed": some,
            "expired": some,
            "released": some,
            "interrupted": some,
        }
        return self.trade(**(usual | fates))

    def ends_at(self, true_us: int) -> None:
        """Have every process end then, if not later."""
        self.now = true_us
        self.fleet.closed = max(self.fleet.closed, true_us)

    def ship(self, directory: Path) -> list[Segment]:
        """Write every segment below `directory`."""
        segments = self.fleet.segments()
        for segment in segments:
            segment.write(directory)
        return segments

    def truth(self, verdict: frozenset[str] = BALANCED, **more: Any) -> Truth:
        """What may be said where every line is there: all numbers, in all and of each destination."""
        exact = self.books.exact()
        found = Truth(verdict, **more)
        found.numbers = {**totals(exact), **found.numbers}
        found.by_destination = {dest: dict(numbers) for dest, numbers in exact.items()}
        found.verdicts = {dest: BALANCED for dest in exact if verdict == BALANCED} | found.verdicts
        found.lost_keys = found.may_be_lost = frozenset(self.books.lost)
        return found
