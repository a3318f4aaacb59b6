"""
What is behind sessions and connections: links, the threads that serve them, and what the links of a connection share.

A link is one STOMP connection. `Session` and `Connection` offer the calls of JMS and leave the work to this module: to
one `SessionLink` for each session, and one `ConnectionLinks` for each connection. Consumers, producers and browsers use
the link of their session. Both classes are in one module because each needs the other: links share how they are opened,
how one of them gets the socket with the client id, and how they are forgotten.
"""

from __future__ import annotations

import itertools
import os
import platform
import uuid
from typing import TYPE_CHECKING, Final

from jmsx.config.custom_policy import CustomPolicy
from jmsx.config.uri import BrokerAddress, BrokerUri
from jmsx.core.delivery import Delivery
from jmsx.core.frames import Frame
from jmsx.core.ledger import StagedLedger
from jmsx.core.management import Findings
from jmsx.core.modes import AcknowledgeMode, Covers
from jmsx.core.policy import Policy, PolicyByError
from jmsx.core.values import DestinationKind, SessionSettings
from jmsx.drivers.body_lookup import BodyLookup
from jmsx.drivers.hand_outs import HandOuts
from jmsx.drivers.locks import reentrant
from jmsx.drivers.machine import Machine
from jmsx.drivers.opened_link import OpenedLink
from jmsx.drivers.process import left_behind, tell_of_forks
from jmsx.drivers.reconnect import Connector
from jmsx.errors import (
    BrokerTimeoutError,
    ConnectionFailedError,
    IllegalStateError,
    JmsxError,
    UnsupportedError,
    UsageError,
    afresh,
)
from jmsx.jms.destination import Destination, Temporary, TemporaryQueue, TemporaryTopic
from jmsx.jms.dispatcher import Dispatcher, Listener
from jmsx.jms.inquiries import BrokerPeer, Inquiries
from jmsx.jms.translation import ReceivedMessage
from jmsx.log import counted, logger
from jmsx.observe import Observer, Observers
from jmsx.stores.ledger import release, share
from jmsx.stores.shared_memory import MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

#: Errors that may wait for a connection's exception listener; while so many wait, further refusals are not told to it.
MOST_UNTOLD: Final = 1_000

_log = logger("jmsx.connection")


