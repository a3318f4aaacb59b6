"""`jmsx check` on real brokers: what works is tried, what does not is said, and nothing is taken or left."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import Connection, Message, Queue
from jmsx.core.frames import Frame
from jmsx.jms.session import link_of
from jmsx.log import counted
from jmsx_broker.wire import Wire
from tests.integration.broker_support import eventually, python, send
from tests.integration.liar import Client, Liar
from tests.integration.proxy import Proxy
from tests.integration.support import (
    TRANSACTED,
    bodies,
    connect,
    fresh_queue,
    of_an_attempt_that_tells,
    put,
    settles,
    text,
)

if TYPE_CHECKING:
    from pathlib import Path

    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(90)]


def check(*arguments: str, **environment: str) -> tuple[int, dict[str, dict[str, str]], str]:
    """Exit code, findings by what was checked, and what stands on standard error."""
    with python("-m", "jmsx.cli", "check", *arguments, "--json", **environment) as process:
        out, errors = process.communicate(timeout=60)
    assert "Traceback" not in errors
    told: dict[str, Any] = json.loads(out)
    assert told["ok"] is (process.returncode == 0)
    findings: dict[str, dict[str, str]] = {}
    for one in told["findings"]:  # some settings are worth several
        before = [findings[one["check"]]["told"]] if one["check"] in findings else []
        findings[one["check"]] = {**one, "told": "\n".join([*before, one["told"]])}
    return process.returncode, findings, errors


@pytest.mark.parametrize("kind", ["classic", "artemis"])
def test_a_broker_that_is_well(kind: str, request: pytest.FixtureRequest) -> None:
    """Everything that jmsx needs of it works."""
    broker: Broker = request.getfixturevalue(f"{kind}_broker")
    code, findings, _ = check(broker.url)
    assert code == 0
    (address,) = [name for name in findings if name.startswith("broker 127")]
    assert f"dialect {kind}" in findings[address]["told"]
    assert findings["transport"]["level"] == "note"
    assert (
        findings["heart-beats"]["told"] == "we send every 10 s at the least, the broker every 5 s"
    )
    for tried in ("probe", "transaction"):
        assert findings[tried]["level"] == "ok", findings[tried]
    assert "confirmed copies to queue://" in findings["dead letters"]["told"]
    untold = "with dead_letter='queue://ActiveMQ.DLQ' all are copies, which tell it"
    assert (kind == "classic") is (untold in findings["dead letters"]["told"])
    assert (kind == "artemis") is (findings.get("management", {}).get("level") == "ok")


APP = """\
from jmsx import AcknowledgeMode, RedeliveryPolicy
from jmsx.app import App

app = App({url!r}, heartbeat=(0, 10), request_timeout=None)

@app.consumer("queue://{queue}", mode=AcknowledgeMode.SESSION_TRANSACTED, prefetch=7, concurrency=2)
def fine(message):
    pass

@app.consumer("queue://once", redelivery=RedeliveryPolicy(maximum_redeliveries=0))
def once(message):
    pass

@app.consumer("queue://other", redelivery=RedeliveryPolicy(maximum_redeliveries=-1))
def forever(message):
    pass

@app.consumer("topic://news", durable="reader")
def nameless(message):
    pass
