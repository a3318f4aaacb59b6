"""
The options of a connection, with the Java client's defaults.

A time may be given as seconds, a timedelta, or a text such as "2s", and is kept in seconds. A value out of range or
of the wrong type raises ConfigurationError at once, not only when it is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict

from jmsx import plugins
from jmsx.config.custom_policy import careful
from jmsx.core.destination_names import is_pattern, parse_destination
from jmsx.core.durations import (
    Default,
    Duration,
    Seconds,
    SecondsOrNone,
    as_number,
    read_durations,
)
from jmsx.core.ledger import Ledger
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.option_checks import (
    LARGEST_INT,
    by_name,
    check_flag,
    check_names,
    check_number,
    check_seconds,
    check_text,
    check_whole,
    is_writable,
    nearest,
    offers,
    plain_text,
    unknown,
    wrong_type,
)
from jmsx.core.policy import Policy, RedeliveryPolicy, RedeliveryPolicyMap, check_policy
from jmsx.core.values import DeadLetterStrategy, DestinationKind, OptimizeAcknowledge
from jmsx.core.wire import BODY_LIMIT
from jmsx.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

#: As a time: without limit.
FOR_EVER: Final = -1

#: The STOMP heart-beat as (send every, expect every).
Heartbeat: TypeAlias = Default[tuple[Duration, Duration], tuple[float, float]]

#: The longest time in seconds; more is taken for a mistake, and no lock or socket can wait for much longer.
_AGES: Final = 1_000_000.0


@by_name
@dataclass(frozen=True, slots=True, kw_only=True)
class PrefetchPolicy:
    """
    How many unacknowledged messages the broker sends ahead, by the kind of destination.

    Source: `ActiveMQPrefetchPolicy.java:33-38`. Raises ConfigurationError below 0 and above 2^31 - 1.

    Args:
        queue: messages for a consumer of a queue, 1,000.
        queue_browser: messages for a queue browser, 500.
        topic: messages for a consumer of a topic, 32,767.
        durable_topic: messages for a consumer of a durable subscription, 100.

    """

    queue: int = 1000
    queue_browser: int = 500
    topic: int = 32767
    durable_topic: int = 100

    def __post_init__(self) -> None:
        for name in self.__slots__:
            check_whole(f"prefetch of {name}", getattr(self, name), most=LARGEST_INT)

    @classmethod
    def all(cls, prefetch: int) -> PrefetchPolicy:
        """Return a policy with the same prefetch for queues, topics, durable subscriptions and browsers."""
        return cls(queue=prefetch, queue_browser=prefetch, topic=prefetch, durable_topic=prefetch)

    def prefetch(self, kind: DestinationKind) -> int:
        """Return the prefetch for a kind of destination, in messages."""
        if kind is DestinationKind.QUEUE:
            return self.queue
        return self.topic if kind is DestinationKind.TOPIC else self.durable_topic


@by_name
@dataclass(frozen=True, slots=True, kw_only=True)
class ReconnectPolicy:
    """
    Which of several brokers to try, and when to try again; names and defaults are those of Java's `failover:`.

    Times are seconds, a timedelta, or a text such as "2s". One attempt tries all brokers once. Raises
    ConfigurationError for values that make no sense.
    Source: `FailoverTransport.java:98-116`.

    Args:
        randomize: whether the brokers are tried in random order; True.
        initial_delay: the delay between the first failed attempt and the next, 10 ms; the first is made at once.
        maximum_delay: the longest delay between two attempts, 30 s.
        use_exponential_back_off: whether the delay grows from attempt to attempt; True.
        back_off_multiplier: the factor by which the delay grows from each attempt to the next, 2.
        maximum_attempts: how often to try to reconnect; -1 (the default): for ever; 0: never.
        startup_maximum_attempts: how often to try to open the first connection, and links for new consumers; -1: as
            maximum_attempts.
        timeout: how long a call waits for a connection; -1: `request_timeout`.
        startup_timeout: how long the first connection may take, shared by the brokers that are tried, and after that
            the broker's answer to each new consumer, on whichever link; None: as any call; -1: for ever.

    """

    randomize: bool = True
    initial_delay: Seconds = Default(0.01)
    maximum_delay: Seconds = Default(30.0)
    use_exponential_back_off: bool = True
    back_off_multiplier: float = 2.0
    maximum_attempts: int = -1
    startup_maximum_attempts: int = -1
    timeout: Seconds = Default(-1.0)
    startup_timeout: SecondsOrNone = Default(None)

    def __post_init__(self) -> None:
        read_durations(self)
        check_flag("randomize", self.randomize)
        check_seconds("initial_delay", self.initial_delay)
        check_seconds("maximum_delay", self.maximum_delay)
        check_flag("use_exponential_back_off", self.use_exponential_back_off)
        check_number("back_off_multiplier", self.back_off_multiplier, 1.0)
        check_whole("maximum_attempts", self.maximum_attempts, -1)
        check_whole("startup_maximum_attempts", self.startup_maximum_attempts, -1)
        if self.timeout != FOR_EVER:
            check_seconds("timeout", self.timeout, "; -1 is the request_timeout")
        if self.startup_timeout not in (None, FOR_EVER):
            check_seconds("startup_timeout", self.startup_timeout, "; -1 waits for ever")

    @property
    def startup_attempts(self) -> int:
        """How often the first connection is tried at most; below 0: there is no limit."""
        own = self.startup_maximum_attempts
        return own if own >= 0 else self.maximum_attempts

    def startup_seconds(self, request_timeout: float | None) -> float:
        """Return the seconds for which the first connection is tried, if an answer may take `request_timeout`."""
        seconds = self.startup_timeout
        if seconds is None:
            seconds = self.timeout if self.timeout > 0 else request_timeout
        return math.inf if seconds is None or seconds == FOR_EVER else seconds

    def delay(self, failed: int) -> float:
        """Return seconds between the attempt number `failed`, counted from 1, and the next."""
        if not self.use_exponential_back_off:
            return self.initial_delay
        try:
            delay = self.initial_delay * float(self.back_off_multiplier) ** (failed - 1)
        except OverflowError:
            return self.maximum_delay
        return min(delay, self.maximum_delay)


@by_name
@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """
    The TLS settings for `stomp+ssl://`; files are PEM and are read at each connection.

    The broker's certificate is always verified; `verify_hostname=False` accepts any host name in it.

    Args:
        ca_file: the certificate authorities to trust; None: those of the system.
        certificate_file: the client's certificate and its chain, if the broker asks for one; None: none.
        key_file: the private key of that certificate; None: it is in certificate_file.
        key_password: the password of the private key; None: it has none.
        verify_hostname: whether the broker's certificate must be for the host, or for `server_name`; True.
        server_name: the host name to send (SNI) and to expect in the certificate; None: the host of the URL.

    """

    ca_file: str | PathLike[str] | None = None
    certificate_file: str | PathLike[str] | None = None
    key_file: str | PathLike[str] | None = None
    key_password: str | None = field(default=None, repr=False)
    verify_hostname: bool = True
    server_name: str | None = None

    def __post_init__(self) -> None:
        for name in ("ca_file", "certificate_file", "key_file"):
            file = getattr(self, name)
            check_text(name, fspath(file) if isinstance(file, PathLike) else file)
        check_text("key_password", self.key_password)
        check_text("server_name", self.server_name)
        if self.server_name == "":
            raise ConfigurationError("server_name must not be empty")
        check_flag("verify_hostname", self.verify_hostname)
        if self.certificate_file is None and (self.key_file or self.key_password) is not None:
            raise ConfigurationError("key_file and key_password need a certificate_file")


@by_name
@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """
    Options of one consumer that differ from its connection's; None: as the connection has it.

    Raises ConfigurationError for options that make no sense.

    Args:
        prefetch: how many unacknowledged messages the broker sends ahead; with 0, each message is fetched when
            `receive()` asks for one. A prefetch in the destination's name wins, as in
            `queue://orders?consumer.prefetchSize=1`.
        redelivery_policy: how often, and when, a failed message is delivered again.
        dead_letter: where a message goes that is not delivered again: a DeadLetterStrategy (`safe`, `broker`), or a
            queue for confirmed copies, such as `queue://orders.dead`.
        non_blocking_redelivery: whether later messages go on while a failed one waits for its redelivery.
        optimize_acknowledge: whether acknowledgements are sent in batches; in AUTO_ACKNOWLEDGE only.

    """

    prefetch: int | None = None
    redelivery_policy: Policy | None = None
    dead_letter: str | None = None
    non_blocking_redelivery: bool | None = None
    optimize_acknowledge: bool | None = None

    def __post_init__(self) -> None:
        if self.prefetch is not None:
            check_whole("prefetch", self.prefetch, most=LARGEST_INT)
        if self.redelivery_policy is not None:
            check_policy("redelivery_policy", self.redelivery_policy)
        if self.dead_letter is not None:
            object.__setattr__(self, "dead_letter", dead_letter_place(self.dead_letter))
        for name in ("non_blocking_redelivery", "optimize_acknowledge"):
            if getattr(self, name) is not None:
                check_flag(name, getattr(self, name))

    def check_mode(self, mode: AcknowledgeMode) -> None:
        """Raise ConfigurationError if an option makes no sense in a session of that mode."""
        if self.optimize_acknowledge and not mode.does.may_optimize:
            raise ConfigurationError("optimize_acknowledge is for AUTO_ACKNOWLEDGE only")


#: For a consumer without options of its own.
_AS_CONNECTION: Final = ConsumerOptions()


@by_name
@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """
    The options of a connection; times are seconds, a timedelta, or a text such as "2s".

    Args:
        client_id: the permanent name of the connection, which durable subscriptions need; None: none can be made.
        username: the user at the broker; None: log in without one.
        password: the password of that user; None: none.
        credentials: a function that returns (username, password) for each new link, in their place; None: none.
        prefetch_policy: how many unacknowledged messages the broker sends ahead; PrefetchPolicy().
        redelivery_policy: how often, and when, a failed message is delivered again; RedeliveryPolicy().
        redelivery_policies: policies by destination, which win over redelivery_policy; None: none.
        optimize_acknowledge: whether acknowledgements are sent in batches; in AUTO_ACKNOWLEDGE only; False.
        optimize_acknowledge_timeout: a batch older than this is sent with the next message, 0.3 s; 0: off.
        optimized_ack_scheduled_ack_interval: a batch is sent at least this often; 0, the default: off.
        non_blocking_redelivery: whether later messages go on while a failed one waits for its redelivery; False.
        transacted_individual_ack: whether in SESSION_TRANSACTED each message has an ACK of its own; False: one covers
            those before it.
        use_async_send: whether persistent messages are sent without waiting for the receipt; False.
        dead_letter: where a message goes that is not delivered again: a DeadLetterStrategy (`safe`, the default, or
            `broker`), or a queue for confirmed copies, such as `queue://orders.dead`.
        use_management: whether the broker's management is asked for information that STOMP does not provide; True.
        ledger: a DeliveryLedger, or the path of its file, which counts deliveries across processes; None: none.
        dialect: the kind of broker, such as `classic`; None: found out from the broker's CONNECTED frame.
        heartbeat: the STOMP heart-beat, (send every, expect every), 10 s each; 0 is never. If the broker is silent for
            twice the second time, its link counts as lost.
        connect_timeout: the limit for TCP, TLS and CONNECTED together, after the host name was resolved, 12 s; None: no
            limit.
        request_timeout: the limit for every answer of the broker, 30 s; None: no limit.
        reconnect: when and how a lost connection is restored; None: it stays lost.
        commit_markers: whether the outcome of a commit whose answer was lost is found out on the next link; False.
        resend_unconfirmed: whether a message whose receipt was lost with the link is sent again; None: only to the same
            broker, if that drops duplicates. True: also to another broker, for a pair of Artemis brokers of which one
            takes over the messages of the other; then `commit_markers` find out there what the other one has committed.
        max_body_size: the largest body in bytes, 128 MiB; if the broker sends a longer one, its link is closed.
        tls: the TLS settings for `stomp+ssl://`; TlsOptions(), with the certificate authorities of the system.

    """

    client_id: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    credentials: Callable[[], tuple[str, str]] | None = field(default=None, repr=False)
    prefetch_policy: PrefetchPolicy = field(default_factory=PrefetchPolicy)
    redelivery_policy: Policy = field(default_factory=RedeliveryPolicy)
    redelivery_policies: RedeliveryPolicyMap | None = None
    optimize_acknowledge: bool = False
    optimize_acknowledge_timeout: Seconds = Default(0.3)
    optimized_ack_scheduled_ack_interval: Seconds = Default(0.0)
    non_blocking_redelivery: bool = False
    transacted_individual_ack: bool = False
    use_async_send: bool = False
    dead_letter: str = DeadLetterStrategy.SAFE
    use_management: bool = True
    ledger: Ledger | str | PathLike[str] | None = None
    dialect: str | None = None
    heartbeat: Heartbeat = Default((10.0, 10.0))
    # Longer than the 10 s for which Artemis may leave a connection without an answer (its BROKER.md, A70).
    connect_timeout: SecondsOrNone = Default(12.0)
    request_timeout: SecondsOrNone = Default(30.0)
    reconnect: ReconnectPolicy | None = None
    commit_markers: bool = False
    resend_unconfirmed: bool | None = None
    max_body_size: int = BODY_LIMIT
    tls: TlsOptions = field(default_factory=TlsOptions)

    def __post_init__(self) -> None:
        read_durations(self)
        for name in ("client_id", "username", "password"):
            text = getattr(self, name)
            _check_header(name, text)
            if text is not None:
                object.__setattr__(self, name, plain_text(text))
        _check_credentials(self.credentials, self.username, self.password)
        for name in _FLAGS:
            check_flag(name, getattr(self, name))
        for name, kind in _PARTS.items():
            if not isinstance(getattr(self, name), kind):
                raise wrong_type(name, f"a {kind.__name__}", getattr(self, name))
        _check_policies(self.redelivery_policy, self.redelivery_policies)
        if not isinstance(self.reconnect, ReconnectPolicy | None):
            raise wrong_type("reconnect", "a ReconnectPolicy or None", self.reconnect)
        if self.resend_unconfirmed is not None:
            check_flag("resend_unconfirmed", self.resend_unconfirmed)
        _check_dialect(self.dialect)
        _check_ledger(self.ledger)
        if not isinstance(self.dead_letter, str):
            raise wrong_type("dead_letter", "safe, broker or a destination", self.dead_letter)
        object.__setattr__(self, "dead_letter", dead_letter_place(self.dead_letter))
        check_seconds("optimize_acknowledge_timeout", self.optimize_acknowledge_timeout)
        check_seconds(
            "optimized_ack_scheduled_ack_interval", self.optimized_ack_scheduled_ack_interval
        )
        object.__setattr__(self, "heartbeat", _heartbeat(self.heartbeat))
        _check_limit("connect_timeout", self.connect_timeout)
        _check_limit("request_timeout", self.request_timeout)
        check_whole("max_body_size", self.max_body_size, 1)

    @classmethod
    def of(cls, **options: Any) -> ConnectionOptions:
        """Return these options; raises ConfigurationError for an unknown name, and says which known one is nearest."""
        check_names("connection option", options, [each.name for each in fields(cls)])
        return cls(**options)

    def login(self) -> tuple[str | None, str | None]:
        """
        Return user name and password for a new link.

        Raises what `credentials` raises, and ConfigurationError if it returns no pair of user name and password.
        """
        if self.credentials is None:
            return self.username, self.password
        given: object = self.credentials()
        if not isinstance(given, tuple) or len(given) != len(("username", "password")):
            raise wrong_type("what credentials returns", "(username, password)", given)
        for name, text in zip(("username", "password"), given, strict=True):
            _check_header(f"the {name} that credentials returns", text)
        return given

    def policy(self, destination: str, own: ConsumerOptions = _AS_CONNECTION) -> Policy:
        """
        Return the redelivery policy of a consumer of `destination` (URI); its `own` options win over the connection's.

        A policy that the application wrote is wrapped in a new CustomPolicy for each consumer, for that remembers the
        last answers for the consumer.
        """
        if own.redelivery_policy is not None:
            return careful(own.redelivery_policy)
        if self.redelivery_policies is None:
            return careful(self.redelivery_policy)
        return careful(self.redelivery_policies.policy(destination))

    def prefetch(self, kind: DestinationKind, own: ConsumerOptions = _AS_CONNECTION) -> int:
        """Return the prefetch of a consumer with its `own` options, in messages; 0: each is fetched on demand."""
        return self.prefetch_policy.prefetch(kind) if own.prefetch is None else own.prefetch

    def optimize(self, own: ConsumerOptions = _AS_CONNECTION) -> OptimizeAcknowledge | None:
        """Return how AUTO acknowledgements of a consumer with its `own` options are batched, if at all."""
        wanted = own.optimize_acknowledge
        if not (self.optimize_acknowledge if wanted is None else wanted):
            return None
        return OptimizeAcknowledge(
            timeout=self.optimize_acknowledge_timeout,
            scheduled_interval=self.optimized_ack_scheduled_ack_interval,
        )


class AppKeywords(TypedDict, total=False):
    """The fields of `ConnectionOptions` except `reconnect`, as keywords, for type checkers."""

    client_id: str | None
    username: str | None
    password: str | None
    credentials: Callable[[], tuple[str, str]] | None
    prefetch_policy: PrefetchPolicy
    redelivery_policy: Policy
    redelivery_policies: RedeliveryPolicyMap | None
    optimize_acknowledge: bool
    optimize_acknowledge_timeout: Duration
    optimized_ack_scheduled_ack_interval: Duration
    non_blocking_redelivery: bool
    transacted_individual_ack: bool
    use_async_send: bool
    dead_letter: str
    use_management: bool
    ledger: Ledger | str | PathLike[str] | None
    dialect: str | None
    heartbeat: tuple[Duration, Duration]
    connect_timeout: Duration | None
    request_timeout: Duration | None
    commit_markers: bool
    resend_unconfirmed: bool | None
    max_body_size: int
    tls: TlsOptions


class ConnectionKeywords(AppKeywords, total=False):
    """The fields of `ConnectionOptions` as keywords, for type checkers."""

    reconnect: ReconnectPolicy | None


_FLAGS: Final = (
    "optimize_acknowledge",
    "non_blocking_redelivery",
    "transacted_individual_ack",
    "use_async_send",
    "use_management",
    "commit_markers",
)
_PARTS: Final = {"prefetch_policy": PrefetchPolicy, "tls": TlsOptions}


def _meant(given: object) -> str:
    """Return what `dead_letter=given` may have been meant to be, as a question; nothing if nobody knows."""
    if not isinstance(given, str) or not given or " " in given:
        return ""
    near = nearest(given, [str(strategy) for strategy in DeadLetterStrategy])
    return f"; did you mean {near or f'queue://{given}'!r}?"


def dead_letter_place(given: str) -> str:
    """
    Return `given` as a strategy or as the URI of a queue; a bad value raises at once, not when a message has failed.

    Only a single queue will do: a topic without subscribers would lose the copies, a temporary queue ends with its
    session, and brokers read a name with wildcards or commas as several queues. Raises ConfigurationError, and
    InvalidDestinationError for a destination that makes no sense.
    """
    if given in tuple(DeadLetterStrategy):
        return given
    strategies = ", ".join(DeadLetterStrategy)
    if not isinstance(given, str) or not (":" in given or "/" in given):
        raise ConfigurationError(
            f"dead_letter={given!r} is neither one of {strategies} nor like queue://NAME{_meant(given)}"
        )
    place = parse_destination(given)
    if place.kind != "queue" or is_pattern(place.name):
        raise ConfigurationError(
            f"dead_letter={given!r} is not one queue, and only a queue that outlives its readers keeps dead letters;"
            f" write queue://NAME, or one of {strategies}"
        )
    return str(place)


def _check_credentials(credentials: object, *others: str | None) -> None:
    if credentials is None:
        return
    if not callable(credentials):
        raise wrong_type("credentials", "a function that returns (username, password)", credentials)
    if any(other is not None for other in others):
        raise ConfigurationError(
            "give credentials, or a username and password (also in the URI), but not both"
        )


def _check_policies(policy: object, policies: object) -> None:
    check_policy("redelivery_policy", policy)
    if not isinstance(policies, RedeliveryPolicyMap | None):
        raise wrong_type("redelivery_policies", "a RedeliveryPolicyMap or None", policies)


def _check_dialect(name: str | None) -> None:
    check_text("dialect", name)
    if name is not None and name not in plugins.names("jmsx.dialects"):
        raise unknown("dialect", name, plugins.names("jmsx.dialects"))


def _check_ledger(ledger: object) -> None:
    if not (ledger is None or isinstance(ledger, str | PathLike) or offers(ledger, Ledger)):
        raise wrong_type("ledger", "a path or a DeliveryLedger", ledger)
    if isinstance(ledger, str) and (
        not ledger.strip() or "\0" in ledger or not is_writable(ledger)
    ):
        raise ConfigurationError(f"ledger={ledger!r} is no path of a file")


def _check_header(name: str, value: object) -> None:
    """Raise ConfigurationError for what can be no header of CONNECT, where nothing is escaped."""
    check_text(name, value)
    if isinstance(value, str) and any(character in value for character in "\r\n\0"):
        raise ConfigurationError(f"{name} holds a line end or NUL, which STOMP cannot carry there")
    if isinstance(value, str) and not is_writable(value):
        raise ConfigurationError(f"{name} has a character that UTF-8 cannot carry")
    if name == "client_id" and value == "":
        raise ConfigurationError("client_id is empty, which names nobody; leave it out")


def _check_limit(name: str, value: object) -> None:
    """Raise ConfigurationError for what is no time limit: 0 would end all at once here, and is no limit in Java."""
    if value is not None:
        check_number(name, value, 0.001, " seconds; None is no limit")
        _check_age(name, value, "None is no limit")


def _check_age(name: str, seconds: Any, remark: str) -> None:
    if seconds > _AGES:
        raise ConfigurationError(f"{name} of {seconds} seconds is too long; {remark}")


def _heartbeat(given: object) -> tuple[float, float]:
    """Return the two times in seconds; raises ConfigurationError for what is none."""
    if not isinstance(given, tuple) or len(given) != len(("send", "expect")):
        raise wrong_type("heartbeat", "a tuple (send every, expect every)", given)
    return _beat("send", given[0]), _beat("expect", given[1])


def _beat(which: str, given: object) -> float:
    name = f"heartbeat to {which}"
    seconds: float = as_number(name, given)
    check_seconds(name, seconds, "; 0 is never")
    _check_age(name, seconds, "0 is never")
    return seconds
