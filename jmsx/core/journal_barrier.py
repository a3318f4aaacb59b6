"""
Waits until Artemis knows the duplicate ids of what an older commit has sent.

Artemis knows them only when that commit is on its disk; a message that is sent once more before that is taken twice
(measured on 2.44.0 with a disk that takes 0.3 s: 8 times in 10). Its journal is written in one order, and the end of an
aborted transaction is in it, too. So what may have been sent before is first sent in a transaction that is aborted:
when the ABORT is confirmed, the broker knows what every earlier commit has sent, and has taken nothing.

Source: Artemis 2.44.0, `PersistentDuplicateIDCache.addToCache` and `TransactionImpl.commit`.
"""

from __future__ import annotations

from typing import Final

from jmsx.core.frames import Frame

#: Names the transaction on the wire; the session's own may be open beside it.
NAME: Final = "jmsx-rehearsal"


def journal_barrier(send: Frame, receipt_id: str) -> list[Frame]:
    """Return the frames that send `send` in a transaction and abort it; the receipt confirms the ABORT."""
    wire = {"transaction": NAME}
    return [
        Frame("BEGIN", wire),
        Frame("SEND", {**send.headers, **wire}, send.body),
        Frame("ABORT", {**wire, "receipt": receipt_id}),
    ]
