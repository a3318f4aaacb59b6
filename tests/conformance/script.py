"""One run of one scenario by jmsx: its names, objects and messages (FORMAT.md section 2)."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import jmsx
from tests.conformance.listener import Delivery, ScriptedListener
from tests.conformance.scenario import all_steps, bodies
from tests.conformance.traffic import Traffic
from tests.conformance.translation import MODES, body, connection_options, describe, error_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conformance.brokers import Broker
    from tests.conformance.scenario import Json, Scenario

_RUN_PROPERTY: Final = "jmsx_run"
#: Seconds around a dropped socket, in which the broker takes notice.
_CRASH_PAUSE: Final = 0.15
#: Seconds that a broker with much to do may take for it at most.
_NOTICE_LIMIT: Final = 3.0
_POLL: Final = 0.005


class Script:
    """Runs the steps of a scenario; `outcomes` grows by one with each step that ends."""

    def __init__(self, scenario: Scenario, broker: Broker) -> None:
        self.outcomes: list[Json] = []
        self._scenario = scenario
        self._broker = broker
        self._traffic = Traffic(scenario.steps)
        self._token = secrets.token_hex(4)
        self._objects: dict[str, Any] = {}
        self._messages: dict[str, jmsx.Message] = {}
        self._connections: list[jmsx.Connection] = []
        self._crashed = False  # the socket of a connection
        #: By the queue of a subscription that was removed, and not made anew, what was seen of it before
        self._stranded: dict[str, int] = {}
        self._destinations: dict[str, Any] = {"DLQ": jmsx.Queue(broker.dead_letters)}
        for name, kind in scenario.destinations.items():
            of_kind = jmsx.Topic if kind == "topic" else jmsx.Queue
            self._destinations[name] = of_kind(self._physical(name))
        self._ops: dict[str, Callable[[Json], object]] = {
            "connect": self._connect,
            "start": lambda step: self._objects[step["target"]].start(),
            "stop": lambda step: self._objects[step["target"]].stop(),
            "session": self._session,
            "consumer": self._consumer,
            "producer": self._producer,
            "temp_queue": self._temp_queue,
            "temp_topic": self._temp_topic,
            "composite": self._composite,
            "delete": lambda step: self._destinations[step["target"]].delete(),
            "send": self._send,
            "receive": lambda step: self._receive(step, 2.0),
            "receive_none": lambda step: self._receive(step, 0.4),
            "receive_many": self._receive_many,
            "listen": self._listen,
            "unlisten": lambda step: self._objects[step["on"]].set_listener(None),
            "await": self._await,
            "acknowledge": lambda step: self._messages[step["message"]].acknowledge(),
            "recover": lambda step: self._objects[step["in"]].recover(),
            "commit": lambda step: self._objects[step["in"]].commit(),
            "rollback": lambda step: self._objects[step["in"]].rollback(),
            "unsubscribe": self._unsubscribe,
            "close": lambda step: self._objects[step["target"]].close(),
            "crash": self._crash,
            "wait": lambda step: time.sleep(step["seconds"]),
            "drain": self._drain,
            "browse": self._browse,
            "later": self._later,
        }

    def run(self) -> None:
        """Run all steps, one after the other."""
        for step in self._scenario.steps:
            self.outcomes.append(self._outcome(step))

    def close(self) -> None:
        """Close what the scenario left open; its outcomes do not depend on it."""
        for connection in self._connections:
            with contextlib.suppress(Exception):
                connection.close()

    def perform(self, step: Json) -> Json:
        """Run one step and give its outcome; raises what the client raises."""
        outcome = self._ops[step["op"]](step)
        return outcome if isinstance(outcome, dict) else {"ok": True}

    def note(self, reference: str, message: jmsx.Message) -> None:
        """Keep a message for steps that refer to it."""
        self._messages[reference] = message

    def describe(self, message: jmsx.Message, record: list[str]) -> Json:
        """Tell of a received message what FORMAT.md calls M."""
        return describe(message, record, self._logical)

    def _outcome(self, step: Json) -> Json:
        begin = time.monotonic()
        try:
            outcome = dict(self.perform(step))
        except Exception as error:  # noqa: BLE001 - whatever a client raises is its outcome
            outcome = {"error": error_kind(error), "detail": f"{type(error).__name__}: {error}"}
        if "elapsed" in step:
            outcome["elapsed"] = round(time.monotonic() - begin, 3)
        return outcome

    # -- names ------------------------------------------------------------------------------------

    def stranded(self, name: str) -> int:
        """How many messages of a destination the broker keeps, or kept, for consumers that have died."""
        return sum(
            self._stranded.get(queue) or self._broker.stranded(queue)
            for queue in self._queues(name)
        )

    def _subscription(self, step: Json) -> str:
        """The queue of the durable subscription of a step (Artemis)."""
        made = {(one["op"], one.get("as")): one for one in all_steps(self._scenario.steps)}
        connection = made["connect", made["session", step["in"]]["on"]]
        return f"{self._client_id(connection)}.{step['durable']}"

    def _queues(self, name: str) -> list[str]:
        """The queues of a destination on the broker; those of a topic are its durable subscriptions (Artemis)."""
        kind = self._scenario.destinations.get(name)
        if kind != "topic":
            return [] if kind is None else [self._physical(name)]
        return sorted(
            {
                self._subscription(step)
                for step in all_steps(self._scenario.steps)
                if step["op"] == "consumer" and step["destination"] == name and step.get("durable")
            }
        )

    def _physical(self, name: str) -> str:
        return f"jmsx.{self._scenario.id}.{self._token}.{name}"

    def _client_id(self, connection: Json) -> str | None:
        given = connection.get("client_id")
        return None if given is None else f"{given}-{self._token}"

    def _uri(self, name: str) -> str:
        kind = self._scenario.destinations.get(name, "queue")
        return f"{kind}://{self._broker.dead_letters if name == 'DLQ' else self._physical(name)}"

    def _logical(self, destination: Any) -> str | None:
        if destination is None:
            return None
        names = {known.name: name for name, known in self._destinations.items()}
        physical: str = destination.name
        return names.get(physical, physical)

    def _destination(self, name: Any) -> Any:
        if isinstance(name, dict):
            return self._messages[name["reply_to_of"]].reply_to
        return None if name is None else self._destinations[name]

    def _selector(self, step: Json) -> str | None:
        own: str | None = step.get("selector")
        if step["destination"] != "DLQ":
            return own
        ours = f"{_RUN_PROPERTY} = '{self._token}'"
        return ours if own is None else f"({own}) AND {ours}"

    # -- connections and sessions -----------------------------------------------------------------

    def _open(self, options: Json, client_id: str | None = None) -> jmsx.Connection:
        settings = connection_options(options, self._uri)
        # Java deletes what the broker's strategy does not keep; jmsx does so only when told to.
        settings["dead_letter"] = jmsx.DeadLetterStrategy.BROKER
        connection = jmsx.Connection(self._broker.url, client_id=client_id, **settings)
        self._connections.append(connection)
        return connection

    def _connect(self, step: Json) -> None:
        options = {**self._scenario.options, **step.get("options", {})}
        connection = self._open(options, self._client_id(step))
        self._objects[step["as"]] = connection
        if step.get("start", True):
            connection.start()

    def _crash(self, step: Json) -> None:
        time.sleep(_CRASH_PAUSE)
        self._crashed = True
        queues = [
            queue for name in self._traffic.on(step["target"]) for queue in self._queues(name)
        ]
        before = {queue: self._broker.consumers(queue) for queue in queues}
        self._objects[step["target"]].abort()
        time.sleep(_CRASH_PAUSE)
        deadline = time.monotonic() + _NOTICE_LIMIT
        for queue, count in before.items():
            while count and self._broker.consumers(queue) == count and time.monotonic() < deadline:
                time.sleep(_CRASH_PAUSE)  # for the other consumers of the connection, too

    def _unsubscribe(self, step: Json) -> None:
        """Remove a subscription; with it goes what the broker keeps for the dead, so that is looked at before."""
        queue = self._subscription(step)
        stranded = self._broker.stranded(queue) if self._crashed else 0
        self._objects[step["in"]].unsubscribe(step["durable"])
        self._stranded[queue] = stranded

    def _session(self, step: Json) -> None:
        session = self._objects[step["on"]].create_session(MODES[step["mode"]])
        self._objects[step["as"]] = session

    def _consumer(self, step: Json) -> None:
        session: jmsx.Session = self._objects[step["in"]]
        destination = self._destination(step["destination"])
        if "prefetch" in step and destination is not None:
            options = f"?consumer.prefetchSize={step['prefetch']}"
            destination = type(destination)(destination.name + options)
        shared = {"selector": self._selector(step), "no_local": step.get("no_local", False)}
        if step.get("durable") is not None:
            # What is lost of a new one nobody keeps who died with the old one
            self._stranded.pop(self._subscription(step), None)
            consumer = session.create_durable_consumer(destination, step["durable"], **shared)
        else:
            consumer = session.create_consumer(destination, **shared)
        self._objects[step["as"]] = consumer

    def _producer(self, step: Json) -> None:
        session: jmsx.Session = self._objects[step["in"]]
        self._objects[step["as"]] = session.create_producer(self._destination(step["to"]))

    def _temp_queue(self, step: Json) -> None:
        session: jmsx.Session = self._objects[step["in"]]
        self._destinations[step["as"]] = session.create_temporary_queue()

    def _temp_topic(self, step: Json) -> None:
        session: jmsx.Session = self._objects[step["in"]]
        self._destinations[step["as"]] = session.create_temporary_topic()

    def _composite(self, step: Json) -> None:
        self._destinations[step["as"]] = jmsx.Queue(",".join(map(self._uri, step["of"])))

    # -- sending ----------------------------------------------------------------------------------

    def _send(self, step: Json) -> None:
        own = "via" not in step
        producer = (
            self._objects[step["in"]].create_producer() if own else self._objects[step["via"]]
        )
        texts = bodies(step)
        priorities = step.get("priorities") or [step.get("priority", 4)] * len(texts)
        target = {"destination": self._destination(step.get("to"))} if own or "to" in step else {}
        for text, priority in zip(texts, priorities, strict=True):
            producer.send(
                self._message(step, text),
                persistent=step.get("persistent", True),
                priority=priority,
                time_to_live=step.get("ttl", 0.0),
                **target,
            )
        if own:
            producer.close()

    def _message(self, step: Json, text: str) -> jmsx.Message:
        return jmsx.Message(
            text.encode() if step.get("kind") == "bytes" else text,
            properties={**step.get("properties", {}), _RUN_PROPERTY: self._token},
            correlation_id=step.get("correlation_id"),
            type=step.get("type"),
            reply_to=self._destination(step.get("reply_to")),
            group_id=step.get("group_id"),
        )

    # -- receiving --------------------------------------------------------------------------------

    def _receive(self, step: Json, default_timeout: float) -> Json:
        consumer = self._objects[step["from"]]
        message = _receive_from(consumer, step.get("timeout", default_timeout))
        if message is None:
            return {"none": True}
        if "as" in step:
            self.note(step["as"], message)
        return {"message": self.describe(message, step.get("record", []))}

    def _receive_many(self, step: Json) -> Json:
        received: list[Json] = []
        for number in range(1, step["count"] + 1):
            message = _receive_from(self._objects[step["from"]], step.get("timeout", 2.0))
            if message is None:
                break
            if "as" in step:
                self.note(f"{step['as']}.{number}", message)
            received.append(self.describe(message, step.get("record", [])))
            time.sleep(step.get("pause", 0))
        return {"messages": received}

    @contextlib.contextmanager
    def _visit(self) -> Iterator[jmsx.Session]:
        """Open a fresh connection with default options, and an AUTO session on it."""
        connection = self._open({})
        try:
            connection.start()
            yield connection.create_session(MODES["AUTO"])
        finally:
            connection.close()

    def _drain(self, step: Json) -> Json:
        received: list[Json] = []
        with self._visit() as session:
            destination = self._destination(step["destination"])
            consumer = session.create_consumer(destination, selector=self._selector(step))
            while message := _receive_from(consumer, step.get("timeout", 0.5)):
                received.append(self.describe(message, step.get("record", [])))
        return {"messages": received}

    def _browse(self, step: Json) -> Json:
        with self._visit() as session:
            destination = self._destination(step["destination"])
            browser = session.create_browser(destination, selector=self._selector(step))
            return {"bodies": [body(message) for message in browser]}

    # -- listening --------------------------------------------------------------------------------

    def _listen(self, step: Json) -> None:
        listener = ScriptedListener(self, step)
        self._objects[step["on"]].set_listener(listener)
        self._objects[step["as"]] = listener

    def _await(self, step: Json) -> Json:
        several = isinstance(step["listener"], list)
        names: list[str] = step["listener"] if several else [step["listener"]]
        listeners: list[ScriptedListener] = [self._objects[name] for name in names]
        deadline = time.monotonic() + step.get("timeout", 4.0)
        while time.monotonic() < deadline and sum(map(len, listeners)) < step["count"]:
            time.sleep(_POLL)
        time.sleep(step.get("settle", 0.3))
        taken = [delivery for listener in listeners for delivery in listener.take()]
        return _report(sorted(taken, key=lambda d: d.start), several=several, gaps="gaps" in step)

    def _later(self, step: Json) -> None:
        timer = threading.Timer(step["after"], self._outcome, [step["step"]])
        timer.daemon = True
        timer.start()


def _receive_from(consumer: jmsx.MessageConsumer, timeout: float) -> jmsx.Message | None:
    if timeout == 0:
        return consumer.receive_no_wait()
    return consumer.receive() if timeout < 0 else consumer.receive(timeout)


def _report(deliveries: list[Delivery], *, several: bool, gaps: bool) -> Json:
    """Tell of deliveries, oldest first; gaps are seconds between their starts."""
    named = [
        {**d.described, "listener": d.listener} if several else d.described for d in deliveries
    ]
    outcome: Json = {"deliveries": named}
    if gaps:
        starts = [delivery.start for delivery in deliveries]
        between = [round(b - a, 3) for a, b in itertools.pairwise(starts)]
        outcome["gaps"] = [None, *between][: len(starts)]
    return outcome
