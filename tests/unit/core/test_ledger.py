"""What a ledger's counts do to deliveries: what the application sees, what is a dead letter, what is told back."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from jmsx.core.delivery import Delivery, Held
from jmsx.core.delivery_state import DeliveryState
from jmsx.core.events import MessageDeadLettered
from jmsx.core.headers import COUNT_HEADER
from jmsx.core.identity import identify, stamp
from jmsx.core.ledger import Entry, StoreKey
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.policy import ArtemisRedeliveryPolicy
from jmsx.core.process_memory import ProcessMemory
from jmsx.core.values import DestinationKind
from jmsx.drivers.hand_outs import AGAIN, HandOuts
from jmsx.errors import StoreError
from jmsx_artemis import DIALECT as ARTEMIS
from jmsx_classic import DIALECT
from tests.unit.core.harness import (
    AT_ONCE,
    AUTO,
    BROKEN,
    CLIENT,
    DISCARDED,
    DUPS_OK,
    INDIVIDUAL,
    REJECTED,
    TRANSACTED,
    Talk,
    at_most,
    called,
    copies,
    dead_letters,
    settled,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jmsx.core.dialect import Dialect
    from jmsx.core.frames import Record

MODES = list(AcknowledgeMode)


def known_as(name: str) -> str:
    """What a ledger knows the message `name` of `Talk.message` by."""
    return identify(
        Delivery.of(Talk.message(name), 1, name, epoch=1, now=0, wall=0), DIALECT.reading
    ).copy


class Book:
    """A ledger in memory, which tells what it was told."""

    def __init__(self, **deliveries: int) -> None:
        self.rows = {
            StoreKey("queue://q", known_as(key)): (number, 0) for key, number in deliveries.items()
        }
        self.unseen: Counter[StoreKey] = Counter()
        #: Hand-outs of processes that live, and have not said how that went
        self.held: set[tuple[StoreKey, int]] = set()
        self.waiting: set[tuple[StoreKey, int]] = set()  #: those of them that nobody has seen yet
        self.broken = False
        self.away = False
        self.flushed = 0

    def begin(self, identity: StoreKey) -> Entry | None:
        """Count, unless it is broken, or away."""
        self._check()
        if self.broken:
            return None
        deliveries, finished = self.rows.get(identity, (0, 0))
        self.rows[identity] = (deliveries + 1, finished)
        in_doubt = sum(one == identity for one, _ in self.held)
        self.held.add((identity, deliveries + 1))
        return Entry(identity, deliveries + 1, finished, in_doubt, self.unseen[identity])

    def take(self, identity: StoreKey) -> Entry | None:
        """Count what waits."""
        entry = self.begin(identity)
        if entry is not None:
            self.waiting.add((identity, entry.number))
        return entry

    def reach(self, entries: Iterable[Entry]) -> None:
        """They wait no more."""
        self._check()
        self.waiting.difference_update((one.identity, one.number) for one in entries)

    def die(self) -> None:
        """All processes that have messages are dead."""
        self.unseen.update(identity for identity, _ in self.held & self.waiting)
        self.held.clear()

    def fail(self, entries: Iterable[Entry]) -> None:
        """Doubt no more."""
        self.held.difference_update((one.identity, one.number) for one in entries)

    def finish(self, entries: Iterable[Entry]) -> None:
        """Count as done."""
        self.fail(entries)
        for entry in entries:
            number, finished = self.rows.get(entry.identity, (0, 0))
            if number >= entry.number:
                self.rows[entry.identity] = (number, finished + 1)

    def give_back(self, entries: Iterable[Entry]) -> None:
        """Do not count any more."""
        self.fail(entries)
        self.unseen.update(one.identity for one in entries if one.identity in self.rows)

    def settle(self, entries: Iterable[Entry]) -> None:
        """Forget, unless it was counted again since."""
        for entry in entries:
            if self.rows.get(entry.identity, (0, 0))[0] == entry.number:
                del self.rows[entry.identity]
                del self.unseen[entry.identity]

    def flush(self) -> None:
        """Count."""
        self._check()
        self.flushed += 1

    def _check(self) -> None:
        if self.away:
            raise StoreError("disk is full")

    def told(self) -> dict[str, tuple[int, int]]:
        """Message id -> hand-outs that were seen, and how many of them did not fail."""
        return {
            identity.key.partition("@")[0]: (number - self.unseen[identity], finished)
            for identity, (number, finished) in self.rows.items()
        }


class Counted(Talk):
    """A session whose hand-outs a ledger counts."""

    def __init__(self, mode: AcknowledgeMode, book: Book, **settings: Any) -> None:
        self._hand_outs = HandOuts(book)
        super().__init__(mode, **settings)

    def _deliver(self, consumers: Sequence[str]) -> Delivery | None:
        """As the engine does it."""
        return self._hand_outs.deliver(self.core, consumers, self.now)

    def recorded(self, told: Record) -> None:
        """As the engine does it, when the frames are written."""
        self._hand_outs.record(told)


def start(mode: AcknowledgeMode, book: Book, **settings: Any) -> Counted:
    """A session with one consumer, three deliveries in all."""
    talk = Counted(mode, book)
    talk.subscribe(**{"policy": at_most(2), **settings})
    return talk


@pytest.mark.parametrize("mode", MODES)
def test_counts_go_on_where_the_ledger_is(mode: AcknowledgeMode) -> None:
    """Two processes died of it: this is the third delivery, in every mode, and written before it is handed out."""
    book = Book(a=2)
    talk = start(mode, book)
    talk.comes("a", "b", redelivered="true")
    assert called(talk.held()) == "a#3"
    assert book.told() == {"a": (3, 0)}


@pytest.mark.parametrize("mode", MODES)
def test_merely_prefetched_is_no_delivery(mode: AcknowledgeMode) -> None:
    """A neighbour of the poison starts at 1, also where the limit is 0; that it is flagged is not hidden."""
    book = Book()
    talk = start(mode, book, policy=at_most(0))
    talk.comes("a", redelivered="true")
    delivery = talk.held()
    assert (called(delivery), delivery.redelivered) == ("a#1", True)


@pytest.mark.parametrize("mode", MODES)
def test_over_the_limit_is_dead_lettered_unseen(mode: AcknowledgeMode) -> None:
    """Handed out three times, never settled: dead letter in every mode; the next one is handed out."""
    book = Book(a=3)
    talk = start(mode, book)
    talk.comes("a", "b", redelivered="true")
    assert called(talk.held()) == "b#1"
    assert talk.wrote() == ["NACK a"]
    (dead,) = talk.reported(MessageDeadLettered)
    assert (dead.message_id, dead.attempts, dead.reason) == ("a", 3, "max_redeliveries")
    assert (dead.error_type, "never settled" in dead.error_message) == ("ConsumerDied", True)
    assert book.told() == {"b": (1, 0)}


def test_dead_lettered_unseen_by_copy() -> None:
    """The copy comes first, and the ledger forgets when the broker has confirmed both."""
    book = Book(a=3)
    talk = start(AUTO, book)
    talk.comes("a", persistent="false")
    assert talk.take() is None
    assert talk.wrote() == copies("a")
    assert book.told() == {"a": (3, 0)}
    talk.answer()
    assert talk.wrote() == settled("a")
    talk.answer()
    talk.wrote()
    assert book.told() == {}


@pytest.mark.parametrize("mode", MODES)
def test_what_is_given_back_unseen_is_no_delivery(mode: AcknowledgeMode) -> None:
    """A `receive()` was interrupted at the hand-out; to another process it is new."""
    book = Book()
    talk = start(mode, book)
    talk.comes("a")
    held = Held()
    hand_outs = HandOuts(book)
    for _ in range(3):
        assert hand_outs.deliver(talk.core, ["1"], talk.now, held) is not None
        assert talk.core.take_back(held)
        talk.wrote()
    assert book.told() == {"a": (0, 0)}
    talk.cut()
    talk.wrote()
    other = start(mode, book, policy=at_most(0))
    other.comes("a", redelivered="true")
    assert called(other.held()) == "a#1"


@pytest.mark.parametrize("reached", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_what_waits_in_a_process_that_dies_is_no_delivery(
    mode: AcknowledgeMode, *, reached: bool
) -> None:
    """It was handed out, and nobody has seen it before `reach`; with a ledger that is away it is not seen."""
    book = Book()
    talk = start(mode, book)
    talk.comes("a")
    hand_outs = HandOuts(book)
    hand_outs.waits = True
    delivery = hand_outs.deliver(talk.core, ["1"], talk.now)
    assert delivery is not None
    if reached:
        hand_outs.reach([delivery], talk.now)
    else:
        book.away = True
        with pytest.raises(StoreError):
            hand_outs.reach([delivery], talk.now)
        book.away = False
    book.die()
    other = start(mode, book, policy=at_most(0))
    other.comes("a", redelivered="true")
    assert (other.take() is None) is reached
    other.wrote()
    assert bool(other.reported(MessageDeadLettered)) is reached


def test_a_ledger_that_is_away_when_the_handler_is_called_is_left_alone() -> None:
    """The message that goes back would be handed out again at once, and as often as the machine can."""
    book = Book()
    talk = start(AUTO, book)
    talk.comes("a", "b")
    hand_outs = HandOuts(book)
    hand_outs.waits = True
    delivery = hand_outs.deliver(talk.core, ["1"], talk.now)
    assert delivery is not None
    book.away = True
    with pytest.raises(StoreError):
        hand_outs.reach([delivery], talk.now)
    book.away = False
    assert hand_outs.away
    assert hand_outs.deliver(talk.core, ["1"], talk.now) is None
    assert hand_outs.withheld
    assert hand_outs.patience(talk.now) == AGAIN
    assert hand_outs.deliver(talk.core, ["1"], talk.now + AGAIN) is not None
    assert hand_outs.away is None


@pytest.mark.parametrize("mode", MODES)
def test_a_signal_behind_the_ledger(mode: AcknowledgeMode, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message was counted, and nobody has it: that hand-out has an end, too."""
    book = Book()
    talk = start(mode, book)
    talk.comes("a")

    def interrupted(*_: object, **__: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(talk.core.handing_out, "admit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            HandOuts(book).deliver(talk.core, ["1"], talk.now)
    assert book.told() == {"a": (0, 0)}
    assert not book.held


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_handed_out_before_its_copy_is_confirmed(mode: AcknowledgeMode) -> None:
    """The next message may kill the process, too: each such death would leave another copy behind."""
    talk = start(mode, Book(a=3))
    talk.comes("a", "b", persistent="false")
    assert talk.take() is None
    talk.answer()
    assert talk.wrote()[-2:] == settled("a")
    assert talk.take() is None
    talk.answer()
    assert called(talk.held()) == "b#1"


def test_what_is_done_is_acknowledged_before_a_burial() -> None:
    """A cumulative ACK for the dead letter would cover it, and its own would come too late."""
    talk = start(AUTO, Book(b=3))
    talk.comes("a", "b", "c")
    talk.listen()
    assert called(talk.held()) == "c#1"
    assert talk.wrote() == ["ACK a", "NACK b"]


def test_without_check_before_dispatch_it_is_delivered_for_ever() -> None:
    """As the Java client does it with `preDispatchCheck=false`."""
    talk = start(AUTO, Book(a=9), policy=at_most(2, pre_dispatch_check=False))
    talk.comes("a")
    assert called(talk.held()) == "a#10"


def test_local_failures_and_deaths_add_up() -> None:
    """One process died; the listener fails twice; three deliveries in all."""
    book = Book(a=1)
    talk = start(AUTO, book)
    talk.comes("a", redelivered="true")
    assert [talk.listen(BROKEN), talk.listen(BROKEN)] == ["a#2", "a#3"]
    assert talk.ended() == ["a#2 rolled_back", "a#3 dead_lettered"]
    assert book.told() == {}


def test_attempts_of_artemis_policy() -> None:
    """It counts deliveries: at three of three the fourth is not seen."""
    policy = ArtemisRedeliveryPolicy(max_delivery_attempts=3)
    for deliveries, expected in ((2, "a#3"), (3, None)):
        talk = start(AUTO, Book(a=deliveries), policy=policy, non_blocking_redelivery=True)
        talk.comes("a")
        delivery = talk.take()
        assert (delivery and called(delivery)) == expected


#: How a message is settled that has not failed, by mode.
ACKNOWLEDGED: dict[str, tuple[AcknowledgeMode, Any]] = {
    "auto": (AUTO, lambda talk: talk.receive()),
    "client": (CLIENT, lambda talk: talk.core.acknowledge(talk.held(), 0.0)),
    "individual": (INDIVIDUAL, lambda talk: talk.core.acknowledge(talk.held(), 0.0)),
    "transacted": (TRANSACTED, lambda talk: (talk.held(), talk.commit(), talk.answer())),
}


@pytest.mark.parametrize(
    ("mode", "end"),
    [
        *ACKNOWLEDGED.values(),
        (AUTO, lambda talk: talk.listen(REJECTED)),
        (AUTO, lambda talk: talk.listen(DISCARDED)),
    ],
    ids=[*ACKNOWLEDGED, "rejected", "discarded"],
)
def test_settled_is_forgotten(mode: AcknowledgeMode, end: Any) -> None:
    """Every way of settling a message removes its row."""
    book = Book()
    talk = start(mode, book)
    talk.comes("a")
    end(talk)
    talk.wrote()
    assert book.told() == {}


@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL, TRANSACTED])
def test_unsettled_is_kept(mode: AcknowledgeMode) -> None:
    """Over a rollback, and over an orderly close."""
    book = Book()
    talk = start(mode, book)
    talk.comes("a")
    talk.held()
    talk.rollback() if mode is TRANSACTED else talk.core.recover(talk.now)
    assert called(talk.held()) == "a#2"
    talk.core.close(talk.now)
    talk.wrote()
    assert book.told() == {"a": (2, 0)}


