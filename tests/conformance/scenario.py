"""
Scenario files: find, read and check them.

The contract is `scenarios/FORMAT.md`. Checked is what a runner relies on: that members are there
and that names lead somewhere. What a scenario claims is not judged here.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

#: One step, or one outcome: an object of JSON.
Json = dict[str, Any]

MODES: Final = ("AUTO", "CLIENT", "INDIVIDUAL", "DUPS_OK", "TRANSACTED")

_SEND: Final = (
    "in via to kind persistent priority priorities ttl properties correlation_id type"
    " reply_to group_id"
)
#: What each operation must have, and may have; members that any step may have stand in `_COMMON`.
_MEMBERS: Final[dict[str, tuple[str, str]]] = {
    "connect": ("as", "options client_id start"),
    "start": ("target", ""),
    "stop": ("target", ""),
    "session": ("as on mode", ""),
    "consumer": ("as in destination", "prefetch selector durable no_local"),
    "producer": ("as in to", ""),
    "temp_queue": ("as in", ""),
    "temp_topic": ("as in", ""),
    "composite": ("as of", ""),
    "delete": ("target", ""),
    "send": ("bodies", _SEND),
    "receive": ("from", "timeout as record"),
    "receive_none": ("from", "timeout as record"),
    "receive_many": ("from count", "timeout pause as record"),
    "listen": ("as on handler", "record"),
    "unlisten": ("on", ""),
    "await": ("listener count", "timeout settle gaps"),
    "acknowledge": ("message", ""),
    "recover": ("in", ""),
    "commit": ("in", ""),
    "rollback": ("in", ""),
    "unsubscribe": ("in durable", ""),
    "close": ("target", ""),
    "crash": ("target", ""),
    "wait": ("seconds", ""),
    "drain": ("destination", "timeout record selector"),
    "browse": ("destination", "selector"),
    "later": ("after step", ""),
}
_COMMON: Final = {"op", "elapsed", "unordered", "expect_error", "comment"}

#: What a member must name, where it means the same in every operation that has it.
_NAMES: Final = {"in": "session", "via": "producer", "from": "consumer", "listener": "listener"}
#: The same where it depends on the operation.
_NAMES_BY_OP: Final = {
    ("start", "target"): "connection",
    ("stop", "target"): "connection",
    ("crash", "target"): "connection",
    ("delete", "target"): "destination",
    ("session", "on"): "connection",
    ("listen", "on"): "consumer",
    ("unlisten", "on"): "consumer",
    ("consumer", "destination"): "destination",
    ("drain", "destination"): "destination",
    ("browse", "destination"): "destination",
    ("producer", "to"): "destination",
    ("send", "to"): "destination",
    ("send", "reply_to"): "destination",
    ("acknowledge", "message"): "message",
}
_CREATES: Final = {
    "connect": "connection",
    "session": "session",
    "consumer": "consumer",
    "producer": "producer",
    "temp_queue": "destination",
    "temp_topic": "destination",
    "composite": "destination",
    "receive": "message",
    "receive_none": "message",
    "receive_many": "message",
    "listen": "listener",
}


class ScenarioError(Exception):
    """A scenario file that does not follow FORMAT.md; says where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One scenario, checked."""

    path: Path
    id: str
    steps: list[Json]
    expected: list[Json] | None  #: None: not recorded yet
    options: Json = field(default_factory=dict)
    destinations: dict[str, str] = field(default_factory=dict)  #: logical name -> queue or topic
    requires: str | None = None
    stomp_expect: dict[int, Json] = field(default_factory=dict)  #: step index -> outcome
    #: the same, all together, of the Java client alone
    java_race: dict[int, Json] = field(default_factory=dict)
    not_over_stomp: str | None = None  #: the reason, if STOMP cannot do it

    def is_timed(self) -> bool:
        """Whether it goes by the clock, so that a machine with too much to do may spoil it."""
        return any(
            step["op"] == "later"
            or step.keys() & {"elapsed", "gaps", "pause"}
            or any("sleep" in action for rule in step.get("handler", ()) for action in rule["do"])
            for step in all_steps(self.steps)
        )

    def uses_dead_letters(self) -> bool:
        """Whether any step names the dead letter queue, which all scenarios share."""
        return any(step.get("destination") == "DLQ" for step in all_steps(self.steps))


def find(paths: Iterable[Path]) -> list[Path]:
    """
    List the scenario files among `paths`; folders are searched through.

    Raises ScenarioError if there is nothing at a path.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found.extend(sorted(path.rglob("*.json")))
        elif path.is_file():
            found.append(path)
        else:
            raise ScenarioError(f"{path}: no such file or folder")
    return found


