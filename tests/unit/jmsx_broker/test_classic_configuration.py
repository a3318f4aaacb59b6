"""The broker's configuration file."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from jmsx_broker.classic_configuration import activemq_xml

CORE = "{http://activemq.apache.org/schema/core}"


def broker() -> ET.Element:
    """The broker element of the configuration for two ports."""
    found = ET.fromstring(activemq_xml(1111, 2222)).find(f"{CORE}broker")  # noqa: S314 - our own text
    assert found is not None
    return found


def test_connectors_listen_on_the_loopback_only() -> None:
    """A development broker without passwords is not for the network."""
    connectors = broker().iter(f"{CORE}transportConnector")
    addresses = {entry.get("name"): (entry.get("uri") or "").split("?")[0] for entry in connectors}
    assert addresses == {"stomp": "stomp://127.0.0.1:1111", "openwire": "tcp://127.0.0.1:2222"}


def test_broker_has_what_jmsx_needs() -> None:
    """A store, the scheduler for delayed redelivery, and the statistics plugin for the audit."""
    element = broker()
    assert tuple(element.get(name) for name in ("persistent", "schedulerSupport", "useJmx")) == (
        "true",
        "true",
        "false",
    )
    assert element.find(f"{CORE}persistenceAdapter/{CORE}kahaDB") is not None
    assert element.find(f"{CORE}plugins/{CORE}statisticsBrokerPlugin") is not None


def test_destination_policies_are_the_brokers_own() -> None:
    """Users' brokers run with defaults, so ours does: no policy is set."""
    assert broker().find(f"{CORE}destinationPolicy") is None
