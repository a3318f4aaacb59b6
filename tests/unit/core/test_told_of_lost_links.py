"""What the application says of messages of lost links, or does not say: only then have they failed, or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jmsx.core.events import DeliveryEnded, DeliveryEndedLate
from jmsx.core.held_on_lost_links import MOST
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.process_memory import ConsumerMemory, ProcessMemory
from jmsx.core.values import NO_FAILURE, Disposition, Failure
from jmsx_artemis import DIALECT as ARTEMIS
from jmsx_classic import DIALECT as CLASSIC
from tests.unit.core.harness import (
    AT_ONCE,
    AUTO,
    BROKEN,
    CLIENT,
    DIALECT,
    DISCARDED,
    DUPS_OK,
    ENDLESS,
    INDIVIDUAL,
    REJECTED,
    TRANSACTED,
    Talk,
    at_most,
    called,
    dead_letters,
)

if TYPE_CHECKING:
    from jmsx.core.delivery import Delivery
    from jmsx.core.dialect import Dialect


def two_sessions(mode: AcknowledgeMode, dialect: Dialect = DIALECT) -> tuple[Talk, Talk]:
    """Two consumers of a queue in one process, each on a link of its own."""
    memory = ProcessMemory()
    one, two = (Talk(mode, dialect=dialect, memory=memory) for _ in range(2))
    for talk in (one, two):
        talk.subscribe(policy=at_most(5), prefetch=ENDLESS)
    return one, two


def undo(talk: Talk) -> None:
    """The application rolls back, or recovers."""
    (talk.core.rollback if talk.core.transacted else talk.core.recover)(talk.now)


@pytest.mark.parametrize("dialect", [CLASSIC, ARTEMIS], ids=["classic", "artemis"])
@pytest.mark.parametrize("mode", list(AcknowledgeMode), ids=str)
@pytest.mark.parametrize("failed", [False, True])
def test_what_another_session_may_be_at_has_not_failed(
    mode: AcknowledgeMode, dialect: Dialect, *, failed: bool
) -> None:
    """Its link is lost, and its application has said nothing yet; or it has said that it failed."""
    one, two = two_sessions(mode, dialect)
    one.comes("a")
    delivery = one.held()
    one.cut()
    if failed:
        one.core.failed(delivery, BROKEN, one.now)
        undo(one)
    two.comes("a", redelivered="true")
    again = two.held()
    assert (called(again), again.failures) == ("a#2", int(failed))


@pytest.mark.parametrize("mode", list(AcknowledgeMode), ids=str)
def test_what_fails_after_another_session_has_had_it_is_told_nobody(mode: AcknowledgeMode) -> None:
    """Whoever had it last tells how often it failed; in its own session it counts at once."""
    one, two = two_sessions(mode)
    one.comes("a")
    one.held()
    one.lose()
    two.comes("a", redelivered="true")
    assert called(two.held()) == "a#2"
    two.cut()
    undo(two)
    undo(one)
    one.comes("a", redelivered="true")
    again = one.held()
    assert (called(again), again.failures) == ("a#3", 1)


@pytest.mark.parametrize("disposition", [Disposition.RELEASE, Disposition.UNDO])
def test_what_nobody_handled_on_a_lost_link_has_not_failed(disposition: Disposition) -> None:
    """As on a link that is up."""
    talk = Talk(AUTO)
    talk.subscribe(policy=at_most(2))
    talk.comes("a")
    delivery = talk.held()
    talk.lose()
    talk.core.failed(delivery, Failure(disposition=disposition), talk.now)
    talk.comes("a", redelivered="true")
    assert talk.held().failures == 0


@pytest.mark.parametrize("dialect", [CLASSIC, ARTEMIS], ids=["classic", "artemis"])
@pytest.mark.parametrize("late", [True, False])
def test_what_the_application_finished_did_not_fail(dialect: Dialect, *, late: bool) -> None:
    """Its ACK waited for company when the link was lost, or the listener was `late`; it may fail as often as ever."""
    talk = Talk(AUTO, dialect=dialect)
    talk.subscribe(policy=at_most(1))
    talk.comes("a")
    delivery = talk.held()
    if not late:
        talk.core.consumed(delivery, talk.now)
    talk.cut()
    if late:
        talk.core.consumed(delivery, talk.now)
    talk.reopen()
    talk.comes("a", redelivered="true")
    assert [talk.listen(BROKEN), talk.listen(BROKEN), talk.listen()] == ["a#2", "a#3", None]


@pytest.mark.parametrize("dialect", [CLASSIC, ARTEMIS], ids=["classic", "artemis"])
@pytest.mark.parametrize("mode", [AUTO, DUPS_OK], ids=str)
@pytest.mark.parametrize("losses", [1, 2])
def test_what_comes_again_before_it_is_finished_has_not_failed(
    dialect: Dialect, mode: AcknowledgeMode, losses: int
) -> None:
    """Its handler returns each time; only links fail under it, and so often that it would be given up."""
    talk = Talk(mode, dialect=dialect)
    talk.subscribe(policy=at_most(2))
    talk.comes("a")
    for _ in range(4):
        delivery = talk.held()
        assert delivery.failures == 0
        for _ in range(losses):
            talk.lose()
            talk.comes("a", redelivered="true")
        talk.core.consumed(delivery, talk.now)


@pytest.mark.parametrize("dialect", [CLASSIC, ARTEMIS], ids=["classic", "artemis"])
@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL], ids=str)
@pytest.mark.parametrize("losses", [1, 2, 3])
@pytest.mark.parametrize("seen", [False, True], ids=["once", "each time"])
def test_what_is_acknowledged_behind_lost_links_has_not_failed(
    dialect: Dialect, mode: AcknowledgeMode, losses: int, *, seen: bool
) -> None:
    """However many links are lost while the application is at it, and whether it gets the message each time."""
    talk = Talk(mode, dialect=dialect)
    talk.subscribe(policy=at_most(2))
    talk.comes("a")
    for _ in range(4):
        held = [talk.held()]
        assert held[0].failures == 0
        for _ in range(losses):
            talk.lose()
            talk.comes("a", redelivered="true")
            if seen:
                held.append(talk.held())
        talk.lose()
        for delivery in held:
            talk.core.acknowledge(delivery, talk.now)
        talk.comes("a", redelivered="true")
    assert talk.held().failures == 0
    assert dead_letters(talk) == []


@pytest.mark.parametrize("dialect", [CLASSIC, ARTEMIS], ids=["classic", "artemis"])
def test_acknowledge_covers_what_was_handed_out_on_a_lost_link(dialect: Dialect) -> None:
    """On the present link, too: the application is done with all that its session has handed out."""
    talk = Talk(CLIENT, dialect=dialect)
    talk.subscribe(policy=at_most(1))
    talk.comes("a", "b")
    assert [talk.held().message_id, talk.held().message_id] == ["a", "b"]
    talk.lose()
    talk.comes("a", "b", redelivered="true")
    talk.core.acknowledge(talk.held(), talk.now)
    assert talk.held().failures == 0


def test_recover_lets_what_was_lost_count() -> None:
    """The application is not done with it."""
    talk = Talk(CLIENT)
    talk.subscribe(policy=at_most(5))
    talk.comes("a", "b")
    assert [talk.held().message_id, talk.held().message_id] == ["a", "b"]
    talk.lose()
    talk.core.recover(talk.now)
    talk.comes("a", "b", redelivered="true")
    talk.core.acknowledge(talk.held(), talk.now)
    assert talk.held().failures == 1


def test_what_nobody_says_of_lost_links_is_bounded() -> None:
    """An application that acknowledges nothing on links that are lost must not fill the memory."""
    talk = Talk(INDIVIDUAL)
    talk.subscribe(policy=AT_ONCE, prefetch=ENDLESS)
    names = [f"m{n}" for n in range(MOST)]
    for _ in range(4):
        talk.comes(*names)
        for _ in names:
            talk.held()
        talk.lose()
    assert len(list(talk.core._consumers.on_lost_links)) == 2 * MOST


def test_what_is_forgotten_of_lost_links_has_failed() -> None:
    """Nobody can say any more that it has not, and else it would come for ever."""
    one, two = two_sessions(INDIVIDUAL)
    for number in range(3):
        names = [f"{number}-{n}" for n in range(MOST)]
        one.comes(*names)
        for _ in names:
            one.held()
        one.lose()
    two.comes("0-0", "2-0", redelivered="true")
    assert [two.held().failures, two.held().failures] == [1, 0]


# -- what the log is told ---------------------------------------------------------------------------------------------


def late(talk: Talk) -> list[str]:
    """How deliveries went of which an earlier event says that the application still had them."""
    return [f"{one.message_key} {one.outcome}" for one in talk.reported(DeliveryEndedLate)]


def running(talk: Talk) -> int:
    """Of so many deliveries the events do not tell how they went, as `flows` counts them."""
    lost = [one for one in talk.reported(DeliveryEnded) if one.outcome == "abandoned"]
    ran = [one for one in lost if one.ended_at == one.at and one.error_type is None]
    told = [one for one in talk.reported(DeliveryEndedLate) if one.outcome != "in_doubt"]
    return len(ran) - len(told)


@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL, TRANSACTED], ids=str)
@pytest.mark.parametrize("failure", [NO_FAILURE, BROKEN], ids=["undone", "failed"])
@pytest.mark.parametrize("copied", [True, False])
def test_what_was_to_be_a_dead_letter_does_not_run_on(
    mode: AcknowledgeMode, failure: Failure, *, copied: bool
) -> None:
    """The application has given it back, and the link is lost before the broker has its copy, or answers its NACK."""
    talk = Talk(mode)
    talk.answers_nacks = False
    talk.subscribe(policy=at_most(0))
    talk.comes("java" if copied else "a")
    talk.held()
    talk.now += 1
    (talk.core.rollback if talk.core.transacted else talk.core.recover)(talk.now, failure)
    talk.now += 1
    talk.cut()
    doubt = [] if copied else ["in_doubt"]
    undone = ["undone"] if failure is NO_FAILURE else []
    assert [one.split()[1] for one in late(talk)] == undone + doubt
    assert running(talk) == 0


@pytest.mark.parametrize(
    ("failure", "told"), [(None, "done"), (NO_FAILURE, "undone"), (BROKEN, "failed")]
)
def test_what_counts_as_failed_for_a_complaint_ends_when_its_transaction_does(
    failure: Failure | None, told: str
) -> None:
    """Its handler may have come to its end all the same, and that is told once."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=at_most(5))
    talk.comes("a")
    delivery = talk.held()
    talk.complain("refused by the test")
    talk.now += 1
    talk.lose()
    assert late(talk) == []
    for _ in range(2):
        if failure is None:
            talk.commit()
        else:
            talk.rollback(failure)
    assert [one.split()[1] for one in late(talk)] == [told]
    assert running(talk) == 0
    talk.comes("a", redelivered="true")
    assert (talk.held().failures, delivery.runs_on) == (1, False)


