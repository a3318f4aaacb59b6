"""A real ActiveMQ Classic as a child process."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from jmsx_broker.classic_configuration import CONFIGURATION, activemq_xml
from jmsx_broker.local import LocalBroker
from jmsx_broker.products import CLASSIC

if TYPE_CHECKING:
    from jmsx_broker.products import Product


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

    """

    product: ClassVar[Product] = CLASSIC

    _configuration_file = CONFIGURATION
    _up = ("Connector stomp started", "Connector openwire started")
    _tls_up = ("Connector stomp+ssl started",)
    _main = (
        "-Dactivemq.home=.",
        "-Dactivemq.base=.",
        "org.apache.activemq.console.Main",
        "start",
        f"xbean:file:{CONFIGURATION}",
    )

    def _configuration(self) -> str:
        return activemq_xml(self._port, self._openwire_port, self._tls_connector())
