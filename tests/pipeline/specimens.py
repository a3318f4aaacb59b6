"""
An event of every class and word, full of values, and the golden lines that are made from them.

`python -m tests.pipeline.specimens NAME` has the present writer write `golden/v1/NAME.jsonl`: once for each release
that changes what stands in a line. What is there is never made anew.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
import typing
from pathlib import Path
from typing import Any, Final

from jmsx.core import events as core
from jmsx.core.modes import AcknowledgeMode
from jmsx_eventlog.encode import own_line
from tests.pipeline.lines import segments
from tests.pipeline.simulator import SOURCE, Clock, open_log

GOLDEN: Final = Path(__file__).with_name("golden") / "v1"

#: Member -> a value that may stand there.
_VALUES: Final[dict[str, Any]] = {
    "at": 999.5,
    "consumer": "shop.orders",
    "destination": "topic://orders",
    "message_id": "ID:shop-1:1:1:1:1",
    "message_key": "01a0c5a4f5b2" + 20 * "7",
    "cause_key": "01a0c5a4f5b1" + 20 * "8",
    "duplicate_id": "order-42",
    "correlation_id": "order 7, Žižkov",
    "ack_mode": "auto",
    "prefetch": 1000,
    "attempt": 2,
    "redelivered": True,
    "sent_ms": 1_790_000_998_000,
    "expires_ms": 1_790_000_999_000,
    "received_at": 998.25,
    "started_at": 998.5,
    "ended_at": 999.25,
    "epoch": 1,
    "error_type": "ValueError",
    "error_place": "shop/orders.py:17",
    "error_message": 'no "account"',
    "error_stack": "shop/app.py:7 call > shop/orders.py:17 place: ValueError",
    "transaction_id": "c1-s1:4",
    "subscription": "durable:shop.all-orders",
    "size": 64,
    "messages": 3,
    "next_attempt": 3,
    "delay": 1.5,
    "blocking": True,
    "by_broker": False,
    "selective": True,
    "attempts": 7,
    "dead_letter_destination": "queue://DLQ",
    "by_copy": True,
    "sends": 2,
    "acknowledgements": 3,
    "maximum_redeliveries": 6,
    "optimize_acknowledge": False,
    "server": "ActiveMQ/6.1.8",
    "seconds": 0.25,
    "detail": "reset by peer",
    "in_doubt": True,
    "message": "not allowed",
    "receipt_id": "r-7",
    "enqueued": 12,
    "dequeued": 10,
    "expired": 1,
    "reason": "queue is full",
    "heard_at": 999.0,
    "silence_limit": 20.0,
    "frames_in": 12,
    "frames_out": 9,
    "bytes_in": 4096,
    "bytes_out": 512,
    "unanswered": 2,
    "buffered": 40,
    "in_process": 4,
    "still_in_process": 3,
    "ahead": -0.25,
    "within": 0.002,
    "every": 60.0,
    "command": "SEND",
    "subject": "queue://orders",
}
#: Class -> each of the words that one of its members takes.
_WORDS: Final[dict[type, tuple[str, tuple[Any, ...]]]] = {
    core.DeliveryEnded: ("outcome", tuple(core.Outcome)),
    core.DeliveryEndedLate: ("outcome", tuple(core.LateOutcome)),
    core.MessageSent: ("outcome", ("confirmed", "unconfirmed", "error", "rolled_back")),
    core.MessagesAcknowledged: ("trigger", tuple(core.AckTrigger)),
    core.TransactionEnded: ("outcome", tuple(core.TransactionOutcome)),
    core.SubscriptionOpened: (
        "ack_mode",
        tuple(sorted(mode.label for mode in AcknowledgeMode)),
    ),
    core.MessageDeadLettered: (
        "reason",
        ("max_redeliveries", "rejected", "expired", "undecodable"),
    ),
    core.LinkClosed: ("reason", ("closed", "heartbeat", "error_frame", "io", "protocol")),
    core.ConnectFailed: ("result", ("refused", "credentials", "timeout", "tls", "settings")),
    core.AckDropped: ("reason", ("stale_epoch",)),
    core.MessagesReceived: ("redelivered", (1,)),
}


def full(cls: type) -> list[Any]:
    """Make an event of `cls` for each word, with every member set."""
    names = [member.name for member in dataclasses.fields(cls)]
    name, words = _WORDS.get(cls, (names[0], (_VALUES[names[0]],)))
    values = {one: _VALUES[one] for one in names if one != name}
    return [cls(**values, **{name: word}) for word in words]


def bare(cls: type) -> Any:
    """Make an event of `cls` with nothing set that may be None."""
    one = full(cls)[0]
    optional = [member.name for member in dataclasses.fields(cls) if "None" in str(member.type)]
    return dataclasses.replace(one, **dict.fromkeys(optional))


EVENTS: Final = [event for cls in typing.get_args(core.Event) for event in full(cls)]
BARE: Final = [bare(cls) for cls in typing.get_args(core.Event)]


def golden_lines() -> bytes:
    """Have the writer write every event, and every line of its own, as bytes of a segment."""
    with tempfile.TemporaryDirectory() as folder:
        log = open_log(Path(folder), Clock(), with_text=True)
        for event in (*EVENTS, *BARE):
            log.observe(event, SOURCE)
        log.observe(dataclasses.replace(EVENTS[0], consumer=object()), SOURCE)
        log.close()
        written = b"".join(path.read_bytes() for path in segments(Path(folder)))
    last = {"lost_bytes": 17, "recovered_by": "shop-2-0123abcd"}
    return written + own_line("shop-1-89abcdef", "log.recovered", 9, 1_790_001_000.0, None, **last)


if __name__ == "__main__":
    target = GOLDEN / f"{sys.argv[1]}.jsonl"
    with target.open("xb") as file:
        file.write(golden_lines())
