"""Which policy a destination has: wildcards of both brokers, the most specific first."""

from __future__ import annotations

from typing import Any

import pytest

from jmsx.core.destination_names import matches
from jmsx.core.policy import ArtemisRedeliveryPolicy, RedeliveryPolicy, RedeliveryPolicyMap
from jmsx.errors import ConfigurationError


def policy(most: int = 6) -> RedeliveryPolicy:
    """A policy that can be told from others."""
    return RedeliveryPolicy(maximum_redeliveries=most)


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("a", "a.b", False),
        ("a.b", "a", False),
        ("*", "a", True),
        ("*", "a.b", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*.c", "a.b.c", True),
        ("a.*.c", "a.b.d", False),
        (">", "a", True),
        (">", "a.b.c", True),
        ("a.>", "a.b.c", True),
        ("a.>", "b.c", False),
        ("*.b.>", "a.b.c", True),
        ("a.b*", "a.bc", False),
        ("#", "a.b.c", True),
        ("news.europe.#", "news.europe", True),
        ("news.europe.#", "news.europe.politics.regional", True),
        ("news.europe.#", "news.usa", False),
        ("news.*.#", "news", False),
        ("a#", "ab", False),
    ],
)
def test_wildcards(pattern: str, name: str, *, expected: bool) -> None:
    """`.` parts names, `*` is one part, `>` is all that follows."""
    assert matches(pattern.split("."), name.split(".")) is expected


PATTERNS = [">", "*", "a.>", "a.*", "*.b", "a.b", "a.d.>", "a.*.c", "a.b.c", "topic://a.>"]


@pytest.mark.parametrize(
    ("destination", "pattern"),
    [
        ("queue://z", "*"),
        ("queue://z.y", ">"),
        ("queue://z.b", "*.b"),
        ("queue://a.x", "a.*"),
        ("queue://a.b", "a.b"),
        ("queue://a.x.c", "a.*.c"),
        ("queue://a.d.x", "a.d.>"),
        ("queue://a.b.c", "a.b.c"),
        ("queue://a.x.x", "a.>"),
        ("queue://a.b?consumer.prefetchSize=1", "a.b"),
        ("topic://a.b", "topic://a.>"),
        ("topic://z", None),
        ("a.b", "a.b"),
    ],
)
def test_most_specific_pattern_wins(destination: str, pattern: str | None) -> None:
    """Whatever the order of the entries; a kind of destination has its own."""
    entries = {text: policy(most=number) for number, text in enumerate(PATTERNS)}
    default = policy(most=99)
    expected = default if pattern is None else entries[pattern]
    for given in (entries, dict(reversed(entries.items()))):
        assert RedeliveryPolicyMap(default, given).policy(destination) is expected


@pytest.mark.parametrize("wider", [">", "*"])
def test_exact_name_wins_over_every_pattern(wider: str) -> None:
    """Source: `DestinationMap.java`: the exact match, else the closest parent."""
    exact, other = policy(most=1), policy(most=2)
    for entries in ({"a": exact, wider: other}, {wider: other, "a": exact}):
        assert RedeliveryPolicyMap(entries=entries).policy("queue://a") is exact


@pytest.mark.parametrize(
    ("destination", "pattern"),
    [
        ("queue://a.b.c", "a.b.c"),
        ("queue://x.b", "*.b"),
        ("queue://a.b", "*.b"),  # ActiveMQ's order would take a.#
        ("queue://a.x", "a.#"),
        ("queue://a.x.y", "a.#"),
        ("queue://x.b.y", "*.b.#"),
        ("queue://a.b.y", "*.b.#"),  # the longest of those that end so
        ("queue://a", "a.#"),
        ("queue://z", "#"),
    ],
)
def test_order_of_artemis(destination: str, pattern: str) -> None:
    """Source: Artemis' `HierarchicalObjectRepository.MatchComparator`."""
    patterns = ["#", "a.#", "*.b", "*.b.#", "a.b.c"]
    entries = {text: ArtemisRedeliveryPolicy(redelivery_delay=n) for n, text in enumerate(patterns)}
    for given in (entries, dict(reversed(entries.items()))):
        assert RedeliveryPolicyMap(entries=given).policy(destination) is entries[pattern]


@pytest.mark.parametrize(
    ("pattern", "complaint"),
    [("a.#.b", "# must be the last part"), ("quue://a", "'quue' is none of queue, topic")],
)
def test_keys_that_match_nothing_are_refused(pattern: str, complaint: str) -> None:
    """A policy that silently is nobody's would be noticed too late."""
    with pytest.raises(ConfigurationError, match=complaint):
        RedeliveryPolicyMap(entries={pattern: policy()})


def test_without_entries_all_get_the_default() -> None:
    """A map is as good as its default."""
    assert RedeliveryPolicyMap().policy("queue://a") == RedeliveryPolicy()


@pytest.mark.parametrize("wrong", [3, None, RedeliveryPolicy, "exponential"])
def test_what_is_no_policy(wrong: Any) -> None:
    """Is refused at once: it would end the session that asks it."""
    with pytest.raises(ConfigurationError, match="must be a RedeliveryPolicy, not"):
        RedeliveryPolicyMap(default=wrong)
    with pytest.raises(ConfigurationError, match=r"policy for 'orders\.>' must be a"):
        RedeliveryPolicyMap(entries={"orders.>": wrong})
