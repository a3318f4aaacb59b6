"""What the tests of commands share."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest
from typer.utils import get_params_from_function

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session", autouse=True)
def _parameters_are_read_once() -> Iterator[None]:
    """Each run of a command has typer read the parameters of all, twice; as nobody changes them, once will do here."""
    with pytest.MonkeyPatch.context() as patch:
        read = functools.cache(get_params_from_function)
        patch.setattr("typer.main.get_params_from_function", read)
        yield
