"""The life of one message as one HTML page: no script, nothing to load."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from jmsx_report.explanation import LONG, Story, not_known
from jmsx_report.wording import moment, name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def page(story: Story, places: Sequence[str] | None = None) -> str:
    """Write the page; `places` is what a broker has of the message, sentences (None: it was not asked)."""
    keys = escape(", ".join(map(name, story.keys)))
    style = files("jmsx_report").joinpath("page.css").read_text(encoding="utf-8")
    sections = [
        _list("On the broker now", places or ()),
        _table(
            "What happened",
            ("time (UTC)", "service", "process", "what"),
            [
                (
                    f"{moment(one.at_us)}.{one.at_us % 1_000_000:06}",
                    one.service,
                    one.writer,
                    f"{one.text}, by way of {one.way}" if one.way else one.text,
                )
                for one in story.happenings
            ],
        ),
        _table("Sent because of it", ("key", "destination", "outcome"), story.outputs),
        _table("Sent while its handler ran", ("key", "destination", "outcome"), story.meanwhile),
        _table("Sent because of", ("key", "destination"), story.inputs),
        _list("Not known", not_known(story, asked=places is not None)),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{keys}</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n<main>\n<h1><code>{keys}</code></h1>\n"
        f'<div class="verdict"><p><strong>{_text(story.fate[:1].upper() + story.fate[1:])}</strong></p></div>\n'
        f"{''.join(sections)}</main>\n</body>\n</html>\n"
    )


def _table(heading: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a section with a row for each, of which the last column is words; nothing without rows."""
    body = "".join(
        "<tr>"
        + "".join(f"<td>{_text(cell)}</td>" for cell in row[:-1])
        + f'<td class="words">{_text(row[-1])}</td></tr>\n'
        for row in rows
    )
    if not body:
        return ""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    return (
        f'<section>\n<h2>{heading}</h2>\n<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}</tbody>\n</table></div>\n</section>\n"
    )


def _list(heading: str, texts: Sequence[str]) -> str:
    """Return a section with an item for each; nothing without any."""
    items = "".join(f"<li>{_text(text)}</li>\n" for text in texts)
    return f"<section>\n<h2>{heading}</h2>\n<ul>\n{items}</ul>\n</section>\n" if items else ""


def _text(text: str) -> str:
    return escape(name(text, LONG))
