"""Random programs in the scenario format; the same seed gives the same programs."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from tests.conformance.generated.handlers import OUTPUT, rules
from tests.conformance.generated.things import ROOMY, Consumer, Indeterminate, Session
from tests.conformance.generated.world import World
from tests.conformance.scenario import MODES

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conformance.scenario import Json

#: Seconds that the waits of a program may add up to, before its end.
_BUDGET: Final = 2.0
_MOST_STEPS: Final = 36
_PREFETCHES: Final = (1, 2, 5, 1000, 1000)
_LIMITS: Final = (0, 1, 1, 2, 3, -1, 6)
_DELAYS: Final = (0, 0, 0, 0.02, 0.08)
#: Seconds for a message that should come, that may come, and that should not.
_SURE, _UNSURE, _NONE = 1.5, 0.5, 0.3
_SETTLE: Final = 0.1


def program(seed: int, number: int) -> Json:
    """The program `number` of `seed`: an object of FORMAT.md, without expectations."""
    return _Author(f"{seed}:{number}").write(f"gen-{seed}-{number}")


class _Author:
    """Writes one program, step by step; what would not be determinate is dropped."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)
        self._destinations = {"a": "queue", OUTPUT: "queue"}
        if self._random.random() < 0.6:
            self._destinations["b"] = "queue"
        if self._random.random() < 0.25:
            self._destinations["t"] = "topic"
        self._halved = self._random.random() < 0.2  #: queue b is read by selectors
        self._world = World(self._destinations)
        self._steps: list[Json] = []
        self._counts: dict[str, int] = {}
        self._bodies: list[str] = []
        self._spent = 0.0

    def write(self, name: str) -> Json:
        """Write the program called `name`."""
        self._do({"op": "connect", "as": "p0"})
        self._do({"op": "session", "as": "p", "on": "p0", "mode": "AUTO"})
        for _ in range(self._random.randint(1, 2)):
            self._open()
        self._send()
        moves = self._moves()
        while self._spent < _BUDGET and len(self._steps) < _MOST_STEPS:
            move = self._random.choices(*zip(*moves, strict=True))[0]
            move()
        self._finish()
        return {
            "id": name,
            "topic": "found",
            "title": "a generated program",
            "about": "",
            "source": f"tests.conformance.generated {name}",
            "destinations": self._destinations,
            "steps": self._steps,
        }

    def _moves(self) -> list[tuple[Callable[[], object], int]]:
        return [
            (self._send, 14),
            (self._receive, 30),
            (self._acknowledge, 10),
            (self._end_work, 14),
            (self._listen, 8),
            (self._open, 6),
            (self._close, 6),
            (self._crash, 2),
            (self._stop_or_start, 2),
            (self._misuse, 5),
        ]

    def _do(self, step: Json, cost: float = 0.0) -> bool:
        """Add `step` and await the listeners that it stirs; False if it would not be determinate."""
        try:
            self._world.apply(step)
        except Indeterminate:
            return False
        self._steps.append(step)
        self._spent += cost
        while self._world.stirred:
            self._await(self._world.stirred[0])
        return True

    def _await(self, listener: str) -> None:
        waiting = len(self._world.available(self._world.listeners[listener]))
        step = {"op": "await", "listener": listener, "count": max(waiting, 1)}
        self._do({**step, "timeout": 0.6 if waiting == 0 else 1.2, "settle": 0.4}, 0.5)

    def _name(self, kind: str) -> str:
        self._counts[kind] = self._counts.get(kind, 0) + 1
        return f"{kind}{self._counts[kind]}"

    def _pick(self, kind: str) -> str:
        """A name of a kind of thing that was made; the newest rather than the oldest."""
        return f"{kind}{self._random.choice(range(1, self._counts[kind] + 1))}"

    # Moves -----------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Open a consumer, in a session that there is or in a new one."""
        free = [name for name in self._destinations if name != OUTPUT and self._is_free(name)]
        if not free:
            return
        destination = self._random.choice(free)
        taken = any(one.client_id and not one.closed for one in self._world.connections.values())
        durable = destination == "t" and not taken and self._random.random() < 0.6
        session = None if durable else self._session_to_use()
        if session is None:
            session = self._new_session(durable=durable)
        step: Json = {
            "op": "consumer",
            "as": self._name("k"),
            "in": session,
            "destination": destination,
        }
        if durable:
            step["durable"] = "d"
        if self._halved and destination == "b":
            step["selector"] = f"half = '{self._random.choice('xy')}'"
        if self._random.random() < 0.2:
            step["prefetch"] = self._random.choice(_PREFETCHES)
        if not self._do(step):
            self._counts["k"] -= 1

    def _is_free(self, destination: str) -> bool:
        """Whether another consumer would not compete."""
        backlog = self._world.backlogs.get(destination)
        return backlog is None or len(backlog.users) < (2 if self._halved else 1)

    def _session_to_use(self) -> str | None:
        sessions = [
            one.name
            for one in self._world.sessions.values()
            if one.name != "p" and not (one.closed or one.listening or one.spent)
        ]
        return self._random.choice(sessions) if sessions and self._random.random() < 0.3 else None

    def _new_session(self, *, durable: bool) -> str:
        connections = [
            one.name
            for one in self._world.connections.values()
            if one.name != "p0" and not (one.closed or one.spent or one.client_id)
        ]
        if not durable and connections and self._random.random() < 0.4:
            on = self._random.choice(connections)
        else:
            on = self._new_connection(durable=durable)
        name = self._name("s")
        self._do({"op": "session", "as": name, "on": on, "mode": self._random.choice(MODES)})
        return name

    def _new_connection(self, *, durable: bool) -> str:
        policy = {
            "maximum_redeliveries": self._random.choice(_LIMITS),
            "initial_redelivery_delay": self._random.choice(_DELAYS),
            "redelivery_delay": self._random.choice(_DELAYS),
        }
        options: Json = {"redelivery_policy": policy, "prefetch": self._random.choice(_PREFETCHES)}
        if self._random.random() < 0.05:
            policy["pre_dispatch_check"] = False
        name = self._name("c")
        step: Json = {"op": "connect", "as": name, "options": options}
        if durable:
            step["client_id"] = "me"
        self._do(step)
        return name

    def _send(self) -> None:
        places = [name for name in self._destinations if name != OUTPUT]
        senders = ["p"] * 4
        senders += [
            one.name for one in self._world.sessions.values() if one.consumers and not one.listening
        ]
        bodies = [self._name("m") for _ in range(self._random.choice((1, 1, 2, 3, 5)))]
        to = self._random.choice(places)
        step: Json = {
            "op": "send",
            "in": self._random.choice(senders),
            "to": to,
            "bodies": bodies,
        }
        properties: Json = {}
        if self._halved and to == "b":
            properties["half"] = self._random.choice("xy")
        if self._random.random() < 0.2:
            properties["n"] = self._random.randint(0, 9)
        if properties:
            step["properties"] = properties
        if self._random.random() < 0.15:
            step["kind"] = "bytes"
        self._bodies += bodies
        self._do(step)

    def _receive(self) -> None:
        consumers = [
            one
            for one in self._world.consumers.values()
            if not (one.closed or one.session.listening)
        ]
        if not consumers:
            return
        consumer = self._random.choice(consumers)
        waiting = len(self._world.available(consumer))
        name = {"from": consumer.name, "as": self._name("r")}
        if waiting == 0:
            if self._random.random() < (0.15 if consumer.backlog.sure else 0.5):
                timeout = _NONE if consumer.backlog.sure else _UNSURE
                self._do({"op": "receive_none", **name, "timeout": timeout}, timeout)
            return
        if self._random.random() < 0.15 and consumer.prefetch >= ROOMY:
            self._do({"op": "receive", **name, "timeout": 0})
        elif waiting > 1 and self._random.random() < 0.5:
            count = self._random.randint(2, waiting)
            self._do({"op": "receive_many", **name, "count": count, "timeout": _SURE})
        else:
            record = {"record": ["property:n"]} if self._random.random() < 0.3 else {}
            self._do({"op": "receive", **name, "timeout": _SURE, **record})

    def _acknowledge(self) -> None:
        messages = [
            name
            for name, (consumer, _) in self._world.messages.items()
            if consumer.session.mode in ("CLIENT", "INDIVIDUAL") or self._random.random() < 0.1
        ]
        if messages:
            self._do({"op": "acknowledge", "message": self._random.choice(messages)})

    def _end_work(self) -> None:
        """Commit, roll back or recover, as the mode has it."""
        sessions = [one for one in self._world.sessions.values() if one.consumers]
        if not sessions:
            return
        session = self._random.choice(sessions)
        idle = not (session.sends or any(one.held for one in session.consumers))
        if idle and self._random.random() < 0.8:
            return
        op = self._random.choice(("commit", "rollback", "rollback"))
        if session.mode != "TRANSACTED":
            op = "recover"
            if session.mode in ("AUTO", "DUPS_OK") and self._random.random() < 0.7:
                return
        delay = 0.1 if any(one.held for one in session.consumers) else 0.0
        self._do({"op": op, "in": session.name}, delay)

    def _listen(self) -> None:
        consumers = [
            one for one in self._world.consumers.values() if not one.closed and not one.listener
        ]
        if not consumers:
            return
        consumer = self._random.choice(consumers)
        handler = rules(self._random, consumer, self._bodies[-5:])
        self._pause()
        self._do({"op": "listen", "as": self._name("L"), "on": consumer.name, "handler": handler})

    def _close(self) -> None:
        kind = self._random.choice("kkssc")
        if not self._counts.get(kind):
            return
        target = self._pick(kind)
        if self._world.thing(target).closed:
            if self._random.random() < 0.1:
                self._do({"op": "close", "target": target})
            return
        self._pause()
        self._do({"op": "close", "target": target})

    def _crash(self) -> None:
        self._do({"op": "crash", "target": self._pick("c")}, 0.3)

    def _stop_or_start(self) -> None:
        name = self._pick("c")
        if self._do({"op": "stop", "target": name}) and self._random.random() < 0.5:
            self._send()
            self._receive()
        self._do({"op": "start", "target": name})

    def _misuse(self) -> None:
        """A call that should be refused, or do nothing."""
        session: Session = self._random.choice(list(self._world.sessions.values()))
        consumers: list[Consumer] = list(self._world.consumers.values())
        choices: list[Json] = []
        if session.closed or session.mode != "TRANSACTED":
            choices += [{"op": op, "in": session.name} for op in ("commit", "rollback")]
        if session.closed or session.mode == "TRANSACTED":
            choices.append({"op": "recover", "in": session.name})
        if session.closed:
            choices.append({"op": "send", "in": session.name, "to": "a", "bodies": ["never"]})
        refused = [one for one in consumers if one.closed or one.session.listening]
        choices += [{"op": "receive_none", "from": one.name, "timeout": _NONE} for one in refused]
        closed = [name for name, (one, _) in self._world.messages.items() if one.closed]
        choices += [{"op": "acknowledge", "message": name} for name in closed]
        if choices:
            self._do(self._random.choice(choices))

    def _pause(self) -> None:
        """Let the broker dispatch, where it depends on that what comes next."""
        if not self._world.settled:
            self._do({"op": "wait", "seconds": _SETTLE}, _SETTLE)

    # The end ---------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Close or crash what is open, and bring everything to light that is left."""
        open_ones = [
            one.name
            for one in self._world.connections.values()
            if not one.closed and one.name != "p0"
        ]
        self._random.shuffle(open_ones)
        for name in open_ones:
            if self._random.random() < 0.2 and self._do({"op": "crash", "target": name}):
                continue
            self._pause()
            self._do({"op": "close", "target": name})
        for destination, kind in self._destinations.items():
            if kind == "queue":
                self._drain(destination)
            elif f"{destination}/d" in self._world.backlogs:
                self._drain_durable(destination)
        record = ["original_destination"]
        self._do({"op": "drain", "destination": "DLQ", "timeout": 0.3, "record": record})

    def _drain(self, destination: str) -> None:
        self._do({"op": "drain", "destination": destination, "timeout": 0.3})

    def _drain_durable(self, destination: str) -> None:
        options = {"redelivery_policy": {"maximum_redeliveries": -1}}
        self._do({"op": "connect", "as": "c0", "client_id": "me", "options": options})
        self._do({"op": "session", "as": "s0", "on": "c0", "mode": "AUTO"})
        step = {"op": "consumer", "as": "k0", "in": "s0", "destination": destination}
        self._do({**step, "durable": "d"})
        self._do({"op": "receive_many", "from": "k0", "count": 50, "timeout": 0.3})
        self._do({"op": "close", "target": "c0"})
