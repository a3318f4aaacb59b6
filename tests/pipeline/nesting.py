"""Whether HTML is well nested, which browsers pass over in silence."""

from __future__ import annotations

from html.parser import HTMLParser


def assert_well_nested(text: str) -> None:
    """Every element is closed, in its turn."""
    found = _Nesting()
    found.feed(text)
    assert found.open == []


class _Nesting(HTMLParser):
    """The elements that are open, the innermost last."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        del attrs
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
