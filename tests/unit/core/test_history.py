"""The merge of all who know how often a message was delivered before."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from jmsx.core.delivery import Delivery
from jmsx.core.frames import MessageFrame
from jmsx.core.history import FLAGGED, NEW, History, Lost, Remembered, merge
from jmsx.core.ledger import Entry, StoreKey


def entry(number: int, finished: int = 0) -> Entry:
    """A hand-out in the ledger."""
    return Entry(StoreKey("queue://q", "a"), number, finished)


#: Who knows what, and the deliveries and failures before this one that come of it.
KNOWN: dict[str, tuple[dict[str, Any], int, int]] = {
    "nobody": ({}, 0, 0),
    "the flag is a guess": ({"flagged": True}, 1, 0),
    "what was sent back has failed": ({"sent_back": 2}, 2, 2),
    "the flag adds nothing to that": ({"sent_back": 2, "flagged": True}, 2, 2),
    "the session of a lost link": ({"lost": Lost(3, 2, refused=False)}, 3, 2),
    "it never handed it out": ({"lost": Lost(0, 0, refused=False), "flagged": True}, 0, 0),
    "the process": ({"remembered": Remembered(4, 1)}, 4, 1),
    "the process saw it unseen": ({"remembered": Remembered(0, 0), "flagged": True}, 0, 0),
    "the process knows less than was sent back": (
        {"sent_back": 3, "remembered": Remembered(1, 1)},
        3,
        3,
    ),
    "the session counts more": (
        {"lost": Lost(2, 2, refused=False), "remembered": Remembered(2, 0)},
        2,
        2,
    ),
    "another session had it meanwhile": (
        {"lost": Lost(2, 2, refused=False), "remembered": Remembered(3, 1)},
        3,
        1,
    ),
    "the ledger": ({"entry": entry(4, 1), "flagged": True}, 3, 2),
    "its first hand-out": ({"entry": entry(1), "flagged": True}, 0, 0),
    "the ledger counts from where it was sent back": ({"sent_back": 2, "entry": entry(2)}, 3, 3),
    "the ledger knows more than the process": (
        {"remembered": Remembered(1, 1), "entry": entry(5, 1)},
        4,
        3,
    ),
    "the process knows as much as the ledger": (
        {"remembered": Remembered(3, 1), "entry": entry(3)},
        3,
        1,
    ),
    "the ledger has forgotten what was settled": (
        {
            "flagged": True,
            "lost": Lost(1, 0, refused=False),
            "remembered": Remembered(1, 0),
            "entry": entry(1),
        },
        1,
        0,
    ),
    "the process knows of the flag alone, which is a guess": (
        {"remembered": Remembered(1, 0, only_flagged=True)},
        1,
        0,
    ),
    "the ledger knows more than that": (
        {"remembered": Remembered(1, 0, only_flagged=True), "entry": entry(1)},
        0,
        0,
    ),
    "the ledger knows more than the session": (
        {"lost": Lost(1, 1, refused=False), "entry": entry(3)},
        2,
        2,
    ),
    "a refused commit is certain": (
        {"lost": Lost(3, 3, refused=True), "entry": entry(2, 1)},
        3,
        3,
    ),
    "the process may be told of fewer than failed": ({"remembered": Remembered(1, 2)}, 1, 2),
}


@pytest.mark.parametrize(("known", "deliveries", "failures"), KNOWN.values(), ids=KNOWN)
def test_merge(known: dict[str, Any], deliveries: int, failures: int) -> None:
    """One count and one number of failures come of all that is known."""
    history = merge(**{"flagged": False, **known})
    assert (history.deliveries, history.failures) == (deliveries, failures)
    assert history.on_arrival == deliveries


def test_what_nobody_explains_is_told_as_redelivered() -> None:
    """The session and the process know whether the application saw it; a ledger knows hand-outs of this host alone."""
    known: dict[str, Any] = {
        "lost": Lost(0, 0, refused=False),
        "remembered": Remembered(0, 0),
        "entry": entry(1),
    }
    unexplained = {
        name for name, what in known.items() if merge(flagged=True, **{name: what}).flag_unexplained
    }
    assert unexplained == {"entry"}
    assert not merge(flagged=False).flag_unexplained


def test_what_the_flag_alone_tells_is_a_guess() -> None:
    """Whoever else knows of deliveries knows their number."""
    known: dict[str, Any] = {
        "sent back": {"sent_back": 1},
        "lost": {"lost": Lost(1, 0, refused=False)},
        "remembered": {"remembered": Remembered(1, 0)},
        "counted": {"entry": entry(2)},
        "nobody": {},
        "lost, as it came": {"lost": Lost(1, 0, refused=False, flag_unexplained=True)},
        "remembered, as it came": {"remembered": Remembered(2, 1, guessed=True)},
        "lost, and another session's": {
            "lost": Lost(1, 0, refused=False),
            "remembered": Remembered(2, 1, guessed=True),
        },
        "lost again": {
            "lost": Lost(2, 1, refused=False),
            "remembered": Remembered(2, 1, guessed=True),
        },
        "remembered, and counted": {
            "remembered": Remembered(2, 1, guessed=True),
            "entry": entry(3),
        },
    }
    guessed = {name for name, what in known.items() if merge(flagged=True, **what).guessed}
    assert guessed == {
        "nobody",
        "lost, as it came",
        "remembered, as it came",
        "lost, and another session's",
    }
    assert not merge(flagged=False).guessed


def test_constants_are_what_the_merge_makes() -> None:
    """Nearly every message has one of these, so they are made once."""
    assert merge(flagged=False) == NEW
    assert merge(flagged=True) == FLAGGED


def test_what_is_certain_is_never_taken_back() -> None:
    """Whatever the process and a ledger say: what was sent back, or refused, stays counted."""
    losses = [None, Lost(0, 0, refused=False), Lost(3, 2, refused=True)]
    memories = [None, *(Remembered(each, 0) for each in range(5))]
    entries = [None, *(entry(each) for each in range(1, 5))]
    for sent_back, lost, remembered, counted in product(range(4), losses, memories, entries):
        history = merge(
            flagged=True, sent_back=sent_back, lost=lost, remembered=remembered, entry=counted
        )
        told = lost.deliveries if lost is not None else sent_back
        certain = told if lost is None or lost.refused else 0
        assert history.deliveries >= certain


def test_deliveries_that_follow() -> None:
    """One that failed counts towards the limit, and so does none that was undone."""
    history = History(2, 1, on_arrival=2)
    assert history.failed()[:3] == (3, 2, 2)
    assert history.undone()[:3] == (3, 1, 2)
    assert history.not_failed()[:3] == (2, 0, 2)


def test_everybody_is_asked_once() -> None:
    """What the ledger says at a later hand-out of the same delivery is that hand-out, and changes no count."""
    delivery = Delivery.of(
        MessageFrame.of({"subscription": "s"}), 1, "m", epoch=1, now=0.0, wall=0.0
    )
    delivery.begin_hand_out(Remembered(2, 1), None)
    assert (delivery.delivery_count, delivery.failures, delivery.entry) == (3, 1, None)
    delivery.history = delivery.history.failed()
    delivery.begin_hand_out(Remembered(7, 7), entry(1))
    assert (delivery.delivery_count, delivery.failures, delivery.entry) == (4, 2, entry(1))
