"""The broker's address-settings that concern redelivery, dead letters and lost messages, with advice on them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from jmsx.core.management import Advice
from jmsx.core.policy import UNLIMITED, Policy
from jmsx_artemis.destinations import MULTICAST


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressSettings:
    """The address-setting that holds for one address; unset fields have the broker's defaults (BROKER.md A62)."""

    address: str
    dead_letter_address: str | None = None
    auto_create_dead_letter_resources: bool = False
    dead_letter_queue_prefix: str = "DLQ."
    dead_letter_queue_suffix: str = ""
    expiry_address: str | None = None
    auto_create_expiry_resources: bool = False
    expiry_queue_prefix: str = "EXP."
    expiry_queue_suffix: str = ""
    max_delivery_attempts: int = 10  #: deliveries; 0 or less: for ever
    redelivery_delay: int = 0  #: milliseconds
    default_queue_routing_type: str = MULTICAST
    address_full_policy: str = "PAGE"
    page_full_policy: str | None = None  #: only set where paging is limited
    default_ring_size: int = -1  #: messages that a queue keeps; -1: all
    default_last_value_queue: bool = False
    default_last_value_key: str | None = None
    default_purge_on_no_consumers: bool = False
    default_non_destructive: bool = False
    slow_consumer_threshold: int = -1  #: messages a second; -1: none is slow
    slow_consumer_policy: str = "NOTIFY"
    auto_delete_queues: bool = True

    @classmethod
    def read(cls, address: str, told: str) -> AddressSettings:
        """Read the answer to `getAddressSettingsAsJSON`, which holds only settings that somebody has made."""
        given = json.loads(told)
        given.setdefault("deadLetterAddress", given.get("DLA") or None)  # BROKER.md A73
        names = {
            "dead_letter_address": "deadLetterAddress",
            "auto_create_dead_letter_resources": "autoCreateDeadLetterResources",
            "dead_letter_queue_prefix": "deadLetterQueuePrefix",
            "dead_letter_queue_suffix": "deadLetterQueueSuffix",
            "expiry_address": "expiryAddress",
            "auto_create_expiry_resources": "autoCreateExpiryResources",
            "expiry_queue_prefix": "expiryQueuePrefix",
            "expiry_queue_suffix": "expiryQueueSuffix",
            "max_delivery_attempts": "maxDeliveryAttempts",
            "redelivery_delay": "redeliveryDelay",
            "default_queue_routing_type": "defaultQueueRoutingType",
            "address_full_policy": "addressFullMessagePolicy",
            "page_full_policy": "pageFullMessagePolicy",
            "default_ring_size": "defaultRingSize",
            "default_last_value_queue": "defaultLastValueQueue",
            "default_last_value_key": "defaultLastValueKey",
            "default_purge_on_no_consumers": "defaultPurgeOnNoConsumers",
            "default_non_destructive": "defaultNonDestructive",
            "slow_consumer_threshold": "slowConsumerThreshold",
            "slow_consumer_policy": "slowConsumerPolicy",
            "auto_delete_queues": "autoDeleteQueues",
        }
        set_ = {field: given[name] for field, name in names.items() if name in given}
        return cls(address=address, **set_)

    @property
    def of_expired(self) -> AddressSettings:
        """Return these settings with the expiry address as dead letter address: the same rules hold for both."""
        return replace(
            self,
            dead_letter_address=self.expiry_address,
            auto_create_dead_letter_resources=self.auto_create_expiry_resources,
            dead_letter_queue_prefix=self.expiry_queue_prefix,
            dead_letter_queue_suffix=self.expiry_queue_suffix,
        )

    @property
    def full_policy(self) -> tuple[str, str]:
        """Name and value of the setting that decides what happens to messages when the address is full."""
        if self.address_full_policy == "PAGE" and self.page_full_policy is not None:
            return "page-full-policy", self.page_full_policy
        return "address-full-policy", self.address_full_policy

    @property
    def dead_letter_queue(self) -> str:
        """The name of the queue that the broker makes for this address's dead letters, if it auto-creates any."""
        return f"{self.dead_letter_queue_prefix}{self.address}{self.dead_letter_queue_suffix}"

    @property
    def dead_letter_filter(self) -> str:
        """The filter that the broker gives that queue (`QueueImpl.java:3741-3764`)."""
        return f"_AMQ_ORIG_ADDRESS = '{self.address}'"


