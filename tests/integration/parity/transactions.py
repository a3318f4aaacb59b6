"""Transactions: what commits, what comes back, what is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.parity.sides import Client, Side


def _in_transaction(side: Side, *bodies: str, ack: str = "client") -> Client:
    """Who has sent these and got them, and has begun `t`."""
    client = side.open()
    client.put("/queue/~", *bodies)
    client.subscribe("/queue/~", ack=ack)
    client.ask("BEGIN", transaction="t")
    return client


def transaction_errors(side: Side) -> None:
    """BEGIN, COMMIT and ABORT with wrong names."""
    client = side.open()
    for command in ("BEGIN", "COMMIT", "ABORT"):
        client.ask(command)
        client.ask(command, transaction="t")
    client.ask("COMMIT", transaction="t")
    client.ask("BEGIN", transaction="t")
    client.ask("BEGIN", transaction="t")
    client.ask("ABORT", transaction="t")
    client.ask("SEND", destination="/queue/~", transaction="t")


def _nack_in_transaction(side: Side, mode: str, *, receipt: bool) -> None:
    client = _in_transaction(side, "a", "b", ack=mode)
    if receipt:
        client.ack("a", "NACK", transaction="t")
    else:
        client.tell("NACK", id=client.ack_ids["a"], transaction="t")
        client.see()
    client.ask("COMMIT", transaction="t")
    client.ask("ABORT", transaction="t")
    client.ack("a")
    client.ack("b")
    client.cut()
    side.open().subscribe("/queue/~")
    side.open().subscribe("/queue/ActiveMQ.DLQ", selector="original = '~'")


def nack_in_transaction_client(side: Side) -> None:
    """Rollback-only, and the subscription is unusable."""
    _nack_in_transaction(side, "client", receipt=False)


def nack_in_transaction_client_receipt(side: Side) -> None:
    """The message is consumed by the COMMIT: lost."""
    _nack_in_transaction(side, "client", receipt=True)


def nack_in_transaction_individual(side: Side) -> None:
    """Rollback-only."""
    _nack_in_transaction(side, "client-individual", receipt=False)


def nack_in_transaction_individual_receipt(side: Side) -> None:
    """The message comes back after the connection ends."""
    _nack_in_transaction(side, "client-individual", receipt=True)


def nack_in_transaction_then_abort(side: Side) -> None:
    """ABORT makes the ack id valid again."""
    client = _in_transaction(side, "a", "b")
    client.tell("NACK", id=client.ack_ids["a"], transaction="t")
    client.see()
    client.ask("ABORT", transaction="t")
    client.ack("b")
    client.cut()
    side.open().subscribe("/queue/~")


def _miscounted(side: Side) -> Client:
    """Who has got a to d, of which the broker's STOMP has lost the first from its count, as a race may (C75)."""
    client = _in_transaction(side, *"abcd")
    client.tell("NACK", id=client.ack_ids["a"], transaction="t")
    client.see()
    client.ask("COMMIT", transaction="t")
    return client


def miscounted_acks(side: Side) -> None:
    """Whatever is acknowledged comes again."""
    client = _miscounted(side)
    client.ack("b")
    client.ack("d")
    client.cut()
    side.open().subscribe("/queue/~")


def miscounted_ack_in_transaction(side: Side) -> None:
    """It settles all that it covers, also what is lost from the count."""
    client = _miscounted(side)
    client.ask("BEGIN", transaction="u")
    client.tell("ACK", id=client.ack_ids["c"], transaction="u")
    client.ask("COMMIT", transaction="u")
    client.cut()
    side.open().subscribe("/queue/~")


def _two_transactions(side: Side, mode: str, ends: list[tuple[str, str]]) -> None:
    client = side.open()
    client.put("/queue/~a", "a1", "a2")
    client.put("/queue/~b", "b1", "b2")
    client.subscribe("/queue/~a", "a", ack=mode)
    client.subscribe("/queue/~b", "b", ack=mode)
    client.ask("BEGIN", transaction="A")
    client.ask("BEGIN", transaction="B")
    client.ack("a1", transaction="A")
    client.ack("b1", transaction="B")
    for command, name in ends:
        client.ask(command, transaction=name)
    client.cut()
    rest = side.open()
    rest.subscribe("/queue/~a", "a")
    rest.subscribe("/queue/~b", "b")


