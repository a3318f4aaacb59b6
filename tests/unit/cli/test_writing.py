"""Where a command cannot write: that is said in words, with the name of the file, and nothing half done looks whole."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

import pytest

from jmsx.cli import dlq, messages
from jmsx.cli.commands import run
from jmsx.cli.exits import INTERRUPTED
from jmsx.dead_letters.letter import read
from jmsx.testing import FakeBrokerServer
from jmsx_dashboards.asking import Prometheus
from tests.pipeline.simulator import SOURCE, Clock, open_log, sent
from tests.unit.cli.test_dlq import Hiding

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Where nothing can be written, in `folder`.
BAD: Final = ("/proc/x", "file/x", "link/x")
KEY: Final = "01a204cf767502ed3d5d520bb14ae787"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, where one stands, with a file, and a link to nowhere."""
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("link").symlink_to("nowhere/at/all")
    return tmp_path


def told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    """The exit code of a command, what it prints, and what it says."""
    monkeypatch.setattr(sys, "argv", ["jmsx", *arguments])
    code = run()
    return code, *capsys.readouterr()


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Let files grow to so many bytes and no more, as on a full disk; Python compiles into none, which it would cut."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    compiled = sys.dont_write_bytecode
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = compiled
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two dead letters of 8 KB."""
    access = Hiding(0)
    access.letters = [read(str(one), {"h": "x" * 8192}, origin="queue://a") for one in range(2)]

    @contextmanager
    def opened(_: str) -> Iterator[Hiding]:
        yield access

    monkeypatch.setattr(dlq, "opened", opened)


@pytest.mark.parametrize("path", BAD)
@pytest.mark.parametrize(
    "command",
    [
        "dlq export dead {}",
        "dashboards export {} --runbooks https://w",
        "demo --no-report --out {}",
    ],
)
@pytest.mark.usefixtures("folder", "letters")
def test_it_is_told_in_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, path: str
) -> None:
    """Which file, and why; not the name of a class, nor a number."""
    code, printed, said = told(monkeypatch, capsys, *command.format(path).split())
    assert (code, printed) == (1, "")
    assert path.removesuffix("/x") in said
    assert "Errno" not in said
    assert "Error" not in said


def test_no_option_is_named_that_was_not_given(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The demo chooses its folder itself; who is told of --out looks for it in vain."""
    (folder / "jmsx-demo").touch()
    code, printed, said = told(monkeypatch, capsys, "demo", "--no-report")
    assert (code, printed) == (1, "")
    assert said.startswith("error: jmsx-demo/")
    assert "--out" not in said


@pytest.mark.usefixtures("letters")
def test_an_export_that_is_not_whole_is_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who purges next believes that the file has all of it; and the next one may have its name."""
    with at_most(4096):
        code, _, said = told(monkeypatch, capsys, "dlq", "export", "dead", "out")
    assert (code, said) == (1, "error: out cannot be written: File too large\n")
    assert not (folder / "out").exists()
    assert told(monkeypatch, capsys, "dlq", "export", "dead", "out")[0] == 0
    assert len((folder / "out").read_text("utf-8").splitlines()) == 2
    assert [path.name for path in folder.iterdir() if path.name.startswith("out")] == ["out"]


@pytest.mark.usefixtures("letters")
def test_an_export_that_was_killed_is_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it had written has another name, and no export goes on with that."""
    held: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda _file: held.append(*folder.glob("out*")))
    assert told(monkeypatch, capsys, "dlq", "export", "dead", "out")[0] == 0
    assert held[0] == folder / "out.part"
    (folder / "new.part").touch()
    code, _, said = told(monkeypatch, capsys, "dlq", "export", "dead", "new")
    assert code == 1
    assert "new.part is there already" in said
    assert not (folder / "new").exists()


