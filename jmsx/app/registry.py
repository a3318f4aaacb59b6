"""The consumers of an application: registered by decorator, changed by trials and tests, fixed while it runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from jmsx.app.registration import Consumer, takes_session
from jmsx.core.policy import RedeliveryPolicy, RedeliveryPolicyMap
from jmsx.core.values import AcknowledgeMode
from jmsx.errors import ConfigurationError, IllegalStateError
from jmsx.handlers import name_of
from jmsx.jms.destination import Destination, destination

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx.app.registration import Handler
    from jmsx.core.policy import Policy

H = TypeVar("H", bound="Handler")


class Registry:
    """Consumers by name; `options` are those of the app's connections."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._consumers: dict[str, Consumer] = {}
        self._running = False

    @property
    def options(self) -> dict[str, Any]:
        """The options that the app's connections get, as they were given."""
        return dict(self._options)

    @property
    def consumers(self) -> tuple[Consumer, ...]:
        """The registered consumers."""
        return tuple(self._consumers.values())

    def consumer(
        self,
        source: Destination | str,
        *,
        mode: AcknowledgeMode = AcknowledgeMode.AUTO_ACKNOWLEDGE,
        redelivery: Policy | None = None,
        name: str | None = None,
        **settings: Any,
    ) -> Callable[[H], H]:
        """
        Make the decorated function the handler of `source`, such as `queue://orders`.

        It is called as `handler(message)`, or `handler(message, session)` if it takes two arguments. When it returns,
        the message is settled (with SESSION_TRANSACTED, all that it sent through `session` too); when it raises, the
        message is delivered again by `redelivery`; it may raise Retry, Reject or Discard to say more. Further settings
        are those of `Consumer`. Raises ConfigurationError for settings that make no sense.
        """

        def register(handler: H) -> H:
            self._check_not_running()
            label = name or name_of(handler)
            if label in self._consumers:
                raise ConfigurationError(f"there is a consumer {label!r} already; give it a name=")
            target = destination(source)
            try:
                self._consumers[label] = Consumer(
                    handler=handler,
                    destination=target,
                    name=label,
                    mode=AcknowledgeMode(mode),
                    redelivery=redelivery or self._policy(target),
                    takes_session=takes_session(handler),
                    **settings,
                )
            except TypeError as error:
                raise ConfigurationError(f"consumer {label}: {error}") from error
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
        try:
            self._consumers[name] = replace(self._consumers[name], **settings)
        except TypeError as error:
            raise ConfigurationError(f"consumer {name}: {error}") from error

    def _policy(self, target: Destination) -> Policy:
        """The app's own redelivery policy for `target`."""
        plain = RedeliveryPolicyMap(self._options.get("redelivery_policy", RedeliveryPolicy()))
        policies: RedeliveryPolicyMap = self._options.get("redelivery_policies") or plain
        return policies.policy(target.uri)

    def _check_not_running(self) -> None:
        if self._running:
            raise IllegalStateError("the app is running")
