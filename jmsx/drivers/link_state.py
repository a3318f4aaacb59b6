"""
The states of a session's link, and what may happen in each: a table of transitions.

A session has one link after the other, and the table is about all of them. `jmsx/DESIGN.md` shows it as a test prints
it.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import TYPE_CHECKING, Final

from jmsx.errors import IllegalStateError

if TYPE_CHECKING:
    from collections.abc import Mapping


class LinkState(IntEnum):
    """The states of a session's link; numbers, as those of a delivery are."""

    UP = auto()  #: there is a link, as far as we know, with all consumers on it
    LEAVING = auto()  #: DISCONNECT was written: the broker may close, which is no loss
    OUTAGE = auto()  #: there is none, and it is being restored
    JOINING = auto()  #: there is another one, on which the consumers are being subscribed
    LOST = auto()  #: there will be none any more, and the connection has yet to be told
    GONE = auto()  #: there will be none any more
    ENDED = auto()  #: the session is closed, and has neither a link nor a thread any more
    FORKED = auto()  #: this is the child of a fork, and all of it is the parent's


class LinkInput(IntEnum):
    """What moves a session's link from state to state."""

    LOSE = auto()  #: it has ended, or the broker breaks STOMP, and another one is wanted
    DROP = auto()  #: jmsx drops the link, which is of no more use, and wants another one
    OPEN = auto()  #: another link is open
    RESTORE = auto()  #: all consumers are subscribed on it
    LEAVE = auto()  #: DISCONNECT is written
    GIVE_UP = auto()  #: there will be no other one: none is wanted or to be had, or for a fault
    TELL = auto()  #: the connection is told that there will be no link
    END = auto()  #: the session is closed
    FORK = auto()  #: the process has forked, and this is the child


# Needed whenever something comes or is sent, and so names of the module: see core/delivery_state.py.
LEAVING: Final = LinkState.LEAVING
OUTAGE: Final = LinkState.OUTAGE
LOST: Final = LinkState.LOST

#: There is a socket, as far as we know.
LINKED: Final = frozenset({LinkState.UP, LinkState.LEAVING, LinkState.JOINING})

#: There is a link with all consumers on it.
REACHABLE: Final = frozenset({LinkState.UP, LinkState.LEAVING})

#: There is no link with all consumers on it now, and whoever needs one waits.
RESTORING: Final = frozenset({LinkState.OUTAGE, LinkState.JOINING})

#: There will be no link any more.
FOR_GOOD: Final = frozenset({*LinkState} - REACHABLE - RESTORING)

#: There is no thread of the session any more, either.
CLOSED: Final = frozenset({LinkState.ENDED, LinkState.FORKED})


def _arrows() -> Mapping[tuple[LinkState, LinkInput], LinkState]:
    state, given = LinkState, LinkInput
    arrows = {
        (state.UP, given.LOSE): state.OUTAGE,
        (state.UP, given.DROP): state.OUTAGE,
        (state.UP, given.GIVE_UP): state.LOST,
        (state.UP, given.LEAVE): state.LEAVING,
        (state.LEAVING, given.LEAVE): state.LEAVING,
        (state.OUTAGE, given.OPEN): state.JOINING,
        (state.OUTAGE, given.GIVE_UP): state.LOST,
        (state.JOINING, given.LOSE): state.OUTAGE,
        (state.JOINING, given.DROP): state.OUTAGE,
        (state.JOINING, given.GIVE_UP): state.LOST,
        (state.JOINING, given.RESTORE): state.UP,
        (state.LOST, given.TELL): state.GONE,
    }
    for one in (given.LOSE, given.DROP, given.GIVE_UP):
        arrows[state.LEAVING, one] = state.GONE
    for each in FOR_GOOD:
        arrows[each, given.GIVE_UP] = each
    for each in {*LinkState} - {state.FORKED}:
        arrows[each, given.END] = state.ENDED
    # A fork may come in the middle of either, in what these call.
    for one in (given.GIVE_UP, given.END):
        arrows[state.FORKED, one] = state.FORKED
    for each in LinkState:
        arrows[each, given.FORK] = state.FORKED
    return arrows


ARROWS: Final = _arrows()


def next_state(state: LinkState, given: LinkInput) -> LinkState:
    """Return the state after `given`; raises IllegalStateError where that may not happen."""
    following = ARROWS.get((state, given))
    if following is None:
        raise IllegalStateError(f"cannot {given.name} a link that is {state.name}")
    return following
