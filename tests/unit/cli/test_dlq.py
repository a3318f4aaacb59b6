"""`jmsx dlq` where a broker does not show all that it has."""

from __future__ import annotations

import errno
import json
import re
import signal
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from typer.testing import CliRunner

from jmsx.cli import dlq, moving
from jmsx.cli.commands import app as main
from jmsx.cli.terminal import console
from jmsx.core.events import MessageDeadLettered
from jmsx.dead_letters import opening
from jmsx.dead_letters.letter import DeadLetter, read
from jmsx.errors import (
    BrokerTimeoutError,
    ConfigurationError,
    ConnectionFailedError,
    InvalidDestinationError,
)
from tests.pipeline.simulator import SOURCE, Clock, open_log

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path


class Hiding:
    """Shows two messages at a time of those that it has."""

    remedy = "ask it nicely"

    def __init__(self, count: int, origin: str = "queue://orders") -> None:
        self.letters = [read(str(number), {}, origin=origin) for number in range(count)]
        self.asked_for: list[frozenset[str]] = []  #: names, look by look

    def queues(self) -> list[str]:
        """One."""
        return ["dead"]

    def count(self, queue: str) -> int | None:
        """All of them."""
        return len(self.letters) if queue == "dead" else None

    def is_same(self, queue: str, uri: str) -> bool:
        """By its name."""
        return uri == f"queue://{queue}"

    def look(
        self, queue: str, *, bodies: bool = False, names: Collection[str] = ()
    ) -> Iterator[DeadLetter]:
        """The first two."""
        assert queue == "dead"
        self.asked_for.append(frozenset(names))
        assert isinstance(bodies, bool)
        yield from self.letters[:2]

    def remove(self, queue: str, letters: Sequence[DeadLetter]) -> Iterator[list[str]]:
        """They are gone."""
        assert queue == "dead"
        self.letters = [one for one in self.letters if one not in letters]
        yield [one.id for one in letters]

    def replay(
        self,
        queue: str,
        letters: Sequence[DeadLetter],
        to: str | None = None,
        *,
        at_once: int | None = None,
    ) -> Iterator[list[str]]:
        """As if deleted."""
        assert (to, at_once) == (None, None)
        return self.remove(queue, letters)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Hiding:
    """Five messages, of which two can be seen."""
    access = Hiding(5)

    @contextmanager
    def opened(_: str) -> Iterator[Hiding]:
        yield access

    monkeypatch.setattr(dlq, "opened", opened)
    return access


def run(*arguments: str, code: int = 0) -> str:
    """What a command prints."""
    done = CliRunner().invoke(dlq.app, list(arguments))
    assert done.exit_code == code, (done.output, done.exception)
    return done.output


HIDDEN = "2 of 5 messages can be seen; ask it nicely"


def test_what_is_not_shown_is_told(broker: Hiding, tmp_path: Path) -> None:
    """By whatever looks into the queue; a file that has not all of it is a failure."""
    assert HIDDEN in run("groups", "dead")
    assert "2 of them tell no cause" in run("groups", "dead")
    assert HIDDEN in run("show", "dead")
    assert HIDDEN in run("purge", "dead", "--id", "none", "--yes")
    assert HIDDEN in run("export", "dead", str(tmp_path / "a"), code=1)
    assert HIDDEN not in run("export", "dead", str(tmp_path / "b"), "--limit", "1")
    assert len(broker.letters) == 5


