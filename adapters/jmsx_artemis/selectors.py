"""
JMS selectors in Artemis' own words.

Over STOMP a selector is a core filter: the JMS headers have other names there, and texts are not compared with numbers
unless told so. Source: BROKER.md A21; the names are those of `SelectorTranslator.java` of Artemis' JMS client.
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

#: Compares texts with numbers too; every property is a text over STOMP.
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
#: What `no_local` alone was for a durable subscription, until it meant the connection: a header that the broker made a
#: filter of, which names a socket that is long gone. And what it is now.
_FORMER_OTHERS: Final = re.compile(r"\(__AMQ_CID <> '[^']*' OR __AMQ_CID IS NULL\)")
_OTHERS: Final = re.compile(
    rf"{NUMBERS}\({SENDER_HEADER} IS NULL OR {SENDER_HEADER} <> '(?:[^']|'')*'\)"
)

_TOKEN: Final = re.compile(r"'(?:[^']|'')*'|[A-Za-z_$][\w$]*")


def core_filter(selector: str, *, durable: bool = False) -> str:
    """
    Return the `selector` header for a JMS selector.

    A text has no sign to the broker, but can be multiplied. That of a durable subscription keeps its numbers and signs
    as they are: another text would begin it anew.
    """
    if not durable:  # in other words it would begin anew
        check_quotes(selector)
    selector = spelled_out(selector if durable else signs_multiplied(in_decimals(selector)))
    modes = "JMSDeliveryMode" in selector

    def name(match: re.Match[str]) -> str:
        text = match[0]
        return text if text[0] == "'" and not modes else _NAMES.get(text, text)

    return NUMBERS + _TOKEN.sub(name, selector)


def signs_multiplied(selector: str) -> str:
    """Write each minus sign of a property, or of what is calculated with one, as a multiplication."""
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
    Raise InvalidSelectorError where `selector` compares with a word in double quotes, which is meant as a text.

    Only the name of a property that is no identifier needs them, as `"my-prop"` does.
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
    Return whether an older jmsx wrote the filter `found` for what is now `meant`: the application wants no other
    subscription.

    It left a bare `flag` as it was, and `no_local` without a selector to the broker.
    """
    if _OTHERS.fullmatch(meant) and _FORMER_OTHERS.fullmatch(found):
        return True
    return found.startswith(NUMBERS) and NUMBERS + spelled_out(found.removeprefix(NUMBERS)) == meant
