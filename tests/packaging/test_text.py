"""What must not stand in any file of the repository: a misspelt name, a path of one machine, a registry's host."""

from __future__ import annotations

import ast
import re
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]

NAME: Final = "jmsx"

#: Written by uv: it names the registry that it resolved from.
LOCK: Final = "uv.lock"

#: In two parts, so that this file does not name them.
HOSTS: Final = (
    ("pypi", "org"),
    ("pythonhosted", "org"),
    ("repo1.maven", "org"),
    ("repo.maven", "apache.org"),
    ("registry.npmjs", "org"),
    ("proxy.golang", "org"),
    ("crates", "io"),
    ("deb.debian", "org"),
)

#: Home and work folders at the start of a path; `https://host/home/` is none.
MACHINE_PATH: Final = re.compile(r"(?<![\w.~-])/(?:root|work|home|Users)/\w")


#: How code cites a document.
DOCUMENT: Final = re.compile(r"\b[\w-]+\.md\b")

#: Made up by a test.
NO_DOCUMENT: Final = "JmsxForgotten.md"

#: What exempts code from a check, where no reason stands behind it on the line, or one that sends its reader to
#: another line. What exempts a whole file is for pyproject.toml, where each has its reason; `fmt: skip` and `fmt: off`
#: exempt from nothing that is checked.
UNREASONED: Final = re.compile(
    r"#\s*type:\s*ignore(?!\[[a-z, -]+\]  # \w)"
    r"|#\s*(?:ruff:\s*|flake8:\s*)?noqa(?!: [A-Z]+\d+(?:, [A-Z]+\d+)* - \S)"
    r"|#\s*pyright:\s*ignore(?!\[[A-Za-z, ]+\]  # \w)"
    r"|#\s*pragma:\s*no (?:cover|branch)(?! - \S)"
    r"|#\s*(?:mypy|pylint|pyright):\s*(?!ignore\[)[\w-]"
    r"|@(?:typing\.)?no_type_check\b(?!.*  # \w)"
    r"|#\s*(?:noqa|type:\s*ignore).*(?:  #| -) (?:the same|(?:see|as) (?:above|below))$",
)

#: A comment for which the formatter has parted the code before it.
PARTED: Final = re.compile(
    r"^ *[)\]}]+:?  #:? (?!fmt: |type: |noqa: )|= \(\n *\S+  #.*\n *\)$", re.MULTILINE
)

#: What keeps a test from running, or from counting, and has to say why.
SKIPPING: Final = frozenset(
    {
        *(f"pytest.mark.{name}" for name in ("skip", "skipif", "xfail")),
        *(f"pytest.{name}" for name in ("skip", "xfail", "importorskip")),
        *(
            f"unittest.{name}"
            for name in ("skip", "skipIf", "skipUnless", "expectedFailure", "SkipTest")
        ),
    }
)

SKIPS: Final = re.compile("|".join(map(re.escape, sorted(SKIPPING))))

#: How many arguments these have in front of their reason, if that is not named; the others have none that is not.
BEFORE_REASON: Final = {
    "pytest.mark.skip": 0,
    "pytest.skip": 0,
    "pytest.xfail": 0,
    "unittest.skip": 0,
    "unittest.skipIf": 1,
    "unittest.skipUnless": 1,
    "unittest.SkipTest": 0,
}


def skips_without_a_reason(source: str) -> list[int]:
    """The lines of what keeps a test from running without a reason, over however many lines it is written."""
    if not SKIPS.search(source):
        return []
    nodes = list(ast.walk(ast.parse(source)))
    calls = (node for node in nodes if isinstance(node, ast.Call))
    reasoned = {call.func for call in calls if _gives_a_reason(call)}
    inner = {node.value for node in nodes if isinstance(node, ast.Attribute)}  # of `skip.Exception`
    return [
        node.lineno
        for node in nodes
        if isinstance(node, ast.Attribute)
        and ast.unparse(node) in SKIPPING
        and node not in reasoned | inner
    ]


