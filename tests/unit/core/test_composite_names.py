"""Destinations that stand for several."""

from __future__ import annotations

import pytest

from jmsx.core.destination_names import is_composite, is_pattern, is_wildcard, parse_destination
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
