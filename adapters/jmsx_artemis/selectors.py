"""
Translates JMS selectors into Artemis' core filters.

Over STOMP a selector is a core filter: it names the JMS headers differently, and compares strings with numbers only
with a prefix. Source: BROKER.md A21; the names are those of `SelectorTranslator.java` of Artemis' JMS client.
"""

from __future__ import annotations

import itertools
import re
from typing import Final

from jmsx.core.headers import SENDER_HEADER
from jmsx.core.selectors import (
    ends_operand,
    in_decimals,
    literal,
    operand,
    spelled_out,
    tokens_of,
)
from jmsx.errors import InvalidSelectorError

#: The prefix by which strings are compared with numbers, too: over STOMP every property is a string.
NUMBERS: Final = "convert_string_expressions:"

_NAMES: Final = {
    "JMSPriority": "AMQPriority",
    "JMSTimestamp": "AMQTimestamp",
    "JMSExpiration": "AMQExpiration",
    "JMSMessageID": "AMQUserID",
    "JMSXGroupID": "_AMQ_GROUP_ID",
    "JMSDeliveryMode": "AMQDurable",
    "'PERSISTENT'": "'DURABLE'",
    "'NON_PERSISTENT'": "'NON_DURABLE'",
}
#: The filters of a durable subscription with `no_local` and no selector: the former one, which the broker made itself
#: and which names a connection that is long gone, and the present one.
_FORMER_OTHERS: Final = re.compile(r"\(__AMQ_CID <> '[^']*' OR __AMQ_CID IS NULL\)")
_OTHERS: Final = re.compile(
    rf"{NUMBERS}\({SENDER_HEADER} IS NULL OR {SENDER_HEADER} <> '(?:[^']|'')*'\)"
)

_TOKEN: Final = re.compile(r"'(?:[^']|'')*'|[A-Za-z_$][\w$]*")


def core_filter(selector: str, *, durable: bool = False) -> str:
    """
    Return the `selector` header for a JMS selector.

    The broker cannot negate a string property, but can multiply it, so minus signs become multiplications. The
    selector of a durable subscription keeps its numbers and signs: with another text the subscription would begin anew.
    """
    if not durable:  # a changed text would begin it anew
        check_quotes(selector)
    selector = spelled_out(selector if durable else signs_multiplied(in_decimals(selector)))
    modes = "JMSDeliveryMode" in selector

    def name(match: re.Match[str]) -> str:
        text = match[0]
        return text if text[0] == "'" and not modes else _NAMES.get(text, text)

    return NUMBERS + _TOKEN.sub(name, selector)


def signs_multiplied(selector: str) -> str:
    """Replace each minus sign before a property, or before an expression with one, by a multiplication by -1."""
    tokens = tokens_of(selector)
    signs: list[tuple[int, str]] = []
    for index, token in enumerate(tokens):
        if token.text != "-" or (index > 0 and ends_operand(tokens[index - 1])):
            continue
        negated = operand(tokens, index + 1, 1)
        if any(one.kind == "name" for one in negated):
            signs += [(token.start, "(-1.0*"), (negated[-1].end, ")")]
    for at, written in sorted(signs, reverse=True):
        selector = selector[:at] + written + selector[at + (written != ")") :]
    return selector


def check_quotes(selector: str) -> None:
    """
    Raise InvalidSelectorError if `selector` compares with a word in double quotes, by which its author meant a string.

    Double quotes are for property names that are no identifiers, such as `"my-prop"`.
    """
    tokens = tokens_of(selector)
    for sign, token in itertools.pairwise(tokens):
        quoted = token.kind == "name" and token.text.startswith('"')
        if quoted and sign.text in {"=", "<>"} and token.text[1:-1].isidentifier():
            raise InvalidSelectorError(
                f"selector {selector!r} compares with {token.text}, which is the name of a property, being in double"
                f" quotes; write a text in single quotes: {literal(token.text[1:-1])}"
            )


def formerly(meant: str, found: str) -> bool:
    """
    Return whether an older jmsx wrote the filter `found` for the same selector that is now written `meant`, so that
    the subscription is still the one that the application wants.

    The older jmsx left a bare `flag` as it was, and left `no_local` without a selector to the broker.
    """
    if _OTHERS.fullmatch(meant) and _FORMER_OTHERS.fullmatch(found):
        return True
    return found.startswith(NUMBERS) and NUMBERS + spelled_out(found.removeprefix(NUMBERS)) == meant
