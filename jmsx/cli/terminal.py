"""
How the command line writes: as it stands, whoever wrote it.

What a broker, a message or an exception says may hold what a terminal obeys: sequences that clear the screen, set its
title or turn the direction of writing. Here it is seen instead.
"""

from __future__ import annotations

import logging
import unicodedata
from typing import TYPE_CHECKING, Final

from rich.console import Console, RenderHook
from rich.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import ConsoleOptions, ConsoleRenderable, RenderResult

#: What turns the direction of writing, and what ends a line for some and not for others.
_INVISIBLE: Final = frozenset(
    "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)


def visible(text: str, keep: str = "\n\t") -> str:
    """`text` with control characters, but those in `keep`, written as Python would escape them."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(one) if one not in keep and _is_control(one) else one for one in text)


def _is_control(one: str) -> bool:
    return unicodedata.category(one) in ("Cc", "Cs") or one in _INVISIBLE


def _escaped(one: str) -> str:
    return one.encode("unicode_escape").decode("ascii")


def console(*, stderr: bool = False) -> Console:
    """A console that prints text as it is: no markup, no emoji for `:-1:` in a message id, no controls."""
    made = Console(highlight=False, soft_wrap=True, markup=False, emoji=False, stderr=stderr)
    made.push_render_hook(_Sight())
    return made


class VisibleFormatter(logging.Formatter):
    """Log lines, whoever wrote what is in them."""

    def format(self, record: logging.LogRecord) -> str:
        """As the base class, with controls made visible."""
        return visible(super().format(record))


class _Sight(RenderHook):
    """Has everything that is printed pass by."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Wrap what is to be printed."""
        return [_Visible(renderable) for renderable in renderables]


class _Visible:
    """A renderable whose text is visible; rich's own cursor movements and colours are not text."""

    def __init__(self, renderable: ConsoleRenderable) -> None:
        self._renderable = renderable

    def __rich_console__(self, on: Console, options: ConsoleOptions) -> RenderResult:
        segments: Iterable[Segment] = on.render(self._renderable, options)
        for segment in segments:
            yield segment if segment.control else Segment(visible(segment.text), segment.style)
