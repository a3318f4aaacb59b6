"""What the properties of a message may be called, and hold."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

import pytest

from jmsx.core.frames import Frame
from jmsx.core.headers import KEY_HEADER, TYPES_HEADER
from jmsx.errors import MessageFormatError, UnsupportedError
from jmsx.jms.destination import Queue
from jmsx.jms.message import Message
from jmsx.jms.properties import property_headers, property_text, typed
from jmsx.jms.translation import PreparedSend
from jmsx_artemis import DIALECT as ARTEMIS
from jmsx_classic import DIALECT

if TYPE_CHECKING:
    from jmsx.core.dialect import Dialect


def headers(dialect: Dialect = DIALECT, **fields: Any) -> dict[str, str]:
    """The headers of a message with these properties and fields."""
    return property_headers(Message("x", **fields), dialect)


def sent_headers(message: Message, dialect: Dialect) -> dict[str, str]:
    """The headers of the SEND of `message` to a queue."""
    prepared = PreparedSend(Queue("q"), dialect, persistent=True, priority=4)
    return prepared.content(message, "key")[0]


# -- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", ""),
        ("a:b\nc", "a:b\nc"),
        (1, "1"),
        (-1, "-1"),
        (1.5, "1.5"),
        (9999999.0, "9999999.0"),
        (12345678.5, "1.23456785E7"),
        (-1e10, "-1.0E10"),
        (0.00025, "2.5E-4"),
        (-0.0, "-0.0"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (float("nan"), "NaN"),
        (True, "true"),
        (False, "false"),
    ],
)
def test_property_is_a_text_for_others(value: Any, text: str) -> None:
    """As Java writes it, for selectors and Java; jmsx has it back as it was."""
    assert property_text("p", value) == text
    sent = headers(properties={"p": value})
    assert sent.pop("p") == text
    back = typed({"p": text}, sent.get(TYPES_HEADER, ""), ())["p"]
    assert (type(back), repr(back)) == (type(value), repr(value))


class Colour(str, enum.Enum):  # noqa: UP042 - StrEnum prints as the text that it is, and most programs have this
    """A text with a name."""

    RED = "red"
    HOT = "red-hot"


class Level(int, enum.Enum):
    """A whole number with a name."""

    LOW = 1


class Real(float):
    """A float that prints as numpy's do."""

    def __repr__(self) -> str:
        return f"np.float64({float(self)!r})"

    __str__ = __repr__


@pytest.mark.parametrize(
    ("value", "text", "back"),
    [
        (Colour.RED, "red", "red"),
        (Colour.HOT, "red-hot", "red-hot"),
        (Level.LOW, "1", 1),
        (Real(2.5), "2.5", 2.5),
        (Real(1e20), "1.0E20", 1e20),
    ],
)
def test_property_of_a_subclass_is_the_plain_one(value: Any, text: str, back: object) -> None:
    """What equals "red" is found by the selector `colour = 'red'`, however it prints."""
    sent = headers(properties={"p": value})
    assert sent["p"] == text
    assert typed({"p": text}, sent.get(TYPES_HEADER, ""), ())["p"] == back


@pytest.mark.parametrize("dialect", [DIALECT, ARTEMIS])
def test_fields_of_a_subclass_are_the_plain_ones(dialect: Dialect) -> None:
    """On the wire, for a frame's bytes are made of what stands in its headers; also where a property says the same."""
    told = Message(
        Colour.RED,
        correlation_id=Colour.RED,
        type=Colour.RED,
        group_id=Colour.RED,
        group_sequence=Level.LOW,
        properties={"JMSXGroupID": Colour.RED, "JMSXGroupSeq": Level.LOW, Colour.RED: Level.LOW},
    )
    prepared = PreparedSend(Queue("q"), dialect, persistent=True, priority=Level.LOW)
    wire = Frame("SEND", *prepared.content(told, "key")).encode()
    assert b"Colour" not in wire
    assert b"Level" not in wire
    for line in (b"correlation-id:red", b"type:red", b"JMSXGroupID:red", b"JMSXGroupSeq:1"):
        assert b"\n" + line + b"\n" in wire
    assert b"\npriority:1\n" in wire
    assert b"\nred:1\n" in wire
    assert wire.endswith(b"\n\nred\0")


def test_none_is_no_text() -> None:
    """For selectors the property IS NULL; jmsx has it back."""
    sent = headers(properties={"p": None, "t": "x", "n": 1, "m": 2})
    assert sent == {"t": "x", "n": "1", "m": "2", TYPES_HEADER: "n=p i=n,m"}
    assert typed({"t": "x"}, sent[TYPES_HEADER], ()) == {"t": "x", "p": None}


