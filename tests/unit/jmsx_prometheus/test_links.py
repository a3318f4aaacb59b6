"""Gauges that hang on a socket: they rise and fall with it, and never drift."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from jmsx.core.events import Event, Outcome, Source
from jmsx_prometheus import PrometheusObserver
from tests.dashboards.stories import (
    AT,
    CLOCK_COMPARED,
    CONNECT_FAILED,
    CONSUMER_MEASURED,
    COUNTED,
    ENDED,
    LINK_CLOSED,
    LINK_MEASURED,
    LINK_OPENED,
    RECEIPT_MISSED,
    RECEIVED,
    REDELIVERY,
    SOURCE,
    SUBSCRIBED,
    TRANSACTION,
    UNSUBSCRIBED,
    WALL,
    stand_still,
)

_AGAIN = replace(SOURCE, epoch=2)
_OTHER = replace(SOURCE, session_id="s2")
_LOST = replace(LINK_CLOSED, reason="heartbeat")


def _told(*told: tuple[Event, Source], after: float = 0.0) -> PrometheusObserver:
    observer = PrometheusObserver(clock=lambda: (AT + after, WALL + after))
    for event, source in told:
        observer.observe(event, source)
    return observer


def _up(observer: PrometheusObserver) -> dict[tuple[str, ...], float]:
    return observer.totals("jmsx_connection_up", "broker")


def test_up_while_all_sessions_are() -> None:
    """One session without its socket makes the broker down; the next socket makes it up again."""
    both = ((LINK_OPENED, SOURCE), (LINK_OPENED, _OTHER))
    assert _up(_told(*both)) == {("broker:61613",): 1}
    assert _up(_told(*both, (_LOST, SOURCE))) == {("broker:61613",): 0}
    assert _up(_told(*both, (_LOST, SOURCE), (LINK_OPENED, _AGAIN))) == {("broker:61613",): 1}


def test_closed_is_not_down() -> None:
    """A session that we closed is not missed, also when its socket was lost before."""
    assert _up(_told((LINK_OPENED, SOURCE), (LINK_CLOSED, SOURCE))) == {}
    lost = ((LINK_OPENED, SOURCE), (LINK_OPENED, _OTHER), (_LOST, SOURCE))
    assert _up(_told(*lost, (LINK_CLOSED, SOURCE))) == {("broker:61613",): 1}


def test_in_doubt_until_the_transaction_ends() -> None:
    """Or until the session does; each session has one at the most."""
    doubt = replace(_LOST, in_doubt=True)
    begun = ((LINK_OPENED, SOURCE), (doubt, SOURCE), (LINK_OPENED, _AGAIN), (doubt, _AGAIN))
    name = "jmsx_transactions_in_doubt"
    assert _told((LINK_OPENED, SOURCE), (_LOST, SOURCE)).value(name) == 0
    assert _told(*begun).value(name) == 1
    assert _told(*begun, (TRANSACTION, _OTHER), (doubt, _OTHER)).value(name) == 2
    assert _told(*begun, (TRANSACTION, _AGAIN)).value(name) == 0
    assert _told(*begun, (LINK_CLOSED, _AGAIN)).value(name) == 0


def test_disconnects_count_by_reason() -> None:
    """Each end of a socket counts once."""
    observer = _told(
        (LINK_OPENED, SOURCE), (_LOST, SOURCE), (LINK_OPENED, _AGAIN), (LINK_CLOSED, _AGAIN)
    )
    assert observer.value("jmsx_disconnects_total", reason="heartbeat") == 1
    assert observer.value("jmsx_disconnects_total", reason="closed") == 1
    assert observer.value("jmsx_disconnects_total") == 2


def test_unsettled_falls_with_each_settled_message() -> None:
    """A message that is rolled back waits here for its next delivery; others are gone."""
    opened = ((LINK_OPENED, SOURCE), (replace(RECEIVED, messages=3), SOURCE))
    assert _told(*opened).value("jmsx_unsettled_messages") == 3
    assert _told(*opened, (ENDED, SOURCE)).value("jmsx_unsettled_messages") == 2
    rolled_back = replace(ENDED, outcome=Outcome.ROLLED_BACK)
    assert _told(*opened, (rolled_back, SOURCE)).value("jmsx_unsettled_messages") == 3


def test_lost_socket_gives_everything_back() -> None:
    """What is reported of the old socket afterwards changes nothing."""
    observer = _told(
        (LINK_OPENED, SOURCE),
        (SUBSCRIBED, SOURCE),
        (replace(RECEIVED, messages=3), SOURCE),
        (_LOST, SOURCE),
        (replace(ENDED, outcome=Outcome.ABANDONED), SOURCE),
        (LINK_OPENED, _AGAIN),
        (RECEIVED, _AGAIN),
        (replace(ENDED, outcome=Outcome.ABANDONED), SOURCE),
    )
    assert observer.value("jmsx_unsettled_messages") == 1
    assert observer.value("jmsx_open_subscriptions") == 0
    assert observer.value("jmsx_prefetch_limit_messages") == 0


def test_subscriptions_and_their_prefetch_add_up() -> None:
    """Two sessions with one consumer each are two slots."""
    opened = (
        (LINK_OPENED, SOURCE),
        (SUBSCRIBED, SOURCE),
        (LINK_OPENED, _OTHER),
        (SUBSCRIBED, _OTHER),
    )
    observer = _told(*opened)
    assert observer.value("jmsx_open_subscriptions") == 2
    assert observer.value("jmsx_prefetch_limit_messages") == 200
    closed = _told(*opened, (replace(RECEIVED, messages=4), SOURCE), (UNSUBSCRIBED, SOURCE))
    assert closed.value("jmsx_open_subscriptions") == 1
    assert closed.value("jmsx_prefetch_limit_messages") == 100
    assert closed.value("jmsx_unsettled_messages") == 0


_LATER = replace(RECEIVED, at=AT + 5, messages=2)
_HELD = ((LINK_OPENED, SOURCE), (RECEIVED, SOURCE), (_LATER, SOURCE))


def test_the_oldest_message_that_is_held_is_told() -> None:
    """One that hangs is seen whatever is settled beside it; one that is rolled back stays as old as it is."""
    later, first = replace(ENDED, received_at=AT + 5), replace(ENDED, received_at=AT)
    rolled_back = replace(first, outcome=Outcome.ROLLED_BACK)
    name = "jmsx_oldest_unsettled_seconds"

    assert _told(*_HELD, after=9).value(name) == 9
    assert _told(*_HELD, (later, SOURCE), (later, SOURCE), after=9).value(name) == 9
    assert _told(*_HELD, (rolled_back, SOURCE), after=9).value(name) == 9
    assert _told(*_HELD, (first, SOURCE), after=9).value(name) == 4
    assert _told(*_HELD, (first, SOURCE), (later, SOURCE), after=9).value(name) == 4
    assert _told(*_HELD, (later, SOURCE), (first, SOURCE), (later, SOURCE)).value(name) == 0
    assert _told(*_HELD, (_LOST, SOURCE), after=9).value(name) == 0
    other = ((LINK_OPENED, _OTHER), (_LATER, _OTHER))
    assert _told(*other, *_HELD, after=9).value(name) == 9
    assert _told(*other, *_HELD, (_LOST, SOURCE), after=9).value(name) == 4


@given(st.data())
def test_the_oldest_is_told_in_whatever_order_messages_end(data: st.DataObject) -> None:
    """Also where consumers share a label, and what was received is so told in another order than it came."""
    came = sorted(data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=12)))
    consumers = [data.draw(st.sampled_from(["one", "two", "three"])) for _ in came]
    pairs = list(zip(came, consumers, strict=True))
    order = data.draw(st.permutations(pairs))
    ended = data.draw(st.integers(0, len(order)))
    observer = PrometheusObserver(clock=lambda: (AT + 20, WALL + 20), maximum_consumers=1)
    observer.observe(LINK_OPENED, SOURCE)
    for at, consumer in pairs:
        observer.observe(replace(RECEIVED, at=AT + at, messages=1, consumer=consumer), SOURCE)
    for at, consumer in order[:ended]:
        if data.draw(st.booleans()):
            observer.value("jmsx_unsettled_messages")  # who looks has all counted that was told
        observer.observe(replace(ENDED, received_at=AT + at, consumer=consumer), SOURCE)
    left = order[ended:]
    oldest = observer.totals("jmsx_oldest_unsettled_seconds", "consumer")
    assert observer.value("jmsx_unsettled_messages") == len(left)
    assert max(oldest.values()) == max([20 - at for at, _ in left], default=0)


def test_a_redelivery_is_pending_until_its_back_off_is_over() -> None:
    """It is counted by its own time, and not where its socket is gone; one without a delay never is."""
    name = "jmsx_redelivery_pending_messages"
    told = (*_HELD, (REDELIVERY, SOURCE), (replace(REDELIVERY, delay=60.0), SOURCE))

    assert _told(*_HELD).value(name) == 0
    assert _told(*told).value(name) == 2
    assert _told(*told, after=1).value(name) == 1
    assert _told(*told, after=60).value(name) == 0
    assert _told(*told, (UNSUBSCRIBED, SOURCE)).value(name) == 0
    assert _told(*told, (_LOST, SOURCE), (REDELIVERY, SOURCE)).value(name) == 0
    assert _told(*_HELD, (replace(REDELIVERY, delay=0.0), SOURCE)).value(name) == 0


def test_redeliveries_take_no_room_where_nobody_scrapes() -> None:
    """A process whose metrics are not asked for forgets back-offs that are over, too."""
    observer = _told(*_HELD)
    tracemalloc.start()
    try:
        for second in range(20_000):
            observer.observe(replace(REDELIVERY, at=AT + second, delay=0.5), SOURCE)
        assert tracemalloc.get_traced_memory()[0] < 300_000
    finally:
        tracemalloc.stop()


_EVENTS = st.sampled_from(
    [LINK_OPENED, _LOST, LINK_CLOSED, SUBSCRIBED, UNSUBSCRIBED, RECEIVED, ENDED, REDELIVERY]
)
_SOURCES = st.sampled_from([SOURCE, _AGAIN, _OTHER])


@given(st.lists(st.tuples(_EVENTS, _SOURCES)))
def test_no_gauge_is_ever_negative_or_left_over(told: list[tuple[Event, Source]]) -> None:
    """Whatever comes in whatever order, nothing is below 0, and nothing stays when all is closed."""
    observer = _told(*told, after=0.5)
    names = (
        *("jmsx_unsettled_messages", "jmsx_open_subscriptions", "jmsx_prefetch_limit_messages"),
        *("jmsx_oldest_unsettled_seconds", "jmsx_redelivery_pending_messages"),
    )
    assert all(observer.value(name) >= 0 for name in names)
    for source in (SOURCE, _AGAIN, _OTHER):
        observer.observe(LINK_OPENED, source)
        observer.observe(LINK_CLOSED, source)
    assert [observer.value(name) for name in names] == [0, 0, 0, 0, 0]


def test_what_goes_over_a_socket_is_counted_once() -> None:
    """Each measurement tells all since the socket was opened; only what is new counts, and an old socket's no more."""
    observer = PrometheusObserver(clock=stand_still)
    again = replace(SOURCE, epoch=2)
    more = replace(LINK_MEASURED, frames_in=35, bytes_out=2500)
    for event, source in (
        (LINK_OPENED, SOURCE),
        (LINK_MEASURED, SOURCE),
        (more, SOURCE),
        (replace(LINK_CLOSED, reason="io"), SOURCE),
        (LINK_OPENED, again),
        (LINK_MEASURED, SOURCE),
        (replace(LINK_MEASURED, frames_in=1, frames_out=1, bytes_in=1, bytes_out=1), again),
    ):
        observer.observe(event, source)
    assert observer.totals("jmsx_frames_total", "direction") == {("in",): 36, ("out",): 21}
    assert observer.totals("jmsx_link_bytes_total", "direction") == {("in",): 3001, ("out",): 2501}
    assert observer.value("jmsx_silence_limit_seconds") == 20


