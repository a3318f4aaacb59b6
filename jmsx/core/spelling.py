"""
How people write destinations: `queue://orders` as in a URI, `/queue/orders` as in STOMP, `queue:orders`, or `orders`.

All of them mean the same queue wherever a destination is taken as text. What stands between two spellings, such as
`queue//orders`, would be a queue of that odd name, which nobody means; so it is refused. `queue:///orders` is the one
way to name a queue whose name begins with a slash, as clients of Artemis without prefixes make them.
"""

from __future__ import annotations

import re
from typing import Final

from jmsx.errors import InvalidDestinationError

KINDS: Final = (
    "queue",
    "topic",
    "temp-queue",
    "temp-topic",
    "remote-temp-queue",
    "remote-temp-topic",
)

#: Something that looks like a kind, before what may be meant to divide it from the name.
_DIVIDED: Final = re.compile(r"(/?)([A-Za-z-]+)(://|:/|:|//|/|\Z)(.*)", re.DOTALL)

#: How each spelling divides kind and name: whether a slash is in front, and what is between.
_SPELLINGS: Final = (("", "://"), ("", ":"), ("/", "/"))


def spelt(text: str, default_kind: str = "queue") -> tuple[str, str]:
    """
    Kind and name of a destination, in whichever spelling; the name may carry options behind a `?`.

    Raises InvalidDestinationError, naming the right spelling.
    """
    if not isinstance(text, str):
        raise InvalidDestinationError(
            f"a destination is a text such as queue://orders, not a {type(text).__name__}"
        )
    kind, separator, _ = text.partition("?")[0].partition("://")
    found = _DIVIDED.fullmatch(text)
    if separator and kind.lower().removeprefix("/") not in KINDS:
        raise InvalidDestinationError(
            f"{text!r} is not a destination: {kind!r} is none of {', '.join(KINDS)}"
        )
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
