"""
Rewrites JMS selectors for properties that are all strings, as they are over STOMP.

A bare `flag` is never true for a string, so it is sent as `flag = TRUE`, which means the same for a boolean property.
The broker converts a string to the type of the number that it is compared with, so whole numbers are sent as decimals.
A selector that cannot be parsed is sent as it is. What only one kind of broker does is in its adapter.

Source: `SelectorParser.jj` and `ArithmeticExpression.java` of ActiveMQ; probed on Classic 6.1.8 and Artemis 2.44.0.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final, NamedTuple

from jmsx.core.headers import INT

#: A whole number that is exact as a decimal, too; further digits after a 0 would be octal, and do not match.
_WHOLE: Final = re.compile(r"(0|[1-9][0-9]{0,14})[lL]?")

_KEYWORDS: Final = frozenset(
    {
        "AND", "OR", "NOT", "BETWEEN", "LIKE", "ESCAPE", "IN", "IS", "NULL", "TRUE", "FALSE", "XPATH", "XQUERY",
    }
)  # fmt: skip

#: A comment `--` ends with a line feed: without one, Classic 6.1.8 reads it as two minus signs and what follows.
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


class Token(NamedTuple):
    """A word, name, text, number or sign of a selector, and its position there."""

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
    Return `selector` with a comparison for each bare `flag`; if the property is missing, neither `flag` nor `NOT flag`
    is true.
    """
    for token, negated in reversed(_truths(tokens_of(selector))):
        truth = "<> FALSE" if negated else "= TRUE"
        selector = f"{selector[: token.start]}({token.text} {truth}){selector[token.end :]}"
    return selector


def in_decimals(selector: str) -> str:
    """
    Return `selector` with each whole number as a decimal, if that is exact, and with the results of their divisions.

    To the broker the strings 2.5, 1.0 and 3000000000 are no numbers if compared with `1`, but they are if compared with
    `1.0`. Divisions are calculated here, because 5/2 is 2, as in Java, and 5.0/2.0 is not. Source:
    `ComparisonExpression.compare` and `ArithmeticExpression.divide` of ActiveMQ, which Artemis has too.
    """
    tokens = tokens_of(selector)
    divisions = {last: first for first, last in _divisions(tokens)}
    index = len(tokens)
    while index > 0:
        index -= 1
        if index in divisions:
            first, last = divisions[index], index
            whole_run = ends_operand(tokens[last])  # else the operand goes on with something else
            value = _calculated(tokens[first : last + 1]) if whole_run else None
            if value is not None and _begins_operand(tokens, first):
                start, end = tokens[first].start, tokens[last].end
                selector = f"{selector[:start]} {value}.0 {selector[end:]}"
            index = first
            continue
        token, behind = tokens[index], tokens[index + 1 : index + 2]
        whole = _WHOLE.fullmatch(token.text)
        joined = bool(behind) and behind[0].start == token.end and behind[0].kind != "sign"  # 0xFF
        if whole and not joined:
            selector = f"{selector[: token.start]}{whole[1]}.0{selector[token.end :]}"
    return selector


def _divisions(tokens: list[Token]) -> list[tuple[int, int]]:
    """Return the first and last token of each calculation with whole numbers alone that has a division in it."""
    found = []
    first = 0
    while first < len(tokens):
        last = first
        while last < len(tokens) and _of_wholes(tokens[last]):
            last += 1
        calculated = tokens[first:last]
        skipped = max(last, first + 1)
        # drop a parenthesis whose other half is outside
        while calculated and _depth(calculated) != 0:
            surplus = _depth(calculated) < 0
            calculated = calculated[:-1] if surplus else calculated[1:]
            first, last = (first, last - 1) if surplus else (first + 1, last)
        if any(one.text == "/" for one in calculated):
            found.append((first, last - 1))
        first = skipped
    return found


def _begins_operand(tokens: list[Token], index: int) -> bool:
    """Return whether an operand begins at `index`, and not the list of an IN or something behind an operand."""
    return index == 0 or not (ends_operand(tokens[index - 1]) or tokens[index - 1].text == "IN")


def _calculated(tokens: list[Token]) -> int | None:
    """Return the result of a calculation with whole numbers, as in Java; None if it has none, or none in an int."""
    rest = deque(token.text for token in tokens)
    try:
        value = _sum(rest)
    except (ArithmeticError, LookupError, ValueError):
        return None
    return None if rest else value


def _sum(rest: deque[str]) -> int:
    value = _product(rest)
    while rest and rest[0] in ("+", "-"):
        value = _int(value + _product(rest) if rest.popleft() == "+" else value - _product(rest))
    return value


def _product(rest: deque[str]) -> int:
    value = _factor(rest)
    while rest and rest[0] in ("*", "/", "%"):
        sign, other = rest.popleft(), _factor(rest)
        if sign == "*":
            value = _int(value * other)
            continue
        quotient = abs(value) // abs(other) * (1 if (value < 0) == (other < 0) else -1)
        value = quotient if sign == "/" else value - quotient * other
    return value


def _factor(rest: deque[str]) -> int:
    part = rest.popleft()
    if part == "(":
        value = _sum(rest)
        if rest.popleft() != ")":
            raise ValueError(part)
        return value
    if part in ("+", "-"):
        return _factor(rest) if part == "+" else -_factor(rest)
    return _int(int(part))


def _int(value: int) -> int:
    if abs(value) > INT:
        raise OverflowError(value)
    return value


def _of_wholes(token: Token) -> bool:
    return (
        token.text in ("+", "-", "*", "/", "%", "(", ")")
        or _WHOLE.fullmatch(token.text) is not None
    )


def _depth(tokens: list[Token]) -> int:
    return sum((one.text == "(") - (one.text == ")") for one in tokens)


def tokens_of(selector: str) -> list[Token]:
    """Return the tokens of `selector`; an empty list if it has characters that no selector can have."""
    found: list[Token] = []
    at = 0
    while at < len(selector):
        match = _TOKEN.match(selector, at)
        if match is None:
            return []
        kind, text = str(match.lastgroup), match[0]
        if kind == "name" and text.upper() in _KEYWORDS:
            kind, text = "word", text.upper()
        if kind != "blank":
            found.append(Token(kind, text, at, match.end()))
        at = match.end()
    return found


def ends_operand(token: Token) -> bool:
    """Return whether an operand may end with `token`."""
    return token.kind in ("text", "number", "name") or token.text in (")", "TRUE", "FALSE", "NULL")


def operand(tokens: list[Token], index: int, step: int) -> list[Token]:
    """Return the operand that begins (`step` 1) or ends (-1) at `index`, without signs; parentheses are one operand."""
    while step > 0 and index < len(tokens) and tokens[index].text in ("+", "-"):
        index += 1
    opening, closing = ("(", ")") if step > 0 else (")", "(")
    found: list[Token] = []
    depth = 0
    while 0 <= index < len(tokens):
        token = tokens[index]
        depth += (token.text == opening) - (token.text == closing)
        found.append(token)
        if depth <= 0:
            break
        index += step
    return found


def _truths(tokens: list[Token]) -> list[tuple[Token, bool]]:
    """Return the names that are used as booleans, each with whether a NOT precedes it."""
    words = ["", *(token.text if token.kind in ("word", "sign") else "?" for token in tokens), ""]
    ranges = 0
    for index, word in enumerate(words):  # the AND of a BETWEEN joins no booleans
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
