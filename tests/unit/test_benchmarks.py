"""The benchmarks compare what there is, and tell what they found."""

from __future__ import annotations

import os

import pytest

from tests.benchmarks import __main__ as command
from tests.benchmarks import hand_overs, one_thread, readme
from tests.benchmarks.goals import GOALS, Goal, Runs, ratio
from tests.benchmarks.ways import SUITES, Way
from tests.depth import some

BROKERS = ("classic", "artemis")


@pytest.mark.parametrize("broker", BROKERS)
@pytest.mark.parametrize("suite", SUITES)
def test_ways_have_labels_of_their_own(suite: str, broker: str) -> None:
    """Runs are kept by label."""
    labels = [way.label for way in SUITES[suite](broker)]
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.text)
@pytest.mark.parametrize("broker", BROKERS)
def test_goals_are_measured(goal: Goal, broker: str) -> None:
    """A goal of a way that is never run would always look as if nobody had measured."""
    labels = {way.label for way in SUITES[goal.suite](broker)}
    assert {label for pair in goal.pairs for label in pair} <= labels


def test_ratio_is_of_turns() -> None:
    """A turn on a busy machine has slow runs of both, whose ratio tells all the same; one that failed tells nothing."""
    runs: Runs = {
        "jmsx": [{"rate": 20.0}, {"rate": 2.0}, {}, {"rate": 30.0}],
        "java": [{"rate": 10.0}, {"rate": 1.0}, {"rate": 9.0}, {"rate": 10.0}],
    }
    assert ratio(runs, ("jmsx", "java"), "rate") == 2.0
    assert ratio(runs, ("jmsx", "nobody"), "rate") is None


def test_ratio_to_nothing_is_none() -> None:
    """Java tells its CPU in steps of 10 ms, so that a short run has used none."""
    runs: Runs = {"jmsx": [{"us": 20.0}, {"us": 20.0}], "java": [{"us": 0.0}, {"us": 10.0}]}
    assert ratio(runs, ("jmsx", "java"), "us") == 2.0
    assert ratio({**runs, "java": [{"us": 0.0}]}, ("jmsx", "java"), "us") is None


def runs_of(ways: list[Way], rate: float) -> Runs:
    """Runs in which jmsx has `rate` and everybody else 1000."""
    return {
        way.label: [{"rate": rate if way.who == "jmsx" else 1000.0, "us": 10.0}] for way in ways
    }


def test_table_and_goals_tell_ratios() -> None:
    """Both of what is met and of what is missed."""
    ways = SUITES["consume"]("classic")
    runs = runs_of(ways, 1500.0)
    assert "java receive auto 1.50/1.00" in command.table(runs, ways, "classic")
    told = command.reached("consume", runs, "classic").splitlines()
    java, stompman = "INDIVIDUAL, DUPS_OK: throughput to Java", "throughput to stompman"
    assert [line.split()[0] for line in told if java in line] == ["met", "met"]
    assert {line.split()[0] for line in told if stompman in line} == {"MISSED"}


def test_readme_tells_goals_and_tables() -> None:
    """What was not measured is not told as met."""
    results = {("classic", "consume"): runs_of(SUITES["consume"]("classic"), 900.0)}
    measured = readme.of(100, 1)
    handed = [("jmsx receive auto", 1, 70.0, 6.0, 0.5)]
    text = readme.made(
        results, {"receive auto": (50.0, 60.0)}, measured, handed=handed, profiled=200
    )
    assert all(part in text for part in measured)
    assert "| receive, AUTO: throughput to Java | ≥ 1: 0 of 1 met; worst 0.90 " in text
    assert "| not measured |" in text
    assert (
        "| classic | jmsx receive auto to java receive auto, rate | ≥ 1 | 0.90 | 20.00 | 16.67 |"
        in text
    )
    assert "| receive auto | 50.0 | 60.0 |" in text
    assert "| jmsx receive auto | 1 | 70.0 | 6.0 | 0.50 |" in text
    cost = "Classic: `jmsx receive auto` takes 10 µs of CPU a message, 50 on one thread; a bare socket takes 10."
    assert "- **receive, AUTO: throughput to Java.** `receive()` writes" in text
    assert cost in text


def test_readme_tells_what_full_processors_would_do() -> None:
    """Of throughput, where it is known what the broker takes; of the client's CPU that says nothing."""
    runs = runs_of(SUITES["consume"]("classic"), 900.0)
    runs["jmsx receive auto"][0]["broker_us"] = 990.0
    text = readme.made({("classic", "consume"): runs}, {}, readme.of(100, 1), profiled=200)
    full = (os.cpu_count() or 1) * 1e6 / (10 + 990) / 1000
    (line,) = [
        one for one in text.splitlines() if "jmsx receive auto to java receive auto, rate |" in one
    ]
    assert line.endswith(f"| {full:.2f} |")
    (line,) = [
        one for one in text.splitlines() if "jmsx receive auto to stomp.py each, us |" in one
    ]
    assert line.endswith("|  |")
    assert "a bare socket takes 10; the broker takes 990." in text


def test_goals_say_what_bounds_them() -> None:
    """Whether met or not, for the next run may miss them; each in whole sentences."""
    assert all(goal.bounded.endswith(".") for goal in GOALS)


def test_a_way_that_always_fails_says_why() -> None:
    """Java's own optimizeAcknowledge on a backlog of Classic's."""
    results = {("classic", "consume"): runs_of(SUITES["consume"]("classic"), 900.0)}
    results["classic", "consume"]["java receive optimized"] = [{}]
    text = readme.made(results, {}, readme.of(100, 1), profiled=200)
    (line,) = [one for one in text.splitlines() if one.startswith("| java receive optimized |")]
    assert "failed: it stalls at 200 messages" in line
    assert "C10" in line


@pytest.mark.parametrize("way", some(list(one_thread.WAYS)))
def test_one_thread_takes_and_sends_all(way: str) -> None:
    """Each way comes to its end without a broker: what stalls raises."""
    assert one_thread.cost(way, 300) > 0


@pytest.mark.parametrize("way", some(hand_overs.WAYS), ids=lambda way: way.label)
def test_hand_overs_take_all(way: Way) -> None:
    """From a process that plays Classic, and hands out no more than it would."""
    told = hand_overs.run(way, 1_500, 1)
    assert told["messages"] == 1_500
    assert told["us"] > told["kernel_us"] >= 0