def redelivers_too(settings: AddressSettings, policy: Policy) -> Advice | None:
    """
    Return advice if the broker's redelivery limits or delays come on top of the client's.

    The broker counts deliveries that ended with their connection, and delays messages that it takes back; the client
    counts deliveries in which the application failed. Source: BROKER.md A37 to A39.
    """
    limit, most = settings.max_delivery_attempts, policy.maximum_redeliveries
    first = limit > 0 and (most == UNLIMITED or most + 1 > limit)
    if not first and settings.redelivery_delay <= 0:
        return None
    return Advice(
        "the broker redelivers too: what it delays or puts away is not what the client's policy says",
        "set max-delivery-attempts to -1 and redelivery-delay to 0 in the broker's address-setting",
        {
            "redelivery-delay": settings.redelivery_delay,
            "max-delivery-attempts": limit,
            "maximum_redeliveries": most,
        },
    )


def deletes(settings: AddressSettings, *, kept: bool) -> Advice | None:
    """Return advice if the broker deletes dead letters as it has no queue for them (`kept` is False; BROKER.md A45)."""
    if kept or settings.max_delivery_attempts <= 0:
        return None
    return Advice(
        "the broker deletes a message when so many of its deliveries ended with their connection:"
        " it has no queue for dead letters",
        "give dead-letter-address a queue in the broker's address-setting, or set max-delivery-attempts to -1",
        {
            "dead-letter-address": settings.dead_letter_address or "none",
            "max-delivery-attempts": settings.max_delivery_attempts,
        },
    )


def drops(settings: AddressSettings) -> Advice | None:
    """Return advice if the broker confirms messages and then drops them when the address is full."""
    setting, policy = settings.full_policy
    if policy != "DROP":
        return None
    better = "PAGE" if setting == "address-full-policy" else "FAIL"
    return Advice(
        "once the address is full the broker drops what is sent to it, and confirms that all the same",
        f"set {setting} to {better} in the broker's address-setting",
        {setting: policy},
    )


def forgets(settings: AddressSettings) -> Advice | None:
    """Return advice if queues delete their oldest messages for new ones, even messages that a consumer holds."""
    if settings.default_ring_size < 0:
        return None
    return Advice(
        "a queue keeps so many messages only: for a newer one the oldest is deleted, although it was confirmed",
        "set default-ring-size to -1 in the broker's address-setting",
        {"default-ring-size": settings.default_ring_size},
    )


def replaces(settings: AddressSettings) -> Advice | None:
    """Return advice if queues delete a message when a newer one with the same key comes (last-value)."""
    if not (settings.default_last_value_queue or settings.default_last_value_key):
        return None
    return Advice(
        "a queue keeps the newest message of each key only: for it an older one is deleted, although it was confirmed",
        "leave default-last-value-queue and default-last-value-key out of the broker's address-setting",
        {"default-last-value-key": settings.default_last_value_key or "_AMQ_LVQ_NAME"},
    )


def purges(settings: AddressSettings) -> Advice | None:
    """Return advice if queues are emptied whenever they have no consumer, even for a moment (BROKER.md A82)."""
    if not settings.default_purge_on_no_consumers:
        return None
    return Advice(
        "a queue is emptied when its last consumer ends, or loses its link: what waits, and what the consumer had, is"
        " deleted, although it was confirmed",
        "set default-purge-on-no-consumers to false in the broker's address-setting",
        {"default-purge-on-no-consumers": "true"},
    )


def keeps_what_is_done(settings: AddressSettings) -> Advice | None:
    """Return advice if acknowledged messages stay in their queue (BROKER.md A82)."""
    if not settings.default_non_destructive:
        return None
    return Advice(
        "a queue keeps what is acknowledged: each consumer gets all of it, and once more on each further link",
        "set default-non-destructive to false in the broker's address-setting",
        {"default-non-destructive": "true"},
    )


def hangs_up(settings: AddressSettings) -> Advice | None:
    """Return advice if the broker closes the connection of a consumer whose handler is slow."""
    if settings.slow_consumer_threshold < 0 or settings.slow_consumer_policy != "KILL":
        return None
    return Advice(
        "the broker hangs up on a slow consumer: what a slow handler does then is done again",
        "set slow-consumer-policy to NOTIFY in the broker's address-setting",
        {
            "slow-consumer-threshold": settings.slow_consumer_threshold,
            "slow-consumer-policy": settings.slow_consumer_policy,
        },
    )
