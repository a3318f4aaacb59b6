"""What is printed is seen, and obeyed by no terminal."""

from __future__ import annotations

import json
import logging

import pytest
from rich.table import Table
from rich.text import Text

from jmsx.cli import printing
from jmsx.cli.printing import print_table
from jmsx.cli.terminal import VisibleFormatter, console, visible

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\u2066\ud800\r"
SEEN = r"\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\u2066\ud800\r"


@pytest.mark.parametrize("text", ["plain", "Grüße, 名前 🙂", "two\nlines\tand a tab", "a\u200db"])
def test_what_is_harmless_stays(text: str) -> None:
    """Letters of all scripts, emoji that are meant, line breaks."""
    assert visible(text) == text


def test_controls_are_written_out() -> None:
    """C0, C1, direction marks and lone surrogates; line breaks too where one line is meant."""
    assert visible(HOSTILE) == SEEN
    assert visible("ok\nok", keep="") == r"ok\nok"


def test_a_message_id_is_no_emoji_and_brackets_are_no_markup(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Ids of Classic hold `:-1:`."""
    console().print("ID:vm-42991-1795307598157-6:176:-1:1:1 [red]x[/red] [/]")

    assert capsys.readouterr().out == "ID:vm-42991-1795307598157-6:176:-1:1:1 [red]x[/red] [/]\n"


def test_sentences_break_between_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal's own lines end within a name, such as `queue` and `://orders`; a pipe gets each text as one line."""
    name = "queue://" + "orders-of-the-east." * 3
    text = f"  delivery 1 to ship of queue://orders: failed with ValueError  and so on\nsent to {name} at last"
    monkeypatch.setenv("COLUMNS", "30")
    console().tell(text)
    assert capsys.readouterr().out == f"{text}\n"
    monkeypatch.setenv("FORCE_COLOR", "1")
    console().tell(text)
    lines = capsys.readouterr().out.splitlines()
    assert " ".join(lines).split() == text.split()
    assert [line for line in lines if len(line) > 30] == [f"    {name}"]
    begins = [len(line) - len(line.lstrip()) for line in lines]
    assert begins == [2, 6, 6, 6, 0, 4, 4]


def test_a_terminal_without_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As some that nobody looks at say of themselves."""
    monkeypatch.setenv("COLUMNS", "0")
    monkeypatch.setenv("FORCE_COLOR", "1")
    console().tell("what is said")
    assert "".join(capsys.readouterr().out.split()) == "whatissaid"


def test_text_in_tables_and_of_several_parts(capfd: pytest.CaptureFixture[str]) -> None:
    """However it comes to be printed."""
    table = Table("count", HOSTILE)
    table.add_row(HOSTILE, Text(HOSTILE))
    out, err = console(), console(stderr=True)
    out.print(table)
    err.print("error:", HOSTILE, style="red")

    told = capfd.readouterr()
    assert not set(told.out + told.err) & set("\x1b\x07\x9b\u202e\u2066\r")
    assert r"\x1b]0;owned" in told.out
    assert r"\x1b[2J\x9b31m\u202eevil\u2066\ud800" in told.err


def test_colours_of_our_own_stay(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    console().print("\x1b[2J", style="red")

    assert capsys.readouterr().out == "\x1b[31m\\x1b[2J\x1b[0m\n"


def test_json_stays_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Its own escapes are enough."""
    console().print_json(json.dumps({"told": HOSTILE[:-2]}), indent=None, ensure_ascii=True)

    out = capsys.readouterr().out
    assert json.loads(out) == {"told": HOSTILE[:-2]}
    assert out.isascii()


def test_log_lines_are_visible() -> None:
    """Those of other libraries are not quoted as ours are."""
    record = logging.LogRecord("stomp", logging.INFO, "x", 1, "from broker: %s", (HOSTILE,), None)

    assert VisibleFormatter("%(name)s %(message)s").format(record) == f"stomp from broker: {SEEN}"


def test_a_table_that_fits_and_one_that_does_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is cut on a narrow terminal: each cell that tells something is a line of its own."""
    head, rows = ("id", "from", "error"), [("ID:vm-1:2", "queue://orders", "-"), ("b", "c", "d")]
    shown = console()
    monkeypatch.setattr(printing, "_out", shown)
    shown.rich._force_terminal = True  # there is none here
    for width in (38, 37):
        shown.rich.width = width
        print_table(head, rows)
        told = capsys.readouterr().out
        assert ("ID:vm-1:2 │ queue://orders │" in told) == (width == 38)
    assert told.splitlines() == [
        *("id     ID:vm-1:2", "from   queue://orders", ""),
        *("id     b", "from   c", "error  d"),
    ]
