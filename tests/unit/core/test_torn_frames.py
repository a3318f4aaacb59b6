"""Bodies that end where nobody said, in a stream whose frames have a mark: never whole, and never taken for frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jmsx.core.frames import Frame, MessageFrame
from jmsx.core.wire import LINKS, EarlierLinks, RawHeads, Splitter
from tests.depth import some

if TYPE_CHECKING:
    from collections.abc import Iterable

CONNECTED = b"CONNECTED\nversion:1.2\n\n\0\n"
MARK = b"~0123456789abcdef"

#: How the broker writes that `written` plays.
HEADS = RawHeads(
    message=(b"expires", b"priority", b"timestamp"),
    error=(b"message:", b"content-type:text/plain"),
    browser_end=(b"browser", b"end"),
    tell_order=(b"priority", b"timestamp"),
    ordered=24_576,
)

#: In which order the headers lie in a HashMap of Java's with so many places, as a broker wrote them.
ORDERS = {
    32: b"expires destination ack subscription priority message-id timestamp",
    64: b"expires destination ack subscription message-id timestamp priority",
    128: b"ack message-id priority expires destination subscription timestamp",
    256: b"priority subscription timestamp ack message-id expires destination",
    512: b"timestamp ack expires destination priority subscription message-id",
    1024: b"ack subscription timestamp expires destination priority message-id",
    2048: b"ack timestamp priority subscription expires destination message-id",
    4096: b"priority expires ack timestamp subscription destination message-id",
    65536: b"expires timestamp subscription ack message-id priority destination",
}


def written(number: int, body: bytes, *properties: bytes) -> bytes:
    """A MESSAGE as Classic writes it: whatever the body is, and with what a property says of its length."""
    lines = [
        *properties,
        b"expires:0",
        b"ack:%d" % number,
        b"subscription:1" + MARK,
        b"destination:/queue/q\npriority:4\ntimestamp:1",
        b"message-id:m%d" % number,
    ]
    return b"MESSAGE\n" + b"\n".join(lines) + b"\n\n" + body + b"\0\n"


def ordered(places: int, number: int, body: bytes = b"", *properties: tuple[int, bytes]) -> bytes:
    """The same in such an order, with properties before the line of that number."""
    values = {
        b"ack": b"%d" % number,
        b"subscription": b"1" + MARK,
        b"destination": b"/queue/q",
        b"message-id": b"m%d" % number,
    }
    lines = [b"%s:%s" % (name, values.get(name, b"0")) for name in ORDERS[places].split()]
    for place, line in properties:
        lines.insert(place, line)
    return b"MESSAGE\n" + b"\n".join(lines) + b"\n\n" + body + b"\0\n"


def receipt(number: int) -> bytes:
    """A RECEIPT for us."""
    return b"RECEIPT\nreceipt-id:s-%d%s\n\n\0\n" % (number, MARK)


def fed(chunks: Iterable[bytes]) -> list[Frame | MessageFrame]:
    """What comes of a link that has said CONNECTED."""
    splitter = Splitter(heads=HEADS)
    (_,) = splitter.feed(CONNECTED)
    splitter.mark = MARK
    frames = [frame for chunk in chunks for frame in splitter.feed(chunk)]
    assert splitter.fault is None
    return frames


def names(frames: list[Frame | MessageFrame]) -> list[str]:
    """Messages by their ack, `!` with those that are torn, `?` with those that come late, and receipts by their id."""
    return [
        frame.bare().headers["ack"] + "!" * bool(frame.broken) + "?" * frame.late
        if isinstance(frame, MessageFrame)
        else frame.headers["receipt-id"]
        for frame in frames
    ]


FORGED_RECEIPT = b"RECEIPT\nreceipt-id:s-9\n\n\0"
FORGED_MESSAGE = b"MESSAGE\nsubscription:1\nack:99\nmessage-id:m99\n\nforged\0"
BODIES = {
    "a NUL": b"a\0b",
    "a NUL at the end": b"a\0",
    "NULs": b"\0\0\0",
    "a NUL and a line feed": b"a\0\nb",
    "a frame": b"a\0\n" + FORGED_MESSAGE + b"\nb",
    "a frame at the end": b"a\0\n" + FORGED_MESSAGE,
    "two frames": b"a\0\n" + FORGED_RECEIPT + b"\n" + FORGED_MESSAGE + b"\nMESSAGE",
    "half a head": b"a\0\nMESSAGE\nack:99\nx:",
    "half a frame": b"a\0\nMESSAGE\nack:99\n\n",
    "a frame that swallows": b"a\0\nMESSAGE\nack:99\ncontent-length:120\n\n",
    "an ERROR that goes on": b"a\0\nERROR\nmessage:no\n\n\0\nb",
    "half an ERROR": b"a\0\nERROR\nmessage:no",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_body_with_a_nul_is_torn(body: bytes) -> None:
    """It is handed on without a body; what comes behind it is what the broker sent."""
    stream = written(1, b"whole") + written(2, body) + written(3, b"next") + receipt(4)
    frames = fed([stream])
    assert names(frames) == ["1", "2!", "3", "s-4"]
    assert [frame.body for frame in frames] == [b"whole", b"", b"next", b""]
    assert MARK.decode() not in str([frame.headers for frame in frames])


@pytest.mark.parametrize("length", [0, 3, 6, 7, 50, 200, 100_000])
def test_a_length_that_a_property_says_is_not_believed(length: int) -> None:
    """Too small, too great, or so great that it takes in what follows."""
    stream = written(2, b"abcdef", b"content-length:%d" % length)
    frames = fed([written(1, b"whole"), stream, written(3, b"next"), receipt(4)])
    assert names(frames) == ["1", "2" if length == 6 else "2!", "3", "s-4"]
    assert frames[2].body == b"next"


@pytest.mark.parametrize("length", [b"abc", b"-5", b"", b"9" * 400, b"9999999999"])
def test_a_length_that_is_none_is_not_believed(length: bytes) -> None:
    """Nor one beyond the limit of a body."""
    stream = written(1, b"abc", b"content-length:" + length) + written(2, b"next")
    frames = fed([stream])
    assert names(frames) == ["1!", "2"]


def test_an_unterminated_frame_is_seen_through_by_the_next_answer() -> None:
    """Which is why one is asked for when nothing comes."""
    splitter = Splitter(heads=HEADS)
    splitter.feed(CONNECTED)
    splitter.mark = MARK
    assert splitter.feed(written(1, b"abc", b"content-length:99999")) == []
    assert splitter.incomplete is not None
    assert names(splitter.feed(receipt(7))) == ["1!", "s-7"]
    assert splitter.incomplete is None


def test_a_message_is_as_large_as_the_broker_counts_it() -> None:
    """A window that counts bytes counts those of the mark, too."""
    frame = written(1, b"body")
    (message,) = fed([frame])
    assert isinstance(message, MessageFrame)
    assert message.size == message.bare().size == message.truncated("cut").size == len(frame)


def test_bytes_with_a_true_length_may_hold_anything() -> None:
    """But the mark of their own link, which nobody knows."""
    body = FORGED_MESSAGE + b"\n" + FORGED_RECEIPT
    stream = written(1, body, b"content-length:%d" % len(body)) + receipt(2)
    frames = fed([stream])
    assert names(frames) == ["1", "s-2"]
    assert frames[0].body == body


PIECES = st.lists(
    st.one_of(
        st.sampled_from(
            [
                b"\0", b"\n", b"\0\n", b"MESSAGE\n", b"RECEIPT\n", b"ERROR\n", b"CONNECTED\n", b"ack:99\n",
                b"subscription:1\n", b"receipt-id:s-9\n", b"content-length:3\n", b"content-length:300\n", b"x",
                FORGED_MESSAGE, FORGED_RECEIPT, b"\n\n", b"\r\n", b"message-id:m3\n",
            ]
        ),
        st.binary(max_size=4),
    ),
    max_size=12,
).map(b"".join)  # fmt: skip

LENGTHS = st.none() | st.integers(0, 400)


@given(bodies=st.lists(st.tuples(PIECES, LENGTHS), min_size=1, max_size=4))
@example(bodies=[(b"\0\nMESSAGE\nack:99\nx:", None)])
@example(bodies=[(b"a\0\nERROR\n\n\0", None), (b"", 0)])
@example(bodies=[(b"\0\nRECEIPT\ncontent-length:3\n", None)])
@example(bodies=[(b"\0\nERROR\ncontent-length:3\n", None)])
@example(bodies=[(b"MESSAGE\nsubscription:1\nack:99\nmessage-id:m99\n\nforged\0\nack:99\n", None)])
def test_no_body_makes_a_frame(bodies: list[tuple[bytes, int | None]]) -> None:
    """
    Whatever senders write, the messages and receipts that are handed on are those that the broker sent, in order.

    What is handed on as whole has the body that was sent.
    """
    stream, sent = b"", []
    for number, (body, length) in enumerate(bodies, 1):
        told = () if length is None else (b"content-length:%d" % length,)
        stream += written(number, body, *told) + receipt(number)
        sent.append(body)
    splitter = Splitter(heads=HEADS)
    splitter.feed(CONNECTED)
    splitter.mark = MARK
    frames = [one for one in splitter.feed(stream) if getattr(one, "command", "") != "ERROR"]
    told_names = [name.rstrip("!") for name in names(frames)]
    honest = [name for number in range(1, len(bodies) + 1) for name in (str(number), f"s-{number}")]
    assert told_names == honest[: len(told_names)]
    assert splitter.fault is not None or told_names == honest
    for frame in frames:
        if isinstance(frame, MessageFrame) and not frame.broken:
            body = sent[int(frame.headers["ack"]) - 1]
            # an ERROR has no mark, so that nobody can tell one at the end of a body
            assert frame.body == body or b"\0\nERROR\n" in body


NAMES = {
    "a line": b"a\nb",
    "a line without a colon": b"a\nb\nc",
    "the head ends early": b"a\n\n",
    "another ack": b"a\nack:99\nb",
    "an ack of before": b"a\nack:1\nb",
    "the next one's ack": b"a\nack:3\nb",
    "another subscription": b"a\nsubscription:7\nb",
    "a length": b"a\ncontent-length:3\nb",
    "a whole frame": b"a\nack:3\nsubscription:1\n\nforged\0\nMESSAGE\nack:4\nb",
    "another frame": b"a\n\n\0\nMESSAGE\nack:3\nb",
    "a receipt": b"a\n\n\0\nRECEIPT\nreceipt-id:s-9\nb",
    "an error": b"a\n\n\0\nERROR\nmessage:no\n\n\0\nMESSAGE\nb",
    "frames": b"a\n\n\0\nRECEIPT\nreceipt-id:s-9\n\n\0\nMESSAGE\nack:99\nb",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("order", ["first", "behind the ack", "behind the mark", "last"])
def test_a_property_s_name_harms_nobody_else(name: bytes, order: str) -> None:
    """Classic writes names as they are; the message is torn, with the ack that is its own, and the rest flows."""
    lines = written(2, b"body").split(b"\n")
    place = {
        "first": 2,  # but for `expires`, before which few names can come
        "behind the ack": lines.index(b"ack:2") + 1,
        "behind the mark": lines.index(b"subscription:1" + MARK) + 1,
        "last": lines.index(b""),
    }[order]
    lines.insert(place, name + b":1")
    odd = b"\n".join(lines)
    frames = fed([written(1, b"whole") + odd + written(3, b"next") + receipt(4)])
    told = names(frames)
    assert told[0] == "1"
    assert told[-2:] == ["3", "s-4"]
    assert told[1:-2] in (["2!"], ["2"])
    torn = frames[1]
    assert isinstance(torn, MessageFrame)
    assert torn.bare().headers["subscription"] == "1"
    if torn.broken:
        assert torn.raw == odd.replace(MARK, b"").partition(b"\n")[2].join([b"MESSAGE\n", b""])
        assert torn.size == len(odd)


def test_very_many_borders_are_looked_through_once() -> None:
    """A sender can write a million bytes of them; with a look at the same head for each this would take minutes."""
    body = b"a\0b" + b"\0\nMESSAGE\n" * 100_000
    odd = written(3, b"next", b"x:1\npriority:9")
    told = names(
        fed([written(1, b"whole") + written(2, body) + odd + written(4, b"") + written(5, b"")])
    )
    assert [one.rstrip("!") for one in told] == ["1", "2", "3", "4", "5"]


LINES = st.lists(
    st.sampled_from(
        [
            b"\0", b"\n", b"\n\n", b"\0\nMESSAGE\n", b"\0\nRECEIPT\n", b"\0\nERROR\n", b"\nack:1\n", b"\nack:2\n",
            b"\nack:3\n", b"\nack:4\n", b"\nack:99\n", b"\nsubscription:1\n", b"\nreceipt-id:s-9\n",
            b"\ncontent-length:3\n",
            b"\nexpires:0\n", b"\nmessage-id:m3\n", b"\npriority:4\n", b"\r\n", b":", b"x",
            b"\0\nMESSAGE\nexpires:0\n", b"\0\nMESSAGE\nexpires:0\nack:3\n", FORGED_MESSAGE, FORGED_RECEIPT,
        ]
    ),
    max_size=9,
).map(b"".join)  # fmt: skip


INSIDE_A_NAME = b"\0\nMESSAGE\nexpires:0\n"


@given(properties=st.lists(st.tuples(st.integers(2, 9), LINES), max_size=3), body=LINES)
@example(properties=[(2, b"\0\nRECEIPT\n\0\nexpires:0\n")], body=b"")
@example(properties=[(3, INSIDE_A_NAME)], body=INSIDE_A_NAME + b"\nack:2\n")
@example(properties=[(3, b"\nack:1\n"), (3, INSIDE_A_NAME)], body=INSIDE_A_NAME + b"\nack:2\n")
@example(properties=[(3, b"\nack:3\n"), (3, INSIDE_A_NAME)], body=INSIDE_A_NAME + b"\nack:2\n")
@example(properties=[(4, b"\nack:2\n"), (3, INSIDE_A_NAME + b"ack:3\n")], body=b"")
def test_no_name_settles_another(properties: list[tuple[int, bytes]], body: bytes) -> None:
    """Whatever stands in a head behind its `expires`, even its own `ack`: each message comes once, with its own."""
    lines = written(2, b"").split(b"\n")
    for place, name in properties:
        lines.insert(place, b"a" + name + b":1")
    odd = b"\n".join(lines).removesuffix(b"\0\n") + body + b"\0\n"
    stream = written(1, b"whole") + odd + written(3, b"next") + receipt(4) + written(5, b"last")
    splitter = Splitter(heads=HEADS)
    splitter.feed(CONNECTED)
    splitter.mark = MARK
    frames = [one for one in splitter.feed(stream) if getattr(one, "command", "") != "ERROR"]
    assert splitter.fault is None
    assert [one.rstrip("!") for one in names(frames)] == ["1", "2", "3", "s-4", "5"]


def test_a_stream_without_a_mark_is_cut_by_what_the_broker_says() -> None:
    """Artemis tells the length of each body, and the first header of a name is its own."""
    splitter = Splitter(heads=HEADS)
    splitter.feed(CONNECTED)
    odd = written(1, b"odd").replace(b"ack:1\n", b"ack:1\nack:99\n")
    body = FORGED_MESSAGE + b"\n" + FORGED_RECEIPT + MARK + b"\0\n"
    sized = written(2, body, b"content-length:%d" % len(body))
    frames = splitter.feed(odd + sized + written(3, b"next"))
    assert names(frames) == ["1", "2", "3"]
    assert frames[1].body == body
    assert splitter.fault is None


def test_a_frame_that_comes_later_is_told() -> None:
    """The text in front of it is the application's already: its message is told again, as torn; the rest flows."""
    splitter = Splitter(heads=HEADS)
    splitter.feed(CONNECTED)
    splitter.mark = MARK
    assert names(splitter.feed(written(1, b"a"))) == ["1"]
    assert names(splitter.feed(FORGED_MESSAGE + b"\n")) == []
    assert names(splitter.feed(written(2, b"b"))) == ["1!?", "2"]
    assert splitter.fault is None