@pytest.mark.parametrize(
    "types",
    [
        "i=p", "f=p", "b=p", "x=p", "p", "=", "i", "i=", "i=,,", "=p", "n=p", "n=message-id", "b=a b", "n=", "n=1a",
        "n=jmsx_key", "n=JMSXDeliveryCount", "i=p i=p f=p", "\n", "i=unknown", "n=reserved", "²=p",
    ],
)  # fmt: skip
def test_what_anybody_wrote_there_does_no_harm(types: str) -> None:
    """What does not fit stays a text, and nothing else is made of it."""
    for text in ("x", "", "1_000", "٣", "9" * 5000, "0x1", "1e5000", "nan", "inf", "TRUE"):
        assert typed({"p": text}, types, ("reserved",)) == {"p": text}


def test_more_types_than_a_header_line_holds() -> None:
    """All of them come as texts then."""
    many = {f"property{number:04}": number for number in range(1000)}
    assert TYPES_HEADER not in headers(properties=many)


@pytest.mark.parametrize("value", [b"x", [1], {}, object()])
def test_other_property_types_are_refused(value: Any) -> None:
    """The error names the property and the type."""
    with pytest.raises(MessageFormatError, match=f"'p' is an? {type(value).__name__};"):
        headers(properties={"p": value})


@pytest.mark.parametrize(
    "value", [2**63, -(2**63) - 1, 2**64, 10**5000], ids=["long", "below", "64 bits", "5000 digits"]
)
def test_whole_numbers_are_those_of_java(value: int) -> None:
    """A longer one could be read by no Java program."""
    with pytest.raises(MessageFormatError, match="p must be a whole number of at most 64 bits"):
        headers(properties={"p": value})
    assert headers(properties={"p": -(2**63)})["p"] == str(-(2**63))


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "destination", "receipt", "transaction", "persistent", "content-length", "amq-msg-type", "id", "ack",
        "correlation-id", "reply-to", "expires", "priority", "type", "message-id", "redelivered", "subscription",
        "timestamp", "transformation", KEY_HEADER,
    ],
)  # fmt: skip
def test_property_never_overwrites_a_header(name: str) -> None:
    """Nor adds one that changes what the frame means, such as a transaction."""
    with pytest.raises(MessageFormatError, match="would overwrite"):
        headers(properties={name: "x"})


@pytest.mark.parametrize("name", ["", "1a", "a b", "a\nb", "a:b", "-a", "a\0", "a\n"])
def test_unfit_property_name_is_refused(name: str) -> None:
    """Classic does not escape names of headers (jmsx_classic/BROKER.md C49), so it would not arrive as it is."""
    with pytest.raises(MessageFormatError, match="not a property name"):
        headers(properties={name: "x"})


@pytest.mark.parametrize(
    "name", ["a", "_a", "$a", "a1", "a.b", "a-b", "JMSXGroupID", "über", "größe", "名前"]
)
def test_fit_property_name_is_carried(name: str) -> None:
    """Java identifiers, and what selectors and console users write."""
    assert headers(properties={name: "v"}) == {name: "v"}


@pytest.mark.parametrize("name", ["JMSPriority", "JMSExpiration", "JMSRedelivered", "JMSReplyTo"])
def test_what_send_sets_is_no_property(name: str) -> None:
    """Java's `send` writes over it; over STOMP it would win, or close the connection (jmsx_classic/BROKER.md C47)."""
    with pytest.raises(MessageFormatError, match="set by send"):
        headers(properties={name: "4"})


def test_the_delivery_count_of_what_came_in_is_not_sent() -> None:
    """A program that copies all properties sends a new message."""
    assert headers(properties={"JMSXDeliveryCount": 7, "a": "b"}) == {"a": "b"}


# -- what the broker reads as a field ---------------------------------------------------------------------------------


def test_a_group_is_given_by_field_or_by_property() -> None:
    """JMS writes it as a property, `Message` has a place for it; both may say the same."""
    group = {"JMSXGroupID": "g", "JMSXGroupSeq": "7"}
    assert headers(group_id="g", group_sequence=7) == group
    assert headers(properties={"JMSXGroupID": "g", "JMSXGroupSeq": 7}) == group
    assert headers(properties=group, group_id="g", group_sequence=7) == group


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("JMSXGroupID", "group_id", "g"),
        ("JMSXGroupSeq", "group_sequence", 7),
        ("JMSType", "type", "t"),
        ("JMSCorrelationID", "correlation_id", "c"),
    ],
)
def test_two_values_for_one_field_are_refused(name: str, field: str, value: Any) -> None:
    """Neither wins in silence."""
    with pytest.raises(MessageFormatError, match=f"{name}.*{field}.*set one"):
        headers(properties={name: 8}, **{field: value})


