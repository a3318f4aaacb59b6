"""A redelivery policy of the application's, whatever it raises or answers."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from jmsx.config.custom_policy import LONGEST_DELAY, CustomPolicy, careful
from jmsx.core.policy import ArtemisRedeliveryPolicy, RedeliveryPolicy, check_policy
from jmsx.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

#: What no method of a policy may answer; None is one that forgets to return.
NONSENSE = (
    None,
    "1",
    "auto",
    math.nan,
    math.inf,
    -math.inf,
    -5,
    10**400,
    1e300,
    [1],
    timedelta(1),
    object(),
)

#: Questions, and what the default policy says to each.
QUESTIONS: dict[str, tuple[Callable[[CustomPolicy], Any], Any]] = {
    "maximum_redeliveries": (lambda policy: policy.maximum_redeliveries, 6),
    "pre_dispatch_check": (lambda policy: policy.pre_dispatch_check, True),
    "mode": (lambda policy: policy.mode, "local"),
    "non_blocking": (lambda policy: policy.non_blocking, False),
    "exhausted": (lambda policy: (policy.exhausted(6), policy.exhausted(7)), (False, True)),
    "delay": (lambda policy: policy.delay(1), 1.0),
}


def given(question: str, answer: Any) -> CustomPolicy:
    """A policy that gives this answer, or raises it."""

    def say() -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    class Asked:
        def __getattribute__(self, name: str) -> Any:
            if name.startswith("__"):
                return object.__getattribute__(self, name)
            if name != question:
                return getattr(RedeliveryPolicy(), name)
            return (lambda *_: say()) if name in ("exhausted", "delay") else say()

    return CustomPolicy(Asked())


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize(
    "answer", [*NONSENSE, ValueError("no"), SystemExit(1)], ids=lambda one: type(one).__name__
)
def test_nonsense_is_answered_by_the_default_policy(
    question: str, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """And told once, with what was wrong."""
    policy = given(question, answer)
    ask, default = QUESTIONS[question]
    assert [ask(policy), ask(policy)] == [default, default]
    assert policy.fault is not None
    assert policy.fault.startswith(f"Asked.{question}")
    (told,) = caplog.records
    assert policy.fault in told.getMessage()


@pytest.mark.parametrize("answer", [0, 0.0, 2, 2.5, LONGEST_DELAY])
def test_delays_that_make_sense(answer: float) -> None:
    """Each is taken as it is."""
    policy = given("delay", answer)
    assert (policy.delay(1), policy.fault) == (answer, None)


def test_the_limit_counts_where_exhausted_does_not() -> None:
    """The application has said how often."""

    class Forgetful(RedeliveryPolicy):
        def exhausted(self, redelivery_count: int) -> Any:
            """Forget to return."""

    policy = CustomPolicy(Forgetful(maximum_redeliveries=2))
    assert [policy.exhausted(number) for number in (2, 3)] == [False, True]


def test_a_fault_ends_with_a_good_answer() -> None:
    """Health is well again."""
    answers = [math.nan, 3.0]

    class Changing(RedeliveryPolicy):
        def delay(self, redelivery: int, draw: Any = None) -> float:  # noqa: ARG002 - as the policy has it
            return answers.pop(0)

    policy = CustomPolicy(Changing())
    assert policy.delay(1) == 1.0
    assert policy.fault == "Changing.delay() gave a float: nan"
    assert policy.delay(1) == 3.0
    assert policy.fault is None


def test_the_chance_is_passed_on() -> None:
    """For collision avoidance of its own."""

    class Chance(RedeliveryPolicy):
        def delay(self, redelivery: int, draw: Callable[[], float] | None = None) -> float:
            assert draw is not None
            return redelivery + draw()

    assert CustomPolicy(Chance()).delay(2, lambda: 0.5) == 2.5


@pytest.mark.parametrize("policy", [RedeliveryPolicy(), ArtemisRedeliveryPolicy()])
def test_policies_of_jmsx_are_believed(policy: Any) -> None:
    """Their fields were checked."""
    assert careful(policy) is policy


def test_a_policy_may_say_nothing_of_a_check() -> None:
    """It is made as by default."""

    class Bare:
        maximum_redeliveries, mode, non_blocking = 1, "local", False

        def exhausted(self, count: int) -> bool:
            return count > 1

        def delay(self, redelivery: int, draw: Any = None) -> float:  # noqa: ARG002 - as the policy has it
            return 0.0

    check_policy("redelivery", Bare())
    policy = CustomPolicy(Bare())
    assert (policy.pre_dispatch_check, policy.fault) == (True, None)


def test_a_policy_that_cannot_be_asked_at_all() -> None:
    """Is refused where it is given."""

    class Raising:
        @property
        def delay(self) -> None:
            raise ValueError("not ready")

    with pytest.raises(
        ConfigurationError, match="a Raising whose settings cannot be read: ValueError: not ready"
    ):
        check_policy("redelivery", Raising())