def _gives_a_reason(call: ast.Call) -> bool:
    """Whether `call` has an argument for its reason that is not an empty text."""
    before = BEFORE_REASON.get(ast.unparse(call.func))
    given = [keyword.value for keyword in call.keywords if keyword.arg in {"reason", "msg"}]
    if before is not None:
        given += call.args[before : before + 1]
    return any(not isinstance(one, ast.Constant) or str(one.value or "").strip() for one in given)


def swapped(name: str) -> list[str]:
    """`name` with any two of its letters swapped."""
    words = []
    for first, second in combinations(range(len(name)), 2):
        letters = list(name)
        letters[first], letters[second] = letters[second], letters[first]
        words.append("".join(letters))
    return words


def misspelling(name: str) -> re.Pattern[str]:
    """
    Any swapping of `name`, in one of the cases that a name is written in.

    Mixed cases are left out, and capitals before a small letter: the management extensions of Java, followed by a word
    that begins with S, would else be found in the camel case of Java's class names.
    """
    words = swapped(name)
    lower, title, upper = ("|".join(map(case, words)) for case in (str.lower, str.title, str.upper))
    return re.compile(f"{lower}|{title}|(?:{upper})(?![a-z])")


@pytest.fixture(scope="module")
def tracked() -> dict[str, str]:
    """Every file that git tracks and that is there: its name and its text, undecodable bytes replaced."""
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
    files = (name for name in listed if name and (ROOT / name).is_file())
    return {name: (ROOT / name).read_text("utf-8", errors="replace") for name in files}


def test_files_are_there_to_be_read(tracked: dict[str, str]) -> None:
    """The other tests would pass on an empty list."""
    assert {"pyproject.toml", "jmsx/errors.py", LOCK} <= tracked.keys()


def test_name_is_nowhere_misspelt(tracked: dict[str, str]) -> None:
    """Two swapped letters in the package's name are hard to see and easy to type."""
    pattern = misspelling(NAME)
    assert [name for name in tracked if pattern.search(name)] == []
    assert found(pattern, tracked) == {}


@pytest.mark.parametrize("word", swapped(NAME))
@pytest.mark.parametrize("form", ["{}", "import {}_classic", "{}-demo", "X{}Y"])
def test_misspelling_would_be_found(word: str, form: str) -> None:
    """The search sees each of the six swaps, in each case, in the places where a name stands."""
    for case in (str.lower, str.title, str.upper):
        assert misspelling(NAME).search(form.format(case(word)))


def test_right_spelling_is_not_found() -> None:
    """The name itself, and Java's word before another, are no misspellings."""
    words = ("JMX", "Service")
    java = "".join(words)
    assert misspelling(NAME).search(f"{NAME} {NAME.upper()} {NAME.title()} {java}") is None


def test_no_path_of_one_machine(tracked: dict[str, str]) -> None:
    """A file that names somebody's home works on that machine only."""
    assert found(MACHINE_PATH, tracked) == {}


def test_no_host_of_a_registry(tracked: dict[str, str]) -> None:
    """Where packages come from is the user's setting: a company has a mirror of its own."""
    pattern = re.compile("|".join(re.escape(".".join(host)) for host in HOSTS))
    assert found(pattern, tracked) == {}


def test_documents_that_are_cited_are_there(tracked: dict[str, str]) -> None:
    """A comment that names a paper of its author's tells nobody else anything."""
    known = {Path(name).name for name in tracked} | {NO_DOCUMENT}
    cited = {
        name: set(DOCUMENT.findall(text)) - known
        for name, text in tracked.items()
        if name.endswith(".py")
    }
    assert {name: unknown for name, unknown in cited.items() if unknown} == {}


def test_no_comment_stands_behind_a_bracket_alone(tracked: dict[str, str]) -> None:
    """Where a comment is too long for its line, the formatter parts the code before it: it belongs above."""
    python = {name: text for name, text in tracked.items() if name.endswith(".py")}
    assert found(PARTED, python) == {}


