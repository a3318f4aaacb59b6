"""Selectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.parity.sides import Side


SELECTORS = [
    "NOT n = 6",
    "not (n = 6)",
    "n > 4", "n >= 5 AND n < 6", "n = 5", "n <> 5", "n = 5.0", "n = '5'", "f > 2", "f > 2.0", "s = 'it''s'",
    "s LIKE 'it%'", "s LIKE '%''_'", "s NOT LIKE 'x%'", "p LIKE '50!%' ESCAPE '!'", "s IN ('a', 'it''s')",
    "s NOT IN ('a')", "missing IS NULL", "missing IS NOT NULL", "missing = 1", "missing <> 1", "NOT missing = 1",
    "n BETWEEN 4 AND 6", "n NOT BETWEEN 4 AND 6", "t = TRUE", "TRUE = t", "t", "NOT t", "JMSPriority > 6",
    "JMSType = 'T'", "JMSCorrelationID = 'c'", "JMSXDeliveryCount = 1", "JMSRedelivered = FALSE", "JMSRedelivered",
    "NOT JMSRedelivered", "JMSPriority + 1 = 8", "JMSPriority * 2 - 4 = 10", "JMSPriority / 2 = 3.5", "n + 1 = 51",
    "JMSPriority % 4 = 3", "-JMSPriority = -7", "JMSDeliveryMode = 'PERSISTENT'", "(n = 5 OR n = 6) AND s = 'x'",
    "n = 6 OR n = 5 AND s = 'it''s'", "JMSXGroupID = 'g'", "0x10 = 16", "n IN (5)", "n >", "s > 'a'", "1", "x y",
    "TRUE", "n = 5 -- five\n", "n BETWEEN 4", "JMSPriority IN ('7')", "s = n", "'it''s' = s", "5 < n", "5 <= n",
]  # fmt: skip


def selectors(side: Side) -> None:
    """Each in a subscription of its own to the same message, whose counter grows with each match."""
    client = side.open()
    headers = {"n": "5", "f": "2.5", "s": "it's", "p": "50%", "t": "true"}
    client.put(
        "/queue/~", "a", priority="7", type="T", correlation__id="c", JMSXGroupID="g", **headers
    )
    for selector in SELECTORS:
        reader = side.open()
        reader.ask("SUBSCRIBE", id="s", destination="/queue/~", ack="client", selector=selector)
        reader.see(0.1)
        reader.ask("UNSUBSCRIBE", id="s")


SELECTING: list[Callable[[Side], None]] = [
    selectors,
]
