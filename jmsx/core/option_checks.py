"""Checks of what a user gives: each raises ConfigurationError, naming the option and what it must be."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

from jmsx.errors import ConfigurationError, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

T = TypeVar("T")

#: What a Java long can hold; beyond it is no number of seconds, messages or bytes.
LARGEST: Final = 2**63

#: What a Java int can hold, as both brokers read a prefetch.
LARGEST_INT: Final = 2**31 - 1

#: Control characters and lone surrogates.
_UNNAMED: Final = re.compile(r"[\0-\x1f\x7f-\x9f\ud800-\udfff]")

#: How much a name must be like another to be taken for it, from 0 to 1.
_LIKENESS: Final = 0.6

#: The default of `elsewhere`: there is no other place for an option.
_NOWHERE: Final[Mapping[str, str]] = {}

#: What people call an option elsewhere, and what it is here (or in URLs, or of a consumer), where that is known.
_ALIASES: Final = {
    "ack": ("mode",),
    "ack_mode": ("mode",),
    "countdown": ("delay",),
    "delay": ("delivery_delay",),
    "delivery_delay": ("delay",),
    "expires": ("time_to_live",),
    "group_id": ("group",),
    "headers": ("properties",),
    "login": ("username", "jms.userName"),
    "max_redeliveries": ("redelivery", "redelivery_policy"),
    "max_retries": ("redelivery", "redelivery_policy"),
    "pass": ("password", "jms.password"),
    "passcode": ("password", "jms.password"),
    "prefetch": ("prefetch_policy", "jms.prefetchPolicy.all"),
    "prefetch_policy": ("prefetch",),
    "redelivery": ("redelivery_policy",),
    "redelivery_policy": ("redelivery",),
    "retries": ("redelivery", "redelivery_policy"),
    "retry": ("redelivery", "redelivery_policy"),
    "ssl": ("tls",),
    "timeout": ("request_timeout", "jms.sendTimeout"),
    "time_to_live": ("expires",),
    "ttl": ("expires", "time_to_live"),
    "user": ("username", "jms.userName"),
    "username": ("jms.userName",),
    "workers": ("concurrency",),
}


def wrong_type(name: str, wanted: str, value: object) -> ConfigurationError:
    """Return an error that names the type only: the value may be a password in the wrong place."""
    return ConfigurationError(f"{name} must be {wanted}, not {kind_of(value)}")


def kind_of(value: object) -> str:
    """Return the name of a value's type with an article, such as `an int`."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIO' else 'a'} {name}"


def offers(given: object, protocol: type, *, but: Collection[str] = ()) -> bool:
    """
    Return whether `given` is an instance, and no class, with all members of `protocol` save those in `but`.

    A member may also come from the `__getattr__` of a proxy, which `isinstance` does not see in each version of Python.
    Raises what `given` raises when a member is read.
    """
    missing = [
        name
        for name, one in vars(protocol).items()
        if not (name.startswith("_") or name in but)
        and not (hasattr(given, name) and (callable(getattr(given, name)) or not callable(one)))
    ]
    return not isinstance(given, type) and not missing


def check_text(name: str, value: object) -> None:
    """Raise ConfigurationError unless `value` is a str or None."""
    if value is not None and not isinstance(value, str):
        raise wrong_type(name, "a str", value)


def plain_text(text: str) -> str:
    """Return `text` as a str and no more; what derives from str, as members of enums do, may print as another text."""
    return str.__str__(text)


def odd_character(name: str) -> str | None:
    """Return the first character that cannot stand in a name, or None."""
    odd = _UNNAMED.search(name)
    return None if odd is None else odd[0]


