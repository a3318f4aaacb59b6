"""From the words of a scenario to those of jmsx, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import jmsx
from jmsx import errors
from jmsx.jms.properties import property_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.conformance.scenario import Json

#: The header in which Classic says why a message is a dead letter.
_CAUSE: Final = "dlqDeliveryFailureCause"

#: FORMAT.md's closed list of error kinds; a subclass stands before its base.
_KINDS: Final = (
    (errors.IllegalStateError, "IllegalState"),
    (errors.InvalidDestinationError, "InvalidDestination"),
    (errors.InvalidSelectorError, "InvalidSelector"),
    (errors.InvalidClientIdError, "InvalidClientID"),
    (errors.TransactionRolledBackError, "TransactionRolledBack"),
    (errors.MessageFormatError, "MessageFormat"),
    (errors.MessageNotReadableError, "MessageNotReadable"),
    (errors.MessageNotWriteableError, "MessageNotWriteable"),
    (errors.ResourceAllocationError, "ResourceAllocation"),
    (errors.SecurityError, "Security"),
    (errors.LinkError, "ConnectionFailed"),
    (errors.SendUnconfirmedError, "ConnectionFailed"),
    (errors.ConfigurationError, "Configuration"),
    (errors.UnsupportedError, "Unsupported"),
    (errors.JmsxError, "JMS"),
)

MODES: Final = {
    "AUTO": jmsx.AcknowledgeMode.AUTO_ACKNOWLEDGE,
    "CLIENT": jmsx.AcknowledgeMode.CLIENT_ACKNOWLEDGE,
    "DUPS_OK": jmsx.AcknowledgeMode.DUPS_OK_ACKNOWLEDGE,
    "INDIVIDUAL": jmsx.AcknowledgeMode.INDIVIDUAL_ACKNOWLEDGE,
    "TRANSACTED": jmsx.AcknowledgeMode.SESSION_TRANSACTED,
}


def error_kind(error: Exception) -> str:
    """Give the kind that a scenario calls `error` by."""
    return next((kind for base, kind in _KINDS if isinstance(error, base)), "Runtime")


def connection_options(options: Json, uri: Callable[[str], str]) -> dict[str, Any]:
    """
    Translate a scenario's connection options into keyword arguments of `jmsx.Connection`.

    `uri` gives the destination URI of a logical name.
    """
    direct = (
        "optimize_acknowledge",
        "optimize_acknowledge_timeout",
        "optimized_ack_scheduled_ack_interval",
        "non_blocking_redelivery",
        "transacted_individual_ack",
    )
    given: dict[str, Any] = {name: options[name] for name in direct if name in options}
    if "prefetch" in options:
        given["prefetch_policy"] = jmsx.PrefetchPolicy.all(options["prefetch"])
    policy = redelivery_policy(options.get("redelivery_policy", {}))
    given["redelivery_policy"] = policy
    if "redelivery_policies" in options:
        entries = {
            uri(name): redelivery_policy(one)
            for name, one in options["redelivery_policies"].items()
        }
        given["redelivery_policies"] = jmsx.RedeliveryPolicyMap(default=policy, entries=entries)
    return given


def redelivery_policy(given: Json) -> jmsx.RedeliveryPolicy:
    """Translate a policy; its missing members take the defaults of the Java client."""
    fields = dict(given)
    if "collision_avoidance_percent" in fields:
        fields["collision_avoidance_factor"] = fields.pop("collision_avoidance_percent") / 100
    if (fields.get("maximum_redelivery_delay") or 0) < 0:
        fields["maximum_redelivery_delay"] = None
    return jmsx.RedeliveryPolicy(**fields)


def describe(message: jmsx.Message, record: Sequence[str], logical: Callable[[Any], Any]) -> Json:
    """
    Tell of a received message what FORMAT.md calls M.

    `logical` gives the logical name of a destination.
    """
    described: Json = {
        "body": body(message),
        "redelivered": message.redelivered,
        "delivery_count": message.delivery_count,
    }
    if isinstance(message.body, bytes):
        described["kind"] = "bytes"
    if record:
        described["extra"] = {name: _recorded(message, name, logical) for name in record}
    return described


def body(message: jmsx.Message) -> str | None:
    """Give the text of a message, of a bytes message as UTF-8."""
    if isinstance(message.body, bytes):
        return message.body.decode()
    return message.body if isinstance(message.body, str) else None


def _recorded(message: jmsx.Message, name: str, logical: Callable[[Any], Any]) -> Any:
    what, _, argument = name.partition(":")
    match what:
        case "property":
            value = message.properties.get(argument)
            return None if value is None else property_text(argument, value)
        case "cause_contains":
            return argument in str(message.properties.get(_CAUSE, ""))
        case "expires":
            return bool(message.expiration)
        case "has_reply_to":
            return message.reply_to is not None
        case "destination" | "original_destination":
            return logical(getattr(message, what))
        case _:
            return getattr(message, what)
