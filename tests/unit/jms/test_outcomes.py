"""What a handler may raise to say what shall become of its message."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from jmsx.core.values import Disposition, Failure
from jmsx.errors import ConfigurationError
from jmsx.jms.outcomes import Discard, Duplicate, Reject, Retry, failure_of


def raised(error: BaseException, cause: BaseException | None = None) -> Failure:
    """The failure of `error` as it is caught."""
    try:
        raise error from cause
    except type(error) as caught:  # the traceback is a part of the story
        return failure_of(caught)


@pytest.mark.parametrize(
    ("error", "disposition", "delay"),
    [
        (ValueError("x"), Disposition.REDELIVER, None),
        (Retry("x"), Disposition.REDELIVER, None),
        (Retry("x", delay=0.0), Disposition.REDELIVER, 0.0),
        (Retry("x", delay=7.5), Disposition.REDELIVER, 7.5),
        (Retry("x", delay="1min"), Disposition.REDELIVER, 60.0),
        (Retry("x", delay=timedelta(hours=1)), Disposition.REDELIVER, 3600.0),
        (Reject("x"), Disposition.REJECT, None),
        (Discard("x"), Disposition.DISCARD, None),
    ],
)
def test_verdict(error: Exception, disposition: Disposition, delay: float | None) -> None:
    """Anything that is no instruction means: by the policy."""
    failure = raised(error)
    assert (failure.disposition, failure.delay) == (disposition, delay)
    assert (failure.error_type, failure.error_message) == (type(error).__name__, "x")


def test_a_duplicate_is_no_error() -> None:
    """Nothing failed, so no error is told."""
    assert raised(Duplicate()) == Failure(disposition=Disposition.DUPLICATE)


@pytest.mark.parametrize("error", [Retry(delay=1.0), Reject("no"), Discard()])
def test_cause_of_an_instruction_is_told_in_its_place(error: Exception) -> None:
    """`raise Reject from error`: what went wrong is the error."""
    failure = raised(error, KeyError("id"))
    assert (failure.error_type, failure.error_message) == ("KeyError", "'id'")
    assert "KeyError: 'id'" in (failure.stack or "")
    assert failure.disposition is failure_of(error).disposition


def test_cause_of_an_error_is_part_of_its_stack() -> None:
    """The error itself is what is told."""
    failure = raised(ValueError("no order"), KeyError("id"))
    assert failure.error_type == "ValueError"
    assert "KeyError: 'id'" in (failure.stack or "")
    assert "test_outcomes.py" in (failure.stack or "")


class CannotSayError(Exception):
    """Its text is a fault of its own."""

    def __str__(self) -> str:
        raise RuntimeError("no str")


class CannotShowError(Exception):
    """So is its representation."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class CannotEitherError(CannotSayError, CannotShowError):
    """Both."""


@pytest.mark.parametrize("kind", [CannotSayError, CannotShowError, CannotEitherError])
@pytest.mark.parametrize("how", ["raised", "cause", "argument", "context"])
def test_error_that_cannot_speak_is_a_failure_like_any_other(
    kind: type[Exception], how: str
) -> None:
    """Itself, as the cause of an instruction, as the argument of another, or while it was handled."""
    if how == "raised":
        failure, name = raised(kind("x")), kind.__name__
    elif how == "cause":
        failure, name = raised(Reject("x"), kind("x")), kind.__name__
    elif how == "argument":
        failure, name = raised(ValueError(kind("x"), "y")), "ValueError"
    else:
        error = ValueError("x")
        error.__context__ = kind("x")
        failure, name = raised(error), "ValueError"
    assert failure.error_type == name
    assert isinstance(failure.error_message, str)
    assert name in (failure.stack or "")
    assert failure.disposition is (Disposition.REJECT if how == "cause" else Disposition.REDELIVER)


def test_error_without_a_text_says_so() -> None:
    """By its class."""
    assert raised(CannotSayError()).error_message == "<CannotSayError that cannot be printed>"


def _deep(depth: int) -> None:
    if depth:
        _deep(depth - 1)
    raise ValueError("card 4111 1111")


def _of(error: BaseException) -> None:
    try:
        _deep(0)
    except ValueError as cause:
        raise error from cause


def test_the_way_to_an_error_without_its_words() -> None:
    """Frames from the outermost on, file, line and function, the cause first; no text of an exception, and one line."""
    with pytest.raises(LookupError) as caught:
        _of(LookupError("of Mr. Smith"))
    way = failure_of(caught.value).trace or ""
    place = r"[^ ]*test_outcomes\.py:[0-9]+"
    frames = [rf"{place} _of", rf"{place} _deep: ValueError"]
    outer = [rf"{place} test_the_way_to_an_error_without_its_words", rf"{place} _of: LookupError"]
    assert re.fullmatch(f"{' > '.join(frames)} \\| {' > '.join(outer)}", way), way


def test_the_way_is_as_python_chains_it() -> None:
    """What was handled meanwhile is told, too, unless it is hidden; of an instruction its cause is."""
    for error, classes in (
        (raised_in_except(KeyError("id"), ValueError("x")), ["KeyError", "ValueError"]),
        (raised_in_except(KeyError("id"), ValueError("x"), hidden=True), ["ValueError"]),
    ):
        way = failure_of(error).trace or ""
        assert [part.rpartition(": ")[2] for part in way.split(" | ")] == classes
    assert (raised(Reject("no"), KeyError("id")).trace or "").endswith("KeyError")
    assert raised(Duplicate()).trace is None


def raised_in_except(first: Exception, second: Exception, *, hidden: bool = False) -> Exception:
    """`second`, raised while `first` is handled."""
    try:
        try:
            raise first
        except type(first):
            if hidden:
                raise second from None
            raise second  # noqa: B904 - that is what is tested
    except type(second) as caught:
        return caught


def test_the_way_is_bounded() -> None:
    """The innermost end of a recursion, and the nearest of a long chain of causes."""
    with pytest.raises(ValueError, match="card") as caught:
        _deep(500)
    way = failure_of(caught.value).trace or ""
    assert len(way.encode()) <= 8192
    assert way.endswith(" _deep: ValueError")
    error: Exception = ValueError("0")
    for number in range(50):
        error = raised_from(KeyError(number), error)
    assert (failure_of(error).trace or "").count(" | ") < 10


def raised_from(error: Exception, cause: Exception) -> Exception:
    """`error`, with its cause."""
    try:
        raise error from cause
    except type(error) as caught:
        return caught


@pytest.mark.parametrize("error", [CannotSayError(), CannotEitherError(), ValueError()])
def test_a_hostile_error_has_its_class(error: Exception) -> None:
    """Never raised, and not to be printed."""
    assert failure_of(error).trace == type(error).__name__


def test_a_delay_in_the_place_of_the_reason() -> None:
    """It would be said, and not waited for."""
    with pytest.raises(ConfigurationError, match=r"write Retry\(delay=60\)"):
        Retry(60)  # type: ignore[arg-type]  # the refusal is what is tested
