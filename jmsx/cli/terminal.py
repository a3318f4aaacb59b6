"""
Output of the command line, with control characters made visible.

The text of a broker, a message or an exception may contain sequences that a terminal obeys, such as those that clear
the screen, set its title or change the direction of writing. Here they are shown as text instead.
"""

from __future__ import annotations

import errno
import logging
import os
import textwrap
import unicodedata
from functools import cached_property
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    import rich.console
    from rich.console import ConsoleOptions, ConsoleRenderable, RenderResult
    from rich.segment import Segment

#: Characters that change the direction of writing, and those that only some programs take for the end of a line.
_INVISIBLE: Final = frozenset(
    "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)


#: The width, in columns, of a terminal that reports a width of 0, for which rich would print nothing.
_WIDTH: Final = 80


def visible(text: str, keep: str = "\n\t") -> str:
    """Return `text` with control characters, except those in `keep`, escaped as in Python."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(one) if one not in keep and _is_control(one) else one for one in text)


def _is_control(one: str) -> bool:
    return unicodedata.category(one) in ("Cc", "Cs") or one in _INVISIBLE


def _escaped(one: str) -> str:
    return one.encode("unicode_escape").decode("ascii")


class Console:
    """
    A console that prints text as it is: without markup, emoji (for `:-1:` in a message id) or control characters.

    It uses rich, which is imported when the first line is printed, so not for `jmsx --help`.
    """

    def __init__(self, *, stderr: bool) -> None:
        self._stderr = stderr

    @cached_property
    def rich(self) -> rich.console.Console:
        """The rich console, for output other than lines, such as a progress bar."""
        from rich import console  # noqa: PLC0415 - not for `jmsx --help`

        class Lines(console.Console):
            """Tells a pipe that nobody reads as any other OSError: rich would end the program in silence."""

            def on_broken_pipe(self) -> None:
                """Raise BrokenPipeError."""
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

        made = Lines(
            highlight=False, soft_wrap=True, markup=False, emoji=False, stderr=self._stderr
        )

        class Sight(console.RenderHook):
            """Has everything that is printed pass by."""

            def process_renderables(
                self, renderables: list[ConsoleRenderable]
            ) -> list[ConsoleRenderable]:
                """Wrap what is to be printed."""
                return [_Visible(renderable) for renderable in renderables]

        if not made.width:  # only then, for a width that is set does not follow the terminal
            made.width = _WIDTH
        made.push_render_hook(Sight())
        return made

    @property
    def is_terminal(self) -> bool:
        """Whether the output is a terminal."""
        return self.rich.is_terminal

    def print(self, *what: object, style: str | None = None) -> None:
        """Print a line of texts with spaces between them, or objects that rich can draw."""
        self.rich.print(*what, style=style)

    def tell(self, text: str, *, style: str | None = None) -> None:
        """Print sentences: on a terminal they are wrapped between words and indented; into a pipe they go unchanged."""
        if self.is_terminal:
            text = "\n".join(_wrapped(line, self.rich.width) for line in text.split("\n"))
        self.print(text, style=style)

    def print_json(self, text: str, *, indent: int | None, ensure_ascii: bool) -> None:
        """Print a JSON text."""
        self.rich.print_json(text, indent=indent, ensure_ascii=ensure_ascii)


def console(*, stderr: bool = False) -> Console:
    """Return a console for standard output, or with `stderr` for standard error."""
    return Console(stderr=stderr)


def _wrapped(line: str, width: int) -> str:
    """Return `line` in lines of so many characters; a name that is longer stays whole, to be copied."""
    begin = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(
        line,
        width,
        subsequent_indent=f"{begin}    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


class VisibleFormatter(logging.Formatter):
    """A formatter of log lines that makes control characters in them visible."""

    def format(self, record: logging.LogRecord) -> str:
        """Format `record` as the base class does, with control characters made visible."""
        return visible(super().format(record))


class _Visible:
    """A renderable whose text is visible; rich's own cursor movements and colours are not text."""

    def __init__(self, renderable: ConsoleRenderable) -> None:
        self._renderable = renderable

    def __rich_console__(self, on: rich.console.Console, options: ConsoleOptions) -> RenderResult:
        segments: Iterable[Segment] = on.render(self._renderable, options)
        for segment in segments:
            yield (
                segment if segment.control else type(segment)(visible(segment.text), segment.style)
            )
