"""A ledger that processes share: what it says of a message that one of them had, and has said nothing more of."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from jmsx.core.ledger import Entry
from jmsx.drivers import living
from jmsx.stores.ledger import CustomLedger, DeliveryLedger
from tests.unit.stores.parts import A, B

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Is handed the message A, and then waits to be killed.
PROGRAM = """
import sys
from jmsx.core.ledger import StoreKey
from jmsx.stores.ledger import DeliveryLedger

ledger = DeliveryLedger(sys.argv[1])
print(ledger.begin(StoreKey(*sys.argv[2:])).number, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where no file is yet."""
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[DeliveryLedger]:
    """A new one."""
    with contextlib.closing(DeliveryLedger(path)) as ledger:
        yield ledger


@pytest.fixture
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has A."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path), *A],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        yield process
        process.kill()


def test_a_living_process_is_no_death(
    holder: subprocess.Popen[str], ledger: DeliveryLedger
) -> None:
    """Its link may be lost, and it may not have noticed."""
    assert holder.poll() is None
    entry = ledger.begin(A)
    assert entry == Entry(A, 2, in_doubt=True)
    assert entry.failures == 0


@pytest.mark.parametrize("collected", [True, False])
def test_a_dead_process_is_one(
    holder: subprocess.Popen[str], ledger: DeliveryLedger, *, collected: bool
) -> None:
    """Whether or not its parent has heard of it."""
    holder.kill()
    if collected:
        holder.wait()
    else:
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
    entry = ledger.begin(A)
    assert entry == Entry(A, 2)
    assert entry.failures == 1


def test_a_process_that_is_stopped_lives(
    holder: subprocess.Popen[str], ledger: DeliveryLedger
) -> None:
    """It may go on, and be done with the message."""
    holder.send_signal(signal.SIGSTOP)
    assert ledger.begin(A) == Entry(A, 2, in_doubt=True)


def test_only_the_last_hand_out_is_in_doubt(
    holder: subprocess.Popen[str], ledger: DeliveryLedger
) -> None:
    """Else a message that takes every link along would be delivered for ever."""
    assert holder.poll() is None
    told = [ledger.begin(A) for _ in range(4)]
    assert [one.failures for one in told if one is not None] == [0, 1, 2, 3]


def test_what_its_process_says(path: Path, ledger: DeliveryLedger) -> None:
    """Then nothing is in doubt; what is said of a hand-out before the last says nothing of that."""
    other = DeliveryLedger(path)
    for tell, expected in (
        (ledger.fail, Entry(A, 2)),
        (ledger.finish, Entry(B, 2, finished=1)),
    ):
        first = ledger.begin(expected.identity)
        assert first is not None
        tell([first])
        ledger.flush()
        assert other.begin(expected.identity) == expected
        tell([first])
        ledger.flush()
        again = other.begin(expected.identity)
        assert again is not None
        assert again.in_doubt
    other.close()


def test_failed_and_then_done_after_all(path: Path, ledger: DeliveryLedger) -> None:
    """Its link was lost, and later its handler has ended well."""
    first = ledger.begin(A)
    assert first is not None
    ledger.fail([first])
    ledger.finish([first])
    ledger.flush()
    other = DeliveryLedger(path)
    assert other.begin(A) == Entry(A, 2, finished=1)
    other.close()


def test_a_ledger_of_the_applications_may_know_it_too(ledger: DeliveryLedger) -> None:
    """It is told of failures if it asks for that."""
    custom = CustomLedger(ledger)
    first = custom.begin(A)
    assert first is not None
    custom.fail([first])
    assert custom.begin(A) == Entry(A, 2)


def test_a_file_of_a_version_that_knew_no_holders(path: Path) -> None:
    """It is used on, and counts; what was handed out before it was known to whom failed with its process."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "CREATE TABLE jmsx_deliveries (place TEXT NOT NULL, message_key TEXT NOT NULL,"
            " deliveries INTEGER NOT NULL, finished INTEGER NOT NULL, last_ms INTEGER NOT NULL,"
            " PRIMARY KEY (place, message_key)) WITHOUT ROWID"
        )
        now_ms = 2**42
        connection.execute("INSERT INTO jmsx_deliveries VALUES (?, ?, 1, 0, ?)", (*A, now_ms))
        connection.commit()
    for number in (2, 3):
        ledger = DeliveryLedger(path)
        assert ledger.begin(A) == Entry(A, number, in_doubt=number > 2)
        ledger.close()


@pytest.mark.parametrize("name", ["", "nonsense", "-1 2 3", "1 2", "99999999999 1 here"], ids=repr)
def test_what_is_no_name_of_a_living_process(name: str) -> None:
    """Whoever wrote it."""
    assert not living.lives(name)


def test_a_number_that_is_given_again() -> None:
    """Another process that was started at another time, or before the host was, or in another container."""
    mine = living.name()
    assert mine is not None
    assert living.lives(mine)
    number, started, boot, container = mine.split(" ")
    for other in (
        (number, str(int(started) - 1), boot, container),
        (number, started, "elsewhere", container),
        (number, started, boot, "pid:[1]"),
        (str(os.getppid()), started, boot, container),
    ):
        assert not living.lives(" ".join(other))
