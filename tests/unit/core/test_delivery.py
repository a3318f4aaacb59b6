"""One message in our hands."""

from __future__ import annotations

import pytest

from jmsx.core.delivery import Delivery
from jmsx.core.frames import MessageFrame


def delivery(**headers: str) -> Delivery:
    """A delivery that came with these headers, at 5 s."""
    return Delivery(
        MessageFrame.of(headers),
        arrival=1,
        message_id=headers.get("message-id", ""),
        epoch=2,
        received_at=5.0,
        expires_at=None,
    )


@pytest.mark.parametrize(
    ("headers", "count"),
    [({}, 1), ({"redelivered": "true"}, 2), ({"redelivered": "false"}, 1)],
)
def test_flag_means_at_least_one_redelivery(headers: dict[str, str], count: int) -> None:
    """STOMP carries the flag and not the count, so the second delivery is the least it can be."""
    assert delivery(**headers).delivery_count == count
    assert delivery(**headers).redelivery_count == count - 1


def test_its_ids_are_the_brokers() -> None:
    """`ack` settles it, `message-id` names it."""
    one = delivery(ack="7", **{"message-id": "ID:1"})
    assert (one.ack_id, one.message_id, one.epoch) == ("7", "ID:1", 2)
    assert one.headers is one.frame.headers
    assert repr(one) == "<Delivery ID:1 #1 epoch 2>"


def test_without_ids_it_has_empty_ones() -> None:
    """A peer that leaves them out does not stop the session."""
    assert (delivery().ack_id, delivery().message_id) == ("", "")


def test_it_was_started_when_it_came_until_it_is_handed_out() -> None:
    """So no time in the evidence is ever unset."""
    one = delivery()
    assert (one.received_at, one.started_at, one.ended_at) == (5.0, 5.0, 5.0)
