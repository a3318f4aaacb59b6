"""A real ActiveMQ Classic as a child process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, Unpack

from jmsx_broker.classic_recipe import ClassicRecipe
from jmsx_broker.local import LocalBroker
from jmsx_broker.own import OtherPorts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class ClassicBroker(LocalBroker):
    """
    ActiveMQ Classic 6 on this machine; a context manager, or `start()` and at last `close()`.

    It can be stopped, killed and started again: messages, ports and log stay the same until `close()`.

    Args:
        port: of STOMP; 0 takes a free one.
        openwire_port: of OpenWire, for Java clients; 0 takes a free one.
        data: the folder for messages and log, created if missing; None is a temporary one, removed by `close()`.
        tls: whether it offers STOMP over TLS too, with certificates made for it; TlsOptions say how.
        tls_port: of STOMP over TLS; 0 takes a free one.
        users: passwords by name; then nobody else may connect. The URLs do not have them.

    """

    def __init__(
        self,
        port: int = 0,
        *,
        data: Path | None = None,
        users: Mapping[str, str] | None = None,
        **others: Unpack[OtherPorts],
    ) -> None:
        super().__init__(ClassicRecipe(users=users or {}), port, data=data, **others)

    @classmethod
    def for_audit(cls) -> Self:
        """Return a broker whose books can be compared with others', as any Classic's can."""
        return cls()
