"""The registration of `@app.consumer(...)`: a handler, and the settings by which its messages are consumed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict

from jmsx.app.middleware import Middleware, chain, check_middleware
from jmsx.app.pacing import CircuitBreaker, RateLimit, error_types, rate_limit_of
from jmsx.app.parameters import Parameters
from jmsx.config.custom_policy import careful
from jmsx.config.options import ConnectionOptions, ConsumerOptions
from jmsx.core.destination_names import is_pattern, parts
from jmsx.core.durations import Duration, bounded, seconds
from jmsx.core.ledger import StoreKey
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.option_checks import (
    LARGEST_INT,
    check_name,
    check_whole,
    kind_of,
    offers,
    unknown,
    wrong_type,
)
from jmsx.core.policy import (
    Policy,
    PolicyByError,
    RedeliveryMode,
    RedeliveryPolicy,
    check_policy,
)
from jmsx.core.values import DestinationKind
from jmsx.errors import ConfigurationError, InDoubtError, JmsxError, LinkError, StoreError
from jmsx.jms.destination import Destination
from jmsx.jms.handlers import check_runs, check_takes_message
from jmsx.jms.message import Message
from jmsx.jms.outcomes import Again, Reject, Steering
from jmsx.jms.subscribing import check_elsewhere, stated
from jmsx.stores.idempotency import IdempotencyStore, Key, key_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence


Handler: TypeAlias = "Callable[..., object]"

#: Seconds within which a batch is filled by default.
BATCH_TIMEOUT: Final = 1.0

#: A placeholder for the policy that a consumer has for all other errors.
_NONE: Final = RedeliveryPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """
    One handler and its settings; times are seconds, a timedelta, or a text such as "2s".

    Raises ConfigurationError if they make no sense together.

    Args:
        handler: the function that is called with each message.
        destination: the queue or topic from which it consumes.
        name: the consumer's name in metrics, events and logs.
        parameters: the parameters of the handler.
        mode: the acknowledge mode; AUTO_ACKNOWLEDGE.
        redelivery: the redelivery policy; None: the app's.
        give_up_on: exceptions that make the message a dead letter at once, for no retry can help; (): none.
        retry_on: the only exceptions after which a message is retried: all others make it a dead letter at once; None:
            all are retried. Always retried are jmsx's own exceptions about an unavailable link or store, and those that
            are no Exception, such as SystemExit, KeyboardInterrupt and CancelledError.
        redelivery_for: policies for certain exceptions in place of `redelivery`; the nearest class counts; {}.
        middleware: functions around the handler, inside the app's middleware, the first one outermost; (): none.
        timeout: the longest time for one call: an `async def` handler is cancelled then, and any other goes on and is
            logged; None: no limit.
        rate_limit: the rate of calls, such as `100/s`; None: no limit.
        breaker: a circuit breaker, which pauses the consumer after failures in a row; None: none.
        dead_letter: a strategy, or a destination for copies; None: the app's.
        concurrency: the number of sessions, each with a thread and a socket of its own; 1, the most for a topic.
        prefetch: how many unacknowledged messages the broker sends ahead; None: the app's.
        batch: the most messages in one call of the handler; None: the handler takes one message, not a list.
        batch_timeout: how long a batch is filled, from its first message on; 1 s.
        selector: a JMS message selector, which the broker applies; None: all messages are received.
        durable: the name of the durable subscription; None: it is not durable.
        non_blocking_redelivery: whether later messages go on while a failed one waits; None: the app's.
        optimize_acknowledge: whether acknowledgements are sent in batches; None: the app's.
        dedupe: an idempotency store, by which a message that was handled is not handled again; None: none.
        dedupe_by: a function of the message that returns equal values (text, numbers, UUIDs) for duplicates; None: the
            message's key is compared.

    """

    handler: Handler
    destination: Destination
    name: str
    parameters: Parameters
    mode: AcknowledgeMode = AcknowledgeMode.AUTO_ACKNOWLEDGE
    redelivery: Policy | None = None
    give_up_on: type[BaseException] | Collection[type[BaseException]] = ()
    retry_on: type[BaseException] | Collection[type[BaseException]] | None = None
    redelivery_for: Mapping[type[BaseException], Policy] = field(default_factory=dict)
    middleware: Sequence[Middleware] = ()
    timeout: Duration | None = None
    rate_limit: RateLimit | str | None = None
    breaker: CircuitBreaker | None = None
    dead_letter: str | None = None
    concurrency: int = 1
    prefetch: int | None = None
    batch: int | None = None
    batch_timeout: Duration = BATCH_TIMEOUT
    selector: str | None = None
    durable: str | None = None
    non_blocking_redelivery: bool | None = None
    optimize_acknowledge: bool | None = None
    dedupe: IdempotencyStore | None = None
    dedupe_by: Callable[[Message], Key] | None = None

    def __post_init__(self) -> None:
        try:
            self._check()
        except ConfigurationError as error:
            raise ConfigurationError(f"consumer {self.name}: {error}") from error

    def _check(self) -> None:
        """Raise ConfigurationError, without the consumer's name."""
        _check_source(self.destination.uri)
        object.__setattr__(self, "give_up_on", error_types("give_up_on", self.give_up_on))
        if self.retry_on is not None:
            object.__setattr__(self, "retry_on", error_types("retry_on", self.retry_on))
        self._check_policies()
        object.__setattr__(self, "middleware", check_middleware(self.middleware))
        chain(self.handler, self.middleware)
        if self.timeout is not None:
            bounded("timeout", self.timeout, zero=False)
        object.__setattr__(self, "rate_limit", rate_limit_of(self.rate_limit))
        if not isinstance(self.breaker, CircuitBreaker | None):
            raise wrong_type(
                "breaker", "a CircuitBreaker, such as CircuitBreaker(failures=5)", self.breaker
            )
        if self.redelivery is not None:
            check_policy("redelivery", self.redelivery)
        check_whole("concurrency", self.concurrency, 1)
        if self.prefetch is not None:
            check_whole("prefetch", self.prefetch, 1, LARGEST_INT)
        own = self.options
        own.check_mode(self.mode)
        if own.dead_letter is not None:
            object.__setattr__(self, "dead_letter", own.dead_letter)
            check_elsewhere(self.destination.uri, own.dead_letter)
        self._check_batch()
        stated(self.selector)
        self._check_topic()
        self._check_dedupe()

    def _check_topic(self) -> None:
        """Raise ConfigurationError for a durable subscription of no topic, and for several readers of a topic."""
        if self.durable is not None:
            check_name("durable", self.durable)
        if self.durable is not None and not self.destination.is_topic:
            raise ConfigurationError(
                f"{self.destination} is no topic, so it has no durable subscription; write topic://NAME"
            )
        if self.durable is not None and self.concurrency > 1:
            raise ConfigurationError(
                f"a durable subscription has one reader, not {self.concurrency}; leave concurrency= out"
            )
        if self.destination.is_topic and self.concurrency > 1:
            raise ConfigurationError(
                f"each session of {self.destination} gets every message, so with concurrency={self.concurrency} each"
                " would be handled so often; sessions share a queue that the broker fills from it: a virtual topic on"
                " Classic, a divert on Artemis"
            )

    def _check_policies(self) -> None:
        if not isinstance(self.redelivery_for, Mapping):
            raise wrong_type("redelivery_for", "policies by classes of errors", self.redelivery_for)
        for error, policy in self.redelivery_for.items():
            error_types("redelivery_for", error)
            check_policy(f"redelivery_for of {error.__name__}", policy)
            self._check_retried(error)

    def _check_retried(self, error: type[BaseException]) -> None:
        """Raise ConfigurationError for a policy for `error` that `give_up_on` or `retry_on` leaves no use for."""
        given_up: Any = self.give_up_on
        retried: Any = self.retry_on
        if issubclass(error, given_up):
            why = f"give_up_on={_names(given_up)} has it"
        elif all(map(self._never_retried, _kinds(error))):
            why = f"retry_on={_names(retried)} has it not"
        else:
            return
        raise ConfigurationError(
            f"redelivery_for has a policy for {error.__name__}, which is a dead letter at once: {why}; say one of the"
            " two"
        )

    def policy(self, otherwise: Policy) -> Policy:
        """Return the consumer's policies by error; `otherwise`, the connection's policy, is for all other errors."""
        return PolicyByError(otherwise, self.redelivery_for)

    def judged(self, error: BaseException) -> BaseException:
        """Return the outcome of the handler's `error`: itself, or the Reject or Again that the settings make of it."""
        outcome: BaseException | None = None
        if isinstance(error, Steering):
            return error
        if isinstance(error, self.give_up_on) or self._never_retried(type(error)):  # type: ignore[arg-type]  # a tuple, see _check
            outcome = Reject()
        elif self.redelivery_for:
            policy = PolicyByError(_NONE, self.redelivery_for).policy(error)
            outcome = None if policy is _NONE else Again(careful(policy))
        if outcome is None:
            return error
        outcome.__cause__ = error
        return outcome

    def _never_retried(self, kind: type[BaseException]) -> bool:
        """Return whether `retry_on` leaves it out; what ends the process, or a link that is away, it need not name."""
        if self.retry_on is None or not issubclass(kind, Exception):
            return False
        ours = issubclass(kind, JmsxError) and (
            kind.retriable or issubclass(kind, LinkError | InDoubtError | StoreError)
        )
        return not ours and not issubclass(kind, self.retry_on)  # type: ignore[arg-type]  # a tuple, see _check

    def _check_batch(self) -> None:
        patience = seconds("batch_timeout", self.batch_timeout)
        if self.batch is None and patience != BATCH_TIMEOUT:
            raise ConfigurationError(
                f"batch_timeout={self.batch_timeout!r} is for handlers of batches; say batch=500 beside it"
            )
        if self.batch is None:
            return
        check_whole("batch", self.batch, 1)
        if self.mode.does.in_batches is None:
            raise ConfigurationError(
                f"mode={self.mode.label!r} would acknowledge the messages of a batch that failed with the others; with"
                " batch= the mode is auto, individual or transacted"
            )
        if self.optimize_acknowledge:
            raise ConfigurationError(
                "optimize_acknowledge is for one message at a time; with batch= a batch is acknowledged in one go"
            )
        if self.prefetch is not None:
            self._check_prefetch(self.prefetch)
        if self.dedupe is not None and not hasattr(self.dedupe, "once_each"):
            raise ConfigurationError(
                f"{type(self.dedupe).__name__} knows single messages only; with batch= a store needs once_each(), as"
                " jmsx.stores have it"
            )

    def check_prefetch(self, prefetch: int) -> None:
        """Raise ConfigurationError if the broker sends ahead (`prefetch`) fewer messages than a batch needs."""
        try:
            self._check_prefetch(prefetch)
        except ConfigurationError as error:
            raise ConfigurationError(f"consumer {self.name}: {error}") from error

    def _check_prefetch(self, prefetch: int) -> None:
        if self.batch is not None and prefetch < self.batch:
            raise ConfigurationError(
                f"prefetch={prefetch} is less than batch={self.batch}, so no batch would ever"
                f" be full; say prefetch={self.batch} or more"
            )

    def identity(self, message: Message, client_id: str | None) -> StoreKey | None:
        """
        Return the identity of `message` in the idempotency store; None: it has none.

        Each subscription of a topic has an identity of its own, so each handles a message once; `client_id` is that of
        the connection, to which durable subscriptions belong. Raises ConfigurationError if the result of `dedupe_by`
        cannot be a key.
        """
        key = message.identity if self.dedupe_by is None else self.dedupe_by(message)
        text = "" if key is None else key_text(key)
        if text is None:
            raise ConfigurationError(
                f"dedupe_by= of consumer {self.name} gave {kind_of(key)}, which is no key: equal ones may have"
                " several texts, or different ones the same; return a text, a finite number, a UUID, or None for none"
            )
        source = self.destination
        if is_pattern(source.uri):
            source = message.destination or source
        reader = self.name if self.durable is None else f"{client_id}.{self.durable}"
        place = f"{source.uri} {reader}" if source.is_topic else source.uri
        return StoreKey(place, text) if text else None

    def _check_dedupe(self) -> None:
        store = self.dedupe
        if store is not None and not offers(store, IdempotencyStore):
            raise ConfigurationError(
                f"dedupe must be a store, such as jmsx.stores.SqliteStore('done.db'), not {kind_of(store)}"
            )
        if self.dedupe_by is not None and not callable(self.dedupe_by):
            raise wrong_type("dedupe_by", "a function of the message", self.dedupe_by)
        if self.dedupe_by is not None:
            check_runs(self.dedupe_by)
            check_takes_message(self.dedupe_by)
        wanted = self.parameters.database
        if wanted is not None and (store is None or not store.connects):
            raise ConfigurationError(
                f"the handler's keyword parameter {wanted} would be a database connection, which only"
                " dedupe=DatabaseStore(...) gives; if a message or body is meant, write it in front of the *"
            )
        if store is None:
            if self.dedupe_by is not None:
                raise ConfigurationError("dedupe_by= needs a dedupe= store")
            return
        sends = self.takes_session and self.mode.does.transacted
        if sends and store.connects:
            raise ConfigurationError(
                "a handler that sends in its transaction cannot have dedupe=DatabaseStore(...): if the broker undid the"
                " sends, the store would know the message as done, and they would never be sent; take another mode"
            )

    def check_client_id(self, options: ConnectionOptions) -> None:
        """Raise ConfigurationError if the consumer has a durable subscription, but the connection no client id."""
        if (fault := self.client_id_fault(options)) is not None:
            raise ConfigurationError(f"consumer {self.name}: {fault}")

    def check_ledger(self, options: ConnectionOptions) -> None:
        """
        Raise ConfigurationError if the ledger is in the SQLite database of the store, if that is known.

        SQLite allows one writer: while the handler's transaction writes, the ledger could not count the delivery.
        """
        file = getattr(self.dedupe, "file", None)
        ledger = getattr(options.ledger, "path", options.ledger)
        if not (isinstance(file, str) and isinstance(ledger, str | os.PathLike)):
            return
        with contextlib.suppress(OSError):  # the ledger's file may not exist yet
            if Path(file).samefile(ledger):
                raise ConfigurationError(
                    f"consumer {self.name}: ledger={str(ledger)!r} is in the database of its store, which is locked"
                    " while a handler runs; give the ledger a file of its own"
                )

    def client_id_fault(self, options: ConnectionOptions) -> str | None:
        """Return the text of the error that `check_client_id` raises, without the consumer's name; None: no error."""
        if self.durable is None or options.client_id is not None:
            return None
        return (
            "a durable subscription needs a client_id, the same each time: App(..., client_id=...) or"
            " ?jms.clientID=... in its URL"
        )

    @property
    def takes_session(self) -> bool:
        """Whether the handler takes the session."""
        return self.parameters.takes_session

    @property
    def options(self) -> ConsumerOptions:
        """Its settings that differ from those of the app's connections."""
        return ConsumerOptions(
            prefetch=self.prefetch,
            redelivery_policy=self.redelivery,
            dead_letter=self.dead_letter,
            non_blocking_redelivery=self.non_blocking_redelivery,
            optimize_acknowledge=self.optimize_acknowledge,
        )

    @property
    def kind(self) -> DestinationKind:
        """Whether it reads a queue, a topic, or a durable subscription."""
        if self.durable is not None:
            return DestinationKind.DURABLE
        return DestinationKind.TOPIC if self.destination.is_topic else DestinationKind.QUEUE


