"""The app on a real broker when something goes wrong around it: restarts, slow handlers, two signals, modules."""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from jmsx import (
    AcknowledgeMode,
    Connection,
    Message,
    Queue,
    ReconnectPolicy,
    Reject,
    Topic,
)
from jmsx.app import App
from jmsx.core.events import (
    Outcome,
)
from jmsx.errors import (
    BrokerTimeoutError,
    ConnectionFailedError,
    DrainError,
    JmsxError,
)
from jmsx_artemis import stranded
from tests.integration.broker_support import eventually, python, read_line
from tests.integration.liar import Client, Liar
from tests.integration.proxy import Proxy
from tests.integration.support import (
    CLIENT,
    INDIVIDUAL,
    QUICK,
    Diary,
    bodies,
    dead_copies,
    fresh_queue,
    nothing_left,
    put,
    settles,
    within,
)
from tests.integration.support import Outcome as Call

if TYPE_CHECKING:
    from pathlib import Path

    from jmsx_broker import Broker, ClassicBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


# Brokers that go -----------------------------------------------------------------------------------------------------


def test_the_apps_sender_recovers(mortal: ClassicBroker, queue: Queue) -> None:
    """From a first use without a broker, and from a broker that was restarted."""
    app = App(mortal.url, connect_timeout=2, reconnect=False)
    with nothing_left():
        mortal.kill()
        for _ in range(2):
            assert isinstance(
                within(5, lambda: app.send(queue, "lost")).error, ConnectionFailedError
            )
        mortal.start()
        app.send(queue, "first")
        mortal.kill()
        mortal.start()
        results = [within(5, lambda: app.send(queue, "second")).error for _ in range(2)]
        assert results[1] is None
        assert results[0] is None or isinstance(results[0], ConnectionFailedError)
        app.stop()
    assert bodies(mortal, queue)[:2] == ["first", "second"]


def test_a_block_that_loses_its_broker(mortal: ClassicBroker, queue: Queue) -> None:
    """`with app:` does not end as if all were well."""
    app = App(mortal.url, reconnect=False)
    app.consumer(queue)(lambda _message: None)

    def block() -> None:
        with app:
            mortal.kill()
            assert app._service.lifecycle.told.wait(5)

    with nothing_left():
        assert isinstance(within(10, block).error, ConnectionFailedError)
        assert not app._service.lifecycle.runs


# Brokers that go silent while an app starts --------------------------------------------------------------------------


@pytest.mark.parametrize("heartbeat", [(0.3, 0.3), (0, 0)], ids=["noticed", "unnoticed"])
@pytest.mark.parametrize("silent", [2, 4])
def test_a_start_whose_first_links_go_silent(
    broker: Broker, queue: Queue, silent: int, heartbeat: tuple[float, float]
) -> None:
    """An app waits for its broker: also where the first links take SUBSCRIBE, and answer nothing any more."""
    seen: list[str] = []
    with Connection(broker.url) as connection:
        connection.create_session().create_producer(queue).send("a")
    with nothing_left(), Proxy(broker.url) as proxy:
        proxy.silence_at("SUBSCRIBE", silent)
        app = App(proxy.url, request_timeout=1, heartbeat=heartbeat, watch=0, use_management=False)
        app.consumer(queue)(lambda message: seen.append(message.text))
        assert within(30, app.start).error is None
        assert not proxy.silencing
        assert eventually(lambda: seen == ["a"])
        assert app.ready().ok
        app.stop()
    assert settles(broker, queue, size=0)


def keep_silent(client: Client) -> None:
    """Take SUBSCRIBE, and answer nothing from then on."""
    client.obey("SUBSCRIBE")
    for _ in client.frames():
        pass


@pytest.mark.parametrize(
    "reconnect", [False, ReconnectPolicy(startup_maximum_attempts=1)], ids=["no", "one attempt"]
)
def test_a_start_that_is_not_to_wait(reconnect: bool | ReconnectPolicy) -> None:
    """Whoever has said so hears of it."""
    with nothing_left(), Liar(keep_silent, Client.obey) as liar:
        app = App(liar.url, request_timeout=0.5, watch=0, reconnect=reconnect)
        app.consumer("queue://q")(lambda _message: None)
        assert isinstance(within(10, app.start).error, BrokerTimeoutError)
        within(5, app.abort)


