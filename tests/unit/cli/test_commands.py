"""What all commands have in common."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import typer.main
from typer.testing import CliRunner

from jmsx import plugins
from jmsx.cli import commands as commands_module
from jmsx.cli import exits
from jmsx.cli.commands import app
from jmsx_broker.cli import app as broker
from jmsx_dashboards.cli import app as dashboards

if TYPE_CHECKING:
    from collections.abc import Iterator

GUIDE: Final = Path(__file__).parents[3] / "examples" / "command-line" / "README.md"

#: Commands that list something, and what else they need.
LISTING: Final = [
    "check", "demo", "explain", "report", "send", "browse", "dlq ls", "dlq groups", "dlq show", "dlq replay",
    "dlq purge", "events validate", "events compact", "events tail", "broker stats", "broker images", "run",
    "dashboards export", "dashboards render",
]  # fmt: skip


def commands() -> dict[str, Any]:
    """Each command that does something, by what is written."""

    def below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        subcommands = getattr(command, "commands", None)
        if subcommands is None:
            yield name, command
        for word, one in (subcommands or {}).items():
            yield from below(f"{name} {word}".strip(), one)

    root: Any = typer.main.get_command(app)
    adapters = {"broker": broker, "dashboards": dashboards}
    found = [below(name, typer.main.get_command(one)) for name, one in adapters.items()]
    return dict(itertools.chain(below("", root), *found))


COMMANDS: Final = commands()


@pytest.mark.parametrize("name", COMMANDS)
def test_each_help_has_an_example_that_can_be_run(name: str) -> None:
    """Its arguments are taken, as far as they can be read without doing it."""
    [example] = re.findall(r"Example: jmsx (.*)", COMMANDS[name].help)
    words = shlex.split(example)
    path = name.split()
    assert words[: len(path)] == path
    COMMANDS[name].make_context(name, words[len(path) :])


def test_the_guide_has_each_command() -> None:
    """In its table."""
    guide = GUIDE.read_text("utf-8")
    assert {
        name.split()[0] for name in COMMANDS if f"`jmsx {name.split()[0]}" not in guide
    } == set()


@pytest.mark.parametrize("name", LISTING)
def test_each_listing_can_be_json(name: str) -> None:
    """For a program."""
    assert any("--json" in one.opts for one in COMMANDS[name].params)


@pytest.fixture
def level() -> Iterator[logging.Logger]:
    """The root logger; its level is put back."""
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.WARNING)
    yield root
    root.setLevel(before)


@pytest.mark.parametrize(
    "words", ["events -v validate {}", "events validate {} -v", "events validate {} --verbose"]
)
def test_verbose_may_stand_anywhere(words: str, level: logging.Logger, tmp_path: Path) -> None:
    """Behind any word; before the first one it is the option that it always was."""
    CliRunner().invoke(app, words.format(tmp_path).split())
    assert level.level == logging.INFO


def test_what_is_not_verbose_is_not(level: logging.Logger, tmp_path: Path) -> None:
    """As ever."""
    CliRunner().invoke(app, ["events", "validate", str(tmp_path)])
    assert level.level == logging.WARNING


def test_exit_codes_have_one_table() -> None:
    """In the help and in the guide."""
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", GUIDE.read_text("utf-8"), re.MULTILINE)
    assert {int(code): meaning for code, meaning in rows} == exits.MEANINGS
    told = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output
    assert all(f"{code}: {meaning}" in told for code, meaning in exits.MEANINGS.items())


def started(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`jmsx` as a program, into a pipe."""
    return subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv[0] = 'jmsx'; from jmsx.cli import main; main()", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip


def test_the_demo_runs_on_what_adapters_start() -> None:
    """Its help names them, and another one is refused before anything is made."""
    told = CliRunner().invoke(app, ["demo", "--help"], env={"COLUMNS": "200"}).output
    assert "On which broker: artemis or classic." in told
    assert "did you mean 'artemis'?" in started("demo", "--broker", "artemsi").stderr


def test_help_waits_for_no_client() -> None:
    """Nor for the metrics, the boards, or what the demo runs."""
    code = (
        "import contextlib, sys; sys.argv = ['jmsx', '--help']; from jmsx.cli import main\n"
        "with contextlib.suppress(SystemExit): main()\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    needless = {
        "stomp",
        "tenacity",
        "structlog",
        "prometheus_client",
        "jmsx_dashboards.model",
        "jmsx.core.events",
        "rich.console",
    }
    assert "jmsx.cli.commands" in done.stderr.split()
    assert needless.isdisjoint(done.stderr.split())


