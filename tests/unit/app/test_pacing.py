"""Pauses of a circuit breaker, and rates: when a handler may be called; in virtual time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from prometheus_client import generate_latest

from jmsx import (
    App,
    BatchError,
    ConfigurationError,
    Discard,
    Message,
    ReconnectPolicy,
    RedeliveryPolicy,
    Reject,
    Retry,
)
from jmsx.app.pacing import Bucket, Circuit, CircuitBreaker, RateLimit
from jmsx.jms.outcomes import Unhandled
from jmsx.testing import harness
from jmsx_prometheus import PrometheusObserver
from tests.unit.interrupts import Interrupt

KINDS = pytest.mark.parametrize("kind", ["classic", "artemis"])


@pytest.mark.parametrize(
    "options", [{"failures": 0}, {"pause": 0}, {"pause": "x"}, {"on": "OSError"}, {"fails": 3}]
)
def test_refused_breakers(options: Any) -> None:
    """At import."""
    with pytest.raises(ConfigurationError):
        CircuitBreaker(**options)


SERVICE = CircuitBreaker(failures=3, pause="30s", on=OSError)
PATIENT = RedeliveryPolicy(
    maximum_redeliveries=-1, initial_redelivery_delay=1.0, redelivery_delay=1.0
)


class Service:
    """Something that is away, or not."""

    def __init__(self) -> None:
        self.away = False

    def use(self) -> None:
        """Raises while it is away."""
        if self.away:
            raise ConnectionError("service is away")


def using(service: Service, **settings: Any) -> App:
    """An app whose handler uses the service."""
    app = App(redelivery_policy=PATIENT)

    def ship(order: Any) -> None:
        if getattr(order, "text", "") == "bad":
            raise Reject("bad")
        service.use()

    app.consumer("queue://orders", name="ship", breaker=SERVICE, **settings)(ship)
    return app


@KINDS
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"mode": "client"},
        {"mode": "transacted"},
        {"batch": 4, "batch_timeout": 0.1, "prefetch": 10},
        {"concurrency": 3},
    ],
)
def test_a_pause(kind: str, settings: dict[str, Any]) -> None:
    """After failures in a row nobody is called until the probe; if that is handled, all go on."""
    service = Service()
    app = using(service, **settings)
    with harness(app, kind) as mq:
        calls = mq.handler("ship").calls
        service.away = True
        for number in range(6):
            mq.send("queue://orders", f"{number}")
        mq.advance("10s")
        assert len(calls) == 3
        assert app.live().ok
        assert not app.ready().ok
        assert "paused after 3 failures in a row" in app.ready().body["reasons"][0]
        assert any("ConnectionError" in row.get("paused", "") for row in app.live().body["workers"])
        mq.advance("45s")
        assert len(calls) == 4  # the probe, alone
        probe = calls[-1].arguments[0]
        assert not isinstance(probe, list) or len(probe) == 1
        service.away = False
        mq.advance("1min")
        assert app.ready().ok
        assert mq.messages("queue://orders") == []
        assert mq.dead_letters() == []
        assert sum(call.error is not None for call in calls) == 4


@KINDS
def test_a_probe_that_tells_nothing(kind: str) -> None:
    """A message that is at fault itself says nothing of the service: the next one is the probe."""
    service = Service()
    with harness(using(service, prefetch=1), kind) as mq:
        service.away = True
        mq.send("queue://orders", "a")
        mq.advance("10s")
        assert len(mq.handler("ship").calls) == 3
        mq.send("queue://orders", "bad")
        service.away = False
        mq.advance("31s")
        assert mq.messages("queue://orders") == []
        [letter] = mq.dead_letters()
        assert (letter.reason, letter.error_type) == ("rejected", "Reject")


def test_other_errors_do_not_count() -> None:
    """Nor are they a success."""
    app = App(redelivery_policy=RedeliveryPolicy(maximum_redeliveries=0))
    errors = iter([OSError(), ValueError(), OSError(), Reject("x"), OSError(), None])

    @app.consumer("queue://orders", name="ship", breaker=SERVICE)
    def ship(order: Message) -> None:
        del order
        error = next(errors)
        if error is not None:
            raise error

    with harness(app) as mq:
        for _ in range(5):
            mq.send("queue://orders", "x")
        assert not app.ready().ok
        mq.send("queue://orders", "x")
        assert len(mq.handler("ship").calls) == 5
        mq.advance("30s")
        assert app.ready().ok


@KINDS
@pytest.mark.parametrize("named", [False, True])
def test_a_pause_because_of_a_batch_error(kind: str, named: bool) -> None:
    """Its cause counts, and so do the errors of its messages; a probe that fails so begins the next pause."""
    app, calls = App(redelivery_policy=PATIENT), list[int]()

    @app.consumer("queue://rows", batch=2, batch_timeout=0.1, breaker=SERVICE)
    def write(rows: list[Message]) -> None:
        calls.append(len(rows))
        if named:
            raise BatchError(dict.fromkeys(rows, ConnectionError("service is away")))
        raise BatchError(rows) from ConnectionError("service is away")

    with harness(app, kind) as mq:
        for _ in range(2):
            mq.send("queue://rows", "x")
        mq.advance("20s")
        assert len(calls) == 3
        mq.advance("30s")
        assert calls[3:] == [1]  # the probe, alone


def circuit(**breaker: Any) -> Circuit:
    """That opens at the first failure that counts."""
    return Circuit(CircuitBreaker(failures=1, **breaker), "ship")


def of_batch(*errors: BaseException) -> BatchError:
    """Of messages that failed with these."""
    return BatchError({Message(f"{error}"): error for error in errors})


def retried(error: BaseException) -> Retry:
    """Because of `error`."""
    retry = Retry()
    retry.__cause__ = error
    return retry


def emptied() -> BatchError:
    """Of no message."""
    error = of_batch(OSError())
    error.failed = ()
    return error


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (of_batch(OSError(), OSError()), True),
        (of_batch(ValueError(), OSError()), True),
        (of_batch(retried(OSError())), True),
        (retried(of_batch(OSError())), True),
        (of_batch(ValueError()), False),
        (of_batch(Reject("x"), Discard("x")), False),
        (BatchError([Message("x")]), False),
        (emptied(), False),
    ],
)
def test_what_a_batch_error_stands_for(error: BaseException, counts: bool) -> None:
    """What its messages failed with, and not it itself."""
    one = circuit(on=OSError)
    one.ended(error, 0.0)
    assert one.is_closed is not counts


def test_what_a_batch_error_stands_for_by_default() -> None:
    """All exceptions count then, save what says that a message is at fault itself."""
    one = circuit()
    for error in (of_batch(Reject("x"), Discard("x")), emptied()):
        one.ended(error, 0.0)
        assert one.is_closed
    one.ended(BatchError([Message("x")]), 0.0)
    assert not one.is_closed


def test_a_probe_that_fails_as_a_batch_error() -> None:
    """The next pause begins."""
    one = circuit(on=OSError, pause=30.0)
    one.ended(of_batch(OSError()), 0.0)
    assert one.wait(30.0) == 0.0
    one.ended(of_batch(ValueError(), OSError()), 31.0)
    assert one.wait(31.0) == 30.0


@KINDS
@pytest.mark.parametrize("mode", ["auto", "transacted"])
def test_a_batch_that_was_gathered_before_the_pause(kind: str, mode: str) -> None:
    """It is not the probe as a whole: all of it goes back, and one message comes alone."""
    app, calls = App(), list[list[str]]()

    @app.consumer(
        "queue://rows", batch=5, batch_timeout=3.0, breaker=SERVICE, mode=mode, name="write"
    )
    def write(rows: list[Message]) -> None:
        calls.append([row.text for row in rows])
        assert all(row.delivery_count == 1 for row in rows)

    with harness(app, kind) as mq:
        for body in "abc":
            mq.send("queue://rows", body)
        mq.advance("1s")
        gate = app._service.current.gates["write"]
        for _ in range(3):
            gate.ended(ConnectionError(), 1001.0)
        assert not app.ready().ok
        mq.advance("29s")
        assert calls == []
        mq.advance("10s")
        assert calls == [["a"], ["b", "c"]]
        assert mq.messages("queue://rows") == []


@KINDS
def test_metrics_tell_of_a_pause(kind: str) -> None:
    """From the start on, while it is paused, when it goes on, and when it stops; whatever other observers do."""

    class Broken:
        """It can tell nothing."""

        def observe(self, *_: object) -> None:
            """Nothing."""

        def close(self) -> None:
            """Nothing."""

        def note_paused(self, *_: object, **__: object) -> None:
            """Fail."""
            raise RuntimeError

    service, metrics = Service(), PrometheusObserver()
    app = using(service)
    app.observe(Broken(), metrics)

    def paused() -> float:
        return metrics.value("jmsx_consumer_paused", destination="queue://orders", consumer="ship")

    with harness(app, kind) as mq:
        assert b'jmsx_consumer_paused{consumer="ship",destination="queue://orders"} 0.0' in (
            generate_latest(metrics.registry)
        )
        service.away = True
        mq.send("queue://orders", "x")
        mq.advance("20s")
        assert paused() == 1
        service.away = False
        mq.advance("1min")
        assert paused() == 0
        service.away = True
        mq.send("queue://orders", "y")
        mq.advance("20s")
        assert paused() == 1
    assert paused() == 0  # who has stopped does not pause


@pytest.mark.parametrize("late", [OSError(), Unhandled()], ids=["failed", "given up"])
def test_a_probe_that_ends_when_all_has_stopped(late: BaseException) -> None:
    """Its consumer does not pause any more, and nobody is told that it does."""
    told: list[bool] = []
    one = Circuit(CircuitBreaker(failures=1), "ship", told.append)
    one.ended(OSError(), 0.0)
    assert one.wait(30.0) == 0.0
    one.close()
    one.ended(late, 31.0)
    assert told == [True, False]


@pytest.mark.timeout(60)
def test_an_end_in_the_middle_of_an_end() -> None:
    """By a signal handler that aborts the app which is being stopped; the two waited for each other, for ever."""

    def steps(interrupted: int) -> int:
        told: list[bool] = []
        one = Circuit(CircuitBreaker(failures=1), "ship", told.append)
        one.ended(OSError(), 0.0)
        within = ["jmsx/app/pacing.py"]
        ending = Interrupt(interrupted, within=within, handler=lambda _alarm: one.close())
        ending.run(one.close)
        assert told == [True, False]
        return ending.steps

    step = 1
    while steps(step) >= step:
        step += 1
    assert step > 3


@KINDS
def test_draining_gives_back_what_waits(kind: str) -> None:
    """At once, and as if nobody had seen it."""
    service = Service()
    app = using(service)
    service.away = True
    with harness(app, kind) as mq:
        mq.send("queue://orders", "x")
        mq.advance("5s")
        broker = mq.broker
        before = mq._world.monotonic()
        count = len(mq.handler("ship").calls)
    assert len(mq.handler("ship").calls) == count
    assert mq._world.monotonic() - before < 25
    assert broker.queue("orders").browse()


@KINDS
def test_a_link_that_is_lost_during_a_pause(kind: str) -> None:
    """What waited comes again, and is handled once."""
    service = Service()
    with harness(using(service), kind) as mq:
        service.away = True
        mq.send("queue://orders", "x")
        mq.advance("5s")
        mq.send("queue://orders", "y")
        service.away = False
        mq.drop_connections()
        mq.advance("2min")
        done = [call.message.text for call in mq.handler("ship").calls if call.error is None]
        assert sorted(done) == ["x", "y"]


# Rates ---------------------------------------------------------------------------------------------------------------


@KINDS
def test_a_rate(kind: str) -> None:
    """Evenly, for all sessions and consumers that share it; nothing is stuck."""
    app, limit = App(), RateLimit("2/min")
    for name in ("a", "b"):
        app.consumer(f"queue://{name}", name=name, rate_limit=limit, concurrency=2)(
            lambda message: message.text
        )
    with harness(app, kind) as mq:
        for name in "abab":
            mq.send(f"queue://{name}", "x")
        mq.advance("10s")
        assert app.live().ok
        assert app.ready().ok
        mq.advance("5min")
        at = sorted(call.at for name in "ab" for call in mq.handler(name).calls)
        assert [round(later - first) for first, later in pairwise(at)] == [30] * 3


def test_a_rate_of_batches() -> None:
    """By messages."""
    app, at = App(), list[float]()

    @app.consumer("queue://rows", name="rows", batch=10, batch_timeout="1s", rate_limit="10/min")
    def write(rows: list[Message]) -> None:
        at.append(len(rows))

    with harness(app) as mq:
        for _ in range(20):
            mq.send("queue://rows", "x")
        mq.advance("10s")
        assert at == [10]
        mq.advance("1min")
        assert at == [10, 10]


@pytest.mark.parametrize(
    ("rate", "interval"), [("100/s", 0.01), ("5/min", 12), ("1/10s", 10), (" 3 / h ", 1200)]
)
def test_rates(rate: str, interval: float) -> None:
    """As people write them."""
    assert RateLimit(rate).interval == pytest.approx(interval)


@KINDS
def test_a_turn_whose_link_was_lost(kind: str) -> None:
    """Nobody was handled in it, so the next message has it; a link that breaks again and again starves nobody."""
    app = App(reconnect=ReconnectPolicy(initial_delay=0.01))

    @app.consumer("queue://orders", rate_limit="12/min")
    def ship(message: Message) -> None:
        del message

    with harness(app, kind) as mq:
        for text in "abcd":
            mq.send("queue://orders", text)
        for _ in range(3):
            mq.advance("4s")
            mq.drop_connections()
            mq.advance("1s")
        mq.advance("1s")
        calls = mq.handler(ship).calls
        assert [one.message.text for one in calls] == list("abcd")
        times = [one.at for one in calls]
        assert all(later - before > 4.9 for before, later in pairwise(times))


def test_who_has_the_turn_behind_keeps_it() -> None:
    """What is given back is had by nobody if another one waits already."""
    bucket = Bucket(RateLimit("12/min"))
    assert [bucket.take(1, 100.0) for _ in range(3)] == [0.0, 5.0, 10.0]
    bucket.give_back(1, 105.0)
    assert bucket.take(1, 105.0) == 10.0
    bucket.give_back(1, 115.0)
    assert bucket.take(1, 115.0) == 0.0
