"""What `jmsx run` goes by, and what its supervisor makes of its workers' metrics."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from jmsx import App, ConfigurationError
from jmsx.cli.run import OTHERS, ImportFailedError, RunSettings, load_app, misspelt
from jmsx.cli.supervisor import merged
from jmsx.testing import FakeBrokerServer

#: Of the repository.
ROOT: Final = Path(__file__).parents[3]


def written(folder: Path, text: str) -> Path:
    """A folder with that in its pyproject.toml."""
    (folder / "pyproject.toml").write_text(f"[tool.jmsx]\n{text}", encoding="utf-8")
    return folder


def test_settings_of_a_file(tmp_path: Path) -> None:
    """Are taken where nothing else is said."""
    folder = written(
        tmp_path,
        'app = "shop:app"\nbroker-url = "stomp://b"\nworkers = 4\ndrain-timeout = "1m"\nuntil-idle = "5s"\n',
    )
    assert RunSettings.of(folder) == RunSettings(
        app="shop:app", broker_url="stomp://b", workers=4, drain_timeout=60.0, until_idle="5s"
    )
    assert RunSettings.of(folder, workers=2, app=None, drain_timeout=3.0) == RunSettings(
        app="shop:app", broker_url="stomp://b", workers=2, drain_timeout=3.0, until_idle="5s"
    )
    assert RunSettings.of(tmp_path / "nowhere").workers == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("wrokers = 2", "'wrokers'.*did you mean 'workers'"),
        ("workers = 0", "workers must be a whole number from 1"),
        ('workers = "2"', "workers must be a whole number from 1"),
        ('drain-timeout = "soon"', "drain-timeout='soon' is no duration"),
        ('until-idle = "x"', "until-idle='x' is no duration"),
        ('log-level = "loud"', "log-level must be one of debug, info"),
        ("workers = ", "cannot read .*pyproject.toml"),
        ("app = 3", "app must be a str, not an int"),
        ("broker-url = 5", "broker-url must be a str, not an int"),
        ("health = true", "health must be a str, not a bool"),
        ("health = [8080]", "health must be a str, not a list"),
        ('factory = "yes"', "factory must be True or False, not a str"),
        ("log-level = 5", "log-level must be one of debug, info"),
    ],
)
def test_settings_that_make_no_sense(tmp_path: Path, text: str, told: str) -> None:
    """Are told by their names."""
    with pytest.raises(ConfigurationError, match=told):
        RunSettings.of(written(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tool = 3", "tool in .*pyproject.toml is an int, and no table: write .tool.jmsx."),
        ("[tool]\njmsx = 5", "jmsx in .*pyproject.toml is an int, and no table"),
        ('[tool]\njmsx = "shop:app"', "jmsx in .*pyproject.toml is a str, and no table"),
        ('[[tool.jmsx]]\napp = "shop:app"', "jmsx in .*pyproject.toml is a list, and no table"),
    ],
)
def test_what_is_no_table(tmp_path: Path, text: str, told: str) -> None:
    """Is no fault of ours."""
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=told):
        RunSettings.of(tmp_path)


def test_a_log_level_in_capitals(tmp_path: Path) -> None:
    """As `logging` writes it, and so do most who set variables."""
    assert RunSettings.of(written(tmp_path, 'log-level = "INFO"')).log_level == "info"
    assert RunSettings.of(tmp_path, log_level="Warning").log_level == "warning"


def test_a_port_is_a_number_there(tmp_path: Path) -> None:
    """As people write it in TOML."""
    assert RunSettings.of(written(tmp_path, "health = 8080")).health == "8080"


def test_variables_that_are_misspelt() -> None:
    """Are told, with what may have been meant; those of others are not looked at."""
    given = [
        "JMSX_WORKER",
        "JMSX_UNTIL_IDEL",
        "JMSX_TELEPHONE",
        "JMSX_HEALTH",
        "JMSX_JAVA",
        "PATH",
        "_JMSX_COMPLETE",
    ]
    assert misspelt(given) == [
        "JMSX_TELEPHONE is set, and jmsx run does not know it",
        "JMSX_UNTIL_IDEL is set, and jmsx run does not know it; did you mean JMSX_UNTIL_IDLE?",
        "JMSX_WORKER is set, and jmsx run does not know it; did you mean JMSX_WORKERS?",
    ]
    known = ["BROKER_URL", "DRAIN_TIMEOUT", "HEALTH", "LOG_LEVEL", "UNTIL_IDLE", "WORKERS", "CACHE"]
    assert misspelt(f"JMSX_{name}" for name in known) == []


def test_factories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that makes the app is called, if one says so."""
    text = "from jmsx import App\ndef make(): return App('stomp://made')\n"
    text += "def none(): return 1\ndef bad(): raise OSError('no')\n"
    text += "def ends(): raise SystemExit(3)\nasync def waits(): pass\n"
    (tmp_path / "made_by_factory.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert load_app("made_by_factory:make", factory=True).url == "stomp://made"
    with pytest.raises(ConfigurationError, match="say --factory"):
        load_app("made_by_factory:make")
    with pytest.raises(ConfigurationError, match="returned no App, but 1"):
        load_app("made_by_factory:none", factory=True)
    with pytest.raises(ImportFailedError, match="OSError: no") as caught:
        load_app("made_by_factory:bad", factory=True)
    assert "made_by_factory.py" in caught.value.trace
    with pytest.raises(ImportFailedError, match="SystemExit: 3"):
        load_app("made_by_factory:ends", factory=True)
    with pytest.raises(ConfigurationError, match=r"waits is async; .* a plain `def`"):
        load_app("made_by_factory:waits", factory=True)


@pytest.mark.parametrize(
    ("target", "right"),
    [
        ("./shop.py:app", "'./shop.py:app' is a file, and no module: write shop:app"),
        ("shop.py:app", "write shop:app"),
        ("src/shop/main.py:app", "write src.shop.main:app"),
        ("src/shop:app", "'src/shop:app' is a file, and no module: write src.shop:app"),
        ("/srv/shop.py:app", "in the folder that it is in, write shop:app"),
        ("../shop.py:app", "in the folder that it is in, write shop:app"),
        ("C:\\shop.py:app", "in the folder that it is in, write shop:app"),
        ("~/shop.py:app", "in the folder that it is in, write shop:app"),
        ("shop/:app", "'shop/:app' is a file, and no module: write shop:app"),
        ("my shop.py:app", "'my shop.py:app' is not MODULE:APP, such as shop:app"),
        ("shop.py", "is not MODULE:APP, such as shop:app"),
        (":app", "':app' is not MODULE:APP, such as shop:app"),
        (".shop:app", "'.shop:app' is not MODULE:APP, such as shop:app"),
        ("shop.app", "'shop.app' is not MODULE:APP, such as shop:app"),
        ("shop:", "'shop:' is not MODULE:APP, such as shop:app"),
        ("shop::app", "'shop::app' is not MODULE:APP, such as shop:app"),
    ],
)
def test_what_is_no_module(target: str, right: str) -> None:
    """A file that is named in its place, above all: what to write is said."""
    with pytest.raises(ConfigurationError) as caught:
        load_app(target)
    assert right in str(caught.value)


def test_metrics_of_several_workers() -> None:
    """Each family once, each sample with its worker."""
    one = '# HELP a_total Help.\n# TYPE a_total counter\na_total{q="x y"} 1.0\n# TYPE b gauge\nb 2.0\n'
    two = '# HELP a_total Help.\n# TYPE a_total counter\na_total{q="x y"} 5.0\n'
    assert merged({0: one, 1: two}).splitlines() == [
        "# HELP a_total Help.",
        "# TYPE a_total counter",
        'a_total{worker="0",q="x y"} 1.0',
        'a_total{worker="1",q="x y"} 5.0',
        "# TYPE b gauge",
        'b{worker="0"} 2.0',
    ]
    assert merged({}) == ""


def test_variables_that_others_read() -> None:
    """None is taken for a misspelt one of ours: the list of them is that of what our packages read."""
    told = {
        name
        for folder in ("jmsx", "adapters")
        for file in (ROOT / folder).rglob("*.py")
        for name in re.findall(
            r'environ(?:ment)?(?:\.get\(|\[)"(JMSX_\w+)"', file.read_text("utf-8")
        )
    }
    assert told >= {"JMSX_JAVA", "JMSX_CACHE", "JMSX_BROKER"}
    assert misspelt(told - {"JMSX_WORKER"}) == []  # a supervisor sets that one
    assert set(OTHERS) <= told


def test_a_program_that_configures_logging(tmp_path: Path) -> None:
    """It turns off what was there before, unless told otherwise; lines of ours are shown, by a level of its own."""
    program = "import logging.config; from jmsx import App\n"
    program += "logging.config.dictConfig({'version': 1, 'root': {'level': 'INFO'}})\n"
    program += "logging.getLogger('jmsx.app').setLevel('ERROR')\napp = App('stomp://b')\n"
    program += "app.consumer('queue://q')(lambda message: None)\n"
    (tmp_path / "quiet.py").write_text(program, encoding="utf-8")
    look = "import logging; from jmsx.cli.run import RunSettings, _prepared\n"
    look += "_prepared(RunSettings(app='quiet:app'))\n"
    look += "for name in ('jmsx.session', 'jmsx.app'):\n"
    look += "    print(name, *map(logging.getLogger(name).isEnabledFor, (30, 40)))\n"
    told = subprocess.run(
        [sys.executable, "-c", look], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert told.stdout.splitlines() == ["jmsx.session True True", "jmsx.app False True"]


@pytest.mark.parametrize("options", [[], ["--json"], ["--workers", "2"]], ids=" ".join)
def test_what_runs_where_nothing_can_be_written(tmp_path: Path, options: list[str]) -> None:
    """As where the disk of its log is full: messages are handled all the same."""
    program = "from jmsx import App\napp = App(broker_stats=0)\n"
    program += "app.consumer('queue://q')(lambda message: open('came', 'x').close())\n"
    (tmp_path / "mute.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "jmsx", "run", "mute:app", "--until-idle", "0.3", *options]
    with FakeBrokerServer("classic") as broker, Path("/dev/full").open("wb") as full:
        sender = App(broker.url)
        sender.send("queue://q", "a")
        sender.stop()
        done = subprocess.run(
            command, stdout=full, stderr=full, cwd=tmp_path, timeout=60, check=False,
            env={**os.environ, "JMSX_BROKER_URL": broker.url},
        )  # fmt: skip
    assert (tmp_path / "came").exists()
    assert done.returncode == 0


#: Is `jmsx run shop:app`, whose module is told to end while it is imported, as the process with that number.
_TOLD_IN_AN_IMPORT: Final = """
import os, signal, sys, types
os.getpid = lambda: {number}

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "shop":
            signal.raise_signal(signal.SIGTERM)
            print("goes on")

sys.meta_path.insert(0, Finder())
sys.argv = ["jmsx", "run", "shop:app"]
from jmsx.cli import main
main()
"""


@pytest.mark.parametrize(("number", "code"), [(1, 128 + signal.SIGTERM), (2, -signal.SIGTERM)])
def test_a_signal_in_the_middle_of_an_import(number: int, code: int) -> None:
    """It ends the first process of a container, too, to which the system passes no signal that it does not take."""
    ended = subprocess.run(
        [sys.executable, "-c", _TOLD_IN_AN_IMPORT.format(number=number)],
        stdout=subprocess.PIPE,
        timeout=30,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (code, b"")


#: Is the first process of a container, and forks while its command takes signals, or before that.
_FORKS: Final = """
import contextlib, os, signal, sys
os.getpid = lambda: 1
from jmsx.cli.interrupts import take_sigterm_as_init
take_sigterm_as_init()
from jmsx.app.signals import Signals
with Signals() if sys.argv[1] == "running" else contextlib.nullcontext():
    if (child := os.fork()) == 0:
        os._exit(signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL)
    _, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.parametrize("when", ["importing", "running"])
def test_a_child_of_the_first_process_of_a_container(when: str) -> None:
    """The system ends it: a handler of Python's waited until what it computed was done, and gave it another code."""
    subprocess.run([sys.executable, "-c", _FORKS, when], timeout=30, check=True)
