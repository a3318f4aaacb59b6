"""
The suite itself: every scenario on the judge and on jmsx, through the command line.

The Java column shows that the recorded results are right; the others show that jmsx is.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.scenario import find
from tests.jdk import NEEDS_JDK

SCENARIOS = Path(__file__).parent / "scenarios"
ROOT = Path(__file__).parents[2]
#: What the guide says of the comparison.
TOLD = re.search(
    r"of (\d+) scenarios, .* (\d+) pass on Classic and (\d+) cannot be had over STOMP; on Artemis (\d+) pass, and (\d+)"
    r" more are what the table excepts",
    " ".join((ROOT / "examples/guarantees/README.md").read_text(encoding="utf-8").split()),
)


def conformance(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command line; it may not take longer than its three minutes."""
    command = [sys.executable, "-m", "tests.conformance", *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=175, check=False
    )


@pytest.mark.broker
@pytest.mark.parametrize(
    ("client", "broker"),
    [
        pytest.param("java", "classic", marks=NEEDS_JDK),
        ("jmsx", "classic"),
        ("jmsx", "fake"),
        ("jmsx", "artemis"),
        ("jmsx", "fake-artemis"),
    ],
)
def test_every_scenario_passes(client: str, broker: str) -> None:
    """No scenario fails, each got a verdict, and the README tells how many of which."""
    assert TOLD is not None
    every, classic, not_over_stomp, artemis, excepted = map(int, TOLD.groups())
    passed = artemis if "artemis" in broker else classic
    skipped = not_over_stomp + excepted if "artemis" in broker else not_over_stomp
    if client == "java":
        passed, skipped = every, 0

    done = conformance("--client", client, "--broker", broker, SCENARIOS)

    *verdicts, total = done.stdout.splitlines() or ["nothing was printed"]
    failed = [line for line in verdicts if line.startswith("FAIL")]
    assert done.returncode == 0, "\n".join([*failed, total, done.stderr])
    assert len(verdicts) == len(find([SCENARIOS])) == every
    assert total == f"{passed} passed, 0 failed, {skipped} skipped"


@NEEDS_JDK
@pytest.mark.broker
def test_what_is_wrong_malformed_or_late_fails(tmp_path: Path) -> None:
    """
    The judge of the judge: a changed expectation is found, and the exit code says so.

    A time out of bounds is measured again, alone, and is a failure then; nothing else gets a second chance.
    """
    path = SCENARIOS / "count-first-delivery.json"
    source = json.loads(path.read_text(encoding="utf-8"))
    timed = json.loads(json.dumps(source))
    timed["id"] = "timed"
    timed["steps"][0]["elapsed"] = [90, 99]
    source["id"] = "wrong"
    source["expected"][0] = {"error": "JMS"}
    for raw in (timed, source):
        (tmp_path / f"{raw['id']}.json").write_text(json.dumps(raw), encoding="utf-8")
    (tmp_path / "malformed.json").write_text("{}", encoding="utf-8")

    done = conformance("--client", "java", tmp_path, path)

    first, *others, last, total = done.stdout.splitlines()
    assert done.returncode == 1
    assert first.startswith("FAIL malformed: malformed: malformed.json: `steps`")
    good, wrong = sorted(others, reverse=True)
    assert good == "PASS count-first-delivery"
    assert wrong.startswith('FAIL wrong: step 0 (connect): expected {"error": "JMS"}')
    assert last.startswith("FAIL timed: ")
    assert total == "1 passed, 3 failed, 0 skipped"
    told = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    shown = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert [line.split(": ")[:2] for line in told] == [["again, alone", "timed"]]
    assert sorted(trace["id"] for trace in shown) == ["timed", "timed", "wrong"]
    assert all(len(trace["outcomes"]) == len(source["steps"]) for trace in shown)


@NEEDS_JDK
@pytest.mark.broker
def test_a_trace_is_one_line_a_scenario(tmp_path: Path) -> None:
    """Traces need no expectations, and hold an outcome for every step, with times where asked."""
    steps = [
        {"op": "connect", "as": "c"},
        {"op": "session", "as": "s", "on": "c", "mode": "AUTO"},
        {"op": "consumer", "as": "k", "in": "s", "destination": "q"},
        {"op": "receive_none", "from": "k", "timeout": 0.2, "elapsed": [0, 9]},
    ]
    raw = {"id": "new", "destinations": {"q": "queue"}, "steps": steps}
    (tmp_path / "new.json").write_text(json.dumps(raw), encoding="utf-8")

    done = conformance("--client", "java", "--trace", tmp_path)

    assert done.returncode == 0, done.stderr
    trace = json.loads(done.stdout)
    assert trace["id"] == "new"
    assert trace["outcomes"][:3] == [{"ok": True}] * 3
    assert trace["outcomes"][3]["none"] is True
    assert trace["outcomes"][3]["elapsed"] >= 0.2


def test_a_missing_path_is_a_usage_error() -> None:
    """Nothing is run, and the exit code is not that of a failed scenario."""
    done = conformance("--client", "java", "nowhere.json")

    assert done.returncode == 2
    assert "nowhere.json: no such file or folder" in done.stderr


def test_the_java_client_cannot_talk_to_the_fake_broker() -> None:
    """The fake broker speaks STOMP only; that is said, not reported as failed scenarios."""
    done = conformance("--client", "java", "--broker", "fake", SCENARIOS)

    assert done.returncode == 2
    assert "the Java client cannot talk to this broker" in done.stderr
