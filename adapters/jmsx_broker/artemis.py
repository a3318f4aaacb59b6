"""A real ActiveMQ Artemis as a child process."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from jmsx_broker.artemis_configuration import CONFIGURATION, broker_xml
from jmsx_broker.local import LocalBroker
from jmsx_broker.products import ARTEMIS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from jmsx_broker.artemis_configuration import Setting
    from jmsx_broker.certificates import TlsOptions
    from jmsx_broker.products import Product


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
        address_settings: for each pattern of addresses (`#`: all) what its address-setting says. Artemis' defaults
            hold, save that dead letters go to the queue DLQ and expired messages to the queue ExpiryQueue, as in every
            broker that `artemis create` made; what is set here for `#` comes before that.
        stomp_options: of the STOMP acceptors, such as {"stompConsumerWindowSize": -1}.
        persistent: False keeps messages in memory only; a stop or a crash then loses them.

    """

    product: ClassVar[Product] = ARTEMIS

    _configuration_file = CONFIGURATION
    _up = ("AMQ221007: Server is now active",)
    _main = (
        "-Dorg.slf4j.simpleLogger.log.org.apache.activemq.audit=warn",
        "org.apache.activemq.artemis.core.server.embedded.Main",
        ".",
    )

    def __init__(
        self,
        port: int = 0,
        *,
        openwire_port: int = 0,
        data: Path | None = None,
        tls: bool | TlsOptions = False,
        tls_port: int = 0,
        address_settings: Mapping[str, Mapping[str, Setting]] | None = None,
        stomp_options: Mapping[str, Setting] | None = None,
        persistent: bool = True,
    ) -> None:
        super().__init__(port, openwire_port=openwire_port, data=data, tls=tls, tls_port=tls_port)
        self._address_settings = address_settings or {}
        self._stomp_options = stomp_options or {}
        self._persistent = persistent

    def _configuration(self) -> str:
        return broker_xml(
            self._port,
            self._openwire_port,
            self._tls_connector(),
            address_settings=self._address_settings,
            stomp_options=self._stomp_options,
            persistent=self._persistent,
        )
