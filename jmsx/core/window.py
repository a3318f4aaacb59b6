"""The prefetch window of a consumer, by which the broker keeps sending messages; each dialect has its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from jmsx.core.delivery import Delivery
from jmsx.core.frames import Frame
from jmsx.core.values import ConsumerSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class Unsettled(Protocol):
    """Deliveries that were handed out and are not settled, oldest first; a view that changes, so do not keep it."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Delivery]: ...
    def __reversed__(self) -> Iterator[Delivery]: ...


class Window(Protocol):
    """
    A model of what the broker still sends to one consumer, and the means to make it send more.

    A broker sends no more than so many unacknowledged messages or bytes; a session that acknowledges late would stall.
    """

    @property
    def batch_bytes(self) -> int | None:
        """Bytes of frames that may at most wait for one common ACK; None: any number."""

    @property
    def limited(self) -> bool:
        """Whether the broker was told a limit, so that far more than the prefetch is a fault of the broker."""

    @property
    def counting(self) -> bool:
        """Whether the window counts messages; if not, `arrived` and `settled` need not be called."""

    @property
    def subscription_ids(self) -> Sequence[str]:
        """The wire subscriptions that feed the consumer, the first one first."""

    def subscribe_headers(self) -> Mapping[str, str]:
        """Return the headers of the first SUBSCRIBE that set the window."""

    def arrived(self, deliveries: Sequence[Delivery]) -> None:
        """Note that the broker sent `deliveries`."""

    def settled(self, batch: Sequence[Delivery], older: int = 0) -> None:
        """
        Note that ACKs or NACKs for `batch` are written, outside a transaction; `older`: how many unsettled messages
        came before it.
        """

    def reset(self) -> None:
        """Note that what was handed out is settled in a transaction, or will be handed out again."""

    def full(self, unsettled: int) -> bool:
        """Return whether `unsettled` messages keep the broker from sending more until `open`."""

    def patience(self, unsettled: int) -> float | None:
        """
        Return how many seconds to wait before `open` when the application waits and
        nothing comes; None: do not open.
        """

    def open(self, unsettled: Unsettled) -> Sequence[Frame]:
        """Return the frames that make the broker send more than `unsettled` (oldest first)."""

    def release(self) -> Sequence[Frame]:
        """Return the frames that must be written before any ACK, NACK or COMMIT."""

    def refused(self) -> None:
        """Note that the broker has refused a subscription that `open` asked for, of this consumer or another one."""

    def again(self) -> Window:
        """Return a window without messages for the consumer's next link, which may have learnt from this one."""


class Unlimited:
    """No window: STOMP 1.2 knows none, so the broker sends all that it has."""

    batch_bytes: Final = None
    limited: Final = False
    counting: Final = False

    def __init__(self, settings: ConsumerSettings) -> None:
        self._settings = settings
        self.subscription_ids: Sequence[str] = (settings.subscription_id,)

    def subscribe_headers(self) -> Mapping[str, str]:
        """Return nothing: there is no header for it."""
        return {}

    def arrived(self, deliveries: Sequence[Delivery]) -> None:
        """Do nothing, as `settled` and `reset`: nothing is counted."""

    def settled(self, batch: Sequence[Delivery], older: int = 0) -> None:
        """Do nothing: nothing is counted."""

    def reset(self) -> None:
        """Do nothing: nothing is counted."""

    def full(self, unsettled: int) -> bool:  # noqa: ARG002 - as many as there are
        """Return False: without a window there is always room."""
        return False

    def patience(self, unsettled: int) -> None:
        """Return None: there is nothing to open."""

    def open(self, unsettled: Unsettled) -> Sequence[Frame]:  # noqa: ARG002 - as many as there are
        """Return no frames: there is nothing to open."""
        return ()

    def release(self) -> Sequence[Frame]:
        """Return no frames: nothing was opened."""
        return ()

    def refused(self) -> None:
        """Do nothing: nothing was opened."""

    def again(self) -> Unlimited:
        """Return another window like this one."""
        return Unlimited(self._settings)
