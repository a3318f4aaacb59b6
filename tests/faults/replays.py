"""
`jmsx dlq replay`, killed again and again: after each kill every message is in exactly one of the two queues.

`uv run python -m tests.faults.replays --broker classic --messages 20000 --kills 5` has an application fail with so many
messages, which makes dead letters of the broker's default kind, and sends them back by the command. At moments drawn at
random (`--seed`) the command is killed with -9. Then both queues are looked at, message by message, by the keys that
their sender gave them. After the last kill the command runs to its end, and an application consumes what has come back.
"""

# ruff: noqa: T201 - printing is what this module is for

from __future__ import annotations

import argparse
import logging
import random
import signal
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from jmsx import AcknowledgeMode, App, Connection, Message, Queue, RedeliveryPolicy
from jmsx.dead_letters.opening import open_access
from jmsx_broker import ArtemisBroker, ClassicBroker
from tests.integration.broker_support import python

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jmsx_broker.local import LocalBroker

_BROKERS: Final[dict[str, Callable[[], LocalBroker]]] = {
    "classic": ClassicBroker,
    "artemis": ArtemisBroker,
}

#: Where each broker puts dead letters by default.
_DEAD: Final = {"classic": "ActiveMQ.DLQ", "artemis": "DLQ"}

_ORIGIN: Final = Queue("replays")

#: Sends in one transaction.
_BATCH: Final = 500

#: Seconds until something must have happened that others wait for.
_PATIENCE: Final = 600.0


class WrongError(Exception):
    """A message was lost, or is there twice, or the bench came to no end."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 if each message was in exactly one place after every kill, else 1."""
    options = _parser().parse_args(arguments)
    logging.getLogger("jmsx").setLevel(logging.CRITICAL)  # its handlers fail on purpose, often
    chance = random.Random(options.seed)
    dead = _DEAD[options.broker]
    moments = sorted(chance.sample(range(1, options.messages), options.kills))
    try:
        with _BROKERS[options.broker]() as broker:
            _send(broker, options.messages)
            keys = _bury(broker, options.messages)
            _compare(broker, dead, keys, moved=0)
            for number, moment in enumerate(moments, 1):
                ended = _replay(broker, dead, moment, chance.uniform(0.0, 0.3))
                moved = _compare(broker, dead, keys, moved=None)
                how = "ended before it was killed" if ended else "killed"
                print(f"{number}: {how} after {moved:,}; each of {len(keys):,} in one place")
            _replay(broker, dead, None, 0.0)
            _compare(broker, dead, keys, moved=options.messages)
            _consume(broker, keys)
            _compare(broker, dead, Counter(), moved=0)
    except WrongError as error:
        print(f"WRONG: {error}")
        return 1
    print(f"{options.messages:,} dead letters were sent back and handled once each")
    return 0


def _send(broker: LocalBroker, count: int) -> None:
    with Connection(broker.url) as connection:
        session = connection.create_session(AcknowledgeMode.SESSION_TRANSACTED)
        producer = session.create_producer(_ORIGIN)
        for number in range(count):
            producer.send(Message(f"{number}"))
            if (number + 1) % _BATCH == 0 or number + 1 == count:
                session.commit()


def _bury(broker: LocalBroker, count: int) -> Counter[str]:
    """Have an application fail with all of them; the keys of the dead letters."""
    app = App(broker.url, broker_stats=0)
    keys = Counter[str]()

    @app.consumer(_ORIGIN.uri, redelivery=RedeliveryPolicy(maximum_redeliveries=0))
    def fail(message: Message) -> None:
        keys[message.key or ""] += 1
        raise TimeoutError("late")

    with app:
        _until(lambda: keys.total() >= count, "all messages have failed")
        _until(lambda: broker.statistics(_ORIGIN.name).size == 0, "all of them are dead letters")
    if set(keys.values()) != {1}:
        raise WrongError(f"{keys.total() - len(keys):,} messages were delivered again")
    return keys


def _replay(broker: LocalBroker, dead: str, moment: int | None, later: float) -> bool:
    """Run the command; kill it so many seconds after `moment` messages are back. Whether it ended before."""
    command = ("-m", "jmsx", "dlq", "replay", dead, "--yes", "--broker", broker.url)
    with python(*command) as process:
        if moment is not None:
            _until(
                lambda: (
                    process.poll() is not None or broker.statistics(_ORIGIN.name).size >= moment
                ),
                f"{moment} messages are back",
            )
            time.sleep(later)
            process.send_signal(signal.SIGKILL)
        _, said = process.communicate(timeout=_PATIENCE)
    if process.returncode not in (0, -signal.SIGKILL):
        raise WrongError(f"the command ended with {process.returncode}: {said}")
    _until(lambda: broker.statistics(dead).inflight_count == 0, "the broker knows that it is gone")
    return process.returncode == 0


def _compare(broker: LocalBroker, dead: str, keys: Counter[str], *, moved: int | None) -> int:
    """Look at both queues, and count each message: how many are back, which `moved` says if it is known."""
    with open_access(broker.url) as access:
        there, back = (
            Counter(letter.key for letter in (access.look(queue) if access.count(queue) else ()))
            for queue in (dead, _ORIGIN.name)  # Artemis removes one that is empty
        )
    found = there + back
    if found != keys:
        lost, more = (keys - found).total(), (found - keys).total()
        both = len(there.keys() & back.keys())
        raise WrongError(
            f"{lost:,} are in neither queue, {more:,} too many, {both:,} of them in both"
        )
    if moved is not None and back.total() != moved:
        raise WrongError(f"{back.total():,} are back, and not {moved:,}")
    return back.total()


def _consume(broker: LocalBroker, keys: Counter[str]) -> None:
    """Have an application handle all that has come back."""
    app = App(broker.url, broker_stats=0)
    handled = Counter[str]()

    @app.consumer(_ORIGIN.uri)
    def take(message: Message) -> None:
        handled[message.key or ""] += 1

    with app:
        _until(lambda: handled.total() >= keys.total(), "all have been handled")
        _until(lambda: broker.statistics(_ORIGIN.name).size == 0, "all are acknowledged")
    if handled != keys:
        raise WrongError(f"{(handled - keys).total():,} were handled twice or are strangers")


def _until(done: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _PATIENCE
    while not done():
        if time.monotonic() > end:
            raise WrongError(f"after {_PATIENCE:g} s it is still waited for that {what}")
        time.sleep(0.05)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.replays",
        description="Kill `jmsx dlq replay` at random, and count every message.",
    )
    parser.add_argument("--broker", choices=tuple(_BROKERS), default="classic")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    return parser


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the broker is ended
    sys.exit(main())
