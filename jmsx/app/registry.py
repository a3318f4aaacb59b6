"""The consumers of an application: registered by decorator, changed by trials and tests, fixed while it runs."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    ParamSpec,
    Protocol,
    TypeVar,
    overload,
)

from jmsx.app.bodies import Data
from jmsx.app.middleware import Middleware, chain
from jmsx.app.parameters import Parameters, parameters_of
from jmsx.app.registration import Consumer, ConsumerKeywords, Handler, acknowledge_mode
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.option_checks import check_name, check_names
from jmsx.core.policy import Policy
from jmsx.errors import ConfigurationError
from jmsx.jms.destination import Destination, destination
from jmsx.jms.handlers import name_of
from jmsx.jms.message import Message
from jmsx.jms.session import Session
from jmsx.stores import IdempotencyStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


#: The keyword arguments of `@app.consumer(...)`.
SETTINGS: Final = [
    each.name
    for each in fields(Consumer)
    if each.name not in ("handler", "destination", "parameters")
]

#: The settings that `app.change(...)` can change.
_CHANGEABLE: Final = [*(each for each in SETTINGS if each != "name"), "destination"]
_CHANGED_ELSEWHERE: Final = {"handler": "app.replace_handler(...)"}

H = TypeVar("H", bound="Handler")
Plain = TypeVar("Plain", bound="Callable[[Message], object]")
WithSession = TypeVar("WithSession", bound="Callable[[Message, Session], object]")
PlainBatch = TypeVar("PlainBatch", bound="Callable[[list[Message]], object]")
BatchWithSession = TypeVar("BatchWithSession", bound="Callable[[list[Message], Session], object]")
WithConnection = TypeVar("WithConnection", bound="Callable[Concatenate[Message, ...], object]")
WithConnectionForBatch = TypeVar(
    "WithConnectionForBatch", bound="Callable[Concatenate[list[Message], ...], object]"
)


D = TypeVar("D", bound=Data)
P = ParamSpec("P")
R = TypeVar("R")


class Decorator(Protocol):
    """The type of `@app.consumer(...)`: it decorates a handler that takes a message, its body, or both."""

    @overload
    def __call__(self, handler: Plain, /) -> Plain: ...
    @overload
    def __call__(self, handler: WithSession, /) -> WithSession: ...
    @overload
    def __call__(
        self, handler: Callable[Concatenate[D, P], R], /
    ) -> Callable[Concatenate[D, P], R]: ...
    @overload
    def __call__(
        self, handler: Callable[Concatenate[Message, D, P], R], /
    ) -> Callable[Concatenate[Message, D, P], R]: ...
    @overload
    def __call__(
        self, handler: Callable[Concatenate[Message, Session, D, P], R], /
    ) -> Callable[Concatenate[Message, Session, D, P], R]: ...


class BatchDecorator(Protocol):
    """The type of `@app.consumer(..., batch=...)`: it decorates a handler of a list of messages or bodies."""

    @overload
    def __call__(self, handler: PlainBatch, /) -> PlainBatch: ...
    @overload
    def __call__(self, handler: BatchWithSession, /) -> BatchWithSession: ...
    @overload
    def __call__(
        self, handler: Callable[Concatenate[list[D], P], R], /
    ) -> Callable[Concatenate[list[D], P], R]: ...
    @overload
    def __call__(
        self, handler: Callable[Concatenate[list[Message], list[D], P], R], /
    ) -> Callable[Concatenate[list[Message], list[D], P], R]: ...


class ConnectionDecorator(Protocol):
    """The type of `@app.consumer(..., dedupe=...)`: the handler may take the DatabaseStore's connection by keyword."""

    @overload
    def __call__(self, handler: WithConnection, /) -> WithConnection: ...
    @overload
    def __call__(
        self, handler: Callable[Concatenate[D, P], R], /
    ) -> Callable[Concatenate[D, P], R]: ...


class BatchConnectionDecorator(Protocol):
    """The type of `@app.consumer(..., dedupe=..., batch=...)`: a ConnectionDecorator for handlers of a list."""

    @overload
    def __call__(self, handler: WithConnectionForBatch, /) -> WithConnectionForBatch: ...
    @overload
    def __call__(
        self, handler: Callable[Concatenate[list[D], P], R], /
    ) -> Callable[Concatenate[list[D], P], R]: ...


