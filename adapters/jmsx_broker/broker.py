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
        """Return the broker's own counts of `queue`; raises the errors of `queue_statistics`."""
        return queue_statistics(self._asking_url(), queue)

    def browse(self, queue: str) -> list[BrowsedMessage]:
        """Return all messages in `queue`, oldest first; raises the errors of `browse_queue`."""
        return browse_queue(self._asking_url(), queue)

    def _asking_url(self) -> str:
        """Return the URL for such questions, with user and password if the broker demands them."""
        return self.url


class ExternalBroker(Broker):
    """A broker that somebody else runs; nothing here starts, stops or empties it."""

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def url(self) -> str:
        """Where its STOMP connector listens."""
        return self._url