def two_transactions_commit_abort(side: Side) -> None:
    """COMMIT A takes B's ack with it: b1 is lost."""
    _two_transactions(side, "client", [("COMMIT", "A"), ("ABORT", "B")])


def two_transactions_abort_commit(side: Side) -> None:
    """ABORT A forgets B's ack: b1 comes again."""
    _two_transactions(side, "client", [("ABORT", "A"), ("COMMIT", "B")])


def two_transactions_commit_death(side: Side) -> None:
    """COMMIT A took B's ack, which death does not bring back."""
    _two_transactions(side, "client", [("COMMIT", "A")])


def two_transactions_individual(side: Side) -> None:
    """Individual acknowledgements carry their own transaction."""
    _two_transactions(side, "client-individual", [("ABORT", "A"), ("COMMIT", "B")])


def two_transactions_individual_commit_abort(side: Side) -> None:
    """The same, the other way round."""
    _two_transactions(side, "client-individual", [("COMMIT", "A"), ("ABORT", "B")])


def _refused_send(side: Side, *, receipt: bool) -> None:
    client = _in_transaction(side, "in")
    client.ack("in", transaction="t")
    if receipt:
        client.ask("SEND", destination="/remote-temp-queue/ID:gone", transaction="t")
    else:
        client.tell("SEND", destination="/remote-temp-queue/ID:gone", transaction="t")
        client.see()
    client.ask("COMMIT", transaction="t")
    client.ask("ABORT", transaction="t")
    client.ack("in")
    client.ask("BEGIN", transaction="t")
    client.cut()
    side.open().subscribe("/queue/~")


def failed_send_without_receipt(side: Side) -> None:
    """Rollback-only; the transaction stays open until the socket dies."""
    _refused_send(side, receipt=False)


def failed_send_with_receipt(side: Side) -> None:
    """COMMIT succeeds: the input is consumed and the output is missing."""
    _refused_send(side, receipt=True)


def converter_error_in_transaction(side: Side) -> None:
    """It does not reach the broker's transaction."""
    client = side.open()
    client.ask("BEGIN", transaction="t")
    client.tell("SEND", b"x", destination="/queue/~", transaction="t", amq__msg__type="map")
    client.tell("SEND", b"y", destination="/queue/~", transaction="t")
    client.see()
    client.ask("COMMIT", transaction="t")
    client.subscribe("/queue/~")


def window_doubles(side: Side) -> None:
    """ACK(tx) of everything and ABORT: 5, 10, 20, 40 unacknowledged."""
    client = side.open()
    client.put("/queue/~", *(str(n) for n in range(50)))
    last = client.subscribe("/queue/~", activemq___prefetchSize="5")[-1]
    for _ in range(3):
        client.ask("BEGIN", transaction="t")
        client.ack(last, transaction="t")
        last = client.see()[-1]
        client.ask("ABORT", transaction="t")
        client.see()


def window_is_stable(side: Side) -> None:
    """ACK(tx) and COMMIT: five new ones each time; client-individual and ABORT: none."""
    client = side.open()
    client.put("/queue/~", *(str(n) for n in range(30)))
    last = client.subscribe("/queue/~", activemq___prefetchSize="5")[-1]
    for end in ("COMMIT", "COMMIT", "ABORT", "COMMIT"):
        client.ask("BEGIN", transaction="t")
        client.ack(last, transaction="t")
        last = client.see()[-1]
        client.ask(end, transaction="t")
        client.see()


def window_individual(side: Side) -> None:
    """It opens at the ACK, closes at ABORT."""
    client = side.open()
    client.put("/queue/~", *(str(n) for n in range(12)))
    client.subscribe("/queue/~", ack="client-individual", activemq___prefetchSize="2")
    for end in ("ABORT", "ABORT", "COMMIT"):
        client.ask("BEGIN", transaction="t")
        client.ack("0", transaction="t")
        client.see()
        client.ask(end, transaction="t")
        client.see()
    client.ack("1")
    client.see()