def test_a_terminal_shows_how_many_messages_are_read(
    broker: Hiding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker takes minutes for a hundred thousand; a pipe gets the table alone."""
    read = "2 messages read"
    assert broker.count("dead") == 5
    assert read not in run("groups", "dead")
    monkeypatch.setenv("FORCE_COLOR", "1")  # which makes a terminal of what is none
    monkeypatch.setattr(moving, "_err", console(stderr=True))
    assert read in run("groups", "dead")


def test_a_stack_begins_with_the_code_of_the_handler(broker: Hiding) -> None:
    """Who is woken at three looks for that first; a program reads all of it."""
    ours = '  File "/opt/jmsx/app/worker.py", line 311, in _listen\n    self._settle(message)\n'
    theirs = '  File "/shop/orders.py", line 9, in ship\n    raise ValueError\nValueError\n'
    stack = f"Traceback (most recent call last):\n{ours}{theirs}"
    broker.letters = [read("7", {"jmsx_stack": stack}, origin="queue://orders")]
    shown = run("show", "dead", "7")
    assert ours not in shown
    assert f"Traceback (most recent call last):\n{theirs}" in shown
    [told] = json.loads(run("show", "dead", "7", "--json"))
    assert told["stack"] == stack


def test_a_log_tells_causes(broker: Hiding, tmp_path: Path) -> None:
    """Of what a broker has moved: groups, filters and lines have them then; what no line tells of is said."""
    log = open_log(tmp_path, Clock())
    for number, error in enumerate(("TimeoutError", "ValueError")):
        death = MessageDeadLettered(
            at=1007.0, consumer="ship", destination="queue://orders", message_id=str(number), message_key=str(number),
            attempts=2, reason="max_redeliveries", error_type=error, error_message="late",
            dead_letter_destination="", by_copy=False,
        )  # fmt: skip
        log.observe(death, SOURCE)
    log.close()
    broker.letters = [read(str(number), {}, origin="queue://orders") for number in range(2)]
    events = ("--events", str(tmp_path))
    found = json.loads(run("groups", "dead", "--json", *events))
    assert [(one["reason"], one["error"], one["consumer"]) for one in found] == [
        ("max_redeliveries", "TimeoutError", "ship"),
        ("max_redeliveries", "ValueError", "ship"),
    ]
    assert "tell no cause" not in run("groups", "dead", *events)
    said, groups = run("groups", "dead", "--json", "--error", "TimeoutError").splitlines()
    assert json.loads(groups) == []
    assert said.startswith("2 more may be meant")
    assert "TimeoutError" in run("show", "dead", "--error", "TimeoutError", *events)
    assert "1 done" in run("replay", "dead", "--error", "TimeoutError", "--yes", *events)
    assert [one.id for one in broker.letters] == ["1"]
    broker.letters.append(read("7", {}, origin="queue://orders"))
    assert f"1 of them tell no cause, and no line of {tmp_path} does" in run(
        "groups", "dead", *events
    )


SENT = {"timestamp": "1700000000000"}
DIED = {**SENT, "jmsx_death_reason": "max_redeliveries", "jmsx_last_failure": "1700000100000"}


@pytest.mark.parametrize("asked", ["--error TimeoutError", "--consumer ship", "--reason rejected"])
@pytest.mark.parametrize("command", ["show", "replay", "purge", "groups", "export"])
def test_what_tells_no_cause_is_not_passed_by_in_silence(
    broker: Hiding, tmp_path: Path, command: str, asked: str
) -> None:
    """Who is woken at three would read that no such message is there; but the broker told no cause of any."""
    broker.letters = [read("a", SENT, origin="queue://orders")]
    arguments = [command, "dead", *asked.split()]
    arguments += {"replay": ["--yes"], "purge": ["--yes"], "export": [str(tmp_path / "a")]}.get(
        command, []
    )
    told = run(*arguments, code=1 if command == "show" else 0)
    assert (
        "1 more may be meant, and do not tell why they died; an event log tells (--events)" in told
    )
    assert "nothing of that lies" not in told
    assert len(broker.letters) == 1
    broker.letters = [read("b", DIED | {"jmsx_exception": "E", "jmsx_consumer": "c"}, origin="q")]
    if command == "export":
        arguments[-1] += "b"
    told = run(*arguments, code=1 if command == "show" else 0)
    assert "may be meant" not in told
    assert ("nothing of that lies in dead" in told) is (command == "show")


@pytest.mark.parametrize("reason", ["untold", "expired"])
@pytest.mark.parametrize("command", ["show", "replay", "purge", "groups", "export"])
def test_what_may_have_died_since_is_not_passed_by_in_silence(
    broker: Hiding, tmp_path: Path, command: str, reason: str
) -> None:
    """It was sent before; but when it died nobody tells."""
    broker.letters = [read("a", SENT, origin="queue://orders", reason=reason)]
    arguments = {"replay": ["--yes"], "purge": ["--yes"], "export": [str(tmp_path / "a")]}
    asked = [command, "dead", "--since", "1h", *arguments.get(command, [])]
    told = run(*asked, code=1 if command == "show" else 0)
    words = "1 more may be meant, and do not tell when they died; an event log tells (--events)"
    assert words in " ".join(told.split())
    assert "nothing of that lies" not in told
    assert "--by-sending" not in told  # which would not help
    assert len(broker.letters) == 1


def test_what_does_not_tell_when_it_died_is_not_deleted_by_its_age(broker: Hiding) -> None:
    """It may have been sent a month ago and have died a minute ago; who knows better says so."""
    letters = [read(str(n), h, origin="queue://orders") for n, h in enumerate((SENT, DIED))]
    broker.letters = [*letters]
    told = " ".join(run("purge", "dead", "--until", "1h", "--yes").split())
    words = "1 more may be meant, and do not tell when they died"
    assert f"{words}; an event log tells (--events), or say --by-sending" in told
    assert broker.letters == letters[:1]
    broker.letters = [*letters]
    told = " ".join(run("purge", "dead", "--until", "1h", "--yes", "--by-sending").split())
    assert "1 of them do not tell when they died, and count by when they were sent" in told
    assert broker.letters == []
    broker.letters = [*letters]
    assert "may be meant" not in run("purge", "dead", "--yes")
    assert broker.letters == []


def test_who_forgets_the_period_deletes_nothing(broker: Hiding) -> None:
    """Without --until 30d, `purge --by-sending` would delete what died today too."""
    broker.letters = [read("a", SENT, origin="queue://orders")]
    with pytest.raises(ConfigurationError, match="--by-sending goes with --since or --until"):
        CliRunner().invoke(
            dlq.app, ["purge", "dead", "--by-sending", "--yes"], catch_exceptions=False
        )
    assert len(broker.letters) == 1


def test_what_a_java_client_gave_up_names_no_consumer(broker: Hiding) -> None:
    """So it may have been that one."""
    given_up = read("a", SENT, origin="queue://orders", reason="max_redeliveries")
    expired = read("b", SENT, origin="queue://orders", reason="expired")
    broker.letters = [given_up, expired]
    assert "1 more may be meant" in run("purge", "dead", "--consumer", "ship", "--yes")
    assert "may be meant" not in run("purge", "dead", "--reason", "rejected", "--yes")


@pytest.mark.parametrize("command", ["show", "replay", "purge --by-sending"])
def test_who_goes_by_the_time_of_sending_says_so(broker: Hiding, command: str) -> None:
    """What was sent a month ago may have died a minute ago; it is said before anybody is asked."""
    broker.letters = [read(str(n), h, origin="queue://orders") for n, h in enumerate((SENT, DIED))]
    asked = ["--until", "1h"] + (["--dry-run"] if command != "show" else [])
    words = "1 of them do not tell when they died, and count by when they were sent"
    command, *options = command.split()
    told = run(command, "dead", *asked, *options)
    assert words in told
    if command != "show":
        assert told.index(words) < told.index("2 dead letters of dead")
    assert words not in run(command, "dead", *asked[2:])


def test_a_number_is_no_name(
    broker: Hiding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each Artemis gives it to some message: what another one's has lived through is not told of this one."""

    @contextmanager
    def opened(_: str) -> Iterator[Hiding]:
        yield broker

    monkeypatch.setattr(opening, "open_access", opened)
    known, other = "47@1700000000000", "47@1700000000001"
    log = open_log(tmp_path, Clock())
    death = MessageDeadLettered(
        at=1007.0, consumer="ship", destination="queue://dead", message_id="47", message_key=known,
        attempts=2, reason="rejected", error_type="ValueError", error_message="late",
        dead_letter_destination=None, by_copy=False,
    )  # fmt: skip
    log.observe(death, SOURCE)
    log.close()
    asked = ["explain", known, "--events", str(tmp_path), "--broker", "stomp://localhost"]
    for key, told, found in ((known, "rejected", "in dead, as 90"), (other, "no line", "in none")):
        broker.letters = [read("90", {}, origin="queue://dead", message_id="47", broker_key=key)]
        life = run("show", "dead", "90", "--events", str(tmp_path)).partition("event log")[2]
        assert told in life
        broker.asked_for.clear()
        assert found in CliRunner().invoke(main, asked).stdout
        assert broker.asked_for == [frozenset({known})]  # not for all that lies there


def test_a_queue_that_is_gone_is_none_that_hides_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers remove queues that nobody uses: it was said that one is not shown, and that it shows nothing there."""

    class Gone(Hiding):
        def look(
            self, queue: str, *, bodies: bool = False, names: Collection[str] = ()
        ) -> Iterator[DeadLetter]:
            """Nothing but what there is."""
            if queue == "gone":
                raise InvalidDestinationError("there is no queue gone; list them")
            return super().look(queue, bodies=bodies, names=names)

    @contextmanager
    def opened(_: str) -> Iterator[Hiding]:
        yield Gone(0)

    monkeypatch.setattr(opening, "open_access", opened)
    log = open_log(tmp_path, Clock())
    death = MessageDeadLettered(
        at=1007.0, consumer="ship", destination="queue://gone", message_id="47", message_key="k",
        attempts=2, reason="rejected", error_type="ValueError", error_message="late",
        dead_letter_destination=None, by_copy=False,
    )  # fmt: skip
    log.observe(death, SOURCE)
    log.close()
    asked = ["explain", "k", "--events", str(tmp_path), "--broker", "stomp://localhost"]
    told = CliRunner().invoke(main, asked).stdout.splitlines()
    assert told[-2:] == ["the broker has no queue gone", "the broker shows it in none of dead"]


@pytest.mark.parametrize("command", ["purge", "replay"])
def test_what_lies_behind_follows(broker: Hiding, command: str) -> None:
    """Once what lies before it has left the queue; and no more than was asked for."""
    assert "3 done" in run(command, "dead", "--yes", "--limit", "3")
    assert [one.id for one in broker.letters] == ["3", "4"]
    assert "2 done" in run(command, "dead", "--yes")
    assert broker.letters == []


def test_the_bar_tells_the_rate_that_is_kept(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is ahead of it waits: with 40 a second the bar said 40,000 at first, and then the double."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(moving, "_err", console(stderr=True))
    letters = [read(str(number), {}, origin="queue://orders") for number in range(16)]
    move = moving.Move(
        find=lambda _: moving.Found(letters, ""),
        plan=lambda _: "all of them",
        act=lambda some: iter([[one.id] for one in some]),
        doubt="somewhere",
        limit=None,
        rate=40.0,
    )
    move.carry_out(dry_run=False, yes=True, as_json=True)
    speeds = [
        int(one.replace(",", "")) for one in re.findall(r"([0-9,]+)/s", capfd.readouterr().err)
    ]
    assert speeds
    assert max(speeds) <= 40


def test_what_stays_is_not_done(broker: Hiding) -> None:
    """A script is told so, by the exit code and by a number; who asked for no more than has gone has all of it."""
    broker.letters[1] = read("1", {}, origin=None, astray="it does not tell where it came from")
    broker.letters[2:] = []
    told = json.loads(run("replay", "dead", "--dry-run", "--json").splitlines()[-1])
    assert (told["planned"], told["staying"]) == (1, 1)
    assert "1 done" in run("replay", "dead", "--yes", "--limit", "1")
    told = json.loads(run("replay", "dead", "--yes", "--json", code=1).splitlines()[-1])
    assert (told["planned"], told["done"], told["staying"]) == (0, 0, 1)
    assert [one.id for one in broker.letters] == ["1"]


@pytest.mark.parametrize("command", [("purge", "--yes"), ("replay", "--yes"), ("export",)])
def test_a_message_that_is_named_and_not_there(
    broker: Hiding, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """It was done before, or is misspelled: whoever names it hears of it, and a script by the exit code."""
    broker.letters[2:] = []
    name, *rest = command
    out = [str(tmp_path / "out")] if name == "export" else []
    found = ["--id", "1"]
    told = run(name, "dead", *out, *rest, *found, "--id", "absent\nand more", code=1)
    assert "not there: absent\\nand more" in told
    assert [one.id for one in broker.letters] == (["0", "1"] if name == "export" else ["0"])
    if name == "export":
        return
    told = run(name, "dead", *rest, "--id", "0", "--id", "absent", "--limit", "1")
    assert "1 done" in told  # no more was asked for
    assert "nothing to do" in run(name, "dead", *rest, "--id", "absent", code=1)


@pytest.mark.usefixtures("broker")
def test_what_is_named_may_be_hidden() -> None:
    """Nobody knows then whether it is there."""
    assert "not there" not in run("replay", "dead", "--yes", "--id", "absent")


@pytest.mark.parametrize(
    "to",
    [
        "topic://t",
        "queue://a,queue://b",
        "queue://a.>",
        "queue://a.*",
        "queue://a.#",
        "temp-queue://x",
    ],
)
def test_dead_letters_go_to_one_queue(broker: Hiding, to: str) -> None:
    """A topic loses them where nobody subscribes, and a list or a pattern would have each in several queues."""
    done = CliRunner().invoke(dlq.app, ["replay", "dead", "--yes", "--to", to])
    assert "is not one queue" in str(done.exception)
    assert len(broker.letters) == 5
    assert "is not one queue" in broker.letters[0].obstacle(to)


def test_dead_letters_do_not_go_to_where_they_lie(broker: Hiding) -> None:
    """They would lose their cause, or where they came from, and come up again and again."""
    done = CliRunner().invoke(dlq.app, ["replay", "dead", "--yes", "--to", "queue://dead"])
    assert "they lie there already" in str(done.exception)
    broker.letters = [read("0", {}, origin="queue://dead"), read("1", {}, origin="queue://orders")]
    told = run("replay", "dead", "--yes", code=1)
    assert "1 stays: it came from dead itself; name another queue (--to)" in told
    assert [one.id for one in broker.letters] == ["0"]


@pytest.mark.parametrize("rate", ["inf", "1e30"])
def test_a_rate_without_a_bound(broker: Hiding, rate: str) -> None:
    """Is as fast as can be."""
    assert "2 done" in run("replay", "dead", "--yes", "--limit", "2", "--rate", rate)
    assert len(broker.letters) == 3


def test_a_result_that_cannot_be_printed(
    broker: Hiding, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Is told beside it: who does not know what was done may do it again."""

    def full(_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(moving, "print_json", full)
    done = CliRunner().invoke(dlq.app, ["purge", "dead", "--yes", "--json", "--limit", "2"])
    assert isinstance(done.exception, OSError)
    assert "2 done" in done.stderr + capfd.readouterr().err
    assert len(broker.letters) == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_on_the_way(
    broker: Hiding, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """It is told what was done, and where the others are."""

    def interrupted(_queue: str, letters: Sequence[DeadLetter]) -> Iterator[list[str]]:
        yield [letters[0].id]
        signal.raise_signal(number)

    monkeypatch.setattr(broker, "remove", interrupted)
    told = CliRunner().invoke(dlq.app, ["purge", "dead", "--yes"]).stderr
    assert "1 of 2 were done for certain; each of the others is deleted, or still in dead" in told


@pytest.mark.parametrize("command", ["purge", "replay"])
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), BrokerTimeoutError("silent"), ConnectionFailedError("gone")]
)
def test_a_look_that_ends_early(
    broker: Hiding, monkeypatch: pytest.MonkeyPatch, command: str, error: BaseException
) -> None:
    """Before anything was done that is told, with the next step; later, how many were done."""
    look = broker.look

    def failing(*_: object, **__: object) -> NoReturn:
        raise error

    monkeypatch.setattr(broker, "look", failing)
    told = CliRunner().invoke(dlq.app, [command, "dead", "--yes"])
    assert told.exit_code != 0
    assert "nothing was done; do the same again" in told.stderr

    def once(*arguments: Any, **options: Any) -> Iterator[DeadLetter]:
        monkeypatch.setattr(broker, "look", failing)
        return look(*arguments, **options)

    monkeypatch.setattr(broker, "look", once)
    told = CliRunner().invoke(dlq.app, [command, "dead", "--yes"])
    assert told.exit_code != 0
    assert "2 were done for certain; the others lie where they lay" in told.stderr


