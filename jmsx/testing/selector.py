"""
JMS selectors as ActiveMQ and Artemis evaluate them: SQL-92 conditions with three-valued logic.

Not known: XPATH, XQUERY and functions, which are refused like bad syntax, and Artemis' names in double quotes.
Source: activemq-client 6.1.8 SelectorParser.jj, ComparisonExpression, ArithmeticExpression and UnaryExpression;
artemis-selector 2.44.0 StrictParser.jj and HyphenatedParser.jj, which come from them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from jmsx.testing import selector_values as values
from jmsx.testing.selector_values import SelectorValueError, Value

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Selector", "SelectorSyntaxError", "SelectorValueError", "Value"]

_SYNTAX: Final = r"""\s+ | --[^\r\n]* | /\*.*?\*/
      | (?P<float> [0-9]+\.[0-9]*(?:E[+-]?[0-9]+)? | \.[0-9]+(?:E[+-]?[0-9]+)? | [0-9]+E[+-]?[0-9]+ )
      | (?P<hex> 0X[0-9A-F]+ ) | (?P<octal> 0[0-7]* ) | (?P<decimal> [1-9][0-9]*L? )
      | (?P<string> '(?:''|[^'])*' )
      | (?P<name> [A-Z_$][A-Z0-9_$]* )
      | (?P<sign> <> | <= | >= | [=<>+\-*/%(),] )"""
_FLAGS: Final = re.VERBOSE | re.IGNORECASE | re.DOTALL
_TOKEN: Final = re.compile(_SYNTAX, _FLAGS)
_HYPHENATED_TOKEN: Final = re.compile(_SYNTAX.replace("[A-Z0-9_$]*", "[A-Z0-9_$-]*"), _FLAGS)
_RESERVED: Final = frozenset(
    {
        "NOT",
        "AND",
        "OR",
        "BETWEEN",
        "LIKE",
        "ESCAPE",
        "IN",
        "IS",
        "TRUE",
        "FALSE",
        "NULL",
        "XPATH",
        "XQUERY",
    }
)
_CONSTANTS: Final[dict[str, Value]] = {"TRUE": True, "FALSE": False, "NULL": None}


class SelectorSyntaxError(ValueError):
    """The text is not a selector."""


class _Is(Enum):
    """What an expression is, as far as the grammar cares."""

    CONDITION = auto()
    PROPERTY = auto()
    CONSTANT = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class _Expression:
    kind: _Is
    evaluate: Callable[[Callable[[str], Value]], Value]
    constant: Value = None


class Selector:
    """
    A parsed selector; raises SelectorSyntaxError on bad text.

    Args:
        text: the condition.
        convert: a string is read as what it is compared with, a number or a boolean. STOMP's properties are strings.
            Classic does this for STOMP, Artemis on demand; without it such things are never equal.
        hyphens: names may have hyphens inside.
    """

    __slots__ = ("_condition", "text")

    def __init__(self, text: str, *, convert: bool = True, hyphens: bool = False) -> None:
        self.text = text
        parser = _Parser(_tokens(text, _HYPHENATED_TOKEN if hyphens else _TOKEN), convert=convert)
        self._condition = _condition(parser.disjunction())
        parser.expect_end()

    def matches(self, lookup: Callable[[str], Value]) -> bool:
        """
        Whether a message is wanted; `lookup` gives a property's value, None if there is none.

        Raises SelectorValueError on arithmetic with a string.
        """
        return self._condition.evaluate(lookup) is True


def _condition(given: _Expression) -> _Expression:
    """`given` as a condition: a property counts only if it is a boolean."""
    if given.kind is _Is.CONDITION or isinstance(given.constant, bool):
        return given
    if given.kind is not _Is.PROPERTY:
        raise SelectorSyntaxError("Expression will not result in a boolean value")

    def evaluate(lookup: Callable[[str], Value]) -> Value:
        value = given.evaluate(lookup)
        return None if value is None else value is True

    return _Expression(_Is.CONDITION, evaluate)


def _apply(
    operation: Callable[[Value, Value], Value], kind: _Is, left: _Expression, right: _Expression
) -> _Expression:
    return _Expression(
        kind, lambda lookup: operation(left.evaluate(lookup), right.evaluate(lookup))
    )


def _negation(given: _Expression) -> _Expression:
    return _Expression(_Is.CONDITION, lambda lookup: values.negate_truth(given.evaluate(lookup)))


def _check_ordered(side: _Expression) -> None:
    """Neither side of `<` and its kin may be a condition or a constant but a number."""
    is_number = isinstance(side.constant, int | float) and not isinstance(side.constant, bool)
    if side.kind is _Is.CONDITION or (side.kind is _Is.CONSTANT and not is_number):
        raise SelectorSyntaxError("Value cannot be compared.")


class _Parser:
    """Recursive descent, one method per rule of SelectorParser.jj."""

    def __init__(self, tokens: list[tuple[str, str]], *, convert: bool) -> None:
        self._tokens = tokens
        self._position = 0
        self._convert = convert

    def expect_end(self) -> None:
        if self._position < len(self._tokens):
            raise SelectorSyntaxError(f"unexpected {self._tokens[self._position][1]}")

    def _peek(self, ahead: int = 0) -> str:
        """The next word or sign, in capitals; empty for literals, names and the end."""
        position = self._position + ahead
        if position >= len(self._tokens):
            return ""
        kind, text = self._tokens[position]
        word = text.upper()
        return word if kind == "sign" or (kind == "name" and word in _RESERVED) else ""

    def _accept(self, *words: str) -> bool:
        """Step over `words` if they come next."""
        if all(self._peek(ahead) == word for ahead, word in enumerate(words)):
            self._position += len(words)
            return True
        return False

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise SelectorSyntaxError(f"{word} expected")

    def _take(self, *kinds: str) -> tuple[str, str]:
        if self._position < len(self._tokens) and self._tokens[self._position][0] in kinds:
            self._position += 1
            return self._tokens[self._position - 1]
        raise SelectorSyntaxError(f"{' or '.join(kinds)} expected")

    def _compare(
        self, operation: Callable[[Value, Value], Value], left: _Expression, right: _Expression
    ) -> _Expression:
        chosen = operation if self._convert else values.of_one_kind(operation)
        return _apply(chosen, _Is.CONDITION, left, right)

    def _ordered(self, sign: str, left: _Expression, right: _Expression) -> _Expression:
        for side in (left, right):
            _check_ordered(side)
        return self._compare(values.ORDER[sign], left, right)

    def _equality(self, left: _Expression, right: _Expression) -> _Expression:
        for side in (left, right):
            if side.kind is _Is.CONSTANT and side.constant is None:
                raise SelectorSyntaxError("NULL cannot be compared.")
        return self._compare(values.equal, left, right)

    def _string(self) -> str:
        return self._take("string")[1][1:-1].replace("''", "'")

    def disjunction(self) -> _Expression:
        left = self._conjunction()
        while self._accept("OR"):
            right = _condition(self._conjunction())
            left = _apply(values.either, _Is.CONDITION, _condition(left), right)
        return left

    def _conjunction(self) -> _Expression:
        left = self._equalities()
        while self._accept("AND"):
            right = _condition(self._equalities())
            left = _apply(values.both, _Is.CONDITION, _condition(left), right)
        return left

    def _equalities(self) -> _Expression:
        null = _Expression(_Is.OTHER, lambda _: None)
        left = self._comparisons()
        while True:
            if self._accept("="):
                left = self._equality(left, self._comparisons())
            elif self._accept("<>"):
                left = _negation(self._equality(left, self._comparisons()))
            elif self._accept("IS", "NULL"):
                left = self._equality(left, null)
            elif self._accept("IS", "NOT", "NULL"):
                left = _negation(self._equality(left, null))
            else:
                return left

    def _comparisons(self) -> _Expression:
        left = self._sum()
        while True:
            sign = self._peek()
            if sign in values.ORDER:
                self._accept(sign)
                left = self._ordered(sign, left, self._sum())
            elif sign in {"LIKE", "BETWEEN", "IN"}:
                left = self._test(left)
            elif sign == "NOT" and self._peek(1) in {"LIKE", "BETWEEN", "IN"}:
                self._accept("NOT")
                left = _negation(self._test(left))
            else:
                return left

    def _test(self, left: _Expression) -> _Expression:
        if self._accept("LIKE"):
            return self._like(left)
        if self._accept("IN"):
            return self._in(left)
        self._expect("BETWEEN")
        low = self._sum()
        self._expect("AND")
        high = self._sum()
        return _apply(
            values.both,
            _Is.CONDITION,
            self._ordered(">=", left, low),
            self._ordered("<=", left, high),
        )

    def _like(self, left: _Expression) -> _Expression:
        pattern = self._string()
        escape = self._string() if self._accept("ESCAPE") else None
        if escape is not None and len(escape) != 1:
            raise SelectorSyntaxError("ESCAPE takes one character")
        wanted = values.like_pattern(pattern, escape)
        return _Expression(_Is.CONDITION, lambda lookup: values.like(left.evaluate(lookup), wanted))

    def _in(self, left: _Expression) -> _Expression:
        if left.kind is not _Is.PROPERTY:
            raise SelectorSyntaxError("IN needs a property")
        self._expect("(")
        wanted = {self._string()}
        while self._accept(","):
            wanted.add(self._string())
        self._expect(")")
        return _Expression(
            _Is.CONDITION, lambda lookup: values.is_in(left.evaluate(lookup), wanted)
        )

    def _sum(self) -> _Expression:
        left = self._product()
        while (sign := self._peek()) in {"+", "-"}:
            self._accept(sign)
            left = _apply(values.ARITHMETIC[sign], _Is.OTHER, left, self._product())
        return left

    def _product(self) -> _Expression:
        left = self._unary()
        while (sign := self._peek()) in {"*", "/", "%"}:
            self._accept(sign)
            left = _apply(values.ARITHMETIC[sign], _Is.OTHER, left, self._unary())
        return left

    def _unary(self) -> _Expression:
        if self._accept("+"):
            return self._unary()
        if self._accept("-"):
            given = self._unary()
            number = values.negate_number(given.constant)
            return _Expression(
                given.kind if given.kind is _Is.CONSTANT else _Is.OTHER,
                lambda lookup: values.negate_number(given.evaluate(lookup)),
                number,
            )
        if self._accept("NOT"):
            return _negation(_condition(self._unary()))
        return self._primary()

    def _primary(self) -> _Expression:
        if self._accept("("):
            inner = self.disjunction()
            self._expect(")")
            return inner
        kind, text = self._take("name", "string", "float", "hex", "octal", "decimal")
        if kind == "name" and text.upper() not in _RESERVED:
            return _Expression(_Is.PROPERTY, lambda lookup: lookup(text))
        constant = _constant(kind, text)
        return _Expression(_Is.CONSTANT, lambda _: constant, constant)


def _tokens(text: str, pattern: re.Pattern[str]) -> list[tuple[str, str]]:
    """Kind and text of each token; raises SelectorSyntaxError on what is none."""
    found = []
    position = 0
    while position < len(text):
        match = pattern.match(text, position)
        if text[position] == '"':
            raise NotImplementedError(f"the fake broker has no names in double quotes: {text}")
        if match is None:
            raise SelectorSyntaxError(f"unexpected {text[position]!r}")
        position = match.end()
        if match.lastgroup is not None:
            found.append((match.lastgroup, match[0]))
    return found


def _constant(kind: str, text: str) -> Value:
    match kind:
        case "string":
            return text[1:-1].replace("''", "'")
        case "float":
            return float(text)
        case "hex":
            return int(text, 16)
        case "octal":
            return int(text, 8)
        case "decimal":
            return int(text.rstrip("lL"))
        case _:
            if text.upper() not in _CONSTANTS:
                raise SelectorSyntaxError(f"unexpected {text}")
            return _CONSTANTS[text.upper()]
