"""The options of a connection, with the Java client's defaults."""

from __future__ import annotations

import pytest

from jmsx.core.policy import RedeliveryPolicy, RedeliveryPolicyMap
from jmsx.core.values import DestinationKind, OptimizeAcknowledge
from jmsx.errors import ConfigurationError
from jmsx.options import ConnectionOptions, PrefetchPolicy


def test_prefetch_of_each_kind() -> None:
    """Source: `ActiveMQPrefetchPolicy.java:33-38`."""
    policy = PrefetchPolicy()
    assert [policy.prefetch(kind) for kind in DestinationKind] == [1000, 32767, 100]
    assert policy.queue_browser == 500


@pytest.mark.parametrize("prefetch", [0, 7])
def test_one_prefetch_for_all(prefetch: int) -> None:
    """0 is allowed: it means pull."""
    policy = PrefetchPolicy.all(prefetch)
    assert {policy.prefetch(kind) for kind in DestinationKind} == {prefetch}
    assert policy.queue_browser == prefetch


@pytest.mark.parametrize("field", ["queue", "queue_browser", "topic", "durable_topic"])
def test_negative_prefetch_is_refused(field: str) -> None:
    """The error names the kind."""
    with pytest.raises(ConfigurationError, match=f"prefetch of {field} must be 0 or more, not -1"):
        PrefetchPolicy(**{field: -1})


def test_map_of_policies_wins() -> None:
    """Where there is one, `redelivery_policy` is not looked at."""
    plain, special = RedeliveryPolicy(), RedeliveryPolicy(maximum_redeliveries=1)
    assert ConnectionOptions().policy("queue://a") == plain
    policies = RedeliveryPolicyMap(entries={"queue://a": special})
    options = ConnectionOptions(redelivery_policies=policies)
    assert (options.policy("queue://a"), options.policy("queue://b")) == (special, plain)


def test_optimized_acknowledgement_is_off_until_asked_for() -> None:
    """Source: `ActiveMQConnectionFactory.java:137-138` for its times."""
    assert ConnectionOptions().optimize() is None
    assert ConnectionOptions(optimize_acknowledge=True).optimize() == OptimizeAcknowledge(
        timeout=0.3, scheduled_interval=0.0
    )
    options = ConnectionOptions(
        optimize_acknowledge=True,
        optimize_acknowledge_timeout=0.0,
        optimized_ack_scheduled_ack_interval=9.0,
    )
    assert options.optimize() == OptimizeAcknowledge(timeout=0.0, scheduled_interval=9.0)


def test_password_is_not_shown() -> None:
    """Options are logged by people."""
    assert "geheim" not in repr(ConnectionOptions(username="u", password="geheim"))  # noqa: S106