def test_the_session_that_waits_for_longest_is_shown() -> None:
    """One socket may hear nothing any more while another one does."""
    observer = PrometheusObserver(clock=stand_still)
    other = replace(SOURCE, session_id="s2")
    early = replace(LINK_OPENED, at=AT - 100)
    for event, source in (
        (early, SOURCE),
        (early, other),
        (LINK_MEASURED, SOURCE),
        (replace(LINK_MEASURED, heard_at=AT - 50), other),
    ):
        observer.observe(event, source)
    heard = "jmsx_last_frame_received_timestamp_seconds"
    assert observer.value(heard) == WALL - 50
    observer.observe(LINK_CLOSED, other)
    assert observer.value(heard) == WALL + 2
    observer.observe(LINK_CLOSED, SOURCE)
    assert observer.totals(heard, "broker") == {}


def test_attempts_and_missing_answers_are_counted_by_what_came_of_them() -> None:
    """What can be known beforehand is there at 0, so that the first failure is an increase."""
    observer = PrometheusObserver(clock=stand_still)
    for event in (CONNECT_FAILED, replace(CONNECT_FAILED, result="tls"), LINK_OPENED):
        observer.observe(event, SOURCE)
    observer.observe(RECEIPT_MISSED, SOURCE)
    attempts = observer.totals("jmsx_connection_attempts_total", "result")
    assert attempts == {
        (result,): result in {"ok", "refused", "tls"}
        for result in ("ok", "refused", "credentials", "timeout", "tls", "settings")
    }
    missed = observer.totals("jmsx_receipt_timeouts_total", "command")
    assert {command: count for command, count in missed.items() if count} == {("SEND",): 1}
    assert missed["COMMIT",] == 0


