"""What a mode does stands in one table, and nobody else asks which mode it is."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from jmsx.core.modes import MODES, AcknowledgeMode, Mode, SettledBy

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

ROOT: Final = Path(__file__).parents[3]
HOME: Final = ROOT / "jmsx" / "core" / "modes.py"

#: A mode that is compared, and not looked up.
MODE: Final = re.compile(r"\.mode\b(?!\.does)")

#: What a file says somewhere that asks anything about modes; most say nothing of the kind.
WORD: Final = re.compile(r"\bmode\b|AcknowledgeMode")

#: Something else that is called a mode.
OTHER: Final = "RedeliveryMode"

#: What becomes of a message at `recover()` or `rollback()`, by what it is settled by.
UNDONE: Final = {
    SettledBy.RETURN: "the message of the listener that calls it, again",
    SettledBy.CALL: "all unacknowledged, again",
    SettledBy.COMMIT: "`rollback()`: the sends are undone, all that was received comes again",
}


def files() -> list[Path]:
    """The library and its adapters, without the table itself."""
    return [
        path
        for folder in ("jmsx", "adapters")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path != HOME and "testing" not in path.parts
    ]


def questions(source: str) -> Iterator[str]:
    """Each place of `source` that asks which mode it is: comparisons, and tables or cases by mode."""
    tree = ast.parse(source if WORD.search(source) else "")
    names = {"AcknowledgeMode", *_other_names(tree)}
    for node in ast.walk(tree):
        match node:
            case ast.Compare():
                asks = _names_one(node, names) or MODE.search(ast.unparse(node)) is not None
            case ast.Dict():
                asks = any(_names_one(key, names) for key in node.keys if key is not None)
            case ast.Tuple() | ast.Set() | ast.List() | ast.pattern():
                asks = _names_one(node, names)
            case _:
                asks = False
        if asks and OTHER not in (text := ast.unparse(node)):
            yield text


def _other_names(tree: ast.Module) -> Iterator[str]:
    """What a module that imports the modes under another name calls them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (
                one.asname or one.name for one in node.names if one.name == "AcknowledgeMode"
            )


def _names_one(node: ast.AST, names: Collection[str]) -> bool:
    owners = (each.value for each in ast.walk(node) if isinstance(each, ast.Attribute))
    return any(
        (isinstance(owner, ast.Name) and owner.id in names)
        or (isinstance(owner, ast.Attribute) and owner.attr in names)
        for owner in owners
    )


def test_nobody_asks_which_mode_it_is() -> None:
    """They look up what it does."""
    assert len(files()) > 150
    found = {str(path.relative_to(ROOT)): [*questions(path.read_text("utf-8"))] for path in files()}
    assert {path: asked for path, asked in found.items() if asked} == {}


@pytest.mark.parametrize(
    "source",
    [
        "if mode is AcknowledgeMode.AUTO_ACKNOWLEDGE: pass",
        "x = a.mode in (values.AcknowledgeMode.AUTO_ACKNOWLEDGE, b)",
        "x = settings.mode == 2",
        "x = {AcknowledgeMode.SESSION_TRANSACTED: f}.get(mode)",
        "x = (AcknowledgeMode.CLIENT_ACKNOWLEDGE,)",
        "match mode:\n    case AcknowledgeMode.CLIENT_ACKNOWLEDGE: pass",
        "from jmsx import AcknowledgeMode as Mode\nx = mode is Mode.AUTO_ACKNOWLEDGE",
    ],
)
def test_each_form_of_question_is_seen(source: str) -> None:
    """So the test above means something."""
    assert [*questions(source)] != []


@pytest.mark.parametrize(
    "source",
    [
        "def f(mode=AcknowledgeMode.AUTO_ACKNOWLEDGE): pass",
        "create_session(AcknowledgeMode.SESSION_TRANSACTED)",
        "x = policy.mode != RedeliveryMode.SCHEDULED",
        "x = session.mode.does.acknowledge_covers is Covers.NOTHING",
    ],
)
def test_who_chooses_a_mode_asks_nothing(source: str) -> None:
    """A default, an argument, another thing with a mode, a look-up."""
    assert [*questions(source)] == []


def test_every_mode_has_a_row() -> None:
    """And every row says something else."""
    assert set(MODES) == set(AcknowledgeMode)
    assert len({*MODES.values()}) == len(MODES)


def test_row_by_which_messages_get_lost_is_refused() -> None:
    """An ACK covers all before it, unless each message has its own."""
    with pytest.raises(ValueError, match="the next ACK would settle"):
        Mode(settled_by=SettledBy.RETURN, redelivers_raised=False)
    Mode(settled_by=SettledBy.RETURN, redelivers_raised=False, single_acks=True)


def test_the_page_shows_the_table() -> None:
    """jmsx/DESIGN.md has it as it is printed here; copy the lines that are missing."""
    page = (ROOT / "jmsx" / "DESIGN.md").read_text("utf-8")
    assert [line for line in printed().splitlines() if line not in page] == []
    assert printed() in page


def printed() -> str:
    """The table of modes, in Markdown."""
    titles = (
        "mode",
        "SUBSCRIBE",
        "an ACK is owed when",
        "`acknowledge()` covers",
        "a listener raises",
        "`recover()` / `rollback()`",
    )
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    for mode, does in MODES.items():
        ack = "client-individual" if does.single_acks else "client"
        raised = (
            "again, by the policy"
            if does.redelivers_raised
            else "held until `recover()` or `rollback()`"
        )
        name = mode.name.removesuffix("_ACKNOWLEDGE")
        told = (
            name,
            ack,
            does.settled_by.value,
            does.acknowledge_covers.value,
            raised,
            UNDONE[does.settled_by],
        )
        lines.append(f"| {' | '.join(told)} |")
    return "\n".join(lines)
