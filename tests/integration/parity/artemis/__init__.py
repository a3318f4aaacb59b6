"""Programs for Artemis."""

from __future__ import annotations

from tests.integration.parity.artemis.acknowledging import ACKNOWLEDGING
from tests.integration.parity.artemis.addressing import ADDRESSING
from tests.integration.parity.artemis.dying import DYING
from tests.integration.parity.artemis.ending import ENDING
from tests.integration.parity.artemis.frames import FRAMES
from tests.integration.parity.artemis.sharing import SHARING
from tests.integration.parity.artemis.subscribing import SUBSCRIBING
from tests.integration.parity.artemis.transactions import TRANSACTIONS
from tests.integration.parity.artemis.windows import WINDOWS

PROGRAMS = [
    *FRAMES,
    *ADDRESSING,
    *SUBSCRIBING,
    *WINDOWS,
    *ACKNOWLEDGING,
    *TRANSACTIONS,
    *ENDING,
    *DYING,
    *SHARING,
]
