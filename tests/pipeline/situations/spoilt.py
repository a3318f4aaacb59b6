"""Lines that are no lines of ours: put aside, counted, named, and never a traceback."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tests.pipeline.situations.fleet import SECOND, Line, encoded
from tests.pipeline.situations.scene import SITUATIONS, Scene, Situation, situation
from tests.pipeline.situations.truth import (
    BALANCED,
    NOT_SUSPECT,
    UNVERIFIABLE,
    Allowed,
    Truth,
    either,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.pipeline.situations.fleet import Segment
    from tests.pipeline.situations.shop import Shop


#: The schema's page has no rule against these values: such a line may be read, and proves nothing.
_READABLE: Final = frozenset({"key_is_empty", "number_below_zero", "another_writers_line"})


def _nth(segments: list[Segment], kind: str, number: int = 5) -> tuple[Segment, int]:
    """Find the `number`-th line of a kind in the log."""
    seen = 0
    for segment in segments:
        for index, line in enumerate(segment.lines):
            if isinstance(line, dict) and line["kind"] == kind:
                seen += 1
                if seen == number:
                    return segment, index
    raise LookupError(kind)


def _spoilt(
    scene: Scene,
    kind: str,
    change: Callable[[Line], Line | bytes],
    *,
    quarantined: Allowed = 1,
) -> Truth:
    """Change one line of `kind`; nothing is balanced, and where the line was put aside its file is named."""
    shop = scene.shop().usual()
    segments = shop.fleet.segments()
    segment, index = _nth(segments, kind)
    line = segment.lines[index]
    assert isinstance(line, dict)
    segment.lines[index] = change(dict(line))
    scene.write(segments)
    aside = quarantined == 1
    return Truth(
        UNVERIFIABLE,
        quarantined=quarantined,
        complete=False if aside else None,
        findings=[(segment.name,)] if aside else [],
    )


def _kind_of_spoilt(
    name: str,
    told: str,
    kind: str,
    change: Callable[[Line], Line | bytes],
    quarantined: Allowed = 1,
) -> None:
    """Add a situation in which one line of `kind` is changed."""

    def make(scene: Scene) -> Truth:
        return _spoilt(scene, kind, change, quarantined=quarantined)

    make.__doc__ = told
    SITUATIONS[name] = Situation(name, "spoilt", make)


def _with(**fields: Any) -> Callable[[Line], Line]:
    return lambda line: line | fields


def _without(name: str) -> Callable[[Line], Line]:
    return lambda line: {field: value for field, value in line.items() if field != name}


def _text(change: Callable[[bytes], bytes]) -> Callable[[Line], bytes]:
    """Change the bytes of a line."""
    return lambda line: change(encoded(line))


for _name, _told, _change, _quarantined in (
    (
        "bytes_that_are_no_text",
        "A line has bytes that are not UTF-8.",
        lambda text: text.replace(b'"send"', b'"se\xff\xfe"', 1),
        1,
    ),
    ("half_a_line", "A line ends in its middle.", lambda text: text[: len(text) // 2] + b"\n", 1),
    (
        "two_halves_in_one_line",
        "Two lines were written into each other.",
        lambda text: text[: len(text) // 2] + text,
        1,
    ),
    (
        "two_objects_in_one_line",
        "A line feed is missing between two lines.",
        lambda text: text[:-1] + text,
        either(1, 2),
    ),
    (
        "nulls_of_a_sparse_file",
        "A line is all NUL bytes, as after a crash of the file system.",
        lambda text: b"\0" * (len(text) - 1) + b"\n",
        1,
    ),
    ("an_array", "A line is a JSON array.", lambda _: b"[1,2,3]\n", 1),
    ("a_number", "A line is a number.", lambda _: b"42\n", 1),
    ("a_string", "A line is a JSON string.", lambda _: b'"delivery"\n', 1),
    ("null", "A line is null.", lambda _: b"null\n", 1),
    ("an_empty_object", "A line is an object without fields.", lambda _: b"{}\n", 1),
    (
        "python_instead_of_json",
        "A line was written by repr().",
        lambda text: repr(json.loads(text)).encode() + b"\n",
        1,
    ),
    ("a_trailing_comma", "A line has a comma too many.", lambda text: text[:-2] + b",}\n", 1),
    (
        "not_a_number",
        "A line has NaN for a number.",
        lambda text: text.replace(b'"size":', b'"size":NaN,"old":', 1),
        1,
    ),
    (
        "deep_nesting",
        "A line nests 100,000 arrays.",
        lambda text: text[:-2] + b',"x":' + b"[" * 100_000 + b"\n",
        1,
    ),
    ("a_large_line", "A line is 3 MB of nothing.", lambda _: b"x" * 3_000_000 + b"\n", 1),
):
    _kind_of_spoilt(_name, _told, "send", _text(_change), _quarantined)

for _name, _told, _kind, _line in (
    ("no_kind", "A delivery has no kind.", "delivery", _without("kind")),
    ("kind_is_null", "A delivery's kind is null.", "delivery", _with(kind=None)),
    (
        "an_unknown_kind",
        "A line is of a kind that is not in the schema.",
        "delivery",
        _with(kind="teleport"),
    ),
    ("no_outcome", "A delivery has no outcome.", "delivery", _without("outcome")),
    ("no_outcome_of_a_send", "A send has no outcome.", "send", _without("outcome")),
    (
        "an_unknown_outcome",
        "A delivery ended in a word that is not in the schema.",
        "delivery",
        _with(outcome="vanished"),
    ),
    (
        "an_unknown_outcome_of_a_send",
        "A send ended in a word that is not in the schema.",
        "send",
        _with(outcome="maybe"),
    ),
    (
        "an_outcome_of_another_kind",
        "A send was acknowledged, which only deliveries are.",
        "send",
        _with(outcome="acknowledged"),
    ),
    (
        "an_outcome_in_capitals",
        "A delivery was ACKNOWLEDGED, not acknowledged.",
        "delivery",
        _with(outcome="ACKNOWLEDGED"),
    ),
    ("no_key", "A delivery has no key.", "delivery", _without("msg_key")),
    ("no_destination", "A send has no destination.", "send", _without("dest")),
    (
        "no_destination_of_a_delivery",
        "A delivery has no destination.",
        "delivery",
        _without("dest"),
    ),
    ("no_time", "A delivery has no time.", "delivery", _without("ts_us")),
    ("no_version", "A line has no version.", "send", _without("v")),
    ("version_2", "A line is of a version that we do not know.", "delivery", _with(v=2)),
    ("version_as_text", "A line's version is text.", "delivery", _with(v="1")),
    (
        "time_as_text",
        "A time is text.",
        "delivery",
        lambda line: line | {"ts_us": str(line["ts_us"])},
    ),
    ("time_as_words", "A time is an ISO date.", "send", _with(ts_us="2026-11-20T06:00:00Z")),
    (
        "time_with_a_fraction",
        "A time has a fraction.",
        "delivery",
        lambda line: line | {"ts_us": line["ts_us"] + 0.5},
    ),
    ("key_as_a_number", "A key is a number.", "send", _with(msg_key=17)),
    ("key_is_empty", "A key is the empty text.", "send", _with(msg_key="")),
    (
        "destination_as_a_list",
        "A destination is a list of names.",
        "send",
        _with(dest=["queue://orders"]),
    ),
    (
        "destination_as_an_object",
        "A destination is an object.",
        "delivery",
        _with(dest={"name": "orders"}),
    ),
    ("outcome_as_a_flag", "An outcome is true.", "delivery", _with(outcome=True)),
    ("attempt_as_text", "An attempt is text.", "delivery", _with(attempt="1")),
    ("attempt_with_a_fraction", "An attempt is 1.5.", "delivery", _with(attempt=1.5)),
    ("attempt_as_a_flag", "An attempt is true.", "delivery", _with(attempt=True)),
    ("redelivered_as_a_number", "The flag of redelivery is 1.", "delivery", _with(redelivered=1)),
    (
        "redelivered_as_text",
        "The flag of redelivery is text.",
        "delivery",
        _with(redelivered="false"),
    ),
    ("time_beyond_64_bits", "A time is 2^63.", "send", _with(ts_us=2**63)),
    (
        "attempt_beyond_32_bits",
        "An attempt is 2^40, and is an int.",
        "delivery",
        _with(attempt=2**40),
    ),
    ("no_number", "A line has no seq.", "send", _without("seq")),
    (
        "number_as_text",
        "A line's seq is text.",
        "send",
        lambda line: line | {"seq": str(line["seq"])},
    ),
    ("number_below_zero", "A line's seq is -1.", "send", _with(seq=-1)),
    ("number_beyond_64_bits", "A line's seq is 2^64.", "send", _with(seq=2**64)),
    ("no_writer", "A line has no writer.", "send", _without("writer")),
    ("writer_as_a_number", "A line's writer is a number.", "send", _with(writer=4711)),
    (
        "another_writers_line",
        "A segment holds a line of a writer that its name does not name.",
        "send",
        _with(writer="elsewhere-1-00000000"),
    ),
):
    _kind_of_spoilt(_name, _told, _kind, _line, either(0, 1) if _name in _READABLE else 1)


@situation
def a_lone_surrogate(scene: Scene) -> Truth | list[Truth]:
    """The escape of half a character: no text, so it is put aside or replaced, and never breaks the rest."""
    truth = _spoilt(
        scene,
        "delivery",
        _text(lambda text: text.replace(b'"consumer":"', b'"consumer":"\\ud800', 1)),
    )
    shop = scene.shop().usual()
    return [truth, Truth(NOT_SUSPECT, numbers=shop.truth().numbers)]


@situation
def a_field_twice_in_one_line(scene: Scene) -> Truth | list[Truth]:
    """One name twice in an object, with two values: what it says is not known."""
    truth = _spoilt(
        scene,
        "delivery",
        _text(lambda text: text.replace(b'"outcome":', b'"outcome":"released","outcome":', 1)),
    )
    return [truth, Truth(NOT_SUSPECT)]


@situation
def a_byte_order_mark(scene: Scene) -> Truth | list[Truth]:
    """Each file begins with the mark of some editors: read, or told."""
    shop = scene.shop().usual()
    for segment in shop.fleet.segments():
        path = segment.write(scene.directory)
        path.write_bytes(b"\xef\xbb\xbf" + segment.content())
    return [shop.truth(), Truth(UNVERIFIABLE, findings=[(".jsonl",)], complete=False)]


@situation
def lines_of_windows(scene: Scene) -> Truth | list[Truth]:
    """Lines end in a carriage return and a line feed: read, or told."""
    shop = scene.shop().usual()
    for segment in shop.fleet.segments():
        path = segment.write(scene.directory)
        path.write_bytes(segment.content().replace(b"\n", b"\r\n"))
    return [shop.truth(), Truth(UNVERIFIABLE, findings=[(".jsonl",)], complete=False)]


@situation
def blank_lines(scene: Scene) -> Truth | list[Truth]:
    """Empty lines between the lines: nothing is missing, as the numbers show."""
    shop = scene.shop().usual()
    for segment in shop.fleet.segments():
        path = segment.write(scene.directory)
        path.write_bytes(segment.content().replace(b"\n", b"\n\n", 3))
    return [shop.truth(), Truth(UNVERIFIABLE, findings=[(".jsonl",)])]


@situation
def many_spoilt_lines(scene: Scene) -> Truth:
    """Every tenth line of one segment is spoilt, each in another way; each is counted."""
    shop = scene.shop().usual()
    segments = shop.fleet.segments()
    segment = max(segments, key=lambda one: len(one.lines))
    spoilt = range(3, len(segment.lines), 10)
    for number, index in enumerate(spoilt):
        segment.lines[index] = (
            b"{\n",
            b'{"v":1}\n',
            b"\xff\n",
            b'{"v":1,"kind":"send"}\n',
        )[number % 4]
    scene.write(segments)
    return Truth(UNVERIFIABLE, quarantined=len(spoilt), complete=False, findings=[(segment.name,)])


@situation
def a_spoilt_line_taints_its_writer_only(scene: Scene) -> Truth:
    """A queue that the writer of the spoilt line never touched is balanced."""
    shop = scene.shop().usual()
    sender = shop.fleet.process("feed", "feed-a")
    worker = shop.fleet.process("archive", "archive-a")
    shop.reads(worker, "queue://archive")
    for _ in range(60):
        shop.now += SECOND
        shop.deliver(shop.send("queue://archive", by=sender), by=worker)
    segments = shop.fleet.segments()
    mine = max(
        (segment for segment in segments if segment.writer == worker.writer),
        key=lambda segment: len(segment.lines),
    )
    mine.lines[20] = b'{"kind":\n'
    scene.write(segments)
    verdicts = dict.fromkeys(shop.queues, BALANCED) | {"queue://archive": UNVERIFIABLE}
    return Truth(UNVERIFIABLE, quarantined=1, verdicts=verdicts, findings=[(mine.name,)])


@situation
def a_hidden_repeat(scene: Scene) -> Truth:
    """The second deliveries of some messages have no kind: not proven, and never balanced."""
    shop = scene.shop().usual(twice=6)
    segments = shop.fleet.segments()
    for segment in segments:
        for line in segment.lines:
            if isinstance(line, bytes) or line.get("msg_key") not in shop.books.repeated:
                continue
            if line["kind"] == "delivery":
                del line["kind"]
    scene.write(segments)
    return Truth(UNVERIFIABLE | frozenset({"suspect"}), quarantined=12, complete=False)


# Files without a line.


def _empty(scene: Scene, content: bytes) -> tuple[Shop, Segment]:
    shop = scene.shop().usual()
    segments = shop.ship(scene.directory)
    segment = segments[len(segments) // 2]
    (scene.directory / segment.path).write_bytes(content)
    return shop, segment


@situation
def a_file_of_zero_bytes(scene: Scene) -> Truth:
    """One segment is there and has no bytes."""
    _, segment = _empty(scene, b"")
    return Truth(UNVERIFIABLE, complete=False, findings=[(segment.name,)])


@situation
def a_file_of_one_line_feed(scene: Scene) -> Truth:
    """One segment is one line feed."""
    _, segment = _empty(scene, b"\n")
    return Truth(UNVERIFIABLE, complete=False, findings=[(segment.name,)])


@situation
def a_file_of_blanks(scene: Scene) -> Truth:
    """One segment is blanks and line feeds."""
    _, segment = _empty(scene, b"   \n \t\n\n")
    return Truth(UNVERIFIABLE, complete=False, findings=[(segment.name,)])


@situation
def a_file_of_noise(scene: Scene) -> Truth:
    """One segment is bytes of chance."""
    shop = scene.shop()
    _, segment = _empty(scene, shop.chance.randbytes(5000))
    return Truth(UNVERIFIABLE, complete=False, findings=[(segment.name,)])


@situation
def an_extra_empty_file(scene: Scene) -> Truth:
    """All lines are there, and beside them an empty segment of a writer that nobody knows."""
    shop = scene.shop().usual()
    segments = shop.ship(scene.directory)
    name = "ghost-1-00000000-000000000000.jsonl"
    (scene.directory / segments[0].folder / name).write_bytes(b"")
    return Truth(UNVERIFIABLE, findings=[(name,)], numbers=shop.truth().numbers)


@situation
def only_empty_files(scene: Scene) -> Truth:
    """Every segment is there, and all have no bytes."""
    shop = scene.shop().usual()
    for segment in shop.ship(scene.directory):
        (scene.directory / segment.path).write_bytes(b"")
    return Truth(UNVERIFIABLE, numbers={"sent": 0, "settled": 0}, complete=False)
