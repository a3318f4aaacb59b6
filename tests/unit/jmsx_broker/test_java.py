"""What the user is told to install."""

from __future__ import annotations

import pytest

from jmsx_broker.java import install_command


@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        ("linux", "apt-get install openjdk-17-jre-headless"),
        ("darwin", "brew install openjdk@17"),
    ],
)
def test_install_command_fits_the_platform(platform: str, expected: str) -> None:
    """The command can be typed as it stands."""
    assert expected == install_command(platform)