def test_what_another_one_s_rollback_undoes_on_a_lost_link_is_told() -> None:
    """A batch whose messages go each its own way rolls back what else its session has received."""
    talk = Talk(TRANSACTED, single=True)
    for name in "12":
        talk.subscribe(name)
    talk.comes("a")
    lost = talk.held()
    talk.lose()
    talk.comes("b", to="2")
    talk.core.settle([(talk.held("2"), REJECTED)], talk.now + 1)
    assert [one.split()[1] for one in late(talk)] == ["undone"]
    assert (running(talk), lost.runs_on) == (0, False)


@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL, TRANSACTED], ids=str)
@pytest.mark.parametrize("failure", [BROKEN, DISCARDED], ids=["failed", "discarded"])
def test_what_came_again_is_looked_at_once(
    mode: AcknowledgeMode, failure: Failure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For all that was held, and not for each of it."""
    looked: list[Delivery] = []
    key = ConsumerMemory.key

    def noted(self: ConsumerMemory, delivery: Delivery) -> int:
        looked.append(delivery)
        return key(self, delivery)

    monkeypatch.setattr(ConsumerMemory, "key", noted)

    def looks(messages: int) -> int:
        talk = Talk(mode)
        talk.subscribe(policy=AT_ONCE, prefetch=ENDLESS)
        names = [str(number) for number in range(messages)]
        talk.comes(*names)
        for _ in names:
            talk.held()
        talk.cut()
        talk.reopen()
        talk.comes(*names, redelivered="true")
        looked.clear()
        tell = talk.core.rollback if talk.core.transacted else talk.core.recover
        tell(talk.now, failure)
        return len(looked)

    assert looks(40) == 2 * looks(20) > 0


@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL, TRANSACTED], ids=str)
@pytest.mark.parametrize("failure", [BROKEN, DISCARDED], ids=["failed", "discarded"])
def test_what_two_lost_links_had_is_told_of_both(mode: AcknowledgeMode, failure: Failure) -> None:
    """Each message that came again meanwhile knows of either, and others know of none."""
    talk = Talk(mode)
    talk.subscribe(policy=at_most(5), prefetch=ENDLESS)
    for _ in range(2):
        talk.comes("a", "b", redelivered="true")
        for _ in "ab":
            talk.held()
        talk.cut()
        talk.reopen()
    talk.comes("b", "c", "a", redelivered="true")
    (talk.core.rollback if talk.core.transacted else talk.core.recover)(talk.now, failure)
    again = [talk.held() for _ in "bca"]
    failures = 2 if failure is BROKEN else 0
    assert [(each.arrival.message_id, each.failures) for each in again] == [
        ("b", failures),
        ("c", 0),
        ("a", failures),
    ]