def test_the_link_is_lost_in_the_handler() -> None:
    """The broker delivers again, and this is the second delivery."""
    book = Book()
    talk = start(AUTO, book)
    talk.comes("a")
    talk.held()
    talk.cut()
    talk.reopen()
    talk.comes("a", redelivered="true")
    assert called(talk.held()) == "a#2"


@pytest.mark.parametrize("mode", [AUTO, DUPS_OK])
def test_finished_but_not_acknowledged_is_no_failure(mode: AcknowledgeMode) -> None:
    """Its ACK waits for company when the next one kills the process: it is delivered again, and never to blame."""
    book = Book()
    for death in range(1, 9):
        talk = start(mode, book, policy=at_most(2))
        talk.comes("innocent", "poison", redelivered="true" if death > 1 else "")
        assert talk.listen() == f"innocent#{death}"
        talk.wrote()
        assert book.told()["innocent"] == (death, death)
        poison = talk.take()
        assert (poison is None) == (death > 3)
        book.die()


@pytest.mark.parametrize("late", [False, True])
def test_a_link_that_is_lost_under_a_commit_is_no_failure(*, late: bool) -> None:
    """The handler has run to its end each time, and nothing failed but links; `late`: before commit() was called."""
    book = Book()
    talk = start(TRANSACTED, book, policy=at_most(2))
    for life in range(1, 9):
        talk.comes("a", redelivered="true" if life > 1 else "")
        assert talk.receive() == f"a#{life}"
        talk.send()
        if late:
            talk.cut()
        request = talk.commit()
        if not late:
            talk.cut()
        assert request.error is not None
        talk.wrote()
        assert book.told()["a"] == (life, life)
        talk.reopen()
    assert dead_letters(talk) == []


