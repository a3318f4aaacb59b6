"""
Broker URIs and destination URIs, with options as Java users write them.

``failover:(stomp://a:61613,stomp+ssl://b:61614)?jms.optimizeAcknowledge=true&jms.redeliveryPolicy.maximumRedeliveries=4``
and ``queue://orders?consumer.prefetchSize=10``. Times in options are milliseconds, as in Java; an unknown option is an
error that names the nearest known one.

A URI may hold passwords, and a mistake in it may put one where something else is expected. So no error repeats more of
it than a scheme, a host where there is no user, and the names of options.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote

from jmsx.core.policy import RedeliveryPolicy
from jmsx.core.values import DeadLetterStrategy
from jmsx.errors import ConfigurationError, InvalidDestinationError
from jmsx.options import (
    FOR_EVER,
    ConnectionOptions,
    PrefetchPolicy,
    ReconnectPolicy,
    TlsOptions,
    nearest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Ports where a URI names none: those of the brokers' manuals.
DEFAULT_PORT: Final = 61613
DEFAULT_TLS_PORT: Final = 61612

#: Schemes, and whether they mean TLS; those of Java's own transports are taken as well.
_SCHEMES: Final = {
    "stomp": False,
    "stomp+nio": False,
    "tcp": False,
    "nio": False,
    "stomp+ssl": True,
    "stomp+nio+ssl": True,
    "ssl": True,
    "nio+ssl": True,
}

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]{0,30}", re.IGNORECASE)
_HOST_PORT: Final = re.compile(
    r"(?:\[([0-9a-f:.%]+)\]|([^][:/?#@\s]+))(?::([0-9]{1,5}))?/?", re.IGNORECASE
)
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,15}")
_PERCENT: Final = (
    "write %23 %26 %2C %2F %3A %3F %40 %29 for # & , / : ? @ ) in a user name or password"
)

_DESTINATION_KINDS: Final = (
    "queue",
    "topic",
    "temp-queue",
    "temp-topic",
    "remote-temp-queue",
    "remote-temp-topic",
)

#: `consumer.*` options of a destination that the broker understands on SUBSCRIBE; prefetchSize is ours.
_CONSUMER_OPTIONS: Final = (
    "prefetchSize",
    "exclusive",
    "priority",
    "noLocal",
    "retroactive",
    "maximumPendingMessageLimit",
    "dispatchAsync",
    "selector",
)


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where one broker listens."""

    host: str
    port: int
    tls: bool = False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerUri:
    """Brokers to try, in order, and the options that the URI carries."""

    addresses: tuple[BrokerAddress, ...]
    options: ConnectionOptions

    def __str__(self) -> str:
        return ",".join(str(address) for address in self.addresses)


@dataclass(frozen=True, slots=True)
class DestinationUri:
    """A destination and the options for its consumers."""

    kind: str  #: `queue`, `topic`, `temp-queue`, …
    name: str
    options: Mapping[str, str] = field(default_factory=dict)  #: `consumer.*`, without that prefix

    def __str__(self) -> str:
        return f"{self.kind}://{self.name}"


def parse_broker_uri(text: str, options: ConnectionOptions | None = None) -> BrokerUri:
    """
    The brokers and options of a URI; what the URI says wins over `options`.

    Raises ConfigurationError, naming what is wrong.
    """
    if not isinstance(text, str):
        raise ConfigurationError(f"a broker URI must be a str, not a {type(text).__name__}")
    options = options or ConnectionOptions()
    parts, query, failover = _parts(text.strip())
    if failover:
        options = replace(options, reconnect=options.reconnect or ReconnectPolicy())
    show = "@" not in text
    brokers = [_broker(bare, show=show) for bare, _ in parts]
    if not brokers:
        raise ConfigurationError("there is no broker in the URI; write stomp://HOST:PORT")
    users = {user for _, user in brokers if user is not None}
    if len(users) > 1:
        raise ConfigurationError("the brokers of one URI have different users or passwords")
    for username, password in users:
        options = replace(options, username=username)
        options = options if password is None else replace(options, password=password)
    for _, own_query in parts:
        options = _apply(own_query, options, failover=False)
    options = _apply(query, options, failover=failover)
    addresses = tuple(address for address, _ in brokers)
    _check_dead_letter(options.dead_letter)
    if options.tls != TlsOptions() and not any(address.tls for address in addresses):
        raise ConfigurationError(
            "TLS options are of no use without TLS; write stomp+ssl://HOST:PORT"
        )
    return BrokerUri(addresses, options)


