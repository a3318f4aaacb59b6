"""
Pictures as inline SVG, in colours that the page's style sheet decides, so they suit light and dark.

Matplotlib draws with stand-in colours, which become CSS variables; everything that names an address (XML
namespaces, metadata) is cut out, as HTML does not need it.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from jmsx_spark.histogram import GAMMA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from pyspark.sql import Row

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
_PARTS: Final = {
    "queue": "in the queue",
    "buffer": "in our buffer",
    "handler": "in the handler",
    "ack": "until settled",
}


def time_budget(latency: Sequence[Row]) -> str:
    """Draw where the mean time of each consumer's deliveries goes."""

    def draw(axes: Axes) -> None:
        rows = range(len(latency))
        left = [0.0] * len(latency)
        for (part, label), colour in zip(_PARTS.items(), _SERIES, strict=False):
            widths = [max(row[f"{part}_mean_us"] or 0.0, 0.0) / _MS for row in latency]
            axes.barh(rows, widths, left=left, color=colour, label=label, height=0.6)
            left = [start + width for start, width in zip(left, widths, strict=True)]
        _name_rows(axes, [f"{row['consumer']}  {row['dest']}" for row in latency])
        axes.set_xlabel("milliseconds, mean")
        axes.legend(ncols=4, loc="lower left", bbox_to_anchor=(0, 1))

    return _svg(draw, "Where the time of a delivery goes", height=1.3 + 0.4 * len(latency))


def latency_curves(latency: Sequence[Row]) -> str:
    """Draw for each consumer which share of deliveries was settled within which time."""
    shown = sorted(latency, key=lambda row: -row["n"])[: len(_SERIES)]

    def draw(axes: Axes) -> None:
        for row, colour in zip(shown, _SERIES, strict=False):
            total, seen = sum(item["n"] for item in row["end_to_end_histogram"]), 0
            times, shares = [], []
            for item in row["end_to_end_histogram"]:
                seen += item["n"]
                times.append(GAMMA ** item["bucket"] / _MS)
                shares.append(100 * seen / total)
            axes.step(times, shares, where="post", color=colour, label=row["consumer"])
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_ylim(0, 101)
        axes.set_xlabel("milliseconds from the broker's timestamp to settlement")
        axes.set_ylabel("% of deliveries")
        axes.legend(loc="lower right")

    return _svg(draw, "Deliveries settled within a time", height=3.4)


def flow(buckets: Sequence[Row]) -> str:
    """Draw what was sent and what was settled of it, by the time of sending."""

    def draw(axes: Axes) -> None:
        start = buckets[0]["bucket_us"]
        seconds = [(row["bucket_us"] - start) / 1e6 for row in buckets]
        for name, colour, style in (("sent", _SERIES[0], "-"), ("settled", _SERIES[1], "--")):
            counts = [row[name] for row in buckets]
            axes.plot(seconds, counts, style, color=colour, label=name, marker=".", linewidth=1.5)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("seconds since the first message was sent")
        axes.set_ylabel("messages in 10 s")
        axes.legend(loc="lower right")

    return _svg(draw, "Sent, and settled of what was sent then", height=2.8)


def causes(dead_letters: Sequence[Row]) -> str:
    """Draw how many messages were given up, for which cause."""
    shown = sorted(dead_letters, key=lambda row: -row["n"])[:12]

    def draw(axes: Axes) -> None:
        labels = [f"{row['dest']}  {row['error_type'] or row['reason']}" for row in shown]
        counts = [row["n"] for row in shown]
        bars = axes.barh(range(len(shown)), counts, color=_SERIES[4], height=0.6)
        axes.bar_label(bars, padding=3)
        _name_rows(axes, labels)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("messages")

    return _svg(draw, "Dead letters by cause", height=1.0 + 0.35 * len(shown))


def _name_rows(axes: Axes, names: list[str]) -> None:
    """Name horizontal bars, the first on top; two of the same name stay two."""
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")


def _svg(draw: Any, title: str, *, height: float) -> str:
    """Have `draw` fill one pair of axes; returns an SVG element with `title` as its description."""
    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]  # its keys are one great Literal
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
    head = f'<svg {size[0] if size else ""} role="img" aria-label="{title}">'
    body = head + body[body.index(">") + 1 :]
    for colour, variable in _VARIABLES.items():
        body = body.replace(colour, variable)
    return body
