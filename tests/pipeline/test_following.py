"""`jmsx events tail`: what is written, as it is written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from jmsx.errors import ConfigurationError
from jmsx_eventlog.following import follow
from tests.pipeline.simulator import SOURCE, Clock, open_log, seeded, sent
from tests.pipeline.simulator import delivery as delivered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def line(seq: int, **more: object) -> bytes:
    """A line as a writer writes it."""
    told = {"v": 1, "kind": "send", "writer": "w", "seq": seq, "ts_us": 1_790_000_000_000_000 + seq}
    return json.dumps(told | more, separators=(",", ":")).encode() + b"\n"


class Steps:
    """Does one thing more each time that nothing is left to be read, and then stops."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self._steps = iter(steps)

    def __call__(self) -> None:
        """Do the next thing."""
        step = next(self._steps, None)
        if step is None:
            raise StopAsyncIteration
        step()


def told(directory: Path, *steps: Callable[[], object], last: int = 0) -> list[str]:
    """What is said until the steps are at an end."""
    found: list[str] = []
    with pytest.raises((StopAsyncIteration, RuntimeError)):
        found.extend(follow(directory, last=last, wait=Steps(*steps)))
    return found


def test_one_kind_is_enough(tmp_path: Path) -> None:
    """Of what is there and of what comes, only that is said."""
    segment = tmp_path / "w-000000000000.jsonl.open"
    segment.write_bytes(line(1, n=1) + line(2, kind="conn.lost", n=2) + line(3, n=3))

    def more() -> None:
        with segment.open("ab") as file:
            file.write(line(4, n=4) + line(5, kind="conn.lost", n=5))

    found: list[str] = []
    with pytest.raises((StopAsyncIteration, RuntimeError)):
        found.extend(follow(tmp_path, last=1, wait=Steps(more), kind="conn.lost"))
    assert numbers(found) == [2, 5]


def test_lines_as_they_were_written(tmp_path: Path) -> None:
    """For programs; what is no line of a log is a text, so that each can be read as JSON."""
    segment = tmp_path / "w-000000000000.jsonl.open"
    segment.write_bytes(line(1, n=1) + b'{"torn\n')
    found: list[str] = []
    with pytest.raises((StopAsyncIteration, RuntimeError)):
        found.extend(follow(tmp_path, last=9, wait=Steps(), as_json=True))
    assert [json.loads(one) for one in found] == ['{"torn', json.loads(line(1, n=1))]


def numbers(found: list[str]) -> list[int]:
    """The members n of what was said."""
    return [int(text.rpartition("n=")[2]) for text in found]


def test_open_segments_are_followed_through_rotation_and_new_folders(tmp_path: Path) -> None:
    """Each line once: of the open one, of it when it was closed, of the next in another hour, of one soon closed."""
    first = tmp_path / "hour=00" / "w-000000000000.jsonl.open"
    second = tmp_path / "hour=01" / "w-000000000003.jsonl.open"
    first.parent.mkdir()
    first.write_bytes(line(0, n=0))
    (tmp_path / "hour=00" / "old-000000000000.jsonl").write_bytes(line(0, n=99))

    def more(path: Path, data: bytes) -> Callable[[], object]:
        def add() -> None:
            with path.open("ab") as file:
                file.write(data)

        return add

    def closed() -> None:
        more(first, line(2, n=2))()
        first.rename(str(first).removesuffix(".open"))
        second.parent.mkdir()
        second.write_bytes(line(3, n=3) + line(4, n=4)[:10])

    def short() -> None:
        (tmp_path / "hour=01" / "x-000000000000.jsonl").write_bytes(line(6, n=6))

    found = told(
        tmp_path,
        more(first, line(1, n=1)),
        closed,
        more(second, line(4, n=4)[10:] + line(5, n=5)),
        short,
    )

    assert numbers(found) == [1, 2, 3, 4, 5, 6]


def test_the_last_lines_come_first(tmp_path: Path) -> None:
    """Of all living writers together, in order of time."""
    for writer in ("a", "b"):
        odd = writer == "b"
        path = tmp_path / f"{writer}-000000000000.jsonl.open"
        path.write_bytes(b"".join(line(2 * seq + odd, n=2 * seq + odd) for seq in range(5000)))

    assert numbers(told(tmp_path, last=3)) == [9997, 9998, 9999]
    assert told(tmp_path, last=0) == []


def test_what_is_no_line_is_said(tmp_path: Path) -> None:
    """And what follows it is read all the same."""
    path = tmp_path / "w-000000000000.jsonl.open"
    path.write_bytes(b"")
    found = told(tmp_path, lambda: path.write_bytes(b"{nonsense\n" + line(1, n=1)))
    assert found[0] == "no line of an event log: {nonsense"
    assert numbers(found[1:]) == [1]
    with pytest.raises(ConfigurationError, match="nowhere is no directory"):
        told(tmp_path / "nowhere")


def test_the_command_shows_events_without_what_a_terminal_obeys(tmp_path: Path) -> None:
    """A real log, as it is written, one line an event whatever is in it; Ctrl-C ends it."""
    log = open_log(tmp_path, Clock())
    command = [sys.executable, "-m", "jmsx.cli", "events", "tail", str(tmp_path), "--lines", "0"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as tail:
        assert tail.stdout is not None
        heard: list[str] = []
        while not heard:  # until it listens
            log.observe(sent("0" * 32, "queue://a\x1b[2J\nb\u202e", 1001.0), SOURCE)
            os.set_blocking(tail.stdout.fileno(), False)
            heard += tail.stdout.readlines()
        log.observe(delivered("k", "queue://orders", 1001.0, seeded(1)), SOURCE)
        os.set_blocking(tail.stdout.fileno(), True)
        while "delivery" not in heard[-1]:
            heard.append(tail.stdout.readline())
        tail.send_signal(signal.SIGINT)
        assert tail.wait(10) == 130
    log.close()

    assert all(text.count(" send ") + text.count(" delivery ") == 1 for text in heard)
    assert r"dest=queue://a\x1b[2J\nb\u202e" in heard[0]
    assert "outcome=acknowledged" in heard[-1]


def test_the_command_ends_when_nobody_reads_it(tmp_path: Path) -> None:
    """As in a pipe to `head`, also when nothing more is written."""
    (tmp_path / "w-000000000000.jsonl.open").write_bytes(line(0))
    command = [sys.executable, "-m", "jmsx.cli", "events", "tail", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        assert b" send" in tail.stdout.readline()
        tail.stdout.close()
        assert tail.wait(20) == 0
        assert tail.stderr.read() == b""
