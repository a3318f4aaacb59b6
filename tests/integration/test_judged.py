"""The audit of what real apps did on a real Classic: what the broker copies, lets expire, keeps, and who is silent."""

from __future__ import annotations

import shutil
import time
import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

import jmsx_report
from jmsx import Destination, Message, Queue, Topic
from jmsx.app import App
from jmsx_eventlog import EventLog
from tests.integration.broker_support import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from jmsx_broker import ArtemisBroker, Broker, ClassicBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

MESSAGES: Final = 40
TOKEN: Final = f"judged.{uuid.uuid4().hex[:8]}"
EVENTS: Final = Topic(f"VirtualTopic.{TOKEN}")
COPIES: Final = tuple(Queue(f"Consumer.{name}.{EVENTS.name}") for name in "AB")
BOTH: Final = (Queue(f"{TOKEN}.left"), Queue(f"{TOKEN}.right"))
COMPOSITE: Final = Queue(",".join(queue.name for queue in BOTH))
BRIEF, UNREAD, ELSEWHERE, ROUND = (
    Queue(f"{TOKEN}.{name}") for name in ("brief", "unread", "elsewhere", "round")
)


def reader(broker: Broker, folder: Path, name: str, queues: Iterable[Destination]) -> App:
    """A service with an event log of its own that takes what comes to `queues`."""
    app = App(broker.url, observers=[EventLog(folder / name, service=name)])
    for queue in queues:

        @app.consumer(queue, name=queue.name)
        def take(message: Message) -> None:
            assert message.text

    return app


def send(app: App, *destinations: Destination, **options: Any) -> None:
    """Send to each of `destinations`."""
    for number in range(MESSAGES):
        for destination in destinations:
            app.send(destination, str(number), **options)


def counted(broker: ClassicBroker, queue: Queue, name: str, number: int) -> bool:
    """Whether one of the broker's counts of `queue` becomes `number` soon."""
    return eventually(lambda: getattr(broker.statistics(queue.name), name) == number)


