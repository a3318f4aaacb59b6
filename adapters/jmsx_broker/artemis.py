"""A real ActiveMQ Artemis as a child process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, Unpack

from jmsx_broker.artemis_recipe import ArtemisRecipe, Setting
from jmsx_broker.local import LocalBroker
from jmsx_broker.own import OtherPorts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class ArtemisBroker(LocalBroker):
    """
    ActiveMQ Artemis 2 on this machine; a context manager, or `start()` and at last `close()`.

    It can be stopped, killed and started again: messages, ports and log stay the same until `close()`.

    Settings and options have Artemis' own names and units, and it is Artemis that checks them, when it starts::

        ArtemisBroker(
            address_settings={"orders.#": {"max-delivery-attempts": 3, "redelivery-delay": 200}},
            stomp_options={"connectionTtl": 4000},
        )

    Args:
        port: of STOMP; 0 takes a free one.
        openwire_port: for Java clients, which may speak OpenWire or Artemis' own protocol; 0 takes a free one.
        data: the folder for messages and log, created if missing; None is a temporary one, removed by `close()`.
        tls: whether it offers STOMP over TLS too, with certificates made for it; TlsOptions say how.
        tls_port: of STOMP over TLS; 0 takes a free one.
        users: passwords by name; then nobody else may connect. The URLs do not have them.
        address_settings: for each pattern of addresses (`#`: all) what its address-setting says. Artemis' defaults
            hold, save that dead letters go to the queue DLQ and expired messages to the queue ExpiryQueue, as in every
            broker that `artemis create` made; what is set here for `#` comes before that.
        stomp_options: of the STOMP acceptors, such as {"stompConsumerWindowSize": -1}.
        persistent: False keeps messages in memory only; a stop or a crash then loses them.
        journal_delay: seconds for which the broker gathers writes before they go to the disk: more make it a slow one.

    """

    def __init__(
        self,
        port: int = 0,
        *,
        data: Path | None = None,
        users: Mapping[str, str] | None = None,
        address_settings: Mapping[str, Mapping[str, Setting]] | None = None,
        stomp_options: Mapping[str, Setting] | None = None,
        persistent: bool = True,
        journal_delay: float = 0.0005,
        **others: Unpack[OtherPorts],
    ) -> None:
        recipe = ArtemisRecipe(
            users=users or {},
            address_settings=address_settings or {},
            stomp_options=stomp_options or {},
            persistent=persistent,
            journal_delay=journal_delay,
        )
        super().__init__(recipe, port, data=data, **others)

    @classmethod
    def for_audit(cls) -> Self:
        """
        Return a broker whose books can be compared with others': it keeps the counts of queues that nobody reads any
        more, and shows whole ones, where Artemis' default are the first 200 messages.
        """
        settings = {"auto-delete-queues": False, "management-browse-page-size": 1_000_000}
        return cls(address_settings={"#": settings})
