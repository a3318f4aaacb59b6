"""Programs for Artemis."""

from __future__ import annotations

from tests.integration.manners.artemis.acknowledging import ACKNOWLEDGING
from tests.integration.manners.artemis.addressing import ADDRESSING
from tests.integration.manners.artemis.dying import DYING
from tests.integration.manners.artemis.ending import ENDING
from tests.integration.manners.artemis.frames import FRAMES
from tests.integration.manners.artemis.sharing import SHARING
from tests.integration.manners.artemis.subscribing import SUBSCRIBING
from tests.integration.manners.artemis.transactions import TRANSACTIONS
from tests.integration.manners.artemis.windows import WINDOWS

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