"""


def test_an_application(
    classic_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each consumer in words, with what is seldom meant; its queues are counted, and none of it is touched."""
    queue = fresh_queue()
    put(classic_broker, queue, "a", "b")
    text = APP.format(url=classic_broker.url, queue=queue.name)
    (tmp_path / "shop.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    code, findings, _ = check("--app", "shop:app")
    assert code == 1
    levels = {name: one["level"] for name, one in findings.items()}
    assert levels["consumer fine"] == "ok"
    assert (
        "prefetch 7, 2 workers, dead letter after 7 deliveries" in findings["consumer fine"]["told"]
    )
    assert findings["consumer once"]["told"].endswith("1 worker, dead letter after 1 delivery")
    assert levels["consumer forever"] == "warning"
    assert levels["consumer nameless"] == "failure"
    assert "needs a client_id" in findings["consumer nameless"]["told"]
    assert levels["heart-beat"] == levels["request_timeout"] == "warning"
    assert findings[f"queue {queue.name}"]["told"] == "2 messages, 0 consumers"
    assert bodies(classic_broker, queue) == ["a", "b"]
    assert classic_broker.statistics(queue.name).inflight_count == 0


def test_one_of_two_brokers_is_away(classic_broker: Broker) -> None:
    """That is how a pair of brokers looks, so it is a warning; that nobody is there is a failure."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = f"stomp://127.0.0.1:{server.getsockname()[1]}"
    code, findings, _ = check(f"failover:({nobody},{classic_broker.url})")
    assert code == 0
    (away,) = [one for one in findings.values() if "refused" in one["told"]]
    assert away["level"] == "warning"
    code, findings, _ = check(nobody)
    assert code == 1
    assert [one["level"] for one in findings.values()] == ["failure"]


def test_bad_input() -> None:
    """A misspelled option is a finding; nothing to check is an error; no password is shown."""
    code, findings, _ = check("stomp://user:hunter2@127.0.0.1:1?jms.optimizeAcknowlege=true")
    assert code == 1
    assert "optimizeAcknowledge" in findings["options"]["told"]
    assert "hunter2" not in json.dumps(findings)
    with python("-m", "jmsx.cli", "check") as process:
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "give a broker URL" in errors


def test_a_table_for_people(classic_broker: Broker) -> None:
    """Without --json: one line for each finding."""
    with python("-m", "jmsx.cli", "check", classic_broker.url) as process:
        out, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    (line,) = [line for line in out.splitlines() if " probe " in line]
    assert line.startswith("ok")
    assert "a message to ourselves came back" in line


def test_redelivery_by_broker_and_client(artemis_broker: Broker, tmp_path: Path) -> None:
    """An Artemis that was told to redeliver on its own, where jmsx does: shown, with what to do; not so elsewhere."""
    queue = fresh_queue()
    set_redelivery(artemis_broker, queue)
    with Connection(artemis_broker.url) as connection:
        connection.create_session().create_producer(queue).send(Message("a"))
    code, findings = check_app(artemis_broker, queue, tmp_path)
    assert code == 1
    told = findings[f"settings of {queue.uri}"]
    assert told["level"] == "warning"
    assert "address-full-policy DROP" in told["told"]
    assert "default-ring-size 1000" in told["told"]
    assert "the broker redelivers too" in told["told"]
    assert "redelivery-delay 200, max-delivery-attempts 3, maximum_redeliveries 6" in told["told"]
    assert findings["management"]["level"] == "ok"
    assert findings[f"queue {queue.name}"]["told"].splitlines() == [
        "1 message, 0 consumers",
        "it keeps 1,000 messages only (ring-size): for a newer one the oldest is deleted",
    ]


def test_a_broker_that_drops_is_told_without_an_application(artemis_broker: Broker) -> None:
    """Whoever gives a URL alone is warned of what holds for any queue, and of nothing else."""
    any_queue = Queue("jmsx.check")
    _, findings, _ = check(artemis_broker.url)
    assert "settings of any queue" not in findings
    set_redelivery(artemis_broker, any_queue)
    try:
        _, findings, _ = check(artemis_broker.url)
    finally:
        ask_broker(artemis_broker, "removeAddressSettings", any_queue.name)
    told = findings["settings of any queue"]
    assert told["level"] == "warning"
    assert "address-full-policy DROP" in told["told"]
    assert "default-ring-size 1000" in told["told"]


def test_where_dead_letters_go_on_artemis(artemis_broker: Broker, tmp_path: Path) -> None:
    """That is the broker's dead letter address, as this broker has it, and of a queue what its own settings say."""
    queue = fresh_queue()
    _, findings, _ = check(artemis_broker.url)
    assert "confirmed copies to queue://DLQ, unless" in findings["dead letters"]["told"]
    _, findings = check_app(artemis_broker, queue, tmp_path)
    assert "copies of its dead letters" not in str(findings)
    settings = json.dumps({"deadLetterAddress": f"{queue.name}.dead"})  # which no queue takes from
    ask_broker(artemis_broker, "addAddressSettings", queue.name, settings)
    _, findings = check_app(artemis_broker, queue, tmp_path)
    told = findings[f"settings of {queue.uri}"]["told"]
    assert "confirmed copies of its dead letters to queue://jmsx.DLQ" in told
    assert str(findings).count("copies of its dead letters") == 1
    blind = f"from jmsx import App\napp = App({artemis_broker.url!r}, use_management=False)\n"
    (tmp_path / "blind.py").write_text(blind, encoding="utf-8")
    _, findings, _ = check("--app", "blind:app", PYTHONPATH=str(tmp_path))
    assert findings["dead letters"]["told"] == "confirmed copies to queue://jmsx.DLQ"


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"ring-size": 2}, "keeps 2 messages only (ring-size)"),
        ({"last-value": True}, "for it an older one is deleted"),
        ({"purge-on-no-consumers": True}, "emptied when its last consumer ends"),
    ],
)
def test_a_queue_that_forgets(
    artemis_broker: Broker, tmp_path: Path, setting: dict[str, Any], words: str
) -> None:
    """Where it was made so, whatever its address-setting says."""
    queue = fresh_queue()
    wanted = {"name": queue.name, "address": queue.name, "routing-type": "ANYCAST", **setting}
    ask_broker(artemis_broker, "createQueue", json.dumps(wanted | {"auto-create-address": True}))
    code, findings = check_app(artemis_broker, queue, tmp_path)
    assert code == 1
    told = findings[f"queue {queue.name}"]
    assert told["level"] == "warning"
    assert words in told["told"]


