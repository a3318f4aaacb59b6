"""
What cannot be had on Artemis over STOMP, by the guarantee table (examples/guarantees).

The scenarios are recorded on Classic. One is NOT for Artemis if every difference is one that the table names; a single
other difference fails it. The rules look at what differs, so they hold for scenarios that nobody here has seen.

Most rules rewrite what a step was expected to do, and the judge of all outcomes says whether it did just that. Three
look at several steps as one: what one consumer lacks another one may have got, or nobody has sent.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from tests.conformance.compare import difference, step_difference
from tests.conformance.scenario import all_steps, bodies
from tests.conformance.traffic import Traffic, left_over, messages, with_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tests.conformance.scenario import Json, Scenario

BROWSING: Final = "browsing: Artemis does not show a queue over STOMP (guarantee table)"
CLIENT_ID: Final = (
    "client ids: Artemis lets two connections have the same over STOMP (guarantee table)"
)
PRIORITY: Final = "priorities: Artemis always honours them (guarantee table)"
DEAD_LETTERS: Final = "dead letters: on Artemis jmsx never lets one be deleted (guarantee table)"
GROUPS: Final = "groups: over STOMP Artemis does not close one by its sequence (guarantee table)"
COMPOSITES: Final = (
    "several destinations in one name: Artemis refuses them over STOMP (guarantee table)"
)
STRANDED: Final = (
    "a crash: Artemis keeps a message of the dead consumer for nobody (examples/guarantees)"
)

_REFUSED: Final[Json] = {"error": "Unsupported"}


def limit(
    scenario: Scenario,
    outcomes: Sequence[Json],
    stranded: Callable[[str], int] = lambda _destination: 0,
) -> str | None:
    """
    Why `scenario` cannot pass on Artemis; None if it passes or fails.

    `stranded` tells how many messages of a destination the broker keeps for consumers that are dead; it is asked only
    where nothing else explains what differs.
    """
    if scenario.expected is None or len(outcomes) != len(scenario.steps):
        return None
    run = _Run(scenario, outcomes)
    reasons = {index: run.excuse(index) for index in run.differing}
    rest = [index for index, reason in reasons.items() if reason is None]
    together = run.excuse_together(rest, stranded) if rest else None
    if rest and together is None:
        return None
    return next((reason for reason in (*reasons.values(), together) if reason), None)


class _Run:
    """A scenario, and what came of it; steps go by their index."""

    def __init__(self, scenario: Scenario, outcomes: Sequence[Json]) -> None:
        self._scenario = scenario
        self._steps = scenario.steps
        self._outcomes = outcomes
        self._traffic = Traffic(scenario.steps)
        self._composites: dict[str, list[str]] = {
            step["as"]: step["of"] for step in scenario.steps if step["op"] == "composite"
        }
        self.differing = [i for i in range(len(outcomes)) if not self._fits(i, self._expected(i))]

    def excuse(self, index: int) -> str | None:
        """Why this step may differ, whatever the others do."""
        rules = (
            (BROWSING, self._browses),
            (COMPOSITES, self._sends_to_several),
            (GROUPS, self._closes_group),
            (CLIENT_ID, self._shares_client_id),
            (PRIORITY, self._orders_by_priority),
            (DEAD_LETTERS, self._keeps_dead_letters),
        )
        return next((why for why, rule in rules if self._fits(index, self._by(rule, index))), None)

    def excuse_together(self, indices: Sequence[int], stranded: Callable[[str], int]) -> str | None:
        """Why these steps may differ, seen as one."""
        for index in indices:
            actual = self._outcomes[index]
            if messages(actual) is None or self._source(index) is None:
                return None
            if step_difference(self._steps[index], actual, actual):  # the time that it took
                return None
        if self._keeps_groups(indices):
            return GROUPS
        if self._lacks_refused(indices):
            return COMPOSITES
        return STRANDED if self._lacks_stranded(indices, stranded) else None

    def _expected(self, index: int) -> Iterator[Json]:
        """What the judge takes for right."""
        if self._scenario.expected is not None:
            yield self._scenario.expected[index]
        if index in self._scenario.stomp_expect:
            yield self._scenario.stomp_expect[index]

    def _by(self, rule: Callable[[int, Json], Json | None], index: int) -> Iterator[Json]:
        """What is right by a rule."""
        rewritten = (rule(index, expected) for expected in self._expected(index))
        return (expected for expected in rewritten if expected is not None)

    def _fits(self, index: int, expectations: Iterator[Json]) -> bool:
        step, actual = self._steps[index], self._outcomes[index]
        return any(step_difference(step, expected, actual) is None for expected in expectations)

    def _source(self, index: int) -> str | None:
        return self._traffic.source(self._steps[index])

    # -- rules for one step: what it does on Artemis instead of `expected`; None if the rule is not for it ------------

    def _browses(self, index: int, expected: Json) -> Json | None:
        return _REFUSED if self._steps[index]["op"] == "browse" and "bodies" in expected else None

    def _sends_to_several(self, index: int, expected: Json) -> Json | None:
        several = self._traffic.target(self._steps[index]) in self._composites
        return _REFUSED if several and "ok" in expected else None

    def _closes_group(self, index: int, expected: Json) -> Json | None:
        return _REFUSED if _closes_group(self._steps[index]) and "ok" in expected else None

    def _shares_client_id(self, index: int, expected: Json) -> Json | None:
        step, earlier = self._steps[index], self._steps[:index]
        known = {
            one["client_id"] for one in earlier if one["op"] == "connect" and "client_id" in one
        }
        shares = step["op"] == "connect" and step.get("client_id") in known
        return {"ok": True} if shares and expected.get("error") == "InvalidClientID" else None

    def _orders_by_priority(self, index: int, expected: Json) -> Json | None:
        """The same messages: the highest priority first, those of the same in their order."""
        wanted, source = messages(expected), self._source(index)
        if not wanted or source is None:
            return None
        known = self._priorities(source)
        if any(len(known[one["body"]]) != 1 for one in wanted):
            return None
        return with_messages(expected, sorted(wanted, key=lambda one: -max(known[one["body"]])))

    def _keeps_dead_letters(self, index: int, expected: Json) -> Json | None:
        """Besides what is expected, once each, the dead letters that were read and failed again."""
        wanted, seen = messages(expected), messages(self._outcomes[index])
        if wanted is None or seen is None or self._source(index) != "DLQ":
            return None
        extra = left_over(seen, wanted, lambda one, other: difference(other, one) is None)
        if extra is None:
            return None
        kept = [one["body"] for one in extra]
        if len(set(kept)) < len(kept) or not set(kept) <= self._failed_again(index):
            return None
        return with_messages(self._outcomes[index], seen)

    def _priorities(self, destination: str) -> dict[str, set[int]]:
        """The priorities with which a body was sent there."""
        known: dict[str, set[int]] = defaultdict(set)
        for step in all_steps(self._steps):
            if self._traffic.target(step) == destination:
                sent = bodies(step)
                each = step.get("priorities") or [step.get("priority", 4)] * len(sent)
                for body, priority in zip(sent, each, strict=True):
                    known[body].add(priority)
        return known

    def _failed_again(self, end: int) -> set[str]:
        """What consumers of dead letters got before step `end` and did not take."""
        failed: set[str] = set()
        read: dict[str, set[str]] = defaultdict(set)  #: session -> bodies
        for index, step in enumerate(self._steps[:end]):
            if step["op"] in ("rollback", "recover"):
                failed |= read.pop(step["in"], set())
            elif self._source(index) == "DLQ":
                got = {one["body"] for one in messages(self._outcomes[index]) or ()}
                for consumer in self._traffic.of(step):
                    read[self._traffic.session(consumer)] |= got
                    failed |= got if self._traffic.fails(consumer) else set()
        return failed

    # -- rules for several steps, all of which read -------------------------------------------------------------------

    def _keeps_groups(self, indices: Sequence[int]) -> bool:
        """
        Messages of groups that were to be closed went to other consumers.

        But for those that were to close them, which were refused, all came, and once.
        """
        refused = [index for index in self.differing if _closes_group(self._steps[index])]
        if not refused or min(indices) < min(refused):
            return False
        groups = {self._group(self._steps[index]) for index in refused}
        grouped = {
            body
            for step in all_steps(self._steps)
            if step["op"] == "send" and self._group(step) in groups
            for body in bodies(step)
        }
        closing = {body for index in refused for body in bodies(self._steps[index])}
        wanted = _all_messages(next(self._expected(index)) for index in indices)
        seen = self._seen(indices)
        if not {one["body"] for one in [*wanted, *seen]} <= grouped:
            return False
        arriving = [one for one in wanted if one["body"] not in closing]
        return difference(arriving, seen, unordered=True) is None

    def _lacks_refused(self, indices: Sequence[int]) -> bool:
        """Nothing is wrong but that messages are missing which were to be sent to several destinations at once."""
        sends = [
            (index, self._traffic.target(self._steps[index]))
            for index in self.differing
            if self._traffic.target(self._steps[index]) in self._composites
        ]
        for index in indices:
            source = self._source(index)
            unsent = [
                body
                for at, name in sends
                if at < index and source in self._composites[name or ""]
                for body in bodies(self._steps[at])
            ]
            wanted = _all_messages([next(self._expected(index))])
            rest = [one for one in wanted if one["body"] not in unsent]
            if difference(rest, self._seen([index])) is not None:
                return False
        return bool(sends)

    def _lacks_stranded(self, indices: Sequence[int], stranded: Callable[[str], int]) -> bool:
        """Messages of a consumer whose socket broke are missing, which the broker keeps; all else is right."""
        crashes = [
            (index, step["target"])
            for index, whole in enumerate(self._steps)
            for step in all_steps([whole])
            if step["op"] == "crash"
        ]
        by_source: dict[str, list[int]] = defaultdict(list)
        for index in indices:
            by_source[self._source(index) or ""].append(index)
        for source, some in by_source.items():
            if not any(at < min(some) and source in self._traffic.on(who) for at, who in crashes):
                return False
            expectations = itertools.product(*(self._expected(index) for index in some))
            kept = stranded(source)
            seen = self._seen(some)
            later = self._seen(range(max(some) + 1, len(self._steps)))
            if not any(self._lacks(expected, seen, later, kept) for expected in expectations):
                return False
        return True

    def _lacks(
        self, expected: Iterable[Json], seen: Sequence[Json], later: Sequence[Json], most: int
    ) -> bool:
        """
        Whether nothing is wrong but that at least one message is missing, and `most` at most.

        One that the broker keeps is missing wherever it was to come again, and comes no more.
        """
        wanted = _all_messages(expected)
        missing = left_over(wanted, seen, lambda one, other: difference(one, other) is None)
        if not missing:
            return False
        lost = 0
        for body, times in Counter(one["body"] for one in missing).items():
            came = [one for one in seen if one["body"] == body]
            first = [one for one in wanted if one["body"] == body][: len(came)]
            again = any(one["body"] == body for one in later)
            if times > 1 and (again or difference(first, came) is not None):
                return False
            lost += min(times, self._sent(body))
        return lost <= most

    def _sent(self, body: str) -> int:
        """How many messages with this body were sent; one at least, which may be an answer."""
        sent = [
            one for step in all_steps(self._steps) if step["op"] == "send" for one in bodies(step)
        ]
        return max(1, sent.count(body))

    def _group(self, send: Json) -> tuple[object, object]:
        return self._traffic.target(send), send.get("group_id")

    def _seen(self, indices: Iterable[int]) -> list[Json]:
        """The messages that these steps got."""
        return _all_messages(self._outcomes[index] for index in indices)


def _all_messages(outcomes: Iterable[Json]) -> list[Json]:
    return [one for outcome in outcomes for one in messages(outcome) or ()]


def _closes_group(step: Json) -> bool:
    return step["op"] == "send" and int(step.get("properties", {}).get("JMSXGroupSeq", 0)) < 0
