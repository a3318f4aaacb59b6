"""Looking into a queue takes nothing out of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from jmsx.errors import ConnectionFailedError
from jmsx_classic import DIALECT
from tests.unit.core.harness import AUTO, WALL, Talk, called

if TYPE_CHECKING:
    from jmsx.core.requests import Request


def browse(talk: Talk, name: str = "9") -> Request:
    """Begin to look into `queue://q`."""
    headers = DIALECT.writing.browse_headers(destination="queue://q", prefetch=10, selector=None)
    return talk.core.browsers.open(name, "queue://q", headers)


def look(talk: Talk, name: str = "9") -> tuple[str | None, bool]:
    """What the browser sees next, and whether that was all."""
    delivery, ended = talk.core.browsers.look(name)
    return (None if delivery is None else called(delivery)), ended


def test_browser_sees_each_message_and_then_the_end() -> None:
    """The end is a MESSAGE that says so (BROKER.md C18); nothing is acknowledged."""
    talk = Talk(AUTO, dialect=DIALECT)
    request = browse(talk)
    assert talk.wrote() == ["SUBSCRIBE 9 ?"]
    talk.answer()
    assert request.done
    assert look(talk) == (None, False)
    talk.comes("a", "b", to="9")
    talk.comes("0", to="9", browser="end")
    assert [look(talk), look(talk), look(talk), look(talk)] == [
        ("a#1", False),
        ("b#1", False),
        (None, True),
        (None, True),
    ]
    assert talk.wrote() == []
    assert talk.ended() == []


def test_what_may_be_a_map_is_no_empty_text() -> None:
    """Where the last link has ended in a way that has nothing translated on the next one."""
    for reopened in (False, True):
        talk = Talk(AUTO, dialect=DIALECT)
        if reopened:
            talk.cut()
            talk.core.ended_by_translation()
            talk.reopen()
        browse(talk)
        talk.answer()
        talk.comes("a", to="9", transformation="jms-map-xml", body="")
        talk.comes("0", to="9", browser="end")
        shown, _ = talk.core.browsers.look("9")
        assert shown is not None
        assert DIALECT.reading.carries(shown.headers, shown.frame.body) is not reopened
        assert look(talk) == (None, True)


def test_browser_closes_by_unsubscribe() -> None:
    """What is still on its way is let go."""
    talk = Talk(AUTO, dialect=DIALECT)
    browse(talk)
    talk.wrote()
    talk.answer()
    assert not talk.core.idle
    request = talk.core.browsers.close("9", "queue://q")
    assert talk.wrote() == ["UNSUBSCRIBE 9 ?"]
    talk.comes("a", to="9")
    talk.answer()
    assert request.done
    assert talk.core.idle


def test_what_was_taken_is_acknowledged_before_the_end() -> None:
    """One who looks to take leaves nothing, and nothing that the broker would acknowledge behind UNSUBSCRIBE."""
    talk = Talk(AUTO, dialect=DIALECT)
    browse(talk)
    talk.wrote()
    talk.answer()
    talk.comes("a", to="9")
    taken, _ = talk.core.browsers.look("9")
    talk.core.browsers.close("9", "queue://q", taken)
    assert talk.wrote() == ["ACK a", "UNSUBSCRIBE 9 ?"]


def test_browser_and_consumer_do_not_mix() -> None:
    """Each gets its own messages."""
    talk = Talk(AUTO, dialect=DIALECT)
    browse(talk)
    talk.wrote()
    talk.answer()
    talk.subscribe("1")
    talk.comes("a", to="9")
    talk.comes("b", to="1")
    assert talk.drain() == ["b#1"]
    assert look(talk) == ("a#1", False)


def test_browser_ends_with_its_link() -> None:
    """A new link has none; who looks on is told, unless it is closed or opened anew."""
    talk = Talk(AUTO, dialect=DIALECT)
    browse(talk)
    browse(talk, "10")
    talk.cut()
    assert len(talk.core.browsers) == 0
    assert talk.core.idle
    told = f"the connection to {talk.core.settings.broker} was lost while queue://q was browsed; browse it again"
    with pytest.raises(ConnectionFailedError, match=re.escape(told)):
        look(talk)
    talk.reopen()
    talk.wrote()
    browse(talk)
    assert look(talk) == (None, False)
    assert talk.core.browsers.close("10", "queue://q").done
    assert look(talk, "10") == (None, True)


def test_what_settles_a_message_is_of_no_matter_to_a_browser() -> None:
    """Its link is not given up to learn that, or nobody could look behind the message."""
    talk = Talk(AUTO, dialect=DIALECT)
    browse(talk)
    talk.answer()
    talk.wrote()
    frame = talk.message("a", to="9").truncated("two ack headers")
    frame.unsure = True
    talk.core.receive([frame], talk.now, WALL)
    assert talk.wrote() == []
    delivery, _ = talk.core.browsers.look("9")
    assert delivery is not None
    assert delivery.dead_letter_cause is not None