def test_a_queue_that_is_named_for_dead_letters(artemis_broker: Broker, tmp_path: Path) -> None:
    """It is to keep them: so it is looked at as that of the consumer is."""
    queue, dead = fresh_queue(), fresh_queue()
    settings = json.dumps({"defaultPurgeOnNoConsumers": True})
    ask_broker(artemis_broker, "addAddressSettings", dead.name, settings)
    wanted = {"name": dead.name, "address": dead.name, "routing-type": "ANYCAST", "ring-size": 2}
    ask_broker(artemis_broker, "createQueue", json.dumps(wanted | {"auto-create-address": True}))
    text = (
        "from jmsx import App\n"
        f"app = App({artemis_broker.url!r})\n"
        f"@app.consumer({queue.uri!r}, dead_letter={dead.uri!r})\n"
        "def handle(message):\n"
        "    pass\n"
    )
    (tmp_path / "shop.py").write_text(text, encoding="utf-8")
    code, findings, _ = check("--app", "shop:app", PYTHONPATH=str(tmp_path))
    assert code == 0
    told = findings[f"settings of {dead.uri}, for dead letters of {queue.uri}"]
    assert told["level"] == "warning"
    assert "default-purge-on-no-consumers true" in told["told"]
    assert "keeps 2 messages only (ring-size)" in findings[f"queue {dead.name}"]["told"]


def settings_are_told(broker: Broker, queue: Queue, folder: Path, **settings: bool) -> str:
    """What is told of a queue whose address-setting is so."""
    ask_broker(broker, "addAddressSettings", queue.name, json.dumps(settings))
    _, findings = check_app(broker, queue, folder)
    told: str = findings[f"settings of {queue.uri}"]["told"]
    return told


def test_a_queue_that_is_emptied_with_its_last_link(artemis_broker: Broker, tmp_path: Path) -> None:
    """Everything is gone that was confirmed and not yet acknowledged; so it is told before (BROKER.md A82)."""

    def attempt() -> str:
        queue = fresh_queue()
        told = settings_are_told(artemis_broker, queue, tmp_path, defaultPurgeOnNoConsumers=True)
        with Proxy(artemis_broker.url) as proxy, connect(proxy) as connection:
            session = connection.create_session(TRANSACTED)
            consumer = session.create_consumer(queue)
            send(artemis_broker, queue.name, [b"a", b"b"])
            assert text(consumer.receive(5)) == "a"
            core = link_of(session).engine.core
            epoch = core.epoch
            proxy.cut()
            assert eventually(lambda: core.epoch > epoch)
            assert consumer.receive(1) is None
        assert settles(artemis_broker, queue, size=0)
        return told

    assert "default-purge-on-no-consumers" in of_an_attempt_that_tells(attempt)