def on_a_link(
    told: EarlierLinks, *numbers: int, body: bytes, name: bytes = b"", places: int = 256
) -> list[tuple[str, bool]]:
    """
    The `ack` by which each message is settled, as on Classic, and whether that is unsure; all are of one text, and have
    so many headers that it shows only when the next frame has come.
    """
    splitter = Splitter(heads=HEADS)
    splitter.feed(CONNECTED)
    splitter.mark, splitter.origin = MARK, b"b\\c"
    splitter.share(told)
    stream = b""
    for number in numbers:
        lines = ordered(places, 1, body).replace(b"ack:1\n", b"ack:b\\c%d\n" % number)
        stream += lines.replace(b"MESSAGE\n", b"MESSAGE\n" + name + b":1\n") if name else lines
    frames = [one for one in splitter.feed(stream + receipt(1)) if isinstance(one, MessageFrame)]
    assert splitter.fault is None
    return [(one.bare().headers["ack"], one.unsure) for one in frames]


@pytest.mark.parametrize("others", [(5,), (9,), (5, 9), (5, 8, 30)])
@pytest.mark.parametrize("cut", [False, True])
def test_the_first_message_of_a_link_that_names_other_acks(
    others: tuple[int, ...], *, cut: bool
) -> None:
    """Nobody knows which is its own; on the next link it is one that was not there before."""
    told = EarlierLinks()
    lines = b"".join(b"\nack:b\\c%d" % one for one in others)
    name, body = (b"a" + lines + b"\n\nb", b"") if cut else (b"", b"a" + lines + b"\nb")
    unsure = cut or min(others) < 7  # the lowest is in the head: that is believed
    assert [one for _, one in on_a_link(told, 7, body=body, name=name)] == [unsure]
    if unsure:
        came = on_a_link(told, 10, 11, body=body, name=name)
        assert came == [("b:10", False), ("b:11", False)]


