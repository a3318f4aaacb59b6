"""What is around a handler: middleware, what its errors mean, pauses, rates and timeouts; in virtual time."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import generate_latest

from jmsx import (
    App,
    BatchError,
    ConfigurationError,
    Discard,
    HealthLimits,
    IllegalStateError,
    MemoryStore,
    Message,
    RedeliveryPolicy,
    Reject,
    Retry,
    UnsupportedError,
)
from jmsx.app.loops import Running
from jmsx.app.middleware import CallNext, Layer
from jmsx.app.pacing import Circuit, CircuitBreaker, RateLimit
from jmsx.errors import ConnectionFailedError, JmsxError
from jmsx.testing import harness
from jmsx_prometheus import PrometheusObserver

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = pytest.mark.parametrize("kind", ["classic", "artemis"])
URL = "stomp://localhost:61613"
NEVER = RedeliveryPolicy(maximum_redeliveries=0)
MINUTELY = RedeliveryPolicy(
    maximum_redeliveries=2, initial_redelivery_delay=60.0, redelivery_delay=60.0
)


class Noted:
    """A middleware that notes what goes in and out."""

    def __init__(self, name: str, seen: list[str]) -> None:
        self.name, self.seen = name, seen

    def __call__(self, message: Message, call_next: CallNext) -> object:
        """Note both."""
        self.seen.append(f"{self.name} in")
        try:
            return call_next(message)
        finally:
            self.seen.append(f"{self.name} out")


def swallowing(message: Message, call_next: CallNext) -> object:
    """Nothing has failed, then."""
    try:
        return call_next(message)
    except ValueError:
        return None


def failing(message: Message, call_next: CallNext) -> None:
    """After the handler."""
    call_next(message)
    raise OSError("middleware")


def forgetful(message: Message, call_next: CallNext) -> None:
    """Calls nobody."""
    del message, call_next


def discarding(message: Message, call_next: CallNext) -> object:
    """Keeps some away."""
    if message.text == "unwanted":
        raise Discard
    return call_next(message)


async def aswallowing(message: Message, call_next: CallNext) -> object:
    """The twin."""
    try:
        return await call_next(message)
    except ValueError:
        return None


async def aforgetful(message: Message, call_next: CallNext) -> None:
    """Makes the call, and does not await it."""
    call_next(message).close()


def handled(*middleware: Any, app_middleware: Any = (), **settings: Any) -> App:
    """An app whose handler `ship` fails for `bad`."""
    app = App(middleware=app_middleware, redelivery_policy=NEVER)

    def ship(order: Message) -> None:
        if order.text.startswith("bad"):
            raise ValueError(order.text)

    app.consumer("queue://orders", name="ship", middleware=middleware, **settings)(ship)
    return app


def deaths(mq: Any) -> list[tuple[str, str | None]]:
    """Reasons of the dead letters."""
    return [(letter.reason, letter.error_type) for letter in mq.dead_letters()]


# Middleware ----------------------------------------------------------------------------------------------------------


@KINDS
def test_the_order(kind: str) -> None:
    """The app's outside, then the consumer's, then the handler."""
    seen: list[str] = []
    a, b, c, d = (Noted(name, seen) for name in "abcd")
    with harness(handled(c, d, app_middleware=[a, b]), kind) as mq:
        mq.send("queue://orders", "x")
    assert seen == ["a in", "b in", "c in", "d in", "d out", "c out", "b out", "a out"]


@KINDS
@pytest.mark.parametrize("mode", ["auto", "client", "individual", "transacted"])
def test_what_it_means(kind: str, mode: str) -> None:
    """What swallows acknowledges, what raises fails, and what forgets the handler has handled nothing."""
    with harness(handled(swallowing, mode=mode), kind) as mq:
        mq.send("queue://orders", "bad")
        assert len(mq.handler("ship").calls) == 1
        assert deaths(mq) == []
        assert mq.messages("queue://orders") == []
    with harness(handled(failing, mode=mode), kind) as mq:
        mq.send("queue://orders", "x")
        assert deaths(mq) == [("max_redeliveries", "OSError")]
    with harness(handled(forgetful, mode=mode), kind) as mq:
        mq.send("queue://orders", "x")
        assert deaths(mq) == [("rejected", "ConfigurationError")]
        assert "was not called" in (mq.dead_letters()[0].error_message or "")
    with harness(handled(discarding, mode=mode), kind) as mq:
        mq.send("queue://orders", "unwanted")
        mq.send("queue://orders", "x")
        assert deaths(mq) == []
        assert [one.text for one in mq.handler("ship").messages] == ["x"]


def test_it_may_change_the_message() -> None:
    """What it calls with is what the handler gets."""

    def decrypting(message: Message, call_next: CallNext) -> object:
        message.body = message.text[::-1]
        return call_next(message)

    with harness(handled(decrypting)) as mq:
        mq.send("queue://orders", "dab")
        assert deaths(mq) == [("max_redeliveries", "ValueError")]


def test_it_is_inside_of_dedupe() -> None:
    """A duplicate reaches no middleware."""
    seen: list[str] = []
    app = handled(Noted("a", seen), dedupe=MemoryStore(), dedupe_by=lambda message: message.text)
    with harness(app) as mq:
        for _ in range(3):
            mq.send("queue://orders", "x")
    assert seen == ["a in", "a out"]


@KINDS
def test_batches(kind: str) -> None:
    """It gets the list."""
    app, sizes = App(redelivery_policy=NEVER), list[int]()

    def counted(messages: list[Message], call_next: CallNext) -> object:
        sizes.append(len(messages))
        return call_next(messages)

    @app.consumer("queue://rows", batch=3, batch_timeout="1s", middleware=[counted])
    def write(rows: list[Message]) -> None:
        bad = [row for row in rows if row.text == "bad"]
        if bad:
            raise BatchError(bad)

    with harness(app, kind) as mq:
        for text in ("a", "bad", "b"):
            mq.send("queue://rows", text)
        mq.advance("2s")
        assert sizes == [3]
        assert len(mq.dead_letters()) == 1


@KINDS
@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("awaited", [False, True])
def test_what_does_not_fit_cannot_be_swallowed(kind: str, batch: bool, awaited: bool) -> None:  # noqa: FBT001 - parameters
    """The handler was not called with it; what fits is handled."""

    def deaf(taken: Any, call_next: CallNext) -> object:
        with suppress(Exception):
            return call_next(taken)
        return None

    async def adeaf(taken: Any, call_next: CallNext) -> object:
        with suppress(Exception):
            return await call_next(taken)
        return None

    got: list[int] = []

    def one(number: int) -> None:
        got.append(number)

    async def aone(number: int) -> None:
        got.append(number)

    def many(numbers: list[int]) -> None:
        got.extend(numbers)

    async def amany(numbers: list[int]) -> None:
        got.extend(numbers)

    handler: Any = (amany if awaited else many) if batch else (aone if awaited else one)
    options: dict[str, Any] = {"batch": 3, "batch_timeout": "1s"} if batch else {}
    app = App(middleware=[Layer(deaf, adeaf)])
    app.consumer("queue://numbers", **options)(handler)
    with harness(app, kind) as mq:
        for text in ("1", "none", "2"):
            mq.send("queue://numbers", text)
        mq.advance("2s")
        assert got == [1, 2]
        assert [letter.reason for letter in mq.dead_letters()] == ["rejected"]
        assert mq.messages("queue://numbers") == []


@KINDS
def test_async_twins(kind: str) -> None:
    """On the loop, around `async def`; a coroutine that nobody awaits is no call."""

    def app_with(*middleware: Any) -> App:
        app = App(redelivery_policy=NEVER)

        @app.consumer("queue://orders", name="ship", middleware=middleware)
        async def ship(order: Message) -> None:
            await asyncio.sleep(0)
            raise ValueError(order.text)

        return app

    with harness(app_with(Layer(swallowing, aswallowing)), kind) as mq:
        mq.send("queue://orders", "x")
        assert deaths(mq) == []
    with harness(app_with(aforgetful), kind) as mq:
        mq.send("queue://orders", "x")
        assert deaths(mq) == [("rejected", "ConfigurationError")]


def test_around_what_is_sent() -> None:
    """A layer of the app may set properties."""
    seen: list[str] = []

    @contextmanager
    def sending(message: Message, to: str) -> Iterator[None]:
        message.properties["tenant"] = "a"
        seen.append(f"before {to}")
        yield
        seen.append(f"after {to}")

    app = handled(app_middleware=[Layer(swallowing, aswallowing, sending)])
    with harness(app) as mq:
        mq.send("queue://orders", "x")
        assert mq.handler("ship").messages[0].properties["tenant"] == "a"
    assert seen == ["before queue://orders", "after queue://orders"]


def test_a_failed_send_cannot_be_swallowed() -> None:
    """Else the caller would take it for sent."""

    @contextmanager
    def sending(message: Message, to: str) -> Iterator[None]:
        del message, to
        with suppress(Exception):
            yield

    app = App(middleware=[Layer(swallowing, aswallowing, sending)])
    with harness(app) as mq:
        with pytest.raises(UnsupportedError, match="drops no duplicates"):
            app.send("queue://orders", "x", dedupe_id="1")
        assert app.send("queue://orders", "x")
        assert len(mq.messages("queue://orders")) == 1


@KINDS
@pytest.mark.parametrize("batch", [False, True])
def test_what_has_not_run_cannot_be_swallowed(kind: str, batch: bool) -> None:  # noqa: FBT001 - a parameter
    """A handler that returns a promise has handled nothing, whatever a middleware makes of that."""

    def deaf(taken: Any, call_next: CallNext) -> object:
        with suppress(Exception):
            return call_next(taken)
        return None

    def lazy(taken: Any) -> object:
        return (one for one in [taken])

    app = App(middleware=[deaf])
    options: dict[str, Any] = {"batch": 3, "batch_timeout": "1s"} if batch else {}
    app.consumer("queue://orders", **options)(lazy)
    with harness(app, kind) as mq:
        mq.send("queue://orders", "x")
        mq.advance("2s")
        assert deaths(mq) == [("rejected", "ConfigurationError")]


def parts(taken: list[Message], call_next: CallNext) -> None:
    """Two by two."""
    for start in range(0, len(taken), 2):
        call_next(taken[start : start + 2])


def first_part(taken: list[Message], call_next: CallNext) -> None:
    """Forgets the others."""
    call_next(taken[:2])


def replaced(taken: list[Message], call_next: CallNext) -> None:
    """Others in their place."""
    call_next([Message(one.text.upper()) for one in taken])


def unwanted(taken: list[Message], call_next: CallNext) -> None:
    """Has 3 away, and forgets 4."""
    wanted = [one for one in taken if one.text in "12"]
    others = [one for one in taken if one.text == "3"]
    if wanted:
        call_next(wanted)
    if others:
        raise BatchError(dict.fromkeys(others, Discard()))


def deaf_parts(taken: list[Message], call_next: CallNext) -> None:
    """Swallows what its parts raise."""
    for start in range(0, len(taken), 2):
        with suppress(Exception):
            call_next(taken[start : start + 2])


@KINDS
@pytest.mark.parametrize("mode", ["auto", "transacted"])
@pytest.mark.parametrize(
    ("middleware", "bodies", "handled", "dead"),
    [
        (parts, "1234", [["1", "2"], ["3", "4"]], []),
        (first_part, "1234", [["1", "2"]], ["3", "4"]),
        (unwanted, "1234", [["1", "2"]], ["4"]),
        (parts, "12b4", None, ["b"]),
        (parts, "b234", None, ["b"]),
        (deaf_parts, "12b4", None, ["b"]),
    ],
)
def test_a_batch_in_parts(  # noqa: PLR0917 - parameters
    kind: str, mode: str, middleware: Any, bodies: str, handled: Any, dead: list[str]
) -> None:
    """What the handler was not given is not done: left out it is a dead letter, behind an error it comes again."""
    app, got = App(middleware=[middleware]), list[list[str]]()

    @app.consumer("queue://rows", batch=9, batch_timeout="1s", mode=mode)
    def write(rows: list[int], messages: list[Message]) -> None:
        del rows
        got.append([one.text for one in messages])

    with harness(app, kind) as mq:
        for body in bodies:
            mq.send("queue://rows", body)
        mq.advance("1min")
        lost = {*bodies} - {text for part in got for text in part}
        assert [letter.message.text for letter in mq.dead_letters() if letter.message] == dead
        assert lost <= {*dead, *("3" if middleware is unwanted else "")}
        assert mq.messages("queue://rows") == []
        if handled is not None and mode == "auto":
            assert got == handled


def test_a_batch_with_others_in_its_place() -> None:
    """A middleware may do that."""
    app, got = App(middleware=[replaced]), list[str]()

    @app.consumer("queue://rows", batch=2, batch_timeout="1s")
    def write(rows: list[str]) -> None:
        got.extend(rows)

    with harness(app) as mq:
        for body in "ab":
            mq.send("queue://rows", body)
        mq.advance("1min")
        assert got == ["A", "B"]
        assert mq.dead_letters() == []


def generator(message: Message, call_next: CallNext) -> Any:
    """As a context manager would be."""
    yield call_next(message)


@pytest.mark.parametrize(
    ("middleware", "complaint"),
    [
        ([aswallowing], "is an async def, and handler .* is a plain function"),
        ([forgetful, 5], "is no function"),
        (swallowing, "takes a list of them"),
        ([lambda message: message], r"must take \(message, call_next\)"),
        ([generator], "generator"),
        ([Layer(swallowing, swallowing)], "is not async def"),  # type: ignore[arg-type]  # what is refused
    ],
)
def test_refused_middleware(middleware: Any, complaint: str) -> None:
    """At import, on the consumer and on the app."""
    with pytest.raises(ConfigurationError, match=complaint):
        App(URL).consumer("queue://a", middleware=middleware)(discarding_handler)
    with pytest.raises(ConfigurationError, match=complaint):
        App(URL, middleware=middleware).consumer("queue://a")(discarding_handler)


def discarding_handler(message: Message) -> None:
    """Any."""
    del message


# What errors mean ----------------------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("mode", ["auto", "transacted"])
@pytest.mark.parametrize("batch", [False, True])
def test_retry_on(kind: str, mode: str, batch: bool) -> None:  # noqa: FBT001 - a parameter
    """Only those; what jmsx raises because a link is away need not be named."""
    app = App(redelivery_policy=MINUTELY)
    errors: dict[str, Exception] = {
        "timeout": TimeoutError("slow"),
        "value": ValueError("poison"),
        "link": ConnectionFailedError("gone"),
        "said": Retry(delay=60.0),
    }

    def ship(order: Any) -> None:
        text = (order[0] if batch else order).text
        if text in errors:
            raise errors[text]

    options: dict[str, Any] = {"batch": 1} if batch else {}
    app.consumer("queue://orders", name="ship", mode=mode, retry_on=OSError, **options)(ship)
    with harness(app, kind) as mq:
        mq.send("queue://orders", "value")
        assert deaths(mq) == [("rejected", "ValueError")]
        for text in ("timeout", "link", "said"):
            before = len(mq.handler("ship").calls)
            mq.send("queue://orders", text)
            mq.advance("1h")
            assert len(mq.handler("ship").calls) == before + 3, text


@KINDS
@pytest.mark.parametrize("mode", ["auto", "client", "individual", "transacted"])
def test_policies_for_errors(kind: str, mode: str) -> None:
    """The nearest class counts; others have the consumer's."""
    app, left = App(redelivery_policy=NEVER), {"away": 9}
    patient = RedeliveryPolicy(
        maximum_redeliveries=-1, initial_redelivery_delay=10.0, redelivery_delay=10.0
    )
    once = RedeliveryPolicy(maximum_redeliveries=1, initial_redelivery_delay=0.0)

    @app.consumer(
        "queue://orders",
        name="ship",
        mode=mode,
        redelivery_for={OSError: patient, FileNotFoundError: once},
        give_up_on=KeyError,
    )
    def ship(order: Message) -> None:
        match order.text:
            case "away" if left["away"]:
                left["away"] -= 1
                raise TimeoutError
            case "file":
                raise FileNotFoundError
            case "value":
                raise ValueError
            case "key":
                raise KeyError

    with harness(app, kind) as mq:
        for text, attempts, reason in (
            ("value", 1, "max_redeliveries"),
            ("file", 2, "max_redeliveries"),
            ("key", 1, "rejected"),
        ):
            mq.send("queue://orders", text)
            letter = mq.dead_letters()[-1]
            assert (letter.attempts, letter.reason) == (attempts, reason)
        mq.send("queue://orders", "away")
        mq.advance("45s")
        mq.drop_connections()
        mq.advance("1h")
        assert left["away"] == 0
        assert len(mq.dead_letters()) == 3
        assert mq.messages("queue://orders") == []


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"retry_on": "OSError"}, "retry_on takes classes of errors"),
        ({"redelivery_for": {OSError: 3}}, "redelivery_for of OSError must be a RedeliveryPolicy"),
        ({"redelivery_for": {"OSError": NEVER}}, "redelivery_for takes classes of errors"),
        ({"redelivery_for": NEVER}, "redelivery_for must be policies by classes"),
        ({"timeout": 0}, "timeout must be more than 0 s"),
        ({"rate_limit": "fast"}, "is no rate"),
        ({"rate_limit": "0/s"}, "is no rate"),
        ({"rate_limit": "5/year"}, "no duration"),
        ({"rate_limit": 5}, "rate_limit must be a rate"),
        ({"breaker": 5}, "breaker must be a CircuitBreaker"),
        ({"max_retries": 5}, "did you mean 'redelivery'"),
    ],
)
def test_refused_settings(settings: Any, complaint: str) -> None:
    """At import."""
    with pytest.raises(ConfigurationError, match=complaint):
        App(URL).consumer("queue://a", **settings)(discarding_handler)