@pytest.fixture(scope="module")
def logs(classic_broker: ClassicBroker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Have three services trade; the folder has the logs of all."""
    folder = tmp_path_factory.mktemp("judged")
    # It looks at the broker's counts often: the first look must come before anything expires.
    shop = App(
        classic_broker.url, observers=[EventLog(folder / "shop", service="shop")], broker_stats=0.1
    )
    with ExitStack() as trade, shop:
        # While they are read, Classic fails at one such send in thousands, and ends its connection.
        send(shop, COMPOSITE)
        trade.enter_context(reader(classic_broker, folder, "works", [*COPIES, *BOTH]))
        trade.enter_context(reader(classic_broker, folder, "elsewhere", [ELSEWHERE]))
        read = [*COPIES, *BOTH, ELSEWHERE]
        for queue in read:
            assert counted(classic_broker, queue, "consumer_count", 1)
        send(shop, BRIEF, expires=1)
        send(shop, EVENTS, UNREAD, ELSEWHERE)
        for queue in read:
            assert counted(classic_broker, queue, "dequeue_count", MESSAGES)
        # A consumer that comes too late for what had little time: the broker hands none of it out.
        time.sleep(1)
        with reader(classic_broker, folder, "late", [BRIEF]):
            assert counted(classic_broker, BRIEF, "expired_count", MESSAGES)
    return folder


def judged(logs: Path, folder: Path, *silent: str, **options: Any) -> dict[str, Any]:
    """What is said of the logs, without those of `silent`."""
    shutil.copytree(logs, folder / "events", ignore=lambda *_: silent)
    return dict(jmsx_report.report(folder / "events", folder / "out", **options).audit)


def of(audit: dict[str, Any], destination: Destination) -> tuple[str, int, int, int]:
    """Verdict, sent, lost and repeated of one destination."""
    told = audit["destinations"][destination.uri]
    return told["verdict"], told["sent"], told["unaccounted"], told["duplicates"]


def test_copies_that_the_broker_makes_are_no_repeats(logs: Path, tmp_path: Path) -> None:
    """A virtual topic of two queues and a composite one: each message was sent once, and settled once a copy."""
    audit = judged(logs, tmp_path)

    assert of(audit, EVENTS) == ("balanced", MESSAGES, 0, 0)
    assert of(audit, COMPOSITE) == ("balanced", MESSAGES, 0, 0)
    assert of(audit, ELSEWHERE) == ("balanced", MESSAGES, 0, 0)
    for copy in (*COPIES, *BOTH):
        told = audit["destinations"][copy.uri]
        assert (told["verdict"], told["done"]) == ("balanced", MESSAGES)
    assert (audit["unaccounted"], audit["duplicates"]) == (0, 0)


def test_what_the_broker_let_expire_is_not_lost(logs: Path, tmp_path: Path) -> None:
    """The broker's own count proves it."""
    audit = judged(logs, tmp_path)
    told = audit["destinations"][BRIEF.uri]

    assert (told["verdict"], told["expired_at_broker"], told["unaccounted"]) == (
        "balanced",
        MESSAGES,
        0,
    )


def test_a_queue_that_nobody_reads_is_not_balanced(logs: Path, tmp_path: Path) -> None:
    """Nor is the whole; and nothing of it is called lost."""
    audit = judged(logs, tmp_path)
    told = audit["destinations"][UNREAD.uri]

    assert (told["verdict"], told["unread"], told["unaccounted"]) == ("unverifiable", MESSAGES, 0)
    assert audit["verdict"] == "unverifiable"


def test_a_host_whose_log_is_missing_is_found_out(logs: Path, tmp_path: Path) -> None:
    """The broker counted what was taken there, and nothing of it is called lost; the others are judged."""
    audit = judged(logs, tmp_path, "elsewhere")

    assert of(audit, ELSEWHERE) == ("unverifiable", MESSAGES, 0, 0)
    assert of(audit, EVENTS) == ("balanced", MESSAGES, 0, 0)
    assert audit["verdict"] == "unverifiable"
    said = [one["says"] for one in audit["findings"] if one["what"] == "foreign_consumers"]
    assert len(said) == 1
    assert ELSEWHERE.uri in said[0]


def test_a_service_that_is_expected_is_missed_by_name(logs: Path, tmp_path: Path) -> None:
    """Nobody knows what it would have told of: nothing is proven any more."""
    audit = judged(logs, tmp_path, "elsewhere", expect={"elsewhere": 1, "works": 1})

    assert audit["verdict"] == "unverifiable"
    said = [one["says"] for one in audit["findings"] if one["what"] == "roster"]
    assert len(said) == 1
    assert "elsewhere: 0 of 1" in said[0]


def test_what_is_sent_on_to_its_own_queue_is_another_message(
    classic_broker: ClassicBroker, tmp_path: Path
) -> None:
    """A handler that sends on what came, as it came, headers and all: no key is there twice, and all is proven."""
    app = App(classic_broker.url, observers=[EventLog(tmp_path / "events", service="shop")])
    keys = []

    @app.consumer(ROUND)
    def pass_on(message: Message) -> None:
        keys.append(message.key)
        if len(keys) <= MESSAGES:
            app.send(ROUND, message)

    with app:
        send(app, ROUND)
        assert counted(classic_broker, ROUND, "dequeue_count", 2 * MESSAGES)
    audit = jmsx_report.report(tmp_path / "events", tmp_path / "out").audit

    assert len(set(keys)) == 2 * MESSAGES
    assert of(dict(audit), ROUND) == ("balanced", 2 * MESSAGES, 0, 0)
    assert audit["verdict"] == "balanced"


def test_what_artemis_drops_by_its_duplicate_id_is_not_lost(
    artemis_broker: ArtemisBroker, tmp_path: Path
) -> None:
    """It confirms both sends, and delivers and counts one message; so do the log and the broker's own count."""
    queue = Queue(f"{TOKEN}.once")
    log = EventLog(tmp_path / "events" / "shop", service="shop")
    with App(artemis_broker.url, observers=[log], broker_stats=0.1) as shop:
        for number in range(MESSAGES):
            for _ in range(2):
                shop.send(queue, str(number), dedupe_id=f"order-{number}")
        with reader(artemis_broker, tmp_path / "events", "works", [queue]):
            assert eventually(
                lambda: artemis_broker.statistics(queue.name).dequeue_count == MESSAGES
            )
    audit = jmsx_report.report(tmp_path / "events", tmp_path / "out").audit

    assert (audit["verdict"], audit["sent"], audit["done"]) == ("balanced", 2 * MESSAGES, MESSAGES)
    assert (audit["dropped"], audit["unaccounted"]) == (MESSAGES, 0)