def load(path: Path, *, strict: bool = False) -> Scenario:
    """
    Read the scenario at `path`; `strict` also refuses members that FORMAT.md does not know.

    Raises ScenarioError.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ScenarioError(f"{path.name}: not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise ScenarioError(f"{path.name}: the file must hold one object")
    faults = list(_faults(raw, strict=strict))
    if faults:
        raise ScenarioError(f"{path.name}: {'; '.join(faults)}")
    skipped = raw.get("not_over_stomp")
    return Scenario(
        path=path,
        id=raw.get("id", path.stem),
        steps=raw["steps"],
        expected=raw.get("expected"),
        options=raw.get("options", {}),
        destinations=raw.get("destinations", {}),
        requires=raw.get("requires"),
        stomp_expect={int(i): e["outcome"] for i, e in raw.get("stomp_expect", {}).items()},
        java_race={int(i): o for i, o in raw.get("java_race", {}).get("outcomes", {}).items()},
        not_over_stomp=skipped.get("reason", "not over STOMP") if skipped else None,
    )


def all_steps(steps: Iterable[Json]) -> Iterator[Json]:
    """Every step, also those inside `later` and in the handlers of listeners."""
    for step in steps:
        yield step
        if step.get("op") == "later" and isinstance(step.get("step"), dict):
            yield from all_steps([step["step"]])
        for rule in step.get("handler", ()):
            yield from all_steps(a for a in rule.get("do", ()) if isinstance(a, dict) and "op" in a)


def bodies(send: Json) -> list[str]:
    """The bodies that a step `send` sends, in order."""
    given = send["bodies"]
    if isinstance(given, list):
        return given
    return [f"{given['prefix']}{number}" for number in range(given["from"], given["to"] + 1)]


def _faults(raw: Json, *, strict: bool) -> Iterator[str]:
    steps = raw.get("steps")
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        yield "`steps` must be a list of objects"
        return
    expected = raw.get("expected")
    if expected is not None and len(expected) != len(steps):
        yield f"{len(expected)} outcomes are expected of {len(steps)} steps"
    for index, entry in raw.get("stomp_expect", {}).items():
        if not index.isdecimal() or int(index) >= len(steps) or "outcome" not in entry:
            yield f"stomp_expect[{index}] is no step's, or has no `outcome`"
    yield from _race_faults(raw)
    names = _declared(raw)
    for index, step in enumerate(steps):
        for part in all_steps([step]):
            yield from (
                f"step {index}: {fault}" for fault in _step_faults(part, names, strict=strict)
            )


def _race_faults(raw: Json) -> Iterator[str]:
    race = raw.get("java_race")
    if race is None:
        return
    if not race.get("reason") or not race.get("outcomes"):
        yield "java_race needs `outcomes` and a `reason`"
    for index in race.get("outcomes", {}):
        if not index.isdecimal() or int(index) >= len(raw["steps"]):
            yield f"java_race names {index}, which is no step"


def _declared(raw: Json) -> dict[str, set[str]]:
    """Collect the names given to things, by kind; a handler may use what is made later."""
    names: dict[str, set[str]] = defaultdict(set)
    names["destination"] |= {*raw.get("destinations", {}), "DLQ"}
    for step in all_steps(raw["steps"]):
        if "as" in step and step.get("op") in _CREATES:
            names[_CREATES[step["op"]]].add(step["as"])
    names["message"] |= names["listener"]
    return names


def _step_faults(step: Json, names: dict[str, set[str]], *, strict: bool) -> Iterator[str]:
    op = step.get("op")
    if op not in _MEMBERS:
        yield f"unknown op {op!r}"
        return
    required, optional = (set(words.split()) for words in _MEMBERS[op])
    for missing in sorted(required - step.keys()):
        yield f"{op} needs `{missing}`"
    if strict and (unknown := step.keys() - required - optional - _COMMON):
        yield f"{op} has unknown members {sorted(unknown)}"
    if op == "send" and not step.keys() & {"in", "via"}:
        yield "send needs `in` or `via`"
    if op == "session" and step.get("mode") not in MODES:
        yield f"mode {step.get('mode')!r} is none of {', '.join(MODES)}"
    for member, value in step.items():
        kind = _NAMES_BY_OP.get((op, member)) or _NAMES.get(member)
        if kind is not None:
            for name in value if isinstance(value, list) else [value]:
                yield from _name_fault(op, member, name, names[kind])


def _name_fault(op: str, member: str, name: Any, known: set[str]) -> Iterator[str]:
    if name is None or isinstance(name, dict):  # a null destination, or {"reply_to_of": …}
        return
    if name not in known and str(name).rpartition(".")[0] not in known:
        yield f"{op}: `{member}` names {name!r}, which no step makes"