def _check_dead_letter(given: str) -> None:
    """A strategy, or a destination in full; found at the door, and not when the first message has died."""
    if "://" in given:
        parse_destination(given)
    elif given not in tuple(DeadLetterStrategy):
        strategies = ", ".join(DeadLetterStrategy)
        raise ConfigurationError(
            f"dead_letter={given!r} is neither one of {strategies} nor like queue://NAME"
        )


def parse_destination(text: str, default_kind: str = "queue") -> DestinationUri:
    """
    `queue://orders?consumer.prefetchSize=10`, or a bare name of the default kind.

    Raises InvalidDestinationError or, for an option, ConfigurationError.
    """
    bare, _, query = text.partition("?")
    kind, separator, name = bare.partition("://")
    if not separator:
        kind, name = default_kind, bare
    if kind not in _DESTINATION_KINDS:
        raise InvalidDestinationError(
            f"{text!r} is not a destination: {kind!r} is none of {', '.join(_DESTINATION_KINDS)}"
        )
    if not name or any(character in name for character in "\r\n\0"):
        raise InvalidDestinationError(f"{text!r} is not a destination: its name is empty or unfit")
    known = [f"consumer.{option}" for option in _CONSUMER_OPTIONS]
    options = {}
    for option, value in parse_qsl(query, keep_blank_values=True):
        if option not in known:
            raise _unknown(option, known)
        options[option.removeprefix("consumer.")] = value
    return DestinationUri(kind, name, options)


def _parts(uri: str) -> tuple[list[tuple[str, str]], str, bool]:
    """Each broker with its own query, the query of all, and whether that is failover's."""
    if not uri.startswith("failover:"):
        bare, _, query = uri.partition("?")
        return [(bare, "")], query, False
    brokers, query = _failover_parts(uri.removeprefix("failover:").removeprefix("//"))
    parts = [part.strip().partition("?") for part in brokers.split(",") if part.strip()]
    return [(bare, query) for bare, _, query in parts], query, True


def _failover_parts(text: str) -> tuple[str, str]:
    """The brokers and the query of `(a,b)?query` or `a,b?query`."""
    if not text.startswith("("):
        brokers, _, query = text.partition("?")
        return brokers, query
    brokers, closed, rest = text[1:].partition(")")
    if not closed:
        raise ConfigurationError("failover:( lacks its closing parenthesis")
    if rest and not rest.startswith("?"):
        raise ConfigurationError(f"after failover:(…) only ?options may follow; {_PERCENT}")
    return brokers, rest.removeprefix("?")


