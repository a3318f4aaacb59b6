"""Attempts to reach a broker: which, how often, after which pauses, and when they end."""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from jmsx import AcknowledgeMode, Connection
from jmsx.config.options import FOR_EVER, ConnectionOptions, ReconnectPolicy
from jmsx.config.uri import BrokerAddress, BrokerUri
from jmsx.core.session import SessionCore
from jmsx.drivers import reconnect
from jmsx.drivers.changed import Event
from jmsx.drivers.machine import Machine
from jmsx.drivers.reconnect import UNHEARD, Connector
from jmsx.errors import (
    ConnectionFailedError,
    InvalidClientIdError,
    JmsxError,
    SecurityError,
    TlsError,
)
from jmsx.testing import FakeBrokerServer
from tests.benchmarks.one_thread import OneThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jmsx.drivers.reconnect import Connected

A, B, C = (BrokerAddress(name, 61613) for name in "abc")


class Pauses(Event):
    """Takes no time, and keeps how long it was to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Note it."""
        assert timeout is not None
        self.seconds.append(timeout)
        return self.is_set()


class Stubborn(Connector):
    """Fails as it is told, round by round; the last way of failing lasts."""

    def __init__(
        self,
        policy: ReconnectPolicy | None,
        *failures: JmsxError,
        addresses: tuple[BrokerAddress, ...] = (A,),
        request_timeout: float | None = 30.0,
        tell: Callable[[int], None] = lambda _number: None,
    ) -> None:
        options = ConnectionOptions(reconnect=policy, request_timeout=request_timeout)
        super().__init__(BrokerUri(addresses, options), None, queue.SimpleQueue(), Machine())
        self._cancelled = self.pauses = Pauses()
        self.rounds = 0
        self._failures = failures
        self._tell_round = tell

    def connect(self) -> Connected:
        """One round that comes to nothing."""
        self.rounds += 1
        self._tell_round(self.rounds)
        raise self._failures[min(self.rounds, len(self._failures)) - 1]

    def attempt(self) -> None:
        """As an engine makes it."""
        self.connect()


DOWN = ConnectionFailedError("connection refused")


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param(ReconnectPolicy(), [0.01, 0.02, 0.04, 0.08, 0.16, 0.32], id="java"),
        pytest.param(
            ReconnectPolicy(initial_delay=1, back_off_multiplier=5, maximum_delay=100),
            [1, 5, 25, 100, 100, 100],
            id="capped",
        ),
        pytest.param(
            ReconnectPolicy(use_exponential_back_off=False), [0.01] * 6, id="always the same"
        ),
        pytest.param(ReconnectPolicy(initial_delay=0), [0] * 6, id="none"),
    ],
)
def test_pauses_grow_as_in_java(policy: ReconnectPolicy, expected: list[float]) -> None:
    """10 ms, doubled, at most 30 s, without jitter; the first attempt is made at once (`FailoverTransport.java`)."""
    assert [policy.delay(failed) for failed in range(1, 7)] == pytest.approx(expected)


def test_pause_after_ages_is_a_number() -> None:
    """However large the power."""
    assert ReconnectPolicy().delay(10**9) == 30.0


@pytest.mark.parametrize(
    ("attempts", "startup", "rounds"), [(0, -1, 1), (1, -1, 1), (4, -1, 4), (4, 2, 2), (-1, 3, 3), (4, 0, 1)]
)  # fmt: skip
def test_attempts_of_the_first_connection(attempts: int, startup: int, rounds: int) -> None:
    """`startup` wins; 0 is one attempt, and no second (`FailoverTransport.java`)."""
    policy = ReconnectPolicy(maximum_attempts=attempts, startup_maximum_attempts=startup)
    connector = Stubborn(policy, DOWN)
    with pytest.raises(ConnectionFailedError, match="refused"):
        connector.first(patient=True)
    assert connector.rounds == rounds
    assert connector.pauses.seconds == pytest.approx([0.01 * 2**n for n in range(rounds - 1)])


@pytest.mark.parametrize("patient", [True, False])
def test_without_a_policy_there_is_one_attempt(*, patient: bool) -> None:
    """And with one too, for what must not take long."""
    connector = Stubborn(None if patient else ReconnectPolicy(), DOWN)
    with pytest.raises(ConnectionFailedError):
        connector.first(patient=patient)
    assert (connector.rounds, connector.pauses.seconds) == (1, [])


