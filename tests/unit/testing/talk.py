"""A STOMP client for tests: it writes on a link of the fake broker and sorts what comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jmsx.core.frames import Frame, MessageFrame

if TYPE_CHECKING:
    from jmsx.testing import FakeBroker

CLIENT = {"ack": "client"}
INDIVIDUAL = {"ack": "client-individual"}
TX = {"transaction": "t"}

#: The modes in which a client acknowledges.
MODES = ["client", "client-individual"]

#: What Classic's ERRORs say.
ROLLBACK_ONLY = "COMMIT FAILED: Transaction marked rollback only xaErrorCode:100"
NO_SUCH_TX = "Invalid transaction id: t"
UNEXPECTED_ACK = "Unexpected ACK received for message-id [null]"


class Talk:
    """One connected client; `messages` are all MESSAGEs it saw, oldest first."""

    def __init__(self, broker: FakeBroker, **connect: str) -> None:
        self.broker = broker
        self.link = broker.open_link(broker.now)
        self.messages: list[MessageFrame] = []
        self.answers: list[Frame] = []
        self._receipts = 0
        self.tell("CONNECT", {"accept-version": "1.2", "host": "x", **connect})
        self.connected = self.answers.pop()

    def tell(self, command: str, headers: dict[str, str] | None = None, body: str = "") -> None:
        """Write a frame."""
        self.link.feed(Frame(command, headers or {}, body.encode()), self.broker.now)
        self.collect()

    def ask(self, command: str, headers: dict[str, str] | None = None, body: str = "") -> str:
        """Write a frame with a receipt; returns RECEIPT, or what the ERROR says."""
        self._receipts += 1
        receipt = f"r{self._receipts}"
        self.tell(command, {**(headers or {}), "receipt": receipt}, body)
        answers = [a for a in self.answers if a.headers.get("receipt-id") == receipt]
        assert len(answers) <= 1
        return _gist(answers[0]) if answers else "CLOSED" if self.link.closed else "nothing"

    def collect(self) -> None:
        """Take what the broker wrote."""
        for frame in self.link.take_frames():
            if isinstance(frame, MessageFrame):
                self.messages.append(frame)
            else:
                self.answers.append(frame)

    def errors(self) -> list[str]:
        """What all ERRORs so far said."""
        return [_gist(answer) for answer in self.answers if answer.command == "ERROR"]

    def bodies(self) -> list[str]:
        """The bodies of the MESSAGEs that came since the last look, with `R` where redelivered."""
        self.collect()
        taken, self._seen = self.messages[self._seen :], len(self.messages)
        return [m.body.decode() + " R" * ("redelivered" in m.headers) for m in taken]

    _seen = 0

    def put(self, queue: str, *bodies: str, **headers: str) -> None:
        """Send persistent messages."""
        for body in bodies:
            answer = self.ask("SEND", {"destination": queue, "persistent": "true", **headers}, body)
            assert answer == "RECEIPT"

    def subscribe(self, queue: str, id_: str = "s", **headers: str) -> list[str]:
        """Subscribe, `ack:client` unless told otherwise, and see what comes."""
        given = {name.replace("_", "."): value for name, value in headers.items()}
        given = {"destination": queue, "id": id_, **CLIENT, **given}
        assert self.ask("SUBSCRIBE", given) == "RECEIPT"
        return self.bodies()

    def ack(self, body: str, command: str = "ACK", **headers: str) -> str:
        """Acknowledge the last MESSAGE with `body`, with a receipt."""
        return self.ask(command, {"id": self.ack_id(body), **headers})

    def ack_id(self, body: str) -> str:
        """The ack id of the last MESSAGE with `body`."""
        return [m.headers["ack"] for m in self.messages if m.body.decode() == body][-1]

    def die(self) -> None:
        """Let the socket die."""
        self.broker.drop(self.link, self.broker.now)


def holding(broker: FakeBroker, *bodies: str, mode: str = "client", **headers: str) -> Talk:
    """A client that was given `bodies` of `/queue/q`, none of them settled."""
    client = Talk(broker)
    client.put("/queue/q", *bodies)
    assert client.subscribe("/queue/q", ack=mode, **headers) == list(bodies)
    return client


def left(broker: FakeBroker, queue: str) -> list[str]:
    """What a new subscriber to `queue` gets, which then dies."""
    client = Talk(broker)
    found = client.subscribe(queue)
    client.die()
    return found


def _gist(answer: Frame) -> str:
    return answer.headers["message"] if answer.command == "ERROR" else answer.command
