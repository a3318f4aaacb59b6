"""How a consumer keeps messages coming: what brokers differ in, as the dialects fill it in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jmsx.core.delivery import Delivery
    from jmsx.core.frames import Frame


class Window(Protocol):
    """
    A model of what the broker still sends to one consumer, and the means to make it send more.

    A broker sends no more than so many unacknowledged messages or bytes; a session that acknowledges late would stall.
    """

    @property
    def batch_bytes(self) -> int | None:
        """Bytes of frames that may at most wait for one common ACK; None: any."""

    @property
    def limited(self) -> bool:
        """Whether the broker was told a limit, so that far more than the prefetch is a fault of its own."""

    @property
    def subscription_ids(self) -> Sequence[str]:
        """The subscriptions on the wire that feed the consumer, the first one first."""

    def subscribe_headers(self) -> Mapping[str, str]:
        """Headers of the first SUBSCRIBE that set the window."""

    def arrived(self, deliveries: Sequence[Delivery]) -> None:
        """The broker sent these."""

    def settled(self, batch: Sequence[Delivery], older: int = 0) -> None:
        """ACKs or NACKs for `batch` are written, outside a transaction; `older` unsettled ones stand before it."""

    def reset(self) -> None:
        """What was handed out is settled in a transaction, or will be handed out again."""

    def full(self, unsettled: int) -> bool:
        """Whether `unsettled` messages keep the broker from sending more until `open`."""

    def patience(self, unsettled: int) -> float | None:
        """Seconds that a dry consumer, whose application waits, waits before `open`; None: no use in it."""

    def open(self, unsettled: Sequence[Delivery]) -> Sequence[Frame]:
        """The frames that make the broker send more than `unsettled` (oldest first)."""

    def release(self) -> Sequence[Frame]:
        """The frames that must be written before any ACK, NACK or COMMIT."""