def test_a_disk_that_is_full_is_no_fault_of_ours(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Polars has an error of its own for that; segments that were to be compacted stay as they are."""
    log = open_log(folder / "events", Clock())
    log.close()
    for command in ("report events --engine local", "events compact events"):
        before = {path: path.stat().st_size for path in (folder / "events").rglob("*.jsonl")}
        with at_most(100):
            code, printed, said = told(monkeypatch, capsys, *command.split())
        assert (code, printed) == (1, "")
        assert "File too large" in said
        assert "fault of ours" not in said
        assert before == {path: path.stat().st_size for path in before}


def test_a_page_that_is_cut_is_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither the life of a message nor the boards: what was there before is there still."""
    log = open_log(folder / "events", Clock())
    log.observe(sent(KEY, "queue://orders", 1000.0), SOURCE)
    log.close()
    (folder / "boards").mkdir()
    for one in ("life.html", "boards/boards.html"):
        (folder / one).write_text("old", encoding="utf-8")
    commands = (
        f"explain {KEY} --events events --page life.html",
        "dashboards render boards --prometheus http://localhost:1 --board overview",
        "dashboards export boards --runbooks https://w",
    )
    monkeypatch.setattr(
        Prometheus, "answers", lambda _self, panel, _span: [[] for _ in panel.queries]
    )
    for command in commands:
        with at_most(100):
            code, printed, said = told(monkeypatch, capsys, *command.split())
        assert (code, printed) == (1, "")
        assert said.endswith("File too large\n")
    assert (folder / "life.html").read_text("utf-8") == "old"
    assert [path.name for path in (folder / "boards").rglob("*") if path.is_file()] == [
        "boards.html"
    ]
    assert (folder / "boards" / "boards.html").read_text("utf-8") == "old"


def test_metrics_replace_a_file_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not /dev/null, which root would take from the whole machine; where a link leads to, and not the link."""
    log = open_log(folder / "events", Clock())
    log.close()
    report = ("report", "events", "--engine", "local", "--metrics")
    code, printed, said = told(monkeypatch, capsys, *report, os.devnull)
    assert (code, printed) == (1, "")
    assert "/dev/null is no file" in said
    assert Path(os.devnull).is_char_device()
    (folder / "far").mkdir()
    (folder / "near.prom").symlink_to("far/jmsx.prom")
    assert told(monkeypatch, capsys, *report, "near.prom")[0] == 3
    assert (folder / "near.prom").is_symlink()
    assert "jmsx_report_verdict" in (folder / "far" / "jmsx.prom").read_text("utf-8")


def test_what_is_printed_cannot_be_written() -> None:
    """As where a disk is full: nobody takes half of a list for all of it."""
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "jmsx", "--version"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "error: No space left on device\n")


@pytest.mark.parametrize("heard", [True, False])
def test_wrong_arguments_where_nothing_can_be_written(*, heard: bool) -> None:
    """The code tells it all the same."""
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "jmsx", "--nonsense"],
            stdout=full, stderr=subprocess.PIPE if heard else full, check=False,
        )  # fmt: skip
    assert done.returncode == 2


def test_what_ends_too_early_is_no_interruption(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as a file of Python's that was cut, or the pipe to a process: a person has to know of it."""

    def fail(_: str) -> None:
        raise EOFError("marshal data too short")

    monkeypatch.setattr(dlq, "opened", fail)
    code, _, said = told(monkeypatch, capsys, "dlq", "ls")
    assert code == 1
    assert "EOFError: marshal data too short" in said


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("send queue://a", "standard input is closed"),
        ("dlq purge dead", "nobody can be asked here"),
    ],
)
def test_standard_input_is_closed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, words: str
) -> None:
    """As by `<&-`: it is no fault of ours."""
    monkeypatch.setattr(sys, "stdin", None)
    broker = Hiding(1)
    monkeypatch.setattr(dlq, "opened", lambda _: nullcontext(broker))
    with FakeBrokerServer("classic") as server:
        monkeypatch.setenv("JMSX_BROKER_URL", server.url)
        code, _, said = told(monkeypatch, capsys, *command.split())
    assert code == 1
    assert words in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_between_a_send_and_its_key(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    """Who does not know the key sends the message again: it is told."""

    def interrupted(_key: str) -> None:
        signal.raise_signal(number)

    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # else a failure ends all tests
    monkeypatch.setattr(messages, "_out", SimpleNamespace(print=interrupted))
    try:
        with FakeBrokerServer("classic") as server:
            code, _, said = told(
                monkeypatch, capsys, "send", "queue://a", "x", "--broker", server.url
            )
    finally:
        signal.signal(signal.SIGTERM, before)
    assert code == INTERRUPTED
    assert "message 1 was sent to queue://a, with the key " in said
