"""
The transaction of a session: its states as data, and what was done in it.

Source of the states: JMS 3.1 section 6.2.7, `TransactionContext.java:226-346`. On the wire a transaction begins late:
at the first SEND, or when an ACK must open the prefetch window before the commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from hashlib import blake2b
from typing import Final

from jmsx.core.delivery import Delivery
from jmsx.core.dialect import Dialect
from jmsx.core.frames import Frame
from jmsx.core.identity import identify
from jmsx.errors import IllegalStateError

#: What an error says of a transaction that was rolled back.
ALL_AGAIN: Final = "what was received comes again: do all of it once more"


class TxState(Enum):
    """The states of a transaction."""

    IDLE = auto()  #: nothing on the wire
    ACTIVE = auto()  #: BEGIN was written
    COMMITTING = auto()  #: COMMIT was written, its receipt is awaited


class TxInput(Enum):
    """The inputs that move a transaction from state to state."""

    BEGIN = auto()
    COMMIT = auto()
    RECEIPT = auto()
    REFUSED = auto()  #: the broker answered COMMIT with ERROR
    ABORT = auto()
    LOST = auto()  #: the link is gone


# Needed for each message, and so names of the module: see core/delivery_state.py.
ACTIVE: Final = TxState.ACTIVE
COMMITTING: Final = TxState.COMMITTING

_NEXT: Final = {
    (TxState.IDLE, TxInput.BEGIN): TxState.ACTIVE,
    (TxState.IDLE, TxInput.COMMIT): TxState.COMMITTING,  # one plain ACK is a transaction of its own
    (TxState.IDLE, TxInput.ABORT): TxState.IDLE,
    (TxState.IDLE, TxInput.LOST): TxState.IDLE,
    (TxState.ACTIVE, TxInput.COMMIT): TxState.COMMITTING,
    (TxState.ACTIVE, TxInput.ABORT): TxState.IDLE,
    (TxState.ACTIVE, TxInput.LOST): TxState.IDLE,
    (TxState.COMMITTING, TxInput.RECEIPT): TxState.IDLE,
    (TxState.COMMITTING, TxInput.REFUSED): TxState.IDLE,
    (TxState.COMMITTING, TxInput.LOST): TxState.IDLE,
}


def next_state(state: TxState, given: TxInput) -> TxState:
    """Return the state after `given`; raises IllegalStateError where that may not happen."""
    if (state, given) not in _NEXT:
        raise IllegalStateError(f"cannot {given.name} a transaction that is {state.name}")
    return _NEXT[state, given]


@dataclass(frozen=True, slots=True)
class TxSend:
    """A message that is sent, in a transaction or outside, with what its event will report."""

    destination: str
    message_key: str
    frame: Frame  #: without transaction and receipt
    at: float
    cause_key: str | None = None  #: key of the message whose listener sends it

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return len(self.frame.body)


class Transaction:
    """The transaction of one session on one link; when one ends, the next begins."""

    #: The name on the wire, reused: Artemis keeps a broker session for each distinct name (BROKER.md A36).
    WIRE_NAME: Final = "jmsx"

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._count = 1
        self.state = TxState.IDLE
        self.sends: list[TxSend] = []
        #: Those of `sends` that are not written yet, because they wait for a journal barrier (journal_barrier.py)
        self.unwritten: list[TxSend] = []
        self.rollback_only: str | None = None  #: why it can only be rolled back
        self.started_at: float | None = None  #: at its first delivery or send; monotonic
        self.sent = False  #: its sends are committed, and its ACKs are awaited
        #: A message received in it was delivered before, so an older commit may have sent what it sends next.
        self.repeats = False
        #: Messages handed out since the last send, each with its queue or subscription
        self._inputs: list[tuple[str, Delivery]] = []
        self._origin = ""  #: the name made of these inputs, once something is sent
        self._outputs = 0  #: messages sent since these inputs
        #: `_inputs`, `_origin` and `_outputs` as they were before the first of these inputs
        self._before: tuple[list[tuple[str, Delivery]], str, int] = ([], "", 0)

    @property
    def transaction_id(self) -> str:
        """A name that is unique over the life of the session, for people and events."""
        return f"{self._session_id}:{self._count}"

    @property
    def begun(self) -> bool:
        """Whether BEGIN is on the wire."""
        return self.state is ACTIVE

    def touch(self, now: float) -> None:
        """Note that something was delivered or sent in the transaction."""
        if self.started_at is None:
            self.started_at = now

    def take(self, origin: str, delivery: Delivery) -> None:
        """Note that a message of the queue or subscription `origin` was handed out in the transaction."""
        if self._outputs:
            self._before = self._inputs, self._origin, self._outputs
            self._inputs, self._outputs = [], 0
        self._inputs.append((origin, delivery))
        self.repeats = self.repeats or delivery.history.flagged or delivery.history.lost is not None

    def take_back(self, delivery: Delivery) -> None:
        """Note that the message handed out last was not returned to the application, which so sends nothing for it."""
        if self._outputs or not self._inputs or self._inputs[-1][1] is not delivery:
            return
        self._inputs.pop()
        if not self._inputs:
            self._inputs, self._origin, self._outputs = self._before
            self._before = [], "", 0

    def next_output(self, dialect: Dialect, *, of_none: bool) -> str | None:
        """
        Return an identity for the next send, which is the same when its input is delivered again.

        Its input is what was handed out since the last send. The identity consists of the broker's identity of that
        message and a count, because an application that gets the message again, among whatever others, will send the
        same again. If the input is several messages, such as a batch, nobody knows for which of them the application
        sends. Then the identity covers all of them, and is another one if they do not come together again: the output
        may be sent twice then, but is never dropped as a duplicate of another output. A send without input gets None
        or, if `of_none`, an identity that only this transaction can repeat.
        """
        if self._inputs:
            if not self._outputs:
                self._origin = self._name_inputs(dialect)
            origin = self._origin
        elif of_none:
            origin = self.transaction_id
        else:
            return None
        self._outputs += 1
        return f"{origin}:{self._outputs}"

    def _name_inputs(self, dialect: Dialect) -> str:
        """Return a name for what was handed out since the last send; it is made once, for a batch may be long."""
        names = []
        for source, delivery in self._inputs:
            known = identify(delivery, dialect.reading)
            names.append(f"{source}:{known.copy}:{known.key}")
        if len(names) == 1:
            return names[0]
        together = blake2b("\0".join(names).encode("utf-8", "replace"), digest_size=16)
        return f"{len(names)}:{together.hexdigest()}"

    def step(self, given: TxInput) -> None:
        """Go to the next state; at the end of a transaction the next one starts clean."""
        self.state = next_state(self.state, given)
        if self.state is TxState.IDLE:
            self._count += 1
            self.sends, self.unwritten = [], []
            self.rollback_only = None
            self.started_at = None
            self.sent = False
            self.repeats = False
            self._inputs, self._origin, self._outputs = [], "", 0
            self._before = [], "", 0