@pytest.mark.parametrize("error", [SecurityError("no"), InvalidClientIdError("no"), TlsError("no")])
def test_what_no_second_attempt_cures_is_told_at_once(error: JmsxError) -> None:
    """At the start; a session that lives already goes on trying, for it may be cured."""
    connector = Stubborn(ReconnectPolicy(), DOWN, error)
    with pytest.raises(type(error)):
        connector.first(patient=True)
    assert connector.rounds == 2
    living = Stubborn(ReconnectPolicy(maximum_attempts=5), DOWN, error)
    with pytest.raises(type(error)):
        living.restore(living.attempt, A, flaps=0)
    assert living.rounds == 5


def test_a_lost_link_that_is_refused_for_another_reason(caplog: pytest.LogCaptureFixture) -> None:
    """Is told at once, and not ten attempts later, which may be minutes: a password has changed, say."""
    living = Stubborn(ReconnectPolicy(maximum_attempts=9), DOWN, DOWN, SecurityError("no"))
    seen = []

    def attempt() -> None:
        seen.append(living.refusal)
        living.attempt()

    with pytest.raises(SecurityError):
        living.restore(attempt, A, flaps=0)
    told = [record.__dict__["jmsx"] for record in caplog.records]
    assert [(line["attempt"], line["error"]) for line in told] == [(1, str(DOWN)), (3, "no")]
    assert (seen[0], seen[1], seen[3], living.refusal) == ("", str(DOWN), "no", "")


class Refused(Connector):
    """Is refused by each broker as it is told; the last round of refusals lasts."""

    def __init__(self, *rounds: dict[BrokerAddress, JmsxError]) -> None:
        options = ConnectionOptions(reconnect=ReconnectPolicy(maximum_attempts=3, randomize=False))
        super().__init__(BrokerUri((A, B), options), None, queue.SimpleQueue(), Machine())
        self._cancelled = Pauses()
        self._rounds = rounds
        self._began = 0

    def attempt(self) -> None:
        """As an engine makes it."""
        self._began += 1
        self.connect()

    def _open(self, address: BrokerAddress, _options: ConnectionOptions) -> Connected:
        raise self._rounds[min(self._began, len(self._rounds)) - 1][address]


@pytest.mark.parametrize(
    ("other", "told"), [(SecurityError("no"), [1, 2]), (TlsError("no"), [1]), (DOWN, [1])]
)
def test_a_refusal_by_all_brokers(
    caplog: pytest.LogCaptureFixture, other: JmsxError, told: list[int]
) -> None:
    """Is told at once, as that of a single one is; where another one may yet let us in, it is waited for as ever."""
    living = Refused({A: DOWN, B: DOWN}, {A: SecurityError("never"), B: other})
    with pytest.raises(JmsxError, match=f"^({other}; never|never; {other})$") as raised:
        living.restore(living.attempt, A, flaps=0)
    same = isinstance(other, SecurityError)
    assert type(raised.value) is (SecurityError if same else ConnectionFailedError)
    assert [record.__dict__["jmsx"]["attempt"] for record in caplog.records] == told


def test_why_a_broker_was_late_at_the_start_is_forgotten() -> None:
    """It would be told of a link that is lost much later, until the first attempt to restore that has failed."""
    connector = Stubborn(ReconnectPolicy(startup_maximum_attempts=2), DOWN, SecurityError("no"))
    with pytest.raises(SecurityError):
        connector.first(patient=True)
    assert connector.refusal == ""


@pytest.mark.parametrize(("ago", "rounds"), [(UNHEARD / 2, 3), (UNHEARD * 2, 1), (math.inf, 1)])
def test_a_client_id_that_may_be_that_of_a_link_of_ours(ago: float, rounds: int) -> None:
    """Which the broker may have made, and not told: that is believed of it for a minute."""
    policy = ReconnectPolicy(startup_maximum_attempts=3)
    connector = Stubborn(policy, InvalidClientIdError("in use"))
    connector._unheard_at = connector._machine.monotonic() - ago
    with pytest.raises(InvalidClientIdError):
        connector.first(patient=True)
    assert connector.rounds == rounds


def test_our_client_id_that_the_broker_has_for_the_link_that_was_lost() -> None:
    """It notices the end of that soon; a session without a policy is restored then, too, and waits for nothing else."""
    refused = InvalidClientIdError("in use")
    connector = Stubborn(None, refused)

    def attempt() -> None:
        if connector.rounds < 3:
            connector.connect()

    assert connector.restore(attempt, A, flaps=0) == 4
    waiting = Stubborn(None, refused, DOWN)
    with pytest.raises(ConnectionFailedError):
        waiting.restore(waiting.attempt, A, flaps=0)
    assert waiting.rounds == 2


