"""What the guide says in tables, pictures and manifests, where no program shows it."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import typer.main
import yaml

from jmsx import AcknowledgeMode, RedeliveryPolicy
from jmsx.cli.commands import app
from jmsx.cli.run import RunSettings
from jmsx.core.durations import seconds
from jmsx.testing.harness import DeadLetter, HandlerCall, Harness

GUIDE = Path(__file__).parents[2] / "examples"


def page(name: str) -> str:
    """Its text."""
    return (GUIDE / name / "README.md").read_text("utf-8")


def blocks(name: str, language: str) -> list[str]:
    """What stands between its fences."""
    return re.findall(rf"^```{language}\n(.*?)^```", page(name), re.MULTILINE | re.DOTALL)


def run_options() -> dict[str, Any]:
    """Those of `jmsx run` that are shown."""
    command: Any = typer.main.get_command(app)
    parameters = command.commands["run"].params
    return {one.opts[0]: one for one in parameters if not getattr(one, "hidden", False)}


def test_the_picture_of_the_delays() -> None:
    """Is that of the policy above it."""
    [code] = blocks("redelivery", "python")
    [call] = (
        node
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "RedeliveryPolicy"
    )
    written: dict[str, Any] = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
    policy = RedeliveryPolicy(**written)
    assert policy == RedeliveryPolicy(
        maximum_redeliveries=4,
        initial_redelivery_delay=2.0,
        redelivery_delay=2.0,
        use_exponential_back_off=True,
        back_off_multiplier=5,
        maximum_redelivery_delay=3600.0,
    )
    [picture] = blocks("redelivery", "text")
    drawn = [float(number) for number in re.findall(r"(\d+) ?s\b", picture)]
    assert drawn == [policy.delay(number) for number in range(1, 5)]


def test_every_mode_is_in_the_table() -> None:
    """Under the name by which it is given."""
    assert {f"`{mode.label}`" in page("modes") for mode in AcknowledgeMode} == {True}


def test_every_option_of_run() -> None:
    """With its variable and its name in pyproject.toml."""
    text = page("running")
    options = run_options()
    assert "--workers" in options
    for name, option in options.items():
        if name.startswith("--"):
            assert f"| `{name}" in text, name
            if option.envvar:
                assert f"`{option.envvar}`" in text
    for one in fields(RunSettings):
        assert f"`{one.name.replace('_', '-')}`" in text
    [example] = blocks("running", "toml")
    told = tomllib.loads(example)["tool"]["jmsx"]
    assert set(told) <= {one.name.replace("_", "-") for one in fields(RunSettings)}


def test_the_manifests() -> None:
    """Their variables and options are jmsx's, and a pod may live longer than it drains."""
    known = run_options()
    variables = {one.envvar for one in known.values()}
    deployment, job = yaml.safe_load_all(blocks("kubernetes", "yaml")[-1])
    pods = [
        deployment["spec"]["template"]["spec"],
        job["spec"]["jobTemplate"]["spec"]["template"]["spec"],
    ]
    for pod in pods:
        [container] = pod["containers"]
        assert {one["name"] for one in container["env"]} <= variables
        given = [word.partition("=")[0] for word in container["command"] if word.startswith("--")]
        assert set(given) <= set(known)
    values = {one["name"]: one.get("value") for one in pods[0]["containers"][0]["env"]}
    assert pods[0]["terminationGracePeriodSeconds"] > seconds("", values["JMSX_DRAIN_TIMEOUT"]) + 5


def test_the_steps_of_a_harness() -> None:
    """Each public one is told, and what calls and dead letters have."""
    text = page("testing")
    public = [name for name in vars(Harness) if not name.startswith("_")]
    assert len(public) > 8
    for name in public:
        assert f"mq.{name}" in text, name
    for kind in (HandlerCall, DeadLetter):
        for name in inspect.get_annotations(kind):
            assert f"`{name}`" in text, name
