"""Handlers whose body would not run: what is refused when they are given, and what is found when they return."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import itertools
import sqlite3
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any

import pytest

from jmsx.errors import ConfigurationError
from jmsx.jms.handlers import check_ran, check_runs, is_async
from jmsx.jms.outcomes import Reject

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path


async def coroutine(message: object) -> None:
    """Async."""


def generator(message: object) -> Iterator[object]:
    """A generator function."""
    yield message


async def async_generator(message: object) -> AsyncIterator[object]:
    """Both."""
    yield message


def plain(message: object) -> object:
    """Runs when it is called."""
    return message


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """As decorators for tracing and retries do it."""

    @functools.wraps(function)
    def wrapper(*arguments: Any) -> Any:
        return function(*arguments)

    return wrapper


class Asynchronous:
    """An object to call."""

    async def __call__(self, message: object) -> None:
        """Async."""

    async def method(self, message: object) -> None:
        """Async."""

    @staticmethod
    async def static(message: object) -> None:
        """Async."""

    half = functools.partialmethod(method)


class Generating:
    """An object to call."""

    @wrapped
    def __call__(self, message: object) -> Iterator[object]:
        """A generator."""
        yield message


class Wrapper:
    """A decorator that is an object."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        """Call what it wraps."""
        return self.function(*arguments)


class Plain:
    """An object to call."""

    def __call__(self, message: object) -> None:
        """Run."""


@pytest.mark.parametrize(
    "handler",
    [
        coroutine,
        generator,
        async_generator,
        wrapped(coroutine),
        wrapped(wrapped(generator)),
        functools.partial(coroutine),
        functools.partial(functools.partial(wrapped(async_generator))),
        functools.partial(Asynchronous()),
        Asynchronous(),
        Asynchronous().method,
        Asynchronous().half,
        Asynchronous.static,
        Generating(),
        Wrapper(coroutine),
        Wrapper(Asynchronous().method),
        contextlib.contextmanager(generator),
        staticmethod(coroutine),
        Plain,
        17,
    ],
)
def test_what_would_not_run_is_refused(handler: Any) -> None:
    """Whatever stands around it."""
    with pytest.raises(ConfigurationError):
        check_runs(handler)


@pytest.mark.parametrize(
    "handler",
    [
        plain,
        wrapped(plain),
        functools.partial(plain),
        Plain(),
        Plain().__call__,
        Wrapper(plain),
        print,
        [].append,
    ],
)
def test_what_runs_is_taken(handler: Any) -> None:
    """However it is written."""
    check_runs(handler)


def test_a_refusal_says_what_to_do() -> None:
    """The name, what it is, and the way out."""
    with pytest.raises(ConfigurationError, match=r"coroutine is an async function.*asyncio\.run"):
        check_runs(coroutine)
    with pytest.raises(ConfigurationError, match=r"inside its wrapper.*must not have __wrapped__"):
        check_runs(wrapped(coroutine))


@pytest.mark.parametrize(
    "handler",
    [
        coroutine,
        functools.partial(functools.partial(coroutine)),
        Asynchronous(),
        Asynchronous().method,
        Asynchronous().static,
        functools.partial(Asynchronous()),
    ],
)
def test_where_somebody_awaits_it_an_async_function_runs(handler: Any) -> None:
    """And is known as one."""
    assert is_async(handler)
    check_runs(handler, awaited=True)


@pytest.mark.parametrize(
    "handler",
    [generator, async_generator, wrapped(coroutine), wrapped(generator), Wrapper(coroutine)],
)
def test_what_nobody_can_await(handler: Any) -> None:
    """Generators, and plain functions around an async one."""
    assert not is_async(handler)
    with pytest.raises(ConfigurationError, match="its body would not run"):
        check_runs(handler, awaited=True)


@pytest.mark.parametrize("function", [coroutine, generator, async_generator])
def test_what_has_not_run_is_a_failure(function: Callable[..., Any]) -> None:
    """And Python does not complain of it besides."""
    result = function("x")
    with pytest.raises(Reject, match="returned a") as caught:
        check_ran(lambda _message: None, result)
    assert isinstance(caught.value.__cause__, ConfigurationError)
    if inspect.iscoroutine(result):
        assert inspect.getcoroutinestate(result) == inspect.CORO_CLOSED


@pytest.mark.parametrize(
    "manager",
    [contextlib.contextmanager(generator), contextlib.asynccontextmanager(async_generator)],
)
def test_so_is_a_generator_that_nobody_entered(manager: Callable[..., Any]) -> None:
    """It waits for its `with`, as where a plain decorator hides `contextlib.contextmanager`."""
    with pytest.raises(Reject, match=r"returned a \w+ContextManager, so its body has not run"):
        check_ran(plain, manager("x"))


def test_one_that_was_entered_and_left_is_a_result() -> None:
    """It has run to its end, whoever entered it; what is entered only has not."""
    entered = contextlib.contextmanager(generator)("x")
    entered.__enter__()
    with pytest.raises(Reject):
        check_ran(plain, entered)
    entered.__exit__(None, None, None)
    check_ran(plain, entered)
    check_ran(plain, [entered])

    async def left() -> object:
        async with (manager := contextlib.asynccontextmanager(async_generator)("x")):
            with pytest.raises(Reject):
                check_ran(plain, manager)
        return manager

    check_ran(plain, asyncio.run(left()))


@pytest.mark.parametrize("given", [contextlib.nullcontext(), contextlib.ExitStack()])
def test_other_context_managers_are_results(given: object) -> None:
    """As files and connections are."""
    check_ran(plain, given)


def test_what_others_are_at_is_left_to_them() -> None:
    """A generator that somebody has begun to read is not closed under his hands."""
    begun = generator("x")
    next(begun)
    with pytest.raises(Reject):
        check_ran(plain, begun)
    assert inspect.getgeneratorstate(begun) == inspect.GEN_SUSPENDED  # type: ignore[arg-type]  # typed as what handlers return


@pytest.mark.parametrize(
    "made",
    [
        lambda one: [1, one],
        lambda one: (one,),
        lambda one: {one},
        lambda one: frozenset([one]),
        lambda one: {"a": one},
        lambda one: [[one]],
        lambda one: {"a": [(1, {"b": (one,)})]},
    ],
)
@pytest.mark.parametrize("function", [coroutine, generator])
def test_so_are_collections_of_them(
    function: Callable[..., Any], made: Callable[[Any], Any]
) -> None:
    """What somebody forgot to give to asyncio.gather(); each is closed."""
    result = function("x")
    with pytest.raises(Reject, match=rf"returned a \w+ with a {type(result).__name__} in it"):
        check_ran(plain, made(result))
    assert getattr(result, "cr_frame", None) is None
    assert getattr(result, "gi_frame", None) is None


@pytest.mark.parametrize("function", [plain, coroutine, generator, async_generator])
def test_so_is_a_function_that_nobody_called(function: Callable[..., Any]) -> None:
    """Whoever writes `return partial(work, message)` has done no more than who forgot the `await`."""
    for result in (
        function,
        functools.partial(function, "x"),
        functools.partial(wrapped(function)),
    ):
        with pytest.raises(Reject, match=r"returned a (partial|function), so its body has not run"):
            check_ran(plain, result)


def test_a_decorator_without_its_parentheses() -> None:
    """`@retry` for `@retry(3)`: the message goes to the decorator, which returns a function that nobody calls."""

    def retry(_times: Any = 3) -> Callable[..., Any]:
        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(message: Any) -> Any:
                return function(message)

            return call

        return decorate

    handler = retry(plain)
    check_runs(handler)
    with pytest.raises(Reject, match="returned a function, so its body has not run"):
        check_ran(handler, handler("a message"))


@pytest.mark.parametrize("made", [lambda one: one, lambda one: [one, 1]])
def test_a_future_whose_work_has_failed(made: Callable[[Any], Any]) -> None:
    """The pool was fast, and its error is the handler's."""
    failed, cancelled, done = Future[str](), Future[str](), Future[str]()
    failed.set_exception(KeyError("order"))
    cancelled.cancel()
    done.set_result("x")
    with pytest.raises(KeyError):
        check_ran(plain, made(failed))
    with pytest.raises(CancelledError):
        check_ran(plain, made(cancelled))
    check_ran(plain, made(done))


