"""`jmsx dlq` on real brokers: what lies there, the way back, and kills on the way."""

from __future__ import annotations

import json
import re
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from jmsx import AcknowledgeMode, Connection, Message, PrefetchPolicy, Queue, RedeliveryPolicy
from jmsx.app import App
from jmsx.cli.commands import app as main
from jmsx.cli.dlq import app as dlq
from jmsx.core.events import MessageDeadLettered
from jmsx.core.frames import Frame
from jmsx.dead_letters.opening import open_access
from jmsx.drivers import request_link
from jmsx.errors import BrokerTimeoutError, InvalidDestinationError, ResourceAllocationError
from jmsx_artemis import dead_letter_access
from jmsx_broker import ArtemisBroker
from jmsx_broker.wire import Wire
from jmsx_classic.dead_letter_access import BATCH_BYTES
from jmsx_eventlog import EventLog
from tests.integration.artemis_support import Console
from tests.integration.broker_support import changed_artemis, eventually, python
from tests.integration.proxy import Proxy
from tests.integration.support import fresh_queue
from tests.jdk import NEEDS_JDK, run_peer
from tests.pipeline.simulator import SOURCE, Clock, open_log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jmsx_broker import Broker, ClassicBroker
    from jmsx_broker.artemis_recipe import Setting
    from jmsx_broker.local import LocalBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]


def run(broker: Broker, *arguments: str, code: int = 0) -> str:
    """What a command prints."""
    done = CliRunner().invoke(dlq, [*arguments, "--broker", broker.url])
    assert done.exit_code == code, (done.output, done.exception)
    return done.output


def printed(broker: Broker, *arguments: str, code: int = 0) -> Any:
    """What a command tells as JSON."""
    done = CliRunner().invoke(dlq, [*arguments, "--json", "--broker", broker.url])
    assert done.exit_code == code, (done.output, done.exception)
    return json.loads(done.stdout)


def dead_letters(broker: Broker, count: int) -> tuple[Queue, Queue]:
    """Have an application fail with so many messages; returns its queue and that of its dead letters."""
    origin, dead = fresh_queue(), fresh_queue()
    app = App(broker.url)

    @app.consumer(
        origin.uri,
        dead_letter=dead.uri,
        redelivery=RedeliveryPolicy(maximum_redeliveries=0),
        name="ship",
    )
    def ship(order: Message) -> None:
        raise TimeoutError("late") if int(order.text) % 2 else ValueError("odd")

    with app:
        for number in range(count):
            app.send(origin.uri, str(number), properties={"n": number})
        eventually(lambda: broker.statistics(dead.name).size == count)
    return origin, dead


def put(broker: Broker, queue: Queue, *bodies: str | bytes) -> None:
    """Send what nobody has consumed yet."""
    with Connection(broker.url) as connection:
        session = connection.create_session(AcknowledgeMode.SESSION_TRANSACTED)
        producer = session.create_producer(queue)
        for body in bodies:
            producer.send(Message(body))
        session.commit()


def put_plainly(broker: Broker, queue: Queue, body: str, **headers: str) -> None:
    """Send a text by a client that is not jmsx."""
    with Wire(broker.url) as wire:
        where = {"destination": f"/queue/{queue.name}"}
        if wire.is_artemis:
            where = {"destination": queue.name, "destination-type": "ANYCAST"}
        wire.request(Frame("SEND", {**where, "persistent": "true", **headers}, body.encode()))


def test_many_are_counted_together(proxy: Proxy, classic_broker: ClassicBroker) -> None:
    """As an individualDeadLetterStrategy makes them; each took a connection that was told of all queues."""
    names = {f"DLQ.{fresh_queue().name}": 1 + number % 2 for number in range(120)}
    with Connection(classic_broker.url) as connection:
        session = connection.create_session(AcknowledgeMode.SESSION_TRANSACTED)
        producer = session.create_producer()
        for name, count in names.items():
            for _ in range(count):
                producer.send(Message("x"), destination=Queue(name))
        session.commit()
    with open_access(proxy.url) as access:
        assert set(names) <= set(access.queues())
        before = proxy.visitors
        assert access.counts([*names, "none.such"]) == {**names, "none.such": None}
        assert proxy.visitors == before + 1


def lying(broker: Broker, queue: Queue) -> Counter[str]:
    """The bodies in a queue; it is empty then."""
    with Connection(broker.url) as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(queue)
        return Counter(
            message.text for message in iter(lambda: consumer.receive(1.0), None) if message
        )


def test_causes_are_told(broker: Broker) -> None:
    """Groups, a line each, one of them whole, and a file with all."""
    origin, dead = dead_letters(broker, 5)
    found = printed(broker, "groups", dead.name)
    assert [
        (one["origin"], one["reason"], one["error"], one["consumer"], one["count"]) for one in found
    ] == [
        (origin.uri, "max_redeliveries", "ValueError", "ship", 3),
        (origin.uri, "max_redeliveries", "TimeoutError", "ship", 2),
    ]
    shown = printed(broker, "show", dead.name, "--error", "TimeoutError")
    assert [one["error_message"] for one in shown] == ["late", "late"]
    whole = run(broker, "show", dead.name, shown[0]["id"])
    assert "raise TimeoutError" in whole
    assert "n: 1" in whole
    assert whole.rstrip().endswith("\n1")
    assert printed(broker, "ls", dead.name) == [{"queue": dead.name, "messages": 5}]
    assert broker.statistics(dead.name).size == 5


