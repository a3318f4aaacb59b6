"""
Write Grafana's dashboard, Prometheus' rules with their tests, the runbooks and the table of metrics.

`--check` writes nothing and exits with 1 when a file is not what it would write.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from dashboards.src import render
from dashboards.src.alerts import ALERTS
from dashboards.src.lint import problems
from dashboards.src.model import DASHBOARD, Links
from dashboards.src.overview import dashboard_json

ROOT: Final = Path(__file__).resolve().parents[1]  #: the folder `dashboards`


def files(links: Links) -> dict[str, str]:
    """Write all files in memory: their paths below `dashboards` and their text."""
    return {
        f"grafana/{DASHBOARD}.json": dashboard_json(),
        f"prometheus/{render.RULES_FILE}": render.rules(links),
        "prometheus/jmsx_rules_test.yml": render.rule_tests(links),
        "prometheus/metrics.md": render.metrics_table(),
        **{f"runbooks/{alert.name}.md": render.runbook(alert) for alert in ALERTS},
    }


def differences(root: Path, written: dict[str, str]) -> list[str]:
    """Say which files below `root` are missing, old, or no longer written by anyone."""
    found = []
    for path, text in written.items():
        file = root / path
        if not file.exists():
            found.append(f"{path} is missing")
        elif file.read_text(encoding="utf-8") != text:
            found.append(f"{path} is out of date")
    kept = {str(path.relative_to(root)) for path in root.glob("runbooks/*.md")}
    return [*found, *(f"{path} belongs to no alert" for path in sorted(kept - written.keys()))]


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    defaults = Links()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, only compare")
    parser.add_argument(
        "--runbooks", default=defaults.runbooks, help="folder or URL of the runbooks"
    )
    parser.add_argument("--grafana", default=defaults.grafana, help="root URL of Grafana")
    parser.add_argument("--root", type=Path, default=ROOT, help="where to write")
    options = parser.parse_args(arguments)
    links = Links(runbooks=options.runbooks, grafana=options.grafana)
    written = files(links)
    found = problems()
    if options.check:
        found += differences(options.root, written)
    elif not found:
        for path, text in written.items():
            file = options.root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