class Registry:
    """
    The consumers of an app by name; `check` raises IllegalStateError while they may not be changed.

    `middleware` runs around all their handlers.
    """

    def __init__(self, check: Callable[[], None], middleware: Sequence[Middleware] = ()) -> None:
        self._check = check
        self._middleware = middleware
        self._consumers: dict[str, Consumer] = {}

    @property
    def consumers(self) -> tuple[Consumer, ...]:
        """The consumers that `@app.consumer` has registered, in that order."""
        return tuple(self._consumers.values())

    def decorator(
        self,
        source: Destination | str,
        *more: object,
        mode: AcknowledgeMode | str,
        redelivery: Policy | None,
        name: str | None,
        dedupe: IdempotencyStore | None,
        batch: int | None,
        settings: ConsumerKeywords,
    ) -> Callable[[H], H]:
        """
        Return the decorator that makes a function the handler of `source`.

        Raises ConfigurationError for more positional arguments, and for settings that make no sense.
        """
        if callable(source):
            raise ConfigurationError(
                f"@app.consumer needs a destination: write @app.consumer('queue://NAME') above {name_of(source)}"
            )
        target = destination(source)
        _check_alone(target, more)
        _check_settings(settings)

        def register(handler: H) -> H:
            self._check()
            parameters = parameters_of(handler, batch=batch is not None)
            chain(handler, self._middleware)
            label = name_of(handler) if name is None else name
            if not isinstance(label, str) or not label:
                raise ConfigurationError(f"name= of a consumer must be a text, not {label!r}")
            check_name("name= of a consumer", label)
            if label in self._consumers:
                raise ConfigurationError(f"there is a consumer {label!r} already; give it a name=")
            try:
                chosen = acknowledge_mode(mode)
            except ConfigurationError as error:
                raise ConfigurationError(f"consumer {label}: {error}") from error
            self._put(
                Consumer(
                    handler=handler,
                    destination=target,
                    name=label,
                    mode=chosen,
                    redelivery=redelivery,
                    parameters=parameters,
                    dedupe=dedupe,
                    batch=batch,
                    **settings,
                )
            )
            return handler

        return register

    def change(self, name: str, settings: Mapping[str, Any]) -> None:
        """Change settings of the consumer `name`: any that the decorator takes except its name, or `destination`."""
        check_names("consumer setting", settings, _CHANGEABLE, _CHANGED_ELSEWHERE)
        _check_no_dead_letter(settings)
        found, changed = self._known(name), dict(settings)
        if "destination" in changed:
            changed["destination"] = destination(changed["destination"])
        if "mode" in changed:
            changed["mode"] = acknowledge_mode(changed["mode"])
        if "batch" in changed:
            batch = changed["batch"] is not None
            changed["parameters"] = parameters_of(found.handler, batch=batch)
        self._put(replace(found, **changed))

    def replace_handler(self, name: str, handler: Handler) -> None:
        """Replace the handler of the consumer `name`; raises ConfigurationError if `handler` does not fit it."""
        batch = self._known(name).batch is not None
        parameters = parameters_of(handler, batch=batch)
        chain(handler, self._middleware)
        self.put_handler(name, handler, parameters)

    def put_handler(self, name: str, handler: Handler, parameters: Parameters) -> None:
        """Do as `replace_handler` does, without checks: `parameters` are known to fit."""
        self._put(replace(self._known(name), handler=handler, parameters=parameters))

    def _known(self, name: str) -> Consumer:
        """Return the consumer `name`, to change it."""
        self._check()
        if not isinstance(name, str) or name not in self._consumers:
            known = ", ".join(self._consumers) or "none"
            raise ConfigurationError(f"no consumer {name!r}; there are {known}")
        return self._consumers[name]

    def _put(self, consumer: Consumer) -> None:
        """Keep `consumer`; raises ConfigurationError for a durable subscription that another one reads."""
        for other in self._consumers.values():
            if other.durable == consumer.durable is not None and other.name != consumer.name:
                raise ConfigurationError(
                    f"consumer {consumer.name}: durable={consumer.durable!r} is read by consumer {other.name} of this"
                    " app already, and a durable subscription has one reader; give it a name of its own"
                )
        self._consumers[consumer.name] = consumer


def _check_alone(source: Destination, more: Sequence[object]) -> None:
    """Raise ConfigurationError for what was given beside the destination."""
    if not more:
        return
    given = more[0]
    if callable(given):
        raise ConfigurationError(
            f"the handler comes behind the settings: write app.consumer({source.uri!r})({name_of(given)}), or"
            f" @app.consumer({source.uri!r}) above {name_of(given)}"
        )
    raise ConfigurationError(
        f"@app.consumer takes one destination, and settings by name, such as mode='transacted', not {given!r}; several"
        " destinations have a consumer each"
    )


def _check_settings(settings: ConsumerKeywords) -> None:
    """Raise ConfigurationError for names that are no setting, and for None where that means nothing."""
    check_names("consumer setting", settings, SETTINGS)
    _check_no_dead_letter(settings)


def _check_no_dead_letter(settings: Mapping[str, Any]) -> None:
    if "dead_letter" in settings and settings["dead_letter"] is None:
        raise ConfigurationError(
            "dead_letter=None says nothing: leave it out for the app's, or name safe, broker or a destination"
        )
