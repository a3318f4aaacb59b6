"""Scenario files are read as FORMAT.md says, and refused with words that help."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.scenario import ScenarioError, find, load

SCENARIOS = Path(__file__).parent / "scenarios"
STEPS: list[dict[str, Any]] = [
    {"op": "connect", "as": "c"},
    {"op": "session", "as": "s", "on": "c", "mode": "AUTO"},
]


def write(folder: Path, **members: Any) -> Path:
    """Write a scenario with two good steps, changed by `members`."""
    path = folder / "one.json"
    raw = {"id": "one", "destinations": {"q": "queue"}, "steps": STEPS, **members}
    path.write_text(json.dumps(raw), encoding="utf-8")
    return path


def test_the_scenarios_of_the_project_are_well_formed() -> None:
    """Each has a recorded outcome for every step, a source, and no member that nobody reads."""
    paths = find([SCENARIOS])

    assert len(paths) > 200
    assert [fault for path in paths for fault in faults(path)] == []


def faults(path: Path) -> Iterator[str]:
    """What is wrong with one scenario of the project."""
    try:
        scenario = load(path, strict=True)
    except ScenarioError as error:
        yield str(error)
        return
    if scenario.id != path.stem:
        yield f"{path.name}: its id is {scenario.id}"
    if scenario.expected is None:
        yield f"{path.name}: no outcome was recorded"
    if not json.loads(path.read_text(encoding="utf-8")).get("source"):
        yield f"{path.name}: no source"


def test_no_two_scenarios_have_the_same_id() -> None:
    """An id names one scenario in every report."""
    stems = [path.stem for path in find([SCENARIOS])]

    assert len(set(stems)) == len(stems)


@pytest.mark.parametrize(
    ("members", "complaint"),
    [
        ({"steps": {}}, "`steps` must be a list"),
        ({"expected": []}, "0 outcomes are expected of 2 steps"),
        ({"stomp_expect": {"7": {"outcome": {}}}}, r"stomp_expect\[7\]"),
        ({"stomp_expect": {"1": {"reason": "none"}}}, "has no `outcome`"),
        ({"java_race": {"outcomes": {"0": {}}}}, "java_race needs `outcomes` and a `reason`"),
        ({"java_race": {"outcomes": {"7": {}}, "reason": "r"}}, "java_race names 7"),
        ({"steps": [{"op": "dance"}]}, "step 0: unknown op 'dance'"),
        ({"steps": [*STEPS, {"op": "receive"}]}, "step 2: receive needs `from`"),
        ({"steps": [*STEPS, {"op": "commit", "in": "t"}]}, "names 't', which no step makes"),
        ({"steps": [*STEPS, {"op": "crash", "target": "s"}]}, "names 's', which no step makes"),
        ({"steps": [{"op": "session", "as": "s", "on": "s", "mode": "auto"}]}, "mode 'auto'"),
        ({"steps": [{"op": "send", "to": "q", "bodies": []}]}, "send needs `in` or `via`"),
        (
            {"steps": [{"op": "later", "after": 1, "step": {"op": "commit", "in": "t"}}]},
            "step 0: commit: `in` names 't'",
        ),
    ],
)
def test_a_malformed_file_is_refused(
    tmp_path: Path, members: dict[str, Any], complaint: str
) -> None:
    """The error says where and why."""
    with pytest.raises(ScenarioError, match=complaint):
        load(write(tmp_path, **members))


def test_broken_json_is_refused(tmp_path: Path) -> None:
    """A file that is not JSON is named."""
    path = tmp_path / "broken.json"
    path.write_text("{", encoding="utf-8")

    with pytest.raises(ScenarioError, match=r"broken\.json: not JSON"):
        load(path)


def test_unknown_members_are_refused_only_when_strict(tmp_path: Path) -> None:
    """A foreign scenario may have notes of its own; in ours they are typing errors."""
    path = write(tmp_path, steps=[*STEPS, {"op": "commit", "in": "s", "colour": "red"}])

    assert len(load(path).steps) == 3
    with pytest.raises(ScenarioError, match="unknown members"):
        load(path, strict=True)


def test_a_handler_may_use_what_is_made_later(tmp_path: Path) -> None:
    """Names in a handler are looked for in the whole scenario, and calls of a listener are too."""
    handler = [{"do": ["acknowledge", {"op": "acknowledge", "message": "L.1"}, {"sleep": 0.1}]}]
    steps = [
        *STEPS,
        {"op": "consumer", "as": "k", "in": "s", "destination": "q"},
        {"op": "listen", "as": "L", "on": "k", "handler": handler},
    ]

    assert len(load(write(tmp_path, steps=steps)).steps) == 4


def test_a_missing_path_is_refused(tmp_path: Path) -> None:
    """A path with nothing at it is an error, not an empty run."""
    with pytest.raises(ScenarioError, match="no such file"):
        find([tmp_path / "nowhere"])


def test_folders_are_searched_through(tmp_path: Path) -> None:
    """A folder stands for all scenario files below it."""
    (tmp_path / "deep").mkdir()
    path = write(tmp_path / "deep")

    assert find([tmp_path, path]) == [path, path]