def test_what_is_meant_goes_back_and_the_rest_stays(broker: Broker) -> None:
    """By its cause, with properties and key; the application gets it as it was."""
    origin, dead = dead_letters(broker, 6)
    before = {one["key"] for one in printed(broker, "show", dead.name, "--error", "ValueError")}
    assert run(broker, "replay", dead.name, "--error", "ValueError", "--dry-run")
    assert broker.statistics(dead.name).size == 6
    told = printed(broker, "replay", dead.name, "--error", "ValueError", "--yes")
    assert told == {"planned": 3, "done": 3, "missing": 0, "staying": 0, "dry_run": False}
    with Connection(broker.url) as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(origin)
        came = [
            message for message in (consumer.receive(5.0) for _ in range(3)) if message is not None
        ]
    assert sorted((message.text, message.properties["n"]) for message in came) == [
        ("0", 0),
        ("2", 2),
        ("4", 4),
    ]
    assert {message.key for message in came} == before
    assert {message.delivery_count for message in came} == {1}
    assert lying(broker, dead) == Counter("135")


def test_what_tells_no_origin_needs_a_queue(broker: Broker) -> None:
    """It stays where it is, and the reason is told; a queue that is named takes it."""
    dead, other = fresh_queue(), fresh_queue()
    put(broker, dead, "a", "b")
    assert "2 stay: it does not tell" in run(broker, "replay", dead.name, "--yes", code=1)
    assert broker.statistics(dead.name).size == 2
    assert "2 done" in run(broker, "replay", dead.name, "--to", other.uri, "--yes")
    assert lying(broker, other) == Counter("ab")


def test_nobody_to_ask_changes_nothing(broker: Broker) -> None:
    """A script has to say --yes."""
    dead = fresh_queue()
    put(broker, dead, "a")
    done = CliRunner().invoke(dlq, ["purge", dead.name, "--broker", broker.url])
    assert done.exit_code == 1
    assert "--yes" in str(done.exception)
    assert broker.statistics(dead.name).size == 1


def test_purge_deletes_what_is_meant_from_behind_the_rest(broker: Broker) -> None:
    """More lie before it than one subscription may hold."""
    dead = fresh_queue()
    put(broker, dead, *(f"m{number}" for number in range(1300)))
    last = [one["id"] for one in printed(broker, "show", dead.name, "--limit", "1300")][-3:]
    chosen = [part for one in last for part in ("--id", one)]
    assert "3 done" in run(broker, "purge", dead.name, *chosen, "--yes")
    assert set(lying(broker, dead)) == {f"m{number}" for number in range(1297)}


def test_what_a_sender_calls_his_message_is_not_its_id(artemis_broker: ArtemisBroker) -> None:
    """A property of the broker's own name: with body and without, the message has one id."""
    dead = fresh_queue()
    put_plainly(artemis_broker, dead, "a", messageID="4711")
    with open_access(artemis_broker.url) as access:
        (short,), (whole,) = access.look(dead.name), access.look(dead.name, bodies=True)
    assert (whole.id, whole.body) == (short.id, b"a")
    assert short.id != "4711"


def test_what_cannot_go_does_not_use_up_the_limit(broker: Broker) -> None:
    """As many as were asked for go back, if there are so many that can."""
    origin, dead = fresh_queue(), fresh_queue()
    put(broker, dead, "a", "b")
    told = {"jmsx_original_destination": origin.uri}
    told |= {"_AMQ_ORIG_ADDRESS": origin.name, "_AMQ_ORIG_QUEUE": origin.name}
    put_plainly(broker, dead, "c", **told)
    assert "1 done" in run(broker, "replay", dead.name, "--limit", "1", "--yes")
    assert lying(broker, origin) == Counter("c")


def test_export_keeps_all_of_it(broker: Broker, tmp_path: Path) -> None:
    """A line each, with headers and body, in a file of its own."""
    dead, out = fresh_queue(), tmp_path / "dead.jsonl"
    put(broker, dead, "grüße", "b")
    run(broker, "export", dead.name, str(out))
    lines = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert [one["text"] for one in lines] == ["grüße", "b"]
    assert out.stat().st_mode & 0o777 == 0o600
    assert "is there already" in str(
        CliRunner().invoke(dlq, ["export", dead.name, str(out), "--broker", broker.url]).exception
    )
    assert broker.statistics(dead.name).size == 2


def test_a_queue_that_is_not_there_is_not_made(broker: Broker) -> None:
    """Looking changes nothing."""
    dead = fresh_queue()
    assert printed(broker, "ls", dead.name) == [{"queue": dead.name, "messages": None}]
    done = CliRunner().invoke(dlq, ["groups", dead.name, "--broker", broker.url])
    assert f"there is no queue {dead.name}" in str(done.exception)
    assert not broker.statistics(dead.name).exists


@pytest.mark.parametrize("ends", [b"\n\nx", b"\nx"])
def test_letters_that_name_acks_of_others(classic_broker: ClassicBroker, ends: bytes) -> None:
    """As a text that quotes STOMP does: the first on a link must not be settled by the wrong one; all go back whole."""
    probe, dead, target = fresh_queue(), fresh_queue(), fresh_queue()
    put_plainly(classic_broker, probe, "x")
    with Wire(classic_broker.url) as wire:
        wire.send(
            Frame("SUBSCRIBE", {"id": "1", "destination": f"/queue/{probe.name}", "ack": "client"})
        )
        ack = wire.receive("MESSAGE").headers["ack"].replace(":", "\\c")
    before, near = ack.rpartition("\\c")[0], int(ack.rpartition("\\c")[2])
    texts = [
        f"a\nack:17{ends.decode()}",
        *(f"a\nack:{before}\\c{one}{ends.decode()}" for one in (1, near + 10_000)),
        "plain",
    ]
    for text in texts:
        put_plainly(classic_broker, dead, text)
    assert {one["stuck"] for one in printed(classic_broker, "show", dead.name)} == {""}
    for text in texts:
        told = printed(
            classic_broker, "replay", dead.name, "--to", target.uri, "--limit", "1", "--yes"
        )
        assert told == {"planned": 1, "done": 1, "missing": 0, "staying": 0, "dry_run": False}, text
    assert lying(classic_broker, target) == Counter(texts)
    assert classic_broker.statistics(dead.name).size == 0


