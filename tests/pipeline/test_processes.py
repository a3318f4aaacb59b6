"""The local engine's processes: what is done in them, raised in them, and what is said of one that was killed."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from jmsx.errors import ConfigurationError
from jmsx_report.processes import each
from tests.benchmarks.segments import write

if TYPE_CHECKING:
    from pathlib import Path


def doubled(number: int) -> int:
    """Print, as a library may do, and give twice the number."""
    print("a library says something")  # noqa: T201 - that is what is tested
    return 2 * number


def refused(number: int) -> int:
    """Raise what a job raises for a user."""
    raise ConfigurationError(f"{number} is gone")


def killed(number: int) -> int:
    """Die as the kernel ends a process that has taken all memory."""
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def allocator(_number: int) -> str:
    """Tell how Polars was told to go about memory in this process."""
    importlib.import_module("polars")
    return os.environ["_RJEM_MALLOC_CONF"]


def test_freed_memory_is_kept_in_them() -> None:
    """Polars writes its own wish into the variable wherever it is imported, and what comes last in it counts."""
    importlib.import_module("polars")
    (told,) = each(allocator, [0], 1)
    wishes = dict(wish.split(":") for wish in told.split(","))
    assert (wishes["dirty_decay_ms"], wishes["muzzy_decay_ms"]) == ("-1", "-1")
    assert wishes["background_thread"] == "false"


def test_a_command_has_its_process_to_itself() -> None:
    """Polars is set up in it as in those, but for what its user says of it; a library leaves the process as it is."""
    program = "{}; import polars; print(polars.thread_pool_size(), os.environ['_RJEM_MALLOC_CONF'])"
    of_a_command = "import os; from jmsx.plugins import load; load('jmsx.reports', 'local')"
    environment = {**os.environ, "POLARS_MAX_THREADS": "3"}
    del environment["_RJEM_MALLOC_CONF"]  # what this process has it set to

    def told(what: str) -> list[str]:
        command = [sys.executable, "-c", program.format(what)]
        return subprocess.check_output(command, text=True, env=environment).split()

    threads, allocator = told(of_a_command)
    assert threads == "3"
    assert allocator.endswith("dirty_decay_ms:-1,muzzy_decay_ms:-1,narenas:1")
    del environment["POLARS_MAX_THREADS"]
    assert told(of_a_command)[0] == "1"
    assert "narenas" not in told("import os; from jmsx_report import run")[1]


def test_results_come_in_order_whatever_is_printed() -> None:
    """More jobs than processes, and output between the answers."""
    assert list(each(doubled, range(7), 2)) == [0, 2, 4, 6, 8, 10, 12]


def test_what_a_job_raises_is_raised_here() -> None:
    """With its type and its words."""
    with pytest.raises(ConfigurationError, match="0 is gone"):
        list(each(refused, [0, 1], 2))


def test_a_killed_process_is_named_as_such() -> None:
    """A typed error that tells of memory, and no process is left."""
    with pytest.raises(
        ConfigurationError, match=r"killed .signal 9., most likely .* out of memory"
    ):
        list(each(killed, range(4), 2))


def test_a_script_without_a_main_guard_makes_a_report(tmp_path: Path) -> None:
    """The processes do not run the script again."""
    write(tmp_path / "events", events=2_000, segments=8, hours=2)
    script = tmp_path / "script.py"
    script.write_text(
        "from functools import partial\n"
        "from pathlib import Path\n"
        "from jmsx_report import run\n"
        "from jmsx_report import local\n"
        "print('begun')\n"
        f"run(Path({str(tmp_path / 'events')!r}), Path({str(tmp_path / 'out')!r}),"
        " engine=partial(local.processes, workers=2))\n"
    )

    ran = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=120, check=False
    )

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "begun\n", "")


@pytest.mark.parametrize(
    ("module", "spared"),
    [
        ("jmsx_report.local", {"stomp", "structlog", "jmsx.jms"}),
        ("jmsx.cli.commands", {"stomp", "polars", "jmsx.jms.connection"}),
    ],
)
def test_what_reads_a_log_imports_no_client(module: str, spared: set[str]) -> None:
    """Each process pays for its imports, and the client's take as long as Polars."""
    told = f"import sys, {module}; print(*{spared!r} & {{*sys.modules}})"

    ran = subprocess.run(
        [sys.executable, "-c", told], capture_output=True, text=True, timeout=60, check=True
    )

    assert ran.stdout == "\n"
