"""
Pictures as inline SVG, in colours that the page's style sheet decides, so they suit light and dark.

Matplotlib draws with stand-in colours, which become CSS variables; everything that names an address (XML
namespaces, metadata) is cut out, as HTML does not need it.
"""

from __future__ import annotations

import io
import re
import warnings
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from jmsx_report.findings import POINTS
from jmsx_report.histogram import GAMMA
from jmsx_report.wording import duration, name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    Row = Mapping[str, Any]

#: Stand-in colour -> CSS variable. Six series at most; more would not be told apart.
_INK: Final = "#010203"
_GRID: Final = "#010204"
_SERIES: Final = tuple(f"#0102{number:02x}" for number in range(0x10, 0x16))
_VARIABLES: Final = {_INK: "var(--ink)", _GRID: "var(--grid)"} | {
    colour: f"var(--series-{number})" for number, colour in enumerate(_SERIES, 1)
}
_STYLE: Final[dict[str, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "jmsx",
    "text.parse_math": False,  # a consumer may have a $ in its name
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _GRID,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "figure.facecolor": "none",
    "grid.color": _GRID,
    "grid.linewidth": 0.6,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "legend.frameon": False,
}
_WIDTH: Final = 9.0  #: inches; the page scales it
_MS: Final = 1000.0  #: microseconds
_BARS: Final = 20
_LABEL: Final = 32  #: characters of a name
_PARTS: Final = {
    "queue": "in the queue",
    "buffer": "in our buffer",
    "handler": "in the handler",
    "ack": "until settled",
}


def time_budget(latency: Sequence[Row]) -> str:
    """Draw where the mean time of each consumer's deliveries goes."""
    shown = latency[:_BARS]

    def draw(axes: Axes) -> None:
        rows = range(len(shown))
        left = [0.0] * len(shown)
        for (part, label), colour in zip(_PARTS.items(), _SERIES, strict=False):
            widths = [max(row[f"{part}_mean_us"] or 0.0, 0.0) / _MS for row in shown]
            axes.barh(rows, widths, left=left, color=colour, label=label, height=0.6)
            left = [start + width for start, width in zip(left, widths, strict=True)]
        _name_rows(axes, [f"{_short(row['consumer'])}  {_short(row['dest'])}" for row in shown])
        axes.set_xlabel("milliseconds, mean")
        axes.legend(ncols=4, loc="lower left", bbox_to_anchor=(0, 1))

    return _svg(draw, "Where the time of a delivery goes", height=1.3 + 0.4 * len(shown))


def latency_curves(latency: Sequence[Row]) -> str:
    """Draw for each consumer which share of deliveries was settled within which time."""
    shown = sorted(latency, key=lambda row: -row["n"])[: len(_SERIES)]

    def draw(axes: Axes) -> None:
        for row, colour in zip(shown, _SERIES, strict=False):
            times, shares = _curve(row["end_to_end_histogram"])
            label = f"{_short(row['consumer'])}  {_short(row['dest'])}"
            axes.step(times, shares, where="post", color=colour, label=label)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(
            FuncFormatter(lambda value, _: duration(value * _MS) if value > 0 else "0")
        )
        axes.set_ylim(0, 101)
        axes.set_xlabel("from the broker's timestamp to settlement")
        axes.set_ylabel("% of deliveries")
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.2), ncols=2)

    return _svg(draw, "Deliveries settled within a time", height=3.4)


def _curve(histogram: Sequence[Row]) -> tuple[list[float], list[float]]:
    """Milliseconds and percent, POINTS at most; the last is 100 %."""
    total, seen = sum(item["n"] for item in histogram), 0
    points = []
    for item in histogram:
        seen += item["n"]
        points.append((GAMMA ** item["bucket"] / _MS, 100 * seen / total))
    step = -(-len(points) // POINTS)
    kept = points[::-step][::-1]
    return [time for time, _ in kept], [share for _, share in kept]


def flow(buckets: Sequence[Row], width_us: int) -> str:
    """Draw what was sent and what was settled of it, by the time of sending; each bucket is `width_us` long."""

    def draw(axes: Axes) -> None:
        times = [datetime.fromtimestamp(row["bucket_us"] / 1e6, UTC) for row in buckets]
        for number, colour, style in (("sent", _SERIES[0], "-"), ("settled", _SERIES[1], "--")):
            counts = [row[number] for row in buckets]
            axes.plot(times, counts, style, color=colour, label=number, linewidth=1.5)  # type: ignore[arg-type]  # it takes datetimes
        locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]  # matplotlib ships it so
        axes.xaxis.set_major_locator(locator)
        words = ConciseDateFormatter(locator, tz=UTC)  # type: ignore[no-untyped-call]  # the same
        axes.xaxis.set_major_formatter(words)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("time of sending, UTC")
        axes.set_ylabel(f"messages in {duration(width_us)}")
        axes.legend(ncols=2, loc="lower right", bbox_to_anchor=(1, 1))

    return _svg(draw, "Sent, and settled of what was sent then", height=2.8)


def causes(dead_letters: Sequence[Row]) -> str:
    """Draw how many messages were given up, for which cause."""
    shown = sorted(dead_letters, key=lambda row: -row["n"])[:12]

    def draw(axes: Axes) -> None:
        labels = [
            f"{_short(row['dest'])}  {_short(row['error_type'] or row['reason'])}" for row in shown
        ]
        counts = [row["n"] for row in shown]
        bars = axes.barh(range(len(shown)), counts, color=_SERIES[4], height=0.6)
        axes.bar_label(bars, padding=3)
        _name_rows(axes, labels)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("messages")

    return _svg(draw, "Dead letters by cause", height=1.0 + 0.35 * len(shown))


def _short(text: object) -> str:
    return name(text, _LABEL)


def _name_rows(axes: Axes, names: list[str]) -> None:
    """Name horizontal bars, the first on top; two of the same name stay two."""
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")


def _svg(draw: Any, title: str, *, height: float) -> str:
    """Have `draw` fill one pair of axes; returns an SVG element with `title` as its description."""
    with mpl.rc_context(_STYLE), warnings.catch_warnings():  # type: ignore[arg-type]  # its keys are one great Literal
        warnings.simplefilter("ignore")  # of letters that its font lacks: the browser draws them
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        draw(figure.add_subplot())
        sink = io.StringIO()
        figure.savefig(sink, format="svg", metadata={"Date": None})
    return _inlined(sink.getvalue(), title)


def _inlined(drawing: str, title: str) -> str:
    """Make a document of its own into an element of a page."""
    body = drawing[drawing.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", body)
    body = re.sub(r'<g id="[^"]*">', "<g>", body)
    size = re.search(r'viewBox="[^"]*"', body)
    head = f'<svg {size[0] if size else ""} role="img" aria-label="{escape(title)}">'
    body = head + body[body.index(">") + 1 :]
    for colour, variable in _VARIABLES.items():
        body = body.replace(colour, variable)
    return body