@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL])
@pytest.mark.parametrize("losses", [1, 2, 3])
@pytest.mark.parametrize("together", [False, True])
def test_an_acknowledgement_that_comes_too_late_is_no_failure(
    mode: AcknowledgeMode, losses: int, *, together: bool
) -> None:
    """It is dropped, for the message comes again; but nothing failed but the link, however often that is said."""
    book = Book()
    talk = start(mode, book, policy=at_most(2))
    for life in range(1, 6):
        talk.comes("a", redelivered="true" if life > 1 else "")
        delivery = talk.held()
        assert called(delivery) == f"a#{life}"
        talk.cut()
        for _ in range(losses - 1):
            talk.reopen()
            talk.cut()
        for _ in range(2):
            if not together:
                talk.core.acknowledge(delivery, talk.now)
            elif mode is INDIVIDUAL:
                talk.core.settle([(delivery, None)], talk.now)
        if together and mode is CLIENT:
            talk.core.acknowledge(delivery, talk.now)
        talk.wrote()
        assert book.told()["a"] == (life, life)
        talk.reopen()
    assert dead_letters(talk) == []


def test_a_commit_that_is_refused_is_a_failure() -> None:
    """What is sent for the message may be what the broker never takes."""
    book = Book()
    talk = start(TRANSACTED, book, policy=at_most(1))
    for life in (1, 2):
        talk.comes("a", redelivered="true" if life > 1 else "")
        assert talk.receive() == f"a#{life}"
        talk.send()
        talk.commit()
        talk.refuse()
        talk.cut()
        talk.wrote()
        assert book.told()["a"] == (life, 0)
        talk.reopen()
    talk.comes("a", redelivered="true")
    assert talk.take() is None


