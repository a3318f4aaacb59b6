"""
A `receive()` that is interrupted anywhere loses no message, and acknowledges none that nobody got.

Each program here is run once for every step of the core, and that step raises (interrupts.py). What the driver does
then is done, and the books of a small broker are looked at.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from jmsx.core.delivery import Held
from jmsx.core.events import DeadLetterFailed, MessagesAcknowledged
from jmsx.core.ledger import StoreKey
from jmsx.core.values import Failure, OptimizeAcknowledge
from jmsx.drivers.hand_outs import AGAIN, HandOuts
from tests.depth import some
from tests.unit.core.harness import (
    AUTO,
    BROKEN,
    CLIENT,
    DISCARDED,
    DUPLICATE,
    INDIVIDUAL,
    TRANSACTED,
    WALL,
    Talk,
    at_most,
    copies,
    dead_letters,
)
from tests.unit.core.test_ledger import Book, known_as
from tests.unit.interrupts import Alarm, Interrupt

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx.core.delivery import Delivery
    from jmsx.core.frames import Frame
    from jmsx.core.modes import AcknowledgeMode

#: What is interrupted.
CORE = ("/jmsx/core/", "/jmsx/drivers/")

#: A program with fewer steps than this is not followed through the core.
ENOUGH = 200

#: Attempts of the driver to give back what a `receive()` had been given.
TRIES = 5

#: Expired before it came, as the broker says in epoch milliseconds.
EXPIRED = {"expires": str(round((WALL - 1) * 1000))}


class Books:
    """What a broker with cumulative ACKs knows of the messages of one queue, from the frames that it is sent."""

    def __init__(self, *names: str, single: bool) -> None:
        self.single = single
        self.mine = list(names)  #: in the order of the queue
        self.dead: list[str] = []
        self.done: list[str] = []
        self._open: dict[str, list[Frame]] = {}  #: by transaction
        self._copied: list[str] = []

    def read(self, frame: Frame) -> None:
        """Take one frame."""
        wire = frame.headers.get("transaction", "")
        if frame.command == "BEGIN":
            self._open[wire] = []
        elif frame.command == "ABORT":
            del self._open[wire]
        elif frame.command == "COMMIT":
            for one in self._open.pop(wire):
                self._do(one)
        elif wire:
            self._open[wire].append(frame)
        else:
            self._do(frame)

    def lose(self) -> None:
        """The link is gone."""
        self._open.clear()

    def _do(self, frame: Frame) -> None:
        if frame.command == "SEND":
            self.dead.append(frame.body.decode())
        elif frame.command == "NACK":
            self.dead.append(frame.headers["id"])
            self.mine.remove(frame.headers["id"])
        elif frame.command == "ACK" and frame.headers["id"] in self.mine:
            upto = self.mine.index(frame.headers["id"])
            gone = self.mine[upto : upto + 1] if self.single else self.mine[: upto + 1]
            self.done += gone
            self.mine = [one for one in self.mine if one not in gone]


class Program(Talk):
    """A session that is driven as the engine does it, on the thread where signal handlers run."""

    def __init__(
        self,
        mode: AcknowledgeMode,
        messages: dict[str, dict[str, str]],
        *,
        single: bool = False,
        book: Book | None = None,
        **settings: Any,
    ) -> None:
        self.hand_outs = HandOuts(book)
        self.book = book
        self.messages = messages
        self.books = Books(*messages, single=single or mode is INDIVIDUAL)
        self._done = 0
        self.last: Delivery | None = None
        self.drops = 0
        super().__init__(mode, single=single)
        self.subscribe(**settings)
        self._come()

    def _come(self, **headers: str) -> None:
        for name in self.books.mine:
            self.comes(name, to="1", wall=None, **self.messages[name], **headers)

    def recorded(self, told: Any) -> None:
        """As the engine."""
        self.hand_outs.record(told)

    def settle(self) -> None:
        """What the core has written reaches the broker, which answers."""
        self.wrote()
        for frame in self.frames[self._done :]:
            self.books.read(frame)
        self._done = len(self.frames)
        while self._asked:
            self.answer()
            self.settle()

    def returned(self, interrupt: Interrupt) -> str | None:
        """What one `receive()` returns."""
        held = Held()
        try:
            name: str | None = interrupt.run(lambda: self._receive(held))
        except Alarm:
            self._give_back(held, interrupt)
            raise
        else:
            if self.last is not None and self.mode is INDIVIDUAL:
                self.core.acknowledge(self.last, self.now)
            return name
        finally:
            self.settle()

    def _receive(self, held: Held) -> str | None:
        delivery = self.hand_outs.deliver(self.core, ["1"], self.now, held)
        if delivery is None:
            return None
        self.core.consumed(delivery, self.now, returning=True)
        self.last = delivery
        return delivery.message_id

    def _give_back(self, held: Held, interrupt: Interrupt) -> None:
        """As the engine."""
        for _ in range(TRIES):
            try:
                if not interrupt.run(lambda: self.core.take_back(held)):
                    self.drop()
            except Alarm:
                continue
            return
        self.drop()

    def drop(self) -> None:
        """Drop the link, and get what is the broker's again on the next one."""
        self.settle()
        self.drops += 1
        self.cut()
        self.books.lose()
        self.core.take_actions()
        self.reopen()
        self._come(redelivered="true")

    def finish(self) -> None:
        """The application is done with all that it got."""
        if self.mode is TRANSACTED:
            self.commit()
        elif self.last is not None:
            self.core.acknowledge(self.last, self.now)
        self.now += 1
        self.core.handle_timer(self.now)
        self.settle()


