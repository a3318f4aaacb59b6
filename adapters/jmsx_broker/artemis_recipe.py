"""ActiveMQ Artemis: acceptors, a journal, what `artemis create` sets for all addresses; all else is default."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlencode
from xml.sax.saxutils import escape, quoteattr

from jmsx_broker.certificates import TlsConnector
from jmsx_broker.products import ARTEMIS, Product
from jmsx_broker.recipe import Listeners

if TYPE_CHECKING:
    from collections.abc import Mapping


#: A value in Artemis' own unit, as broker.xml or the URI of an acceptor has it.
Setting: TypeAlias = str | int | float | bool

#: What is set for all addresses: as `artemis create` of 2.44.0 does, and that `browse` may see deep queues.
_DEFAULTS: Final[Mapping[str, Setting]] = {
    "dead-letter-address": "DLQ",
    "expiry-address": "ExpiryQueue",
    "management-browse-page-size": 100_000,
}

# Paths are relative to the working folder of the broker, so no path has to be escaped.
# The critical analyzer would take a paused process for a hanging one. A development machine's disk may be rather full:
# the broker would block its producers from 90 % on.
_TEMPLATE: Final = """\
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <name>jmsx</name>
    <security-enabled>{secure}</security-enabled>
    <persistence-enabled>{persistent}</persistence-enabled>
    <journal-type>NIO</journal-type>
    <journal-pool-files>10</journal-pool-files>
    <journal-buffer-timeout>{journal_delay}</journal-buffer-timeout>
    <bindings-directory>data/bindings</bindings-directory>
    <journal-directory>data/journal</journal-directory>
    <large-messages-directory>data/large-messages</large-messages-directory>
    <paging-directory>data/paging</paging-directory>
    <global-max-size>256M</global-max-size>
    <max-disk-usage>100</max-disk-usage>
    <critical-analyzer>false</critical-analyzer>
    <acceptors>
      <acceptor name="stomp">{stomp}</acceptor>
      <acceptor name="openwire">{openwire}</acceptor>{tls}
    </acceptors>
    <security-settings>{permissions}</security-settings>
    <addresses>
      <address name="DLQ"><anycast><queue name="DLQ"/></anycast></address>
      <address name="ExpiryQueue"><anycast><queue name="ExpiryQueue"/></anycast></address>
    </addresses>
    <address-settings>
{settings}
    </address-settings>
  </core>
</configuration>
"""


#: What each user may do, everywhere.
PERMISSIONS: Final = (
    *("createAddress", "deleteAddress", "createDurableQueue", "deleteDurableQueue"),
    *("createNonDurableQueue", "deleteNonDurableQueue", "send", "consume", "browse", "manage"),
)

#: The name of the login that the acceptors ask for, and the one role.
_DOMAIN: Final = "jmsx"

_LOGIN: Final = f"""\
{_DOMAIN} {{
  org.apache.activemq.artemis.spi.core.security.jaas.PropertiesLoginModule required
    org.apache.activemq.jaas.properties.user="users.properties"
    org.apache.activemq.jaas.properties.role="roles.properties";
}};
"""

_TLS: Final = """
      <acceptor name="stomp+ssl">{}</acceptor>"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtemisRecipe:
    """ActiveMQ Artemis with the options of `ArtemisBroker`."""

    product: Product = ARTEMIS
    main: tuple[str, ...] = (
        "-Djava.security.auth.login.config=etc/login.config",
        "-Dorg.slf4j.simpleLogger.log.org.apache.activemq.audit=warn",
        "org.apache.activemq.artemis.core.server.embedded.Main",
        ".",
    )
    up: tuple[str, ...] = ("AMQ221007: Server is now active",)
    address_settings: Mapping[str, Mapping[str, Setting]] = field(default_factory=dict)
    stomp_options: Mapping[str, Setting] = field(default_factory=dict)
    persistent: bool = True
    #: Half a millisecond is what `artemis create` measures on an SSD; the broker's own default is 3.3.
    journal_delay: float = 0.0005
    users: Mapping[str, str] = field(default_factory=dict)

    def files(self, listeners: Listeners) -> dict[str, str]:
        """Return the broker's configuration files: broker.xml, and the users and roles that may log in."""
        roles = ",".join(map(_property, self.users))
        return {
            "etc/broker.xml": self._broker_xml(listeners),
            "etc/login.config": _LOGIN,
            "etc/users.properties": _properties(self.users),
            "etc/roles.properties": f"{_DOMAIN}={roles}\n",
        }

    def _broker_xml(self, listeners: Listeners) -> str:
        all_addresses = {**_DEFAULTS, **self.address_settings.get("#", {})}
        matches = {**self.address_settings, "#": all_addresses}
        stomp = {"protocols": "STOMP", "securityDomain": _DOMAIN, **self.stomp_options}
        openwire = {"protocols": "CORE,OPENWIRE", "securityDomain": _DOMAIN}
        host, tls = listeners.host, listeners.tls
        return _TEMPLATE.format(
            secure=_text(bool(self.users)),
            permissions=_permissions() if self.users else "",
            persistent=_text(self.persistent),
            journal_delay=round(self.journal_delay * 1e9),
            stomp=_acceptor(host, listeners.stomp, stomp),
            openwire=_acceptor(host, listeners.openwire, openwire),
            tls=_TLS.format(_acceptor(host, tls.port, stomp | _tls_options(tls))) if tls else "",
            settings="\n".join(_address_setting(*each) for each in matches.items()),
        )


def _acceptor(host: str, port: int, options: Mapping[str, Setting]) -> str:
    """Return the URI of an acceptor."""
    told = ";".join(urlencode({name: _text(value)}) for name, value in options.items())
    return escape(f"tcp://{host}:{port}?{told}")


def _tls_options(tls: TlsConnector) -> dict[str, Setting]:
    """Return the acceptor options that turn on TLS."""
    return {
        "sslEnabled": True,
        "needClientAuth": tls.require_client_certificate,
        "keyStoreType": "PKCS12",
        "keyStorePath": tls.key_store,
        "keyStorePassword": tls.password,
        "trustStoreType": "PKCS12",
        "trustStorePath": tls.trust_store,
        "trustStorePassword": tls.password,
    }


def _address_setting(match: str, settings: Mapping[str, Setting]) -> str:
    """Return the address-setting element for the addresses that match a pattern."""
    lines = "".join(f"<{name}>{escape(_text(value))}</{name}>" for name, value in settings.items())
    return f"      <address-setting match={quoteattr(match)}>{lines}</address-setting>"


def _permissions() -> str:
    """Return the security-setting element, the same for every address."""
    lines = "".join(f'<permission type="{kind}" roles="{_DOMAIN}"/>' for kind in PERMISSIONS)
    return f'<security-setting match="#">{lines}</security-setting>'


def _properties(values: Mapping[str, str]) -> str:
    """Return a file of Java properties."""
    return "".join(f"{_property(name)}={_property(value)}\n" for name, value in values.items())


def _property(text: str) -> str:
    r"""Return `text` for such a file, each UTF-16 unit written as \uXXXX, so that no character is special."""
    return "".join(f"\\u{unit:04x}" for unit in memoryview(text.encode("utf-16-le")).cast("H"))


def _text(value: Setting) -> str:
    """Return a value as XML and URIs write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
