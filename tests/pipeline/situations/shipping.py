"""The same lines, brought otherwise: late, twice, in other folders and under other names."""

from __future__ import annotations

import os
from copy import deepcopy
from typing import TYPE_CHECKING

from tests.pipeline.situations.fleet import START
from tests.pipeline.situations.scene import Scene, situation
from tests.pipeline.situations.truth import NOT_SUSPECT, Truth

if TYPE_CHECKING:
    from tests.pipeline.situations.shop import Shop


def _unchanged(shop: Shop, *, complete: bool | None = True) -> Truth:
    return shop.truth(complete=complete)


@situation
def late_and_shuffled(scene: Scene) -> Truth:
    """Files came in no order; their times of change tell nothing."""
    shop = scene.shop().usual()
    segments = shop.ship(scene.directory)
    shop.chance.shuffle(segments)
    for number, segment in enumerate(segments):
        at = START // 10**6 + 10**6 + number
        os.utime(scene.directory / segment.path, (at, at))
    return _unchanged(shop)


@situation
def shipped_twice(scene: Scene) -> Truth:
    """A third of the segments lie there a second time, in another folder."""
    shop = scene.shop().usual()
    for segment in shop.ship(scene.directory)[::3]:
        segment.write(scene.directory / "again")
    return _unchanged(shop)


@situation
def shipped_twice_and_lost(scene: Scene) -> Truth:
    """Segments came twice, and messages were lost: the numbers are those of one copy."""
    shop = scene.shop().usual(lost=5, twice=3)
    for segment in shop.ship(scene.directory)[::3]:
        segment.write(scene.directory / "again")
    return shop.truth(frozenset({"suspect"}), complete=True)


@situation
def shipped_under_other_names(scene: Scene) -> Truth:
    """Some copies have names of their own."""
    shop = scene.shop().usual()
    for segment in shop.ship(scene.directory)[::4]:
        path = scene.directory / "copies" / f"copy-of-{segment.name}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(segment.content())
    return _unchanged(shop)


@situation
def half_a_segment_again(scene: Scene) -> Truth:
    """The first half of some segments came first, then the whole."""
    shop = scene.shop().usual()
    for segment in shop.ship(scene.directory)[::4]:
        half = deepcopy(segment)
        half.lines = half.lines[: len(half.lines) // 2]
        if half.lines:  # an empty segment is another situation
            half.write(scene.directory / "first-try")
    return _unchanged(shop)


@situation
def flat_folder(scene: Scene) -> Truth:
    """All segments lie in one folder."""
    shop = scene.shop().usual()
    for segment in shop.fleet.segments():
        (scene.directory / segment.name).write_bytes(segment.content())
    return _unchanged(shop)


@situation
def a_folder_for_each_host(scene: Scene) -> Truth:
    """The folders of dates lie below the name of a host."""
    shop = scene.shop().usual()
    for segment in shop.fleet.segments():
        segment.write(scene.directory / segment.writer.rsplit("-", 2)[0])
    return _unchanged(shop)


@situation
def joined_segments(scene: Scene) -> Truth:
    """All segments of a writer were also joined into one file."""
    shop = scene.shop().usual()
    writer = shop.consumers["queue://orders"][0]
    mine = [segment for segment in shop.ship(scene.directory) if segment.writer == writer.writer]
    path = scene.directory / "joined" / mine[0].name
    path.parent.mkdir()
    path.write_bytes(b"".join(segment.content() for segment in mine))
    return _unchanged(shop)


@situation
def open_and_closed(scene: Scene) -> Truth:
    """A segment was shipped while it was open, and again when it was closed."""
    shop = scene.shop().usual()
    segment = deepcopy(shop.ship(scene.directory)[-1])
    segment.lines = segment.lines[: len(segment.lines) // 2]
    segment.suffix = ".jsonl.open"
    segment.write(scene.directory)
    return _unchanged(shop, complete=None)


@situation
def no_last_line_feed(scene: Scene) -> Truth:
    """The last line of closed segments has no line feed, and is whole."""
    shop = scene.shop().usual()
    for segment in shop.fleet.segments():
        path = segment.write(scene.directory)
        path.write_bytes(segment.content().removesuffix(b"\n"))
    truth = _unchanged(shop, complete=None)
    truth.verdict = truth.verdicts["queue://orders"] = NOT_SUSPECT
    return _loosely(truth)


@situation
def shuffled_lines(scene: Scene) -> Truth:
    """The lines of a segment were sorted otherwise by who shipped them."""
    shop = scene.shop().usual()
    segments = shop.fleet.segments()
    for segment in segments[::2]:
        shop.chance.shuffle(segment.lines)
    scene.write(segments)
    return _loosely(_unchanged(shop, complete=None))


@situation
def other_order_of_fields(scene: Scene) -> Truth:
    """The fields of a line stand in another order."""
    shop = scene.shop().usual()
    segments = shop.fleet.segments()
    for segment in segments:
        segment.lines = [
            line if isinstance(line, bytes) else dict(sorted(line.items(), reverse=True))
            for line in segment.lines
        ]
    scene.write(segments)
    return _unchanged(shop)


@situation
def a_field_of_tomorrow(scene: Scene) -> Truth:
    """A newer writer of the same major version adds fields that we do not know."""
    shop = scene.shop().usual()
    segments = shop.fleet.segments()
    for segment in segments[::2]:
        segment.lines = [
            line
            if isinstance(line, bytes)
            else line | {"trace_id": "4bf92f3577b34da6", "attrs": {"a": [1, {"b": None}]}}
            for line in segment.lines
        ]
    scene.write(segments)
    return _unchanged(shop)


@situation
def absent_fields_as_null(scene: Scene) -> Truth:
    """Another writer says null where ours leaves a field out."""
    shop = scene.shop().usual()
    segments = shop.fleet.segments()
    for segment in segments[::2]:
        segment.lines = [
            line if isinstance(line, bytes) else {"corr_id": None, "error_message": None} | line
            for line in segment.lines
        ]
    scene.write(segments)
    return _unchanged(shop)


@situation
def a_copy_of_an_empty_folder(scene: Scene) -> Truth:
    """Folders of hours without a file mean nothing."""
    shop = scene.shop().usual()
    shop.ship(scene.directory)
    (scene.directory / "date=2026-11-21" / "hour=07").mkdir(parents=True)
    return _unchanged(shop)


def _loosely(truth: Truth) -> Truth:
    """It may be put aside as odd; if it is read, the numbers are right."""
    truth.verdict = NOT_SUSPECT
    truth.verdicts = dict.fromkeys(truth.verdicts, NOT_SUSPECT)
    return truth