def run(make: Callable[[], Program], *at: int) -> tuple[Interrupt, Program, list[str]]:
    """Receive all there is, while the steps `at` raise; what a transaction lost with its link is received again."""
    interrupt, program = Interrupt(*at, within=CORE), make()
    seen: list[str] = []
    for _ in range(2):
        receive_all(program, interrupt, seen)
        program.finish()
    return interrupt, program, seen


def receive_all(program: Program, interrupt: Interrupt, seen: list[str]) -> None:
    """Until there is nothing any more."""
    for _ in range(40):
        with suppress(Alarm):
            name = program.returned(interrupt)
            if name is not None:
                seen.append(name)
            elif program.book is not None and program.hand_outs.withheld:
                program.now += AGAIN
                program.book.away = False
            else:
                return


def wrong(program: Program, seen: list[str]) -> str | None:
    """What is wrong with the books."""
    names, books = list(program.messages), program.books
    lost = [one for one in names if one not in seen + books.mine + books.dead]
    twice = [one for one in names if (seen + books.dead).count(one) > 1]
    if lost:
        return f"lost {lost}"
    if books.mine:
        return f"never settled {books.mine}"
    if program.drops:
        return None
    if twice:
        return f"twice {twice}"
    if seen != [one for one in names if one in seen]:
        return f"out of order {seen}"
    return None


Messages = dict[str, dict[str, str]]

PLAIN: Messages = {"a": {}, "b": {}}
THREE: Messages = {**PLAIN, "c": {}}


def away() -> Book:
    """A ledger that cannot be written at first."""
    book = Book()
    book.away = True
    return book


def over(name: str) -> dict[str, Any]:
    """A ledger that knows of too many deliveries of `name`."""
    return {"book": Book(**{name: 5}), "policy": at_most(2)}


