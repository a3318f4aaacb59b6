"""What lies in the folder is read or told; nothing in it is passed over in silence."""

from __future__ import annotations

import gzip
import os
from copy import deepcopy
from typing import TYPE_CHECKING, Final

from tests.pipeline.situations.fleet import Line, Segment, rewritten
from tests.pipeline.situations.scene import Scene, situation
from tests.pipeline.situations.shop import QUEUES
from tests.pipeline.situations.truth import NOT_SUSPECT, UNVERIFIABLE, Truth

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipeline.situations.shop import Shop

#: Equal in number, sum and sum of squares (Prouhet, Tarry, Escott); the second pair also in the sum of cubes.
_TAKEN: Final = (9, 13, 14)
_AGAIN: Final = (10, 11, 15)
_TAKEN_OF_CUBES: Final = (8, 12, 15, 19)
_AGAIN_OF_CUBES: Final = (9, 10, 17, 18)


def _one_of_many(scene: Scene) -> tuple[Shop, Segment, Path]:
    """A healthy log, and one segment in the middle of a consumer's."""
    shop = scene.shop().usual()
    segments = shop.ship(scene.directory)
    worker = shop.consumers[shop.queues[0]][0].writer
    segment = [one for one in segments if one.writer == worker][1]
    return shop, segment, scene.directory / segment.path


def _read_or_told(shop: Shop, *words: str) -> list[Truth]:
    """Either it was read, and every number is right, or the verdict says that it was not."""
    return [shop.truth(), Truth(UNVERIFIABLE, findings=[words], complete=False)]


@situation
def a_name_with_an_underscore(scene: Scene) -> list[Truth]:
    """Spark reads no file whose name begins with an underscore."""
    shop, segment, path = _one_of_many(scene)
    path.rename(path.with_name(f"_{segment.name}"))
    return _read_or_told(shop, segment.name)


@situation
def a_name_that_is_no_text(scene: Scene) -> list[Truth]:
    """A segment, another file and a folder have bytes in their names that are no UTF-8."""
    shop, segment, path = _one_of_many(scene)
    folder = os.fsencode(path.parent)
    os.rename(path, folder + b"/caf\xe9-" + os.fsencode(segment.name))  # noqa: PTH104 - bytes
    for name in (b"/caf\xe9", b"/caf\xe9.txt"):
        os.mkdir(folder + name)  # noqa: PTH102 - bytes
    return _read_or_told(shop, segment.name)


@situation
def a_name_with_a_dot(scene: Scene) -> list[Truth]:
    """Nor one whose name begins with a dot."""
    shop, segment, path = _one_of_many(scene)
    path.rename(path.with_name(f".{segment.name}"))
    return _read_or_told(shop, segment.name)


@situation
def a_folder_with_an_underscore(scene: Scene) -> list[Truth]:
    """Segments lie in a folder whose name begins with an underscore."""
    shop, segment, path = _one_of_many(scene)
    (scene.directory / "_late").mkdir()
    path.rename(scene.directory / "_late" / segment.name)
    return _read_or_told(shop, segment.name)


