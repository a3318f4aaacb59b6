"""Destinations that stand for several."""

from __future__ import annotations

import pytest

from jmsx.core.destination_names import (
    is_composite,
    is_pattern,
    is_wildcard,
    one_of,
    parse_destination,
)
from jmsx.errors import InvalidDestinationError


@pytest.mark.parametrize(
    ("name", "wildcard", "composite"),
    [
        ("orders", False, False),
        ("orders.#", True, False),
        ("#", True, False),
        ("queue://#", True, False),
        ("queue://orders.>", True, False),
        ("topic://*.new", True, False),
        ("queue://c#sharp", False, False),
        ("queue://a,b", False, True),
        ("queue://a.*,topic://b", True, True),
        ("queue://a?consumer.selector=x*1>2,3", False, False),
    ],
)
def test_what_stands_for_several(name: str, *, wildcard: bool, composite: bool) -> None:
    """Classic's and Artemis' wildcards, and lists; options are no part of the name."""
    assert (is_wildcard(name), is_composite(name)) == (wildcard, composite)
    assert is_pattern(name) is (wildcard or composite)


@pytest.mark.parametrize(
    ("text", "kind", "uri"),
    [
        ("A,B", "topic", "topic://A,B"),
        ("A,topic://B", "queue", "queue://A,topic://B"),
        ("queue://A,queue://B", "queue", "queue://A,B"),
        ("/queue/A,/topic/B", "queue", "queue://A,topic://B"),
        ("topic:A,B?consumer.prefetchSize=1", "queue", "topic://A,B"),
    ],
)
def test_a_list_of_destinations(text: str, kind: str, uri: str) -> None:
    """Each part in whichever spelling; what has no kind has the first one's."""
    assert str(parse_destination(text, kind)) == uri


@pytest.mark.parametrize("text", ["A,", ",A", "A,,B", "A,foo://B", "queue://A,queue//B", ","])
def test_a_list_that_makes_no_sense(text: str) -> None:
    """It is refused where it is written."""
    with pytest.raises(InvalidDestinationError):
        parse_destination(text)


@pytest.mark.parametrize(
    ("pattern", "told", "found"),
    [
        ("queue://a.>", "queue://a.b.c", "queue://a.b.c"),
        ("queue://a.>", "queue://a", "queue://a"),
        ("queue://>", "queue://a.b", "queue://a.b"),
        ("queue://a.#", "queue://a.b", "queue://a.b"),
        ("queue://a.#.c", "queue://a.c", "queue://a.c"),
        ("queue://a.#.c", "queue://a.b.c.c", "queue://a.b.c.c"),
        ("queue://#.c", "queue://c", "queue://c"),
        ("queue://a.#.c", "queue://a.b", ""),
        ("queue://a.*.c", "queue://a.b.c", "queue://a.b.c"),
        ("topic://a.>?consumer.prefetchSize=1", "queue://a.b", "topic://a.b"),
        ("queue://a,topic://b", "topic://b", "topic://b"),
        ("queue://a,b.*", "queue://b.c", "queue://b.c"),
        ("queue://a.>", "queue://ab", ""),
        ("queue://a.*", "queue://a.b.c", ""),
        ("queue://a.*", "queue://a", ""),
        ("queue://a.b*", "queue://a.bc", ""),
        ("queue://a.+>", "queue://a.aa", ""),
        ("queue://>", "", ""),
    ],
)
def test_which_of_several_a_message_was_in(pattern: str, told: str, found: str) -> None:
    """Only a name that fits is believed."""
    assert one_of(pattern, told) == found
