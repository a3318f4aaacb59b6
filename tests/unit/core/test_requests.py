"""Questions to the broker: each is answered once, well or badly."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from jmsx.core.frames import Outbox, Transmit
from jmsx.core.requests import Request, Requests, answered, silent, subscribe, unanswered
from jmsx.errors import (
    BrokerError,
    BrokerFaultError,
    BrokerTimeoutError,
    ConnectionFailedError,
    JmsxError,
    LinkError,
)
from tests.unit.core.harness import LINK_ERRORS

if TYPE_CHECKING:
    from jmsx.core.requests import Continuation


def noted(calls: list[tuple[float, JmsxError | None]], better: JmsxError | None) -> Continuation:
    """A continuation that notes what it was told and answers `better`."""

    def then(now: float, error: JmsxError | None) -> JmsxError | None:
        calls.append((now, error))
        return better

    return then


def test_receipt_ids_are_never_used_twice() -> None:
    """Also not after an answer."""
    requests = Requests("s1")
    first = requests.open("SEND", "queue://a")
    requests.answer(first.receipt_id, 1.0)
    second = requests.open("SEND", "queue://a")
    assert (first.receipt_id, second.receipt_id) == ("s1-1", "s1-2")


def test_request_is_done_when_answered() -> None:
    """A receipt ends the one request that asked for it."""
    requests = Requests("s")
    one, other = requests.open("SEND", "a"), requests.open("SEND", "b")
    assert requests.answer(one.receipt_id, 1.0)
    assert (one.done, one.error) == (True, None)
    assert (other.done, len(requests)) == (False, 1)
    assert not requests.answer(one.receipt_id, 1.0)
    assert not requests.answer("never asked", 1.0)


def test_a_request_that_is_done_keeps_nothing() -> None:
    """Sessions keep their last commit; what that had received may be large."""

    def then(_now: float, error: JmsxError | None) -> JmsxError | None:
        return error

    known = weakref.ref(then)
    request = Request("COMMIT", "t", then=then)
    del then
    request.end(1.0)
    gc.collect()
    assert request.done
    assert known() is None


def test_continuation_is_told_and_may_put_a_better_error() -> None:
    """What the caller sees is what the continuation makes of it."""
    calls: list[tuple[float, JmsxError | None]] = []
    given, better = BrokerError("no"), BrokerError("no, because")
    requests = Requests("s")
    request = requests.open("COMMIT", "t", noted(calls, better))
    requests.answer(request.receipt_id, 2.5, given)
    assert calls == [(2.5, given)]
    assert request.error is better


def test_end_counts_once() -> None:
    """A late answer changes nothing."""
    calls: list[tuple[float, JmsxError | None]] = []
    request = Request("COMMIT", "t", "r", noted(calls, None))
    request.end(1.0)
    request.end(2.0, BrokerError("late"))
    assert calls == [(1.0, None)]
    assert request.error is None


def test_lost_link_answers_all_that_is_open() -> None:
    """Each gets an error of its own; what a continuation asks anew stays open."""
    requests = Requests("s")

    def ask_again(_now: float, error: JmsxError | None) -> JmsxError | None:
        requests.open("SEND", "again")
        return error

    one = requests.open("SEND", "a", ask_again)
    other = requests.open("COMMIT", "t")
    requests.fail_all(3.0, lambda request: ConnectionFailedError(request.subject))
    assert (str(one.error), str(other.error)) == ("a", "t")
    assert (one.done, other.done, len(requests)) == (True, True, 1)


def test_abandoned_request_is_unknown() -> None:
    """Its late receipt is nobody's."""
    requests = Requests("s")
    request = requests.open("SEND", "a")
    assert requests.peek(request.receipt_id) is request
    requests.abandon(request)
    requests.abandon(request)
    assert requests.peek(request.receipt_id) is None
    assert not requests.answer(request.receipt_id, 1.0)
    assert not request.done


def test_nothing_is_peeked_without_an_id() -> None:
    """An ERROR without receipt-id answers no request."""
    requests = Requests("s")
    requests.open("SEND", "a")
    assert requests.peek(None) is None


def test_request_that_needs_no_broker_is_done() -> None:
    """Well, or with the error that it was given."""
    error = BrokerError("no")
    assert (answered("COMMIT", "t").done, answered("COMMIT", "t").error) == (True, None)
    assert (answered("COMMIT", "t", error).done, answered("COMMIT", "t", error).error) == (
        True,
        error,
    )


def tried() -> tuple[Request, Requests, Outbox]:
    """A SUBSCRIBE that is tried first."""
    requests, outbox = Requests("s"), Outbox()
    request = requests.open("SUBSCRIBE", "queue://a.*")
    subscribe({"id": "1", "selector": "x"}, request, requests, outbox, trial={"selector": "x"})
    return request, requests, outbox


def written(outbox: Outbox) -> list[str]:
    """Command, id or transaction, and receipt of each frame."""
    names = ("id", "transaction", "receipt")
    return [
        " ".join([frame.command, *(frame.headers[name] for name in names if name in frame.headers)])
        for action in outbox.take()
        if isinstance(action, Transmit)
        for frame in action.frames
    ]


def test_a_trial_is_over_before_the_subscription_begins() -> None:
    """Which is answered by a barrier behind it."""
    request, requests, outbox = tried()
    assert written(outbox) == ["SUBSCRIBE trial-1 s-2"]
    requests.answer("s-2", 1.0)
    barrier = ["BEGIN jmsx-barrier", "ABORT jmsx-barrier s-1"]
    assert written(outbox) == ["UNSUBSCRIBE trial-1", "SUBSCRIBE 1", *barrier]
    assert not request.done
    requests.answer("s-1", 2.0)
    assert (request.done, request.error, len(requests)) == (True, None, 0)


def test_what_is_refused_to_a_trial_is_refused() -> None:
    """And not asked for."""
    request, requests, outbox = tried()
    written(outbox)
    error = BrokerError("no")
    requests.answer("s-2", 1.0, error)
    assert (request.done, request.error) == (True, error)
    assert (written(outbox), len(requests)) == ([], 0)


def test_a_trial_whose_caller_has_gone_leaves_nothing() -> None:
    """Nor does one whose link is lost."""
    request, requests, outbox = tried()
    written(outbox)
    requests.abandon(request)
    request.end(1.0, BrokerError("late"))
    requests.answer("s-2", 1.0)
    assert written(outbox) == ["UNSUBSCRIBE trial-1"]
    request, requests, outbox = tried()
    written(outbox)
    requests.fail_all(1.0, lambda one: ConnectionFailedError(one.receipt_id))
    assert (str(request.error), len(requests), written(outbox)) == ("s-1", 0, [])


@pytest.mark.parametrize("kind", [LinkError, *LINK_ERRORS, BrokerTimeoutError])
def test_a_lost_link_is_no_answer(kind: type[JmsxError]) -> None:
    """Whatever ended it: taken for a refusal, what the broker may have done would be done again."""
    assert silent(kind("gone"))
    assert unanswered(kind("gone"))


def test_a_refusal_is_an_answer_and_a_fault_tells_nothing() -> None:
    """Who was refused knows what the broker did."""
    assert not unanswered(BrokerError("no"))
    assert not silent(BrokerFaultError("broken"))
    assert unanswered(BrokerFaultError("broken"))
