"""Make a program that differs smaller, as long as it still differs."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from tests.conformance.generated.things import Indeterminate
from tests.conformance.generated.world import World
from tests.conformance.scenario import all_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tests.conformance.generated.trial import Difference
    from tests.conformance.scenario import Json

#: Members of a step that name what another step made.
_REFERENCES: Final = ("in", "on", "from", "target", "listener", "message")
_MOST_ROUNDS: Final = 25


def shrunk(
    found: Difference, differences: Callable[[Sequence[Json]], list[Difference]]
) -> Difference:
    """
    A small program that differs in the same way; `differences` runs programs.

    In each round all programs that lack one chunk of steps are tried at once, and then those that
    lack several of the chunks that were dropped in vain; the smallest that differs goes on.
    """

    def trying(choices: Iterable[list[Json]]) -> list[Difference]:
        tried = differences(_numbered(found.program, choices))
        return [one for one in tried if one.kind == found.kind]

    size = len(found.program["steps"]) // 2
    for _ in range(_MOST_ROUNDS):
        smaller = trying(_smaller(found.program["steps"], size))
        if smaller:
            much_smaller = trying(_combined(found.program, smaller))
            found = min([*smaller, *much_smaller], key=lambda one: _size(one.program))
        elif size > 1:
            size //= 2
        else:
            break
    return found


def _combined(program: Json, smaller: Sequence[Difference]) -> Iterator[list[Json]]:
    """What is left when all, or some, of what could be dropped is dropped together."""
    random = Random(len(smaller))
    for count in (len(smaller), *[len(smaller) // 2] * 4, *[len(smaller) // 4] * 4):
        if count > 1:
            kept = [_texts(one.program) for one in random.sample(list(smaller), count)]
            yield [step for step in program["steps"] if all(repr(step) in texts for texts in kept)]


def is_determinate(destinations: dict[str, str], steps: Sequence[Json]) -> bool:
    """Whether `steps` is a program that `World` takes."""
    world = World(destinations)
    try:
        for step in steps:
            world.apply(step)
    except (Indeterminate, KeyError):
        return False
    return not world.stirred


def _numbered(program: Json, choices: Iterable[list[Json]]) -> list[Json]:
    """Programs of the determinate ones among `choices` of steps, with names of their own."""
    name = program["id"].partition(".")[0]
    return [
        {**program, "id": f"{name}.{number}", "steps": steps}
        for number, steps in enumerate(choices)
        if is_determinate(program["destinations"], steps)
    ]


def _smaller(steps: Sequence[Json], size: int) -> Iterator[list[Json]]:
    """The steps without each chunk of `size`; with size 1 also with less in a step."""
    for begin in range(0, len(steps), size):
        yield _without(steps, range(begin, begin + size))
    if size == 1:
        for index, step in enumerate(steps):
            for less in _less(step):
                yield [*steps[:index], less, *steps[index + 1 :]]


def _less(step: Json) -> Iterator[Json]:
    """The step with less in it."""
    for member, least in (("bodies", 1), ("handler", 0)):
        items = step.get(member, ())
        for place in range(len(items) if len(items) > least else 0):
            yield {**step, member: [*items[:place], *items[place + 1 :]]}
    if step.get("count", 1) > 1:
        yield {**step, "count": step["count"] - 1}
    for member in ("properties", "kind", "record", "selector", "prefetch"):
        if member in step:
            yield {key: value for key, value in step.items() if key != member}


def _without(steps: Sequence[Json], indices: range) -> list[Json]:
    """All but some of the steps, and but those that need what they made."""
    gone: set[str] = set()
    kept = []
    for index, step in enumerate(steps):
        if index in indices or any(_needs(part, gone) for part in all_steps([step])):
            gone |= {step["as"]} if "as" in step else set()
        else:
            kept.append(step)
    return kept


def _needs(step: Json, gone: set[str]) -> bool:
    names = [str(step[member]) for member in _REFERENCES if member in step]
    return any(name in gone or name.partition(".")[0] in gone for name in names)


def _texts(program: Json) -> set[str]:
    return {repr(step) for step in program["steps"]}


def _size(program: Json) -> tuple[int, int]:
    return len(program["steps"]), len(repr(program))
