"""
What each acknowledge mode does, as a table of five rows.

No other module asks which mode a session has; it asks what the mode does (`mode.does`). So another mode is a member of
`AcknowledgeMode` and a row of `MODES`. `jmsx/DESIGN.md` shows the table as a test prints it.

Source: jakarta.jms.Session; `ActiveMQSession.java:197,1843-1848`,
`ActiveMQMessageConsumer.java:312-318,944,1145-1172,1460-1470`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class AcknowledgeMode(IntEnum):
    """How a session acknowledges, chosen once, by mode alone."""

    SESSION_TRANSACTED = 0  #: receives and sends take effect together, at commit()
    AUTO_ACKNOWLEDGE = 1  #: after `receive()`, or when the listener has returned
    CLIENT_ACKNOWLEDGE = 2  #: `message.acknowledge()` covers everything the session has delivered
    DUPS_OK_ACKNOWLEDGE = 3  #: lazily; after a crash a topic's messages may come again
    INDIVIDUAL_ACKNOWLEDGE = 4  #: `message.acknowledge()` covers that message only

    @property
    def label(self) -> str:
        """The short name in metrics and events, such as `auto` or `transacted`."""
        return self.name.lower().removesuffix("_acknowledge").removeprefix("session_")

    @property
    def does(self) -> Mode:
        """What a session of this mode does."""
        return MODES[self]


class SettledBy(Enum):
    """What settles a message that was handed out."""

    RETURN = "`receive()` returns, or the listener has returned"
    CALL = "the application says so"
    COMMIT = "`commit()`"


class Covers(Enum):
    """What `message.acknowledge()` covers."""

    NOTHING = "nothing"
    MESSAGE = "this message"
    SESSION = "all that the session has handed out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """What a session of one mode does."""

    settled_by: SettledBy
    acknowledge_covers: Covers = Covers.NOTHING
    single_acks: bool = False  #: each message has an ACK frame of its own, always
    #: A message whose listener raises is redelivered by the policy; if not, it counts as delivered, and the application
    #: has to recover or roll back
    redelivers_raised: bool = True
    batches_topics: bool = False  #: on topics ACKs are batched, and nothing is rolled back
    may_optimize: bool = False  #: `optimize_acknowledge` batches ACKs
    #: The mode to use if a handler gets batches, so that only what it has done is settled; None: it can get none
    in_batches: AcknowledgeMode | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for a row by which messages get lost."""
        if self.acknowledges_itself and not (self.redelivers_raised or self.single_acks):
            raise ValueError("the next ACK would settle what a listener has raised on, too")

    @property
    def transacted(self) -> bool:
        """Whether what is received and sent takes effect at commit."""
        return self.settled_by is SettledBy.COMMIT

    @property
    def acknowledges_itself(self) -> bool:
        """Whether the session acknowledges without being told to."""
        return self.settled_by is SettledBy.RETURN


MODES: Final[Mapping[AcknowledgeMode, Mode]] = {
    AcknowledgeMode.AUTO_ACKNOWLEDGE: Mode(
        settled_by=SettledBy.RETURN,
        may_optimize=True,
        in_batches=AcknowledgeMode.INDIVIDUAL_ACKNOWLEDGE,
    ),
    AcknowledgeMode.DUPS_OK_ACKNOWLEDGE: Mode(settled_by=SettledBy.RETURN, batches_topics=True),
    AcknowledgeMode.CLIENT_ACKNOWLEDGE: Mode(
        settled_by=SettledBy.CALL, acknowledge_covers=Covers.SESSION, redelivers_raised=False
    ),
    AcknowledgeMode.INDIVIDUAL_ACKNOWLEDGE: Mode(
        settled_by=SettledBy.CALL,
        acknowledge_covers=Covers.MESSAGE,
        single_acks=True,
        in_batches=AcknowledgeMode.INDIVIDUAL_ACKNOWLEDGE,
    ),
    AcknowledgeMode.SESSION_TRANSACTED: Mode(
        settled_by=SettledBy.COMMIT,
        redelivers_raised=False,
        in_batches=AcknowledgeMode.SESSION_TRANSACTED,
    ),
}
