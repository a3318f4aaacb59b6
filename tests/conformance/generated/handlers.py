"""Rules for scripted listeners; every one of them comes to an end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.conformance.generated.things import ROOMY

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from tests.conformance.generated.things import Consumer
    from tests.conformance.scenario import Json

#: The queue that handlers send to; nothing consumes from it before the end.
OUTPUT = "out"


def rules(random: Random, consumer: Consumer, bodies: Sequence[str]) -> list[Json]:
    """Up to three rules that fit the session's mode; `bodies` may reach the listener."""
    choices = {
        "AUTO": _failing,
        "DUPS_OK": _failing,
        "INDIVIDUAL": _individual,
        "CLIENT": _client,
        "TRANSACTED": _transacted,
    }
    choose = choices[consumer.session.mode]
    # after a failure the Java client's lazy consumer stalls: the message keeps its place in the window
    most = 0 if consumer.lazy and consumer.prefetch < ROOMY else 2
    made = [choose(random, consumer, bodies) for _ in range(random.randint(0, most))]
    if random.random() < 0.1:
        made.insert(0, _closing(random, consumer))
    if consumer.session.mode == "INDIVIDUAL" and random.random() < 0.7:
        made.append({"do": ["acknowledge"]})
    return made


def _when(random: Random, bodies: Sequence[str]) -> Json:
    """A condition that holds only a few times."""
    if bodies and random.random() < 0.6:
        return {"body": random.choice(bodies), "deliveries": [1, random.randint(1, 3)]}
    return {"calls": random.randint(1, 4)}


def _failing(random: Random, consumer: Consumer, bodies: Sequence[str]) -> Json:
    if bodies and 0 <= consumer.session.connection.limit <= 3 and random.random() < 0.3:
        return {"body": random.choice(bodies), "do": ["fail"]}
    return {**_when(random, bodies), "do": ["fail"]}


def _individual(random: Random, consumer: Consumer, bodies: Sequence[str]) -> Json:
    if random.random() < 0.5:
        return _failing(random, consumer, bodies)
    actions = random.choice((["acknowledge"], ["acknowledge", "fail"], [], _recover(consumer)))
    return {**_when(random, bodies), "do": actions}


def _client(random: Random, consumer: Consumer, bodies: Sequence[str]) -> Json:
    actions = random.choice(
        (["acknowledge"], ["fail"], ["acknowledge", "fail"], _recover(consumer))
    )
    return {**_when(random, bodies), "do": actions}


def _transacted(random: Random, consumer: Consumer, bodies: Sequence[str]) -> Json:
    name = consumer.session.name
    commit, rollback = {"op": "commit", "in": name}, {"op": "rollback", "in": name}
    send = {"op": "send", "in": name, "to": OUTPUT, "bodies": [f"o{random.randint(1, 99)}"]}
    actions = random.choice(
        (
            [commit],
            [rollback],
            [send, commit],
            [send, rollback],
            ["fail"],
            [rollback, "fail"],
            [send],
        )
    )
    return {**_when(random, bodies), "do": actions}


def _recover(consumer: Consumer) -> list[Json]:
    return [{"op": "recover", "in": consumer.session.name}]


def _closing(random: Random, consumer: Consumer) -> Json:
    session = consumer.session
    target = random.choice((consumer.name, session.name, session.connection.name))
    return {"calls": random.randint(1, 3), "do": [{"op": "close", "target": target}]}