def test_a_consumer_that_is_opened_has_as_long_as_any_call() -> None:
    """Without an App nobody has said that it should wait for ever."""
    with (
        nothing_left(),
        Liar(keep_silent) as liar,
        Connection(f"failover:({liar.url})", request_timeout=0.5) as connection,
    ):
        session = connection.create_session()
        call = within(10, lambda: session.create_consumer("queue://q"))
        assert isinstance(call.error, BrokerTimeoutError)
        assert 0.5 <= call.seconds < 3
        connection.abort()


def test_a_start_on_silent_links_can_be_left() -> None:
    """It ends at once, and does not come up behind its end."""
    with nothing_left(), Liar(keep_silent) as liar:
        app = App(liar.url, request_timeout=0.2, watch=0)
        app.consumer("queue://q")(lambda _message: None)
        start = Call(app.start)
        assert eventually(lambda: len(liar.clients) > 2)
        app.abort()
        assert isinstance(start.join(3).error, JmsxError)


@pytest.mark.parametrize("word", [r"^CONNECT\n", r"^SUBSCRIBE\n(.+\n)*.*subscription-?[nN]ame:"])
def test_a_durable_consumer_whose_first_links_go_silent(broker: Broker, word: str) -> None:
    """The broker has the client id, and the subscription, on a link that we have given up: it is waited for."""
    topic, seen = Topic(fresh_queue().name), list[str]()
    with nothing_left(), Proxy(broker.url) as proxy:
        proxy.silence_at(word, 1, passed=True)
        app = App(
            proxy.url,
            client_id=topic.name,
            request_timeout=1,
            connect_timeout=1,
            heartbeat=(2, 2),  # by which the broker notices, later than we do
            watch=0,
        )
        app.consumer(topic, durable="d")(lambda message: seen.append(message.text))
        assert within(40, app.start).error is None
        assert not proxy.silencing
        app.send(topic, "a")
        # Artemis may give it to the link that it has not missed yet, and then strand it with that link's end
        assert (
            eventually(lambda: seen == ["a"])
            or _stranded(broker, f"{topic.name}::{topic.name}.d") == 1
        )
        app.stop()


def _stranded(broker: Broker, name: str) -> int | None:
    """How many messages of a queue Artemis itself says are in delivery for nobody; None on Classic."""
    with Connection(broker.url) as connection:
        return stranded.stranded(connection.create_session(), Queue(name))


# Stopping ------------------------------------------------------------------------------------------------------------


def test_a_stop_pauses_all_consumers_at_once(classic_broker: Broker) -> None:
    """While one handler takes its time, the others begin nothing more."""
    slow_queue, quick_queue = fresh_queue(), fresh_queue()
    app = App(classic_broker.url)
    began, free = threading.Event(), threading.Event()
    handled: list[str] = []

    @app.consumer(slow_queue)
    def slow(_message: Message) -> None:
        began.set()
        free.wait(20)

    @app.consumer(quick_queue)
    def quick(message: Message) -> None:
        handled.append(message.text)
        time.sleep(0.02)  # a handler with something to do

    put(classic_broker, slow_queue, "slow")
    put(classic_broker, quick_queue, *map(str, range(100)))
    with nothing_left():
        app.start()
        assert began.wait(5)
        stop = Call(app.stop)
        assert eventually(
            lambda: not any(each._connection._links.started for each in app._service.workers), 3
        )
        at_most = len(handled) + 1
        assert not eventually(lambda: len(handled) > at_most, 0.5)
        free.set()
        assert stop.join(10).error is None
    assert settles(classic_broker, quick_queue, size=100 - len(handled))
    assert settles(classic_broker, slow_queue, size=0)


def test_a_drain_has_one_deadline(classic_broker: Broker) -> None:
    """Three handlers that do not end take as long as one."""
    app = App(classic_broker.url)
    began, free = threading.Semaphore(0), threading.Event()

    def stuck(_message: Message) -> None:
        began.release()
        free.wait(20)

    for number in range(3):
        queue = fresh_queue()
        app.consumer(queue, name=f"stuck {number}")(stuck)
        put(classic_broker, queue, "x")
    with nothing_left():
        app.start()
        for _ in range(3):
            assert began.acquire(timeout=5)
        stop = within(5, lambda: app.stop(drain_timeout=1.0))
        assert isinstance(stop.error, DrainError)
        assert 1.0 <= stop.seconds < 2.9
        free.set()


