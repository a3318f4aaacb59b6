"""
Which queues and subscriptions get a copy of a message that is sent to a destination.

A *route* is a place from which one copy of a message must be settled once: a queue; a durable subscription; the queue
of one consumer group of a virtual topic; an Artemis queue of an address (`address::queue`); or several queues that are
read together by a wildcard or a list. A message must be settled once for each route that its destination leads to.

Sources: Classic's VirtualTopic and CompositeQueue (`topic://VirtualTopic.>` is read at
`queue://Consumer.*.VirtualTopic.>`), Artemis' address model (FQQN).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import polars as pl

from jmsx.core.destination_names import KINDS, is_wildcard, matches
from jmsx_report.flows import DURABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_FQQN: Final = "::"
_CONSUMER: Final = re.compile(r"Consumer\.[^.]+\.(.+)")
_STOMP: Final = re.compile(r"/([a-z-]+)/(.+)")
_SLOTS: Final = {"dest": pl.String, "route": pl.String}

#: A place for a copy: its kind (queue, topic subscription, …) and name.
_Node = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Routes:
    """The queues and subscriptions that get copies of messages to each destination, and who reads them."""

    #: dest, route, fanned: one copy of each message to `dest` goes to `route`.
    expects: pl.DataFrame
    reads: pl.DataFrame  #: dest, subscription, route: its readers settle copies of `route`
    unaudited: Mapping[str, str]  #: destination -> why its messages are not audited

    @property
    def read(self) -> frozenset[str]:
        """The routes that somebody in the log reads."""
        return frozenset(self.reads["route"])

    def read_as(self, dest: str) -> str | None:
        """Return the route by which the queue `dest` is read, by name or pattern; None: it is no queue, or unread."""
        places = parts(dest)
        if len(places) != 1 or places[0][0] != "queue":
            return None
        for read, subscription, route in self.reads.iter_rows():
            if subscription is None and any(
                kind == "queue" and _fits(name, places[0][1]) for kind, name in parts(read)
            ):
                return str(route)
        return None


def parts(dest: str) -> list[tuple[str, str]]:
    """Return kind and name of each destination in a list `queue://a,topic://b`; without a kind, the first one's."""
    kind, found = "queue", []
    for number, one in enumerate(dest.partition("?")[0].split(",")):
        named, separator, name = one.strip().partition("://")
        stomp = _STOMP.fullmatch(one.strip())
        if separator and named in KINDS:
            own = named
        elif stomp is not None and stomp[1] in KINDS:
            own, name = stomp[1], stomp[2]
        else:
            own, name = kind, one.strip()
        kind = own if number == 0 else kind
        if name:
            found.append((own, name))
    return found


def is_queue(dest: str) -> bool:
    """Return whether `dest`, perhaps a list, has only queues, and no temporary ones."""
    return all(kind == "queue" for kind, _ in parts(dest))


def _is_temporary(kind: str) -> bool:
    return "temp-" in kind


def _fits(pattern: str, name: str) -> bool:
    return pattern == name or (
        is_wildcard(pattern) and matches(pattern.split("."), name.split("."))
    )


class _Groups:
    """Nodes that are settled together (union-find)."""

    def __init__(self) -> None:
        self._parent: dict[_Node, _Node] = {}

    def find(self, node: _Node) -> _Node:
        root = self._parent.setdefault(node, node)
        while self._parent[root] != root:
            root = self._parent[root]
        while self._parent[node] != root:
            self._parent[node], node = root, self._parent[node]
        return root

    def join(self, nodes: Iterable[_Node]) -> None:
        first, *others = nodes
        for other in others:
            one, two = sorted((self.find(first), self.find(other)))
            self._parent[two] = one


