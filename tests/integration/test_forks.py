"""A process that forks goes on undisturbed, whatever its children try with what it has open."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from jmsx_broker import ClassicBroker
from tests.integration.support import bodies, fresh_queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx_broker import Broker

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def guarded() -> Iterator[ClassicBroker]:
    """Of our own, for it offers TLS."""
    with ClassicBroker(tls=True) as broker:
        yield broker


@pytest.fixture(params=["classic_broker", "artemis_broker", "guarded"])
def broker(request: pytest.FixtureRequest) -> Broker:
    """Each of the real brokers, and one over TLS."""
    found: Broker = request.getfixturevalue(request.param)
    return found


def reached(broker: Broker) -> str:
    """Its URL for the program, by TLS where it has that."""
    if not isinstance(broker, ClassicBroker) or not broker.has_tls:
        return broker.url
    return f"{broker.tls_url}?tls.caFile={quote(str(broker.certificates.authority))}"


def run(what: str, broker: Broker, queue: str, folder: Path) -> dict[str, Any]:
    """What the program of `forking.py` tells."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.forking", what, reached(broker), queue],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "adapters")))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def test_children_cannot_disturb_their_parent(broker: Broker, tmp_path: Path) -> None:
    """What is the parent's is refused in words, ends in silence, and app.send() has a line of its own."""
    queue = fresh_queue().name
    told = run("undisturbed", broker, queue, tmp_path)

    refused = "IllegalStateError names fork()"
    calls = ("send", "receive", "acknowledge", "commit", "rollback", "recover", "create_session")
    quiet = ("consumer.close", "session.close", "close", "abort", "app.send", "app.stop")
    for end, code in {"_exit": 0, "sys.exit": 0, "return": 0, "multiprocessing": 0}.items():
        assert told[end]["status"] == code, (end, told[end])
    assert told["raise"]["status"] != 0
    for end in ("_exit", "sys.exit", "return", "raise", "multiprocessing"):
        said = told[end]["calls"]
        for name in (*calls, "start", "stop", "app.start", "app.wait"):
            assert said[name] == refused, (end, name, said[name])
        assert {said[name] for name in quiet} == {"done"}, (end, said)

    assert told["sent"] > 0
    assert told["missing"] == []
    assert told["handled twice"] == 0
    assert told["running"]
    assert told["received"] == ["first", "second"]
    assert broker.statistics(queue).size == 0
    assert broker.statistics(f"{queue}.jms").size == 0
    assert broker.statistics(f"{queue}.output").size == 1
    assert broker.statistics(f"{queue}.children").size == 5


def test_children_of_a_preloaded_app_send_and_consume(broker: Broker, tmp_path: Path) -> None:
    """As under `gunicorn --preload`: the app was defined, and has sent, before the fork."""
    queue = fresh_queue().name
    told = run("preloaded", broker, queue, tmp_path)

    assert told["codes"] == [0] * 5
    assert told["handled"] == [[], [], [], [], ["work"]]
    wanted = ["parent", "parent again", *(f"{n} {m}" for n in range(5) for m in range(10))]
    assert sorted(bodies(broker, f"{queue}")) == sorted(wanted)


def test_handler_that_returns_in_a_child_settles_nothing(broker: Broker, tmp_path: Path) -> None:
    """
    The child's thread ends, and with it the child; the parent's handler has the message, once.

    So it is on an event loop, whose descriptors the two share.
    """
    queue = fresh_queue().name
    told = run("returning", broker, queue, tmp_path)

    plain = ["auto", "client", "individual", "transacted"]
    modes = sorted([*plain, "dedupe", *(f"async {mode}" for mode in plain)])
    assert told == {"got": modes, "codes": [0] * len(modes)}
    for mode in modes:
        assert broker.statistics(f"{queue}.{mode}").size == 0, mode
    assert sorted(bodies(broker, f"{queue}.output")) == modes
