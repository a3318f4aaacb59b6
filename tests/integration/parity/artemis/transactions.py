"""Transactions: SENDs only."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.parity.sides import Client, Side

TX = {"transaction": "t"}


def commit_and_abort(side: Side) -> None:
    """Nothing is seen before the COMMIT, nothing after an ABORT; the name is used again."""
    client, other = side.open(), side.open()
    other.subscribe("~")
    for end in ("COMMIT", "ABORT", "COMMIT"):
        client.ask("BEGIN", **TX)
        client.put("~", f"{end} 1", f"{end} 2", **TX)
        client.put("~", "outside")
        other.see()
        client.ask(end, **TX)
        other.see()


def two_at_a_time(side: Side) -> None:
    """In the order of their COMMITs."""
    client = side.open()
    for name in ("A", "B"):
        client.ask("BEGIN", transaction=name)
        client.put("~", f"{name}1", transaction=name)
    client.put("~", "A2", transaction="A")
    client.ask("COMMIT", transaction="B")
    client.ask("COMMIT", transaction="A")
    client.subscribe("~")


def errors(side: Side) -> None:
    """Each ends its connection."""
    for command in ("BEGIN", "COMMIT", "ABORT"):
        for headers in ({}, TX):
            client = side.open()
            client.ask(command, **headers)
            client.ask(command, **headers)
            client.see()


def send_without_begin(side: Side) -> None:
    """A RECEIPT, and the COMMIT fails, which ends the connection; after a BEGIN it is part of that transaction."""
    client = side.open()
    client.put("~", "lost", **TX)
    client.ask("COMMIT", **TX)
    client.see()
    client = side.open()
    client.put("~", "a", **TX)
    client.ask("BEGIN", **TX)
    client.put("~", "b", **TX)
    client.ask("COMMIT", **TX)
    client.subscribe("~")


def connection_ends(side: Side) -> None:
    """Nothing was sent."""
    client = side.open()
    client.ask("BEGIN", **TX)
    client.put("~", "a", **TX)
    client.cut()
    client = side.open()
    client.ask("BEGIN", **TX)
    client.put("~", "b", **TX)
    client.ask("DISCONNECT")
    side.wait(0.3)
    side.open().subscribe("~")


def _acked_in_transaction(side: Side, end: str) -> Client:
    client = side.open()
    client.put("~", "a", "b", "c")
    client.subscribe("~", ack="client-individual", **{"consumer-window-size": "0"})
    client.ask("BEGIN", **TX)
    client.put("~out", "out", **TX)
    client.ack("a", **TX)
    client.see()
    client.ack("b", "NACK", **TX)
    client.see()
    client.ask(end, **TX)
    client.see()
    client.ask("UNSUBSCRIBE", id="s")
    client.subscribe("~", "t")
    client.subscribe("~out", "out")
    return client


def acks_are_not_part_of_it(side: Side) -> None:
    """They hold at once: the window opens, and ABORT brings nothing back."""
    for end in ("COMMIT", "ABORT"):
        _acked_in_transaction(side, end).cut()
        side.renew()


def ack_in_unknown_transaction(side: Side) -> None:
    """Nobody looks at the name."""
    client = side.open()
    client.put("~", "a")
    client.subscribe("~")
    client.ack("a", transaction="never begun")


def duplicates(side: Side) -> None:
    """A duplicate of what was committed has the transaction rolled back; two of one id inside it do not."""
    client = side.open()
    client.put("~", "first", _AMQ_DUPL_ID="1")
    client.ask("BEGIN", **TX)
    client.put("~", "lost", **TX)
    client.put("~", "again", _AMQ_DUPL_ID="1", **TX)
    client.put("~", "lost too", _AMQ_DUPL_ID="2", **TX)
    client.ask("COMMIT", **TX)
    client.see()
    client = side.open()
    client.ask("BEGIN", **TX)
    client.put("~", "twice", "twice too", _AMQ_DUPL_ID="2", **TX)
    client.ask("COMMIT", **TX)
    client.subscribe("~")


def duplicate_beside_an_open_transaction(side: Side) -> None:
    """It is looked for when a SEND comes in: what is open then is committed all the same, all three of them."""
    clients = [side.open(), side.open()]
    for number, client in enumerate(clients):
        client.ask("BEGIN", **TX)
        client.put("~", f"open {number}", _AMQ_DUPL_ID="1", **TX)
    other = side.open()
    other.put("~", "plain", _AMQ_DUPL_ID="1")
    for client in clients:
        client.ask("COMMIT", **TX)
    other.put("~", "known", _AMQ_DUPL_ID="1")
    other.subscribe("~")


def duplicate_ends_the_connection(side: Side) -> None:
    """In STOMP 1.2."""
    client = side.open()
    client.put("~", "first", _AMQ_DUPL_ID="1")
    client.ask("BEGIN", **TX)
    client.put("~", "again", _AMQ_DUPL_ID="1", **TX)
    client.ask("COMMIT", **TX)
    client.see()


def abort_frees_the_duplicate_id(side: Side) -> None:
    """It was never used."""
    client = side.open()
    client.ask("BEGIN", **TX)
    client.put("~", "aborted", _AMQ_DUPL_ID="1", **TX)
    client.ask("ABORT", **TX)
    client.put("~", "sent", _AMQ_DUPL_ID="1")
    client.subscribe("~")


def delay_counts_from_the_send(side: Side) -> None:
    """Not from the COMMIT."""
    client = side.open()
    client.subscribe("~")
    client.ask("BEGIN", **TX)
    client.put("~", "late", AMQ_SCHEDULED_DELAY="500", **TX)
    side.wait(0.6)
    client.see()
    client.ask("COMMIT", **TX)
    client.see()


TRANSACTIONS: list[Callable[[Side], None]] = [
    commit_and_abort,
    two_at_a_time,
    errors,
    send_without_begin,
    connection_ends,
    acks_are_not_part_of_it,
    ack_in_unknown_transaction,
    duplicates,
    duplicate_beside_an_open_transaction,
    duplicate_ends_the_connection,
    abort_frees_the_duplicate_id,
    delay_counts_from_the_send,
]
