"""A lying broker: whatever it says, calls end in time with a typed error, and memory and threads stay bounded."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import resource
import socket
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jmsx import AcknowledgeMode, Connection, Message, Queue, ReconnectPolicy, RedeliveryPolicy
from jmsx.app import App
from jmsx.config.options import ConnectionOptions
from jmsx.config.uri import parse_broker_uri
from jmsx.core.events import LinkClosed
from jmsx.core.management import Inquiry, Question
from jmsx.core.values import DestinationKind
from jmsx.drivers.machine import Machine
from jmsx.drivers.management_link import CannotAskError, conduct
from jmsx.errors import BrokerTimeoutError, ConnectionFailedError, JmsxError
from jmsx.jms.session import link_of
from jmsx_artemis import DIALECT as ARTEMIS
from jmsx_artemis.management import ArtemisManagement
from tests.integration.broker_support import eventually
from tests.integration.liar import CONNECTED, Client, Liar, message, receipt
from tests.integration.support import Diary, nothing_left, within
from tests.integration.support import Outcome as Call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jmsx.core.frames import Frame

pytestmark = pytest.mark.timeout(60)

QUEUE = Queue("q")

#: What a broker says after it has confirmed a subscription, and words of the error that ends the link.
LIES = {
    "no STOMP": (b"garbage", "does not speak STOMP"),
    "a frame of clients": (b"SEND\ndestination:/queue/q\n\n\0", "does not speak STOMP"),
    "NULs": (b"\0\0\0", "does not speak STOMP"),
    "a gigabyte": (b"MESSAGE\ncontent-length:1000000000\n\n", "1000000000 bytes or more"),
    "a negative length": (b"MESSAGE\ncontent-length:-5\n\n", "content-length that is no number"),
    "a length with 5000 digits": (
        b"MESSAGE\ncontent-length:" + b"1" * 5000 + b"\n\n",
        "that is no number",
    ),
    "a length too short": (b"MESSAGE\ncontent-length:1\n\nabc\0", "longer than its content-length"),
    "a head without end": (b"MESSAGE\n" + b"header:value\n" * 100_000, "header block of more"),
    "a line without end": (b"MESSAGE\nx:" + b"y" * 2_000_000, "header block of more"),
    "an ERROR of two megabytes": (b"ERROR\n\n" + b"x" * 2_100_000, "1048576"),
    "CONNECTED again": (CONNECTED, "CONNECTED a second time"),
    "a receipt for nothing": (b"RECEIPT\n\n\0", "RECEIPT without receipt-id"),
    "a header without colon": (b"MESSAGE\nsubscription\n\nx\0", "without a colon"),
    "an undefined escape": (b"MESSAGE\nack:\\t\n\nx\0", "undefined escape"),
    "no UTF-8": (b"MESSAGE\nack:\xff\xfe\n\nx\0", "no UTF-8"),
    "the end in the middle of a frame": (b"MESSAGE\ncontent-length:9\n\nabc", "closed"),
    "the end": (b"", "closed"),
}


def after_subscribe(lie: Callable[[Client], object], client: Client) -> None:
    """Be a broker up to the first subscription, confirm it, and then lie."""
    frame = client.obey(until="SUBSCRIBE")
    if frame is not None:
        client.say(receipt(frame))
        lie(client)


@pytest.mark.parametrize(("lie", "words"), LIES.values(), ids=LIES)
def test_a_lie_ends_the_link_with_its_cause(lie: bytes, words: str) -> None:
    """receive(), the exception listener and the event LinkClosed all tell it; nothing is left."""
    diary = Diary()
    errors: list[JmsxError] = []
    with nothing_left(), Liar(partial(after_subscribe, lambda client: client.say(lie))) as liar:
        connection = Connection(liar.url, observers=[diary], heartbeat=(0, 0))
        connection.set_exception_listener(errors.append)
        connection.start()
        consumer = connection.create_session().create_consumer(QUEUE)
        error = within(5, consumer.receive).error
        assert isinstance(error, ConnectionFailedError)
        assert words in str(error)
        assert liar.url.removeprefix("stomp://") in str(error)
        assert len(str(error)) < 500
        assert eventually(lambda: [str(one) for one in errors] == [str(error)])
        within(5, connection.close)
    (closed,) = [event for event in diary.events if isinstance(event, LinkClosed)]
    assert words in closed.detail
    assert closed.reason == ("io" if words == "closed" else "protocol")


@pytest.mark.parametrize(("lie", "words"), LIES.values(), ids=LIES)
def test_a_session_that_reconnects_goes_past_a_lie(lie: bytes, words: str) -> None:
    """The link is lost with its cause, the next one serves the same consumer, and nothing is raised."""
    diary = Diary()

    def honest(client: Client) -> None:
        frame = client.obey(until="SUBSCRIBE")
        if frame is not None:
            client.say(receipt(frame), message(frame.headers["id"], 1, b"honest"))
            client.obey()

    liar = Liar(partial(after_subscribe, lambda client: client.say(lie)), honest)
    with (
        nothing_left(),
        liar,
        Connection(f"failover:({liar.url})", observers=[diary]) as connection,
    ):
        connection.start()
        consumer = connection.create_session().create_consumer(QUEUE)
        received = within(10, lambda: consumer.receive(5)).value
        assert received is not None
        assert received.body == b"honest"
    first = next(event for event in diary.events if isinstance(event, LinkClosed))
    assert words in first.detail


#: What a broker may say at any time, and what a client lets go.
HARMLESS = {
    "a receipt that nobody asked for": b"RECEIPT\nreceipt-id:of-another\n\n\0",
    "a message for nobody": message("of-another", 1),
    "an error about nothing": b"ERROR\nmessage:just so\n\nwhat\0",
    "beats": b"\n\r\n\n",
}


@pytest.mark.parametrize("odd", HARMLESS.values(), ids=HARMLESS)
def test_what_is_odd_and_harmless(odd: bytes) -> None:
    """The link stays, and what comes after it arrives."""

    def lie(client: Client) -> None:
        client.say(odd, message(subscription(client), 7, b"after it"))
        client.obey()

    with (
        nothing_left(),
        Liar(partial(after_subscribe, lie)) as liar,
        Connection(liar.url) as connection,
    ):
        connection.start()
        received = connection.create_session().create_consumer(QUEUE).receive(5)
        assert received is not None
        assert received.body == b"after it"


def subscription(client: Client) -> str:
    """The id of its subscription."""
    return client.said.rpartition(b"SUBSCRIBE\nid:")[2].partition(b"\n")[0].decode()


def test_a_slow_loris() -> None:
    """A byte now and then: a call that waits for an answer ends in its deadline all the same."""
    stop = threading.Event()

    def drip(client: Client) -> None:
        for _ in client.frames():
            for byte in CONNECTED[:-1]:
                client.say(bytes([byte]))
                if stop.wait(0.05):
                    return

    def drip_receipt(client: Client) -> None:
        client.obey(until="SUBSCRIBE")
        while not stop.wait(0.05):
            client.say(b"\n")

    with nothing_left(), Liar(drip, drip_receipt) as liar:
        options: dict[str, Any] = {"connect_timeout": 0.5, "request_timeout": 0.5}
        call = within(3, Connection(liar.url, **options).create_session)
        assert isinstance(call.error, BrokerTimeoutError)
        assert call.seconds < 2.5
        connection = Connection(liar.url, **options)
        session = connection.create_session()
        consumer = within(3, lambda: session.create_consumer(QUEUE))
        assert isinstance(consumer.error, BrokerTimeoutError)
        assert consumer.seconds < 2.5
        stop.set()
        within(5, connection.abort)


@contextlib.contextmanager
def swallowing() -> Iterator[int]:
    """A port that answers no SYN: its queue is full."""
    with contextlib.ExitStack() as sockets:
        server = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            guest = sockets.enter_context(socket.socket())
            guest.settimeout(0)
            guest.connect_ex(server.getsockname())
        yield server.getsockname()[1]


def unanswered(port: int) -> int:
    """How many sockets of this machine wait for an answer to their SYN to that port (SYN_SENT is 02)."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]]
    return sum(row[2].endswith(f":{port:04X}") and row[3] == "02" for row in rows)


