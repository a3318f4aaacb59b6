"""What is known of each broker (BROKER.md): each fact has one number, and says truly where it is shown."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Final

from tests.probes.catalogue import PROBES, fact_of

ROOT: Final = Path(__file__).parents[2]

#: The first letter of a document's numbers, and the document.
DOCUMENTS: Final = {"C": "adapters/jmsx_classic/BROKER.md", "A": "adapters/jmsx_artemis/BROKER.md"}

#: Programs of raw frames, which a test runs if they stand in the list of their file.
PROGRAMS: Final = "tests/integration/parity/"

#: What people run by hand, each of one fact.
BY_HAND: Final = "tests/probes/"

#: Tests without a broker, which show what others make of a fact.
WITHOUT_BROKER: Final = "tests/unit/"

FACT: Final = re.compile(r"^\*\*([A-Z]\d+)\.\*\* ")
CITATION: Final = re.compile(r"`(tests/[^`]*)`")
REFERENCE: Final = re.compile(r"(?<![\w`/.-])([A-Z]\d+)(?![\w`])")

#: The facts of probes, by how BROKER.md cites them.
BY_NAME: Final = {
    f"{probe.__module__.replace('.', '/')}.py::{probe.__name__}": fact_of(probe) for probe in PROBES
}

#: How a comment cites a fact.
CITED: Final = re.compile(r"BROKER\.md,? (C\d+|A\d+)")


def test_facts_and_what_shows_them_exist() -> None:
    """Each offender is named: two facts of one number, one without evidence, a test or a fact that is not there."""
    known: set[str] = set()
    wrong: list[str] = []
    for letter, name in DOCUMENTS.items():
        blocks = (ROOT / name).read_text("utf-8").split("\n\n")
        numbers = Counter(found[1] for block in blocks if (found := FACT.match(block)))
        assert len(numbers) >= 40, f"{name}: the facts were not found"
        known |= numbers.keys()
        wrong += [
            f"{name}: {number} stands {times} times"
            for number, times in numbers.items()
            if times > 1
        ]
        wrong += [
            f"{name}: {number} should begin with {letter}"
            for number in numbers
            if number[0] != letter
        ]
        for block in blocks:
            fact = FACT.match(block)
            place = f"{name}: {fact[1] if fact else block[:30]!r}"
            if fact and all(one.startswith(WITHOUT_BROKER) for one in CITATION.findall(block)):
                wrong.append(f"{place} is shown by no test on a real broker, and by no probe")
            cited = ((test, missing(test)) for test in CITATION.findall(block))
            wrong += [f"{place} cites {test}: {why}" for test, why in cited if why]
            others = [other for other in REFERENCE.findall(block) if other[0] == letter]
            wrong += [
                f"{place} speaks of {other}, which is not there"
                for other in others
                if other not in numbers
            ]
    for folder in ("adapters", "jmsx", "tests"):
        for file in (ROOT / folder).rglob("*.py"):
            told = CITED.findall(file.read_text("utf-8"))
            wrong += [
                f"{file.relative_to(ROOT)} cites {one}, which is not there"
                for one in told
                if one not in known
            ]
    assert not wrong, "\n".join(wrong)


def test_each_probe_is_of_the_fact_that_names_it() -> None:
    """A fact names all probes of its own and no others, and a probe's name begins with its number."""
    named: set[tuple[str, str]] = set()
    for name in DOCUMENTS.values():
        for block in (ROOT / name).read_text("utf-8").split("\n\n"):
            if fact := FACT.match(block):
                cited = [one for one in CITATION.findall(block) if one.startswith(BY_HAND)]
                named |= {(one, fact[1]) for one in cited}
    assert named == set(BY_NAME.items())


def missing(cited: str) -> str | None:
    """Why there is no such test, program or scenario; None if there is."""
    name, separator, function = cited.partition("::")
    if not (ROOT / name).exists():
        return "no such file"
    if not name.endswith(".py"):
        return None
    if not separator:
        return None if name == "tests/packaging/test_broker_facts.py" else "no test is named"
    tests, listed = contents(name)
    if name.startswith(BY_HAND):
        return None if cited in BY_NAME else "no such probe"
    if function in (listed if name.startswith(PROGRAMS) else tests):
        return None
    return "no such test"


@cache
def contents(name: str) -> tuple[frozenset[str], frozenset[str]]:
    """The tests of a file, and the functions that stand in one of its lists."""
    tree = ast.parse((ROOT / name).read_text("utf-8"))
    functions = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    lists = [node.value for node in tree.body if isinstance(node, ast.AnnAssign | ast.Assign)]
    listed = {
        part.id
        for one in lists
        if isinstance(one, ast.List)
        for part in one.elts
        if isinstance(part, ast.Name)
    }
    return frozenset(one for one in functions if one.startswith("test_")), frozenset(
        functions & listed
    )
