"""
How people write destinations: `queue://orders` as in a URI, `/queue/orders` as in STOMP, `queue:orders`, or `orders`.

All of them mean the same queue wherever a destination is given as text. A mixture of two spellings, such as
`queue//orders`, would name a queue that nobody means, and is refused. `queue:///orders` is the one way to name a queue
whose name begins with a slash, as Artemis clients that use no prefixes create them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from jmsx.core.option_checks import kind_of, nearest, odd_character, plain_text, unknown
from jmsx.errors import InvalidDestinationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KINDS: Final = (
    "queue",
    "topic",
    "temp-queue",
    "temp-topic",
    "remote-temp-queue",
    "remote-temp-topic",
)

#: The schemes of brokers' URLs, which are no kinds of destination.
_BROKERS: Final = ("stomp", "stomp+ssl", "tcp", "ssl", "failover")

#: What looks like a kind, what may be meant to separate it from the name, and the name.
_DIVIDED: Final = re.compile(r"(/?)([A-Za-z-]+)(://|:/|:|//|/|\Z)(.*)", re.DOTALL)

#: A destination with its kind; no other text looks like one by chance.
_WHOLE: Final = re.compile(rf"(?:(?:{'|'.join(KINDS)})://|/(?:{'|'.join(KINDS)})/)[^\s\0-\x1f]+")

#: Wildcards for all that follows: Classic's `>`, and Artemis' `#`, which may also stand in the middle.
REST: Final = (">", "#")

#: The spellings: what is in front of the kind, and what separates it from the name.
_SPELLINGS: Final = (("", "://"), ("", ":"), ("/", "/"))

#: `consumer.*` options of a destination, as the Java client's URIs spell them, so that a misspelt one is refused when
#: the text is parsed. The dialect says, when a consumer is created, which of them the broker has over STOMP.
_CONSUMER_OPTIONS: Final = (
    "prefetchSize",
    "exclusive",
    "priority",
    "noLocal",
    "retroactive",
    "maximumPendingMessageLimit",
    "dispatchAsync",
    "selector",
    "transformation",
)


@dataclass(frozen=True, slots=True)
class DestinationUri:
    """A destination and the options for its consumers."""

    kind: str  #: `queue`, `topic`, `temp-queue`, …
    name: str
    options: Mapping[str, str] = field(default_factory=dict)  #: `consumer.*`, without that prefix

    def __str__(self) -> str:
        return f"{self.kind}://{self.name}"


def split_name(text: str, default_kind: str = "queue") -> tuple[str, str]:
    """
    Return kind and name of a destination, in whichever spelling; the name may carry options behind a `?`.

    Raises InvalidDestinationError, naming the right spelling.
    """
    if not isinstance(text, str):
        raise InvalidDestinationError(
            f"a destination is a text such as queue://orders, not {kind_of(text)}"
        )
    kind, separator, _ = text.partition("?")[0].partition("://")
    found = _DIVIDED.fullmatch(text)
    if separator and kind.lower().removeprefix("/") not in KINDS:
        raise _of_no_kind(text, kind)
    if found is None or found[2].lower() not in KINDS or not (found[1] or found[3]):
        if text.startswith("/"):
            raise InvalidDestinationError(
                f"{text!r} is not a destination; write {default_kind}:/{text},"
                f" or {default_kind}://{text} if its name begins with a slash"
            )
        return default_kind, text
    slash, kind, divider, name = found.groups()
    if kind in KINDS and (slash, divider) in _SPELLINGS and name:
        return kind, name
    if (slash, divider) == ("", "/") and kind in KINDS:
        return default_kind, text  # a name with a slash in it, such as queue/orders
    raise InvalidDestinationError(
        f"{text!r} is not a destination; write {kind.lower()}://{name.lstrip('/') or 'NAME'}"
    )


def _of_no_kind(text: str, kind: str) -> InvalidDestinationError:
    """Return an error that has the right spelling, or says what `text` is instead."""
    if kind in _BROKERS:
        return InvalidDestinationError(
            f"{text!r} is not a destination: that is the URL of a broker; write queue://NAME"
        )
    near = nearest(kind, list(KINDS))
    hint = f"; write {near}://{text.partition('://')[2]}" if near else ""
    return InvalidDestinationError(
        f"{text!r} is not a destination: {kind!r} is none of {', '.join(KINDS)}{hint}"
    )


def wire_destination(uri: str) -> str:
    """
    Return `queue://orders` as `/queue/orders`, as in the examples of STOMP's specification; of a list, each one.

    Options after `?` are for the client, and are left out. Raises InvalidDestinationError for what is no URI.
    """
    whole = uri.partition("?")[0]
    kind, separator, name = whole.partition("://")
    if not separator or kind not in KINDS or not name:
        raise InvalidDestinationError(
            f"{uri!r} is not a destination; write queue://NAME or topic://NAME"
        )
    if not is_composite(whole):
        return f"/{kind}/{name}"
    return ",".join(f"/{kind}/{name}" for kind, name in parts(whole))


def destination_uri(wire: str | None) -> str | None:
    """Return `/queue/orders` as `queue://orders`; an unknown form stays as it is."""
    if not wire:
        return None
    kind, separator, name = wire.removeprefix("/").partition("/")
    return f"{kind}://{name}" if separator and wire[0] == "/" and kind in KINDS else wire


def is_wildcard(destination: str) -> bool:
    """
    Return whether a name or URI has a wildcard of some broker.

    Classic's wildcards are `*` and `>`, Artemis' `*` and `#`. A name in which they are meant literally is only treated
    with more care than it needs.
    """
    name = destination.partition("?")[0]
    return "*" in name or ">" in name or "#" in name.rpartition("://")[2].split(".")


def is_composite(destination: str) -> bool:
    """Return whether a name or URI lists several destinations, such as `queue://A,topic://B`."""
    return "," in destination.partition("?")[0]


def is_pattern(destination: str) -> bool:
    """Return whether a name or URI stands for several destinations, so that each message tells its own."""
    return is_wildcard(destination) or is_composite(destination)


def one_of(pattern: str, told: str) -> str:
    """
    Return the URI of the destination among those of `pattern` that has the name of the URI `told`; empty if none has.

    `told` is what the headers of a message say, which its sender may have written.
    """
    name = told.partition("://")[2]
    for kind, each in parts(pattern.partition("?")[0]):
        if name and matches(each.split("."), name.split(".")):
            return f"{kind}://{name}"
    return ""


def matches(pattern: Sequence[str], named: Sequence[str]) -> bool:
    """
    Return whether a name matches a wildcard pattern; both are split at `.` into parts.

    `*` is one part; `>` is all that follows, even nothing; `#` is any number of parts, or none, also in the middle.
    """
    for index, wanted in enumerate(pattern):
        if wanted in REST:
            others = pattern[index + 1 :] if wanted == "#" else ()
            begins = range(index, len(named) + 1)
            return not others or any(matches(others, named[begin:]) for begin in begins)
        if index >= len(named) or wanted not in ("*", named[index]):
            return False
    return len(pattern) == len(named)


def is_swapped(to: object, body: object) -> bool:
    """Return whether the arguments of a send were swapped: `body` looks like a destination, and `to` does not."""
    if not (isinstance(to, str) and isinstance(body, str)):
        return False
    return _WHOLE.fullmatch(body) is not None and _WHOLE.match(to) is None


def is_foreign_temporary(uri: str) -> bool:
    """Return whether `uri` is a temporary destination of another connection, as Classic names those."""
    return uri.startswith("remote-temp-")


def parts(destination: str) -> list[tuple[str, str]]:
    """
    Return kind and name of each destination that a URI lists; those without a kind have the first one's.

    Raises InvalidDestinationError for a part that is no destination.
    """
    first, *others = destination.split(",")
    kind, name = split_name(first)
    found = [(kind, name), *(split_name(other, kind) for other in others)]
    for _, name in found:
        check_name(name, destination)
    return found


def check_name(name: str, destination: str) -> None:
    """
    Raise InvalidDestinationError, which quotes `destination`, if no destination can have this `name`.

    A name of blanks alone is refused, because brokers strip `/queue/ ` to an empty name. Control characters and lone
    surrogates are refused, because they would break the frame or the display of a console.
    """
    if not name.strip():
        raise InvalidDestinationError(
            f"{destination!r} is not a destination: a name in it is empty; write queue://NAME"
        )
    odd = odd_character(name)
    if odd is not None:
        raise InvalidDestinationError(
            f"{destination!r} is not a destination: {odd!r} cannot stand in a name"
        )


def parse_destination(text: str, default_kind: str = "queue") -> DestinationUri:
    """
    Read `queue://orders?consumer.prefetchSize=10`, another spelling of it, or a list such as `A,topic://B`.

    Raises InvalidDestinationError or, for an option, ConfigurationError.
    """
    text = plain_text(text) if isinstance(text, str) else text  # what is no text is refused below
    kind, bare = split_name(text, default_kind) if not _lists(text) else _listed(text, default_kind)
    name, _, query = bare.partition("?")
    check_name(name, text)
    if name != name.strip() and not is_composite(name):
        raise InvalidDestinationError(
            f"{text!r} is not a destination: its name begins or ends with a blank"
        )
    known = [f"consumer.{option}" for option in _CONSUMER_OPTIONS]
    options = {}
    for option, value in parse_qsl(query, keep_blank_values=True):
        if option not in known:
            raise unknown("option", option, known)
        options[option.removeprefix("consumer.")] = value
    return DestinationUri(kind, name, options)


def _lists(text: object) -> bool:
    return isinstance(text, str) and is_composite(text)


def _listed(text: str, default_kind: str) -> tuple[str, str]:
    """Return the kind of a list's first destination, and the names; a destination of another kind keeps its kind."""
    names, mark, query = text.partition("?")
    kind, first = split_name(names.partition(",")[0], default_kind)
    found = parts(f"{kind}://{first},{names.partition(',')[2]}")
    listed = [name if one == kind else f"{one}://{name}" for one, name in found]
    return kind, ",".join(listed) + mark + query
