"""Values that no honest writer makes, and names that are only odd: no value breaks a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.pipeline.situations.fleet import MINUTE, START, Line, rewritten
from tests.pipeline.situations.scene import SITUATIONS, Scene, Situation, situation
from tests.pipeline.situations.truth import ANY, NOT_SUSPECT, Truth

if TYPE_CHECKING:
    from collections.abc import Callable

_LAST = 2**63 - 1
_KEPT = ("sent", "settled", "done", "unaccounted", "duplicates", "unsent", "foreign", "unread")


def _timed(
    name: str, told: str, kind: str, change: Callable[[Line], dict[str, Any]], allowed: frozenset[str] = NOT_SUSPECT
) -> None:  # fmt: skip
    """Add a situation in which a third of the lines of `kind` have other values; all is well otherwise."""

    def make(scene: Scene) -> list[Truth]:
        shop = scene.shop().usual()
        segments = shop.fleet.segments()
        seen = 0
        for segment in segments:
            for index, line in enumerate(segment.lines):
                if isinstance(line, dict) and line["kind"] == kind:
                    seen += 1
                    if seen % 3 == 0:
                        segment.lines[index] = line | change(line)
        scene.write(segments)
        exact = shop.truth().numbers
        # Read, and then every message is accounted for; or put aside and counted, and nothing is proven.
        return [
            Truth(allowed, numbers={kept: exact[kept] for kept in _KEPT}),
            Truth(frozenset({"unverifiable"}), complete=False, quarantined=seen // 3),
        ]

    make.__doc__ = told
    SITUATIONS[name] = Situation(name, "values", make)


for _name, _told, _fields in (
    ("times_of_zero", "The broker's and all other times of deliveries are 0.", 0),
    ("times_below_zero", "Times of deliveries are -1.", -1),
    ("times_of_the_last_moment", "Times of deliveries are 2^63-1.", _LAST),
    ("times_of_the_first_moment", "Times of deliveries are -2^63.", -(2**63)),
):
    _timed(
        _name,
        _told,
        "delivery",
        lambda _, at=_fields: dict.fromkeys(("sent_us", "recv_us", "start_us", "end_us"), at),  # type: ignore[misc]  # a default binds the loop's value
    )

_timed(
    "settled_at_the_last_moment",
    "Deliveries were settled at 2^63-1.",
    "delivery",
    lambda _: {"ts_us": _LAST},
)
_timed("settled_at_zero", "Deliveries were settled in 1970.", "delivery", lambda _: {"ts_us": 0})
_timed("sent_at_zero", "Sends ended in 1970.", "send", lambda _: {"ts_us": 0, "start_us": 0})
_timed(
    "the_longest_handlers",
    "Handlers ran from -2^63 to 2^63-1, so that their durations overflow.",
    "delivery",
    lambda _: {"start_us": -(2**63), "end_us": _LAST},
)
_timed(
    "the_largest_counts",
    "Sizes and attempts are as large as their types.",
    "delivery",
    lambda _: {"size": 2**31 - 1, "attempt": 2**31 - 1},
)
_timed("sizes_below_zero", "Bodies are shorter than nothing.", "delivery", lambda _: {"size": -5})
_timed(
    "the_largest_batches",
    "Batches are as large as their type.",
    "recv.batch",
    lambda _: {"messages": 2**31 - 1},
)
_timed(
    "the_longest_delays",
    "Redeliveries wait for 2^63-1 microseconds.",
    "redelivery.scheduled",
    lambda _: {"delay_us": _LAST},
)


def _named(name: str, told: str, queue: str) -> None:
    """Add a situation in which a queue has an odd name, and all is well."""

    def make(scene: Scene) -> Truth:
        shop = scene.shop(queues=("queue://orders", queue)).usual()
        shop.ship(scene.directory)
        return shop.truth()

    make.__doc__ = told
    SITUATIONS[name] = Situation(name, "values", make)


for _name, _told, _queue in (
    ("a_name_of_pictures", "A queue is called by emoji.", "queue://🦑🧾.überweisung"),
    ("a_name_of_markup", "A queue's name is HTML.", "queue://<script>alert(1)</script>&amp;"),
    (
        "a_name_of_quotes",
        "A queue's name has quotes, backslashes and line feeds.",
        'queue://a"b\\c\nd\te',
    ),
    ("a_name_of_4000", "A queue's name has 4,000 letters.", "queue://" + "n" * 4000),
    ("a_name_of_sql", "A queue's name is SQL.", "queue://x'; DROP TABLE audit; --"),
    (
        "a_name_from_right_to_left",
        "A queue's name has marks of direction.",
        "queue://\u202eabc\u202c",
    ),
    ("a_name_of_a_path", "A queue's name is a path.", "queue://../../etc/passwd"),
    ("a_name_of_digits", "A queue is called 42.", "queue://42"),
    ("a_name_without_scheme", "A queue is written as brokers write it.", "/queue/orders.old"),
):
    _named(_name, _told, _queue)


@situation
def a_name_with_a_nul(scene: Scene) -> list[Truth]:
    """A queue's name has a NUL: read, or put aside; never cut."""
    shop = scene.shop(queues=("queue://orders", "queue://or\0ders")).usual()
    shop.ship(scene.directory)
    return [shop.truth(), Truth(frozenset({"unverifiable"}), complete=False)]


