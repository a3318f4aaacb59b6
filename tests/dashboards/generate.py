"""
Write what is committed in `dashboards`: all that `jmsx dashboards export` makes, and the tests of the rules.

`--check` writes nothing and exits with 1 when a file is not what it would write.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from jmsx_dashboards.alerts import ALERTS
from jmsx_dashboards.files import files
from jmsx_dashboards.model import Links, Settings
from tests.dashboards.lint import panels, problems
from tests.dashboards.rule_tests import rule_tests
from tests.dashboards.scenarios import SCENARIOS, SLOW_STEP, STEP

ROOT: Final = Path(__file__).resolve().parents[2] / "dashboards"

#: Files of promtool's tests, which evaluates all of a file in the same steps, by the seconds of a step.
RULE_TESTS: Final = {STEP: "jmsx_rules_test.yml", SLOW_STEP: "jmsx_rules_slow_test.yml"}

#: What fired, by broker and fault, when `tests.dashboards.matrix` was last run.
PLAYED: Final = Path(__file__).with_name("matrix.json")


def written() -> dict[str, str]:
    """All files: their paths below `dashboards` and their text."""
    links = Links()
    tests = {
        f"prometheus/{file}": rule_tests(links, [one for one in SCENARIOS if one.step == step])
        for step, file in RULE_TESTS.items()
    }
    ours = {**tests, "README.md": readme()}
    return files(links, Settings()) | ours


def readme() -> str:
    """What lies in `dashboards`, how it was made and tried, and the matrix of faults and alerts."""
    rows = []
    right = false = missed = 0
    for broker, faults in json.loads(PLAYED.read_text(encoding="utf-8")).items():
        for fault, told in faults.items():
            fired, expected, allowed = (set(told[key]) for key in ("fired", "expected", "allowed"))
            right += len(fired & expected)
            false += len(fired - expected - allowed)
            missed += len(expected - fired)
            words = [f"`{name}`" for name in sorted(expected)] or ["nothing"]
            words += [f"also `{name}`" for name in sorted(fired & allowed)]
            words += [f"**false: `{name}`**" for name in sorted(fired - expected - allowed)]
            words += [f"**missed: `{name}`**" for name in sorted(expected - fired)]
            rows.append(f"| {broker} | {fault} | {', '.join(words)} |")
    table = "\n".join(rows)
    return f"""# Boards, rules and runbooks

`jmsx dashboards export DIR --grafana URL --runbooks URL` writes what lies here, with links for your place: five boards
of {len(panels())} panels for Grafana 10 and later, {len(ALERTS)} alerts with a runbook each, recording rules, files for
Grafana's provisioning, and a `compose.yml`. `--budgets FILE.toml` gives destinations budgets of their own:

```toml
[default]
dead_letters = 0.001        # the share of messages that may become dead letters
["queue://batch"]
dead_letters = 0.02
seconds = 300               # late is what takes longer than that,
late = 0.05                 # and so many may
```

`jmsx dashboards render DIR --prometheus URL` draws the boards without Grafana: one page, and a PNG of each board
(`pip install 'jmsx[cli,dashboards]'`). [All metrics](prometheus/metrics.md); [what a reason
means](runbooks/Causes.md); [how to read the boards](runbooks/Reading.md).

## How it was tried

- Each query of each panel has an answer in a real Prometheus; each alert has tests that `promtool test rules` plays,
  and no changed condition passes them.
- The JSON of the boards is read by Grafana's own typed model, which drops none of it. Grafana itself was not
  run, nor was `compose.yml`.
- `python -m tests.dashboards.matrix --broker classic` plays faults on a real broker while Prometheus scrapes real
  applications, with windows and waits divided by 30. Late is there what takes over half a second.

## Which fault makes which alert fire

Fired as they should: {right}; false: {false}; missed: {missed}. The rows of each broker were played in one run, while
the machine, with two processors, did much other work (Classic at a load of 8 to 17, Artemis at 10 to 25). In an
earlier run, at a load of 23, connections to Classic that are reset every 75 seconds were away for so long that
`JmsxConnectionDown` fired, too. What stands behind *also* is allowed and not wanted, and not counted; that a frozen
process makes messages late was allowed after it had been seen, and would be a false alert. Artemis ends the
connection that sends to a full queue, and does not tell why; jmsx sends once more, and then tells a doubt. Before it
did so connections were lost so often that `JmsxConnectionFlapping` fired; that row was played anew, alone, on a quiet
machine. Two alerts hurry less than the others: an instance is gone, and a worker silent, after ten seconds, not four,
for a busy machine does not answer a scrape 30 times as fast as in life. With four, this fault had a false
`JmsxInstanceGone`: half of the messages fail until their limit. No fault is played on the workers of a supervisor.

| broker | fault | fires |
|---|---|---|
{table}
"""


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
