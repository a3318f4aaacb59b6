"""
The query of a broker URI: options as Java users write them, with times in milliseconds.

Errors do not show the text after a password, for it may be the rest of a password that contains an `&`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import parse_qsl

from jmsx.config.options import FOR_EVER, ConnectionOptions, PrefetchPolicy, ReconnectPolicy
from jmsx.core.option_checks import unknown
from jmsx.core.policy import RedeliveryPolicy
from jmsx.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


#: A function that parses the text of an option.
Reader: TypeAlias = "Callable[[str], Any]"


#: The advice in errors about special characters.
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
    """Return milliseconds, in seconds."""
    return _whole(text) / 1000


def _seconds_or_never(text: str) -> float:
    """Return milliseconds, in seconds; -1 is for ever."""
    return FOR_EVER if _whole(text) == FOR_EVER else _seconds(text)


def _limit(text: str) -> float | None:
    """Return milliseconds, in seconds; 0 or less is no limit (`ActiveMQConnection.java`, syncSendPacket)."""
    return _seconds(text) if _whole(text) > 0 else None


def _maybe_seconds(text: str) -> float | None:
    """Return milliseconds, in seconds; below 0 is none."""
    return _seconds(text) if _whole(text) >= 0 else None


def _percent(text: str) -> float:
    return _whole(text) / 100


def _options(
    prefix: str, part: str, fields: Mapping[str, tuple[str, Reader]]
) -> dict[str, tuple[str, str, Reader]]:
    """Option -> (part of the options, field, reader) for what begins with `prefix`; part "": the options themselves."""
    return {f"{prefix}{name}": (part, field, read) for name, (field, read) in fields.items()}


_OPTIONS: Final = {
    **_options(
        "jms.",
        "",
        {
            "clientID": ("client_id", str),
            "userName": ("username", str),
            "password": ("password", str),
            "optimizeAcknowledge": ("optimize_acknowledge", _boolean),
            "optimizeAcknowledgeTimeOut": ("optimize_acknowledge_timeout", _seconds),
            "optimizedAckScheduledAckInterval": ("optimized_ack_scheduled_ack_interval", _seconds),
            "nonBlockingRedelivery": ("non_blocking_redelivery", _boolean),
            "transactedIndividualAck": ("transacted_individual_ack", _boolean),
            "useAsyncSend": ("use_async_send", _boolean),
            "connectResponseTimeout": ("connect_timeout", _limit),
            "sendTimeout": ("request_timeout", _limit),
        },
    ),
    **_options(
        "jms.prefetchPolicy.",
        "prefetch_policy",
        {
            "queuePrefetch": ("queue", _whole),
            "queueBrowserPrefetch": ("queue_browser", _whole),
            "topicPrefetch": ("topic", _whole),
            "durableTopicPrefetch": ("durable_topic", _whole),
            "all": ("*", _whole),
        },
    ),
    **_options(
        "jms.redeliveryPolicy.",
        "redelivery_policy",
        {
            "maximumRedeliveries": ("maximum_redeliveries", _whole),
            "initialRedeliveryDelay": ("initial_redelivery_delay", _seconds),
            "redeliveryDelay": ("redelivery_delay", _seconds),
            "useExponentialBackOff": ("use_exponential_back_off", _boolean),
            "backOffMultiplier": ("back_off_multiplier", _number),
            "maximumRedeliveryDelay": ("maximum_redelivery_delay", _maybe_seconds),
            "useCollisionAvoidance": ("use_collision_avoidance", _boolean),
            "collisionAvoidancePercent": ("collision_avoidance_factor", _percent),
            "preDispatchCheck": ("pre_dispatch_check", _boolean),
        },
    ),
    **_options(
        "jmsx.",
        "",
        {
            "ledger": ("ledger", str),
            "commitMarkers": ("commit_markers", _boolean),
            "resendUnconfirmed": ("resend_unconfirmed", _boolean),
        },
    ),
    **_options("wireFormat.", "", {"maxFrameSize": ("max_body_size", _whole)}),
    **_options(
        "tls.",
        "tls",
        {
            "caFile": ("ca_file", str),
            "certificateFile": ("certificate_file", str),
            "keyFile": ("key_file", str),
            "keyPassword": ("key_password", str),
            "verifyHostName": ("verify_hostname", _boolean),
            "serverName": ("server_name", str),
        },
    ),
    # as Java writes it
    **_options("socket.", "tls", {"verifyHostName": ("verify_hostname", _boolean)}),
    **_options(
        "",
        "reconnect",
        {
            "randomize": ("randomize", _boolean),
            "initialReconnectDelay": ("initial_delay", _seconds),
            "maxReconnectDelay": ("maximum_delay", _seconds),
            "useExponentialBackOff": ("use_exponential_back_off", _boolean),
            "backOffMultiplier": ("back_off_multiplier", _number),
            "maxReconnectAttempts": ("maximum_attempts", _whole),
            "startupMaxReconnectAttempts": ("startup_maximum_attempts", _whole),
            "timeout": ("timeout", _seconds_or_never),
        },
    ),
}

#: Options whose values errors never show; nor do they show text after them that is no option, for it may be the rest of
#: a password.
_SECRETS: Final = ("jms.password", "tls.keyPassword")

_FAILOVER_OPTIONS: Final = [name for name, (part, _, _) in _OPTIONS.items() if part == "reconnect"]
_PLAIN_OPTIONS: Final = [name for name in _OPTIONS if name not in _FAILOVER_OPTIONS]

_DEFAULTS: Final[dict[str, type[Any]]] = {
    "prefetch_policy": PrefetchPolicy,
    "redelivery_policy": RedeliveryPolicy,
    "reconnect": ReconnectPolicy,
}


def check_agreement(queries: Iterable[tuple[str, bool]], common: str) -> None:
    """
    Raise ConfigurationError if the brokers of one URI, each with its own query, set an option to different values.

    A broker whose query does not set an option gets the value of the others; except for TLS: `verifyHostName=false`
    must be set for each broker that uses TLS. Options in the query `common` apply to all brokers.
    """
    brokers = [(_said(query) | _said(common), tls) for query, tls in queries]
    names = {field: name for own, _ in brokers for field, (name, _) in own.items()}
    for field, name in names.items():
        bound = [own for own, tls in brokers if field in own or (field[0] == "tls" and tls)]
        if len({own[field][1] if field in own else None for own in bound}) > 1:
            raise ConfigurationError(
                f"the brokers of one URI have different {name}, and a connection has one for all of them:"
                f" write failover:(…)?{name}=…"
            )


def _said(query: str) -> dict[tuple[str, str], tuple[str, str]]:
    """
    Return name and text of each option, by its part and field; raises ConfigurationError where it has two texts.

    One may have two names.
    """
    said: dict[tuple[str, str], tuple[str, str]] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name in _OPTIONS and said.setdefault(_OPTIONS[name][:2], (name, text))[1] != text:
            raise ConfigurationError(f"option {name} is there twice, with different values")
    return said


def apply_query(query: str, options: ConnectionOptions, *, failover: bool) -> ConnectionOptions:
    """
    Return `options` changed by those in the query; `failover`: whether options for reconnecting are allowed in it.

    Raises ConfigurationError, which names the option, and for an unknown one also the nearest known one.
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
            if part == "tls":  # checked together: a key needs its certificate
                tls[key] = value
            else:
                options = _changed(options, part, key, value)
        except (ValueError, ConfigurationError) as error:
            shown = name if name in _SECRETS else f"{name}={text}"
            raise ConfigurationError(f"option {shown}: {error}") from None
    return replace(options, tls=replace(options.tls, **tls)) if tls else options


def _changed(options: ConnectionOptions, part: str, key: str, value: Any) -> ConnectionOptions:
    if part == "":
        return replace(options, **{key: value})
    if key == "*":
        return replace(options, prefetch_policy=PrefetchPolicy.all(value))
    old = getattr(options, part) or _DEFAULTS[part]()
    if not isinstance(old, _DEFAULTS[part]):
        raise ConfigurationError(
            f"it is an option of a {_DEFAULTS[part].__name__}, and the program gives {part}={old}; set it there"
        )
    return replace(options, **{part: replace(old, **{key: value})})


def _unknown_option(name: str, *, after_secret: bool, failover: bool) -> ConfigurationError:
    """Return an error that does not show what may be a part of a password."""
    if "@" in name:
        return ConfigurationError(
            f"the URI has a part after ? that is no option NAME=VALUE; {PERCENT}"
        )
    if after_secret:
        return ConfigurationError(
            f"the URI has a part after a password that is no option NAME=VALUE; {PERCENT}"
        )
    return unknown("option", name, list(_OPTIONS) if failover else _PLAIN_OPTIONS)
