"""What mkdocs makes of the code: the reference pages. And links to what is no page become the names of files."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from mkdocs.structure.files import File

import jmsx
from jmsx import (
    App,
    CircuitBreaker,
    ConnectionOptions,
    HealthLimits,
    PrefetchPolicy,
    ReconnectPolicy,
    RedeliveryPolicy,
    TlsOptions,
)
from jmsx.app.registration import Consumer, ConsumerKeywords
from jmsx.app.sender import Sending
from jmsx.config.query import _OPTIONS
from jmsx_eventlog.schema import markdown
from jmsx_prometheus.catalogue import LABELS, METRICS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

#: A link that leads out of the guide, such as to a test.
_OUTSIDE: Final = re.compile(r"\[([^\]]+)\]\((?:\.\./){2,}[^)]*\)")

#: What stands above the tables of options.
_OPTIONS_ARE: Final = (
    'A time is seconds, a `timedelta` or a text such as `"2s"`; in the URL it is in milliseconds, as Java users write'
    " it. The URL wins over what `App(...)` and `Connection(...)` are given, and `@app.consumer(...)` over both."
)

#: What only the decorator has, besides what `ConsumerKeywords` names.
_OF_THE_DECORATOR: Final = ("mode", "redelivery", "name", "dedupe", "batch")

#: Classes of what is given to those.
_GIVEN: Final = {"breaker": CircuitBreaker, "health_limits": HealthLimits}

#: The classes whose fields are options, and the part of a connection's options that each is.
_CLASSES: Final = {
    "": ConnectionOptions,
    "prefetch_policy": PrefetchPolicy,
    "redelivery_policy": RedeliveryPolicy,
    "reconnect": ReconnectPolicy,
    "tls": TlsOptions,
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the reference pages."""
    pages = {"options": options(), "errors": errors(), "events": events(), "metrics": metrics()}
    for name, text in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Name what lies outside of the site."""
    return _OUTSIDE.sub(r"\1", markdown)


def options() -> str:
    """List all options with what they are in a URL."""
    in_urls: dict[tuple[str, str], list[str]] = {}
    for url_name, (part, name, _) in _OPTIONS.items():
        in_urls.setdefault((part, name), []).append(url_name)
    lines = ["# Options", "", _OPTIONS_ARE, ""]
    told = _meanings(App)
    given = inspect.signature(App).parameters.values()
    own = [one for one in given if one.kind is one.KEYWORD_ONLY]
    own_rows = [(one.name, f"`{one.default!r}`", told.get(one.name, "")) for one in own]
    lines += _table("`App(url, ...)`, and all of `ConnectionOptions`", own_rows)
    settings = {*ConsumerKeywords.__annotations__, *_OF_THE_DECORATOR}
    lines += _table("`@app.consumer(destination, ...)`", _rows(Consumer, settings))
    lines += _table(
        "`app.send(destination, body, ...)`, `request`, and their twins", _rows(Sending)
    )
    for part, kind in _GIVEN.items():
        lines += _table(f"`{kind.__name__}`, for `{part}`", _rows(kind))
    for part, kind in _CLASSES.items():
        meanings = _meanings(kind)
        held = f", the option `{part}`" if part else ""
        lines += [
            f"## `{kind.__name__}`{held}",
            "",
            "| field | default | in a URL | meaning |",
            "|---|---|---|---|",
        ]
        for one in fields(kind):
            names = ", ".join(f"`{name}`" for name in in_urls.get((part, one.name), [])) or "-"
            lines.append(
                f"| `{one.name}` | {_default(one)} | {names} | {_cell(meanings.get(one.name, ''))} |"
            )
        lines.append("")
    return "\n".join(lines)


def _rows(kind: Any, names: Collection[str] | None = None) -> list[tuple[str, str, str]]:
    """Field, default and meaning, of those with `names` or of all."""
    told = _meanings(kind)
    return [
        (one.name, _default(one), told.get(one.name, ""))
        for one in fields(kind)
        if names is None or one.name in names
    ]


def _table(title: str, rows: Iterable[tuple[str, str, str]]) -> list[str]:
    lines = [f"## {title}", "", "| keyword | default | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | {default} | {_cell(told)} |" for name, default, told in rows]
    return [*lines, ""]


def errors() -> str:
    """Who is at fault, and whether the same may be done again."""
    lines = [
        "# Errors",
        "",
        "The class says who is at fault, and whether the same may be done again: the call, or the whole transaction.",
        "",
        "| error | is a | may I repeat it? | meaning |",
        "|---|---|---|---|",
    ]
    kinds = [getattr(jmsx, name) for name in jmsx.__all__ if name.endswith("Error")]
    for kind in sorted(kinds, key=lambda one: [base.__name__ for base in reversed(one.__mro__)]):
        if not issubclass(kind, jmsx.JmsxError):
            continue
        again = "yes" if kind.retriable else "no"
        if issubclass(kind, jmsx.InDoubtError):
            again = "look first: it may have been done"
        about = (inspect.getdoc(kind) or "").split("\n\n")[0]
        lines.append(
            f"| `{kind.__name__}` | `{kind.__bases__[0].__name__}` | {again} | {_cell(about)} |"
        )
    return "\n".join(lines) + "\n"


def events() -> str:
    """List the event log's lines."""
    text = markdown()
    return text if text.startswith("# ") else f"# Events\n\n{text}"


def metrics() -> str:
    """Each metric, and each label."""
    lines = ["# Metrics", "", "| metric | type | labels | meaning |", "|---|---|---|---|"]
    for one in METRICS:
        labels = ", ".join(f"`{label}`" for label in one.labels) or "-"
        lines.append(f"| `{one.name}` | {one.kind} | {labels} | {_cell(one.help)} |")
    lines += ["", "| label | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {_cell(meaning)} |" for name, meaning in LABELS.items()]
    return "\n".join(lines) + "\n"


def _default(one: Any) -> str:
    if one.default is not MISSING:
        default = one.default.value if isinstance(one.default, Enum) else one.default
        if isinstance(one.default, jmsx.AcknowledgeMode):
            default = one.default.label
        elif isinstance(default, type):
            return f"`{default.__name__}`"
        return f"`{_cell(repr(default))}`"
    if one.default_factory is dict:
        return "`{}`"
    return "see below" if one.default_factory is not MISSING else "the function's"


def _meanings(kind: type) -> dict[str, str]:
    """Return what the class's docstring says of each field, as `help()` shows it."""
    about = f"{inspect.getdoc(kind)}\n"
    found = re.findall(r"^    (\w+): ((?:.+\n(?:        .+\n)*))", about, re.MULTILINE)
    return {name: " ".join(meaning.split()) for name, meaning in found}


def _cell(text: str) -> str:
    """Text that a table can hold."""
    return " ".join(text.split()).replace("|", "\\|")
