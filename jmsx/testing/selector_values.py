"""
What the operators of a selector do with values; None is SQL's UNKNOWN.

Source: activemq-client 6.1.8 ComparisonExpression, ArithmeticExpression, LogicExpression and UnaryExpression.
"""

from __future__ import annotations

import math
import operator
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from collections.abc import Set as AbstractSet

Value = str | int | float | bool | None

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_FLOAT: Final = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")


class SelectorValueError(ValueError):
    """Values that the operator cannot take."""


def negate_truth(value: Value) -> Value:
    """NOT."""
    return None if value is None else value is not True


def both(left: Value, right: Value) -> Value:
    """AND: false wins over unknown."""
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def either(left: Value, right: Value) -> Value:
    """OR: true wins over unknown."""
    if left is True or right is True:
        return True
    return None if left is None or right is None else False


def equal(left: Value, right: Value) -> Value:
    """`=`: unknown if only the left side is missing, false if only the right one is."""
    if left is None or right is None:
        return True if left is right else (None if left is None else False)
    pair = _comparable(left, right)
    return pair is not None and pair[0] == pair[1]


def _order(compare: Callable[[float | str, float | str], bool]) -> Callable[[Value, Value], Value]:
    def apply(left: Value, right: Value) -> Value:
        if left is None or right is None:
            return None
        pair = _comparable(left, right)
        return pair is not None and compare(*pair)

    return apply


#: The comparisons that need an order.
ORDER: Final[Mapping[str, Callable[[Value, Value], Value]]] = {
    "<": _order(operator.lt),
    "<=": _order(operator.le),
    ">": _order(operator.gt),
    ">=": _order(operator.ge),
}


def of_one_kind(operation: Callable[[Value, Value], Value]) -> Callable[[Value, Value], Value]:
    """The comparison `operation`, but a string and something else never compare."""

    def apply(left: Value, right: Value) -> Value:
        known = left is not None and right is not None
        if known and isinstance(left, str) is not isinstance(right, str):
            return False
        return operation(left, right)

    return apply


def _comparable(left: str | float, right: str | float) -> tuple[float | str, float | str] | None:
    """
    Both sides in one type, or None: a string becomes what the other side is.

    A boolean on the left and a string on the right do not compare (the broker casts the wrong side).
    """
    if isinstance(left, bool) or isinstance(right, bool):
        if isinstance(left, str) and isinstance(right, bool):
            return left.lower() == "true", right
        return (left, right) if isinstance(left, bool) and isinstance(right, bool) else None
    if isinstance(left, str) and isinstance(right, str):
        return left, right
    if isinstance(left, str) and not isinstance(right, str):
        number = _number_like(left, right)
        return None if number is None else (number, right)
    if isinstance(right, str) and not isinstance(left, str):
        number = _number_like(right, left)
        return None if number is None else (left, number)
    return left, right


def _number_like(text: str, other: float) -> float | None:
    """`text` as a number of the type of `other`: `5.5` is not one beside an integer."""
    pattern = _INTEGER if isinstance(other, int) else _FLOAT
    return type(other)(text) if pattern.fullmatch(text) else None


def _arithmetic(compute: Callable[[float, float], float]) -> Callable[[Value, Value], Value]:
    def apply(left: Value, right: Value) -> Value:
        if left is None or right is None:
            return None
        if isinstance(left, bool | str) or isinstance(right, bool | str):
            raise SelectorValueError(f"Cannot calculate with {left!r} and {right!r}")
        return compute(left, right)

    return apply


def _plus(left: Value, right: Value) -> Value:
    """`+`: joins what is right of a string."""
    if isinstance(left, str) and right is not None:
        return left + (str(right).lower() if isinstance(right, bool) else str(right))
    return _arithmetic(operator.add)(left, right)


def _divide(left: float, right: float) -> float:
    """Java's division of doubles, which never fails."""
    if right:
        return left / right
    return math.nan if not left or math.isnan(left) else math.copysign(math.inf, left)


def _modulo(left: float, right: float) -> float:
    """Java's remainder of doubles, with the sign of the left side."""
    return math.fmod(left, right) if right else math.nan


#: The arithmetic operators; division and remainder are always of doubles.
ARITHMETIC: Final[Mapping[str, Callable[[Value, Value], Value]]] = {
    "+": _plus,
    "-": _arithmetic(operator.sub),
    "*": _arithmetic(operator.mul),
    "/": _arithmetic(_divide),
    "%": _arithmetic(_modulo),
}


def negate_number(value: Value) -> Value:
    """Unary minus; unknown for what is no number."""
    return None if value is None or isinstance(value, bool | str) else -value


def like_pattern(pattern: str, escape: str | None) -> re.Pattern[str]:
    """LIKE's pattern as a regular expression; `escape` only counts before `%`, `_` and itself."""
    parts = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        following = pattern[position + 1 : position + 2]
        if character == escape and following and following in f"_%{escape}":
            parts.append(re.escape(following))
            position += 1
        else:
            parts.append({"%": ".*", "_": "."}.get(character, re.escape(character)))
        position += 1
    return re.compile("".join(parts), re.DOTALL)


def like(value: Value, pattern: re.Pattern[str]) -> Value:
    """LIKE: false for what is no string."""
    if value is None:
        return None
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def is_in(value: Value, wanted: AbstractSet[str]) -> Value:
    """IN: unknown for what is no string."""
    return value in wanted if isinstance(value, str) else None
