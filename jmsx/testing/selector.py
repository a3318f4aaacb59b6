"""
JMS selectors as both brokers evaluate them: SQL-92 conditions with three-valued logic.

XPATH, XQUERY and functions are refused like bad syntax. The value None stands for SQL's UNKNOWN.
Source: activemq-client 6.1.8 SelectorParser.jj, ComparisonExpression, ArithmeticExpression, LogicExpression and
UnaryExpression; artemis-selector 2.44.0 StrictParser.jj and HyphenatedParser.jj, which come from them.

SQLite's expressions cannot replace the parser. Translated word by word (names to columns, numbers to REAL), 8 of the 59
selectors of tests/integration/parity/selecting.py had another result than on Classic, and 9 another than on Artemis.
With n = '5', f = '2.5', s = 'it''s', t = 'true' as STOMP brings them:

    selector    brokers                        SQLite
    NOT n = 6   false: (NOT n) = 6             true: NOT (n = 6)
    f > 2       false: beside an integer only  true: a column's text is more than any number, or is read as REAL
                an integer is a number
    s > 'a'     refused: no order of texts     true
    n IN (5)    refused: texts only            an answer
    1           refused: no condition          true
    n > 4       Artemis: false, n is a text    true
    t = TRUE    Classic: true, t is read as    false: TRUE is 1
                what it is compared with
    n + 1 = 51  Classic: true, texts join      false: 6

To get these right one must know what is a condition, a property or a constant, and that takes a parser.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn

Value = str | int | float | bool | None
Lookup = Callable[[str], Value]
Compare = Callable[[Value, Value], Value]

_SYNTAX: Final = r"""\s+ | --[^\r\n]* | /\*.*?\*/
      | (?P<float> [0-9]+\.[0-9]*(?:E[+-]?[0-9]+)? | \.[0-9]+(?:E[+-]?[0-9]+)? | [0-9]+E[+-]?[0-9]+ )
      | (?P<hex> 0X[0-9A-F]+ ) | (?P<octal> 0[0-7]* ) | (?P<decimal> [1-9][0-9]*L? )
      | (?P<string> '(?:''|[^'])*' )
      | (?P<name> [A-Z_$][A-Z0-9_$]* )
      | (?P<sign> <> | <= | >= | [=<>+\-*/%(),] )"""
_FLAGS: Final = re.VERBOSE | re.IGNORECASE | re.DOTALL
_TOKEN: Final = re.compile(_SYNTAX, _FLAGS)
_HYPHENATED_TOKEN: Final = re.compile(_SYNTAX.replace("[A-Z0-9_$]*", "[A-Z0-9_$-]*"), _FLAGS)
_CONSTANTS: Final[dict[str, Value]] = {"TRUE": True, "FALSE": False, "NULL": None}
_RESERVED: Final = _CONSTANTS.keys() | {
    "NOT", "AND", "OR", "BETWEEN", "LIKE", "ESCAPE", "IN", "IS", "XPATH", "XQUERY",
}  # fmt: skip


class SelectorSyntaxError(ValueError):
    """The text is not a selector."""


class SelectorValueError(ValueError):
    """The selector calculates with a string, of which each broker makes something else."""


class Selector:
    """
    A parsed selector; raises SelectorSyntaxError on bad text.

    Args:
        text: the condition.
        convert: whether a string is converted to the type it is compared with, a number or a boolean, because all
            properties sent over STOMP are strings. Classic always does this for STOMP, Artemis on demand; without it a
            string never equals a number or boolean.
        hyphens: whether names may contain hyphens.
    """

    __slots__ = ("_condition", "text")

    def __init__(self, text: str, *, convert: bool = True, hyphens: bool = False) -> None:
        self.text = text
        parser = _Parser(_tokens(text, _HYPHENATED_TOKEN if hyphens else _TOKEN), convert=convert)
        self._condition = parser.selector()

    def matches(self, lookup: Lookup) -> bool:
        """
        Return whether a message is selected; `lookup` returns the value of a property, or None if there is none.

        Raises SelectorValueError on arithmetic with a string.
        """
        return self._condition(lookup) is True


def _tokens(text: str, pattern: re.Pattern[str]) -> list[tuple[str, str]]:
    """Return kind and text of each token; raises SelectorSyntaxError on text that is no token."""
    found = []
    position = 0
    while position < len(text):
        match = pattern.match(text, position)
        if match is None:
            raise SelectorSyntaxError(f"unexpected {text[position]!r}")
        position = match.end()
        if match.lastgroup is not None:
            found.append((match.lastgroup, match[0]))
    return found


# -- values -----------------------------------------------------------------------------------

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_FLOAT: Final = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")


def _not(value: Value) -> Value:
    return None if value is None else value is not True


def _and(left: Value, right: Value) -> Value:
    """AND: false wins over unknown."""
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _or(left: Value, right: Value) -> Value:
    """OR: true wins over unknown."""
    return _not(_and(_not(left), _not(right)))


def _equal(left: Value, right: Value) -> Value:
    """Unknown if only the left side is missing, false if only the right one is."""
    if left is None or right is None:
        return True if left is right else (None if left is None else False)
    pair = _comparable(left, right)
    return pair is not None and pair[0] == pair[1]


def _order(compare: Callable[[float | str, float | str], bool]) -> Compare:
    def apply(left: Value, right: Value) -> Value:
        if left is None or right is None:
            return None
        pair = _comparable(left, right)
        return pair is not None and compare(*pair)

    return apply


_ORDER: Final = {
    "<": _order(operator.lt),
    "<=": _order(operator.le),
    ">": _order(operator.gt),
    ">=": _order(operator.ge),
}


def _of_one_kind(compare: Compare) -> Compare:
    """Return `compare` changed so that a string never equals a value that is no string."""

    def apply(left: Value, right: Value) -> Value:
        known = left is not None and right is not None
        if known and isinstance(left, str) is not isinstance(right, str):
            return False
        return compare(left, right)

    return apply


def _comparable(left: str | float, right: str | float) -> tuple[float | str, float | str] | None:
    """
    Return both sides converted to one type, or None if that fails: a string is converted to the other side's type.

    A boolean on the left and a string on the right do not compare (the broker casts the wrong side).
    """
    if isinstance(left, bool) or isinstance(right, bool):
        if isinstance(left, str) and isinstance(right, bool):
            return left.lower() == "true", right
        return (left, right) if isinstance(left, bool) and isinstance(right, bool) else None
    if isinstance(left, str) and not isinstance(right, str):
        number = _number_like(left, right)
        return None if number is None else (number, right)
    if isinstance(right, str) and not isinstance(left, str):
        number = _number_like(right, left)
        return None if number is None else (left, number)
    return left, right


def _number_like(text: str, other: float) -> float | None:
    """Return `text` as a number of the type of `other`, or None: `5.5` is no number beside an integer."""
    pattern = _INTEGER if isinstance(other, int) else _FLOAT
    return type(other)(text) if pattern.fullmatch(text) else None


def _arithmetic(compute: Callable[[float, float], float]) -> Compare:
    def apply(left: Value, right: Value) -> Value:
        if left is None or right is None:
            return None
        if isinstance(left, bool | str) or isinstance(right, bool | str):
            raise SelectorValueError(f"Cannot calculate with {left!r} and {right!r}")
        return compute(left, right)

    return apply


def _plus(left: Value, right: Value) -> Value:
    """Add numbers; if the left side is a string, append the right side to it."""
    if isinstance(left, str) and right is not None:
        return left + (str(right).lower() if isinstance(right, bool) else str(right))
    return _arithmetic(operator.add)(left, right)


def _divide(left: float, right: float) -> float:
    """Divide as Java divides doubles: division by zero gives infinity or NaN."""
    if right:
        return left / right
    return math.nan if not left or math.isnan(left) else math.copysign(math.inf, left)


_ARITHMETIC: Final = {
    "+": _plus,
    "-": _arithmetic(operator.sub),
    "*": _arithmetic(operator.mul),
    "/": _arithmetic(_divide),
    "%": _arithmetic(lambda left, right: math.fmod(left, right) if right else math.nan),
}


def _minus(value: Value) -> Value:
    """Negate a number; unknown if `value` is no number."""
    return None if value is None or isinstance(value, bool | str) else -value


def _like_pattern(pattern: str, escape: str | None) -> re.Pattern[str]:
    """Return LIKE's pattern as a regular expression; `escape` only counts before `%`, `_` and itself."""
    parts = []
    characters = iter(enumerate(pattern, 1))
    for after, character in characters:
        following = pattern[after : after + 1]
        if character == escape and following and following in f"_%{escape}":
            parts.append(re.escape(following))
            next(characters)
        else:
            parts.append({"%": ".*", "_": "."}.get(character, re.escape(character)))
    return re.compile("".join(parts), re.DOTALL)