def test_our_client_id_is_waited_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no longer, however long the pauses have grown; nor once the session is being closed."""
    connector = Stubborn(None, InvalidClientIdError("in use"))
    monkeypatch.setattr(reconnect, "_spent", lambda _state: sum(connector.pauses.seconds))
    with pytest.raises(InvalidClientIdError):
        connector.restore(connector.attempt, A, flaps=0)
    assert sum(connector.pauses.seconds) == pytest.approx(UNHEARD)

    closing = Stubborn(None, InvalidClientIdError("in use"), tell=lambda _round: closing.cancel())
    with pytest.raises(InvalidClientIdError):
        closing.restore(closing.attempt, A, flaps=0)
    assert closing.rounds == 1


@pytest.mark.parametrize("client_id", ["ours", None])
def test_a_client_id_that_is_refused_without_a_word(client_id: str | None) -> None:
    """Classic may close the connection instead of answering; who has no client id was refused for something else."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = BrokerAddress(*server.getsockname())
        connector = Connector(
            BrokerUri((address,), ConnectionOptions()), client_id, queue.SimpleQueue(), Machine()
        )
        links: list[Connected] = []
        answers = [b"ERROR\nmessage:already connected from\n\n\0", b"", CONNECTED]
        broker = threading.Thread(
            target=_answer, args=(server, answers[not client_id :]), daemon=True
        )
        broker.start()
        if client_id is None:
            with pytest.raises(ConnectionFailedError, match="without a word"):
                connector.restore(lambda: links.append(connector.connect()), address, flaps=0)
            socket.create_connection(server.getsockname()).close()
        else:
            assert (
                connector.restore(lambda: links.append(connector.connect()), address, flaps=0) == 3
            )
            links[0].link.drop()
        broker.join()
    with pytest.raises(ConnectionFailedError, match="is the broker up"):
        connector.restore(lambda: links.append(connector.connect()), address, flaps=0)


CONNECTED = b"CONNECTED\nversion:1.2\nserver:ActiveMQ/6.1.8\n\n\0"


def _answer(server: socket.socket, answers: list[bytes]) -> None:
    """Answer one CONNECT after the other, and close the connection."""
    for answer in answers:
        client, _ = server.accept()
        with client:
            client.recv(65536)
            client.sendall(answer)


def test_links_that_did_not_last_count_as_failed_attempts() -> None:
    """So the next one is not opened at once."""
    connector = Stubborn(ReconnectPolicy(maximum_attempts=1), DOWN)
    with pytest.raises(ConnectionFailedError):
        connector.restore(connector.attempt, A, flaps=3)
    assert connector.pauses.seconds == pytest.approx([0.04])


def test_a_link_that_worked_for_a_while_is_no_failed_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However often it is lost; one that ends at once is, again and again, and so soon behind an ERROR of Artemis."""
    one = OneThread(AcknowledgeMode.AUTO_ACKNOWLEDGE, 0)
    engine = one.link.engine
    engine.renew("a test")
    counted: list[int] = []

    def restore(_attempt: object, _lost: object, *, flaps: int) -> int:
        counted.append(flaps)
        return 1

    monkeypatch.setattr(engine._connector, "restore", restore)
    for lived in (0.1, 0.1, 2.0, 2.0, 0.1):
        engine._opened_at, engine._lost_at = 100.0, 100.0 + lived
        engine._restore()
    assert counted == [1, 2, 0, 0, 1]
    engine._epoch.link.condemned = engine._epoch.patient = True  # as by one that has no room
    for lived in (2.0, 2.0):  # nothing is in flight that this would count for
        engine._opened_at, engine._lost_at = 100.0, 100.0 + lived
        engine._restore()
    assert counted[5:] == [0, 0]
    counted.append(1)
    engine._flaps = 1
    monkeypatch.setattr(SessionCore, "ahead", 1000)
    for lived in (2.0, 2.0, 20.0, 2.0):
        engine._opened_at, engine._lost_at = 100.0, 100.0 + lived
        engine._restore()
    assert counted[8:] == [2, 3, 0, 1]


@pytest.mark.parametrize(("initial", "longest"), [(0.01, 5.0), (20.0, 20.0)])
def test_links_that_did_not_last_are_waited_for_a_while_at_most(
    initial: float, longest: float
) -> None:
    """The broker has let each of them in; a policy that begins with longer pauses is kept."""
    policy = ReconnectPolicy(maximum_attempts=1, initial_delay=initial)
    connector = Stubborn(policy, DOWN)
    with pytest.raises(ConnectionFailedError):
        connector.restore(connector.attempt, A, flaps=30)
    assert connector.pauses.seconds == [longest]


def test_cancelling_ends_it() -> None:
    """After the round that is being made."""
    connector = Stubborn(
        ReconnectPolicy(), DOWN, tell=lambda n: connector.cancel() if n == 3 else None
    )
    with pytest.raises(ConnectionFailedError):
        connector.first(patient=True)
    assert connector.rounds == 3


def test_restoring_tells_how_many_attempts_it_took() -> None:
    """For the evidence."""
    connector = Stubborn(ReconnectPolicy(), DOWN)

    def attempt() -> None:
        if connector.rounds < 4:
            connector.connect()

    assert connector.restore(attempt, A, flaps=0) == 5


def test_broker_whose_link_was_lost_is_tried_last() -> None:
    """As Java does, with and without `randomize`."""
    for randomize in (True, False):
        policy = ReconnectPolicy(randomize=randomize, maximum_attempts=0)
        connector = Stubborn(policy, DOWN, addresses=(A, B, C))
        with pytest.raises(ConnectionFailedError):
            connector.restore(connector.attempt, B, flaps=0)
        order = connector._addresses()
        assert set(order) == {A, B, C}
        assert order[-1] == B
        assert randomize or order == [A, C, B]


def test_start_has_an_end_unless_told_otherwise() -> None:
    """request_timeout, failover's timeout, or a time of its own; -1 is for ever."""
    for policy, limit in (
        (ReconnectPolicy(), 0.001),
        (ReconnectPolicy(timeout=0.001), None),
        (ReconnectPolicy(startup_timeout=0.001), None),
    ):
        connector = Stubborn(policy, DOWN, request_timeout=limit)
        with pytest.raises(ConnectionFailedError):
            connector.first(patient=True)
        assert all(seconds <= 0.001 for seconds in connector.pauses.seconds)
    endless = Stubborn(
        ReconnectPolicy(startup_timeout=FOR_EVER, startup_maximum_attempts=50),
        DOWN,
        request_timeout=0.001,
    )
    with pytest.raises(ConnectionFailedError):
        endless.first(patient=True)
    assert endless.rounds == 50


