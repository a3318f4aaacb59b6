"""`jmsx check --guarantees`: what is promised holds on these brokers, and where it does not, that is told."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest
from typer.testing import CliRunner

from jmsx.check import guarantees
from jmsx.check.finding import Level
from jmsx.check.guarantees import ROWS, Bench, put
from jmsx.cli.commands import app
from jmsx.config.uri import parse_broker_uri
from jmsx_broker import ArtemisBroker
from tests.integration.support import (
    KeptForNobodyError,
    fresh_queue,
    of_an_attempt_that_tells,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx_broker import Broker
    from jmsx_broker.artemis_recipe import Setting

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

#: Rows that are none on a broker as it comes.
NOTES: Final = {"classic": {"priorities"}, "artemis": {"a client id", "queue browser"}}

#: What a row says of messages that Artemis has left with a broken socket.
_KEPT: Final = "keeps the rest for a consumer"


def test_what_is_promised_holds(kind: str, broker: Broker) -> None:
    """Each row is tried, and is as the table has it; only a broken socket may strand messages."""
    done = CliRunner().invoke(app, ["check", broker.url, "--guarantees", "--json"])
    told = json.loads(done.stdout)
    rows = {one["check"]: one for one in told["findings"] if one["check"] in ROWS}
    assert list(rows) == list(ROWS)
    assert {name for name, one in rows.items() if one["level"] == Level.NOTE} == NOTES[kind]
    ill = {
        name: one["told"] for name, one in rows.items() if one["level"] in ("warning", "failure")
    }
    if kind == "artemis":
        ill = {name: one for name, one in ill.items() if _KEPT not in one}
    assert not ill
    assert done.exit_code == 0


def bench(broker: Broker, names: str = "") -> Bench:
    """For one row."""
    uri = parse_broker_uri(broker.url)
    return Bench(uri.addresses[0], uri.options, names or fresh_queue().name)


def test_what_a_row_has_sent_is_taken_away(broker: Broker) -> None:
    """However it ends."""
    work = bench(broker)
    queue, connection = work.queue(), work.connect()
    put(connection, queue, *"abc")
    connection.create_session().create_consumer(queue).receive(5)
    assert broker.statistics(queue.name).size >= 2
    work.clear()
    assert broker.statistics(queue.name).size == 0


@pytest.mark.parametrize(
    ("which", "rows"),
    [
        ("dead", "at least once, transacted"),
        (
            "gone",
            "receive and send; order, client; poison, client; non-persistent; prefetch 1; bodies; priorities",
        ),
    ],
)
def test_what_does_not_hold_is_a_failure(
    which: str, rows: str, odd: ArtemisBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the row that is broken, in words."""
    monkeypatch.setattr(guarantees, "_PATIENCE", 3.0 if which == "dead" else 1.0)
    for name in rows.split("; "):
        with pytest.raises(guarantees._BrokenError, match=r"and not|kept"):
            of_an_attempt_that_tells(partial(try_row, odd, which, name))


def try_row(broker: Broker, which: str, name: str) -> None:
    """Try it in queues of one kind; raises what it raises."""
    work = bench(broker, f"jmsx.check.{which}.{fresh_queue().name}")
    try:
        _, told = ROWS[name](work)
    finally:
        work.clear()
    if _KEPT in told:  # these are with nobody, and not what the queue's kind makes of them
        raise KeptForNobodyError(told)


@pytest.fixture(scope="module")
def odd() -> Iterator[ArtemisBroker]:
    """In some queues what was with a consumer that died is a dead letter; in others all expires at once."""
    settings: dict[str, dict[str, Setting]] = {
        "jmsx.check.dead.#": {"max-delivery-attempts": 1},
        "jmsx.check.gone.#": {"expiry-delay": 1},
    }
    with ArtemisBroker(address_settings=settings) as broker:
        yield broker
