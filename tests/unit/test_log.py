"""The log lines a person reads."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from jmsx.log import Seldom, counted, logger, shortened

if TYPE_CHECKING:
    import pytest


def test_a_flood_of_lines() -> None:
    """One in ten seconds, with the number of those in between; after a pause the next one at once."""
    seldom = Seldom(10.0)
    assert [seldom.due(now) for now in (0.0, 0.0, 1.0, 9.9, 10.0, 11.0, 50.0, 60.0)] == [
        0, None, None, None, 3, None, 1, 0,
    ]  # fmt: skip


def test_a_record_has_the_error_itself(caplog: pytest.LogCaptureFixture) -> None:
    """And the fields, for who formats them otherwise; no value of None is written."""
    error = ValueError("\x1b[2J")
    logger("jmsx.test").warning("failed", key="k", other=None, exc_info=error)
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    assert record.message == "event='failed' key='k'"
    assert record.__dict__["jmsx"] == {"event": "failed", "key": "k"}
    assert "ValueError: \\x1b[2J" in caplog.text


def test_one_thing_and_several() -> None:
    """Numbers and plurals as people write them."""
    words = [counted(number, "dead letter") for number in (0, 1, 2000)]
    assert words == ["0 dead letters", "1 dead letter", "2,000 dead letters"]
    assert [counted(1, "delivery"), counted(2, "delivery")] == ["1 delivery", "2 deliveries"]
    assert [counted(1, "process"), counted(2, "process")] == ["1 process", "2 processes"]


def test_texts_without_end() -> None:
    """Begin and end are kept."""
    assert shortened("abc", 3) == "abc"
    assert shortened("a" * 10 + "b" * 10, 4) == "aa... 16 characters ...bb"


def test_a_record_tells_who_logged(caplog: pytest.LogCaptureFixture) -> None:
    """And not what stands between."""
    logger("jmsx.test").warning("here")
    (record,) = caplog.records
    assert (record.funcName, record.filename) == ("test_a_record_tells_who_logged", "test_log.py")


def test_structlog_is_loaded_for_the_first_line() -> None:
    """A process that writes none does without; so does `import jmsx`, and the client."""
    program = (
        "import sys; from jmsx import App, Connection; from jmsx.log import logger;"
        " logger('jmsx.x').info('not written'); assert 'structlog' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_process_without_file_descriptors_writes_its_first_line() -> None:
    """That a link is lost for that is the first line of many a program; structlog writes those behind it."""
    program = (
        "import logging, os, sys; from jmsx.log import logger;"
        " logging.basicConfig(format='%(funcName)s %(message)s', force=True); import resource;"
        " resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]));"
        "\ndef here(): logger('jmsx.x').warning('lost', attempt=1, other=None, exc_info=ValueError('why'))"
        "\nhere(); assert 'structlog' not in sys.modules;"
        " resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]));"
        " here(); assert 'structlog' in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    line = "here event='lost' attempt=1\nValueError: why\n"
    assert done.stderr == line * 2
