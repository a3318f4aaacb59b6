"""What `@app.consumer(...)` was told: a handler, and how its messages are consumed."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jmsx.core.ledger import Identity
from jmsx.core.policy import RedeliveryPolicy
from jmsx.core.values import AcknowledgeMode, DeadLetterStrategy
from jmsx.errors import ConfigurationError
from jmsx.handlers import check_runs, name_of
from jmsx.options import PrefetchPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jmsx.core.policy import Policy
    from jmsx.dedupe import IdempotencyStore
    from jmsx.jms.destination import Destination
    from jmsx.jms.message import Message

    Handler = Callable[..., object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """
    One handler and its settings; times in seconds.

    Raises ConfigurationError when they make no sense together.
    """

    handler: Handler
    destination: Destination
    name: str  #: in metrics, events and logs
    mode: AcknowledgeMode = AcknowledgeMode.AUTO_ACKNOWLEDGE
    redelivery: Policy = field(default_factory=RedeliveryPolicy)
    give_up_on: tuple[
        type[Exception], ...
    ] = ()  #: errors that no retry can cure: dead letter at once
    dead_letter: str = DeadLetterStrategy.SAFE  #: a strategy, or a destination URI for copies
    concurrency: int = 1  #: sessions, each with a thread and a socket of its own
    prefetch: int | None = None  #: messages; None: the connection's
    selector: str | None = None
    durable: str | None = None  #: name of the durable subscription
    non_blocking_redelivery: bool = False
    optimize_acknowledge: bool = False
    takes_session: bool = False  #: whether the handler wants the session as second argument
    dedupe: IdempotencyStore | None = None  #: knows what was done, so that it is not done again
    dedupe_by: Callable[[Message], str] | None = (
        None  #: what makes messages equal; None: key and body
    )

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ConfigurationError(
                f"consumer {self.name}: concurrency must be 1 or more, not {self.concurrency}"
            )
        if self.durable is not None and self.concurrency > 1:
            raise ConfigurationError(
                f"consumer {self.name}: a durable subscription has one reader, not {self.concurrency}"
            )
        if self.prefetch is not None and self.prefetch < 1:
            raise ConfigurationError(
                f"consumer {self.name}: prefetch must be 1 or more, not {self.prefetch}"
            )
        if self.optimize_acknowledge and self.mode is not AcknowledgeMode.AUTO_ACKNOWLEDGE:
            raise ConfigurationError(
                f"consumer {self.name}: optimize_acknowledge is for AUTO_ACKNOWLEDGE only"
            )
        self._check_dedupe()

    def identity(self, message: Message, client_id: str | None) -> Identity | None:
        """
        What the idempotency store knows `message` by; None: nothing names it.

        Each subscriber of a topic does it once; `client_id`: the connection's, to which durable ones belong.
        """
        key = message.identity if self.dedupe_by is None else self.dedupe_by(message)
        source = self.destination
        if any(wildcard in source.name for wildcard in "*>"):
            source = message.destination or source
        reader = self.name if self.durable is None else f"{client_id}.{self.durable}"
        place = f"{source.uri} {reader}" if source.is_topic else source.uri
        return Identity(place, key) if key else None

    def _check_dedupe(self) -> None:
        wanted = connection_parameter(self.handler)
        if wanted is not None and (self.dedupe is None or not self.dedupe.connects):
            raise ConfigurationError(
                f"consumer {self.name}: there is a connection for {wanted}= with dedupe=DatabaseStore(...) only"
            )
        if self.dedupe is None:
            if self.dedupe_by is not None:
                raise ConfigurationError(f"consumer {self.name}: dedupe_by= needs a dedupe= store")
            return
        if self.takes_session and self.mode is AcknowledgeMode.SESSION_TRANSACTED:
            raise ConfigurationError(
                f"consumer {self.name}: a message whose sends were lost with their transaction would be known as"
                " done, and they would never be sent; use dedupe= with another mode"
            )

    def connection_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The options of its connection that differ from the app's, which are `given`."""
        options: dict[str, Any] = {
            "redelivery_policy": self.redelivery,
            "redelivery_policies": None,  # the consumer's is the one for its destination already
            "dead_letter": self.dead_letter,
            "non_blocking_redelivery": self.non_blocking_redelivery,
            "optimize_acknowledge": self.optimize_acknowledge,
        }
        if self.prefetch is not None:
            options["prefetch_policy"] = PrefetchPolicy.all(self.prefetch)
        if self.durable is None and "client_id" in given:
            options["client_id"] = None  # only the one that needs it may claim it
        return options


def connection_parameter(handler: Callable[..., Any]) -> str | None:
    """The name of the handler's keyword-only parameter, which gets its store's database connection."""
    wanted = [
        parameter.name
        for parameter in inspect.signature(handler).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
    ]
    if len(wanted) > 1:
        raise ConfigurationError(
            f"{name_of(handler)} wants {', '.join(wanted)}; there is one connection"
        )
    return wanted[0] if wanted else None


def takes_session(handler: Callable[..., Any]) -> bool:
    """
    Whether `handler(message, session)` is meant rather than `handler(message)`.

    Raises ConfigurationError for any other signature, and for a function whose body a call does not run.
    """
    check_runs(handler)
    name = name_of(handler)
    parameters = [
        parameter
        for parameter in inspect.signature(handler).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    required = [parameter for parameter in parameters if parameter.default is parameter.empty]
    if not parameters or len(required) > 2:  # noqa: PLR2004 - message and session
        raise ConfigurationError(f"{name} must take (message) or (message, session)")
    return len(required) == 2  # noqa: PLR2004 - message and session