def test_only_failures_count_for_the_limit() -> None:
    """Delivered twice without failing, it still has three deliveries in which to fail; it is told which one it is."""
    book = Book()
    book.rows[StoreKey("queue://q", known_as("a"))] = (2, 2)
    talk = start(AUTO, book)
    talk.comes("a", redelivered="true")
    assert [talk.listen(BROKEN) for _ in range(4)] == ["a#3", "a#4", "a#5", None]
    assert talk.ended()[-1] == "a#5 dead_lettered"


def test_acknowledged_while_it_waited_is_not_counted() -> None:
    """INDIVIDUAL, in Java's manner: it comes once more, but the broker has forgotten it."""
    book = Book()
    talk = start(INDIVIDUAL, book)
    talk.comes("a")
    first = talk.held()
    talk.core.recover(talk.now)
    talk.core.acknowledge(first, talk.now)
    assert called(talk.held()) == "a#2"
    talk.wrote()
    assert book.told() == {}


def test_without_the_ledgers_word_it_goes_on_as_without_ledger() -> None:
    """The broker's flag is all there is; and a count that was in our hands is not lost."""
    book = Book()
    talk = start(AUTO, book)
    talk.comes("a", "b", redelivered="true")
    assert talk.listen(BROKEN) == "a#1"
    book.broken = True
    assert talk.listen(BROKEN) == "a#2"
    book.broken, book.rows = False, {}
    assert talk.listen() == "a#3"
    book.broken = True
    assert talk.listen() == "b#2"


