"""Middleware around a handler: its order, and what it cannot swallow; in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import (
    App,
    BatchError,
    ConfigurationError,
    Discard,
    IllegalStateError,
    MemoryStore,
    Message,
    RedeliveryPolicy,
    UnsupportedError,
)
from jmsx.app.middleware import CallNext, Layer
from jmsx.testing import harness

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = pytest.mark.parametrize("kind", ["classic", "artemis"])
URL = "stomp://localhost:61613"
NEVER = RedeliveryPolicy(maximum_redeliveries=0)


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
def test_what_does_not_fit_cannot_be_swallowed(kind: str, batch: bool, awaited: bool) -> None:
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
def test_what_has_not_run_cannot_be_swallowed(kind: str, batch: bool) -> None:
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


#: That somebody holds, as a loop does not.
TASKS: list[asyncio.Future[Any]] = []


async def abandoning(message: Any, call_next: CallNext) -> None:
    """Returns while the handler runs."""
    TASKS.append(asyncio.ensure_future(call_next(message)))
    await asyncio.sleep(0)


async def behind_its_back(message: Message, call_next: CallNext) -> None:
    """Has the handler called when it has returned itself."""

    async def later() -> None:
        await asyncio.sleep(0.01)
        with suppress(IllegalStateError):
            await call_next(message)

    TASKS.append(asyncio.ensure_future(later()))


@KINDS
@pytest.mark.parametrize("mode", ["auto", "transacted"])
@pytest.mark.parametrize(
    ("middleware", "words", "calls"),
    [(abandoning, "still ran", 1), (behind_its_back, "was not called", 0)],
)
def test_one_that_does_not_wait(
    kind: str, mode: str, middleware: Any, words: str, calls: int
) -> None:
    """Has handled nothing that anybody can vouch for; once it has returned nothing more begins."""
    app, begun = App(redelivery=NEVER), list[Message]()

    @app.consumer("queue://a", name="a", mode=mode, middleware=[middleware])
    async def handle(message: Message) -> None:
        begun.append(message)
        await asyncio.sleep(0.05)

    with harness(app, kind) as mq:
        mq.send("queue://a", "x")
        (dead,) = mq.dead_letters()
        assert (dead.reason, dead.error_type) == ("rejected", "ConfigurationError")
        assert words in str(dead.error_message)
    assert len(begun) == calls


@KINDS
@pytest.mark.parametrize("mode", ["auto", "individual"])
def test_one_that_does_not_wait_and_tells_of_a_part(kind: str, mode: str) -> None:
    """The others are at work still, and nobody can vouch for them either."""
    app = App(redelivery=NEVER)

    async def hasty(batch: list[Message], call_next: CallNext) -> None:
        await abandoning(batch, call_next)
        raise BatchError({batch[0]: Discard()})

    @app.consumer("queue://a", mode=mode, batch=2, batch_timeout=0.1, middleware=[hasty])
    async def handle(_batch: list[Message]) -> None:
        await asyncio.sleep(60)

    with harness(app, kind) as mq:
        app.send("queue://a", "x")
        app.send("queue://a", "y")
        mq.advance(1)
        (dead,) = mq.dead_letters()
        assert dead.message is not None
        assert (dead.message.text, dead.reason) == ("y", "rejected")
        assert "still ran" in str(dead.error_message)


@KINDS
def test_what_is_called_too_late(kind: str) -> None:
    """Whoever has kept call_next is told; the handler may be called again before."""
    app, kept, seen = App(redelivery=NEVER), list[Any](), list[str]()

    def keeping(message: Message, call_next: CallNext) -> None:
        kept.append(call_next)
        call_next(message)
        call_next(message)

    @app.consumer("queue://a", name="a", middleware=[keeping])
    def handle(message: Message) -> None:
        seen.append(message.text)

    with harness(app, kind) as mq:
        mq.send("queue://a", "x")
        assert seen == ["x", "x"]
        with pytest.raises(IllegalStateError, match=r"call_next\(\) of .*handle came too late"):
            kept[0](mq.handler("a").messages[0])
        assert mq.dead_letters() == []
    assert seen == ["x", "x"]


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


def emptied(taken: list[Message], call_next: CallNext) -> None:
    """Takes 3 and 4 out of the very list that it was given."""
    taken[:] = [one for one in taken if one.text not in "34"]
    call_next(taken)


def reading(taken: list[Message], call_next: CallNext) -> object:
    """Looks at each, as an inner one may."""
    assert all(one.text for one in taken)
    return call_next(taken)


def lazily(taken: list[Message], call_next: CallNext) -> None:
    """Gives what can be read once only."""
    call_next(one for one in taken if one.text != "4")


@KINDS
@pytest.mark.parametrize("mode", ["auto", "transacted"])
@pytest.mark.parametrize(
    ("middleware", "bodies", "handled", "dead"),
    [
        (parts, "1234", [["1", "2"], ["3", "4"]], []),
        (first_part, "1234", [["1", "2"]], ["3", "4"]),
        (emptied, "1234", [["1", "2"]], ["3", "4"]),
        (lazily, "1234", [["1", "2", "3"]], ["4"]),
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
    app, got = App(middleware=[middleware, reading]), list[list[str]]()

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


def replaced_in_it(taken: list[Message], call_next: CallNext) -> None:
    """In the very list that it was given."""
    taken[:] = [Message(one.text.upper()) for one in taken]
    call_next(taken)


@pytest.mark.parametrize("middleware", [replaced, replaced_in_it])
def test_a_batch_with_others_in_its_place(middleware: Any) -> None:
    """A middleware may do that."""
    app, got = App(middleware=[middleware]), list[str]()

    @app.consumer("queue://rows", batch=2, batch_timeout="1s")
    def write(rows: list[str]) -> None:
        got.extend(rows)

    with harness(app) as mq:
        for body in "ab":
            mq.send("queue://rows", body)
        mq.advance("1min")
        assert got == ["A", "B"]
        assert mq.dead_letters() == []


async def areplaced(taken: list[Message], call_next: CallNext) -> None:
    """The twin."""
    await call_next([Message(one.text.upper()) for one in taken])


def replaced_backwards(taken: list[Message], call_next: CallNext) -> None:
    """All but the last one."""
    *others, last = taken
    call_next([last, *(Message(one.text.upper()) for one in others)])


@KINDS
@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("plain", [replaced, replaced_in_it])
def test_what_fails_in_the_place_of_others(kind: str, awaited: bool, plain: Any) -> None:
    """Is what the handler names: the others of the batch are done."""
    app, got = App(middleware=[Layer(plain, areplaced)], redelivery_policy=NEVER), list[str]()

    def write(rows: list[Message]) -> None:
        got.extend(one.text for one in rows)
        raise BatchError([one for one in rows if one.text == "BAD"], "bad")

    async def awrite(rows: list[Message]) -> None:
        write(rows)

    handler: Any = awrite if awaited else write
    app.consumer("queue://rows", batch=3, batch_timeout="1s")(handler)
    with harness(app, kind) as mq:
        for text in ("a", "bad", "b"):
            mq.send("queue://rows", text)
        mq.advance("1min")
        assert got == ["A", "BAD", "B"]
        assert [letter.message.text for letter in mq.dead_letters() if letter.message] == ["bad"]
        assert mq.messages("queue://rows") == []


@KINDS
@pytest.mark.parametrize("mode", ["auto", "transacted"])
@pytest.mark.parametrize("middleware", [replaced, replaced_backwards])
def test_what_does_not_fit_in_the_place_of_others(kind: str, mode: str, middleware: Any) -> None:
    """Is a dead letter at once, and the others are handled."""
    app, got = App(middleware=[middleware]), list[list[int]]()

    @app.consumer("queue://numbers", batch=3, batch_timeout="1s", mode=mode)
    def add(numbers: list[int]) -> None:
        got.append(numbers)

    with harness(app, kind) as mq:
        for text in ("1", "none", "2"):
            mq.send("queue://numbers", text)
        mq.advance("10s")
        assert [sorted(numbers) for numbers in got] == [[1, 2]]
        [letter] = mq.dead_letters()
        assert (letter.message and letter.message.text, letter.reason) == ("none", "rejected")
        assert letter.attempts == 1
        assert mq.messages("queue://numbers") == []


def added(taken: list[Message], call_next: CallNext) -> None:
    """One more than came."""
    call_next([*taken, Message("none")])


@KINDS
@pytest.mark.parametrize("mode", ["auto", "transacted"])
def test_what_does_not_fit_and_is_for_nobody(kind: str, mode: str) -> None:
    """Nobody knows for which message it was given: each is tried alone, and is a dead letter that says so."""
    app = App(middleware=[added])

    @app.consumer("queue://numbers", batch=2, batch_timeout="1s", mode=mode)
    def add(numbers: list[int]) -> None:
        del numbers

    with harness(app, kind) as mq:
        for text in "12":
            mq.send("queue://numbers", text)
        mq.advance("10s")
        assert mq.messages("queue://numbers") == []
        for letter in mq.dead_letters():
            assert letter.reason == "rejected"
            assert "the body is no int" in (letter.error_message or "")
            assert letter.attempts == 2
        assert len(mq.dead_letters()) == 2


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
        (
            [lambda call_next, message: call_next(message)],
            "the message comes first, then call_next",
        ),
        ([generator], "generator"),
        ([Layer(swallowing, swallowing)], "must be `async def`"),  # type: ignore[arg-type]  # the refusal is what is tested
    ],
)
def test_refused_middleware(middleware: Any, complaint: str) -> None:
    """At import, on the consumer and on the app."""
    with pytest.raises(ConfigurationError, match=complaint):
        App(URL).consumer("queue://a", middleware=middleware)(any_handler)
    with pytest.raises(ConfigurationError, match=complaint):
        App(URL, middleware=middleware).consumer("queue://a")(any_handler)


def any_handler(message: Message) -> None:
    """Any."""
    del message