PROGRAMS: dict[str, Callable[[], Program]] = {
    "auto": lambda: Program(AUTO, PLAIN),
    "auto, single acks": lambda: Program(AUTO, PLAIN, single=True),
    "auto, in batches": lambda: Program(AUTO, PLAIN, optimize=OptimizeAcknowledge()),
    "auto, in batches of single acks": lambda: Program(
        AUTO, THREE, single=True, prefetch=3, optimize=OptimizeAcknowledge()
    ),
    "client": lambda: Program(CLIENT, PLAIN),
    "individual": lambda: Program(INDIVIDUAL, PLAIN),
    "transacted": lambda: Program(TRANSACTED, PLAIN),
    "auto, ledger away": lambda: Program(AUTO, PLAIN, book=away()),
    "client, ledger away": lambda: Program(CLIENT, PLAIN, book=away()),
    "transacted, ledger away": lambda: Program(TRANSACTED, PLAIN, book=away()),
    "auto, over the limit": lambda: Program(AUTO, PLAIN, **over("a")),
    "transacted, over the limit": lambda: Program(TRANSACTED, PLAIN, **over("b")),
    "client, copied": lambda: Program(CLIENT, {"java-a": {}, "b": {}}, **over("java-a")),
    "individual, copied": lambda: Program(INDIVIDUAL, {"java-a": {}, "b": {}}, **over("java-a")),
    "client, expired": lambda: Program(CLIENT, {"a": {}, "b": EXPIRED, "c": {}}),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_receive_that_is_interrupted_at_any_step(name: str) -> None:
    """Each message is returned once, or comes again on another link."""
    make = PROGRAMS[name]
    interrupt, program, seen = run(make)
    assert (wrong(program, seen), program.drops) == (None, 0)
    assert interrupt.steps > ENOUGH
    found = {step: wrong(*run(make, step)[1:]) for step in some(range(1, interrupt.steps + 1))}
    assert {step: why for step, why in found.items() if why is not None} == {}


@pytest.mark.parametrize("name", ["auto, ledger away", "client, ledger away"])
def test_so_is_taking_back(name: str) -> None:
    """The second one comes while the driver puts things right, and wherever that has come to."""
    make = PROGRAMS[name]
    last = run(make)[0].steps
    twice = [(step, step + more) for step in range(1, last + 1, 5) for more in range(1, 40, 2)]
    found = {at: wrong(*run(make, *at)[1:]) for at in some(twice)}
    assert {at: why for at, why in found.items() if why is not None} == {}


def test_a_consumer_that_closes_then_acknowledges_what_was_returned() -> None:
    """AUTO acknowledges at its end what was handed out: not what a receive() was interrupted with."""
    for step in some(range(1, run(PROGRAMS["auto, ledger away"])[0].steps + 1)):
        program, interrupt = PROGRAMS["auto, ledger away"](), Interrupt(step, within=CORE)
        seen: list[str | None] = []
        for _ in range(2):
            with suppress(Alarm):
                seen.append(program.returned(interrupt))
        program.core.close_consumer("1", program.now)
        program.settle()
        assert set(program.books.done) <= set(seen), step


@pytest.mark.parametrize(
    ("mode", "settings"),
    [
        (AUTO, {}),
        (AUTO, {"single": True}),
        (AUTO, {"optimize": OptimizeAcknowledge()}),
        (CLIENT, {}),
        (INDIVIDUAL, {}),
        (TRANSACTED, {}),
    ],
)
def test_it_is_no_failure_if_the_process_ends_by_it(
    mode: AcknowledgeMode, settings: dict[str, Any]
) -> None:
    """What the broker still has then, and nobody got, the ledger counts no failure of."""

    def make() -> Program:
        return Program(mode, PLAIN, book=Book(), **settings)

    failed: dict[int, Any] = {}
    for step in some(range(1, run(make)[0].steps + 1)):
        program, interrupt = make(), Interrupt(step, within=CORE)
        seen: list[str | None] = []
        with suppress(Alarm):
            seen.extend(program.returned(interrupt) for _ in PLAIN)
        program.core.close_consumer("1", program.now)
        program.settle()
        assert program.book is not None
        program.book.die()
        unseen = [name for name in program.books.mine if name not in seen]
        entries = [program.book.begin(StoreKey("queue://q", known_as(one))) for one in unseen]
        failures = sum(one.failures for one in entries if one is not None)
        if failures:
            failed[step] = failures
    assert failed == {}


class Cut(Program):
    """The link is lost before the driver has put right what was interrupted."""

    def _give_back(self, held: Held, interrupt: Interrupt) -> None:
        self.settle()
        self.drops += 1
        self.cut()
        self.books.lose()
        self.core.take_actions()
        super()._give_back(held, interrupt)
        self.reopen()
        self._come(redelivered="true")

    def drop(self) -> None:
        """There is nothing to drop."""


@pytest.mark.parametrize("settings", [{}, {"optimize": OptimizeAcknowledge()}])
def test_so_is_one_whose_link_is_lost_then(settings: dict[str, Any]) -> None:
    """Whatever became of the ACK: the message is handed out again."""

    def make() -> Cut:
        return Cut(AUTO, PLAIN, **settings)

    last = run(make)[0].steps
    found = {step: wrong(*run(make, step)[1:]) for step in some(range(1, last + 1))}
    assert {step: why for step, why in found.items() if why is not None} == {}


def interrupted(talk: Talk) -> Delivery:
    """A `receive()` has acknowledged a message, and was interrupted then: it waits again."""
    held = Held()
    talk.comes("a")
    delivery = talk.core.handing_out.deliver(["1"], talk.now, held)
    assert delivery is not None
    talk.core.consumed(delivery, talk.now, returning=True)
    assert talk.core.take_back(held)
    return delivery


@pytest.mark.parametrize("failure", [DISCARDED, DUPLICATE])
def test_an_ack_of_an_interrupted_receive_is_told_once(failure: Failure) -> None:
    """A listener then says that the message need not be handled; there is nothing left to acknowledge."""
    talk = Talk(AUTO)
    talk.subscribe()
    interrupted(talk)
    assert talk.listen(failure) == "a#1"
    assert talk.wrote() == ["ACK a"]
    assert [one.messages for one in talk.reported(MessagesAcknowledged)] == [1]


@pytest.mark.parametrize("lost", [None, "waiting", "handling"])
def test_a_listener_that_fails_on_what_such_a_receive_had_acknowledged(lost: str | None) -> None:
    """It is handed out again, on whatever link, and no ACK is written once more for it."""
    talk = Talk(AUTO)
    talk.subscribe(policy=at_most(1))
    delivery = interrupted(talk)
    assert talk.wrote() == ["ACK a"]
    again = talk.held() if lost != "waiting" else None
    if lost is not None:
        talk.cut()
        talk.reopen()
    again = talk.held() if again is None else again
    talk.core.failed(again, BROKEN, talk.now)
    assert talk.take() is delivery
    talk.core.close_consumer("1", talk.now)
    assert talk.wrote() == ["UNSUBSCRIBE 1 ?"]


@pytest.mark.parametrize("dead_letter", ["safe", "broker"])
@pytest.mark.parametrize("lost", [False, True])
def test_such_a_message_that_fails_past_its_limit(dead_letter: str, *, lost: bool) -> None:
    """The broker has nothing left to move, so a copy is sent: on the next link, if this one is lost first."""
    talk = Talk(AUTO, dead_letter=dead_letter)
    talk.subscribe(policy=at_most(0))
    interrupted(talk)
    talk.wrote()
    talk.core.failed(talk.held(), BROKEN, talk.now)
    if lost:
        assert talk.wrote() == copies("a")
        talk.cut()
        talk.reopen()
        assert talk.take() is None
    assert talk.wrote() == copies("a", number=1 + lost)
    talk.answer()
    assert talk.wrote() == [f"COMMIT in jmsx-dead-{1 + lost} ?"]
    talk.answer()
    assert dead_letters(talk) == [("a", 1, "max_redeliveries", "queue://ActiveMQ.DLQ", True)]
    assert talk.ended() == ["a#1 acknowledged"]
    assert talk.take() is None


@pytest.mark.parametrize("closed", [True, False])
def test_what_such_a_receive_had_acknowledged_and_has_no_copy_when_its_link_is_lost(
    *, closed: bool
) -> None:
    """An open consumer gets it once more, and makes the copy again; of a closed one it is told that it may be lost."""
    talk = Talk(AUTO, dead_letter="queue://dead")
    talk.subscribe(policy=at_most(0))
    interrupted(talk)
    assert talk.listen(BROKEN) == "a#1"
    assert talk.wrote() == ["ACK a", *copies("a", to="queue:dead")]
    if closed:
        talk.core.close_consumer("1", talk.now)
    talk.cut()
    told = [one.reason for one in talk.reported(DeadLetterFailed)]
    assert any("may be lost" in one for one in told) is closed
    talk.reopen()
    if not closed:
        assert talk.take() is None
        assert talk.wrote() == copies("a", to="queue:dead", number=2)


def test_no_exception_stays_behind_an_interrupt() -> None:
    """Else it would be the context of all that the tests behind this one raise."""

    def leave_in_except() -> None:
        try:
            int("a")
        except ValueError:
            return

    for step in range(1, 10):
        with suppress(Alarm):
            Interrupt(step, within=(__file__,)).run(leave_in_except)
        assert sys.exc_info() == (None, None, None), step
