"""The broker's activemq.xml: two connectors, KahaDB, the scheduler and the statistics plugin; all else is default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import quoteattr

if TYPE_CHECKING:
    from jmsx_broker.certificates import TlsConnector

#: The name of the configuration file, in the broker's working folder.
CONFIGURATION: Final = "activemq.xml"

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
    <plugins><statisticsBrokerPlugin/></plugins>
    <systemUsage>
      <systemUsage>
        <memoryUsage><memoryUsage limit="256 mb"/></memoryUsage>
        <storeUsage><storeUsage limit="8 gb"/></storeUsage>
        <tempUsage><tempUsage limit="2 gb"/></tempUsage>
        <jobSchedulerUsage><jobSchedulerUsage limit="1 gb"/></jobSchedulerUsage>
      </systemUsage>
    </systemUsage>{ssl_context}
    <transportConnectors>
      <transportConnector name="stomp" uri="stomp://127.0.0.1:{stomp}?transport.maxFrameSize={frame}"/>
      <transportConnector name="openwire" uri="tcp://127.0.0.1:{openwire}?wireFormat.maxFrameSize={frame}"/>{ssl_connector}
    </transportConnectors>
  </broker>
</beans>
"""


_SSL_CONTEXT: Final = """
    <sslContext>
      <sslContext keyStore={keys} keyStoreType="PKCS12" keyStorePassword={password}
                  trustStore={trusted} trustStoreType="PKCS12" trustStorePassword={password}/>
    </sslContext>"""

_SSL_CONNECTOR: Final = """
      <transportConnector name="stomp+ssl" uri="stomp+ssl://127.0.0.1:{port}?transport.maxFrameSize={frame}{client}"/>"""


def activemq_xml(stomp_port: int, openwire_port: int, tls: TlsConnector | None = None) -> str:
    """The text of activemq.xml; port 0 lets the broker choose a free one (it logs which)."""
    return _TEMPLATE.format(
        stomp=stomp_port,
        openwire=openwire_port,
        frame=_MAX_FRAME_SIZE,
        ssl_context=_ssl_context(tls) if tls else "",
        ssl_connector=_ssl_connector(tls) if tls else "",
    )


def _ssl_context(tls: TlsConnector) -> str:
    """Where its keys are."""
    return _SSL_CONTEXT.format(
        keys=quoteattr(f"file:{tls.key_store}"),
        trusted=quoteattr(f"file:{tls.trust_store}"),
        password=quoteattr(tls.password),
    )


def _ssl_connector(tls: TlsConnector) -> str:
    """STOMP over TLS."""
    client = "&amp;transport.needClientAuth=true" if tls.require_client_certificate else ""
    return _SSL_CONNECTOR.format(port=tls.port, frame=_MAX_FRAME_SIZE, client=client)