@pytest.mark.parametrize("scheme", ["stomp", "stomp+ssl"])
def test_a_connection_that_is_only_begun_is_left_at_once(scheme: str) -> None:
    """TCP or TLS would have their 12 s; an app that is told to stop, and a session that is closed, do not wait."""
    stall = threading.Event()

    def half(client: Client) -> None:
        client.obey(until="SUBSCRIBE")

    with contextlib.ExitStack() as stack:
        stack.enter_context(nothing_left())
        if scheme == "stomp":
            port = stack.enter_context(swallowing())
            where, attempts = f"{scheme}://127.0.0.1:{port}", partial(unanswered, port)
        else:
            liar = stack.enter_context(Liar(lambda _client: stall.wait()))
            where, attempts = liar.url.replace("stomp", scheme), partial(len, liar.clients)
        stack.callback(stall.set)
        app = App(where)
        app.consumer(QUEUE)(lambda _message: None)
        before = attempts()
        start = Call(app.start)
        assert eventually(lambda: attempts() > before, 5)
        assert start.waiting
        began = time.monotonic()
        assert within(3, app.stop).error is None
        error = start.join(3).error
        took = time.monotonic() - began
        assert isinstance(error, ConnectionFailedError)
        assert "was given up" in str(error)
        good = stack.enter_context(Liar(half))
        connection = Connection(f"failover:({good.url},{where})?randomize=false")
        connection.create_session()
        before = attempts()
        good.clients[0].socket.shutdown(socket.SHUT_RDWR)
        assert eventually(lambda: attempts() > before, 5)
        close = within(3, connection.close)
        assert close.error is None
        assert took + close.seconds < 1.5


