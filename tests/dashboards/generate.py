"""
Write what is committed in `dashboards`: all that `jmsx dashboards export` makes, and the tests of the rules.

`--check` writes nothing and exits with 1 when a file is not what it would write.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from jmsx_dashboards import texts
from jmsx_dashboards.files import files
from jmsx_dashboards.model import Links, Settings
from tests.dashboards.lint import problems

ROOT: Final = Path(__file__).resolve().parents[2] / "dashboards"


def written() -> dict[str, str]:
    """All files: their paths below `dashboards` and their text."""
    links = Links()
    tests = {"prometheus/jmsx_rules_test.yml": texts.rule_tests(links)}
    return files(links, Settings()) | tests


def differences(root: Path) -> list[str]:
    """Say which files below `root` are missing, old, or no longer written by anyone."""
    found = []
    for path, text in written().items():
        file = root / path
        if not file.exists():
            found.append(f"{path} is missing")
        elif file.read_text(encoding="utf-8") != text:
            found.append(f"{path} is out of date")
    folders = {path.partition("/")[0] for path in written() if "/" in path}
    kept = {
        str(path.relative_to(root))
        for folder in folders
        for path in (root / folder).rglob("*")
        if path.is_file()
    }
    return [*found, *(f"{path} is made by nobody" for path in sorted(kept - written().keys()))]


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, only compare")
    parser.add_argument("--root", type=Path, default=ROOT, help="where to write")
    options = parser.parse_args(arguments)
    found = problems()
    if options.check:
        found += differences(options.root)
    elif not found:
        for path, text in written().items():
            file = options.root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    for problem in found:
        print(problem, file=sys.stderr)  # noqa: T201 - a command
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