def test_a_sigterm_between_two_looks(broker: Hiding, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends it as Ctrl-C does, for something was done."""
    look = broker.look

    def second(*_: object, **__: object) -> Iterator[DeadLetter]:
        signal.raise_signal(signal.SIGTERM)
        return iter(())

    def first(*arguments: Any, **options: Any) -> Iterator[DeadLetter]:
        monkeypatch.setattr(broker, "look", second)
        return look(*arguments, **options)

    monkeypatch.setattr(broker, "look", first)
    told = CliRunner().invoke(dlq.app, ["purge", "dead", "--yes"])
    assert "2 were done for certain" in told.stderr


def test_nobody_to_ask(broker: Hiding) -> None:
    """Then nothing is done."""
    done = CliRunner().invoke(dlq.app, ["purge", "dead"])
    assert "nobody can be asked" in str(done.exception)
    assert "2 dead letters of dead are deleted for good, and what lies behind" in done.output
    assert len(broker.letters) == 5


def test_who_says_no(broker: Hiding, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is deleted, and it is told; that is no interruption."""
    screen = SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(moving, "sys", screen)
    done = CliRunner().invoke(dlq.app, ["purge", "dead"], input="n\n")
    assert (done.exit_code, "nothing was done" in done.output) == (1, True), done.output
    assert len(broker.letters) == 5


@pytest.mark.parametrize("command", ["ls", "groups", "show", "replay", "purge"])
def test_a_url_in_the_place_of_a_queue(command: str) -> None:
    """The broker is named by an option; that is told before another one is asked."""
    asked = [command, "stomp://mq:61613", "--broker", "stomp://127.0.0.1:1"]
    done = CliRunner().invoke(dlq.app, asked)
    assert "that is the URL of a broker" in f"{done.output} {done.exception}"
