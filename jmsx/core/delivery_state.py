"""
The states of a delivery, and what may happen in each: a table of transitions.

No state says that the link is lost: the epoch of the delivery does. `jmsx/DESIGN.md` shows the table as a test prints
it.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import TYPE_CHECKING, Final

from jmsx.errors import IllegalStateError

if TYPE_CHECKING:
    from collections.abc import Mapping


class DeliveryState(IntEnum):
    """The states of a delivery; numbers, because a look-up by them is quicker."""

    WAITING = auto()  #: to be handed out, for the first time or again
    HELD = auto()  #: the application has it
    OWED = auto()  #: the application is done with it, and its ACK is put off
    RESTING = auto()  #: it failed, and waits for its time while others go on
    COMMITTING = auto()  #: in a commit that is not answered
    LEAVING = auto()  #: a copy is on its way to the broker's scheduler
    DYING = auto()  #: on its way to a dead letter queue
    ACKING = auto()  #: its ACK is being written
    SETTLED = auto()  #: its ACK is written
    COPIED = auto()  #: copied, processed, discarded or expired: only its ACK is owed
    CLOSING = auto()  #: the ACK of a COPIED message is being written
    GONE = auto()  #: nothing more happens to it


class DeliveryInput(IntEnum):
    """What moves a delivery from state to state."""

    HAND_OUT = auto()  #: the application gets it
    #: the application did not get it after all, or could not handle it, or it could not be sent back
    TAKE_BACK = auto()
    CONSUME = auto()  #: the application is done with it
    FAIL = auto()  #: it is delivered again, in front of what came later
    REST = auto()  #: it is delivered again, when its time has come
    DUE = auto()  #: the time of its redelivery has come
    COMMIT = auto()  #: a COMMIT covers it
    SETTLE = auto()  #: the broker has confirmed a transaction with its ACK
    SEND_BACK = auto()  #: a copy goes to the broker's scheduler
    DEAD_LETTER = auto()  #: a NACK, or a copy, goes to the broker
    MOVED = auto()  #: the broker has moved it
    KEEP = auto()  #: it stays with the broker, because nothing came of its copy
    COPY = auto()  #: the broker has its copy, or nobody needs one
    ACK = auto()  #: an ACK is made
    ACKED = auto()  #: the ACK is written


# What each message goes through, under names of the module: Python 3.11 takes as long to look up a member of an
# enumeration as to call a function, and there would be half a dozen for a message.

WAITING: Final = DeliveryState.WAITING
COPIED: Final = DeliveryState.COPIED
HAND_OUT: Final = DeliveryInput.HAND_OUT
CONSUME: Final = DeliveryInput.CONSUME
COMMIT: Final = DeliveryInput.COMMIT
SETTLE: Final = DeliveryInput.SETTLE
ACK: Final = DeliveryInput.ACK
ACKED: Final = DeliveryInput.ACKED

#: The application may settle these one by one: they are neither acknowledged nor on their way elsewhere.
TO_SETTLE: Final = frozenset({DeliveryState.HELD, DeliveryState.WAITING, DeliveryState.RESTING})


def _arrows() -> Mapping[tuple[DeliveryState, DeliveryInput], DeliveryState]:
    state, given = DeliveryState, DeliveryInput
    arrows = {
        (state.WAITING, given.HAND_OUT): state.HELD,
        (state.WAITING, given.TAKE_BACK): state.WAITING,
        (state.HELD, given.TAKE_BACK): state.WAITING,
        (state.OWED, given.TAKE_BACK): state.WAITING,
        (state.LEAVING, given.TAKE_BACK): state.WAITING,
        (state.ACKING, given.TAKE_BACK): state.ACKING,
        (state.HELD, given.CONSUME): state.OWED,
        (state.HELD, given.FAIL): state.WAITING,
        (state.HELD, given.REST): state.RESTING,
        (state.RESTING, given.DUE): state.WAITING,
        (state.HELD, given.COMMIT): state.COMMITTING,
        (state.COMMITTING, given.SETTLE): state.SETTLED,
        (state.COPIED, given.SETTLE): state.GONE,
        (state.HELD, given.SEND_BACK): state.LEAVING,
        (state.LEAVING, given.COPY): state.COPIED,
        (state.HELD, given.DEAD_LETTER): state.DYING,
        (state.DYING, given.MOVED): state.GONE,
        (state.DYING, given.KEEP): state.GONE,
        (state.DYING, given.COPY): state.COPIED,
        (state.HELD, given.COPY): state.COPIED,
        (state.WAITING, given.COPY): state.COPIED,
        (state.COPIED, given.ACK): state.CLOSING,
        (state.CLOSING, given.ACKED): state.GONE,
        (state.ACKING, given.ACK): state.ACKING,
        (state.ACKING, given.ACKED): state.SETTLED,
    }
    for each in (state.WAITING, state.HELD, state.OWED, state.RESTING):
        arrows[each, given.ACK] = state.ACKING
    # An acknowledged message may be handed out once more, and be acknowledged, or sent back, with others; but in no
    # transaction, and it owes no second ACK. It stays SETTLED.
    again = (given.HAND_OUT, given.TAKE_BACK, given.FAIL, given.REST, given.DUE)
    moved = (given.DEAD_LETTER, given.MOVED, given.KEEP, given.COPY)
    for one in (*again, *moved, given.SETTLE, given.ACK, given.ACKED):
        arrows[state.SETTLED, one] = state.SETTLED
    # A COPIED message waits among those whose cumulative ACK settles it, too; it never rests.
    for one in (given.TAKE_BACK, given.FAIL, given.COMMIT, given.COPY):
        arrows[state.COPIED, one] = state.COPIED
    return arrows


ARROWS: Final = _arrows()

#: Nobody gets these any more, as long as their link lives, whatever becomes of their ACK.
ENDED: Final = frozenset({DeliveryState.COPIED, DeliveryState.CLOSING, DeliveryState.GONE})

#: Of these the ACK is written, or is just being written.
ACKNOWLEDGED: Final = frozenset({DeliveryState.ACKING, DeliveryState.SETTLED})


def next_state(state: DeliveryState, given: DeliveryInput) -> DeliveryState:
    """Return the state after `given`; raises IllegalStateError where that may not happen."""
    following = ARROWS.get((state, given))
    if following is None:
        raise IllegalStateError(f"cannot {given.name} a delivery that is {state.name}")
    return following
