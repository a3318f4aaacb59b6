"""
Pictures as inline SVG, in colours that the page's style sheet decides, so they suit light and dark.

The SVG is written as text: importing a drawing library took longer than reading a log of 10,000 lines. Only the browser
knows the width of a text; it is estimated here to place what stands beside it.
"""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from jmsx_report.findings import POINTS
from jmsx_report.histogram import GAMMA
from jmsx_report.wording import duration, name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


Row: TypeAlias = "Mapping[str, Any]"


#: Units across a picture, in which all of it is measured; the page scales it.
_WIDTH: Final = 900
_RIGHT: Final = _WIDTH - 30
_FONT: Final = 12
_LETTER: Final = 7.2  #: the width of one, on average
_LINE: Final = 18  #: the height of a line of text
_TICK: Final = 6  #: the gap between an axis and its labels
_SWATCH: Final = 18  #: the width of a colour in a legend
_TOP: Final = 52  #: above a plot: its title, and a legend
_GAP: Final = "\N{EN SPACE}"  #: several spaces would be one
#: More series would not be told apart.
_SERIES: Final = tuple(f"var(--series-{number})" for number in range(1, 7))
_MS: Final = 1000.0  #: microseconds
_BARS: Final = 20
_CAUSES: Final = 12
_LABEL: Final = 32  #: characters of a name
_TICKS: Final = 8  #: of an axis, at most
#: If an axis has at least so many powers of ten, only these are marked.
_DECADES: Final = 4
_DAY: Final = 86_400
#: The steps between marks on an axis of time, in seconds; longer steps are multiples of the last.
_STEPS: Final = (
    *(10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200),
    *(_DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY, 30 * _DAY),
)
_PARTS: Final = {
    "queue": "in the queue",
    "buffer": "in our buffer",
    "handler": "in the handler",
    "ack": "until settled",
}


def time_budget(latency: Sequence[Row]) -> str:
    """Draw where the mean time of each consumer's deliveries goes."""
    shown = latency[:_BARS]
    labels = [_place(row) for row in shown]
    times = [[max(row[f"{part}_mean_us"] or 0.0, 0.0) / _MS for part in _PARTS] for row in shown]
    plot = _Bars(labels, max(map(sum, times), default=0.0), 22)
    drawn = [*plot.axis("milliseconds, mean"), *plot.names()]
    for number, parts in enumerate(times):
        begin = 0.0
        for part, colour in zip(parts, _SERIES, strict=False):
            drawn.append(plot.bar(number, begin, begin + part, colour))
            begin += part
    drawn += _legend(list(_PARTS.values()), plot.left, _TOP - 12)[0]
    return _svg("Where the time of a delivery goes", plot.height, drawn)


def causes(dead_letters: Sequence[Row]) -> str:
    """Draw how many messages were given up, for which cause."""
    shown = sorted(dead_letters, key=lambda row: -row["n"])[:_CAUSES]
    labels = [
        f"{_short(row['dest'])}{_GAP}{_short(row['error_type'] or row['reason'])}" for row in shown
    ]
    plot = _Bars(labels, max((row["n"] for row in shown), default=0), 22, whole=True)
    drawn = [*plot.axis("messages"), *plot.names()]
    for number, row in enumerate(shown):
        drawn.append(plot.bar(number, 0, row["n"], _SERIES[4]))
        drawn.append(_text(plot.x(row["n"]) + _TICK, plot.middle(number), f"{row['n']:,}"))
    return _svg("Dead letters by cause", plot.height, drawn)


def latency_curves(latency: Sequence[Row]) -> str:
    """Draw for each consumer which share of deliveries was settled within which time."""
    shown = sorted(latency, key=lambda row: -row["n"])[: len(_SERIES)]
    curves = [_curve(row["end_to_end_histogram"]) for row in shown]
    first = min(points[0][0] for points in curves)
    marks = _powers(first, max(points[-1][0] for points in curves))
    plot = _Plane(
        (math.log10(min(first, marks[0])), math.log10(marks[-1])), (0, 100), _TOP - 22, 190
    )
    drawn = [
        *plot.down([(math.log10(mark), duration(mark * _MS)) for mark in marks]),
        *plot.across([(share, f"{share}") for share in range(0, 101, 20)]),
        *plot.named("from the broker's timestamp to settlement", "% of deliveries"),
    ]
    for points, colour in zip(curves, _SERIES, strict=False):
        (time, share), *rest = [(plot.x(math.log10(time)), plot.y(share)) for time, share in points]
        steps = "".join(f"H{_n(time)}V{_n(share)}" for time, share in rest)
        drawn.append(_path(f"M{_n(time)},{_n(share)}{steps}", colour))
    below = plot.bottom + 2 * _LINE + 22
    legend, height = _legend([_place(row) for row in shown], plot.left, below)
    return _svg("Deliveries settled within a time", height, [*drawn, *legend])


