"""
The checks of `jmsx check`: can the broker be reached, does it do what jmsx needs, and do the options make sense?

No message is consumed from any queue, except for those that `guarantees` has sent to its own queues. The probe message
is sent over a temporary queue, which ends with its session.
"""

from __future__ import annotations

import ipaddress
import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from jmsx import plugins
from jmsx.app import App, Consumer
from jmsx.check.finding import Finding, Level
from jmsx.check.guarantees import guarantees
from jmsx.config.options import ConnectionOptions, ConsumerOptions
from jmsx.config.uri import BrokerAddress, BrokerUri, parse_broker_uri
from jmsx.core.destination_names import split_name
from jmsx.core.events import Event, LinkOpened, Source
from jmsx.core.heartbeat import parse
from jmsx.core.management import Findings
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.values import DeadLetterStrategy, DestinationKind
from jmsx.errors import JmsxError
from jmsx.jms.connection import Connection
from jmsx.jms.destination import Queue
from jmsx.jms.message import Message
from jmsx.jms.one_broker import connect_to
from jmsx.jms.session import Session, link_of
from jmsx.log import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


#: Seconds to wait for the probe message.
PATIENCE = 10.0

#: A queue that no application uses.
_ANY: Final = Queue("jmsx.check")


class Inspect(Protocol):
    """The inspection that an adapter registers for its kind of broker, in the entry point group `jmsx.inspections`."""

    def __call__(self, session: Session, queues: Sequence[str]) -> Iterator[Finding]:
        """Look at the broker and at `queues` (names) through `session`; raises JmsxError when it does not answer."""


def examine(
    url: str, options: Mapping[str, Any], app: App | None = None, *, thorough: bool = False
) -> Iterator[Finding]:
    """
    Check every broker of `url`, the options and, if there is one, the consumers of `app`; yields the findings.

    If `thorough`, also try the table of guarantees on each broker, with queues that nobody else uses.
    """
    try:
        uri = parse_broker_uri(url, _options(options))
    except JmsxError as error:
        yield Finding("options", Level.FAILURE, str(error))
        return
    consumers = app.consumers if app is not None else ()
    yield from _examine_options(uri.options)
    for consumer in consumers:
        yield _examine_consumer(consumer, uri.options)
    yield from _examine_brokers(uri, consumers, thorough=thorough)


def _examine_brokers(
    uri: BrokerUri, consumers: Sequence[Consumer], *, thorough: bool
) -> Iterator[Finding]:
    """Examine all of them; one of several may be away, such as the waiting half of a pair, but not all."""
    missing: list[Finding] = []
    for address in uri.addresses:
        try:
            yield from _examine_broker(address, uri.options, consumers)
            if thorough:
                yield from guarantees(address, uri.options)
        except JmsxError as error:
            missing.append(Finding(f"broker {address}", Level.FAILURE, str(error)))
    for finding in missing:
        none = len(missing) == len(uri.addresses)
        yield finding if none else replace(finding, level=Level.WARNING)


def _options(given: Mapping[str, Any]) -> ConnectionOptions:
    """Return the options of an App."""
    return Connection("stomp://nobody", **given).options


def _examine_options(options: ConnectionOptions) -> Iterator[Finding]:
    """Yield what is legal and seldom meant."""
    ours, theirs = options.heartbeat
    if not (ours and theirs):
        yield Finding(
            "heart-beat",
            Level.WARNING,
            f"{ours:g} s, {theirs:g} s: without one in each direction, a dead peer is found by TCP alone,"
            " after minutes or hours",
        )
    for name in ("connect_timeout", "request_timeout"):
        if getattr(options, name) is None:
            yield Finding(name, Level.WARNING, "no limit: a call may wait for ever")
    if options.dead_letter == DeadLetterStrategy.BROKER:
        yield Finding(
            "dead_letter", Level.WARNING, "broker: it deletes what it has no dead letter queue for"
        )