def _broker(text: str, *, show: bool) -> tuple[BrokerAddress, tuple[str, str | None] | None]:
    """The address, and (user, password) if the text has them; only with `show` do errors repeat the host."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "stomp", text
    if scheme.lower() not in _SCHEMES:
        name = f"{scheme}://" if _SCHEME.fullmatch(scheme) else "what stands before ://"
        raise ConfigurationError(f"{name} is not a STOMP broker; write stomp:// or stomp+ssl://")
    userinfo, has_user, place = rest.rpartition("@")
    found = _HOST_PORT.fullmatch(place)
    if found is None or not 0 < int(found[3] or DEFAULT_PORT) < 2**16:
        raise ConfigurationError(
            f"{f'{place!r} is' if show else 'there is'} no host with a port from 1 to 65535;"
            f" write stomp://HOST:PORT{'' if show else f'; {_PERCENT}'}"
        )
    tls = _SCHEMES[scheme.lower()]
    port = int(found[3] or (DEFAULT_TLS_PORT if tls else DEFAULT_PORT))
    user, has_password, password = userinfo.partition(":")
    given = (unquote(user), unquote(password) if has_password else None)
    return BrokerAddress(found[1] or found[2], port, tls), given if has_user else None


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _whole(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError("must be a whole number")
    return int(text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("must be a number") from None


def _seconds(text: str) -> float:
    """Milliseconds, in seconds."""
    return _whole(text) / 1000


def _seconds_or_never(text: str) -> float:
    """Milliseconds, in seconds; -1 is for ever."""
    return FOR_EVER if _whole(text) == FOR_EVER else _seconds(text)


def _limit(text: str) -> float | None:
    """Milliseconds, in seconds; 0 or less is no limit (`ActiveMQConnection.java`, syncSendPacket)."""
    return _seconds(text) if _whole(text) > 0 else None


def _maybe_seconds(text: str) -> float | None:
    """Milliseconds, in seconds; below 0 is none."""
    return _seconds(text) if _whole(text) >= 0 else None


def _percent(text: str) -> float:
    return _whole(text) / 100


#: Option -> (part of the options, field, reader). Parts: "" the options themselves.
_OPTIONS: Final[dict[str, tuple[str, str, Callable[[str], Any]]]] = {
    "jms.clientID": ("", "client_id", str),
    "jms.userName": ("", "username", str),
    "jms.password": ("", "password", str),
    "jms.optimizeAcknowledge": ("", "optimize_acknowledge", _boolean),
    "jms.optimizeAcknowledgeTimeOut": ("", "optimize_acknowledge_timeout", _seconds),
    "jms.optimizedAckScheduledAckInterval": (
        "",
        "optimized_ack_scheduled_ack_interval",
        _seconds,
    ),
    "jms.nonBlockingRedelivery": ("", "non_blocking_redelivery", _boolean),
    "jms.transactedIndividualAck": ("", "transacted_individual_ack", _boolean),
    "jms.useAsyncSend": ("", "use_async_send", _boolean),
    "jms.connectResponseTimeout": ("", "connect_timeout", _limit),
    "jms.sendTimeout": ("", "request_timeout", _limit),
    "jms.prefetchPolicy.queuePrefetch": ("prefetch_policy", "queue", _whole),
    "jms.prefetchPolicy.queueBrowserPrefetch": ("prefetch_policy", "queue_browser", _whole),
    "jms.prefetchPolicy.topicPrefetch": ("prefetch_policy", "topic", _whole),
    "jms.prefetchPolicy.durableTopicPrefetch": ("prefetch_policy", "durable_topic", _whole),
    "jms.prefetchPolicy.all": ("prefetch_policy", "*", _whole),
    "jms.redeliveryPolicy.maximumRedeliveries": (
        "redelivery_policy",
        "maximum_redeliveries",
        _whole,
    ),
    "jms.redeliveryPolicy.initialRedeliveryDelay": (
        "redelivery_policy",
        "initial_redelivery_delay",
        _seconds,
    ),
    "jms.redeliveryPolicy.redeliveryDelay": ("redelivery_policy", "redelivery_delay", _seconds),
    "jms.redeliveryPolicy.useExponentialBackOff": (
        "redelivery_policy",
        "use_exponential_back_off",
        _boolean,
    ),
    "jms.redeliveryPolicy.backOffMultiplier": (
        "redelivery_policy",
        "back_off_multiplier",
        _number,
    ),
    "jms.redeliveryPolicy.maximumRedeliveryDelay": (
        "redelivery_policy",
        "maximum_redelivery_delay",
        _maybe_seconds,
    ),
    "jms.redeliveryPolicy.useCollisionAvoidance": (
        "redelivery_policy",
        "use_collision_avoidance",
        _boolean,
    ),
    "jms.redeliveryPolicy.collisionAvoidancePercent": (
        "redelivery_policy",
        "collision_avoidance_factor",
        _percent,
    ),
    "jms.redeliveryPolicy.preDispatchCheck": (
        "redelivery_policy",
        "pre_dispatch_check",
        _boolean,
    ),
    "jmsx.ledger": ("", "ledger", str),
    "wireFormat.maxFrameSize": ("", "max_body_size", _whole),
    "tls.caFile": ("tls", "ca_file", str),
    "tls.certificateFile": ("tls", "certificate_file", str),
    "tls.keyFile": ("tls", "key_file", str),
    "tls.keyPassword": ("tls", "key_password", str),
    "tls.verifyHostName": ("tls", "verify_hostname", _boolean),
    "socket.verifyHostName": ("tls", "verify_hostname", _boolean),  # as Java writes it
    "tls.serverName": ("tls", "server_name", str),
    "randomize": ("reconnect", "randomize", _boolean),
    "initialReconnectDelay": ("reconnect", "initial_delay", _seconds),
    "maxReconnectDelay": ("reconnect", "maximum_delay", _seconds),
    "useExponentialBackOff": ("reconnect", "use_exponential_back_off", _boolean),
    "backOffMultiplier": ("reconnect", "back_off_multiplier", _number),
    "maxReconnectAttempts": ("reconnect", "maximum_attempts", _whole),
    "startupMaxReconnectAttempts": ("reconnect", "startup_maximum_attempts", _whole),
    "timeout": ("reconnect", "timeout", _seconds_or_never),
}

#: Options whose values are never shown, nor what stands after them and is no option: it may be the rest of a password.
_SECRETS: Final = ("jms.password", "tls.keyPassword")

_FAILOVER_OPTIONS: Final = [name for name, (part, _, _) in _OPTIONS.items() if part == "reconnect"]
_PLAIN_OPTIONS: Final = [name for name in _OPTIONS if name not in _FAILOVER_OPTIONS]

_DEFAULTS: Final[dict[str, type[Any]]] = {
    "prefetch_policy": PrefetchPolicy,
    "redelivery_policy": RedeliveryPolicy,
    "reconnect": ReconnectPolicy,
}


def _apply(query: str, options: ConnectionOptions, *, failover: bool) -> ConnectionOptions:
    """`options` with those of the query; `failover`: the ones for connecting again may be among them."""
    tls: dict[str, Any] = {}
    secret = False
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in _OPTIONS:
            raise _unknown_option(name, after_secret=secret, failover=failover)
        if name in _FAILOVER_OPTIONS and not failover:
            raise ConfigurationError(
                f"{name} is an option of connecting again; write failover:(stomp://HOST:PORT)?{name}=…"
            )
        secret = secret or name in _SECRETS
        part, key, read = _OPTIONS[name]
        try:
            value = read(text)
            if part == "tls":  # together: a key is of no use without its certificate
                tls[key] = value
            else:
                options = _changed(options, part, key, value)
        except (ValueError, ConfigurationError) as error:
            shown = name if name in _SECRETS else f"{name}={text}"
            raise ConfigurationError(f"option {shown}: {error}") from None
    return replace(options, tls=replace(options.tls, **tls))


def _changed(options: ConnectionOptions, part: str, key: str, value: Any) -> ConnectionOptions:
    if part == "":
        return replace(options, **{key: value})
    if key == "*":
        return replace(options, prefetch_policy=PrefetchPolicy.all(value))
    old = getattr(options, part) or _DEFAULTS[part]()
    if not isinstance(old, _DEFAULTS[part]):
        raise ConfigurationError(f"it does not fit {part}={old}")
    return replace(options, **{part: replace(old, **{key: value})})


def _unknown_option(name: str, *, after_secret: bool, failover: bool) -> ConfigurationError:
    """An error that does not show what may be a part of a password."""
    if "@" in name:
        return ConfigurationError(f"what stands after ? is no option; {_PERCENT}")
    if after_secret:
        return ConfigurationError(f"what stands after a password is no option; {_PERCENT}")
    return _unknown(name, list(_OPTIONS) if failover else _PLAIN_OPTIONS)


def _unknown(name: str, known: list[str]) -> ConfigurationError:
    return ConfigurationError(f"unknown option {name!r}; did you mean {nearest(name, known)!r}?")
