"""Numbers in headers."""

from __future__ import annotations

import pytest

from jmsx.core.delivery import Delivery
from jmsx.core.frames import MessageFrame
from jmsx.core.headers import INT, LAST_MS, LONG, time_ms, whole

ODD = (
    "",
    " ",
    "²",
    "٣",
    "1_0",
    "1.0",
    "1e3",
    "0x1",
    "-",
    "+",
    "--1",
    "NaN",
    "inf",
    "9" * 20,
    "9" * 5000,
    "1\n",
)


@pytest.mark.parametrize("text", [None, *ODD])
def test_what_is_no_number(text: str | None) -> None:
    """Nor one that a Java `long` cannot hold."""
    assert whole(text) is None
    assert time_ms(text) is None


@pytest.mark.parametrize("text", ["0", "7", "+7", "007", str(LONG)])
def test_numbers(text: str) -> None:
    """As Java reads them."""
    assert whole(text) == int(text)


def test_bounds() -> None:
    """What lies outside of them is no number."""
    assert whole("-1") is None
    assert whole("-1", least=-1) == -1
    assert whole("10", most=9) is None
    assert whole(str(LONG + 1)) is None


def test_points_in_time() -> None:
    """0 is none, and neither is what no calendar has."""
    assert time_ms("1767225600000") == 1_767_225_600_000
    assert time_ms("0") is None
    assert time_ms(str(LAST_MS)) == LAST_MS
    assert time_ms(str(LAST_MS + 1)) is None


@pytest.mark.parametrize("text", [*ODD, "-5", str(INT + 1)])
def test_a_delivery_passes_over_nonsense(text: str) -> None:
    """Neither a count nor an expiry."""
    frame = MessageFrame.of({"jmsx_redelivery_count": text, "expires": text})
    delivery = Delivery.of(frame, 1, "m", epoch=1, now=0.0, wall=0.0)
    assert delivery.redelivery_count == 0
    assert delivery.arrival.expires_at is None or text == str(INT + 1)
