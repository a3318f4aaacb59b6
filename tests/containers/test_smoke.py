"""What the library promises first, on brokers in containers: these tests are those of the processes."""

from __future__ import annotations

import pytest

from tests.guarantees.test_guarantees import (
    test_bodies,
    test_browsing,
    test_consume_is_at_least_once,
    test_non_persistent_messages_are_dead_letters_too,
    test_poison_is_dead_after_its_deliveries,
    test_receive_and_send_are_one,
    test_rollback_and_recover_keep_the_order,
)

__all__ = [
    "test_bodies",
    "test_browsing",
    "test_consume_is_at_least_once",
    "test_non_persistent_messages_are_dead_letters_too",
    "test_poison_is_dead_after_its_deliveries",
    "test_receive_and_send_are_one",
    "test_rollback_and_recover_keep_the_order",
]

pytestmark = [pytest.mark.broker, pytest.mark.containers]
