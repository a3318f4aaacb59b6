"""
A message shows as many failures as it has had, whatever ended the links in between.

A transaction fails if it is rolled back, if its commit is refused, and if the broker ends the link over what was sent
in it. It does not fail with its link, nor over what jmsx itself has asked the broker for.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from jmsx_artemis import DIALECT as ARTEMIS
from tests.depth import rounds
from tests.unit.core.harness import BROKEN, CLASSIC, TRANSACTED, Talk

if TYPE_CHECKING:
    from jmsx.core.dialect import Dialect

#: What Artemis says of what was sent in the transaction, and what of anything else.
OF_WORK: Final = "AMQ339011 Error sending message"
OF_OTHERS: Final = (
    "AMQ229014: Did not receive data from /127.0.0.1",
    "AMQ339016 Error creating subscription 1+1",
    "consumer with ID 5 disconnected by server",
)

READERS: Final = ("1", "2")


class Broker:
    """Two queues with a reader each in one session, and what the messages in them have been through."""

    def __init__(self, dialect: Dialect, chance: Random) -> None:
        self.chance = chance
        self.talk = Talk(TRANSACTED, dialect=dialect)
        for one in READERS:
            self.talk.subscribe(one)
        self.speaks = dialect is ARTEMIS  #: it ends links with an ERROR
        self.waiting: dict[str, list[str]] = {one: [] for one in READERS}
        self.sent: dict[str, list[str]] = {one: [] for one in READERS}  #: on this link
        self.held: list[tuple[str, str]] = []  #: reader and message, in this transaction
        self.failures = Counter[str]()
        self.made = 0

    def send(self) -> None:
        """A message comes to a queue, and as many as there are to its reader."""
        reader = self.chance.choice(READERS)
        self.made += 1
        self.waiting[reader].append(f"m{self.made}")
        if self.chance.random() < 0.7:
            self.talk.comes(*self.waiting[reader], to=reader)
            self.sent[reader] += self.waiting[reader]
            self.waiting[reader] = []

    def take(self) -> None:
        """The application takes what is next."""
        reader = self.chance.choice(READERS)
        delivery = self.talk.take(reader)
        if delivery is not None:
            name = delivery.message_id
            assert (name, delivery.failures) == (name, self.failures[name])
            self.talk.core.consumed(delivery, self.talk.now, returning=True)
            self.held.append((reader, name))

    def produce(self) -> None:
        """It sends something."""
        self.talk.send()
        self.talk.wrote()
        while self.talk._asked:  # what may have been sent before waits until the broker knows
            self.talk.answer()

    def commit(self) -> None:
        """What it has done is committed, or refused, or the link ends first, for whatever cause."""
        request = self.talk.commit()
        self.talk.wrote()
        if request.done:
            assert request.error is None
            assert not self.held
            return
        end = self.chance.choice(["well", "refused", "work", "others", "silent"])
        if end == "well":
            while not request.done:
                self.talk.answer()
            assert request.error is None
            for reader, name in self.held:
                self.sent[reader].remove(name)
        elif end == "refused":
            self.talk.refuse("AMQ229032 no right" if self.speaks else "ProtocolException: no")
            self._fail()
        elif self._complains(end):
            self._fail()
        self.held.clear()
        if end != "well":
            self._lose()

    def roll_back(self) -> None:
        """It could not do it."""
        self.talk.rollback(BROKEN)
        self._fail()
        self.held.clear()

    def lose(self) -> None:
        """The link ends, for whatever cause; then the application says how it went."""
        failed = self._complains(self.chance.choice(["work", "others", "silent"]))
        if failed:
            self._fail()
        self._lose()
        if self.chance.random() < 0.5:
            assert self.talk.commit().error is not None or not self.held
        else:
            self.talk.rollback(BROKEN)
            if not failed:
                self._fail()
        self.held.clear()

    def _complains(self, about: str) -> bool:
        """The broker may say ERROR; whether it is over what was sent for what is held."""
        if not self.speaks or about == "silent":
            return False
        self.talk.complain(OF_WORK if about == "work" else self.chance.choice(OF_OTHERS))
        return about == "work"

    def _fail(self) -> None:
        self.failures.update(name for _, name in self.held)

    def _lose(self) -> None:
        self.talk.cut()
        for reader in READERS:
            self.waiting[reader] = self.sent[reader] + self.waiting[reader]
            self.sent[reader] = []
        self.talk.reopen()
        self.talk.wrote()


@pytest.mark.parametrize("seed", range(rounds(60)))
@pytest.mark.parametrize("dialect", [CLASSIC, ARTEMIS], ids=lambda one: str(one.name))
def test_a_message_shows_as_many_failures_as_it_has_had(dialect: Dialect, seed: int) -> None:
    """However transactions, links and what the broker complains of follow each other."""
    chance = Random(seed)
    broker = Broker(dialect, chance)
    acts = [broker.send, broker.take, broker.take, broker.produce]
    acts = [*acts, *acts, broker.commit, broker.commit, broker.roll_back, broker.lose]
    for _ in range(100):
        chance.choice(acts)()
