"""What the core asks for is handed over once, in order."""

from __future__ import annotations

from jmsx.core.actions import Disconnect, Outbox, Report, Transmit
from jmsx.core.events import LinkOpened
from jmsx.core.frames import Frame


def test_actions_come_out_once_in_order() -> None:
    """Frames that were asked for together stay together: they are one burst."""
    outbox = Outbox()
    begin, commit = Frame("BEGIN"), Frame("COMMIT")
    event = LinkOpened(at=1.0, server="ActiveMQ/6.1.8", seconds=0.5)
    outbox.transmit(begin, commit)
    outbox.report(event)
    outbox.disconnect("enough")
    assert outbox.take() == [Transmit((begin, commit)), Report(event), Disconnect("enough")]
    assert outbox.take() == []
