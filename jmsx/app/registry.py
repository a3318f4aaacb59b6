"""The consumers of an application: registered by decorator, changed by trials and tests, fixed while it runs."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Concatenate, Final, Protocol, TypeVar, Unpack, overload

from jmsx.app.registration import Consumer, acknowledge_mode
from jmsx.app.signature import takes_session
from jmsx.core.option_checks import check_names
from jmsx.core.values import AcknowledgeMode
from jmsx.errors import ConfigurationError, IllegalStateError
from jmsx.handlers import name_of
from jmsx.jms.destination import Destination, destination

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx.app.registration import ConsumerKeywords, Handler
    from jmsx.core.policy import Policy
    from jmsx.dedupe import IdempotencyStore
    from jmsx.jms.message import Message
    from jmsx.jms.session import Session
    from jmsx.options import AppKeywords

#: What `@app.consumer(...)` takes by keyword.
SETTINGS: Final = [
    each.name
    for each in fields(Consumer)
    if each.name not in ("handler", "destination", "takes_session")
]

H = TypeVar("H", bound="Handler")
_Plain = TypeVar("_Plain", bound="Callable[[Message], object]")
_WithSession = TypeVar("_WithSession", bound="Callable[[Message, Session], object]")
_WithConnection = TypeVar("_WithConnection", bound="Callable[Concatenate[Message, ...], object]")


class Decorator(Protocol):
    """What `@app.consumer(...)` makes: it takes a handler of a message, or of a message and its session."""

    @overload
    def __call__(self, handler: _Plain, /) -> _Plain: ...
    @overload
    def __call__(self, handler: _WithSession, /) -> _WithSession: ...


class Registry:
    """Consumers by name; `options` are those of the app's connections."""

    def __init__(self, options: AppKeywords) -> None:
        self._options = options
        self._consumers: dict[str, Consumer] = {}
        self._running = False

    @property
    def options(self) -> AppKeywords:
        """The options that the app's connections get, as they were given."""
        return self._options.copy()

    @property
    def consumers(self) -> tuple[Consumer, ...]:
        """The registered consumers."""
        return tuple(self._consumers.values())

    @overload
    def consumer(
        self,
        source: Destination | str,
        *,
        mode: AcknowledgeMode | str = ...,
        redelivery: Policy | None = ...,
        name: str | None = ...,
        **settings: Unpack[ConsumerKeywords],
    ) -> Decorator: ...
    @overload
    def consumer(
        self,
        source: Destination | str,
        *,
        mode: AcknowledgeMode | str = ...,
        redelivery: Policy | None = ...,
        name: str | None = ...,
        dedupe: IdempotencyStore | None,
        **settings: Unpack[ConsumerKeywords],
    ) -> Callable[[_WithConnection], _WithConnection]: ...
    def consumer(
        self,
        source: Destination | str,
        *,
        mode: AcknowledgeMode | str = AcknowledgeMode.AUTO_ACKNOWLEDGE,
        redelivery: Policy | None = None,
        name: str | None = None,
        dedupe: IdempotencyStore | None = None,
        **settings: Unpack[ConsumerKeywords],
    ) -> Callable[[H], H]:
        """
        Make the decorated function the handler of `source`, such as `queue://orders`.

        It is called as `handler(message)`, or `handler(message, session)` if it takes two arguments. When it returns,
        the message is settled (with SESSION_TRANSACTED, all that it sent too); when it raises, the message is delivered
        again by `redelivery`; it may raise Retry, Reject or Discard to say more. `mode` may be a name, such as "client"
        or "transacted". Further settings are those of `Consumer`; what is not given is as the app's options say. Raises
        ConfigurationError for settings that make no sense.
        """
        if callable(source):
            raise ConfigurationError(
                f"@app.consumer needs a destination: write @app.consumer('queue://NAME') above {name_of(source)}"
            )
        target = destination(source)
        _check_settings(settings)

        def register(handler: H) -> H:
            self._check_not_running()
            takes = takes_session(handler)
            label = name_of(handler) if name is None else name
            if not isinstance(label, str) or not label:
                raise ConfigurationError(f"name= of a consumer must be a text, not {label!r}")
            if label in self._consumers:
                raise ConfigurationError(f"there is a consumer {label!r} already; give it a name=")
            try:
                chosen = acknowledge_mode(mode)
            except ConfigurationError as error:
                raise ConfigurationError(f"consumer {label}: {error}") from error
            self._consumers[label] = Consumer(
                handler=handler,
                destination=target,
                name=label,
                mode=chosen,
                redelivery=redelivery,
                takes_session=takes,
                dedupe=dedupe,
                **settings,
            )
            return handler

        return register

    def replace_handler(self, name: str, handler: Handler) -> None:
        """Put another handler in the place of the consumer `name`'s; before `start()`, for tests and trials."""
        self.change(name, handler=handler, takes_session=takes_session(handler))

    def change(self, name: str, **settings: Any) -> None:
        """Change settings (fields of `Consumer`) of the consumer `name`; before `start()`."""
        self._check_not_running()
        if name not in self._consumers:
            known = ", ".join(self._consumers)
            raise ConfigurationError(f"no consumer {name!r}; there are {known}")
        check_names("consumer setting", settings, [each.name for each in fields(Consumer)])
        self._consumers[name] = replace(self._consumers[name], **settings)

    def _check_not_running(self) -> None:
        if self._running:
            raise IllegalStateError("the app is running")


def _check_settings(settings: ConsumerKeywords) -> None:
    """Raise ConfigurationError for names that are no setting, and for None where that means nothing."""
    check_names("consumer setting", settings, SETTINGS)
    if "dead_letter" in settings and settings["dead_letter"] is None:
        raise ConfigurationError(
            "dead_letter=None says nothing: leave it out for the app's, or name safe, broker or a destination"
        )
