"""The bounds of the histograms' buckets, each in the unit that its name ends with."""

from __future__ import annotations

from typing import Final

#: Seconds that a handler may take: OpenTelemetry's messaging conventions v1.44.0, widened.
PROCESS_SECONDS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0),
)
#: Seconds of what is usually quick and may take a while.
_QUICK: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
#: Seconds that a message may wait: from a quiet queue to a backlog of an hour.
LATENCY_SECONDS: Final = (*_QUICK, 30.0, 60.0, 300.0, 900.0, 3600.0)
#: Seconds that one exchange with the broker may take.
EXCHANGE_SECONDS: Final = (0.001, 0.0025, *_QUICK)
#: Seconds of back-off: the delays of the usual policies (1 s, doubled or five-fold; 30 s; 1, 5, 10, 15 min) are bounds,
#: and none is more than twice the one before, so a quantile of a constant delay is off by 25 % at most.
BACK_OFF_SECONDS: Final = (
    *(0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 4.0, 5.0, 8.0, 10.0, 16.0, 25.0, 30.0),
    *(60.0, 64.0, 125.0, 150.0, 300.0, 450.0, 600.0, 625.0, 900.0, 1800.0, 3125.0, 3600.0),
)
#: Messages for each ACK; the Java client's thresholds (65 % of 100, 500 and 1000) are bounds.
BATCH_MESSAGES: Final = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 65.0, 100.0, 200.0, 325.0, 650.0, 1000.0)
#: Deliveries of one message: 7 is ActiveMQ's default limit, 10 that of Artemis.
ATTEMPTS: Final = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0)
