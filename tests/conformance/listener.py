"""A message listener that follows the rules of a scenario."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.conformance.translation import error_kind

if TYPE_CHECKING:
    import jmsx
    from tests.conformance.scenario import Json
    from tests.conformance.script import Script


@dataclass(frozen=True, slots=True)
class Delivery:
    """One call of a listener, finished."""

    listener: str
    start: float  #: seconds, monotonic
    described: Json


class ScriptedListener:
    """Applies to each delivery the first rule that fits; its length is what `take` would give."""

    def __init__(self, script: Script, step: Json) -> None:
        self._script = script
        self._name: str = step["as"]
        self._rules: list[Json] = step["handler"]
        self._record: list[str] = step.get("record", [])
        self._calls = 0
        self._seen: Counter[str] = Counter()
        self._finished: list[Delivery] = []
        self._mutex = threading.Lock()

    def __len__(self) -> int:
        return len(self._finished)

    def __call__(self, message: jmsx.Message) -> None:
        """Handle one delivery; it is reported when this ends, however it ends."""
        start = time.monotonic()
        self._calls += 1
        self._script.note(f"{self._name}.{self._calls}", message)
        described = self._script.describe(message, self._record)
        self._seen[described["body"]] += 1
        failures: list[str] = []
        try:
            self._act(message, self._actions(described["body"]), failures)
        finally:
            if failures:
                described["action_errors"] = failures
            with self._mutex:
                self._finished.append(Delivery(self._name, start, described))

    def take(self) -> list[Delivery]:
        """Hand over the deliveries that finished since the last time."""
        with self._mutex:
            taken, self._finished = self._finished, []
        return taken

    def _actions(self, body: str) -> list[Any]:
        for rule in self._rules:
            if (
                rule.get("body", body) == body
                and _within(self._seen[body], rule.get("deliveries"))
                and _within(self._calls, rule.get("calls"))
                and self._calls % rule.get("every", 1) == 0
            ):
                actions: list[Any] = rule["do"]
                return actions
        return []

    def _act(self, message: jmsx.Message, actions: list[Any], failures: list[str]) -> None:
        for action in actions:
            if action == "fail":
                raise RuntimeError("scripted failure")
            try:
                if action == "acknowledge":
                    message.acknowledge()
                elif "sleep" in action:
                    time.sleep(action["sleep"])
                else:
                    self._script.perform(action)
            except Exception as error:  # noqa: BLE001 - reported; the handler goes on
                failures.append(error_kind(error))


def _within(number: int, bounds: Any) -> bool:
    """Whether `number` is in `bounds`: a number, a pair whose end may be open, or None for any."""
    if bounds is None:
        return True
    if isinstance(bounds, int):
        return number == bounds
    first, last = bounds
    return bool(number >= first and (last is None or number <= last))
