"""The broker's configuration file."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from jmsx_broker.certificates import TlsConnector
from jmsx_broker.classic_recipe import ClassicRecipe
from jmsx_broker.recipe import Listeners

CORE = "{http://activemq.apache.org/schema/core}"


def broker(tls: TlsConnector | None = None, users: dict[str, str] | None = None) -> ET.Element:
    """The broker element of the configuration for two ports, and perhaps TLS and users."""
    listeners = Listeners(host="127.0.0.1", stomp=1111, openwire=2222, tls=tls)
    text = ClassicRecipe(users=users or {}).files(listeners)["activemq.xml"]
    found = ET.fromstring(text).find(f"{CORE}broker")  # noqa: S314 - the function under test made the text
    assert found is not None
    return found


def test_connectors_listen_where_they_are_told() -> None:
    """STOMP and OpenWire, on one address."""
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


@pytest.mark.parametrize("required", [False, True])
def test_tls_is_a_connector_more(*, required: bool) -> None:
    """Over TLS there is the same as without, and a client's certificate is asked for where it is required."""
    tls = TlsConnector(port=3333, password="<&>", require_client_certificate=required)  # noqa: S106 - no real key has it
    found = broker(tls)
    uris = {
        entry.get("name"): entry.get("uri") or ""
        for entry in found.iter(f"{CORE}transportConnector")
    }
    address, _, options = uris["stomp+ssl"].partition("?")
    assert address == "stomp+ssl://127.0.0.1:3333"
    assert ("transport.needClientAuth=true" in options.split("&")) is required
    (keys,) = found.iterfind(f"{CORE}sslContext/{CORE}sslContext")
    assert (keys.get("keyStore"), keys.get("keyStorePassword")) == ("file:tls/server.p12", "<&>")
    assert (keys.get("trustStore"), keys.get("trustStorePassword")) == (
        "file:tls/authority.p12",
        "<&>",
    )


def test_users_are_asked_for_only_where_there_are_some() -> None:
    """Names and passwords may have any sign."""
    plugin = f"{CORE}plugins/{CORE}simpleAuthenticationPlugin"
    assert broker().find(plugin) is None
    found = broker(users={"ann": 'a"<&>', "bob": "b"}).find(plugin)
    assert found is not None
    assert found.get("anonymousAccessAllowed") == "false"
    users = found.iter(f"{CORE}authenticationUser")
    told = [(user.get("username"), user.get("password")) for user in users]
    assert told == [("ann", 'a"<&>'), ("bob", "b")]