def is_writable(text: str) -> bool:
    """Return whether UTF-8 can carry `text`: it has no surrogate without its other half."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_properties(given: object, error: type[UsageError] = ConfigurationError) -> None:
    """Raise `error` unless `given` can be the properties of a message."""
    if not isinstance(given, Mapping):
        raise error(
            f'properties are a mapping of names to values, such as {{"region": "EU"}}, not {kind_of(given)}'
        )


def check_name(what: str, value: object) -> None:
    """Raise ConfigurationError unless `value` is a str that can name something in frames, logs and metrics."""
    if not isinstance(value, str):
        raise wrong_type(what, "a str", value)
    if not value.strip():
        raise ConfigurationError(f"{what} is empty, which names nothing")
    odd = odd_character(value)
    if odd is not None:
        raise ConfigurationError(f"{what} is {value!r}; {odd!r} cannot stand in a name")


def check_flag(name: str, value: object) -> None:
    """Raise ConfigurationError unless `value` is True or False; other truthy values are refused."""
    if not isinstance(value, bool):
        raise wrong_type(name, "True or False", value)


def check_whole(name: str, value: object, least: int = 0, most: int = LARGEST) -> None:
    """Raise ConfigurationError unless `value` is a whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(name, "a whole number", value)
    if not least <= value <= most:
        told = f", not {value}" if abs(value) <= LARGEST else ", and not so large"
        limit = f" and at most {most}" if least <= value and most < LARGEST else ""
        raise ConfigurationError(f"{name} must be {least} or more{limit}{told}")


def check_number(name: str, value: object, least: float, remark: str = "") -> None:
    """Raise ConfigurationError unless `value` is a finite number of at least `least`; `remark` ends the message."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(name, "a number", value)
    if not abs(value) <= LARGEST:  # NaN is neither more nor less
        raise ConfigurationError(f"{name} must be a number that is finite and not huge{remark}")
    if value < least:
        raise ConfigurationError(f"{name} must be {least:g} or more, not {value}{remark}")


def check_seconds(name: str, value: object, remark: str = "") -> None:
    """Raise ConfigurationError unless `value` is a number of seconds, 0 or more."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(name, "seconds, such as 2.0", value)
    check_number(name, value, 0.0, remark)


def check_names(
    what: str, given: Iterable[str], known: list[str], elsewhere: Mapping[str, str] = _NOWHERE
) -> None:
    """Raise ConfigurationError for the first of the `given` names that is not `known`, as `unknown` words it."""
    for name in given:
        if name not in known:
            raise unknown(what, name, known, elsewhere)


def check_position(
    what: str, values: Sequence[object], such_as: str = "username=..., password=..."
) -> None:
    """Raise ConfigurationError if there are `values` by position; it quotes none, as one may be a password."""
    if values:
        raise ConfigurationError(f"{what} takes its options by name, such as {such_as}")


def unknown(
    what: str, name: str, known: list[str], elsewhere: Mapping[str, str] = _NOWHERE
) -> ConfigurationError:
    """
    Return an error that says what may have been meant, or which names are `known`.

    It names the known one that other clients call `name`, else what to write `elsewhere`, else what looks like it.
    """
    meant = _meant(name, known)
    if meant is None and name in elsewhere:
        return ConfigurationError(f"unknown {what} {name!r}; write {elsewhere[name]}")
    near = meant or nearest(name, known)
    hint = f"did you mean {near!r}?" if near else f"there are {', '.join(sorted(known))}"
    return ConfigurationError(f"unknown {what} {name!r}; {hint}")


def nearest(name: str, known: list[str]) -> str | None:
    """Return the one of `known` that `name` may have been meant to be, or None if it is like none of them."""
    if (meant := _meant(name, known)) is not None:
        return meant
    lowered = {option.lower(): option for option in known}
    near = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=_LIKENESS)
    return lowered[near[0]] if near else None


def _meant(name: str, known: list[str]) -> str | None:
    """Return the one of `known` that others call `name`."""
    return next((one for one in _ALIASES.get(name.lower(), ()) if one in known), None)


def by_name(options: type[T]) -> type[T]:
    """Make a dataclass of options take them by name only; the error for an unknown name suggests the nearest."""
    known = [each.name for each in fields(options)]  # type: ignore[arg-type]  # decorate a dataclass
    made = options.__init__

    @functools.wraps(made)
    def checked(self: T, *values: object, **given: Any) -> None:
        check_position(options.__name__, values, f"{known[0]}=...")
        check_names(f"option of {options.__name__}", given, known)
        made(self, **given)

    options.__init__ = checked  # type: ignore[assignment]  # it takes what the one before it takes
    return options