# -- grammar ----------------------------------------------------------------------------------

_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class _Node:
    """An expression: how to evaluate it, and what the grammar must know of it."""

    evaluate: Callable[[Lookup], Value]
    is_condition: bool = False
    is_property: bool = False
    constant: object = _MISSING

    def truth(self) -> _Node:
        """Return this expression as a condition: a property counts only if it is a boolean."""
        if self.is_condition or isinstance(self.constant, bool):
            return self
        if not self.is_property:
            raise SelectorSyntaxError("Expression will not result in a boolean value")
        evaluate = self.evaluate
        return _Node(lambda lookup: _not(_not(evaluate(lookup))), is_condition=True)

    def check_ordered(self) -> None:
        """Raise SelectorSyntaxError if this is a condition or a constant that is no number: neither has an order."""
        is_number = isinstance(self.constant, int | float) and not isinstance(self.constant, bool)
        if self.is_condition or (self.constant is not _MISSING and not is_number):
            raise SelectorSyntaxError("Value cannot be compared.")


def _constant(value: Value) -> _Node:
    return _Node(lambda _: value, constant=value)


def _both(compute: Compare, left: _Node, right: _Node, *, is_condition: bool = True) -> _Node:
    one, other = left.evaluate, right.evaluate
    return _Node(lambda lookup: compute(one(lookup), other(lookup)), is_condition=is_condition)