@situation
def a_compressed_segment(scene: Scene) -> list[Truth]:
    """One segment was compressed by who ships them."""
    shop, segment, path = _one_of_many(scene)
    path.with_name(f"{segment.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return _read_or_told(shop, f"{segment.name}.gz")


@situation
def a_segment_being_shipped(scene: Scene) -> list[Truth]:
    """One segment still has the name that a copying program gives it."""
    shop, segment, path = _one_of_many(scene)
    path.rename(path.with_name(f"{segment.name}.part"))
    return _read_or_told(shop, segment.name)


@situation
def a_dangling_link(scene: Scene) -> list[Truth]:
    """One segment is a symbolic link to nothing."""
    shop, segment, path = _one_of_many(scene)
    path.unlink()
    path.symlink_to("/nowhere/at/all.jsonl")
    return _read_or_told(shop, segment.name)[1:]


@situation
def a_link_to_a_segment(scene: Scene) -> list[Truth]:
    """One segment is a symbolic link to a file elsewhere."""
    shop, segment, path = _one_of_many(scene)
    elsewhere = scene.directory.with_name(f"{scene.directory.name}-elsewhere")
    elsewhere.mkdir(exist_ok=True)
    path.rename(elsewhere / segment.name)
    path.symlink_to(elsewhere / segment.name)
    return _read_or_told(shop, segment.name)


@situation
def a_link_in_a_circle(scene: Scene) -> list[Truth]:
    """A folder has a link to the folder above it."""
    shop, _, path = _one_of_many(scene)
    (path.parent / "loop").symlink_to(path.parent.parent, target_is_directory=True)
    return [shop.truth(), Truth(NOT_SUSPECT, findings=[("loop",)])]


@situation
def a_folder_named_as_a_segment(scene: Scene) -> list[Truth]:
    """A folder has the name of a segment, and the segment lies in it."""
    shop, segment, path = _one_of_many(scene)
    content = path.read_bytes()
    path.unlink()
    path.mkdir()
    (path / segment.name).write_bytes(content)
    return _read_or_told(shop, segment.name)


@situation
def an_empty_folder_named_as_a_segment(scene: Scene) -> list[Truth]:
    """A folder has the name of a segment, and is empty."""
    _, _, path = _one_of_many(scene)
    path.unlink()
    path.mkdir()
    return [Truth(UNVERIFIABLE, complete=False)]


@situation
def a_name_without_a_number(scene: Scene) -> list[Truth]:
    """A segment has a name that does not name writer and number."""
    shop, _, path = _one_of_many(scene)
    path.rename(path.with_name("events.jsonl"))
    return _read_or_told(shop, "events.jsonl")


@situation
def a_name_in_capitals(scene: Scene) -> list[Truth]:
    """A segment's name ends in .JSONL."""
    shop, segment, path = _one_of_many(scene)
    path.rename(path.with_suffix(".JSONL"))
    return _read_or_told(shop, segment.name.removesuffix(".jsonl"))


@situation
def other_files(scene: Scene) -> list[Truth]:
    """A read-me file and a picture lie beside the segments."""
    shop = scene.shop().usual()
    shop.ship(scene.directory)
    (scene.directory / "README.txt").write_text("the logs of November\n")
    (scene.directory / "picture.png").write_bytes(b"\x89PNG")
    return [shop.truth(), Truth(NOT_SUSPECT, findings=[("readme.txt",)])]


@situation
def a_stale_unnamed_segment(scene: Scene) -> list[Truth]:
    """A writer died between making its file and naming it; the file has no bytes."""
    shop, segment, path = _one_of_many(scene)
    path.with_name(f".{segment.writer}-000000009999.jsonl.open.new").write_bytes(b"")
    return [shop.truth(), Truth(NOT_SUSPECT, findings=[(".open.new",)])]


# Two writers of one name, and numbers that fit too well.


def _twins(scene: Scene, **fates: int) -> tuple[Shop, list[Segment]]:
    """Two consumers that have the same name; their segments lie in folders of their own."""
    shop = scene.shop().usual(**fates)
    one, two = shop.consumers[shop.queues[0]]
    two.writer = one.writer
    segments = shop.fleet.segments()
    mine = [segment for segment in segments if segment.writer == one.writer]
    second = next(number for number, segment in enumerate(mine) if number and not segment.first)
    for number, segment in enumerate(mine):
        segment.folder = f"{'ab'[number >= second]}/{segment.folder}"
    scene.write(segments)
    return shop, segments


@situation
def two_writers_of_one_name(scene: Scene) -> Truth:
    """Two processes wrote under one name: one (writer, seq) says two things, so nothing is proven."""
    shop, _ = _twins(scene)
    writer = shop.consumers[shop.queues[0]][0].writer
    return Truth(UNVERIFIABLE, findings=[(writer,)], complete=False)


@situation
def two_writers_of_one_name_and_losses(scene: Scene) -> Truth:
    """The same, and messages were lost: not proven, and never balanced."""
    _twins(scene, lost=6)
    return Truth(UNVERIFIABLE, complete=False)


def _twins_apart(scene: Scene, forgotten: int) -> Truth:
    """
    Two processes of one name read a queue each, and `forgotten` segments of each are deleted; nothing is lost.

    The second one shares its queue, so its log is the shorter one: all of it is put aside.
    """
    shop = scene.shop(queues=QUEUES[:2], hosts=0)
    one, two = (shop.fleet.process("worker", f"worker-{name}") for name in "ab")
    two.writer = one.writer
    shop.reads(one, QUEUES[0])
    for process in (two, shop.fleet.process("other", "other")):
        shop.reads(process, QUEUES[1])
    shop.usual()
    for folder, process in (("a", one), ("b", two)):
        for segment in shop.fleet.segments_of(process)[forgotten:]:
            segment.folder = f"{folder}/{segment.folder}"
            segment.write(scene.directory)
    for process in shop.fleet.processes:
        if process not in (one, two):
            scene.write(shop.fleet.segments_of(process))
    return Truth(
        UNVERIFIABLE,
        findings=[(one.writer, "two processes")],
        verdicts=dict.fromkeys(QUEUES[:2], UNVERIFIABLE),
        complete=False,
        may_be_lost=frozenset(),
    )


@situation
def two_writers_of_one_name_that_read_apart(scene: Scene) -> Truth:
    """Two processes wrote under one name, and each read a queue of its own: nobody knows what is put aside."""
    return _twins_apart(scene, 0)


@situation
def two_writers_of_one_name_and_no_beginning(scene: Scene) -> Truth:
    """The same, and the oldest segments of both were deleted: no log begins twice."""
    return _twins_apart(scene, 1)


@situation
def two_contents_of_one_number(scene: Scene) -> Truth:
    """A segment came a second time, and one of its lines says something else."""
    _, segment, _ = _one_of_many(scene)

    def other(line: Line) -> Line:
        return line | {"msg_key": "f" * 32} if line["kind"] == "delivery" else line

    rewritten(deepcopy(segment), other).write(scene.directory / "again")
    return Truth(UNVERIFIABLE, findings=[(segment.writer,)], complete=False)


def _crafted(scene: Scene, taken: tuple[int, ...], again: tuple[int, ...]) -> Truth:
    shop = scene.shop().usual()
    segments = shop.fleet.segments()
    worker = shop.consumers[shop.queues[0]][0].writer
    segment = max((one for one in segments if one.writer == worker), key=lambda one: len(one.lines))
    kept = [line for number, line in enumerate(segment.lines) if number not in taken]
    segment.lines = [*kept, *(segment.lines[number] for number in again)]
    scene.write(segments)
    return Truth(UNVERIFIABLE, findings=[(worker, "missing")], complete=False)


@situation
def numbers_that_fit_too_well(scene: Scene) -> Truth:
    """Three lines are gone and three came twice; count, sum and sum of squares of seq agree."""
    return _crafted(scene, _TAKEN, _AGAIN)


@situation
def numbers_that_fit_even_better(scene: Scene) -> Truth:
    """Four lines are gone and four came twice; the sum of cubes agrees as well."""
    return _crafted(scene, _TAKEN_OF_CUBES, _AGAIN_OF_CUBES)
