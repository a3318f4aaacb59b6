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
from jmsx.drivers.request_link import MisreadError, RequestLink
from jmsx.errors import BrokerTimeoutError
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
        return SimpleNamespace(address=address, unclear=None)

    monotonic = staticmethod(time.monotonic)


def message(name: str) -> MessageFrame:
    """A message that is whole, as far as is known."""
    return MessageFrame.of({"message-id": name, "ack": name}, b"a body")


def late(name: str) -> MessageFrame:
    """The same one, once it is known that it was not."""
    frame = message(name).truncated("it went on")
    frame.late = True
    return frame


def link_on(*chunks: list[MessageFrame]) -> RequestLink:
    """A link on which these come, one after the other."""
    machine = Played()
    for chunk in chunks:
        machine.came.put((None, chunk))
    return RequestLink(
        BrokerAddress("mq", 61613), ConnectionOptions(), DIALECT, cast("Machine", machine)
    )


def test_a_caller_may_have_more_patience_or_less() -> None:
    """As he says; the error tells it."""
    machine = cast("Machine", Played())
    address = BrokerAddress("mq", 61613)
    link = RequestLink(address, ConnectionOptions(), DIALECT, machine, patience=0.02)
    with pytest.raises(BrokerTimeoutError, match=r"did not answer SUBSCRIBE orders in 0\.02 s"):
        link.message("orders")


def last(headers: Mapping[str, str]) -> bool:
    """Whether it is the last one."""
    return headers["message-id"] == "end"


@pytest.mark.parametrize("together", [False, True])
def test_one_that_was_not_whole_costs_no_other(*, together: bool) -> None:
    """It is told as broken, whether the first half of it has been read or not."""
    came = [message("a"), message("b"), late("b"), message("c"), message("end")]
    link = link_on(came) if together else link_on(*([one] for one in came))
    told = [
        (one.headers["message-id"], bool(one.broken), one.body) for one in link.messages("q", last)
    ]
    assert told == [("a", False, b"a body"), ("b", True, b""), ("c", False, b"a body")]


def test_who_has_it_already_is_told() -> None:
    """He may have sent it on."""
    link = link_on([message("a")], [late("a"), message("b")])
    assert link.message("q").body == b"a body"
    with pytest.raises(MisreadError):
        link.message("q")
