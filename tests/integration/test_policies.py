"""Redelivery policies on a real broker: Artemis' own, policies by destination, and whose wins."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from jmsx import ArtemisRedeliveryPolicy, Message, Queue, RedeliveryPolicy, RedeliveryPolicyMap
from jmsx.app import App
from tests.integration.support import TRANSACTED, Diary, dead_copies, fresh_queue, put, settles

if TYPE_CHECKING:
    from jmsx import AcknowledgeMode
    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


@pytest.mark.parametrize("mode", [None, TRANSACTED])
def test_artemis_policy_lets_others_go_on(
    classic_broker: Broker, mode: AcknowledgeMode | None
) -> None:
    """A poison message waits aside; later ones overtake it; it has its attempts, no more, and is a dead letter."""
    queue = fresh_queue()
    app = App(
        classic_broker.url,
        redelivery_policies=RedeliveryPolicyMap(
            entries={
                "jmsx.#": ArtemisRedeliveryPolicy(redelivery_delay=0.05, max_delivery_attempts=3),
                "#": RedeliveryPolicy(maximum_redeliveries=0),
            }
        ),
    )
    seen: list[str] = []

    def desk(message: Message) -> None:
        seen.append(f"{message.text}#{message.delivery_count}")
        if message.text == queue.name:
            raise ValueError(message.text)

    if mode is None:
        app.consumer(queue, name="desk")(desk)
    else:
        app.consumer(queue, name="desk", mode=mode)(desk)
    put(classic_broker, queue, queue.name, "other", "third", case=queue.name)
    with app:
        assert settles(classic_broker, queue, size=0)
    poison = [f"{queue.name}#{n}" for n in (1, 2, 3)]
    assert [one for one in seen if one in poison] == poison
    assert seen.index("other#1") < seen.index(poison[1])
    assert len(seen) == 5
    (copy,) = [one for one in dead_copies(classic_broker, queue.name) if one.get("case")]
    assert copy["case"] == queue.name


def test_the_decorators_policy_wins(classic_broker: Broker) -> None:
    """Also over a map of the app's, which was asked before it."""
    queue, diary, done = fresh_queue(), Diary(), threading.Event()
    forever = RedeliveryPolicy(maximum_redeliveries=-1)
    app = App(
        classic_broker.url,
        observers=[diary],
        redelivery_policies=RedeliveryPolicyMap(entries={">": forever}),
    )

    @app.consumer(queue, redelivery=RedeliveryPolicy(maximum_redeliveries=0))
    def desk(_message: Message) -> None:
        done.set()
        raise ValueError

    put(classic_broker, Queue(queue.name), "poison")
    with app:
        assert done.wait(5)
        assert settles(classic_broker, queue, size=0)
    assert [one.attempts for one in diary.dead()] == [1]