def test_flush_when_there_is_nothing_to_do() -> None:
    """What is done is not put off for longer than there is work."""
    book = Book()
    talk = start(AUTO, book)
    assert (talk.receive(), book.flushed) == (None, 1)


@pytest.mark.parametrize("way", ["received", "listened", "acknowledged", "discarded"])
@pytest.mark.parametrize("mode", MODES)
def test_a_hand_out_is_told_to_be_done_once(mode: AcknowledgeMode, way: str) -> None:
    """A ledger that hears of it twice takes a failure of the message for another one that was none."""
    told: list[int] = []

    class Told(Book):
        def finish(self, entries: Iterable[Entry]) -> None:
            told.extend(one.number for one in entries)

    talk = start(mode, Told())
    talk.comes("a")
    match way:
        case "received":
            talk.receive()
        case "listened":
            talk.listen()
        case "discarded":
            talk.listen(DISCARDED)
        case _:
            talk.core.acknowledge(talk.held(), talk.now)
    talk.receive()
    talk.wait_until(talk.now + 10)
    talk.core.close(talk.now)
    talk.wrote()
    assert told in ([], [1])


# -- who lives --------------------------------------------------------------------------------------------------------


def two_processes(mode: AcknowledgeMode, dialect: Dialect) -> tuple[Counted, Counted]:
    """Sessions that have one ledger and nothing else in common, and give up what has failed once."""
    book = Book()
    first, other = (Counted(mode, book, dialect=dialect) for _ in range(2))
    for talk in (first, other):
        talk.subscribe(policy=at_most(0))
    return first, other


@pytest.mark.parametrize("dialect", [DIALECT, ARTEMIS], ids=["classic", "artemis"])
@pytest.mark.parametrize("mode", MODES)
def test_what_a_living_process_has_is_in_doubt(mode: AcknowledgeMode, dialect: Dialect) -> None:
    """Its link is lost, and another one is handed the message before the first has noticed; nothing has failed yet."""
    first, other = two_processes(mode, dialect)
    first.comes("a")
    assert called(first.held()) == "a#1"
    if mode is TRANSACTED:
        first.commit()
    other.comes("a", redelivered="true")
    assert called(other.held()) == "a#2"


@pytest.mark.parametrize("dialect", [DIALECT, ARTEMIS], ids=["classic", "artemis"])
@pytest.mark.parametrize("mode", MODES)
def test_what_several_living_ones_had_is_in_doubt(mode: AcknowledgeMode, dialect: Dialect) -> None:
    """One after the other, each on a link that was lost; whoever says that it has failed counts, whenever that is."""
    book = Book()
    talks = [Counted(mode, book, dialect=dialect) for _ in range(5)]
    for number, talk in enumerate(talks[:4], 1):
        talk.subscribe(policy=at_most(0))
        talk.comes("a", redelivered="true")
        assert called(talk.held()) == f"a#{number}"
        talk.cut()
        talk.wrote()
    first, last = talks[0], talks[4]
    (first.core.rollback if mode is TRANSACTED else first.core.recover)(first.now)
    first.wrote()
    last.subscribe(policy=at_most(0))
    last.comes("a", redelivered="true")
    assert last.take() is None


@pytest.mark.parametrize("dialect", [DIALECT, ARTEMIS], ids=["classic", "artemis"])
@pytest.mark.parametrize("mode", MODES)
def test_what_a_living_process_says_has_failed_has(mode: AcknowledgeMode, dialect: Dialect) -> None:
    """It was handed out on a link that is lost, and the application has rolled back, or recovered."""
    first, other = two_processes(mode, dialect)
    first.comes("a")
    first.held()
    first.cut()
    (first.core.rollback if mode is TRANSACTED else first.core.recover)(first.now)
    first.wrote()
    other.comes("a", redelivered="true")
    assert other.take() is None