def _unsubscribe_in_transaction(side: Side, mode: str) -> None:
    client = _in_transaction(side, "a", "b", ack=mode)
    client.ack("a", transaction="t")
    client.ask("UNSUBSCRIBE", id="s")
    client.ask("COMMIT", transaction="t")
    client.subscribe("/queue/~", "t")


def unsubscribe_in_transaction_client(side: Side) -> None:
    """The ack is lost."""
    _unsubscribe_in_transaction(side, "client")


def unsubscribe_in_transaction_individual(side: Side) -> None:
    """The ack holds."""
    _unsubscribe_in_transaction(side, "client-individual")


def ack_after_unsubscribe(side: Side) -> None:
    """A RECEIPT that means nothing."""
    client = side.open()
    client.put("/queue/~", "a")
    client.subscribe("/queue/~")
    client.ask("UNSUBSCRIBE", id="s")
    client.ack("a")
    client.subscribe("/queue/~", "t")


def ack_twice_in_transaction(side: Side) -> None:
    """The second one is an ERROR and harms nothing."""
    client = _in_transaction(side, "a", "b", ack="client-individual")
    client.ack("a", transaction="t")
    client.ack("a", transaction="t")
    client.ask("COMMIT", transaction="t")
    client.cut()
    side.open().subscribe("/queue/~")


def acks_after_abort(side: Side) -> None:
    """The ids are valid again, cumulatively too."""
    client = _in_transaction(side, "a", "b", "c")
    client.ack("b", transaction="t")
    client.ask("ABORT", transaction="t")
    client.see()
    client.ack("a")
    client.ack("b", "NACK")
    client.cut()
    side.open().subscribe("/queue/~")


def ack_out_of_order_in_transaction(side: Side) -> None:
    """The second, then the first."""
    client = _in_transaction(side, "a", "b", "c")
    client.ack("b", transaction="t")
    client.ack("a", transaction="t")
    client.ask("COMMIT", transaction="t")
    client.cut()
    side.open().subscribe("/queue/~")


def ack_in_transaction_then_death(side: Side) -> None:
    """It comes back with its counter raised, in the original order."""
    client = _in_transaction(side, "a", "b", "c")
    client.ack("b", transaction="t")
    client.cut()
    side.open().subscribe("/queue/~", selector="JMSXDeliveryCount = 2")


def consume_and_send_in_transaction(side: Side) -> None:
    """Atomic: others see it after COMMIT, never after ABORT."""
    client, other = side.open(), side.open()
    other.subscribe("/queue/~out")
    client.put("/queue/~", "a", "b")
    client.subscribe("/queue/~")
    for body, end in (("a", "COMMIT"), ("b", "ABORT")):
        client.ask("BEGIN", transaction="t")
        client.tell("SEND", body.encode(), destination="/queue/~out", transaction="t")
        client.ack(body, transaction="t")
        other.see()
        client.ask(end, transaction="t")
        other.see()
    client.cut()
    side.open().subscribe("/queue/~")


TRANSACTIONS: list[Callable[[Side], None]] = [
    transaction_errors,
    nack_in_transaction_client,
    nack_in_transaction_client_receipt,
    nack_in_transaction_individual,
    nack_in_transaction_individual_receipt,
    nack_in_transaction_then_abort,
    miscounted_acks,
    miscounted_ack_in_transaction,
    two_transactions_commit_abort,
    two_transactions_abort_commit,
    two_transactions_commit_death,
    two_transactions_individual,
    two_transactions_individual_commit_abort,
    failed_send_without_receipt,
    failed_send_with_receipt,
    converter_error_in_transaction,
    window_doubles,
    window_is_stable,
    window_individual,
    unsubscribe_in_transaction_client,
    unsubscribe_in_transaction_individual,
    ack_after_unsubscribe,
    ack_twice_in_transaction,
    acks_after_abort,
    ack_out_of_order_in_transaction,
    ack_in_transaction_then_death,
    consume_and_send_in_transaction,
]