def _negated(node: _Node) -> _Node:
    evaluate = node.evaluate
    return _Node(lambda lookup: _not(evaluate(lookup)), is_condition=True)


class _Parser:
    """Recursive descent, one method per rule of SelectorParser.jj."""

    def __init__(self, tokens: list[tuple[str, str]], *, convert: bool) -> None:
        self._tokens = [*tokens, ("end", "")]
        self._at = 0
        self._same = (lambda compare: compare) if convert else _of_one_kind

    def selector(self) -> Callable[[Lookup], Value]:
        """Parse the whole selector; returns a function that evaluates it."""
        condition = self._either().truth()
        if self._tokens[self._at][0] != "end":
            self._fail("the end")
        return condition.evaluate

    def _word(self, ahead: int = 0) -> str:
        """Return the next keyword or sign, in capitals; empty for literals, names and the end."""
        kind, text = self._tokens[min(self._at + ahead, len(self._tokens) - 1)]
        word = text.upper()
        return word if kind == "sign" or (kind == "name" and word in _RESERVED) else ""

    def _accept(self, *words: str) -> bool:
        """Step over `words` if they come next."""
        if any(self._word(ahead) != word for ahead, word in enumerate(words)):
            return False
        self._at += len(words)
        return True

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            self._fail(word)

    def _fail(self, wanted: str) -> NoReturn:
        raise SelectorSyntaxError(f"{wanted} expected, not {self._tokens[self._at][1]!r}")

    def _string(self) -> str:
        kind, text = self._tokens[self._at]
        if kind != "string":
            self._fail("a string")
        self._at += 1
        return text[1:-1].replace("''", "'")

    def _either(self) -> _Node:
        left = self._all()
        while self._accept("OR"):
            left = _both(_or, left.truth(), self._all().truth())
        return left

    def _all(self) -> _Node:
        left = self._equality()
        while self._accept("AND"):
            left = _both(_and, left.truth(), self._equality().truth())
        return left

    def _equality(self) -> _Node:
        left = self._comparison()
        while True:
            if self._accept("="):
                left = self._equal(left, self._comparison())
            elif self._accept("<>"):
                left = _negated(self._equal(left, self._comparison()))
            elif self._accept("IS", "NULL"):
                left = self._equal(left, _Node(lambda _: None))
            elif self._accept("IS", "NOT", "NULL"):
                left = _negated(self._equal(left, _Node(lambda _: None)))
            else:
                return left

    def _equal(self, left: _Node, right: _Node) -> _Node:
        if left.constant is None or right.constant is None:
            raise SelectorSyntaxError("NULL cannot be compared.")
        return _both(self._same(_equal), left, right)

    def _comparison(self) -> _Node:
        left = self._sum()
        while True:
            word = self._word()
            if word in _ORDER:
                self._accept(word)
                left = self._ordered(word, left, self._sum())
            elif word in {"LIKE", "BETWEEN", "IN"}:
                left = self._test(left)
            elif word == "NOT" and self._word(1) in {"LIKE", "BETWEEN", "IN"}:
                self._accept("NOT")
                left = _negated(self._test(left))
            else:
                return left

    def _ordered(self, sign: str, left: _Node, right: _Node) -> _Node:
        left.check_ordered()
        right.check_ordered()
        return _both(self._same(_ORDER[sign]), left, right)

    def _test(self, left: _Node) -> _Node:
        if self._accept("LIKE"):
            return self._like(left.evaluate)
        if self._accept("IN"):
            return self._in(left)
        self._expect("BETWEEN")
        low = self._ordered(">=", left, self._sum())
        self._expect("AND")
        return _both(_and, low, self._ordered("<=", left, self._sum()))

    def _like(self, left: Callable[[Lookup], Value]) -> _Node:
        """Parse LIKE, which is false for a value that is no string."""
        pattern = self._string()
        escape = self._string() if self._accept("ESCAPE") else None
        if escape is not None and len(escape) != 1:
            raise SelectorSyntaxError("ESCAPE takes one character")
        fits = _like_pattern(pattern, escape).fullmatch

        def like(lookup: Lookup) -> Value:
            value = left(lookup)
            return None if value is None else isinstance(value, str) and fits(value) is not None

        return _Node(like, is_condition=True)

    def _in(self, left: _Node) -> _Node:
        """Parse IN, whose list holds strings only; unknown for a value that is no string."""
        if not left.is_property:
            raise SelectorSyntaxError("IN needs a property")
        self._expect("(")
        wanted = {self._string()}
        while self._accept(","):
            wanted.add(self._string())
        self._expect(")")

        def is_in(lookup: Lookup) -> Value:
            value = left.evaluate(lookup)
            return value in wanted if isinstance(value, str) else None

        return _Node(is_in, is_condition=True)

    def _sum(self) -> _Node:
        left = self._product()
        while (sign := self._word()) in {"+", "-"}:
            self._accept(sign)
            left = _both(_ARITHMETIC[sign], left, self._product(), is_condition=False)
        return left

    def _product(self) -> _Node:
        left = self._unary()
        while (sign := self._word()) in {"*", "/", "%"}:
            self._accept(sign)
            left = _both(_ARITHMETIC[sign], left, self._unary(), is_condition=False)
        return left

    def _unary(self) -> _Node:
        if self._accept("+"):
            return self._unary()
        if self._accept("-"):
            given = self._unary()
            if given.constant is not _MISSING:
                return _constant(_minus(given.evaluate(lambda _: None)))
            return _Node(lambda lookup: _minus(given.evaluate(lookup)))
        if self._accept("NOT"):
            return _negated(self._unary().truth())
        return self._primary()

    def _primary(self) -> _Node:
        if self._accept("("):
            inner = self._either()
            self._expect(")")
            return inner
        kind, text = self._tokens[self._at]
        if self._word() in _CONSTANTS:
            value = _CONSTANTS[self._word()]
        elif kind == "string":
            return _constant(self._string())
        elif kind == "name" and not self._word():
            self._at += 1
            return _Node(lambda lookup: lookup(text), is_property=True)
        elif kind in _NUMBERS:
            value = _NUMBERS[kind](text)
        else:
            self._fail("a value")
        self._at += 1
        return _constant(value)


_NUMBERS: Final[dict[str, Callable[[str], float]]] = {
    "float": float,
    "hex": lambda text: int(text, 16),
    "octal": lambda text: int(text, 8),
    "decimal": lambda text: int(text.rstrip("lL")),
}
