"""
Selectors as Artemis reads them: strings stay strings, unless a prefix asks for numbers.

Source: artemis-selector 2.44.0 SelectorParser; jmsx_artemis/BROKER.md A21.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jmsx.testing.artemis.faults import Refused
from jmsx.testing.selector import Selector, SelectorSyntaxError, SelectorValueError

if TYPE_CHECKING:
    from jmsx.testing.artemis.message import CoreMessage

_PREFIXES: Final = {
    "convert_string_expressions:": {"convert": True},
    "hyphenated_props:": {"hyphens": True},
    "no_convert_string_expressions:": {"convert": False},
    "no_hyphenated_props:": {"hyphens": False},
}


class Filter(Selector):
    """A selector, and how it was written."""

    def __init__(self, selector: str, *, text: str, **options: bool) -> None:
        super().__init__(selector, **options)
        self.header = text  #: with its prefixes


def parse_selector(text: str | None) -> Filter | None:
    """The selector of a SUBSCRIBE; raises Refused if it is empty or makes no sense."""
    if text is None:
        return None
    if not text:
        raise Refused("Selector cannot be empty")
    rest = text
    options = {"convert": False, "hyphens": False}
    while prefix := next((p for p in _PREFIXES if rest.startswith(p)), None):
        options |= _PREFIXES[prefix]
        rest = rest.removeprefix(prefix)
    try:
        return Filter(rest, text=text, **options)
    except SelectorSyntaxError as error:
        raise Refused(f'Invalid selector "{text}"'.replace(":", ""), body=rest) from error


def suits(selector: Selector | None, message: CoreMessage) -> bool:
    """Whether `selector` wants `message`; one that cannot be evaluated does not (FilterImpl.match)."""
    try:
        return selector is None or selector.matches(message.lookup)
    except SelectorValueError:
        return False