def flow(buckets: Sequence[Row], width_us: int) -> str:
    """Draw what was sent and what was settled of it, by the time of sending; each bucket is `width_us` long."""
    times = [row["bucket_us"] / 1e6 for row in buckets]
    most = max(max(row["sent"], row["settled"]) for row in buckets)
    marks = _round(most, whole=True)
    plot = _Plane((times[0], times[-1]), (0, marks[-1]), _TOP, 150)
    drawn = [
        *plot.down(list(_moments(times[0], times[-1]))),
        *plot.across([(mark, f"{mark:,}") for mark in marks]),
        *plot.named("time of sending, UTC", f"messages in {duration(width_us)}", lines=2),
    ]
    for number, colour, dashed in (("sent", _SERIES[0], False), ("settled", _SERIES[1], True)):
        points = (
            f"{_n(plot.x(time))},{_n(plot.y(row[number]))}"
            for time, row in zip(times, buckets, strict=True)
        )
        drawn.append(_path(f"M{'L'.join(points)}", colour, dashed=dashed))
    drawn += _legend(["sent", "settled"], _RIGHT, _TOP - 14)[0]
    return _svg("Sent, and settled of what was sent then", plot.bottom + 3 * _LINE + 6, drawn)


@dataclass(frozen=True)
class _Bars:
    """Horizontal bars, one for each of `labels`, the first on top; two of the same name stay two."""

    labels: Sequence[str]
    most: float  #: the value of the longest bar
    each: int  #: the height of one row, with the gap below it
    whole: bool = False  #: whether they are whole numbers

    @cached_property
    def left(self) -> float:
        return max((_estimate(label) for label in self.labels), default=0) + 2 * _TICK

    @property
    def _bottom(self) -> int:
        return _TOP + self.each * len(self.labels)

    @property
    def height(self) -> int:
        return self._bottom + 2 * _LINE + _TICK

    def x(self, value: float) -> float:
        return self.left + value / self._marks[-1] * (_RIGHT - 20 - self.left)

    def middle(self, number: int) -> float:
        return _TOP + (number + 0.5) * self.each

    @cached_property
    def _marks(self) -> list[float]:
        return _round(self.most, whole=self.whole)

    def axis(self, title: str) -> Iterator[str]:
        for mark in self._marks:
            yield _line(self.x(mark), _TOP, self.x(mark), self._bottom)
            yield _text(self.x(mark), self._bottom + _LINE * 0.7, f"{mark:,}", "middle")
        middle = (self.left + _RIGHT) / 2
        yield _text(middle, self._bottom + _LINE * 1.7, title, "middle")

    def names(self) -> Iterator[str]:
        for number, label in enumerate(self.labels):
            yield _text(self.left - _TICK, self.middle(number), label, "end")

    def bar(self, number: int, begin: float, end: float, colour: str) -> str:
        y = self.middle(number) - 0.3 * self.each
        wide = self.x(end) - self.x(begin)
        return _rectangle(self.x(begin), y, wide, 0.6 * self.each, colour)


@dataclass(frozen=True, slots=True)
class _Plane:
    """The two axes of a plot, from end to end of each."""

    across_ends: tuple[float, float]
    up_ends: tuple[float, float]
    top: int
    tall: int
    left: int = 80

    @property
    def bottom(self) -> int:
        return self.top + self.tall

    def x(self, value: float) -> float:
        begin, end = self.across_ends
        return self.left + (value - begin) / ((end - begin) or 1) * (_RIGHT - self.left)

    def y(self, value: float) -> float:
        begin, end = self.up_ends
        return self.bottom - (value - begin) / ((end - begin) or 1) * self.tall

    def down(self, marks: Sequence[tuple[float, str]]) -> Iterator[str]:
        """Mark the axis at the bottom; a mark may have several lines."""
        for value, words in marks:
            x = self.x(value)
            yield _line(x, self.top, x, self.bottom)
            for number, line in enumerate(words.split("\n")):
                yield _text(x, self.bottom + (number + 0.7) * _LINE, line, "middle")

    def across(self, marks: Sequence[tuple[float, str]]) -> Iterator[str]:
        """Mark the axis on the left."""
        for value, words in marks:
            yield _line(self.left, self.y(value), _RIGHT, self.y(value))
            yield _text(self.left - _TICK, self.y(value), words, "end")

    def named(self, below: str, beside: str, *, lines: int = 1) -> Iterator[str]:
        """Name the axes; the marks of the lower one have so many `lines`."""
        yield _text((self.left + _RIGHT) / 2, self.bottom + (lines + 0.7) * _LINE, below, "middle")
        x, y = _LINE * 0.7, (self.top + self.bottom) / 2
        yield _text(x, y, beside, "middle", f' transform="rotate(-90 {_n(x)} {_n(y)})"')


def _place(row: Row) -> str:
    return f"{_short(row['consumer'])}{_GAP}{_short(row['dest'])}"