@pytest.mark.parametrize(
    ("verb", "options", "missing"),
    [
        ("export", ("--runbooks", "https://x"), "yaml"),
        ("export", ("--runbooks", "https://x"), "prometheus_client"),
        ("render", (), "prometheus_client"),
        ("render", (), "matplotlib"),
    ],
)
def test_a_command_whose_extra_is_missing(
    verb: str, options: tuple[str, ...], missing: str, tmp_path: Path
) -> None:
    """Says which one, and is no fault of ours."""
    program = (
        f"import sys; sys.modules[{missing!r}] = None;"
        f"sys.argv = ['jmsx', 'dashboards', {verb!r}, {str(tmp_path / 'out')!r}, *{options!r}];"
        "from jmsx.cli import main; main()"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    wanted = f"error: jmsx_dashboards needs the package {missing}; install it with: pip install 'jmsx[dashboards]'"
    assert (told.returncode, told.stderr.strip()) == (1, wanted)


def test_help_on_a_terminal_has_panels() -> None:
    """In a pipe it is plain text."""
    master, terminal = pty.openpty()
    code = "import sys; sys.argv = ['jmsx', '--help']; from jmsx.cli import main; main()"
    with os.fdopen(master, "rb", buffering=0) as screen:
        colourless = {**os.environ, "TERM": "dumb"}
        subprocess.run([sys.executable, "-c", code], stdout=terminal, env=colourless, check=True)
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # which Linux makes of the end of a terminal
            while read := screen.read(4096):
                shown += read
    assert "╭─ Commands ─" in shown.decode()
    assert started("--help").stdout.isascii()


def test_completion() -> None:
    """A shell asks by variables."""
    asked = {"_JMSX_COMPLETE": "complete_bash", "COMP_CWORD": "1"}
    assert started(COMP_WORDS="jmsx ex", **asked).stdout.split() == ["explain"]
    assert "dlq" in started(COMP_WORDS="jmsx ", **asked).stdout.split()


@pytest.mark.parametrize(
    ("arguments", "code"), [(("events", "validate", "nowhere"), 1), (("events", "valid"), 2), (("--version",), 0)]
)  # fmt: skip
def test_pipes_get_plain_text(arguments: tuple[str, ...], code: int) -> None:
    """Without colours, whatever it is, and with the exit code of the table."""
    done = started(*arguments)
    assert done.returncode == code, done.stderr
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize("command", ["validate", "compact"])
def test_a_folder_that_is_not_there_is_told_at_once(command: str) -> None:
    """And not behind an import of Polars."""
    code = (
        f"import sys; sys.argv = ['jmsx', 'events', '{command}', 'nowhere']; sys.modules['polars'] = None;"
        " from jmsx.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        "error: nowhere is no directory of an event log\n",
    )


def test_no_color() -> None:
    """Also where colours are forced."""
    forced = {"FORCE_COLOR": "1", "TERM": "xterm-256color"}
    assert "\x1b[31m" in started("events", "validate", "nowhere", **forced).stderr
    assert "\x1b[31m" not in started("events", "validate", "nowhere", NO_COLOR="1", **forced).stderr


#: Ctrl-C, also while a class is made, where Python makes a RuntimeError of it.
PRESSED: Final = ("raise KeyboardInterrupt", "type('Made', (), {'name': Named()})")


@pytest.mark.parametrize("pressed", PRESSED)
@pytest.mark.parametrize("early", ["jmsx.cli.dlq", "jmsx_dashboards.cli"])
def test_ctrl_c_while_it_is_imported(early: str, pressed: str) -> None:
    """As at any other time: by the exit code, and without a traceback; a second may pass on a busy machine."""
    program = f"""
import sys
class Named:
    def __set_name__(self, *_):
        raise KeyboardInterrupt
class Impatient:
    def find_spec(self, name, *_):
        if name == {early!r}:
            {pressed}
sys.meta_path.insert(0, Impatient())
from jmsx.cli import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (exits.INTERRUPTED, "")


def test_ctrl_c_while_a_command_makes_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is no fault of ours."""

    def pressed(*_: object, **__: object) -> None:
        raise RuntimeError("Error calling __set_name__") from KeyboardInterrupt()

    monkeypatch.setattr(plugins, "names", lambda _: ())
    monkeypatch.setattr(commands_module, "app", pressed)
    assert commands_module.run() == exits.INTERRUPTED
