"""jmsx/DESIGN.md tells of what is there: its paths exist, its rules have numbers, and so has what cites them."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path
from typing import Final

from jmsx.core.commit_ways import Way

ROOT: Final = Path(__file__).parents[2]
DESIGN: Final = ROOT / "jmsx" / "DESIGN.md"

#: The word behind a list of citations is the document: "DESIGN.md D5", "DESIGN.md, D5 and D6".
CITED: Final = re.compile(r"DESIGN\.md,? ((?:D\d+(?:, | and |-)?)+)")


def rules() -> list[int]:
    """The numbers of the rules, in their order."""
    return [
        int(one) for one in re.findall(r"^\*\*D(\d+)\.", DESIGN.read_text("utf-8"), re.MULTILINE)
    ]


def test_rules_are_numbered() -> None:
    """Each once, from 1 on."""
    assert rules() == list(range(1, len(rules()) + 1))


def test_paths_exist() -> None:
    """As they are written: from the root, from jmsx, or from adapters."""
    named = set(
        re.findall(
            r"`([\w/]+(?:\.py|\.md)|(?:jmsx|adapters|tests)/[\w/]+)`", DESIGN.read_text("utf-8")
        )
    )
    assert len(named) > 25
    places = (ROOT, ROOT / "jmsx", ROOT / "adapters")
    assert [one for one in sorted(named) if not any((each / one).exists() for each in places)] == []


def test_every_part_is_told() -> None:
    """Each folder of jmsx, each module at its root, and each adapter."""
    text = DESIGN.read_text("utf-8")
    folders = [one.name for one in (ROOT / "jmsx").iterdir() if (one / "__init__.py").exists()]
    modules = [one.stem for one in (ROOT / "jmsx").glob("[a-z]*.py")]
    adapters = [one.name for one in (ROOT / "adapters").iterdir() if (one / "__init__.py").exists()]
    assert [one for one in folders if f"`jmsx/{one}`" not in text] == []
    assert [one for one in (*modules, *adapters) if f"`{one}`" not in text] == []


def test_every_way_of_committing_is_told() -> None:
    """Each has a row, and no other one is there."""
    rows = re.findall(
        r"^\| ([A-Z_]+) \|", DESIGN.read_text("utf-8").partition("## Ways")[2], re.MULTILINE
    )
    assert rows == [way.name for way in Way]


def test_facts_of_brokers_exist() -> None:
    """Those that the page cites: C for Classic, A for Artemis."""
    text = DESIGN.read_text("utf-8")
    for letter, name in (("C", "jmsx_classic"), ("A", "jmsx_artemis")):
        known = (ROOT / "adapters" / name / "BROKER.md").read_text("utf-8")
        cited = set(re.findall(rf"\({letter}(\d+)\)", text))
        assert cited
        assert [one for one in cited if f"**{letter}{one}.**" not in known] == []


def test_what_is_cited_is_there() -> None:
    """In every file of the repository."""
    command = ["git", "grep", "-hE", r"DESIGN\.md,? D[0-9]", "--", "*.py", "*.md"]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    cited = {int(one) for found in CITED.findall(lines) for one in re.findall(r"\d+", found)}
    assert cited <= set(rules())


#: What makes a thread, by the last part of its name; its name is one of the arguments.
THREADS: Final = {"Thread", "thread", "ThreadPoolExecutor"}


def named_threads() -> set[str]:
    """Names of threads that our code makes, as far as the name begins with a text: `jmsx-engine-` of an f-string."""
    return {
        str(name.value)
        for path in (*(ROOT / "jmsx").rglob("*.py"), *(ROOT / "adapters").rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] in THREADS
        for argument in (*call.args, *(keyword.value for keyword in call.keywords))
        for name in (argument.values[0] if isinstance(argument, ast.JoinedStr) else argument,)
        if isinstance(name, ast.Constant) and str(name.value).startswith("jmsx-")
    }


def test_every_thread_is_told() -> None:
    """Whoever sees a thread in a debugger finds what it is for."""
    text = DESIGN.read_text("utf-8")
    assert len(named_threads()) > 8
    assert [one for one in sorted(named_threads()) if f"`{one}" not in text] == []


def test_threads_that_other_pages_name_are_there() -> None:
    """A runbook sends its reader to them."""
    command = ["git", "grep", "-hoE", "thread `jmsx-[a-z]+-?", "--", "*.md"]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    named = {line.partition("`")[2] for line in lines.splitlines()}
    assert named
    assert [one for one in sorted(named) if f"| `{one}" not in DESIGN.read_text("utf-8")] == []
