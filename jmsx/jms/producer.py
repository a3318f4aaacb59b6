"""The producer: sends messages, within a transaction or each on its own."""

from __future__ import annotations

import os
from typing import Final, Never

from jmsx.core.dialect import Body
from jmsx.core.durations import LONGEST, Duration, as_number, bounded
from jmsx.core.frames import Frame
from jmsx.core.headers import SENDER_HEADER, TIME_HEADER
from jmsx.core.option_checks import check_flag, check_names, check_text
from jmsx.core.requests import Request
from jmsx.core.session import SessionCore
from jmsx.errors import (
    ConfigurationError,
    IllegalStateError,
    MessageFormatError,
    SendUnconfirmedError,
    UnsupportedError,
)
from jmsx.jms.destination import Destination
from jmsx.jms.destination import destination as destination_of
from jmsx.jms.dispatcher import handled
from jmsx.jms.link import SessionLink
from jmsx.jms.message import Message
from jmsx.jms.scheduling import broker_schedules
from jmsx.jms.temporary import check_parts, reachable
from jmsx.jms.translation import PreparedSend, checked_body

#: What `MessageProducer.send` takes by keyword.
_OPTIONS: Final = [
    *("destination", "persistent", "priority", "time_to_live"),
    *("delivery_delay", "dedupe_id", "timeout", "confirm"),
]

#: Options that `send()` does not have, and where to give such a value instead.
_ELSEWHERE: Final = {
    "headers": "Message(body, properties={...})",
    "properties": "Message(body, properties={...})",
    "correlation_id": "Message(body, correlation_id=...)",
    "type": "Message(body, type=...)",
    "reply_to": "Message(body, reply_to=...)",
    "group_id": "Message(body, group_id=...)",
}

#: The default of times; a value that is this very object needs no check.
_UNSAID: Final = 0.0


