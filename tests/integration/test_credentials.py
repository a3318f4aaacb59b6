"""Credentials that change while a program runs: each link asks for them anew."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import App, Connection, Message
from jmsx.config.options import ReconnectPolicy
from jmsx.errors import (
    ConfigurationError,
    ConnectionFailedError,
    JmsxError,
)
from jmsx.testing import harness
from jmsx_broker.artemis_recipe import ArtemisRecipe
from jmsx_broker.classic_recipe import ClassicRecipe
from jmsx_broker.local import LocalBroker
from tests.integration.broker_support import changed, eventually
from tests.integration.liar import Client, Liar
from tests.integration.support import AUTO, fresh_queue, nothing_left
from tests.integration.test_secrets import CANARY, TRACE, refuse

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.timeout(90)

QUICK = ReconnectPolicy(maximum_delay=0.2)


class Vault:
    """Has a secret for `shop`, which may change."""

    def __init__(self, secret: str) -> None:
        self.secret = secret
        self.asked = 0

    def __call__(self) -> tuple[str, str]:
        """Return the credentials that hold now."""
        self.asked += 1
        return "shop", self.secret


def restarted_classic(broker: LocalBroker) -> None:
    """Give it another password, which a Classic reads when it starts."""
    broker.stop()
    broker._recipe = ClassicRecipe(users={"shop": "fresh"})
    broker.start()


@pytest.mark.broker
def test_a_restarted_broker_that_has_another_password() -> None:
    """Who asks anew goes on there."""
    vault, queue = Vault("old"), fresh_queue()
    seen: list[str] = []
    with LocalBroker(ClassicRecipe(users={"shop": "old"}), 0) as broker, nothing_left():
        app = App(broker.url, credentials=vault, reconnect=QUICK)
        app.consumer(queue)(lambda message: seen.append(message.text))
        with app:
            app.send(queue, "a")
            vault.secret = "fresh"  # noqa: S105 - no real account has it
            restarted_classic(broker)
            app.send(queue, "b")
            assert eventually(lambda: "b" in seen)


@pytest.mark.broker
def test_artemis_asks_its_login_again_while_a_link_lives() -> None:
    """It ends the link at the next SEND after the change; on a new one, with what holds now, that is sent again."""
    vault, queue = Vault("old"), fresh_queue()
    recipe = ArtemisRecipe(users={"shop": "old"})
    at_once = "<security-invalidation-interval>200</security-invalidation-interval>"
    broker = changed(
        recipe,
        ("required\n", "required\n    reload=true\n"),
        ("<security-enabled>", f"{at_once}<security-enabled>"),
    )
    with (
        broker,
        nothing_left(),
        Connection(broker.url, credentials=vault, reconnect=QUICK) as connection,
    ):
        connection.start()
        session = connection.create_session(AUTO)
        producer = session.create_producer(queue)
        producer.send(Message("a"))
        file = broker.log.parent / "etc/users.properties"
        file.write_text("shop=fresh\n", "utf-8")
        os.utime(file, (time.time() + 2,) * 2)  # its times are whole seconds
        vault.secret = "fresh"  # noqa: S105 - no real account has it
        time.sleep(0.3)
        asked = vault.asked
        producer.send(Message("b"))
        assert vault.asked > asked
        consumer = session.create_consumer(queue)
        assert [getattr(consumer.receive(wait), "text", None) for wait in (5, 5, 0.3)] == [
            "a",
            "b",
            None,
        ]


def answering(*answers: object) -> Callable[[], Any]:
    """What returns one after the other, or raises it."""
    left = iter(answers)

    def credentials() -> object:
        given = next(left)
        if isinstance(given, Exception):
            raise given
        return given

    return credentials


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (OSError("the vault is sealed"), ConnectionFailedError, "OSError: the vault is sealed"),
        (
            ("u", "x\n"),
            ConfigurationError,
            "the password that credentials returns holds a line end",
        ),
        ("geheim", ConfigurationError, r"must be \(username, password\), not a str"),
        (("u", "p", "q"), ConfigurationError, r"must be \(username, password\)"),
        ((b"u", "p"), ConfigurationError, "the username that credentials returns must be a str"),
    ],
)
def test_what_is_no_answer(given: object, error: type[JmsxError], words: str) -> None:
    """An error that names the broker, and does not tell what may be a secret; nothing was sent."""
    with (
        Liar(Client.obey) as liar,
        Connection(liar.url, credentials=answering(given)) as connection,
    ):
        with pytest.raises(error, match=words) as raised:
            connection.create_session()
        assert liar.url.removeprefix("stomp://") in str(raised.value)
        assert "geheim" not in str(raised.value)


def test_a_vault_that_is_away_is_waited_for() -> None:
    """As for the broker itself, by who waits for that."""
    vault = answering(OSError("sealed"), OSError("sealed"), ("u", "p"))
    with (
        Liar(Client.obey) as liar,
        Connection(liar.url, credentials=vault, reconnect=QUICK) as connection,
    ):
        connection.create_session()
        assert b"passcode:p" in liar.clients[0].said


def test_a_broker_that_repeats_the_password() -> None:
    """It is in no error, wherever it came from."""
    with (
        Liar(refuse) as liar,
        Connection(liar.url, credentials=lambda: ("u", CANARY)) as connection,
    ):
        with pytest.raises(JmsxError) as raised:
            connection.create_session()
        assert CANARY.encode() in liar.clients[0].said
        assert TRACE not in str(raised.value) + repr(connection.options)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("stomp://h", {"username": "u"}),
        ("stomp://h", {"password": "p"}),
        ("stomp://u:p@h", {}),
        ("stomp://h?jms.password=p", {}),
    ],
)
def test_a_user_and_credentials(url: str, options: dict[str, Any]) -> None:
    """Nobody could tell which of them is meant."""
    with pytest.raises(ConfigurationError, match="but not both"):
        Connection(url, credentials=Vault("x"), **options)


def test_a_test_needs_no_secret() -> None:
    """The broker in memory lets everybody in."""
    vault = Vault("x")
    app = App("stomp://localhost", credentials=vault)
    seen: list[str] = []
    app.consumer("queue://a")(lambda message: seen.append(message.text))
    with harness(app, "classic") as mq:
        mq.send("queue://a", "b")
        mq.advance("1s")
    assert (seen, vault.asked) == (["b"], 0)