def memory() -> int:
    """Megabytes that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 2**20


def flood(data: bytes, seconds: float, client: Client) -> None:
    """Say it again and again."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        client.say(data)


FLOODS = {
    "errors": b"ERROR\nmessage:no\n\nnonsense\0" * 2000,
    "long errors": (b"ERROR\nmessage:" + b"n" * 100_000 + b"\n\n" + b"o" * 400_000 + b"\0") * 2,
    "receipts": b"RECEIPT\nreceipt-id:x\n\n\0" * 5000,
    "messages for nobody": message("nobody", 1, b"x" * 200) * 2000,
    "beats": b"\n" * 100_000,
}


@pytest.mark.parametrize("data", FLOODS.values(), ids=FLOODS)
def test_a_flood_takes_no_memory(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Two seconds of as much as it can: let go as fast as it comes, the log stays short, and calls still end."""
    with nothing_left(), Liar(partial(after_subscribe, partial(flood, data, 2.0))) as liar:
        connection = Connection(liar.url, request_timeout=1.0)
        connection.start()
        consumer = connection.create_session().create_consumer(QUEUE)
        gc.collect()
        before = memory()
        assert within(10, lambda: consumer.receive(1.0)).value is None
        assert memory() - before < 100
        assert len(caplog.records) < 20
        within(10, connection.abort)


def test_a_flood_holds_nobody_up() -> None:
    """Who takes in the flood lets others have the lock: `receive` ends in its time, as do beats of our own."""
    lie = partial(after_subscribe, partial(flood, FLOODS["messages for nobody"], 8.0))
    with Liar(lie) as liar, Connection(liar.url, request_timeout=1.0) as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(QUEUE)
        for _ in range(3):
            within(3, lambda: consumer.receive(0.5))
        within(3, connection.abort)


def test_a_flood_of_our_own_messages() -> None:
    """More messages than a hundred prefetches: the link is lost with that as its cause, and what waited is let go."""

    def lie(client: Client) -> None:
        ours = b"".join(message(subscription(client), number) for number in range(1100))
        flood(ours, 5.0, client)

    with nothing_left(), Liar(partial(after_subscribe, lie)) as liar:
        url = f"{liar.url}?jms.prefetchPolicy.all=10"
        connection = Connection(url, heartbeat=(0, 0))
        connection.start()
        session = connection.create_session()
        session.create_consumer(QUEUE)
        assert eventually(lambda: link_of(session).engine.error is not None, 10)
        assert "more than 1000 messages ahead, and the prefetch is 10" in str(
            link_of(session).engine.error
        )
        within(5, connection.close)


#: The queue of dead letters, without what is wanted to know of it.
BARE = '["{\\"deadLetterAddress\\":\\"DLQ\\",\\"data\\":[{\\"name\\":\\"DLQ\\"}]}"]'


#: What Artemis writes into answers besides.
WELL = "_AMQ_OperationSucceeded:true\n"


def true_answer(frame: Frame) -> str:
    """Of a broker that has no queue, and nothing set."""
    settings = frame.headers["_AMQ_OperationName"] == "getAddressSettingsAsJSON"
    return '["{}"]' if settings else '["{\\"data\\":[]}"]'


def manage(
    answer: Callable[[Frame], str],
    client: Client,
    *,
    before: Callable[[Client], object] = lambda _client: None,
) -> None:
    """Answer questions as Artemis' management does, after what is said `before`."""
    place = ""
    for frame in client.frames():
        if place:
            before(client)
        if frame.command == "CONNECT":
            client.say(CONNECTED.replace(b"ActiveMQ/6.1.8", b"ActiveMQ-Artemis/2.44.0"))
        elif frame.command == "SEND":
            client.say(receipt(frame), message(place, 1, answer(frame).encode(), WELL))
        else:
            client.say(receipt(frame))
        if frame.command == "SUBSCRIBE":
            place = frame.headers["id"]
        if frame.command == "DISCONNECT":
            return


@pytest.mark.parametrize("told", ["null", "[5]", "[[]]", "[{}]", '["{"]', BARE])
def test_management_that_tells_nonsense(told: str, caplog: pytest.LogCaptureFixture) -> None:
    """Another version of the broker, or a liar: what it could have told is done without, and the log says so."""
    with (
        nothing_left(),
        Liar(partial(manage, lambda _frame: told)) as liar,
        Connection(liar.url, request_timeout=2.0) as connection,
    ):
        session = connection.create_session()
        session.create_consumer(QUEUE)
        session.create_consumer(QUEUE, selector="a = 1")
    assert "management not available" in caplog.text
    assert "did not answer" not in caplog.text


def test_a_link_that_is_cut_under_a_question_is_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    """It says nothing of the management: the broker is asked again, and dead letters go where it has them."""
    asked: list[str] = []
    queue = dict.fromkeys(("lastValue", "purgeOnNoConsumers"), "false")
    queue |= {"name": "DLQ", "address": "DLQ", "filter": "", "routingType": "ANYCAST"}
    queue |= {"durable": "true", "temporary": "false", "internalQueue": "false", "enabled": "true"}
    queue |= {"autoDelete": "false", "ringSize": "-1", "consumerCount": "0"}

    def cut_once(frame: Frame) -> str:
        asked.append(frame.headers["_AMQ_OperationName"])
        if asked.count("listQueues") == 1 and asked[-1] == "listQueues":
            raise ConnectionResetError
        settings = asked[-1] == "getAddressSettingsAsJSON"
        told = {"deadLetterAddress": "DLQ"} if settings else {"data": [queue]}
        return json.dumps([json.dumps(told)])

    with (
        nothing_left(),
        Liar(partial(manage, cut_once)) as liar,
        Connection(liar.url, request_timeout=2.0) as connection,
    ):
        link = link_of(connection.create_session())
        found = link.examine(QUEUE, DestinationKind.QUEUE, RedeliveryPolicy())
        assert found.dead_letter_queue.destination == "queue://DLQ"
    assert asked.count("listQueues") > 1
    assert "management not available" not in caplog.text


def test_what_was_not_asked_answers_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A message for another subscription, or another receipt, before what was asked for."""

    def lie(client: Client) -> None:
        client.say(message("other", 1, b"nonsense", WELL), b"RECEIPT\nreceipt-id:9\n\n\0")

    with (
        nothing_left(),
        Liar(partial(manage, true_answer, before=lie)) as liar,
        Connection(liar.url, request_timeout=2.0) as connection,
    ):
        connection.create_session().create_consumer(QUEUE, selector="a = 1")
    assert "management not available" not in caplog.text


def test_a_late_answer_is_not_taken_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who did not answer is asked nothing more, whatever the inquiry makes of that."""
    monkeypatch.setattr("jmsx.drivers.request_link.PATIENCE", 0.2)
    asked: list[str] = []

    def late(frame: Frame) -> str:
        asked.append(frame.headers["_AMQ_OperationName"])
        time.sleep(0.4)
        return '["late"]'

    def inquiry() -> Inquiry[object]:
        with contextlib.suppress(JmsxError):
            yield Question("broker", "first")
        return (yield Question("broker", "second"))

    with Liar(partial(manage, late)) as liar:
        (address,) = parse_broker_uri(liar.url).addresses
        with pytest.raises(CannotAskError, match="did not answer SEND first in"):
            conduct(
                inquiry(),
                address=address,
                options=ConnectionOptions(),
                dialect=ARTEMIS,
                management=ArtemisManagement(),
                machine=Machine(),
            )
    assert asked == ["first"]


class _Faults(logging.Handler):
    """Keeps what the driver takes for a fault of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        if "fault" in record.getMessage():
            self.found.append(record.getMessage())


@contextlib.contextmanager
def no_fault_of_ours() -> Iterator[None]:
    """Fail if the driver met an exception that it did not foresee."""
    faults, log = _Faults(), logging.getLogger("jmsx.session")
    log.addHandler(faults)
    try:
        yield
    finally:
        log.removeHandler(faults)
    assert faults.found == []


#: Pieces of which Hypothesis makes a broker's speech; `%s` is the client's subscription or its open receipt.
PIECES = st.one_of(
    st.sampled_from(
        [
            "RECEIPT\nreceipt-id:%r\n\n\0",
            "RECEIPT\nreceipt-id:x\n\n\0",
            "ERROR\nmessage:no\nreceipt-id:%r\n\nwhy\0",
            "ERROR\nmessage:InvalidDestinationException\n\n\0",
            "ERROR\n\n\0",
            "MESSAGE\nsubscription:%s\nack:1\nmessage-id:1\ndestination:/queue/q\n\nbody\0",
            "MESSAGE\nsubscription:%s\n\n\0",
            "MESSAGE\nsubscription:%s\nack:2\ncontent-length:4\n\nab\0\0\0",
            "MESSAGE\nsubscription:%s\nack:3\nexpires:99999999999999999999\nredelivered:maybe\n\nx\0",
            "MESSAGE\nsubscription:%s\nack:4\nmessage-id:4\nbrowser:end\npriority:x\ntimestamp:-\n\n\0",
            "MESSAGE\nsubscription:other\nack:5\n\nx\0",
            "CONNECTED\nversion:1.2\nserver:ActiveMQ/6.1.8\nheart-beat:0,0\n\n\0",
            "CONNECTED\nversion:1.2\nserver:ActiveMQ/6.1.8\nheart-beat:x,-1\n\n\0",
            "CONNECTED\nversion:1.2\nserver:ActiveMQ/6.1.8\nheart-beat:99999999999999999,1\n\n\0",
            "\n",
            "\0",
            "content-length:9\n\n",
        ]
    ),
    st.text(st.characters(codec="latin-1"), max_size=6),
)


@given(
    greeting=st.booleans(),
    speech=st.lists(st.lists(PIECES, max_size=4), max_size=5),
    mode=st.sampled_from(AcknowledgeMode),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_speech_ends_in_time(
    speech: list[list[str]], mode: AcknowledgeMode, *, greeting: bool
) -> None:
    """Whatever a broker answers to whatever we say: each call ends soon, with a result or a typed error."""

    def talk(client: Client) -> None:
        if greeting and client.obey(until="CONNECT") is not None:
            client.say(CONNECTED)
        for pieces, frame in zip(speech, client.frames(), strict=False):
            wanted = {"%r": frame.headers.get("receipt", ""), "%s": subscription(client)}
            text = "".join(pieces).replace("%r", wanted["%r"]).replace("%s", wanted["%s"])
            client.say(text.encode("latin-1"))

    def use() -> None:
        connection.start()
        session = connection.create_session(mode)
        received = session.create_consumer(QUEUE).receive(0.05)
        if received is not None:
            received.acknowledge()
        if session.transacted:
            session.commit()
        session.create_producer(QUEUE).send(Message("x"))

    with nothing_left(), no_fault_of_ours(), Liar(talk) as liar:
        connection = Connection(liar.url, connect_timeout=0.3, request_timeout=0.3)
        error = within(10, use).error
        assert error is None or isinstance(error, JmsxError), error
        error = within(10, connection.close).error
        assert error is None or isinstance(error, JmsxError), error


def test_a_frame_that_stays_incomplete_ends_the_link() -> None:
    """A length that is too great swallows what follows, beats too; in the end the error names the frame."""

    def lie(client: Client) -> None:
        whole = message("1", 7, b"x" * 10).replace(b"content-length:10", b"content-length:99999")
        client.say(whole)
        with contextlib.suppress(OSError):
            for _ in range(100):
                client.say(b"\n")
                time.sleep(0.1)

    diary = Diary()
    with nothing_left(), Liar(partial(after_subscribe, lie)) as liar:
        connection = Connection(liar.url, observers=[diary], heartbeat=(0, 0), request_timeout=1.0)
        connection.start()
        consumer = connection.create_session().create_consumer(QUEUE)
        error = within(5, consumer.receive).error
        connection.close()
    assert isinstance(error, ConnectionFailedError)
    for words in ("incomplete for 1 s: MESSAGE", "destination:/queue/q", "message-id:m-7", "99999"):
        assert words in str(error)
    (closed,) = [event for event in diary.events if isinstance(event, LinkClosed)]
    assert closed.reason == "protocol"


def test_a_large_frame_that_comes_slowly_is_read() -> None:
    """It grows, so it is waited for."""

    def slowly(client: Client) -> None:
        data = message("1", 1, b"x" * 40_000)
        for start in range(0, len(data), 2000):
            client.say(data[start : start + 2000])
            time.sleep(0.1)
        client.obey()

    with nothing_left(), Liar(partial(after_subscribe, slowly)) as liar:
        connection = Connection(liar.url, heartbeat=(0, 0), request_timeout=1.0)
        connection.start()
        consumer = connection.create_session().create_consumer(QUEUE)
        received = consumer.receive(8)
        assert received is not None
        connection.close()


def test_a_consumer_leaves_behind_a_frame_that_comes_slowly() -> None:
    """It has asked for the end of what comes to it; a broker that writes a large message is not silent."""
    asked: list[str] = []

    def slowly(client: Client, consumer: str, question: Frame) -> None:
        answer = receipt(question)
        data = message(consumer, 1, b"x" * 14_000)
        for start in range(0, len(data), 1000):
            client.say(data[start : start + 1000])
            time.sleep(0.1)
        client.say(answer, end_of(question))

    def end_of(question: Frame) -> bytes:
        return message(question.headers["id"], 0, b"", "browser:end\n")

    def close(client: Client) -> None:
        subscribe = client.obey(until="SUBSCRIBE")
        assert subscribe is not None
        client.say(receipt(subscribe))
        for frame in client.frames():
            asked.append(f"{frame.command} {frame.headers.get('id', '').partition('~')[0]}")
            if frame.command == "SUBSCRIBE" and len(asked) == 1:
                slowly(client, subscribe.headers["id"], frame)
            elif frame.command == "SUBSCRIBE":
                client.say(receipt(frame), end_of(frame))
            else:
                client.say(receipt(frame))

    with nothing_left(), Liar(close) as liar:
        connection = Connection(liar.url, heartbeat=(0, 0))
        consumer = connection.create_session().create_consumer(QUEUE)
        consumer.close()
        connection.close()
    assert asked == [
        "SUBSCRIBE jmsx-question-1",
        "UNSUBSCRIBE jmsx-question-1",
        "SUBSCRIBE jmsx-question-2",
        "UNSUBSCRIBE jmsx-question-2",
        "UNSUBSCRIBE 1",
        "DISCONNECT ",
    ]


def test_a_queue_whose_first_frame_ends_every_link(caplog: pytest.LogCaptureFixture) -> None:
    """Readiness and one line of the log say which queue it is, and why."""
    garbage = message("1", 7, b"abcdef").replace(b"content-length:6", b"content-length:3")
    lie = partial(after_subscribe, lambda client: client.say(garbage))
    with nothing_left(), Liar(lie) as liar:
        app = App(
            liar.url,
            reconnect=ReconnectPolicy(initial_delay=0.01, maximum_delay=0.01),
        )
        app.consumer(QUEUE, name="ship")(lambda message: None)  # noqa: ARG005 - it never comes
        app.start()
        assert eventually(lambda: "in a row" in str(app.ready().body), 15)
        reasons = app.ready().body["reasons"]
        app.abort()
    assert "ship: the link to queue://q has ended" in reasons[0]
    assert "message-id:m-7" in reasons[0]
    lines = [record for record in caplog.records if "again and again" in record.getMessage()]
    assert len(lines) == 1