def with_a_cut_head(number: int, forged: int) -> bytes:
    """A MESSAGE into whose head its sender wrote an `ack` and the end, behind the mark and above the broker's own."""
    head = written(number, b"").replace(b"ack:%d\n" % number, b"")
    forgery = b"a\nack:b\\c%d\n\nb:1\nack:b\\c%d\n" % (forged, number)
    return head.replace(b"destination:", forgery + b"destination:")


@pytest.mark.parametrize("places", [32, 64, 1024])
@pytest.mark.parametrize(
    "body",
    [b"a\nack:b\\c5\nb", b"a\0\nack:b-2\\c5\nack:b\\c9\n\nb", b"MESSAGE\nack:b\\c5\n\nx"],
)
def test_a_body_that_names_other_acks_costs_no_link(places: int, body: bytes) -> None:
    """Where the broker's own stands in front of the mark, and alone, it is known; a sender's are behind that."""
    assert on_a_link(EarlierLinks(), 7, 8, body=body, places=places) == [
        ("b:7", False),
        ("b:8", False),
    ]


@pytest.mark.parametrize("forged", [5, 9])
def test_an_ack_that_ends_the_head_costs_one_link(forged: int) -> None:
    """Nobody can tell it from the broker's own behind it before that one is another."""
    told, came = EarlierLinks(), []
    for number in (7, 10, 11):
        splitter = Splitter(heads=HEADS)
        splitter.feed(CONNECTED)
        splitter.mark, splitter.origin = MARK, b"b\\c"
        splitter.share(told)
        (frame, _) = splitter.feed(with_a_cut_head(number, forged) + receipt(1))
        assert isinstance(frame, MessageFrame)
        came.append((frame.bare().headers["ack"], frame.unsure))
    assert came[0][1]
    assert came[1:] == [("b:10", False), ("b:11", False)]


