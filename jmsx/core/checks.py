"""Checks of what a user gives: each raises ConfigurationError, naming the option and what it must be."""

from __future__ import annotations

from typing import Final

from jmsx.errors import ConfigurationError

#: What a Java long can hold; beyond it is no number of seconds, messages or bytes.
LARGEST: Final = 2**63

#: What a Java int can hold, as both brokers read a prefetch.
LARGEST_INT: Final = 2**31 - 1


def misfit(name: str, wanted: str, value: object) -> ConfigurationError:
    """An error that tells the type only: the value may be a password in the wrong place."""
    return ConfigurationError(f"{name} must be {wanted}, not {kind_of(value)}")


def kind_of(value: object) -> str:
    """Its type with an article."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIO' else 'a'} {name}"


def check_text(name: str, value: object) -> None:
    """A str, or None."""
    if value is not None and not isinstance(value, str):
        raise misfit(name, "a str", value)


def check_flag(name: str, value: object) -> None:
    """True or False, and no word for it."""
    if not isinstance(value, bool):
        raise misfit(name, "True or False", value)


def check_whole(name: str, value: object, least: int = 0, most: int = LARGEST) -> None:
    """A whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise misfit(name, "a whole number", value)
    if not least <= value <= most:
        told = f", not {value}" if abs(value) <= LARGEST else ", and not so large"
        limit = f" and at most {most}" if least <= value and most < LARGEST else ""
        raise ConfigurationError(f"{name} must be {least} or more{limit}{told}")


def check_number(name: str, value: object, least: float, remark: str = "") -> None:
    """A number that is no infinity and no NaN, `least` or more; `remark` says what else there is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise misfit(name, "a number", value)
    if not abs(value) <= LARGEST:  # NaN is neither more nor less
        raise ConfigurationError(f"{name} must be a number that is finite and not huge{remark}")
    if value < least:
        raise ConfigurationError(f"{name} must be {least:g} or more, not {value}{remark}")


def check_seconds(name: str, value: object, remark: str = "") -> None:
    """Seconds, 0 or more."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise misfit(name, "seconds, such as 2.0", value)
    check_number(name, value, 0.0, remark)