@contextlib.contextmanager
def silent() -> Iterator[str]:
    """The URL of one who takes connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"stomp://127.0.0.1:{server.getsockname()[1]}"


def test_brokers_that_say_nothing_take_no_more_time_than_there_is() -> None:
    """Those of one URI share it: the start ends in its time, and comes to the one that answers."""
    with silent() as first, silent() as second, FakeBrokerServer() as good:
        url = f"failover:({first},{second})?timeout=2000"
        began = time.monotonic()
        with Connection(url) as connection, pytest.raises(ConnectionFailedError, match="CONNECT"):
            connection.create_session()
        assert 1.9 < time.monotonic() - began < 4
        began = time.monotonic()
        url = f"failover:({first},{second},{good.url})?timeout=3000&randomize=false"
        with Connection(url) as connection:
            connection.create_session()
        assert 1.9 < time.monotonic() - began < 4


def test_an_attempt_that_is_given_up_is_told_so() -> None:
    """And not that the broker, which had yet to answer, closed the connection."""
    with silent() as url, ThreadPoolExecutor() as threads, Connection(url) as connection:
        opened = threads.submit(connection.create_session)
        time.sleep(0.3)
        connection.abort()
        with pytest.raises(ConnectionFailedError, match="was given up") as told:
            opened.result(5)
        assert "broker closed" not in str(told.value)


def test_a_broker_has_its_own_time_where_that_is_shorter() -> None:
    """And where nobody limits the start: `connect_timeout` goes for each."""
    for query in ("timeout=9000", "startupMaxReconnectAttempts=1"):
        with silent() as first, silent() as second:
            url = f"failover:({first},{second})?{query}&maxReconnectAttempts=1"
            began = time.monotonic()
            with (
                Connection(url, connect_timeout=0.6, request_timeout=None) as connection,
                pytest.raises(ConnectionFailedError, match=r"in 0\.6 s"),
            ):
                connection.create_session()
            assert 1.1 < time.monotonic() - began < 3


def test_who_is_connected_to_is_told_to_whoever_listens(caplog: pytest.LogCaptureFixture) -> None:
    """As by `-v` of each command; nothing is told where nobody asked."""
    for level, lines in ((logging.WARNING, 0), (logging.INFO, 1)):
        caplog.clear()
        with caplog.at_level(level), FakeBrokerServer("classic") as server:
            with Connection(server.url) as connection:
                connection.create_session()
            told = [record.jmsx for record in caplog.records]  # type: ignore[attr-defined]  # our own extra field
        assert [one["server"] for one in told if one["event"] == "connected"] == [
            "ActiveMQ/6.1.8"
        ] * lines