class MessageProducer:
    """
    Sends messages in one session; made by `Session.create_producer`.

    `persistent`, `priority` and `time_to_live` (0: for ever) apply to each message unless `send` is given others. Times
    are seconds, a timedelta, or a text such as "2s". With `disable_message_timestamp` a message carries no timestamp of
    the sender, and the broker sets JMSTimestamp by its own clock.
    """

    def __init__(self, link: SessionLink, target: Destination | None) -> None:
        self._link = link
        self._target = target
        self._closed = False
        self._last: PreparedSend | None = None  #: the prepared headers of the last message
        self.persistent = True
        self.priority = 4
        self.time_to_live: Duration = _UNSAID
        #: Whether messages are sent without a timestamp; the broker then sets JMSTimestamp by its own clock.
        self.disable_message_timestamp = False

    def send(
        self,
        message: Message | Body,
        *,
        destination: Destination | str | None = None,
        persistent: bool | None = None,
        priority: int | None = None,
        time_to_live: Duration | None = None,
        delivery_delay: Duration = _UNSAID,
        dedupe_id: str | None = None,
        timeout: Duration | None = None,
        confirm: bool = True,
        **others: Never,
    ) -> str:
        """
        Send `message`, or a message with that body; returns its key, the identity that jmsx gives it.

        For `persistent`, `priority` and `time_to_live`, None means the producer's attribute of that name.

        As in Java this sets destination, timestamp, expiration, priority and persistent of `message`, unless it was
        received; and `message_id` if that can be known: on Classic, outside a transaction; else it is None. To match an
        answer with its request, set a `correlation_id` or property of your own.

        Outside a transaction a persistent message is on the broker's disk when this returns; a non-persistent one may
        still be on its way. In a transaction the message is sent with the commit. If it goes to a temporary destination
        that no longer exists, this raises InvalidDestinationError at once, and the transaction goes on without it.

        Args:
            message: the message, or its body.
            destination: where to send it; None: the producer's own destination.
            persistent: whether it survives a restart of the broker.
            priority: from 0 to 9 (the highest).
            time_to_live: the time until it expires, counted from now, also during a delivery_delay, as JMS says; 0: it
                never expires. On Classic a message with both has a `timestamp` of 0 for consumers other than jmsx, for
                else the broker would count the time only from the end of the delay.
            delivery_delay: how long the broker waits before it delivers the message.
            dedupe_id: a broker that has duplicate detection drops a second message with this id to the same
                destination.
            timeout: how long to wait for a link and for the receipt. It also limits how long a broker may read nothing
                of the message, where it is at least a second, and where the session does nothing else. None:
                `request_timeout`.
            confirm: whether to wait for the receipt. Without it, the message may be lost with the link, and a refusal
                is told only to the connection's exception listener and the log.
            others: unknown options, which are refused.

        Raises UnsupportedError (no destination, or two; a delay or a dedupe_id that the broker does not support),
        ConfigurationError (priority, time_to_live, delivery_delay, timeout), MessageFormatError, BrokerTimeoutError,
        IllegalStateError, or the broker's error; ConnectionFailedError if there was no connection for too long and
        nothing was sent, and SendUnconfirmedError if the connection was lost before the receipt came.

        """
        check_names("option of send()", others, _OPTIONS, _ELSEWHERE)
        link = self._link
        link.check_open()
        if self._closed:
            raise IllegalStateError(
                f"The Producer is closed (its session is on {link.address}); create another one"
            )
        persistent = self.persistent if persistent is None else persistent
        priority = self.priority if priority is None else priority
        given = self.time_to_live if time_to_live is None else time_to_live
        lives = _UNSAID if given is _UNSAID else _time_to_live(given)
        delay = _UNSAID if delivery_delay is _UNSAID else bounded("delivery_delay", delivery_delay)
        patience = None if timeout is None else bounded("timeout", timeout)
        if confirm is not True:
            check_flag("confirm", confirm)
        if dedupe_id is not None:
            check_text("dedupe_id", dedupe_id)
        message = _message(message)
        to = self._destination(destination)
        if to.is_temporary:  # it may no longer exist, or have another name on this link
            to = reachable(to, link)
            link.check_temporary(to)
        prepared = self._prepared(to, persistent=persistent, priority=priority)
        # Read the clock once: the key contains the time of the message's timestamp.
        sent_at = int(link.machine.wall() * 1000)
        key = new_key(sent_at)
        headers, body = self._content(message, key, prepared, self._asked(delay, dedupe_id))
        renewed = lives > 0 and delay > 0 and link.dialect.delay_renews_expiry
        headers.update(self._time_headers(0 if renewed else sent_at))
        if renewed:
            headers[TIME_HEADER] = str(sent_at)
        expires = sent_at + round(lives * 1000) if lives > 0 else 0
        if lives > 0:
            headers["expires"] = str(expires)
        if link.transacted:
            self._send_in_transaction(Frame("SEND", headers, body), key, prepared, limit=patience)
            message_id = None
        else:
            repeat = persistent and self._may_repeat()
            if repeat:
                headers = {**link.dialect.output_headers(key), **headers}
            waits = confirm and not link.options.use_async_send
            message_id = self._send(
                Frame("SEND", headers, body),
                key,
                prepared,
                repeat=repeat,
                waits=waits,
                limit=patience,
            )
        if message.key is None:  # a received message keeps its own values
            message.message_id, message.destination = message_id, to
            message.timestamp, message.expiration = sent_at / 1000, expires / 1000
            message.priority, message.persistent = priority, persistent
        return key

    def close(self) -> None:
        """Let `send()` raise IllegalStateError from now on; the session stays open, and a second call does nothing."""
        self._closed = True

    def _prepared(self, to: Destination, *, persistent: bool, priority: int) -> PreparedSend:
        """
        Return what messages have in common that go there so; often it is as with the last message.

        Raises ConfigurationError for what the broker could not read: it would close the connection.
        """
        last, dialect = self._last, self._link.dialect
        if last is not None and last.fits(to, dialect, persistent=persistent, priority=priority):
            return last
        check_flag("persistent", persistent)
        check_priority(priority)
        check_parts(to, self._link)
        self._last = made = PreparedSend(to, dialect, persistent=persistent, priority=priority)
        return made

    def _content(
        self, message: Message, key: str, to: PreparedSend, asked: dict[str, str] | None
    ) -> tuple[dict[str, str], bytes]:
        """Return the headers and the body of a SEND, without its times."""
        link = self._link
        headers, body = to.content(message, key, asked)
        limit = link.options.max_body_size
        if len(body) > limit:
            raise MessageFormatError(
                f"a body of {len(body)} bytes is longer than the max_body_size of {limit} bytes; raise that, if"
                " the broker takes it, or send it in parts"
            )
        if message.reply_to is not None:
            reply_to = reachable(destination_of(message.reply_to), link)
            headers["reply-to"] = link.dialect.writing.reply_to(reply_to.uri)
        signature = link.signature
        if signature is not None:
            headers[SENDER_HEADER] = signature
        return headers, body

    def _may_repeat(self) -> bool:
        """
        Return whether a message is sent again when its receipt is lost; safe where that broker knows it by its
        identity.
        """
        options = self._link.options
        if options.reconnect is None:
            return False
        if options.resend_unconfirmed is None:
            return bool(self._link.dialect.output_headers(""))
        return options.resend_unconfirmed

    def _asked(self, delay: float, dedupe_id: str | None) -> dict[str, str] | None:
        """Return the headers by which this broker delays a message, and drops a second one; raises UnsupportedError."""
        if delay == 0 and dedupe_id is None:
            return None
        dialect, asked = self._link.dialect, dict[str, str]()
        if delay > 0:
            schedules = dialect.always_delays or broker_schedules(self._link)
            if dialect.delay_header is None or not schedules:
                raise UnsupportedError(
                    f"{self._link.address} does not delay messages, so it would deliver this one at once: switch its"
                    f" scheduler on{dialect.settings.scheduler}, if it has one, or send it when it is due"
                )
            asked[dialect.delay_header] = str(max(round(delay * 1000), 1))
        if dedupe_id is not None:
            if dialect.duplicate_id_header is None:
                raise UnsupportedError(
                    f"{self._link.address} drops no duplicates by their ids; send the id as a property, and let the"
                    " consumer know it: dedupe=SqliteStore(...), dedupe_by=lambda message: message.properties[...]"
                )
            asked[dialect.duplicate_id_header] = dedupe_id
        return asked

    def _time_headers(self, sent_at: int) -> dict[str, str]:
        """Return the headers that tell a time of ours (epoch milliseconds; 0: none), if any is wanted."""
        untold = self.disable_message_timestamp and sent_at
        return {} if untold else self._link.dialect.sent_at(sent_at)

    def _send_in_transaction(
        self, frame: Frame, key: str, to: PreparedSend, *, limit: float | None
    ) -> None:
        """Send with the commit; waits only for what a temporary destination of another connection answers."""
        cause = handled()

        def send(core: SessionCore, now: float) -> Request | None:
            cause_key = cause.key if cause is not None and core.detailed else None
            return core.send(frame, key, to.uri, now, cause_key=cause_key)

        self._link.calls.ask(to.what, send, limit=limit)

    def _send(
        self,
        frame: Frame,
        key: str,
        to: PreparedSend,
        *,
        repeat: bool,
        waits: bool,
        limit: float | None,
    ) -> str | None:
        """Send the message, and wait for the receipt; returns its message id, where that can be known."""
        link, cause = self._link, handled()
        anywhere = link.options.resend_unconfirmed
        asked: list[str] = []  #: the brokers that it was sent to

        def send(core: SessionCore, now: float) -> Request | None:
            broker = core.settings.broker
            if asked and broker != asked[-1] and not anywhere:
                raise SendUnconfirmedError(
                    key,
                    to.uri,
                    f"the connection to {asked[-1]} was lost, and {broker} cannot know what that one has,"
                    " unless it has taken over from it, as resend_unconfirmed=True says",
                )
            asked.append(broker)
            cause_key = cause.key if cause is not None and core.detailed else None
            request = core.send(frame, key, to.uri, now, cause_key=cause_key, awaited=waits)
            sent.append((link.greeting.get("session", ""), core.sends))
            return request

        sent: list[tuple[str, int | None]] = []  #: STOMP session, and number of the SEND in it
        if waits:
            link.calls.ask(to.what, send, repeat=repeat, limit=limit)
        else:
            link.calls.submit(to.what, send, limit)
        session, number = sent[-1]
        if number is None or link.options.client_id is not None:
            return None
        return link.dialect.reading.sent_id(session, number)

    def _destination(self, given: Destination | str | None) -> Destination:
        if given is not None:
            if self._target is not None and destination_of(given) != self._target:
                raise UnsupportedError(
                    f"this producer sends to {self._target}; for other destinations make one without: create_producer()"
                )
            return destination_of(given)
        if self._target is None:
            raise UnsupportedError(
                "this producer has no destination; name one with each message: send(message, destination=...)"
            )
        return self._target


def _message(given: Message | Body) -> Message:
    """Return a Message, or one made of its body."""
    if isinstance(given, Message):
        return given
    if given is None:
        raise MessageFormatError(
            "send() takes a Message, or the body of one; for a message without body write Message()"
        )
    return Message(checked_body(given))


def _time_to_live(given: object) -> float:
    """Return `given` in seconds; raises ConfigurationError for what is none, or more than the broker can read."""
    seconds: float = as_number("time_to_live", given)
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not 0 <= seconds <= LONGEST:
        raise ConfigurationError(
            f"time_to_live must be seconds, 0 for ever, not {given!r}; or a timedelta, or a text such as 2s"
        )
    return seconds


def check_priority(priority: object) -> None:
    """Raise ConfigurationError unless `priority` is one of JMS's ten priorities."""
    whole = isinstance(priority, int) and not isinstance(priority, bool)
    if not whole or priority not in range(10):
        raise ConfigurationError(f"priority must be a whole number from 0 to 9, not {priority!r}")


def new_key(sent_at: int) -> str:
    """Return a new key: 12 hex digits of `sent_at` (epoch milliseconds), then 20 random ones; keys sort by time."""
    return f"{sent_at:012x}{os.urandom(10).hex()}"
