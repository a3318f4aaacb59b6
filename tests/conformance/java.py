"""
The judge: scenarios run by the ActiveMQ Java client.

The runner is one Java source file, compiled on first use against the client's jars; its class
files stay in the user's cache, keyed by the source.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jmsx_broker.recipe import JAVA_OPTIONS
from tests.conformance.traces import Trace
from tests.jdk import CompileError, compiled

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.conformance.brokers import Broker
    from tests.conformance.scenario import Scenario

_SOURCE: Final = Path(__file__).parent / "java" / "ScenarioRunner.java"
_QUIET: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"


class JavaRunnerError(Exception):
    """The Java runner could not be compiled, or broke down; says what it printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaClient:
    """The ActiveMQ Java client over OpenWire."""

    broker: Broker
    jobs: int = 8  #: scenarios at once
    stomp_like: bool = False  #: reduced to what STOMP lets a client know and say

    def run(self, scenarios: Sequence[Scenario]) -> Iterator[Trace]:
        """
        Run `scenarios` and yield their traces as they end.

        Raises JavaRunnerError.
        """
        by_path = {str(scenario.path.resolve()): scenario for scenario in scenarios}
        with (
            tempfile.TemporaryFile("w+", encoding="utf-8") as paths,
            tempfile.TemporaryFile("w+", encoding="utf-8") as errors,
        ):
            paths.write("".join(f"{path}\n" for path in by_path))
            paths.seek(0)
            process = subprocess.Popen(
                self._command(),
                stdin=paths,
                stdout=subprocess.PIPE,
                stderr=errors,
                encoding="utf-8",
            )
            with process:
                try:
                    for line in process.stdout or ():
                        yield _trace(line, by_path)
                finally:
                    process.kill()
            errors.seek(0)
            if by_path:
                raise JavaRunnerError(
                    f"the Java runner left {len(by_path)} scenarios out: {errors.read()[:2000]}"
                )

    def _command(self) -> list[str]:
        openwire = self.broker.openwire
        if openwire is None:
            raise JavaRunnerError("the Java client cannot talk to this broker")
        try:
            classes = compiled(_SOURCE, java=openwire.java, jars=openwire.jars)
        except CompileError as error:
            raise JavaRunnerError(str(error)) from error
        path = os.pathsep.join([f"{openwire.jars}{os.sep}*", str(classes)])
        command = [str(openwire.java / "java"), *JAVA_OPTIONS, _QUIET, "-cp", path, _SOURCE.stem]
        command += ["--url", openwire.url, "--jobs", str(self.jobs)]
        return [*command, "--stomp-like"] if self.stomp_like else command


def _trace(line: str, by_path: dict[str, Scenario]) -> Trace:
    """Read one line of the runner and strike its scenario from `by_path`."""
    told = json.loads(line)
    scenario = by_path.pop(told["path"])
    if "failure" in told:
        raise JavaRunnerError(f"{scenario.id}: {told['failure']}")
    return Trace(scenario=scenario, outcomes=told["outcomes"])