def test_a_text_that_quotes_a_head_costs_one_link_and_is_whole() -> None:
    """Its `ack` of the broker's, which is the higher one, could be its own."""
    told, body = EarlierLinks(), b"MESSAGE\nack:b\\c9\n\nx"
    assert on_a_link(told, 7, body=body) == [("b:7", True)]
    splitter = Splitter(heads=HEADS)
    splitter.feed(CONNECTED)
    splitter.mark, splitter.origin = MARK, b"b\\c"
    splitter.share(told)
    (frame, _) = splitter.feed(
        ordered(256, 1, body).replace(b"ack:1\n", b"ack:b\\c10\n") + receipt(1)
    )
    assert isinstance(frame, MessageFrame)
    assert (frame.broken, frame.unsure, frame.body) == ("", False, body)
    assert told.links == 0


@pytest.mark.parametrize("body", [b"a\nack:17\n\nb", b"a\nack:b\\c9\n\nb"])
def test_what_a_browser_is_shown_may_name_an_ack(body: bytes) -> None:
    """The broker tells it none, so that there is none to look for; nor does one say anything of those of a consumer."""
    splitter = Splitter(heads=HEADS)
    splitter.feed(CONNECTED)
    splitter.mark, splitter.origin = MARK, b"b\\c"
    splitter.unnumbered.add(b"subscription:1")
    shown = written(1, body).replace(b"ack:1\n", b"")
    forged = written(1, body).replace(b"ack:1\n", b"ack:b\\c999\n")
    torn = written(1, b"a\0" + body).replace(b"ack:1\n", b"")
    consumed = written(1, b"a\0").replace(b"ack:1\n", b"ack:b\\c7\n")
    consumed = consumed.replace(b"subscription:1", b"subscription:2")
    frames = splitter.feed(shown + forged + torn + consumed + receipt(1))
    assert splitter.fault is None
    assert [one.body for one in frames[:2]] == [body, body]
    assert [bool(getattr(one, "broken", "")) for one in frames] == [False, False, True, True, False]
    assert not any(one.unsure for one in frames if isinstance(one, MessageFrame))
    consumed_frame = frames[3]
    assert isinstance(consumed_frame, MessageFrame)
    assert consumed_frame.bare().headers["ack"] == "b:7"


