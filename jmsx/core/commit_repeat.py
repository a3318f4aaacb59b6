"""
Repeats a commit that the broker refused because it has a part of it already, or that it did not answer.

Where ACKs take no part in transactions, a message can come again although what was sent for it is committed: the crash
was between COMMIT and ACK. What is sent for it now carries the identities of the first time, so Artemis refuses the
whole COMMIT, does not say why, and closes the connection (BROKER.md A34). Then everything is sent once more on the next
link, one by one: the broker drops what it has and takes what it has not, and what was received is acknowledged.

With `commit_markers` a COMMIT whose answer was lost with its link is repeated in the same way, whatever became of it.

That is only safe while this session holds what was received: another consumer that has it may have sent the same in a
transaction that is still open, and the broker, which looks for identities when a SEND comes in, would take both
(BROKER.md A69). So the commit is repeated when all that it received has come again to this session, which does not hand
it out meanwhile. If it does not come in time, somebody else has it, and the commit is in doubt; if it comes to this
session later, what is sent for it then is sent singly at once, because another COMMIT would be refused like the first.

Two waiting sessions could each be sent what the other one waits for, and neither would hand it out or give it back. So
until the commit has ended, a session is subscribed only to what it waits for.

A barrier goes before the first of the SENDs (journal_barrier.py): the broker may still be writing another commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from jmsx.core.commit_ways import Commit
from jmsx.core.consumer import ConsumerCore
from jmsx.core.delivery import Delivery
from jmsx.core.dialect import Dialect
from jmsx.core.frames import Frame, Outbox
from jmsx.core.journal_barrier import journal_barrier
from jmsx.core.lost_deliveries import LIMIT
from jmsx.core.requests import Continuation, Requests, silent, unanswered
from jmsx.core.transaction import Transaction, TxSend
from jmsx.core.two_steps import TwoSteps
from jmsx.core.values import DestinationKind
from jmsx.errors import (
    BrokerFaultError,
    BrokerTimeoutError,
    ConnectionFailedError,
    JmsxError,
    LinkError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


#: Seconds that a link is given to bring again what was received: Artemis may keep it for 10 s (BROKER.md A70).
PATIENCE: Final = 12.0

#: Seconds between two looks at whether another session of the process has got it.
LOOK: Final = 0.5


@dataclass(slots=True)
class _Repeat:
    """A commit that is repeated."""

    commit: Commit
    sends: Sequence[TxSend]  #: what is sent again; never empty
    refused: bool  #: it, or an older commit with its inputs; if not, its answer is lost
    held: bool = False  #: what it received is still held on the link that it came on
    begun: bool = False  #: its SENDs were written singly, on whatever link
    until: float | None = None  #: it waits until then for what it received; None: it does not
    look_at: float = 0.0  #: when it is next looked whether that can come to this session at all


class CommitRepeats:
    """Repeats the commits of one session; one at a time, as it commits."""

    def __init__(
        self,
        dialect: Dialect,
        requests: Requests,
        outbox: Outbox,
        consumers: Iterable[ConsumerCore],
        *,
        two_steps: TwoSteps,
        clears_up: bool,
        anywhere: bool,
    ) -> None:
        """
        `two_steps` ends what is repeated well. `clears_up`: commits whose answer is lost are repeated, too; `anywhere`:
        also on another broker.
        """
        self._dialect = dialect
        self._requests = requests
        self._outbox = outbox
        self._consumers = consumers  #: all of the session's
        self._two_steps = two_steps
        self._clears_up = clears_up
        self._anywhere = anywhere
        self._repeat: _Repeat | None = None
        #: Inputs of commits that were refused, and to be repeated, and that did not come again in time
        self._perhaps_sent: set[int] = set()

    @property
    def in_doubt(self) -> bool:
        """Whether a commit has lost its link, and is repeated on the next one."""
        repeat = self._current
        return repeat is not None and not repeat.held

    @property
    def _current(self) -> _Repeat | None:
        """The commit to repeat; None also once its caller was told that it is in doubt: then it is not repeated."""
        repeat = self._repeat
        return None if repeat is None or repeat.commit.whole.done else repeat

    def take(self, commit: Commit, error: JmsxError) -> bool:
        """
        Return whether a commit that ended with `error` is repeated on the next link, message by message.

        That is so if the broker failed at it without a cause, and at none of its SENDs, perhaps because something that
        it received was received once before; or if its answer is lost. Sends that the broker refuses together are not
        repeated, because sent singly some of them would be taken.
        """
        sends = list(commit.transaction.sends)
        failed = isinstance(error, BrokerFaultError)
        lost = isinstance(error, LinkError) and self._clears_up
        spoilt = commit.transaction.rollback_only is not None
        if commit.whole.done or spoilt or not (commit.batches and (failed or lost)):
            return False
        if not self._recognised(sends):
            return False
        self._repeat = _Repeat(commit, sends, refused=failed)
        if failed:
            self._outbox.disconnect(
                f"{commit.broker} did not commit {commit.whole.subject}: {error}"
            )
        return True

    def would_be_refused(self, commit: Commit) -> bool:
        """Return whether `commit` would fail, as an older one with one of its inputs has, and can be repeated."""
        if not self._perhaps_sent or self._perhaps_sent.isdisjoint(self._inputs(commit)):
            return False
        return self._recognised(commit.transaction.sends)

    def commit(self, commit: Commit) -> None:
        """Commit at once, message by message, a commit that `would_be_refused` as a whole; all its inputs are here."""
        self._perhaps_sent.difference_update(self._inputs(commit))
        self._repeat = _Repeat(commit, list(commit.transaction.sends), refused=True, held=True)
        self._outbox.transmit(Frame("ABORT", {"transaction": Transaction.WIRE_NAME}))
        self._send_again(self._repeat)

    def lost(self) -> None:
        """Note that the link is gone; what the commit received has to come again on the next one."""
        if self._repeat is not None:
            self._repeat.held, self._repeat.until = False, None

    def resume(
        self, broker: str, now: float, subscribe: Callable[[float, Sequence[Delivery]], None]
    ) -> bool:
        """
        Go on, on a new link to `broker`.

        Returns whether a journal barrier comes first (journal_barrier.py); then nothing else may be written until this
        runs `subscribe` with the time and with what the commit received. The barrier may be refused, which ends the
        link; and a consumer that Artemis makes while it closes a connection is there for ever, and holds messages for
        nobody (measured on 2.44.0).
        """
        repeat = self._current
        if repeat is None:
            return False
        if repeat.commit.broker != broker and not self._anywhere:
            before = repeat.commit.broker
            text = (
                f"{broker}, to which the session goes now, cannot know what {before} has, unless it has taken"
                " over from it, as resend_unconfirmed=True says"
            )
            self._end(repeat, now, ConnectionFailedError(text))
            return False

        def passed(now: float, error: JmsxError | None) -> JmsxError | None:
            if error is not None:
                return self._answered(repeat, now, error)
            repeat.until, repeat.look_at = now + PATIENCE, now + LOOK
            awaited = [] if self._current is None else repeat.commit.batches
            subscribe(now, [each for _, batch in awaited for each in batch])
            return None

        self._rehearse(repeat, passed)
        return True

    def received(self) -> None:
        """Repeat the commit that waits for what it received, if all of that has come again to this session."""
        repeat = self._current
        if repeat is not None and repeat.until is not None and self._has_inputs(repeat):
            self._send_again(repeat)

    def next_timer(self) -> float | None:
        """Return when `handle_timer` is next due (seconds, monotonic), or None."""
        repeat = self._current
        if repeat is None or repeat.until is None:
            return None
        return min(repeat.until, repeat.look_at)

    def handle_timer(self, now: float) -> None:
        """Stop waiting for what a commit has received when its time is over, or another session has got it."""
        repeat = self._current
        if repeat is None or repeat.until is None or now < min(repeat.until, repeat.look_at):
            return
        broker = repeat.commit.broker
        if self._went_elsewhere(repeat):
            where = ": another session of this process has got it"
        elif now >= repeat.until:
            where = f" in {PATIENCE:g} s: somebody else has it"
        else:
            repeat.look_at = now + LOOK
            return
        failed = f"{broker} has refused it, perhaps because it has a part of it from before"
        text = (
            f"{failed if repeat.refused else f'{broker} did not answer it'}, and what it received has not"
            f" come again to this session{where}"
        )
        if len(self._perhaps_sent) > LIMIT:
            self._perhaps_sent.clear()
        if repeat.refused:
            self._perhaps_sent.update(self._inputs(repeat.commit))
        self._end(repeat, now, BrokerTimeoutError(text))
        repeat.commit.then(now)

    def give_up(self, now: float, gone: JmsxError) -> None:
        """End the commit with the error `gone`: there will be no other link."""
        if self._repeat is not None:
            self._end(self._repeat, now, gone)

    # Inside ----------------------------------------------------------------------------------------------------------

    def _inputs(self, commit: Commit) -> set[int]:
        """Return the keys of what it received, in the memory of the process."""
        return {one.memory.key(each) for one, batch in commit.batches for each in batch}

    def _recognised(self, sends: Sequence[TxSend]) -> bool:
        """Return whether the broker recognises each of `sends` when it is sent again."""
        names = self._dialect.output_headers("").keys()
        return bool(names) and all(names <= sent.frame.headers.keys() for sent in sends)

    def _has_inputs(self, repeat: _Repeat) -> bool:
        """Return whether all that it received waits here again, save messages that no other session can get."""
        here = {one.memory.key(each) for one in self._consumers for each in one.waiting}
        return all(
            consumer.settings.kind is DestinationKind.TOPIC
            or all(consumer.memory.key(each) in here for each in batch)
            for consumer, batch in repeat.commit.batches
        )

    def _went_elsewhere(self, repeat: _Repeat) -> bool:
        """Return whether another session of the process was handed some of what it received."""
        batches = repeat.commit.batches
        return any(
            one.memory.was_handed_out_again(each) for one, batch in batches for each in batch
        )

    def _rehearse(self, repeat: _Repeat, passed: Continuation) -> None:
        """Run `passed` when the broker knows what it has of the commit, by a journal barrier."""
        request = self._requests.open("SEND", repeat.commit.whole.subject, passed)
        self._outbox.transmit(*journal_barrier(repeat.sends[0].frame, request.receipt_id))

    def _send_again(self, repeat: _Repeat) -> None:
        """Send everything again, as soon as the broker knows what it has of it; call it where all inputs are held."""
        repeat.until = None

        def passed(now: float, error: JmsxError | None) -> JmsxError | None:
            if error is not None or self._current is not repeat:  # already told in doubt
                return self._answered(repeat, now, error)
            repeat.begun = True
            # outside any transaction, in their order; the receipt of the last one confirms them all
            *others, last = [one.frame for one in repeat.sends]
            request = self._requests.open("SEND", repeat.commit.whole.subject, sent)
            receipt = {"receipt": request.receipt_id}
            self._outbox.transmit(*others, Frame("SEND", {**last.headers, **receipt}, last.body))
            return None

        def sent(now: float, error: JmsxError | None) -> JmsxError | None:
            return self._answered(repeat, now, error)

        self._rehearse(repeat, passed)

    def _answered(self, repeat: _Repeat, now: float, error: JmsxError | None) -> JmsxError | None:
        """
        End a commit that is repeated, unless its link is lost: the next one, if there is one, tries again.

        What the broker refuses now tells nothing of a COMMIT that it did not answer, nor of what was sent singly.
        """
        if error is not None and repeat.begun and not silent(error):
            error = BrokerFaultError(f"a part of it may be sent: {error}")
        elif error is not None and not (repeat.refused or unanswered(error)):
            error = BrokerFaultError(
                f"nobody knows of its COMMIT, and it cannot be repeated: {error}"
            )
        complaint = repeat.commit.transaction.rollback_only
        if error is None and complaint is not None:
            error = BrokerFaultError(f"a part of it may be sent: {complaint}")
        lost = error is not None and silent(error) and complaint is None
        if self._current is repeat and not lost:
            self._end(repeat, now, error)
        return error

    def _end(self, repeat: _Repeat, now: float, error: JmsxError | None) -> None:
        self._repeat = None
        if error is not None:
            repeat.commit.whole.end(now, error)
        elif repeat.held:
            self._two_steps.acknowledge(repeat.commit, now)
        else:
            self._two_steps.owe(repeat.commit, now)
