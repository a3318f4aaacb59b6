"""
Checks that refuse handlers and listeners whose body does not run when they are called.

Calling a coroutine function or a generator function only makes an object and runs nothing, and a cached function runs
once for several equal arguments. If jmsx took such a call for a handler that has done its work, it would acknowledge a
message that was never handled. So such functions are refused when they are registered, where that can be seen, and the
result of each call is checked.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import typing
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final

from jmsx.errors import ConfigurationError
from jmsx.jms.outcomes import Reject

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

#: The advice in errors about such handlers.
_REMEDY: Final = (
    "make it a plain function that has done its work when it returns, by asyncio.run() where it is async; in an App"
    " it may be an async def function itself"
)

#: A handler inside more wrappers than this is taken for a wrapper of itself.
_DEEPEST: Final = 100

#: What `functools.cache` and `lru_cache` make of a function.
_CACHED: Final = type(functools.cache(len))


@contextlib.contextmanager
def _manager() -> Iterator[None]:
    yield


@contextlib.asynccontextmanager
async def _async_manager() -> AsyncIterator[None]:
    yield


#: The types that `contextlib` makes of generator functions: the generator runs only when the object is entered.
_MANAGERS: Final = (type(_manager()), type(_async_manager()))

#: Types of objects whose work is done only when somebody awaits, iterates or enters them.
_LATER: Final = (Awaitable, Generator, AsyncGenerator, *_MANAGERS)

#: How many levels of nested collections are searched; anything deeper is taken for data.
_NESTED: Final = 8


def is_async(handler: Callable[..., Any]) -> bool:
    """Return whether calling `handler` makes a coroutine; only partials are unwrapped, no other wrappers."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    call = inspect.getattr_static(type(handler), "__call__", None)
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)


def check_runs(handler: Callable[..., Any], *, awaited: bool = False) -> None:
    """
    Raise ConfigurationError if `handler` is no function, or is one whose body does not run when it is called.

    With `awaited`, an `async def` function is allowed. The function inside a wrapper is checked, too
    (`functools.partial`, `functools.wraps`, bound methods, objects with `__call__`).
    """
    name = name_of(handler)
    if isinstance(handler, type):
        raise ConfigurationError(
            f"{name} is a class, and a message would only make an object of it; give a function"
        )
    if not callable(handler):
        if isinstance(handler, classmethod):
            raise ConfigurationError(
                f"{name} is a class method of no class yet; register that of the class, as in"
                " app.consumer('queue://NAME')(Shop.handle)"
            )
        raise ConfigurationError(f"{handler!r} is no function, so it cannot handle messages")
    awaits = awaited and is_async(handler)
    for inner in _layers(handler):
        kind = _kind(inner)
        if kind and not (awaits and inspect.iscoroutinefunction(inner)):
            wrapped = "" if inner is handler else " inside its wrapper"
            if isinstance(inner, _CACHED):
                raise ConfigurationError(
                    f"{name} is {kind}{wrapped}, so its body would not run for a message that is equal to an earlier"
                    " one; put functools.cache on what it looks up, and not on the function itself"
                )
            raise ConfigurationError(
                f"{name} is {kind}{wrapped}, so its body would not run when it is called; {_REMEDY}"
                + (
                    ". A wrapper that does run it to its end must not have __wrapped__"
                    if wrapped
                    else ""
                )
            )


def check_result(handler: Callable[..., Any], annotation: Any) -> None:
    """Raise ConfigurationError if `annotation`, the return type of `handler`, is one that `check_ran` would refuse."""
    kind = typing.get_origin(annotation) or annotation
    later = isinstance(kind, type) and issubclass(kind, _LATER)
    if later or kind is Callable:
        raise ConfigurationError(
            f"{name_of(handler)} says that it returns a {kind.__name__}, so its body has not run to its end then;"
            f" {_REMEDY}"
        )


def check_takes_message(listener: Callable[..., Any], called: str = "message") -> None:
    """Raise ConfigurationError if `listener(message)` cannot be called; `called` names the parameter in the error."""
    try:
        signature = inspect.signature(listener)
    except (TypeError, ValueError):  # the signature is not known, as of some builtins
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise ConfigurationError(
            f"{name_of(listener)}{signature} must take ({called}): {error}"
        ) from error


