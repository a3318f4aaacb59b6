"""
The query of a broker URI: options as Java users write them, times in milliseconds.

What stands after a password is not shown in an error: it may be the rest of that password, with an & in it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from jmsx.core.policy import RedeliveryPolicy
from jmsx.errors import ConfigurationError
from jmsx.options import FOR_EVER, ConnectionOptions, PrefetchPolicy, ReconnectPolicy, nearest

if TYPE_CHECKING:
    from collections.abc import Callable

#: What to do about a character with a meaning of its own.
PERCENT: Final = (
    "write %23 %26 %2C %2F %3A %3F %40 %29 for # & , / : ? @ ) in a user name or password"
)

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,15}")


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
    "jmsx.commitMarkers": ("", "commit_markers", _boolean),
    "jmsx.resendUnconfirmed": ("", "resend_unconfirmed", _boolean),
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


def apply_query(query: str, options: ConnectionOptions, *, failover: bool) -> ConnectionOptions:
    """
    `options` with those of the query; `failover`: the ones for connecting again may be among them.

    Raises ConfigurationError, naming the option, and the nearest one for an unknown one.
    """
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
        return ConfigurationError(f"what stands after ? is no option; {PERCENT}")
    if after_secret:
        return ConfigurationError(f"what stands after a password is no option; {PERCENT}")
    return unknown_option(name, list(_OPTIONS) if failover else _PLAIN_OPTIONS)


def unknown_option(name: str, known: list[str]) -> ConfigurationError:
    """An error that names the nearest of the `known` options."""
    return ConfigurationError(f"unknown option {name!r}; did you mean {nearest(name, known)!r}?")
