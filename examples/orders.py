"""
A small shop on one broker: what `jmsx demo` runs.

Four kinds of consumer: one that works, one that fails twice for each message and then works, one that gets messages it
can never handle, and one that consumes from a queue and sends to another in one transaction.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from jmsx import AcknowledgeMode, App, Message, RedeliveryPolicy, Session

if TYPE_CHECKING:
    from collections.abc import Iterator

app = App()

#: So that a run is over soon; a shop would wait for seconds.
SOON = RedeliveryPolicy(
    maximum_redeliveries=3, initial_redelivery_delay=0.005, redelivery_delay=0.01
)


@app.consumer("queue://orders", optimize_acknowledge=True)
def ship(order: Message) -> None:
    """Handle an order; always works."""
    json.loads(order.text)


@app.consumer("queue://payments", redelivery=SOON, concurrency=2)
def charge(payment: Message) -> None:
    """Charge a card at a service that answers at the third try."""
    if payment.delivery_count < 3:
        raise ConnectionError("the payment service is busy")


@app.consumer("queue://returns", redelivery=SOON)
def take_back(parcel: Message) -> None:
    """Take a parcel back; some labels cannot be read, today or ever."""
    if json.loads(parcel.text)["label"] is None:
        raise ValueError("the label cannot be read")


@app.consumer("queue://invoices", mode=AcknowledgeMode.SESSION_TRANSACTED)
def invoice(order: Message, session: Session) -> None:
    """Book an invoice: received and sent together, or not at all."""
    number = json.loads(order.text)["number"]
    entry = Message(json.dumps({"number": number, "booked": True}))
    session.create_producer().send(entry, destination="queue://ledger")


@app.consumer("queue://ledger")
def book(entry: Message) -> None:
    """Write an entry into the books."""
    json.loads(entry.text)


def messages(count: int) -> Iterator[tuple[str, str]]:
    """Yield what customers send: `count` pairs of destination and body."""
    for number in range(count):
        body = {"number": number}
        match number % 20:
            case 0:
                yield "queue://payments", json.dumps(body)
            case 1 | 2:
                label = None if number % 100 == 1 else f"R{number}"
                yield "queue://returns", json.dumps({**body, "label": label})
            case 3 | 4 | 5 | 6:
                yield "queue://invoices", json.dumps(body)
            case _:
                yield "queue://orders", json.dumps(body)
