"""What every broker of this package can do, however it was started."""

from __future__ import annotations

from jmsx_broker.questions import browse_queue, queue_statistics
from jmsx_broker.statistics import BrowsedMessage, QueueStatistics


class Broker:
    """A broker that can be reached, asked for its counts, and looked into."""

    @property
    def url(self) -> str:
        """Where its STOMP connector listens, such as stomp://127.0.0.1:61613."""
        raise NotImplementedError

    def statistics(self, queue: str) -> QueueStatistics:
        """Return its own counts of `queue`; the errors are those of `queue_statistics`."""
        return queue_statistics(self._asking_url(), queue)

    def browse(self, queue: str) -> list[BrowsedMessage]:
        """Return all messages that lie in `queue`, oldest first; the errors are those of `browse_queue`."""
        return browse_queue(self._asking_url(), queue)

    def _asking_url(self) -> str:
        """Return its URL for these questions, which may have to say who asks."""
        return self.url


class ExternalBroker(Broker):
    """A broker that somebody else runs; nothing here starts, stops or empties it."""

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def url(self) -> str:
        """Where its STOMP connector listens."""
        return self._url
