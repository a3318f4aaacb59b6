"""The list of all tables, and of all partials that they are made of."""

from __future__ import annotations

from collections import Counter
from typing import Final

from jmsx_report.acks import ACK_EFFICIENCY
from jmsx_report.additive import Partial
from jmsx_report.books import PARTIALS as AUDITED
from jmsx_report.deaths import DEAD_LETTERS
from jmsx_report.flows import FLOWS, PLANS
from jmsx_report.health import EVENT_LOG_HEALTH, FILES, QUARANTINE, QUARANTINED
from jmsx_report.latency import DELIVERY_LATENCY
from jmsx_report.objectives import SLO
from jmsx_report.prefetch import PREFETCH_ADVICE
from jmsx_report.recovery import RECOVERY
from jmsx_report.redelivery import REDELIVERY
from jmsx_report.sharing import CONSUMER_BALANCE
from jmsx_report.table import Table
from jmsx_report.transactions import TRANSACTIONS
from jmsx_report.writers import KNOWN

#: In the order in which they are written.
TABLES: Final[tuple[Table, ...]] = (
    DELIVERY_LATENCY,
    REDELIVERY,
    DEAD_LETTERS,
    TRANSACTIONS,
    ACK_EFFICIENCY,
    CONSUMER_BALANCE,
    PREFETCH_ADVICE,
    RECOVERY,
    SLO,
    EVENT_LOG_HEALTH,
    QUARANTINE,
)


#: The partials that the report uses, each as often as it is used; the page uses `FLOWS`.
_ASKED: Final[tuple[Partial, ...]] = (
    *KNOWN,
    FILES,
    *AUDITED,
    QUARANTINED,
    FLOWS,
    PLANS,
    *(partial for table in TABLES for partial in table.partials),
)


def _partials() -> dict[str, Partial]:
    found: dict[str, Partial] = {}
    for partial in _ASKED:
        if found.setdefault(partial.name, partial) is not partial:
            raise ValueError(f"two partials are named {partial.name}")
    return found


#: Name -> partial; tables may share one.
PARTIALS: Final = _partials()
#: Names of the partials that a report uses several times.
SHARED: Final = frozenset(
    name for name, times in Counter(partial.name for partial in _ASKED).items() if times > 1
)
