"""What is not judged rightly yet, and why; a test that passes all the same fails, so that the list stays true."""

from __future__ import annotations

from typing import Final

#: By the name of the situation.
NOT_YET: Final[dict[str, str]] = {}