@pytest.mark.parametrize(
    "options", [{"failures": 0}, {"pause": 0}, {"pause": "x"}, {"on": "OSError"}, {"fails": 3}]
)
def test_refused_breakers(options: Any) -> None:
    """At import."""
    with pytest.raises(ConfigurationError):
        CircuitBreaker(**options)


# Pauses --------------------------------------------------------------------------------------------------------------

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
        assert deaths(mq) == [("rejected", "Reject")]


def test_other_errors_do_not_count() -> None:
    """Nor are they a success."""
    app = App(redelivery_policy=NEVER)
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
def test_a_pause_because_of_a_batch_error(kind: str, named: bool) -> None:  # noqa: FBT001 - a parameter
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
def test_what_a_batch_error_stands_for(error: BaseException, counts: bool) -> None:  # noqa: FBT001 - a parameter
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
        gate = app._gates["write"]
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


# Timeouts ------------------------------------------------------------------------------------------------------------


@KINDS
def test_an_async_handler_is_cancelled(kind: str) -> None:
    """And has failed; its own TimeoutError is its own."""
    app, ended = App(redelivery_policy=NEVER), list[str]()

    @app.consumer("queue://orders", name="ship", timeout="50ms")
    async def ship(order: Message) -> None:
        if order.text == "own":
            raise TimeoutError("own")
        try:
            await asyncio.sleep(30)
        finally:
            ended.append(order.text)

    with harness(app, kind) as mq:
        mq.send("queue://orders", "slow")
        mq.send("queue://orders", "own")
        first, second = mq.dead_letters()
        assert first.error_type == second.error_type == "TimeoutError"
        assert "did not return in its timeout of 0.05 s, and was cancelled" in str(first)
        assert second.error_message == "own"
    assert ended == ["slow"]


