"""What an application tells its operator when it has started: how its consumers work, and what is not guaranteed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jmsx.app.registration import Consumer
from jmsx.app.worker import Worker
from jmsx.core.dialect import Dialect
from jmsx.core.policy import Policy, RedeliveryMode
from jmsx.core.values import DeadLetterStrategy
from jmsx.log import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: How many redelivery delays are listed one by one.
NAMED: Final = 6

#: What is not guaranteed where ACKs are sent in batches.
_BATCHED: Final = "a crash brings up to a batch of messages again"

#: What is not guaranteed where the broker does not include ACKs in transactions.
_TWO_STEPS: Final = (
    "a commit takes two steps; after a crash between them the message comes again, and the broker drops what was"
    " sent already by its duplicate id"
)


def overview(workers: Iterable[Worker]) -> Iterator[str]:
    """Yield lines of text about the broker and each consumer."""
    by_name = {worker.consumer.name: worker for worker in workers}
    places = {
        (worker.dialect.name, worker.server, str(worker.address)) for worker in by_name.values()
    }
    for dialect, server, address in sorted(places):
        yield f"broker {address}: {server or dialect} ({dialect})"
    for name, worker in by_name.items():
        yield f"{name}: {_told(worker)}"
    yield from _shared([worker.consumer for worker in by_name.values()])


def _shared(consumers: Iterable[Consumer]) -> Iterator[str]:
    """Yield which handlers share the messages of a queue; those with selectors may be meant for different ones."""
    readers: dict[str, list[str]] = {}
    for one in consumers:
        if not one.destination.is_topic and one.selector is None:
            readers.setdefault(one.destination.uri, []).append(one.name)
    for uri, names in readers.items():
        if len(names) > 1:
            yield f"{uri}: each message goes to one of {', '.join(names)}, not to each of them"


def _told(worker: Worker) -> str:
    consumer, options = worker.consumer, worker.options
    policy = options.policy(consumer.destination.uri, consumer.options)
    sessions = counted(consumer.concurrency, "session")
    told = [
        f"{consumer.destination.uri}, {consumer.mode.label}, {sessions}",
        _redeliveries(policy),
        _death(consumer.dead_letter or options.dead_letter, worker.dialect),
        *_caveats(worker),
    ]
    return "; ".join(told)


def _redeliveries(policy: Policy) -> str:
    """Return how often and when, as far as that can be told in a line."""
    most = policy.maximum_redeliveries
    if most == 0:
        return "never delivered again"
    try:
        delays = [
            policy.delay(number)
            for number in range(1, (NAMED if most < 0 else min(most, NAMED)) + 1)
        ]
    except Exception:  # noqa: BLE001 - a policy of the application's own may raise anything
        return f"delivered again by {type(policy).__name__}"
    more = ", ..." if most < 0 or most > NAMED else ""
    times = "for ever" if most < 0 else "once" if most == 1 else f"{most} times"
    by = " by the broker's scheduler" if policy.mode == RedeliveryMode.SCHEDULED else ""
    return f"delivered again {times}{by} after {', '.join(f'{one:g}' for one in delays)}{more} s"


def _death(dead_letter: str, dialect: Dialect) -> str:
    safe = dead_letter == DeadLetterStrategy.SAFE
    if dead_letter == DeadLetterStrategy.BROKER or (safe and dialect.nack_dead_letters):
        return "then a dead letter by the broker's strategy"
    if safe:
        own = dialect.dead_letter_queue.partition("://")[2]
        return f"then a dead letter where the broker's settings put it, else in {own}"
    return f"then a dead letter in {dead_letter}"


def _caveats(worker: Worker) -> Iterator[str]:
    does = worker.consumer.mode.does
    if worker.consumer.destination.is_topic and worker.consumer.durable is None:
        yield "not promised: what is sent while it is away; and each process that runs it gets every message"
    if does.batches_topics:
        yield f"not promised: {_BATCHED}"
    if does.transacted and not worker.dialect.transactional_ack:
        yield f"not promised: {_TWO_STEPS}"
    if worker.consumer.dedupe is None and not does.batches_topics:
        yield "not promised without dedupe=: that a message is handled once, if the process dies in between"