def test_what_is_down_is_not_silent() -> None:
    """A lost socket is told by another gauge."""
    heard = "jmsx_last_frame_received_timestamp_seconds"
    lost = ((LINK_OPENED, SOURCE), (LINK_MEASURED, SOURCE), (_LOST, SOURCE))
    assert _told(*lost).totals(heard, "broker") == {}
    assert _told(*lost, (LINK_OPENED, _AGAIN)).value(heard) == WALL


def test_what_is_here_is_added_up_and_goes_with_its_link() -> None:
    """Of two sessions of one consumer each tells its own; what was measured of a lost link is the broker's again."""
    both = (
        (LINK_OPENED, SOURCE),
        (SUBSCRIBED, SOURCE),
        (CONSUMER_MEASURED, SOURCE),
        (LINK_OPENED, _OTHER),
        (SUBSCRIBED, _OTHER),
        (replace(CONSUMER_MEASURED, buffered=1, in_process=1), _OTHER),
    )
    names = ("jmsx_buffered_messages", "jmsx_in_process_messages")
    for more, told in (
        ((), [6, 3]),
        (((replace(CONSUMER_MEASURED, buffered=0, in_process=0), SOURCE),), [1, 1]),
        (((_LOST, SOURCE),), [1, 1]),
        (((_LOST, SOURCE), (CONSUMER_MEASURED, SOURCE)), [1, 1]),
        (((UNSUBSCRIBED, _OTHER),), [5, 2]),
    ):
        observer = _told(*both, *more)
        assert [observer.value(name) for name in names] == told