def _examine_consumer(consumer: Consumer, options: ConnectionOptions) -> Finding:
    """Return one consumer's settings in words, and what is seldom meant."""
    prefetch = options.prefetch(consumer.kind, consumer.options)
    limit = options.policy(consumer.destination.uri, consumer.options).maximum_redeliveries
    told = (
        f"{consumer.destination.uri}, {consumer.mode.label}, prefetch {prefetch},"
        f" {counted(consumer.concurrency, 'worker')}"
    )
    check = f"consumer {consumer.name}"
    if (fault := consumer.client_id_fault(options)) is not None:
        return Finding(check, Level.FAILURE, f"{told}: {fault}")
    if limit < 0:
        words = "redelivered for ever: a message that always fails blocks the others"
        return Finding(check, Level.WARNING, f"{told}, {words}")
    return Finding(check, Level.OK, f"{told}, dead letter after {counted(1 + limit, 'delivery')}")


def _examine_broker(
    address: BrokerAddress, options: ConnectionOptions, consumers: Sequence[Consumer]
) -> Iterator[Finding]:
    """Examine one broker: reach it, try it, ask it."""
    greeting, began = _Greeting(), time.monotonic()
    with connect_to(address, options, [greeting]) as connection:
        connection.start()
        session = connection.create_session()
        milliseconds = (time.monotonic() - began) * 1000
        dialect = link_of(session).dialect
        told = f"{greeting.server}, dialect {dialect.name}, connected in {milliseconds:.0f} ms"
        yield Finding(f"broker {address}", Level.OK, told)
        yield _transport(address, options)
        yield _heartbeat(session, options)
        yield _dead_letters(session, options)
        for consumer in consumers:
            yield from _examine_destination(consumer, session, options)
        if not consumers:
            yield from _advise("settings of any queue", _of_any(session, options))
        yield _probe(session)
        yield _transaction(connection.create_session(AcknowledgeMode.SESSION_TRANSACTED))
        if dialect.name in plugins.names("jmsx.inspections"):
            inspect: Inspect = plugins.load("jmsx.inspections", dialect.name)
            yield from inspect(session, _queues(consumers, options))


def _queues(consumers: Sequence[Consumer], options: ConnectionOptions) -> list[str]:
    """Return the names of the queues that they read, and of those that they name for dead letters."""
    read = {one.destination.name for one in consumers if not one.destination.is_topic}
    named = (_named(one, options) for one in consumers)
    return sorted(read | {split_name(one)[1] for one in named if one is not None})


def _named(consumer: Consumer, options: ConnectionOptions) -> str | None:
    """Return the queue, as URI, that is named for its dead letters; None: none is."""
    named = consumer.dead_letter or options.dead_letter
    return None if named in tuple(DeadLetterStrategy) else named


def _examine_destination(
    consumer: Consumer, session: Session, options: ConnectionOptions
) -> Iterator[Finding]:
    """Yield what the broker has set for a consumer's destination, and whether that goes with its own policy."""
    destination, check = consumer.destination, f"settings of {consumer.destination.uri}"
    policy = options.policy(destination.uri, consumer.options)
    try:
        found = link_of(session).examine(destination, consumer.kind, policy)
    except JmsxError as error:
        yield Finding(check, Level.FAILURE, str(error))
        return
    place = found.dead_letter_queue.destination
    named = _named(consumer, options)
    if named is not None:
        told = link_of(session).examine_dead_letter_queue(named)
        yield from _advise(f"settings of {named}, for dead letters of {destination.uri}", told)
    elif place != _place(session, options):
        yield Finding(check, Level.NOTE, f"confirmed copies of its dead letters to {place}")
    yield from _advise(check, found)


def _advise(check: str, found: Findings) -> Iterator[Finding]:
    """Yield what is seldom meant of a queue's settings in the broker."""
    for advice in found.advice:
        settings = ", ".join(f"{name} {value}" for name, value in advice.settings.items())
        yield Finding(check, Level.WARNING, f"{advice.problem} ({settings}); {advice.remedy}")


def _transport(address: BrokerAddress, options: ConnectionOptions) -> Finding:
    """Report whether others can read along."""
    if address.tls:
        name = options.tls.verify_hostname
        words = "its name is verified" if name else "its name is NOT verified (verify_hostname)"
        return Finding("transport", Level.OK if name else Level.WARNING, f"TLS; {words}")
    if _is_local(address.host):
        return Finding("transport", Level.NOTE, "plain text, on this machine")
    return Finding(
        "transport",
        Level.WARNING,
        "plain text: passwords and messages can be read on the way; use stomp+ssl://",
    )


