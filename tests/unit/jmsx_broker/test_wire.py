"""Addresses that the small client refuses before it opens a socket."""

from __future__ import annotations

import pytest

from jmsx.errors import ConfigurationError
from jmsx_broker.wire import Wire


@pytest.mark.parametrize(
    "url",
    ["", "orders", "stomp://", "http://127.0.0.1:1", "stomp://127.0.0.1:port", "stomp://[::1"],
)
def test_what_is_no_stomp_url_is_refused(url: str) -> None:
    """A wrong address is the user's mistake, not a broker that does not answer."""
    with pytest.raises(ConfigurationError, match="is not"):
        Wire(url)
