"""A handler that ends its app, or closes the session it was given: `run()` and `wait()` return, and say why."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from jmsx import App, IllegalStateError, Message
from jmsx.testing import FakeBrokerServer
from tests.integration.broker_support import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jmsx import Session

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def server() -> Iterator[FakeBrokerServer]:
    """A Classic in memory, with one message."""
    with FakeBrokerServer("classic") as server:
        with App(server.url) as sender:
            sender.send("queue://in", "x")
        yield server


@pytest.fixture(params=["run", "wait"])
def stay(request: pytest.FixtureRequest) -> Callable[[App], None]:
    """Start an app, and stay until it is over."""

    def wait(app: App) -> None:
        app.start()
        try:
            app.wait(20)
        finally:
            app.abort()

    return App.run if request.param == "run" else wait


def test_abort(server: FakeBrokerServer, stay: Callable[[App], None]) -> None:
    """It is over at once, and what was not settled comes again."""
    app = App(server.url)

    @app.consumer("queue://in")
    def handle(_message: Message) -> None:
        assert eventually(lambda: app._service.lifecycle.flows)  # a start that is aborted raises
        app.abort()

    stay(app)
    again = list[str]()
    reader = App(server.url)
    reader.consumer("queue://in")(lambda message: again.append(message.text))
    with reader:
        assert eventually(lambda: again == ["x"], 10)


def test_abort_from_another_thread(server: FakeBrokerServer) -> None:
    """As in a handler."""
    app = App(server.url)
    app.consumer("queue://other")(lambda _message: None)
    threading.Timer(0.3, app.abort).start()
    app.run()


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("mode", ["auto", "client", "individual", "transacted"])
def test_a_session_that_is_closed(
    server: FakeBrokerServer, stay: Callable[[App], None], mode: str, *, raises: bool
) -> None:
    """Nothing can come in it any more, so the app ends with an error that says who did it."""
    app = App(server.url)

    @app.consumer("queue://in", mode=mode)
    def handle(_message: Message, session: Session) -> None:
        session.close()
        if raises:
            raise ValueError

    with pytest.raises(IllegalStateError, match=r"its handler closed the session .* call quit\(\)"):
        stay(app)


def test_a_session_that_is_closed_by_a_batch(server: FakeBrokerServer) -> None:
    """The same."""
    app = App(server.url)

    @app.consumer("queue://in", batch=2, batch_timeout=0.1)
    def handle(_messages: list[Message], session: Session) -> None:
        session.close()

    with pytest.raises(IllegalStateError, match="its handler closed the session"):
        app.run()