class ConsumerKeywords(TypedDict, total=False):
    """Settings of `Consumer` as keywords, for type checkers: those that are no named arguments of `app.consumer`."""

    give_up_on: type[BaseException] | Collection[type[BaseException]]
    retry_on: type[BaseException] | Collection[type[BaseException]] | None
    redelivery_for: Mapping[type[BaseException], Policy]
    middleware: Sequence[Middleware]
    timeout: Duration | None
    rate_limit: RateLimit | str | None
    breaker: CircuitBreaker | None
    dead_letter: str
    concurrency: int
    prefetch: int | None
    batch_timeout: Duration
    selector: str | None
    durable: str | None
    non_blocking_redelivery: bool | None
    optimize_acknowledge: bool | None
    dedupe_by: Callable[[Message], Key] | None


def _check_source(source: str) -> None:
    """Raise ConfigurationError for what no decorator can read."""
    if any("temp-" in kind for kind, _ in parts(source)):
        raise ConfigurationError(
            f"{source} is temporary, and only the session that made it may read it; name a queue or topic"
        )


def _kinds(error: type[BaseException]) -> Iterator[type[BaseException]]:
    """Yield the class, and all that are known of its subclasses: one may be another's, too, that is retried."""
    yield error
    for kind in error.__subclasses__():
        yield from _kinds(kind)


def _names(errors: Iterable[type[BaseException]]) -> str:
    return f"({', '.join(error.__name__ for error in errors)})"


def acknowledge_mode(given: object) -> AcknowledgeMode:
    """
    Return `given` as a mode: it may be one, or its number, or its name, such as "client" or "session_transacted".

    Raises ConfigurationError for anything else, naming the nearest mode.
    """
    names = {
        name: mode
        for mode in AcknowledgeMode
        for name in (mode.label, mode.name, mode.name.lower())
    }
    if isinstance(given, AcknowledgeMode):
        return given
    if isinstance(given, int) and not isinstance(given, bool) and given in set(AcknowledgeMode):
        return AcknowledgeMode(given)
    if isinstance(given, str):
        text = given.lower().replace("-", "_")
        if text in names:
            return names[text]
        labels = [mode.label for mode in AcknowledgeMode]
        of_policy = {
            mode.value: f"redelivery=RedeliveryPolicy(mode='{mode}')" for mode in RedeliveryMode
        }
        raise unknown("mode", text, labels, of_policy)
    raise wrong_type("mode", "an AcknowledgeMode", given)
