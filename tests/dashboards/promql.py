"""
Just enough PromQL to say which series a query reads, and how.

It knows selectors, functions, aggregations with `by` or `without` in front of their argument, and vector
matching. What it does not know it refuses, so that the linter never passes what it did not understand.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_TOKEN: Final = re.compile(
    r"""(?P<string>"(?:\\.|[^"\\])*")
      | (?P<range>\[[^\]]*\])
      | (?P<word>[A-Za-z_:][\w:]*)
      | (?P<number>\d[\w.]*)
      | (?P<sign>=~|!~|!=|==|<=|>=|[-+*/%^<>=(){},])""",
    re.VERBOSE,
)
_AGGREGATIONS: Final = frozenset({"avg", "count", "max", "min", "sum", "topk"})
_FUNCTIONS: Final = frozenset(
    {
        *("absent", "changes", "histogram_quantile", "increase", "irate", "rate", "time", "vector"),
        *("abs", "clamp_min", "label_replace", "max_over_time", "round"),
    }
)
_OPERATORS: Final = frozenset({"and", "or", "unless"})
_UNREADABLE: Final = frozenset({"by", "without", "bool", "offset"})
_MATCHINGS: Final = frozenset({"on", "ignoring", "group_left", "group_right"})


@dataclass(frozen=True, slots=True)
class Call:
    """A function or aggregation around something; `()` alone has no name."""

    name: str
    by: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Selector:
    """One place where a query reads series."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]  #: label, operator, value
    window: str | None  #: what stands in `[ ]`
    calls: tuple[Call, ...]  #: around it, the innermost first

    @property
    def function(self) -> str:
        """The innermost function with a name; empty without one."""
        return next((call.name for call in self.calls if call.name), "")


class PromqlError(ValueError):
    """The query uses something that this module does not know."""


def selectors(query: str) -> list[Selector]:
    """
    List what `query` reads, in its order.

    Raises:
        PromqlError: it cannot be read.
    """
    return _Reader(query).read()


class _Reader:
    """Goes over the tokens of one query once, with the stack of open calls."""

    def __init__(self, query: str) -> None:
        self._query = query
        self._tokens = _tokens(query)
        self._at = 0
        self._calls: list[Call] = []
        self._found: list[Selector] = []

    def read(self) -> list[Selector]:
        """Read all tokens."""
        while self._at < len(self._tokens):
            kind, text = self._next()
            if kind == "word":
                self._read_word(text)
            elif text == "(":
                self._calls.append(Call(""))
            elif text == ")":
                self._close()
            elif kind == "range" or text in "{}":
                raise PromqlError(f"{text} without a metric's name in {self._query}")
        if self._calls:
            raise PromqlError(f"a ( is not closed in {self._query}")
        return self._found

    def _close(self) -> None:
        if not self._calls:
            raise PromqlError(f"a ) was not opened in {self._query}")
        self._calls.pop()

    def _read_word(self, word: str) -> None:
        if word in _OPERATORS or word == "Inf":
            return
        if word in _UNREADABLE:
            raise PromqlError(f"{word} cannot stand here in {self._query}")
        if word in _MATCHINGS:
            self._labels()
        elif word in _AGGREGATIONS:
            self._calls.append(self._aggregation(word))
        elif word in _FUNCTIONS:
            self._expect("(")
            self._calls.append(Call(word))
        elif self._peek() == "(":
            raise PromqlError(f"unknown function {word} in {self._query}")
        else:
            self._found.append(self._selector(word))

    def _aggregation(self, name: str) -> Call:
        by: tuple[str, ...] = ()
        without: tuple[str, ...] = ()
        if self._peek() == "by":
            self._next()
            by = self._labels()
        elif self._peek() == "without":
            self._next()
            without = self._labels()
        self._expect("(")
        return Call(name, by, without)

    def _selector(self, name: str) -> Selector:
        matchers: list[tuple[str, str, str]] = []
        if self._peek() == "{":
            self._next()
            while self._peek() != "}":
                label, sign, value = (self._next()[1] for _ in range(3))
                matchers.append((label, sign, value.strip('"')))
                if self._peek() == ",":
                    self._next()
            self._next()
        window = None
        if self._peek().startswith("["):
            window = self._next()[1][1:-1]
        return Selector(name, tuple(matchers), window, tuple(reversed(self._calls)))

    def _labels(self) -> tuple[str, ...]:
        self._expect("(")
        labels = []
        while (text := self._next()[1]) != ")":
            if text != ",":
                labels.append(text)
        return tuple(labels)

    def _peek(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _next(self) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            raise PromqlError(f"ends too early: {self._query}")
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, sign: str) -> None:
        if self._next()[1] != sign:
            raise PromqlError(f"expected {sign} in {self._query}")


def _tokens(query: str) -> list[tuple[str, str]]:
    tokens = []
    at = 0
    while at < len(query):
        if query[at].isspace():
            at += 1
            continue
        found = _TOKEN.match(query, at)
        if found is None or found.lastgroup is None:
            raise PromqlError(f"cannot read {query[at:]}")
        tokens.append((found.lastgroup, found.group()))
        at = found.end()
    return tokens