def quoting(*others: int) -> bytes:
    """A body with a NUL, and with such lines."""
    return b"a\0" + b"".join(b"\nack:b\\c%d" % one for one in others) + b"\nb"


def test_a_message_that_names_all_acks_that_may_be_its_own_costs_one_link() -> None:
    """On the next link its own stands there twice."""
    told, body = EarlierLinks(), quoting(*range(1, 500))
    assert [one for _, one in on_a_link(told, 7, body=body)] == [True]
    assert on_a_link(told, 300, body=body) == [("b:300", False)]
    assert on_a_link(told, 400, body=body) == [("b:400", False)]


def test_one_message_does_not_tell_what_settles_another() -> None:
    """Nor do two of one sender's together: else the ACK of the second would settle what was not handed out yet."""
    told, chosen = EarlierLinks(), 320
    likely = [number for number in range(1, 500) if number != chosen]
    assert [one for _, one in on_a_link(told, 7, body=quoting(*likely))] == [True]
    assert [one for _, one in on_a_link(told, 300, body=quoting(chosen))] == [True]
    for _ in range(LINKS):
        assert [one for _, one in on_a_link(told, 7, body=quoting(*likely))] in ([True], [False])
        ((ack, unsure),) = on_a_link(told, 300, body=quoting(chosen))
        assert unsure or ack == "b:300"


def test_messages_of_which_nobody_can_tell_cost_few_links() -> None:
    """As if each link began with another one."""
    told = EarlierLinks()
    given_up = [
        unsure
        for number in range(10, 20)
        for _, unsure in on_a_link(told, number, body=quoting(number - 9, number + 500))
    ]
    assert given_up == [True] * LINKS + [False] * (10 - LINKS)


def test_what_a_link_was_given_up_for_tells_nothing_of_later_messages() -> None:
    """Their own is the lowest behind that of the message before, whatever else they name."""
    told = EarlierLinks()
    assert [one for _, one in on_a_link(told, 7, body=quoting(5, 20, 21, 22))] == [True]
    splitter = Splitter(heads=HEADS)
    splitter.feed(CONNECTED)
    splitter.mark, splitter.origin = MARK, b"b\\c"
    splitter.share(told)
    stream = written(1, b"whole").replace(b"ack:1\n", b"ack:b\\c19\n")
    stream += written(1, quoting(23)).replace(b"ack:1\n", b"ack:b\\c20\n")
    assert names(splitter.feed(stream + receipt(1))) == ["b:19", "b:20!", "s-1"]


def test_an_ack_that_looks_like_another_broker_s_costs_one_link() -> None:
    """Ids of one broker begin alike, and its connections' do not end so."""
    told, body = EarlierLinks(), b"a\0\nack:b-2\\c3\nb"
    assert of_a_connection(told, 7, body) is None
    assert of_a_connection(told, 8, body) == ["b-1:8!", "s-1"]


def test_acks_that_look_like_other_brokers_cost_few_links() -> None:
    """As if each link began with another message; the own one, or none, is what is taken at last."""
    told = EarlierLinks()
    came = [of_a_connection(told, 7 + n, b"a\0\nack:b-2\\c%d\nb" % n) for n in range(6)]
    assert came[:LINKS] == [None] * LINKS
    assert None not in came[LINKS:]


def test_nor_does_one_message_tell_how_the_acks_of_another_begin() -> None:
    """It may name the other's own `ack`, which would then count as one that is known."""
    told = EarlierLinks()
    assert of_a_connection(told, 7, b"a\0\nack:b-1\\c300\nack:b-2\\c5\nb") is None
    assert of_a_connection(told, 300, b"a\0\nack:b-2\\c3\nb") in (None, ["b-1:300!", "s-1"])