def _short(text: object) -> str:
    return name(text, _LABEL)


def _curve(histogram: Sequence[Row]) -> list[tuple[float, float]]:
    """Return the points of a cumulative curve, as milliseconds and percent, at most POINTS; the last is 100 %."""
    total, seen = sum(item["n"] for item in histogram), 0
    points = []
    for item in histogram:
        seen += item["n"]
        points.append((GAMMA ** item["bucket"] / _MS, 100 * seen / total))
    step = -(-len(points) // POINTS)
    return points[::-step][::-1]


def _round(most: float, *, whole: bool) -> list[float]:
    """Give round numbers from 0 on, the last of them `most` or more; TICKS of them, give or take one."""
    least = 1.0 if whole else 1e-6
    rough = max(most / (_TICKS - 1), least)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * by for by in (1, 2, 5, 10) if power * by >= rough * 0.999)
    numbers = [round(step * number, 9) for number in range(math.ceil(most / step) + 1)]
    if len(numbers) < 2:  # noqa: PLR2004 - an axis has two ends
        numbers.append(step)
    return [int(number) for number in numbers] if step >= 1 else numbers


def _powers(least: float, most: float) -> list[float]:
    """Return powers of ten that span `least` to `most`; if they are few, also 2 and 5 times these."""
    first, last = math.floor(math.log10(least)), math.ceil(math.log10(most))
    if first == last:
        last += 1
    between = (1, 2, 5) if last - first < _DECADES else (1,)
    marks = [by * 10.0**power for power in range(first, last + 1) for by in between]
    begin = max((mark for mark in marks if mark <= least * 1.001), default=marks[0])
    end = min((mark for mark in marks if mark >= most * 0.999), default=marks[-1])
    step = -(-(last - first) // _TICKS) if len(between) == 1 else 1
    kept = [mark for mark in marks if begin <= mark <= end][::step]
    return kept if kept[-1] >= most * 0.999 else [*kept, end]


def _moments(begin: float, end: float) -> Iterator[tuple[float, str]]:
    """Mark round instants (seconds since the epoch, UTC), where the date begins with the date."""
    rough = (end - begin) / _TICKS
    step = next((one for one in _STEPS if one >= rough), _STEPS[-1])
    step *= max(1, math.ceil(rough / step))
    shown = None
    for mark in range(math.ceil(begin / step) * step, math.floor(end) + 1, step):
        moment = datetime.fromtimestamp(mark, UTC)
        date, clock = f"{moment:%Y-%m-%d}", f"{moment:%H:%M:%S}" if step % 60 else f"{moment:%H:%M}"
        if step >= _DAY:
            yield mark, date
        else:
            yield mark, clock if date == shown else f"{clock}\n{date}"
        shown = date


def _estimate(text: str) -> float:
    """Guess how wide a text is."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return (len(text) + wide) * _LETTER


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _text(x: float, y: float, words: str, anchor: str = "start", more: str = "") -> str:
    return (
        f'<text x="{_n(x)}" y="{_n(y)}" dy=".35em" text-anchor="{anchor}"{more}>'
        f"{escape(words)}</text>"
    )


def _rectangle(x: float, y: float, wide: float, high: float, colour: str) -> str:
    return (
        f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(wide)}" height="{_n(high)}"'
        f' style="fill:{colour}"/>'
    )


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path d="M{_n(x1)},{_n(y1)}L{_n(x2)},{_n(y2)}" style="stroke:var(--grid)"/>'


def _path(steps: str, colour: str, *, dashed: bool = False) -> str:
    dashes = ";stroke-dasharray:6 3" if dashed else ""
    return f'<path d="{steps}" style="fill:none;stroke:{colour};stroke-width:1.7{dashes}"/>'


def _legend(names: Sequence[str], left: float, top: float) -> tuple[list[str], float]:
    """Draw the legend of colours, side by side as far as there is room; return it and where it ends."""
    wide = max(map(_estimate, names), default=0) + _SWATCH + 3 * _TICK
    columns = max(1, min(len(names), int(_RIGHT / wide)))
    left = max(0.0, min(left, _RIGHT + 2 * _TICK - columns * wide))
    drawn = []
    for number, (words, colour) in enumerate(zip(names, _SERIES, strict=False)):
        x, y = left + number % columns * wide, top + number // columns * _LINE
        drawn.append(_rectangle(x, y - 5, _SWATCH, 10, colour))
        drawn.append(_text(x + _SWATCH + _TICK, y, words))
    return drawn, top + -(-len(names) // columns) * _LINE


def _svg(title: str, height: float, drawn: Sequence[str]) -> str:
    heading = f'<text x="0" y="{_LINE * 0.7:.0f}" dy=".35em" font-size="14">{escape(title)}</text>'
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_n(height)}" role="img" aria-label="{escape(title)}"'
        f' font-size="{_FONT}" style="fill:var(--ink)">{heading}{"".join(drawn)}</svg>\n'
    )
