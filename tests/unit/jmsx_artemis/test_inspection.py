"""Which of Artemis' address settings `jmsx check` warns of."""

from __future__ import annotations

from typing import Any

import pytest

from jmsx.inspection import Level
from jmsx_artemis.inspection import warn_of


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, []),
        ({"addressFullMessagePolicy": "PAGE", "maxSizeBytes": 2000}, []),
        ({"addressFullMessagePolicy": "DROP"}, ["drops what is sent"]),
        ({"slowConsumerThreshold": 5}, []),
        ({"slowConsumerThreshold": 5, "slowConsumerPolicy": "NOTIFY"}, []),
        ({"slowConsumerPolicy": "KILL"}, []),
        ({"slowConsumerThreshold": 5, "slowConsumerPolicy": "KILL"}, ["slower than 5"]),
    ],
)
def test_settings_that_surprise(settings: dict[str, Any], words: list[str]) -> None:
    """Those that lose messages or links in silence, and no others."""
    findings = list(warn_of("orders", settings))
    assert [one.level for one in findings] == [Level.WARNING] * len(words)
    assert all(part in one.told for part, one in zip(words, findings, strict=True))
    assert {one.check for one in findings} <= {"address orders"}