def of_a_connection(told: EarlierLinks, number: int, body: bytes) -> list[str] | None:
    """What comes of a link that begins with such a message of the broker's first generator; None: its end."""
    splitter = Splitter(heads=HEADS)
    splitter.feed(CONNECTED)
    splitter.mark, splitter.origin = MARK, b"b-"
    splitter.share(told)
    stream = ordered(256, 1, body).replace(b"ack:1\n", b"ack:b-1\\c%d\n" % number)
    came = splitter.feed(stream + receipt(1))
    return None if splitter.fault is not None else names(came)


def test_an_ack_of_before_that_hides_the_own_one_settles_nothing() -> None:
    """It ends its message's head, so that the broker's `ack` is in the body."""
    first, odd = (
        written(1, b"a"),
        written(2, b"").replace(b"MESSAGE\n", b"MESSAGE\nx\nack:1\n\n:1\n"),
    )
    assert names(fed([first + odd + written(3, b"next") + receipt(4)])) == ["1", "2!", "3", "s-4"]


def test_what_looks_like_a_head_holds_back_the_text_in_front_of_it() -> None:
    """It has a NUL, and the broker writes none into a head: nothing is handed on before it is known what it is."""
    splitter = Splitter(heads=HEADS)
    splitter.feed(CONNECTED)
    splitter.mark = MARK
    assert names(splitter.feed(written(1, b"a\0\nMESSAGE\nack:f\nx:"))) == []
    assert names(splitter.feed(written(2, b"b"))) == ["1!", "2"]
    assert splitter.fault is None


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_body_with_a_nul_is_torn_wherever_it_is_cut(body: bytes) -> None:
    """In one place the first part looks whole: then the message is told again when the second one has come."""
    stream = written(1, b"whole") + written(2, body) + written(3, b"next") + receipt(4)
    for cut in some(range(1, len(stream))):
        frames = fed([stream[:cut], stream[cut:]])
        frames = [one for one in frames if one.command != "ERROR"]
        assert names(frames) in (["1", "2!", "3", "s-4"], ["1", "2", "2!?", "3", "s-4"]), cut


@pytest.mark.parametrize("size", some(range(1, 260)))
def test_what_a_link_tells_the_next_proves_nothing_to_itself(size: int) -> None:
    """Its first message looks whole up to the NUL; that the forged `ack` stands behind that, too, proves nothing."""
    body = b"MESSAGE\nsubscription:1\nack:99\nmessage-id:m99\n\nforged\0\nack:99\n"
    stream, frames, told = (
        written(1, body) + receipt(1),
        list[Frame | MessageFrame](),
        EarlierLinks(),
    )
    splitter = Splitter(heads=HEADS)
    splitter.feed(CONNECTED)
    splitter.mark = MARK
    splitter.share(told)
    for start in range(0, len(stream), size):
        frames += splitter.feed(stream[start : start + size])
    assert "99" not in {
        one.bare().headers.get("ack") for one in frames if isinstance(one, MessageFrame)
    }
    assert told.links <= 1


@given(bodies=st.lists(st.tuples(PIECES, LENGTHS), min_size=1, max_size=3), cuts=st.data())
def test_no_body_makes_a_frame_however_it_arrives(
    bodies: list[tuple[bytes, int | None]], cuts: st.DataObject
) -> None:
    """In pieces too, no frame is handed on that the broker did not send."""
    stream = b"".join(
        written(number, body, *(() if length is None else (b"content-length:%d" % length,)))
        + receipt(number)
        for number, (body, length) in enumerate(bodies, 1)
    )
    splitter = Splitter(heads=HEADS)
    splitter.feed(CONNECTED)
    splitter.mark = MARK
    size, frames = cuts.draw(st.integers(1, 80)), []
    for start in range(0, len(stream), size):
        frames += splitter.feed(stream[start : start + size])
    acks = [
        one.bare().headers.get("ack")
        for one in frames
        if isinstance(one, MessageFrame) and not one.late
    ]
    assert [int(one) for one in acks if one] == sorted({int(one) for one in acks if one})
    assert {int(one) for one in acks if one} <= set(range(1, len(bodies) + 1))
    told = [one.headers["receipt-id"] for one in frames if one.command == "RECEIPT"]
    assert set(told) <= {f"s-{number}" for number in range(1, len(bodies) + 1)}


def test_a_length_that_takes_in_the_beginning_of_the_next_message() -> None:
    """It is not believed before the next mark has come, wherever the bytes are cut: a name there holds an `ack`."""
    length, name = (
        b"a\ncontent-length:%d\nb:1",
        b"a\0\nRECEIPT\nx\n\n\0\nMESSAGE\nexpires:0\nack:3\n:1",
    )
    lines = written(2, b"two").split(b"\n")
    lines.insert(lines.index(b"ack:2") + 1, name)
    two = b"\n".join(lines)
    taken = b"one\0\n" + two[: two.index(b"\0")]
    stream = written(1, b"one", length % len(taken)) + two + written(3, b"three") + receipt(4)
    whole = names(fed([stream]))
    assert [one.rstrip("!") for one in whole] == ["1", "2", "3", "s-4"]
    for cut in some(range(1, len(stream))):
        assert names(fed([stream[:cut], stream[cut:]])) == whole


