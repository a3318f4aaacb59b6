"""What is set on the broker for an address, and what of it does not go with the client's policy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jmsx import ArtemisRedeliveryPolicy, RedeliveryPolicy
from jmsx_artemis.settings import (
    AddressSettings,
    deletes,
    drops,
    forgets,
    hangs_up,
    keeps_what_is_done,
    purges,
    redelivers_too,
    replaces,
)


def test_what_is_not_set_has_the_default() -> None:
    """`getAddressSettingsAsJSON` tells only what somebody has set (AddressSettings.java:54-64)."""
    settings = AddressSettings.read("a", "{}")
    assert settings == AddressSettings(address="a")
    assert settings.max_delivery_attempts == 10
    assert settings.redelivery_delay == 0
    assert not settings.auto_create_dead_letter_resources


def test_what_is_set_is_read() -> None:
    """All of it that concerns us, and nothing else."""
    told = (
        '{"maxDeliveryAttempts":2,"deadLetterAddress":"DLA","autoCreateDeadLetterResources":true,'
        '"deadLetterQueuePrefix":"dead.","deadLetterQueueSuffix":".q","redeliveryDelay":200,"pageSizeBytes":1,'
        '"defaultQueueRoutingType":"ANYCAST"}'
    )
    settings = AddressSettings.read("a", told)
    assert settings.dead_letter_queue == "dead.a.q"
    assert settings.dead_letter_filter == "_AMQ_ORIG_ADDRESS = 'a'"
    assert settings == AddressSettings(
        address="a",
        dead_letter_address="DLA",
        auto_create_dead_letter_resources=True,
        dead_letter_queue_prefix="dead.",
        dead_letter_queue_suffix=".q",
        max_delivery_attempts=2,
        redelivery_delay=200,
        default_queue_routing_type="ANYCAST",
    )


@pytest.mark.parametrize(
    ("told", "address"),
    [('{"DLA": "DLQ"}', "DLQ"), ('{"DLA": ""}', None), ('{"deadLetterAddress": "a"}', "a")],
)
def test_a_broker_of_before_calls_it_otherwise(told: str, address: str | None) -> None:
    """As 2.28 does; an empty one is none."""
    assert AddressSettings.read("orders", told).dead_letter_address == address


@pytest.mark.parametrize(
    ("attempts", "delay", "redeliveries", "told"),
    [
        (10, 0, 6, False),
        (10, 0, 9, False),  # ten deliveries, as many as the broker allows
        (10, 0, 10, True),
        (10, 0, -1, True),
        (7, 0, 6, False),
        (6, 0, 6, True),
        (-1, 0, -1, False),
        (0, 0, -1, False),
        (-1, 1, 0, True),
    ],
)
def test_redelivery_on_both_sides_is_told(
    attempts: int, delay: int, redeliveries: int, *, told: bool
) -> None:
    """When the broker delays, or gives up before the client does."""
    settings = AddressSettings(address="a", max_delivery_attempts=attempts, redelivery_delay=delay)
    policy = RedeliveryPolicy(maximum_redeliveries=redeliveries)
    assert (redelivers_too(settings, policy) is not None) is told


def test_advice_names_both_sides() -> None:
    """And what to do."""
    settings = AddressSettings(address="a", max_delivery_attempts=3, redelivery_delay=200)
    advice = redelivers_too(settings, ArtemisRedeliveryPolicy(max_delivery_attempts=4))
    assert advice is not None
    assert advice.settings == {
        "redelivery-delay": 200,
        "max-delivery-attempts": 3,
        "maximum_redeliveries": 3,
    }
    assert "max-delivery-attempts to -1" in advice.remedy


@pytest.mark.parametrize(
    ("attempts", "kept", "told"), [(10, False, True), (10, True, False), (-1, False, False)]
)
def test_broker_that_deletes_is_told(attempts: int, *, kept: bool, told: bool) -> None:
    """After so many crashes of its consumers a message would be gone (`QueueImpl.java:3711-3739`)."""
    settings = AddressSettings(address="a", max_delivery_attempts=attempts)
    assert (deletes(settings, kept=kept) is not None) is told


@pytest.mark.parametrize(
    ("address", "told"), [(None, "none"), ("", "none"), ("nowhere", "nowhere")]
)
def test_who_has_no_dead_letter_address_is_told_of_none(address: str | None, told: str) -> None:
    """A setting without a word behind it looks like a mistake of ours."""
    advice = deletes(AddressSettings(address="a", dead_letter_address=address), kept=False)
    assert advice is not None
    assert advice.settings["dead-letter-address"] == told


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, []),
        ({"addressFullMessagePolicy": "PAGE", "maxSizeBytes": 2000}, []),
        ({"addressFullMessagePolicy": "FAIL"}, []),  # its senders are told
        ({"addressFullMessagePolicy": "DROP"}, ["drops what is sent"]),
        ({"pageFullMessagePolicy": "DROP", "pageLimitMessages": 3}, ["drops what is sent"]),
        ({"pageFullMessagePolicy": "FAIL", "pageLimitMessages": 3}, []),
        ({"addressFullMessagePolicy": "FAIL", "pageFullMessagePolicy": "DROP"}, []),
        ({"defaultRingSize": -1}, []),
        ({"defaultRingSize": 0}, ["the oldest is deleted"]),
        ({"defaultRingSize": 38}, ["the oldest is deleted"]),
        ({"defaultLastValueQueue": True}, ["newest message of each key"]),
        ({"defaultLastValueKey": "k"}, ["newest message of each key"]),
        ({"defaultLastValueKey": "", "defaultLastValueQueue": False}, []),
        ({"defaultPurgeOnNoConsumers": True}, ["is emptied when its last consumer ends"]),
        ({"defaultNonDestructive": True}, ["keeps what is acknowledged"]),
        ({"defaultPurgeOnNoConsumers": False, "defaultNonDestructive": False}, []),
        ({"slowConsumerThreshold": 5}, []),
        ({"slowConsumerThreshold": 5, "slowConsumerPolicy": "NOTIFY"}, []),
        ({"slowConsumerPolicy": "KILL"}, []),
        ({"slowConsumerThreshold": 5, "slowConsumerPolicy": "KILL"}, ["hangs up on a slow"]),
    ],
)
def test_settings_that_surprise(settings: dict[str, Any], words: list[str]) -> None:
    """Those that lose messages or links in silence, and no others."""
    read = AddressSettings.read("orders", json.dumps(settings))
    every = (drops, forgets, replaces, purges, keeps_what_is_done, hangs_up)
    advice = [one for each in every if (one := each(read)) is not None]
    assert len(advice) == len(words)
    assert all(part in one.problem for part, one in zip(words, advice, strict=True))