@pytest.mark.parametrize("dialect", [DIALECT, ARTEMIS], ids=["classic", "artemis"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shared", [True, False], ids=["one process", "two processes"])
def test_what_a_handler_is_still_at_is_in_doubt(
    mode: AcknowledgeMode, dialect: Dialect, *, shared: bool
) -> None:
    """Its session knows that the link is lost, and the handler may end well."""
    book, memory = Book(), ProcessMemory()
    first, other = (
        Counted(mode, book, dialect=dialect, memory=memory if shared else ProcessMemory())
        for _ in range(2)
    )
    for talk in (first, other):
        talk.subscribe(policy=at_most(0))
    first.comes("a")
    first.held()
    first.cut()
    first.wrote()
    other.comes("a", redelivered="true")
    assert called(other.held()) == "a#2"


def dead_lettered(talk: Talk) -> list[MessageDeadLettered]:
    """What becomes a dead letter by a copy, as soon as the broker has confirmed all that it is asked for that."""
    while not (dead := talk.reported(MessageDeadLettered)):
        talk.answer()
    return dead


@pytest.mark.parametrize("dialect", [DIALECT, ARTEMIS], ids=["classic", "artemis"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("when", ["at once", "on the next link", "behind the message"])
@pytest.mark.parametrize("told", ["raised", "undone for that", "undone"])
def test_its_dead_letter_tells_how_it_failed_on_a_lost_link(
    mode: AcknowledgeMode, dialect: Dialect, when: str, told: str
) -> None:
    """As the application has told the session, whenever that was; else only that it was handed out."""

    def tell() -> None:
        if told == "raised":
            talk.core.failed(delivery, BROKEN, talk.now)
        else:
            undo = talk.core.rollback if mode is TRANSACTED else talk.core.recover
            undo(talk.now, *[BROKEN] * (told == "undone for that"))
        talk.wrote()

    talk = Counted(mode, Book(), dialect=dialect)
    talk.subscribe(policy=at_most(0))
    talk.comes("a")
    delivery = talk.held()
    talk.cut()
    if when == "at once":
        tell()
    talk.reopen()
    if when == "on the next link":
        tell()
    talk.comes("a", redelivered="true")
    if when == "behind the message":
        tell()
    assert talk.take() is None
    (dead,) = dead_lettered(talk)
    assert (dead.attempts, dead.error_type) == (
        1,
        "ConsumerDied" if told == "undone" else "ValueError",
    )


@pytest.mark.parametrize("dialect", [DIALECT, ARTEMIS], ids=["classic", "artemis"])
@pytest.mark.parametrize("mode", [AUTO, INDIVIDUAL])
def test_a_failure_before_the_last_delivery_is_not_told_as_its_end(
    mode: AcknowledgeMode, dialect: Dialect
) -> None:
    """The handler raised on the first link, and was not heard of on the second."""
    talk = Counted(mode, Book(), dialect=dialect)
    talk.subscribe(policy=at_most(1))
    talk.comes("a")
    talk.held()
    for failure in (BROKEN, None):
        talk.cut()
        talk.core.recover(talk.now, *[failure] if failure else [])
        talk.wrote()
        talk.reopen()
        talk.comes("a", redelivered="true")
        if failure:
            assert called(talk.held()) == "a#2"
    assert talk.take() is None
    (dead,) = dead_lettered(talk)
    assert (dead.attempts, dead.error_type) == (2, "ConsumerDied")


@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL])
@pytest.mark.parametrize("late", ["never", "before", "after"])
@pytest.mark.parametrize("most", [0, 1, 2])
def test_what_was_lost_is_tried_as_often_as_without_a_ledger(
    mode: AcknowledgeMode, late: str, most: int
) -> None:
    """
    Whenever its acknowledgement comes too late: before the message was handed out again, or behind that.

    What of its failures nobody has told stays noted then; that delays the limit before a hand-out, and nothing else.
    """

    def tried(talk: Talk) -> list[str]:
        talk.subscribe(policy=at_most(most))
        talk.comes("a")
        first = talk.held()
        talk.cut()
        talk.reopen()
        talk.comes("a", redelivered="true")
        if late == "before":
            talk.core.acknowledge(first, talk.now)
        calls = []
        while (delivery := talk.take()) is not None:
            calls.append(called(delivery))
            if late == "after":
                talk.core.acknowledge(first, talk.now)
            talk.core.recover(talk.now)
            talk.wrote()
            talk.wait_until(talk.now + 60)
        return calls

    tries = tried(Talk(mode))
    assert tried(Counted(mode, Book())) == tries
    assert len(tries) == max(most + (late == "before"), 1)


@pytest.mark.parametrize("dialect", [DIALECT, ARTEMIS], ids=["classic", "artemis"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("alone", [True, False])
def test_at_a_last_attempt_all_may_die(
    mode: AcknowledgeMode, dialect: Dialect, *, alone: bool
) -> None:
    """What was in doubt when it began fails with its process: what is done is told before a store knows it."""
    book = Book()
    first, other, third = (Counted(mode, book, dialect=dialect) for _ in range(3))
    for talk in (first, other, third):
        talk.subscribe(policy=at_most(1))
    first.comes("a")
    first.held()
    first.lose()
    second = first if alone else other
    second.comes("a", redelivered="true")
    delivery = second.held()
    assert called(delivery) == "a#2"
    second._hand_outs.returned([delivery])
    book.die()
    third.comes("a", redelivered="true")
    assert called(third.held()) == "a#3"


@pytest.mark.parametrize("dialect", [DIALECT, ARTEMIS], ids=["classic", "artemis"])
@pytest.mark.parametrize(("mode", "end"), ACKNOWLEDGED.values(), ids=ACKNOWLEDGED)
@pytest.mark.parametrize("losses", [0, 1, 2])
def test_what_is_settled_and_comes_again_is_redelivered(
    mode: AcknowledgeMode, end: Any, dialect: Dialect, losses: int
) -> None:
    """
    A link was lost under its ACK or COMMIT, which the broker did; and it delivers the message all the same.

    The ledger has forgotten it, and the session that gets it has lost it unseen before: the process remembers.
    """
    book, memory = Book(), ProcessMemory()
    first, other = (Counted(mode, book, dialect=dialect, memory=memory) for _ in range(2))
    for talk in (first, other):
        talk.subscribe(policy=at_most(2))
    first.comes("a")
    end(first)
    first.wrote()
    assert book.told() == {}
    other.comes("a", redelivered="true")
    for _ in range(losses):
        other.lose()
        other.comes("a", redelivered="true")
    again = other.held()
    assert (called(again), again.redelivered, again.failures) == ("a#2", True, 0)


@pytest.mark.parametrize("losses", [0, 1, 2])
def test_a_flag_that_nobody_can_explain_is_less_than_the_ledgers_count(losses: int) -> None:
    """Whether or not a session of this process has lost it unseen before: nobody on this host was handed it."""
    talk = start(TRANSACTED, Book())
    talk.comes("a", redelivered="true")
    for _ in range(losses):
        talk.lose()
        talk.comes("a", redelivered="true")
    delivery = talk.held()
    assert (called(delivery), delivery.redelivered) == ("a#1", True)


@pytest.mark.parametrize("mode", MODES)
def test_a_flag_is_not_hidden_by_a_lost_link(mode: AcknowledgeMode) -> None:
    """Another host may have had the message: that ours has lost it unseen explains no flag that it came with."""
    for first, then in ("true", "true"), ("true", "false"), ("false", "true"):
        talk = start(mode, Book())
        talk.comes("a", redelivered=first)
        talk.lose()
        talk.comes("a", redelivered=then)
        assert talk.held().redelivered is (first == "true")


@pytest.mark.parametrize("dialect", [DIALECT, ARTEMIS], ids=["classic", "artemis"])
@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL])
def test_a_lost_link_buries_nothing_that_is_held(mode: AcknowledgeMode, dialect: Dialect) -> None:
    """
    The process that has it lives, and nobody has said that it failed; what is not transacted is handed out again.

    As without a ledger, and as by the Java client, which looks at the limit first in transacted sessions only.
    """
    book = Book()
    talk = Counted(mode, book, dialect=dialect)
    talk.subscribe(policy=at_most(0))
    for life in range(1, 4):
        talk.comes("a", redelivered="true" if life > 1 else "")
        held = talk.held()
        assert called(held) == f"a#{life}"
        if life < 3:
            talk.lose()
    talk.core.recover(talk.now)
    assert held.state is DeliveryState.DYING


def test_a_held_message_that_has_failed_is_buried() -> None:
    """Its application has recovered on the link that was lost."""
    talk = start(CLIENT, Book(), policy=at_most(0))
    talk.comes("a")
    talk.held()
    talk.cut()
    talk.core.recover(talk.now)
    talk.reopen()
    talk.wrote()
    talk.comes("a", redelivered="true")
    assert talk.take() is None


def test_what_a_session_has_lost_itself_counts() -> None:
    """It has said nothing of it when the message comes again to the session itself: its link was lost under it."""
    talk = start(TRANSACTED, Book())
    talk.comes("a")
    talk.held()
    talk.lose()
    talk.comes("a", redelivered="true")
    assert talk.held().failures == 1


@pytest.mark.parametrize("dialect", [DIALECT, ARTEMIS], ids=["classic", "artemis"])
@pytest.mark.parametrize(
    "limit", [0, 1], ids=["its copy is on its way", "it waits to be redelivered"]
)
def test_what_has_failed_in_a_living_process_is_not_in_doubt(dialect: Dialect, limit: int) -> None:
    """Its handler has raised when the link is lost."""
    book = Book()
    first, other = (Counted(AUTO, book, dialect=dialect) for _ in range(2))
    first.subscribe(policy=at_most(limit))
    other.subscribe(policy=at_most(0))
    first.comes("a", persistent="false")
    assert first.listen(BROKEN) == "a#1"
    first.wrote()
    other.comes("a", redelivered="true", persistent="false")
    assert other.take() is None


# -- who is who -------------------------------------------------------------------------------------------------------


def places(**settings: Any) -> list[str]:
    """Where a message of `/queue/q` is counted that a consumer with these settings gets."""
    book = Book()
    talk = Counted(AUTO, book)
    talk.subscribe(policy=AT_ONCE, **settings)
    talk.comes("a")
    talk.held()
    return [identity.place for identity in book.rows]


def test_places() -> None:
    """The queue; for a pattern of queues the message's own; the durable subscription; never a mere topic."""
    assert places(origin="queue://q") == ["queue://q"]
    assert places(origin="queue://>") == ["queue://q"]
    durable = {"kind": DestinationKind.DURABLE, "origin": "topic://t:me.mine"}
    assert places(**durable) == ["topic://t:me.mine"]
    assert places(kind=DestinationKind.TOPIC, origin="topic://t:7") == []


def test_what_a_sender_sends_twice_is_counted_twice() -> None:
    """The same key and body: two messages, of which none becomes a dead letter while the other one is being handled."""
    book = Book()
    one, other = (start(AUTO, book, policy=at_most(0)) for _ in range(2))
    one.comes("ID:1", key="k")
    other.comes("ID:2", key="k")
    assert called(one.held()) == "ID:1#1"
    assert called(other.held()) == "ID:2#1"
    assert sorted(book.told()) == ["ID:1", "ID:2"]


def test_what_was_sent_back_goes_on_counting() -> None:
    """The broker has it as a new message since then; its count came with it, and each further death adds one."""
    book = Book()
    for death in range(2):
        talk = start(AUTO, book, policy=at_most(2))
        sent: dict[str, Any] = stamp(
            {COUNT_HEADER: "1"}, b"ID:9", "k", "queue://q", DIALECT.reading
        )
        talk.comes("ID:9", **sent)
        assert called(talk.held()) == f"ID:9#{death + 2}"
        book.die()
    talk = start(AUTO, book, policy=at_most(2))
    talk.comes("ID:9", "b", **sent)
    assert called(talk.held()) == "b#1"
    (dead,) = talk.reported(MessageDeadLettered)
    assert (dead.message_id, dead.attempts) == ("ID:9", 3)


def test_what_is_sent_back_is_forgotten() -> None:
    """Its row would never be asked for again."""
    book = Book()
    talk = start(AUTO, book, scheduled=True, policy=at_most(2, initial_redelivery_delay=1.0))
    talk.comes("a")
    talk.listen(BROKEN)
    assert book.told() == {"a": (1, 0)}
    talk.answer()
    talk.wrote()
    assert book.told() == {}


def test_a_key_that_was_copied_is_no_identity() -> None:
    """Three messages with the headers of one: each is counted by itself, whatever they have for bodies."""
    book = Book()
    talk = start(AUTO, book, policy=at_most(0))
    made = talk.message("ID:1", key="k").headers
    copied: dict[str, Any] = {name: made[name] for name in ("jmsx_key", "jmsx_digest")}
    for number in "234":
        talk.comes(f"ID:{number}", **copied)
        assert called(talk.held()) == f"ID:{number}#1"
    assert sorted(book.told()) == ["ID:2", "ID:3", "ID:4"]


def test_the_brokers_id_is_no_identity_alone() -> None:
    """An application property may have overwritten it; with another body it is another message."""
    book = Book()
    talk = start(AUTO, book)
    for body in ("x", "y"):
        talk.comes("ID:1", body=body)
        assert called(talk.held()) == "ID:1#1"
    assert list(book.rows.values()) == [(1, 0), (1, 0)]


# -- away -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_away_nothing_is_handed_out(mode: AcknowledgeMode) -> None:
    """All waits in its order, uncounted, and comes as it would have come; it is asked once in a while."""
    book = Book()
    talk = start(mode, book)
    talk.comes("a", "b")
    book.away = True
    assert [talk.take(), talk.take()] == [None, None]
    book.away = False
    assert talk.take() is None  # not asked again yet
    talk.now += AGAIN
    assert [called(talk.held()), called(talk.held())] == ["a#1", "b#1"]
    assert sorted(book.rows.values()) == [(1, 0), (1, 0)]


def test_away_before_a_redelivery() -> None:
    """What has failed stays failed: a hand-out that did not come about takes nothing back."""
    book = Book()
    talk = start(AUTO, book)
    talk.comes("a")
    assert talk.listen(BROKEN) == "a#1"
    talk.wait_until(10.0)
    book.away = True
    for _ in range(3):
        assert talk.take() is None
        talk.now += AGAIN
    talk.wrote()
    assert list(book.rows.values()) == [(1, 0)]
    book.away = False
    assert talk.listen() == "a#2"


def test_away_what_it_does_not_count_goes_on() -> None:
    """A topic without durable subscription has no message that could come again."""
    book = Book()
    talk = start(AUTO, book, kind=DestinationKind.TOPIC, origin="topic://t:7")
    talk.comes("a")
    book.away = True
    assert called(talk.held()) == "a#1"