NUMBERS = [
    pytest.param(dialect, name, id=f"{dialect.name} {name}")
    for dialect in (DIALECT, ARTEMIS)
    for name in ("JMSXGroupSeq", *dialect.numbers)
]


@pytest.mark.parametrize(("dialect", "name"), NUMBERS)
@pytest.mark.parametrize(("value", "text"), [(0, "0"), (7, "7"), ("12", "12"), ("+012", "12")])
def test_numbers_of_the_broker(dialect: Dialect, name: str, value: Any, text: str) -> None:
    """A whole number, also as text, which Java takes too."""
    assert headers(dialect, properties={name: value}) == {name: text}


@pytest.mark.parametrize(("dialect", "name"), NUMBERS)
@pytest.mark.parametrize(
    "value", ["soon", "", " 5", "1.0", 1.5, True, float("nan"), 2**63, "9" * 5000]
)
def test_other_values_are_refused(dialect: Dialect, name: str, value: Any) -> None:
    """Classic closes the connection on them without a word (jmsx_classic/BROKER.md C55)."""
    with pytest.raises(MessageFormatError, match=f"{name} must be a whole number"):
        headers(dialect, properties={name: value})


@pytest.mark.parametrize("dialect", [DIALECT, ARTEMIS], ids=lambda one: one.name)
def test_no_time_is_negative(dialect: Dialect) -> None:
    """As Java says: must not be a negative value."""
    scheduled = [name for name in dialect.numbers if name.startswith("AMQ_SCHEDULED_")]
    assert "AMQ_SCHEDULED_DELAY" in scheduled
    for name in scheduled:
        with pytest.raises(MessageFormatError, match="from 0"):
            headers(dialect, properties={name: -1})


def test_a_negative_sequence_closes_the_group() -> None:
    """ActiveMQ's own meaning of it (jmsx_classic/BROKER.md C16); a number beyond an int has none."""
    assert headers(group_id="g", group_sequence=-1)["JMSXGroupSeq"] == "-1"
    for number in (2**31, -(2**31) - 1, "x", 1.5):
        with pytest.raises(MessageFormatError, match="JMSXGroupSeq must be"):
            headers(group_id="g", group_sequence=number)


@pytest.mark.parametrize("cron", ["0 * * * *", "0,30 1-5 */2 1 0"])
def test_cron_of_five_fields(cron: str) -> None:
    """As the broker's scheduler reads it."""
    message = Message("x", properties={"AMQ_SCHEDULED_CRON": cron})
    assert sent_headers(message, DIALECT)["AMQ_SCHEDULED_CRON"] == cron


@pytest.mark.parametrize("cron", ["", "x y", "* * * *", "* * * * * *", "a * * * *"])
def test_other_crons_are_refused(cron: str) -> None:
    """The broker would close the connection."""
    message = Message("x", properties={"AMQ_SCHEDULED_CRON": cron})
    with pytest.raises(MessageFormatError, match="five fields"):
        sent_headers(message, DIALECT)


# -- what a broker would ignore ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dialect", "properties", "words"),
    [
        (ARTEMIS, {"AMQ_SCHEDULED_PERIOD": 1000}, "does not know AMQ_SCHEDULED_PERIOD"),
        (ARTEMIS, {"AMQ_SCHEDULED_REPEAT": 3}, "does not know AMQ_SCHEDULED_REPEAT"),
        (ARTEMIS, {"AMQ_SCHEDULED_CRON": "0 * * * *"}, "does not know AMQ_SCHEDULED_CRON"),
        (ARTEMIS, {"JMSXGroupSeq": -1}, "does not close a message group"),
        (DIALECT, {"AMQ_SCHEDULED_TIME": 1}, "does not know AMQ_SCHEDULED_TIME"),
    ],
)
def test_what_a_broker_would_ignore_is_refused(
    dialect: Dialect, properties: dict[str, Any], words: str
) -> None:
    """It never silently differs: a message that was to come later, or again, would come now, and once."""
    message = Message("x", properties=properties)
    with pytest.raises(UnsupportedError, match=words):
        sent_headers(message, dialect)


def test_what_both_know_is_carried() -> None:
    """A delay, and the sequence of a group that goes on."""
    message = Message("x", properties={"AMQ_SCHEDULED_DELAY": 5}, group_id="g", group_sequence=2)
    for dialect in (DIALECT, ARTEMIS):
        told = sent_headers(message, dialect)
        assert told["AMQ_SCHEDULED_DELAY"] == "5"
        assert told["JMSXGroupSeq"] == "2"