def _heartbeat(session: Session, options: ConnectionOptions) -> Finding:
    """Return what both sides agreed on; a side that said 0 sends nothing."""
    ours, theirs = options.heartbeat
    promised, wanted = parse(link_of(session).greeting.get("heart-beat", "0,0"))
    sends, hears = (max(ours, wanted) if ours and wanted else 0.0), (promised if theirs else 0.0)
    told = (
        f"we send every {sends:g} s at the least" if sends else "we send none",
        f"the broker every {hears:g} s" if hears else "the broker sends none",
    )
    return Finding("heart-beats", Level.OK if sends and hears else Level.WARNING, ", ".join(told))


def _dead_letters(session: Session, options: ConnectionOptions) -> Finding:
    """Return where a message of a queue goes that always fails."""
    own = link_of(session).dialect.dead_letter_queue
    if options.dead_letter not in tuple(DeadLetterStrategy):
        words = f"confirmed copies to {options.dead_letter}"
    elif not link_of(session).dialect.nack_dead_letters:
        words = f"confirmed copies to {_place(session, options)}"
        if options.use_management:
            words += ", unless the broker's settings of a queue say otherwise"
    elif options.dead_letter == DeadLetterStrategy.SAFE:
        words = (
            f"confirmed copies to {own}, wherever the broker would not keep them itself; what it keeps itself tells no"
            " cause, but an event log does (`jmsx dlq groups --events`);"
            f" with dead_letter={own!r} all are copies, which tell it"
        )
    else:
        words = "the broker's strategy alone"
    return Finding("dead letters", Level.NOTE, words)


def _place(session: Session, options: ConnectionOptions) -> str:
    """Return where copies of dead letters go of a queue for which the broker has no settings of its own."""
    return _of_any(session, options).dead_letter_queue.destination


def _of_any(session: Session, options: ConnectionOptions) -> Findings:
    """Return what the broker tells of a queue for which it has no settings of its own."""
    policy = options.policy(_ANY.uri, ConsumerOptions())
    return link_of(session).examine(_ANY, DestinationKind.QUEUE, policy)


def _probe(session: Session) -> Finding:
    """Send a message to ourselves."""
    body, began = uuid.uuid4().hex, time.monotonic()
    try:
        queue = session.create_temporary_queue()
        consumer = session.create_consumer(queue)
        session.create_producer(queue).send(Message(body))
        answer = consumer.receive(PATIENCE)
        consumer.close()
    except JmsxError as error:
        return Finding("probe", Level.FAILURE, str(error))
    if answer is None or answer.body != body:
        told = f"got {answer!r} in {PATIENCE:g} s instead of what was sent"
        return Finding("probe", Level.FAILURE, told)
    milliseconds = (time.monotonic() - began) * 1000
    return Finding("probe", Level.OK, f"a message to ourselves came back in {milliseconds:.0f} ms")


def _transaction(session: Session) -> Finding:
    """Roll back one message, commit another: the second one comes, and it alone."""
    try:
        queue = session.create_temporary_queue()
        consumer, producer = session.create_consumer(queue), session.create_producer(queue)
        producer.send(Message("rolled back"))
        session.rollback()
        producer.send(Message("committed"))
        session.commit()
        answer = consumer.receive(PATIENCE)
        session.commit()
        consumer.close()
    except JmsxError as error:
        return Finding("transaction", Level.FAILURE, str(error))
    if answer is None or answer.body != "committed":
        return Finding("transaction", Level.FAILURE, f"got {answer!r}, not what was committed")
    return Finding("transaction", Level.OK, "what was committed came, what was rolled back did not")


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Greeting:
    """An observer that keeps the broker's own word for itself."""

    server = "?"

    def observe(self, event: Event, source: Source) -> None:  # noqa: ARG002 - an observer's signature
        """Keep the broker's headers when a link is opened."""
        if isinstance(event, LinkOpened):
            self.server = event.server or "a broker that does not say what it is"

    def close(self) -> None:
        """Do nothing: an observer's `close()`, and nothing is held."""
