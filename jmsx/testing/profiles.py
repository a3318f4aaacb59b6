"""The kinds of broker that `FakeBroker` can be: their settings, with the numbers that they are shipped with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicProfile:
    """ActiveMQ Classic 6.1.8 with its default policies and `schedulerSupport="true"`."""

    #: Messages that one wake-up of a queue pages in and dispatches, at most.
    max_page_size: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtemisProfile:
    """ActiveMQ Artemis 2.44.0 as `artemis create` makes it; the same settings for all addresses."""

    max_delivery_attempts: int = 10  #: after so many a message is dead; below 1: never
    dead_letter_address: str | None = "DLQ"  #: None: dead messages are dropped
    expiry_address: str | None = "ExpiryQueue"  #: None: expired messages are dropped


Profile = ClassicProfile | ArtemisProfile
