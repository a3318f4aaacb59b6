"""The kinds of broker that `FakeBroker` can imitate, and their settings, with the brokers' own defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicProfile:
    """ActiveMQ Classic 6.1.8 with its default policies and `schedulerSupport="true"`."""

    #: Messages that one wake-up of a queue pages in and dispatches, at most.
    max_page_size: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtemisProfile:
    """ActiveMQ Artemis 2.44.0 as `artemis create` configures it; the settings hold for all addresses."""

    max_delivery_attempts: int = 10  #: then a message becomes a dead letter; below 1: never
    dead_letter_address: str | None = "DLQ"  #: None: dead messages are dropped
    expiry_address: str | None = "ExpiryQueue"  #: None: expired messages are dropped


Profile = ClassicProfile | ArtemisProfile
