"""Which message this is: what vouches for a key, and what decides where nothing does."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from jmsx.core.delivery import Delivery
from jmsx.core.events import DeliveryEnded, MessageSent
from jmsx.core.frames import MessageFrame
from jmsx.core.headers import COUNT_HEADER, DIGEST_HEADER, KEY_HEADER
from jmsx.core.identity import count, identify, stamp
from jmsx_artemis import DIALECT as ARTEMIS
from jmsx_classic import DIALECT as CLASSIC
from tests.unit.core.harness import AUTO, CLIENT, TRANSACTED, Talk, at_most

if TYPE_CHECKING:
    from jmsx.core.delivery import MessageIdentity
    from jmsx.core.dialect import Dialect

both = pytest.mark.parametrize("dialect", [CLASSIC, ARTEMIS], ids=["classic", "artemis"])


def came(
    headers: dict[str, str], body: bytes, dialect: Dialect = CLASSIC, *, subscribed: str = ""
) -> Delivery:
    """A delivery of this frame."""
    given = {"destination": "/queue/q", "message-id": "ID:7", **headers}
    if dialect is ARTEMIS:
        given |= {"destination": "q", "message-id": "3,7", "timestamp": "9"}
    frame = MessageFrame.of(given | headers, body)
    message_id = dialect.reading.message_id(frame.headers)
    return Delivery.of(frame, 1, message_id, epoch=1, now=0, wall=0, subscribed=subscribed)


def known(
    headers: dict[str, str], body: bytes = b"x", dialect: Dialect = CLASSIC, **more: Any
) -> MessageIdentity:
    """What it is known by."""
    return identify(came(headers, body, dialect, **more), dialect.reading)


def made(body: bytes = b"x", to: str = "queue://q", dialect: Dialect = CLASSIC) -> dict[str, str]:
    """The key and what vouches for it, as jmsx sends them."""
    return stamp({}, body, "k", to, dialect.reading)


@both
def test_a_key_counts_for_what_it_was_made_for(dialect: Dialect) -> None:
    """The same key, destination and body: the same message, also when it was sent again."""
    first, again = known(made(), dialect=dialect), known(made(), dialect=dialect)
    assert first == again
    assert (first.key, first.vouched) == ("k", True)


@both
@pytest.mark.parametrize(
    "changed",
    [
        ({}, b"y"),
        ({KEY_HEADER: "other"}, b"x"),
        ({DIGEST_HEADER: "0" * 32}, b"x"),
        ({DIGEST_HEADER: ""}, b"x"),
        ({DIGEST_HEADER: "é"}, b"x"),
        ({KEY_HEADER: ""}, b"x"),
        ({COUNT_HEADER: "3"}, b"x"),
        ({"destination": "/queue/other"}, b"x"),
    ],
    ids=lambda changed: "-".join((*changed[0], changed[1].decode())),
)
def test_else_the_brokers_identity_counts(
    dialect: Dialect, changed: tuple[dict[str, str], bytes]
) -> None:
    """Where anything of that has changed, somebody copied it."""
    headers, body = changed
    identity = known({**made(), **headers}, body, dialect)
    assert (identity.key, identity.vouched) == (("ID:7" if dialect is CLASSIC else "7@9"), False)


def test_a_key_alone_is_anybodys() -> None:
    """A sender that only sets the key, or copies it."""
    assert known({KEY_HEADER: "k"}).key == "ID:7"


def test_equal_keys_with_other_bodies_are_other_messages() -> None:
    """Whoever sends another's key first, with a body of his own and a digest that fits, takes nothing from it."""
    one, two = known(made(b"x"), b"x"), known(made(b"y"), b"y")
    assert (one.key, two.key) == ("k", "k")
    assert one.name != two.name


@both
def test_what_a_sender_sends_twice_is_two_copies(dialect: Dialect) -> None:
    """A store knows that it has it already; who counts, or names outputs, goes by what the broker says of each."""
    sent = made(dialect=dialect)
    one, two, three = (
        known({**sent, **told}, dialect=dialect)
        for told in ({}, {"message-id": "3,8"}, {"timestamp": "10"})
    )
    assert one.name == two.name == three.name
    assert len({one.copy, two.copy, three.copy}) == 3
    assert known(sent, dialect=dialect) == one


def test_equal_ids_with_other_bodies_are_other_messages() -> None:
    """On Classic an application property may have overwritten the broker's id."""
    assert known({}, b"x").name != known({}, b"y").name
    assert known({}, b"x").copy != known({}, b"y").copy


@pytest.mark.parametrize(
    ("to", "headers", "subscribed"),
    [
        ("queue://q?consumer.exclusive=true", {}, ""),
        ("queue://q", {"destination": "/queue/DLQ", "original-destination": "/queue/q"}, ""),
        ("topic://VirtualTopic.A", {"original-destination": "/topic/VirtualTopic.A"}, ""),
        ("queue://q::p", {"destination": "/queue/other"}, "queue://q::p"),
        ("queue://q,r", {"original-destination": "/queue/q,/queue/q,r"}, ""),
        ("queue://q", {"destination": "/queue/D", "jmsx_original_destination": "queue://q"}, ""),
    ],
)
def test_where_it_was_sent_has_many_names(
    to: str, headers: dict[str, str], subscribed: str
) -> None:
    """The frame's destination, the original one, and what the consumer reads."""
    assert known({**made(to=to), **headers}, subscribed=subscribed).vouched


