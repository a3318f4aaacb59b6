"""The broker's activemq.xml: two connectors, KahaDB, the scheduler and the statistics plugin; all else is default."""

from __future__ import annotations

from typing import Final

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
    </systemUsage>
    <transportConnectors>
      <transportConnector name="stomp" uri="stomp://127.0.0.1:{stomp}?transport.maxFrameSize={frame}"/>
      <transportConnector name="openwire" uri="tcp://127.0.0.1:{openwire}?wireFormat.maxFrameSize={frame}"/>
    </transportConnectors>
  </broker>
</beans>
"""


def activemq_xml(stomp_port: int, openwire_port: int) -> str:
    """The text of activemq.xml; port 0 lets the broker choose a free one (it logs which)."""
    return _TEMPLATE.format(stomp=stomp_port, openwire=openwire_port, frame=_MAX_FRAME_SIZE)