def test_a_length_and_an_error_in_a_name_that_take_in_the_next_message() -> None:
    """The rest of that one would be the body of the ERROR: nobody would be handed it, and nobody settle it."""
    two = written(2, b"two", b"a\0\nERROR\nx:1\n\n:1")
    taken = b"one\0\n" + two[: two.index(b"\0")]
    stream = written(1, b"one", b"a\ncontent-length:%d\nb:1" % len(taken)) + two
    stream += written(3, b"three") + receipt(4)
    whole = ["1!", "2!", "3", "s-4"]
    assert names(fed([stream])) == whole
    for cut in some(range(1, len(stream))):
        assert names(fed([stream[:cut], stream[cut:]])) == whole, cut


def test_an_error_that_repeats_the_headers_of_a_send() -> None:
    """The receipt, and so the mark, is among them; the header is what counts."""
    head = b"message:AMQ339011 Error CoreMessage[receipt=s-1%s, x=1]\nreceipt-id:s-1%s" % (
        MARK,
        MARK,
    )
    (error,) = fed([b"ERROR\n" + head + b"\n\n\0\n"])
    assert isinstance(error, Frame)
    assert error.headers["receipt-id"] == "s-1"
    assert "receipt=s-1" in error.headers["message"]


def test_an_answer_with_two_receipt_ids_answers_nothing() -> None:
    """The first would count, and the mark may stand in the other: the link ends, and what was asked is in doubt."""
    for command in (b"ERROR\nmessage:no", b"RECEIPT"):
        splitter = Splitter(heads=HEADS)
        splitter.feed(CONNECTED)
        splitter.mark = MARK
        twice = command + b"\nreceipt-id:s-7\nreceipt-id:s-9" + MARK + b"\n\n\0\n"
        assert splitter.feed(twice + receipt(4)) == []
        assert splitter.fault is not None


@pytest.mark.parametrize(
    "name",
    [b"a\n\nexpires:0\n\0\nMESSAGE\n", b"a:\nack:1\n\nack:3\n\0\nMESSAGE\nexpires:0\n\nack:1\n"],
)
def test_a_name_that_cuts_off_the_ack_of_a_message_with_many_properties(name: bytes) -> None:
    """Between 97 and 192 headers lie in an order of Java's in which `subscription` comes before `ack`."""
    head = b"MESSAGE\npriority:4\nsubscription:1" + MARK + b"\n" + name
    head += b":1\ntimestamp:1\nack:2\nmessage-id:m2\nexpires:0\ndestination:/queue/q"
    stream = written(1, b"whole") + head + b"\n\n\0\n" + written(3, b"next") + receipt(4)
    assert names(fed([stream])) == ["1", "2!", "3", "s-4"]


@pytest.mark.parametrize("places", ORDERS)
@pytest.mark.parametrize("before", [b"", written(0, b"zero")])
@pytest.mark.parametrize("end", [b"\n\nx\0\n", b"\n\nx\0\nMESSAGE\nexpires:0\n", b"\n\nx\n"])
def test_an_ack_that_is_guessed_settles_nothing(places: int, before: bytes, end: bytes) -> None:
    """Wherever the bytes are cut: that of a message that comes later would settle what nobody has seen yet."""
    for place in range(8):
        odd = ordered(places, 2, b"two", (place, b"a\nack:4" + end + b"b:1"))
        stream = before + odd + ordered(places, 3, b"three") + written(4, b"four") + receipt(5)
        for cut in some(range(len(before) + 1, len(before) + len(odd) + 1)):
            splitter = Splitter(heads=HEADS)
            splitter.feed(CONNECTED)
            splitter.mark = MARK
            seen = [
                (frame.bare().headers["ack"], frame.body)
                for chunk in (stream[:cut], stream[cut:])
                for frame in splitter.feed(chunk)
                if isinstance(frame, MessageFrame) and not (frame.late or frame.unsure)
            ]
            assert [ack for ack, _ in seen] == sorted({ack for ack, _ in seen}), (place, cut)
            assert all(body == b"four" for ack, body in seen if ack == "4"), (place, cut)


@pytest.mark.parametrize("before", [b"", written(1, b"one")])
@pytest.mark.parametrize("end", [b"", b"\n\n", b"\n\n\0\n"])
@pytest.mark.parametrize("place", ["first", "last"])
def test_a_guess_in_front_of_more_headers_than_any_that_tell_the_order(
    before: bytes, end: bytes, place: str
) -> None:
    """From 49,153 headers on, nothing but their number tells that the broker's `ack` stands behind the mark."""
    many = b"\n".join(b"p%d:" % one for one in range(49_153))
    lines = b"MESSAGE\nexpires:0\na\nack:4\nb:1\nsubscription:1" + MARK
    lines += b"\nc%s:1\nmessage-id:m2\npriority:4\ndestination:/queue/q\ntimestamp:0\nack:2" % end
    odd = lines.split(b"\n")
    odd.insert(1 if place == "first" else odd.index(b"timestamp:0"), many)
    stream = before + b"\n".join(odd) + b"\n\ntwo\0\n"
    stream += written(3, b"three") + written(4, b"four") + receipt(5)
    for cut in (len(before) + 300_000, len(stream) - 200, len(stream)):
        frames = fed([stream[:cut], stream[cut:]])
        told = ["1"] * bool(before) + ["2!", "3", "4", "s-5"]
        assert names(frames) == told or not before, cut
        assert before or [
            one.bare().headers["ack"]
            for one in frames
            if isinstance(one, MessageFrame) and not one.unsure
        ] == ["3", "4"]


