"""
What the steps of a program have made so far, and whether the next one leaves it determinate.

JMS leaves open who of two competing consumers gets a message, and a listener runs beside the
program; what such a program does is no evidence. `World.apply` refuses the step that would make it
so. It also guesses what waits where, so that a generator need not wait for what does not come.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.conformance.generated.things import (
    ROOMY,
    Backlog,
    Connection,
    Consumer,
    Indeterminate,
    Letter,
    Session,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conformance.scenario import Json

#: Limits from here on are not reached in a program, so that a doubtful count decides nothing.
_FAR: Final = 20


@dataclass(slots=True)
class World:
    """The state of one program; names are those of its steps."""

    destinations: dict[str, str]  #: name -> queue or topic
    connections: dict[str, Connection] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)
    consumers: dict[str, Consumer] = field(default_factory=dict)
    listeners: dict[str, Consumer] = field(default_factory=dict)
    messages: dict[str, tuple[Consumer, Letter]] = field(default_factory=dict)
    backlogs: dict[str, Backlog] = field(default_factory=dict)
    stirred: list[str] = field(default_factory=list)  #: listeners that may be running
    settled: bool = True  #: the broker has had time to dispatch

    def apply(self, step: Json) -> None:
        """Take `step` as done; raises Indeterminate, and changes nothing, if it may not be done now."""
        op = step["op"]
        if self.stirred and op != "await":
            raise Indeterminate("a listener is running")
        method: Callable[[Json], None] | None = getattr(self, f"_{op}", None)
        if method is None:
            raise Indeterminate(f"{op} is not for programs")
        method(step)
        if op in ("wait", "await", "receive_none", "crash", "drain"):
            self.settled = True
        elif op in ("send", "consumer", "commit", "rollback", "recover", "start", "close"):
            self.settled = False

    def available(self, consumer: Consumer) -> list[Letter]:
        """What the consumer would probably receive, oldest first."""
        return [
            one
            for one in consumer.backlog.waiting
            if consumer.half is None or consumer.half == one.half
        ]

    def thing(self, name: str) -> Consumer | Session | Connection:
        """The consumer, session or connection called `name`."""
        return self.consumers.get(name) or self.sessions.get(name) or self.connections[name]

    def source(self, destination: str, durable: str | None) -> str | None:
        """The key of the backlog that a consumer reads; None: it gets one of its own."""
        if self.destinations[destination] == "queue":
            return destination
        return f"{destination}/{durable}" if durable else None

    # Steps -----------------------------------------------------------------------------------------

    def _connect(self, step: Json) -> None:
        client_id = step.get("client_id")
        if client_id and any(
            one.client_id == client_id and not one.closed for one in self.connections.values()
        ):
            raise Indeterminate("what a refused connection does later is of no interest")
        options: Json = step.get("options", {})
        policy: Json = options.get("redelivery_policy", {})
        self.connections[step["as"]] = Connection(
            name=step["as"],
            limit=policy.get("maximum_redeliveries", 6),
            prefetch=options.get("prefetch", 1000),
            optimized=options.get("optimize_acknowledge", False),
            client_id=client_id,
        )

    def _session(self, step: Json) -> None:
        connection = self._alive(self.connections[step["on"]])
        session = Session(name=step["as"], connection=connection, mode=step["mode"])
        connection.sessions.append(session)
        self.sessions[step["as"]] = session

    def _consumer(self, step: Json) -> None:
        session: Session = self._alive(self.sessions[step["in"]])
        if session.listening:
            raise Indeterminate("consumers of a session with a listener run beside the program")
        durable = step.get("durable")
        key = self.source(step["destination"], durable)
        backlog = self.backlogs.setdefault(key, Backlog()) if key else Backlog()
        selector = step.get("selector")
        consumer = Consumer(
            name=step["as"],
            session=session,
            destination=step["destination"],
            backlog=backlog,
            durable=durable,
            is_topic=self.destinations[step["destination"]] == "topic",
            half=selector.split("'")[1] if selector else None,
            prefetch=step.get("prefetch", session.connection.prefetch),
        )
        for other in backlog.users:
            if consumer.half is None or other.half is None or consumer.half == other.half:
                raise Indeterminate("two consumers compete")
        if backlog.doubtful and 0 <= session.connection.limit < _FAR:
            raise Indeterminate("a doubtful count would meet a limit")
        exact = session.mode in ("AUTO", "DUPS_OK") and not backlog.doubtful
        if backlog.returned and not exact and consumer.prefetch < ROOMY:
            raise Indeterminate(
                "what the broker takes back twice lies behind what it took back once"
            )
        backlog.users.append(consumer)
        session.consumers.append(consumer)
        self.consumers[step["as"]] = consumer

    def _send(self, step: Json) -> None:
        session: Session = self.sessions[step["in"]]
        self._may_use(session)
        if session.closed or step["to"] is None:
            return
        letters = [Letter(step.get("properties", {}).get("half")) for _ in step["bodies"]]
        if session.mode == "TRANSACTED":
            session.sends.append((step["to"], letters))
        else:
            self._arrive(step["to"], letters)

    def _receive(self, step: Json) -> None:
        self._take(step, 1, lambda _number: step.get("as"))

    _receive_none = _receive

    def _receive_many(self, step: Json) -> None:
        name = step.get("as")
        self._take(step, step["count"], lambda number: name and f"{name}.{number}")

    def _listen(self, step: Json) -> None:
        consumer = self._open_consumer(step["on"])
        session = consumer.session
        if len(session.consumers) > 1:
            raise Indeterminate("two consumers of a session with a listener race")
        closes = any(
            isinstance(action, dict) and action.get("op") == "close"
            for rule in step["handler"]
            for action in rule["do"]
        )
        if closes and not self.settled:
            raise Indeterminate("a handler closes while messages arrive")
        session.spent = session.connection.spent = closes
        consumer.backlog.doubtful |= closes
        consumer.backlog.returned |= closes
        consumer.listener = step["as"]
        consumer.backlog.sure = False
        self.listeners[step["as"]] = consumer
        self._stir(consumer)

    def _unlisten(self, step: Json) -> None:
        consumer = self._open_consumer(step["on"])
        if consumer.listener is None:
            raise Indeterminate("no listener to take away")
        consumer.listener = None

    def _await(self, step: Json) -> None:
        if step["listener"] not in self.listeners:
            raise Indeterminate("no such listener")
        self.stirred = [name for name in self.stirred if name != step["listener"]]
        consumer = self.listeners[step["listener"]]
        consumer.held += self.available(consumer)
        consumer.backlog.waiting.clear()

    def _acknowledge(self, step: Json) -> None:
        consumer, letter = self.messages[step["message"]]
        session = consumer.session
        self._may_use(session)
        if consumer.closing:
            raise Indeterminate("the consumer is half closed")
        if consumer.closed:
            return
        if session.mode == "CLIENT":
            for each in session.consumers:
                each.held.clear()
        elif session.mode == "INDIVIDUAL" and letter in consumer.held:
            consumer.held.remove(letter)
        elif (
            session.mode == "INDIVIDUAL"
            and letter in consumer.backlog.waiting
            and 0 <= session.connection.limit < _FAR
        ):
            raise Indeterminate(
                "the Java client would make dead letters of others, in a range that ends with it"
            )

    def _commit(self, step: Json) -> None:
        session = self.sessions[step["in"]]
        self._may_use(session)
        if session.closed or session.mode != "TRANSACTED":
            return
        sends, session.sends = session.sends, []
        for each in session.consumers:
            each.held.clear()
        self._close_deferred(session)
        for destination, letters in sends:
            self._arrive(destination, letters)

    def _rollback(self, step: Json) -> None:
        session = self.sessions[step["in"]]
        self._may_use(session)
        if session.closed or session.mode != "TRANSACTED":
            return
        session.sends.clear()
        for each in session.consumers:
            self._give_back(each)
        self._close_deferred(session)

    def _recover(self, step: Json) -> None:
        session = self.sessions[step["in"]]
        self._may_use(session)
        if not session.closed and session.mode != "TRANSACTED":
            for each in session.consumers:
                self._give_back(each)

    def _start(self, step: Json) -> None:
        connection = self._alive(self.connections[step["target"]])
        connection.started = True
        for consumer in _consumers(connection):
            self._stir(consumer)

    def _stop(self, step: Json) -> None:
        self._alive(self.connections[step["target"]]).started = False

    def _close(self, step: Json) -> None:
        name = step["target"]
        if name in self.consumers:
            self._close_consumer(self.consumers[name])
            return
        thing = self.connections.get(name) or self.sessions[name]
        if thing.crashed:
            raise Indeterminate("it is gone")
        consumers = [] if thing.closed else list(_consumers(thing))
        for consumer in consumers:
            self._check_removal(consumer)
        for consumer in consumers:
            self._remove(consumer)
        thing.close()

    def _crash(self, step: Json) -> None:
        connection = self._alive(self.connections[step["target"]], spent=True)
        consumers = list(_consumers(connection))
        if connection.optimized or any(one.lazy and one.durable for one in consumers):
            raise Indeterminate("how much a lazy client has acknowledged is a matter of time")
        for consumer in consumers:
            self._check_order(consumer)
        self.settled = True  # the step waits before it acts
        for consumer in consumers:
            self._remove(consumer)
        connection.close(crashed=True)

    def _wait(self, _step: Json) -> None:
        pass

    def _drain(self, step: Json) -> None:
        name = step["destination"]
        if name == "DLQ":
            return
        backlog = self.backlogs.setdefault(name, Backlog())
        if backlog.users:
            raise Indeterminate("a drain would compete")
        backlog.waiting.clear()

    # Inside ----------------------------------------------------------------------------------------

    def _alive(self, thing: Any, *, spent: bool = False) -> Any:
        if thing.closed or (thing.spent and not spent):
            raise Indeterminate("it is closed, or may be")
        return thing

    def _may_use(self, session: Session) -> None:
        """Calls on what was closed in order are errors that can be foretold; after a crash they are not."""
        if session.crashed or session.spent or session.connection.spent:
            raise Indeterminate("what this does is a matter of time")

    def _open_consumer(self, name: str) -> Consumer:
        consumer = self.consumers[name]
        self._may_use(consumer.session)
        if consumer.closed or consumer.closing:
            raise Indeterminate("the consumer is closed")
        return consumer

    def _take(self, step: Json, count: int, name: Callable[[int], str | None]) -> None:
        consumer = self.consumers[step["from"]]
        session = consumer.session
        self._may_use(session)
        if consumer.closing:
            raise Indeterminate("the consumer is half closed")
        if step.get("timeout") == 0 and not (self.settled and consumer.prefetch >= ROOMY):
            raise Indeterminate("it may not have come yet")
        if consumer.closed or session.listening or not session.connection.started:
            return
        for number, letter in enumerate(self.available(consumer)[:count], 1):
            consumer.backlog.waiting.remove(letter)
            if session.mode not in ("AUTO", "DUPS_OK"):
                consumer.held.append(letter)
            reference = name(number)
            if reference is not None:
                self.messages[reference] = (consumer, letter)

    def _arrive(self, destination: str, letters: list[Letter]) -> None:
        if self.destinations[destination] == "queue":
            sources = [self.backlogs.setdefault(destination, Backlog())]
        else:
            durable = [b for key, b in self.backlogs.items() if key.startswith(f"{destination}/")]
            others = [c.backlog for c in self.consumers.values() if c.destination == destination]
            sources = durable + [b for b in others if b.users and b not in durable]
        for backlog in sources:
            backlog.waiting += [Letter(one.half) for one in letters]
            for consumer in backlog.users:
                self._stir(consumer)

    def _stir(self, consumer: Consumer) -> None:
        name = consumer.listener
        if name is not None and consumer.session.connection.started and name not in self.stirred:
            self.stirred.append(name)

    def _give_back(self, consumer: Consumer) -> None:
        """Roll back what the consumer holds; past the limit it is gone."""
        batch, consumer.held = consumer.held, []
        if not batch:
            return
        limit = consumer.session.connection.limit
        if limit < 0 or batch[-1].redeliveries + 1 <= limit:
            for letter in batch:
                letter.redeliveries += 1
            consumer.backlog.waiting[:0] = batch
        self._stir(consumer)

    def _close_consumer(self, consumer: Consumer) -> None:
        session = consumer.session
        if session.crashed or session.spent or session.connection.spent:
            raise Indeterminate("it may be closed already")
        if consumer.closed or consumer.closing:
            return
        self._check_removal(consumer)
        if session.mode == "TRANSACTED" and (consumer.held or not consumer.backlog.sure):
            consumer.closing = True
        else:
            self._remove(consumer)

    def _check_removal(self, consumer: Consumer) -> None:
        waits = self.available(consumer) or not consumer.backlog.sure
        if waits and not self.settled:
            raise Indeterminate("it would depend on time what was dispatched to it")
        self._check_order(consumer)

    def _check_order(self, consumer: Consumer) -> None:
        waits = self.available(consumer) or not consumer.backlog.sure
        if waits and consumer.half is not None and consumer.prefetch < ROOMY:
            raise Indeterminate(
                "what was dispatched to it comes back in front of what it does not select"
            )

    def _remove(self, consumer: Consumer) -> None:
        backlog = consumer.backlog
        waits = self.available(consumer) or not backlog.sure
        backlog.doubtful |= bool(waits) and consumer.prefetch < ROOMY
        backlog.returned |= bool(waits or consumer.held)
        for letter in consumer.held:
            letter.redeliveries += 1
        backlog.waiting[:0] = consumer.held
        consumer.close()

    def _close_deferred(self, session: Session) -> None:
        for consumer in [each for each in session.consumers if each.closing]:
            self._remove(consumer)


def _consumers(thing: Connection | Session) -> Iterator[Consumer]:
    """The open consumers of a connection or session."""
    sessions = thing.sessions if isinstance(thing, Connection) else [thing]
    for session in sessions:
        if not session.closed:
            yield from list(session.consumers)