class SessionLink:
    """A session's link to its broker, the threads that serve it, and what holds while it is open."""

    def __init__(
        self, mode: AcknowledgeMode, shared: ConnectionLinks, link: OpenedLink, session_id: str
    ) -> None:
        self.mode = mode
        self.transacted = mode.does.transacted  #: receives and sends take effect at commit()
        #: Whether `Message.acknowledge()` has an effect in this mode
        self._acknowledges = mode.does.acknowledge_covers is not Covers.NOTHING
        self.session_id = session_id
        self.shared = shared  #: what all sessions of the connection share
        self.options = shared.options
        self.machine = shared.machine
        self._closing = False  #: whether `close()` is running
        self._ids = itertools.count(1)
        self._temporary: set[str] = set()  #: URIs of the session's temporary queues
        self._attach(link)

    def _attach(self, link: OpenedLink) -> None:
        marked = self.options.commit_markers and self.transacted
        settings = SessionSettings(
            mode=self.mode,
            broker=link.broker,
            session_id=self.session_id,
            host=platform.node(),
            marker_day=int(self.machine.wall() // 86400) if marked else None,
            anywhere=self.options.resend_unconfirmed is True,
        )
        self.client_id = link.client_id
        self.dialect = link.dialect
        self.calls = link.attach(settings, self.shared.connection_id, self.shared.memory)
        self.engine = self.calls.engine
        self.calls.running = self.shared.started
        self.engine.on_lost = self.shared.lost
        self.engine.on_refused = self.shared.refused
        lookup = BodyLookup(self.dialect, self.options, self.machine)
        self.engine.hand_outs = HandOuts(self.shared.ledger)
        self.engine.hand_outs.look = lambda one: lookup.look(one, self.engine.address)
        self.engine.ends_links = lambda one: lookup.ends_links(one, self.engine.address)
        self.dispatcher = Dispatcher(self.calls, self.read, self.machine)

    # How it stands ---------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether the threads that serve the session run."""
        return self.engine.alive and self.dispatcher.alive

    @property
    def closed(self) -> bool:
        """Whether the session is closed, or is being closed and none of its listeners runs any more."""
        return self.calls.closed

    @property
    def lost_for_good(self) -> bool:
        """Whether the session has lost its link and will not reconnect."""
        return self.engine.error is not None

    @property
    def connected(self) -> bool:
        """Whether the session is connected, as far as the client can know, and all its consumers are subscribed."""
        return self.engine.reachable

    @property
    def epoch(self) -> int:
        """The number of the session's current link: 1, and one more with each reconnect."""
        return self.engine.core.epoch

    @property
    def in_hand(self) -> int:
        """How many messages are prefetched, or handed out and unsettled; takes no lock, for a health probe asks it."""
        return self.engine.core.in_hand

    @property
    def ended_at(self) -> float:
        """When a delivery last ended, settled or not (seconds, monotonic), -inf if none has; takes no lock either."""
        return self.engine.core.ended_at

    @property
    def empty_handed(self) -> bool:
        """Whether no message is prefetched or unsettled; exact, for this takes the session's lock."""
        with self.engine.lock:
            return self.in_hand == 0

    @property
    def refusal(self) -> str:
        """Why the last attempt to reconnect failed; empty if there was none, or the session is connected."""
        return self.engine.refusal

    @property
    def ledger_away(self) -> str | None:
        """Why the delivery ledger cannot be used, so that the session hands out nothing; None: it can be used."""
        return self.engine.hand_outs.away

    @property
    def policy_fault(self) -> str | None:
        """What was wrong with the last answers of a redelivery policy that the application wrote; None: nothing."""
        policies = [
            policy
            for one in self.engine.core.policies
            for policy in (one.all if isinstance(one, PolicyByError) else (one,))
        ]
        custom = (one for one in policies if isinstance(one, CustomPolicy))
        return next((one.fault for one in custom if one.fault is not None), None)

    @property
    def address(self) -> BrokerAddress:
        """The address of the broker to which the session is connected, or was last."""
        return self.engine.address

    @property
    def broker(self) -> str:
        """The address of the broker to which the session is connected, or was last, as text."""
        return self.engine.source.broker

    @property
    def greeting(self) -> Mapping[str, str]:
        """The headers of the broker's CONNECTED frame on the current link, or on the last one."""
        return self.engine.greeting

    def check_not_closed(self) -> None:
        """Raise IllegalStateError if closed."""
        if self.closed:
            raise IllegalStateError(
                f"The Session is closed (it was on {self.address}); create another one"
            )

    def check_open(self) -> None:
        """Raise IllegalStateError if closed, ConnectionFailedError if the link is gone."""
        self.check_not_closed()
        self.engine.check()

    def check_receive(self) -> None:
        """Raise IllegalStateError if `receive()` may not be called, for a consumer of the session has a listener."""
        self.check_open()
        listeners = self.dispatcher.listeners
        if listeners and any(self.engine.core.is_open(name) for name in list(listeners)):
            raise IllegalStateError(
                "Cannot synchronously receive a message when a MessageListener is set"
            )

    # What the link does ----------------------------------------------------------------------------------------------

    def relink(self, client_id: str | None) -> None:
        """
        Move the session to a new link with `client_id`; only its connection calls this.

        Raises UnsupportedError if the session cannot leave its link, for it has consumers or the like on it, and what
        `Connector.first` raises; then the session stays as it was.
        """
        if not self.engine.core.idle:
            raise UnsupportedError(
                f"session {self.engine.source.session_id} has consumers on its socket to {self.broker}, so it can"
                " neither take the client id of the connection nor give it up: over STOMP all durable subscriptions of"
                " a client id share one socket; make all durable consumers of the connection in one session, and the"
                " first of them before any other consumer of the connection, or give them a connection of their own"
            )
        with self.shared.new_link(client_id) as link:
            self.shared.open_link(link)
            self.calls.leave("session moved")
            self._attach(link)

    def renew(self, reason: str) -> None:
        """Reconnect and subscribe anew; the broker takes back every unsettled message."""
        self.engine.renew(reason)

    def abort(self) -> None:
        """Drop the socket without DISCONNECT: the broker takes back every unsettled message."""
        self.engine.end("aborted")

    def close(self) -> None:
        """Do as `Session.close` does; if this is interrupted, every unsettled message is left to the broker."""
        if self._closing:
            return
        if self.closed:  # an interrupted close() may have left the thread and the socket
            self.abort()
            self.shared.forget(self, reachable=False)
            return
        self.engine.refuse_reentry()
        try:
            self._closing = True
            self._close()
        finally:
            self._closing = False

    def _close(self) -> None:
        reachable = self.engine.reachable
        try:
            idle = self.dispatcher.finish()  # a running listener may still use the session
            self.calls.note_closed()
            self.calls.tidy_up()
            if self.engine.error is None:
                for request in self.engine.call(lambda core, now: core.close(now, idle=idle)):
                    self.calls.wait(request)
        except BrokerTimeoutError:
            self.engine.end("no DISCONNECT")  # it would not be answered either
            raise
        finally:
            self.calls.note_closed()
            self.calls.leave("session closed")
            if reachable and not self.shared.aborted:
                peer = BrokerPeer(self.broker, self.dialect)
                self.shared.inquiries.remove_temporary(peer, self._temporary)
            self.shared.forget(self, reachable=reachable)

    # Messages that come ----------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Hand out nothing until `resume()`."""
        self.calls.running = False

    def resume(self) -> None:
        """Hand out messages (again)."""
        self.calls.running = True
        self.engine.wake()

    def listen(self, subscription_id: str, listener: Listener | None) -> None:
        """Give a consumer its listener, or take it away."""
        self.check_open()
        self.dispatcher.set(subscription_id, listener)

    def leave(self, subscription_id: str) -> bool:
        """
        Remove a consumer's listener, and wait for it unless it is the caller; False if it still runs.

        In a transacted session the listener is not removed: it stays until the transaction ends, as the consumer does.
        """
        return self.transacted or self.dispatcher.leave(subscription_id)

    def read(self, delivery: Delivery) -> ReceivedMessage:
        """Return the message of `delivery`, whose `acknowledge()` does what the session's mode says."""
        return ReceivedMessage(
            delivery, self.dialect, self._acknowledge if self._acknowledges else None
        )

    def _acknowledge(self, delivery: Delivery) -> None:
        self.check_open()
        self.engine.call(lambda core, now: core.acknowledge(delivery, now))

    # Messages that go ------------------------------------------------------------------------------------------------

    @property
    def signature(self) -> str | None:
        """The name of the sender that the session's messages carry; None: they carry none."""
        signs = self.shared.signs or self.options.client_id is not None
        return self._sender if signs else None

    def sign(self) -> str:
        """Have every message that the connection sends from now on carry the name of its sender; returns that name."""
        self.shared.signs = True
        return self._sender

    @property
    def _sender(self) -> str:
        return self.options.client_id or self.shared.connection_id

    # Subscriptions, and what the broker's management knows of them ---------------------------------------------------

    def next_subscription_id(self) -> str:
        """Return a subscription id that the session has not used yet."""
        return str(next(self._ids))

    def peer(self, what: str) -> BrokerPeer:
        """Return the broker of the current link, after waiting for a reconnect; `what` is the request, for errors."""
        return self.calls.submit(what, lambda _core, _now: BrokerPeer(self.broker, self.dialect))

    def examine(self, destination: Destination, kind: DestinationKind, policy: Policy) -> Findings:
        """
        Return what the broker's management says about `destination`, for a consumer with this redelivery policy.

        The broker is asked once for each connection. Raises InvalidDestinationError if the consumer would take messages
        that are not meant for it.
        """
        self.check_open()
        peer = self.peer(f"SUBSCRIBE {destination}")
        return self.shared.inquiries.examine(peer, destination.uri, kind, policy)

    def examine_dead_letter_queue(self, destination: str) -> Findings:
        """Return what the broker's management says about the dead letter queue (URI) that the application chose."""
        self.check_open()
        return self.shared.inquiries.examine_dead_letter_queue(
            self.peer(f"SEND {destination}"), destination
        )

    # Temporary destinations ------------------------------------------------------------------------------------------

    def make_temporary_queue(self) -> TemporaryQueue:
        """Return a new queue that exists even before it has a consumer; as `Session.create_temporary_queue`."""
        self.check_open()
        made = TemporaryQueue(self._temporary_name(), owner=self)
        self._temporary.add(made.uri)
        headers = self.dialect.writing.holding_headers(made.uri)
        if headers is not None:
            self.calls.ask(
                f"SUBSCRIBE {made}",
                lambda core, _now: core.browsers.open(_holder(made), made.uri, headers),
                repeat=True,
            )
        return made

    def make_temporary_topic(self) -> TemporaryTopic:
        """Return a new topic; as `Session.create_temporary_topic`."""
        self.check_open()
        return TemporaryTopic(self._temporary_name(), owner=self)

    def owns(self, destination: Destination) -> bool:
        """Return whether this session created the temporary `destination`, under its own name or the broker's."""
        if isinstance(destination, Temporary):
            return destination.owner is self
        return destination.name.startswith(
            (f"{self.session_id}-", f"{self.greeting.get('session')}:")
        )

    def _temporary_name(self) -> str:
        return f"{self.session_id}-{next(self._ids)}"

    def consumes(self, destination: Destination) -> bool:
        """Return whether a consumer of this session reads `destination`."""
        uri = destination.uri
        return self.engine.call(lambda core, _now: core.consumes(uri))

    def forget_temporary(self, destination: Temporary) -> None:
        """Have the broker's management, if there is one, remove a temporary queue of this session that was deleted."""
        self._temporary.discard(destination.uri)
        if self.dialect.management is not None and not self.closed and self.engine.error is None:
            self.calls.finish(
                lambda core, _now: core.browsers.close(_holder(destination), destination.uri)
            )
            peer = self.peer(f"DELETE {destination}")
            self.shared.inquiries.remove_temporary(peer, [destination.uri])

    def tell_name(self, destination: Temporary, place: str) -> None:
        """Send a message to `place` (URI) with `destination` as its reply-to, where a reader sees the broker's name."""
        headers = {
            **self.dialect.writing.send_headers(place),
            "reply-to": self.dialect.writing.reply_to(destination.uri),
        }
        asked = Frame("SEND", headers)
        self.calls.ask(f"SEND {place}", lambda core, _now: core.sending.send_own(asked))

    def check_temporary(self, destination: Destination) -> None:
        """Raise InvalidDestinationError if the broker's management says that this temporary queue no longer exists."""
        if isinstance(destination, Temporary) or not destination.uri.startswith("temp-queue://"):
            return
        if self.dialect.management is not None:
            peer = self.peer(f"SEND {destination}")
            self.shared.inquiries.check_temporary(peer, destination.uri)


def _holder(temporary: Temporary) -> str:
    """Return the id of the subscription by which a temporary queue is there before it is read."""
    return f"holds-{temporary.name}"


class ConnectionLinks:
    """The links of one connection's sessions, and what they share."""

    def __init__(self, uri: BrokerUri, observers: Iterable[Observer], machine: Machine) -> None:
        self.options = uri.options
        self.connection_id = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.signs = False  #: whether each message carries the name of its sender
        self.machine = machine  #: what all its sessions run on
        self.memory = self.machine.memory or MEMORY
        self.inquiries = Inquiries(uri, self.machine)
        self.scheduler = machine.delays  #: whether the broker delays messages; None: not known
        self.ledger: StagedLedger | None = None  #: open while there may be sessions
        self.started = False
        self.exception_listener: Callable[[JmsxError], object] | None = None
        self._uri = uri
        self._observers = Observers(observers)
        self._lock = reentrant()  #: guards what follows; never held while a link is opened
        self._opening = reentrant()  #: held while a link is opened: one at a time
        self._connectors: set[Connector] = set()  #: those that are opening a link now
        self._links: list[SessionLink] = []
        #: Errors for the exception listener; it is being called with the first of them
        self._untold: list[JmsxError] = []
        self._count = itertools.count(1)
        self._spare: OpenedLink | None = None
        self._durables: dict[str, SessionLink] = {}  #: by subscription name, those in use
        self._unstarted = True  #: never started, and not yet logged
        self._closing = False  #: `close()` was called
        self._closed = False  #: no listener runs any more, and nothing can be begun
        self.aborted = False  #: `abort()` was called
        self._left: IllegalStateError | None = None  #: set in a forked child: why it is unusable
        tell_of_forks(self)

    def after_fork(self) -> None:
        """Make the connection unusable in the child of a fork: it belongs to the parent, and is not closed here."""
        self._lock, self._opening = reentrant(), reentrant()
        self._left = left_behind(
            f"the Connection to {self._uri} was made", "make one of its own in the child"
        )

    def __str__(self) -> str:
        return f"{self._uri} [{counted(len(self._links), 'session')}]"

    def check(self) -> None:
        """Raise IllegalStateError if closed, or of the parent of this process; ConnectionFailedError if aborted."""
        if self._closed:
            raise IllegalStateError(
                f"The Connection is closed (it was to {self._uri}); make another one"
            )
        if self._left is not None:
            raise afresh(self._left)
        if self.aborted:
            raise ConnectionFailedError(f"the connection to {self._uri} was aborted")

    # The connection's calls ------------------------------------------------------------------------------------------

    def add(self, mode: AcknowledgeMode) -> SessionLink:
        """Return a link for a new session; as `Connection.create_session`."""
        with self._opening:
            with self._lock:
                self.check()
                if self.ledger is None and self.options.ledger is not None:
                    self.ledger = share(self.options.ledger)
            spare = self._usable_spare
            with spare or self.new_link(self._free_client_id()) as link:
                if spare is None:
                    self.open_link(link)
                with self._lock:
                    self.check()
                    session_id = f"{self.connection_id}-{next(self._count)}"
                    made = SessionLink(mode, self, link, session_id)
                    if self._spare is spare:
                        self._spare = None
                    self._links.append(made)
                    return made

    def start(self) -> None:
        """Begin to hand out messages."""
        with self._lock:
            self.check()
        if self.options.client_id is not None:
            self._show_client_id()
        with self._lock:
            self.check()
            self.started, self._unstarted = True, False
            for link in self._links:
                link.resume()

    def note_unstarted(self) -> None:
        """Log, once, that `receive()` waits in vain because the connection was never started."""
        with self._lock:
            unstarted, self._unstarted = self._unstarted, False
        if unstarted:
            _log.warning(
                "connection not started: receive() gets nothing until connection.start() is called",
                broker=str(self._uri),
            )

    def stop(self, timeout: float | None) -> bool:
        """Do as `Connection.stop` does."""
        with self._lock:
            self.check()
            self.started = False
            links = list(self._links)
            for link in links:
                link.pause()
        deadline = None if timeout is None else self.machine.monotonic() + timeout

        def is_idle(link: SessionLink) -> bool:
            left = None if deadline is None else deadline - self.machine.monotonic()
            return link.dispatcher.wait_idle(left, for_listener=for_listener)

        for_listener = any(link.dispatcher.note_stop() for link in links)
        return all(is_idle(link) for link in links)

    def close(self) -> None:
        """Do as `Connection.close` does."""
        if self._left is not None:
            return
        with self._lock:
            if self._closing:
                return
            open_links = list(self._links)
        for link in open_links:  # check all of them before any is closed
            link.engine.refuse_reentry()
        try:
            with self._lock:
                if self._closing:
                    return
                self._closing = True
            self._finish_listeners(open_links)
            with self._lock:
                self._closed = True
                links, spare = self._let_go()
            errors = _close(links)
        except BaseException:
            # Such as Ctrl-C: drop the sessions that are still open, for nothing else would close them.
            self.abort()
            raise
        if spare is not None:
            spare.calls.leave("connection closed")
        self._release_ledger()
        if errors and not self.aborted:
            raise errors[0]

    def _finish_listeners(self, links: Iterable[SessionLink]) -> None:
        """Call no listener any more, and wait for those that run: until they return, no session of theirs is closed."""
        for link in links:
            link.dispatcher.note_stop()
            link.dispatcher.stop()
        for link in links:
            link.dispatcher.finish()

    def abort(self) -> None:
        """Do as `Connection.abort` does."""
        if self._left is not None:
            return
        with self._lock:
            self.aborted = True
            links, spare = self._let_go()
        for link in links:
            link.abort()
        if spare is not None:
            spare.engine.end("aborted")
        self._release_ledger()

    def _release_ledger(self) -> None:
        with self._lock:
            ledger, self.ledger = self.ledger, None
        if ledger is not None:
            release(ledger)

    def _let_go(self) -> tuple[list[SessionLink], OpenedLink | None]:
        """Have no new link opened any more; returns the links that there are, which have to be ended."""
        for connector in self._connectors:
            connector.cancel()
        return list(self._links), self._spare

    # The sessions' links ---------------------------------------------------------------------------------------------

    def new_link(self, client_id: str | None) -> OpenedLink:
        """Return a link with `client_id` that is not open yet; call `open_link` inside a `with` block of the link."""
        connector = Connector(self._uri, client_id, self.machine.inbox(), self.machine)
        return OpenedLink(connector, self.machine, self._observers)

    def open_link(self, link: OpenedLink, *, patient: bool = True) -> None:
        """Open a link that `new_link` returned; raises what `Connector.first` does."""
        with self._lock:
            self.check()
            self._connectors.add(link.connector)
        try:
            link.open(patient=patient)
        finally:
            with self._lock:
                self._connectors.discard(link.connector)

    def lost(self, error: JmsxError) -> None:
        """Note that a session's link is lost for good, and tell the exception listener, one error at a time."""
        _log.error("connection lost for good", broker=str(self._uri), error=str(error))
        if self._is_first(error):
            self._tell_all()

    def refused(self, error: JmsxError) -> None:
        """
        Tell the exception listener that the broker has refused a message or request for which no call waits.

        The listener is called on a thread of its own: the present thread serves the link, which the listener may use.
        While `MOST_UNTOLD` errors wait for the listener, further refusals are not told to it.
        """
        if self.exception_listener is None or len(self._untold) >= MOST_UNTOLD:
            return
        if not self._is_first(error):
            return
        try:
            self.machine.thread(self._tell_all, f"jmsx-refusals-{self.connection_id}").start()
        except RuntimeError as without:  # the process cannot start another thread
            _log.error("exception listener not called", error=str(error), why=str(without))
            if not self._all_told():  # errors that came in the meantime
                self._tell_all()

    def _is_first(self, error: JmsxError) -> bool:
        """Note `error`; False: somebody is telling others, and goes on with this one."""
        with self._lock:
            self._untold.append(error)
            return len(self._untold) == 1

    def _tell_all(self) -> None:
        self._tell(self._untold[0])
        while not self._all_told():
            self._tell(self._untold[0])

    def _all_told(self) -> bool:
        """Note that the first one is told, and return whether it was the last."""
        with self._lock:
            del self._untold[0]
            return not self._untold

    def _tell(self, error: JmsxError) -> None:
        listener = self.exception_listener
        if listener is not None and not (self._closing or self.aborted):
            try:
                listener(error)
            except BaseException as raised:  # noqa: BLE001 - an application's listener may raise anything
                _log.error("exception listener failed", exc_info=raised)

    def forget(self, link: SessionLink, *, reachable: bool) -> None:
        """Forget a closed session; `reachable`: whether it was connected when it was closed."""
        with self._lock:
            if link in self._links:
                self._links.remove(link)
            self._durables = _without(self._durables, link)
            held = link.client_id is not None and link.client_id == self.options.client_id
            if not held or self._closed or self.aborted or not reachable:
                return
        self._keep_client_id()

    # The client id: one link of the connection has it, the one with the durable subscriptions ------------------------

    def claim_client_id(self, link: SessionLink, subscription: str | None) -> None:
        """
        Give `link` the socket with the connection's client id, for a durable `subscription`; None: to remove one.

        Raises UsageError if the subscription is in use, UnsupportedError if another session needs that socket.
        """
        with self._opening:
            if subscription in self._durables:
                raise UsageError(
                    f"Durable consumer is in use for client: {self.options.client_id}"
                    f" and subscriptionName: {subscription}; it has one consumer at a time, so close that first"
                )
            self._free_from_others(link)
            spare = self._usable_spare
            if spare is not None:
                spare.calls.leave("not needed")
            if link.client_id != self.options.client_id:
                link.relink(self.options.client_id)
            if subscription is not None:
                self._durables[subscription] = link

    def _free_from_others(self, link: SessionLink) -> None:
        with self._lock:
            links = list(self._links)
        for other in links:
            if other is not link and other.client_id == self.options.client_id is not None:
                other.relink(self._further_client_id())

    def release_durable(self, subscription: str) -> None:
        """Note that the consumer of a durable subscription is closed: another one may be made."""
        self._durables.pop(subscription, None)

    def _show_client_id(self) -> None:
        """Connect at once, to see whether the client id is free."""
        with self._opening:
            with self._lock:
                if self._links or self._usable_spare is not None:
                    return
            self._open_spare(patient=True)

    def _keep_client_id(self) -> None:
        """Keep the client id, which is the connection's as long as it lives, while no session has a link with it."""
        try:
            self._open_spare(patient=False)
        except JmsxError as error:
            _log.warning(
                "client id not kept: until the next session another program may take it",
                client_id=self.options.client_id,
                error=str(error),
            )

    def _open_spare(self, *, patient: bool) -> None:
        """Open a link that has the connection's client id until a session takes it."""
        with self.new_link(self.options.client_id) as link:
            self.open_link(link, patient=patient)
            with self._lock:
                if self._usable_spare is None and not (self._closed or self.aborted):
                    self._spare = link
                    return
            link.end()

    @property
    def _usable_spare(self) -> OpenedLink | None:
        """The link that no session has, if there is one that was not lost."""
        spare = self._spare
        return None if spare is None or spare.engine.error is not None else spare

    def _free_client_id(self) -> str | None:
        """Return the connection's client id, or one of its own if a session has that already."""
        client_id = self.options.client_id
        used = any(link.client_id == client_id for link in self._links)
        return self._further_client_id() if used else client_id

    def _further_client_id(self) -> str | None:
        if self.options.client_id is None:
            return None
        return f"{self.options.client_id}-{next(self._count)}"


def _close(links: Iterable[SessionLink]) -> list[JmsxError]:
    """Close the links, each also if another fails; return their errors."""
    errors: list[JmsxError] = []
    for link in links:
        try:
            link.close()
        except JmsxError as error:
            errors.append(error)
    return errors


def _without(durables: dict[str, SessionLink], link: SessionLink) -> dict[str, SessionLink]:
    """Return the durable subscriptions that are not this link's."""
    return {name: user for name, user in durables.items() if user is not link}
