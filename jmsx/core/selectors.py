"""
What a JMS selector means where every property is a text, as over STOMP.

A bare `flag` is never true there, so it is sent as `flag = TRUE`, which is the same for a property that is a boolean. A
text is read as the kind of number that it is compared with, so whole numbers are sent as decimals. A text is nothing to
calculate with: on Classic the broker then fails at each message, whoever sends it, and no other consumer of the queue
gets any more. So arithmetic is refused before it is sent, and so are Classic's own functions, which fail likewise. What
cannot be parsed is left to the broker.

Source: `SelectorParser.jj` and `ArithmeticExpression.java` of ActiveMQ; probed on Classic 6.1.8 and Artemis 2.44.0.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from jmsx.errors import InvalidSelectorError

#: Names whose values are numbers on the broker.
_NUMBERS: Final = frozenset(
    {
        "JMSPriority", "JMSTimestamp", "JMSExpiration", "JMSXDeliveryCount", "JMSXGroupSeq", "JMSActiveMQBrokerInTime",
        "JMSActiveMQBrokerOutTime",
    }
)  # fmt: skip

#: A whole number that is as exact as a decimal; what begins with a 0 is octal.
_WHOLE: Final = re.compile(r"(0|[1-9][0-9]{0,14})[lL]?")

_KEYWORDS: Final = frozenset(
    {
        "AND", "OR", "NOT", "BETWEEN", "LIKE", "ESCAPE", "IN", "IS", "NULL", "TRUE", "FALSE", "XPATH", "XQUERY",
    }
)  # fmt: skip

#: A remark ends with its line: in a last one without line feed Classic reads two signs and what follows (6.1.8).
_TOKEN: Final = re.compile(
    r"""
      (?P<blank> \s+ | --[^\r\n]*[\r\n] | /\*.*?\*/ )
    | (?P<text> '(?:[^']|'')*' )
    | (?P<number> (?: [0-9]+ (?: \.[0-9]* )? | \.[0-9]+ ) (?: [eE][+-]?[0-9]+ )? [lL]? )
    | (?P<name> [^\W\d][\w$]* | \$[\w$]* | "(?:[^"]|"")*" )
    | (?P<sign> <> | <= | >= | [=<>+*/%(),-] )
    """,
    re.VERBOSE | re.DOTALL,
)


class _Token(NamedTuple):
    kind: str  #: text, number, name, word (a keyword) or sign
    text: str  #: keywords in capitals
    start: int
    end: int


def literal(text: str) -> str:
    """Return `text` as a string literal of a selector."""
    quoted = text.replace("'", "''")
    return f"'{quoted}'"


def spelled_out(selector: str) -> str:
    """
    Write out a comparison for each bare `flag` in `selector`; without that property
    neither it nor its NOT is true.
    """
    for token, negated in reversed(_truths(_tokens(selector))):
        truth = "<> FALSE" if negated else "= TRUE"
        selector = f"{selector[: token.start]}({token.text} {truth}){selector[token.end :]}"
    return selector


def in_decimals(selector: str) -> str:
    """
    Write each whole number in `selector` as a decimal, if that is exact.

    Beside a `1` the texts 2.5, 1.0 and 3000000000 are no numbers to the broker, beside a `1.0` they are. Source:
    `ComparisonExpression.compare` of ActiveMQ, which Artemis has too.
    """
    tokens = _tokens(selector)
    for index in reversed(range(len(tokens))):
        token, behind = tokens[index], tokens[index + 1 : index + 2]
        whole = _WHOLE.fullmatch(token.text)
        joined = bool(behind) and behind[0].start == token.end and behind[0].kind != "sign"  # 0xFF
        if whole and not joined:
            selector = f"{selector[: token.start]}{whole[1]}.0{selector[token.end :]}"
    return selector


def check_arithmetic(selector: str) -> None:
    """Raise InvalidSelectorError where `selector` does arithmetic with a property."""
    tokens = _tokens(selector)
    for index, token in enumerate(tokens):
        if token.kind != "sign" or token.text not in "+-*/%":
            continue
        operands = [_operand(tokens, index + 1, 1)]
        if index > 0 and _ends_operand(tokens[index - 1]):
            operands.append(_operand(tokens, index - 1, -1))
        if token.text == "+" and any(one.kind == "text" for part in operands for one in part):
            continue  # it joins texts
        for one in (one for part in operands for one in part):
            if one.kind == "name" and one.text not in _NUMBERS:
                raise InvalidSelectorError(
                    f"selector {selector!r} calculates with the property {one.text}, which over STOMP is a"
                    f" text: ActiveMQ Classic would fail at '{token.text}' for each message, and stop the destination"
                    f" for everybody; compare {one.text} with a number that the program has calculated"
                )


def check_functions(selector: str) -> None:
    """Raise InvalidSelectorError where `selector` calls a function, which JMS has none of."""
    tokens = _tokens(selector)
    for index, token in enumerate(tokens[1:]):
        if token.text == "(" and tokens[index].kind == "name":
            called = tokens[index].text
            raise InvalidSelectorError(
                f"selector {selector!r} calls {called}, which is no part of JMS: ActiveMQ Classic would fail at it"
                " for each message that does not fit, and stop the destination for everybody; send what it finds out as"
                " a property"
            )


def _tokens(selector: str) -> list[_Token]:
    """Return the tokens of `selector`; none if it contains what no selector contains."""
    found: list[_Token] = []
    at = 0
    while at < len(selector):
        match = _TOKEN.match(selector, at)
        if match is None:
            return []
        kind, text = str(match.lastgroup), match[0]
        if kind == "name" and text.upper() in _KEYWORDS:
            kind, text = "word", text.upper()
        if kind != "blank":
            found.append(_Token(kind, text, at, match.end()))
        at = match.end()
    return found


def _ends_operand(token: _Token) -> bool:
    return token.kind in ("text", "number", "name") or token.text in (")", "TRUE", "FALSE", "NULL")


def _operand(tokens: list[_Token], index: int, step: int) -> list[_Token]:
    """Return the operand that begins (`step` 1) or ends (-1) at `index`, without signs; parentheses are one operand."""
    while step > 0 and index < len(tokens) and tokens[index].text in ("+", "-"):
        index += 1
    opening, closing = ("(", ")") if step > 0 else (")", "(")
    found: list[_Token] = []
    depth = 0
    while 0 <= index < len(tokens):
        token = tokens[index]
        depth += (token.text == opening) - (token.text == closing)
        found.append(token)
        if depth <= 0:
            break
        index += step
    return found


def _truths(tokens: list[_Token]) -> list[tuple[_Token, bool]]:
    """Return the names that stand where a boolean is wanted, each with whether it stands behind a NOT."""
    words = ["", *(token.text if token.kind in ("word", "sign") else "?" for token in tokens), ""]
    ranges = 0
    for index, word in enumerate(words):  # the AND of a BETWEEN joins no truths
        ranges += word == "BETWEEN"
        if word == "AND" and ranges:
            ranges, words[index] = ranges - 1, "?"
    found = []
    for index, token in enumerate(tokens, 1):
        left, right = index - 1, index + 1
        while (words[left], words[right]) == ("(", ")"):  # (rank) > 3
            left, right = left - 1, right + 1
        truth = words[left] in ("", "AND", "OR", "NOT", "(") and words[right] in (
            "",
            "AND",
            "OR",
            ")",
        )
        if token.kind == "name" and truth:
            found.append((token, words[left] == "NOT"))
    return found
