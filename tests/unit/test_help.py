"""What `help()` shows of jmsx, and editors beside the cursor."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields, is_dataclass
from typing import Any, Final, get_args

import pytest

import jmsx
from jmsx.app.registration import Consumer
from jmsx.app.sender import Sending
from jmsx.core.events import Event, Source

#: All that a program gives by field, or by keywords of the same names, and what its observers are given.
GIVEN: Final = [
    *(one for name in jmsx.__all__ if is_dataclass(one := getattr(jmsx, name))),
    Consumer,
    Sending,
    *get_args(Event),
    Source,
]


def told(kind: type) -> set[str]:
    """The names of which the docstring says something: in a line of their own, or `so`."""
    text = inspect.getdoc(kind) or ""
    return {*re.findall(r"^ {4}(\w+): \S", text, re.MULTILINE), *re.findall(r"`(\w+)`", text)}


@pytest.mark.parametrize("kind", GIVEN)
def test_each_field_is_told(kind: Any) -> None:
    """A comment in the source does not reach a reader of `help()`."""
    assert {one.name for one in fields(kind)} - told(kind) == set()


def test_each_field_of_a_message_is_told() -> None:
    """Those that are set and those that are read."""
    message = jmsx.Message()
    assert {name for name in vars(message) if not name.startswith("_")} - told(
        jmsx.Message
    ) == set()


def test_each_call_is_told() -> None:
    """Of all that `from jmsx import ...` gives."""
    untold = [
        f"{name}.{call}"
        for name in jmsx.__all__
        if inspect.isclass(one := getattr(jmsx, name))
        for call in vars(one)
        if not call.startswith("_")
        and (callable(getattr(one, call)) or isinstance(vars(one)[call], property))
        and not inspect.getdoc(getattr(one, call))
    ]
    assert untold == []
