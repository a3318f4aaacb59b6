"""Messages on a link whose caller waits for each; the link is played."""

from __future__ import annotations

import queue
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from jmsx.config.options import ConnectionOptions
from jmsx.config.uri import BrokerAddress
from jmsx.core.frames import MessageFrame
from jmsx.drivers.exchange import MisreadError, Talk
from jmsx_classic import DIALECT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jmsx.drivers.machine import Machine


class Played:
    """A machine whose links bring what the test says."""

    def __init__(self) -> None:
        self.came: queue.Queue[Any] = queue.Queue()

    def inbox(self, **_: object) -> queue.Queue[Any]:
        """What has come."""
        return self.came

    def link(self, address: BrokerAddress, *_: object) -> SimpleNamespace:
        """Nobody writes to it."""
        return SimpleNamespace(address=address)

    monotonic = staticmethod(time.monotonic)


def message(name: str) -> MessageFrame:
    """A message that is whole, as far as is known."""
    return MessageFrame.of({"message-id": name, "ack": name}, b"a body")


def late(name: str) -> MessageFrame:
    """The same one, once it is known that it was not."""
    frame = message(name).truncated("it went on")
    frame.late = True
    return frame


def talk_on(*chunks: list[MessageFrame]) -> Talk:
    """A talk to which these come, one after the other."""
    machine = Played()
    for chunk in chunks:
        machine.came.put((None, chunk))
    return Talk(BrokerAddress("mq", 61613), ConnectionOptions(), DIALECT, cast("Machine", machine))


def last(headers: Mapping[str, str]) -> bool:
    """Whether it is the last one."""
    return headers["message-id"] == "end"


@pytest.mark.parametrize("together", [False, True])
def test_one_that_was_not_whole_costs_no_other(*, together: bool) -> None:
    """It is told as broken, whether the first half of it has been read or not."""
    came = [message("a"), message("b"), late("b"), message("c"), message("end")]
    talk = talk_on(came) if together else talk_on(*([one] for one in came))
    told = [
        (one.headers["message-id"], bool(one.broken), one.body) for one in talk.messages("q", last)
    ]
    assert told == [("a", False, b"a body"), ("b", True, b""), ("c", False, b"a body")]


def test_who_has_it_already_is_told() -> None:
    """He may have sent it on."""
    talk = talk_on([message("a")], [late("a"), message("b")])
    assert talk.message("q").body == b"a body"
    with pytest.raises(MisreadError):
        talk.message("q")