@situation
def keys_of_another_time(scene: Scene) -> Truth:
    """Keys look like ours and tell a time in 1970 or in 10889: they are somebody's, and not lost."""
    shop = scene.shop().usual()
    for number in range(20):
        shop.now = START + number * MINUTE
        head = ("000000000001", "ffffffffffff")[number % 2]
        key = head + f"{shop.chance.getrandbits(80):020x}"
        shop.deliver(shop.send("queue://orders", key=key))
    shop.ship(scene.directory)
    return Truth(NOT_SUSPECT, numbers={"unaccounted": 0, "duplicates": 0})


@situation
def keys_in_capitals(scene: Scene) -> Truth:
    """Keys are hex digits in capitals; sent and done."""
    shop = scene.shop().usual()
    for number in range(20):
        shop.now = START + number * MINUTE
        key = f"{shop.now // 1000:012X}{shop.chance.getrandbits(80):020X}"
        shop.deliver(shop.send("queue://orders", key=key))
    shop.ship(scene.directory)
    return Truth(NOT_SUSPECT, numbers={"unaccounted": 0, "duplicates": 0})


@situation
def keys_of_their_own(scene: Scene) -> Truth:
    """A sender names its own keys, such as order numbers: sent and done, so nothing is lost."""
    shop = scene.shop().usual()
    for number in range(20):
        shop.now = START + number * MINUTE
        shop.deliver(shop.send("queue://orders", key=f"order-{number}"))
    shop.ship(scene.directory)
    return Truth(NOT_SUSPECT, numbers={"unaccounted": 0, "duplicates": 0})


@situation
def keys_of_their_own_and_a_loss(scene: Scene) -> Truth:
    """The same, and one was never settled: not balanced, whatever it is called."""
    shop = scene.shop().usual()
    for number in range(20):
        shop.now = START + number * MINUTE
        message = shop.send("queue://orders", key=f"order-{number}")
        if number != 7:
            shop.deliver(message)
    shop.ship(scene.directory)
    return Truth(ANY - {"balanced"})


@situation
def keys_beside_each_other(scene: Scene) -> Truth:
    """Keys differ in their last digit only, and one of them was lost."""
    shop = scene.shop().usual()
    shop.now = START + 9 * MINUTE
    head = f"{shop.now // 1000:012x}{shop.chance.getrandbits(76):019x}"
    for digit in "0123456789abcdef":
        message = shop.send("queue://orders", key=head + digit)
        if digit == "7":
            shop.books.lost.add(message.key)
            shop.books.add("queue://orders", "unaccounted")
        else:
            shop.deliver(message)
    shop.ship(scene.directory)
    return shop.truth(frozenset({"suspect"}), verdicts={"queue://orders": frozenset({"suspect"})})


@situation
def no_time_from_the_broker(scene: Scene) -> Truth:
    """No delivery has the broker's timestamp."""
    shop = scene.shop().usual()
    segments = shop.fleet.segments()
    for segment in segments:
        rewritten(segment, lambda line: {k: v for k, v in line.items() if k != "sent_us"})
    scene.write(segments)
    return shop.truth(complete=True)
