"""A session on its link: the socket, the threads that serve it, and what holds while it is open."""

from __future__ import annotations

import itertools
import platform
import time
from typing import TYPE_CHECKING, Final

from jmsx.core.values import AcknowledgeMode, SessionSettings
from jmsx.custom_policy import CustomPolicy
from jmsx.drivers.counting import Counting
from jmsx.drivers.looking import Looking
from jmsx.errors import IllegalStateError, UnsupportedError
from jmsx.jms.aside import Peer
from jmsx.jms.dispatcher import Dispatcher
from jmsx.memory import MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jmsx.core.delivery import Delivery
    from jmsx.drivers.open import OpenLink
    from jmsx.jms.connection import Connection
    from jmsx.jms.message import Message
    from jmsx.uri import BrokerAddress


#: Modes in which `message.acknowledge()` does something; in the others it may be called at any time.
_ACKNOWLEDGED: Final = (
    AcknowledgeMode.CLIENT_ACKNOWLEDGE,
    AcknowledgeMode.INDIVIDUAL_ACKNOWLEDGE,
)


class Served:
    """What a session is made of; the calls of JMS are in `Session`."""

    def __init__(
        self, mode: AcknowledgeMode, connection: Connection, link: OpenLink, session_id: str
    ) -> None:
        self.mode = mode
        self.session_id = session_id
        self.options = connection.options
        self._connection = connection
        self._ids = itertools.count(1)
        self._temporary: set[str] = set()  #: URIs of the queues that end with it
        self._closed = False
        self._attach(link)

    @property
    def transacted(self) -> bool:
        """Whether receives and sends take effect at commit()."""
        return self.mode is AcknowledgeMode.SESSION_TRANSACTED

    @property
    def alive(self) -> bool:
        """Whether the threads that serve it run."""
        return self.pump.alive and self._dispatcher.alive

    @property
    def connected(self) -> bool:
        """Whether there is a link, as far as we know, with all consumers on it."""
        return self.pump.reachable

    @property
    def ledger_away(self) -> str | None:
        """Why its delivery ledger cannot be used, for which it waits."""
        return self.pump.counting.away

    @property
    def policy_fault(self) -> str | None:
        """What is wrong with the last answers of a redelivery policy of the application's; None: nothing."""
        policies = (one for one in self.pump.core.policies if isinstance(one, CustomPolicy))
        return next((one.fault for one in policies if one.fault is not None), None)

    @property
    def address(self) -> BrokerAddress:
        """Of the broker that it is connected to, or was last."""
        return self.pump.address

    @property
    def greeting(self) -> Mapping[str, str]:
        """The headers of the broker's CONNECTED on the link that there is, or was last."""
        return self.pump.greeting

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def check_open(self) -> None:
        """Raise IllegalStateError if closed, ConnectionFailedError if the link is gone."""
        if self._closed:
            raise IllegalStateError("The Session is closed")
        self.pump.check()

    def check_receive(self) -> None:
        """Raise IllegalStateError where `receive()` may not be called."""
        self.check_open()
        if self._dispatcher.active:
            raise IllegalStateError(
                "Cannot synchronously receive a message when a MessageListener is set"
            )

    def note_unstarted(self) -> None:
        """Somebody waits for a message that cannot come."""
        self._connection.note_unstarted()

    def listen(self, subscription_id: str, listener: Callable[[Message], object] | None) -> None:
        """Give a consumer its listener, or take it away."""
        self.check_open()
        self._dispatcher.set(subscription_id, listener)

    def leave(self, subscription_id: str) -> bool:
        """
        Take a consumer's listener away, and wait for it unless it calls; False if it still runs.

        In a transaction it goes on to its end, as the consumer does.
        """
        return self.transacted or self._dispatcher.leave(subscription_id)

    def bind(self, message: Message, delivery: Delivery) -> Message:
        """Let `message.acknowledge()` settle `delivery`."""

        def acknowledge() -> None:
            if self.mode not in _ACKNOWLEDGED:
                return
            self.check_open()
            self.pump.call(lambda core, now: core.acknowledge(delivery, now))

        message.on_acknowledge(acknowledge)
        return message

    @property
    def signature(self) -> str | None:
        """What its messages tell of who sends them; None: nothing."""
        signs = self._connection.signs or self.options.client_id is not None
        return self._sender if signs else None

    def sign(self) -> str:
        """From now on all messages of the connection, whatever session sends them, tell what this gives."""
        self._connection.signs = True
        return self._sender

    @property
    def _sender(self) -> str:
        return self.options.client_id or self._connection.connection_id

    def relink(self, client_id: str | None) -> None:
        """
        Go on with a new link that carries `client_id`; the connection's affair.

        Raises UnsupportedError if something binds the session to the link that it has, and what `Connector.first` does;
        then the session stays as it was.
        """
        if not self.pump.core.idle:
            raise UnsupportedError(
                f"session {self.pump.source.session_id} has consumers on its socket, so it can neither take the"
                " client id of the connection nor give it up: over STOMP all durable subscriptions of a client id share"
                " one socket; make all durable consumers in one session, the first before its other consumers"
            )
        link = self._connection.open_link(client_id)
        self.pump.leave("session moved")
        self._attach(link)

    def _attach(self, link: OpenLink) -> None:
        marked = self.options.commit_markers and self.transacted
        settings = SessionSettings(
            mode=self.mode,
            broker=link.broker,
            session_id=self.session_id,
            dead_letter=self.options.dead_letter,
            host=platform.node(),
            marker_day=int(time.time() // 86400) if marked else None,
        )
        self.client_id = link.client_id
        self.dialect = link.dialect
        self.pump = link.attach(settings, self._connection.connection_id, MEMORY)
        self.pump.running = self._connection.started
        self.pump.on_lost = self._connection.lost
        looking = Looking(self.dialect, self.options, self._connection.clock)
        self.pump.counting = Counting(self._connection.ledger)
        self.pump.counting.look = lambda one: looking.look(one, self.pump.address)
        self.pump.ends_links = lambda one: looking.ends_links(one, self.pump.address)
        self._dispatcher = Dispatcher(self.pump, self.dialect, self.bind)

    def abort(self) -> None:
        """Drop the socket without farewell: the broker takes back all that is not settled."""
        self.pump.end("aborted")

    def renew(self, reason: str) -> None:
        """Go on with a new link and new subscriptions; what is not settled is the broker's again."""
        self.pump.renew(reason)

    def pause(self) -> None:
        """Hand out nothing until `resume()`."""
        self.pump.running = False

    def wait_idle(self, timeout: float | None) -> bool:
        """Wait `timeout` seconds (None: for ever) for a running listener, unless it calls; False if it runs on."""
        return self._dispatcher.wait_idle(timeout)

    def resume(self) -> None:
        """Hand out messages (again)."""
        self.pump.running = True
        self.pump.wake()

    def _peer(self, what: str) -> Peer:
        """The broker at the other end, now; an outage is waited through."""
        return self.pump.submit(what, lambda _core, _now: Peer(self.broker, self.dialect))

    @property
    def broker(self) -> str:
        """The address of the broker that the session is, or was last, connected to."""
        return self.pump.source.broker
