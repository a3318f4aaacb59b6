"""
Broker URIs and destination URIs, with options as Java users write them.

``failover:(stomp://a:61613,stomp://b:61613)?jms.optimizeAcknowledge=true&jms.redeliveryPolicy.maximumRedeliveries=4``
and ``queue://orders?consumer.prefetchSize=10``. Times in options are milliseconds, as in Java; an unknown option is an
error that names the nearest known one.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from jmsx.core.policy import RedeliveryPolicy
from jmsx.errors import ConfigurationError, InvalidDestinationError
from jmsx.options import ConnectionOptions, PrefetchPolicy, ReconnectPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DEFAULT_PORT: Final = 61613

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
    options = options or ConnectionOptions()
    uri, query = text.strip(), ""
    if uri.startswith("failover:"):
        uri, query = _failover_parts(uri)
        options = replace(options, reconnect=options.reconnect or ReconnectPolicy())
        parts = [part.strip() for part in uri.split(",") if part.strip()]
    else:
        uri, _, query = uri.partition("?")
        parts = [uri]
    addresses = []
    for part in parts:
        bare, _, own_query = part.partition("?")
        address, options = _address(bare, options, text)
        addresses.append(address)
        options = _apply(own_query, options)
    if not addresses:
        raise ConfigurationError(f"no broker in {text!r}; write stomp://HOST:PORT")
    return BrokerUri(tuple(addresses), _apply(query, options))


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


def _failover_parts(uri: str) -> tuple[str, str]:
    """The brokers and the query of `failover:(a,b)?query` or `failover:a,b?query`."""
    rest = uri.removeprefix("failover:").removeprefix("//")
    if not rest.startswith("("):
        brokers, _, query = rest.partition("?")
        return brokers, query
    brokers, closed, query = rest[1:].rpartition(")")
    if not closed:
        raise ConfigurationError(f"failover:({_hidden(rest[1:])!r} lacks its closing parenthesis")
    return brokers, query.removeprefix("?")


def _address(
    uri: str, options: ConnectionOptions, whole: str
) -> tuple[BrokerAddress, ConnectionOptions]:
    split = urlsplit(uri if "://" in uri else f"stomp://{uri}")
    if split.scheme in ("stomp+ssl", "stomp+nio+ssl", "ssl"):
        raise ConfigurationError(f"{split.scheme} is not supported yet; use stomp://")
    if split.scheme not in ("stomp", "tcp", "stomp+nio"):
        raise ConfigurationError(
            f"{split.scheme}:// is not a STOMP broker in {_hidden(whole)!r}; write stomp://HOST:PORT"
        )
    try:
        port = split.port or DEFAULT_PORT
    except ValueError:
        raise ConfigurationError(f"a bad port in {_hidden(whole)!r}") from None
    if not split.hostname:
        raise ConfigurationError(f"no host in {_hidden(whole)!r}; write stomp://HOST:PORT")
    if split.username is not None:
        password = unquote(split.password) if split.password is not None else options.password
        options = replace(options, username=unquote(split.username), password=password)
    return BrokerAddress(split.hostname, port), options


def _hidden(uri: str) -> str:
    """`uri` without what stands before an @ or after a ?: passwords are never shown."""
    return uri.partition("?")[0].rpartition("@")[2]


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _seconds(text: str) -> float:
    return int(text) / 1000


def _maybe_seconds(text: str) -> float | None:
    return None if int(text) < 0 else int(text) / 1000


def _percent(text: str) -> float:
    return int(text) / 100


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
    "jms.connectResponseTimeout": ("", "connect_timeout", _seconds),
    "jms.sendTimeout": ("", "request_timeout", _seconds),
    "jms.prefetchPolicy.queuePrefetch": ("prefetch_policy", "queue", int),
    "jms.prefetchPolicy.queueBrowserPrefetch": ("prefetch_policy", "queue_browser", int),
    "jms.prefetchPolicy.topicPrefetch": ("prefetch_policy", "topic", int),
    "jms.prefetchPolicy.durableTopicPrefetch": ("prefetch_policy", "durable_topic", int),
    "jms.prefetchPolicy.all": ("prefetch_policy", "*", int),
    "jms.redeliveryPolicy.maximumRedeliveries": (
        "redelivery_policy",
        "maximum_redeliveries",
        int,
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
        float,
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
    "randomize": ("reconnect", "randomize", _boolean),
    "initialReconnectDelay": ("reconnect", "initial_delay", _seconds),
    "maxReconnectDelay": ("reconnect", "maximum_delay", _seconds),
    "useExponentialBackOff": ("reconnect", "use_exponential_back_off", _boolean),
    "backOffMultiplier": ("reconnect", "back_off_multiplier", float),
    "maxReconnectAttempts": ("reconnect", "maximum_attempts", int),
    "timeout": ("reconnect", "timeout", _seconds),
}

_DEFAULTS: Final[dict[str, type[Any]]] = {
    "prefetch_policy": PrefetchPolicy,
    "redelivery_policy": RedeliveryPolicy,
    "reconnect": ReconnectPolicy,
}


def _apply(query: str, options: ConnectionOptions) -> ConnectionOptions:
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in _OPTIONS:
            raise _unknown(name, list(_OPTIONS))
        part, key, read = _OPTIONS[name]
        try:
            value = read(text)
        except ValueError as error:
            raise ConfigurationError(f"option {name}={text}: {error}") from error
        if part == "":
            options = replace(options, **{key: value})
        elif key == "*":
            options = replace(options, prefetch_policy=PrefetchPolicy.all(value))
        else:
            old = getattr(options, part) or _DEFAULTS[part]()
            if not isinstance(old, _DEFAULTS[part]):
                raise ConfigurationError(f"option {name} does not fit {part}={old}")
            options = replace(options, **{part: replace(old, **{key: value})})
    return options


def _unknown(name: str, known: list[str]) -> ConfigurationError:
    lowered = {option.lower(): option for option in known}
    near = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.0)
    return ConfigurationError(f"unknown option {name!r}; did you mean {lowered[near[0]]!r}?")
