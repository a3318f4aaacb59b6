"""
Checks of JMS selectors for Classic over STOMP, where every property is a string.

A selector that calculates with a string makes the broker fail at each message, whoever sent it, and then no consumer of
the queue gets any more messages. So jmsx refuses arithmetic with properties before it sends the selector, and the
broker's own functions, which fail likewise. A selector that jmsx cannot parse is left to the broker.

Source: `SelectorParser.jj` and `ArithmeticExpression.java`; probed on 6.1.8.
"""

from __future__ import annotations

from typing import Final

from jmsx.core.selectors import ends_operand, operand, tokens_of
from jmsx.errors import InvalidSelectorError

#: Names whose values are numbers on the broker.
_NUMBERS: Final = frozenset(
    {
        "JMSPriority", "JMSTimestamp", "JMSExpiration", "JMSXDeliveryCount", "JMSXGroupSeq", "JMSActiveMQBrokerInTime",
        "JMSActiveMQBrokerOutTime",
    }
)  # fmt: skip


def check_arithmetic(selector: str) -> None:
    """Raise InvalidSelectorError where `selector` does arithmetic with a property."""
    tokens = tokens_of(selector)
    for index, token in enumerate(tokens):
        if token.kind != "sign" or token.text not in "+-*/%":
            continue
        operands = [operand(tokens, index + 1, 1)]
        if index > 0 and ends_operand(tokens[index - 1]):
            operands.append(operand(tokens, index - 1, -1))
        if token.text == "+" and any(one.kind == "text" for part in operands for one in part):
            continue  # a concatenation of strings
        for one in (one for part in operands for one in part):
            if one.kind == "name" and one.text not in _NUMBERS:
                raise InvalidSelectorError(
                    f"selector {selector!r} calculates with the property {one.text}, which over STOMP is a"
                    f" text: ActiveMQ Classic would fail at '{token.text}' for each message, and stop the destination"
                    f" for everybody; compare {one.text} with a number that the program has calculated"
                )


def check_functions(selector: str) -> None:
    """Raise InvalidSelectorError where `selector` calls a function, which JMS has none of."""
    tokens = tokens_of(selector)
    for index, token in enumerate(tokens[1:]):
        if token.text == "(" and tokens[index].kind == "name":
            called = tokens[index].text
            raise InvalidSelectorError(
                f"selector {selector!r} calls {called}, which is no part of JMS: ActiveMQ Classic would fail at it"
                " for each message that does not fit, and stop the destination for everybody; send what it finds out as"
                " a property"
            )