def test_a_body_that_holds_what_looks_like_frames(classic_broker: ClassicBroker) -> None:
    """The end of the last letter shows only in what the broker says behind it, and it says nothing by itself."""
    queue, dead = fresh_queue(), fresh_queue()
    put(classic_broker, dead, (b"x\0\n\nMESSAGE\n" + bytes(300_000)) * 10)
    assert run(classic_broker, "replay", dead.name, "--to", queue.name, "--yes").endswith(
        "1 done\n"
    )
    assert [classic_broker.statistics(one.name).size for one in (queue, dead)] == [1, 0]


def test_a_rate_is_kept_from_the_first_second_on(broker: Broker) -> None:
    """What is slow at the other end is not given a hundred at once, and then nothing for a while."""
    dead, target = fresh_queue(), fresh_queue()
    put(broker, dead, *(f"m{number}" for number in range(7)))
    with open_access(broker.url) as access:
        letters = list(access.look(dead.name))
        moved = access.replay(dead.name, letters, target.uri, at_once=3)
        assert [len(ids) for ids in moved] == [3, 3, 1]
    assert lying(broker, target).total() == 7
    put(broker, dead, *(f"m{number}" for number in range(5)))
    began = time.monotonic()
    told = run(broker, "replay", dead.name, "--to", target.uri, "--rate", "2", "--yes")
    assert "5 done" in told
    assert time.monotonic() - began > 2.4
    assert lying(broker, target).total() == 5


def test_kills_leave_each_message_in_one_place(broker: Broker) -> None:
    """Kill -9 at any moment, again and again: none is lost, none is there twice."""
    dead, target = fresh_queue(), fresh_queue()
    bodies = [f"m{number}" for number in range(1500)]  # a hundred or less are moved before a kill
    put(broker, dead, *bodies)
    command = (
        "-m", "jmsx", "dlq", "replay", dead.name, "--to", target.uri, "--yes", "--broker", broker.url
    )  # fmt: skip
    for _ in range(5):
        moved = broker.statistics(target.name).size
        with python(*command) as process:
            eventually(
                lambda: process.poll() is not None or broker.statistics(target.name).size > moved  # noqa: B023 - it is called before the loop goes on
            )
            process.send_signal(signal.SIGKILL)
    eventually(lambda: broker.statistics(dead.name).inflight_count == 0)
    with open_access(broker.url) as access:
        there = list(access.look(dead.name))
        assert there  # so each kill came to a command that was at work
        assert len(there) + broker.statistics(target.name).size == len(bodies)
        done = sum(len(ids) for ids in access.replay(dead.name, there, target.uri))
    assert done == len(there)
    assert lying(broker, target) == Counter(bodies)
    assert lying(broker, dead) == Counter()


