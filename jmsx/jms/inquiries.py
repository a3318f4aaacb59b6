"""
What a connection asks of its broker's management, on links of its own, and what it concludes from the answers.

JMS promises more than STOMP can do on some brokers, and their management fills the gap. If the user may not use the
management, the consequences are logged once, and the safe default is taken.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from jmsx.config.uri import BrokerUri
from jmsx.core.dialect import Dialect
from jmsx.core.management import DeadLetterQueue, Findings, Inquiry, Management
from jmsx.core.policy import Policy
from jmsx.core.values import DestinationKind
from jmsx.drivers.locks import NonReentrantLock
from jmsx.drivers.machine import Machine
from jmsx.drivers.management_link import CannotAskError, conduct
from jmsx.errors import InvalidClientIdError, UnsupportedError
from jmsx.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

T = TypeVar("T")

#: The literals in a selector: whether the broker can parse a selector does not depend on their values.
_LITERAL: Final = re.compile(r"'(?:[^']|'')*'|\b\d+\b")

#: How often an inquiry is made at most, if its link is lost before the answer.
TRIES: Final = 3

_log = logger("jmsx.management")


class BrokerPeer(NamedTuple):
    """The broker at the other end of a session's link."""

    address: str
    dialect: Dialect


class Inquiries:
    """The inquiries of one connection; the findings about each destination are kept."""

    def __init__(self, uri: BrokerUri, machine: Machine) -> None:
        self._uri = uri
        self._machine = machine
        #: One inquiry at a time, so that each warning is logged only once.
        self._alone = NonReentrantLock("what asks the broker's management")
        #: By broker, destination (URI) and the number of redeliveries that the consumer's policy allows, on which the
        #: warnings depend; None in its place: the destination is a queue for dead letters.
        self._found: dict[tuple[str, str, int | None], Findings] = {}
        #: Pairs of a broker and a selector that it has accepted; the literals of the selector are left out.
        self._tried: set[tuple[str, str]] = set()
        self._silent: set[str] = set()  #: brokers whose management cannot be asked

    def examine(
        self, peer: BrokerPeer, destination: str, kind: DestinationKind, policy: Policy
    ) -> Findings:
        """
        Return the broker's settings for `destination` (URI) that matter to a consumer of it.

        Logs one warning for each setting of the broker that conflicts with `policy`, the redelivery policy of the
        consumer, or with jmsx in general.

        Raises InvalidDestinationError if the consumer would take messages that are not meant for it.
        """
        key = (peer.address, destination, policy.maximum_redeliveries)
        default = Findings(DeadLetterQueue(peer.dialect.dead_letter_queue))
        found = self._look_at(peer, key, lambda one: one.examine(destination, kind, policy))
        return found or default

    def examine_dead_letter_queue(self, peer: BrokerPeer, destination: str) -> Findings:
        """Do as `examine` for a queue (URI) that the application names for dead letters."""
        key = (peer.address, destination, None)
        found = self._look_at(peer, key, lambda one: one.examine_dead_letter_queue(destination))
        return found or Findings(DeadLetterQueue(destination))

    def _look_at(
        self,
        peer: BrokerPeer,
        key: tuple[str, str, int | None],
        examine: Callable[[Management], Inquiry[Findings]],
    ) -> Findings | None:
        """Return what is found, once for each `key`; None where nobody can be asked."""
        management, destination = self._management(peer), key[1]
        if management is None or destination.startswith("temp-"):
            return None
        with self._alone():
            known = self._found.get(key)
            if known is None and peer.address not in self._silent:
                known = self._try(peer, management, lambda: examine(management))
                if known is not None:
                    self._found[key] = known
                    _warn(peer, destination, known)
        return known

    def try_selector(self, peer: BrokerPeer, headers: Mapping[str, str]) -> None:
        """
        Raise InvalidSelectorError if the broker cannot parse the selector in `headers`, those of a SUBSCRIBE to come.

        Sent by the session itself, such a SUBSCRIBE would make the broker close the session's link.
        """
        management, selector = self._management(peer), headers.get("selector")
        if management is None or selector is None:
            return
        shape = (peer.address, _LITERAL.sub("?", selector))
        with self._alone():
            if shape not in self._tried and peer.address not in self._silent:
                self._try(peer, management, lambda: management.try_selector(headers))
                self._tried.add(shape)

    def check_temporary(self, peer: BrokerPeer, destination: str) -> None:
        """Raise InvalidDestinationError, before a SEND, if `destination` is a temporary queue that no longer exists."""
        management = self._management(peer)
        if management is None or not destination.startswith("temp-queue://"):
            return
        with self._alone():
            if peer.address not in self._silent:
                self._try(peer, management, lambda: management.check_temporary(destination))

    def remove_temporary(self, peer: BrokerPeer, destinations: Iterable[str]) -> None:
        """Have the broker's management remove the temporary queues among `destinations`, if it can be asked."""
        management = self._management(peer)
        names = [uri for uri in destinations if uri.startswith("temp-queue://")]
        if management is None or not names:
            return
        with self._alone():
            if peer.address not in self._silent:
                self._try(peer, management, lambda: management.remove_temporary(names))

    def claim_durable(
        self, peer: BrokerPeer, client_id: str | None, subscription: str, headers: Mapping[str, str]
    ) -> None:
        """
        Remove a durable subscription of this name with another topic or selector than `headers`, before a SUBSCRIBE.

        Then the SUBSCRIBE creates it anew, as JMS wants. Raises JmsxError if the old one is in use.
        """
        management = self._management(peer)
        if management is None or client_id is None:
            return
        with self._alone():
            if peer.address not in self._silent:
                self._try(
                    peer,
                    management,
                    lambda: management.claim_durable(client_id, subscription, headers),
                )

    def remove_durable(self, peer: BrokerPeer, client_id: str | None, subscription: str) -> None:
        """
        Remove a durable subscription.

        Raises BrokerError if it is in use or the broker refuses for another reason, InvalidDestinationError if there is
        none of that name, and UnsupportedError if the broker's management may not be asked.
        """
        management = self._management(peer)
        if client_id is None:
            raise InvalidClientIdError(
                "a durable subscription belongs to a client id, and this connection has none: give client_id="
            )
        if management is None:
            raise UnsupportedError(
                f"{peer.address} removes a durable subscription only through its management, and use_management"
                " is off: allow it, or remove the subscription at the broker"
            )
        try:
            self._conduct(peer, management, management.remove_durable(client_id, subscription))
        except CannotAskError as error:
            raise type(error.cause)(f"{error.cause}; {management.remedy}") from error

    def _management(self, peer: BrokerPeer) -> Management | None:
        return peer.dialect.management if self._uri.options.use_management else None

    def _try(
        self, peer: BrokerPeer, management: Management, inquire: Callable[[], Inquiry[T]]
    ) -> T | None:
        """
        Return what an inquiry comes to; None, and a warning, if the broker cannot be asked.

        Where the link is lost under it, that is no answer: it is made once more on another one, TRIES times in all.
        """
        for left in reversed(range(TRIES)):
            try:
                return self._conduct(peer, management, inquire())
            except CannotAskError as error:
                if error.cut and left:
                    continue
                self._tell(peer, management, error)
                break
        return None

    def _tell(self, peer: BrokerPeer, management: Management, error: CannotAskError) -> None:
        if error.reached:  # a broker that could not be reached may answer later
            self._silent.add(peer.address)
        _log.warning(
            "management not available",
            broker=peer.address,
            error=str(error),
            consequence="dead letters go to a queue of our own; changed selectors of durable subscriptions"
            " go unnoticed; what the broker has set for redelivery is not known",
            remedy=management.remedy,
        )

    def _conduct(self, peer: BrokerPeer, management: Management, inquiry: Inquiry[T]) -> T:
        address = next(one for one in self._uri.addresses if str(one) == peer.address)
        return conduct(
            inquiry,
            address=address,
            options=self._uri.options,
            dialect=peer.dialect,
            management=management,
            machine=self._machine,
        )


def _warn(peer: BrokerPeer, destination: str, found: Findings) -> None:
    for advice in found.advice:
        _log.warning(
            advice.problem,
            broker=peer.address,
            destination=destination,
            remedy=advice.remedy,
            **advice.settings,
        )