def test_a_queue_that_keeps_what_is_done(artemis_broker: Broker, tmp_path: Path) -> None:
    """Each link gets all of it; so it is told before (BROKER.md A82)."""
    queue = fresh_queue()
    told = settings_are_told(artemis_broker, queue, tmp_path, defaultNonDestructive=True)
    assert "default-non-destructive" in told
    send(artemis_broker, queue.name, [b"a"])
    with Proxy(artemis_broker.url) as proxy, connect(proxy) as connection:
        consumer = connection.create_session().create_consumer(queue)
        assert text(consumer.receive(5)) == "a"
        assert consumer.receive(0.5) is None
        proxy.cut()
        assert text(consumer.receive(5)) == "a"


def test_a_plain_clients_queue_that_is_removed_while_nobody_reads_it(
    artemis_broker: Broker, tmp_path: Path
) -> None:
    """Who moves in is warned before what the old senders send is gone; of other names nobody is."""
    plain = Queue(f"queue:///queue/{fresh_queue().name}")
    kept, usual = Queue(f"{plain.uri}.kept"), fresh_queue()
    for queue in (plain, kept, usual):
        settings = json.dumps({"autoDeleteQueues": queue is not kept})
        ask_broker(artemis_broker, "addAddressSettings", queue.name, settings)
    for queue in (plain, kept, usual):
        for made in (False, True):
            if made:
                with Connection(artemis_broker.url) as connection:
                    connection.create_session().create_producer(queue).send(Message("a"))
            _, findings = check_app(artemis_broker, queue, tmp_path)
            told = findings[f"queue {queue.name}"]["told"]
            assert ("set auto-delete-queues to false" in told) == (queue is plain)


def check_app(broker: Broker, queue: Queue, folder: Path) -> tuple[int, dict[str, Any]]:
    """The exit code, and what is found, of an application that reads `queue`."""
    text = APP.format(url=broker.url, queue=queue.name)
    (folder / "shop.py").write_text(text, encoding="utf-8")
    code, findings, _ = check("--app", "shop:app", PYTHONPATH=str(folder))
    return code, findings


def ask_broker(broker: Broker, operation: str, *arguments: str) -> None:
    """Have the management of the broker do something."""
    headers = {
        "destination": "activemq.management",
        "_AMQ_ResourceName": "broker",
        "_AMQ_OperationName": operation,
    }
    with Wire(broker.url, timeout=30) as wire:
        wire.request(Frame("SEND", headers, json.dumps(arguments).encode()))


def set_redelivery(broker: Broker, queue: Queue) -> None:
    """Have the broker redeliver what comes back from this queue, three times in all, and drop what is too much."""
    settings = json.dumps(
        {
            "maxDeliveryAttempts": 3,
            "redeliveryDelay": 200,
            "addressFullMessagePolicy": "DROP",
            "defaultRingSize": 1000,
        }
    )
    ask_broker(broker, "addAddressSettings", queue.name, settings)


def test_dead_letters_that_wait_on_artemis(artemis_broker: Broker) -> None:
    """Where they are, and how many."""
    with Connection(artemis_broker.url) as connection:
        session = connection.create_session()
        place = link_of(session).dialect.dead_letter_queue
        session.create_producer(place).send(Message("a"))
    name = place.removeprefix("queue://")
    # The broker counts it a moment after it has answered.
    assert eventually(lambda: artemis_broker.statistics(name).size > 0)
    waiting = artemis_broker.statistics(name).size
    _, findings, _ = check(artemis_broker.url)
    assert findings[f"queue {name}"]["told"] == counted(waiting, "dead letter")


@pytest.mark.parametrize("command", ["check", "broker stats orders --broker"])
def test_a_broker_does_not_write_to_the_terminal_what_it_likes(command: str) -> None:
    """Its name and its errors are shown, and no sequence of them is obeyed; no row is its own."""
    evil = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
    greeting = (
        f"CONNECTED\nversion:1.2\nserver:ActiveMQ/6.1.8{evil}\\nok  fine\nheart-beat:0,0\n\n\0"
    )

    def script(client: Client) -> None:
        client.obey("SEND", greeting=greeting.encode())
        client.say(f"ERROR\nmessage:{evil}\\nok  all is well\n\n{evil}\0".encode())

    with Liar(script) as liar, python("-m", "jmsx.cli", *command.split(), liar.url) as process:
        out, errors = process.communicate(timeout=60)
    told = out + errors
    assert process.returncode == 1
    assert not set(told) & set("\x1b\x07\x9b\u202e\r")
    assert r"\x1b]0;owned" in told
    assert not any(line.startswith("ok  fine") for line in out.splitlines())
