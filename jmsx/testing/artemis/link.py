"""
One connection of an Artemis broker, and what STOMP keeps per connection.

Source: artemis-stomp-protocol 2.44.0 StompConnection and StompSession.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jmsx.core.frames import Frame
from jmsx.testing.artemis import commands
from jmsx.testing.artemis.faults import Refused
from jmsx.testing.artemis.frames import END_OF_FRAME, encoded_size, to_message_frame
from jmsx.testing.artemis.settings import Loss
from jmsx.testing.fake_link import FakeLink
from jmsx.testing.faults import ProtocolFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx.testing.artemis.consumer import ArtemisConsumer
    from jmsx.testing.artemis.house import ArtemisHouse
    from jmsx.testing.artemis.line import Reference
    from jmsx.testing.artemis.transaction import ArtemisTransaction
    from jmsx.testing.fake_broker import FakeBroker
    from jmsx.testing.faults import Fault

#: Commands whose ERROR does not say which receipt it stands for.
_NEVER_ANSWERED = frozenset({"SUBSCRIBE"})


class ArtemisLink(FakeLink):
    """One connection."""

    end_of_frame = END_OF_FRAME

    def __init__(self, broker: FakeBroker, house: ArtemisHouse, connection_id: str) -> None:
        super().__init__(broker, connection_id)
        self.house = house
        self.connected = False
        self.heart_beat = (0, round(house.manners.connection_ttl * 1000))
        self.consumers: dict[int, ArtemisConsumer] = {}  #: by number, oldest first
        self.transactions: dict[str, ArtemisTransaction] = {}  #: all that were ever named here
        self.sizes: dict[
            tuple[int, int], int
        ] = {}  #: consumer and message that an ACK may name, and its bytes

    def _execute(self, frame: Frame) -> None:
        commands.execute(self, frame)

    def ask_broker(self, frame: Frame, work: Callable[[], None]) -> None:
        """Do `work` for `frame`, with the faults that a test has planned."""
        planned = self.broker.faults.take(frame.command, self)
        if planned is not None:
            planned.before()
        work()
        if planned is not None:
            planned.after()

    def acknowledge_frame(self, frame: Frame) -> None:
        """Answer `frame` with a RECEIPT, if it wants one."""
        if "receipt" in frame.headers:
            self.write(Frame("RECEIPT", {"receipt-id": frame.headers["receipt"]}))

    def _refuse(self, fault: Fault, frame: Frame) -> None:
        """In STOMP 1.2 every ERROR is the end."""
        refused = fault if isinstance(fault, Refused) else Refused(fault.message)
        headers = {"message": refused.message, **refused.headers}
        body = b""
        if refused.body is not None:
            body = refused.body.encode()
            headers["content-type"] = "text/plain"
        is_answer = refused.answers and frame.command not in _NEVER_ANSWERED
        if is_answer and "receipt" in frame.headers:
            headers["receipt-id"] = frame.headers["receipt"]
        if body and self.version != "1.0":
            headers["content-length"] = str(len(body))
        self.write(Frame("ERROR", headers, body))
        is_garbage = isinstance(fault, ProtocolFault) and fault.fatal
        if self.version == "1.2" or refused.fatal or is_garbage:
            self.close()

    def deliver(self, consumer: ArtemisConsumer, reference: Reference) -> int:
        """Write a MESSAGE and return its bytes; in mode `auto` it is acknowledged at once."""
        message, terms = reference.message, consumer.terms
        is_auto = terms.mode == "auto"
        frame = to_message_frame(
            message,
            version=self.version,
            subscription=terms.subscription_id,
            handle=f"{consumer.number},{message.message_id}",
            redelivered=reference.delivery_count > 1,
            acknowledged=not is_auto,
        )
        size = encoded_size(frame)
        if is_auto:
            self.broker.later(lambda: self._acknowledge_by_itself(consumer, message.message_id))
        else:
            self.sizes[consumer.number, message.message_id] = size
        self.write(frame)
        return size

    def _acknowledge_by_itself(self, consumer: ArtemisConsumer, message_id: int) -> None:
        if message_id in consumer.delivering:
            consumer.acknowledge(message_id)

    # -- the end --------------------------------------------------------------------------------

    def close(self) -> None:
        """End the connection as DISCONNECT and every ERROR of STOMP 1.2 do."""
        self._end(lambda consumer: consumer.roll_back())

    def lose(self) -> None:
        """
        The socket is dead.

        In STOMP 1.2 the broker still writes an ERROR there, whose own end of the connection may come first.
        """
        if self.version == "1.2" and self.house.manners.loss is Loss.OLDEST:
            self.close()
        else:
            self._end(lambda consumer: consumer.fail())

    def silent(self) -> None:
        """Nothing came for the time to live: an ERROR, and then as if the socket were dead."""
        _, patience = self.heart_beat
        text = (
            f"AMQ229014: Did not receive data from 127.0.0.1:1 within the {patience}ms connection TTL."
            " The connection will now be closed."
        )
        self.write(Frame("ERROR", {"message": text}))
        self.lose()

    def _end(self, end: Callable[[ArtemisConsumer], None]) -> None:
        """Transactions that are open leave nothing; queues that were made for a subscription go with it."""
        if self.closed:
            return
        self.closed = True
        for consumer in list(self.consumers.values()):
            end(consumer)
            if consumer.queue.temporary:
                self.house.delete_queue(consumer.queue)
        self.consumers.clear()
        self.broker.forget(self)