def check_ran(handler: Callable[..., Any], result: object) -> None:
    """
    Raise Reject if `result`, which `handler` returned, has yet to be awaited or iterated, or contains such an object.

    Refused are also a function or `functools.partial` that was returned instead of being called (inside a collection it
    is data), a pool's Future that is not done, and `map()` and its like. Files, cursors and other iterators are
    results, and so is a `contextlib` context manager that was entered and left. Coroutines and generators that have not
    begun are closed. It is a Reject, for a redelivery would end in the same way. If `result` is a Future that is done,
    this raises the exception of its work, if it has one.
    """
    if result is None:
        return
    waiting = [result] if _uncalled(result) else [one for one in _parts(result) if _waits(one)]
    if not waiting:
        for one in _parts(result):
            if isinstance(one, Future):
                one.result()
        return
    for one in waiting:
        if isinstance(one, Coroutine | Generator) and not _begun(one):
            with contextlib.suppress(Exception):
                one.close()  # else Python would warn that the coroutine was never awaited
    kind = type(waiting[0]).__name__
    if waiting[0] is not result:
        kind = f"{type(result).__name__} with a {kind} in it"
    text = f"{name_of(handler)} returned a {kind}, so its body has not run to its end; {_REMEDY}"
    raise Reject(text) from ConfigurationError(text)


def _parts(result: object) -> Iterator[object]:
    """Yield `result`, and what is in it if it is one of Python's own collections, or several inside one another."""
    level, seen = [result], set[int]()
    yield result
    for _ in range(_NESTED):
        inner: list[object] = []
        for one in level:
            if isinstance(one, dict | list | tuple | set | frozenset) and id(one) not in seen:
                seen.add(id(one))  # a collection may contain itself
                inner.extend(one.values() if isinstance(one, dict) else one)
        if not inner:
            return
        yield from inner
        level = inner


def _waits(result: object) -> bool:
    """Return whether it has yet to be awaited, iterated, or entered and left."""
    if isinstance(result, _MANAGERS):
        return not _ended(result.gen)
    return issubclass(type(result), _LATER) or _lazy(result)


def _uncalled(result: object) -> bool:
    """Return whether it has yet to be called: as where a decorator with arguments lacks its parentheses."""
    return isinstance(result, functools.partial | FunctionType | MethodType)


def name_of(handler: object) -> str:
    """Return the name by which logs and errors call `handler`: its `__qualname__`, or that of its class."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    name = getattr(handler, "__qualname__", None)
    return name if isinstance(name, str) else type(handler).__qualname__


def _layers(handler: Any) -> Iterator[Any]:
    """Yield the callable itself, and what it says that it wraps or calls."""
    waiting, seen = [handler], 0
    while waiting and seen < _DEEPEST:
        layer = waiting.pop()
        seen += 1
        yield layer
        for attribute in ("__wrapped__", "__func__"):  # the second: of bound and static methods
            with contextlib.suppress(Exception):
                waiting.append(getattr(layer, attribute))
        if isinstance(layer, functools.partial | functools.partialmethod):
            waiting.append(layer.func)
        partial_method = getattr(layer, "_partialmethod", None)
        if isinstance(partial_method, functools.partialmethod):
            waiting.append(partial_method.func)
        if not inspect.isroutine(layer) and not isinstance(layer, functools.partial):
            call = inspect.getattr_static(type(layer), "__call__", None)
            if inspect.isfunction(call):
                waiting.append(call)


def _kind(layer: Any) -> str:
    if inspect.iscoroutinefunction(layer):
        return "an async function"
    if inspect.isasyncgenfunction(layer) or inspect.isgeneratorfunction(layer):
        return "a generator function"
    if isinstance(layer, _CACHED):
        return "a function that remembers what it returned"
    return ""


def _lazy(result: object) -> bool:
    """Return whether work is still to be done, by a pool or by whoever iterates."""
    if isinstance(result, Future):
        return not result.done()
    return isinstance(result, map | filter | zip) or type(result).__module__ == "itertools"


def _ended(body: Generator[Any, Any, Any] | AsyncGenerator[Any, Any]) -> bool:
    """Return whether the body of a context manager has run to its end: Python keeps no frame of it then."""
    frame = body.ag_frame if inspect.isasyncgen(body) else getattr(body, "gi_frame", body)
    return frame is None


def _begun(result: Coroutine[Any, Any, Any] | Generator[Any, Any, Any]) -> bool:
    """Return whether somebody else is at it, whose business closing it is then."""
    if inspect.iscoroutine(result):
        return inspect.getcoroutinestate(result) != inspect.CORO_CREATED
    if inspect.isgenerator(result):
        return inspect.getgeneratorstate(result) != inspect.GEN_CREATED
    return False
