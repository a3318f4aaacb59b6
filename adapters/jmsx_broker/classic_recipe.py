"""ActiveMQ Classic: connectors, KahaDB, the scheduler and the statistics plugin; all else is default."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import quoteattr

from jmsx_broker.certificates import TlsConnector
from jmsx_broker.products import CLASSIC, Product
from jmsx_broker.recipe import Listeners

if TYPE_CHECKING:
    from collections.abc import Mapping


_FILE: Final = "activemq.xml"

#: Bytes of one frame or message: ActiveMQ's own default for OpenWire, and for a STOMP body.
_MAX_FRAME_SIZE: Final = 100 * 1024 * 1024

# Paths are relative to the working folder of the broker, so no path has to be escaped.
_TEMPLATE: Final = """\
<beans xmlns="http://www.springframework.org/schema/beans"
       xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
       xsi:schemaLocation="http://www.springframework.org/schema/beans
                           http://www.springframework.org/schema/beans/spring-beans.xsd
                           http://activemq.apache.org/schema/core
                           http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="jmsx" dataDirectory="data"
          persistent="true" schedulerSupport="true" useJmx="false">
    <persistenceAdapter><kahaDB directory="data/kahadb"/></persistenceAdapter>
    <plugins><statisticsBrokerPlugin/>{authentication}</plugins>
    <systemUsage>
      <systemUsage>
        <memoryUsage><memoryUsage limit="256 mb"/></memoryUsage>
        <storeUsage><storeUsage limit="8 gb"/></storeUsage>
        <tempUsage><tempUsage limit="2 gb"/></tempUsage>
        <jobSchedulerUsage><jobSchedulerUsage limit="1 gb"/></jobSchedulerUsage>
      </systemUsage>
    </systemUsage>{ssl_context}
    <transportConnectors>{ssl_connector}
      <transportConnector name="stomp" uri="stomp://{host}:{stomp}?transport.maxFrameSize={frame}"/>
      <transportConnector name="openwire" uri="tcp://{host}:{openwire}?wireFormat.maxFrameSize={frame}"/>
    </transportConnectors>
  </broker>
</beans>
"""


_AUTHENTICATION: Final = """
      <simpleAuthenticationPlugin anonymousAccessAllowed="false"><users>{}</users></simpleAuthenticationPlugin>"""

_USER: Final = """
        <authenticationUser username={} password={} groups="users"/>"""

_SSL_CONTEXT: Final = """
    <sslContext>
      <sslContext keyStore={keys} keyStoreType="PKCS12" keyStorePassword={password}
                  trustStore={trusted} trustStoreType="PKCS12" trustStorePassword={password}/>
    </sslContext>"""

_SSL_CONNECTOR: Final = """
      <transportConnector name="stomp+ssl" uri="stomp+ssl://{host}:{port}?transport.maxFrameSize={frame}{client}"/>"""


@dataclass(frozen=True, slots=True)
class ClassicRecipe:
    """ActiveMQ Classic as its users run it: no destination policy."""

    product: Product = CLASSIC
    main: tuple[str, ...] = (
        "-Dactivemq.home=.",
        "-Dactivemq.base=.",
        "org.apache.activemq.console.Main",
        "start",
        # Reading the schemas takes a fifth of the start, and the file that they would check is written right here.
        f"xbean:file:{_FILE}?validate=false",
    )
    # connectors start in the order of the configuration; this one is the last
    up: tuple[str, ...] = ("Connector openwire started",)

    users: Mapping[str, str] = field(default_factory=dict)

    def files(self, listeners: Listeners) -> dict[str, str]:
        """Return the broker's configuration, by file name: its activemq.xml."""
        return {_FILE: self._activemq_xml(listeners)}

    def _activemq_xml(self, listeners: Listeners) -> str:
        tls = listeners.tls
        return _TEMPLATE.format(
            authentication=_authentication(self.users) if self.users else "",
            host=listeners.host,
            stomp=listeners.stomp,
            openwire=listeners.openwire,
            frame=_MAX_FRAME_SIZE,
            ssl_context=_ssl_context(tls) if tls else "",
            ssl_connector=_ssl_connector(listeners.host, tls) if tls else "",
        )


def _authentication(users: Mapping[str, str]) -> str:
    """Return the configuration of the users who may connect."""
    entries = (_USER.format(*map(quoteattr, user)) for user in users.items())
    return _AUTHENTICATION.format("".join(entries))


def _ssl_context(tls: TlsConnector) -> str:
    """Return the configuration of the broker's key and trust stores."""
    return _SSL_CONTEXT.format(
        keys=quoteattr(f"file:{tls.key_store}"),
        trusted=quoteattr(f"file:{tls.trust_store}"),
        password=quoteattr(tls.password),
    )


def _ssl_connector(host: str, tls: TlsConnector) -> str:
    """Return the configuration of the connector for STOMP over TLS."""
    client = "&amp;transport.needClientAuth=true" if tls.require_client_certificate else ""
    return _SSL_CONNECTOR.format(host=host, port=tls.port, frame=_MAX_FRAME_SIZE, client=client)