def test_a_huge_key_is_kept_short() -> None:
    """It is written into a ledger, a database and headers of other messages."""
    headers = stamp({}, b"x", "k" * 5000, "queue://q", CLASSIC.reading)
    assert known(headers).key == "ID:7"
    huge = known({"message-id": "m" * 5000})
    assert (len(huge.key), len(huge.copy)) == (32, 65)


def test_what_senders_write_is_not_kept() -> None:
    """A thousand long names of destinations would take what memory there is."""
    of_senders = weakref.WeakSet[Name]()
    for _ in range(5):
        died = Name("queue://" + "x" * 5000)
        of_senders.add(died)
        delivery = came(made(to="queue://elsewhere"), b"x")
        delivery.headers["jmsx_original_destination"] = died
        assert not identify(delivery, CLASSIC.reading).vouched
    del delivery, died
    gc.collect()
    assert not of_senders


class Name(str):
    """A text that can be followed."""

    __slots__ = ("__weakref__",)


def test_without_any_id_nothing_names_it() -> None:
    """A frame that no broker made."""
    assert (known({"message-id": ""}).name, known({"message-id": ""}).copy) == ("", "")


@both
def test_a_map_is_known_by_its_entries(dialect: Dialect) -> None:
    """The broker writes its XML anew."""
    headers, body = dialect.writing.encode_body(
        {"b": 1.5, "ä": "x  <\n", "n": None, "t": True, "l": 2**40}
    )
    sent = stamp(headers, body, "k", "queue://q", dialect.reading)
    written = (
        b"<map>\n  <entry><string>n</string><null/></entry>\n"
        b"  <entry><string>t</string><boolean>true</boolean></entry>"
        b"<entry><string>l</string><long>1099511627776</long></entry>"
        b"<entry><string>\xc3\xa4</string><string>x  &lt;\n</string></entry>"
        b"<entry><string>b</string><double>1.5</double></entry></map>"
    )
    assert known(sent, written, dialect).vouched
    assert not known(sent, written.replace(b"1.5", b"1.25"), dialect).vouched
    assert not known(sent, b"<map>", dialect).vouched


def test_a_count_is_believed_with_its_digest() -> None:
    """Anybody may write one, and copy one."""
    sent = stamp({COUNT_HEADER: "3"}, b"x", "k", "queue://q", CLASSIC.reading)
    assert count(came(sent, b"x"), CLASSIC.reading) == 3
    assert count(came(sent, b"y"), CLASSIC.reading) == 0
    assert count(came({**sent, COUNT_HEADER: "4"}, b"x"), CLASSIC.reading) == 0
    assert count(came({COUNT_HEADER: "4"}, b"x"), CLASSIC.reading) == 0


def test_a_count_that_somebody_wrote_dead_letters_nothing() -> None:
    """Nor is it shown."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=at_most(2))
    talk.comes("a", jmsx_redelivery_count="7")
    assert talk.receive() == "a#1"


def test_a_key_that_was_copied_is_not_told() -> None:
    """The events name the message as the broker does."""
    talk = Talk(AUTO)
    talk.subscribe()
    talk.comes("a", jmsx_key="k")
    talk.drain()
    assert [event.message_key for event in talk.reported(DeliveryEnded)] == ["a"]


def test_a_process_knows_bodies_apart() -> None:
    """Three messages with one id, of which the first failed and was lost with its link."""
    talk = Talk(CLIENT)
    talk.subscribe(policy=at_most(0))
    talk.comes("a", body="1")
    talk.held()
    talk.cut()
    talk.reopen()
    talk.comes("a", body="2")
    assert talk.receive() == "a#1"


@pytest.mark.parametrize("body", [None, "the same"])
def test_outputs_of_inputs_with_one_key_are_three(body: str | None) -> None:
    """
    On Artemis the broker drops an output whose identity it knows: with a copied key, and with a genuine one.

    The event of a send tells its identity.
    """
    talk = Talk(TRANSACTED, dialect=ARTEMIS)
    talk.subscribe()
    copied: dict[str, Any] = {
        name: talk.message("0", key="k").headers[name] for name in (KEY_HEADER, DIGEST_HEADER)
    }
    for number in "123":
        if body is None:
            talk.comes(f"9,{number}", **copied)
        else:
            talk.comes(f"9,{number}", body=body, key="k", number=number)
        talk.held()
        talk.send()
        talk.commit()
        talk.answer()
        talk.answer()
    sent = {one.headers["_AMQ_DUPL_ID"] for one in talk.frames if one.command == "SEND"}
    assert len(sent) == 3
    assert {one.duplicate_id for one in talk.reported(MessageSent)} == sent
