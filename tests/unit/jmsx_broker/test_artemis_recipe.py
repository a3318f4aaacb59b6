"""Artemis' configuration file."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from jmsx_broker.artemis_recipe import ArtemisRecipe
from jmsx_broker.certificates import TlsConnector
from jmsx_broker.recipe import Listeners

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jmsx_broker.artemis_recipe import Setting


CORE = "{urn:activemq:core}"


def core(
    *,
    address_settings: Mapping[str, Mapping[str, Setting]] | None = None,
    stomp_options: Mapping[str, Setting] | None = None,
    persistent: bool = True,
    tls: TlsConnector | None = None,
) -> ET.Element:
    """The core element of the configuration for two ports."""
    recipe = ArtemisRecipe(
        address_settings=address_settings or {},
        stomp_options=stomp_options or {},
        persistent=persistent,
    )
    listeners = Listeners(host="127.0.0.1", stomp=1111, openwire=2222, tls=tls)
    text = recipe.files(listeners)["etc/broker.xml"]
    found = ET.fromstring(text).find(f"{CORE}core")  # noqa: S314 - the function under test made the text
    assert found is not None
    return found


def acceptors(element: ET.Element) -> dict[str | None, str | None]:
    """The URI of each acceptor."""
    return {entry.get("name"): entry.text for entry in element.iter(f"{CORE}acceptor")}


def settings(element: ET.Element) -> dict[str | None, dict[str, str | None]]:
    """The settings of each match."""
    return {
        entry.get("match"): {each.tag.removeprefix(CORE): each.text for each in entry}
        for entry in element.iter(f"{CORE}address-setting")
    }


def test_acceptors_listen_where_they_are_told() -> None:
    """STOMP on one port, Java clients on another."""
    assert acceptors(core()) == {
        "stomp": "tcp://127.0.0.1:1111?protocols=STOMP;securityDomain=jmsx",
        "openwire": "tcp://127.0.0.1:2222?protocols=CORE%2COPENWIRE;securityDomain=jmsx",
    }


def test_options_of_the_stomp_acceptor_keep_their_names() -> None:
    """Artemis' own names, with values as its URIs write them."""
    given: dict[str, Setting] = {
        "connectionTtl": 4000,
        "stompEnableMessageId": True,
        "anycastPrefix": "/queue/",
    }
    uri = acceptors(core(stomp_options=given))["stomp"]
    assert uri is not None
    assert uri.partition("?")[2].split(";") == [
        "protocols=STOMP",
        "securityDomain=jmsx",
        "connectionTtl=4000",
        "stompEnableMessageId=true",
        "anycastPrefix=%2Fqueue%2F",
    ]


def test_dead_letters_have_a_queue() -> None:
    """As in every broker that `artemis create` made; without it dead letters would be dropped."""
    assert settings(core())["#"] | {"dead-letter-address": "DLQ"} == settings(core())["#"]
    queues = {entry.get("name") for entry in core().iter(f"{CORE}queue")}
    assert queues == {"DLQ", "ExpiryQueue"}


def test_users_settings_come_before_ours() -> None:
    """For all addresses one by one, for other patterns as they are."""
    given: dict[str, dict[str, Setting]] = {
        "#": {"dead-letter-address": "dead"},
        "a.<&>": {"max-delivery-attempts": 3},
    }
    told = settings(core(address_settings=given))
    assert told["a.<&>"] == {"max-delivery-attempts": "3"}
    assert (told["#"]["dead-letter-address"], told["#"]["expiry-address"]) == (
        "dead",
        "ExpiryQueue",
    )


@pytest.mark.parametrize(("persistent", "expected"), [(True, "true"), (False, "false")])
def test_persistence_can_be_switched_off(*, persistent: bool, expected: str) -> None:
    """A broker in memory for tests that keep nothing."""
    told = core(persistent=persistent).findtext(f"{CORE}persistence-enabled")
    assert expected == told


@pytest.mark.parametrize(("required", "expected"), [(False, "false"), (True, "true")])
def test_tls_is_an_acceptor_more(*, required: bool, expected: str) -> None:
    """Over TLS there is the same as without, options too, and a client's certificate is asked for where required."""
    tls = TlsConnector(port=3333, password="pass", require_client_certificate=required)  # noqa: S106 - no real key has it
    uri = acceptors(core(tls=tls, stomp_options={"connectionTtl": 4000}))["stomp+ssl"]
    assert uri is not None
    address, _, options = uri.partition("?")
    assert address == "tcp://127.0.0.1:3333"
    told = dict(option.split("=") for option in options.split(";"))
    assert (
        told.items()
        >= {
            "protocols": "STOMP",
            "connectionTtl": "4000",
            "sslEnabled": "true",
            "needClientAuth": expected,
            "keyStorePath": "tls%2Fserver.p12",
            "keyStorePassword": "pass",
        }.items()
    )


def test_users_are_asked_for_only_where_there_are_some() -> None:
    """With users each of them may do everything; names and passwords may have any sign."""
    listeners = Listeners(host="127.0.0.1", stomp=1111, openwire=2222)
    open_files = ArtemisRecipe().files(listeners)
    files = ArtemisRecipe(users={"ann": "a=ö", "b": "c"}).files(listeners)
    assert "<security-enabled>false<" in open_files["etc/broker.xml"]
    assert "<security-enabled>true<" in files["etc/broker.xml"]
    assert '<permission type="manage" roles="jmsx"/>' in files["etc/broker.xml"]
    assert files["etc/users.properties"] == (
        "\\u0061\\u006e\\u006e=\\u0061\\u003d\\u00f6\n\\u0062=\\u0063\n"
    )
    assert files["etc/roles.properties"] == "jmsx=\\u0061\\u006e\\u006e,\\u0062\n"