RUN = """\
import signal, sys, time
from jmsx.app import App

class Observer:
    def observe(self, event, source):
        pass

    def close(self):
        print("closed", flush=True)

app = App({url!r}, observers=[Observer()])

@app.consumer({queue!r})
def handle(message):
    print("began", flush=True)
    time.sleep(60)

try:
    app.run()
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, flush=True)
"""


def test_a_second_signal_closes_the_observers(classic_broker: Broker, queue: Queue) -> None:
    """Run() is over at once, all is closed and given back, and the signals are as they were."""
    put(classic_broker, queue, "a")
    program = RUN.format(url=classic_broker.url, queue=queue.uri)
    with python("-c", program) as process:
        assert read_line(process) == "began"
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)  # two signals at once would be one
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        out, errors = process.communicate(timeout=10)
    assert out.splitlines() == ["closed", "interrupted", "True"], errors
    assert settles(classic_broker, queue, size=1)


@pytest.mark.parametrize("first", ["stop", "abort"])
def test_observers_are_closed_once(classic_broker: Broker, diary: Diary, first: str) -> None:
    """However often an app is stopped or aborted."""
    app = App(classic_broker.url, observers=[diary])
    app.consumer(fresh_queue(), name="x")(lambda _message: None)
    app.start()
    getattr(app, first)()
    for _ in range(2):
        app.stop()
        app.abort()
    assert diary.closed == 1


# What users write ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL])
def test_an_app_that_acknowledges(
    classic_broker: Broker, queue: Queue, diary: Diary, mode: AcknowledgeMode
) -> None:
    """Returning settles, raising redelivers, poison is a dead letter, and Reject is one at once."""
    app = App(classic_broker.url, observers=[diary])
    seen: list[tuple[str, int]] = []

    @app.consumer(queue, mode=mode, redelivery=QUICK, give_up_on=(KeyError,), prefetch=1)
    def handle(message: Message) -> None:
        seen.append((message.text, message.delivery_count))
        if message.text == "poison" or (message.text, message.delivery_count) == ("twice", 1):
            raise ValueError(message.text)
        if message.text == "reject":
            raise Reject
        if message.text == "hopeless":
            raise KeyError(message.text)
        if message.text == "itself":
            message.acknowledge()

    texts = ["fine", "twice", "poison", "reject", "hopeless", "itself", "last"]
    put(classic_broker, queue, *texts, case=queue.name)
    with nothing_left(), app:
        assert settles(classic_broker, queue, size=0)
    counts = dict.fromkeys(texts, 1) | {"twice": 2, "poison": 3}
    assert seen == [(name, n) for name, most in counts.items() for n in range(1, most + 1)]
    assert diary.outcomes() == {
        Outcome.ACKNOWLEDGED: 4,
        Outcome.ROLLED_BACK: 3,
        Outcome.DEAD_LETTERED: 3,
    }
    assert len(dead_copies(classic_broker, queue.name)) == 3


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("\n1 / 0", "cannot import broken: ZeroDivisionError: division by zero"),
        ("import no_such_module", "cannot import broken: ModuleNotFoundError: No module named"),
        ("raise SystemExit(3)", "cannot import broken: SystemExit: 3"),
        ("def x(:", "cannot import broken: SyntaxError"),
        ("app = 1", "broken has no App called 'app'"),
        ("from jmsx.app import App; app = App('stomp://h')", "broken:app has no consumers"),
        (
            "from jmsx.app import App; app = App('stomp://h', prefech=1)",
            "did you mean 'prefetch'?",
        ),
    ],
)
def test_a_fault_in_the_users_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, words: str
) -> None:
    """What is wrong with it in one message, exit code 1, and where, with no frame of ours."""
    (tmp_path / "broken.py").write_text(program, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with python("-m", "jmsx.cli", "run", "broken:app") as process:
        out, errors = process.communicate(timeout=20)
    assert words in errors
    if program == "\n1 / 0":
        assert 'broken.py", line 2, in <module>' in errors
    assert "importlib" not in errors
    assert "load_app" not in errors
    assert "fault of ours" not in errors
    assert (process.returncode, out) == (1, "")