@KINDS
@pytest.mark.parametrize("mode", ["auto", "client", "individual", "transacted"])
@pytest.mark.parametrize("judging", [{"retry_on": OSError}, {"give_up_on": Exception}])
def test_a_loop_that_is_closed_under_a_handler(
    kind: str, mode: str, judging: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Is none of the message's faults: it is given back, and no dead letter."""

    def closed(running: Running) -> None:
        running.loop_closed = True
        raise IllegalStateError("the event loop was closed")

    monkeypatch.setattr(Running, "result", closed)
    app = App()

    async def ship(order: Message) -> None:
        del order

    app.consumer("queue://orders", name="ship", mode=mode, **judging)(ship)
    with (  # noqa: PT012 - it is told when the app ends
        pytest.raises(IllegalStateError, match="loop was closed"),
        harness(app, kind) as mq,
    ):
        broker = mq.broker
        mq.send("queue://orders", "x")
    assert len(broker.queue("orders").browse()) == 1


def test_a_plain_handler_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """It is told, health says so, and what it has done is done."""
    app, go_on, begun = App(), threading.Event(), threading.Event()

    @app.consumer("queue://orders", name="ship", timeout="20ms")
    def ship(order: Message) -> None:
        del order
        begun.set()
        go_on.wait(10)

    with harness(app) as mq:
        sending = threading.Thread(target=partial(mq.send, "queue://orders", "x"))
        sending.start()
        assert begun.wait(5)
        (worker,) = app._workers
        assert worker.call is not None
        worker._machine.monotonic = lambda: mq._world._now + 60.0
        worker.tell_late()
        worker.tell_late()
        assert [one for one in app.live().body["reasons"] if "its timeout of 0.02 s" in one]
        go_on.set()
        sending.join(5)
        assert mq.messages("queue://orders") == []
        assert mq.dead_letters() == []
    late = [one for one in caplog.records if "handler late" in one.getMessage()]
    assert len(late) == 1
    assert "go_on.wait" in late[0].getMessage()


@KINDS
def test_a_timeout_is_of_the_handler_alone(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """How long a store, an answer and the broker take is none of it."""
    app, states = App(), list[Any]()
    app.health_limits = HealthLimits(handler=3600.0)

    class Slow(MemoryStore):
        """It takes a minute before and after."""

        def once(self, key: Any, handler: Any) -> bool:
            """Look at what a probe would tell."""
            (worker,) = app._workers
            clock = worker._machine.monotonic
            now = clock() + 60.0
            worker._machine.monotonic = lambda: now
            try:
                worker.tell_late()
                states.append(app.live().ok)
                done = super().once(key, handler)
                worker._machine.monotonic = lambda: now + 60.0
                worker.tell_late()
                states.append(app.live().ok)
                return done
            finally:
                worker._machine.monotonic = clock

    @app.consumer("queue://orders", name="ship", timeout="1s", dedupe=Slow())
    def ship(order: Message) -> None:
        del order

    with harness(app, kind) as mq:
        mq.send("queue://orders", "x")
        assert states == [True, True]
    assert "handler late" not in caplog.text


def test_errors_of_jmsx_are_known() -> None:
    """The base class is no judgement."""
    app = App(URL)
    app.consumer("queue://a", name="a", retry_on=OSError, give_up_on=KeyError)(discarding_handler)
    (consumer,) = app.consumers
    assert isinstance(consumer.judged(JmsxError("x")), Reject)
    error = ConnectionFailedError("x")
    assert consumer.judged(error) is error
    stop = SystemExit()
    assert consumer.judged(stop) is stop