def test_a_length_and_a_name_that_take_the_ack_out_of_the_next_message() -> None:
    """What is left of that one looks like a message, with a name for its `ack`: that of a message behind it."""
    lines = written(2, b"two").split(b"\n")
    lines.insert(lines.index(b"ack:2") + 1, b"a\0\nMESSAGE\nexpires:0\nack:3\n:1")
    two = b"\n".join(lines)
    taken = b"one\0\n" + two[: two.index(b"\0")]
    stream = written(1, b"one", b"a\ncontent-length:%d\nb:1" % len(taken)) + two
    stream += written(3, b"three") + receipt(4)
    for cut in some(range(1, len(stream))):
        frames = fed([stream[:cut], stream[cut:]])
        assert names(frames) == ["1!", "2!", "3", "s-4"], cut
        assert frames[2].body == b"three"


def test_a_length_and_a_name_that_take_what_tells_the_order_out_of_the_next_message() -> None:
    """Where `ack` comes behind the mark, `priority` stands before it, unless it was taken in."""
    name = b"a\0\nMESSAGE\nack:4\n:1"
    two = ordered(256, 2, b"two", (1, name))
    taken = b"one\0\n" + two[: two.index(b"\0")]
    stream = written(1, b"one", b"a\ncontent-length:%d\nb:1" % len(taken)) + two
    stream += written(3, b"three") + receipt(4)
    for cut in some(range(1, len(stream))):
        told = [one.rstrip("!") for one in names(fed([stream[:cut], stream[cut:]]))]
        assert told == ["1", "2", "3", "s-4"], cut


def taken_in(one: bytes, two: bytes) -> bytes:
    """The first message, with a length that takes in the second one up to its NUL, and that one."""
    length = len(b"one\0\n") + two.index(b"\0")
    return one.replace(b"\n", b"\na\ncontent-length:%d\nb:1\n" % length, 1) + two


def test_a_length_and_an_error_in_a_name_that_make_the_rest_of_the_next_message_an_error() -> None:
    """Its mark shows that it is none: nobody would be handed that message, and nobody settle it."""
    name = b"a\0\nERROR\nmessage:no\ncontent-type:text/plain\n:1"
    two = ordered(64, 3, b"two", (2, name))
    stream = written(1, b"whole") + taken_in(ordered(64, 2, b"one"), two)
    stream += written(4, b"four") + receipt(5)
    for cut in some(range(1, len(stream))):
        frames = fed([stream[:cut], stream[cut:]])
        told = [one.rstrip("!") for one in names(frames)]
        assert told == ["1", "2", "3", "4", "s-5"], cut
        assert frames[3].body == b"four"


@pytest.mark.parametrize("before", [b"", written(1, b"whole")])
def test_a_length_of_what_a_browser_is_shown_takes_in_the_next_message(before: bytes) -> None:
    """What is left of that one names the `ack` of another, which a consumer of the same link has not seen yet."""
    two = ordered(64, 3, b"two", (3, b"a\0\nMESSAGE\nack:5\n:1"))
    shown = ordered(64, 2, b"one").replace(b"ack:2\n", b"")
    stream = before + taken_in(shown.replace(b"subscription:1", b"subscription:2"), two)
    stream += written(4, b"four") + written(5, b"five") + receipt(6)
    for cut in some(range(1, len(stream))):
        splitter = Splitter(heads=HEADS)
        splitter.feed(CONNECTED)
        splitter.mark = MARK
        splitter.unnumbered.add(b"subscription:2")
        frames = splitter.feed(stream[:cut]) + splitter.feed(stream[cut:])
        heads = [one.bare().headers for one in frames if isinstance(one, MessageFrame)]
        acks = [head["ack"] for head in heads if head["subscription"] == "1"]
        assert acks == ["1"] * bool(before) + ["3", "4", "5"], cut


def test_what_a_browser_is_shown_may_hold_a_frame() -> None:
    """Where its length is true, and no `ack` is taken in, nothing is lost."""
    body = b"a\0\nMESSAGE\nx:1\n\nb\0\nc"
    shown = written(1, body, b"content-length:%d" % len(body)).replace(b"ack:1\n", b"")
    splitter = Splitter(heads=HEADS)
    splitter.feed(CONNECTED)
    splitter.mark = MARK
    splitter.unnumbered.add(b"subscription:1")
    first, _ = splitter.feed(shown + receipt(2))
    assert first.body == body


@pytest.mark.parametrize("head", [b"x:1", b"message:no", b"content-type:text/plain"])
def test_an_error_that_is_not_as_the_broker_writes_it(head: bytes) -> None:
    """A sender wrote it into a body: it is no ERROR, and no end of that body."""
    stream = written(1, b"one\0\nERROR\n" + head + b"\n\nb") + written(2, b"two") + receipt(3)
    frames = fed([stream])
    assert names(frames) == ["1!", "2", "s-3"]