def test_frames_that_wait_for_their_answer_are_added_up() -> None:
    """Over the sessions of a broker; who has no socket waits for nothing."""
    both = ((LINK_OPENED, SOURCE), (LINK_OPENED, _OTHER), (LINK_MEASURED, SOURCE))
    name = "jmsx_unanswered_frames"
    assert _told(*both).value(name) == 4
    assert _told(*both, (LINK_MEASURED, _OTHER)).value(name) == 8
    assert _told(*both, (LINK_MEASURED, _OTHER), (_LOST, SOURCE)).value(name) == 4
    assert _told(*both[:2]).totals(name, "broker") == {("broker:61613",): 0}


def test_the_brokers_clock_is_the_one_that_was_seen_last() -> None:
    """Behind is negative."""
    told = _told((CLOCK_COMPARED, SOURCE), (replace(CLOCK_COMPARED, ahead=2.5), SOURCE))
    name = "jmsx_broker_clock_ahead_seconds"
    assert _told((CLOCK_COMPARED, SOURCE)).totals(name, "broker") == {("broker:61613",): -0.25}
    assert told.value(name) == 2.5


def test_what_a_broker_tells_no_more_is_shown_no_more() -> None:
    """After three looks in vain: the last answer would keep its alert firing for as long as the process lives."""
    for event, name in (
        (CLOCK_COMPARED, "jmsx_broker_clock_ahead_seconds"),
        (COUNTED, "jmsx_broker_queue_messages"),
    ):
        asked_often = replace(event, every=10.0)
        late = (replace(asked_often, at=AT + 20), SOURCE)
        assert len(_told((asked_often, SOURCE), after=29.0).totals(name)) == 1
        assert _told((asked_often, SOURCE), after=31.0).totals(name) == {}
        assert len(_told((asked_often, SOURCE), late, after=31.0).totals(name)) == 1
        assert len(_told((event, SOURCE), after=179.0).totals(name)) == 1
        assert _told((event, SOURCE), after=181.0).totals(name) == {}