@pytest.mark.parametrize(
    "line",
    [
        "x = 1  # type: " + "ignore",
        "x = 1  # type: " + "ignore[misc]",
        "x = 1  # type: " + "ignore[misc] # one blank",
        "x = 1  # no" + "qa",
        "x = 1  # no" + "qa: S101",
        "x = 1  # no" + "qa: S101 -",
        "x = 1  # no" + "qa: S101 - see above",
        "x = 1  # type: " + "ignore[misc]  # the same",
        "# ruff: no" + "qa: T201",
        "# flake8: no" + "qa",
        "x = 1  # py" + "right: ignore",
        "x = 1  # py" + "right: ignore[reportPrivateUsage]",
        "if x:  # prag" + "ma: no cover",
        "# my" + "py: ignore-errors",
        "# my" + "py: disable-error-code=misc",
        "# py" + "right: basic",
        "# py" + "lint: disable=all",
        "@no_type" + "_check",
        "@typing.no_type" + "_check",
    ],
)
def test_an_exemption_without_a_reason_would_be_found(line: str) -> None:
    """In each of its forms."""
    assert UNREASONED.search(line)


@pytest.mark.parametrize(
    "line",
    [
        "x = 1  # type: ignore[misc, arg-type]  # what is refused",
        "x = 1  # noqa: S101 - for mypy",
        "x = 1  # noqa: S101, S102 - for both",
        "x = 1  # pyright: ignore[reportPrivateUsage]  # there is no other way",
        "if x:  # pragma: no cover - nobody can",
    ],
)
def test_a_reason_is_seen(line: str) -> None:
    """On the same line."""
    assert UNREASONED.search(line) is None


@pytest.mark.parametrize(
    "code",
    [
        "@pytest.mark.skip\ndef f(): ...",
        "@pytest.mark.skip()\ndef f(): ...",
        "@pytest.mark.skip(reason='')\ndef f(): ...",
        "@pytest.mark.skipif(True)\ndef f(): ...",
        "@pytest.mark.skipif(\n    True,\n)\ndef f(): ...",
        "@pytest.mark.xfail(strict=True)\ndef f(): ...",
        "@pytest.mark.xfail(\n    strict=True,\n)\ndef f(): ...",
        "pytest.param(1, marks=pytest.mark.xfail)",
        "pytest.skip()",
        "pytest.skip(' ')",
        "pytest.skip(reason='')",
        "pytest.skip(allow_module_level=True)",
        "pytest.xfail(\n)",
        "pytest.importorskip('docker')",
        "raise unittest.SkipTest",
        "@unittest.skipIf(True, '')\ndef f(): ...",
        "@unittest.expectedFailure\ndef f(): ...",
    ],
)
def test_a_skip_without_a_reason_would_be_found(code: str) -> None:
    """In each of its forms, in one line or in several."""
    assert skips_without_a_reason(code) == [1]


@pytest.mark.parametrize(
    "code",
    [
        "@pytest.mark.skip(reason='so')\ndef f(): ...",
        "@pytest.mark.skip('so')\ndef f(): ...",
        "@pytest.mark.skipif(True, reason='so')\ndef f(): ...",
        "@pytest.mark.skipif(\n    True,\n    reason=why(),\n)\ndef f(): ...",
        "pytest.param(1, marks=pytest.mark.xfail(reason=why, strict=True))",
        "pytest.skip(why)",
        "pytest.importorskip('docker', reason='so')",
        "raise unittest.SkipTest('so')",
    ],
)
def test_the_reason_of_a_skip_is_seen(code: str) -> None:
    """As a text or as what gives one."""
    assert skips_without_a_reason(code) == []


def test_each_exemption_has_a_reason(tracked: dict[str, str]) -> None:
    """What a checker is told to pass over, and a test that does not run, is believed by nobody unless it says why."""
    code = {name: text for name, text in tracked.items() if name.endswith((".py", ".pyi"))}
    exempt = [
        f"{name}:{number}: {line.strip()}"
        for name, text in code.items()
        for number, line in enumerate(text.splitlines(), 1)
        if UNREASONED.search(line)
    ]
    skipped = [
        f"{name}:{number}" for name, text in code.items() for number in skips_without_a_reason(text)
    ]
    assert exempt + skipped == []


def found(pattern: re.Pattern[str], files: dict[str, str]) -> dict[str, str]:
    """The first match in each file, the lock file left out."""
    matches = ((name, pattern.search(text)) for name, text in files.items() if name != LOCK)
    return {name: match[0] for name, match in matches if match}
