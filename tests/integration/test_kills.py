"""A consumer that is killed again and again: nothing is lost, and no output of a transaction is doubled."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import jmsx
from tests.integration.support import fresh_queue, of_an_attempt_that_tells, settles

if TYPE_CHECKING:
    from jmsx_broker import Broker

ROOT = Path(__file__).parents[2]

MESSAGES = 600
KILLS = 6


def relay(broker: Broker, source: str, target: str) -> subprocess.Popen[bytes]:
    """Start the program."""
    command = [sys.executable, "-m", "tests.integration.relay", broker.url, source, target]
    return subprocess.Popen(command, cwd=ROOT)


@pytest.mark.broker
@pytest.mark.parametrize("kind", ["classic", "artemis"])
def test_killed_relay_loses_and_doubles_nothing(kind: str, request: pytest.FixtureRequest) -> None:
    """Also between COMMIT and ACK, where Artemis has the outputs and will deliver the input again."""
    broker = request.getfixturevalue(f"{kind}_broker")
    of_an_attempt_that_tells(lambda: attempt(broker))


def attempt(broker: Broker) -> None:
    """Send messages, and relay them by processes of which all but the last are killed."""
    source, target = fresh_queue().name, fresh_queue().name
    chance = random.Random(7)
    bodies = [str(number) for number in range(MESSAGES)]
    with jmsx.Connection(broker.url, prefetch_policy=jmsx.PrefetchPolicy.all(20)) as connection:
        session = connection.create_session(jmsx.AcknowledgeMode.SESSION_TRANSACTED)
        producer = session.create_producer(jmsx.Queue(source))
        for body in bodies:
            producer.send(jmsx.Message(body))
        session.commit()
    for _ in range(KILLS):
        victim = relay(broker, source, target)
        while broker.statistics(source).dequeue_count == 0 and victim.poll() is None:
            time.sleep(0.05)
        time.sleep(chance.uniform(0.05, 0.6))
        victim.kill()
        victim.wait()
    survivor = relay(broker, source, target)
    assert survivor.wait(120) == 0

    got: Counter[str] = Counter()
    with jmsx.Connection(broker.url) as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(jmsx.Queue(target))
        while (message := consumer.receive(1.0)) is not None:
            got[message.text] += 1
    assert {text: count for text, count in got.items() if count > 1} == {}, "doubled"
    assert settles(broker, jmsx.Queue(source), size=0)
    wanted = {f"{body} {part}" for body in bodies for part in ("first", "second")}
    assert wanted - set(got) == set(), "lost"