def test_functions_among_data_are_data() -> None:
    """Nobody can tell whether they were to be called."""
    for result in ({"on_done": coroutine}, [functools.partial(coroutine)], [plain]):
        check_ran(plain, result)


def test_a_collection_in_itself() -> None:
    """It has an end, and so have very deep ones."""
    endless: list[Any] = [1]
    endless += [endless, {"again": endless}] * 50
    check_ran(plain, endless)
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    check_ran(plain, deep)


def test_a_future_is_a_failure() -> None:
    """What it stands for may never be."""
    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(Reject, match="returned a Future"):
            check_ran(plain, loop.create_future())
    finally:
        loop.close()


@pytest.mark.parametrize("result", [None, 0, "x", [1], iter([1]), object(), open])
def test_anything_else_may_be_returned(result: object) -> None:
    """It is of no interest."""
    check_ran(plain, result)


@pytest.mark.parametrize(
    "result",
    [Future(), map(plain, [1]), filter(plain, [1]), zip([1], [2], strict=True), itertools.count()],
)
def test_work_that_is_still_to_be_done(result: object) -> None:
    """By a pool, or by whoever iterates: nobody does, or nobody waits."""
    with pytest.raises(Reject, match="has not run to its end"):
        check_ran(plain, result)


def test_results_that_can_be_iterated(tmp_path: Path) -> None:
    """A file, a cursor, a list's iterator and a Future that is done are results like any other."""
    done: Future[None] = Future()
    done.set_result(None)
    with (tmp_path / "file").open("w") as file, sqlite3.connect(":memory:") as connection:
        for result in (file, connection.execute("SELECT 1"), iter([1]), done):
            check_ran(plain, result)
    connection.close()