class _Map:
    """All destinations that were sent to or read, and which of them lead to the same queues."""

    def __init__(self, sent: Iterable[str], read: Iterable[tuple[str, str | None]]) -> None:
        self.sent = {dest: parts(dest) for dest in sorted(set(sent))}
        self.read = {
            (dest, subscription): parts(dest)
            for dest, subscription in sorted(set(read), key=lambda one: (one[0], one[1] or ""))
        }
        self.groups = _Groups()
        self._queues = self._named()
        self._of_address: dict[str, list[_Node]] = {}
        for name in self._queues:
            address, separator, _ = name.partition(_FQQN)
            if separator:
                self._of_address.setdefault(address, []).append(("queue", name))
        #: virtual topic -> queues that hold it
        self._virtual: dict[str, list[_Node]] = {}
        for name in self._queues:
            held = _CONSUMER.fullmatch(name.rpartition(_FQQN)[2])
            if held is not None:
                self._virtual.setdefault(held[1], []).append(("queue", name))
        self._durable = [
            (subscription, [name for kind, name in places if kind == "topic"])
            for (_, subscription), places in self.read.items()
            if subscription is not None and subscription.startswith(DURABLE)
        ]

    def _named(self) -> list[str]:
        """Return every known queue; those of an address (`address::queue`) count as queues, whatever their URI says."""
        places = [
            place for listed in (*self.sent.values(), *self.read.values()) for place in listed
        ]
        named = {
            name for kind, name in places if kind == "queue" or (kind == "topic" and _FQQN in name)
        }
        topics = {name for listed in self.sent.values() for kind, name in listed if kind == "topic"}
        # A reader of `Consumer.A.VirtualTopic.>` has a queue for each virtual topic that was sent to.
        for name in [name for name in named if is_wildcard(name)]:
            held = _CONSUMER.fullmatch(name)
            if held is not None:
                before = name.removesuffix(held[1])
                named |= {before + topic for topic in topics if _fits(held[1], topic)}
        return sorted(named)

    def nodes_read(self, dest: str, subscription: str | None) -> list[_Node]:
        """Return the queues or subscriptions from which a reader of `dest` may get messages; none if not audited."""
        found: list[_Node] = []
        for kind, name in self.read[dest, subscription]:
            if _is_temporary(kind):
                continue
            if kind == "topic" and _FQQN not in name:
                if subscription is not None and subscription.startswith(DURABLE):
                    found.append(("subscription", subscription))
            elif is_wildcard(name):
                fitting = [("queue", queue) for queue in self._queues if _fits(name, queue)]
                found += fitting or [("queue", name)]
            else:
                found.append(("queue", name))
        return found

    def nodes_sent(self, kind: str, name: str) -> list[_Node]:
        """Return the queues and subscriptions that get one copy each of a message to this destination."""
        if kind == "queue":
            return [("queue", name)]
        if kind != "topic":
            return []
        held = self._virtual.get(name, ())
        subscribed = [
            ("subscription", subscription)
            for subscription, topics in self._durable
            if any(_fits(topic, name) for topic in topics)
        ]
        return list(dict.fromkeys([*held, *self._of_address.get(name, ()), *subscribed]))

    def join(self) -> None:
        """Join the queues and subscriptions that are read, and so settled, together."""
        for dest, subscription in self.read:
            nodes = self.nodes_read(dest, subscription)
            if nodes:
                self.groups.join(nodes)
        for places in self.sent.values():
            for kind, name in places:
                if kind == "queue" and name in self._of_address:
                    self.groups.join([("queue", name), *self._of_address[name]])


def routes(sent: Iterable[str], read: Iterable[tuple[str, str | None]]) -> Routes:
    """
    Find out which destinations lead to which routes, and who reads these.

    Args:
        sent: destinations of sends.
        read: destinations and subscriptions (None: of a queue) of consumers.

    """
    known = _Map(sent, read)
    known.join()
    expects: list[tuple[str, str, bool]] = []
    reads: list[tuple[str, str | None, str]] = []
    unaudited: dict[str, str] = {}

    def route(node: _Node) -> str:
        return _name(known.groups.find(node))

    for dest, places in known.sent.items():
        for kind, name in places:
            nodes = known.nodes_sent(kind, name)
            expects += [(dest, route(node), kind == "topic") for node in nodes]
            if not nodes:
                unaudited[dest] = _why(kind)
    for dest, subscription in known.read:
        nodes = known.nodes_read(dest, subscription)
        if nodes:
            reads.append((dest, subscription, route(nodes[0])))
        else:
            places = known.read[dest, subscription]
            unaudited[dest] = _why(places[0][0] if places else "")
    return Routes(
        expects=pl.DataFrame(expects, schema={**_SLOTS, "fanned": pl.Boolean}, orient="row"),
        reads=pl.DataFrame(
            reads,
            schema={"dest": pl.String, "subscription": pl.String, "route": pl.String},
            orient="row",
        ),
        unaudited=unaudited,
    )


def _name(node: _Node) -> str:
    kind, name = node
    return name if kind == "subscription" else f"{kind}://{name}"


def _why(kind: str) -> str:
    if _is_temporary(kind):
        return "what is left in a temporary destination goes with the session that made it"
    return "it is a topic without a known durable subscription: a copy for whoever listens at the time, or none"