def test_large_dead_letters_are_few_in_a_transaction(classic_broker: Broker) -> None:
    """A hundred of them took all of a broker's memory, and of this process as well."""
    dead, target, count = fresh_queue(), fresh_queue(), 5
    for _ in range(count):
        put(classic_broker, dead, b"x" * (BATCH_BYTES // 2))
    with open_access(classic_broker.url) as access:
        moved = list(access.replay(dead.name, list(access.look(dead.name)), target.uri))
    assert [len(ids) for ids in moved] == [2, 2, 1]
    assert classic_broker.statistics(target.name).size == count


@pytest.mark.parametrize("interrupts", [False, True], ids=["it fails", "Ctrl-C"])
def test_a_broker_that_falls_silent_on_the_way(classic_broker: Broker, *, interrupts: bool) -> None:
    """The command does not wait to say good-bye, and tells the error that was first."""
    dead, target = fresh_queue(), fresh_queue()
    put(classic_broker, dead, *(f"m{number}" for number in range(40)))
    with Proxy(classic_broker.url) as proxy:
        command = (
            "replay",
            dead.name,
            "--to",
            target.uri,
            "--yes",
            "--rate",
            "10",
            "--broker",
            proxy.url,
        )
        with python("-m", "jmsx", "dlq", *command) as process:
            eventually(lambda: classic_broker.statistics(target.name).size > 0)
            with proxy.frozen():
                began = time.monotonic()
                if interrupts:
                    process.send_signal(signal.SIGINT)
                _, told = process.communicate(timeout=40)
                assert time.monotonic() - began < (3 if interrupts else 10)
    assert process.returncode == (130 if interrupts else 1)
    assert " of 40 were done for certain; each of the others is in one of the queues" in told
    assert interrupts or " in 5 s" in told
    eventually(lambda: classic_broker.statistics(dead.name).inflight_count == 0)
    assert (lying(classic_broker, target) + lying(classic_broker, dead)).total() == 40


def test_a_broker_that_falls_silent_before_it_gives_out_anything(
    classic_broker: ClassicBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is given nothing does not take the queue for empty: 300 letters that lay there were told as gone."""
    dead, target = fresh_queue(), fresh_queue()
    put(classic_broker, dead, "a", "b")
    monkeypatch.setattr(request_link, "PATIENCE", 1.0)
    with Proxy(classic_broker.url) as proxy:
        proxy.silence_at("id:move-1", 1)
        asked = ["replay", dead.name, "--to", target.uri, "--yes", "--broker", proxy.url]
        done = CliRunner().invoke(dlq, asked)
    assert isinstance(done.exception, BrokerTimeoutError)
    assert "0 of 2 were done for certain" in done.output
    assert "not there any more" not in done.output
    assert lying(classic_broker, dead) == Counter("ab")


def test_a_broker_that_gives_out_letters_late(
    classic_broker: ClassicBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes when the wait for it has just ended is there: a stalled broker's letters were told as gone."""
    dead, target = fresh_queue(), fresh_queue()
    put(classic_broker, dead, "a", "b")
    in_time = request_link.RequestLink.message
    late: list[Any] = []

    def message(link: Any, subject: str, *, settles: bool = False) -> Any:
        frame = in_time(link, subject, settles=settles)
        if settles and not late:
            late.append(frame)
            link._messages.appendleft(frame)
            raise BrokerTimeoutError("late")
        return frame

    monkeypatch.setattr(request_link.RequestLink, "message", message)
    asked = ["replay", dead.name, "--to", target.uri, "--yes", "--broker", classic_broker.url]
    done = CliRunner().invoke(dlq, asked)
    assert late
    assert done.exit_code == 0, done.output
    assert lying(classic_broker, target) == Counter("ab")


def test_a_long_queue_is_shown_page_by_page(tmp_path: Path) -> None:
    """One list of Artemis shows so many messages as a setting says; jmsx shows all, and each once."""
    with ArtemisBroker(address_settings={"#": {"management-browse-page-size": 50}}) as broker:
        dead, target = fresh_queue(), fresh_queue()
        texts = [f"m{number}" for number in range(480)]
        put(broker, dead, *(text if n % 10 else text.encode() for n, text in enumerate(texts)))
        assert [one["count"] for one in printed(broker, "groups", dead.name)] == [480]
        with open_access(broker.url) as access:
            letters = list(access.look(dead.name))
        assert len({one.id for one in letters}) == len({one.key for one in letters}) == 480
        told = {frozenset(one.headers) - {"content-length"} for one in letters}
        assert len(told) == 1  # both lists tell the same; only what came as bytes has that one
        run(broker, "export", dead.name, str(out := tmp_path / "dead.jsonl"))
        assert [json.loads(line)["text"] for line in out.read_text().splitlines()] == texts
        last = ("--id", letters[-1].key)
        assert "1 done" in run(broker, "replay", dead.name, "--to", target.uri, "--yes", *last)
        assert lying(broker, target) == Counter(["m479"])


@NEEDS_JDK
def test_a_number_that_json_has_not_hides_nothing(artemis_broker: ArtemisBroker) -> None:
    """Artemis refuses its short list for one property that is no finite number, and tells its pages."""
    dead, target = fresh_queue(), fresh_queue()
    put(artemis_broker, dead, "first")
    run_peer("BodyPeer", artemis_broker.openwire_url, dead.name, "persistent", "numbers")
    put(artemis_broker, dead, "last")
    shown = printed(artemis_broker, "show", dead.name)
    assert [one["headers"].get("ratio") for one in shown] == [None, "nan", None]
    assert "3 done" in run(artemis_broker, "replay", dead.name, "--to", target.uri, "--yes")
    assert lying(artemis_broker, target) == Counter(["first", "numbers", "last"])


def test_the_broker_is_asked_for_what_is_named(broker: Broker) -> None:
    """Not for the whole queue, which may be long; but Artemis cannot look for the number that it gave a message."""
    _, dead = dead_letters(broker, 5)
    waiting = fresh_queue()
    for body in ("1", "2"):
        put_plainly(broker, waiting, body)
        time.sleep(0.002)  # a key of Artemis tells the time in milliseconds
    with open_access(broker.url) as access:
        for queue in (dead.name, waiting.name):
            for letter in list(access.look(queue)):
                for name in letter.names:
                    found = list(access.look(queue, names=[name]))
                    assert letter in found
                    assert len(found) == 1 or (isinstance(broker, ArtemisBroker) and name.isdigit())
            assert list(access.look(queue, names=["it's not there"])) == []


def test_what_is_named_is_found_behind_others(mortal: ClassicBroker) -> None:
    """Also where it lies beyond what a broker that was just started has in its memory."""
    dead = fresh_queue()
    with Connection(mortal.url) as connection:
        session = connection.create_session(AcknowledgeMode.SESSION_TRANSACTED)
        producer = session.create_producer(dead)
        for number in range(450):
            producer.send(f"{number}")
        session.commit()
    with open_access(mortal.url) as access:
        last = list(access.look(dead.name))[-1]
    mortal.kill()
    mortal.start()
    with open_access(mortal.url) as access:
        assert last.key is not None
        assert [one.id for one in access.look(dead.name, names=[last.key])] == [last.id]


def test_the_log_tells_what_the_broker_does_not(
    classic_broker: ClassicBroker, tmp_path: Path
) -> None:
    """Of what Classic itself has moved no header tells the error; the event log of the application does."""
    origin, shared = fresh_queue(), "ActiveMQ.DLQ"
    app = App(classic_broker.url, observers=[EventLog(tmp_path, service="shop")], broker_stats=0)

    @app.consumer(origin.uri, redelivery=RedeliveryPolicy(maximum_redeliveries=0), name="ship")
    def ship(_: Message) -> None:
        raise TimeoutError("late")

    with app:
        key = app.send(origin.uri, "1")
        eventually(lambda: classic_broker.statistics(origin.name).size == 0)
    log = ("--events", str(tmp_path))
    assert "TimeoutError" not in run(classic_broker, "show", shared, key)
    whole = run(classic_broker, "show", shared, key, *log)
    assert "failed with TimeoutError at tests/integration/test_dead_letter_access.py:" in whole
    assert re.search(
        r"\n\ntests/integration/test_dead_letter_access\.py:\d+ ship: TimeoutError\n",
        whole,
    )
    (shown,) = printed(classic_broker, "show", shared, key, *log)
    assert shown["log"][0].startswith(f"{key}: a dead letter since ")
    assert "untold" in run(classic_broker, "groups", shared, "--from", origin.uri)
    (group,) = printed(classic_broker, "groups", shared, "--from", origin.uri, *log)
    assert (group["reason"], group["error"], group["consumer"], group["count"]) == (
        "max_redeliveries",
        "TimeoutError",
        "ship",
        1,
    )
    put(classic_broker, origin, "unheard of")
    (other,) = printed(classic_broker, "show", origin.name)
    told = run(classic_broker, "show", origin.name, other["id"], *log)
    assert "tells of" in told.rpartition("event log")[2]


def test_a_queue_that_an_application_names(broker: Broker, tmp_path: Path) -> None:
    """It is listed, and what lies there explained by the id that is shown of it, which is that of a copy."""
    origin = fresh_queue()
    dead = f"{origin.name}.dead"
    app = App(broker.url, observers=[EventLog(tmp_path, service="shop")], broker_stats=0)

    @app.consumer(
        origin.uri,
        redelivery=RedeliveryPolicy(maximum_redeliveries=0),
        dead_letter=f"queue://{dead}",
    )
    def ship(_: Message) -> None:
        raise TimeoutError("late")

    with app:
        key = app.send(origin.uri, "1")
        eventually(lambda: broker.statistics(dead).size == 1)
    assert {"queue": dead, "messages": 1} in printed(broker, "ls")
    (shown,) = printed(broker, "show", dead)
    asked = ["explain", shown["id"], "--events", str(tmp_path)]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code != 0
    assert "--broker" in str(done.exception)
    done = CliRunner().invoke(main, [*asked, "--broker", broker.url])
    assert done.exit_code == 0, (done.output, done.exception)
    assert done.stdout.startswith(f"{key}: a dead letter since ")
    assert f"the broker has it in {dead}, as {shown['id']}" in done.stdout


def test_a_number_of_artemis_is_no_name(artemis_broker: ArtemisBroker, tmp_path: Path) -> None:
    """Another Artemis gives it to another message, of which the log of a service tells; the key has the time, too."""
    origin, dead = fresh_queue(), "DLQ"
    put_plainly(artemis_broker, origin, "1")
    with Connection(artemis_broker.url) as connection:
        connection.start()
        session = connection.create_session(AcknowledgeMode.CLIENT_ACKNOWLEDGE)
        shown = session.create_consumer(origin).receive(10)
        assert shown is not None
    number, key = str(shown.message_id), str(shown.key)
    assert key.startswith(f"{number}@")
    with Console(artemis_broker) as console:
        died = f"queue.{origin.name}", "sendMessageToDeadLetterAddress", int(number)
        assert eventually(lambda: console.ask(*died) is True, 10)
    meant = ("groups", dead, "--from", origin.uri)
    for known, told in ((f"{number}@1700000000000", "untold"), (key, "rejected")):
        log = open_log(folder := tmp_path / told, Clock())
        log.observe(
            MessageDeadLettered(
                at=1000.0, consumer="ship", destination=origin.uri, message_id=number, message_key=known,
                attempts=1, reason="rejected", error_type=None, error_message=None,
                dead_letter_destination=None, by_copy=False,
            ),
            SOURCE,
        )  # fmt: skip
        log.close()
        (group,) = printed(artemis_broker, *meant, "--events", str(folder))
        assert group["reason"] == told
    assert "1 done" in run(artemis_broker, "purge", dead, "--id", key, "--yes")


@NEEDS_JDK
def test_a_java_clients_cause_is_told(classic_broker: ClassicBroker) -> None:
    """It gives its cause along with the dead letter: error, message and deliveries are told from that."""
    origin, shared = fresh_queue(), "ActiveMQ.DLQ"
    put(classic_broker, origin, "a", "b")
    run_peer("FailingPeer", classic_broker.openwire_url, origin.name, "2")
    asked = (shared, "--from", origin.uri)
    eventually(lambda: len(printed(classic_broker, "show", *asked)) == 2)
    (group,) = printed(classic_broker, "groups", *asked, "--error", "IllegalStateException")
    assert (group["reason"], group["count"], group["origin"]) == ("max_redeliveries", 2, origin.uri)
    shown = printed(classic_broker, "show", *asked)
    assert {(one["error_message"], one["deliveries"]) for one in shown} == {
        ("no stock: article 42", 2)
    }


def test_what_a_copy_is_shown_by_is_not_its_own(artemis_broker: ArtemisBroker) -> None:
    """The broker copies a message to show it whole: where that copy went is nothing of the message."""
    dead = fresh_queue()
    put(artemis_broker, dead, "a")
    (shown,) = printed(artemis_broker, "show", dead.name)
    (whole,) = printed(artemis_broker, "show", dead.name, shown["id"])
    assert "jmsx.copies" not in str(whole["headers"])
    assert whole["headers"]["address"] == dead.name
    assert shown["headers"].keys() <= whole["headers"].keys()


def test_a_queue_by_its_full_name(artemis_broker: ArtemisBroker) -> None:
    """`ADDRESS::QUEUE`, as consumers and senders write it: looked into, counted, and moved from."""
    name = fresh_queue().name
    dead, target = Queue(f"{name}::{name}.q"), Queue(f"{name}::{name}.other")
    put(artemis_broker, dead, "a", "b")
    assert printed(artemis_broker, "ls", dead.name) == [{"queue": dead.name, "messages": 2}]
    assert [one["count"] for one in printed(artemis_broker, "groups", dead.name)] == [2]
    (first, _) = printed(artemis_broker, "show", dead.name)
    assert run(artemis_broker, "show", dead.name, first["id"]).rstrip().endswith("\na")
    put(artemis_broker, target, "c")
    assert "1 done" in run(
        artemis_broker, "replay", dead.name, "--to", target.uri, "--limit", "1", "--yes"
    )
    assert "1 done" in run(artemis_broker, "purge", dead.name, "--yes")
    assert lying(artemis_broker, target) == Counter("ca")


def test_a_queue_in_which_they_lie_by_another_name(artemis_broker: ArtemisBroker) -> None:
    """With the name of its address, or without: nothing is moved in place, where it would lose what it tells."""
    dead = fresh_queue().name
    put(artemis_broker, Queue(f"{dead}::{dead}"), "a")
    for queue, to in ((dead, f"{dead}::{dead}"), (f"{dead}::{dead}", dead)):
        asked = ["replay", queue, "--to", f"queue://{to}", "--yes", "--broker", artemis_broker.url]
        done = CliRunner().invoke(dlq, asked)
        assert "they lie there already" in str(done.exception)
    (one,) = printed(artemis_broker, "show", dead)
    assert one["origin"] == ""


def test_explain_finds_it_on_the_broker(broker: Broker, tmp_path: Path) -> None:
    """The log tells how it died, and the broker where it lies."""
    origin, dead = fresh_queue(), fresh_queue()
    app = App(broker.url, observers=[EventLog(tmp_path, service="shop")], broker_stats=0)

    @app.consumer(
        origin.uri,
        dead_letter=dead.uri,
        redelivery=RedeliveryPolicy(maximum_redeliveries=1, initial_redelivery_delay=0.01),
    )
    def ship(_: Message) -> None:
        raise TimeoutError("late")

    with app:
        app.send(origin.uri, "1")
        eventually(lambda: broker.statistics(dead.name).size == 1)
    (key,) = {one["key"] for one in printed(broker, "show", dead.name)}
    told = CliRunner().invoke(
        main, ["explain", key, "--events", str(tmp_path), "--broker", broker.url]
    )
    assert told.exit_code == 0, told.output
    assert (
        told.output.count(
            "failed with TimeoutError at tests/integration/test_dead_letter_access.py:"
        )
        == 2
    )
    assert f"dead letter in {dead.uri}: max_redeliveries, after 2 deliveries" in told.output
    assert f"the broker has it in {dead.name}, as " in told.output
    assert ": max_redeliveries, TimeoutError: late, since 2" in told.output


@NEEDS_JDK
def test_an_object_message_hides_nothing(classic_broker: ClassicBroker, tmp_path: Path) -> None:
    """Classic closes the connection of who has it translate one; all is seen and moved all the same, maps whole."""
    dead, target, out = fresh_queue(), fresh_queue(), tmp_path / "dead.jsonl"
    put(classic_broker, dead, "first")
    kinds = ("map", "object", "text", "map", "object", "stream")
    run_peer("BodyPeer", classic_broker.openwire_url, dead.name, "persistent", *kinds)
    put(classic_broker, dead, "last")
    assert printed(classic_broker, "ls", dead.name) == [{"queue": dead.name, "messages": 8}]
    assert sum(one["count"] for one in printed(classic_broker, "groups", dead.name)) == 8
    shown = printed(classic_broker, "show", dead.name)
    sent = ["jmsx", *kinds, "jmsx"]
    assert [one["headers"].get("kind", "jmsx") for one in shown] == sent
    bodiless = [one["id"] for one in shown if "does not come over STOMP" in one["stuck"]]
    assert bodiless == [shown[place]["id"] for place in (2, 5, 6)]
    assert "does not come over STOMP" in run(classic_broker, "show", dead.name, bodiless[0])
    run(classic_broker, "export", dead.name, str(out))
    texts = [json.loads(line)["text"] for line in out.read_text("utf-8").splitlines()]
    assert [text is None for text in texts] == [one["id"] in bodiless for one in shown]
    assert "<map>" in texts[1]
    told = printed(classic_broker, "replay", dead.name, "--to", target.uri, "--yes", code=1)
    assert told == {"planned": 5, "done": 5, "missing": 0, "staying": 3, "dry_run": False}
    assert [one["id"] for one in printed(classic_broker, "show", dead.name)] == bodiless
    with Connection(classic_broker.url) as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(target)
        came = [message for message in (consumer.receive(5.0) for _ in range(5)) if message]
    content = {"a": 1, "b": 2}
    assert [one.body for one in came] == ["first", content, "Zürich 😀", content, "last"]
    assert "3 done" in run(classic_broker, "purge", dead.name, "--yes")
    assert classic_broker.statistics(dead.name).size == 0


@NEEDS_JDK
def test_a_stomp_clients_map_behind_an_object_message(classic_broker: ClassicBroker) -> None:
    """Nothing of it tells that it has a body, where none is translated; it goes back whole, and an empty text too."""
    dead, target = fresh_queue(), fresh_queue()
    run_peer("BodyPeer", classic_broker.openwire_url, dead.name, "persistent", "object")
    text = "<map><entry><string>a</string><int>1</int></entry></map>"
    for body in (text, ""):
        put_plainly(classic_broker, dead, body, transformation="jms-map-xml")
    put_plainly(classic_broker, dead, "")
    told = printed(classic_broker, "replay", dead.name, "--to", target.uri, "--yes", code=1)
    assert told == {"planned": 3, "done": 3, "missing": 0, "staying": 1, "dry_run": False}
    with Connection(classic_broker.url) as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(target)
        came = [message for message in (consumer.receive(5.0) for _ in range(3)) if message]
    assert [one.body for one in came] == [{"a": 1}, "", ""]


def seen(broker: LocalBroker, queue: Queue) -> dict[str, dict[str, str]]:
    """What a Java client sees of each message in a queue, by its kind."""
    lines = run_peer("LookPeer", broker.openwire_url, queue.name).splitlines()
    told = (dict(part.split("=", 1) for part in line.split("\t")) for line in lines)
    return {one["kind"]: one for one in told}


@NEEDS_JDK
def test_what_a_java_client_sees_of_what_went_back(broker: LocalBroker) -> None:
    """All but what the guide names: Artemis moves a message as it is, and Classic's goes through STOMP."""
    dead, target = fresh_queue(), fresh_queue()
    kinds = ["rich", "xml", "xml-map", "map", "bytes", "trusted"]
    run_peer("BodyPeer", broker.openwire_url, dead.name, "volatile", *kinds)
    before = seen(broker, dead)
    is_classic = not isinstance(broker, ArtemisBroker)
    stay = ["trusted"] if is_classic else []
    told = printed(
        broker, "replay", dead.name, "--to", target.uri, "--yes", code=1 if is_classic else 0
    )
    assert (told["done"], told["staying"]) == (len(kinds) - len(stay), len(stay))
    assert list(seen(broker, dead)) == stay
    after = seen(broker, target)
    for one in before.values():
        one["expires"] = "false"
    if is_classic:
        assert before.pop("trusted")["body"] == "String x"
        for one in before.values():
            one["mode"] = "2"  # persistent
        before["rich"] |= {"group": "", ".count": "String 7", ".urgent": "String true"}
        before["map"][".transformation"] = "String jms-map-xml"
    assert after == before


@pytest.mark.parametrize("origin", ["queue://", "queue:// ", "queue://?consumer.priority=1"])
def test_an_origin_without_a_name_holds_back_nothing_else(broker: Broker, origin: str) -> None:
    """Whoever may send to the queue can write such a one; a SEND to it fails, with all of its transaction."""
    dead = fresh_queue()
    for told in (origin, f"queue://{dead.name}.origin"):
        put_plainly(broker, dead, "x", jmsx_original_destination=told)
    told = printed(broker, "replay", dead.name, "--yes", code=1)
    is_classic = not isinstance(broker, ArtemisBroker)  # Artemis goes by its own properties alone
    assert (told["done"], told["staying"]) == ((1, 1) if is_classic else (0, 2))


def test_a_plan_is_one_line(classic_broker: ClassicBroker) -> None:
    """Where a letter came from is written by who sends it: what is no queue's name is no place to go back to."""
    dead = fresh_queue()
    origins = ("queue://a\nqueue://b", "topic://a", "nonsense", "queue://a.>", "queue://a\x1b[2J")
    for origin in (*origins, f"queue://{dead.name}.origin"):
        put_plainly(classic_broker, dead, "x", jmsx_original_destination=origin)
    shown = printed(classic_broker, "show", dead.name)
    assert [one["replay"] == "yes" for one in shown] == [False] * 5 + [True]
    told = run(classic_broker, "replay", dead.name, "--dry-run").splitlines()
    assert f"1 dead letter of {dead.name} goes back: 1 to queue://{dead.name}.origin" in told
    assert len(told) == 6
    assert not any("\x1b" in line for line in told)


@pytest.fixture(scope="module")
def limited() -> Iterator[LocalBroker]:
    """An Artemis with addresses that take little, by size and by number."""
    settings: dict[str, dict[str, Setting]] = {}
    for policy in ("fail", "drop"):
        for limit, most in (("max-size-bytes", 2000), ("max-size-messages", 3)):
            settings[f"{policy}.{limit}.#"] = {"address-full-policy": policy.upper(), limit: most}
        settings[f"pages.{policy}.#"] = {
            "max-size-bytes": 2000,
            "page-size-bytes": 2000,
            "page-limit-messages": 3,
            "page-full-policy": policy.upper(),
        }
    with changed_artemis(settings=settings) as broker:
        yield broker


@pytest.mark.parametrize("limit", ["max-size-bytes", "max-size-messages"])
@pytest.mark.parametrize("policy", ["fail", "drop"])
def test_an_address_that_is_full(limited: LocalBroker, policy: str, limit: str) -> None:
    """Nothing is moved there: what it refuses is in no queue until the broker is restarted, or never again."""
    dead, target = fresh_queue(), Queue(f"{policy}.{limit}.{fresh_queue().name}")
    put(limited, dead, *(f"{number} {'x' * 300}" for number in range(6)))
    asked = ["replay", dead.name, "--to", target.uri, "--yes", "--broker", limited.url]
    for _ in range(2):
        done = CliRunner().invoke(dlq, asked)
        assert isinstance(done.exception, ResourceAllocationError)
        assert f"{target.name} is full" in str(done.exception)
        assert "manage" not in str(done.exception)
    with open_access(limited.url) as access:
        moved = access.count(target.name)
        assert moved == (1 if limit == "max-size-bytes" else 3)
        assert access.count(dead.name) == 6 - moved
        assert len(list(access.look(dead.name))) == 6 - moved


@pytest.mark.parametrize("policy", ["fail", "drop"])
def test_an_address_whose_pages_are_limited(limited: LocalBroker, policy: str) -> None:
    """The broker does the same once they are full, and tells of no moment before that: 16 of 20 were lost as done."""
    dead, target = fresh_queue(), Queue(f"pages.{policy}.{fresh_queue().name}")
    put(limited, dead, *(f"{number} {'x' * 300}" for number in range(20)))
    asked = ["replay", dead.name, "--to", target.uri, "--yes", "--broker", limited.url]
    done = CliRunner().invoke(dlq, asked)
    assert isinstance(done.exception, ResourceAllocationError)
    assert "page-full-policy" in str(done.exception)
    assert len(lying(limited, dead)) + len(lying(limited, target)) == 20


@pytest.mark.parametrize(
    "kind", [{"purge-on-no-consumers": True}, {"ring-size": 3}, {"last-value": True}]
)
def test_a_queue_that_does_not_keep_what_it_gets(
    artemis_broker: ArtemisBroker, kind: dict[str, bool | int]
) -> None:
    """Dead letters are not sent there: they would be gone, and told as done."""
    dead, target = fresh_queue(), fresh_queue()
    put(artemis_broker, dead, *"abcde")
    wanted = {"name": target.name, "address": target.name, "routing-type": "ANYCAST", **kind}
    with Console(artemis_broker) as console:
        console.ask("broker", "createQueue", json.dumps(wanted))
    asked = ["replay", dead.name, "--to", target.uri, "--yes", "--broker", artemis_broker.url]
    done = CliRunner().invoke(dlq, asked)
    assert isinstance(done.exception, InvalidDestinationError)
    assert f"queue {target.name} does not keep" in str(done.exception)
    assert lying(artemis_broker, dead) == Counter("abcde")


@pytest.fixture(scope="module")
def paging() -> Iterator[LocalBroker]:
    """An Artemis that writes to pages what is more than a few messages in an address."""
    settings: dict[str, dict[str, Setting]] = {
        "#": {
            "max-size-bytes": 20_000,
            "page-size-bytes": 10_000,
            "address-full-policy": "PAGE",
        }
    }
    with ArtemisBroker(address_settings=settings) as broker:
        yield broker


def in_pages(broker: Broker, count: int) -> Queue:
    """Return a queue with so many dead letters, of which the broker has a few in its memory."""
    dead = fresh_queue()
    put(broker, dead, *(f"{number} {'x' * 1000}" for number in range(count)))
    return dead


@pytest.mark.parametrize("command", ["replay", "remove"])
def test_what_the_broker_has_not_read_of_its_pages_is_waited_for(
    paging: LocalBroker, command: str
) -> None:
    """Until it has it finds no such message, and denies it: 214 of 250 that lay there were told as gone."""
    dead, target = in_pages(paging, 200), fresh_queue()
    with open_access(paging.url) as access, Console(paging) as console:
        letters = list(access.look(dead.name))
        console.ask(f"queue.{dead.name}", "pause")  # it reads no more of them
        assert console.ask(f"queue.{dead.name}", "removeMessage", int(letters[0].id))
        moved = (
            access.replay(dead.name, letters, target.uri)
            if command == "replay"
            else access.remove(dead.name, letters)
        )
        done = next(moved)
        assert 0 < len(done) < 50
        console.ask(f"queue.{dead.name}", "resume")
        done += [one for some in moved for one in some]
        assert done == [one.id for one in letters[1:]]
        assert access.count(dead.name) in (0, None)
        assert access.count(target.name) == (199 if command == "replay" else None)


def test_a_broker_that_reads_its_pages_no_more(
    paging: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is said, and what was done; the letters are not told as gone."""
    monkeypatch.setattr(dead_letter_access, "READING", 0.5)
    dead = in_pages(paging, 60)
    with Console(paging) as console:
        console.ask(f"queue.{dead.name}", "pause")
        asked = ["purge", dead.name, "--yes", "--broker", paging.url]
        ended = CliRunner().invoke(dlq, asked)
        assert isinstance(ended.exception, BrokerTimeoutError)
        assert f"in pages of {dead.name}" in str(ended.exception)
        assert " of 60 were done for certain" in ended.output
        assert "not there any more" not in ended.output
        console.ask(f"queue.{dead.name}", "resume")
        assert "done" in run(paging, "purge", dead.name, "--yes")


def test_a_consumer_that_keeps_the_broker_from_its_pages(
    paging: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has in hand fills the memory that pages are read into; when it is stopped a replay does them all."""
    monkeypatch.setattr(dead_letter_access, "READING", 0.5)
    dead, target = in_pages(paging, 100), fresh_queue()
    asked = ["replay", dead.name, "--to", target.uri, "--yes", "--broker", paging.url]
    with Connection(paging.url) as connection:
        consumer = connection.create_session(AcknowledgeMode.CLIENT_ACKNOWLEDGE).create_consumer(
            dead
        )
        connection.start()
        while consumer.receive(1) is not None:
            pass
        ended = CliRunner().invoke(dlq, asked)
        assert isinstance(ended.exception, BrokerTimeoutError)
        assert "stop whoever reads the queue" in str(ended.exception)
    assert eventually(lambda: "100 done" in CliRunner().invoke(dlq, asked).output, 20)


def test_what_a_consumer_has_of_a_page_keeps_no_other_from_going_back(
    paging: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker lists it, and does not find it; of 100 letters 51 stayed for the one that a consumer had."""
    monkeypatch.setattr(dead_letter_access, "READING", 0.5)
    dead, target = in_pages(paging, 200), fresh_queue()
    with Connection(paging.url, prefetch_policy=PrefetchPolicy(queue=1)) as connection:
        session = connection.create_session(AcknowledgeMode.INDIVIDUAL_ACKNOWLEDGE)
        consumer = session.create_consumer(dead)
        connection.start()
        for _ in range(100):
            message = consumer.receive(5)
            assert message is not None
            message.acknowledge()
        assert consumer.receive(5) is not None
        asked = ["replay", dead.name, "--to", target.uri, "--yes", "--broker", paging.url]
        ended = CliRunner().invoke(dlq, asked)
        assert isinstance(ended.exception, BrokerTimeoutError)
        assert f"lists 1 message in pages of {dead.name}" in str(ended.exception)
        with open_access(paging.url) as access:
            assert access.count(target.name) == 99


def test_what_lies_in_pages_is_not_exported(paging: LocalBroker, tmp_path: Path) -> None:
    """The broker copies only what it has in its memory, and whoever looks for a consumer there looks in vain."""
    dead = in_pages(paging, 60)
    told = run(paging, "export", dead.name, str(tmp_path / "dead.jsonl"), code=1)
    assert " of 60 messages can be seen" in told
    assert "prefetch-page-bytes" in told
