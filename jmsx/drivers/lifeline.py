"""What is alive as long as one epoch is: its link, and the heart-beats on it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from jmsx.core.heartbeat import Heartbeat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jmsx.drivers.reconnect import Connected


class Lifeline:
    """One link that has said CONNECTED; used under the lock of its pump, save `drop`. Times are seconds, monotonic."""

    def __init__(self, connected: Connected, offered: tuple[float, float], now: float) -> None:
        self.link = connected.link
        self.greeting: Mapping[str, str] = connected.frame.headers  #: of CONNECTED
        self._errors_close = connected.dialect.errors_close
        answer = self.greeting.get("heart-beat", "0,0")
        self._heartbeat = Heartbeat(offered, answer, now, connected.dialect.patience)
        # A write blocks whoever would look after heart-beats, so it looks itself.
        self.link.silence = self._heartbeat.silence or math.inf

    def write(self, data: bytes, now: float) -> str | None:
        """Write to the socket; what is wrong if it is gone."""
        try:
            self.link.send(data)
        except OSError as error:
            return str(error) or type(error).__name__
        self._heartbeat.sent(now)
        return None

    def beat(self, now: float) -> tuple[str, str] | None:
        """Write a heart-beat if one is due; reason and detail if the link is dead."""
        self._heartbeat.heard(self.link.heard_at)
        if self._heartbeat.late(now):
            return "heartbeat", "the broker sent nothing for too long"
        if self._heartbeat.due(now) and (failure := self.write(b"\n", now)) is not None:
            return "io", failure
        return None

    def next_timer(self) -> float | None:
        """When `beat` is due."""
        return self._heartbeat.next_timer()

    def drop(self) -> None:
        """Close the socket without farewell; from any thread."""
        self.link.drop(at_once=not self._errors_close)
